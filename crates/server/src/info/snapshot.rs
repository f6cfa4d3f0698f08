//! The figures of one INFO. What takes a while to find is looked up when the first field asks for it.

use isotherm_keyspace::{Db, IdleTimes, Keyspace, SIZE_BINS, SIZED_TYPES, Slot, Txn, UnixMs};
use std::cell::{Cell, OnceCell};
use std::sync::atomic::Ordering::Relaxed;

use crate::memory_map::{MemoryMap, Moment};
use crate::node::Node;
use crate::stats::Totals;
use isotherm_allocator::{self as allocator, Figures};

pub struct Snapshot<'a> {
    pub node: &'a Node,
    pub now: UnixMs,
    /// Empty unless the keyspace section is asked for.
    pub databases: Vec<DatabaseSize>,
    /// Empty unless the sections of histograms are asked for.
    pub bins: Vec<DatabaseBins>,
    totals: OnceCell<Totals>,
    clients: OnceCell<ClientSums>,
    cpu: OnceCell<Cpu>,
    arenas: OnceCell<ArenaSums>,
    allocators: OnceCell<Figures>,
    /// What the memory map is made from, if it will be shown.
    pub moment: Cell<Option<Moment>>,
    memory_map: OnceCell<Option<MemoryMap>>,
}

#[derive(Clone, Copy, Debug)]
pub struct DatabaseSize {
    pub db: Db,
    pub keys: u64,
    pub volatile: u64,
    pub average_ttl_ms: u64,
    /// Hashes that have fields with a time.
    pub timed_hashes: u64,
}

/// How many keys there are, of what a transaction holds everything of.
pub fn database_sizes(node: &Node, txn: &mut Txn<'_, '_>) -> Vec<DatabaseSize> {
    let size = |db| DatabaseSize {
        db,
        keys: txn.len(db),
        volatile: txn.volatile_len(db),
        average_ttl_ms: 0,
        timed_hashes: txn.timed_hashes(db),
    };
    (0..node.config.databases()).map(Db).map(size).collect()
}

/// How large the keys of a database are, and how long some of them have not been used.
#[derive(Clone, Copy, Debug)]
pub struct DatabaseBins {
    pub db: Db,
    pub sizes: [[u64; SIZE_BINS]; SIZED_TYPES.len()],
    /// Unless nobody asked.
    pub idle: Option<IdleTimes>,
}

impl DatabaseBins {
    /// Of the databases that have keys.
    pub fn all(node: &Node, txn: &mut Txn<'_, '_>, with_idle: bool) -> Vec<DatabaseBins> {
        // Idle times are looked at from another slot each time: an odd multiple of the time, its highest bits.
        let start = Slot::new(((txn.now().0 as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 50) as u16);
        let mut all = Vec::new();
        for db in (0..node.config.databases()).map(Db) {
            if txn.len(db) > 0 {
                let idle = with_idle.then(|| txn.idle_times(db, start));
                all.push(DatabaseBins { db, sizes: txn.sizes(db), idle });
            }
        }
        all
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

/// The processor time of the process in seconds.
#[derive(Clone, Copy, Default, Debug)]
pub struct Cpu {
    pub user: f64,
    pub system: f64,
}

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

impl<'a> Snapshot<'a> {
    pub fn new(node: &'a Node, now: UnixMs) -> Snapshot<'a> {
        Snapshot {
            node,
            now,
            databases: Vec::new(),
            bins: Vec::new(),
            totals: OnceCell::new(),
            clients: OnceCell::new(),
            cpu: OnceCell::new(),
            arenas: OnceCell::new(),
            allocators: OnceCell::new(),
            moment: Cell::new(None),
            memory_map: OnceCell::new(),
        }
    }

    pub fn totals(&self) -> &Totals {
        self.totals.get_or_init(|| self.node.stats.totals())
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

    pub fn cpu(&self) -> Cpu {
        *self.cpu.get_or_init(cpu_seconds)
    }

    /// The arenas and the allocator together.
    pub fn allocators(&self) -> &Figures {
        self.allocators.get_or_init(|| {
            let (arenas, heap) = (self.arenas(), allocator::figures());
            Figures {
                allocated: arenas.live + heap.allocated,
                active: arenas.slabs + heap.active,
                resident: arenas.committed + heap.resident,
                // What the arenas reserve has a field of its own.
                retained: heap.retained,
                metadata: arenas.metadata + heap.metadata,
            }
        })
    }

    /// The processor time of the control thread, whose number is that of the process.
    pub fn control_cpu(&self) -> Cpu {
        cpu_ticks(&format!("/proc/self/task/{}/stat", std::process::id()))
    }

    /// The same exactly, in seconds.
    pub fn control_cpu_seconds(&self) -> f64 {
        run_time_ns(format!("/proc/self/task/{}/schedstat", std::process::id())).unwrap_or_default() as f64
            / 1e9
    }

    pub fn arenas(&self) -> &ArenaSums {
        self.arenas.get_or_init(|| ArenaSums::of(&self.node.keyspace))
    }

    /// What the keyspace holds in its arenas, and what is too large for them.
    pub fn dataset_bytes(&self) -> u64 {
        self.arenas().live + self.node.keyspace.large_bytes()
    }

    /// `None` if it was not asked for: the keyspace has to stand still for its first part.
    pub fn memory_map(&self) -> Option<&MemoryMap> {
        let moment = || self.moment.take().map(|moment| MemoryMap::new(self.node, moment));
        self.memory_map.get_or_init(moment).as_ref()
    }
}

impl ArenaSums {
    pub fn of(keyspace: &Keyspace) -> ArenaSums {
        let mut sums = ArenaSums::default();
        for stats in keyspace.arenas().iter().map(|arena| arena.stats()) {
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

// ---- what the system says of the process ----

/// Memory that is really there. 0 where the system does not say.
pub fn memory_rss_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = text.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok());
    pages.unwrap_or_default() * rustix::param::page_size() as u64
}

/// User and system time as the kernel samples them, drawn to the sum that it measures exactly.
fn cpu_seconds() -> Cpu {
    let sampled_parts = cpu_ticks("/proc/self/stat");
    let sampled = sampled_parts.user + sampled_parts.system;
    let exact = exact_cpu_seconds().unwrap_or(sampled);
    let share = if sampled > 0.0 { sampled_parts.user / sampled } else { 0.5 };
    Cpu { user: exact * share, system: exact * (1.0 - share) }
}

/// As the kernel samples it.
fn cpu_ticks(path: &str) -> Cpu {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    // The process's name may hold anything; what follows its closing parenthesis is the state, field 3.
    let fields: Vec<&str> = text.rsplit(')').next().unwrap_or_default().split_ascii_whitespace().collect();
    let per_second = rustix::param::clock_ticks_per_second() as f64;
    let ticks = |number: usize| fields.get(number - 3).and_then(|text| text.parse::<f64>().ok());
    let seconds = |number| ticks(number).unwrap_or_default() / per_second;
    Cpu { user: seconds(14), system: seconds(15) }
}

/// The run time of all threads, in nanoseconds by the scheduler. Threads of this server do not end before it does.
fn exact_cpu_seconds() -> Option<f64> {
    let mut sum_ns = 0u64;
    for task in std::fs::read_dir("/proc/self/task").ok()? {
        sum_ns += run_time_ns(task.ok()?.path().join("schedstat"))?;
    }
    Some(sum_ns as f64 / 1e9)
}

/// How long a thread has run.
fn run_time_ns(schedstat: impl AsRef<std::path::Path>) -> Option<u64> {
    std::fs::read_to_string(schedstat).ok()?.split(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_uses_memory_and_time() {
        assert!(memory_rss_bytes() > 1 << 20);
        // Threads of other tests end meanwhile, and take their time with them.
        assert!((0..20).any(|_| is_work_seen()), "50 ms of work are not seen");
    }

    fn is_work_seen() -> bool {
        let before = cpu_seconds();
        let start = std::time::Instant::now();
        let mut sum = 0u64;
        while start.elapsed().as_millis() < 50 {
            sum = std::hint::black_box(sum.wrapping_mul(31).wrapping_add(7));
        }
        let after = cpu_seconds();
        after.user + after.system > before.user + before.system + 0.005
    }
}
