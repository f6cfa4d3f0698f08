//! Snapshots of collections whose parts leave memory one by one: parts that change, leave, come back and move
//! during one do not show in it, and one that is given up half way leaves nothing behind.

use crate::cold::Keeper;
use crate::cold_world::ColdWorld;
use isotherm_keyspace::*;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Collections by their keys.
pub type Model<C> = BTreeMap<Vec<u8>, C>;

/// Collections of one kind, compared with a model.
pub trait Modelled {
    type Collection: Clone + Default + PartialEq;

    fn new(seed: u64) -> Self;
    fn cold(&mut self) -> &mut ColdWorld;
    fn model(&self) -> &Model<Self::Collection>;
    /// Any of what may happen.
    fn step(&mut self);
    /// Moves what the hand shows out of memory; sometimes it has changed since it was shown.
    fn sink(&mut self);
    fn check_all(&mut self);
    /// A snapshot has a small collection as one entry.
    fn whole(value: Value<'_>) -> Self::Collection;
    /// Adds a part of a large collection, which a snapshot has in parts.
    fn add_part(collection: &mut Self::Collection, part: Part<'_>);
}

/// Collections that a snapshot has emitted.
struct Taken<C> {
    model: Model<C>,
    /// Key of the collection whose parts come.
    key: Option<Vec<u8>>,
    /// Number of nodes that were not in memory.
    nodes: u64,
}

/// Nodes that were not in memory.
#[derive(Default)]
struct Away {
    emitted: u64,
    /// Nodes of snapshots that were given up before they came to these nodes.
    cut_off: u64,
}

pub fn have_them_as_they_were_at_the_cut<W: Modelled>() {
    let mut away = Away::default();
    for seed in 0..16 {
        println!("seed {seed}");
        let mut world = W::new(100 + seed);
        (0..300).for_each(|_| world.step());
        for _ in 0..8 {
            (0..10).for_each(|_| world.sink());
            let steps_max = if world.cold().prng.one_in(4) { world.cold().prng.below(40) } else { u64::MAX };
            check_one(&mut world, steps_max, &mut away);
            world.cold().keyspace.check_invariants();
            // Otherwise the next one meets what this one may have left.
            if world.cold().prng.one_in(4) {
                world.check_all();
            }
        }
        world.check_all();
        world.cold().end();
    }
    let Away { emitted, cut_off } = away;
    assert!(emitted > 100 && cut_off > 100, "{emitted} {cut_off}");
}

/// Checks a snapshot that continues to its end, or is given up after `steps_max` steps.
fn check_one<W: Modelled>(world: &mut W, steps_max: u64, away: &mut Away) {
    let (expected, at_cut) = (world.model().clone(), world.cold().away());
    let keeper = Arc::clone(&world.cold().keeper);
    let mut snapshot = world.cold().keyspace.snapshot().expect("there is one at a time");
    keeper.begin_snapshot();
    let mut taken = Taken { model: Model::new(), key: None, nodes: 0 };
    let has_ended = (0..steps_max).any(|_| {
        let more = snapshot.step(40, &mut |item| take::<W>(&mut taken, &keeper, item));
        if more && world.cold().prng.one_in(2) {
            world.step();
        }
        !more
    });
    assert!(taken.nodes <= at_cut, "what a snapshot has yet to see does not leave");
    away.emitted += taken.nodes;
    if has_ended {
        drop(snapshot);
        assert!(taken.model == expected);
    } else {
        give_up(world.cold(), snapshot);
        away.cut_off += at_cut - taken.nodes;
        if let Some(begun) = taken.key.take() {
            taken.model.remove(&begun);
        }
        assert!(taken.model.iter().all(|(key, collection)| expected.get(key) == Some(collection)));
    }
    keeper.end_snapshot();
}

fn give_up(world: &mut ColdWorld, snapshot: Snapshot<'static>) {
    match world.prng.below(3) {
        0 => drop(snapshot),
        1 => snapshot.abort(),
        _ => {
            let mut held = Held::new(world.keyspace);
            held.acquire(Want::All);
            snapshot.abort_in(&mut held);
        }
    }
}

fn take<W: Modelled>(taken: &mut Taken<W::Collection>, keeper: &Keeper, item: SnapshotItem<'_>) {
    match item {
        SnapshotItem::Begin { key, .. } => {
            assert!(taken.key.replace(key.to_vec()).is_none(), "nothing comes between the parts of another");
            assert!(taken.model.insert(key.to_vec(), W::Collection::default()).is_none(), "each comes once");
        }
        SnapshotItem::Part(part) => W::add_part(taken.collection(), part),
        SnapshotItem::Node(node) => {
            taken.nodes += 1;
            let payload = keeper.read_for_snapshot(node.reference());
            assert!(node.parts(&payload, |part| W::add_part(taken.collection(), part)));
        }
        SnapshotItem::Entry(entry) => {
            assert!(taken.key.is_none(), "nothing comes between the parts of another");
            let old = taken.model.insert(entry.key.to_vec(), W::whole(entry.value));
            assert!(old.is_none(), "each comes once");
        }
        SnapshotItem::End => assert!(taken.key.take().is_some(), "it was begun"),
        SnapshotItem::Bundle(_) => panic!("nothing is frozen"),
    }
}

impl<C> Taken<C> {
    fn collection(&mut self) -> &mut C {
        let key = self.key.as_ref().expect("it was begun");
        self.model.get_mut(key).expect("it was begun")
    }
}
