//! Shortage: what gives way when memory, or the disk of values, is short. One order, decided here and nowhere
//! else.
//!
//! ```text
//!   memory is above maxmemory                                                                        costs
//!     1  what was removed       is freed                                                             nothing
//!     2  copies                 lent values, nodes whose record is on disk: dropped (`tier::copies`) a read
//!     3  values                 go to disk, as long as it takes them (`tier::sinker`)                a read
//!     4  writers                wait, far above the limit, in small steps (`tier::pace`);            time
//!                               get -OOM while the disk hangs or fails, for a minute                 a write
//!     5  keys                   by the policy: beside a disk of values those in memory, as what is   data
//!                               on disk takes 35 bytes of memory
//!
//!   the disk has no segment for values
//!     1  what is dead           is cleaned (`tier::cleaner`)                                         writes
//!     2  a base to come         frees what only the one in force names: writers wait for 10 s,       time
//!        a snapshot             frees what it may read: then they get -OOM, for a minute             a write
//!     3  keys                   those of the segment that was written first, as many bytes as come   data
//!                               (`tier::dropping`)
//!     4                         the disk is full: memory decides, 5
//! ```
//! Log, buffers of replicas and snapshots are compared with limits of their own (`memory`). Nothing here has
//! a clock, a lock or a thread.

use isotherm_keyspace::EvictionGain;

/// Time for which a disk that hangs or fails costs no keys.
pub const TROUBLE_MS_MAX: u64 = 60_000;

/// The disk of values, as far as it can take some.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ValueDisk {
    None,
    Takes,
    /// No value in memory may leave that it would take.
    Unasked,
    /// No segment, no room in the file system, or switched off.
    Full,
    /// Writes or reads have failed, or hung, for `ms`; or a base or a snapshot keeps the segments.
    Troubled {
        ms: u64,
    },
}

/// Result of a round in which copies are dropped. Lent values do not press on the limit, nodes do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GaveWay {
    /// No node was dropped, and there is none to drop.
    Nothing,
    /// Some nodes were dropped, and there are no more.
    All,
    /// Some copies were dropped, and there may be more.
    Some,
}

/// Memory above its limit, as it was found.
#[derive(Clone, Copy, Debug)]
pub struct MemoryShort {
    /// Removed data is not freed yet.
    pub has_unfreed: bool,
    /// Copies that have just been dropped.
    pub gave_way: GaveWay,
    pub disk: ValueDisk,
    /// True if memory is above the limit by more than the margin within which writers continue.
    pub is_far_above: bool,
    /// A policy is set, and no pause or import forbids it to act.
    pub may_evict: bool,
}

/// Part of the order that gives way for memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Relief {
    /// Something has left, or is on its way: the command runs.
    UnderWay,
    /// Values are on their way, too slowly: commands after this one that write wait.
    HoldWriters,
    /// Refusal of commands that take memory, as no key may leave.
    Refuse,
    /// Keys leave by the policy.
    Evict(EvictionGain),
}

pub fn for_memory(seen: MemoryShort) -> Relief {
    let evict = |gain| if seen.may_evict { Relief::Evict(gain) } else { Relief::Refuse };
    // Far above the limit the last copies are no room for a command: it may bring more than they took.
    let has_dropped = match seen.gave_way {
        GaveWay::Nothing => false,
        GaveWay::All => !seen.is_far_above,
        GaveWay::Some => true,
    };
    match seen.disk {
        _ if seen.has_unfreed || has_dropped => Relief::UnderWay,
        ValueDisk::Takes if seen.is_far_above => Relief::HoldWriters,
        ValueDisk::Takes => Relief::UnderWay,
        ValueDisk::Unasked if !seen.is_far_above => Relief::UnderWay,
        ValueDisk::Troubled { ms } if ms < TROUBLE_MS_MAX => Relief::Refuse,
        // A key whose value is on disk frees little of what is short.
        ValueDisk::Unasked | ValueDisk::Full | ValueDisk::Troubled { .. } => evict(EvictionGain::Memory),
        ValueDisk::None => evict(EvictionGain::Any),
    }
}

/// A log of values without a segment, as it was found. Cleaning has won what it could.
#[derive(Clone, Copy, Debug)]
pub struct SpaceShort {
    pub has_cleaned: bool,
    /// A base to come, or a snapshot that ends, frees segments soon.
    pub awaits_others: bool,
    /// A policy may take keys of the first segment.
    pub may_drop: bool,
}

/// Part of the order that gives way for space on disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SpaceRelief {
    UnderWay,
    DropSegment,
    Full,
}

pub fn for_space(seen: SpaceShort) -> SpaceRelief {
    match seen {
        SpaceShort { has_cleaned: true, .. } | SpaceShort { awaits_others: true, .. } => {
            SpaceRelief::UnderWay
        }
        SpaceShort { may_drop: true, .. } => SpaceRelief::DropSegment,
        SpaceShort { .. } => SpaceRelief::Full,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BROKEN: ValueDisk = ValueDisk::Troubled { ms: TROUBLE_MS_MAX };
    const HANGS: ValueDisk = ValueDisk::Troubled { ms: TROUBLE_MS_MAX - 1 };
    const DISKS: [ValueDisk; 6] =
        [ValueDisk::None, ValueDisk::Takes, ValueDisk::Unasked, ValueDisk::Full, HANGS, BROKEN];

    #[test]
    fn keys_are_the_last_to_leave_memory() {
        use EvictionGain::{Any, Memory};
        use Relief::{Evict, HoldWriters, Refuse, UnderWay};
        //   disk              a little above   far above
        let table = [
            (ValueDisk::None, Evict(Any), Evict(Any)),
            (ValueDisk::Takes, UnderWay, HoldWriters),
            (ValueDisk::Unasked, UnderWay, Evict(Memory)),
            (ValueDisk::Full, Evict(Memory), Evict(Memory)),
            (HANGS, Refuse, Refuse),
            (BROKEN, Evict(Memory), Evict(Memory)),
        ];
        for (disk, little, far) in table {
            for (is_far_above, relief) in [(false, little), (true, far)] {
                let seen = MemoryShort {
                    has_unfreed: false,
                    gave_way: GaveWay::Nothing,
                    disk,
                    is_far_above,
                    may_evict: true,
                };
                assert_eq!(for_memory(seen), relief, "{seen:?}");
                let without_policy = if matches!(relief, Evict(_)) { Refuse } else { relief };
                assert_eq!(for_memory(MemoryShort { may_evict: false, ..seen }), without_policy, "{seen:?}");
            }
        }
    }

    #[test]
    fn while_anything_else_can_leave_nothing_is_evicted_or_refused() {
        use GaveWay::{All, Nothing, Some};
        for disk in DISKS {
            for (has_unfreed, gave_way, is_far_above) in
                [(true, Nothing, true), (false, Some, true), (true, All, true), (false, All, false)]
            {
                let seen = MemoryShort { has_unfreed, gave_way, disk, is_far_above, may_evict: true };
                assert_eq!(for_memory(seen), Relief::UnderWay, "{seen:?}");
            }
        }
    }

    /// A command may bring more than the last copies took.
    #[test]
    fn the_last_copies_are_no_room_far_above_the_limit() {
        for disk in DISKS {
            let seen = |gave_way| MemoryShort {
                has_unfreed: false,
                gave_way,
                disk,
                is_far_above: true,
                may_evict: true,
            };
            assert_eq!(for_memory(seen(GaveWay::All)), for_memory(seen(GaveWay::Nothing)), "{disk:?}");
        }
    }

    #[test]
    fn keys_are_the_last_to_leave_the_disk() {
        let relief = |has_cleaned, awaits_others, may_drop| {
            for_space(SpaceShort { has_cleaned, awaits_others, may_drop })
        };
        for may_drop in [false, true] {
            assert_eq!(relief(true, false, may_drop), SpaceRelief::UnderWay);
            assert_eq!(relief(false, true, may_drop), SpaceRelief::UnderWay);
        }
        assert_eq!(relief(false, false, true), SpaceRelief::DropSegment);
        assert_eq!(relief(false, false, false), SpaceRelief::Full);
    }
}
