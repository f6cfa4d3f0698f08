//! Sections about the process: Server, TLS, Clients, CPU, Scripting Engines.

use super::row::{Lines, Row, Type, Value, counter, family, field, gauge, metric, none};
use super::snapshot::Snapshot;
use crate::process::supervisor;
use crate::process::version_line::{CHANGED, COMMIT};
use isotherm_config::file::VERSION;
use isotherm_node::process::version::{REDIS_VERSION, VALKEY_VERSION};
use isotherm_node::tls;
use isotherm_tls::{Contexts, Facts};
use std::sync::atomic::Ordering::Acquire;

// COMPAT(observability): INFO omits a field rather than report a made-up value: `redis_build_id`,
// `gcc_version`, `io_threaded_freed_objects`, `io_threaded_accept_processed`, `io_threaded_poll_processed`,
// `io_threaded_total_prefetch_*` and `reply_buffer_*` are missing. Why: they count what does not happen here.
pub const SERVER: &[Row] = &[
    field("redis_version", |_| REDIS_VERSION.into()),
    // COMPAT(observability): INFO reports `server_name:isotherm` and adds `isotherm_version`; `redis_version`
    // is 7.2.4, as in Valkey. Why: tools that look for the server find it, and clients that look for the
    // Redis version work unchanged.
    field("server_name", |_| "isotherm".into()),
    field("isotherm_version", |_| VERSION.into()),
    field("valkey_version", |_| VALKEY_VERSION.into()),
    field("valkey_release_stage", |_| "ga".into()),
    field("redis_git_sha1", |_| COMMIT.into()),
    field("redis_git_dirty", |_| CHANGED.into()),
    // Clients that only know Redis look for the field by Redis' name.
    field("server_mode", |s| (!as_redis(s)).then(|| s.node.config.mode()).into()),
    field("redis_mode", |s| as_redis(s).then(|| s.node.config.mode()).into()),
    field("os", |_| {
        let name = rustix::system::uname();
        let parts = [name.sysname(), name.release(), name.machine()];
        parts.map(|part| part.to_string_lossy().into_owned()).join(" ").into()
    }),
    field("arch_bits", |_| usize::BITS.into()),
    field("monotonic_clock", |_| "TSC".into()),
    field("multiplexing_api", |_| "epoll".into()),
    gauge("process_id", "redis_*", |_| std::process::id().into()),
    field("process_supervised", |_| if supervisor::is_there() { "systemd" } else { "no" }.into()),
    field("run_id", |s| s.node.process.run_id.to_string().into()),
    field("tcp_port", |s| s.node.config.shown_port().into()),
    field("server_time_usec", |s| (s.now.0 * 1000).into()),
    gauge("uptime_in_seconds", "redis_*", |s| uptime_seconds(s).into()),
    field("uptime_in_days", |s| (uptime_seconds(s) / 86_400).into()),
    gauge("hz", "redis_*", |s| s.node.config.hz().into()),
    gauge("configured_hz", "redis_*", |s| s.node.config.hz().into()),
    field("clients_hz", |s| s.node.config.hz().into()),
    // Valkey's clock of seconds in 24 bits.
    field("lru_clock", |s| ((s.now.0 / 1000) & 0xff_ffff).into()),
    field("executable", |s| s.node.process.executable.display().to_string().into()),
    field("config_file", |s| {
        let file = s.node.process.config_file.as_ref();
        file.map(|file| file.path.display().to_string()).unwrap_or_default().into()
    }),
    gauge("io_threads_active", "redis_*", |s| (s.node.worker_count() > 1).into()),
    field("availability_zone", |s| {
        String::from_utf8_lossy(&s.node.config.availability_zone()).into_owned().into()
    }),
    field("shutdown_in_milliseconds", |s| s.node.process.ending.left_ms(s.now).into()),
    field("shutdown_refused_seconds", |s| {
        s.node.process.wish.refused_for().map(|since| since.as_secs()).into()
    }),
    family("listener*", listeners, &[]),
];

fn as_redis(s: &Snapshot<'_>) -> bool {
    s.node.config.extended_redis_compatibility()
}

fn uptime_seconds(s: &Snapshot<'_>) -> i64 {
    s.node.process.age_ms(s.now) / 1000
}

fn listeners(s: &Snapshot<'_>) -> Lines {
    let config = &s.node.config;
    let binds: String = config.bind().iter().map(|address| format!("bind={address},")).collect();
    let tcp = (config.port() != 0).then(|| format!("name=tcp,{binds}port={}", config.port()));
    let unix = config.unix_socket().map(|path| format!("name=unix,bind={}", path.display()));
    let tls = (config.tls_port() != 0).then(|| format!("name=tls,{binds}port={}", config.tls_port()));
    let all = [tcp, unix, tls].into_iter().flatten().enumerate();
    all.map(|(at, listener)| (at.to_string(), listener)).collect()
}

pub const TLS: &[Row] = &[
    field("tls_server_cert_serial", |s| tls_serial(s, SERVER_CERT)),
    field("tls_server_cert_expires_in_seconds", |s| tls_left(s, SERVER_CERT)),
    field("tls_client_cert_serial", |s| tls_serial(s, CLIENT_CERT)),
    field("tls_client_cert_expires_in_seconds", |s| tls_left(s, CLIENT_CERT)),
    field("tls_ca_cert_serial", |s| tls_serial(s, CA_CERT)),
    field("tls_ca_cert_expires_in_seconds", |s| tls_left(s, CA_CERT)),
];

type OfContexts = fn(&Contexts) -> Option<&Facts>;

const SERVER_CERT: OfContexts = |contexts| Some(&contexts.server_facts);
const CLIENT_CERT: OfContexts = |contexts| contexts.client_facts.as_ref();
const CA_CERT: OfContexts = |contexts| contexts.authority_facts.as_ref();

fn tls_facts<T>(s: &Snapshot<'_>, of: OfContexts, shown: impl Fn(&Facts) -> T) -> Option<T> {
    let contexts = s.node.tls.contexts().filter(|_| tls::is_used(&s.node.config))?;
    of(&contexts).map(shown)
}

fn tls_serial(s: &Snapshot<'_>, of: OfContexts) -> Value {
    tls_facts(s, of, |facts| facts.serial.clone()).unwrap_or_else(|| "none".into()).into()
}

fn seconds_left(s: &Snapshot<'_>, of: OfContexts) -> Option<i64> {
    tls_facts(s, of, |facts| (facts.not_after_s - s.now.0 / 1000).max(0))
}

fn tls_left(s: &Snapshot<'_>, of: OfContexts) -> Value {
    seconds_left(s, of).unwrap_or_default().into()
}

/// Returns for how many days the certificates in use hold.
pub fn certificate_days(s: &Snapshot<'_>) -> impl Iterator<Item = (&'static str, i64)> {
    let all = [("server", SERVER_CERT), ("client", CLIENT_CERT), ("ca", CA_CERT)];
    all.into_iter().filter_map(|(name, of)| Some((name, seconds_left(s, of)? / 86_400)))
}

pub const CLIENTS: &[Row] = &[
    gauge("connected_clients", "redis_*", |s| {
        let replicas = s.node.replication.primary.replicas().len();
        s.node.clients.count().saturating_sub(replicas).into()
    }),
    field("cluster_connections", |s| s.node.cluster.get().map_or(0, |member| member.bus.links()).into()),
    gauge("maxclients", "redis_max_clients", |s| s.node.config.max_clients().into()),
    gauge("client_recent_max_input_buffer", "redis_*_bytes", |s| s.clients().input_bytes_max.into()),
    gauge("client_recent_max_output_buffer", "redis_*_bytes", |s| s.clients().output_bytes_max.into()),
    gauge("blocked_clients", "redis_*", |s| s.clients().waiting.into()),
    gauge("tracking_clients", "redis_*", |s| s.node.trackers.sessions().into()),
    gauge("pubsub_clients", "redis_*", |s| s.node.pubsub.sessions.load(Acquire).into()),
    gauge("watching_clients", "redis_*", |s| s.clients().watching.into()),
    // COMPAT(observability): `clients_in_timeout_table` is always 0. Why: blocked clients are in no such
    // table.
    gauge("clients_in_timeout_table", "redis_*", none),
    gauge("total_watched_keys", "redis_*", |s| s.clients().watched_keys.into()),
    gauge("total_blocking_keys", "redis_*", |s| s.node.keyspace.waited_keys()[0].into()),
    gauge("total_blocking_keys_on_nokey", "redis_*", |s| s.node.keyspace.waited_keys()[1].into()),
    field("paused_reason", |s| {
        s.node.pause.report(s.now).map_or("none", |(_, cause, _)| cause.name()).into()
    }),
    field("paused_actions", |s| match s.node.pause.report(s.now) {
        None => "none".into(),
        Some((true, ..)) => "all".into(),
        Some((false, ..)) => "write".into(),
    }),
    field("paused_timeout_milliseconds", |s| {
        s.node.pause.report(s.now).map_or(0, |(.., left_ms)| left_ms).into()
    }),
];

pub const CPU: &[Row] = &[
    counter("used_cpu_sys", "redis_cpu_sys_seconds_total", |s| seconds(s.facts.cpu().system)),
    counter("used_cpu_user", "redis_cpu_user_seconds_total", |s| seconds(s.facts.cpu().user)),
    counter("used_cpu_sys_children", "redis_cpu_sys_children_seconds_total", |_| "0.000000".into()),
    counter("used_cpu_user_children", "redis_cpu_user_children_seconds_total", |_| "0.000000".into()),
    counter("used_cpu_sys_main_thread", "redis_cpu_sys_main_thread_seconds_total", |s| {
        seconds(s.facts.control_cpu().system)
    }),
    counter("used_cpu_user_main_thread", "redis_cpu_user_main_thread_seconds_total", |s| {
        seconds(s.facts.control_cpu().user)
    }),
    counter("used_active_time_main_thread", "redis_active_time_main_thread_seconds_total", |s| {
        seconds(s.facts.control_cpu_seconds())
    }),
    // Workers are what Valkey calls I/O threads; the first of its threads is the main thread, ours the
    // control thread.
    // COMPAT(observability): In INFO cpu the *main thread* is the control thread, and the I/O threads are the
    // workers. Why: these threads come closest to Valkey's.
    family(
        "used_active_time_io_thread_*",
        worker_times,
        &[metric(
            "redis_active_time_io_thread_seconds_total",
            Type::Counter,
            "How long a worker was busy.",
            "thread=\"*\"",
        )],
    ),
];

fn seconds(seconds: f64) -> Value {
    format!("{seconds:.6}").into()
}

fn worker_times(s: &Snapshot<'_>) -> Lines {
    let workers = s.node.stats.threads().iter().take(s.node.worker_count()).enumerate();
    let busy_us =
        workers.map(|(at, worker)| (at + 1, s.node.stats.micros(worker.values.eventloop_ticks.get())));
    busy_us.map(|(number, us)| (number.to_string(), format!("{:.6}", us as f64 / 1e6))).collect()
}

pub const SCRIPTING_ENGINES: &[Row] = &[
    field("engines_count", |_| "1".into()),
    field("engines_total_used_memory", |s| s.interpreter_bytes().into()),
    // An engine allocates nothing besides its interpreters.
    field("engines_total_memory_overhead", none),
    field("engine_0", |s| {
        let bytes = s.interpreter_bytes();
        format!("name=LUA,module=lua,abi_version=4,used_memory={bytes},memory_overhead=0").into()
    }),
];
