//! `reshard`: a number of slots to one node.

use super::place;
use crate::Fallible;
use crate::cluster::checking::{How, check};
use crate::cluster::choices::Choices;
use crate::cluster::link::Way;
use crate::cluster::moving::{Path, move_atomically, move_slot, wait_until_ready};
use crate::cluster::plan::reshard::{Leaving, Source, plan};
use crate::cluster::progress::{Progress, Style};
use crate::cluster::roster::{Cluster, Whom};
use crate::cluster::say;
use crate::cluster::slots::{ranges, spaced};
use crate::text::leading_i64;
use isotherm_stdx::Slot;

pub fn reshard(choices: &Choices, way: &Way, verbose: bool) -> Fallible<bool> {
    let mut cluster = Cluster::load(choices, way, &place(&choices.args)?, Whom::Reachable)?;
    check(&mut cluster, How::default())?;
    if !cluster.errors.is_empty() {
        eprintln!("*** Please fix your cluster problems before resharding");
        return Ok(false);
    }
    let count = slot_count(choices)?;
    let target = target(&cluster, choices)?;
    let sources = sources(&cluster, choices, target)?;
    if sources.is_empty() {
        eprintln!("*** No source nodes given, operation aborted.");
        return Ok(false);
    }
    say::line(format!("\nReady to move {count} slots."));
    say::line("  Source nodes:");
    sources.iter().for_each(|&at| say::line(cluster.node(at).describe(4)));
    say::line("  Destination node:");
    say::line(cluster.node(target).describe(4));
    let of = |&node: &usize| Source { node, slots: &cluster.node(node).slots };
    let table = plan(&sources.iter().map(of).collect::<Vec<_>>(), count);
    say::line("  Resharding plan:");
    for leaving in &table {
        let shown = spaced(&ranges(leaving.slots.iter().copied()));
        say::line(format!("    Moving slot range {shown} from {}", cluster.node(leaving.node).id));
    }
    let question = "Do you want to proceed with the proposed reshard plan (yes/no)? ";
    if !choices.yes && say::answer(question).as_deref() != Some("yes") {
        return Ok(false);
    }
    let total = table.iter().map(|leaving| leaving.slots.len()).sum();
    let mut progress = Progress::new(total, Style::Lines, verbose);
    progress.listen()?;
    apply(&mut cluster, &table, target, &mut progress)
}

// COMPAT(tools): isotherm-cli --cluster reshard and rebalance exit with 1 when a slot could not be moved, and
// help with 0; valkey-cli does the opposite. Why: a script sees whether to run fix.
/// Moves what the table says. False if it was stopped.
pub fn apply(cluster: &mut Cluster, table: &[Leaving], to: usize, progress: &mut Progress) -> Fallible<bool> {
    wait_until_ready(cluster, to)?;
    let outcome = apply_all(cluster, table, to, progress);
    progress.end();
    match outcome {
        Ok(false) => {
            say::warn("*** Stopped. The slots that have been moved stay where they are.");
            Ok(false)
        }
        outcome => outcome,
    }
}

fn apply_all(cluster: &mut Cluster, table: &[Leaving], to: usize, progress: &mut Progress) -> Fallible<bool> {
    for Leaving { node: from, slots } in table {
        if cluster.choices.atomic {
            if progress.is_stopped() {
                return Ok(false);
            }
            move_atomically(cluster, *from, to, slots, progress)?;
            continue;
        }
        for &slot in slots {
            if progress.is_stopped() {
                return Ok(false);
            }
            move_slot(cluster, Path { from: *from, to, slot }, progress)
                .map_err(|trouble| format!("Moving slot {slot} failed: {trouble}"))?;
            progress.end_slots(1);
        }
    }
    Ok(true)
}

// COMPAT(tools): isotherm-cli --cluster reshard ends when standard input does; valkey-cli goes on asking.
// Why: no answer will come.
fn ask(question: &str) -> Fallible<String> {
    say::answer(question).ok_or_else(|| "\n*** No answer, operation aborted.".to_string())
}

fn slot_count(choices: &Choices) -> Fallible<usize> {
    let mut count = choices.slots;
    if count == 0 {
        while !(1..=Slot::COUNT as i64).contains(&count) {
            let answer = ask(&format!("How many slots do you want to move (from 1 to {})? ", Slot::COUNT))?;
            count = leading_i64(&answer);
        }
    }
    Ok(usize::try_from(count).unwrap_or(0))
}

fn primary(cluster: &Cluster, id: &str) -> Fallible<usize> {
    let found = cluster.find(id).filter(|&at| !cluster.node(at).is_replica());
    found.ok_or_else(|| format!("*** The specified node ({id}) is not known or not a primary, please retry."))
}

fn target(cluster: &Cluster, choices: &Choices) -> Fallible<usize> {
    let mut id = choices.to.clone().unwrap_or_default();
    while id.is_empty() {
        id = ask("What is the receiving node ID? ")?;
    }
    primary(cluster, &id)
}

fn sources(cluster: &Cluster, choices: &Choices, target: usize) -> Fallible<Vec<usize>> {
    let mut sources = Vec::new();
    let all = || cluster.primaries().into_iter().filter(|&at| at != target).collect();
    let mut add = |id: &str| -> Fallible {
        let source = primary(cluster, id)?;
        if source == target {
            say::err("*** It is not possible to use the target node as source node.");
        } else if !sources.contains(&source) {
            sources.push(source);
        }
        Ok(())
    };
    if let Some(from) = &choices.from {
        let ids: Vec<&str> = from.split(',').filter(|id| !id.is_empty()).collect();
        if ids.contains(&"all") {
            return Ok(all());
        }
        ids.into_iter().try_for_each(add)?;
        return Ok(sources);
    }
    say::line("Please enter all the source node IDs.");
    say::line("  Type 'all' to use all the nodes as source nodes for the hash slots.");
    say::line("  Type 'done' once you entered all the source nodes IDs.");
    for number in 1.. {
        match ask(&format!("Source node #{number}: "))?.as_str() {
            "done" => break,
            "all" => return Ok(all()),
            id => add(id)?,
        }
    }
    Ok(sources)
}
