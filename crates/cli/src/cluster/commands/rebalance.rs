//! `rebalance`: each primary gets its share of the slots, or of what they weigh.

use std::time::Duration;

use super::place;
use super::reshard::apply;
use crate::Fallible;
use crate::cluster::checking::{How, check};
use crate::cluster::choices::{By, Choices};
use crate::cluster::link::Way;
use crate::cluster::plan::rebalance::{Holder, plan as plan_by_slots};
use crate::cluster::plan::reshard::{Leaving, Source, plan as plan_reshard};
use crate::cluster::plan::weighed::{Bearer, plan as plan_by_load};
use crate::cluster::progress::{Progress, Style};
use crate::cluster::roster::{Cluster, Whom};
use crate::cluster::say;
use crate::cluster::survey::slot_loads;
use crate::terminal::put;
use crate::text::{leading_f64, size_human};

/// Options for the output, and the time for which CPU use is measured. If `interval` is 0, the CPU use since
/// the servers began to count is taken.
pub struct Manner {
    pub verbose: bool,
    pub interval: Duration,
}

/// A primary that takes part.
struct Part {
    at: usize,
    weight: f32,
}

pub fn rebalance(choices: &Choices, way: &Way, manner: &Manner) -> Fallible<bool> {
    let mut cluster = Cluster::load(choices, way, &place(&choices.args)?, Whom::Reachable)?;
    let parts = parts(&cluster, choices)?;
    check(&mut cluster, How { quiet: true, ..How::default() })?;
    if !cluster.errors.is_empty() {
        return Err("*** Please fix your cluster problems before rebalancing".to_string());
    }
    match choices.by {
        By::Slots => by_slots(&mut cluster, &parts, manner),
        by => by_load(&mut cluster, &parts, by, manner),
    }
}

fn parts(cluster: &Cluster, choices: &Choices) -> Fallible<Vec<Part>> {
    let mut weights = vec![1.0; cluster.members.len()];
    for text in &choices.weights {
        let (id, weight) = text.split_once('=').ok_or_else(|| format!("*** invalid input {text}"))?;
        let at = cluster.find_short(id).ok_or_else(|| format!("*** No such primary node {id}"))?;
        weights[at] = leading_f64(weight) as f32;
    }
    let takes_part = |&at: &usize| choices.use_empty_primaries || !cluster.node(at).slots.is_empty();
    let part = |at| Part { at, weight: weights[at] };
    Ok(cluster.primaries().into_iter().filter(takes_part).map(part).collect())
}

fn not_needed(cluster: &Cluster) -> Fallible<bool> {
    let threshold = cluster.choices.threshold;
    say::warn(format!("*** No rebalancing needed! All nodes are within the {threshold:.2}% threshold."));
    Ok(true)
}

fn by_slots(cluster: &mut Cluster, parts: &[Part], manner: &Manner) -> Fallible<bool> {
    let holder = |part: &Part| {
        let slots = cluster.node(part.at).slots.len();
        Holder { node: part.at, slots, weight: part.weight }
    };
    let holders: Vec<Holder> = parts.iter().map(holder).collect();
    let Some(plan) = plan_by_slots(&holders, cluster.choices.threshold as f32) else {
        return not_needed(cluster);
    };
    let total: f32 = parts.iter().map(|part| part.weight).sum();
    say::info(format!(">>> Rebalancing across {} nodes. Total weight = {total:.2}", parts.len()));
    if manner.verbose {
        for (at, slots) in &plan.balance {
            say::line(format!("{} balance is {slots} slots", cluster.name(*at)));
        }
    }
    let slots = plan.transfers.iter().map(|transfer| transfer.slots).sum();
    let mut progress = begin(slots, manner)?;
    for transfer in &plan.transfers {
        let source = Source { node: transfer.from, slots: &cluster.node(transfer.from).slots };
        let table = plan_reshard(&[source], transfer.slots);
        let what = format!("{} slots", transfer.slots);
        if !carry_out(cluster, &table, transfer.to, &what, &mut progress)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn begin(slots: usize, manner: &Manner) -> Fallible<Progress> {
    let progress = Progress::new(slots, Style::Marks, manner.verbose);
    progress.listen()?;
    Ok(progress)
}

fn carry_out(
    cluster: &mut Cluster,
    table: &[Leaving],
    to: usize,
    what: &str,
    progress: &mut Progress,
) -> Fallible<bool> {
    for leaving in table {
        say::line(format!("Moving {what} from {} to {}", cluster.name(leaving.node), cluster.name(to)));
    }
    if cluster.choices.simulate {
        let slots = table.iter().map(|leaving| leaving.slots.len()).sum();
        put(format!("{}\n", "#".repeat(slots)));
        return Ok(true);
    }
    apply(cluster, table, to, progress)
}

fn by_load(cluster: &mut Cluster, parts: &[Part], by: By, manner: &Manner) -> Fallible<bool> {
    let bearers = bearers(cluster, parts, by, manner.interval)?;
    let plan = plan_by_load(&bearers, cluster.choices.threshold);
    if plan.transfers.is_empty() && plan.was_even {
        return not_needed(cluster);
    }
    if plan.transfers.is_empty() {
        say::warn("*** No slot can be moved that would make the nodes more equal: a slot is never divided.");
        return Ok(true);
    }
    let shown = |load: u64| match by {
        By::Cpu => format!("{} ms", load / 1000),
        _ => size_human(i64::try_from(load).unwrap_or(i64::MAX)),
    };
    let total: f32 = parts.iter().map(|part| part.weight).sum();
    let what = if by == By::Cpu { "CPU time" } else { "bytes" };
    let count = parts.len();
    say::info(format!(">>> Rebalancing across {count} nodes by {what}. Total weight = {total:.2}"));
    for &(at, before, after) in &plan.loads {
        say::line(format!("{}: {} -> {}", cluster.name(at), shown(before), shown(after)));
    }
    let slots = plan.transfers.iter().map(|transfer| transfer.slots.len()).sum();
    let mut progress = begin(slots, manner)?;
    for transfer in plan.transfers {
        let what = format!("{} slots ({})", transfer.slots.len(), shown(transfer.load));
        let table = [Leaving { node: transfer.from, slots: transfer.slots }];
        if !carry_out(cluster, &table, transfer.to, &what, &mut progress)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn bearers(cluster: &mut Cluster, parts: &[Part], by: By, interval: Duration) -> Fallible<Vec<Bearer>> {
    let mut bearers = weigh(cluster, parts, by)?;
    if by == By::Cpu && !interval.is_zero() {
        std::thread::sleep(interval);
        let later = weigh(cluster, parts, by)?;
        for (bearer, later) in bearers.iter_mut().zip(later) {
            for ((slot, load), (same, then)) in bearer.slots.iter_mut().zip(later.slots) {
                // A server whose statistics were reset meanwhile counts from 0.
                *load = if *slot == same { then.saturating_sub(*load) } else { 0 };
            }
        }
    }
    Ok(bearers)
}

fn weigh(cluster: &mut Cluster, parts: &[Part], by: By) -> Fallible<Vec<Bearer>> {
    let (name, setting) = match by {
        By::Cpu => ("cpu-usec", " (cluster-slot-stats-enabled)"),
        _ => ("memory-bytes", ""),
    };
    let mut bearers = Vec::new();
    for part in parts {
        let loads = slot_loads(cluster, part.at)?;
        let missing = || {
            let node = cluster.name(part.at);
            format!("[ERR] Node {node} does not report {name} in CLUSTER SLOT-STATS{setting}.")
        };
        let mut slots = Vec::with_capacity(loads.len());
        for load in loads {
            let weight = if by == By::Cpu { load.cpu_usec } else { load.bytes };
            slots.push((load.slot, weight.ok_or_else(missing)?));
        }
        bearers.push(Bearer { node: part.at, weight: f64::from(part.weight), slots });
    }
    Ok(bearers)
}
