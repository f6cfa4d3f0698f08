//! Records of frozen keys that cannot be read: how they are named for operators. Which keys they have only
//! the records would say.

use isotherm_keyspace::{BundleAt, ColdRef, Db, Held, Keyspace, Slot, Want};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use super::files::ReadError;
use isotherm_runtime::log;

/// Records that are remembered; after that those that were named before are named again.
const NAMED_MAX: usize = 1024;

/// Records that walks over keys left out.
#[derive(Default)]
pub struct DamagedRecords {
    /// Addresses that the server's log has named.
    named: Mutex<BTreeSet<u64>>,
    /// Keys that were left out, each time.
    pub keys_left_out: AtomicU64,
}

impl DamagedRecords {
    /// Notes that a walk has to do without a record, which the server's log says once. Returns whether the
    /// record is where it was: the walk finds one that was moved meanwhile.
    pub fn note(&self, keyspace: &Keyspace, bundle: &BundleAt, error: &ReadError) -> bool {
        let mut held = Held::new(keyspace);
        held.acquire(Want::One(keyspace.partition_of(bundle.slot)));
        let keys = held.bundle_keys(bundle);
        drop(held);
        let Some(keys) = keys else { return false };
        self.keys_left_out.fetch_add(keys, Relaxed);
        if self.is_new(bundle.reference) {
            let what = text((bundle.db, bundle.slot), bundle.reference, keys);
            log::warning(format!("swap: walks over keys (SCAN, KEYS) leave out {what}: {error}"));
        }
        true
    }

    fn is_new(&self, reference: ColdRef) -> bool {
        let mut named = self.named.lock().unwrap_or_else(PoisonError::into_inner);
        if named.len() >= NAMED_MAX {
            named.clear();
        }
        named.insert(reference.raw())
    }
}

/// Names a record in the server's log, with what can be done about it.
pub fn text((db, slot): (Db, Slot), reference: ColdRef, keys: u64) -> String {
    let (db, slot, address) = (db.0, slot.get(), reference.raw());
    format!(
        "{keys} keys of slot {slot} in DB {db} (a restart brings them back if an append-only file has their \
         values; SWAP FORGET SLOT {slot} RECORD {address} gives them up)"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_named_once() {
        let records = DamagedRecords::default();
        let reference = ColdRef::new(5 << 40 | 17);
        assert!(records.is_new(reference) && !records.is_new(reference));
        let text = text((Db(3), Slot::new(12)), reference, 5);
        assert!(text.starts_with("5 keys of slot 12 in DB 3 (a restart brings"));
    }
}
