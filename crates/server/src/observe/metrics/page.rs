//! The page of `/metrics`: fields of INFO under redis_exporter's names, and what else there is to say.

use isotherm_allocator::ClassUse;
use isotherm_keyspace::{Held, Survey};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::Ordering::Relaxed;

use super::names::{METRICS, PARAMETERS, Type};
use super::prefixes;
use super::text::{Page, escaped};
use crate::observe::info::swap::{Kind as SwapKind, SWAP, SwapField, View};
use crate::observe::info::{self, Snapshot};
use isotherm_config::{OUTPUT_CLASSES, find, output_limits};
use isotherm_node::Node;
use isotherm_node::observe::command_log::Kind;
use isotherm_node::observe::facts::Facts;
use isotherm_node::observe::hold_causes::cause_name;
use isotherm_node::observe::holds::HoldTotals;
use isotherm_node::tls;
use isotherm_runtime::time::unix_now;

pub fn page(node: &Node) -> String {
    let now = unix_now();
    let mut snapshot = Snapshot::new(node, now, Facts::default());
    let mut held = Held::new(&node.keyspace);
    let asked: [&[u8]; 2] = [b"everything", b"memorymap"];
    info::look_up(&mut snapshot, &asked, || Survey::new(&mut held));
    let text = info::text(&snapshot, &asked);
    let fields: BTreeMap<&str, &str> = text.lines().filter_map(|line| line.split_once(':')).collect();
    let mut page = Page::default();
    page.add("up", "Whether the server answers.", Type::Gauge, "", "1");
    for (field, name, kind) in METRICS {
        if let Some(value) = fields.get(field) {
            page.add(name, &format!("`{field}` of INFO."), *kind, "", value);
        }
    }
    add_in_other_units(&mut page, node, &fields);
    add_labelled(&mut page, &fields);
    add_locks(&mut page, node);
    add_latencies(&mut page, node);
    add_logs(&mut page, node);
    add_parameters(&mut page, node);
    add_classes(&mut page);
    for (name, value) in
        fields.iter().filter(|(name, _)| name.starts_with("isotherm_") && name.ends_with("_bytes"))
    {
        page.add_own(name, value);
    }
    // The parts, not their sums.
    let parts = fields.iter().filter_map(|(name, bytes)| Some((name.strip_prefix("memorymap_")?, bytes)));
    for (part, bytes) in parts.filter(|(part, _)| !["used", "total"].contains(part)) {
        page.add_part(part, bytes);
    }
    for name in OWN_COUNTERS {
        page.own_head(&format!("{name}_total"), name, Type::Counter);
        writeln!(page.0, "{name}_total {}", fields[name]).expect("a String takes anything");
    }
    add_persistence(&mut page, &fields);
    add_swap(&mut page, &snapshot);
    if tls::is_used(&node.config) {
        add_tls(&mut page, node, &fields);
    }
    page.add_own("isotherm_compaction_cpu_percent", fields["isotherm_compaction_cpu_percent"]);
    prefixes::add(&mut page, node);
    page.0
}

/// Our own figures of what is on disk, and of what is on its way there or back.
fn add_persistence(page: &mut Page, fields: &BTreeMap<&str, &str>) {
    const COUNTERS: [&str; 4] = ["log_offset", "log_durable_offset", "aof_commits", "snapshot_writer_waits"];
    const GAUGES: [&str; 7] = [
        "aof_held_replies",
        "current_save_keys_processed",
        "current_save_keys_total",
        "loading_total_bytes",
        "loading_loaded_bytes",
        "loading_loaded_perc",
        "loading_eta_seconds",
    ];
    for (names, kind, end) in [(&COUNTERS[..], Type::Counter, "_total"), (&GAUGES[..], Type::Gauge, "")] {
        for name in names {
            // Some exist while a file is loaded, or with an append-only file.
            let Some(value) = fields.get(name) else { continue };
            page.own_head(&format!("isotherm_{name}{end}"), name, kind);
            writeln!(page.0, "isotherm_{name}{end} {value}").expect("a String takes anything");
        }
    }
}

/// INFO swap, with `swap-mode`.
fn add_swap(page: &mut Page, snapshot: &Snapshot<'_>) {
    let Some(view) = View::of(snapshot) else { return };
    for SwapField { name, kind, value } in SWAP {
        let value = value(&view);
        let (metric, labels, shown, kind) = match kind {
            SwapKind::Gauge => (format!("isotherm_{name}"), String::new(), &value[..], Type::Gauge),
            SwapKind::Counter => (format!("isotherm_{name}_total"), String::new(), &value[..], Type::Counter),
            SwapKind::Word => (format!("isotherm_{name}"), format!("{{is=\"{value}\"}}"), "1", Type::Gauge),
        };
        page.own_head(&metric, name, kind);
        writeln!(page.0, "{metric}{labels} {shown}").expect("a String takes anything");
    }
}

/// Handshakes of clients, and for how long certificates hold.
fn add_tls(page: &mut Page, node: &Node, fields: &BTreeMap<&str, &str>) {
    let counts = &node.tls.counts;
    let done = [
        ("full", counts.done.load(Relaxed).saturating_sub(counts.resumed.load(Relaxed))),
        ("resumed", counts.resumed.load(Relaxed)),
    ];
    const DONE: &str = "isotherm_tls_handshakes_total";
    const FAILED: &str = "isotherm_tls_handshakes_failed_total";
    const DAYS: &str = "isotherm_tls_certificate_days_left";
    page.head(DONE, "Handshakes of clients that were done.", Type::Counter);
    for (kind, count) in done {
        writeln!(page.0, "{DONE}{{kind=\"{kind}\"}} {count}").expect("a String takes anything");
    }
    page.head(FAILED, "Handshakes of clients that have failed.", Type::Counter);
    writeln!(page.0, "{FAILED} {}", counts.failed.load(Relaxed)).expect("a String takes anything");
    for of in ["server", "client", "ca"] {
        if fields.get(&*format!("tls_{of}_cert_serial")).is_none_or(|serial| *serial == "none") {
            continue;
        }
        let left = fields
            .get(&*format!("tls_{of}_cert_expires_in_seconds"))
            .and_then(|left| left.parse::<u64>().ok());
        page.head(
            DAYS,
            "Days until a certificate no longer holds: `tls_*_cert_expires_in_seconds` of INFO.",
            Type::Gauge,
        );
        writeln!(page.0, "{DAYS}{{of=\"{of}\"}} {}", left.unwrap_or_default() / 86_400)
            .expect("a String takes anything");
    }
}

fn add_in_other_units(page: &mut Page, node: &Node, fields: &BTreeMap<&str, &str>) {
    let started = (node.process.started.0 / 1000).to_string();
    page.add("start_time_seconds", "When the server was started.", Type::Gauge, "", &started);
    if let Some(us) = fields.get("latest_fork_usec").and_then(|us| us.parse::<f64>().ok()) {
        let seconds = (us / 1e6).to_string();
        page.add("latest_fork_seconds", "`latest_fork_usec` of INFO, in seconds.", Type::Gauge, "", &seconds);
    }
    for (field, seconds) in fields {
        if let Some(thread) = field.strip_prefix("used_active_time_io_thread_") {
            let (name, label) = ("active_time_io_thread_seconds_total", format!("thread=\"{thread}\""));
            page.add(name, "How long a worker was busy.", Type::Counter, &label, seconds);
        }
    }
}

/// Metrics with labels: of commands, errors and databases, and what kind of instance this is.
fn add_labelled(page: &mut Page, fields: &BTreeMap<&str, &str>) {
    type Part = (&'static str, &'static str, &'static str, Type, f64);
    use Type::{Counter, Gauge};
    const OF_COMMANDS: [Part; 4] = [
        ("commands_total", "Calls of a command.", "calls", Counter, 1.0),
        ("commands_duration_seconds_total", "Time spent in a command.", "usec", Counter, 1e6),
        ("commands_rejected_calls_total", "Calls refused before they ran.", "rejected_calls", Counter, 1.0),
        ("commands_failed_calls_total", "Calls that ended in an error.", "failed_calls", Counter, 1.0),
    ];
    const OF_ERRORS: Part = ("errors_total", "Errors of a kind.", "count", Counter, 1.0);
    const OF_DATABASES: [Part; 3] = [
        ("db_keys", "Keys of a database.", "keys", Gauge, 1.0),
        ("db_keys_expiring", "Keys of a database that have a time to live.", "expires", Gauge, 1.0),
        ("db_avg_ttl_seconds", "Their mean time to live.", "avg_ttl", Gauge, 1000.0),
    ];
    let mut add = |label: &str, prefix: &str, (metric, help, part, kind, divisor): Part, kept: &str| {
        for (name, value) in
            fields.iter().filter_map(|(name, value)| Some((name.strip_prefix(prefix)?, value)))
        {
            let number = value.split(',').find_map(|pair| pair.strip_prefix(part)?.strip_prefix('='));
            if let Some(number) = number.and_then(|number| number.parse::<f64>().ok()) {
                let label = format!("{label}=\"{kept}{}\"", escaped(name));
                page.add(metric, help, kind, &label, &(number / divisor).to_string());
            }
        }
    };
    OF_COMMANDS.into_iter().for_each(|part| add("cmd", "cmdstat_", part, ""));
    add("err", "errorstat_", OF_ERRORS, "");
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
        ("master_replid", "master_replid"),
        ("valkey_version", "valkey_version"),
        ("valkey_release_stage", "valkey_release_stage"),
    ];
    let labels = labels.map(|(label, field)| {
        format!("{label}=\"{}\"", escaped(fields.get(field).copied().unwrap_or_default()))
    });
    page.add("instance_info", "What kind of server this is.", Type::Gauge, &labels.join(","), "1");
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
        page.head(&name, help, *kind);
        for total in &totals {
            let (cause, gate) =
                (escaped(cause_name(&node.commands, total.cause)), if total.is_gate { "yes" } else { "no" });
            writeln!(page.0, "{name}{{cause=\"{cause}\",gate=\"{gate}\"}} {}", value(total))
                .expect("a String takes anything");
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
            writeln!(page.0, "redis_commands_latencies_usec{suffix}{{cmd=\"{cmd}\"{label}}} {value}")
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
        (Kind::Slow, "slowlog_length"),
        (Kind::Slow, "commandlog_slow_length"),
        (Kind::LargeRequest, "commandlog_large_request_length"),
        (Kind::LargeReply, "commandlog_large_reply_length"),
    ];
    for (kind, name) in LENGTHS {
        let length = node.command_log.len(&node.config, kind).to_string();
        page.add(name, "Entries of the log.", Gauge, "", &length);
    }
    // As the exporter does, zeros while nothing was slow.
    let last = node.command_log.newest(&node.config, Kind::Slow, 1);
    let (id, us) = last.first().map_or((0, 0), |last| (last.id, last.value));
    page.add("slowlog_last_id", "The last entry of SLOWLOG.", Gauge, "", &id.to_string());
    let seconds = (us as f64 / 1e6).to_string();
    page.add(
        "last_slow_execution_duration_seconds",
        "How long the last slow command took.",
        Gauge,
        "",
        &seconds,
    );
    let all = node.latency.all();
    let last = |(name, series): &(&'static str, isotherm_node::observe::latency::monitor::Series)| {
        let last = *series.samples.last().expect("a series begins with its first sample");
        (format!("event_name=\"{name}\""), last)
    };
    let last: Vec<_> = all.iter().map(last).collect();
    for (label, sample) in &last {
        let at = sample.unix_seconds.to_string();
        page.add("latency_spike_last", "When something last took long.", Gauge, label, &at);
    }
    for (label, sample) in &last {
        let seconds = (sample.latency_ms as f64 / 1000.0).to_string();
        page.add("latency_spike_duration_seconds", "How long that took.", Gauge, label, &seconds);
    }
}

fn add_parameters(page: &mut Page, node: &Node) {
    for (parameter, name) in PARAMETERS {
        let (id, _) = find(parameter.as_bytes()).expect("the table names parameters");
        let help = format!("The parameter {parameter}.");
        page.add(name, &help, Type::Gauge, "", &node.config.number(id).to_string());
    }
    let (id, _) = find(b"client-output-buffer-limit").expect("it is a parameter");
    let limits = output_limits(&node.config.text(id));
    let help = "How much unread reply a client of a class may have.";
    for (class, limit) in OUTPUT_CLASSES.iter().zip(limits) {
        for (kind, bytes) in [("hard", limit.hard_bytes), ("soft", limit.soft_bytes)] {
            let labels = format!("class=\"{class}\",limit=\"{kind}\"");
            let name = "config_client_output_buffer_limit_bytes";
            page.add(name, help, Type::Gauge, &labels, &bytes.to_string());
        }
    }
    let help = "How long it may have more than the soft limit.";
    for (class, limit) in OUTPUT_CLASSES.iter().zip(limits) {
        let labels = format!("class=\"{class}\",limit=\"soft\"");
        let name = "config_client_output_buffer_limit_overcome_seconds";
        page.add(name, help, Type::Gauge, &labels, &limit.soft_seconds.to_string());
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
        page.head(&name, help, *kind);
        for class in &classes {
            writeln!(page.0, "{name}{{size=\"{}\"}} {}", class.size_bytes, value(class))
                .expect("a String takes anything");
        }
    }
}

/// Fields of our own that only grow.
const OWN_COUNTERS: [&str; 3] = [
    "isotherm_allocator_lock_waits",
    "isotherm_compaction_cpu_milliseconds",
    "isotherm_huge_pages_cpu_milliseconds",
];
