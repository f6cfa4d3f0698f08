//! The page of `/metrics`: the rows of INFO that are metrics, and what else there is to say.

use isotherm_allocator::ClassUse;
use isotherm_keyspace::{Held, Survey};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::Ordering::Relaxed;

use super::prefixes;
use super::text::{Page, escaped};
use crate::observe::info::row::{Row, Type};
use crate::observe::info::{self, Snapshot};
use isotherm_config::{Id, OUTPUT_CLASSES, PARAMS, id, output_limits};
use isotherm_node::Node;
use isotherm_node::observe::command_log::Kind;
use isotherm_node::observe::facts::Facts;
use isotherm_node::observe::hold_causes::cause_name;
use isotherm_node::observe::holds::HoldTotals;
use isotherm_node::tls;
use isotherm_runtime::time::unix_now;

/// Sections whose rows need what lies in partitions.
const SURVEYED: [&[u8]; 3] = [b"keyspace", b"swap", b"memorymap"];

pub fn page(node: &Node) -> String {
    let mut snapshot = Snapshot::new(node, unix_now(), Facts::default());
    let mut held = Held::new(&node.keyspace);
    info::look_up(&mut snapshot, &SURVEYED, || Survey::new(&mut held));
    let mut page = Page::default();
    page.add("redis_up", "Whether the server answers.", Type::Gauge, "", 1);
    info::rows().for_each(|row| add_row(&mut page, row, &snapshot));
    let started = node.process.started.0 / 1000;
    page.add("redis_start_time_seconds", "When the server was started.", Type::Gauge, "", started);
    add_instance(&mut page, &snapshot);
    add_locks(&mut page, node);
    add_latencies(&mut page, node);
    add_logs(&mut page, node);
    add_parameters(&mut page, node);
    add_classes(&mut page);
    if tls::is_used(&node.config) {
        add_tls(&mut page, &snapshot);
    }
    prefixes::add(&mut page, node);
    page.text
}

fn add_row(page: &mut Page, row: &Row, snapshot: &Snapshot<'_>) {
    let mut metrics = row.metrics().peekable();
    if metrics.peek().is_none() {
        return;
    }
    // Clients choose codes of errors, which are shown with bytes replaced: what looks the same is one series.
    let lines: BTreeMap<String, String> = row.lines(snapshot).into_iter().collect();
    for metric in metrics {
        for (labels, number) in lines.iter().filter_map(|(part, value)| metric.read(part, value, escaped)) {
            page.add(&metric.name(row), &metric.help(row), metric.kind, &labels, number);
        }
    }
}

/// Handshakes of clients, and for how long certificates hold.
fn add_tls(page: &mut Page, snapshot: &Snapshot<'_>) {
    let counts = &snapshot.node.tls.counts;
    let [done, resumed, failed] =
        [&counts.done, &counts.resumed, &counts.failed].map(|count| count.load(Relaxed));
    for (kind, count) in [("full", done.saturating_sub(resumed)), ("resumed", resumed)] {
        let (name, labels) = ("isotherm_tls_handshakes_total", format!("kind=\"{kind}\""));
        page.add(name, "Handshakes of clients that were done.", Type::Counter, &labels, count);
    }
    let help = "Handshakes of clients that have failed.";
    page.add("isotherm_tls_handshakes_failed_total", help, Type::Counter, "", failed);
    let help = "Days until a certificate no longer holds: `tls_*_cert_expires_in_seconds` of INFO.";
    for (of, days) in info::certificate_days(snapshot) {
        page.add("isotherm_tls_certificate_days_left", help, Type::Gauge, &format!("of=\"{of}\""), days);
    }
}

/// Adds what kind of server this is: labels, and the fields that they are.
fn add_instance(page: &mut Page, snapshot: &Snapshot<'_>) {
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
        ("master_replid", "master_replid"),
        ("valkey_version", "valkey_version"),
        ("valkey_release_stage", "valkey_release_stage"),
    ];
    let labels = labels.map(|(label, field)| {
        let row = info::rows().find(|row| row.name == field).expect("it is a field");
        let value = row.lines(snapshot).pop().unwrap_or_default().1;
        format!("{label}=\"{}\"", escaped(&value))
    });
    page.add("redis_instance_info", "What kind of server this is.", Type::Gauge, &labels.join(","), 1);
}

/// Adds the times that locks were held, by cause: INFO locks.
fn add_locks(page: &mut Page, node: &Node) {
    type Part = (&'static str, &'static str, Type, fn(&HoldTotals) -> f64);
    const PARTS: [Part; 3] = [
        ("holds_total", "How often a lock was held.", Type::Counter, |total| total.all.holds as f64),
        ("held_seconds_total", "How long locks were held.", Type::Counter, |total| {
            total.all.usec as f64 / 1e6
        }),
        ("longest_hold_seconds", "The longest hold of a lock in the last second.", Type::Gauge, |total| {
            total.last_second.longest_usec as f64 / 1e6
        }),
    ];
    let totals = node.stats.hold_totals();
    for (part, help, kind, value) in PARTS.iter().filter(|_| !totals.is_empty()) {
        let name = format!("isotherm_lock_{part}");
        for total in &totals {
            let (cause, gate) =
                (escaped(cause_name(&node.commands, total.cause)), if total.is_gate { "yes" } else { "no" });
            page.add(&name, help, *kind, &format!("cause=\"{cause}\",gate=\"{gate}\""), value(total));
        }
    }
}

/// Adds what LATENCY HISTOGRAM says of each command, as a histogram of Prometheus.
fn add_latencies(page: &mut Page, node: &Node) {
    let all = node.commands.all().iter().map(|entry| (entry, node.stats.latency(entry.index)));
    let measured: Vec<_> = all.filter(|(_, times)| times.calls() > 0).collect();
    if measured.is_empty() {
        return;
    }
    let commands = node.stats.totals().commands;
    page.head("redis_commands_latencies_usec", "How long a command takes.", Type::Histogram);
    for (entry, times) in measured {
        let (cmd, calls) = (escaped(&entry.name), times.calls());
        let sum = commands[usize::from(entry.index)].usec;
        let mut add = |suffix: &str, label: &str, value: u64| {
            writeln!(page.text, "redis_commands_latencies_usec{suffix}{{cmd=\"{cmd}\"{label}}} {value}")
                .expect("a String takes anything");
        };
        for (step_us, calls) in times.steps_us() {
            add("_bucket", &format!(",le=\"{step_us}\""), calls);
        }
        add("_bucket", ",le=\"+Inf\"", calls);
        add("_sum", "", sum);
        add("_count", "", calls);
    }
}

fn add_logs(page: &mut Page, node: &Node) {
    use Type::Gauge;
    const LENGTHS: [(Kind, &str); 4] = [
        (Kind::Slow, "redis_slowlog_length"),
        (Kind::Slow, "redis_commandlog_slow_length"),
        (Kind::LargeRequest, "redis_commandlog_large_request_length"),
        (Kind::LargeReply, "redis_commandlog_large_reply_length"),
    ];
    for (kind, name) in LENGTHS {
        let length = node.command_log.len(&node.config, kind);
        page.add(name, "Entries of the log.", Gauge, "", length);
    }
    // As the exporter does, zeros while nothing was slow.
    let last = node.command_log.newest(&node.config, Kind::Slow, 1);
    let (id, us) = last.first().map_or((0, 0), |last| (last.id, last.value));
    page.add("redis_slowlog_last_id", "The last entry of SLOWLOG.", Gauge, "", id);
    let (name, help) = ("redis_last_slow_execution_duration_seconds", "How long the last slow command took.");
    page.add(name, help, Gauge, "", us as f64 / 1e6);
    let all = node.latency.all();
    let last = |(name, series): &(&'static str, isotherm_node::observe::latency::monitor::Series)| {
        let last = *series.samples.last().expect("a series begins with its first sample");
        (format!("event_name=\"{name}\""), last)
    };
    let last: Vec<_> = all.iter().map(last).collect();
    for (label, sample) in &last {
        let at = sample.unix_seconds;
        page.add("redis_latency_spike_last", "When something last took long.", Gauge, label, at);
    }
    for (label, sample) in &last {
        let seconds = sample.latency_ms as f64 / 1000.0;
        page.add("redis_latency_spike_duration_seconds", "How long that took.", Gauge, label, seconds);
    }
}

/// Parameters of CONFIG that the exporter shows.
const PARAMETERS: [(Id, &str); 10] = [
    (id("io-threads"), "redis_config_io_threads"),
    (id("maxclients"), "redis_config_maxclients"),
    (id("maxmemory"), "redis_config_maxmemory"),
    (id("repl-backlog-size"), "redis_config_repl_backlog_size"),
    (id("commandlog-execution-slower-than"), "redis_commandlog_execution_slower_than"),
    (id("commandlog-slow-execution-max-len"), "redis_commandlog_slow_execution_max_len"),
    (id("commandlog-request-larger-than"), "redis_commandlog_request_larger_than"),
    (id("commandlog-large-request-max-len"), "redis_commandlog_large_request_max_len"),
    (id("commandlog-reply-larger-than"), "redis_commandlog_reply_larger_than"),
    (id("commandlog-large-reply-max-len"), "redis_commandlog_large_reply_max_len"),
];

fn add_parameters(page: &mut Page, node: &Node) {
    for (id, name) in PARAMETERS {
        let help = format!("The parameter {}.", PARAMS[id.index()].name);
        page.add(name, &help, Type::Gauge, "", node.config.number(id));
    }
    let limits = output_limits(&node.config.text(const { id("client-output-buffer-limit") }));
    let help = "How much unread reply a client of a class may have.";
    for (class, limit) in OUTPUT_CLASSES.iter().zip(limits) {
        for (kind, bytes) in [("hard", limit.hard_bytes), ("soft", limit.soft_bytes)] {
            let labels = format!("class=\"{class}\",limit=\"{kind}\"");
            let name = "redis_config_client_output_buffer_limit_bytes";
            page.add(name, help, Type::Gauge, &labels, bytes);
        }
    }
    let help = "How long it may have more than the soft limit.";
    for (class, limit) in OUTPUT_CLASSES.iter().zip(limits) {
        let labels = format!("class=\"{class}\",limit=\"soft\"");
        let name = "redis_config_client_output_buffer_limit_overcome_seconds";
        page.add(name, help, Type::Gauge, &labels, limit.soft_seconds);
    }
}

/// The size classes of the allocator that hold something, where it reports them.
fn add_classes(page: &mut Page) {
    type Part = (&'static str, &'static str, Type, fn(&ClassUse) -> u64);
    const PARTS: [Part; 6] = [
        ("allocated_bytes", "What lives in a class.", Type::Gauge, ClassUse::allocated_bytes),
        ("slabs", "The runs of pages that its blocks are cut from.", Type::Gauge, |class| class.slabs),
        ("slab_blocks", "The blocks of these, free ones too.", Type::Gauge, |class| {
            class.slabs * class.blocks_per_slab
        }),
        ("fills_total", "How often a thread's cache took blocks.", Type::Counter, |class| class.fills),
        ("flushes_total", "How often it gave some back.", Type::Counter, |class| class.flushes),
        ("lock_waits_total", "How often a thread waited for the lock.", Type::Counter, |class| {
            class.lock_waits
        }),
    ];
    let classes = isotherm_allocator::class_uses();
    for (part, help, kind, value) in PARTS.iter().filter(|_| !classes.is_empty()) {
        let name = format!("isotherm_allocator_class_{part}");
        for class in &classes {
            page.add(&name, help, *kind, &format!("size=\"{}\"", class.size_bytes), value(class));
        }
    }
}
