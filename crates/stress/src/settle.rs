//! When all have left: the server is as it was. Nobody is connected, waits, tracks or listens; memory is that of the data,
//! and without data that of the start; no thread is at work; every invariant holds.

use std::thread;
use std::time::{Duration, Instant};

use isotherm_probe::Server;
use isotherm_resp::reply_parse::Value;

use crate::Fallible;
use crate::connection::{Connection, Lost};
use crate::lanes::{field, line};
use crate::record;
use crate::world::World;

/// Connections that were closed without a word are noticed, and what removed collections had is freed, within this.
const SETTLE_MAX: Duration = Duration::from_secs(10);
/// What stays of a busy time: lists that have grown, and room that is kept for the next large thing. It does not grow with the
/// time that a run takes.
const LEFT_BYTES_MAX: u64 = 12 << 20;
/// Of each worker: the room of a large reply (1 MB), and histograms of all commands that it has run (2 MB).
const LEFT_BYTES_PER_WORKER: u64 = 3 << 20;
/// Of one core: the cron's rounds, compaction that comes to its end, and our questions.
const IDLE_PERCENT_MAX: u64 = 15;

/// What INFO says of clients, when there is but one.
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
    // What is kept about commands is no data; nor is it wanted any more.
    for request in
        ["FLUSHALL", "SLOWLOG RESET", "LATENCY RESET", "HOTKEYS RESET", "CONFIG RESETSTAT", "MEMORY PURGE"]
    {
        connection.call(&line(request))?;
    }
    let most = used_at_start + LEFT_BYTES_MAX + world.plan.workers as u64 * LEFT_BYTES_PER_WORKER;
    let expected = format!("at most {most} without data, {used_at_start} at the start");
    settle(world, connection, "used_memory", |value| value <= most, &expected)?;
    invariants(world, connection)?;
    idle(world, server);
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
        let Value::Bulk(info) = connection.call(&["INFO", "everything"])? else { return Ok(()) };
        // A server of another version may not have this field.
        let Some(value) = field(&info, name) else { return Ok(()) };
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

/// In one of several seconds, nobody is at work: compaction may need some to come to its end.
fn idle(world: &World, server: &Server) {
    let mut least = u64::MAX;
    let begun = Instant::now();
    while begun.elapsed() < SETTLE_MAX {
        match busy_percent(server) {
            Ok(percent) => least = least.min(percent),
            Err(why) => return world.fault("settle", why),
        }
        if least <= IDLE_PERCENT_MAX {
            return;
        }
    }
    world.late("settle", format!("with nothing to do the server takes {least} % of a core"));
}

fn busy_percent(server: &Server) -> Fallible<u64> {
    const SECOND: Duration = Duration::from_secs(1);
    let before = server.cpu_ns()?;
    thread::sleep(SECOND);
    Ok((server.cpu_ns()? - before) * 100 / SECOND.as_nanos() as u64)
}
