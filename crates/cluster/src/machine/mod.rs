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
//! The machine has parts with invariants of their own (`check_invariants`), each in its file: the nodes
//! (`node.rs`), the owners of the slots (`slots.rs`), the connections (`links.rs`), the ability to serve
//! (`health.rs`), what has to be done and what is under way (`commit.rs`). A role or a claim changes some of
//! them through a `Change` (`change.rs`), which sends nothing. Messages, ticks and requests are met by the
//! machine itself.
//!
//! The rules are those of Valkey's cluster bus (cluster_legacy.c of 9.1.2); each file names the functions
//! that it follows.

mod change;
mod commit;
mod cron;
mod epochs;
mod forgotten;
mod gossip;
mod health;
mod links;
mod names;
mod node;
mod outputs;
mod packet;
mod ping;
mod request;
mod role;
mod settings;
mod slots;
mod update;
mod view;
mod votes;

#[cfg(test)]
mod tests;

pub use commit::CommitNumber;
pub use links::LinkId;
pub use node::Handle;
pub use outputs::{Level, Output};
pub use request::{Answer, LinkView, Request, RequestId, SlotAction};
pub use settings::Settings;

use crate::conf::Conf;
use crate::topology::{State, Topology};
use crate::wire::Message;
use crate::{Flags, NodeId, Slot, SlotSet};
use change::Change;
use commit::{Commits, Standing, Todo};
use epochs::Epochs;
use forgotten::Forgotten;
use health::Health;
use isotherm_stdx::prng::Prng;
use links::Links;
use node::{Node, Nodes};
use outputs::Outputs;
use slots::Slots;
use std::net::IpAddr;
use std::sync::Arc;
use view::Shown;

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

pub struct Machine {
    settings: Settings,
    random: Prng,
    nodes: Nodes,
    slots: Slots,
    epochs: Epochs,
    links: Links,
    forgotten: Forgotten,
    /// Host names whose addresses were not answered yet.
    questions: usize,
    health: Health,
    /// Replication offset of this node.
    offset: u64,
    ticks: u64,
    todo: Todo,
    commits: Commits,
    /// Number of the last topology.
    generation: u64,
    outputs: Outputs,
}

impl Machine {
    /// A node that knows no other, with a name of its own (clusterInit). The seed has to be random, or two
    /// nodes get one name.
    pub fn new(settings: Settings, seed: u64, now: Now) -> Machine {
        let mut random = Prng::new(seed);
        let (id, shard) = (NodeId::random(&mut random), NodeId::random(&mut random));
        let me = Node::new(id, shard, Flags::MYSELF | Flags::PRIMARY, now.ms);
        let mut machine = Machine::of(settings, random, Nodes::of(me), Slots::new());
        machine.todo.save_first();
        machine.change().announce_settings();
        machine
    }

    /// Starts from a file that `conf::read` has found to be consistent (clusterLoadConfig).
    pub fn from_conf(settings: Settings, seed: u64, conf: &Conf, now: Now) -> Machine {
        let mut random = Prng::new(seed);
        let mut nodes = Nodes::from_conf(conf, &mut random, now.ms);
        let slots = Slots::from_conf(conf, &mut nodes);
        let mut machine = Machine::of(settings, random, nodes, slots);
        machine.epochs = Epochs::from_conf(conf);
        machine.forgotten = Forgotten::of(&conf.forgotten);
        machine.commits.standing = machine.present();
        machine.take_words_of_file();
        machine.change().announce_settings();
        machine.todo.slots();
        machine
    }

    fn of(settings: Settings, random: Prng, nodes: Nodes, slots: Slots) -> Machine {
        Machine {
            settings,
            random,
            nodes,
            slots,
            epochs: Epochs::default(),
            links: Links::default(),
            forgotten: Forgotten::default(),
            questions: 0,
            health: Health::new(),
            offset: 0,
            ticks: 0,
            todo: Todo::at_start(),
            commits: Commits::new(Standing::default()),
            generation: 0,
            outputs: Outputs::default(),
        }
    }

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
            Input::Populated(slots) => self.change().check_data(&slots),
            Input::Publish { channel, message, is_sharded } => self.publish(channel, message, is_sharded),
        }
        self.settle(now);
        debug_assert_eq!(self.check_invariants(), Ok(()));
        self.outputs.take()
    }

    /// Returns what the node knows as it starts, for a caller that has had no output yet.
    pub fn view(&mut self, now: Now) -> Arc<Topology> {
        // A replica serves from the start; a primary waits for what the others say (`update_state`).
        if self.nodes.my().is_replica() {
            self.update_state(now);
        }
        self.topology(now)
    }

    pub fn my_id(&self) -> NodeId {
        self.nodes.my().id
    }

    pub fn state(&self) -> State {
        self.health.state
    }

    pub fn known_nodes(&self) -> usize {
        self.nodes.len()
    }

    pub fn current_epoch(&self) -> u64 {
        self.epochs.current
    }

    pub fn is_ok(&self) -> bool {
        self.health.state == State::Ok
    }

    /// Returns the address of the primary that this node follows, if it follows one and that is known.
    pub fn primary_address(&self) -> Option<(String, u16)> {
        self.nodes.primary_address(self.settings.follows_by_tls)
    }

    /// Returns whether a node has identified itself over this link.
    pub fn knows(&self, link: LinkId) -> bool {
        self.links.known_node(link, &self.nodes).is_some()
    }

    /// Makes the file as it is to be.
    pub fn conf(&mut self, now: Now) -> Conf {
        self.shown(now).conf()
    }

    fn topology(&mut self, now: Now) -> Arc<Topology> {
        self.generation += 1;
        self.commits.shown = self.health.state;
        let generation = self.generation;
        self.shown(now).topology(generation)
    }

    fn shown(&mut self, now: Now) -> Shown<'_> {
        let shape = self.slots.shape(&self.nodes).clone();
        Shown {
            nodes: &self.nodes,
            slots: &self.slots,
            shape,
            epochs: &self.epochs,
            forgotten: &self.forgotten,
            health: &self.health,
            offset: self.offset,
            now,
        }
    }

    fn change(&mut self) -> Change<'_> {
        Change {
            settings: &self.settings,
            nodes: &mut self.nodes,
            slots: &mut self.slots,
            epochs: &mut self.epochs,
            todo: &mut self.todo,
            outputs: &mut self.outputs,
        }
    }

    fn name(&self, node: Handle) -> String {
        self.nodes.name(node, self.settings.is_tls)
    }

    fn new_id(&mut self) -> NodeId {
        NodeId::random(&mut self.random)
    }

    fn set(&mut self, settings: Settings) {
        self.settings = settings;
        self.change().announce_settings();
        self.todo.update_state = true;
    }

    fn update_state(&mut self, now: Now) {
        self.todo.update_state = false;
        let (nodes, slots) = (&self.nodes, &self.slots);
        if self.health.update(nodes, slots, &self.settings, now, &mut self.outputs) {
            self.todo.view = true;
        }
    }

    /// Another node has connected.
    fn accept(&mut self, link: LinkId, peer_ip: &str, local_ip: &str, now: Now) {
        self.links.accept(link, peer_ip, local_ip, now);
        if let Some(oldest) = self.links.excess() {
            let text = "Closing the oldest of too many links without a known node".to_string();
            self.outputs.say(Level::Verbose, text);
            self.close(oldest, now);
        }
    }

    /// Closes a connection from this side.
    fn close(&mut self, link: LinkId, now: Now) {
        if self.drop_link(link, now) {
            self.outputs.push(Output::Close { link });
        }
    }

    fn link_closed(&mut self, link: LinkId, now: Now) {
        self.links.note_loss(link, &mut self.nodes, now);
        self.drop_link(link, now);
    }

    fn drop_link(&mut self, link: LinkId, now: Now) -> bool {
        self.forgotten.links.remove(&link);
        self.links.remove(link, &mut self.nodes, now)
    }

    pub fn check_invariants(&self) -> Result<(), String> {
        self.nodes.check_invariants()?;
        self.slots.check_invariants(&self.nodes)?;
        self.links.check_invariants(&self.nodes)
    }
}
