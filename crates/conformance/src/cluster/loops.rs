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
    /// Number of slots that one command moves.
    pub slots: usize,
    /// Time for each of the clusters.
    pub seconds: u64,
    pub clusters: &'static [Cluster],
    /// Arguments for Isotherm nodes.
    pub more: &'static [&'static str],
}

/// The name, and the nodes that stay.
pub type Cluster = (&'static str, &'static [Make]);

/// Clusters that have Isotherm nodes. `VALKEY` has nodes of Valkey alone, and shows how libraries behave
/// there.
pub const CLUSTERS: &[Cluster] = &[
    ("3 Isotherm", &[Make::Isotherm, Make::Isotherm, Make::Isotherm]),
    ("2 Isotherm, 2 Valkey", &[Make::Isotherm, Make::Valkey, Make::Isotherm, Make::Valkey]),
];
pub const VALKEY: &[Cluster] = &[("3 Valkey", &[Make::Valkey, Make::Valkey, Make::Valkey])];

const INSTALL_TIME: Duration = Duration::from_secs(240);
/// Number of keys of each writer.
const KEYS: usize = 400;
const RELOAD_SECONDS: usize = 3;
/// Operations a second.
const PACE: usize = 200;

/// True if nothing was amiss.
pub fn run(places: &Places, options: &Options) -> Fallible<bool> {
    let mut is_well = true;
    for (name, makes) in options.clusters {
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
    let mut world = World::create(places, makes, options.more)?;
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
        let line = check(&world, &mut writers, done + 1).map_err(|why| format!("loop {done}: {why}"))?;
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

/// Returns the slots that valkey-cli moves, which are the lowest of each node, and as many slots that stay
/// where they are.
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

/// Runs the commands of one loop. The nodes that take part differ from loop to loop.
fn turn(world: &mut World<'_>, number: usize, slots: usize) -> Fallible {
    let count = world.nodes.len();
    let (from, to) = (number % count, (number + 1) % count);
    world.reshard(from, to, slots)?;
    world.rebalance()?;
    // Of a make that is there, in turns.
    let first = world.nodes[0].make;
    let other = world.nodes.iter().map(|node| node.make).find(|make| *make != first).unwrap_or(first);
    world.add_node(if number.is_multiple_of(2) { first } else { other })?;
    world.reshard(from, count, slots)?;
    world.reshard(count, from, world.slots_of(count)?)?;
    world.del_node()
}

/// All writers find what they have written, and nothing is there but that. `renewed_max`: new clients of one
/// writer until now.
fn check(world: &World<'_>, writers: &mut [Writer], renewed_max: usize) -> Fallible<String> {
    writers.iter_mut().try_for_each(Writer::begin_check)?;
    let mut line = String::new();
    let mut keys = 0;
    for writer in writers.iter() {
        let checked = writer.checked()?;
        keys += checked.keys;
        let (name, renewed) = (writer.name, checked.renewed);
        line += &format!("{name} {} operations, {} errors", checked.operations, checked.errors);
        if renewed > 0 {
            line += &format!(", {renewed} new clients");
        }
        line += "; ";
        if renewed > renewed_max as u64 {
            return Err(format!("{name} loses its way {renewed} times"));
        }
    }
    let there = world.keys()?;
    if there != keys {
        return Err(format!("the writers have {keys} keys, and the nodes {there}"));
    }
    writers.iter_mut().try_for_each(Writer::go_on)?;
    Ok(format!("{line}{keys} keys"))
}
