//! A replica with an append-only file, on the same disk: what it has of its primary's history after each
//! crash.
//!
//! ```text
//!   seed --> the primary     SELECT | SET a b | MULTI INCR c EXEC ...      a list of frames, which only grows
//!                 |          the next frame, from where the replica is
//!            Stream, Applier, log, writer, rewrites, SimDisk               the server's own
//!                 |
//!   crash --> start --> the place that it would ask for (PSYNC)            is the end of a frame, and not before what was durable
//! ```
//! Checked after each start, besides the checks of `machine`: the place is one between two frames, the
//! database that is selected there is the primary's, the name of the history is one that the primary had, and
//! the stream continues from there. Now and then the primary has a new name (a failover among others), and
//! the replica is promoted, writes, and follows again.

use isotherm_keyspace::{Db, Held, Want};
use isotherm_log::LogOffset;
use isotherm_replication::ReplId;
use isotherm_stdx::Prng;
use std::time::Duration;

use super::machine::{Machine, UNREADABLE, Violation};
use super::process::{DATABASES, Process};
use super::workload;
use isotherm_durability::aof::applier::{Applier, Generation};
use isotherm_replicas::replication::role;
use isotherm_replicas::replication::stream::{Seen, Stream};
use isotherm_runtime::log::{self, Level};
use isotherm_runtime::routines;
use isotherm_runtime::time::simulated as clock;

const LIVES: u64 = 5;

struct Frame {
    bytes: Vec<u8>,
    end: LogOffset,
    /// The database that is selected after it.
    db: u32,
}

/// The history that is followed.
struct Primary {
    start: LogOffset,
    frames: Vec<Frame>,
    names: Vec<ReplId>,
}

/// The primary's side of one life.
struct Link {
    stream: Stream,
    applier: Applier,
}

fn encode(words: &str) -> Vec<u8> {
    let words: Vec<&str> = words.split(' ').collect();
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n{word}\r\n", word.len()).as_bytes());
    }
    bytes
}

/// A command as a primary writes it: it makes the same change at any moment.
fn command(prng: &mut Prng) -> String {
    let (key, other, n) = (workload::key(prng), workload::key(prng), prng.below(100));
    match prng.below(12) {
        0..3 => format!("SET {key} {n}"),
        3 => format!("SET {key} {}", "v".repeat(300 + prng.below(3000) as usize)),
        4 => format!("APPEND {key} {n}"),
        5 => format!("INCRBY {key} {n}"),
        6 => format!("RPUSH {key} {n} b{n}"),
        7 => format!("SADD {key} {n} m{n}"),
        8 => format!("HSET {key} f{} {n}", n % 5),
        9 => format!("DEL {key} {other}"),
        10 => format!("SWAPDB {} {}", n % 3, other.len() % 3),
        _ => "PING".to_string(),
    }
}

impl Primary {
    fn new(start: LogOffset) -> Primary {
        Primary { start, frames: Vec::new(), names: vec![Primary::next_name()] }
    }

    fn next_name() -> ReplId {
        ReplId::new(super::process::next_name())
    }

    fn name(&self) -> ReplId {
        *self.names.last().expect("it has one")
    }

    fn end(&self) -> LogOffset {
        self.frames.last().map_or(self.start, |frame| frame.end)
    }

    fn db_at(&self, at: LogOffset) -> u32 {
        let behind = self.frames.partition_point(|frame| frame.end <= at);
        behind.checked_sub(1).map_or(0, |last| self.frames[last].db)
    }

    /// The frame that begins there, made now if there is none yet.
    fn frame_at(&mut self, at: LogOffset, prng: &mut Prng) -> &[u8] {
        if at == self.end() {
            self.append(prng);
        }
        let number = self.frames.partition_point(|frame| frame.end <= at);
        &self.frames[number].bytes
    }

    /// A SELECT by itself, a command, or a transaction.
    fn append(&mut self, prng: &mut Prng) {
        let mut db = self.db_at(self.end());
        let mut bytes = Vec::new();
        let mut select = |prng: &mut Prng, bytes: &mut Vec<u8>| {
            db = prng.below(u64::from(DATABASES)) as u32;
            bytes.extend(encode(&format!("SELECT {db}")));
        };
        match prng.below(8) {
            _ if self.frames.is_empty() => select(prng, &mut bytes),
            0 | 1 => select(prng, &mut bytes),
            2 | 3 => {
                bytes.extend(encode("MULTI"));
                for _ in 0..2 + prng.below(4) {
                    if prng.one_in(4) {
                        select(prng, &mut bytes);
                    }
                    bytes.extend(encode(&command(prng)));
                }
                bytes.extend(encode("EXEC"));
            }
            _ => bytes = encode(&command(prng)),
        }
        let end = self.end() + bytes.len() as u64;
        self.frames.push(Frame { bytes, end, db });
    }

    /// The answer to PSYNC of a process that has just started.
    fn accept(&mut self, process: &Process) -> Result<Link, Violation> {
        let node = process.node;
        let (end, state) = (node.log.end(), node.replication.state());
        let (id, has_position) = (state.history.id(), state.has_position);
        drop(state);
        let is_known = self.names.contains(&id);
        if end > self.start && !(is_known && has_position) {
            return Err(format!("at {end} the replica asks for the history {id}, which there is not"));
        }
        let is_place = end == self.start || self.frames.iter().any(|frame| frame.end == end);
        if !is_place {
            return Err(format!("the replica asks for {end}, which is within a frame"));
        }
        let (db, expected) = (node.log.stream_database(), self.db_at(end));
        if end > self.start && db != expected {
            return Err(format!("at {end} the database {db} is selected, and {expected} in the stream"));
        }
        rename(process, self.name());
        let generation = Generation(node.replication.generation());
        let applier = Applier::of_link(node, generation, Db(expected as u16));
        Ok(Link { stream: Stream::default(), applier })
    }

    /// A failover among others: the history continues under another name.
    fn renew(&mut self, process: &Process) {
        self.names.push(Primary::next_name());
        rename(process, self.name());
    }
}

/// Renames the history of the node, as the link does at +CONTINUE.
fn rename(process: &Process, id: ReplId) {
    let node = process.node;
    let mut held = Held::new(&node.keyspace);
    held.acquire(Want::All);
    let end = node.log.end();
    let mut state = node.replication.state();
    let is_other = state.history.id() != id;
    state.history.rename(id, end);
    (state.has_position, state.is_synced) = (true, true);
    drop(state);
    if is_other {
        role::end_file(node);
    }
    node.log.close_gap();
}

impl Link {
    fn send(&mut self, bytes: &[u8]) -> Result<(), Violation> {
        const BYTES_MAX: usize = 1 << 30;
        self.stream.buffer().extend_from_slice(bytes);
        let mut seen = Seen::default();
        while self
            .stream
            .apply_batch(&mut self.applier, BYTES_MAX, &mut seen)
            .map_err(|why| why.to_string())?
        {}
        Ok(())
    }
}

fn parameters(prng: &mut Prng) -> Vec<String> {
    let policy = *prng.pick(&["always", "always", "everysec"]);
    let preamble = if prng.one_in(2) { "no" } else { "yes" };
    let prepared = if prng.one_in(2) { "32kb" } else { "0" };
    let text = format!(
        "--replicaof 127.0.0.1 1 --propagation-error-behavior ignore --appendonly yes \
         --appendfsync {policy} --aof-use-rdb-preamble {preamble} --aof-prepare-bytes {prepared} \
         --auto-aof-rewrite-min-size 4kb"
    );
    text.split(' ').map(String::from).collect()
}

/// Counts of the events in all runs.
#[derive(Default, Debug)]
struct Counts {
    frames: u64,
    crashes: u64,
    rewrites: u64,
    promotions: u64,
}

fn run_seed(seed: u64, counts: &mut Counts) -> Result<(), Violation> {
    let mut machine = Machine::new(seed);
    machine.starts_fail = false;
    let mut primary = Primary::new(LogOffset(0));
    for _ in 0..LIVES {
        let parameters = parameters(&mut machine.prng);
        let mut process = machine.start(&parameters)?;
        let mut link = primary.accept(&process)?;
        let plan = machine.plan_of_life();
        machine.disk.set_plan(plan);
        let is_promoted = machine.prng.one_in(5);
        for _ in 0..machine.prng.below(300) {
            step(&mut machine, &mut process, &mut primary, &mut link, counts)?;
            if !machine.is_alive() {
                break;
            }
        }
        if is_promoted && machine.is_alive() {
            promote(&mut machine, &mut process)?;
            counts.promotions += 1;
        }
        let was_promoted = process.node.replication.upstream().is_none();
        machine.end(process)?;
        if was_promoted {
            // A node that has followed it meanwhile is the primary now, of all that it has kept.
            let process = machine.start(&parameters)?;
            primary = Primary::new(process.node.log.end());
            machine.end(process)?;
        }
    }
    clock::set(None);
    (counts.crashes, counts.rewrites) =
        (counts.crashes + machine.counts.crashes, counts.rewrites + machine.counts.rewrites);
    Ok(())
}

fn step(
    machine: &mut Machine,
    process: &mut Process,
    primary: &mut Primary,
    link: &mut Link,
    counts: &mut Counts,
) -> Result<(), Violation> {
    machine.disturb();
    match machine.prng.below(40) {
        0..20 => {
            let at = process.node.log.end();
            // The link waits while the writer has no room, and while all is held for long.
            if process.node.log.has_room() {
                link.send(primary.frame_at(at, &mut machine.prng))?;
                counts.frames += 1;
                machine.note(process, "the stream")?;
            }
        }
        20..35 => _ = routines::simulated::step_one(|_| true),
        35 => process.tick(&mut machine.prng),
        36 if machine.prng.one_in(4) => _ = machine.run(process, 0, &[b"BGREWRITEAOF".to_vec()])?,
        37 if machine.prng.one_in(8) => primary.renew(process),
        _ => clock::pass(Duration::from_millis(1 + machine.prng.below(40))),
    }
    machine.note_durable(process);
    machine.note_rewrites(process);
    Ok(())
}

/// REPLICAOF NO ONE, and some writes.
fn promote(machine: &mut Machine, process: &mut Process) -> Result<(), Violation> {
    let node = process.node;
    let mut held = Held::new(&node.keyspace);
    held.acquire(Want::All);
    role::promote(node, &mut held);
    drop(held);
    for _ in 0..machine.prng.below(30) {
        let words = command(&mut machine.prng);
        let words: Vec<Vec<u8>> = words.split(' ').map(|word| word.as_bytes().to_vec()).collect();
        machine.request_of(process, &words)?;
        routines::simulated::step_one(|_| true);
        machine.note_durable(process);
        if !machine.is_alive() {
            break;
        }
    }
    Ok(())
}

/// `SEEDS=a..b` for others than these.
#[test]
fn a_replica_goes_on_where_it_was() {
    log::set_level(if std::env::var_os("SIM_TRACE").is_some() { Level::Notice } else { Level::Nothing });
    let range = std::env::var("SEEDS").unwrap_or_else(|_| "0..60".to_string());
    let (from, to) = range.split_once("..").expect("SEEDS=a..b");
    let number = |text: &str| text.parse::<u64>().expect("a number");
    let (mut counts, mut violations) = (Counts::default(), Vec::new());
    for seed in number(from)..number(to) {
        match run_seed(seed, &mut counts) {
            Ok(()) => {}
            Err(why) if why == UNREADABLE => {}
            Err(why) => violations.push(format!("seed {seed}: {why}")),
        }
    }
    println!("{counts:?}");
    let shown = violations.iter().take(20).cloned().collect::<Vec<_>>().join("\n");
    assert!(violations.is_empty(), "{} violations:\n{shown}", violations.len());
    assert!(counts.frames > 0 && counts.crashes > 0);
}
