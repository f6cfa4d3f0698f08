//! State of a member of a cluster, for all threads: the words of its slots, its newest topology, and the way
//! to the bus thread.
//!
//! A lone server has none of this (`is_enabled`), which is decided at start and never changes.

use isotherm_cluster::Slot;
use isotherm_cluster::topology::{State, Topology};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::cluster::requests::Bus;
use crate::cluster::shown::Published;
use crate::cluster::words::{Owner, SlotWords};

pub struct ClusterState(Option<Box<Member>>);

/// State of a member of a cluster.
pub struct Member {
    pub words: SlotWords,
    pub topologies: Topologies,
    pub bus: Bus,
    /// Sessions that hear of slots that leave (CLIENT MAINT_NOTIFICATIONS).
    pub slot_listeners: AtomicUsize,
}

impl Member {
    /// Returns whether the subscribers of this slot's shard channels get what is published.
    pub fn serves_channels(&self, slot: Slot) -> bool {
        self.is_of_shard(slot) || self.words.get(slot).state().importing
    }

    /// Returns the memory that the words, the newest topology and the replies that show it take.
    pub fn memory_bytes(&self) -> u64 {
        let (_, topology) = self.topologies.newest();
        let nodes: usize = topology
            .nodes
            .iter()
            .map(|node| size_of_val(node) + size_of_val(&*node.address) + node.slots.memory_bytes())
            .sum();
        (size_of_val(&*topology.owners) + nodes + SlotWords::BYTES + topology.account.bytes()) as u64
    }

    /// Returns whether the slot is this node's, or its primary's.
    pub fn is_of_shard(&self, slot: Slot) -> bool {
        matches!(self.words.get(slot).state().owner, Owner::Myself | Owner::MyPrimary)
    }
}

impl ClusterState {
    /// A lone server.
    pub fn none() -> ClusterState {
        ClusterState(None)
    }

    /// A member of a cluster, which begins with this topology.
    pub fn member(topology: Arc<Topology>) -> ClusterState {
        let (words, bus) = (SlotWords::of(&topology), Bus::default());
        let topologies = Topologies::new(topology);
        ClusterState(Some(Box::new(Member { words, topologies, bus, slot_listeners: AtomicUsize::new(0) })))
    }

    pub fn is_enabled(&self) -> bool {
        self.0.is_some()
    }

    pub fn get(&self) -> Option<&Member> {
        self.0.as_deref()
    }
}

/// The newest topology.
pub struct Topologies {
    /// Generation of `newest`; written after it.
    generation: AtomicU64,
    newest: Mutex<Arc<Published>>,
    /// The cluster is down, as `newest` has it.
    is_down: AtomicBool,
}

impl Topologies {
    fn new(topology: Arc<Topology>) -> Topologies {
        let is_down = AtomicBool::new(topology.state != State::Ok);
        let newest = Mutex::new(Arc::new(Published::first(topology)));
        Topologies { generation: AtomicU64::new(1), newest, is_down }
    }

    /// Grows by one with each topology.
    #[inline]
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// The newest, and a generation that is not later.
    pub fn newest(&self) -> (u64, Arc<Published>) {
        let generation = self.generation();
        (generation, Arc::clone(&self.newest.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    /// Returns whether commands are refused for the state of the cluster.
    pub fn is_down(&self) -> bool {
        self.is_down.load(Ordering::SeqCst)
    }

    /// Makes this topology the newest: everyone gets it from now on. Returns whether the cluster has gone
    /// down with it. One thread calls this at a time.
    pub fn set(&self, topology: Arc<Topology>) -> bool {
        let is_down = topology.state != State::Ok;
        let next = Arc::new(self.newest().1.next(topology));
        *self.newest.lock().unwrap_or_else(PoisonError::into_inner) = next;
        self.generation.fetch_add(1, Ordering::Release);
        !self.is_down.swap(is_down, Ordering::SeqCst) && is_down
    }
}

/// Returns the topology of a node that has not met any other: itself.
#[cfg(debug_assertions)]
pub fn alone(
    id: isotherm_cluster::NodeId,
    shard: isotherm_cluster::NodeId,
    address: isotherm_cluster::topology::Address,
) -> Topology {
    use isotherm_cluster::topology::{Node, NodeIndex};
    use isotherm_cluster::{Flags, SlotRanges};
    let flags = Flags::MYSELF | Flags::PRIMARY;
    let myself = Node {
        id,
        shard,
        flags,
        primary: None,
        address: Arc::new(address),
        config_epoch: 0,
        ping_sent_ms: 0,
        pong_received_ms: 0,
        is_connected: true,
        offset: 0,
        slots: SlotRanges::default(),
    };
    Topology {
        generation: 0,
        nodes: vec![myself],
        myself: NodeIndex(0),
        owners: Arc::new([None; Slot::COUNT]),
        migrating: Vec::new(),
        importing: Vec::new(),
        state: State::Uncovered,
        current_epoch: 0,
        last_vote_epoch: 0,
        size: 0,
    }
}
