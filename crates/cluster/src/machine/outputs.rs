//! Outputs of the machine: what has to be done because of an input.

use super::{Answer, CommitNumber, LinkId, RequestId};
use crate::conf::Conf;
use crate::topology::Topology;
use crate::{NodeId, Slot};
use std::sync::Arc;

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

/// Outputs of the step under way, in order.
#[derive(Default)]
pub struct Outputs(Vec<Output>);

impl Outputs {
    pub fn push(&mut self, output: Output) {
        self.0.push(output);
    }

    pub fn extend(&mut self, outputs: impl IntoIterator<Item = Output>) {
        self.0.extend(outputs);
    }

    pub fn say(&mut self, level: Level, text: String) {
        self.push(Output::Say(level, text));
    }

    pub fn notice(&mut self, text: String) {
        self.say(Level::Notice, text);
    }

    pub fn take(&mut self) -> Vec<Output> {
        std::mem::take(&mut self.0)
    }
}
