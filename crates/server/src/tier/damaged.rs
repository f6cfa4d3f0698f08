//! Records of frozen keys that cannot be read: how they are named for operators. Which keys they have only they would say.

use isotherm_keyspace::{ColdRef, Db, Slot};
use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

/// So many are remembered; behind that those that were named before are named again.
const NAMED_MAX: usize = 1024;

/// Those that the server's log has named.
#[derive(Default)]
pub struct DamagedRecords(Mutex<BTreeSet<u64>>);

impl DamagedRecords {
    /// Whether it is to be named now.
    pub fn note(&self, reference: ColdRef) -> bool {
        let mut named = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if named.len() >= NAMED_MAX {
            named.clear();
        }
        named.insert(reference.raw())
    }
}

/// What the server's log says of a record, and what can be done about it.
pub fn text((db, slot): (Db, Slot), reference: ColdRef, keys: u64) -> String {
    let (slot, address) = (slot.get(), reference.raw());
    format!(
        "{keys} keys of slot {slot} in DB {} (a restart brings them back if an append-only file has their values; \
         SWAP FORGET SLOT {slot} RECORD {address} gives them up)",
        db.0
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_named_once() {
        let records = DamagedRecords::default();
        let reference = ColdRef::new(5 << 40 | 17);
        assert!(records.note(reference) && !records.note(reference));
        assert!(
            text((Db(3), Slot::new(12)), reference, 5)
                .starts_with("5 keys of slot 12 in DB 3 (a restart brings")
        );
    }
}
