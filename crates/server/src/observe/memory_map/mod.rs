//! The memory map: where every byte is, from the keys' own to the resident size that the system shows.
//!
//! ```text
//!   used       what is held by an owner              forward sums, kept when bytes are taken and given back
//!                = used_memory
//!   resident   what is there beside it               the arenas' and the allocator's own figures, and the kernel's
//!                = RSS, together with used
//!   beside     what the kernel holds for us          page tables, buffers of sockets: not in RSS
//! ```
//!
//! `parts` declares the lines and says what each one is.
//!
//! * Sizes are those that are really taken: rounded up to the classes of arena and allocator. The loss of the
//!   arenas to rounding is a line of its own; the loss of the allocator is in the lines of the owners.
//! * `process` is what the empty server took: tables of commands and parameters, buffers of workers. It is
//!   noted once.
//! * `unbooked` is used_memory less everything above. It is here so that the sum is exact and the accounting
//!   can be checked: a test asserts that it is small. It may be negative.
//! * `untouched` is memory that was taken, but never written: the system has no page for it. It is negative.

mod parts;

use isotherm_keyspace::{Breakdown, Survey};
use std::sync::atomic::Ordering::Relaxed;

use isotherm_allocator as allocator;
use isotherm_node::Node;
use isotherm_node::cluster::state::Member;
use isotherm_node::observe::arena_sums::ArenaSums;
use isotherm_node::observe::facts::Facts;
use isotherm_node::observe::resident::{Kernel, Resident};
use isotherm_replicas::replication::report::Buffers;
use parts::{BESIDE, Part, RESIDENT, USED};

pub struct Line {
    pub name: &'static str,
    pub bytes: i64,
}

pub struct MemoryMap {
    pub used: Vec<Line>,
    pub resident: Vec<Line>,
    pub beside: Vec<Line>,
    /// used_memory of the same moment.
    pub used_bytes: i64,
    /// All of `used` and `resident`.
    pub total_bytes: i64,
}

/// Used memory by purpose, and the bytes that the arenas and the allocator have given out.
pub struct Moment {
    used: Vec<Line>,
    arenas: ArenaSums,
    allocated: u64,
}

impl Moment {
    /// The sums hold whatever changes while the partitions are read one after the other: arenas and allocator
    /// are looked at once, at the end, and what was counted before and has changed since is in `unbooked`.
    pub fn new(node: &Node, survey: &mut Survey<'_, '_>) -> Moment {
        let (breakdown, arenas) = survey.breakdown();
        let tier = TierBytes::of(node, survey);
        let (arenas, allocated) = (ArenaSums::new(&arenas), allocator::allocated_bytes());
        Moment { used: used(node, &breakdown, &tier, arenas.live + allocated), arenas, allocated }
    }
}

impl MemoryMap {
    /// Asks the kernel what of it is resident, if that is not among the facts: some ten milliseconds for each
    /// gigabyte.
    pub fn new(node: &Node, moment: Moment, facts: &Facts) -> MemoryMap {
        let resident = resident(node, &moment, facts);
        let Kernel { page_tables, sockets } = facts.kernel();
        let beside = vec![line("page_tables", page_tables), line("sockets", sockets)];
        let used_bytes = sum(&moment.used);
        let total_bytes = used_bytes + sum(&resident);
        check_names(&moment.used, USED);
        check_names(&resident, RESIDENT);
        check_names(&beside, BESIDE);
        MemoryMap { used: moment.used, resident, beside, used_bytes, total_bytes }
    }
}

/// Every part is declared, in its order.
fn check_names(lines: &[Line], parts: &[Part]) {
    assert!(lines.iter().map(|line| line.name).eq(parts.iter().map(|(name, _)| *name)));
}

/// Notes what the process itself takes; called once, when its threads have started, with everything held: it
/// is a difference that stays, so what is taken off it has to be of the same moment.
pub fn note_process(node: &Node, survey: &mut Survey<'_, '_>) {
    let lines = Moment::new(node, survey).used;
    let process = lines.iter().find(|line| line.name == PROCESS).expect("it is one of them");
    node.memory.note_process(process.bytes as u64);
}

const PROCESS: &str = "process";

fn line(name: &'static str, bytes: u64) -> Line {
    Line { name, bytes: bytes as i64 }
}

fn signed(name: &'static str, bytes: u64, less: u64) -> Line {
    Line { name, bytes: bytes as i64 - less as i64 }
}

fn sum(lines: &[Line]) -> i64 {
    lines.iter().map(|line| line.bytes).sum()
}

/// Returns the lines whose sum is used_memory.
fn used(node: &Node, breakdown: &Breakdown, tier: &TierBytes, used: u64) -> Vec<Line> {
    let buffers = Buffers::of(node);
    let mut lines = vec![
        line("keys", breakdown.keys),
        line("values", breakdown.values),
        line("expiries", breakdown.expiries),
        line("entry_heads", breakdown.heads),
        line("page_overhead", breakdown.page_overhead),
        line("directories", breakdown.directories),
        line("collection_nodes", breakdown.nodes),
        line("class_rounding", breakdown.rounding),
        line("large_values", breakdown.large),
        line("collection_roots", breakdown.roots),
        line("keyspace_tables", breakdown.tables),
        line("snapshot", breakdown.snapshot),
        line("clients", node.clients.own_bytes()),
        line("pubsub", (node.pubsub.memory_bytes() + node.mail.queued_bytes()) as u64),
        line("tracking", node.trackers.memory_bytes() as u64),
        line("statistics", (node.stats.memory_bytes() + node.command_log.memory_bytes()) as u64),
        line("replication", buffers.total()),
        line("aof", buffers.of_aof(node)),
        line(
            "scripts",
            node.scripts.bytes()
                + node.scripts.interpreter_bytes()
                + node.libraries.bytes()
                + node.libraries.interpreter_bytes(),
        ),
        line("tier_lent", tier.lent),
        line("tier_groups", tier.groups),
        line("tier_tables", tier.tables),
        line("migration", node.migrations.memory_bytes()),
        line("cluster", node.cluster.get().map_or(0, Member::memory_bytes)),
    ];
    let accounted = sum(&lines) as u64;
    let process = node.memory.process_bytes_or(|| used.saturating_sub(accounted));
    lines.push(line(PROCESS, process));
    lines.push(signed("unbooked", used, accounted + process));
    lines
}

/// Bytes in memory that belong to values on disk.
#[derive(Default)]
pub struct TierBytes {
    lent: u64,
    groups: u64,
    tables: u64,
}

impl TierBytes {
    pub fn of(node: &Node, survey: &mut Survey<'_, '_>) -> TierBytes {
        let Some(tier) = node.tier() else { return TierBytes::default() };
        TierBytes {
            lent: survey.cold().lent_bytes,
            groups: tier.counters.group_bytes.load(Relaxed),
            tables: tier.counters.table_bytes.load(Relaxed) + tier.files.memory_bytes(),
        }
    }
}

impl TierBytes {
    pub fn total(&self) -> u64 {
        self.lent + self.groups + self.tables
    }
}

/// Returns the lines of resident memory besides the used bytes.
fn resident(node: &Node, Moment { arenas, allocated, .. }: &Moment, facts: &Facts) -> Vec<Line> {
    let allocated = *allocated;
    let resident = facts.resident(&node.keyspace).unwrap_or_else(|| assumed(arenas, facts));
    let arena_lines = [
        line("slab_free", arenas.partial_free),
        line("slab_tails", arenas.tails),
        line("slab_spare", arenas.free_slabs),
        line("arena_metadata", arenas.metadata),
    ];
    let in_arenas = arenas.live as i64 + sum(&arena_lines);
    let heap = allocator::figures();
    let malloc_lines = [
        line("malloc_metadata", heap.metadata),
        line("malloc_free", heap.active.saturating_sub(allocated)),
        line("malloc_retained", heap.resident.saturating_sub(heap.active.max(allocated) + heap.metadata)),
    ];
    let in_malloc = allocated as i64 + sum(&malloc_lines);
    let untouched = resident.arenas as i64 - in_arenas + resident.malloc as i64 - in_malloc;
    let outside = [
        Line { name: "untouched", bytes: untouched },
        line("stacks", resident.stacks),
        line("program", resident.files),
    ];
    arena_lines.into_iter().chain(malloc_lines).chain(outside).collect()
}

/// Assumes the owners of resident pages where the kernel does not report them: pages that are not the arenas'
/// are the allocator's.
fn assumed(arenas: &ArenaSums, facts: &Facts) -> Resident {
    let known = arenas.slabs + arenas.free_slabs + arenas.metadata;
    let rss = facts.rss_bytes();
    Resident { arenas: known.min(rss), malloc: rss.saturating_sub(known), ..Resident::default() }
}
