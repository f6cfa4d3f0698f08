//! The figures of all arenas together.

use isotherm_keyspace::{ArenaStats, Keyspace};

/// All arenas together, in bytes.
#[derive(Default, Debug)]
pub struct ArenaSums {
    pub live: u64,
    pub slabs: u64,
    pub partial_free: u64,
    pub tails: u64,
    pub free_slabs: u64,
    pub metadata: u64,
    pub committed: u64,
    pub reserved: u64,
}

impl ArenaSums {
    pub fn of(keyspace: &Keyspace) -> ArenaSums {
        let stats: Vec<ArenaStats> = keyspace.arenas().iter().map(|arena| arena.stats()).collect();
        ArenaSums::new(&stats)
    }

    pub fn new(arenas: &[ArenaStats]) -> ArenaSums {
        let mut sums = ArenaSums::default();
        for stats in arenas {
            sums.live += stats.live_bytes;
            sums.slabs += stats.slab_bytes;
            sums.partial_free += stats.partial_free_bytes;
            sums.tails += stats.tail_bytes;
            sums.free_slabs += stats.free_slab_bytes;
            sums.metadata += stats.metadata_bytes;
            sums.committed += stats.committed_bytes;
            sums.reserved += stats.reserved_bytes;
        }
        sums
    }
}
