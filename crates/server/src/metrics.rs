//! An HTTP port for Prometheus: `/metrics` in its text format, and `/healthz`. Opt-in, on the loopback by default.
//!
//! The names are those of redis_exporter, so its dashboards and alerts work without it. What is told is what INFO tells: each
//! metric names the field it comes from, and fields of our own (`isotherm_...`) follow under their own names.
//!
//! ```text
//! GET /metrics  ->  # TYPE redis_memory_used_bytes gauge
//!                   redis_memory_used_bytes 1048576
//!                   redis_commands_total{cmd="get"} 42
//! ```
//! One thread answers one request after the other, each within seconds: Prometheus asks a few times a minute.

use isotherm_keyspace::{Conditions, ExpiryMode, Held, NoEffects, Txn, Want};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use crate::command_log::Kind;
use crate::info::{self, Snapshot};
use crate::listeners::os_text;
use crate::log;
use crate::node::{Node, unix_now};

/// A request may take so long to arrive, and so may its answer to leave.
const PATIENCE: Duration = Duration::from_secs(2);
const REQUEST_BYTES_MAX: usize = 8 << 10;

/// Listens and answers in a thread of its own, if a port is configured.
pub fn start(node: &'static Node) -> Result<(), String> {
    let Some((address, port)) = node.config.metrics_address() else { return Ok(()) };
    let failed = |error: io::Error| format!("Failed listening on port {port} (metrics): {}", os_text(&error));
    let listener = TcpListener::bind((address.as_str(), port)).map_err(failed)?;
    let serve = move || {
        // A peer that is gone before it is answered asks again.
        listener.incoming().flatten().for_each(|stream| drop(answer(node, stream)));
    };
    std::thread::Builder::new().name("metrics".into()).spawn(serve).map_err(failed)?;
    log::notice(format!("Metrics are served on http://{address}:{port}/metrics"));
    Ok(())
}

fn answer(node: &Node, mut stream: TcpStream) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let request = read_head(&mut stream)?;
    let (status, kind, body) = match path_of(&request) {
        Some("/metrics") => ("200 OK", "text/plain; version=0.0.4; charset=utf-8", page(node)),
        Some("/healthz") => ("200 OK", "text/plain", "ok\n".to_owned()),
        Some(_) => ("404 Not Found", "text/plain", "not found\n".to_owned()),
        None => ("400 Bad Request", "text/plain", "bad request\n".to_owned()),
    };
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(body.as_bytes())
}

/// Up to the empty line, or as much as there may be.
fn read_head(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut head = Vec::new();
    let mut bytes = [0; 1024];
    while head.len() < REQUEST_BYTES_MAX && !head.windows(4).any(|end| end == b"\r\n\r\n") {
        match stream.read(&mut bytes)? {
            0 => break,
            count => head.extend_from_slice(&bytes[..count]),
        }
    }
    Ok(head)
}

/// What a GET asks for, without its query.
fn path_of(request: &[u8]) -> Option<&str> {
    let line = request.split(|&byte| byte == b'\r').next()?;
    let mut words = std::str::from_utf8(line).ok()?.split(' ');
    let (method, path, version) = (words.next()?, words.next()?, words.next()?);
    (method == "GET" && version.starts_with("HTTP/1.")).then(|| path.split('?').next().unwrap_or(path))
}

// ---- the page ----

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Type {
    Gauge,
    Counter,
}

/// Fields of INFO, and the metrics they are.
const METRICS: &[(&str, &str, Type)] = {
    use Type::{Counter, Gauge};
    &[
        ("uptime_in_seconds", "uptime_in_seconds", Gauge),
        ("process_id", "process_id", Gauge),
        ("io_threads_active", "io_threads_active", Gauge),
        ("connected_clients", "connected_clients", Gauge),
        ("blocked_clients", "blocked_clients", Gauge),
        ("tracking_clients", "tracking_clients", Gauge),
        ("clients_in_timeout_table", "clients_in_timeout_table", Gauge),
        ("pubsub_clients", "pubsub_clients", Gauge),
        ("watching_clients", "watching_clients", Gauge),
        ("maxclients", "max_clients", Gauge),
        ("maxclients", "config_maxclients", Gauge),
        ("client_recent_max_output_buffer", "client_recent_max_output_buffer_bytes", Gauge),
        ("client_recent_max_input_buffer", "client_recent_max_input_buffer_bytes", Gauge),
        ("allocator_active", "allocator_active_bytes", Gauge),
        ("allocator_allocated", "allocator_allocated_bytes", Gauge),
        ("allocator_resident", "allocator_resident_bytes", Gauge),
        ("allocator_frag_ratio", "allocator_frag_ratio", Gauge),
        ("allocator_frag_bytes", "allocator_frag_bytes", Gauge),
        ("allocator_rss_ratio", "allocator_rss_ratio", Gauge),
        ("allocator_rss_bytes", "allocator_rss_bytes", Gauge),
        ("used_memory", "memory_used_bytes", Gauge),
        ("used_memory_rss", "memory_used_rss_bytes", Gauge),
        ("used_memory_peak", "memory_used_peak_bytes", Gauge),
        ("used_memory_lua", "memory_used_lua_bytes", Gauge),
        ("used_memory_overhead", "memory_used_overhead_bytes", Gauge),
        ("used_memory_startup", "memory_used_startup_bytes", Gauge),
        ("used_memory_dataset", "memory_used_dataset_bytes", Gauge),
        ("used_memory_scripts", "memory_used_scripts_bytes", Gauge),
        ("maxmemory", "memory_max_bytes", Gauge),
        ("maxmemory", "config_maxmemory", Gauge),
        ("total_system_memory", "total_system_memory_bytes", Gauge),
        ("mem_fragmentation_ratio", "mem_fragmentation_ratio", Gauge),
        ("mem_fragmentation_bytes", "mem_fragmentation_bytes", Gauge),
        ("mem_clients_slaves", "mem_clients_slaves", Gauge),
        ("mem_clients_normal", "mem_clients_normal", Gauge),
        ("expired_stale_perc", "expired_stale_percentage", Gauge),
        ("mem_not_counted_for_evict", "mem_not_counted_for_eviction_bytes", Gauge),
        ("lazyfree_pending_objects", "lazyfree_pending_objects", Gauge),
        ("active_defrag_running", "active_defrag_running", Gauge),
        ("migrate_cached_sockets", "migrate_cached_sockets_total", Gauge),
        ("active_defrag_hits", "defrag_hits", Gauge),
        ("active_defrag_misses", "defrag_misses", Gauge),
        ("active_defrag_key_hits", "defrag_key_hits", Gauge),
        ("active_defrag_key_misses", "defrag_key_misses", Gauge),
        ("expired_time_cap_reached_count", "expired_time_cap_reached_total", Gauge),
        ("loading", "loading_dump_file", Gauge),
        ("rdb_changes_since_last_save", "rdb_changes_since_last_save", Gauge),
        ("rdb_bgsave_in_progress", "rdb_bgsave_in_progress", Gauge),
        ("rdb_last_save_time", "rdb_last_save_timestamp_seconds", Gauge),
        ("rdb_last_bgsave_status", "rdb_last_bgsave_status", Gauge),
        ("rdb_last_bgsave_time_sec", "rdb_last_bgsave_duration_sec", Gauge),
        ("rdb_current_bgsave_time_sec", "rdb_current_bgsave_duration_sec", Gauge),
        ("rdb_last_cow_size", "rdb_last_cow_size_bytes", Gauge),
        ("aof_enabled", "aof_enabled", Gauge),
        ("aof_rewrite_in_progress", "aof_rewrite_in_progress", Gauge),
        ("aof_rewrite_scheduled", "aof_rewrite_scheduled", Gauge),
        ("aof_last_rewrite_time_sec", "aof_last_rewrite_duration_sec", Gauge),
        ("aof_current_rewrite_time_sec", "aof_current_rewrite_duration_sec", Gauge),
        ("aof_last_cow_size", "aof_last_cow_size_bytes", Gauge),
        ("aof_last_bgrewrite_status", "aof_last_bgrewrite_status", Gauge),
        ("aof_last_write_status", "aof_last_write_status", Gauge),
        ("module_fork_in_progress", "module_fork_in_progress", Gauge),
        ("module_fork_last_cow_size", "module_fork_last_cow_size", Gauge),
        ("pubsub_channels", "pubsub_channels", Gauge),
        ("pubsub_patterns", "pubsub_patterns", Gauge),
        ("latest_fork_usec", "latest_fork_usec", Gauge),
        ("connected_slaves", "connected_slaves", Gauge),
        ("repl_backlog_size", "replication_backlog_bytes", Gauge),
        ("repl_backlog_active", "repl_backlog_is_active", Gauge),
        ("repl_backlog_first_byte_offset", "repl_backlog_first_byte_offset", Gauge),
        ("repl_backlog_histlen", "repl_backlog_history_bytes", Gauge),
        ("master_repl_offset", "master_repl_offset", Gauge),
        ("second_repl_offset", "second_repl_offset", Gauge),
        ("slave_expires_tracked_keys", "slave_expires_tracked_keys", Gauge),
        ("sync_full", "replica_resyncs_full", Gauge),
        ("sync_partial_ok", "replica_partial_resync_accepted", Gauge),
        ("sync_partial_err", "replica_partial_resync_denied", Gauge),
        ("cluster_enabled", "cluster_enabled", Gauge),
        ("total_connections_received", "connections_received_total", Counter),
        ("total_commands_processed", "commands_processed_total", Counter),
        ("rejected_connections", "rejected_connections_total", Counter),
        ("total_net_input_bytes", "net_input_bytes_total", Counter),
        ("total_net_output_bytes", "net_output_bytes_total", Counter),
        ("expired_keys", "expired_keys_total", Counter),
        ("evicted_keys", "evicted_keys_total", Counter),
        ("evicted_clients", "evicted_clients_total", Counter),
        ("keyspace_hits", "keyspace_hits_total", Counter),
        ("keyspace_misses", "keyspace_misses_total", Counter),
        ("total_error_replies", "total_error_replies", Counter),
        ("total_reads_processed", "total_reads_processed", Counter),
        ("total_writes_processed", "total_writes_processed", Counter),
        ("acl_access_denied_auth", "acl_access_denied_auth_total", Counter),
        ("used_cpu_sys", "cpu_sys_seconds_total", Counter),
        ("used_cpu_user", "cpu_user_seconds_total", Counter),
        ("used_cpu_sys_children", "cpu_sys_children_seconds_total", Counter),
        ("used_cpu_user_children", "cpu_user_children_seconds_total", Counter),
        ("used_cpu_sys_main_thread", "cpu_sys_main_thread_seconds_total", Counter),
        ("used_cpu_user_main_thread", "cpu_user_main_thread_seconds_total", Counter),
    ]
};

fn page(node: &Node) -> String {
    let now = unix_now();
    let mut snapshot = Snapshot::new(node, now);
    let conditions = Conditions { now, expiry_mode: ExpiryMode::Keep, no_touch: true };
    let mut held = Held::new(&node.keyspace);
    held.acquire(Want::All);
    let mut nobody = NoEffects;
    snapshot.databases = info::database_sizes(node, &mut Txn::new(&mut held, conditions, &mut nobody));
    held.release();
    let text = info::text(&snapshot, &[b"everything"]);
    let fields: BTreeMap<&str, &str> = text.lines().filter_map(|line| line.split_once(':')).collect();
    let mut page = Page::default();
    page.add("up", Type::Gauge, "", "1");
    for (field, name, kind) in METRICS {
        if let Some(value) = fields.get(field) {
            page.add(name, *kind, "", value);
        }
    }
    add_labelled(&mut page, &fields);
    add_logs(&mut page, node);
    page.add("start_time_seconds", Type::Gauge, "", &(node.started.0 / 1000).to_string());
    for (name, value) in
        fields.iter().filter(|(name, _)| name.starts_with("isotherm_") && name.ends_with("_bytes"))
    {
        page.add_own(name, value);
    }
    page.0
}

/// Metrics with labels: of commands, errors and databases, and what kind of instance this is.
fn add_labelled(page: &mut Page, fields: &BTreeMap<&str, &str>) {
    type Part = (&'static str, &'static str, Type, f64);
    const OF_COMMANDS: [Part; 4] = [
        ("commands_total", "calls", Type::Counter, 1.0),
        ("commands_duration_seconds_total", "usec", Type::Counter, 1e6),
        ("commands_rejected_calls_total", "rejected_calls", Type::Counter, 1.0),
        ("commands_failed_calls_total", "failed_calls", Type::Counter, 1.0),
    ];
    const OF_DATABASES: [Part; 3] = [
        ("db_keys", "keys", Type::Gauge, 1.0),
        ("db_keys_expiring", "expires", Type::Gauge, 1.0),
        ("db_avg_ttl_seconds", "avg_ttl", Type::Gauge, 1000.0),
    ];
    let mut add = |label: &str, prefix: &str, (metric, part, kind, divisor): Part, kept: &str| {
        for (name, value) in
            fields.iter().filter_map(|(name, value)| Some((name.strip_prefix(prefix)?, value)))
        {
            let number = value.split(',').find_map(|pair| pair.strip_prefix(part)?.strip_prefix('='));
            if let Some(number) = number.and_then(|number| number.parse::<f64>().ok()) {
                page.add(
                    metric,
                    kind,
                    &format!("{label}=\"{kept}{}\"", escaped(name)),
                    &(number / divisor).to_string(),
                );
            }
        }
    };
    OF_COMMANDS.into_iter().for_each(|part| add("cmd", "cmdstat_", part, ""));
    add("err", "errorstat_", ("errors_total", "count", Type::Counter, 1.0), "");
    OF_DATABASES.into_iter().for_each(|part| add("db", "db", part, "db"));
    let labels = [
        ("role", "role"),
        ("redis_version", "redis_version"),
        ("redis_build_id", "redis_git_sha1"),
        ("redis_mode", "server_mode"),
        ("os", "os"),
        ("maxmemory_policy", "maxmemory_policy"),
        ("tcp_port", "tcp_port"),
        ("run_id", "run_id"),
        ("process_id", "process_id"),
    ];
    let labels = labels.map(|(label, field)| {
        format!("{label}=\"{}\"", escaped(fields.get(field).copied().unwrap_or_default()))
    });
    page.add("instance_info", Type::Gauge, &labels.join(","), "1");
}

fn add_logs(page: &mut Page, node: &Node) {
    let length = node.command_log.len(&node.config, Kind::Slow);
    page.add("slowlog_length", Type::Gauge, "", &length.to_string());
    if let Some(last) = node.command_log.newest(&node.config, Kind::Slow, 1).first() {
        page.add("slowlog_last_id", Type::Gauge, "", &last.id.to_string());
        let seconds = last.value as f64 / 1e6;
        page.add("last_slow_execution_duration_seconds", Type::Gauge, "", &seconds.to_string());
    }
    let all = node.latency.all();
    let last = |(name, series): &(&'static str, crate::latency::monitor::Series)| {
        let last = *series.samples.last().expect("a series begins with its first sample");
        (format!("event_name=\"{name}\""), last)
    };
    let last: Vec<_> = all.iter().map(last).collect();
    for (label, sample) in &last {
        page.add("latency_spike_last", Type::Gauge, label, &sample.unix_seconds.to_string());
    }
    for (label, sample) in &last {
        let seconds = sample.latency_ms as f64 / 1000.0;
        page.add("latency_spike_duration_seconds", Type::Gauge, label, &seconds.to_string());
    }
}

/// In the value of a label.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[derive(Default)]
struct Page(String);

impl Page {
    /// One value; what is no number is a status, which is fine or not. Values of one metric follow each other.
    fn add(&mut self, name: &str, kind: Type, labels: &str, value: &str) {
        let value = match value.parse::<f64>() {
            Ok(_) => value,
            Err(_) if value == "ok" => "1",
            Err(_) => "0",
        };
        self.head(&format!("redis_{name}"), kind);
        match labels {
            "" => writeln!(self.0, "redis_{name} {value}"),
            labels => writeln!(self.0, "redis_{name}{{{labels}}} {value}"),
        }
        .expect("a String takes anything");
    }

    /// A figure that only we have.
    fn add_own(&mut self, name: &str, value: &str) {
        self.head(name, Type::Gauge);
        writeln!(self.0, "{name} {value}").expect("a String takes anything");
    }

    fn head(&mut self, name: &str, kind: Type) {
        let kind = match kind {
            Type::Gauge => "gauge",
            Type::Counter => "counter",
        };
        let head = format!("# TYPE {name} {kind}\n");
        if !self.0.contains(&head) {
            self.0.push_str(&head);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests() {
        let check = |request: &str, expected: Option<&str>| assert_eq!(path_of(request.as_bytes()), expected);
        check("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", Some("/metrics"));
        check("GET /metrics?x=1 HTTP/1.0\r\n\r\n", Some("/metrics"));
        check("POST /metrics HTTP/1.1\r\n\r\n", None);
        check("GET /metrics\r\n\r\n", None);
        check("", None);
    }

    #[test]
    fn lines() {
        let mut page = Page::default();
        page.add("a", Type::Gauge, "", "1");
        page.add("b_total", Type::Counter, "cmd=\"get\"", "2.5");
        page.add("b_total", Type::Counter, "cmd=\"set\"", "3");
        page.add("s", Type::Gauge, "", "ok");
        let expected = "# TYPE redis_a gauge\nredis_a 1\n# TYPE redis_b_total counter\nredis_b_total{cmd=\"get\"} 2.5\n\
                        redis_b_total{cmd=\"set\"} 3\n# TYPE redis_s gauge\nredis_s 1\n";
        assert_eq!(page.0, expected);
        assert_eq!(escaped("a\"b\\\n"), "a\\\"b\\\\\\n");
    }
}
