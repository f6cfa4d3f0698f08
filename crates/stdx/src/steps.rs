//! Steps: how many items a loop may look at before it lets others have what it holds.
//!
//! A loop that holds something which other threads wait for is bounded by what it *looks at*, not by what it
//! changes: a million stale entries take the same time whether they are removed or not. Such a loop takes a
//! `Steps` and stops when it is spent.
//!
//! ```text
//!   let mut steps = Steps::new(1000);
//!   while steps.look(1) { ... one item ... }          at most 1000 rounds; what is left is for the next hold
//! ```
//! Builds with debug assertions also count what a thread has looked at in all (`looked`): a lock compares
//! that number before and after a hold, and tests compare how it grows with the size of a request. Loops
//! whose length is that of the request itself have no budget; they call `note`. Other builds keep no such
//! number, and `note` is nothing.

#[cfg(debug_assertions)]
use std::cell::Cell;

#[cfg(debug_assertions)]
thread_local! {
    static LOOKED: Cell<u64> = const { Cell::new(0) };
}

/// A budget of items.
#[derive(Debug)]
pub struct Steps {
    left: u64,
}

impl Steps {
    pub const fn new(max: u64) -> Steps {
        Steps { left: max }
    }

    /// Looks at `count` more items. False if the budget was spent before: then nothing may be looked at. The
    /// last look may exceed the budget, by less than `count`.
    #[inline]
    pub fn look(&mut self, count: u64) -> bool {
        if self.left == 0 {
            return false;
        }
        self.left = self.left.saturating_sub(count);
        note(count);
        true
    }

    #[inline]
    pub fn is_spent(&self) -> bool {
        self.left == 0
    }

    pub fn left(&self) -> u64 {
        self.left
    }
}

/// Counts `count` items that this thread looks at without a budget.
#[inline(always)]
pub fn note(count: u64) {
    #[cfg(debug_assertions)]
    LOOKED.with(|looked| looked.set(looked.get().wrapping_add(count)));
    #[cfg(not(debug_assertions))]
    let _ = count;
}

/// Returns the number of steps of this thread since it began; 0 without debug assertions.
#[inline(always)]
pub fn looked() -> u64 {
    #[cfg(debug_assertions)]
    return LOOKED.with(Cell::get);
    #[cfg(not(debug_assertions))]
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_ends_and_is_counted() {
        let before = looked();
        let mut steps = Steps::new(10);
        let mut rounds = 0;
        while steps.look(3) {
            rounds += 1;
        }
        assert_eq!((rounds, steps.left()), (4, 0));
        note(5);
        let counted = if cfg!(debug_assertions) { 17 } else { 0 };
        assert_eq!(looked() - before, counted);
        assert!(!Steps::new(0).look(1));
    }
}
