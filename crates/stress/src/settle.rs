//! The state after all clients have left: the server is as it was. No client is connected, waits, tracks or
//! listens; memory is that of the data, and without data that of the start; no thread is at work; every
//! invariant holds.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use isotherm_probe::{Server, Thread, info_field};
use isotherm_resp::reply_parse::Value;

use crate::Fallible;
use crate::connection::{Connection, Lost};
use crate::lanes::line;
use crate::record;
use crate::world::World;

/// Connections that were closed without a word are noticed, and what removed collections had is freed, within
/// this.
const SETTLE_MAX: Duration = Duration::from_secs(10);
/// Memory that stays after a busy time: lists that have grown, and room that is kept for the next large
/// value. It does not grow with the length of a run.
const LEFT_BYTES_MAX: u64 = 12 << 20;
/// Memory that stays for each worker: the room of a large reply (1 MB), and histograms of all commands that
/// it has run (2 MB).
const LEFT_BYTES_PER_WORKER: u64 = 3 << 20;
/// Part of a core that each idle thread may use, for the rounds of the cron.
const IDLE_PERCENT_MAX: u64 = 10;

/// Fields of INFO about clients, with their values when only one client is connected.
const ALONE: [(&str, u64); 8] = [
    ("connected_clients", 1),
    ("blocked_clients", 0),
    ("tracking_clients", 0),
    ("pubsub_clients", 0),
    ("watching_clients", 0),
    ("clients_in_timeout_table", 0),
    ("pubsub_channels", 0),
    ("pubsub_patterns", 0),
];

/// Asks, with `connection` the only one that is left. Faults go to the world.
pub fn look(
    world: &World,
    server: &Server,
    connection: &mut Connection,
    used_at_start: u64,
) -> Result<(), Lost> {
    invariants(world, connection)?;
    for (name, expected) in ALONE {
        settle(
            world,
            connection,
            name,
            |value| value == expected,
            &format!("{expected} with one client left"),
        )?;
    }
    // Records about commands are no data; nor are they wanted any more.
    for request in
        ["FLUSHALL", "SLOWLOG RESET", "LATENCY RESET", "HOTKEYS RESET", "CONFIG RESETSTAT", "MEMORY PURGE"]
    {
        connection.call(&line(request))?;
    }
    let most = used_at_start + LEFT_BYTES_MAX + world.plan.workers as u64 * LEFT_BYTES_PER_WORKER;
    let expected = format!("at most {most} without data, {used_at_start} at the start");
    settle(world, connection, "used_memory", |value| value <= most, &expected)?;
    invariants(world, connection)?;
    if let Err(why) = idle(world, server) {
        world.fault("settle", why);
    }
    Ok(())
}

fn settle(
    world: &World,
    connection: &mut Connection,
    name: &str,
    is_right: impl Fn(u64) -> bool,
    expected: &str,
) -> Result<(), Lost> {
    let begun = Instant::now();
    loop {
        let Value::Bulk(info) = connection.call(&["INFO", "everything"])? else {
            world.fault("settle", "INFO is no text");
            return Ok(());
        };
        // A server of another version may not have this field.
        let Some(value) = info_field(&info, name).and_then(|text| text.parse().ok()) else {
            println!("  skipped: INFO has no number {name}");
            return Ok(());
        };
        if is_right(value) {
            return Ok(());
        }
        if begun.elapsed() > SETTLE_MAX {
            world.fault("settle", format!("{name} is {value}, expected {expected}"));
            for request in ["CLIENT LIST", "MEMORY MAP", "MEMORY STATS"] {
                let reply = connection.call(&line(request))?;
                world.keep(&format!("{name}, {request}"), record::whole(&reply));
            }
            return Ok(());
        }
        thread::sleep(Duration::from_millis(100));
    }
}

fn invariants(world: &World, connection: &mut Connection) -> Result<(), Lost> {
    match connection.call(&line("DEBUG CHECK-INVARIANTS"))? {
        Value::Error(text) if text.starts_with(b"ERR unknown subcommand") => {
            println!("skipped: check_invariants: the server has no DEBUG CHECK-INVARIANTS");
        }
        Value::Error(text) => world.fault("settle", String::from_utf8_lossy(&text)),
        _ => {}
    }
    Ok(())
}

/// Checks that each thread is idle in one of several seconds: compaction may need some of them to finish.
fn idle(world: &World, server: &Server) -> Fallible {
    let begun = Instant::now();
    let mut before = server.threads()?;
    let mut busy = Busy::default();
    while begun.elapsed() < SETTLE_MAX {
        let second = Instant::now();
        thread::sleep(Duration::from_secs(1));
        let now = server.threads()?;
        busy.note(&before, &now, second.elapsed());
        if busy.threads().is_empty() {
            return Ok(());
        }
        before = now;
    }
    for (name, id, percent) in busy.threads() {
        world.late("settle", format!("with nothing to do thread {name} ({id}) takes {percent} % of a core"));
    }
    Ok(())
}

/// The least that each thread took of a core in any of the times that were looked at.
#[derive(Default)]
struct Busy {
    least: BTreeMap<u64, (String, u64)>,
}

impl Busy {
    fn note(&mut self, before: &[Thread], now: &[Thread], time: Duration) {
        let mut least = BTreeMap::new();
        // A thread that has ended is idle; one that has just begun is looked at the next time.
        for thread in now {
            let Some(earlier) = before.iter().find(|earlier| earlier.id == thread.id) else { continue };
            let percent = u128::from(thread.cpu_ns - earlier.cpu_ns) * 100 / time.as_nanos().max(1);
            let known = self.least.get(&thread.id).map_or(u64::MAX, |(_, percent)| *percent);
            least.insert(thread.id, (thread.name.clone(), known.min(percent as u64)));
        }
        self.least = least;
    }

    /// Returns the threads that were never idle.
    fn threads(&self) -> Vec<(&str, u64, u64)> {
        let busy = self.least.iter().filter(|(_, (_, percent))| *percent > IDLE_PERCENT_MAX);
        busy.map(|(id, (name, percent))| (name.as_str(), *id, *percent)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_is_never_idle_is_named() {
        let threads = |cron_ms: u64, worker_ms: u64| {
            [(7, "cron", cron_ms), (8, "worker", worker_ms)].map(|(id, name, ms)| Thread {
                id,
                name: name.to_string(),
                cpu_ns: ms * 1_000_000,
                waited_ns: 0,
            })
        };
        let mut busy = Busy::default();
        let second = Duration::from_secs(1);
        busy.note(&threads(0, 0), &threads(500, 900), second);
        assert_eq!(busy.threads(), [("cron", 7, 50), ("worker", 8, 90)]);
        busy.note(&threads(500, 900), &threads(510, 1700), second);
        assert_eq!(busy.threads(), [("worker", 8, 80)]);
        busy.note(&threads(510, 1700), &threads(1400, 1700)[..1], second);
        assert!(busy.threads().is_empty(), "one was idle, and one has ended");
    }
}
