//! The state machine of a node: `step(input, now)` takes what happened, and leaves what has to be done as
//! outputs.
//!
//! ```text
//!   packets, links, ticks, requests --> step --> Connect, Send, Close        the bus
//!                                            --> Save(n)      <-- Saved(n)   nodes.conf
//!                                            --> Apply(n)     <-- Applied(n) the words that commands are routed by
//!                                            --> DeleteKeys   <-- Deleted    keys of slots that were lost
//!                                            --> Resolve      <-- Resolved   the addresses of a host name
//!                                            --> Publish, Answer, Deliver, Follow, Say
//! ```
//! **Facts that must survive a crash hold when they are saved, not before.** A vote, an epoch that this node
//! gave itself, a slot that it claims: messages and answers show them only after `Saved` (`commit.rs`;
//! `Standing` is what messages show). Facts that it learned from others are saved within a second, without
//! waiting.
//!
//! Invariants (`check_invariants`): an owner, a primary and a link's node are nodes of the table; a node's
//! `slot_count` is the number of slots that it owns; a slot is migrating only if this node (or its primary)
//! owns it, at most one commit is under way.
//!
//! The rules are those of Valkey's cluster bus (cluster_legacy.c of 9.1.2); each file names the functions
//! that it follows.

mod commit;
mod cron;
mod epochs;
mod forgotten;
mod gossip;
mod health;
mod links;
mod names;
mod node;
mod packet;
mod ping;
mod request;
mod role;
mod settings;
mod slots;
mod start;
mod update;
mod view;
mod votes;

#[cfg(test)]
mod tests;

pub use commit::CommitNumber;
pub use links::LinkId;
pub use node::Handle;
pub use request::{Answer, LinkView, Request, RequestId, SlotAction};
pub use settings::Settings;

use crate::conf::Conf;
use crate::topology::{State, Topology};
use crate::wire::Message;
use crate::{Flags, NodeId, Slot, SlotSet};
use commit::{Commits, Todo};
use forgotten::Forgotten;
use isotherm_stdx::prng::Prng;
use links::Links;
use node::{Node, Nodes};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

/// A moment of a clock that never goes back, in milliseconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub struct Ms(pub u64);

impl Ms {
    pub fn since(self, earlier: Ms) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// The two clocks: timers go by the first, what is shown and gossiped by the second.
#[derive(Clone, Copy, Debug)]
pub struct Now {
    pub ms: Ms,
    pub unix_ms: u64,
}

impl Now {
    /// Returns the wall-clock time of a past moment, assuming that the wall clock has not jumped since.
    fn unix_of(self, moment: Ms) -> u64 {
        self.unix_ms.saturating_sub(self.ms.since(moment))
    }
}

pub enum Input<'b> {
    /// A tenth of a second has passed. The node's replication offset, for messages.
    Tick {
        offset: u64,
    },
    /// Another node has connected; both ends of the connection as texts.
    Accepted {
        link: LinkId,
        peer_ip: &'b str,
        local_ip: &'b str,
    },
    Connected {
        link: LinkId,
        local_ip: &'b str,
    },
    Packet {
        link: LinkId,
        message: &'b Message<'b>,
    },
    /// The connection is gone, or there never was one.
    Closed {
        link: LinkId,
    },
    Saved(CommitNumber),
    Applied(CommitNumber),
    /// Slots which `DeleteKeys` named have no old keys any more.
    Deleted(Vec<Slot>),
    /// The answer to `Resolve`: none if there is no such name.
    Resolved {
        node: NodeId,
        ips: &'b [IpAddr],
    },
    Request {
        id: RequestId,
        request: Request,
    },
    Settings(Box<Settings>),
    /// The data is loaded: these slots have keys.
    Populated(Box<SlotSet>),
    /// A message of this node's clients for the subscribers of other nodes.
    Publish {
        channel: &'b [u8],
        message: &'b [u8],
        is_sharded: bool,
    },
}

#[derive(Clone, Debug)]
pub enum Output {
    Connect {
        link: LinkId,
        ip: String,
        port: u16,
    },
    /// To be queued even while the connection is being made.
    Send {
        link: LinkId,
        bytes: Arc<[u8]>,
    },
    Close {
        link: LinkId,
    },
    /// The file is to be written, and synced if a number is given: `Saved` is expected then.
    Save {
        number: Option<CommitNumber>,
        conf: Box<Conf>,
    },
    /// The words of the slots are to follow this topology: first those gained, then it is published, then the
    /// others.
    Apply {
        number: CommitNumber,
        topology: Arc<Topology>,
        gained: Vec<Slot>,
        others: Vec<Slot>,
    },
    /// No slot has changed hands.
    Publish(Arc<Topology>),
    Answer {
        id: RequestId,
        answer: Answer,
    },
    Deliver {
        channel: Vec<u8>,
        message: Vec<u8>,
        is_sharded: bool,
    },
    /// Order to become a replica of that address, and to drop all of this node's own data if `needs_full`.
    Follow {
        ip: String,
        port: u16,
        needs_full: bool,
    },
    /// Order to become a primary from now on, with no data.
    Lead,
    /// Keys in these slots belong to another node now, and are to be deleted: `Deleted` is expected.
    DeleteKeys(Vec<Slot>),
    /// A host name of a node, whose addresses are wanted: `Resolved` is expected.
    Resolve {
        node: NodeId,
        name: String,
    },
    Say(Level, String),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Level {
    Debug,
    Verbose,
    Notice,
    Warning,
}

pub struct Machine {
    settings: Settings,
    random: Prng,
    nodes: Nodes,
    me: Handle,
    links: Links,
    /// Indexed by slot.
    owners: Box<[Option<Handle>; Slot::COUNT]>,
    /// Counts their changes.
    owners_version: u64,
    shape: Option<view::Shape>,
    /// Slots whose owner does not claim them any more; no node else does yet.
    unclaimed: SlotSet,
    migrating: BTreeMap<Slot, Handle>,
    importing: BTreeMap<Slot, Handle>,
    current_epoch: u64,
    last_vote_epoch: u64,
    forgotten: Forgotten,
    /// Host names whose addresses were not answered yet.
    questions: usize,
    /// The address that this node replicates from, as far as it was asked for.
    followed: Option<(String, u16)>,
    health: health::Health,
    offset: u64,
    ticks: u64,
    todo: Todo,
    commits: Commits,
    generation: u64,
    outputs: Vec<Output>,
}

impl Machine {
    /// Handles an input. Returns the outputs that follow from it, in order.
    pub fn step(&mut self, input: Input<'_>, now: Now) -> Vec<Output> {
        match input {
            Input::Tick { offset } => self.tick(offset, now),
            Input::Accepted { link, peer_ip, local_ip } => self.accept(link, peer_ip, local_ip, now),
            Input::Connected { link, local_ip } => self.connected(link, local_ip, now),
            Input::Packet { link, message } => self.packet(link, message, now),
            Input::Closed { link } => self.link_closed(link, now),
            Input::Saved(number) => self.saved(number, now),
            Input::Applied(number) => self.applied(number, now),
            Input::Deleted(slots) => self.deleted(&slots, now),
            Input::Resolved { node, ips } => names::resolved(self, &node, ips, now),
            Input::Request { id, request } => self.request(id, request, now),
            Input::Settings(settings) => self.set(*settings),
            Input::Populated(slots) => self.check_data(&slots),
            Input::Publish { channel, message, is_sharded } => self.publish(channel, message, is_sharded),
        }
        self.settle(now);
        debug_assert_eq!(self.check_invariants(), Ok(()));
        std::mem::take(&mut self.outputs)
    }

    /// Returns what the node knows as it starts, for a caller that has had no output yet.
    pub fn view(&mut self, now: Now) -> Arc<Topology> {
        // A replica serves from the start; a primary waits for what the others say (`update_state`).
        if self.is_replica() {
            self.update_state(now);
        }
        self.topology(now)
    }

    pub fn my_id(&self) -> NodeId {
        self.my().id
    }

    pub fn state(&self) -> State {
        self.health.state
    }

    pub fn known_nodes(&self) -> usize {
        self.nodes.len()
    }

    pub fn current_epoch(&self) -> u64 {
        self.current_epoch
    }

    fn my(&self) -> &Node {
        &self.nodes[self.me]
    }

    fn my_mut(&mut self) -> &mut Node {
        &mut self.nodes[self.me]
    }

    fn say(&mut self, level: Level, text: String) {
        self.outputs.push(Output::Say(level, text));
    }

    fn notice(&mut self, text: String) {
        self.say(Level::Notice, text);
    }

    /// `<id> (<name>)`, as the log has it.
    fn name(&self, node: Handle) -> String {
        let node = &self.nodes[node];
        format!("{} ({})", node.id, node.shown_name(self.settings.is_tls))
    }

    fn new_id(&mut self) -> NodeId {
        let words: [u64; 3] = std::array::from_fn(|_| self.random.next_u64());
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        NodeId::new(bytes[..NodeId::LEN / 2].try_into().expect("24 bytes are enough"))
    }

    fn is_replica(&self) -> bool {
        self.my().flags.has(Flags::REPLICA)
    }

    /// Returns this node, or the primary that it follows. This node answers for the slots of the node
    /// returned.
    fn my_primary(&self) -> Handle {
        self.my().primary.unwrap_or(self.me)
    }

    fn are_in_one_shard(&self, one: Handle, other: Handle) -> bool {
        self.nodes[one].shard == self.nodes[other].shard
    }

    pub fn check_invariants(&self) -> Result<(), String> {
        let mut counts = vec![0u16; self.nodes.places()];
        for owner in self.owners.iter().flatten() {
            if !self.nodes.has(*owner) {
                return Err(format!("a slot belongs to {owner:?}, which is no node"));
            }
            counts[owner.number() as usize] += 1;
        }
        for (handle, node) in self.nodes.iter() {
            let owned = counts[handle.number() as usize];
            if node.slot_count != owned {
                return Err(format!("{}: {} slots counted, {owned} owned", node.id, node.slot_count));
            }
            if node.primary.is_some_and(|primary| !self.nodes.has(primary)) {
                return Err(format!("{}: its primary is no node", node.id));
            }
        }
        let opened = self.migrating.values().chain(self.importing.values());
        if let Some(node) = opened.into_iter().find(|node| !self.nodes.has(**node)) {
            return Err(format!("an open slot names {node:?}, which is no node"));
        }
        self.links.check_invariants(&self.nodes)
    }
}
