//! Counters of holds, one table a thread: by cause how often, how long, and the longest.
//!
//! The counters of a thread have one writer. A maximum cannot be taken and set back by another
//! thread, so each has a tag next to it: the second that it is of, or the number of CONFIG RESETSTATs before
//! it. A write under another tag begins anew, and a read ignores other tags.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use crate::observe::counter::Counter;

/// Work that holds locks, besides commands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Work {
    Expiry,
    Eviction,
    Compaction,
    LazyFree,
    Ageing,
    /// Other steps of the cron.
    Housekeeping,
}

pub(super) const WORK_NAMES: [&str; 6] =
    ["expiry", "eviction", "compaction", "lazy-free", "ageing", "housekeeping"];

/// A command by its index; the kinds of work follow the last one.
pub type HoldCause = u16;

/// A maximum of ticks under a tag of 16 bits.
#[derive(Default)]
pub(super) struct Longest(AtomicU64);

const TICK_BITS: u32 = 48;
/// 2^48 ticks of a clock of 8 GHz are ten hours.
const TICKS_MAX: u64 = (1 << TICK_BITS) - 1;

impl Longest {
    pub(super) fn raise(&self, tag: u16, ticks: u64) {
        let (old, ticks) = (self.0.load(Relaxed), ticks.min(TICKS_MAX));
        if old >> TICK_BITS != u64::from(tag) || old & TICKS_MAX < ticks {
            self.0.store(u64::from(tag) << TICK_BITS | ticks, Relaxed);
        }
    }

    pub(super) fn get(&self, tag: u16) -> u64 {
        let value = self.0.load(Relaxed);
        if value >> TICK_BITS == u64::from(tag) { value & TICKS_MAX } else { 0 }
    }
}

#[derive(Default)]
pub(super) struct HoldCounters {
    pub(super) holds: Counter,
    pub(super) ticks: Counter,
    pub(super) longest: Longest,
    /// Longest holds of the current second and of the one before, by the lowest bit of the second's number.
    pub(super) of_second: [Longest; 2],
    pub(super) longest_cpu_ns: Longest,
}

/// Holds of one thread, by cause, and by whether every partition was held. An entry is allocated with its
/// first hold.
pub struct HoldTable(Box<[[OnceLock<Box<HoldCounters>>; 2]]>);

impl HoldTable {
    pub fn new(commands: usize) -> HoldTable {
        HoldTable((0..commands + WORK_NAMES.len()).map(|_| Default::default()).collect())
    }

    pub(super) fn line(&self, cause: HoldCause, is_gate: bool) -> &HoldCounters {
        self.0[usize::from(cause)][usize::from(is_gate)].get_or_init(Box::default)
    }

    pub fn memory_bytes(&self) -> usize {
        let lines = self.0.iter().flatten().filter(|line| line.get().is_some()).count();
        size_of_val(&*self.0) + lines * size_of::<HoldCounters>()
    }

    pub(super) fn add_to(&self, sums: &mut Sums, tags: Tags) {
        for (cause, lines) in self.0.iter().enumerate() {
            for (is_gate, line) in lines.iter().enumerate() {
                let Some(line) = line.get() else { continue };
                let sum = sums.entry((cause as HoldCause, is_gate == 1)).or_default();
                sum.holds += line.holds.get();
                sum.ticks += line.ticks.get();
                sum.longest_ticks = sum.longest_ticks.max(line.longest.get(tags.reset));
                let of_second = line.of_second[usize::from(tags.second % 2)].get(tags.second);
                sum.longest_of_second_ticks = sum.longest_of_second_ticks.max(of_second);
                sum.cpu_ns_max = sum.cpu_ns_max.max(line.longest_cpu_ns.get(tags.reset));
            }
        }
    }
}

/// Tags of the maxima that are valid at present.
#[derive(Clone, Copy)]
pub(super) struct Tags {
    pub(super) second: u16,
    pub(super) reset: u16,
}

#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Sum {
    pub(super) holds: u64,
    pub(super) ticks: u64,
    pub(super) longest_ticks: u64,
    pub(super) longest_of_second_ticks: u64,
    pub(super) cpu_ns_max: u64,
}

pub(super) type Sums = BTreeMap<(HoldCause, bool), Sum>;

/// State of the holds that all threads share.
#[derive(Default)]
pub struct Holds {
    /// `Tags`, the second in the lower half.
    pub(super) tags: AtomicU32,
    sampled: Mutex<Sampled>,
}

#[derive(Default)]
pub(super) struct Sampled {
    /// Up to the last sample.
    pub(super) sums: Sums,
    /// Sums of the second before the last sample. The counts are differences.
    pub(super) second: Sums,
    /// At the last CONFIG RESETSTAT.
    pub(super) baseline: Sums,
}

/// Figures of a cause, as INFO locks and the metrics show them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HoldTotals {
    pub cause: HoldCause,
    pub is_gate: bool,
    /// Since the start or the last reset.
    pub all: HoldTimes,
    pub last_second: HoldTimes,
    /// 0 without debug assertions.
    pub longest_cpu_us: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct HoldTimes {
    pub holds: u64,
    pub usec: u64,
    pub longest_usec: u64,
}

impl HoldTimes {
    pub fn add(&mut self, other: HoldTimes) {
        self.holds += other.holds;
        self.usec += other.usec;
        self.longest_usec = self.longest_usec.max(other.longest_usec);
    }
}

impl Holds {
    pub(super) fn tags(&self) -> Tags {
        let tags = self.tags.load(Relaxed);
        Tags { second: tags as u16, reset: (tags >> 16) as u16 }
    }

    pub(super) fn sampled(&self) -> MutexGuard<'_, Sampled> {
        self.sampled.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_maximum_begins_anew_with_its_tag() {
        let longest = Longest::default();
        longest.raise(0, 7);
        longest.raise(0, 3);
        assert_eq!((longest.get(0), longest.get(1)), (7, 0));
        longest.raise(1, 5);
        assert_eq!((longest.get(0), longest.get(1)), (0, 5));
        longest.raise(1, u64::MAX);
        assert_eq!(longest.get(1), TICKS_MAX);
    }
}
