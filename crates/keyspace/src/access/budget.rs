//! Limit of what one hold of a lock may look at, and the count of it in builds with debug assertions.

use isotherm_stdx::steps;

/// Items that one hold may look at, the own work of commands that are documented as O(N) apart. At some 100
/// to 500 ns an item that is a tenth to a half of a millisecond.
pub const HOLD_STEPS_MAX: u64 = 1000;

/// Limit of one hold in looks, which are counted where things are looked at. An item is a key, a page, a
/// waiter; for each item a slot is looked at, the tags of a page, an entry, a list.
pub const HOLD_LOOKS_MAX: u64 = 8 * HOLD_STEPS_MAX;

/// Looks of a hold, in builds with debug assertions: the count of the thread when the hold began, and the
/// part since then that was the own work of a command whose client asked for that much. Other builds count
/// nothing (see `isotherm_stdx::steps`).
#[derive(Default)]
pub(crate) struct HoldBudget {
    looked_before: u64,
    pub own: u64,
}

impl HoldBudget {
    #[inline(always)]
    pub fn begin(&mut self) {
        if cfg!(debug_assertions) {
            *self = HoldBudget { looked_before: steps::looked(), own: 0 };
        }
    }

    #[inline(always)]
    pub fn end(&self) {
        if cfg!(debug_assertions) {
            let looked = steps::looked().wrapping_sub(self.looked_before).saturating_sub(self.own);
            assert!(looked <= HOLD_LOOKS_MAX, "one hold has looked {looked} times for others");
        }
    }
}
