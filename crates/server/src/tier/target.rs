//! What is read for a key, and what came of it.

use isotherm_keyspace::{BundleName, ColdRef, Whereabouts};

/// What is to be read for a key: its value, or the record that may have it with its value.
#[derive(Clone, Copy)]
pub struct Target {
    pub from: ColdRef,
    bundle: Option<BundleName>,
}

impl Target {
    /// `None`: there is nothing to read.
    pub fn of(place: Whereabouts) -> Option<Target> {
        match place {
            Whereabouts::Here | Whereabouts::Unreadable => None,
            Whereabouts::Away(value) => Some(Target { from: value.reference, bundle: None }),
            Whereabouts::Frozen(from, name) => Some(Target { from, bundle: Some(name) }),
        }
    }

    /// What the record has as its key.
    pub fn name<'n>(&'n self, key: &'n [u8]) -> &'n [u8] {
        self.bundle.as_ref().map_or(key, BundleName::as_bytes)
    }

    pub fn fetched(&self, value: Option<Vec<u8>>) -> Fetched {
        Fetched { from: self.from, is_bundle: self.bundle.is_some(), value }
    }
}

/// What was read of a key.
#[derive(Clone)]
pub struct Fetched {
    /// Where it was.
    pub from: ColdRef,
    /// It was read from a record of several keys.
    pub is_bundle: bool,
    /// `None`: it cannot be read.
    pub value: Option<Vec<u8>>,
}

impl Fetched {
    pub fn is_there(&self) -> bool {
        self.value.is_some()
    }
}
