//! The hand that goes round the large collections of all partitions and shows nodes that may leave memory.
//!
//! Shown are pages of hashes and sets, leaves of sorted sets and blocks of lists and streams that cannot
//! leave as a whole (`values::image`), but for those with a time in them, those with values so large that
//! they would be long to read, and those that a snapshot under way has yet to see. How long ago a node was
//! changed stands in it (of a block of a stream, in its last id); that it was read does not: what left and is
//! needed comes back, and is as recent as what was changed then.

use crate::access::lock::Held;
use crate::layout::cold::ColdRef;
use crate::layout::key::slot_of_blob_head;
use crate::layout::node_name::{FORM_OF_NODES, NodeAt, NodeName};
use crate::values::cold::GIVEN_MS;
use crate::values::image;
use crate::values::nodewise::Nodewise;
use crate::values::object::Root;
use crate::values::store::Store;
use isotherm_stdx::{Steps, UnixMs};

/// Position of the hand.
#[derive(Clone, Copy, Default, Debug)]
pub struct NodeHand {
    partition: u16,
    object: u32,
    index: u32,
    /// Rounds that are complete.
    pub rounds: u64,
}

impl NodeHand {
    /// The partition that the next step looks at: it is to be held.
    pub fn partition(&self) -> u16 {
        self.partition
    }

    /// Shows what may leave of the hand's partition, until about `looks_max` nodes and objects were looked at
    /// or the partition is over.
    pub fn show_sinkable(
        &mut self,
        held: &mut Held<'_>,
        which: ByNodes,
        looks_max: u64,
        now: UnixMs,
        visit: &mut dyn FnMut(SinkableNode<'_>),
    ) {
        let is_one = |root: &Root, number| which.are(root, number);
        self.walk(held, looks_max, &is_one, &mut |store, collection, at| {
            if let Some((bytes, idle_seconds)) = collection.leaving(store, at.name.index(), now) {
                let is_awaited = store.cold.was_given(at.name, GIVEN_MS, now);
                let is_clean = store.cold.clean(at.name).is_some();
                visit(SinkableNode { at, bytes, idle_seconds, is_awaited, is_clean, collection, store });
            }
        });
    }

    /// Shows nodes of the hand's partition that are not in memory, and where they are, until about
    /// `looks_max` nodes and objects were looked at or the partition is over.
    pub fn show_away(&mut self, held: &mut Held<'_>, looks_max: u64, visit: &mut dyn FnMut(NodeAt, ColdRef)) {
        let has_some = |root: &Root, _| root.body.structure().away_nodes() > 0;
        self.walk(held, looks_max, &has_some, &mut |store, collection, at| {
            if let Some(reference) = collection.away_at(store, at.name.index()) {
                visit(at, reference);
            }
        });
    }

    fn walk(
        &mut self,
        held: &mut Held<'_>,
        looks_max: u64,
        is_one: &dyn Fn(&Root, u32) -> bool,
        visit: &mut dyn FnMut(&Store, &dyn Nodewise, NodeAt),
    ) {
        let partitions = held.keyspace.partition_count() as u16;
        let store = &held.numbered(self.partition).store;
        let mut steps = Steps::new(looks_max);
        while !steps.is_spent() {
            steps.look(1);
            if self.object >= store.objects.numbers() {
                let is_round = self.partition + 1 >= partitions;
                *self = NodeHand {
                    partition: if is_round { 0 } else { self.partition + 1 },
                    rounds: self.rounds + u64::from(is_round),
                    ..NodeHand::default()
                };
                return;
            }
            let root = store.objects.find(self.object).filter(|root| is_one(root, self.object));
            match root.and_then(|root| nodewise(root).zip(Some(slot_of_blob_head(root.home)))) {
                Some((collection, slot)) if self.index < collection.node_count() => {
                    let name = NodeName::new(self.object, self.index);
                    visit(store, collection, NodeAt { slot, name });
                    self.index += 1;
                }
                _ => (self.object, self.index) = (self.object + 1, 0),
            }
        }
    }
}

/// A part of a collection that could leave memory.
#[derive(Clone, Copy)]
pub struct SinkableNode<'a> {
    pub at: NodeAt,
    /// Bytes of the node's payload.
    pub bytes: usize,
    /// Seconds since the last change.
    pub idle_seconds: u32,
    /// True if the node has just come back for a command that may not have run yet: it is to stay a little
    /// longer.
    pub is_awaited: bool,
    /// True if the node was not changed since it came back: it need not be written (`HeldNode::chill_clean`).
    pub is_clean: bool,
    collection: &'a dyn Nodewise,
    store: &'a Store,
}

impl SinkableNode<'_> {
    /// Number of the form, by which the payload is read. It is to be remembered with it.
    pub const FORM_NUMBER: u8 = FORM_OF_NODES;

    pub fn write_payload(&self, into: &mut Vec<u8>) {
        self.collection.write_payload(self.store, self.at.name.index(), into);
    }
}

/// Selection of the collections that go by nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ByNodes {
    /// Collections that are too large to leave as a whole.
    Large,
    /// The large collections, and every other one of those that would leave as a whole; for tests.
    Some,
}

impl ByNodes {
    pub(crate) fn are(self, root: &Root, number: u32) -> bool {
        image::goes_by_nodes(root) || self == ByNodes::Some && number.is_multiple_of(2)
    }
}

/// Returns the nodes of an object that an entry names.
fn nodewise(root: &Root) -> Option<&dyn Nodewise> {
    (root.references > 0).then(|| root.body.nodewise())
}
