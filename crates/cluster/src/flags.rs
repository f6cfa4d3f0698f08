//! The flags of a node, as messages and nodes.conf have them.

use std::ops::{BitAnd, BitOr, Not};

/// A set of bits; the numbers are the bus protocol's.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Flags(pub u16);

impl Flags {
    pub const NONE: Flags = Flags(0);
    pub const PRIMARY: Flags = Flags(1);
    pub const REPLICA: Flags = Flags(1 << 1);
    /// Node that this node does not reach; others may reach it.
    pub const PFAIL: Flags = Flags(1 << 2);
    /// Most primaries do not reach it.
    pub const FAIL: Flags = Flags(1 << 3);
    pub const MYSELF: Flags = Flags(1 << 4);
    /// Met, but not heard of by its true name yet.
    pub const HANDSHAKE: Flags = Flags(1 << 5);
    pub const NOADDR: Flags = Flags(1 << 6);
    /// The next message to it is MEET, not PING.
    pub const MEET: Flags = Flags(1 << 7);
    /// A primary that had replicas, so that one of another shard may move to it.
    pub const MIGRATE_TO: Flags = Flags(1 << 8);
    pub const NOFAILOVER: Flags = Flags(1 << 9);
    pub const EXTENSIONS: Flags = Flags(1 << 10);
    pub const LIGHT_PUBLISH: Flags = Flags(1 << 11);
    /// A light header for MODULE; and that a node which is met twice is no harm.
    pub const LIGHT_MODULE: Flags = Flags(1 << 12);
    pub const MY_PRIMARY_FAIL: Flags = Flags(1 << 13);

    pub const fn has(self, other: Flags) -> bool {
        self.0 & other.0 != 0
    }

    pub const fn with(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }

    pub const fn without(self, other: Flags) -> Flags {
        Flags(self.0 & !other.0)
    }

    pub fn set(&mut self, other: Flags) {
        self.0 |= other.0;
    }

    pub fn clear(&mut self, other: Flags) {
        self.0 &= !other.0;
    }
}

impl BitOr for Flags {
    type Output = Flags;
    fn bitor(self, other: Flags) -> Flags {
        self.with(other)
    }
}

impl BitAnd for Flags {
    type Output = Flags;
    fn bitand(self, other: Flags) -> Flags {
        Flags(self.0 & other.0)
    }
}

impl Not for Flags {
    type Output = Flags;
    fn not(self) -> Flags {
        Flags(!self.0)
    }
}
