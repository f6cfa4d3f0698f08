//! The figures of one INFO. Figures that take a while to find are looked up when the first field asks for
//! them.

use isotherm_keyspace::{ColdCounts, DatabaseKeys, Db, IdleTimes, Sizes, Slot, Survey, UnixMs};
use std::cell::{Cell, OnceCell};
use std::sync::atomic::Ordering::Relaxed;

use super::replication::Report;
use super::row::Value;
use crate::observe::memory_map::{MemoryMap, Moment};
use isotherm_allocator::{self as allocator, Figures};
use isotherm_durability::persistence::report::{LoadingReport, SavingReport};
use isotherm_node::Node;
use isotherm_node::aof::state::AofState;
use isotherm_node::cluster::state::Member;
use isotherm_node::observe::arena_sums::ArenaSums;
use isotherm_node::observe::facts::Facts;
use isotherm_node::observe::holds::HoldTotals;
use isotherm_node::observe::stats::{Totals, Values};
use isotherm_node::tier::Tier;

pub struct Snapshot<'a> {
    pub node: &'a Node,
    pub now: UnixMs,
    pub facts: Facts,
    /// Empty unless the keyspace section is asked for.
    pub databases: Vec<DatabaseSize>,
    /// Empty unless the sections of histograms are asked for.
    pub bins: Vec<DatabaseBins>,
    /// Zeros unless the section of values that are not in memory is asked for.
    pub cold: ColdCounts,
    totals: OnceCell<Totals>,
    clients: OnceCell<ClientSums>,
    arenas: OnceCell<ArenaSums>,
    allocators: OnceCell<Figures>,
    saving: OnceCell<SavingReport>,
    loading: OnceCell<Option<LoadingReport>>,
    replication: OnceCell<Report>,
    holds: OnceCell<Vec<HoldTotals>>,
    /// Figures from which the memory map is made, if it will be shown.
    pub moment: Cell<Option<Moment>>,
    memory_map: OnceCell<Option<MemoryMap>>,
}

#[derive(Clone, Copy, Debug)]
pub struct DatabaseSize {
    pub db: Db,
    pub keys: u64,
    pub volatile: u64,
    /// Hashes that have fields with a time.
    pub timed_hashes: u64,
}

/// Counts the keys of each database.
pub fn database_sizes(survey: &mut Survey<'_, '_>) -> Vec<DatabaseSize> {
    let size = |(number, keys): (usize, DatabaseKeys)| DatabaseSize {
        db: Db(number as u16),
        keys: keys.keys,
        volatile: keys.volatile,
        timed_hashes: keys.timed_hashes,
    };
    survey.databases().into_iter().enumerate().map(size).collect()
}

/// Distributions of the sizes of a database's keys, and of the idle times of some of them.
#[derive(Clone, Copy, Debug)]
pub struct DatabaseBins {
    pub db: Db,
    pub sizes: Sizes,
    /// Idle times; `None` if they were not asked for.
    pub idle: Option<IdleTimes>,
}

impl DatabaseBins {
    /// Returns the distributions of all databases that have keys.
    pub fn all(survey: &mut Survey<'_, '_>, now: UnixMs, with_idle: bool) -> Vec<DatabaseBins> {
        // Idle times are looked at from another slot each time: an odd multiple of the time, its highest
        // bits.
        let start = Slot::new(((now.0 as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 50) as u16);
        let sizes = survey.sizes();
        let bins = |(db, sizes)| {
            let idle = with_idle.then(|| survey.idle_times(db, start, now));
            DatabaseBins { db, sizes, idle }
        };
        sizes.into_iter().map(bins).collect()
    }
}

/// All connections together.
#[derive(Default, Debug)]
pub struct ClientSums {
    pub input_bytes_max: u64,
    pub output_bytes_max: u64,
    pub waiting: u64,
    pub watching: u64,
    pub watched_keys: u64,
}

impl<'a> Snapshot<'a> {
    pub fn new(node: &'a Node, now: UnixMs, facts: Facts) -> Snapshot<'a> {
        Snapshot {
            node,
            now,
            facts,
            databases: Vec::new(),
            bins: Vec::new(),
            cold: ColdCounts::default(),
            totals: OnceCell::new(),
            clients: OnceCell::new(),
            arenas: OnceCell::new(),
            allocators: OnceCell::new(),
            saving: OnceCell::new(),
            loading: OnceCell::new(),
            replication: OnceCell::new(),
            holds: OnceCell::new(),
            moment: Cell::new(None),
            memory_map: OnceCell::new(),
        }
    }

    pub fn totals(&self) -> &Totals {
        self.totals.get_or_init(|| self.node.stats.totals())
    }

    pub fn counts(&self) -> &Values<u64> {
        &self.totals().values
    }

    pub fn clients(&self) -> &ClientSums {
        self.clients.get_or_init(|| {
            let mut sums = ClientSums::default();
            for client in self.node.clients.all() {
                let seen = &client.seen;
                let input = seen.query_bytes.load(Relaxed) + seen.query_free_bytes.load(Relaxed);
                let output = seen.output_bytes.load(Relaxed);
                let watched = u64::from(seen.watched.load(Relaxed));
                sums.input_bytes_max = sums.input_bytes_max.max(input);
                sums.output_bytes_max = sums.output_bytes_max.max(output);
                sums.waiting += u64::from(seen.waits.load(Relaxed));
                sums.watching += u64::from(watched > 0);
                sums.watched_keys += watched;
            }
            sums.waiting += self.node.clients.blocked.load(Relaxed) as u64;
            sums
        })
    }

    /// The arenas and the allocator together.
    pub fn allocators(&self) -> &Figures {
        self.allocators.get_or_init(|| {
            let (arenas, heap) = (self.arenas(), allocator::figures());
            Figures {
                allocated: arenas.live + heap.allocated,
                active: arenas.slabs + heap.active,
                resident: arenas.committed + heap.resident,
                // The reserve of the arenas has a field of its own.
                retained: heap.retained,
                metadata: arenas.metadata + heap.metadata,
            }
        })
    }

    pub fn arenas(&self) -> &ArenaSums {
        self.arenas.get_or_init(|| ArenaSums::of(&self.node.keyspace))
    }

    /// Returns the bytes that the keyspace holds in its arenas, and those of values too large for them.
    pub fn dataset_bytes(&self) -> u64 {
        self.arenas().live + self.node.keyspace.large_bytes()
    }

    /// Returns the bytes of the interpreters of all workers, for scripts and for functions.
    pub fn interpreter_bytes(&self) -> u64 {
        self.node.scripts.interpreter_bytes() + self.node.libraries.interpreter_bytes()
    }

    pub fn saving(&self) -> &SavingReport {
        self.saving.get_or_init(|| SavingReport::of(self.node.store()))
    }

    pub fn replication(&self) -> &Report {
        self.replication.get_or_init(|| Report::of(self.node))
    }

    /// Returns the holds of locks by cause.
    pub fn holds(&self) -> &[HoldTotals] {
        self.holds.get_or_init(|| self.node.stats.hold_totals())
    }

    // ---- values of what is not always there ----

    pub fn loading<T: Into<Value>>(&self, of: impl FnOnce(&LoadingReport) -> T) -> Value {
        self.loading.get_or_init(|| LoadingReport::of(self.node.store())).as_ref().map(of).into()
    }

    pub fn aof<T: Into<Value>>(&self, of: impl FnOnce(&AofState) -> T) -> Value {
        self.node.aof.is_on().then(|| of(&self.node.aof)).into()
    }

    pub fn swap<T: Into<Value>>(&self, of: impl FnOnce(&Tier) -> T) -> Value {
        self.node.tier().map(|tier| of(tier)).into()
    }

    pub fn member<T: Into<Value>>(&self, of: impl FnOnce(&Member) -> T) -> Value {
        self.node.cluster.get().map(of).into()
    }

    /// Returns the memory map; `None` if it was not asked for. Its first part (`moment`) is looked up before,
    /// by `look_up`.
    pub fn memory_map(&self) -> Option<&MemoryMap> {
        let moment = || self.moment.take().map(|moment| MemoryMap::new(self.node, moment, &self.facts));
        self.memory_map.get_or_init(moment).as_ref()
    }
}
