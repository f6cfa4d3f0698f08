//! `rebalance` by the number of slots: what each node has too many of goes to those that have too few.

use isotherm_stdx::Slot;

#[derive(Clone, Debug)]
pub struct Holder {
    pub node: usize,
    pub slots: usize,
    pub weight: f32,
}

#[derive(Debug, PartialEq)]
pub struct Transfer {
    pub from: usize,
    pub to: usize,
    pub slots: usize,
}

#[derive(Debug, PartialEq)]
pub struct Plan {
    /// Node, and how many slots it has too many (or too few, below zero), ascending.
    pub balance: Vec<(usize, i64)>,
    pub transfers: Vec<Transfer>,
}

/// Plans the moves. Returns `None` if all nodes are within `threshold` percent of their share.
pub fn plan(holders: &[Holder], threshold: f32) -> Option<Plan> {
    let total_weight: f32 = holders.iter().map(|holder| holder.weight).sum();
    if total_weight <= 0.0 {
        return None;
    }
    // As valkey-cli computes it, so that both take the same decision at a threshold.
    let expected = |holder: &Holder| (Slot::COUNT as f32 / total_weight * holder.weight) as i64;
    if threshold <= 0.0 || !holders.iter().any(|holder| is_off(holder, expected(holder), threshold)) {
        return None;
    }
    let mut balance: Vec<(usize, i64)> =
        holders.iter().map(|holder| (holder.node, holder.slots as i64 - expected(holder))).collect();
    spread(holders, &mut balance);
    balance.sort_by_key(|&(_, slots)| slots);
    let transfers = transfers(&balance);
    Some(Plan { balance, transfers })
}

fn is_off(holder: &Holder, expected: i64, threshold: f32) -> bool {
    match holder.slots {
        0 => expected > 1,
        slots => (100.0 - 100.0 * expected as f64 / slots as f64).abs() as f32 > threshold,
    }
}

/// Shares are rounded down, so some slots are left: those that take slots anyway take them, or all nodes, if
/// none does.
fn spread(holders: &[Holder], balance: &mut [(usize, i64)]) {
    let mut left: i64 = balance.iter().map(|(_, slots)| *slots).sum();
    let takers: Vec<usize> =
        (0..balance.len()).filter(|&at| holders[at].weight > 0.0 && balance[at].1 <= 0).collect();
    let takers = if takers.is_empty() { (0..balance.len()).collect() } else { takers };
    for &at in takers.iter().cycle() {
        if left <= 0 {
            break;
        }
        balance[at].1 -= 1;
        left -= 1;
    }
}

/// The one that lacks most gets from the one that has most too many.
fn transfers(balance: &[(usize, i64)]) -> Vec<Transfer> {
    let mut balance = balance.to_vec();
    let mut transfers = Vec::new();
    let (mut to, mut from) = (0, balance.len().saturating_sub(1));
    while to < from {
        let slots = balance[to].1.min(0).abs().min(balance[from].1.max(0));
        if slots > 0 {
            transfers.push(Transfer { from: balance[from].0, to: balance[to].0, slots: slots as usize });
        }
        balance[to].1 += slots;
        balance[from].1 -= slots;
        if balance[to].1 >= 0 {
            to += 1;
        } else {
            from -= 1;
        }
    }
    transfers
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_stdx::Prng;

    fn holders(slots: &[(usize, f32)]) -> Vec<Holder> {
        let holder = |(node, &(slots, weight)): (usize, &(usize, f32))| Holder { node, slots, weight };
        slots.iter().enumerate().map(holder).collect()
    }

    #[test]
    fn a_new_node_gets_a_quarter() {
        let plan = plan(&holders(&[(5461, 1.0), (5462, 1.0), (5461, 1.0), (0, 1.0)]), 2.0).unwrap();
        assert_eq!(plan.balance, [(3, -4096), (0, 1365), (2, 1365), (1, 1366)]);
        let got: usize = plan.transfers.iter().map(|part| part.slots).sum();
        assert_eq!((got, plan.transfers.iter().all(|part| part.to == 3)), (4096, true));
    }

    #[test]
    fn what_is_within_the_threshold_stays() {
        let even = holders(&[(5461, 1.0), (5462, 1.0), (5461, 1.0)]);
        assert_eq!(plan(&even, 2.0), None);
        assert_eq!(plan(&holders(&[(5600, 1.0), (5392, 1.0), (5392, 1.0)]), 3.0), None);
        assert!(plan(&holders(&[(5700, 1.0), (5342, 1.0), (5342, 1.0)]), 2.0).is_some());
        assert_eq!(plan(&holders(&[(9000, 1.0), (7384, 1.0)]), 0.0), None, "as in valkey-cli");
        assert_eq!(plan(&[], 2.0), None);
    }

    #[test]
    fn a_weight_of_nothing_empties_a_node() {
        let plan = plan(&holders(&[(5461, 0.0), (5462, 1.0), (5461, 1.0)]), 2.0).unwrap();
        let left: usize = plan.transfers.iter().filter(|part| part.from == 0).map(|part| part.slots).sum();
        assert_eq!(left, 5461);
    }

    #[test]
    fn each_ends_near_its_share() {
        let mut prng = Prng::new(11);
        for _ in 0..500 {
            let count = 2 + prng.below(9) as usize;
            let mut slots = vec![0usize; count];
            for _ in 0..Slot::COUNT {
                slots[(prng.below(count as u64) * prng.below(count as u64) / count as u64) as usize] += 1;
            }
            let weights: Vec<f32> = (0..count).map(|_| 1.0 + prng.below(4) as f32).collect();
            let pairs: Vec<(usize, f32)> = slots.iter().copied().zip(weights.iter().copied()).collect();
            let Some(plan) = plan(&holders(&pairs), 2.0) else { continue };
            let mut after: Vec<i64> = slots.iter().map(|&slots| slots as i64).collect();
            for part in &plan.transfers {
                after[part.from] -= part.slots as i64;
                after[part.to] += part.slots as i64;
                assert!(after[part.from] >= 0 && part.from != part.to);
            }
            let sum: f32 = weights.iter().sum();
            for (after, weight) in after.iter().zip(&weights) {
                let share = Slot::COUNT as f32 * weight / sum;
                assert!((*after as f32 - share).abs() <= count as f32 + 1.0, "{after} of {share}: {pairs:?}");
            }
            assert!(plan.transfers.len() < count);
        }
    }
}
