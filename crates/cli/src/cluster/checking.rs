//! A check of a cluster, in the lines of valkey-cli; with `fix`, faults are repaired on the way.

use std::collections::BTreeSet;

use isotherm_stdx::Slot;

use super::node::is_consistent;
use super::repair::{fix_coverage, fix_open, fix_several_owners, key_counts};
use super::roster::Cluster;
use super::say;
use super::slots::SlotSet;
use crate::Fallible;
use crate::terminal::put;

#[derive(Clone, Copy, Default)]
pub struct How {
    /// Without the list of nodes.
    pub quiet: bool,
    pub fix: bool,
}

/// Checks the cluster. True if all is well; faults are in `errors` too.
pub fn check(cluster: &mut Cluster, how: How) -> Fallible<bool> {
    say::info(format!(">>> Performing Cluster Check (using node {})", cluster.name(0)));
    if !how.quiet {
        cluster.members.iter().for_each(|member| say::line(member.node.describe(0)));
    }
    let mut is_well = check_agreement(cluster)?;
    if let Some(closed) = check_open_slots(cluster, how.fix)? {
        is_well = closed;
    }
    if let Some(covered) = check_coverage(cluster, how.fix)? {
        is_well = covered;
    }
    if cluster.choices.search_several_owners {
        is_well &= check_owners(cluster, how.fix)?;
    }
    Ok(is_well)
}

fn error(cluster: &mut Cluster, text: &str) {
    say::err(text);
    cluster.errors.push(text.to_string());
}

fn check_agreement(cluster: &mut Cluster) -> Fallible<bool> {
    let agree = is_consistent(&cluster.views()?);
    if agree {
        say::ok("[OK] All nodes agree about slots configuration.");
    } else {
        error(cluster, "[ERR] Nodes don't agree about configuration!");
    }
    Ok(agree)
}

/// Checks that no slot is open, and closes open slots if `fix`. Returns `None` if no slot is open, otherwise
/// whether the open slots have been closed.
fn check_open_slots(cluster: &mut Cluster, fix: bool) -> Fallible<Option<bool>> {
    say::info(">>> Check for open slots...");
    let mut open = BTreeSet::new();
    let list = |slots: &[(u16, String)]| {
        slots.iter().map(|(slot, _)| slot.to_string()).collect::<Vec<_>>().join(",")
    };
    for at in cluster.all() {
        let node = cluster.node(at).clone();
        for (state, slots) in [("migrating", &node.migrating), ("importing", &node.importing)] {
            if !slots.is_empty() {
                let text =
                    format!("[WARNING] Node {} has slots in {state} state {}.", node.address(), list(slots));
                error(cluster, &text);
                open.extend(slots.iter().map(|(slot, _)| *slot));
            }
        }
    }
    if open.is_empty() {
        return Ok(None);
    }
    let names: Vec<String> = open.iter().map(u16::to_string).collect();
    say::err(format!("[WARNING] The following slots are open: {}.", names.join(",")));
    if !fix {
        return Ok(Some(false));
    }
    let mut closed = true;
    for slot in open {
        // One that cannot be closed does not keep the others open.
        match fix_open(cluster, slot) {
            Err(why) if !why.is_empty() => {
                say::err(why);
                closed = false;
            }
            outcome => outcome?,
        }
    }
    Ok(Some(closed))
}

/// Checks that all slots are covered, and assigns the missing ones if `fix`. Returns `None` if all slots are
/// covered, otherwise whether some have been assigned.
fn check_coverage(cluster: &mut Cluster, fix: bool) -> Fallible<Option<bool>> {
    say::info(">>> Check slots coverage...");
    let is_missing = |slot: &u16| !cluster.members.iter().any(|member| member.node.slots.has(*slot));
    let missing: SlotSet = Slot::all().map(Slot::get).filter(is_missing).collect();
    if missing.is_empty() {
        say::ok(format!("[OK] All {} slots covered.", Slot::COUNT));
        return Ok(None);
    }
    error(cluster, &format!("[ERR] Not all {} slots are covered by nodes.", Slot::COUNT));
    put("\n");
    if fix { Ok(Some(fix_coverage(cluster, &missing)? > 0)) } else { Ok(Some(false)) }
}

/// Nodes that have keys of a slot are its owners too.
fn check_owners(cluster: &mut Cluster, fix: bool) -> Fallible<bool> {
    say::info(">>> Check for multiple slot owners...");
    let primaries = cluster.primaries();
    let slots: Vec<u16> = Slot::all().map(Slot::get).collect();
    let counts = key_counts(cluster, &primaries, &slots)?;
    let (mut is_well, mut left) = (true, 0);
    for (slot, counts) in slots.into_iter().zip(counts) {
        let has = |&(&at, &keys): &(&usize, &u64)| cluster.node(at).slots.has(slot) || keys > 0;
        let owners: Vec<usize> = primaries.iter().zip(&counts).filter(has).map(|(&at, _)| at).collect();
        if owners.len() <= 1 {
            continue;
        }
        say::err(format!("[WARNING] Slot {slot} has {} owners:", owners.len()));
        owners.iter().for_each(|&at| say::err(format!("    {}", cluster.name(at))));
        if fix {
            fix_several_owners(cluster, slot)?;
        } else {
            (is_well, left) = (false, left + 1);
        }
    }
    if left == 0 {
        say::ok("[OK] No multiple owners found.");
    }
    Ok(is_well)
}

/// Keys and slots of each primary.
pub fn show_info(cluster: &mut Cluster) -> Fallible {
    let (mut keys, mut primaries) = (0, 0);
    for at in cluster.all() {
        if cluster.node(at).is_replica() {
            continue;
        }
        let size = cluster.number(at, "DBSIZE")?;
        let node = cluster.node(at);
        say::line(format!(
            "{} ({}...) -> {size} keys | {} slots | {} replicas.",
            node.address(),
            node.short_id(),
            node.slots.len(),
            node.replicas
        ));
        keys += size;
        primaries += 1;
    }
    say::ok(format!("[OK] {keys} keys in {primaries} primaries."));
    say::line(format!("{:.2} keys per slot on average.", keys as f64 / Slot::COUNT as f64));
    Ok(())
}
