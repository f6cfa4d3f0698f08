//! Cells that are known to fail, with the reason. An empty table is the aim: what stands here is a fault of
//! the server.
//!
//! CI leaves them out; `--known yes` runs them too, and says which of them hold by now.

use super::cell::{Cell, Disk, Policy, Workload};

/// Cells with a value of each list; an empty list fits all.
struct Known {
    workloads: &'static [Workload],
    policies: &'static [Policy],
    disks: &'static [Disk],
    reason: &'static str,
}

const EVICTING: &[Policy] = &[Policy::AllkeysLru, Policy::AllkeysLfu, Policy::VolatileTtl];

const KNOWN: &[Known] = &[
    Known {
        workloads: &[],
        policies: EVICTING,
        disks: &[Disk::HungWrite, Disk::Failing, Disk::Unreadable],
        reason: "keys are evicted while the disk hangs or fails for a moment",
    },
    Known {
        workloads: &[],
        policies: &[Policy::AllkeysLru, Policy::AllkeysLfu],
        disks: &[Disk::Full],
        reason: "keys on disk are evicted for memory, of which each frees hardly any",
    },
    Known {
        workloads: &[Workload::Read],
        policies: &[],
        disks: &[],
        reason: "reads take memory beyond maxmemory, and their copies stay while keys go",
    },
    Known {
        workloads: &[Workload::Fill],
        policies: &[],
        disks: &[Disk::Fast, Disk::HungRead],
        reason: "swap-cache may be larger than maxmemory: the last look at the keys fills it",
    },
    Known {
        workloads: &[Workload::Scan],
        policies: &[],
        disks: &[Disk::HungRead],
        reason: "SCAN and RANDOMKEY read frozen keys while everybody waits",
    },
    Known {
        workloads: &[],
        policies: &[Policy::NoEviction, Policy::AllkeysLru, Policy::AllkeysLfu],
        disks: &[Disk::Small],
        reason: "a log that was full counts as full when there is room again",
    },
    Known {
        workloads: &[Workload::Rewrite],
        policies: EVICTING,
        disks: &[Disk::FewFiles],
        reason: "segments, clients and rewrites take each other's descriptors",
    },
];

fn fits<T: PartialEq>(list: &[T], value: &T) -> bool {
    list.is_empty() || list.contains(value)
}

/// Returns why the cell is known to fail, if it is.
pub fn reason(cell: &Cell) -> Option<&'static str> {
    let is_of = |known: &&Known| {
        fits(known.workloads, &cell.workload)
            && fits(known.policies, &cell.policy)
            && fits(known.disks, &cell.disk)
    };
    KNOWN.iter().find(is_of).map(|known| known.reason)
}
