//! Walks over keys, some of them outside memory: SCAN, KEYS and RANDOMKEY read nothing while they hold
//! something.
//!
//! ```text
//!   a run that lacks records       names them, [`WALK_BYTES_MAX`] at most, and shows nothing
//!   they are read                  nothing is held meanwhile
//!   the next run                   visits what it has records of, and ends before the next piece that it lacks
//! ```
//! A record that was read belongs to the walk and goes with it: nothing comes to memory, and nothing that was
//! lent is displaced. A bundle that changes its place meanwhile is named anew. One that cannot be read,
//! though others can, is left out; the server says so.
//!
//! A transaction has what its walks need read before it begins, all of it (`is_whole`), as nothing comes
//! between its commands.

use crate::layout::bundle::BundleAt;
use crate::layout::cold::ColdRef;
use std::collections::BTreeMap;

/// Bytes of records that are read for a walk at a time, and one record more: some 4,000 keys of 33 B. These
/// are looked through in 2 to 3 ms; all partitions are held for that time, and others wait.
pub const WALK_BYTES_MAX: usize = 128 << 10;

/// Records of more bytes are not read for one transaction.
const WHOLE_BYTES_MAX: usize = 8 << 20;

/// A record that a walk has named, as it came.
#[derive(PartialEq, Eq, Debug)]
pub enum WalkRecord {
    Payload(Vec<u8>),
    /// Lost, for all that is known: it cannot be read, and others can.
    Lost,
}

/// The place to which a walk over all keys has come.
#[derive(Default, Debug)]
pub struct WalkProgress {
    /// A cursor of SCAN.
    pub cursor: u64,
    /// Replies for what lies before it.
    pub found: Vec<u8>,
    pub count: usize,
}

/// Records that a walk has, and those that it lacks.
#[derive(Default, Debug)]
pub struct Walk {
    records: BTreeMap<u64, WalkRecord>,
    record_bytes: usize,
    /// Bundles by the place of the record: what is written together is read together.
    wanted: BTreeMap<u64, BundleAt>,
    wanted_bytes: usize,
    progress: Option<WalkProgress>,
    /// Progress since it last lacked records.
    has_advanced: bool,
    /// A walk without steps: what was read stays.
    is_whole: bool,
}

impl Walk {
    /// A record that was wanted was read, or is lost.
    pub fn add(&mut self, reference: ColdRef, record: WalkRecord) {
        self.record_bytes += reference.value_bytes();
        self.records.insert(reference.raw(), record);
    }

    /// Takes a record, for a caller that wanted it alone.
    pub fn take(&mut self, reference: ColdRef) -> Option<WalkRecord> {
        self.records.remove(&reference.raw())
    }

    /// Returns a record that it has.
    pub fn get(&self, reference: ColdRef) -> Option<&WalkRecord> {
        self.records.get(&reference.raw())
    }

    /// Names a record that is to be read. Returns whether it was not named yet.
    pub fn want(&mut self, bundle: BundleAt) -> bool {
        let is_new = self.wanted.insert(bundle.reference.raw(), bundle).is_none();
        self.wanted_bytes += if is_new { bundle.reference.value_bytes() } else { 0 };
        is_new
    }

    /// Returns whether no more is read at a time.
    pub(crate) fn is_full(&self) -> bool {
        self.wanted_bytes >= WALK_BYTES_MAX
    }

    /// Returns whether the last run lacked records.
    #[inline]
    pub fn is_wanting(&self) -> bool {
        !self.wanted.is_empty()
    }

    /// Takes what is to be read before it runs again.
    pub fn take_wanted(&mut self) -> Vec<BundleAt> {
        self.wanted_bytes = 0;
        std::mem::take(&mut self.wanted).into_values().collect()
    }

    /// Returns whether there is nothing that the next run would need.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty() && self.progress.is_none() && self.wanted.is_empty() && !self.is_whole
    }

    /// Makes it a walk of a transaction. Returns whether more may be read for that.
    pub fn make_whole(&mut self) -> bool {
        self.is_whole = true;
        self.record_bytes < WHOLE_BYTES_MAX
    }

    /// Gives up the current command's walk: the command fails. Records that were read may serve another one.
    pub fn give_up(&mut self) {
        self.take_wanted();
        self.progress = None;
    }

    /// Returns whether there are records that were read, where a key of any will do; then none is wanted.
    pub(crate) fn has_others(&mut self) -> bool {
        let has_others = self.is_whole && !self.records.is_empty();
        if has_others {
            self.take_wanted();
        }
        has_others
    }

    /// Takes the place to which it has come before.
    pub fn take_progress(&mut self) -> WalkProgress {
        self.progress.take().unwrap_or_default()
    }

    /// Keeps the place where it continues. `has_advanced`: it has passed the records that were read before.
    pub fn keep_progress(&mut self, progress: WalkProgress, has_advanced: bool) {
        if self.is_whole {
            return;
        }
        if has_advanced {
            self.records.clear();
            self.record_bytes = 0;
        }
        (self.progress, self.has_advanced) = (Some(progress), has_advanced);
    }

    /// Notes whether the last run has come further, by what it has changed.
    pub fn note_advanced(&mut self, has_advanced: bool) {
        self.has_advanced = has_advanced;
    }

    /// Returns whether the last run has come further.
    pub fn has_advanced(&self) -> bool {
        self.has_advanced
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::bundle::BundleName;
    use crate::layout::kind::Db;
    use isotherm_stdx::Slot;

    fn bundle(number: u64, bytes: u64) -> BundleAt {
        let name = BundleName::of_bytes(&[0; 5]).expect("it is one");
        BundleAt { db: Db(0), slot: Slot::new(1), name, reference: ColdRef::new(bytes << 40 | number) }
    }

    #[test]
    fn a_walk_names_each_record_once_and_so_many_bytes() {
        let mut walk = Walk::default();
        assert!(!walk.is_wanting() && walk.is_empty());
        assert!(walk.want(bundle(1, 1000)) && walk.want(bundle(2, 1000)) && !walk.want(bundle(1, 1000)));
        assert!(walk.is_wanting() && !walk.is_full());
        assert!(walk.want(bundle(3, 1 << 20)) && walk.is_full());
        assert_eq!(walk.take_wanted().len(), 3);
        assert!(!walk.is_wanting() && !walk.is_full());
        let read = bundle(1, 1000).reference;
        walk.add(read, WalkRecord::Lost);
        assert_eq!(walk.get(read), Some(&WalkRecord::Lost));
        let progress = WalkProgress { cursor: 7, ..walk.take_progress() };
        walk.keep_progress(progress, false);
        assert!(!walk.has_advanced() && walk.get(read).is_some());
        let progress = walk.take_progress();
        assert_eq!(progress.cursor, 7);
        walk.keep_progress(progress, true);
        assert!(walk.has_advanced() && walk.get(read).is_none() && !walk.is_empty());
        // A transaction keeps what was read.
        let mut walk = Walk::default();
        assert!(walk.make_whole() && !walk.is_empty() && !walk.has_others());
        walk.add(bundle(4, 8 << 20).reference, WalkRecord::Lost);
        walk.want(bundle(5, 1000));
        let progress = walk.take_progress();
        walk.keep_progress(progress, true);
        assert!(walk.has_others() && !walk.is_wanting() && !walk.make_whole());
    }
}
