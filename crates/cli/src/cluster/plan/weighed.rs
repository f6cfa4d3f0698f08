//! `rebalance --by-bytes` and `--by-cpu`: slots weigh what CLUSTER SLOT-STATS says, and each node is to bear
//! its share.
//!
//! The plan moves as few slots as possible: the heaviest first, for the node that lacks most. A slot that
//! weighs nothing stays, unless its node is to be emptied. A slot is never divided (a hash tag is one slot),
//! so the best there is may be uneven. Two rules are tried, and the better plan is taken, or the one that
//! moves fewer slots: a slot goes if it fits into what the other lacks, or already if the two nodes are
//! closer to their shares afterwards.

/// A move has to bring two nodes closer by so much of what they are apart: a hot slot is not to wander for
/// nothing.
const WORTH: f64 = 0.75;

/// Slots that weigh less than this part of the average (of those that weigh anything) are not worth a move:
/// all together they are no more than this part of the whole.
const LIGHT: f64 = 0.1;

#[derive(Clone, Copy)]
enum Rule {
    Fits,
    Improves,
}

impl Rule {
    fn allows(self, load: f64, over: f64, lack: f64) -> bool {
        match self {
            Rule::Fits => load <= lack.min(over),
            Rule::Improves => load <= WORTH * (over + lack),
        }
    }
}

#[derive(Clone, Debug)]
pub struct Bearer {
    pub node: usize,
    /// Weight of the node. Its share of the whole is in proportion to the sum of all weights.
    pub weight: f64,
    /// Slot and what it weighs.
    pub slots: Vec<(u16, u64)>,
}

impl Bearer {
    fn load(&self) -> u64 {
        self.slots.iter().map(|(_, load)| load).sum()
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Transfer {
    pub from: usize,
    pub to: usize,
    pub slots: Vec<u16>,
    pub load: u64,
}

#[derive(Debug, PartialEq)]
pub struct Plan {
    /// Node, what it bears now and what it would bear; in the order of the bearers.
    pub loads: Vec<(usize, u64, u64)>,
    pub transfers: Vec<Transfer>,
    /// No node bore more than the threshold allows. Else there may be no transfer that helps.
    pub was_even: bool,
}

/// Nodes within `threshold` percent of their share give nothing.
pub fn plan(bearers: &[Bearer], threshold: f64) -> Plan {
    let (fits, improves) =
        (plan_by(bearers, threshold, Rule::Fits), plan_by(bearers, threshold, Rule::Improves));
    let slots = |plan: &Plan| plan.transfers.iter().map(|transfer| transfer.slots.len()).sum::<usize>();
    let is_closer = improves.1 < fits.1 || (improves.1 == fits.1 && slots(&improves.0) < slots(&fits.0));
    if is_closer { improves.0 } else { fits.0 }
}

/// And how far the nodes are from their shares then, as the sum of squares.
fn plan_by(bearers: &[Bearer], threshold: f64, rule: Rule) -> (Plan, f64) {
    let total: u64 = bearers.iter().map(Bearer::load).sum();
    let weights: f64 = bearers.iter().map(|bearer| bearer.weight).sum();
    let shares: Vec<f64> = bearers
        .iter()
        .map(|bearer| if weights > 0.0 { total as f64 * bearer.weight / weights } else { 0.0 })
        .collect();
    let loaded = bearers.iter().flat_map(|bearer| &bearer.slots).filter(|(_, load)| *load > 0).count();
    let light = LIGHT * total as f64 / loaded.max(1) as f64;
    let mut loads: Vec<f64> = bearers.iter().map(|bearer| bearer.load() as f64).collect();
    let mut transfers: Vec<Transfer> = Vec::new();
    let mut givers: Vec<usize> = (0..bearers.len()).collect();
    givers.sort_by(|&a, &b| (loads[b] - shares[b]).total_cmp(&(loads[a] - shares[a])));
    for giver in givers {
        let empties = bearers[giver].weight <= 0.0;
        let is_over = |loads: &[f64]| loads[giver] > shares[giver] * (1.0 + threshold / 100.0);
        let mut slots = bearers[giver].slots.clone();
        slots.sort_by_key(|&(slot, load)| (std::cmp::Reverse(load), slot));
        for (slot, load) in slots {
            if !empties && (load == 0 || (load as f64) < light || !is_over(&loads)) {
                break;
            }
            let lacks = |&taker: &usize| shares[taker] - loads[taker];
            let takers = (0..bearers.len()).rev().filter(|&at| at != giver && bearers[at].weight > 0.0);
            let Some(taker) = takers.max_by(|a, b| lacks(a).total_cmp(&lacks(b))) else { break };
            let is_allowed = rule.allows(load as f64, loads[giver] - shares[giver], lacks(&taker));
            if !empties && !is_allowed {
                continue;
            }
            loads[giver] -= load as f64;
            loads[taker] += load as f64;
            add(&mut transfers, bearers[giver].node, bearers[taker].node, slot, load);
        }
    }
    transfers.iter_mut().for_each(|transfer| transfer.slots.sort_unstable());
    let shown = |(at, bearer): (usize, &Bearer)| (bearer.node, bearer.load(), loads[at].round() as u64);
    let apart = loads.iter().zip(&shares).map(|(load, share)| (load - share).powi(2)).sum();
    let is_over =
        |(at, bearer): (usize, &Bearer)| bearer.load() as f64 > shares[at] * (1.0 + threshold / 100.0);
    let was_even = !bearers.iter().enumerate().any(is_over);
    (Plan { loads: bearers.iter().enumerate().map(shown).collect(), transfers, was_even }, apart)
}

fn add(transfers: &mut Vec<Transfer>, from: usize, to: usize, slot: u16, load: u64) {
    let at = transfers.iter().position(|known| known.from == from && known.to == to).unwrap_or_else(|| {
        transfers.push(Transfer { from, to, slots: Vec::new(), load: 0 });
        transfers.len() - 1
    });
    transfers[at].slots.push(slot);
    transfers[at].load += load;
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_stdx::Prng;

    fn bearer(node: usize, weight: f64, slots: &[(u16, u64)]) -> Bearer {
        Bearer { node, weight, slots: slots.to_vec() }
    }

    #[test]
    fn the_heaviest_that_fits_goes() {
        let plan = plan(&[bearer(0, 1.0, &[(1, 50), (2, 30), (3, 20), (4, 0)]), bearer(1, 1.0, &[])], 2.0);
        assert_eq!(plan.transfers, [Transfer { from: 0, to: 1, slots: vec![1], load: 50 }]);
        assert_eq!(plan.loads, [(0, 100, 50), (1, 0, 50)]);
    }

    #[test]
    fn two_hot_slots_are_parted() {
        let bearers =
            [bearer(0, 1.0, &[(1, 450), (2, 440), (3, 1), (4, 1)]), bearer(1, 1.0, &[]), bearer(2, 1.0, &[])];
        let plan = plan(&bearers, 2.0);
        assert_eq!(plan.transfers[0], Transfer { from: 0, to: 1, slots: vec![1], load: 450 });
    }

    #[test]
    fn a_slot_above_the_share_stays() {
        let plan = plan(&[bearer(0, 1.0, &[(1, 90), (2, 10)]), bearer(1, 1.0, &[(3, 10)])], 2.0);
        assert_eq!(plan.transfers, [Transfer { from: 0, to: 1, slots: vec![2], load: 10 }]);
        let one = super::plan(&[bearer(0, 1.0, &[(1, 90)]), bearer(1, 1.0, &[])], 2.0);
        assert!(one.transfers.is_empty() && !one.was_even);
        assert!(super::plan(&[bearer(0, 1.0, &[(1, 90)]), bearer(1, 1.0, &[(2, 90)])], 2.0).was_even);
    }

    #[test]
    fn a_weight_of_nothing_empties_a_node() {
        let plan = plan(&[bearer(0, 0.0, &[(1, 9), (2, 0)]), bearer(1, 1.0, &[(3, 10)])], 2.0);
        assert_eq!(plan.transfers, [Transfer { from: 0, to: 1, slots: vec![1, 2], load: 9 }]);
        assert!(super::plan(&[bearer(0, 0.0, &[(1, 9)])], 2.0).transfers.is_empty(), "no node would take it");
    }

    #[test]
    fn nothing_gets_worse() {
        let mut prng = Prng::new(5);
        for _ in 0..300 {
            let count = 2 + prng.below(6) as usize;
            let mut bearers: Vec<Bearer> =
                (0..count).map(|node| bearer(node, 1.0 + prng.below(3) as f64, &[])).collect();
            for slot in 0..2000 {
                let load = prng.below(1000) * u64::from(prng.one_in(2));
                let at = (prng.below(count as u64) * prng.below(count as u64) / count as u64) as usize;
                bearers[at].slots.push((slot, load));
            }
            let plan = plan(&bearers, 2.0);
            let total: u64 = plan.loads.iter().map(|&(_, before, _)| before).sum();
            let weights: f64 = bearers.iter().map(|bearer| bearer.weight).sum();
            let (mut apart_before, mut apart) = (0.0, 0.0);
            for (&(_, before, after), bearer) in plan.loads.iter().zip(&bearers) {
                let share = total as f64 * bearer.weight / weights;
                apart_before += (before as f64 - share).powi(2);
                apart += (after as f64 - share).powi(2);
                // With slots this small each giver ends at its threshold; its slots are a thousandth of its
                // share.
                assert!(after as f64 <= share * 1.03 + 1000.0, "{after} of {share}");
            }
            assert!(apart <= apart_before + 1.0, "{apart} after {apart_before}");
            let mut seen = std::collections::BTreeSet::new();
            for transfer in &plan.transfers {
                let has = |slot: &u16| bearers[transfer.from].slots.iter().any(|(own, _)| own == slot);
                assert!(transfer.slots.iter().all(|slot| has(slot) && seen.insert(*slot)));
            }
        }
    }
}
