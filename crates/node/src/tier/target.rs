//! Record that is read for a key, and the result of the read.

use isotherm_commands::call::ColdKey;
use isotherm_keyspace::{
    BundleAt, BundleName, ColdRef, Held, HeldNode, Keyspace, NodeName, Slot, WalkRecord, Whereabouts,
};

/// Records that are read for one key at most. Of a hundred frozen keys one or so seems to be in another
/// record too.
pub const RECORDS_PER_KEY_MAX: usize = 8;

/// Record that is to be read for a key: its value, the record that may have the key with its value, or a part
/// of its collection.
#[derive(Clone, Copy)]
pub struct Target {
    pub from: ColdRef,
    record: Record,
}

#[derive(Clone, Copy)]
enum Record {
    Value,
    Bundle(BundleName),
    Node(NodeName),
}

/// Target that is to be read, and the lent copy of a value that is to come back to memory.
pub type Found = (Target, Option<Box<[u8]>>);

impl Target {
    /// The partition of the key is held. `None`: there is nothing to read.
    pub fn find(held: &mut Held<'_>, cold: &ColdKey) -> Option<Found> {
        if let Some(node) = cold.node {
            let it = HeldNode::of(held, node);
            let from = it.reference().filter(|_| !it.is_unreadable())?;
            return Some((Target { from, record: Record::Node(node.name) }, None));
        }
        if let Some(BundleAt { db, slot, name, reference: from }) = cold.bundle {
            // One that was moved is named anew by the walk.
            held.database_of_bundle((db, slot), name, from)?;
            return Some((Target { from, record: Record::Bundle(name) }, None));
        }
        let key = held.keyspace().key(&cold.key);
        let target = match held.whereabouts(cold.db, &key, cold.home) {
            Whereabouts::Here | Whereabouts::Unreadable => return None,
            Whereabouts::Away(value) => Target { from: value.reference, record: Record::Value },
            Whereabouts::Frozen(from, name) => Target { from, record: Record::Bundle(name) },
        };
        let lent = if cold.home { held.lent(cold.db, &key) } else { None };
        Some((target, lent))
    }

    /// Returns the key in the head of the record.
    pub fn name<'n>(&'n self, key: &'n [u8]) -> &'n [u8] {
        match &self.record {
            Record::Value => key,
            Record::Bundle(name) => name.as_bytes(),
            Record::Node(name) => name.as_bytes(),
        }
    }

    /// Returns whether the record has keys in addition to their values.
    pub fn is_bundle(&self) -> bool {
        matches!(self.record, Record::Bundle(_))
    }

    pub fn fetched(&self, value: Option<Vec<u8>>) -> Fetched {
        Fetched { from: self.from, is_bundle: self.is_bundle(), value, is_lost: false }
    }
}

/// A slot of the partition in which a key, or a part of a collection, is.
pub fn slot_of(keyspace: &Keyspace, cold: &ColdKey) -> Slot {
    let named = cold.node.map(|node| node.slot).or(cold.bundle.map(|bundle| bundle.slot));
    named.unwrap_or_else(|| keyspace.key(&cold.key).slot)
}

/// Result of a read for a key.
#[derive(Clone)]
pub struct Fetched {
    /// Place of the record.
    pub from: ColdRef,
    /// The record has several keys.
    pub is_bundle: bool,
    /// Payload of the record; `None`: it cannot be read.
    pub value: Option<Vec<u8>>,
    /// Others can: it is damaged. Of what a walk over keys needs only.
    pub is_lost: bool,
}

impl Fetched {
    pub fn is_there(&self) -> bool {
        self.value.is_some()
    }

    /// Returns the record for a walk; `None` if it may be read later.
    pub fn record(&self) -> Option<WalkRecord> {
        match &self.value {
            Some(payload) => Some(WalkRecord::Payload(payload.clone())),
            None if self.is_lost => Some(WalkRecord::Lost),
            None => None,
        }
    }
}
