//! A full sync: from REPLICAOF to the link that is up, and the CPU time that it takes on both sides.

use super::pair::Pair;
use crate::durability::{Best, Figures, KEYS, seconds};
use crate::load::fill;
use crate::options::Options;
use crate::process::Side::{self, Isotherm, Valkey};
use crate::report::Table;
use crate::shape::{Shape, Verb};
use crate::{Fallible, progress};

/// Sender, receiver, and aim of each row. Each is compared with Valkey to Valkey.
const PAIRS: [(Side, Side, &str); 3] =
    [(Isotherm, Isotherm, "<= 0.5"), (Valkey, Isotherm, "<= 0.8"), (Isotherm, Valkey, "<= 1.0")];

pub fn measure(options: &Options, table: &mut Table) -> Fallible {
    let keys = options.scaled(KEYS);
    let mut times: [Figures; 3] = Default::default();
    let mut costs: [Figures; 3] = Default::default();
    for round in 1..=options.rounds {
        let (base_time, base_cost) = sync(Valkey, Valkey, keys, round, options)?;
        for (at, (primary, replica, _)) in PAIRS.into_iter().enumerate() {
            let (time, cost) = sync(primary, replica, keys, round, options)?;
            times[at].add(Valkey, base_time);
            times[at].add(Isotherm, time);
            costs[at].add(Valkey, base_cost);
            costs[at].add(Isotherm, cost);
        }
    }
    for (at, (primary, replica, aim)) in PAIRS.into_iter().enumerate() {
        let what = format!("full sync of {keys} keys, {} to {}", primary.name(), replica.name());
        times[at].row(table, &what, Best::Least, seconds, aim);
        costs[at].row(table, "its CPU time, both processes", Best::Least, seconds, "-");
    }
    Ok(())
}

fn sync(primary: Side, replica: Side, keys: u64, round: usize, options: &Options) -> Fallible<(f64, f64)> {
    let pair = Pair::start(primary, replica, options)?;
    fill(&pair.primary, &mut Shape::new(Verb::Set, keys), keys, "keys")?;
    let cpu_ns = || Fallible::Ok(pair.primary.whole_cpu_ns()? + pair.replica.whole_cpu_ns()?);
    let before_ns = cpu_ns()?;
    let took = pair.join()?.as_secs_f64();
    let cost = (cpu_ns()? - before_ns) as f64 / 1e9;
    let (from, to) = (primary.name(), replica.name());
    progress(&format!("sync round {round} {from} to {to}: {took:.3} s, CPU {cost:.3} s"));
    match pair.replica.client()?.dbsize()? {
        got if got == keys => Ok((took, cost)),
        got => Err(format!("{to} has got {got} of {keys} keys of {from}")),
    }
}
