//! Messages that are published, and the kinds of names that a session can subscribe to.

use std::sync::Arc;

/// The name of a channel or a pattern: one text, shared by the registry, the worker and the sessions.
pub type Name = Arc<[u8]>;

/// Kind of name that a session can listen to. Channels of both kinds may have the same name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Channel,
    Pattern,
    ShardChannel,
}

impl Kind {
    pub const ALL: [Kind; 3] = [Kind::Channel, Kind::Pattern, Kind::ShardChannel];
    pub const COUNT: usize = Kind::ALL.len();
}

/// Bytes that a message takes in addition to its own.
pub const MESSAGE_BYTES: usize = 128;

/// Moment of a subscription, in the order of the lock.
pub type Moment = u64;

/// Message that was published.
pub struct Message {
    pub sharded: bool,
    pub channel: Box<[u8]>,
    pub payload: Box<[u8]>,
    pub channel_moment: Moment,
    pub pattern_moment: Moment,
}

impl Message {
    pub fn bytes(&self) -> usize {
        MESSAGE_BYTES + self.channel.len() + self.payload.len()
    }

    /// Returns the bytes that it counts for while a worker has it: its own once for each of the `receivers`
    /// of that worker, and those of the list of its patterns that match.
    pub fn weight_bytes(&self, patterns: usize, receivers: usize) -> usize {
        self.bytes() * receivers.max(1) + patterns * size_of::<Name>()
    }
}
