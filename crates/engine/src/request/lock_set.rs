//! Partitions that a command or a transaction locks: those of all names in it, collected before any is
//! locked.

use isotherm_commands::spec::{InvalidKeys, KeyFlags, key_positions, slot_positions};
use isotherm_keyspace::{Held, Keyspace, Slot, Want};
use isotherm_resp::Args;

use isotherm_node::request::entry::{Entry, Locks};

#[derive(Default)]
pub struct LockSet {
    partitions: Vec<u16>,
    all: bool,
    /// Kept for its memory.
    positions: Vec<(usize, KeyFlags)>,
}

impl LockSet {
    /// Kept for the next command, of each: a command of very many keys does not leave its memory behind.
    const KEPT_MAX: usize = 4096;

    pub fn clear(&mut self) {
        if self.partitions.capacity() > Self::KEPT_MAX {
            self.partitions = Vec::new();
        }
        if self.positions.capacity() > Self::KEPT_MAX {
            self.positions = Vec::new();
        }
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

    /// Adds the keys that a script is called with, and something in any case: what is held shows whether the
    /// caller may still run.
    pub fn add_script(&mut self, keyspace: &Keyspace, command: &Entry, args: Args<'_>) {
        // Wrong ones are refused before the script begins.
        let _ = self.find_keys(command, args);
        for at in 0..self.positions.len() {
            let name = args.get(self.positions[at].0);
            self.add(keyspace.partition_of(Slot::of_key(name)));
        }
        if self.partitions.is_empty() {
            self.add(0);
        }
    }

    /// Adds what `command` needs. Inside a transaction nothing can be locked later, so a command that would
    /// lock one partition after the other needs all of them there.
    pub fn add_command(&mut self, keyspace: &Keyspace, command: &Entry, args: Args<'_>) {
        match command.locks {
            Locks::None | Locks::Queue => {}
            // A script may ask for anything.
            Locks::All | Locks::Each | Locks::Script => self.add_all(),
            Locks::One | Locks::Keys => {
                if self.find_keys(command, args).is_err() {
                    // The handler knows a better answer; whatever it looks at on the way is held.
                    return self.add_all();
                }
                for at in 0..self.positions.len() {
                    let name = args.get(self.positions[at].0);
                    self.add(keyspace.partition_of(Slot::of_key(name)));
                }
            }
        }
    }

    /// The arguments that are keys of `command`.
    pub fn find_keys(
        &mut self,
        command: &Entry,
        args: Args<'_>,
    ) -> Result<&[(usize, KeyFlags)], InvalidKeys> {
        self.positions.clear();
        key_positions(command.spec, args, &mut self.positions)?;
        Ok(&self.positions)
    }

    /// Returns the arguments that are keys or shard channels of `command`; empty if the names are not clear.
    pub fn find_slot_keys(&mut self, command: &Entry, args: Args<'_>) -> &[(usize, KeyFlags)] {
        self.positions.clear();
        // Nothing is appended on an error.
        let _ = slot_positions(command.spec, args, &mut self.positions);
        &self.positions
    }

    /// The keys of the command that was added last.
    pub fn names<'b>(&self, args: Args<'b>) -> impl Iterator<Item = &'b [u8]> {
        self.positions.iter().map(move |(at, _)| args.get(*at))
    }

    /// Locks what was collected. Says whether another thread had a part of it. With everything, scripts may
    /// be in the middle of their work: the caller looks (`leases`), and unlocks again if there are any.
    #[inline]
    pub fn acquire(&mut self, held: &mut Held<'static>) -> bool {
        if self.all {
            held.acquire_beside_leases()
        } else if let [only] = self.partitions[..] {
            held.acquire(Want::One(only))
        } else {
            self.partitions.sort_unstable();
            self.partitions.dedup();
            held.acquire(Want::Many(&self.partitions))
        }
    }
}

/// Tries of a partition that another thread has: commands are over in some microseconds.
const TRIES_MAX: usize = 200;

/// Locks one more partition, in whatever order, unless another thread keeps it. Returns whether it is held.
pub fn try_extend(held: &mut Held<'_>, partition: u16) -> bool {
    (0..TRIES_MAX).any(|_| {
        let is_had = held.try_extend(partition);
        if !is_had {
            std::hint::spin_loop();
        }
        is_had
    })
}

/// Locks the partitions of all that `command` names likewise.
pub fn try_extend_to_keys(held: &mut Held<'_>, command: &Entry, args: Args<'_>) -> bool {
    let mut positions = Vec::new();
    key_positions(command.spec, args, &mut positions).is_ok()
        && positions.iter().all(|(at, _)| {
            let partition = held.keyspace().partition_of(Slot::of_key(args.get(*at)));
            try_extend(held, partition)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_a_large_command_is_not_kept() {
        let mut locks = LockSet::default();
        for (keys, is_kept) in [(100, true), (100_000, false)] {
            (0..keys).for_each(|at| locks.add(at as u16));
            locks.positions.extend((0..keys).map(|at| (at, KeyFlags::RO)));
            locks.clear();
            assert_eq!(locks.partitions.capacity() >= 100, is_kept);
            assert_eq!(locks.positions.capacity() >= 100, is_kept);
        }
    }
}
