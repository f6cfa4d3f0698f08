//! `fix`: asks what has to be known of a slot, lets `plan::fix` decide, and carries its steps out.

use isotherm_resp::reply_parse::Value;

use super::link::{Trouble, words};
use super::moving::{Path, move_keys_shown, move_slot};
use super::plan::fix::{Claim, Step, Uncovered, cover, open_slot, several_owners, spread, uncovered};
use super::progress::{Progress, Style};
use super::roster::Cluster;
use super::say;
use super::slots::SlotSet;
use crate::Fallible;

/// Refuses to guess about primaries that are not there.
fn guard(cluster: &Cluster, what: &str) -> Fallible {
    let missing = cluster.unreachable_primaries;
    if missing == 0 || cluster.choices.fix_with_unreachable {
        return Ok(());
    }
    say::warn(format!(
        "*** Fixing {what} with {missing} unreachable primaries is dangerous: isotherm-cli will assume that slots about \
         primaries that are not reachable are not covered, and will try to reassign them to the reachable nodes. \
         This can cause data loss and is rarely what you want to do. If you really want to proceed use the \
         --cluster-fix-with-unreachable-primaries option."
    ));
    Err(String::new())
}

pub fn fix_open(cluster: &mut Cluster, slot: u16) -> Fallible {
    guard(cluster, "open slots")?;
    say::info(format!(">>> Fixing open slot {slot}"));
    let (primaries, claims) = claims(cluster, slot)?;
    carry_out(cluster, &primaries, slot, &open_slot(slot, &claims))?;
    // A replica may have missed that its primary has closed the slot. It takes no SETSLOT but by replication.
    let is_open = |open: &[(u16, String)]| open.iter().any(|(open, _)| *open == slot);
    for at in cluster.all() {
        let node = cluster.node(at);
        let Some(primary) = node.primary.as_deref().and_then(|id| cluster.find(id)) else { continue };
        if is_open(&node.migrating) || is_open(&node.importing) {
            cluster.stable(primary, slot)?;
        }
    }
    Ok(())
}

pub fn fix_several_owners(cluster: &mut Cluster, slot: u16) -> Fallible {
    let (primaries, claims) = claims(cluster, slot)?;
    carry_out(cluster, &primaries, slot, &several_owners(slot, &claims))
}

/// The primaries, and what each has to do with the slot.
fn claims(cluster: &mut Cluster, slot: u16) -> Fallible<(Vec<usize>, Vec<Claim>)> {
    let primaries = cluster.primaries();
    let mut claims = Vec::new();
    for &at in &primaries {
        let keys = cluster.number(at, &format!("CLUSTER COUNTKEYSINSLOT {slot}"))?;
        let node = cluster.node(at);
        let open = |list: &[(u16, String)]| {
            list.iter().find(|(open, _)| *open == slot).map(|(_, other)| other.clone())
        };
        claims.push(Claim {
            name: node.address(),
            id: node.id.clone(),
            owns: node.slots.has(slot),
            keys,
            epoch: node.epoch,
            migrating_to: open(&node.migrating),
            importing_from: open(&node.importing),
        });
    }
    Ok((primaries, claims))
}

/// The steps speak of places in `primaries`.
fn carry_out(cluster: &mut Cluster, primaries: &[usize], slot: u16, steps: &[Step]) -> Fallible {
    let mut progress = Progress::of(steps.len(), Style::Lines);
    for step in steps {
        match step {
            Step::Info(text) => say::info(text),
            Step::Warn(text) => say::warn(text),
            Step::Stable { at } => cluster.stable(primaries[*at], slot)?,
            Step::Own { at } => own(cluster, primaries[*at], slot)?,
            Step::Disown { at } => disown(cluster, primaries[*at], slot)?,
            Step::Assign { at, owner } => {
                cluster.set_slot(primaries[*at], slot, "NODE", primaries[*owner])?
            }
            Step::Import { at, from } => {
                cluster.set_slot(primaries[*at], slot, "IMPORTING", primaries[*from])?
            }
            Step::MoveKeys { from, to } => {
                let path = Path { from: primaries[*from], to: primaries[*to], slot };
                move_keys_shown(cluster, path, &mut progress)?;
            }
            Step::MoveSlot { from, to } => {
                let path = Path { from: primaries[*from], to: primaries[*to], slot };
                move_slot(cluster, path, &mut progress)?;
            }
        }
    }
    Ok(())
}

/// DELSLOTS, ADDSLOTS and BUMPEPOCH as one transaction. Only ADDSLOTS has to succeed: the slot may have had
/// no owner.
fn own(cluster: &mut Cluster, at: usize, slot: u16) -> Fallible {
    let lines = [
        "MULTI".to_string(),
        format!("CLUSTER DELSLOTS {slot}"),
        format!("CLUSTER ADDSLOTS {slot}"),
        "CLUSTER BUMPEPOCH".to_string(),
        "EXEC".to_string(),
    ];
    let requests: Vec<Vec<Vec<u8>>> = lines.iter().map(|line| words(line)).collect();
    let link = cluster.link(at)?;
    let mut replies = link.many(&requests)?;
    let done = replies.pop().expect("each request has its reply");
    let done = link.accept(done)?;
    let Value::Array(mut results) = done else { return Err(link.odd(&done).into()) };
    if results.len() != 3 {
        return Err(link.odd(&Value::Array(results)).into());
    }
    link.accept(results.swap_remove(1))?;
    cluster.members[at].node.slots.insert(slot);
    Ok(())
}

fn disown(cluster: &mut Cluster, at: usize, slot: u16) -> Fallible {
    cluster.members[at].node.slots.remove(slot);
    match cluster.ask(at, &format!("CLUSTER DELSLOTS {slot}")) {
        Err(Trouble::Refused { text, .. }) if text.contains("already unassigned") => Ok(()),
        outcome => Ok(outcome.map(drop)?),
    }
}

/// Gives slots that no node owns to nodes. Returns how many.
pub fn fix_coverage(cluster: &mut Cluster, missing: &SlotSet) -> Fallible<usize> {
    guard(cluster, "slots coverage")?;
    say::info(">>> Fixing slots coverage...");
    let primaries = cluster.primaries();
    if primaries.is_empty() {
        return Err("[ERR] There is no primary that could get slots.".to_string());
    }
    let slots: Vec<u16> = missing.iter().collect();
    let keys = key_counts(cluster, &primaries, &slots)?;
    let found: Vec<(u16, Uncovered)> =
        slots.iter().zip(&keys).map(|(&slot, keys)| (slot, uncovered(keys))).collect();
    let mut fixed = 0;
    for (is, said, question) in KINDS {
        let those: Vec<&(u16, Uncovered)> = found.iter().filter(|(_, where_)| is(where_)).collect();
        if those.is_empty() {
            continue;
        }
        say::line(said);
        say::line(those.iter().map(|(slot, _)| *slot).collect::<SlotSet>().in_brackets());
        if !say::confirmed(question) {
            continue;
        }
        let sizes: Vec<usize> = primaries.iter().map(|&at| cluster.node(at).slots.len()).collect();
        let spread = spread(those.len(), &sizes);
        for ((slot, where_), one) in those.into_iter().zip(spread) {
            cover_slot(cluster, &primaries, *slot, where_, one)?;
            fixed += 1;
        }
    }
    Ok(fixed)
}

type Kind = (fn(&Uncovered) -> bool, &'static str, &'static str);

const KINDS: [Kind; 3] = [
    (
        |found| *found == Uncovered::Nowhere,
        "The following uncovered slots have no keys across the cluster:",
        "Fix these slots by covering with a random node?",
    ),
    (
        |found| matches!(found, Uncovered::At(_)),
        "The following uncovered slots have keys in just one node:",
        "Fix these slots by covering with those nodes?",
    ),
    (
        |found| matches!(found, Uncovered::AtSeveral { .. }),
        "The following uncovered slots have keys in multiple nodes:",
        "Fix these slots by moving keys into a single node?",
    ),
];

/// `one` gets it if no node has keys.
fn cover_slot(
    cluster: &mut Cluster,
    primaries: &[usize],
    slot: u16,
    found: &Uncovered,
    one: usize,
) -> Fallible {
    let (owner, others): (usize, &[usize]) = match found {
        Uncovered::Nowhere => (one, &[]),
        Uncovered::At(owner) => (*owner, &[]),
        Uncovered::AtSeveral { most, others } => (*most, others),
    };
    let name = cluster.name(primaries[owner]);
    let how = if others.is_empty() { "with" } else { "moving keys to" };
    say::info(format!(">>> Covering slot {slot} {how} {name}"));
    carry_out(cluster, primaries, slot, &cover(owner, others))
}

/// Returns for each slot how many keys each of the nodes has. All slots are asked for at once.
pub fn key_counts(cluster: &mut Cluster, nodes: &[usize], slots: &[u16]) -> Fallible<Vec<Vec<u64>>> {
    let mut counts = vec![Vec::with_capacity(nodes.len()); slots.len()];
    let requests: Vec<Vec<Vec<u8>>> =
        slots.iter().map(|slot| words(&format!("CLUSTER COUNTKEYSINSLOT {slot}"))).collect();
    for &at in nodes {
        let link = cluster.link(at)?;
        for (counts, reply) in counts.iter_mut().zip(link.many(&requests)?) {
            match link.accept(reply)? {
                Value::Integer(count) => counts.push(count.max(0).unsigned_abs()),
                other => return Err(link.odd(&other).into()),
            }
        }
    }
    Ok(counts)
}
