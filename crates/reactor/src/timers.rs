//! Timers: a heap of moments on the monotonic clock.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::{Duration, Instant};

/// Each entry names what is due. Entries are not taken back: the callee checks whether it still matters.
#[derive(Debug)]
pub struct Timers<T: Ord> {
    heap: BinaryHeap<Reverse<(Instant, T)>>,
}

impl<T: Ord> Default for Timers<T> {
    fn default() -> Timers<T> {
        Timers { heap: BinaryHeap::new() }
    }
}

impl<T: Ord> Timers<T> {
    pub fn add(&mut self, at: Instant, what: T) {
        self.heap.push(Reverse((at, what)));
    }

    /// Returns the time until the first timer is due; `None` without any. It is rounded up to a millisecond,
    /// the resolution of the wait.
    pub fn next_in(&self, now: Instant) -> Option<Duration> {
        let Reverse((at, _)) = self.heap.peek()?;
        let left = at.saturating_duration_since(now);
        Some(Duration::from_millis(left.as_micros().div_ceil(1000) as u64))
    }

    /// Takes one that is due.
    pub fn take_due(&mut self, now: Instant) -> Option<T> {
        match self.heap.peek() {
            Some(Reverse((at, _))) if *at <= now => self.heap.pop().map(|Reverse((_, what))| what),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn due_ones_come_in_order() {
        let start = Instant::now();
        let mut timers = Timers::default();
        for ms in [30, 10, 20] {
            timers.add(start + Duration::from_millis(ms), ms);
        }
        assert_eq!(timers.next_in(start), Some(Duration::from_millis(10)));
        assert_eq!(timers.take_due(start), None);
        let later = start + Duration::from_millis(20);
        assert_eq!((timers.take_due(later), timers.take_due(later)), (Some(10), Some(20)));
        assert_eq!(timers.take_due(later), None);
        assert_eq!(timers.next_in(later + Duration::from_secs(1)), Some(Duration::ZERO));
        assert_eq!(Timers::<u32>::default().next_in(start), None);
    }
}
