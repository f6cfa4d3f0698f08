//! Every parameter, by name. A flat table: what each does is said after `works`, and why it does nothing (or
//! can only be what it is) after `no_effect` and `fixed`.

use super::check;
use super::params::{Apply, Id, Param, Words, bytes, choice, flag, same, signed, special, text, unsigned};
use super::special;

/// The parameter `name`, found at compile time: `const PORT: Id = id("port")`.
pub const fn id(name: &str) -> Id {
    let mut at = 0;
    while at < PARAMS.len() {
        if same(PARAMS[at].name, name) {
            return Id(at as u16);
        }
        at += 1;
    }
    panic!("there is a parameter of this name")
}

/// `io-threads` before it is known how many CPUs there are.
pub const WORKERS_BY_CPUS: i64 = 0;
/// An unsigned number with all bits set.
const U64_MAX: i64 = -1;
const INT_MAX: i64 = i32::MAX as i64;
const INT_MIN: i64 = i32::MIN as i64;
const UINT_MAX: i64 = u32::MAX as i64;

// Why something has no effect.
const NO_AFFINITY: &str = "threads are not bound to CPUs";
const NO_CLUSTER: &str = "replicas of a cluster do not fail over yet";
const NO_COMPRESSION: &str = "list nodes are not compressed";
const LAZYFREE: &str =
    "large values are always freed in the background, in steps; only `FLUSHALL SYNC` waits for them";
const NO_MPTCP: &str = "MPTCP is not supported";
const NO_RDMA: &str = "there is no RDMA";
const NO_DUAL_CHANNEL: &str = "snapshots and the stream share one connection";
const ON_SIGNAL: &str = "Options of the shutdown on this signal. default saves an RDB file if there are save points; if that fails, the server tries again for 7 seconds, then goes on unless `force` is given, and the next signal ends it.";
const SHUTDOWN_TIMEOUT: &str = "Seconds that SHUTDOWN, or a signal, waits at most for replicas to have all that was written; writes pause meanwhile. 0 does not wait.";
const NO_SYSLOG: &str = "there is no logging to syslog";
const NO_TITLE: &str = "the process title is not changed";

// ---- words ----

const ACL_PUBSUB_DEFAULT: Words = &[("allchannels", 1), ("resetchannels", 0)];
const AOF_FSYNC: Words = &[("everysec", 0), ("always", 1), ("no", 2)];
const CLUSTER_CONFIGFILE_SAVE_BEHAVIOR: Words = &[("sync", 0), ("best-effort", 1)];
const CLUSTER_PREFERRED_ENDPOINT_TYPE: Words = &[("ip", 0), ("hostname", 1), ("unknown-endpoint", 2)];
const LOG_FORMAT: Words = &[("legacy", 0), ("logfmt", 1), ("json", 2)];
const LOG_TIMESTAMP_FORMAT: Words = &[("legacy", 0), ("iso8601", 1), ("milliseconds", 2)];
const LOGLEVEL: Words = &[("debug", 0), ("verbose", 1), ("notice", 2), ("warning", 3), ("nothing", 4)];
pub const MAXMEMORY_POLICY: Words = &[
    ("volatile-lru", 0),
    ("volatile-lfu", 1),
    ("volatile-random", 2),
    ("volatile-ttl", 3),
    ("allkeys-lru", 4),
    ("allkeys-lfu", 5),
    ("allkeys-random", 6),
    ("noeviction", 7),
];
const OOM_SCORE_ADJ: Words = &[("no", 0), ("yes", 1), ("relative", 1), ("absolute", 2)];
const PROPAGATION_ERROR_BEHAVIOR: Words =
    &[("ignore", 0), ("panic", 1), ("panic-on-replicas", 2), ("stop", 3)];
const PROTECTED_ACTION: Words = &[("no", 0), ("yes", 1), ("local", 2)];
const RDB_VERSION_CHECK: Words = &[("strict", 0), ("relaxed", 1)];
const BUSY_REPLY_SCOPE: Words = &[("keys", 0), ("all", 1)];
const REPL_DISKLESS_LOAD: Words =
    &[("disabled", 0), ("on-empty-db", 1), ("swapdb", 2), ("flush-before-load", 3)];
/// Bits: several words may be given.
const SHUTDOWN_ON_SIG: Words =
    &[("default", 0), ("save", 1), ("nosave", 2), ("now", 4), ("force", 8), ("safe", 16), ("failover", 32)];
const SWAP_FREEZE: Words = &[("no", 0), ("yes", 1), ("auto", 2)];
pub const SUPERVISED_MODE: Words = &[("upstart", 0), ("systemd", 1), ("auto", 2), ("no", 3)];
const SYSLOG_FACILITY: Words = &[
    ("user", 0),
    ("local0", 1),
    ("local1", 2),
    ("local2", 3),
    ("local3", 4),
    ("local4", 5),
    ("local5", 6),
    ("local6", 7),
    ("local7", 8),
];
const TLS_AUTH_CLIENTS: Words = &[("no", 0), ("yes", 1), ("optional", 2)];
const TLS_CLIENT_AUTH_USER: Words = &[("CN", 0), ("URI", 1), ("off", 2)];

// ---- the table ----

#[rustfmt::skip]
pub const PARAMS: &[Param] = &[
    choice("acl-pubsub-default", ACL_PUBSUB_DEFAULT, "resetchannels").works("The channels that a new user may use: all, or none."),
    text("aclfile", "").immutable().works("The file of the users, which ACL LOAD reads and ACL SAVE writes."),
    unsigned("acllog-max-len", 128, 0, i64::MAX).works("The most entries of ACL LOG."),
    signed("active-defrag-cycle-max", 25, 1, 99).works("With activedefrag: CPU budget of compaction at the upper threshold, in percent of one CPU."),
    signed("active-defrag-cycle-min", 1, 1, 99).works("With activedefrag: CPU budget of compaction at the lower threshold, in percent of one CPU."),
    signed("active-defrag-cycle-us", 500, 0, 100000).works("Length of one slice of compaction in microseconds, with and without activedefrag."),
    unsigned("active-defrag-ignore-bytes", 100 << 20, 1, i64::MAX).memory().works("With activedefrag: fewer free bytes inside slabs than this do not count as fragmentation."),
    unsigned("active-defrag-max-scan-fields", 1000, 1, i64::MAX).no_effect("compaction moves a large collection node by node"),
    signed("active-defrag-threshold-lower", 10, 0, 1000).works("With activedefrag: fragmentation in percent from which compaction may use active-defrag-cycle-min."),
    signed("active-defrag-threshold-upper", 100, 0, 1000).works("With activedefrag: fragmentation in percent from which compaction may use active-defrag-cycle-max."),
    signed("active-expire-effort", 1, 1, 10).apply(Apply::Timers).works("CPU share of the active expiry cycle, from 1 (least) to 10."),
    // COMPAT(memory): Compaction of memory always runs, within `compaction-cpu-percent`, and cannot be
    // switched off (1 is the least). `activedefrag yes` raises its CPU budget to what Valkey's thresholds and
    // `active-defrag-cycle-min` and `-max` give, where that is more. Why: memory of deleted keys can only be
    // reused for other sizes after compaction.
    flag("activedefrag", false).works("Compaction always runs, within compaction-cpu-percent; yes raises that budget to what Valkey would spend (active-defrag-*)."),
    flag("activerehashing", true).no_effect("there are no hash tables to rehash: pages are split one at a time"),
    flag("allocator-stats-at-exit", false).works("Log the report of MEMORY MALLOC-STATS at shutdown. Isotherm only."),
    flag("always-show-logo", false).immutable().works("Print the logo even when standard output is not a terminal."),
    flag("aof-disable-auto-gc", false).hidden().no_effect("files that are not listed any more are removed at once"),
    flag("aof-integrity-check", true).apply(Apply::Aof).works("Writes to the append-only file carry a checksum, in comments that Valkey skips; it is checked at start. Isotherm only."),
    flag("aof-load-truncated", true).works("Load an append-only file that ends within a command, and cut it there."),
    signed("aof-prepare-bytes", 64 << 20, 0, 1 << 30).memory().apply(Apply::Aof).works("Under appendfsync always with many commits, the next append-only file is filled ahead with so many bytes and overwritten, as that is synced faster; 0: never. Isotherm only."),
    text("aof-rewrite-cpulist", "").alias("aof_rewrite_cpulist").immutable().no_effect(NO_AFFINITY),
    flag("aof-rewrite-incremental-fsync", true).works("Sync a new base of the append-only file to disk in portions while it is written."),
    flag("aof-timestamp-enabled", false).apply(Apply::Aof).works("Write a comment with the time into the append-only file, at most one a second: isotherm-check-aof --truncate-to-timestamp cuts there."),
    flag("aof-use-rdb-preamble", true).works("Write the base of the append-only file as RDB; no: as commands."),
    text("appenddirname", "appendonlydir").immutable().check(check::aof_dirname).works("Folder of the append-only file, in dir."),
    text("appendfilename", "appendonly.aof").immutable().check(check::aof_filename).works("The names of the files in appenddirname begin with this."),
    choice("appendfsync", AOF_FSYNC, "everysec").apply(Apply::Aof).works("When the append-only file is synced to disk. always: before a reply that shows a change leaves; everysec: once a second; no: when the operating system does."),
    flag("appendonly", false).apply(Apply::Aof).works("Log every change to the append-only file, and load it at start. Switched on by CONFIG SET, it begins with a rewrite."),
    signed("auto-aof-rewrite-min-size", 64 << 20, 0, i64::MAX).memory().works("Do not rewrite an append-only file that is smaller."),
    signed("auto-aof-rewrite-percentage", 100, 0, INT_MAX).works("Rewrite the append-only file when it has grown by so many percent since the last time; 0: never by itself."),
    bytes("availability-zone", "").apply(Apply::Cluster).works("Shown by HELLO and INFO."),
    text("bgsave-cpulist", "").alias("bgsave_cpulist").immutable().no_effect(NO_AFFINITY),
    special("bind", &special::BIND).multi_arg().apply(Apply::Bind).works("Addresses to listen on; an address with a leading \"-\" may be missing."),
    text("bind-source-addr", "").works("The address of this machine from which a primary is connected; without it, or where it cannot be used, the system chooses."),
    text("bio-cpulist", "").alias("bio_cpulist").immutable().no_effect(NO_AFFINITY),
    choice("busy-reply-scope", BUSY_REPLY_SCOPE, "keys").works("Who gets that error: clients that need keys of the script, or all. Isotherm only."),
    signed("busy-reply-threshold", 5000, 0, i64::MAX).alias("lua-time-limit").works("Milliseconds from which on clients that wait for a script get the error BUSY; 0: they wait."),
    special("client-output-buffer-limit", &special::CLIENT_OUTPUT_BUFFER_LIMIT).multi_arg().works("Close a client whose unread replies exceed the limit of its class. Of a replica only what it makes the server keep in memory counts."),
    unsigned("client-query-buffer-limit", 1 << 30, 1 << 20, i64::MAX).memory().works("Close a client whose incomplete request exceeds this size."),
    flag("cluster-allow-pubsubshard-when-down", true).works("Serve shard channels while the cluster is down."),
    flag("cluster-allow-reads-when-down", false).works("Serve reads of own slots while the cluster is down."),
    flag("cluster-allow-replica-migration", true).apply(Apply::Cluster).works("A primary that gives away its last slot becomes a replica of the new owner."),
    signed("cluster-announce-bus-port", 0, 0, 65535).apply(Apply::Cluster).works("Port of the cluster bus that other nodes are given; 0: the one that is listened on."),
    text("cluster-announce-client-ipv4", "").check(check::ipv4).apply(Apply::Cluster).works("IPv4 address that clients are given instead of the node's."),
    text("cluster-announce-client-ipv6", "").check(check::ipv6).apply(Apply::Cluster).works("IPv6 address that clients which came by IPv6 are given."),
    signed("cluster-announce-client-port", 0, 0, 65535).apply(Apply::Cluster).works("Port that clients are given instead of the node's; 0: the same."),
    signed("cluster-announce-client-tls-port", 0, 0, 65535).apply(Apply::Cluster).works("TLS port that clients are given instead of the node's; 0: the same."),
    text("cluster-announce-hostname", "").check(check::hostname).apply(Apply::Cluster).works("Name of this node's host, which clients can be given (`cluster-preferred-endpoint-type`), and by which other nodes look for it when it does not answer at its address."),
    bytes("cluster-announce-human-nodename", "").check(check::nodename).apply(Apply::Cluster).works("Name of this node for people: logs of other nodes show it."),
    bytes("cluster-announce-ip", "").check(check::announced_ip).apply(Apply::Cluster).works("Address that other nodes are given; without it they use the one that they see."),
    signed("cluster-announce-port", 0, 0, 65535).apply(Apply::Cluster).works("Port for clients that other nodes are given; 0: the one that is listened on."),
    signed("cluster-announce-tls-port", 0, 0, 65535).apply(Apply::Cluster).works("TLS port for clients that other nodes are given; 0: the one that is listened on."),
    unsigned("cluster-blacklist-ttl", 60, 0, U64_MAX).apply(Apply::Cluster).works("Seconds for which a node that was forgotten (CLUSTER FORGET) is not added again."),
    text("cluster-config-file", "nodes.conf").immutable().check(check::cluster_config_file).works("File of a member of a cluster in which it keeps what it knows of the others; no two processes may share it."),
    choice("cluster-config-save-behavior", CLUSTER_CONFIGFILE_SAVE_BEHAVIOR, "sync").apply(Apply::Cluster).works("sync: the process ends when nodes.conf cannot be written; best-effort: it goes on."),
    signed("cluster-databases", 1, 1, INT_MAX).check(check::databases).immutable().works("Number of databases of a member of a cluster, at most 65535."),
    flag("cluster-enabled", false).immutable().works("Be a member of a cluster."),
    unsigned("cluster-link-sendbuf-limit", 0, 0, U64_MAX).memory().apply(Apply::Cluster).works("A link of the bus with more bytes to send is closed; 0: 64 MB."),
    flag("cluster-maint-notifications", false).apply(Apply::Maintenance).works("A member of a cluster knows CLIENT MAINT_NOTIFICATIONS, by which clients are sent which slots leave this node. Isotherm only."),
    signed("cluster-manual-failover-timeout", 5000, 1, INT_MAX).no_effect(NO_CLUSTER),
    signed("cluster-message-gossip-perc", 10, 1, 100).hidden().apply(Apply::Cluster).works("Percentage of all nodes that a message of the bus carries."),
    signed("cluster-migration-barrier", 1, 0, INT_MAX).no_effect(NO_CLUSTER),
    signed("cluster-node-timeout", 15000, 0, i64::MAX).apply(Apply::Cluster).works("Milliseconds after which a node that does not answer counts as unreachable."),
    signed("cluster-ping-interval", 0, 0, i64::MAX).hidden().apply(Apply::Cluster).works("Milliseconds after which a node is asked again whether it is there; 0: half of the node timeout."),
    signed("cluster-port", 0, 0, 65535).immutable().works("Port of the cluster bus; 0: the port for clients plus 10000."),
    choice("cluster-preferred-endpoint-type", CLUSTER_PREFERRED_ENDPOINT_TYPE, "ip").works("What redirections and CLUSTER SLOTS name a node by: its address, its announced name, or nothing."),
    flag("cluster-replica-no-failover", false).alias("cluster-slave-no-failover").apply(Apply::Cluster).works("This node announces that it does not take the place of its primary."),
    signed("cluster-replica-validity-factor", 10, 0, INT_MAX).alias("cluster-slave-validity-factor").no_effect(NO_CLUSTER),
    flag("cluster-require-full-coverage", true).apply(Apply::Cluster).works("The cluster is down, for all slots, while a slot has no owner or its owner has failed."),
    unsigned("cluster-slot-migration-log-max-len", 1000, 0, i64::MAX).no_effect(NO_CLUSTER),
    flag("cluster-slot-stats-enabled", false).works("CLUSTER SLOT-STATS also reports CPU time and network bytes of each slot; costs 384 KB per worker."),
    signed("cluster-stall-timeout", 15000, 100, i64::MAX).works("Milliseconds after which a worker that stands still silences the cluster bus, so that the other nodes see that this one serves no clients. Isotherm only."),
    signed("commandlog-execution-slower-than", 10000, -1, i64::MAX).alias("slowlog-log-slower-than").works("Log commands that run for this many microseconds or longer in the slow log; -1 disables it."),
    unsigned("commandlog-large-reply-max-len", 128, 0, i64::MAX).works("Length of the log of large replies."),
    unsigned("commandlog-large-request-max-len", 128, 0, i64::MAX).works("Length of the log of large requests."),
    signed("commandlog-reply-larger-than", 1 << 20, -1, i64::MAX).works("Log commands whose reply has this many bytes or more; -1 disables it."),
    signed("commandlog-request-larger-than", 1 << 20, -1, i64::MAX).works("Log commands whose request has this many bytes or more; -1 disables it."),
    unsigned("commandlog-slow-execution-max-len", 128, 0, i64::MAX).alias("slowlog-max-len").works("Length of the slow log."),
    signed("compaction-cpu-percent", 25, 1, 99).works("CPU budget of compaction while there is memory to reclaim, in percent of one CPU. Isotherm only."),
    // COMPAT(server): A crash is reported in the format of Rust's panics, without Valkey's crash report. Why:
    // the report describes Valkey's internals.
    flag("crash-log-enabled", true).no_effect("a crash prints Rust's own report"),
    flag("crash-memcheck-enabled", true).no_effect("a crash prints Rust's own report"),
    flag("daemonize", false).immutable().works("Run in the background."),
    signed("databases", 16, 1, INT_MAX).check(check::databases).immutable().works("Number of databases, at most 65535."),
    text("dbfilename", "dump.rdb").protected().check(check::db_filename).works("Name of the RDB file in dir: loaded at start, written by SAVE, BGSAVE, save points and SHUTDOWN."),
    text("debug-context", "").hidden().no_effect("a free text that CONFIG GET returns"),
    special("dir", &special::DIR).protected().apply(Apply::Folder).works("Working directory, and the folder of the RDB file; logfile and unixsocket are relative to it. Not changed while the append-only file is on."),
    flag("disable-thp", true).immutable().no_effect("full ranges of the keyspace are placed on huge pages, at no cost in memory; the rest follows the system's setting"),
    flag("dual-channel-replication-enabled", false).no_effect(NO_DUAL_CHANNEL),
    flag("enable-debug-assert", false).immutable().hidden().no_effect("there is no DEBUG ASSERT"),
    choice("enable-debug-command", PROTECTED_ACTION, "no").immutable().works("Who may use DEBUG: no, yes (all connections), or local connections."),
    choice("enable-module-command", PROTECTED_ACTION, "no").immutable().works("Who may use MODULE LOAD, LOADEX and UNLOAD, which find no module: no, yes, or local connections."),
    choice("enable-protected-configs", PROTECTED_ACTION, "no").immutable().works("Who may change protected parameters: no, yes (all connections), or local connections."),
    flag("extended-redis-compatibility", false).works("HELLO reports the server redis and the version 7.2.4."),
    unsigned("hash-max-listpack-entries", 512, 0, i64::MAX).alias("hash-max-ziplist-entries").works("Maximum number of fields of a hash that OBJECT ENCODING reports as listpack; above it, hashtable."),
    unsigned("hash-max-listpack-value", 64, 0, i64::MAX).memory().alias("hash-max-ziplist-value").works("Maximum length of a field or value of a hash that OBJECT ENCODING reports as listpack; above it, hashtable."),
    bytes("hash-seed", "").immutable().check(check::hash_seed).no_effect("keys are hashed with a random secret of the process"),
    flag("hide-user-data-from-log", true).works("Keep names of clients and users out of the log."),
    unsigned("hll-sparse-max-bytes", 3000, 0, i64::MAX).memory().works("Maximum size of a sparse HyperLogLog; above it, dense."),
    signed("hotkeys-sample-ratio", 64, 0, 1_000_000).works("HOTKEYS samples one of this many commands; 0 disables it. Isotherm only."),
    signed("hz", 10, 0, INT_MAX).clamp(1, 500).apply(Apply::Timers).works("Frequency of background work per second, clamped to 1..500."),
    text("ignore-warnings", "").no_effect("warnings at start cannot be silenced"),
    flag("import-mode", false).works("Disable active expiry; only clients of CLIENT IMPORT-SOURCE still see expired keys."),
    // COMPAT(server): `io-threads` is the number of workers, and each worker runs commands itself; in Valkey
    // a main thread runs all commands. CONFIG SET takes effect at the next start. Why: all cores share one
    // keyspace, so no thread has to run commands for others.
    signed("io-threads", WORKERS_BY_CPUS, 1, 256).apply(Apply::Workers).works("Number of workers; the default is the number of CPUs that the process may use. A change takes effect at the next start."),
    flag("io-threads-always-active", false).hidden().no_effect("workers always run"),
    flag("jemalloc-arena-per-worker", false).works("Give each worker an arena of its own. A change takes effect at the next start. Isotherm only."),
    flag("jemalloc-bg-thread", true).apply(Apply::Allocator).works("Purge freed memory in a background thread of the allocator."),
    signed("jemalloc-dirty-decay-ms", 10000, -1, i64::MAX / 1_000_000).apply(Apply::Decay).works("Milliseconds until freed pages are purged; 0: at once, -1: never. MALLOC_CONF overrides it at start. Isotherm only."),
    signed("jemalloc-muzzy-decay-ms", 0, -1, i64::MAX / 1_000_000).apply(Apply::Decay).works("Milliseconds that purged pages stay reclaimable by the kernel (MADV_FREE) before they are returned. Isotherm only."),
    signed("jemalloc-narenas", 0, 0, 4094).works("Number of arenas; 0 for four per CPU. MALLOC_CONF overrides it. A change takes effect at the next start. Isotherm only."),
    text("jemalloc-slab-sizes", "").check(check::slab_sizes).works("Pages per slab by range of sizes, as 128-128:2|200-1024:8. MALLOC_CONF overrides it. A change takes effect at the next start. Isotherm only."),
    flag("jemalloc-tcache", true).works("Enable jemalloc's thread caches. MALLOC_CONF overrides it. A change takes effect at the next start. Isotherm only."),
    unsigned("jemalloc-tcache-max", 32768, 8, 8 << 20).memory().works("Largest block kept in a thread cache. MALLOC_CONF overrides it. A change takes effect at the next start. Isotherm only."),
    signed("key-load-delay", 0, INT_MIN, INT_MAX).hidden().works("For tests: microseconds of delay for each key that is loaded; negative: one for so many keys."),
    signed("latency-monitor-threshold", 0, 0, i64::MAX).works("Milliseconds from which LATENCY records an event; 0 disables it."),
    flag("latency-tracking", true).works("Record execution times of commands for INFO latencystats and LATENCY HISTOGRAM."),
    special("latency-tracking-info-percentiles", &special::LATENCY_TRACKING_INFO_PERCENTILES).multi_arg().works("Percentiles shown by INFO latencystats."),
    flag("lazyfree-lazy-eviction", true).works("What the append-only file has of an evicted key: UNLINK, or with no DEL. Large values are freed in the background in any case."),
    flag("lazyfree-lazy-expire", true).works("What the append-only file has of a key that has expired: UNLINK, or with no DEL. Large values are freed in the background in any case."),
    flag("lazyfree-lazy-server-del", true).works("What the log has of a key that SPOP has emptied, or RESTORE replaced by one that is over: UNLINK, or with no DEL. Large values are freed in the background in any case."),
    flag("lazyfree-lazy-user-del", true).no_effect(LAZYFREE),
    flag("lazyfree-lazy-user-flush", true).no_effect(LAZYFREE),
    signed("lfu-decay-time", 1, 0, INT_MAX).apply(Apply::EvictionPolicy).works("Minutes per decrement of the LFU counter."),
    signed("lfu-log-factor", 10, 0, INT_MAX).apply(Apply::EvictionPolicy).works("Logarithmic factor of the LFU counter: the larger, the slower it grows."),
    signed("list-compress-depth", 0, 0, INT_MAX).no_effect(NO_COMPRESSION),
    signed("list-max-listpack-size", -2, INT_MIN, INT_MAX).alias("list-max-ziplist-size").works("Maximum size of a list that OBJECT ENCODING reports as listpack; above it, quicklist. Positive: elements; -1 to -5: 4 KB to 64 KB."),
    signed("loading-process-events-interval-bytes", 2 << 20, 1024, INT_MAX).hidden().no_effect("clients are answered by other threads while a file is loaded"),
    text("locale-collate", "").check(check::locale).works("SORT ALPHA compares bytes, so only locales with that order (C, POSIX) are accepted."),
    choice("log-format", LOG_FORMAT, "legacy").apply(Apply::LogFormat).works("Format of log lines: legacy, logfmt or json."),
    signed("log-memory-limit", -1, -1, i64::MAX).memory_or_negative().check(check::log_memory_limit).apply(Apply::LogMemory).works("So much of the append-only file may wait to be written: then commands that write wait. It does not count for maxmemory. -1: an eighth of maxmemory, 256mb at most. Isotherm only."),
    choice("log-timestamp-format", LOG_TIMESTAMP_FORMAT, "legacy").apply(Apply::LogFormat).works("Format of timestamps in the log, which are in UTC."),
    text("logfile", "").immutable().works("File to log to; standard output if empty."),
    choice("loglevel", LOGLEVEL, "notice").apply(Apply::LogLevel).works("Lowest level that is logged."),
    flag("lua-enable-insecure-api", false).alias("lua-enable-deprecated-api").hidden().protected().apply(Apply::LuaApi).works("Scripts have newproxy, getfenv and setfenv, which are not safe."),
    unsigned("max-new-connections-per-cycle", 10, 1, 1000).no_effect("a separate thread accepts connections"),
    unsigned("max-new-tls-connections-per-cycle", 1, 1, 1000).no_effect("what handshakes take of a turn of a worker is bounded by time"),
    unsigned("maxclients", 10000, 1, UINT_MAX).apply(Apply::MaxClients).works("Maximum number of client connections; further ones are refused with an error."),
    unsigned("maxmemory", 0, 0, U64_MAX).memory().apply(Apply::MaxMemory).works("Limit of used_memory; above it keys are evicted or writes refused, as maxmemory-policy says. 0: no limit."),
    signed("maxmemory-clients", 0, -100, i64::MAX).memory_or_percent().works("Limit of the memory of all client connections together; above it the largest are closed. 0: no limit."),
    signed("maxmemory-eviction-tenacity", 10, 0, 100).works("How long one command may evict before it gives up, from 0 to 100 (no limit)."),
    choice("maxmemory-policy", MAXMEMORY_POLICY, "noeviction").apply(Apply::EvictionPolicy).works("Which keys are evicted above maxmemory."),
    signed("maxmemory-samples", 5, 1, 64).no_effect("eviction compares the keys of two whole pages, some 34, whatever the setting"),
    bytes("memory-pinned-prefixes", "").immutable().check(check::pinned_prefixes).works("Key prefixes, separated by spaces, that MEMORY PREFIXES counts exactly, from the first key on. Isotherm only."),
    bytes("memory-prefix-separator", ":").immutable().check(check::prefix_separator).works("Byte at which MEMORY PREFIXES splits keys; \"\" disables it. Isotherm only."),
    text("metrics-bind", "127.0.0.1").apply(Apply::Metrics).works("Address on which metrics are served. Isotherm only."),
    signed("metrics-port", 0, 0, 65535).apply(Apply::Metrics).works("HTTP port for /metrics (Prometheus) and /healthz; 0 disables it. Isotherm only."),
    signed("min-io-threads-avoid-copy-reply", 7, 0, INT_MAX).hidden().no_effect("replies are built in one buffer per worker"),
    signed("min-replicas-max-lag", 10, 0, INT_MAX).alias("min-slaves-max-lag").works("0 disables min-replicas-to-write."),
    signed("min-replicas-to-write", 0, 0, INT_MAX).alias("min-slaves-to-write").works("Refuse writes with fewer replicas than this that were heard of within min-replicas-max-lag seconds."),
    signed("min-string-size-avoid-copy-reply", 16384, 0, INT_MAX).hidden().no_effect("replies are built in one buffer per worker"),
    signed("min-string-size-avoid-copy-reply-threaded", 65536, 0, INT_MAX).hidden().no_effect("replies are built in one buffer per worker"),
    flag("mptcp", false).immutable().check(check::no_mptcp).fixed(NO_MPTCP),
    flag("no-appendfsync-on-rewrite", false).no_effect("no fsync is left out: a thread of its own makes them, and commands do not wait for it"),
    special("notify-keyspace-events", &special::NOTIFY_KEYSPACE_EVENTS)
        .works("Which keyspace events are published, and on which channels."),
    choice("oom-score-adj", OOM_SCORE_ADJ, "no").no_effect("the OOM score is not changed"),
    special("oom-score-adj-values", &special::OOM_SCORE_ADJ_VALUES).multi_arg().no_effect("the OOM score is not changed"),
    text("pidfile", "").immutable().works("File that holds the process id while the server runs."),
    signed("port", 6379, 0, 65535).apply(Apply::Listen).works("TCP port; 0 disables TCP."),
    signed("prefetch-batch-max-size", 16, 0, 128).no_effect("batches hold at most 32 commands"),
    bytes("primaryauth", "").alias("masterauth").sensitive().works("The password that this replica gives its primary."),
    text("primaryuser", "").alias("masteruser").sensitive().works("The user that this replica gives with primaryauth."),
    text("proc-title-template", "{title} {listen-addr} {server-mode}").check(check::title_template).no_effect(NO_TITLE),
    choice("propagation-error-behavior", PROPAGATION_ERROR_BEHAVIOR, "stop").works("What follows a command of a primary or file that fails here."),
    flag("protected-mode", true).works("Without a password, accept local connections only."),
    signed("proto-max-bulk-len", 512 << 20, 1 << 20, i64::MAX).memory().works("Maximum length of an argument, and to which APPEND, SETRANGE and the like let a string grow; 4 GB at most."),
    flag("rdb-del-sync-files", false).works("A replica without RDB file and append-only file of its own removes the file of a full synchronization."),
    signed("rdb-key-save-delay", 0, INT_MIN, INT_MAX).hidden().works("For tests: microseconds of delay for each key that is saved; negative: one for so many keys."),
    flag("rdb-save-incremental-fsync", true).works("Sync an RDB file to disk every 16 MB while it is written, instead of all of it at the end."),
    choice("rdb-version-check", RDB_VERSION_CHECK, "strict").works("strict: RDB files and RESTORE payloads of unknown versions are refused; relaxed: they are tried."),
    flag("rdbchecksum", true).immutable().works("Write a checksum at the end of RDB files, and check that of the file that is loaded."),
    flag("rdbcompression", true).works("Compress strings of more than 20 bytes in RDB files and DUMP payloads."),
    special("rdma-bind", &special::RDMA_BIND).multi_arg().fixed(NO_RDMA),
    signed("rdma-completion-vector", -1, -1, 1024).immutable().no_effect(NO_RDMA),
    signed("rdma-port", 0, 0, 65535).check(check::no_rdma_port).fixed(NO_RDMA),
    signed("rdma-rx-size", 1 << 20, 64 << 10, 16 << 20).immutable().no_effect(NO_RDMA),
    signed("repl-ack-quorum", 0, 0, 1000).apply(Apply::ReplyGate).works("Replies, of reads too, leave when so many replicas have acknowledged what they show; 0: at once. Isotherm only."),
    flag("repl-ack-quorum-fsync", false).works("With repl-ack-quorum: when they have synced it to their append-only files. Isotherm only."),
    signed("repl-ack-timeout", 5000, 1, INT_MAX).works("After so many milliseconds a reply that waits for replicas leaves as the error NOREPLICAS; the change stays. Isotherm only."),
    signed("repl-backlog-disk-size", 1 << 30, 0, i64::MAX).memory().works("So much of the log behind repl-backlog-size is kept for replicas that lack it, in a file without a name in `dir`; 0: none. Isotherm only."),
    signed("repl-backlog-size", 10 << 20, 1, i64::MAX).memory().clamp(16 << 10, i64::MAX).works("So much of the log stays in memory, for replicas that come back."),
    signed("repl-backlog-ttl", 60 * 60, 0, i64::MAX).works("Without replicas for so many seconds the log is kept no longer; 0: it always is."),
    flag("repl-disable-tcp-nodelay", false).no_effect("small packets to replicas are never delayed"),
    choice("repl-diskless-load", REPL_DISKLESS_LOAD, "disabled").works("How a replica takes a full synchronization: by a file, or straight from the socket (with swapdb by a file)."),
    flag("repl-diskless-sync", true).works("Send a snapshot to replicas while it is made, instead of writing it to dbfilename first."),
    signed("repl-diskless-sync-delay", 5, 0, INT_MAX).works("Wait so many seconds for more replicas before the snapshot is made that serves them all."),
    signed("repl-diskless-sync-max-replicas", 0, 0, INT_MAX).works("With so many replicas waiting the snapshot is made at once; 0 for any number."),
    flag("repl-mptcp", false).immutable().check(check::no_mptcp).fixed("sockets are plain TCP"),
    signed("repl-ping-replica-period", 10, 1, INT_MAX).alias("repl-ping-slave-period").works("Send replicas a PING each so many seconds."),
    signed("repl-timeout", 60, 1, INT_MAX).works("A link is given up after so many seconds of silence."),
    text("replica-announce-ip", "").alias("slave-announce-ip").works("The address that this replica gives its primary as its own."),
    signed("replica-announce-port", 0, 0, 65535).alias("slave-announce-port").works("The port that this replica gives its primary as its own."),
    flag("replica-announced", true).works("Shown by INFO; Sentinel reports only announced replicas."),
    flag("replica-ignore-disk-write-errors", false).no_effect("a replica goes on when its disk cannot be written"),
    flag("replica-ignore-maxmemory", true).alias("slave-ignore-maxmemory").works("A replica evicts nothing by itself."),
    flag("replica-lazy-flush", true).alias("slave-lazy-flush").works("A full synchronization frees the former data in the background."),
    signed("replica-priority", 100, 0, INT_MAX).alias("slave-priority").works("Shown by INFO; Sentinel promotes by it."),
    flag("replica-read-only", true).alias("slave-read-only").works("Clients of a replica cannot write."),
    flag("replica-refuse-empty-primary", true).works("A replica with data does not follow the same primary when that comes back with another history and without a key. Isotherm only."),
    flag("replica-serve-stale-data", true).alias("slave-serve-stale-data").works("Clients of a replica are served while its link is down."),
    special("replicaof", &special::REPLICAOF).alias("slaveof").immutable().multi_arg().works("The host and port of the primary that is followed from the start on; REPLICAOF changes it."),
    bytes("requirepass", "").sensitive().apply(Apply::Password).works("Password of the default user."),
    special("save", &special::SAVE).multi_arg().works("Save points, pairs of seconds and changes: an RDB file is written in the background once so many seconds have passed and so much was changed, and at shutdown. \"\" disables them."),
    signed("script-memory-limit", 0, 0, i64::MAX).memory().works("So many bytes may the interpreter of a worker take, for scripts and for functions each: then a script fails; 0: no limit. Isotherm only."),
    text("server-cpulist", "").alias("server_cpulist").immutable().no_effect(NO_AFFINITY),
    unsigned("set-max-intset-entries", 512, 0, i64::MAX).works("Maximum number of members of a set of integers that OBJECT ENCODING reports as intset."),
    unsigned("set-max-listpack-entries", 128, 0, i64::MAX).works("Maximum number of members of a set that OBJECT ENCODING reports as listpack; above it, hashtable."),
    unsigned("set-max-listpack-value", 64, 0, i64::MAX).works("Maximum length of a member of a set that OBJECT ENCODING reports as listpack; above it, hashtable."),
    flag("set-proc-title", true).immutable().no_effect(NO_TITLE),
    choice("shutdown-on-sigint", SHUTDOWN_ON_SIG, "default").multi_arg().check(check::shutdown_flags).works(ON_SIGNAL),
    choice("shutdown-on-sigterm", SHUTDOWN_ON_SIG, "default").multi_arg().check(check::shutdown_flags).works(ON_SIGNAL),
    signed("shutdown-timeout", 10, 0, INT_MAX).works(SHUTDOWN_TIMEOUT),
    signed("slot-migration-max-failover-repl-bytes", 0, -1, i64::MAX).memory_or_negative().no_effect(NO_CLUSTER),
    signed("snapshot-memory-limit", -5, -100, i64::MAX).memory_or_percent().works("So much of what is written while a snapshot is taken may be kept as it was: then commands that write wait until the save has come on. It does not count for maxmemory. A percentage is of the used memory, and at least 64mb or, if that is less, an eighth of maxmemory. Isotherm only."),
    unsigned("socket-mark-id", 0, 0, UINT_MAX).immutable().no_effect("sockets are not marked"),
    flag("stop-writes-on-bgsave-error", true).works("With save points: refuse writes with MISCONF after a save in the background failed, until one succeeds."),
    unsigned("stream-node-max-bytes", 4096, 0, i64::MAX).memory().works("Maximum size of a stream node in bytes; 0: no limit."),
    signed("stream-node-max-entries", 100, 0, i64::MAX).works("Maximum number of entries of a stream node; 0: no limit."),
    // COMPAT(server): `supervised upstart` has no effect. Why: upstart is not maintained any more.
    choice("supervised", SUPERVISED_MODE, "no").immutable().works("systemd, auto: notify systemd at start and at shutdown. upstart has no effect."),
    signed("swap-cache", -1, -1, i64::MAX).memory_or_negative().apply(Apply::Swap).works("So many bytes of values that were read from disk are kept for the next command that needs them, as far as there is room below maxmemory. -1: an eighth of maxmemory, 64mb at most. Isotherm only."),
    flag("swap-checkpoint", false).works("A rewrite of the append-only file refers to values in swap-dir instead of copying them: quick, and so is the next start. Both belong together from then on. Isotherm only."),
    text("swap-dir", "swap").immutable().protected().works("The folder of values that are not in memory, of this process alone: what no base of the append-only file refers to (swap-checkpoint) is removed at start. Isotherm only."),
    flag("swap-direct-io", true).immutable().works("The files of swap-dir are read and written past the system's page cache, if the file system can do that (INFO swap: swap_direct_io). Isotherm only."),
    choice("swap-freeze", SWAP_FREEZE, "auto").works("When keys that have values of up to 512 bytes leave memory with their values, some hundred to a record: three bytes of each stay. auto: once values alone are not enough, as their keys take a quarter of maxmemory, or nothing else can leave; yes: whenever memory is short; no: never. Keys that expire within five minutes stay. What names such a key reads from disk, EXISTS and SET too. Isotherm only."),
    flag("swap-io-uring", true).immutable().works("Each worker reads what its clients wait for by itself, through io_uring, if the system allows that (Linux 6.1, and not in most containers; INFO swap: swap_backend); otherwise threads read. Isotherm only."),
    special("swap-load-rule", &special::LOAD_RULE).alias("ssdb-load-rule").multi_arg().apply(Apply::Swap).works("Pairs of seconds and uses: values that are only read come back to memory while values on disk were used so often within so many seconds, by one of them; \"\": always. Isotherm only."),
    signed("swap-load-upper-limit", 95, 0, 100).alias("ssdb-load-upper-limit").apply(Apply::Swap).works("Above this percentage of maxmemory no value comes back to memory that is only read; 0: there is no limit. It has to be above swap-transfer-lower-limit. Isotherm only."),
    unsigned("swap-max-disk", 0, 0, U64_MAX).memory().immutable().works("So many bytes the files of swap-dir may take, at least 256mb; 0: a third of what is free at start (half with swap-checkpoint), or nine tenths where neither appendonly nor save needs the file system. INFO swap has what of it values can use (swap_usable_bytes). Isotherm only."),
    signed("swap-min-value", 64, 16, 1 << 20).works("Values of fewer bytes stay in memory. Isotherm only."),
    flag("swap-mode", false).apply(Apply::Swap).works("What was not used for longest leaves memory for the files of swap-dir when it becomes short: when maxmemory is used, or without it four fifths of the memory that the process may use. Switched off while the server runs, what is on disk comes home, for which there has to be room below maxmemory; it can be switched on again, but not for the first time. Isotherm only."),
    signed("swap-read-timeout", 5000, 0, INT_MAX).alias("client-visiting-ssdb-timeout").works("Milliseconds without anything coming from disk after which a command that waits for values there gets an error; 0: it waits as long as that takes. Isotherm only."),
    signed("swap-transfer-lower-limit", 85, 0, 100).alias("ssdb-transfer-lower-limit").apply(Apply::Swap).works("Values leave memory when so many percent of maxmemory are used; 100: none leaves below maxmemory. Isotherm only."),
    flag("syslog-enabled", false).immutable().fixed(NO_SYSLOG),
    choice("syslog-facility", SYSLOG_FACILITY, "local0").immutable().no_effect(NO_SYSLOG),
    text("syslog-ident", "isotherm").immutable().no_effect(NO_SYSLOG),
    signed("tcp-backlog", 511, 0, INT_MAX).immutable().works("Length of the queue of connections waiting to be accepted."),
    signed("tcp-keepalive", 300, 0, INT_MAX).works("Seconds without traffic before TCP keepalive probes; 0 disables them."),
    signed("timeout", 0, 0, INT_MAX).works("Seconds before an idle client is disconnected; 0 disables it."),
    choice("tls-auth-clients", TLS_AUTH_CLIENTS, "yes").works("Clients under TLS have to show a certificate that one of the authorities has signed: yes, no, or optional (one that is shown has to be good)."),
    choice("tls-auth-clients-user", TLS_CLIENT_AUTH_USER, "off").works("The user whose name a client's certificate has, as its common name (CN) or one of its URIs (URI), is the user of its connection."),
    signed("tls-auto-reload-interval", 0, 0, INT_MAX).apply(Apply::Tls).works("Seconds after which it is seen whether certificates and keys have changed; 0: only CONFIG SET reads them again."),
    text("tls-ca-cert-dir", "").volatile().apply(Apply::Tls).works("Folder of certificates of authorities whose signatures are believed."),
    text("tls-ca-cert-file", "").volatile().apply(Apply::Tls).works("File of certificates of authorities whose signatures are believed, in PEM."),
    text("tls-cert-file", "").volatile().apply(Apply::Tls).works("Certificate of this server in PEM, with those above it."),
    text("tls-ciphers", "").apply(Apply::Tls).works("Suites of TLS 1.2, in the language of OpenSSL; all that there are if empty."),
    text("tls-ciphersuites", "").apply(Apply::Tls).works("Suites of TLS 1.3 by name, with colons between; all that there are if empty."),
    text("tls-client-cert-file", "").volatile().apply(Apply::Tls).works("Certificate that is shown to other servers; that of `tls-cert-file` if empty."),
    text("tls-client-key-file", "").volatile().apply(Apply::Tls).works("The key of `tls-client-cert-file`."),
    text("tls-client-key-file-pass", "").sensitive().apply(Apply::Tls).works("The password of `tls-client-key-file`."),
    flag("tls-cluster", false).apply(Apply::Tls).works("The cluster bus, MIGRATE, and what nodes announce as their ports, are under TLS. Set it at start: the bus goes on where it listens."),
    text("tls-dh-params-file", "").volatile().apply(Apply::Tls).no_effect("there are no suites with DH"),
    text("tls-key-file", "").volatile().apply(Apply::Tls).works("The key of `tls-cert-file` in PEM: PKCS#8, which may be encrypted, PKCS#1 or SEC 1."),
    text("tls-key-file-pass", "").sensitive().apply(Apply::Tls).works("The password of `tls-key-file`."),
    signed("tls-port", 0, 0, 65535).apply(Apply::TlsPort).works("TCP port for clients that speak TLS; 0: there is none. It may stand beside `port` or instead of it."),
    flag("tls-prefer-server-ciphers", false).apply(Apply::Tls).works("Of the suites that both sides have, the first of this server's is taken, not the first of the client's."),
    text("tls-protocols", "").apply(Apply::Tls).works("Versions of TLS: `TLSv1.2`, `TLSv1.3`, or both; both if empty."),
    flag("tls-replication", false).apply(Apply::Tls).works("The link to a primary is under TLS, and this node names its TLS port to it."),
    signed("tls-session-cache-size", 20 << 10, 0, INT_MAX).apply(Apply::Tls).works("Sessions that are remembered for clients that come again without a ticket; 0: as many as there may be, 100,000."),
    signed("tls-session-cache-timeout", 300, 0, INT_MAX).apply(Apply::Tls).works("Seconds for which a session can be taken up again, by a ticket too."),
    flag("tls-session-caching", true).apply(Apply::Tls).works("Clients that come again may take up their session, which saves most of a handshake."),
    unsigned("tracking-table-max-keys", 1000000, 0, i64::MAX).apply(Apply::TrackedKeys).works("Maximum number of keys in the tracking table of client-side caching; above it, random keys are invalidated."),
    text("unixsocket", "").immutable().works("Path of a unix socket to listen on."),
    text("unixsocketgroup", "").immutable().works("Group that the file of the unix socket belongs to."),
    unsigned("unixsocketperm", 0, 0, 0o777).octal().immutable().works("Permissions of the unix socket."),
    flag("use-exit-on-panic", false).hidden().no_effect("a broken invariant always aborts"),
    signed("watchdog-period", 0, 0, INT_MAX).hidden().no_effect("there is no watchdog"),
    unsigned("zset-max-listpack-entries", 128, 0, i64::MAX).alias("zset-max-ziplist-entries").works("Maximum number of members of a sorted set that OBJECT ENCODING reports as listpack; above it, skiplist."),
    unsigned("zset-max-listpack-value", 64, 0, i64::MAX).memory().alias("zset-max-ziplist-value").works("Maximum length of a member of a sorted set that OBJECT ENCODING reports as listpack; above it, skiplist."),
];

const _: () = {
    let mut at = 1;
    while at < PARAMS.len() {
        assert!(ascending(PARAMS[at - 1].name.as_bytes(), PARAMS[at].name.as_bytes()), "the table is sorted");
        at += 1;
    }
};

/// `a < b` byte by byte, at compile time.
const fn ascending(a: &[u8], b: &[u8]) -> bool {
    let mut at = 0;
    while at < a.len() && at < b.len() {
        if a[at] != b[at] {
            return a[at] < b[at];
        }
        at += 1;
    }
    a.len() < b.len()
}
