//! Bounds of expiries: what comes due at the earliest, in 32 bits.
//!
//! ```text
//!   [256 ms since 2020-01-01, rounded down]        to 2054; later ones count as the last of these, and `NEVER` is behind it
//! ```

use isotherm_stdx::UnixMs;

/// 2020-01-01T00:00:00Z: 18262 days after the epoch.
pub(crate) const EPOCH_MS: i64 = 18_262 * 86_400_000;

/// No expiry below this.
pub(crate) const NEVER: u32 = u32::MAX;

/// The unit of bounds: 256 ms, so that 40 bits of milliseconds become 32.
const BOUND_SHIFT: u32 = 8;

/// The bound of an expiry: rounded down, so that it is a lower bound.
#[inline]
pub(crate) fn bound_of(expiry: UnixMs) -> u32 {
    let since = expiry.0.saturating_sub(EPOCH_MS) >> BOUND_SHIFT;
    since.clamp(0, i64::from(NEVER) - 1) as u32
}

/// The first moment of a bound.
pub(crate) fn moment_of(bound: u32) -> UnixMs {
    UnixMs(EPOCH_MS + (i64::from(bound) << BOUND_SHIFT))
}

/// Returns whether everything that shares this bound is due, as its whole unit has passed. Keys leave at most
/// 256 ms late in this way; a command that asks for one finds it expired to the millisecond.
#[inline]
pub(crate) fn is_due(bound: u32, now: UnixMs) -> bool {
    bound < bound_of(now) && bound != NEVER
}
