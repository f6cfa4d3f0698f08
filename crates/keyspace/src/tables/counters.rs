//! Counters that the tables of all partitions share.

use crate::accounting::attribution::Attribution;
use crate::layout::key::KeyHasher;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

pub(crate) struct Counters {
    /// Keys and volatile keys of each partition, all databases together: how eviction chooses one.
    pub weights: Box<[Weight]>,
    pub attribution: Attribution,
    /// Number of the table that is made next.
    pub next_table: AtomicU32,
}

impl Counters {
    pub fn new(partitions: usize, hasher: KeyHasher) -> Counters {
        Counters {
            weights: (0..partitions).map(|_| Weight::default()).collect(),
            attribution: Attribution::new(hasher),
            next_table: AtomicU32::new(0),
        }
    }
}

#[derive(Default)]
pub(crate) struct Weight {
    pub keys: AtomicU64,
    pub volatile: AtomicU64,
}

impl Weight {
    /// Called under the partition's lock, so that a plain load and store lose nothing.
    #[inline]
    pub fn add(&self, keys: i64, volatile: i64) {
        for (weight, change) in [(&self.keys, keys), (&self.volatile, volatile)] {
            if change != 0 {
                weight.store(weight.load(Relaxed).wrapping_add_signed(change), Relaxed);
            }
        }
    }
}
