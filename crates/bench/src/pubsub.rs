//! 10,000 connections, 1,000 of them subscribers of 100 channels: is every message heard, in order, and what
//! does it cost?
//!
//! Then one subscriber more, of all channels, which never reads: the server has to close it at
//! `client-output-buffer-limit pubsub`, and the others must not notice. Their delays while it is there are
//! compared with those of the seconds before, in several rounds of the same server: a shared machine moves a
//! p99 by more than a deaf client does.

use std::net::TcpStream;
use std::time::{Duration, Instant};

use isotherm_probe::Client;
use isotherm_resp::reply_parse::Value;

use crate::audience::Audience;
use crate::histogram::Histogram;
use crate::memory::greeted;
use crate::options::Options;
use crate::process::{Server, Setting, Side, allow_open_files};
use crate::report::Table;
use crate::{Fallible, progress};

pub const ROWS: [&str; 2] = ["pubsub-all-heard", "pubsub-deaf"];

const CONNECTIONS: u64 = 10_000;
const LISTENERS: u64 = 1_000;
const CHANNELS: usize = 100;
const SECONDS: u64 = 60;
const PER_SECOND: u64 = 5_000;
const MESSAGE_BYTES: usize = 64;
/// Time between the last message and the measurement of memory.
const AFTERWARDS: Duration = Duration::from_secs(10);

/// Length of a message in the row with a subscriber that reads nothing. It gets 5 MB a second, so that the
/// limit of 32 MB is reached in seconds.
const LONG_MESSAGE_BYTES: usize = 1_000;
const QUIET_SECONDS: u64 = 7;
const GIVE_UP: Duration = Duration::from_secs(90);
/// An id that no client has.
const UNUSED_ID: i64 = i64::MAX;

pub fn measure(options: &Options) -> Fallible<Vec<Table>> {
    let (connections, listeners) = (options.scaled(CONNECTIONS), options.scaled(LISTENERS));
    let mut tables = vec![all_heard_table(connections, listeners, options), deaf_table(options)];
    if !ROWS.iter().any(|row| options.wants(row)) {
        return Ok(tables);
    }
    // Other files of the servers are few, and they inherit the limit.
    allow_open_files(connections + 1000)?;
    let mut sides = vec![(Side::Valkey, 1)];
    sides.extend(
        options.workers.iter().filter(|&&workers| workers <= 2).map(|&workers| (Side::Isotherm, workers)),
    );
    for (side, workers) in sides {
        let name = format!("{}, {workers} worker{}", side.name(), if workers == 1 { "" } else { "s" });
        let setting = Setting { workers, pinned: workers == 1, ..Setting::default() };
        let setting = setting.with("maxclients", connections + 100);
        if options.wants(ROWS[0]) {
            let server = Server::start(side, &setting, options)?;
            tables[0].row(all_heard(&server, &name, connections, listeners, options)?);
        }
        if options.wants(ROWS[1]) {
            let server = Server::start(side, &setting, options)?;
            tables[1].row(deaf(&server, &name, listeners, options)?);
        }
    }
    Ok(tables)
}

// ------------------------------------------------------------------------------------------------------- all is heard

fn all_heard_table(connections: u64, listeners: u64, options: &Options) -> Table {
    let title = format!(
        "{connections} connections, {listeners} of them subscribers on {CHANNELS} channels, {} s of publishing",
        options.scaled(SECONDS)
    );
    let head = [
        "",
        "published",
        "delivered",
        "lost",
        "out of order",
        "CPU us per delivered message",
        "delay p50",
        "p99",
        "RSS before",
        "at most",
        "10 s after",
    ];
    let mut table = Table::new("pubsub-all-heard", title, &head);
    table.note(format!(
        "{PER_SECOND} messages of {MESSAGE_BYTES} B a second over one connection, {} subscribers each; one worker on one core, the load on another; two workers share both.",
        listeners.div_ceil(CHANNELS as u64)
    ));
    table
}

fn all_heard(
    server: &Server,
    name: &str,
    connections: u64,
    listeners: u64,
    options: &Options,
) -> Fallible<[String; 11]> {
    let _idle =
        (0..connections - listeners).map(|_| greeted(server.port)).collect::<Fallible<Vec<TcpStream>>>()?;
    let mut audience = Audience::gather(server.port, listeners as usize, CHANNELS)?;
    server.settle(Duration::from_secs(10))?;
    let (before, cpu_before) = (server.resident_bytes()?, server.cpu_ns()?);
    let begin = Instant::now();
    let time = Duration::from_secs(options.scaled(SECONDS));
    audience.publish(PER_SECOND, MESSAGE_BYTES, || Ok(begin.elapsed() >= time))?;
    audience.hear_the_rest()?;
    let cpu_us = (server.cpu_ns()? - cpu_before) as f64 / 1e3;
    std::thread::sleep(AFTERWARDS);
    let heard = &audience.heard;
    progress(&format!(
        "{name}: {} heard, {} lost, {} out of order",
        heard.messages, heard.lost, heard.out_of_order
    ));
    Ok([
        name.to_string(),
        audience.published().to_string(),
        heard.messages.to_string(),
        heard.lost.to_string(),
        heard.out_of_order.to_string(),
        format!("{:.2}", cpu_us / heard.messages as f64),
        milliseconds(&heard.delays, 0.5),
        milliseconds(&heard.delays, 0.99),
        megabytes(before),
        megabytes(server.resident_bytes_max()?),
        megabytes(server.resident_bytes()?),
    ])
}

// ---------------------------------------------------------------------------------------------- one who does not read

fn deaf_table(options: &Options) -> Table {
    let head = [
        "",
        "p99 without it",
        "p99 while it is there",
        "median ratio",
        "closed after",
        "its buffer at most",
        "lost or out of order for others",
        "RSS before",
        "at most",
        "10 s after",
    ];
    let mut table = Table::new("pubsub-deaf", "A subscriber of all channels that never reads", &head);
    table.note(format!(
        "As above without the idle connections; messages of {LONG_MESSAGE_BYTES} B. {} rounds of {QUIET_SECONDS} s without it and as long with it as it is left open; the delays of all rounds, and the median of their ratios. Its buffer as CLIENT LIST reports it (`omem`); the default limit is 32 MB at once or 8 MB for a minute.",
        options.rounds
    ));
    table
}

fn deaf(server: &Server, name: &str, listeners: u64, options: &Options) -> Fallible<[String; 10]> {
    let mut audience = Audience::gather(server.port, listeners as usize, CHANNELS)?;
    server.settle(Duration::from_secs(10))?;
    let before = server.resident_bytes()?;
    let (mut without, mut with) = (Histogram::default(), Histogram::default());
    let (mut ratios, mut worst) = (Vec::new(), Closed::default());
    for round in 1..=options.rounds {
        quiet(&mut audience, server)?;
        let quiet_delays = std::mem::take(&mut audience.heard.delays);
        worst = worst.max(Deaf::subscribe(server)?.until_closed(&mut audience, server)?);
        let deaf_delays = std::mem::take(&mut audience.heard.delays);
        let ratio = deaf_delays.quantile_us(0.99) / quiet_delays.quantile_us(0.99);
        progress(&format!("{name} round {round}: p99 of the others {ratio:.2} times with a deaf one"));
        ratios.push(ratio);
        without.merge(&quiet_delays);
        with.merge(&deaf_delays);
    }
    audience.hear_the_rest()?;
    std::thread::sleep(AFTERWARDS);
    ratios.sort_by(f64::total_cmp);
    let heard = &audience.heard;
    Ok([
        name.to_string(),
        milliseconds(&without, 0.99),
        milliseconds(&with, 0.99),
        format!("{:.2}", ratios[ratios.len() / 2]),
        format!("{:.1} s", worst.after.as_secs_f64()),
        megabytes(worst.buffer_bytes),
        (heard.lost + heard.out_of_order).to_string(),
        megabytes(before),
        megabytes(server.resident_bytes_max()?),
        megabytes(server.resident_bytes()?),
    ])
}

/// Publishes for a while and asks the server as often as `until_closed` does.
fn quiet(audience: &mut Audience, server: &Server) -> Fallible {
    let (begin, mut control) = (Instant::now(), server.client()?);
    audience.publish(PER_SECOND, LONG_MESSAGE_BYTES, || {
        output_bytes(&mut control, UNUSED_ID)?;
        Ok(begin.elapsed() >= Duration::from_secs(QUIET_SECONDS))
    })
}

struct Deaf {
    client: Client,
    id: i64,
}

/// Time until the deaf subscriber was closed, and the largest size of its output buffer.
#[derive(Clone, Copy, Default)]
struct Closed {
    after: Duration,
    buffer_bytes: u64,
}

impl Closed {
    fn max(self, other: Closed) -> Closed {
        Closed { after: self.after.max(other.after), buffer_bytes: self.buffer_bytes.max(other.buffer_bytes) }
    }
}

impl Deaf {
    fn subscribe(server: &Server) -> Fallible<Deaf> {
        let mut client = server.client()?;
        let Value::Integer(id) = client.call(&["CLIENT", "ID"])? else {
            return Err("CLIENT ID is no number".to_string());
        };
        client.call(&["PSUBSCRIBE", "*"])?;
        Ok(Deaf { client, id })
    }

    fn until_closed(self, audience: &mut Audience, server: &Server) -> Fallible<Closed> {
        let (begin, mut control) = (Instant::now(), server.client()?);
        let mut closed = Closed::default();
        audience.publish(PER_SECOND, LONG_MESSAGE_BYTES, || {
            closed.after = begin.elapsed();
            match output_bytes(&mut control, self.id)? {
                Some(bytes) => closed.buffer_bytes = closed.buffer_bytes.max(bytes),
                None => return Ok(true),
            }
            if closed.after > GIVE_UP {
                return Err(format!("a client that does not read was not closed in {} s", GIVE_UP.as_secs()));
            }
            Ok(false)
        })?;
        // It kept its socket to the end.
        drop(self.client);
        Ok(closed)
    }
}

/// The `omem` of a client, or nothing if there is no such client.
fn output_bytes(control: &mut Client, id: i64) -> Fallible<Option<u64>> {
    let line = match control.call(&["CLIENT", "LIST", "ID", &id.to_string()])? {
        Value::Bulk(line) | Value::Verbatim { text: line, .. } => String::from_utf8_lossy(&line).into_owned(),
        other => return Err(format!("CLIENT LIST: {other:?} is no text")),
    };
    Ok(line.split(' ').find_map(|field| field.strip_prefix("omem=")?.parse().ok()))
}

fn milliseconds(delays: &Histogram, part: f64) -> String {
    format!("{:.2} ms", delays.quantile_us(part) / 1e3)
}

fn megabytes(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 / 1e6)
}
