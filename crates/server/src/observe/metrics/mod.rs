//! An HTTP port for Prometheus: `/metrics` in its text format, and `/healthz`. Opt-in, on the loopback by default.
//!
//! The names are those of redis_exporter, so its dashboards and alerts work without it. What is reported is what INFO reports: each
//! metric names the field it comes from, and fields of our own (`isotherm_...`) follow under their own names.
//!
//! ```text
//! GET /metrics  ->  # HELP redis_memory_used_bytes `used_memory` of INFO.
//!                   # TYPE redis_memory_used_bytes gauge
//!                   redis_memory_used_bytes 1048576
//!                   redis_commands_total{cmd="get"} 42
//! ```
//! A few threads answer one request after the other each; Prometheus asks a few times a minute. A request has `REQUEST_PATIENCE`
//! to arrive, whole, and its answer as long to leave: a client that sends or reads a byte a second is closed, and until then has
//! one of the threads. So /healthz answers at once beside some slow clients, and soon beside many.

use isotherm_keyspace::{Held, Survey};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use crate::config::Config;
use crate::config::{OUTPUT_CLASSES, find, output_limits};
use crate::node::{Node, unix_now};
use crate::observe::command_log::Kind;
use crate::observe::facts::Facts;
use crate::observe::hold_causes::cause_name;
use crate::observe::holds::HoldTotals;
use crate::observe::info::swap::{Kind as SwapKind, SWAP, SwapField, View};
use crate::observe::info::{self, Snapshot};
use crate::observe::resident;
use crate::process::log::{self, os_text};

mod host;
mod names;

use crate::tls;
use isotherm_allocator::ClassUse;
use names::{METRICS, PARAMETERS, Type};

/// All of a request may take so long to arrive. What asks is in the same network, and sends one packet.
const REQUEST_PATIENCE: Duration = Duration::from_secs(2);
/// All of an answer may take so long to leave: some hundred kilobytes.
const ANSWER_PATIENCE: Duration = Duration::from_secs(2);
const REQUEST_BYTES_MAX: usize = 8 << 10;
/// Connections that are answered at a time. Two that ask for metrics and one for the health are usual.
const THREADS: usize = 4;

/// How long accepting rests when it has failed.
const ACCEPT_REST: Duration = Duration::from_millis(100);

/// Where metrics are asked for, open and not yet answered.
pub struct Open {
    listener: TcpListener,
    address: String,
    port: u16,
}

/// Listens, if a port is configured. Before clients can connect: monitoring then sees all that they do.
pub fn open(config: &Config) -> Result<Option<Open>, String> {
    let Some((address, port)) = config.metrics_address() else { return Ok(None) };
    let listener = TcpListener::bind((address.as_str(), port)).map_err(|error| failed(port, &error))?;
    Ok(Some(Open { listener, address, port }))
}

fn failed(port: u16, error: &io::Error) -> String {
    format!("Failed listening on port {port} (metrics): {}", os_text(error))
}

/// Answers in threads of its own.
pub fn serve(node: &'static Node, open: Open) -> Result<(), String> {
    let Open { listener, address, port } = open;
    let failed = |error: io::Error| failed(port, &error);
    for number in 0..THREADS {
        let listener = listener.try_clone().map_err(failed)?;
        let serve = move || {
            resident::note_stack();
            loop {
                match listener.accept() {
                    // A peer that is gone before it is answered asks again.
                    Ok((stream, _)) => drop(answer(node, stream)),
                    // There may be no file descriptor for now.
                    Err(_) => std::thread::sleep(ACCEPT_REST),
                }
            }
        };
        std::thread::Builder::new().name(format!("metrics-{number}")).spawn(serve).map_err(failed)?;
    }
    log::notice(format!("Metrics are served on http://{address}:{port}/metrics"));
    Ok(())
}

fn answer(node: &Node, mut stream: TcpStream) -> io::Result<()> {
    let request = read_head(&mut stream)?;
    let is_foreign = stream.local_addr()?.ip().to_canonical().is_loopback() && host::is_foreign(&request);
    let (status, kind, body) = match path_of(&request) {
        Some("/metrics") if is_foreign => ("403 Forbidden", "text/plain", "forbidden\n".to_owned()),
        Some("/metrics") => ("200 OK", "text/plain; version=0.0.4; charset=utf-8", page(node)),
        Some("/healthz") => ("200 OK", "text/plain", "ok\n".to_owned()),
        Some(_) => ("404 Not Found", "text/plain", "not found\n".to_owned()),
        None => ("400 Bad Request", "text/plain", "bad request\n".to_owned()),
    };
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    write_all(&mut stream, &(head + &body))
}

/// What is left of the patience with a peer.
fn left_until(deadline: Instant) -> io::Result<Option<Duration>> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(Some(left)) }
}

/// Up to the empty line, or as much as there may be.
fn read_head(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let deadline = Instant::now() + REQUEST_PATIENCE;
    let (mut head, mut seen) = (Vec::new(), 0);
    let mut bytes = [0; 1024];
    while head.len() < REQUEST_BYTES_MAX && !head[seen..].windows(4).any(|end| end == b"\r\n\r\n") {
        seen = head.len().saturating_sub(3);
        stream.set_read_timeout(left_until(deadline)?)?;
        match stream.read(&mut bytes) {
            Ok(0) => break,
            Ok(count) => head.extend_from_slice(&bytes[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(head)
}

fn write_all(stream: &mut TcpStream, text: &str) -> io::Result<()> {
    let deadline = Instant::now() + ANSWER_PATIENCE;
    let mut left = text.as_bytes();
    while !left.is_empty() {
        stream.set_write_timeout(left_until(deadline)?)?;
        match stream.write(left) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => left = &left[count..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// What a GET asks for, without its query.
fn path_of(request: &[u8]) -> Option<&str> {
    let line = request.split(|&byte| byte == b'\r').next()?;
    let mut words = std::str::from_utf8(line).ok()?.split(' ');
    let (method, path, version) = (words.next()?, words.next()?, words.next()?);
    (method == "GET" && version.starts_with("HTTP/1.")).then(|| path.split('?').next().unwrap_or(path))
}

// ---- the page ----

fn page(node: &Node) -> String {
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
    add_prefixes(&mut page, node);
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

/// What prefixes of depth 1 take: the largest, and those that are pinned. Few, since each is a time series.
fn add_prefixes(page: &mut Page, node: &Node) {
    const PREFIXES_MAX: usize = 16;
    let Some(report) = node.keyspace.prefixes(1) else { return };
    let largest = report.prefixes.iter().take(PREFIXES_MAX).map(|share| ("largest", share));
    let shares: Vec<_> = largest.chain(report.pinned.iter().map(|share| ("pinned", share))).collect();
    for (at, what) in ["keys", "bytes"].into_iter().enumerate() {
        let name = format!("isotherm_prefix_{what}");
        // Long names are cut and odd bytes replaced: what looks the same then is one series.
        let mut series: BTreeMap<(&str, String), u64> = BTreeMap::new();
        for (kind, share) in &shares {
            let prefix = escaped(&String::from_utf8_lossy(&share.name));
            *series.entry((*kind, prefix)).or_default() += [share.keys, share.bytes][at];
        }
        for ((kind, prefix), value) in series {
            page.head(&name, "What prefixes of keys take: MEMORY PREFIXES.", Type::Gauge);
            writeln!(page.0, "{name}{{kind=\"{kind}\",prefix=\"{prefix}\"}} {value}")
                .expect("a String takes anything");
        }
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

/// How long locks were held, by cause: INFO locks.
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

/// What LATENCY HISTOGRAM says of each command, as a histogram of Prometheus.
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
    let last = |(name, series): &(&'static str, crate::observe::latency::monitor::Series)| {
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

/// In the value of a label.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[derive(Default)]
struct Page(String);

impl Page {
    /// One value; what is no number is a status, which is fine or not. Values of one metric follow each other.
    fn add(&mut self, name: &str, help: &str, kind: Type, labels: &str, value: &str) {
        let value = match value.parse::<f64>() {
            Ok(_) => value,
            Err(_) if value == "ok" => "1",
            Err(_) => "0",
        };
        self.head(&format!("redis_{name}"), help, kind);
        match labels {
            "" => writeln!(self.0, "redis_{name} {value}"),
            labels => writeln!(self.0, "redis_{name}{{{labels}}} {value}"),
        }
        .expect("a String takes anything");
    }

    /// A figure that only we have.
    fn add_own(&mut self, name: &str, value: &str) {
        self.own_head(name, name, Type::Gauge);
        writeln!(self.0, "{name} {value}").expect("a String takes anything");
    }

    /// A line of the memory map.
    fn add_part(&mut self, part: &str, bytes: &str) {
        const NAME: &str = "isotherm_memory_map_bytes";
        self.head(NAME, "Where memory is: `memorymap_*` of INFO.", Type::Gauge);
        writeln!(self.0, "{NAME}{{part=\"{part}\"}} {bytes}").expect("a String takes anything");
    }

    fn own_head(&mut self, name: &str, field: &str, kind: Type) {
        self.head(name, &format!("`{field}` of INFO."), kind);
    }

    fn head(&mut self, name: &str, help: &str, kind: Type) {
        let head = format!("# HELP {name} {help}\n# TYPE {name} {}\n", kind.name());
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
        page.add("a", "A.", Type::Gauge, "", "1");
        page.add("b_total", "B.", Type::Counter, "cmd=\"get\"", "2.5");
        page.add("b_total", "B.", Type::Counter, "cmd=\"set\"", "3");
        page.add("s", "S.", Type::Gauge, "", "ok");
        let expected = "# HELP redis_a A.\n# TYPE redis_a gauge\nredis_a 1\n\
                        # HELP redis_b_total B.\n# TYPE redis_b_total counter\nredis_b_total{cmd=\"get\"} 2.5\n\
                        redis_b_total{cmd=\"set\"} 3\n# HELP redis_s S.\n# TYPE redis_s gauge\nredis_s 1\n";
        assert_eq!(page.0, expected);
        assert_eq!(escaped("a\"b\\\n"), "a\\\"b\\\\\\n");
    }
}
