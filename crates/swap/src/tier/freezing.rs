//! The decision whether keys leave memory together with their values (`swap-freeze`).
//!
//! `auto` freezes once values alone are not enough, which two signs show:
//!
//! ```text
//!   entries of cold keys take a quarter of the limit     a cold key leaves 35 B of entry in memory, a frozen one 3 B;
//!                                                        off again below an eighth
//!   a whole round over all slots found nothing to move   integers and values below swap-min-value are left;
//!                                                        off again below half of the limit
//! ```
//! Freezing early matters: a key whose value is on disk already does not freeze, as its record would have to
//! be read. The quarter leaves three quarters of the limit for hot data, and at 3 to 11 B a key for 60 to 250
//! M frozen keys in 1 GB.

use isotherm_config::FreezeRule;

/// Bytes of memory that an entry of a cold key takes, on average: 35 B with a key of 20 B.
const COLD_ENTRY_BYTES: u64 = 40;
/// Parts of the limit that entries of cold keys take when freezing begins,
const BEGINS_DIVISOR: u64 = 4;
/// and when it ends.
const ENDS_DIVISOR: u64 = 8;
/// Part of the limit below which values alone may be enough again.
const PLENTY_DIVISOR: u64 = 2;

/// State of `swap-freeze auto`.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Freezing {
    by_entries: bool,
    by_want: bool,
}

impl Freezing {
    /// Returns whether keys may freeze under this rule.
    pub fn is_on(self, rule: FreezeRule) -> bool {
        match rule {
            FreezeRule::No => false,
            FreezeRule::Yes => true,
            FreezeRule::Auto => self.by_entries || self.by_want,
        }
    }

    /// Judges memory: `cold_keys` have values on disk and entries in memory, `used_bytes` of `limit_bytes`
    /// are in use.
    pub fn judge(&mut self, cold_keys: u64, used_bytes: u64, limit_bytes: u64) {
        let divisor = if self.by_entries { ENDS_DIVISOR } else { BEGINS_DIVISOR };
        self.by_entries = cold_keys * COLD_ENTRY_BYTES > limit_bytes / divisor;
        self.by_want &= used_bytes > limit_bytes / PLENTY_DIVISOR;
    }

    /// Notes that nothing else can leave memory while it is short. Returns whether that was new.
    pub fn note_want(&mut self) -> bool {
        !std::mem::replace(&mut self.by_want, true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: u64 = 40_000_000;

    #[test]
    fn entries_of_cold_keys_begin_and_end_it() {
        let mut freezing = Freezing::default();
        let mut check = |cold_keys: u64, is_on: bool| {
            freezing.judge(cold_keys, LIMIT, LIMIT);
            assert_eq!(freezing.is_on(FreezeRule::Auto), is_on, "{cold_keys} cold keys");
        };
        check(0, false);
        check(250_000, false);
        check(250_001, true);
        check(125_001, true);
        check(125_000, false);
        check(200_000, false);
    }

    #[test]
    fn nothing_left_begins_it_and_plenty_of_room_ends_it() {
        let mut freezing = Freezing::default();
        assert!(freezing.note_want());
        assert!(!freezing.note_want());
        freezing.judge(0, LIMIT / 2 + 1, LIMIT);
        assert!(freezing.is_on(FreezeRule::Auto));
        assert!(!freezing.is_on(FreezeRule::No));
        freezing.judge(0, LIMIT / 2, LIMIT);
        assert!(!freezing.is_on(FreezeRule::Auto));
        assert!(freezing.is_on(FreezeRule::Yes));
    }
}
