//! INFO swap: values that are not in memory. One declaration a field; the metrics follow from it.

use isotherm_keyspace::ColdCounts;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::snapshot::Snapshot;
use isotherm_node::tier::Tier;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Word,
    Gauge,
    /// Since the start.
    Counter,
}

/// Source of the fields: the tier, and the counts that partitions keep of it.
pub struct View<'n> {
    pub tier: &'n Arc<Tier>,
    pub cold: ColdCounts,
    pub memory_target: u64,
}

impl View<'_> {
    /// Collects the figures; `None` without `swap-mode`.
    pub fn of<'n>(s: &Snapshot<'n>) -> Option<View<'n>> {
        Some(View { tier: s.node.tier()?, cold: s.cold, memory_target: s.node.config.memory_target_bytes() })
    }
}

pub struct SwapField {
    pub name: &'static str,
    pub kind: Kind,
    pub value: fn(&View<'_>) -> String,
}

const fn field(name: &'static str, kind: Kind, value: fn(&View<'_>) -> String) -> SwapField {
    SwapField { name, kind, value }
}

fn text(counter: &AtomicU64) -> String {
    counter.load(Relaxed).to_string()
}

/// Bytes written a byte that has left memory.
fn write_amplification(view: &View<'_>) -> String {
    let counters = &view.tier.counters;
    let (written, sunk) = (counters.written_bytes.load(Relaxed), counters.sunk_bytes.load(Relaxed));
    format!("{:.2}", if sunk == 0 { 0.0 } else { written as f64 / sunk as f64 })
}

fn mean_us(view: &View<'_>) -> String {
    let counters = &view.tier.counters;
    counters.read_us.load(Relaxed).checked_div(counters.reads.load(Relaxed)).unwrap_or(0).to_string()
}

pub const SWAP: &[SwapField] = {
    use Kind::{Counter, Gauge, Word};
    &[
        field("swap_state", Word, |v| v.tier.state().name().to_string()),
        // The reader for commands that wait: a ring or threads.
        field("swap_backend", Word, |v| v.tier.rings.backend().to_string()),
        field("swap_direct_io", Gauge, |v| u8::from(v.tier.is_direct()).to_string()),
        // Memory above which values leave: maxmemory, or a share of the machine's.
        field("swap_memory_target", Gauge, |v| v.memory_target.to_string()),
        field("swap_keys", Gauge, |v| v.cold.keys.to_string()),
        field("swap_bytes", Gauge, |v| v.cold.bytes.to_string()),
        // Keys that left memory with their values (`swap-freeze`), and the records that they are in.
        field("swap_frozen_keys", Gauge, |v| v.cold.frozen_keys.to_string()),
        field("swap_bundles", Gauge, |v| v.cold.bundles.to_string()),
        field("swap_thawed", Counter, |v| v.cold.thawed.to_string()),
        // Parts of large collections.
        field("swap_nodes", Gauge, |v| v.cold.nodes.to_string()),
        field("swap_node_bytes", Gauge, |v| v.cold.node_bytes.to_string()),
        field("swap_nodes_came_home", Counter, |v| v.cold.nodes_home.to_string()),
        // Left again without being written.
        field("swap_nodes_left_clean", Counter, |v| text(&v.tier.counters.clean_nodes)),
        // Frozen keys that were given up (SWAP FORGET).
        field("swap_lost_keys", Counter, |v| v.cold.lost.to_string()),
        // Keys that SCAN and KEYS left out, as their record is damaged: each time.
        field("swap_keys_left_out", Counter, |v| text(&v.tier.damaged_records.keys_left_out)),
        field("swap_file_bytes", Gauge, |v| text(&v.tier.counters.file_bytes)),
        // What values can take of `swap-max-disk`: the rest is for cleaning.
        field("swap_usable_bytes", Gauge, |v| text(&v.tier.counters.usable_bytes)),
        // Left on the file system.
        field("swap_disk_free_bytes", Gauge, |v| text(&v.tier.counters.disk_free_bytes)),
        field("swap_open_files", Gauge, |v| v.tier.files.open_files().0.to_string()),
        field("swap_live_bytes", Gauge, |v| v.tier.live_bytes().to_string()),
        field("swap_dead_bytes", Gauge, |v| text(&v.tier.counters.dead_bytes)),
        // Kept only because the base of the append-only file in force refers to them (`swap-checkpoint`).
        field("swap_waiting_segments", Gauge, |v| text(&v.tier.counters.waiting_segments)),
        field("swap_free_segments", Gauge, |v| text(&v.tier.counters.free_segments)),
        field("swap_sunk_values", Counter, |v| text(&v.tier.counters.sunk_values)),
        field("swap_sunk_bytes", Counter, |v| text(&v.tier.counters.sunk_bytes)),
        field("swap_written_bytes", Counter, |v| text(&v.tier.counters.written_bytes)),
        field("swap_survivor_bytes", Counter, |v| text(&v.tier.counters.survivor_bytes)),
        field("swap_cleaned_segments", Counter, |v| text(&v.tier.counters.cleaned_segments)),
        field("swap_write_amplification", Gauge, write_amplification),
        field("swap_writes_waiting_bytes", Gauge, |v| text(&v.tier.counters.group_bytes)),
        field("swap_slowed_msec", Counter, |v| text(&v.tier.counters.slowed_ms)),
        field("swap_reads", Counter, |v| text(&v.tier.counters.reads)),
        field("swap_read_bytes", Counter, |v| text(&v.tier.counters.read_bytes)),
        field("swap_read_usec_mean", Gauge, mean_us),
        field("swap_read_usec_p50", Gauge, |v| v.tier.counters.read_times.percentile_us(50).to_string()),
        field("swap_read_usec_p99", Gauge, |v| v.tier.counters.read_times.percentile_us(99).to_string()),
        field("swap_reads_waiting", Gauge, |v| v.tier.reads_waiting().to_string()),
        field("swap_reads_in_commands", Counter, |v| text(&v.tier.counters.reads_in_commands)),
        field("swap_reads_undeclared", Counter, |v| v.tier.undeclared_reads().to_string()),
        field("swap_lent_values", Gauge, |v| v.cold.lent_values.to_string()),
        field("swap_lent_bytes", Gauge, |v| v.cold.lent_bytes.to_string()),
        field("swap_lent_hits", Counter, |v| v.cold.lent_hits.to_string()),
        field("swap_came_home", Counter, |v| v.cold.came_home.to_string()),
        // Of these, what had left within the minute before.
        field("swap_regrets", Counter, |v| text(&v.tier.homes.regrets)),
        field("swap_write_errors", Counter, |v| text(&v.tier.counters.write_errors)),
        field("swap_read_errors", Counter, |v| text(&v.tier.counters.read_errors)),
        field("swap_damaged", Counter, |v| text(&v.tier.counters.damaged)),
        field("swap_timeouts", Counter, |v| v.tier.reads.timeouts().to_string()),
        field("swap_unreadable", Counter, |v| text(&v.tier.counters.unreadable)),
        field("swap_clean_in_progress", Gauge, |v| {
            u8::from(v.tier.cleanings_wanted.load(Relaxed) > 0).to_string()
        }),
        field("swap_verify_in_progress", Gauge, |v| {
            u8::from(v.tier.verify.is_wanted.load(Relaxed)).to_string()
        }),
        // Of the 16384 slots.
        field("swap_verify_slots", Gauge, |v| text(&v.tier.verify.slots)),
        field("swap_verify_keys", Gauge, |v| text(&v.tier.verify.keys)),
        field("swap_verify_bytes", Gauge, |v| text(&v.tier.verify.bytes)),
        field("swap_verify_bad_keys", Gauge, |v| text(&v.tier.verify.bad)),
        field("swap_verify_rounds", Counter, |v| text(&v.tier.verify.rounds)),
    ]
};

/// Writes the section; without `swap-mode` only the mode.
pub fn swap(s: &Snapshot<'_>, out: &mut String) {
    out.push_str(&format!("swap_mode:{}\r\n", u8::from(s.node.config.swaps())));
    let Some(view) = View::of(s) else { return };
    for SwapField { name, value, .. } in SWAP {
        write!(out, "{name}:{}\r\n", value(&view)).expect("a String takes anything");
    }
}

/// The section of SWAPDB, with its names.
// COMPAT(observability): With `swap-mode`, INFO has SWAPDB's section Redis-SSDB and `keyspace_hits_ssdb` (commands that were shown a value
// from disk). A key is never between memory and disk here, so `keys_loading_from_ssdb`, `keys_transferring_to_ssdb`,
// `keys_delete_confirming`, `keys_hot_to_be_load` and `keys_may_be_deleted` are 0. Why: monitoring of SWAPDB works.
pub fn redis_ssdb(s: &Snapshot<'_>, out: &mut String) {
    let Some(view) = View::of(s) else { return };
    let keys: u64 = s.databases.iter().map(|database| database.keys).sum();
    let on_disk = view.cold.keys + view.cold.frozen_keys;
    for (name, value) in [
        ("keys_in_redis_count", keys.saturating_sub(on_disk)),
        ("keys_in_ssdb_count", on_disk),
        ("keys_loading_from_ssdb", 0),
        ("keys_transferring_to_ssdb", 0),
        ("keys_visiting_ssdb", view.tier.reads_waiting()),
        ("keys_delete_confirming", 0),
        ("keys_hot_to_be_load", 0),
        ("keys_may_be_deleted", 0),
    ] {
        write!(out, "{name}:{value}\r\n").expect("a String takes anything");
    }
}

/// `keyspace_hits_ssdb`, for the section Stats.
pub fn hits(s: &Snapshot<'_>, out: &mut String) {
    if let Some(view) = View::of(s) {
        write!(out, "keyspace_hits_ssdb:{}\r\n", view.cold.lent_hits).expect("a String takes anything");
    }
}
