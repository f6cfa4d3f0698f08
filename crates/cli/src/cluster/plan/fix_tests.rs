//! A few primaries that answer SETSLOT, MIGRATE and so on of one slot as Valkey does (cluster_legacy.c,
//! cluster.c): whatever state they are in, the steps leave one owner with all keys. The bus delivers nothing
//! here: that is the worst case.

use std::collections::BTreeSet;

use super::*;
use isotherm_stdx::Prng;

#[derive(Clone, Debug, Default)]
struct Primary {
    /// The owner in its eyes.
    owner: Option<usize>,
    keys: BTreeSet<u64>,
    migrating: Option<usize>,
    importing: Option<usize>,
    epoch: u64,
}

#[derive(Clone, Debug)]
struct Cluster(Vec<Primary>);

type Answer = Result<(), String>;

impl Cluster {
    fn of(count: usize) -> Cluster {
        Cluster(vec![Primary::default(); count])
    }

    fn claims(&self) -> Vec<Claim> {
        let claim = |(at, node): (usize, &Primary)| Claim {
            name: format!("n{at}"),
            id: at.to_string(),
            owns: node.owner == Some(at),
            keys: node.keys.len() as u64,
            epoch: node.epoch,
            migrating_to: node.migrating.map(|to| to.to_string()),
            importing_from: node.importing.map(|from| from.to_string()),
        };
        self.0.iter().enumerate().map(claim).collect()
    }

    fn migrating(&mut self, at: usize, to: usize) -> Answer {
        if self.0[at].owner != Some(at) {
            return Err(format!("I'm not the owner of hash slot, at {at}"));
        }
        self.0[at].migrating = Some(to);
        Ok(())
    }

    fn importing(&mut self, at: usize, from: usize) -> Answer {
        if self.0[at].owner == Some(at) {
            return Err(format!("I'm already the owner of hash slot, at {at}"));
        }
        self.0[at].importing = Some(from);
        Ok(())
    }

    fn stable(&mut self, at: usize) {
        (self.0[at].migrating, self.0[at].importing) = (None, None);
    }

    fn assign(&mut self, at: usize, owner: usize) -> Answer {
        let top = self.0.iter().map(|node| node.epoch).max().unwrap();
        let node = &mut self.0[at];
        if node.owner == Some(at) && owner != at && !node.keys.is_empty() {
            return Err(format!(
                "Can't assign hashslot to a different node while I still hold keys, at {at}"
            ));
        }
        if node.keys.is_empty() {
            node.migrating = None;
        }
        if owner == at && node.importing.take().is_some() {
            node.epoch = top + 1;
        }
        node.owner = Some(owner);
        Ok(())
    }

    fn own(&mut self, at: usize) {
        let top = self.0.iter().map(|node| node.epoch).max().unwrap();
        let node = &mut self.0[at];
        (node.owner, node.importing, node.epoch) = (Some(at), None, top + 1);
    }

    fn migrate(&mut self, from: usize, to: usize, key: u64) -> Answer {
        let source = &self.0[from];
        if source.owner != Some(from) && source.migrating.is_none() && source.importing.is_none() {
            return Err(format!("MOVED, at {from}"));
        }
        let target = &mut self.0[to];
        let is_there = target.keys.contains(&key);
        let serves = target.owner == Some(to) && (target.migrating.is_none() || is_there);
        if !serves && target.importing.is_none() {
            return Err(format!("MOVED or ASK, at {to}"));
        }
        target.keys.insert(key);
        self.0[from].keys.remove(&key);
        Ok(())
    }

    fn migrate_all(&mut self, from: usize, to: usize) -> Answer {
        for key in self.0[from].keys.clone() {
            self.migrate(from, to, key)?;
        }
        Ok(())
    }

    /// Runs one step of a move; `part` is the number of the step.
    fn move_part(&mut self, from: usize, to: usize, part: usize, keys: &[u64]) -> Answer {
        let after_keys = part.checked_sub(2 + keys.len());
        match (part, after_keys) {
            (0, _) => self.importing(to, from),
            (1, _) => self.migrating(from, to),
            (_, None) => self.migrate(from, to, keys[part - 2]),
            (_, Some(0)) => self.assign(to, to),
            (_, Some(1)) => self.assign(from, to),
            (_, Some(rest)) => match (0..self.0.len()).filter(|&at| at != from && at != to).nth(rest - 2) {
                Some(at) => self.assign(at, to),
                None => Ok(()),
            },
        }
    }

    fn run(&mut self, steps: &[Step]) -> Answer {
        for step in steps {
            match *step {
                Step::Info(_) | Step::Warn(_) => {}
                Step::Stable { at } => self.stable(at),
                Step::Own { at } => self.own(at),
                Step::Disown { at } => self.0[at].owner = None,
                Step::Assign { at, owner } => self.assign(at, owner)?,
                Step::Import { at, from } => self.importing(at, from)?,
                Step::MoveKeys { from, to } => self.migrate_all(from, to)?,
                Step::MoveSlot { from, to } => {
                    self.importing(to, from)?;
                    self.migrating(from, to)?;
                    self.migrate_all(from, to)?;
                    self.assign(to, to)?;
                    self.assign(from, to)?;
                    (0..self.0.len()).filter(|&at| at != to).try_for_each(|at| self.assign(at, to))?;
                }
            }
        }
        Ok(())
    }

    fn keys(&self) -> BTreeSet<u64> {
        self.0.iter().flat_map(|node| node.keys.iter().copied()).collect()
    }

    fn is_whole(&self, keys: &BTreeSet<u64>) -> bool {
        let owner = self.0[0].owner;
        let closed = self.0.iter().all(|node| node.migrating.is_none() && node.importing.is_none());
        let agreed = self.0.iter().all(|node| node.owner == owner);
        let at_owner = owner.is_some_and(|owner| self.0[owner].keys == *keys);
        closed && agreed && at_owner && self.keys() == *keys
    }
}

#[test]
fn a_move_that_is_cut_anywhere_ends_well() {
    for keys in 0..5u64 {
        for cut in 0..12 {
            let mut cluster = Cluster::of(4);
            for (at, node) in cluster.0.iter_mut().enumerate() {
                (node.owner, node.epoch) = (Some(1), at as u64 + 1);
            }
            cluster.0[1].keys = (0..keys).collect();
            let keys: Vec<u64> = (0..keys).collect();
            for part in 0..cut {
                cluster.move_part(1, 3, part, &keys).unwrap();
            }
            let all: BTreeSet<u64> = keys.iter().copied().collect();
            let claims = cluster.claims();
            if claims.iter().any(Claim::is_open) {
                let steps = open_slot(7, &claims);
                cluster.run(&steps).unwrap_or_else(|why| panic!("{keys:?} cut {cut}: {why}\n{steps:#?}"));
                assert!(cluster.is_whole(&all), "{keys:?} cut {cut}: {cluster:#?}\n{steps:#?}");
                let begun = cut >= 2;
                assert_eq!(cluster.0[0].owner, Some(if begun { 3 } else { 1 }), "{keys:?} cut {cut}");
            } else {
                assert!(cut == 0 || cut >= 4 + keys.len(), "cut {cut}: nothing is open");
            }
        }
    }
}

#[test]
fn whatever_the_state_one_owner_has_all_keys() {
    let mut prng = Prng::new(2);
    for case in 0..20_000 {
        let count = 2 + prng.below(4) as usize;
        let mut cluster = Cluster::of(count);
        for (at, node) in cluster.0.iter_mut().enumerate() {
            let any = |prng: &mut Prng| prng.below(count as u64) as usize;
            node.epoch = prng.below(5);
            node.owner = (!prng.one_in(4)).then(|| if prng.one_in(3) { at } else { any(&mut prng) });
            let other = (at + 1 + prng.below(count as u64 - 1) as usize) % count;
            if prng.one_in(3) {
                // A node that loses a slot that it gives away keeps the mark if it still has keys.
                node.migrating = Some(other);
            } else if prng.one_in(3) && node.owner != Some(at) {
                node.importing = Some(other);
            }
            if prng.one_in(2) {
                node.keys = (0..prng.below(4)).map(|_| prng.below(6)).collect();
            }
        }
        let before = cluster.clone();
        let claims = cluster.claims();
        let steps = match prng.below(2) {
            0 => open_slot(9, &claims),
            _ => several_owners(9, &claims),
        };
        let keys = before.keys();
        cluster.run(&steps).unwrap_or_else(|why| panic!("{case}: {why}\n{before:#?}\n{steps:#?}"));
        assert!(cluster.is_whole(&keys), "{case}: {before:#?}\n{steps:#?}\n{cluster:#?}");
    }
}

#[test]
fn slots_without_an_owner() {
    assert_eq!(uncovered(&[0, 0]), Uncovered::Nowhere);
    assert_eq!(uncovered(&[]), Uncovered::Nowhere);
    assert_eq!(uncovered(&[0, 3]), Uncovered::At(1));
    assert_eq!(uncovered(&[3, 5, 0, 1]), Uncovered::AtSeveral { most: 1, others: vec![0, 3] });
    assert_eq!(spread(5, &[9, 3, 7]), [1, 1, 2, 2, 0]);
    assert_eq!((spread(1, &[9, 3]), spread(0, &[1])), (vec![1], vec![]));
    let mut cluster = Cluster::of(3);
    (cluster.0[0].keys, cluster.0[2].keys) = (BTreeSet::from([1]), BTreeSet::from([2, 3]));
    cluster.run(&cover(2, &[0])).unwrap();
    assert_eq!(cluster.0[2].keys.len(), 3);
    assert!(cluster.0[0].importing.is_none());
}

#[test]
fn a_move_under_way_is_finished_and_not_turned_round() {
    let claim = |name: &str, owns, keys| Claim {
        name: name.to_string(),
        id: name.to_string(),
        owns,
        keys,
        ..Claim::default()
    };
    let mut claims = [claim("a", true, 5), claim("b", false, 9), claim("c", false, 0)];
    claims[0].migrating_to = Some("b".to_string());
    claims[1].importing_from = Some("a".to_string());
    claims[2].importing_from = Some("a".to_string());
    let acts: Vec<Step> = open_slot(3, &claims)
        .into_iter()
        .filter(|step| !matches!(step, Step::Info(_) | Step::Warn(_)))
        .collect();
    assert_eq!(acts, [Step::MoveSlot { from: 0, to: 1 }, Step::Stable { at: 2 }]);
}
