//! The parts of the memory map, in their order, and what each one is: for docs/memory.md, which a test writes again when
//! it is stale, and fails once.

/// Name and meaning.
pub type Part = (&'static str, &'static str);

pub const USED: &[Part] = &[
    ("keys", "names of keys, as far as they lie in pages and blobs"),
    ("values", "values in pages and blobs: strings to 4 KB, small collections as packed bytes"),
    ("expiries", "times to live, inside their entries: 5 B each, 8 B after 2054"),
    (
        "entry_heads",
        "what else an entry has: lengths, type marks, references to values elsewhere, hashes in front of blobs",
    ),
    (
        "page_overhead",
        "headers of pages, and two bytes of columns an entry (a hash tag, a length; one or two more for LFU or LRU)",
    ),
    ("directories", "records of slots, and where the pages of a slot are"),
    (
        "collection_nodes",
        "nodes of large lists, sorted sets and streams, pages of large hashes and sets: their elements and what holds these",
    ),
    ("class_rounding", "pages and blobs are given out in size classes: what their last bytes are"),
    ("large_values", "strings and elements above 4 KB, which the allocator has, rounded as it rounds"),
    ("collection_roots", "what a large collection has outside its nodes: its root, and tables of its nodes"),
    ("keyspace_tables", "partitions, databases, numbers of large values and of large collections"),
    ("snapshot", "what was written since a snapshot under way began, kept as it was"),
    (
        "clients",
        "connections: themselves, requests that are not complete, replies that are not read, MULTI, WATCH, subscriptions",
    ),
    ("pubsub", "names of channels and patterns with their tables, messages on their way to clients"),
    ("tracking", "keys that clients cache (CLIENT TRACKING)"),
    ("statistics", "histograms of commands' times, SLOWLOG and COMMANDLOG"),
    ("replication", "always 0: there is no replication yet"),
    ("aof", "always 0: there is no append-only file yet"),
    ("scripts", "always 0: there are no scripts yet"),
    ("tier", "always 0: there are no values on disk yet"),
    ("cluster", "always 0: there is no cluster yet"),
    (
        "process",
        "what the empty server took a moment after its start: tables of commands and parameters, buffers of workers",
    ),
    (
        "unbooked",
        "used_memory less all of the above: counts of threads that are not told yet, buffers that have grown, what changed while the rest was read; may be negative",
    ),
];

pub const RESIDENT: &[Part] = &[
    ("slab_free", "free objects in slabs of the arenas; compaction gives them back"),
    ("slab_tails", "the ends of slabs, where no object fits"),
    ("slab_spare", "slabs kept for what comes next"),
    ("arena_metadata", "the arenas' own tables"),
    ("malloc_metadata", "the allocator's own tables, as it tells"),
    ("malloc_free", "free in the allocator's pages that are in use, and in its threads' caches"),
    ("malloc_retained", "pages that the allocator keeps for what comes next, as it tells"),
    (
        "untouched",
        "what the lines above count and the system has no page for, because nobody wrote to it: negative",
    ),
    ("stacks", "stacks of threads"),
    ("program", "the program and its libraries, as far as they were needed"),
];

pub const BESIDE: &[Part] = &[
    ("page_tables", "the kernel's tables that lead to this process' pages"),
    ("sockets", "buffers of TCP sockets, of all processes in the same network namespace"),
];

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "\
# Where memory goes

Generated from the declarations in `crates/server/src/observe/memory_map/parts.rs`; a test refreshes this file.

`MEMORY MAP` (and `INFO memorymap`, and the metric `isotherm_memory_map_bytes`) tells where every byte of the process is:

    keys + values + ... + unbooked                    = used_memory, exactly
    used_memory + slab_free + ... + program           = RSS, but for what happens while it is added up

What is used is counted forward, by whoever takes a byte and gives it back; nothing is estimated from a sample. `unbooked` is the
difference to what allocator and arenas say they have given out: it is there so that anybody can see that the books are complete
(a test fails when it exceeds 1 % and 192 KB). What is resident comes from `/proc/self/smaps` and the allocator's own figures.
The first half takes microseconds; the second takes some ten milliseconds for each gigabyte of RSS. No command is held up for either:
one partition after the other is locked while its counters are copied, and the kernel is asked with nothing locked. So a line is of one
moment for each partition, not for all of them; the sums hold exactly in any case, as what changes meanwhile is in `unbooked`.

`MEMORY MAP` has a third part, `keyspace`: for every database, type and encoding the number of keys, the bytes of keys and of values,
and what their entries and bodies take.
";

    fn page() -> String {
        let table = |title: &str, note: &str, parts: &[Part]| {
            let rows: String = parts.iter().map(|(name, what)| format!("| `{name}` | {what} |\n")).collect();
            format!("\n## {title}\n\n{note}\n\n| part | what it is |\n|---|---|\n{rows}")
        };
        HEAD.to_owned()
            + &table("Used", "In INFO as `memorymap_<part>`, their sum as `memorymap_used`.", USED)
            + &table(
                "Resident beside it",
                "`memorymap_total` is the sum of these and of what is used.",
                RESIDENT,
            )
            + &table(
                "Beside RSS",
                "Memory that the kernel holds for the process; in no sum. In INFO as `memorymap_beside_<part>`.",
                BESIDE,
            )
    }

    #[test]
    fn the_page_is_fresh() {
        crate::config::check_fresh("docs/memory.md", &page());
    }
}
