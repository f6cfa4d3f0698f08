//! The keys of a slot are deleted, some at a time: those of a slot that is flushed, or that is another node's.

use isotherm_cluster::Slot;
use isotherm_keyspace::{Conditions, Db, EventClass, ExpiryMode, Held, Txn, UnixMs};

use crate::effects::pump::Pump;

/// Keys that are deleted under one lock.
pub const KEYS_PER_HOLD_MAX: usize = 200;

/// Deletes some keys of a slot whose partition is held, and says how many; those that a script has leased stay. `are_gone`: they are
/// not at another node either, so keyspace events report them. The log gets them one by one.
pub fn delete_some(
    held: &mut Held<'static>,
    pump: &mut Pump,
    slot: Slot,
    databases: u16,
    now: UnixMs,
    are_gone: bool,
) -> usize {
    let mut deleted = 0;
    for db in (0..databases).map(Db) {
        for name in held.slot_names(db, slot, KEYS_PER_HOLD_MAX - deleted) {
            deleted += usize::from(delete(held, pump, (db, &name), now, are_gone));
        }
        if deleted == KEYS_PER_HOLD_MAX {
            break;
        }
    }
    if !are_gone {
        // Clients that have waited for them were sent on, and are about to be taken out: no command is to serve them.
        while held.take_ready().is_some() {}
    }
    deleted
}

fn delete(
    held: &mut Held<'static>,
    pump: &mut Pump,
    (db, name): (Db, &[u8]),
    now: UnixMs,
    are_gone: bool,
) -> bool {
    let key = held.keyspace().key(name);
    if held.is_leased(&key, None) {
        return false;
    }
    let conditions = Conditions { now, expiry_mode: ExpiryMode::Keep, no_touch: true };
    let mut txn = Txn::new(held, conditions, pump);
    let was_there = txn.remove(db, &key);
    if are_gone && was_there {
        txn.event(EventClass::Generic, "del", db, name);
    }
    txn.finish();
    if was_there && pump.is_logging() {
        pump.log.deleted(db, name);
    }
    was_there
}
