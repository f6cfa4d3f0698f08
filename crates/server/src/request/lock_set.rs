//! The partitions that a command or a transaction needs, collected before any is locked.

use isotherm_keyspace::{Held, Want};

#[derive(Default)]
pub struct Wanted {
    partitions: Vec<u16>,
    all: bool,
}

impl Wanted {
    pub fn clear(&mut self) {
        self.partitions.clear();
        self.all = false;
    }

    #[inline]
    pub fn add(&mut self, partition: u16) {
        // Neighbouring keys often share one, and a lone partition is all that a single worker has.
        if self.partitions.last() != Some(&partition) {
            self.partitions.push(partition);
        }
    }

    pub fn add_all(&mut self) {
        self.all = true;
    }

    /// Locks what was collected. Says whether another thread had a part of it.
    #[inline]
    pub fn acquire(&mut self, held: &mut Held<'static>) -> bool {
        if self.all {
            held.acquire(Want::All)
        } else if let [only] = self.partitions[..] {
            held.acquire(Want::One(only))
        } else {
            self.partitions.sort_unstable();
            self.partitions.dedup();
            held.acquire(Want::Many(&self.partitions))
        }
    }
}
