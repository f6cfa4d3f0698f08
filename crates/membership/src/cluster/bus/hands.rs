//! Work that the bus thread leaves to another thread, since it takes the locks of partitions: slots change
//! hands, keys of slots are counted, and the node follows another primary.
//!
//! Slots that are lost stop here, so nothing here waits for a disk. The keys of lost slots are deleted by a
//! thread of its own (`deleter.rs`), which gets them from this one: behind the words that send clients on.

use isotherm_cluster::Slot;
use isotherm_cluster::machine::CommitNumber;
use isotherm_cluster::topology::Topology;
use isotherm_keyspace::{Conditions, Db, ExpiryMode, Held, Txn};
use isotherm_resp::ArgsBuf;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use super::{deleter, requests};
use crate::cluster::changes::{self, flip};
use isotherm_engine::request::execute::Exec;
use isotherm_engine::request::leases::await_gate;
use isotherm_node::Node;
use isotherm_node::cluster::herald::Herald;
use isotherm_node::cluster::requests::{BusMessage, BusSender, Looked};
use isotherm_node::cluster::words::SlotState;
use isotherm_node::mail::message::WorkerMessage;
use isotherm_node::replication::state::Upstream;
use isotherm_replicas::replication::{link, role};
use isotherm_runtime::time::unix_now;

pub enum Work {
    Apply {
        number: CommitNumber,
        topology: Arc<Topology>,
        gained: Vec<Slot>,
        others: Vec<Slot>,
    },
    Publish(Arc<Topology>),
    /// Signal that all works before it are done: a thread waits until the sender is dropped.
    Drop(Sender<()>),
    /// Request that depends on whether this node has keys, in a slot or at all. It comes back with the
    /// answer.
    Look(Looked),
    /// Slot that a look has closed for a request that has failed: its word becomes that of the topology
    /// again.
    Restore(Slot),
    /// Slots that were lost. The deletion of their keys is begun behind the works before it, and `Deleted` is
    /// said when it has ended.
    DeleteKeys(Vec<Slot>),
    Follow {
        ip: String,
        port: u16,
    },
    Lead,
}

struct Hands {
    node: &'static Node,
    bus: BusSender,
    herald: Herald,
    state: Arc<State>,
    deleter: Sender<deleter::Job>,
}

/// State of this thread that the bus thread sees.
#[derive(Default)]
struct State {
    /// Works that were handed over and are not done.
    undone: AtomicUsize,
    /// The herald has something to say later, or may have.
    has_news: AtomicBool,
}

/// Channel by which the bus thread hands its work to the other thread.
pub struct Hand {
    works: Sender<Work>,
    state: Arc<State>,
}

pub fn start(node: &'static Node, bus: BusSender) -> io::Result<Hand> {
    let (sender, works) = channel();
    let state = Arc::<State>::default();
    let deleter = deleter::start(node, bus.clone())?;
    let hands = Hands { node, bus, herald: Herald::default(), state: Arc::clone(&state), deleter };
    std::thread::Builder::new().name("cluster-hands".into()).spawn(move || hands.run(&works))?;
    Ok(Hand { works: sender, state })
}

impl Hand {
    pub fn hand(&self, work: Work) {
        self.state.undone.fetch_add(1, Ordering::Relaxed);
        self.works.send(work).expect("the hands live as long");
    }

    /// All that was handed is done, and nothing of it is left to be said: what comes next is not before it,
    /// whichever thread does it.
    pub fn are_at_rest(&self) -> bool {
        self.state.undone.load(Ordering::Acquire) == 0 && !self.state.has_news.load(Ordering::Relaxed)
    }
}

impl Hands {
    fn run(mut self, works: &Receiver<Work>) {
        while let Ok(work) = works.recv() {
            self.work(work);
            self.state.undone.fetch_sub(1, Ordering::Release);
        }
    }

    fn work(&mut self, work: Work) {
        match work {
            Work::Apply { number, topology, gained, others } => {
                flip(self.node, &states(&topology, &gained));
                self.publish(Arc::clone(&topology));
                flip(self.node, &states(&topology, &others));
                self.bus.post(BusMessage::Applied(number));
            }
            Work::Publish(topology) => self.publish(topology),
            Work::Drop(done) => drop(done),
            Work::Look(looked) if requests::is_about_all_keys(&looked.request) => {
                self.hand_on(deleter::Job::Look(looked));
            }
            Work::Look(looked) => self.bus.post(BusMessage::Looked(requests::look(looked, self.node))),
            Work::Restore(slot) => {
                let member = self.node.cluster.get().expect("the bus belongs to a member of a cluster");
                let (_, topology) = member.topologies.newest();
                flip(self.node, &states(&topology, &[slot]));
            }
            Work::DeleteKeys(slots) => self.hand_on(deleter::Job::Delete(slots)),
            Work::Follow { ip, port } => follow(self.node, ip, port),
            Work::Lead => lead(self.node),
        }
    }

    fn hand_on(&self, job: deleter::Job) {
        self.deleter.send(job).expect("the deleter lives as long");
    }

    fn publish(&mut self, topology: Arc<Topology>) {
        let member = self.node.cluster.get().expect("the bus belongs to a member of a cluster");
        let (_, before) = member.topologies.newest();
        changes::publish(self.node, Arc::clone(&topology));
        let is_heard = member.slot_listeners.load(Ordering::Acquire) > 0;
        self.state.has_news.store(is_heard, Ordering::Relaxed);
        if !is_heard {
            return self.herald.rest();
        }
        for news in self.herald.look(&before, &topology, unix_now()) {
            let news = Arc::new(news);
            self.node.mail.post_all(None, || WorkerMessage::SlotNews(Arc::clone(&news)));
        }
    }
}

fn states(topology: &Topology, slots: &[Slot]) -> Vec<(Slot, SlotState)> {
    slots.iter().map(|slot| (*slot, SlotState::in_topology(topology, *slot))).collect()
}

fn follow(node: &'static Node, host: String, port: u16) {
    let upstream = Upstream { host, port };
    if node
        .replication
        .upstream()
        .is_some_and(|current| current.host == upstream.host && current.port == port)
    {
        return;
    }
    let mut held = Held::new(&node.keyspace);
    if !await_gate(node, &mut held, || goes_on(node)) {
        return;
    }
    role::follow(node, &mut held, upstream);
    drop(held);
    link::spawn(node);
}

/// Returns whether the process does not end in the middle of a script.
fn goes_on(node: &Node) -> bool {
    !node.runs.are_abandoned()
}

/// The node follows no other from now on, and has no data of the one that it followed.
fn lead(node: &'static Node) {
    let mut held = Held::new(&node.keyspace);
    if !await_gate(node, &mut held, || goes_on(node)) {
        return;
    }
    node.replication.begin_generation();
    held.release();
    // Loaded data of the former primary goes first.
    let _alone = node.replication.installing();
    if !await_gate(node, &mut held, || goes_on(node)) {
        return;
    }
    role::promote(node, &mut held);
    drop(held);
    let mut exec = Exec::of_control(node);
    if !await_gate(node, &mut exec.held, || goes_on(node)) {
        return;
    }
    let conditions = Conditions { now: unix_now(), expiry_mode: ExpiryMode::Keep, no_touch: true };
    let mut txn = Txn::new(&mut exec.held, conditions, &mut exec.pump);
    txn.flush(None);
    txn.finish();
    if exec.pump.is_logging() {
        exec.pump.log.request(Db(0), ArgsBuf::from_slices(&[b"FLUSHALL"]).args());
    }
    exec.note_gate();
    exec.release();
}
