//! Changes by the bus thread: the topology, and the words of slots with all that hangs on a slot.
//!
//! ```text
//!   flip     partition by partition, under its lock:   the words are set
//!            a slot that is lost                       its watches rise, clients that wait for its keys are answered (MOVED)
//!   behind it                                          clients that listen to its channels hear that it is over (sunsubscribe)
//! ```
//! A client that registers for a slot (BLPOP, WATCH, SSUBSCRIBE) reads its word under the same lock: either
//! it is found here, or it finds that the slot is lost.

use isotherm_cluster::topology::{State, Topology};
use isotherm_cluster::{Slot, SlotSet};
use isotherm_keyspace::{Held, SlotKeys, Want};
use std::sync::Arc;
use std::sync::atomic::Ordering::Acquire;

use isotherm_engine::request::blocking;
use isotherm_node::Node;
use isotherm_node::cluster::words::{Owner, SlotState, Word};
use isotherm_node::mail::message::{Without, WorkerMessage};
use isotherm_node::mail::tasks::Tasks;

/// Returns whether a topology has no other consequence than that clients are answered from it.
pub fn wakes_no_client(node: &Node, topology: &Topology) -> bool {
    let member = node.cluster.get().expect("the bus thread runs in a member of a cluster");
    topology.state == State::Ok && member.slot_listeners.load(Acquire) == 0
}

/// Everyone answers from this topology, from each worker's next batch on. No lock is held.
pub fn publish(node: &'static Node, topology: Arc<Topology>) {
    let member = node.cluster.get().expect("the bus thread runs in a member of a cluster");
    if member.topologies.set(topology) {
        // A client that begins to wait later looks for itself.
        for client in node.clients.all() {
            blocking::unblock(&client, Without::ClusterDown);
        }
    }
}

/// Slots become what `changes` says. When it returns no command runs on a slot that is lost. It takes the
/// locks of partitions, one after the other: a thread that must not wait leaves it to another one.
pub fn flip(node: &'static Node, changes: &[(Slot, SlotState)]) {
    let keyspace = &node.keyspace;
    let mut changes = changes.to_vec();
    changes.sort_by_key(|(slot, _)| (keyspace.partition_of(*slot), slot.get()));
    let mut held = Held::new(keyspace);
    let (mut lost, mut moved) = (SlotSet::new(), SlotSet::new());
    let same = |a: &(Slot, SlotState), b: &(Slot, SlotState)| {
        keyspace.partition_of(a.0) == keyspace.partition_of(b.0)
    };
    for part in changes.chunk_by(same) {
        held.acquire(Want::One(keyspace.partition_of(part[0].0)));
        flip_held(node, &mut held, part, &mut lost, &mut moved);
        held.release();
    }
    if !moved.is_empty() {
        node.stats.reset_slots(&moved);
    }
    if !lost.is_empty() {
        let lost = Arc::new(lost);
        node.mail.post_all(None, || WorkerMessage::SlotsLost(Arc::clone(&lost)));
    }
}

/// Slots of one partition, which is held. `lost`: those whose readers are sent on; `moved`: those of another
/// owner.
fn flip_held(
    node: &Node,
    held: &mut Held<'_>,
    changes: &[(Slot, SlotState)],
    lost: &mut SlotSet,
    moved: &mut SlotSet,
) {
    let member = node.cluster.get().expect("slots are flipped in a member of a cluster");
    let mut left = SlotSet::new();
    for &(slot, state) in changes {
        let before = member.words.get(slot).state();
        member.words.set(slot, Word::new(state));
        if before.owner != state.owner {
            moved.insert(slot);
        }
        left_for_writes(before, state).then(|| left.insert(slot));
        if is_readable(before) && !is_readable(state) {
            left.insert(slot);
            lost.insert(slot);
        }
    }
    if left.is_empty() {
        return;
    }
    let partition = node.keyspace.partition_of(changes[0].0);
    for (slot, waiter) in held.leave_slots(partition, |slot| left.has(slot)) {
        blocking::leave_slot(&waiter, slot, is_readable(member.words.get(slot).state()));
    }
}

/// Returns whether a slot serves clients that read from replicas, and clients that listen.
fn is_readable(state: SlotState) -> bool {
    matches!(state.owner, Owner::Myself | Owner::MyPrimary) || state.importing
}

/// Returns whether a slot has served clients that write, and no longer does.
fn left_for_writes(before: SlotState, state: SlotState) -> bool {
    let is_served = |state: SlotState| state.owner == Owner::Myself || state.importing;
    is_served(before) && !is_served(state)
}

/// Closes a slot of this node that has no keys. It takes no more: a client that asks for one is sent on. Its
/// partition is held.
pub fn close_held(node: &Node, slot: Slot) {
    let member = node.cluster.get().expect("slots are closed in a member of a cluster");
    let state = member.words.get(slot).state();
    if state.owner == Owner::Myself {
        member.words.set(slot, Word::new(SlotState { migrating: true, ..state }));
    }
}

/// Returns whether keys of the slot are of no use here: another primary has it, and this node is no replica,
/// whose keys are its primary's to delete. The partition of the slot is held, so neither the slot nor the
/// role changes meanwhile.
pub fn is_anothers(node: &Node, slot: Slot) -> bool {
    let member = node.cluster.get().expect("slots are lost in a member of a cluster");
    !is_readable(member.words.get(slot).state()) && !node.mail.tasks().has(Tasks::REPLICA)
}

/// The data is loaded: the bus thread compares the slots that have keys with those that are this node's.
pub fn loaded(node: &'static Node) {
    let Some(member) = node.cluster.get() else { return };
    let mut held = Held::new(&node.keyspace);
    let mut slots = SlotSet::new();
    for slot in Slot::all() {
        held.acquire(Want::One(node.keyspace.partition_of(slot)));
        if !SlotKeys::of(&held, slot).is_empty() {
            slots.insert(slot);
        }
        held.release();
    }
    member.bus.populated(Box::new(slots));
}
