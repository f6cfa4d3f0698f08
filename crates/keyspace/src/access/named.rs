//! The keys that a command's arguments name, in builds with assertions: a handler that resolves another one
//! panics, for neither rights nor slots nor locks were asked about that.

use crate::access::keyspace::Keyspace;
use crate::layout::key::Key;

/// The keys that the handler under way may resolve. Kept by hash: two names of one hash would pass for each
/// other, which misses a fault.
pub(super) struct NamedKeys {
    command: &'static str,
    /// Ascending, with whether the key may be changed.
    keys: Vec<(u64, bool)>,
    reads_others: bool,
}

impl NamedKeys {
    pub(super) fn new<'n>(
        keyspace: &Keyspace,
        command: &'static str,
        named: impl Iterator<Item = (&'n [u8], bool)>,
        reads_others: bool,
    ) -> NamedKeys {
        let mut keys: Vec<_> =
            named.map(|(name, may_change)| (keyspace.key(name).hash, may_change)).collect();
        keys.sort_unstable();
        NamedKeys { command, keys, reads_others }
    }

    /// Panics unless the key may be looked up.
    pub(super) fn check_named(&self, key: &Key<'_>) {
        let is_named = self.reads_others || self.find(key.hash).is_some();
        assert!(is_named, "{} resolves '{}', which its key specs do not name", self.command, shown(key));
    }

    /// Panics unless the key may be changed.
    pub(super) fn check_changed(&self, key: &Key<'_>) {
        let may_change = self.find(key.hash) == Some(true);
        assert!(may_change, "{} changes '{}', which its key specs do not allow", self.command, shown(key));
    }

    /// Returns whether a key that is named may be changed: one that is named twice may if one of both says
    /// so.
    fn find(&self, hash: u64) -> Option<bool> {
        let end = self.keys.partition_point(|(other, _)| *other <= hash);
        self.keys[..end].last().filter(|(other, _)| *other == hash).map(|(_, may_change)| *may_change)
    }
}

fn shown(key: &Key<'_>) -> impl std::fmt::Display {
    key.bytes.escape_ascii()
}
