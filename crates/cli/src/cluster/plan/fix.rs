//! `fix`: one owner for a slot, and all its keys there.
//!
//! The steps of a move of a slot, in this order, and the state that is found when it was cut after each step:
//!
//! ```text
//!                                  owner    source      target      fix
//!   target: SETSLOT IMPORTING      source               importing   closes the slot at the target
//!   source: SETSLOT MIGRATING      source   migrating   importing   goes on with the move
//!   source: MIGRATE ..             source   migrating   importing   goes on with the move; both have keys
//!   target: SETSLOT NODE target    both     migrating               the target: it has the keys, and the newer epoch
//!   source: SETSLOT NODE target    target                           nothing is open
//! ```
//! Everything else - several owners, none, keys at nodes that have nothing to do with the slot - is settled
//! in one way: one owner is chosen, the others give up their claims and then their keys.

/// Relation of a primary to a slot.
#[derive(Clone, Default, Debug)]
pub struct Claim {
    /// Name of the node for messages.
    pub name: String,
    pub id: String,
    /// True if the node considers itself the owner.
    pub owns: bool,
    pub keys: u64,
    pub epoch: u64,
    pub migrating_to: Option<String>,
    pub importing_from: Option<String>,
}

impl Claim {
    fn is_open(&self) -> bool {
        self.migrating_to.is_some() || self.importing_from.is_some()
    }

    fn has_to_do_with_it(&self) -> bool {
        self.owns || self.keys > 0 || self.is_open()
    }
}

#[derive(Clone, PartialEq, Debug)]
pub enum Step {
    Info(String),
    Warn(String),
    /// SETSLOT STABLE.
    Stable {
        at: usize,
    },
    /// Becomes the owner, with an epoch above all others.
    Own {
        at: usize,
    },
    /// DELSLOTS; a slot that has no owner there is fine.
    Disown {
        at: usize,
    },
    /// SETSLOT NODE.
    Assign {
        at: usize,
        owner: usize,
    },
    /// SETSLOT IMPORTING: so that MIGRATE is not redirected, although the keys are to leave.
    Import {
        at: usize,
        from: usize,
    },
    /// The keys only.
    MoveKeys {
        from: usize,
        to: usize,
    },
    /// Keys and slot, as a reshard moves them.
    MoveSlot {
        from: usize,
        to: usize,
    },
}

/// Closes an open slot.
pub fn open_slot(slot: u16, claims: &[Claim]) -> Vec<Step> {
    let mut steps = Vec::new();
    for claim in claims.iter().filter(|claim| !claim.owns && claim.keys > 0) {
        steps.push(Step::Warn(format!("*** Found keys about slot {slot} in non-owner node {}!", claim.name)));
    }
    let names = |is: fn(&Claim) -> bool| {
        let names = claims.iter().filter(|claim| is(claim)).map(|claim| claim.name.clone());
        names.collect::<Vec<_>>().join(",")
    };
    for (what, names) in [
        ("migrating", names(|claim| claim.migrating_to.is_some())),
        ("importing", names(|claim| claim.importing_from.is_some())),
    ] {
        if !names.is_empty() {
            steps.push(Step::Info(format!("Set as {what} in: {names}")));
        }
    }
    // COMPAT(tools): isotherm-cli --cluster fix goes on with a move that was interrupted between two keys.
    // valkey-cli makes the node with more keys the owner by DELSLOTS, ADDSLOTS and a new epoch. Why: the slot
    // is served all the time, and ends where it was to go.
    if let Some((from, to)) = move_under_way(claims) {
        steps.push(Step::Info(format!(
            ">>> Case 1: Moving slot {slot} from {} to {}",
            claims[from].name, claims[to].name
        )));
        steps.push(Step::MoveSlot { from, to });
        let others = (0..claims.len()).filter(|&at| at != from && at != to && claims[at].is_open());
        let stale = claims[to].migrating_to.is_some().then_some(to);
        steps.extend(others.chain(stale).map(|at| Step::Stable { at }));
        return steps;
    }
    steps.extend(settle(slot, claims));
    steps
}

/// A slot that several nodes claim, or hold keys of.
pub fn several_owners(slot: u16, claims: &[Claim]) -> Vec<Step> {
    let mut steps = vec![Step::Info(format!(">>> Fixing multiple owners for slot {slot}..."))];
    steps.extend(settle(slot, claims));
    steps
}

/// The owner and the node that it gives the slot to, if no other node has a part in it.
fn move_under_way(claims: &[Claim]) -> Option<(usize, usize)> {
    let from = only_owner(claims)?;
    let goal = claims[from].migrating_to.as_ref()?;
    let to = claims.iter().position(|claim| claim.id == *goal).filter(|&to| to != from)?;
    let has_begun = claims[to].importing_from.is_some() || claims[to].keys > 0;
    let is_alone = (0..claims.len()).all(|at| at == from || at == to || claims[at].keys == 0);
    (has_begun && is_alone).then_some((from, to))
}

fn only_owner(claims: &[Claim]) -> Option<usize> {
    let mut owners = (0..claims.len()).filter(|&at| claims[at].owns);
    owners.next().filter(|_| owners.next().is_none())
}

/// The node with most keys; then one that owns the slot already, the newest first, and one that was to get
/// it.
fn choose(claims: &[Claim]) -> Option<usize> {
    let rank = |&at: &usize| {
        let claim = &claims[at];
        let order = std::cmp::Reverse(at);
        (claim.keys, claim.owns, claim.epoch * u64::from(claim.owns), claim.importing_from.is_some(), order)
    };
    (0..claims.len()).max_by_key(rank)
}

fn settle(slot: u16, claims: &[Claim]) -> Vec<Step> {
    let certain = only_owner(claims);
    let Some(owner) = certain.or_else(|| choose(claims)) else {
        return vec![Step::Warn("[ERR] Can't select a slot owner. Impossible to fix.".to_string())];
    };
    let mut steps = Vec::new();
    if certain.is_none() {
        steps.push(Step::Info(
            ">>> No single clear owner for the slot, selecting an owner by # of keys...".to_string(),
        ));
        steps.push(Step::Warn(format!("*** Configuring {} as the slot owner", claims[owner].name)));
        steps.extend([Step::Stable { at: owner }, Step::Own { at: owner }]);
    } else if claims[owner].is_open() {
        // Before keys come back to it: an owner that is migrating refuses those that it does not have.
        steps.push(Step::Info(format!(">>> Case 4: Closing slot {slot} on {}", claims[owner].name)));
        steps.push(Step::Stable { at: owner });
    }
    let others = || (0..claims.len()).filter(|&at| at != owner);
    for at in others().filter(|&at| claims[at].owns) {
        steps.extend([Step::Disown { at }, Step::Assign { at, owner }]);
    }
    let keys = others().any(|at| claims[at].keys > 0);
    if keys {
        steps.push(Step::Info(format!(
            ">>> Case 2: Moving all the {slot} slot keys to its owner {}",
            claims[owner].name
        )));
    }
    for at in others().filter(|&at| claims[at].has_to_do_with_it()) {
        if claims[at].keys > 0 {
            steps.extend([Step::Import { at, from: owner }, Step::MoveKeys { from: at, to: owner }]);
        }
        steps.push(Step::Info(format!(">>> Setting {slot} as STABLE in {}", claims[at].name)));
        steps.push(Step::Stable { at });
    }
    // The others learn it by the bus too, but a client may ask them first.
    steps.extend(others().map(|at| Step::Assign { at, owner }));
    steps
}

/// Location of the keys of a slot that no node owns.
#[derive(Clone, PartialEq, Debug)]
pub enum Uncovered {
    Nowhere,
    At(usize),
    AtSeveral { most: usize, others: Vec<usize> },
}

pub fn uncovered(keys: &[u64]) -> Uncovered {
    let most = (0..keys.len()).max_by_key(|&at| (keys[at], std::cmp::Reverse(at)));
    let others: Vec<usize> = (0..keys.len()).filter(|&at| keys[at] > 0 && Some(at) != most).collect();
    match most {
        Some(most) if keys[most] > 0 && others.is_empty() => Uncovered::At(most),
        Some(most) if keys[most] > 0 => Uncovered::AtSeveral { most, others },
        _ => Uncovered::Nowhere,
    }
}

// COMPAT(tools): isotherm-cli --cluster fix gives slots without keys to primaries in runs, those with fewest
// slots first; valkey-cli draws a node for each slot. Why: scattered slots make CLUSTER SLOTS and NODES
// large, in every client.
/// Chooses a primary for each of `count` slots that no node owns. `sizes` are the numbers of slots that the
/// primaries have.
pub fn spread(count: usize, sizes: &[usize]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..sizes.len()).collect();
    order.sort_by_key(|&at| sizes[at]);
    (0..count).map(|number| order[number * order.len() / count]).collect()
}

/// Gives a slot that no node owns to one, and the keys of others to it.
pub fn cover(owner: usize, others: &[usize]) -> Vec<Step> {
    let mut steps = vec![Step::Stable { at: owner }, Step::Own { at: owner }];
    for &at in others {
        steps.extend([
            Step::Assign { at, owner },
            Step::Import { at, from: owner },
            Step::MoveKeys { from: at, to: owner },
            Step::Stable { at },
        ]);
    }
    steps
}

#[cfg(test)]
#[path = "fix_tests.rs"]
mod tests;
