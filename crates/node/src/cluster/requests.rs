//! Requests of CLUSTER commands to the bus thread, and its answers.
//!
//! ```text
//!   CLUSTER MEET ...   worker: its client is parked  --->  ClusterRequest   the mailbox of the bus thread
//!                      worker: the reply is written  <---  Asker::answer    when what was asked for holds
//! ```

use isotherm_cluster::machine::{CommitNumber, Request};
use isotherm_cluster::topology::info::Counts;
use isotherm_cluster::{NodeId, Slot, SlotSet};
use isotherm_keyspace::Waiter;
use isotherm_reactor::Sender;
use isotherm_resp::{ArgsBuf, Protocol, Reply};
use std::net::IpAddr;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use std::time::Duration;

use isotherm_runtime::time::unix_now;

/// A request of a client. It is parked until it is answered.
pub struct ClusterRequest {
    /// With `CLUSTER` at 0 and the subcommand at 1.
    pub args: ArgsBuf,
    pub asker: Asker,
}

/// A request that depends on whether this node has keys, with what was found.
pub struct Looked {
    pub request: Request,
    /// Arguments as they came.
    pub args: ArgsBuf,
    pub asker: Asker,
}

/// Messages of other threads to the bus thread.
pub enum BusMessage {
    Request(ClusterRequest),
    /// CLUSTER SETSLOT that replicas were to have first. The error is what its client gets if they have it
    /// not.
    Replicated(Looked, Result<(), Vec<u8>>),
    /// Request whose answer is of no interest.
    Order(Request),
    /// A request whose keys were looked at.
    Looked(Looked),
    /// A request that has waited for another one about its slot.
    Next(Looked),
    Saved(CommitNumber),
    Applied(CommitNumber),
    /// The keys of these slots, which were lost, are gone.
    Deleted(Vec<Slot>),
    /// The addresses of a node's host name.
    Resolved(NodeId, Vec<IpAddr>),
    /// Message for the subscribers of other nodes.
    Publish {
        channel: Box<[u8]>,
        message: Box<[u8]>,
        is_sharded: bool,
    },
    /// A parameter was changed. The sender is dropped when clients see what follows.
    Configured(std::sync::mpsc::Sender<()>),
    /// The counts are to be shown as they are. The sender is dropped then.
    Report(std::sync::mpsc::Sender<()>),
    /// CONFIG RESETSTAT
    ResetCounts,
    /// The data is loaded: these slots have keys.
    Populated(Box<SlotSet>),
}

pub type BusSender = Sender<BusMessage>;

/// Sender of a request. If it is dropped, its client gets no reply until it disconnects.
pub struct Asker {
    way: Way,
    pub proto: Protocol,
}

enum Way {
    /// A client that is parked.
    Client(Arc<Waiter>, fn(&Arc<Waiter>, Reply)),
    /// A worker that runs a transaction, and stands still until then.
    Worker(std::sync::mpsc::Sender<Reply>),
}

impl Asker {
    /// `answer` sends the waiter's client its reply.
    pub fn new(waiter: &Arc<Waiter>, proto: Protocol, answer: fn(&Arc<Waiter>, Reply)) -> Asker {
        Asker { way: Way::Client(Arc::clone(waiter), answer), proto }
    }

    pub fn worker(proto: Protocol, sender: std::sync::mpsc::Sender<Reply>) -> Asker {
        Asker { way: Way::Worker(sender), proto }
    }

    /// An empty reply in the client's protocol.
    pub fn reply(&self) -> Reply {
        Reply::new(self.proto)
    }

    /// With an error.
    pub fn refuse(self, text: Vec<u8>) {
        let mut reply = self.reply();
        reply.error(text);
        self.answer(reply);
    }

    /// Sends the reply, from any thread. No lock is needed.
    pub fn answer(self, reply: Reply) {
        match self.way {
            Way::Client(waiter, answer) => answer(&waiter, reply),
            // The worker may have given it up.
            Way::Worker(sender) => drop(sender.send(reply)),
        }
    }
}

/// The way to the bus thread, once there is one, and what it has counted.
#[derive(Default)]
pub struct Bus {
    sender: OnceLock<BusSender>,
    invalid_packets: AtomicU64,
    save_failed: AtomicBool,
    saved_unix_s: AtomicU64,
    cpu_us: AtomicU64,
    counts: Mutex<Counts>,
    links: AtomicUsize,
    link_bytes: AtomicUsize,
    /// Bytes of clients' messages that came since the bus last looked at its links.
    published_bytes: AtomicUsize,
    /// Transactions between whose changes no message of another node is read.
    quiet: AtomicUsize,
}

/// Right of a transaction: between its changes the bus reads no message of another node, for a second at
/// most. Without it a slot that DELSLOTS has freed could have an owner again before ADDSLOTS.
pub struct Quiet(&'static Bus);

impl Drop for Quiet {
    fn drop(&mut self) {
        self.0.quiet.fetch_sub(1, Release);
    }
}

impl Bus {
    /// Keeps messages of other nodes waiting from the next request on.
    pub fn keep_quiet(&'static self) -> Quiet {
        self.quiet.fetch_add(1, Release);
        Quiet(self)
    }

    /// Returns whether a transaction is in the middle of its changes.
    pub fn is_quiet(&self) -> bool {
        self.quiet.load(Acquire) > 0
    }

    /// The bus thread has begun.
    pub fn attach(&self, sender: BusSender) {
        assert!(self.sender.set(sender).is_ok(), "there is one bus thread");
    }

    pub fn is_attached(&self) -> bool {
        self.sender.get().is_some()
    }

    pub fn ask(&self, request: ClusterRequest) {
        self.sender.get().expect("it was asked whether there is one").post(BusMessage::Request(request));
    }

    /// Sends a message of the bus thread to itself.
    pub fn post(&self, message: BusMessage) {
        self.sender.get().expect("the bus is attached while its thread runs").post(message);
    }

    /// Sends a request without a client that waits for the answer.
    pub fn order(&self, request: Request) {
        if let Some(sender) = self.sender.get() {
            sender.post(BusMessage::Order(request));
        }
    }

    /// A message of a client goes to the subscribers of other nodes, if there is a bus already.
    pub fn publish(&self, channel: &[u8], message: &[u8], is_sharded: bool) {
        if let Some(sender) = self.sender.get() {
            self.published_bytes.fetch_add(channel.len() + message.len(), Relaxed);
            let (channel, message) = (channel.into(), message.into());
            sender.post(BusMessage::Publish { channel, message, is_sharded });
        }
    }

    /// The data is loaded: these slots have keys.
    pub fn populated(&self, slots: Box<SlotSet>) {
        if let Some(sender) = self.sender.get() {
            sender.post(BusMessage::Populated(slots));
        }
    }

    /// A parameter was changed. `waits`: until clients see what follows, or for a moment if that takes long;
    /// the caller holds no partition then.
    pub fn configured(&self, waits: bool) {
        const PATIENCE: Duration = Duration::from_millis(500);
        let Some(sender) = self.sender.get() else { return };
        let (done, is_done) = channel();
        sender.post(BusMessage::Configured(done));
        if waits {
            // Its end is all that is waited for.
            let _ = is_done.recv_timeout(PATIENCE);
        }
    }

    /// Waits until what clients have published before is counted, unless that takes long.
    pub fn await_counts(&self) {
        const PATIENCE: Duration = Duration::from_millis(50);
        let Some(sender) = self.sender.get().filter(|_| self.published_bytes.load(Relaxed) > 0) else {
            return;
        };
        let (done, is_done) = channel();
        sender.post(BusMessage::Report(done));
        // Its end is all that is waited for. The bus waits for no lock that is held here.
        let _ = is_done.recv_timeout(PATIENCE);
    }

    /// CONFIG RESETSTAT
    pub fn reset_counts(&self) {
        if let Some(sender) = self.sender.get() {
            sender.post(BusMessage::ResetCounts);
        }
        self.set_counts(Counts::default());
    }

    /// Notes how many connections the bus has, and the bytes that they take. Of what clients have published,
    /// `published_bytes` bytes are part of that, or are gone.
    pub fn set_links(&self, count: usize, bytes: usize, published_bytes: usize) {
        self.links.store(count, Relaxed);
        self.link_bytes.store(bytes, Relaxed);
        self.published_bytes.fetch_sub(published_bytes, Relaxed);
    }

    pub fn links(&self) -> usize {
        self.links.load(Relaxed)
    }

    /// Returns the bytes of the links as of the last look at them, and of what came since.
    pub fn link_bytes(&self) -> usize {
        self.link_bytes.load(Relaxed) + self.published_bytes.load(Relaxed)
    }

    pub fn set_counts(&self, counts: Counts) {
        *self.counts.lock().unwrap_or_else(PoisonError::into_inner) = counts;
    }

    /// Returns the counts of the traffic on the bus, as of its last look.
    pub fn counts(&self) -> Counts {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn count_invalid(&self) {
        self.invalid_packets.fetch_add(1, Relaxed);
    }

    pub fn invalid_packets(&self) -> u64 {
        self.invalid_packets.load(Relaxed)
    }

    /// Notes the processor time that the bus thread has used.
    pub fn note_cpu(&self, cpu: Duration) {
        self.cpu_us.store(cpu.as_micros() as u64, Relaxed);
    }

    /// Returns the processor time of the bus thread as of its last tick.
    pub fn cpu_us(&self) -> u64 {
        self.cpu_us.load(Relaxed)
    }

    /// nodes.conf was written, or could not be.
    pub fn note_save(&self, is_ok: bool) {
        self.save_failed.store(!is_ok, Relaxed);
        if is_ok {
            self.saved_unix_s.store(unix_now().0 as u64 / 1000, Relaxed);
        }
    }

    pub fn is_saved(&self) -> bool {
        !self.save_failed.load(Relaxed)
    }

    /// Returns the time at which nodes.conf was last written.
    pub fn saved_unix_s(&self) -> u64 {
        self.saved_unix_s.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_reactor::Events;

    #[test]
    fn what_was_published_since_the_last_look_counts() {
        let events = Events::new().unwrap();
        let mailbox = events.mailbox().unwrap();
        let bus = Bus::default();
        bus.attach(mailbox.sender());
        bus.set_links(2, 100, 0);
        bus.publish(b"c", b"message", false);
        bus.publish(b"c", b"other", false);
        assert_eq!(bus.link_bytes(), 100 + 8 + 6);
        // The first one was handed to the links.
        bus.set_links(2, 120, 8);
        assert_eq!(bus.link_bytes(), 120 + 6);
    }
}
