//! Loads of the topology by a client while 100 slots move in 10 seconds: with pushes (CLIENT
//! MAINT_NOTIFICATIONS), without, and from Valkey.

use std::time::{Duration, Instant};

use isotherm_resp::reply_parse::Value;

use super::Places;
use super::loops::libraries;
use super::world::{Make, World, text};
use super::writer::{Load, Writer};
use crate::Fallible;

const MOVES: usize = 100;
const TIME: Duration = Duration::from_secs(10);
const KEYS: usize = 800;
/// Not within the time that is measured.
const RELOAD_SECONDS: usize = 600;
/// Until a writer has filled enough slots.
const FILL_TIME: Duration = Duration::from_secs(60);
/// Time after the last move, for its consequences.
const QUIET: Duration = Duration::from_secs(2);
/// Commands that can load a topology.
const LOADS: [&str; 3] = ["cluster|slots", "cluster|shards", "cluster|nodes"];

/// Prints a line for each make. `pace` is the number of operations a second of each library, which works
/// alone, on slots that move.
pub fn run(places: &Places, pace: usize) -> Fallible<bool> {
    let pushes = ["--cluster-maint-notifications", "yes"];
    let cases: [(&str, Make, &[&str]); 3] = [
        ("Valkey", Make::Valkey, &[]),
        ("Isotherm", Make::Isotherm, &[]),
        ("Isotherm with pushes", Make::Isotherm, &pushes),
    ];
    for (name, make, more) in cases {
        let mut counts = Vec::new();
        // Some that move, some that stay; an odd number, so that each kind of key comes to each slot.
        let slots = (0..MOVES as u16 + 1).flat_map(|slot| [slot, slot + 6000, slot + 12_000]).collect();
        let load = Load { keys: KEYS, pace, slots, reload_seconds: RELOAD_SECONDS };
        for (library, command) in libraries(places)? {
            let world = World::create(places, &[make; 3], more)?;
            let mut writer = Writer::start(library, command, world.nodes[0].port(), &load)?;
            let slots = slots_with_keys(&world)?;
            let (before, begun) = (loads(&world)?, Instant::now());
            for (number, slot) in slots.iter().enumerate() {
                let due = begun + TIME * number as u32 / MOVES as u32;
                std::thread::sleep(due.saturating_duration_since(Instant::now()));
                move_slot(&world, slot)?;
            }
            let seconds = begun.elapsed().as_secs_f64();
            std::thread::sleep(QUIET);
            let count = loads(&world)? - before;
            writer.begin_check()?;
            let checked = writer.checked()?;
            counts.push(format!("{library} {count} ({} operations, {seconds:.1} s)", checked.operations));
        }
        println!("{name}: topologies loaded while {MOVES} slots move: {}", counts.join(", "));
    }
    Ok(true)
}

/// Returns how many topologies all nodes have sent since they were started.
fn loads(world: &World<'_>) -> Fallible<u64> {
    let mut sum = 0;
    for node in &world.nodes {
        let stats = text(node.call(&["INFO", "commandstats"])?);
        let calls = |name: &&str| {
            let start = format!("cmdstat_{name}:calls=");
            let line = stats.lines().find_map(|line| line.strip_prefix(&start))?;
            line.split(',').next()?.parse::<u64>().ok()
        };
        sum += LOADS.iter().filter_map(calls).sum::<u64>();
    }
    Ok(sum)
}

/// Slots of the first node that are written and read, as soon as there are enough.
fn slots_with_keys(world: &World<'_>) -> Fallible<Vec<String>> {
    let begun = Instant::now();
    loop {
        let slots = some_with_keys(world)?;
        if slots.len() == MOVES {
            return Ok(slots);
        }
        if begun.elapsed() > FILL_TIME {
            return Err(format!("only {} slots have keys", slots.len()));
        }
        std::thread::sleep(Duration::from_millis(500));
    }
}

fn some_with_keys(world: &World<'_>) -> Fallible<Vec<String>> {
    let mut client = world.nodes[0].client()?;
    let mut slots = Vec::new();
    for slot in 0..16384 {
        let slot = slot.to_string();
        let keys = client.call(&["CLUSTER", "COUNTKEYSINSLOT", &slot]).map_err(|why| why.to_string())?;
        if matches!(keys, Value::Integer(1..)) {
            slots.push(slot);
        }
        if slots.len() == MOVES {
            break;
        }
    }
    Ok(slots)
}

/// Moves a slot from the first node to the second one, with its keys, in the order of Valkey's tools.
fn move_slot(world: &World<'_>, slot: &str) -> Fallible {
    const KEYS_PER_CALL: &str = "100";
    let [from, to, other] = &world.nodes[..] else { return Err("three nodes are needed".into()) };
    to.call(&["CLUSTER", "SETSLOT", slot, "IMPORTING", &from.id])?;
    from.call(&["CLUSTER", "SETSLOT", slot, "MIGRATING", &to.id])?;
    let port = to.port().to_string();
    loop {
        let Value::Array(keys) = from.call(&["CLUSTER", "GETKEYSINSLOT", slot, KEYS_PER_CALL])? else {
            return Err("GETKEYSINSLOT has no array".into());
        };
        if keys.is_empty() {
            break;
        }
        let keys: Vec<String> = keys.into_iter().map(text).collect();
        let mut words = vec!["MIGRATE", "127.0.0.1", &port, "", "0", "5000", "REPLACE", "KEYS"];
        words.extend(keys.iter().map(String::as_str));
        from.call(&words)?;
    }
    for node in [to, from, other] {
        let reply = node.call(&["CLUSTER", "SETSLOT", slot, "NODE", &to.id])?;
        if !matches!(&reply, Value::Simple(ok) if ok == b"OK") {
            return Err(format!("SETSLOT {slot} NODE: {reply:?}"));
        }
    }
    Ok(())
}
