//! Control: what is done to the server and to its clients, one thing after the other, each with its
//! allowance.
//!
//! Not a lane of the plan: there is one in every run, with whatever disturbances were drawn. It ends by
//! putting everything back: no pause, active expiry on, every parameter as it was.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use isotherm_probe::info_field;
use isotherm_resp::reply_parse::Value;
use rustix::process::{Pid, Signal, kill_process};

use super::{Lane, line};
use crate::allowance::Cover;
use crate::connection::{Connection, Lost};
use crate::kinds::Disturbance;
use crate::plan::{DATA_BYTES_MAX, DB_WIDE, DBS_ANY};
use crate::record::brief;
use crate::world::Member;

/// Between two disturbances, on average: with four of them drawn each comes once a second.
const PAUSE_MS: u64 = 250;
/// Time that commands which walk through all data may take, for each MB of data. It is several times what
/// they take here, in a build with assertions, with more threads than cores.
const RELOAD_MS_PER_MB: u64 = 20;
/// Time that DEBUG CHECK-INVARIANTS may take for each MB, in which it compares every entry with other records
/// of it.
const INVARIANTS_MS_PER_MB: u64 = 100;
/// And whatever there is.
const WALK_MS: u64 = 50;
const EVERYTHING: Cover = Cover::EVERYTHING;

/// Parameters with the values that are tried; the first is what is put back.
const SETTINGS: [(&str, &[&str]); 18] = [
    ("maxmemory", &["256mb", "30mb", "60mb", "5mb"]),
    ("maxmemory-clients", &["0", "20mb", "5mb", "50%"]),
    ("maxmemory-samples", &["5", "1", "64"]),
    ("maxmemory-eviction-tenacity", &["10", "0", "100"]),
    ("tracking-table-max-keys", &["1000000", "1", "30"]),
    ("hz", &["10", "1", "100", "500"]),
    ("dynamic-hz", &["yes", "no"]),
    ("active-expire-effort", &["1", "5", "10"]),
    ("activedefrag", &["no", "yes"]),
    ("compaction-cpu-percent", &["5", "1", "50"]),
    ("client-query-buffer-limit", &["1gb", "4mb"]),
    ("slowlog-log-slower-than", &["10000", "0", "-1"]),
    ("slowlog-max-len", &["128", "1", "10000"]),
    ("latency-monitor-threshold", &["0", "1"]),
    ("latency-tracking", &["yes", "no"]),
    ("notify-keyspace-events", &["", "KEA", "Kx"]),
    ("hash-max-listpack-entries", &["512", "4"]),
    ("lazyfree-lazy-user-del", &["yes", "no"]),
];
const POLICIES_VOLATILE: &[&str] =
    &["noeviction", "volatile-lru", "volatile-lfu", "volatile-ttl", "volatile-random"];
const POLICIES_ANY: &[&str] = &["noeviction", "allkeys-lru", "allkeys-lfu", "allkeys-random", "volatile-ttl"];

/// Long reports that many clients may ask for.
const REPORTS: [&str; 16] = [
    "INFO everything",
    "INFO memorymap",
    "MEMORY MAP",
    "MEMORY STATS",
    "MEMORY DOCTOR",
    "MEMORY MALLOC-STATS",
    "MEMORY PREFIXES DEPTH 3 TOP 100",
    "MEMORY TOP 128",
    "CLIENT LIST",
    "CONFIG GET *",
    "COMMAND DOCS",
    "SLOWLOG GET -1",
    "LATENCY DOCTOR",
    "LATENCY HISTOGRAM",
    "CLUSTER SLOT-STATS SLOTSRANGE 0 16383",
    "PUBSUB CHANNELS",
];

pub struct Control {
    done: Mutex<Vec<(Disturbance, u64)>>,
    /// Longest command that walked through all data: its milliseconds, and the megabytes in use.
    longest_walk: Mutex<(u64, u64)>,
}

impl Control {
    pub fn new() -> Control {
        Control { done: Mutex::default(), longest_walk: Mutex::default() }
    }

    fn disturb(&self, member: &mut Member, connection: &mut Connection) -> Result<(), Lost> {
        let drawn = member.world.plan.disturbances.clone();
        let what = *member.prng.pick(&drawn);
        match what {
            Disturbance::Sleep => sleep(member, connection)?,
            Disturbance::Stop => stop(member),
            Disturbance::HangUp => signal(member, Signal::HUP),
            Disturbance::Pause => pause(member, connection)?,
            Disturbance::Kill => kill(member, connection)?,
            Disturbance::KillAll if member.prng.one_in(4) => {
                connection.call(&line("CLIENT KILL TYPE normal SKIPME yes"))?;
            }
            Disturbance::KillAll => drop(connection.call(&line("CLIENT KILL TYPE pubsub"))?),
            Disturbance::Unblock => unblock(member, connection)?,
            Disturbance::Config => configure(member, connection)?,
            Disturbance::Swap => swap(member, connection)?,
            Disturbance::FlushAll => {
                let word = *member.prng.pick(&["FLUSHALL", "FLUSHALL ASYNC", "FLUSHALL SYNC"]);
                // It takes the tables out of sight and frees them in steps that hold up no command: no
                // allowance.
                let reply = connection.call(&line(word))?;
                look_at_error(member, reply);
            }
            Disturbance::Reload => self.walk(member, connection, "DEBUG RELOAD", RELOAD_MS_PER_MB)?,
            Disturbance::Invariants => {
                self.walk(member, connection, "DEBUG CHECK-INVARIANTS", INVARIANTS_MS_PER_MB)?;
            }
            Disturbance::NoExpiry => pause_expiry(member, connection)?,
            Disturbance::Reports => {
                for _ in 0..1 + member.below(4) {
                    let report = REPORTS[member.below(REPORTS.len())];
                    connection.call(&line(report))?;
                }
            }
        }
        member.note_done();
        let mut done = self.done.lock().expect("no thread panics with it");
        match done.iter_mut().find(|(other, _)| *other == what) {
            Some((_, count)) => *count += 1,
            None => done.push((what, 1)),
        }
        Ok(())
    }

    /// A command that walks through all data under the gate: it is allowed for as long as that may take.
    fn walk(
        &self,
        member: &mut Member,
        connection: &mut Connection,
        text: &str,
        ms_per_mb: u64,
    ) -> Result<(), Lost> {
        let used = match connection.call(&["INFO", "memory"])? {
            Value::Bulk(info) => {
                info_field(&info, "used_memory").and_then(|text| text.parse().ok()).unwrap_or(DATA_BYTES_MAX)
            }
            _ => DATA_BYTES_MAX,
        };
        let begun = Instant::now();
        let allowance = member.world.allowance.begin(EVERYTHING, walk_max(used, ms_per_mb));
        let reply = connection.call(&line(text));
        member.world.allowance.end(&allowance, Duration::ZERO);
        let took = (begun.elapsed().as_millis() as u64, used >> 20);
        let mut longest = self.longest_walk.lock().expect("no thread panics with it");
        *longest = took.max(*longest);
        drop(longest);
        look_at_error(member, reply?);
        Ok(())
    }

    fn put_back(&self, connection: &mut Connection) -> Result<(), Lost> {
        connection.call(&line("CLIENT UNPAUSE"))?;
        connection.call(&line("DEBUG SET-ACTIVE-EXPIRE 1"))?;
        for (name, values) in SETTINGS {
            connection.call(&["CONFIG", "SET", name, values[0]])?;
        }
        connection.call(&line("CONFIG SET maxmemory-policy noeviction"))?;
        Ok(())
    }
}

impl Lane for Control {
    fn prepare(&self, connection: &mut Connection) -> Result<(), Lost> {
        self.put_back(connection)
    }

    fn work(&self, member: &mut Member) -> Result<(), Lost> {
        let mut connection = member.connect()?;
        while member.is_busy() && !member.world.plan.disturbances.is_empty() {
            self.disturb(member, &mut connection)?;
            let pause = member.prng.below(2 * PAUSE_MS);
            member.sleep(Duration::from_millis(pause));
        }
        self.put_back(&mut connection)
    }

    fn summary(&self) -> String {
        let done = self.done.lock().expect("no thread panics with it");
        let mut parts: Vec<String> = done.iter().map(|(what, count)| format!("{what:?} {count}")).collect();
        let (ms, mb) = *self.longest_walk.lock().expect("no thread panics with it");
        if ms > 0 {
            parts.push(format!("longest walk {ms} ms with {mb} MB"));
        }
        parts.join(", ")
    }
}

fn sleep(member: &mut Member, connection: &mut Connection) -> Result<(), Lost> {
    let ms = 20 + member.prng.below(400);
    // It waits for the gate, sleeps, and is answered.
    let allowance = member.world.allowance.begin(EVERYTHING, Duration::from_millis(ms + 100));
    let reply = connection.call(&line(&format!("DEBUG SLEEP 0.{ms:03}")));
    member.world.allowance.end(&allowance, Duration::ZERO);
    reply.map(drop)
}

fn stop(member: &mut Member) {
    let time = Duration::from_millis(20 + member.prng.below(400));
    let allowance = member.world.allowance.begin(EVERYTHING, 2 * time);
    signal(member, Signal::STOP);
    std::thread::sleep(time);
    signal(member, Signal::CONT);
    member.world.allowance.end(&allowance, Duration::ZERO);
}

fn signal(member: &Member, signal: Signal) {
    member.record.note(member.world.begun.elapsed(), format!("signal {signal:?}"));
    if let Some(process) = Pid::from_raw(member.world.process as i32)
        && kill_process(process, signal).is_err()
    {
        member.fault(format!("the process does not take signal {signal:?}: it has ended"));
    }
}

/// Once for all clients, or for writers: then again and again while they wait, as a failover does.
fn pause(member: &mut Member, connection: &mut Connection) -> Result<(), Lost> {
    let mut allowances = Vec::new();
    let mut send = |connection: &mut Connection, cover: Cover, ms: u64, word: &str| {
        let allowance = member.world.allowance.begin(cover, Duration::from_millis(ms + 100));
        let reply = connection.call(&line(&format!("CLIENT PAUSE {ms} {word}")));
        allowances.push(allowance);
        reply.map(drop)
    };
    if member.prng.one_in(3) {
        return send(connection, EVERYTHING, 20 + member.prng.below(400), "ALL");
    }
    let (ms, writes) = (*member.prng.pick(&[200, 500, 1000]), Cover::WRITES.or(Cover::EXPIRY));
    let until = Instant::now() + Duration::from_millis(1000 + member.prng.below(2500));
    let every = Duration::from_millis(*member.prng.pick(&[20, 100, 250]));
    while member.world.phase() == crate::world::Phase::Busy && Instant::now() < until {
        send(connection, writes, ms, "WRITE")?;
        std::thread::sleep(every);
    }
    if member.prng.one_in(2) {
        connection.call(&line("CLIENT UNPAUSE"))?;
        allowances.iter().for_each(|allowance| member.world.allowance.end(allowance, Duration::ZERO));
    }
    Ok(())
}

/// Some of the connections that expect it, by their id.
fn kill(member: &mut Member, connection: &mut Connection) -> Result<(), Lost> {
    let killable: Vec<u64> = member.world.exposed().killable.iter().copied().collect();
    if killable.is_empty() {
        return Ok(());
    }
    for _ in 0..1 + member.below(4) {
        let id = *member.prng.pick(&killable);
        connection.call(&line(&format!("CLIENT KILL ID {id}")))?;
    }
    Ok(())
}

fn unblock(member: &mut Member, connection: &mut Connection) -> Result<(), Lost> {
    let waiting: Vec<u64> = member.world.exposed().unblockable.iter().copied().collect();
    if waiting.is_empty() {
        return Ok(());
    }
    for _ in 0..1 + member.below(10) {
        let id = *member.prng.pick(&waiting);
        let how = *member.prng.pick(&["", "TIMEOUT", "ERROR"]);
        connection.call(&line(&format!("CLIENT UNBLOCK {id} {how}")))?;
    }
    Ok(())
}

fn configure(member: &mut Member, connection: &mut Connection) -> Result<(), Lost> {
    let policies = if member.world.plan.evicts_any { POLICIES_ANY } else { POLICIES_VOLATILE };
    let policy = *member.prng.pick(policies);
    connection.call(&["CONFIG", "SET", "maxmemory-policy", policy])?;
    for _ in 0..1 + member.below(3) {
        let (name, values) = SETTINGS[member.below(SETTINGS.len())];
        let value = *member.prng.pick(values);
        if let Value::Error(text) = connection.call(&["CONFIG", "SET", name, value])? {
            member.record.note(member.world.begun.elapsed(), String::from_utf8_lossy(&text).into_owned());
        }
        // A tight limit for a moment only, or nothing else would run.
        if name == "maxmemory" {
            member.sleep(Duration::from_millis(300));
            connection.call(&["CONFIG", "SET", name, values[0]])?;
        }
    }
    Ok(())
}

fn swap(member: &mut Member, connection: &mut Connection) -> Result<(), Lost> {
    let any = |member: &mut Member| DBS_ANY.start + member.below(DBS_ANY.len());
    let (one, two) = (any(member), any(member));
    match member.below(4) {
        0 => connection.call(&line(&format!("SWAPDB {one} {two}")))?,
        1 => connection.call(&line(&format!("SWAPDB {DB_WIDE} {two}")))?,
        2 => {
            connection.send_all(
                &[format!("SELECT {one}"), "FLUSHDB".into(), "SELECT 0".into()].map(|text| line(&text)),
            )?;
            connection.replies(3)?.pop().expect("three were read")
        }
        _ => {
            let key = member.below(40);
            connection.call(&line(&format!("COPY q:list:{key} a:{key} DB {one} REPLACE")))?;
            connection.call(&line(&format!("COPY x:{key} b:{key} DB {two} REPLACE")))?
        }
    };
    Ok(())
}

/// A server from before this word may refuse it, and a limit may.
fn look_at_error(member: &Member, reply: Value) {
    if let Value::Error(text) = reply
        && !text.starts_with(b"ERR unknown subcommand")
        // DEBUG RELOAD, while another client's BGSAVE or BGREWRITEAOF is under way.
        && text != b"ERR Background save already in progress"
        && !super::queues::is_refusal(&text)
    {
        member.fault(brief(&Value::Error(text)));
    }
}

/// A command that walks through so much data may hold up all others for this long.
fn walk_max(used_bytes: u64, ms_per_mb: u64) -> Duration {
    Duration::from_millis(WALK_MS + (used_bytes >> 20) * ms_per_mb)
}

fn pause_expiry(member: &mut Member, connection: &mut Connection) -> Result<(), Lost> {
    let ms = 100 + member.prng.below(900);
    let allowance = member.world.allowance.begin(Cover::EXPIRY, Duration::from_millis(ms + 200));
    connection.call(&line("DEBUG SET-ACTIVE-EXPIRE 0"))?;
    std::thread::sleep(Duration::from_millis(ms));
    connection.call(&line("DEBUG SET-ACTIVE-EXPIRE 1"))?;
    member.world.allowance.end(&allowance, Duration::ZERO);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_walk_is_allowed_for_by_the_size_of_the_data() {
        assert_eq!(walk_max(0, RELOAD_MS_PER_MB).as_millis(), 50);
        assert_eq!(walk_max(20 << 20, RELOAD_MS_PER_MB).as_millis(), 450);
        assert!(walk_max(20 << 20, INVARIANTS_MS_PER_MB) > walk_max(20 << 20, RELOAD_MS_PER_MB));
    }
}
