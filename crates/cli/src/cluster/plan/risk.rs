//! Events that a cluster would not survive: the loss of a host or an availability zone, and slots that are
//! too large or too hot.
//!
//! A replica is promoted by the votes of a majority of the primaries that have slots. So a place is a danger
//! if the primaries elsewhere are not that majority, or if it has all copies of a shard.

use std::collections::BTreeMap;

use isotherm_stdx::Slot;

/// A node as this file sees it.
#[derive(Clone, Debug)]
pub struct Copy<'a> {
    /// The primary that it is or follows, if that has slots.
    pub shard: &'a str,
    pub is_primary: bool,
    pub host: &'a str,
    /// Empty where the node does not say.
    pub zone: &'a str,
}

/// Consequences of losing a place.
#[derive(Clone, PartialEq, Debug)]
pub struct Danger<'a> {
    /// `on host` or `in availability zone`.
    pub kind: &'static str,
    pub place: &'a str,
    pub primaries_there: usize,
    pub primaries: usize,
    /// Shards that have no copy elsewhere.
    pub lost: Vec<&'a str>,
    /// True if all nodes are in the place.
    pub has_all: bool,
}

impl Danger<'_> {
    fn keeps_majority(&self) -> bool {
        self.primaries_there == 0 || self.primaries - self.primaries_there > self.primaries / 2
    }

    pub fn text(&self) -> String {
        let Danger { kind, place, primaries_there, primaries, .. } = self;
        if self.has_all {
            return format!("All nodes are {kind} {place}: its loss stops the cluster.");
        }
        let mut reasons = Vec::new();
        if !self.keeps_majority() {
            reasons.push(format!(
                "{primaries_there} of {primaries} primaries are there, and no majority is left to promote replicas"
            ));
        }
        if !self.lost.is_empty() {
            let shards: Vec<&str> = self.lost.iter().map(|id| id.get(..8).unwrap_or(id)).collect();
            reasons.push(format!("all copies of {} shard(s) are there: {}", shards.len(), shards.join(", ")));
        }
        let what = kind.split_once(' ').map_or(*kind, |(_, what)| what);
        format!("The loss of {what} {place} stops the cluster: {}.", reasons.join("; "))
    }
}

pub fn dangers<'a>(copies: &[Copy<'a>]) -> Vec<Danger<'a>> {
    let mut dangers = by_place(copies, "on host", |copy| copy.host);
    let zones = by_place(copies, "in availability zone", |copy| copy.zone);
    dangers.extend(zones.into_iter().filter(|danger| !danger.place.is_empty()));
    dangers
}

fn by_place<'a>(copies: &[Copy<'a>], kind: &'static str, place: fn(&Copy<'a>) -> &'a str) -> Vec<Danger<'a>> {
    let primaries = copies.iter().filter(|copy| copy.is_primary).count();
    let mut places: BTreeMap<&str, Vec<&Copy<'a>>> = BTreeMap::new();
    copies.iter().for_each(|copy| places.entry(place(copy)).or_default().push(copy));
    let has_all = places.len() == 1;
    let danger = |(name, there): (&'a str, Vec<&Copy<'a>>)| {
        let stays = |shard: &str| copies.iter().any(|copy| copy.shard == shard && place(copy) != name);
        let mut lost: Vec<&str> = there.iter().map(|copy| copy.shard).filter(|shard| !stays(shard)).collect();
        lost.sort_unstable();
        lost.dedup();
        let primaries_there = there.iter().filter(|copy| copy.is_primary).count();
        Danger { kind, place: name, primaries_there, primaries, lost, has_all }
    };
    let all = places.into_iter().map(danger);
    all.filter(|danger| !danger.keeps_majority() || !danger.lost.is_empty()).collect()
}

/// Load of a slot, from CLUSTER SLOT-STATS. A value that the server does not measure is `None`.
#[derive(Clone, Default, PartialEq, Debug)]
pub struct SlotLoad {
    pub slot: u16,
    pub keys: u64,
    pub bytes: Option<u64>,
    pub cpu_usec: Option<u64>,
}

#[derive(Clone, PartialEq, Debug)]
pub struct Heavy {
    pub node: usize,
    pub slot: u16,
    pub text: String,
    share: u64,
}

/// A slot stands out if it is a tenth of its node ..
const PART_OF_NODE: u64 = 10;
/// .. and a multiple of the average of all slots of the cluster ..
const TIMES_AVERAGE: u64 = 20;
/// .. and of some size at all.
const KEYS_MIN: u64 = 100_000;
const BYTES_MIN: u64 = 64 << 20;
const CPU_USEC_MIN: u64 = 1_000_000;
/// Lines of a report.
pub const HEAVY_MAX: usize = 10;

struct Measure {
    of: fn(&SlotLoad) -> u64,
    least: u64,
    text: fn(u64, u64) -> String,
}

const MEASURES: [Measure; 3] = [
    Measure {
        of: |load| load.bytes.unwrap_or(0),
        least: BYTES_MIN,
        text: |bytes, share| {
            format!("is large: {} MB, {share} % of the memory of its node's keys", bytes >> 20)
        },
    },
    Measure {
        // Where there are bytes, they say more.
        of: |load| if load.bytes.is_none() { load.keys } else { 0 },
        least: KEYS_MIN,
        text: |keys, share| format!("is large: {keys} keys, {share} % of its node's"),
    },
    Measure {
        of: |load| load.cpu_usec.unwrap_or(0),
        least: CPU_USEC_MIN,
        text: |cpu, share| format!("is hot: {} ms of CPU time, {share} % of its node's commands", cpu / 1000),
    },
];

/// The slots that stand out, the worst first. One hash tag is one slot, which no reshard divides.
pub fn heavy(nodes: &[Vec<SlotLoad>]) -> Vec<Heavy> {
    let mut heavy = Vec::new();
    for measure in &MEASURES {
        let total: u64 = nodes.iter().flatten().map(measure.of).sum();
        let average = total / Slot::COUNT as u64;
        for (node, loads) in nodes.iter().enumerate() {
            let own: u64 = loads.iter().map(measure.of).sum();
            for load in loads {
                let amount = (measure.of)(load);
                let stands_out = amount >= own / PART_OF_NODE && amount >= average * TIMES_AVERAGE;
                if stands_out && amount >= measure.least {
                    let share = amount * 100 / own;
                    heavy.push(Heavy { node, slot: load.slot, text: (measure.text)(amount, share), share });
                }
            }
        }
    }
    heavy.sort_by_key(|slot| std::cmp::Reverse(slot.share));
    heavy.truncate(HEAVY_MAX);
    heavy
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copy<'a>(shard: &'a str, is_primary: bool, host: &'a str, zone: &'a str) -> Copy<'a> {
        Copy { shard, is_primary, host, zone }
    }

    #[test]
    fn three_hosts_survive_one() {
        let copies = [
            copy("s1", true, "a", ""),
            copy("s2", true, "b", ""),
            copy("s3", true, "c", ""),
            copy("s1", false, "b", ""),
            copy("s2", false, "c", ""),
            copy("s3", false, "a", ""),
        ];
        assert_eq!(dangers(&copies), []);
    }

    #[test]
    fn a_majority_on_one_host() {
        let copies = [
            copy("s1", true, "a", ""),
            copy("s2", true, "a", ""),
            copy("s3", true, "b", ""),
            copy("s1", false, "b", ""),
            copy("s2", false, "b", ""),
            copy("s3", false, "a", ""),
        ];
        let found = dangers(&copies);
        assert_eq!(
            found.iter().map(Danger::text).collect::<Vec<_>>(),
            [
                "The loss of host a stops the cluster: 2 of 3 primaries are there, and no majority is left to promote replicas."
            ]
        );
    }

    #[test]
    fn all_copies_of_a_shard_in_a_zone() {
        let copies = [
            copy("s1", true, "a", "z1"),
            copy("s1", false, "b", "z1"),
            copy("s2", true, "c", "z2"),
            copy("s2", false, "d", "z1"),
            copy("s3", true, "e", "z3"),
            copy("s3", false, "f", "z2"),
        ];
        let texts: Vec<String> = dangers(&copies).iter().map(Danger::text).collect();
        assert_eq!(
            texts,
            ["The loss of availability zone z1 stops the cluster: all copies of 1 shard(s) are there: s1."]
        );
    }

    #[test]
    fn one_host_for_all_is_one_line() {
        let copies = [copy("s1", true, "a", ""), copy("s2", true, "a", "")];
        let texts: Vec<String> = dangers(&copies).iter().map(Danger::text).collect();
        assert_eq!(texts, ["All nodes are on host a: its loss stops the cluster."]);
        assert_eq!(dangers(&[]), []);
    }

    #[test]
    fn slots_that_stand_out() {
        let even: Vec<SlotLoad> =
            (0..8000).map(|slot| SlotLoad { slot, keys: 1000, ..SlotLoad::default() }).collect();
        assert_eq!(heavy(std::slice::from_ref(&even)), []);
        let mut odd = even.clone();
        odd[7].keys = 3_000_000;
        odd[9].cpu_usec = Some(5_000_000);
        let found = heavy(&[even, odd]);
        let texts: Vec<(u16, &str)> = found.iter().map(|slot| (slot.slot, slot.text.as_str())).collect();
        assert_eq!(
            texts,
            [
                (9, "is hot: 5000 ms of CPU time, 100 % of its node's commands"),
                (7, "is large: 3000000 keys, 27 % of its node's")
            ]
        );
        // A node with one slot, which is like all others.
        let bytes = |slot| SlotLoad { slot, bytes: Some(100 << 20), ..SlotLoad::default() };
        assert_eq!(heavy(&[(1..16384).map(bytes).collect(), vec![bytes(0)]]), []);
    }
}
