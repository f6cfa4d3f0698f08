//! Every parameter, by name. A flat table: what each does is said behind `works`, and why it does nothing (or can only
//! be what it is) behind `no_effect` and `fixed`.

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
const NO_ACL: &str = "there are no users but the default one yet";
const NO_AFFINITY: &str = "threads are not bound to CPUs";
const NO_CLUSTER: &str = "there is no cluster yet";
const NO_COMPRESSION: &str = "the blocks of a list are not compressed";
const LAZYFREE: &str = "what is large is freed in steps that hold up no command, whatever removed it; the reply to `FLUSHALL SYNC` waits for it";
const NO_MODULES: &str = "there are no modules";
const NO_MPTCP: &str = "MPTCP is not supported";
const NO_PERSISTENCE: &str = "there is no persistence yet";
const NO_RDMA: &str = "there is no RDMA";
const NO_REPLICATION: &str = "there is no replication yet";
const NO_SCRIPTS: &str = "there are no scripts yet";
const ON_SIGNAL: &str =
    "With `save` and without `force` the signal does not end the server, as there is nothing to save to yet.";
const NO_SHUTDOWN: &str = "nothing is to be saved, so the server ends at once";
const NO_SYSLOG: &str = "there is no logging to syslog";
const NO_TITLE: &str = "the process keeps its title";
const NO_TLS: &str = "there is no TLS yet";

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
const PROPAGATION_ERROR_BEHAVIOR: Words = &[("ignore", 0), ("panic", 1), ("panic-on-replicas", 2)];
const PROTECTED_ACTION: Words = &[("no", 0), ("yes", 1), ("local", 2)];
const RDB_VERSION_CHECK: Words = &[("strict", 0), ("relaxed", 1)];
const REPL_DISKLESS_LOAD: Words =
    &[("disabled", 0), ("on-empty-db", 1), ("swapdb", 2), ("flush-before-load", 3)];
/// Bits: several words may be given.
const SHUTDOWN_ON_SIG: Words =
    &[("default", 0), ("save", 1), ("nosave", 2), ("now", 4), ("force", 8), ("safe", 16), ("failover", 32)];
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
    choice("acl-pubsub-default", ACL_PUBSUB_DEFAULT, "resetchannels").no_effect(NO_ACL),
    text("aclfile", "").immutable().fixed(NO_ACL),
    unsigned("acllog-max-len", 128, 0, i64::MAX).no_effect(NO_ACL),
    signed("active-defrag-cycle-max", 25, 1, 99).works("With activedefrag: what compaction may take at the upper threshold, in percent of a CPU."),
    signed("active-defrag-cycle-min", 1, 1, 99).works("With activedefrag: what compaction may take at the lower threshold, in percent of a CPU."),
    signed("active-defrag-cycle-us", 500, 0, 100000).works("How many microseconds compaction works at a time, always."),
    unsigned("active-defrag-ignore-bytes", 100 << 20, 1, i64::MAX).memory().works("With activedefrag: less than this free inside slabs is no fragmentation."),
    unsigned("active-defrag-max-scan-fields", 1000, 1, i64::MAX).no_effect("a large collection is moved node by node"),
    signed("active-defrag-threshold-lower", 10, 0, 1000).works("With activedefrag: fragmentation from which on compaction may take active-defrag-cycle-min, in percent."),
    signed("active-defrag-threshold-upper", 100, 0, 1000).works("With activedefrag: fragmentation from which on compaction may take active-defrag-cycle-max, in percent."),
    signed("active-expire-effort", 1, 1, 10).apply(Apply::Timers).works("The share of time that the expiry cycle may take."),
    flag("activedefrag", false).works("Memory is always compacted, within compaction-cpu-percent; with yes it may take more where Valkey would spend more (active-defrag-*)."),
    flag("activerehashing", true).no_effect("nothing is ever rehashed as a whole"),
    flag("allocator-stats-at-exit", false).works("When the server ends, the log gets what MEMORY MALLOC-STATS tells. Of Isotherm only."),
    flag("always-show-logo", false).immutable().works("The picture at start is shown in the log even if nobody is watching."),
    flag("aof-disable-auto-gc", false).hidden().no_effect(NO_PERSISTENCE),
    flag("aof-load-truncated", true).no_effect(NO_PERSISTENCE),
    text("aof-rewrite-cpulist", "").alias("aof_rewrite_cpulist").immutable().no_effect(NO_AFFINITY),
    flag("aof-rewrite-incremental-fsync", true).no_effect(NO_PERSISTENCE),
    flag("aof-timestamp-enabled", false).no_effect(NO_PERSISTENCE),
    flag("aof-use-rdb-preamble", true).no_effect(NO_PERSISTENCE),
    text("appenddirname", "appendonlydir").immutable().check(check::aof_dirname).no_effect(NO_PERSISTENCE),
    text("appendfilename", "appendonly.aof").immutable().check(check::aof_filename).no_effect(NO_PERSISTENCE),
    choice("appendfsync", AOF_FSYNC, "everysec").no_effect(NO_PERSISTENCE),
    flag("appendonly", false).fixed(NO_PERSISTENCE),
    signed("auto-aof-rewrite-min-size", 64 << 20, 0, i64::MAX).memory().no_effect(NO_PERSISTENCE),
    signed("auto-aof-rewrite-percentage", 100, 0, INT_MAX).no_effect(NO_PERSISTENCE),
    bytes("availability-zone", "").works("Shown by HELLO and INFO."),
    text("bgsave-cpulist", "").alias("bgsave_cpulist").immutable().no_effect(NO_AFFINITY),
    special("bind", &special::BIND).multi_arg().apply(Apply::Bind).works("Addresses to listen on; a leading \"-\" makes one optional."),
    text("bind-source-addr", "").no_effect(NO_REPLICATION),
    text("bio-cpulist", "").alias("bio_cpulist").immutable().no_effect(NO_AFFINITY),
    signed("busy-reply-threshold", 5000, 0, i64::MAX).alias("lua-time-limit").no_effect(NO_SCRIPTS),
    special("client-output-buffer-limit", &special::CLIENT_OUTPUT_BUFFER_LIMIT).multi_arg().works("A client whose unread replies exceed it is closed. The class replica has no members yet."),
    unsigned("client-query-buffer-limit", 1 << 30, 1 << 20, i64::MAX).memory().works("A client whose incomplete request exceeds it is closed."),
    flag("cluster-allow-pubsubshard-when-down", true).no_effect(NO_CLUSTER),
    flag("cluster-allow-reads-when-down", false).no_effect(NO_CLUSTER),
    flag("cluster-allow-replica-migration", true).no_effect(NO_CLUSTER),
    signed("cluster-announce-bus-port", 0, 0, 65535).no_effect(NO_CLUSTER),
    text("cluster-announce-client-ipv4", "").check(check::ipv4).no_effect(NO_CLUSTER),
    text("cluster-announce-client-ipv6", "").check(check::ipv6).no_effect(NO_CLUSTER),
    signed("cluster-announce-client-port", 0, 0, 65535).no_effect(NO_CLUSTER),
    signed("cluster-announce-client-tls-port", 0, 0, 65535).no_effect(NO_CLUSTER),
    text("cluster-announce-hostname", "").check(check::hostname).no_effect(NO_CLUSTER),
    text("cluster-announce-human-nodename", "").check(check::nodename).no_effect(NO_CLUSTER),
    text("cluster-announce-ip", "").check(check::announced_ip).no_effect(NO_CLUSTER),
    signed("cluster-announce-port", 0, 0, 65535).no_effect(NO_CLUSTER),
    signed("cluster-announce-tls-port", 0, 0, 65535).no_effect(NO_CLUSTER),
    unsigned("cluster-blacklist-ttl", 60, 0, U64_MAX).no_effect(NO_CLUSTER),
    text("cluster-config-file", "nodes.conf").immutable().check(check::cluster_config_file).no_effect(NO_CLUSTER),
    choice("cluster-config-save-behavior", CLUSTER_CONFIGFILE_SAVE_BEHAVIOR, "sync").no_effect(NO_CLUSTER),
    signed("cluster-databases", 1, 1, INT_MAX).immutable().no_effect(NO_CLUSTER),
    flag("cluster-enabled", false).immutable().fixed(NO_CLUSTER),
    unsigned("cluster-link-sendbuf-limit", 0, 0, U64_MAX).memory().no_effect(NO_CLUSTER),
    signed("cluster-manual-failover-timeout", 5000, 1, INT_MAX).no_effect(NO_CLUSTER),
    signed("cluster-message-gossip-perc", 10, 1, 100).hidden().no_effect(NO_CLUSTER),
    signed("cluster-migration-barrier", 1, 0, INT_MAX).no_effect(NO_CLUSTER),
    signed("cluster-node-timeout", 15000, 0, i64::MAX).no_effect(NO_CLUSTER),
    signed("cluster-ping-interval", 0, 0, i64::MAX).hidden().no_effect(NO_CLUSTER),
    signed("cluster-port", 0, 0, 65535).immutable().no_effect(NO_CLUSTER),
    choice("cluster-preferred-endpoint-type", CLUSTER_PREFERRED_ENDPOINT_TYPE, "ip").no_effect(NO_CLUSTER),
    flag("cluster-replica-no-failover", false).alias("cluster-slave-no-failover").no_effect(NO_CLUSTER),
    signed("cluster-replica-validity-factor", 10, 0, INT_MAX).alias("cluster-slave-validity-factor").no_effect(NO_CLUSTER),
    flag("cluster-require-full-coverage", true).no_effect(NO_CLUSTER),
    unsigned("cluster-slot-migration-log-max-len", 1000, 0, i64::MAX).no_effect(NO_CLUSTER),
    flag("cluster-slot-stats-enabled", false).works("CLUSTER SLOT-STATS tells what the commands of each slot cost too: 384 KB a worker."),
    signed("commandlog-execution-slower-than", 10000, -1, i64::MAX).alias("slowlog-log-slower-than").works("Commands that take so many microseconds are in the slow log; -1 for none."),
    unsigned("commandlog-large-reply-max-len", 128, 0, i64::MAX).works("How many commands with large replies are remembered."),
    unsigned("commandlog-large-request-max-len", 128, 0, i64::MAX).works("How many large requests are remembered."),
    signed("commandlog-reply-larger-than", 1 << 20, -1, i64::MAX).works("Replies of so many bytes are logged; -1 for none."),
    signed("commandlog-request-larger-than", 1 << 20, -1, i64::MAX).works("Requests of so many bytes are logged; -1 for none."),
    unsigned("commandlog-slow-execution-max-len", 128, 0, i64::MAX).alias("slowlog-max-len").works("How many slow commands are remembered."),
    signed("compaction-cpu-percent", 25, 1, 99).works("What compaction may take whenever memory is to be gained, in percent of a CPU. Of Isotherm only."),
    flag("crash-log-enabled", true).no_effect("a crash prints Rust's own report"),
    flag("crash-memcheck-enabled", true).no_effect("a crash prints Rust's own report"),
    flag("daemonize", false).immutable().works("The server goes into the background."),
    signed("databases", 16, 1, INT_MAX).check(check::databases).immutable().works("At most 65535."),
    text("dbfilename", "dump.rdb").protected().check(check::db_filename).no_effect(NO_PERSISTENCE),
    text("debug-context", "").hidden().no_effect("a note for whoever reads it back"),
    special("dir", &special::DIR).protected().works("The working directory; logfile and unixsocket are relative to it."),
    flag("disable-thp", true).immutable().no_effect("full ranges of the keyspace lie on huge pages, which takes no memory; the rest is left to the system's setting"),
    flag("dual-channel-replication-enabled", false).no_effect(NO_REPLICATION),
    flag("enable-debug-assert", false).immutable().hidden().no_effect("there is no DEBUG ASSERT"),
    choice("enable-debug-command", PROTECTED_ACTION, "no").immutable().works("Who may use DEBUG: no, yes, or local connections."),
    choice("enable-module-command", PROTECTED_ACTION, "no").immutable().no_effect(NO_MODULES),
    choice("enable-protected-configs", PROTECTED_ACTION, "no").immutable().works("Who may change protected parameters: no, yes, or local connections."),
    flag("extended-redis-compatibility", false).works("HELLO reports server redis and version 7.2.4."),
    unsigned("hash-max-listpack-entries", 512, 0, i64::MAX).alias("hash-max-ziplist-entries").works("A hash with more fields than this is a hashtable."),
    unsigned("hash-max-listpack-value", 64, 0, i64::MAX).memory().alias("hash-max-ziplist-value").works("A hash with a longer field or value than this is a hashtable."),
    bytes("hash-seed", "").immutable().check(check::hash_seed).no_effect("keys are hashed under a random secret of the process"),
    flag("hide-user-data-from-log", true).works("Names of clients and users are not written to the log."),
    unsigned("hll-sparse-max-bytes", 3000, 0, i64::MAX).memory().works("A HyperLogLog whose sparse form would be longer than this becomes dense."),
    signed("hotkeys-sample-ratio", 64, 0, 1_000_000).works("HOTKEYS looks at one command of so many; 0 for none. Of Isotherm only."),
    signed("hz", 10, 0, INT_MAX).clamp(1, 500).apply(Apply::Timers).works("How often the housekeeping runs; capped to 1..500."),
    text("ignore-warnings", "").no_effect("no warning of this server can be silenced"),
    flag("import-mode", false).works("Keys do not expire by themselves; only clients of CLIENT IMPORT-SOURCE still see those whose time has come."),
    signed("io-threads", WORKERS_BY_CPUS, 1, 256).apply(Apply::Workers).works("The number of workers; by default the CPUs that the process may use. A change takes effect with the next start."),
    flag("io-threads-always-active", false).hidden().no_effect("workers are always there"),
    flag("jemalloc-arena-per-worker", false).immutable().works("Each worker has an arena of its own. Of Isotherm only."),
    flag("jemalloc-bg-thread", true).apply(Apply::Allocator).works("Whether the allocator has a thread that gives freed memory back."),
    signed("jemalloc-dirty-decay-ms", 10000, -1, i64::MAX / 1_000_000).apply(Apply::Decay).works("For how long memory that was freed stays; 0: not at all, -1: for ever. MALLOC_CONF has the last word at start. Of Isotherm only."),
    signed("jemalloc-muzzy-decay-ms", 0, -1, i64::MAX / 1_000_000).apply(Apply::Decay).works("For how much longer the kernel may take it when it likes, before it is given back. Of Isotherm only."),
    signed("jemalloc-narenas", 0, 0, 4094).immutable().works("Arenas that threads share; 0 for four a CPU. MALLOC_CONF has the last word. Of Isotherm only."),
    text("jemalloc-slab-sizes", "").check(check::slab_sizes).immutable().works("Pages of the slabs of sizes, as 128-128:2|200-1024:8. MALLOC_CONF has the last word. Of Isotherm only."),
    flag("jemalloc-tcache", true).immutable().works("Threads keep blocks at hand. MALLOC_CONF has the last word. Of Isotherm only."),
    unsigned("jemalloc-tcache-max", 32768, 8, 8 << 20).memory().immutable().works("The largest block that they keep. MALLOC_CONF has the last word. Of Isotherm only."),
    signed("key-load-delay", 0, INT_MIN, INT_MAX).hidden().no_effect(NO_PERSISTENCE),
    signed("latency-monitor-threshold", 0, 0, i64::MAX).works("Milliseconds from which on an event is kept for LATENCY; 0 for none."),
    flag("latency-tracking", true).works("How long commands take is recorded, for INFO latencystats and LATENCY HISTOGRAM."),
    special("latency-tracking-info-percentiles", &special::LATENCY_TRACKING_INFO_PERCENTILES).multi_arg().works("The percentiles that INFO latencystats shows."),
    flag("lazyfree-lazy-eviction", true).no_effect(LAZYFREE),
    flag("lazyfree-lazy-expire", true).no_effect(LAZYFREE),
    flag("lazyfree-lazy-server-del", true).no_effect(LAZYFREE),
    flag("lazyfree-lazy-user-del", true).no_effect(LAZYFREE),
    flag("lazyfree-lazy-user-flush", true).no_effect(LAZYFREE),
    signed("lfu-decay-time", 1, 0, INT_MAX).apply(Apply::EvictionPolicy).works("Minutes after which an LFU counter loses one."),
    signed("lfu-log-factor", 10, 0, INT_MAX).apply(Apply::EvictionPolicy).works("How slowly an LFU counter grows."),
    signed("list-compress-depth", 0, 0, INT_MAX).no_effect(NO_COMPRESSION),
    signed("list-max-listpack-size", -2, INT_MIN, INT_MAX).alias("list-max-ziplist-size").works("A list above this is a quicklist: so many elements, or from -1 to -5 so many bytes (4 KB to 64 KB)."),
    signed("loading-process-events-interval-bytes", 2 << 20, 1024, INT_MAX).hidden().no_effect(NO_PERSISTENCE),
    text("locale-collate", "").check(check::locale).works("SORT ALPHA compares bytes: only the locales that do so are taken."),
    choice("log-format", LOG_FORMAT, "legacy").apply(Apply::LogFormat).works("How a line of the log looks."),
    choice("log-timestamp-format", LOG_TIMESTAMP_FORMAT, "legacy").apply(Apply::LogFormat).works("How a line of the log tells the time, which is UTC."),
    text("logfile", "").immutable().works("Where the log goes; standard output if empty."),
    choice("loglevel", LOGLEVEL, "notice").apply(Apply::LogLevel).works("The least level that is logged."),
    flag("lua-enable-insecure-api", false).alias("lua-enable-deprecated-api").hidden().protected().no_effect(NO_SCRIPTS),
    unsigned("max-new-connections-per-cycle", 10, 1, 1000).no_effect("a thread of its own accepts connections"),
    unsigned("max-new-tls-connections-per-cycle", 1, 1, 1000).no_effect(NO_TLS),
    unsigned("maxclients", 10000, 1, UINT_MAX).apply(Apply::MaxClients).works("More connections are refused with an error."),
    unsigned("maxmemory", 0, 0, U64_MAX).memory().apply(Apply::MaxMemory).works("The limit of used_memory: above it keys are evicted, or writes refused."),
    signed("maxmemory-clients", 0, -100, i64::MAX).memory_or_percent().works("What all connections together may take; above it the largest are closed."),
    signed("maxmemory-eviction-tenacity", 10, 0, 100).works("How long one command may evict before it gives up; 100 for as long as it takes."),
    choice("maxmemory-policy", MAXMEMORY_POLICY, "noeviction").apply(Apply::EvictionPolicy).works("What is evicted above maxmemory."),
    signed("maxmemory-samples", 5, 1, 64).no_effect("two whole pages compete, some 34 keys, whatever is asked for"),
    bytes("memory-pinned-prefixes", "").immutable().check(check::pinned_prefixes).works("Beginnings of keys, with spaces between them, for which MEMORY PREFIXES counts exactly. Of Isotherm only."),
    bytes("memory-prefix-separator", ":").immutable().check(check::prefix_separator).works("The byte at which MEMORY PREFIXES cuts keys; \"\" counts no prefixes. Of Isotherm only."),
    text("metrics-bind", "127.0.0.1").apply(Apply::Metrics).works("The address of the port for metrics, set at start. Of Isotherm only."),
    signed("metrics-port", 0, 0, 65535).apply(Apply::Metrics).works("A port for HTTP with /metrics for Prometheus and /healthz, set at start; 0 for none. Of Isotherm only."),
    signed("min-io-threads-avoid-copy-reply", 7, 0, INT_MAX).hidden().no_effect("replies are built in one buffer per worker"),
    signed("min-replicas-max-lag", 10, 0, INT_MAX).alias("min-slaves-max-lag").works("0 switches min-replicas-to-write off."),
    signed("min-replicas-to-write", 0, 0, INT_MAX).alias("min-slaves-to-write").works("With fewer good replicas writes are refused; there are none yet."),
    signed("min-string-size-avoid-copy-reply", 16384, 0, INT_MAX).hidden().no_effect("replies are built in one buffer per worker"),
    signed("min-string-size-avoid-copy-reply-threaded", 65536, 0, INT_MAX).hidden().no_effect("replies are built in one buffer per worker"),
    flag("mptcp", false).immutable().check(check::no_mptcp).fixed(NO_MPTCP),
    flag("no-appendfsync-on-rewrite", false).no_effect(NO_PERSISTENCE),
    special("notify-keyspace-events", &special::NOTIFY_KEYSPACE_EVENTS)
        .works("Which events of keys are published, and to which channels."),
    choice("oom-score-adj", OOM_SCORE_ADJ, "no").no_effect("the score is left alone"),
    special("oom-score-adj-values", &special::OOM_SCORE_ADJ_VALUES).multi_arg().no_effect("the score is left alone"),
    text("pidfile", "").immutable().works("The file that holds the process id while the server runs."),
    signed("port", 6379, 0, 65535).apply(Apply::Listen).works("The TCP port; 0 for none."),
    signed("prefetch-batch-max-size", 16, 0, 128).no_effect("a batch is at most 32 commands"),
    bytes("primaryauth", "").alias("masterauth").sensitive().no_effect(NO_REPLICATION),
    text("primaryuser", "").alias("masteruser").sensitive().no_effect(NO_REPLICATION),
    text("proc-title-template", "{title} {listen-addr} {server-mode}").check(check::title_template).no_effect(NO_TITLE),
    choice("propagation-error-behavior", PROPAGATION_ERROR_BEHAVIOR, "ignore").no_effect(NO_REPLICATION),
    flag("protected-mode", true).works("Without a password only local connections are served."),
    signed("proto-max-bulk-len", 512 << 20, 1 << 20, i64::MAX).memory().works("The longest argument; keys and values are at most 512 MB in any case."),
    flag("rdb-del-sync-files", false).no_effect(NO_PERSISTENCE),
    signed("rdb-key-save-delay", 0, INT_MIN, INT_MAX).hidden().no_effect(NO_PERSISTENCE),
    flag("rdb-save-incremental-fsync", true).no_effect(NO_PERSISTENCE),
    choice("rdb-version-check", RDB_VERSION_CHECK, "strict").works("RESTORE refuses payloads of versions that are not known; relaxed: it tries."),
    flag("rdbchecksum", true).immutable().no_effect(NO_PERSISTENCE),
    flag("rdbcompression", true).works("DUMP compresses strings of more than 20 bytes."),
    special("rdma-bind", &special::RDMA_BIND).multi_arg().fixed(NO_RDMA),
    signed("rdma-completion-vector", -1, -1, 1024).immutable().no_effect(NO_RDMA),
    signed("rdma-port", 0, 0, 65535).check(check::no_rdma_port).fixed(NO_RDMA),
    signed("rdma-rx-size", 1 << 20, 64 << 10, 16 << 20).immutable().no_effect(NO_RDMA),
    signed("repl-backlog-size", 10 << 20, 1, i64::MAX).memory().clamp(16 << 10, i64::MAX).no_effect(NO_REPLICATION),
    signed("repl-backlog-ttl", 60 * 60, 0, i64::MAX).no_effect(NO_REPLICATION),
    flag("repl-disable-tcp-nodelay", false).no_effect(NO_REPLICATION),
    choice("repl-diskless-load", REPL_DISKLESS_LOAD, "disabled").no_effect(NO_REPLICATION),
    flag("repl-diskless-sync", true).no_effect(NO_REPLICATION),
    signed("repl-diskless-sync-delay", 5, 0, INT_MAX).no_effect(NO_REPLICATION),
    signed("repl-diskless-sync-max-replicas", 0, 0, INT_MAX).no_effect(NO_REPLICATION),
    flag("repl-mptcp", false).immutable().check(check::no_mptcp).fixed(NO_REPLICATION),
    signed("repl-ping-replica-period", 10, 1, INT_MAX).alias("repl-ping-slave-period").no_effect(NO_REPLICATION),
    signed("repl-timeout", 60, 1, INT_MAX).no_effect(NO_REPLICATION),
    text("replica-announce-ip", "").alias("slave-announce-ip").no_effect(NO_REPLICATION),
    signed("replica-announce-port", 0, 0, 65535).alias("slave-announce-port").no_effect(NO_REPLICATION),
    flag("replica-announced", true).no_effect(NO_REPLICATION),
    flag("replica-ignore-disk-write-errors", false).no_effect(NO_REPLICATION),
    flag("replica-ignore-maxmemory", true).alias("slave-ignore-maxmemory").no_effect(NO_REPLICATION),
    flag("replica-lazy-flush", true).alias("slave-lazy-flush").no_effect(NO_REPLICATION),
    signed("replica-priority", 100, 0, INT_MAX).alias("slave-priority").no_effect(NO_REPLICATION),
    flag("replica-read-only", true).alias("slave-read-only").no_effect(NO_REPLICATION),
    flag("replica-serve-stale-data", true).alias("slave-serve-stale-data").no_effect(NO_REPLICATION),
    special("replicaof", &special::REPLICAOF).alias("slaveof").immutable().multi_arg().fixed(NO_REPLICATION),
    bytes("requirepass", "").sensitive().apply(Apply::Password).works("The password of the default user."),
    special("save", &special::SAVE).multi_arg().fixed(NO_PERSISTENCE),
    text("server-cpulist", "").alias("server_cpulist").immutable().no_effect(NO_AFFINITY),
    unsigned("set-max-intset-entries", 512, 0, i64::MAX).works("A set of integers with more of them than this is no intset."),
    unsigned("set-max-listpack-entries", 128, 0, i64::MAX).works("A set with more members than this is a hashtable."),
    unsigned("set-max-listpack-value", 64, 0, i64::MAX).works("A set with a longer member than this is a hashtable."),
    flag("set-proc-title", true).immutable().no_effect(NO_TITLE),
    choice("shutdown-on-sigint", SHUTDOWN_ON_SIG, "default").multi_arg().check(check::shutdown_flags).works(ON_SIGNAL),
    choice("shutdown-on-sigterm", SHUTDOWN_ON_SIG, "default").multi_arg().check(check::shutdown_flags).works(ON_SIGNAL),
    signed("shutdown-timeout", 10, 0, INT_MAX).no_effect(NO_SHUTDOWN),
    signed("slot-migration-max-failover-repl-bytes", 0, -1, i64::MAX).memory_or_negative().no_effect(NO_CLUSTER),
    unsigned("socket-mark-id", 0, 0, UINT_MAX).immutable().no_effect("sockets are not marked"),
    flag("stop-writes-on-bgsave-error", true).no_effect(NO_PERSISTENCE),
    unsigned("stream-node-max-bytes", 4096, 0, i64::MAX).memory().works("A block of a stream ends before it is longer than this."),
    signed("stream-node-max-entries", 100, 0, i64::MAX).works("A block of a stream ends at so many entries."),
    choice("supervised", SUPERVISED_MODE, "no").immutable().works("With systemd or auto, systemd is told when the server is ready and when it ends. There is nothing for upstart."),
    flag("syslog-enabled", false).immutable().fixed(NO_SYSLOG),
    choice("syslog-facility", SYSLOG_FACILITY, "local0").immutable().no_effect(NO_SYSLOG),
    text("syslog-ident", "isotherm").immutable().no_effect(NO_SYSLOG),
    signed("tcp-backlog", 511, 0, INT_MAX).immutable().works("The length of the queue of connections to be accepted."),
    signed("tcp-keepalive", 300, 0, INT_MAX).works("Seconds of silence after which the system asks whether a peer is alive."),
    signed("timeout", 0, 0, INT_MAX).works("Seconds after which an idle connection is closed; 0 for never."),
    choice("tls-auth-clients", TLS_AUTH_CLIENTS, "yes").no_effect(NO_TLS),
    choice("tls-auth-clients-user", TLS_CLIENT_AUTH_USER, "off").no_effect(NO_TLS),
    signed("tls-auto-reload-interval", 0, 0, INT_MAX).no_effect(NO_TLS),
    text("tls-ca-cert-dir", "").volatile().no_effect(NO_TLS),
    text("tls-ca-cert-file", "").volatile().no_effect(NO_TLS),
    text("tls-cert-file", "").volatile().no_effect(NO_TLS),
    text("tls-ciphers", "").no_effect(NO_TLS),
    text("tls-ciphersuites", "").no_effect(NO_TLS),
    text("tls-client-cert-file", "").volatile().no_effect(NO_TLS),
    text("tls-client-key-file", "").volatile().no_effect(NO_TLS),
    text("tls-client-key-file-pass", "").sensitive().no_effect(NO_TLS),
    flag("tls-cluster", false).fixed(NO_TLS),
    text("tls-dh-params-file", "").volatile().no_effect(NO_TLS),
    text("tls-key-file", "").volatile().no_effect(NO_TLS),
    text("tls-key-file-pass", "").sensitive().no_effect(NO_TLS),
    signed("tls-port", 0, 0, 65535).fixed(NO_TLS),
    flag("tls-prefer-server-ciphers", false).no_effect(NO_TLS),
    text("tls-protocols", "").no_effect(NO_TLS),
    flag("tls-replication", false).fixed(NO_TLS),
    signed("tls-session-cache-size", 20 << 10, 0, INT_MAX).no_effect(NO_TLS),
    signed("tls-session-cache-timeout", 300, 0, INT_MAX).no_effect(NO_TLS),
    flag("tls-session-caching", true).no_effect(NO_TLS),
    unsigned("tracking-table-max-keys", 1000000, 0, i64::MAX).works("Keys that are remembered for clients that track; beyond it some are said to have changed."),
    text("unixsocket", "").immutable().works("The path of a unix socket to listen on."),
    text("unixsocketgroup", "").immutable().no_effect("the socket's group is left alone"),
    unsigned("unixsocketperm", 0, 0, 0o777).octal().immutable().works("The unix socket's permissions."),
    flag("use-exit-on-panic", false).hidden().no_effect("a broken invariant always aborts"),
    signed("watchdog-period", 0, 0, INT_MAX).hidden().no_effect("there is no watchdog"),
    unsigned("zset-max-listpack-entries", 128, 0, i64::MAX).alias("zset-max-ziplist-entries").works("A sorted set with more members than this is a skiplist."),
    unsigned("zset-max-listpack-value", 64, 0, i64::MAX).memory().alias("zset-max-ziplist-value").works("A sorted set with a longer member than this is a skiplist."),
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
