//! What CLUSTER commands ask of the bus thread, and how it answers.
//!
//! ```text
//!   CLUSTER MEET ...   worker: its client is parked  --->  ClusterRequest   the mailbox of the bus thread
//!                      worker: the reply is written  <---  Asker::answer    when what was asked for holds
//! ```

use isotherm_keyspace::Waiter;
use isotherm_reactor::Sender;
use isotherm_resp::{ArgsBuf, Protocol, Reply};
use std::sync::{Arc, OnceLock};

/// A request of a client. It is parked until it is answered.
pub struct ClusterRequest {
    /// With `CLUSTER` at 0 and the subcommand at 1.
    pub args: ArgsBuf,
    pub asker: Asker,
}

/// Who has asked. One that is dropped leaves its client without a reply, until that leaves.
pub struct Asker {
    waiter: Arc<Waiter>,
    answer: fn(&Arc<Waiter>, Reply),
    pub proto: Protocol,
}

impl Asker {
    /// `answer` sends the waiter's client its reply.
    pub fn new(waiter: &Arc<Waiter>, proto: Protocol, answer: fn(&Arc<Waiter>, Reply)) -> Asker {
        Asker { waiter: Arc::clone(waiter), answer, proto }
    }

    /// An empty reply in the client's protocol.
    pub fn reply(&self) -> Reply {
        Reply::new(self.proto)
    }

    /// From any thread. No lock is needed.
    pub fn answer(self, reply: Reply) {
        (self.answer)(&self.waiter, reply);
    }
}

/// The way to the bus thread, once there is one.
#[derive(Default)]
pub struct Bus(OnceLock<Sender<ClusterRequest>>);

impl Bus {
    /// The bus thread has begun.
    pub fn attach(&self, sender: Sender<ClusterRequest>) {
        assert!(self.0.set(sender).is_ok(), "there is one bus thread");
    }

    pub fn is_attached(&self) -> bool {
        self.0.get().is_some()
    }

    pub fn ask(&self, request: ClusterRequest) {
        self.0.get().expect("it was asked whether there is one").post(request);
    }
}
