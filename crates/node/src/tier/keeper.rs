//! Requests and reports of the keyspace to the files that its values lie in.

use isotherm_keyspace::{ColdKeeper, ColdRef, Db};
use isotherm_tier::Place;
use std::sync::atomic::Ordering::Relaxed;

use super::state::Tier;

impl ColdKeeper for Tier {
    fn fields_are_due(&self, db: Db, key: &[u8]) {
        self.due.push(db, key);
    }

    fn retire(&self, reference: ColdRef) {
        self.live.retire(Place::from_raw(reference.raw()));
    }

    fn read(&self, reference: ColdRef, key: &[u8]) -> Option<Vec<u8>> {
        self.undeclared_reads.fetch_add(1, Relaxed);
        // The key's partition is held: the value stays where it is.
        self.read_held(reference, key)?.ok()
    }

    fn takes_home(&self, hits: u64) -> bool {
        self.homes.takes_home(hits) && self.has_room()
    }

    fn has_room(&self) -> bool {
        let below = self.home_below_bytes.load(Relaxed);
        below == u64::MAX || (self.used_bytes)() < below
    }

    fn came_home(&self, reference: ColdRef) {
        self.homes.note_home(reference);
    }

    fn lent_more(&self, bytes: i64) {
        self.lent.add(bytes);
    }
}
