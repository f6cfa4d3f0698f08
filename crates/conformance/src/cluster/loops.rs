//! Loops of everything that moves slots, under the load of writers.

use std::process::Command;
use std::time::{Duration, Instant};

use super::Places;
use super::world::{Make, World};
use super::writer::{Load, Writer};
use crate::Fallible;
use crate::clients::{Clock, Places as ClientPlaces, writers};

pub struct Options {
    pub loops: usize,
    /// That one command moves.
    pub slots: usize,
    /// For each of the clusters.
    pub seconds: u64,
    /// Only the one of Isotherm nodes.
    pub is_quick: bool,
}

const INSTALL_TIME: Duration = Duration::from_secs(240);
/// Of each writer.
const KEYS: usize = 400;
const RELOAD_SECONDS: usize = 3;
/// Operations a second.
const PACE: usize = 200;

/// True if nothing was amiss.
pub fn run(places: &Places, options: &Options) -> Fallible<bool> {
    use Make::{Isotherm, Valkey};
    let clusters: [(&str, &[Make]); 2] = [
        ("3 Isotherm", &[Isotherm, Isotherm, Isotherm]),
        ("2 Isotherm, 2 Valkey", &[Isotherm, Valkey, Isotherm, Valkey]),
    ];
    let mut is_well = true;
    for (name, makes) in &clusters[..if options.is_quick { 1 } else { 2 }] {
        match run_one(name, makes, places, options) {
            Ok(report) => println!("{name}: ok: {report}"),
            Err(why) => {
                println!("{name}: FAILED: {why}");
                is_well = false;
            }
        }
    }
    Ok(is_well)
}

fn run_one(name: &str, makes: &[Make], places: &Places, options: &Options) -> Fallible<String> {
    let mut world = World::create(places, makes, &[])?;
    let port = world.nodes[0].port();
    let slots = busy_slots(makes.len(), options.slots);
    let load = Load { keys: KEYS, pace: PACE, slots, reload_seconds: RELOAD_SECONDS };
    let start = |(name, command)| Writer::start(name, command, port, &load);
    let mut writers = libraries(places)?.into_iter().map(start).collect::<Fallible<Vec<Writer>>>()?;
    let ends = Instant::now() + Duration::from_secs(options.seconds);
    let (mut done, mut moved) = (0, 0);
    while done < options.loops && Instant::now() < ends {
        let begun = Instant::now();
        turn(&mut world, done, options.slots).map_err(|why| format!("loop {done}: {why}"))?;
        let line = check(&world, &mut writers).map_err(|why| format!("loop {done}: {why}"))?;
        done += 1;
        moved += 4 * options.slots;
        println!("{name}: loop {done}, {:.0} s: {line}", begun.elapsed().as_secs_f64());
    }
    let words: Vec<&str> = writers.iter().map(|writer| writer.name).collect();
    let late = if done < options.loops {
        format!(" (of {}: the time was over)", options.loops)
    } else {
        String::new()
    };
    Ok(format!("{done} loops{late}, some {moved} slots moved, under {}", words.join(", ")))
}

/// The libraries that can be installed, and what runs the writer of each.
pub fn libraries(places: &Places) -> Fallible<Vec<(&'static str, Command)>> {
    let at = ClientPlaces { server: places.server.clone(), bin: None, folder: places.folder.clone() };
    let mut found = Vec::new();
    for (name, command) in writers(&at, Clock::total(INSTALL_TIME)) {
        match command {
            Ok(command) => found.push((name, command)),
            Err(why) => println!("skipped: {name}: {why}"),
        }
    }
    match found.is_empty() {
        true => Err("no library can be installed here".to_string()),
        false => Ok(found),
    }
}

/// Those that valkey-cli moves, which are the lowest of a node, and as many that stay where they are.
fn busy_slots(nodes: usize, moved: usize) -> Vec<u16> {
    let share = 16384 / nodes;
    let mut slots = Vec::new();
    for number in 0..nodes * moved {
        let (node, at) = (number % nodes, number / nodes);
        slots.push((node * share + at) as u16);
        slots.push((node * share + share / 2 + at) as u16);
    }
    // The kinds of keys take turns, by four: each kind is to come to each slot.
    slots.pop();
    slots
}

/// What is done in one loop. Which nodes take part differs from loop to loop.
fn turn(world: &mut World<'_>, number: usize, slots: usize) -> Fallible {
    let count = world.nodes.len();
    let (from, to) = (number % count, (number + 1) % count);
    world.reshard(from, to, slots)?;
    world.rebalance()?;
    let make = if world.nodes.iter().all(|node| node.make == Make::Isotherm) || number.is_multiple_of(2) {
        Make::Isotherm
    } else {
        Make::Valkey
    };
    world.add_node(make)?;
    world.reshard(from, count, slots)?;
    world.reshard(count, from, world.slots_of(count)?)?;
    world.del_node()
}

/// All writers find what they have written, and nothing is there but that.
fn check(world: &World<'_>, writers: &mut [Writer]) -> Fallible<String> {
    writers.iter_mut().try_for_each(Writer::begin_check)?;
    let mut line = String::new();
    let mut keys = 0;
    for writer in writers.iter() {
        let checked = writer.checked()?;
        keys += checked.keys;
        line += &format!("{} {} operations, {} errors; ", writer.name, checked.operations, checked.errors);
    }
    let there = world.keys()?;
    if there != keys {
        return Err(format!("the writers have {keys} keys, and the nodes {there}"));
    }
    writers.iter_mut().try_for_each(Writer::go_on)?;
    Ok(format!("{line}{keys} keys"))
}
