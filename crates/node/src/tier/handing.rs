//! Hand-over of values that were read: they are lent, or loaded into memory to stay.
//!
//! All values of a command have one moment, that of the first. A value that is lent later displaces only
//! values that are older than that. So the last one does not drop the first, however long it takes to hand
//! over thousands.

use isotherm_commands::call::{ColdKey, ColdKeys};
use isotherm_keyspace::{Held, HeldNode, UnixMs};
use std::sync::atomic::Ordering::Relaxed;

use super::state::Tier;
use super::target::{Fetched, RECORDS_PER_KEY_MAX, Target};
use isotherm_runtime::time::unix_now;

impl Tier {
    /// Hands over what was read. The partition of the key is held. `now`: when its command was begun to be
    /// served.
    pub fn hand_over(&self, held: &mut Held<'_>, cold: &ColdKey, fetched: &Fetched, now: UnixMs) {
        self.hand_over_within(self.lent_bytes_max(), held, cold, fetched, now);
    }

    fn hand_over_within(
        &self,
        lent_bytes_max: usize,
        held: &mut Held<'_>,
        cold: &ColdKey,
        fetched: &Fetched,
        now: UnixMs,
    ) {
        assert!(cold.bundle.is_none(), "what was read for a walk is the walk's");
        if let Some(node) = cold.node {
            let keeps = !self.is_off();
            let value = fetched.value.as_deref();
            return HeldNode::of(held, node).give(value, fetched.from, keeps, now);
        }
        let key = held.keyspace().key(&cold.key);
        if fetched.is_bundle {
            let thawed = |bytes: &[u8]| match cold.home {
                true => held.thaw(cold.db, &key, bytes, fetched.from, now).is_ok(),
                false => held.thaw_or_show(cold.db, &key, bytes, fetched.from, now).is_ok(),
            };
            // Without memory for it its command fails, as if it could not be read.
            if !fetched.value.as_deref().is_some_and(thawed) {
                held.note_unreadable_bundle(cold.db, &key, fetched.from, now);
            }
            return;
        }
        if let Some(value) = fetched.value.as_deref().filter(|_| cold.home)
            && let Ok(_) = held.warm(cold.db, &key, value, fetched.from, now)
        {
            return;
        }
        let value = if cold.home { None } else { fetched.value.as_deref() };
        held.lend(cold.db, &key, value, fetched.from, lent_bytes_max, now);
    }

    /// Reads values for a command that cannot be interrupted any more: it waits for the values, and keeps its
    /// locks. Values that were lent to it before stay, as it runs again from its beginning. Values that were
    /// lent to commands before it go as ever. `is_first`: nothing was lent to it yet. Returns whether all
    /// could be read.
    pub fn fetch_held(&self, held: &mut Held<'_>, keys: &ColdKeys, is_first: bool) -> bool {
        let (now, mut has_all) = (unix_now(), true);
        let lent_bytes_max = if is_first { self.lent_bytes_max() } else { usize::MAX };
        for cold in &keys.keys {
            // A record that only seemed to have a key is followed by another one.
            for _ in 0..RECORDS_PER_KEY_MAX {
                let Some((target, lent)) = Target::find(held, cold) else { break };
                // A held key is moved by no other thread.
                let read = || {
                    self.counters.reads_in_commands.fetch_add(1, Relaxed);
                    self.read_held(target.from, target.name(&cold.key))?.ok()
                };
                let fetched = target.fetched(lent.map(Vec::from).or_else(read));
                let is_read = fetched.is_there();
                self.counters.unreadable.fetch_add(u64::from(!is_read), Relaxed);
                has_all &= is_read;
                self.hand_over_within(lent_bytes_max, held, cold, &fetched, now);
                if !(is_read && fetched.is_bundle) {
                    break;
                }
            }
        }
        has_all
    }
}
