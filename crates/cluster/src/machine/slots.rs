//! The owners of the slots, as this node sees them, and the slots that are open (clusterAddSlot,
//! clusterDelSlot, clusterDelNodeSlots, clusterMoveNodeSlots).
//!
//! Invariants (`check_invariants`): an owner is a node of the table, and so is one that an open slot names; a
//! node's `slot_count` is the number of slots that it owns. A slot is migrating only if this node (or its
//! primary) owns it.

use super::Handle;
use super::node::Nodes;
use crate::conf::Conf;
use crate::topology::NodeIndex;
use crate::{Flags, NodeId, Slot, SlotRanges, SlotSet};
use std::collections::BTreeMap;
use std::sync::Arc;

pub struct Slots {
    /// Indexed by slot.
    owners: Box<[Option<Handle>; Slot::COUNT]>,
    /// Counts their changes.
    version: u64,
    shape: Option<Shape>,
    /// Slots whose owner does not claim them any more; no node else does yet.
    pub unclaimed: SlotSet,
    pub migrating: BTreeMap<Slot, Handle>,
    pub importing: BTreeMap<Slot, Handle>,
}

/// Owners as others see them. It stays the same while no node is added or removed and no slot moves.
#[derive(Clone)]
pub struct Shape {
    /// Versions of the nodes and of the owners from which the shape was made.
    versions: (u64, u64),
    pub owners: Arc<[Option<NodeIndex>; Slot::COUNT]>,
    /// Slots of each node, in the order of the nodes.
    pub slots: Vec<SlotRanges>,
}

impl Slots {
    pub fn new() -> Slots {
        Slots {
            owners: Box::new([None; Slot::COUNT]),
            version: 0,
            shape: None,
            unclaimed: SlotSet::new(),
            migrating: BTreeMap::new(),
            importing: BTreeMap::new(),
        }
    }

    /// Gives the nodes what the file says that they own.
    pub fn from_conf(conf: &Conf, nodes: &mut Nodes) -> Slots {
        let mut slots = Slots::new();
        for node in &conf.nodes {
            let known = nodes.find(&node.id).expect("it was added");
            node.slots.iter().for_each(|slot| slots.give(slot, known, nodes));
        }
        let find = |open: &[(Slot, NodeId)]| -> BTreeMap<Slot, Handle> {
            open.iter().filter_map(|(slot, id)| Some((*slot, nodes.find(id)?))).collect()
        };
        let me = conf.myself();
        (slots.migrating, slots.importing) = (find(&me.migrating), find(&me.importing));
        slots
    }

    pub fn owner(&self, slot: Slot) -> Option<Handle> {
        self.owners[slot.index()]
    }

    /// Returns whether a node owns exactly these slots.
    pub fn are_owned(&self, slots: &SlotSet, node: Handle, nodes: &Nodes) -> bool {
        usize::from(nodes[node].slot_count) == slots.len()
            && slots.iter().all(|slot| self.owner(slot) == Some(node))
    }

    /// No owner, or one that has stopped saying so.
    pub fn is_unclaimed(&self, slot: Slot) -> bool {
        self.owner(slot).is_none() || self.unclaimed.has(slot)
    }

    pub fn give(&mut self, slot: Slot, node: Handle, nodes: &mut Nodes) {
        self.take(slot, nodes);
        let with_replicas = nodes.iter().any(|(_, node)| node.is_replica());
        let owner = &mut nodes[node];
        owner.slot_count += 1;
        // A primary that gets its first slot may be given replicas, if this is a cluster with replicas.
        if owner.slot_count == 1 && with_replicas {
            owner.flags.set(Flags::MIGRATE_TO);
        }
        self.owners[slot.index()] = Some(node);
        self.version += 1;
    }

    /// Takes a slot from its owner. Returns whether it had one.
    pub fn take(&mut self, slot: Slot, nodes: &mut Nodes) -> bool {
        let Some(owner) = self.owners[slot.index()].take() else { return false };
        nodes[owner].slot_count -= 1;
        self.version += 1;
        self.unclaimed.remove(slot);
        true
    }

    pub fn close_all(&mut self) {
        self.migrating.clear();
        self.importing.clear();
    }

    /// Closes the slots that are open from or to a node. Returns whether there were any.
    pub fn close_all_of(&mut self, node: Handle) -> bool {
        let before = (self.migrating.len(), self.importing.len());
        self.migrating.retain(|_, other| *other != node);
        self.importing.retain(|_, other| *other != node);
        before != (self.migrating.len(), self.importing.len())
    }

    /// Lets open slots that point to `from` point to `to`.
    pub fn redirect(&mut self, from: Handle, to: Handle) {
        for node in self.importing.values_mut().chain(self.migrating.values_mut()) {
            if *node == from {
                *node = to;
            }
        }
    }

    /// Returns the slots of a node that is one, from what is made once for all.
    pub fn of(&mut self, node: Handle, nodes: &Nodes) -> SlotRanges {
        let place = nodes.iter().position(|(handle, _)| handle == node).expect("a handle is of a node");
        self.shape(nodes).slots[place].clone()
    }

    pub fn shape(&mut self, nodes: &Nodes) -> &Shape {
        let versions = (nodes.version(), self.version);
        if self.shape.as_ref().is_none_or(|shape| shape.versions != versions) {
            self.shape = Some(self.new_shape(nodes, versions));
        }
        self.shape.as_ref().expect("made above")
    }

    fn new_shape(&self, nodes: &Nodes, versions: (u64, u64)) -> Shape {
        let indexes = nodes.indexes();
        let index_of = |slot: Slot| self.owner(slot).and_then(|owner| indexes[owner.number() as usize]);
        let mut owners = [None; Slot::COUNT];
        Slot::all().for_each(|slot| owners[slot.index()] = index_of(slot));
        let owner = |slot: Slot| owners[slot.index()].map(|index: NodeIndex| usize::from(index.0));
        let slots = SlotRanges::by_owner(nodes.len(), owner);
        Shape { versions, owners: Arc::new(owners), slots }
    }

    pub fn check_invariants(&self, nodes: &Nodes) -> Result<(), String> {
        let mut counts = vec![0u16; nodes.places()];
        for owner in self.owners.iter().flatten() {
            if !nodes.has(*owner) {
                return Err(format!("a slot belongs to {owner:?}, which is no node"));
            }
            counts[owner.number() as usize] += 1;
        }
        for (handle, node) in nodes.iter() {
            let owned = counts[handle.number() as usize];
            if node.slot_count != owned {
                return Err(format!("{}: {} slots counted, {owned} owned", node.id, node.slot_count));
            }
        }
        let opened = self.migrating.values().chain(self.importing.values());
        match opened.into_iter().find(|node| !nodes.has(**node)) {
            Some(node) => Err(format!("an open slot names {node:?}, which is no node")),
            None => Ok(()),
        }
    }
}
