//! A replica that has to catch up: SETs that came together while its process was stopped, applied as fast as
//! it can.

use std::time::{Duration, Instant};

use super::pair::Pair;
use crate::durability::{Best, Figures, ratio, thousands};
use crate::load::{Load, Until, fill};
use crate::open_loop::OpenLoop;
use crate::options::Options;
use crate::process::{SIDES, Side};
use crate::report::Table;
use crate::shape::{Order, Shape, Verb};
use crate::{Fallible, progress};

const KEYS: u64 = 1_000_000;
const SETS: u64 = 5_000_000;
/// GETs that the replica serves meanwhile.
const GETS_PER_SECOND: f64 = 5_000.0;
const QUIET: Duration = Duration::from_secs(3);

struct Applied {
    per_second: f64,
    cpu_us: f64,
    late: f64,
}

pub fn measure(options: &Options, table: &mut Table) -> Fallible {
    let [mut speeds, mut costs, mut late] = <[Figures; 3]>::default();
    for round in 1..=options.rounds {
        for side in SIDES {
            let applied = apply(side, round, options)?;
            progress(&format!(
                "apply round {round} {}: {:.0} k/s, {:.3} us CPU, GET p99 {:.2} x",
                side.name(),
                applied.per_second / 1e3,
                applied.cpu_us,
                applied.late
            ));
            speeds.add(side, applied.per_second);
            costs.add(side, applied.cpu_us);
            late.add(side, applied.late);
        }
    }
    let what = format!("{} SETs that wait, applied by a replica", options.scaled(SETS));
    speeds.row(table, &what, Best::Most, thousands, ">= 1.5");
    costs.row(table, "CPU of each", Best::Least, |us| format!("{us:.3} us"), "<= 0.6");
    late.row(table, "p99 of GETs on it meanwhile, over idle", Best::Least, ratio, "<= 1.5 x");
    Ok(())
}

fn apply(side: Side, round: usize, options: &Options) -> Fallible<Applied> {
    let (keys, sets) = (options.scaled(KEYS), options.scaled(SETS));
    let pair = Pair::start(side, side, options)?;
    fill(&pair.primary, &mut Shape::new(Verb::Set, keys), keys, "keys")?;
    pair.join()?;
    let (per_second, cpu_us) = catch_up(&pair, keys, sets, round, || Ok(()))?;
    let gets = OpenLoop { port: pair.replica.port, connections: 5, per_second: GETS_PER_SECOND };
    let idle = gets.run_for(&mut Shape::new(Verb::Get, keys).order(Order::Uniform), QUIET)?;
    let mut busy = None;
    catch_up(&pair, keys, sets, round, || {
        let mut shape = Shape::new(Verb::Get, keys).order(Order::Uniform);
        busy = Some(gets.run(&mut shape, pair.watch()?)?);
        Ok(())
    })?;
    let busy = busy.expect("it has run");
    Ok(Applied { per_second, cpu_us, late: busy.quantile_us(0.99) / idle.quantile_us(0.99) })
}

/// Stops the replica, writes, lets it go on. Returns how many commands a second it applied, and the CPU time
/// of each in microseconds.
fn catch_up(
    pair: &Pair,
    keys: u64,
    sets: u64,
    round: usize,
    meanwhile: impl FnOnce() -> Fallible,
) -> Fallible<(f64, f64)> {
    pair.suspend_replica(true)?;
    let mut shape = Shape::new(Verb::Set, keys).order(Order::Uniform).seed(round as u64);
    let ran = Load::fifty(pair.primary.port, 32).run(&mut shape, Until::Commands(sets));
    let before_ns = pair.replica.cpu_ns()?;
    pair.suspend_replica(false)?;
    let begun = Instant::now();
    let commands = ran?.commands as f64;
    meanwhile()?;
    pair.settle()?;
    let cpu_us = (pair.replica.cpu_ns()? - before_ns) as f64 / 1e3;
    Ok((commands / begun.elapsed().as_secs_f64(), cpu_us / commands))
}
