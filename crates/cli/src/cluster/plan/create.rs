//! A new cluster: which nodes become primaries, with which slots, and whom each other node follows.
//!
//! ```text
//! nodes by host    a a a, b b, c      in turn from each host: a b c a b a
//! primaries        the first of these, N / (replicas + 1)
//! replicas         the others, for each primary those of another host first; then random swaps while two copies of a shard
//!                  share a host: 10000 for a replica beside its primary, 1 for each of several replicas together
//! ```

use std::collections::HashMap;

use isotherm_stdx::{Prng, Slot};

/// Tries to improve the assignment, for each node.
const SWAPS_PER_NODE: usize = 500;
/// Each looks at every node, so a thousand nodes get fewer: seconds, not minutes.
const LOOKS_MAX: usize = 20_000_000;
const BESIDE_PRIMARY: u64 = 10_000;

#[derive(Debug, PartialEq)]
pub struct Plan {
    /// Node and its slots, the first and the last.
    pub primaries: Vec<(usize, u16, u16)>,
    /// Replica and primary, in the order in which they were matched.
    pub replicas: Vec<(usize, usize)>,
    /// Number of `replicas` that were matched first, as many as the user asked for; the others are additional
    /// ones.
    pub asked_for: usize,
    /// Whom a node follows in the end.
    pub follows: Vec<Option<usize>>,
    /// Score of the first assignment, in which 0 is perfect. `score` is that of the last one.
    pub score_before: u64,
    pub score: u64,
}

pub fn primaries_count(nodes: usize, replicas: usize) -> usize {
    nodes / (replicas + 1)
}

/// True if a replica shares a host with its primary.
pub fn is_beside_primary(score: u64) -> bool {
    score >= BESIDE_PRIMARY
}

pub fn plan(hosts: &[&str], replicas: usize, prng: &mut Prng) -> Plan {
    let order = interleaved(hosts);
    let count = primaries_count(hosts.len(), replicas).max(1).min(hosts.len());
    let (primaries, rest) = order.split_at(count);
    let mut rest: Vec<Option<usize>> = rest.iter().copied().map(Some).collect();
    if !rest.is_empty() {
        rest.rotate_left(1);
    }
    let mut matched = Vec::new();
    for &primary in primaries {
        for _ in 0..replicas {
            let Some(replica) = take_for(primary, hosts, &mut rest) else { break };
            matched.push((replica, primary));
        }
    }
    let asked_for = matched.len();
    for &primary in primaries.iter().cycle() {
        let Some(replica) = take_for(primary, hosts, &mut rest) else { break };
        matched.push((replica, primary));
    }
    let mut follows = vec![None; hosts.len()];
    matched.iter().for_each(|&(replica, primary)| follows[replica] = Some(primary));
    let score_before = score(hosts, &follows);
    let score = improve(hosts, &mut follows, prng);
    Plan { primaries: share_slots(primaries), replicas: matched, asked_for, follows, score_before, score }
}

/// The nodes, one of each host in turn.
fn interleaved(hosts: &[&str]) -> Vec<usize> {
    let mut by_host: Vec<(&str, Vec<usize>)> = Vec::new();
    for (node, host) in hosts.iter().enumerate() {
        match by_host.iter_mut().find(|(known, _)| known == host) {
            Some((_, nodes)) => nodes.push(node),
            None => by_host.push((host, vec![node])),
        }
    }
    let longest = by_host.iter().map(|(_, nodes)| nodes.len()).max().unwrap_or(0);
    (0..longest).flat_map(|at| by_host.iter().filter_map(move |(_, nodes)| nodes.get(at).copied())).collect()
}

fn share_slots(primaries: &[usize]) -> Vec<(usize, u16, u16)> {
    let count = primaries.len();
    let share = Slot::COUNT as f64 / count as f64;
    let mut first = 0;
    let slots_of = |(at, &primary): (usize, &usize)| {
        let end = if at + 1 == count { Slot::COUNT as f64 } else { share * (at + 1) as f64 };
        let last = ((end - 1.0).round() as u16).max(first);
        let range = (primary, first, last);
        first = last + 1;
        range
    };
    primaries.iter().enumerate().map(slots_of).collect()
}

/// A node that no primary has yet, of another host if there is one.
fn take_for(primary: usize, hosts: &[&str], rest: &mut [Option<usize>]) -> Option<usize> {
    let elsewhere = rest.iter().position(|node| node.is_some_and(|node| hosts[node] != hosts[primary]));
    let at = elsewhere.or_else(|| rest.iter().position(Option::is_some))?;
    rest[at].take()
}

/// Returns a measure of how badly copies of the same shard share hosts.
fn score(hosts: &[&str], follows: &[Option<usize>]) -> u64 {
    groups(hosts, follows).values().map(|group| group.score()).sum()
}

/// The copies of a shard on one host.
#[derive(Default)]
struct Group {
    has_primary: bool,
    replicas: Vec<usize>,
}

impl Group {
    fn score(&self) -> u64 {
        let replicas = self.replicas.len() as u64;
        match (self.has_primary, replicas) {
            (true, _) => BESIDE_PRIMARY * replicas,
            (false, 0 | 1) => 0,
            (false, _) => replicas,
        }
    }
}

fn groups<'a>(hosts: &[&'a str], follows: &[Option<usize>]) -> HashMap<(&'a str, usize), Group> {
    let mut groups: HashMap<(&str, usize), Group> = HashMap::new();
    for (node, host) in hosts.iter().enumerate() {
        let group = groups.entry((*host, follows[node].unwrap_or(node))).or_default();
        match follows[node] {
            Some(_) => group.replicas.push(node),
            None => group.has_primary = true,
        }
    }
    groups
}

/// Swaps the primaries of two replicas, one of them badly placed, and keeps what is not worse: the way to the
/// best may lead over several swaps.
fn improve(hosts: &[&str], follows: &mut [Option<usize>], prng: &mut Prng) -> u64 {
    let before = score(hosts, follows);
    if hosts.iter().all(|host| *host == hosts[0]) {
        return before;
    }
    let (mut now, first) = (before, follows.to_vec());
    let replicas: Vec<usize> = (0..hosts.len()).filter(|&node| follows[node].is_some()).collect();
    for _ in 0..(SWAPS_PER_NODE * hosts.len()).min(LOOKS_MAX / hosts.len()) {
        if now == 0 || replicas.len() < 2 {
            break;
        }
        let mut bad: Vec<usize> = groups(hosts, follows)
            .values()
            .filter(|group| group.score() > 0)
            .flat_map(|group| group.replicas.iter().copied())
            .collect();
        // The order of a map is another one in each run, and a seed is to give one plan.
        bad.sort_unstable();
        let (one, other) = (*prng.pick(&bad), *prng.pick(&replicas));
        follows.swap(one, other);
        let then = score(hosts, follows);
        if then > now {
            follows.swap(one, other);
        } else {
            now = then;
        }
    }
    if now == before {
        // Other places that are no better are no reason to leave the first ones.
        follows.copy_from_slice(&first);
    }
    now
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(hosts: &[&str], replicas: usize) -> Plan {
        plan(hosts, replicas, &mut Prng::new(1))
    }

    #[test]
    fn slots_as_valkey_cli_shares_them() {
        let plan = of(&["a", "b", "c"], 0);
        assert_eq!(plan.primaries, [(0, 0, 5460), (1, 5461, 10922), (2, 10923, 16383)]);
        let plan = of(&["a"; 6], 1);
        assert_eq!(plan.primaries.len(), 3);
        assert_eq!(plan.replicas, [(4, 0), (5, 1), (3, 2)]);
        assert!(is_beside_primary(plan.score));
    }

    #[test]
    fn no_copy_beside_another_where_that_is_possible() {
        let plan = of(&["a", "a", "b", "b", "c", "c"], 1);
        assert_eq!(plan.score, 0);
        let plan = of(&["a", "a", "a", "b", "b", "b", "c", "c", "c"], 2);
        assert_eq!(plan.score, 0);
    }

    #[test]
    fn every_plan_is_whole() {
        let mut prng = Prng::new(7);
        for _ in 0..40 {
            let names = ["a", "b", "c", "d", "e"];
            let hosts: Vec<&str> = (0..1 + prng.below(20)).map(|_| names[prng.below(5) as usize]).collect();
            let replicas = prng.below(4) as usize;
            let plan = plan(&hosts, replicas, &mut prng);
            let mut next = 0;
            for &(primary, first, last) in &plan.primaries {
                assert_eq!(u32::from(first), next);
                assert!(plan.follows[primary].is_none());
                next = u32::from(last) + 1;
            }
            assert_eq!(next, Slot::COUNT as u32);
            assert_eq!(plan.primaries.len() + plan.replicas.len(), hosts.len());
            assert_eq!(plan.follows.iter().flatten().count(), plan.replicas.len());
            assert!(plan.score <= plan.score_before);
            // Each primary has as many replicas as was asked for, if there are enough nodes.
            let of = |primary: usize| plan.follows.iter().filter(|&&own| own == Some(primary)).count();
            if primaries_count(hosts.len(), replicas) >= 1 {
                assert!(plan.primaries.iter().all(|&(primary, ..)| of(primary) >= replicas), "{plan:?}");
            }
        }
    }
}
