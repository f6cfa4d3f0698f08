//! The cost that one replica adds to a pipelined SET: CPU time of the primary's process.

use super::pair::Pair;
use crate::durability::{Best, Figures, ratio};
use crate::load::{Load, Until, fill};
use crate::options::Options;
use crate::process::{SIDES, Side};
use crate::report::Table;
use crate::shape::{Order, Shape, Verb};
use crate::{Fallible, progress};

const KEYS: u64 = 1_000_000;
const SETS: u64 = 4_000_000;
const PIPELINE: u64 = 32;

pub fn measure(options: &Options, table: &mut Table) -> Fallible {
    let [mut alone, mut fed, mut added] = <[Figures; 3]>::default();
    for round in 1..=options.rounds {
        for side in SIDES {
            let (alone_us, fed_us) = costs(side, round, options)?;
            progress(&format!(
                "feed round {round} {}: {alone_us:.3} us alone, {fed_us:.3} us with a replica",
                side.name()
            ));
            alone.add(side, alone_us);
            fed.add(side, fed_us);
            added.add(side, fed_us / alone_us);
        }
    }
    let show = |us: f64| format!("{us:.3} us");
    alone.row(table, "CPU of a pipelined SET (32), no replica", Best::Least, show, "-");
    fed.row(table, "with one replica", Best::Least, show, "-");
    added.row(table, "with one over none", Best::Least, ratio, "<= 1.25 x");
    Ok(())
}

/// Returns the CPU time of a SET in microseconds, without a replica and with one, in the same process.
fn costs(side: Side, round: usize, options: &Options) -> Fallible<(f64, f64)> {
    let (keys, sets) = (options.scaled(KEYS), options.scaled(SETS));
    let pair = Pair::start(side, side, options)?;
    fill(&pair.primary, &mut Shape::new(Verb::Set, keys), keys, "keys")?;
    let cost = |seed: u64| {
        let mut shape = Shape::new(Verb::Set, keys).order(Order::Uniform).seed(seed);
        let before_ns = pair.primary.cpu_ns()?;
        let ran = Load::fifty(pair.primary.port, PIPELINE).run(&mut shape, Until::Commands(sets))?;
        Fallible::Ok((pair.primary.cpu_ns()? - before_ns) as f64 / 1e3 / ran.commands as f64)
    };
    let alone_us = cost(round as u64)?;
    pair.join()?;
    let fed_us = cost(round as u64)?;
    pair.settle()?;
    Ok((alone_us, fed_us))
}
