//! The messages of the cluster bus as values.
//!
//! ```text
//!   a link's bytes -- frame --> bytes of one message -- decode --> Message -- encode --> bytes
//! ```
//! Invariant: what `decode` lets through has ids of 40 characters, texts without NUL and control characters,
//! and counts that agree with its length.

mod decode;
mod encode;
mod extensions;
mod frame;
mod kind;
mod layout;
#[cfg(test)]
mod tests;

use crate::{Flags, NodeId, SlotSet};

pub use decode::decode;
pub use encode::encode;
pub use frame::{Caps, FIXED_BYTES_MAX, PING_BYTES_MAX, frame};
pub use kind::Type;

/// Formats of the bus.
pub const FORMATS: &[isotherm_stdx::format::FormatPart] = &[layout::FORMAT, kind::FORMAT];

/// Why bytes of another node are no message. They are foreign data: what is wrong is for the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Malformed {
    pub kind: Defect,
    pub what: &'static str,
}

/// Consequence of a malformed message, the same as in Valkey.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Defect {
    /// Unknown start of the next message, so that the link is closed.
    ClosesLink,
    /// The message counts as received and as nothing else.
    Ignored,
}

impl Malformed {
    const fn closes(what: &'static str) -> Malformed {
        Malformed { kind: Defect::ClosesLink, what }
    }

    const fn ignored(what: &'static str) -> Malformed {
        Malformed { kind: Defect::Ignored, what }
    }
}

impl std::fmt::Display for Malformed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.what)
    }
}

impl std::error::Error for Malformed {}

/// Start of each message except a light one: its sender, the sender's claims, and the sender's addresses.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Header {
    pub sender: NodeId,
    /// Primary of the sender; `None` if the sender is a primary.
    pub primary: Option<NodeId>,
    pub current_epoch: u64,
    /// Config epoch of the sender. For a replica, this and `slots` are those of its primary.
    pub config_epoch: u64,
    pub offset: u64,
    pub slots: Box<SlotSet>,
    /// Empty: as the socket says.
    pub ip: String,
    /// Port for clients, TLS if the bus uses TLS and plain otherwise. `other_port` is the port of the other
    /// kind, 0 if there is none.
    pub port: u16,
    pub other_port: u16,
    pub bus_port: u16,
    pub flags: Flags,
    pub is_ok: bool,
    pub is_paused: bool,
    /// A vote is asked for although the primary is not marked as failed.
    pub forces_vote: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PingKind {
    Ping,
    Pong,
    Meet,
}

impl PingKind {
    pub fn name(self) -> &'static str {
        match self {
            PingKind::Ping => "ping",
            PingKind::Pong => "pong",
            PingKind::Meet => "meet",
        }
    }
}

/// Information that the sender has about another node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Gossip {
    pub id: NodeId,
    /// Unix times in seconds; 0: none.
    pub ping_sent_s: u32,
    pub pong_received_s: u32,
    pub ip: String,
    pub port: u16,
    pub other_port: u16,
    pub bus_port: u16,
    pub flags: Flags,
}

/// A text that is empty is not sent, and clears what was known.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Extensions {
    pub hostname: String,
    pub human_name: String,
    pub availability_zone: String,
    pub client_ipv4: String,
    pub client_ipv6: String,
    /// 0: not announced.
    pub client_port: u16,
    pub client_tls_port: u16,
    pub shard: Option<NodeId>,
    /// Nodes that an administrator has removed, and for how many seconds they are not to be added again.
    pub forgotten: Vec<(NodeId, u64)>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Body<'b> {
    Ping {
        kind: PingKind,
        /// Decoded: empty if the id or address of one entry is none.
        gossip: Vec<Gossip>,
        /// Extensions; `None` if the sender does not support them. When encoded, `None` and an empty value
        /// are the same, because this node supports them.
        extensions: Option<Box<Extensions>>,
    },
    Fail(NodeId),
    Publish {
        channel: &'b [u8],
        message: &'b [u8],
        is_sharded: bool,
    },
    VoteRequest,
    Vote,
    Update {
        node: NodeId,
        config_epoch: u64,
        slots: Box<SlotSet>,
    },
    ManualFailover,
    Module,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Message<'b> {
    /// Header; `None` for a light message, whose sender is the node of the link. A link whose node is not
    /// known yet is closed.
    pub header: Option<Box<Header>>,
    pub body: Body<'b>,
}
