//! Snapshots of collections whose parts leave memory one by one: what changes, leaves, comes back and moves beside one does not show in it.

use crate::cold::Keeper;
use crate::cold_world::ColdWorld;
use isotherm_keyspace::*;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Collections by their keys.
pub type Model<C> = BTreeMap<Vec<u8>, C>;

/// Collections of one kind, beside a model.
pub trait Modelled {
    type Collection: Clone + Default + PartialEq;

    fn new(seed: u64) -> Self;
    fn cold(&mut self) -> &mut ColdWorld;
    fn model(&self) -> &Model<Self::Collection>;
    /// Any of what may happen.
    fn step(&mut self);
    /// What the hand shows leaves memory; sometimes it has changed since it was shown.
    fn sink(&mut self);
    /// A snapshot has a small collection as one entry.
    fn whole(value: Value<'_>) -> Self::Collection;
    /// It has a large one in parts.
    fn add_part(collection: &mut Self::Collection, part: Part<'_>);
}

/// What a snapshot has emitted.
struct Taken<C> {
    model: Model<C>,
    key: Vec<u8>,
    /// Those that were not in memory.
    nodes: u64,
}

pub fn have_them_as_they_were_at_the_cut<W: Modelled>() {
    let mut nodes = 0;
    for seed in 0..8 {
        println!("seed {seed}");
        let mut world = W::new(100 + seed);
        (0..300).for_each(|_| world.step());
        for _ in 0..6 {
            (0..10).for_each(|_| world.sink());
            nodes += check_one(&mut world);
            world.cold().keyspace.check_invariants();
        }
        world.cold().end();
    }
    assert!(nodes > 100, "{nodes}");
}

/// How many nodes of one were not in memory.
fn check_one<W: Modelled>(world: &mut W) -> u64 {
    let expected = world.model().clone();
    let keeper = Arc::clone(&world.cold().keeper);
    let mut snapshot = world.cold().keyspace.snapshot().expect("there is one at a time");
    keeper.begin_snapshot();
    let mut taken = Taken { model: Model::new(), key: Vec::new(), nodes: 0 };
    while snapshot.step(40, &mut |item| take::<W>(&mut taken, &keeper, item)) {
        if world.cold().prng.one_in(2) {
            world.step();
        }
    }
    drop(snapshot);
    keeper.end_snapshot();
    assert!(taken.model == expected);
    taken.nodes
}

fn take<W: Modelled>(taken: &mut Taken<W::Collection>, keeper: &Keeper, item: SnapshotItem<'_>) {
    match item {
        SnapshotItem::Begin { key, .. } => {
            taken.key = key.to_vec();
            assert!(taken.model.insert(key.to_vec(), W::Collection::default()).is_none(), "each comes once");
        }
        SnapshotItem::Part(part) => W::add_part(taken.collection(), part),
        SnapshotItem::Node(node) => {
            taken.nodes += 1;
            let payload = keeper.read_for_snapshot(node.reference());
            assert!(node.parts(&payload, |part| W::add_part(taken.collection(), part)));
        }
        SnapshotItem::Entry(entry) => {
            let old = taken.model.insert(entry.key.to_vec(), W::whole(entry.value));
            assert!(old.is_none(), "each comes once");
        }
        SnapshotItem::End => {}
        SnapshotItem::Bundle(_) => panic!("nothing is frozen"),
    }
}

impl<C> Taken<C> {
    fn collection(&mut self) -> &mut C {
        self.model.get_mut(&self.key).expect("it was begun")
    }
}
