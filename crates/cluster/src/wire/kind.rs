//! The types of messages, by number and by the names that CLUSTER INFO counts them under.

use super::layout::{LIGHT, PREFIX_BYTES, TYPE};
use super::{Body, PingKind};
use isotherm_stdx::format::{FormatPart, number};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u16)]
pub enum Type {
    Ping,
    Pong,
    Meet,
    Fail,
    Publish,
    VoteRequest,
    Vote,
    Update,
    ManualFailover,
    Module,
    PublishShard,
}

/// Rows of `--layout`.
pub(super) const FORMAT: FormatPart = (
    "type of a bus message",
    &[
        ("ping", number(Type::Ping as usize)),
        ("pong", number(Type::Pong as usize)),
        ("meet", number(Type::Meet as usize)),
        ("fail", number(Type::Fail as usize)),
        ("publish", number(Type::Publish as usize)),
        ("vote request", number(Type::VoteRequest as usize)),
        ("vote", number(Type::Vote as usize)),
        ("update", number(Type::Update as usize)),
        ("manual failover", number(Type::ManualFailover as usize)),
        ("module", number(Type::Module as usize)),
        ("publish to a shard", number(Type::PublishShard as usize)),
    ],
);

impl Type {
    pub const ALL: [Type; 11] = [
        Type::Ping,
        Type::Pong,
        Type::Meet,
        Type::Fail,
        Type::Publish,
        Type::VoteRequest,
        Type::Vote,
        Type::Update,
        Type::ManualFailover,
        Type::Module,
        Type::PublishShard,
    ];

    /// Returns the type of a message whose first 14 bytes have come, or `None` if the type is not known.
    pub fn of_bytes(bytes: &[u8]) -> Option<Type> {
        let prefix = bytes.get(..PREFIX_BYTES)?;
        Type::ALL.get(usize::from(TYPE.u16(prefix) & !LIGHT)).copied()
    }

    pub fn of(body: &Body<'_>) -> Type {
        match body {
            Body::Ping { kind: PingKind::Ping, .. } => Type::Ping,
            Body::Ping { kind: PingKind::Pong, .. } => Type::Pong,
            Body::Ping { kind: PingKind::Meet, .. } => Type::Meet,
            Body::Fail(_) => Type::Fail,
            Body::Publish { is_sharded: false, .. } => Type::Publish,
            Body::Publish { is_sharded: true, .. } => Type::PublishShard,
            Body::VoteRequest => Type::VoteRequest,
            Body::Vote => Type::Vote,
            Body::Update { .. } => Type::Update,
            Body::ManualFailover => Type::ManualFailover,
            Body::Module => Type::Module,
        }
    }

    pub fn number(self) -> u16 {
        self as u16
    }

    /// Returns the name of the type as in `cluster_stats_messages_ping_sent`.
    pub fn name(self) -> &'static str {
        match self {
            Type::Ping => "ping",
            Type::Pong => "pong",
            Type::Meet => "meet",
            Type::Fail => "fail",
            Type::Publish => "publish",
            Type::VoteRequest => "auth-req",
            Type::Vote => "auth-ack",
            Type::Update => "update",
            Type::ManualFailover => "mfstart",
            Type::Module => "module",
            Type::PublishShard => "publishshard",
        }
    }

    /// May have a light header.
    pub fn may_be_light(self) -> bool {
        matches!(self, Type::Publish | Type::PublishShard | Type::Module)
    }
}

const _: () = {
    let mut at = 0;
    while at < Type::ALL.len() {
        assert!(Type::ALL[at] as usize == at);
        at += 1;
    }
};
