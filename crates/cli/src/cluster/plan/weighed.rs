//! `rebalance --by-bytes` and `--by-cpu`: slots weigh what CLUSTER SLOT-STATS says, and each node is to bear its share.
//!
//! As few slots as possible move: the heaviest that fits leaves the node that bears most too much, for the one that bears
//! least. A slot that weighs nothing stays, unless its node is to be emptied. A slot is never divided (a hash tag is one slot),
//! so one that weighs more than a node's share stays where it is.

#[derive(Clone, Debug)]
pub struct Bearer {
    pub node: usize,
    /// Of the whole: in proportion to all weights.
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
}

/// Nodes within `threshold` percent of their share give nothing.
pub fn plan(bearers: &[Bearer], threshold: f64) -> Plan {
    let total: u64 = bearers.iter().map(Bearer::load).sum();
    let weights: f64 = bearers.iter().map(|bearer| bearer.weight).sum();
    let shares: Vec<f64> = bearers
        .iter()
        .map(|bearer| if weights > 0.0 { total as f64 * bearer.weight / weights } else { 0.0 })
        .collect();
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
            if !empties && (load == 0 || !is_over(&loads)) {
                break;
            }
            let lacks = |&taker: &usize| shares[taker] - loads[taker];
            let takers = (0..bearers.len()).filter(|&at| at != giver && bearers[at].weight > 0.0);
            let Some(taker) = takers.max_by(|a, b| lacks(a).total_cmp(&lacks(b))) else { break };
            let fits = load as f64 <= lacks(&taker).min(loads[giver] - shares[giver]);
            if !empties && !fits {
                continue;
            }
            loads[giver] -= load as f64;
            loads[taker] += load as f64;
            add(&mut transfers, bearers[giver].node, bearers[taker].node, slot, load);
        }
    }
    transfers.iter_mut().for_each(|transfer| transfer.slots.sort_unstable());
    let shown = |(at, bearer): (usize, &Bearer)| (bearer.node, bearer.load(), loads[at].round() as u64);
    Plan { loads: bearers.iter().enumerate().map(shown).collect(), transfers }
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
    fn a_slot_above_the_share_stays() {
        let plan = plan(&[bearer(0, 1.0, &[(1, 90), (2, 10)]), bearer(1, 1.0, &[(3, 10)])], 2.0);
        assert_eq!(plan.transfers, [Transfer { from: 0, to: 1, slots: vec![2], load: 10 }]);
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
            for (&(_, before, after), bearer) in plan.loads.iter().zip(&bearers) {
                let share = total as f64 * bearer.weight / weights;
                let (off_before, off) = ((before as f64 - share).abs(), (after as f64 - share).abs());
                assert!(off <= off_before + 1.0);
                // With slots this small each giver ends at its threshold; its slots are a thousandth of its share.
                assert!(after as f64 <= share * 1.03 + 1000.0, "{after} of {share}");
            }
            let mut seen = std::collections::BTreeSet::new();
            for transfer in &plan.transfers {
                let has = |slot: &u16| bearers[transfer.from].slots.iter().any(|(own, _)| own == slot);
                assert!(transfer.slots.iter().all(|slot| has(slot) && seen.insert(*slot)));
            }
        }
    }
}
