//! Last use of an entry: how it is stamped, and what eviction reads from it.
//!
//! | policy           | column | stamp                                                                  |
//! |------------------|--------|------------------------------------------------------------------------|
//! | none, random, ttl| 0 B    | seconds mod 65536 in the page's header, shared: idle time is a lower bound |
//! | LRU              | 2 B    | seconds mod 65536 of the entry                                         |
//! | LFU              | 1 B    | logarithmic counter, as in Redis 4 (starts at 5, +1 with probability 1/((c-5) factor + 1)) |
//!
//! Seconds wrap after 18 hours, so a hand goes round every few hours and keeps what is older than 9 hours at
//! 9 hours; under LFU the same hand takes one off every counter each `lfu-decay-time` minutes.

use crate::layout::page::Page;
use isotherm_stdx::{Prng, SteadyMs, UnixMs};
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// Record of use that is kept for each entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AccessMode {
    /// A single stamp for each page, and none for its entries.
    Page,
    Lru,
    Lfu,
}

impl AccessMode {
    /// Bytes of the access column.
    #[inline]
    pub(crate) fn width(self) -> usize {
        match self {
            // COMPAT(memory): Under `noeviction`, `*-random` and `*-ttl` the keys of a page share one time of
            // last use, so OBJECT IDLETIME is a lower bound; under the LRU policies each key has its own.
            // Why: a time per key would cost bytes that only LRU needs.
            AccessMode::Page => 0,
            AccessMode::Lfu => 1,
            AccessMode::Lru => 2,
        }
    }
}

/// Use of an entry as it is known from elsewhere (RESTORE).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AccessNote {
    IdleSeconds(u64),
    Frequency(u8),
}

impl AccessNote {
    /// The stamp that says so; `None` where the mode has no place for it.
    pub(crate) fn stamp(self, mode: AccessMode, now: UnixMs) -> Option<u16> {
        match (self, mode) {
            (AccessNote::IdleSeconds(seconds), AccessMode::Lru) => {
                Some(stamp(now).wrapping_sub(seconds.min(u64::from(IDLE_SECONDS_MAX)) as u16))
            }
            (AccessNote::Frequency(count), AccessMode::Lfu) => Some(u16::from(count)),
            _ => None,
        }
    }
}

/// Access stamp of an entry, as it lies in its page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AccessStamp {
    mode: AccessMode,
    raw: u16,
}

impl AccessStamp {
    /// Returns the stamp of entry `index` of a page; `None` if the entry has none of its own.
    #[inline]
    pub(crate) fn of(mode: AccessMode, page: Page<'_>, index: usize) -> Option<AccessStamp> {
        page.access(index, mode.width()).map(|raw| AccessStamp { mode, raw })
    }

    /// Returns the stamp in terms that hold elsewhere: a frequency, or the seconds since the last use.
    pub fn note(self, now: UnixMs) -> AccessNote {
        match self.mode {
            AccessMode::Lfu => AccessNote::Frequency(self.raw as u8),
            AccessMode::Lru | AccessMode::Page => {
                AccessNote::IdleSeconds(u64::from(idle_seconds(self.raw, now)))
            }
        }
    }
}

/// A new key's counter: it survives the first decays.
const LFU_START: u16 = 5;
/// Older stamps than this look this old.
pub(crate) const IDLE_SECONDS_MAX: u16 = 32_768;

/// The mode in force, to be asked without a lock; every partition has a copy.
pub(crate) struct AccessSettings {
    mode: AtomicU8,
}

impl AccessSettings {
    pub fn new() -> AccessSettings {
        AccessSettings { mode: AtomicU8::new(0) }
    }

    pub fn set(&self, mode: AccessMode) {
        self.mode.store(mode.width() as u8, Relaxed);
    }

    #[inline]
    pub fn mode(&self) -> AccessMode {
        match self.mode.load(Relaxed) {
            0 => AccessMode::Page,
            1 => AccessMode::Lfu,
            _ => AccessMode::Lru,
        }
    }
}

/// Seconds as a stamp keeps them, which no step of the wall clock changes.
#[inline]
pub(crate) fn stamp(now: UnixMs) -> u16 {
    (SteadyMs::of(now).0 / 1000) as u16
}

/// The stamp of an entry that was just made.
#[inline]
pub(crate) fn fresh(mode: AccessMode, now: UnixMs) -> u16 {
    match mode {
        AccessMode::Page => 0,
        AccessMode::Lru => stamp(now),
        AccessMode::Lfu => LFU_START,
    }
}

/// Seconds since a stamp. One that is a little ahead, as threads read the clock at different moments, gives
/// 0.
#[inline]
pub(crate) fn idle_seconds(stamp_then: u16, now: UnixMs) -> u16 {
    let idle = stamp(now).wrapping_sub(stamp_then);
    // The hand keeps true idle times at IDLE_SECONDS_MAX and a few hours; the highest values are ahead.
    if idle > 60_000 { 0 } else { idle }
}

/// The counter after one more access.
#[inline]
pub(crate) fn lfu_increment(counter: u16, log_factor: u32, prng: &mut Prng) -> u16 {
    if counter >= 255 {
        return 255;
    }
    let base = u64::from(counter.saturating_sub(LFU_START));
    let odds = base * u64::from(log_factor) + 1;
    if odds == 1 || prng.below(odds) == 0 { counter + 1 } else { counter }
}
