//! nodes.conf as values: what a node knows of its cluster from one start to the next. Valkey's file, readable
//! by both.
//!
//! ```text
//!   ID ip:port@bus,hostname,availability-zone=a,client-tls-port=1,client-tcp-port=2,client-ipv6=::1,client-ipv4=10.0.0.1,
//!      tls-port=0,nodename=n,shard-id=ID myself,master - 0 1690000000000 3 connected 0-99 200 [200->-ID] [300-<-ID]
//!      |                                 |             | | |             | |         |        |          importing from
//!      |                                 flags         | ping, pong (ms) | |         slots    migrating to
//!      one word, without the line break above          primary           config epoch
//!   vars currentEpoch 6 lastVoteEpoch 0 forgotten ID,ID
//! ```
//! A line of CLUSTER NODES is the same without what follows the hostname. Redis 7.0 writes that to its file
//! too, and older ones write neither the hostname nor `@bus`. A file is read as a whole or not at all: a node
//! that forgets a vote may vote twice.

mod read;
#[cfg(test)]
mod tests;
mod write;

use crate::topology::Address;
use crate::{Flags, NodeId, Slot, SlotRanges};
use std::fmt;

pub use read::read;
pub use write::{Line, Reader, Slots, write, write_line, write_slots};

/// More is not read: 65,534 nodes with some 400 B each take 26 MB, slots 1 MB.
pub const FILE_BYTES_MAX: usize = 64 << 20;

/// More are not known and not read: the count of a message's entries has 16 bits. A node takes some 1.5 KB of
/// memory, these 100 MB.
pub const NODES_MAX: usize = 65_534;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Conf {
    /// Nodes in the order of the file. One of them is flagged as `MYSELF`, and no slot belongs to two of
    /// them.
    pub nodes: Vec<ConfNode>,
    /// At least that of each node.
    pub current_epoch: u64,
    pub last_vote_epoch: u64,
    /// Nodes that an administrator took out, and that do not come back by themselves. Valkey skips a variable
    /// that it does not know.
    pub forgotten: Vec<NodeId>,
}

impl Conf {
    /// Returns the line of this node.
    pub fn myself(&self) -> &ConfNode {
        self.nodes.iter().find(|node| node.flags.has(Flags::MYSELF)).expect("a file names this node")
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConfNode {
    pub id: NodeId,
    pub address: Address,
    /// Shard of the node; `None` if the file is old and names none. A replica gets its primary's shard, if
    /// the primary is in the file and has one.
    pub shard: Option<NodeId>,
    pub flags: Flags,
    /// Need not be in the file; nor need the nodes that slots migrate to and from.
    pub primary: Option<NodeId>,
    pub ping_sent_ms: u64,
    pub pong_received_ms: u64,
    /// Config epoch of the node; for a replica, the one of its primary.
    pub config_epoch: u64,
    pub is_connected: bool,
    pub slots: SlotRanges,
    /// Slots that this node migrates, with their targets; empty for other nodes. Ascending, and no slot
    /// twice.
    pub migrating: Vec<(Slot, NodeId)>,
    pub importing: Vec<(Slot, NodeId)>,
}

/// Why a file cannot be read, as Valkey logs it before it ends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConfError {
    /// Number of the faulty line, from 1; the last line if the defect is one of the whole file.
    pub line_number: usize,
    /// Text of the line, cut to what a line of the log has room for.
    pub line: String,
    pub defect: Defect,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Defect {
    TooLong,
    TooManyNodes,
    NoMyself,
    TwoMyself,
    UnbalancedQuotes,
    TooFewWords,
    BadVariables,
    BadId,
    DuplicateId,
    BadAddress,
    BadHostname,
    BadAuxiliary,
    UnknownAuxiliary,
    UnknownFlag,
    BadNumber,
    BadSlot,
}

impl Defect {
    pub fn what(self) -> &'static str {
        match self {
            Defect::TooLong => "too long",
            Defect::TooManyNodes => "too many nodes",
            Defect::NoMyself => "no line is of this node",
            Defect::TwoMyself => "two lines are of this node",
            Defect::UnbalancedQuotes => "unbalanced quotes",
            Defect::TooFewWords => "fewer than eight words",
            Defect::BadVariables => "a variable without its value",
            Defect::BadId => "an id has 40 characters of a-z and 0-9",
            Defect::DuplicateId => "a second line of the same node",
            Defect::BadAddress => "an address is ip:port@busport",
            Defect::BadHostname => "a hostname with characters that have a meaning here",
            Defect::BadAuxiliary => "an auxiliary field that is malformed",
            Defect::UnknownAuxiliary => "an auxiliary field that is not known",
            Defect::UnknownFlag => "a flag that is not known",
            Defect::BadNumber => "not a number",
            Defect::BadSlot => "not a slot",
        }
    }
}

impl fmt::Display for ConfError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.defect {
            Defect::UnknownFlag => f.write_str("Unknown flag in Valkey cluster config file")?,
            Defect::DuplicateId => {
                let id = self.line.split(' ').next().unwrap_or_default();
                write!(f, "Duplicate nodeid detected: {id}")?;
            }
            _ => write!(f, "Unrecoverable error: corrupted cluster config file \"{}\".", self.line)?,
        }
        write!(f, " (line {}: {})", self.line_number, self.defect.what())
    }
}

impl std::error::Error for ConfError {}
