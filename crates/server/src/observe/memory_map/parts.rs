//! The parts of the memory map, in their order, and what each one is: for docs/memory.md, which a test writes
//! again when it is stale, and fails once.

/// Name and meaning.
pub type Part = (&'static str, &'static str);

pub const USED: &[Part] = &[
    ("keys", "names of keys, in pages and blobs"),
    ("values", "values in pages and blobs: strings to 4 KB, small collections as packed bytes"),
    ("expiries", "expiry times, inside the entries: 5 B each, 8 B from the year 2054 on"),
    (
        "entry_heads",
        "other bytes of entries: lengths, type marks, references to values outside, the hashes in front of blobs",
    ),
    (
        "page_overhead",
        "page headers, and two bytes of columns per entry (hash tag and length; one more for LFU, two for LRU)",
    ),
    ("directories", "slot records and page directories"),
    (
        "collection_nodes",
        "nodes of large lists, sorted sets and streams, pages of large hashes and sets, with their elements",
    ),
    ("class_rounding", "rounding of pages, nodes and blobs up to their size class"),
    ("large_values", "strings and elements above 4 KB, in the allocator, at its rounded sizes"),
    ("collection_roots", "parts of large collections outside their nodes: roots and tables of nodes"),
    ("keyspace_tables", "tables of partitions, databases, large values and large collections"),
    ("snapshot", "old versions of entries changed since the running snapshot began"),
    ("clients", "connections: state, incomplete requests, unread replies, MULTI, WATCH, subscriptions"),
    ("pubsub", "channels and patterns with their tables, messages not yet delivered"),
    ("tracking", "tables of client-side caching (CLIENT TRACKING)"),
    ("statistics", "latency histograms of commands, SLOWLOG and COMMANDLOG"),
    (
        "replication",
        "the log of changes where it is kept for replicas, snapshots on their way to them, keys that a writable replica expires itself",
    ),
    (
        "aof",
        "the log of changes, where no replica reads it: what is not written to the append-only file, or not synced",
    ),
    ("scripts", "texts of scripts, libraries of functions, the interpreters of workers"),
    ("tier_lent", "values that were read from disk and are kept for the next command (swap-cache)"),
    ("tier_groups", "values on their way to disk, as they are written"),
    (
        "tier_tables",
        "what is known of the files of swap-dir; of a value on disk its entry has the address, in `entry_heads`",
    ),
    ("migration", "values that a MIGRATE has on their way, as they are sent"),
    (
        "cluster",
        "what a member of a cluster knows of slots and nodes, and ready-made replies that show it, also where clients have not read them",
    ),
    (
        "process",
        "the empty server just after its start: tables of commands and parameters, buffers of workers",
    ),
    (
        "unbooked",
        "used_memory less all of the above: per-thread counters not yet flushed, buffers that have grown, changes while the other parts were read; may be negative",
    ),
];

pub const RESIDENT: &[Part] = &[
    ("slab_free", "free objects in slabs of the arenas, reclaimed by compaction"),
    ("slab_tails", "ends of slabs, too short for an object"),
    ("slab_spare", "empty slabs kept for reuse"),
    ("arena_metadata", "the arenas' tables"),
    ("malloc_metadata", "the allocator's tables, as it reports them"),
    ("malloc_free", "free memory inside the allocator's active pages and its thread caches"),
    ("malloc_retained", "unused pages that the allocator retains, as it reports them"),
    ("untouched", "memory counted above but never written, so not resident; negative"),
    ("stacks", "thread stacks"),
    ("program", "resident parts of the program and its libraries"),
];

pub const BESIDE: &[Part] = &[
    ("page_tables", "page tables of this process, in the kernel"),
    ("sockets", "buffers of TCP sockets, of all processes in the same network namespace"),
];

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "\
# Where memory goes

Generated from the declarations in `crates/server/src/observe/memory_map/parts.rs`; a test refreshes this file.

`MEMORY MAP` (and `INFO memorymap`, and the metric `isotherm_memory_map_bytes`) reports where every byte of the process is:

    keys + values + ... + unbooked                    = used_memory, exactly
    used_memory + slab_free + ... + program           = RSS, apart from changes during the report

Used memory is counted where it is allocated and freed; no figure is an estimate from a sample. `unbooked` is the difference to
what the allocator and the arenas report as allocated. It shows whether the accounting is complete: a test fails when it exceeds
1 % and 192 KB. Resident memory comes from `/proc/self/smaps` and the allocator's statistics.

The first sum takes microseconds, the second some ten milliseconds per gigabyte of RSS. Neither blocks commands: partitions are
locked one after the other while their counters are copied, and the kernel is queried without a lock. Each partition is therefore
read at its own moment; the sums are still exact, since changes in between appear in `unbooked`.

`MEMORY MAP` has a third part, `keyspace`: for each database, type and encoding the number of keys, the bytes of keys and values,
and the memory of their entries and collections.

Other commands that report memory:

| command | reports |
|---|---|
| `MEMORY PREFIXES DEPTH 1 TOP 10` | by key prefix: bytes, keys, share with a TTL, and the error of each figure |
| `MEMORY TOP 10` | the largest keys of 4 KB and more, without a scan |
| `MEMORY DIFF MARK`, then `MEMORY DIFF` | changes since the mark |
| `CLUSTER SLOT-STATS ORDERBY memory-bytes LIMIT 10` | by slot, without a cluster too |
| `INFO keysizes`, `INFO idletimes` | how many keys of which size, and how long they have been unused |
| `HOTKEYS GET COUNT 10` | the most frequently used keys, from sampled commands |
";

    fn page() -> String {
        let table = |title: &str, note: &str, parts: &[Part]| {
            let rows: String = parts.iter().map(|(name, what)| format!("| `{name}` | {what} |\n")).collect();
            format!("\n## {title}\n\n{note}\n\n| part | content |\n|---|---|\n{rows}")
        };
        HEAD.to_owned()
            + &table("Used", "INFO: `memorymap_<part>`, with the sum in `memorymap_used`.", USED)
            + &table(
                "Other resident memory",
                "INFO: `memorymap_<part>`, with the sum of these and of used memory in `memorymap_total`.",
                RESIDENT,
            )
            + &table(
                "Outside RSS",
                "Memory that the kernel holds for the process, in no sum. INFO: `memorymap_beside_<part>`.",
                BESIDE,
            )
    }

    #[test]
    fn the_page_is_fresh() {
        isotherm_probe::check_fresh("docs/memory.md", &page());
    }
}
