//! The values that the process reads while it works, with their types.

use super::special::{self, OutputLimit};
use super::table::{MAXMEMORY_POLICY, SUPERVISED_MODE};
use super::{Config, Id, check, id, value};
use isotherm_keyspace::{EvictionPolicy, PrefixSettings};
use isotherm_runtime::log::{Format, Level, Timestamp};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// A smaller limit would close the client that wants to raise it.
const CLIENT_MEMORY_BYTES_MIN: u64 = 128 << 10;

const PID_FILE_DEFAULT: &str = "/var/run/isotherm.pid";

const MAXMEMORY_POLICY_ID: Id = id("maxmemory-policy");

/// Eviction policies by the number of the word; `None` for noeviction.
const EVICTION_POLICIES: [Option<EvictionPolicy>; 8] = [
    Some(EvictionPolicy::VolatileLru),
    Some(EvictionPolicy::VolatileLfu),
    Some(EvictionPolicy::VolatileRandom),
    Some(EvictionPolicy::VolatileTtl),
    Some(EvictionPolicy::AllKeysLru),
    Some(EvictionPolicy::AllKeysLfu),
    Some(EvictionPolicy::AllKeysRandom),
    None,
];

/// Valkey's parameters of active defragmentation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Defrag {
    /// Percent of a CPU, at the lower and at the upper threshold.
    pub cycle_min: u32,
    pub cycle_max: u32,
    /// Percent of what is in use.
    pub threshold_lower: u32,
    pub threshold_upper: u32,
    pub ignore_bytes: u64,
}

impl Defrag {
    /// Returns the share of a CPU that Valkey would spend, in percent; 0 below its thresholds.
    pub fn percent_of(&self, live_bytes: u64, free_bytes: u64) -> u32 {
        let fragmented = free_bytes as f64 * 100.0 / live_bytes.max(1) as f64;
        if fragmented < f64::from(self.threshold_lower) || free_bytes < self.ignore_bytes {
            return 0;
        }
        let (low, high) = (f64::from(self.cycle_min), f64::from(self.cycle_max));
        // Thresholds in the wrong order are a step.
        let width = f64::from(self.threshold_upper) - f64::from(self.threshold_lower);
        let part = if width > 0.0 { (fragmented - f64::from(self.threshold_lower)) / width } else { 1.0 };
        (low + part * (high - low)).clamp(low.min(high), low.max(high)) as u32
    }
}

/// Permission of clients to do something dangerous.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Permission {
    No,
    Yes,
    /// Connections from this machine.
    Local,
}

impl Permission {
    pub fn allows(self, is_local: bool) -> bool {
        self == Permission::Yes || (self == Permission::Local && is_local)
    }
}

impl Config {
    // ---- at start ----

    pub fn port(&self) -> u16 {
        const PORT: Id = id("port");
        self.number(PORT) as u16
    }

    /// 0: there is none.
    pub fn tls_port(&self) -> u16 {
        const TLS_PORT: Id = id("tls-port");
        self.number(TLS_PORT) as u16
    }

    /// Returns the port for places that show only one: that of TCP, or that of TLS if there is no other.
    pub fn shown_port(&self) -> u16 {
        if self.port() != 0 { self.port() } else { self.tls_port() }
    }

    pub fn has_dh_params(&self) -> bool {
        const DH_PARAMS: Id = id("tls-dh-params-file");
        !self.text(DH_PARAMS).is_empty()
    }

    /// Returns the addresses to listen on. An address that begins with "-" may be missing without an error.
    pub fn bind(&self) -> Vec<String> {
        const BIND: Id = id("bind");
        self.words(BIND)
    }

    pub fn unix_socket(&self) -> Option<PathBuf> {
        const UNIX_SOCKET: Id = id("unixsocket");
        self.path(UNIX_SOCKET)
    }

    /// 0 leaves the permissions as they are.
    /// The group that its file is to belong to, if that is not the usual one.
    pub fn unix_socket_group(&self) -> Option<String> {
        const UNIX_SOCKET_GROUP: Id = id("unixsocketgroup");
        let name = self.text(UNIX_SOCKET_GROUP);
        (!name.is_empty()).then(|| String::from_utf8_lossy(&name).into_owned())
    }

    pub fn unix_socket_mode(&self) -> u32 {
        const UNIX_SOCKET_PERM: Id = id("unixsocketperm");
        self.number(UNIX_SOCKET_PERM) as u32
    }

    pub fn tcp_backlog(&self) -> i32 {
        const TCP_BACKLOG: Id = id("tcp-backlog");
        self.number(TCP_BACKLOG) as i32
    }

    pub fn workers(&self) -> usize {
        const IO_THREADS: Id = id("io-threads");
        self.number(IO_THREADS) as usize
    }

    /// A member of a cluster, which is decided at start.
    pub fn is_clustered(&self) -> bool {
        const ENABLED: Id = id("cluster-enabled");
        self.flag(ENABLED)
    }

    /// Returns the name of the mode in HELLO, INFO and the log.
    pub fn mode(&self) -> &'static str {
        if self.is_clustered() { "cluster" } else { "standalone" }
    }

    pub fn databases(&self) -> u16 {
        const DATABASES: [Id; 2] = [id("databases"), id("cluster-databases")];
        self.number(DATABASES[usize::from(self.is_clustered())]) as u16
    }

    pub fn returns_freed_pages(&self) -> bool {
        const BG_THREAD: Id = id("jemalloc-bg-thread");
        self.flag(BG_THREAD)
    }

    pub fn logs_allocator_stats(&self) -> bool {
        const STATS_AT_EXIT: Id = id("allocator-stats-at-exit");
        self.flag(STATS_AT_EXIT)
    }

    pub fn daemonize(&self) -> bool {
        const DAEMONIZE: Id = id("daemonize");
        self.flag(DAEMONIZE)
    }

    pub fn always_show_logo(&self) -> bool {
        const ALWAYS_SHOW_LOGO: Id = id("always-show-logo");
        self.flag(ALWAYS_SHOW_LOGO)
    }

    /// Returns the path of the file with the process id, if there is to be one. A process in the background
    /// always writes one.
    pub fn pid_file(&self) -> Option<PathBuf> {
        const PID_FILE: Id = id("pidfile");
        self.path(PID_FILE).or_else(|| self.daemonize().then(|| PID_FILE_DEFAULT.into()))
    }

    /// Returns the path of the log file; `None` for standard output.
    pub fn log_file(&self) -> Option<PathBuf> {
        const LOG_FILE: Id = id("logfile");
        self.path(LOG_FILE)
    }

    // ---- RDB files ----

    /// An absolute path.
    pub fn folder(&self) -> PathBuf {
        const DIR: Id = id("dir");
        self.path(DIR).unwrap_or_default()
    }

    pub fn db_filename(&self) -> PathBuf {
        const DB_FILENAME: Id = id("dbfilename");
        self.path(DB_FILENAME).expect("an empty name is refused")
    }

    /// Pairs of seconds and changes: a file is written after these seconds if at least as many changes were
    /// made. Empty for never.
    pub fn save_points(&self) -> Vec<(i64, i64)> {
        const SAVE: Id = id("save");
        special::save_points(&self.text(SAVE))
    }

    pub fn compresses_rdb_files(&self) -> bool {
        const RDB_COMPRESSION: Id = id("rdbcompression");
        self.flag(RDB_COMPRESSION)
    }

    pub fn sums_rdb_files(&self) -> bool {
        const RDB_CHECKSUM: Id = id("rdbchecksum");
        self.flag(RDB_CHECKSUM)
    }

    /// Returns whether RDB files of unknown versions are refused.
    pub fn checks_rdb_version(&self) -> bool {
        const RDB_VERSION_CHECK: Id = id("rdb-version-check");
        self.number(RDB_VERSION_CHECK) == 0
    }

    pub fn syncs_while_saving(&self) -> bool {
        const INCREMENTAL_FSYNC: Id = id("rdb-save-incremental-fsync");
        self.flag(INCREMENTAL_FSYNC)
    }

    pub fn stops_writes_on_save_error(&self) -> bool {
        const STOP_WRITES: Id = id("stop-writes-on-bgsave-error");
        self.flag(STOP_WRITES)
    }

    pub fn save_delay_us(&self) -> i64 {
        const KEY_SAVE_DELAY: Id = id("rdb-key-save-delay");
        self.number(KEY_SAVE_DELAY)
    }

    pub fn load_delay_us(&self) -> i64 {
        const KEY_LOAD_DELAY: Id = id("key-load-delay");
        self.number(KEY_LOAD_DELAY)
    }

    // ---- connections ----

    pub fn protected_mode(&self) -> bool {
        const PROTECTED_MODE: Id = id("protected-mode");
        self.flag(PROTECTED_MODE)
    }

    /// Empty for none.
    pub fn password(&self) -> Arc<[u8]> {
        const REQUIRE_PASS: Id = id("requirepass");
        self.text(REQUIRE_PASS)
    }

    pub fn max_clients(&self) -> u64 {
        const MAX_CLIENTS: Id = id("maxclients");
        self.number(MAX_CLIENTS) as u64
    }

    /// 0 for never.
    pub fn idle_timeout_seconds(&self) -> u64 {
        const TIMEOUT: Id = id("timeout");
        self.number(TIMEOUT) as u64
    }

    /// 0 for never.
    pub fn tcp_keepalive_seconds(&self) -> u32 {
        const TCP_KEEPALIVE: Id = id("tcp-keepalive");
        self.number(TCP_KEEPALIVE) as u32
    }

    /// Up to where collections have their compact encodings.
    pub fn collection_limits(&self) -> isotherm_keyspace::Limits {
        let size = |id: Id| usize::try_from(self.number(id)).unwrap_or(usize::MAX);
        isotherm_keyspace::Limits {
            hash_max_listpack_entries: size(const { id("hash-max-listpack-entries") }),
            hash_max_listpack_value: size(const { id("hash-max-listpack-value") }),
            set_max_intset_entries: size(const { id("set-max-intset-entries") }),
            set_max_listpack_entries: size(const { id("set-max-listpack-entries") }),
            set_max_listpack_value: size(const { id("set-max-listpack-value") }),
            zset_max_listpack_entries: size(const { id("zset-max-listpack-entries") }),
            zset_max_listpack_value: size(const { id("zset-max-listpack-value") }),
            list_max_listpack_size: self.number(const { id("list-max-listpack-size") }) as i32,
            stream_node_max_bytes: size(const { id("stream-node-max-bytes") }),
            stream_node_max_entries: size(const { id("stream-node-max-entries") }),
        }
    }

    pub fn bulk_bytes_max(&self) -> usize {
        const PROTO_MAX_BULK_LEN: Id = id("proto-max-bulk-len");
        self.number(PROTO_MAX_BULK_LEN) as usize
    }

    pub fn query_buffer_bytes_max(&self) -> usize {
        const CLIENT_QUERY_BUFFER_LIMIT: Id = id("client-query-buffer-limit");
        self.number(CLIENT_QUERY_BUFFER_LIMIT) as usize
    }

    /// Returns the limits of unread replies for the classes normal, replica and pubsub.
    pub fn output_limits(&self) -> [OutputLimit; 3] {
        const CLIENT_OUTPUT_BUFFER_LIMIT: Id = id("client-output-buffer-limit");
        special::output_limits(&self.text(CLIENT_OUTPUT_BUFFER_LIMIT))
    }

    pub fn availability_zone(&self) -> Arc<[u8]> {
        const AVAILABILITY_ZONE: Id = id("availability-zone");
        self.text(AVAILABILITY_ZONE)
    }

    /// Returns the settings by which prefixes of keys are counted; `None` if they are not counted.
    pub fn prefix_settings(&self) -> Option<PrefixSettings> {
        const SEPARATOR: Id = id("memory-prefix-separator");
        const PINNED: Id = id("memory-pinned-prefixes");
        let separator = *self.text(SEPARATOR).first()?;
        let pinned = check::words(&self.text(PINNED)).map(Box::from).collect();
        Some(PrefixSettings { separator, pinned })
    }

    pub fn extended_redis_compatibility(&self) -> bool {
        const EXTENDED_REDIS_COMPATIBILITY: Id = id("extended-redis-compatibility");
        self.flag(EXTENDED_REDIS_COMPATIBILITY)
    }

    pub fn debug_permission(&self) -> Permission {
        const ENABLE_DEBUG_COMMAND: Id = id("enable-debug-command");
        self.permission(ENABLE_DEBUG_COMMAND)
    }

    pub fn module_permission(&self) -> Permission {
        const ENABLE_MODULE_COMMAND: Id = id("enable-module-command");
        self.permission(ENABLE_MODULE_COMMAND)
    }

    pub fn protected_permission(&self) -> Permission {
        const ENABLE_PROTECTED_CONFIGS: Id = id("enable-protected-configs");
        self.permission(ENABLE_PROTECTED_CONFIGS)
    }

    // ---- watching ----

    #[inline]
    pub fn tracks_latency(&self) -> bool {
        const LATENCY_TRACKING: Id = id("latency-tracking");
        self.flag(LATENCY_TRACKING)
    }

    /// Shown by INFO latencystats, in percent.
    pub fn latency_percentiles(&self) -> Vec<String> {
        const PERCENTILES: Id = id("latency-tracking-info-percentiles");
        self.words(PERCENTILES)
    }

    /// Returns the shortest time, in milliseconds, that makes an action an event of LATENCY; `None` if there
    /// are no events.
    pub fn latency_threshold_ms(&self) -> Option<u64> {
        const THRESHOLD: Id = id("latency-monitor-threshold");
        u64::try_from(self.number(THRESHOLD)).ok().filter(|ms| *ms > 0)
    }

    // ---- memory ----

    /// 0 for no limit.
    #[inline]
    pub fn maxmemory_bytes(&self) -> u64 {
        const MAXMEMORY: Id = id("maxmemory");
        self.number(MAXMEMORY) as u64
    }

    /// Returns the limit for the memory of all connections together; `None` for no limit. It is given in
    /// bytes, or in percent of `maxmemory`.
    pub fn client_memory_bytes_max(&self) -> Option<u64> {
        const MAXMEMORY_CLIENTS: Id = id("maxmemory-clients");
        let bytes = match self.number(MAXMEMORY_CLIENTS) {
            0 => None,
            bytes @ 1.. => Some(bytes as u64),
            percent => match self.maxmemory_bytes() {
                0 => None,
                maxmemory => Some((u128::from(maxmemory) * u128::from(percent.unsigned_abs()) / 100) as u64),
            },
        };
        bytes.map(|bytes| bytes.max(CLIENT_MEMORY_BYTES_MIN))
    }

    /// Returns whether the log omits data of users, such as names of keys, and the words of clients about
    /// themselves.
    pub fn hides_user_data(&self) -> bool {
        const HIDE_USER_DATA_FROM_LOG: Id = id("hide-user-data-from-log");
        self.flag(HIDE_USER_DATA_FROM_LOG)
    }

    #[inline]
    pub fn eviction_policy(&self) -> Option<EvictionPolicy> {
        EVICTION_POLICIES[self.number(MAXMEMORY_POLICY_ID) as usize]
    }

    pub fn eviction_policy_name(&self) -> &'static str {
        value::word(MAXMEMORY_POLICY, self.number(MAXMEMORY_POLICY_ID))
    }

    pub fn evicts_by_lfu(&self) -> bool {
        self.eviction_policy().is_some_and(EvictionPolicy::is_lfu)
    }

    /// 0..=100; 100 for without end.
    pub fn eviction_tenacity(&self) -> u32 {
        const MAXMEMORY_EVICTION_TENACITY: Id = id("maxmemory-eviction-tenacity");
        self.number(MAXMEMORY_EVICTION_TENACITY) as u32
    }

    pub fn lfu_log_factor(&self) -> u32 {
        const LFU_LOG_FACTOR: Id = id("lfu-log-factor");
        self.number(LFU_LOG_FACTOR) as u32
    }

    pub fn lfu_decay_minutes(&self) -> u32 {
        const LFU_DECAY_TIME: Id = id("lfu-decay-time");
        self.number(LFU_DECAY_TIME) as u32
    }

    /// 1..=99, of one CPU.
    pub fn compaction_cpu_percent(&self) -> u32 {
        const COMPACTION_CPU_PERCENT: Id = id("compaction-cpu-percent");
        self.number(COMPACTION_CPU_PERCENT) as u32
    }

    /// Returns the length of one turn of compaction.
    pub fn compaction_turn(&self) -> Duration {
        const CYCLE_US: Id = id("active-defrag-cycle-us");
        Duration::from_micros(self.number(CYCLE_US) as u64)
    }

    /// Returns the parameters of active defragmentation; `None` unless `activedefrag` is on.
    pub fn defrag(&self) -> Option<Defrag> {
        let number = |id: Id| self.number(id) as u32;
        self.flag(const { id("activedefrag") }).then(|| Defrag {
            cycle_min: number(const { id("active-defrag-cycle-min") }),
            cycle_max: number(const { id("active-defrag-cycle-max") }),
            threshold_lower: number(const { id("active-defrag-threshold-lower") }),
            threshold_upper: number(const { id("active-defrag-threshold-upper") }),
            ignore_bytes: self.number(const { id("active-defrag-ignore-bytes") }) as u64,
        })
    }

    // ---- time ----

    pub fn hz(&self) -> u32 {
        const HZ: Id = id("hz");
        self.number(HZ) as u32
    }

    /// 1..=10.
    pub fn active_expire_effort(&self) -> u32 {
        const ACTIVE_EXPIRE_EFFORT: Id = id("active-expire-effort");
        self.number(ACTIVE_EXPIRE_EFFORT) as u32
    }

    #[inline]
    pub fn import_mode(&self) -> bool {
        const IMPORT_MODE: Id = id("import-mode");
        self.flag(IMPORT_MODE)
    }

    #[inline]
    pub fn log_level(&self) -> Level {
        const LOG_LEVEL: Id = id("loglevel");
        match self.number(LOG_LEVEL) {
            0 => Level::Debug,
            1 => Level::Verbose,
            2 => Level::Notice,
            3 => Level::Warning,
            _ => Level::Nothing,
        }
    }

    pub fn log_format(&self) -> (Format, Timestamp) {
        let format = match self.number(const { id("log-format") }) {
            0 => Format::Legacy,
            1 => Format::Logfmt,
            _ => Format::Json,
        };
        let timestamp = match self.number(const { id("log-timestamp-format") }) {
            0 => Timestamp::Legacy,
            1 => Timestamp::Iso8601,
            _ => Timestamp::Milliseconds,
        };
        (format, timestamp)
    }

    /// Returns the address and the port at which metrics are served; `None` if they are not served.
    pub fn metrics_address(&self) -> Option<(String, u16)> {
        let address = String::from_utf8_lossy(&self.text(const { id("metrics-bind") })).into_owned();
        let port = self.number(const { id("metrics-port") }) as u16;
        (port != 0).then_some((address, port))
    }

    // ---- supervision ----

    /// systemd is notified about this process, if it asks.
    pub fn supervised_by_systemd(&self) -> bool {
        const SUPERVISED: Id = id("supervised");
        matches!(value::word(SUPERVISED_MODE, self.number(SUPERVISED)), "systemd" | "auto")
    }

    /// Returns whether the process must be supervised by systemd.
    pub fn demands_systemd(&self) -> bool {
        const SUPERVISED: Id = id("supervised");
        value::word(SUPERVISED_MODE, self.number(SUPERVISED)) == "systemd"
    }

    // ---- helpers ----

    fn permission(&self, id: Id) -> Permission {
        match self.number(id) {
            0 => Permission::No,
            1 => Permission::Yes,
            _ => Permission::Local,
        }
    }

    fn words(&self, id: Id) -> Vec<String> {
        let text = self.text(id);
        let words = text.split(|&byte| byte == b' ').filter(|word| !word.is_empty());
        words.map(|word| String::from_utf8_lossy(word).into_owned()).collect()
    }

    pub fn path(&self, id: Id) -> Option<PathBuf> {
        use std::os::unix::ffi::OsStringExt;
        let text = self.text(id);
        (!text.is_empty()).then(|| std::ffi::OsString::from_vec(text.to_vec()).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ramp_is_valkeys() {
        let defrag = Defrag {
            cycle_min: 1,
            cycle_max: 25,
            threshold_lower: 10,
            threshold_upper: 100,
            ignore_bytes: 100 << 20,
        };
        let check = |live_mb: u64, free_mb: u64, expected: u32| {
            assert_eq!(defrag.percent_of(live_mb << 20, free_mb << 20), expected, "{free_mb} of {live_mb}");
        };
        check(1000, 99, 0);
        check(100, 99, 0);
        check(1000, 100, 1);
        check(1000, 550, 13);
        check(1000, 1000, 25);
        check(1000, 9000, 25);
        check(0, 0, 0);
        let step = Defrag { threshold_upper: 10, ..defrag };
        assert_eq!(step.percent_of(1000 << 20, 100 << 20), 25);
        let backwards = Defrag { cycle_min: 50, cycle_max: 20, ..defrag };
        assert_eq!(backwards.percent_of(1000 << 20, 1000 << 20), 20);
    }

    #[test]
    fn policies_have_the_numbers_of_their_words() {
        for (at, policy) in EVICTION_POLICIES.into_iter().enumerate() {
            let (word, number) = MAXMEMORY_POLICY[at];
            assert_eq!(number, at as i64);
            let spelled = policy.map_or("noeviction".to_string(), |policy| format!("{policy:?}"));
            assert_eq!(spelled.to_lowercase(), word.replace('-', ""));
        }
    }

    #[test]
    fn the_limit_of_client_memory_may_be_a_share() {
        let limit = |pairs: &[(&[u8], &[u8])]| {
            let config = Config::default();
            config
                .set(&config.begin_writing(Duration::ZERO).unwrap(), pairs, false, &mut |_| Ok(()))
                .unwrap();
            config.client_memory_bytes_max()
        };
        assert_eq!(limit(&[]), None);
        assert_eq!(limit(&[(b"maxmemory-clients", b"3mb")]), Some(3 << 20));
        assert_eq!(limit(&[(b"maxmemory-clients", b"5%")]), None);
        assert_eq!(limit(&[(b"maxmemory-clients", b"5%"), (b"maxmemory", b"100mb")]), Some(5 << 20));
        assert_eq!(limit(&[(b"maxmemory-clients", b"5%"), (b"maxmemory", b"1000")]), Some(128 << 10));
    }

    #[test]
    fn defaults_that_others_rely_on() {
        let config = Config::default();
        assert_eq!(config.port(), 6379);
        assert_eq!(config.bind(), ["*", "-::*"]);
        assert_eq!(config.databases(), 16);
        assert_eq!(config.eviction_policy(), None);
        assert_eq!(config.bulk_bytes_max(), 512 << 20);
        assert_eq!(config.output_limits()[1].soft_seconds, 60);
        assert_eq!(config.unix_socket(), None);
        assert!(config.protected_mode() && config.password().is_empty());
        assert_eq!(config.log_level(), Level::Notice);
    }
}
