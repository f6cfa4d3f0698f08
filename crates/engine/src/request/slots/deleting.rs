//! The keys of a slot are deleted, some at a time: those of a slot that is flushed, or that is another
//! node's.
//!
//! Records of frozen keys are read between the steps, while nothing is held: a step names what the next one
//! needs (`Held::walk`). Keys whose records do not come are deleted unread.

use isotherm_cluster::Slot;
use isotherm_commands::call::ColdKey;
use isotherm_keyspace::{Conditions, Db, EventClass, ExpiryMode, Held, Txn, UnixMs, Walk, WalkRecord};
use isotherm_resp::ArgsBuf;
use isotherm_stdx::steps;
use std::time::Duration;

use isotherm_node::Node;
use isotherm_node::effects::pump::Pump;
use isotherm_node::tier::State;

/// Keys that are deleted under one lock.
const KEYS_PER_HOLD_MAX: usize = 200;
/// A record that does not come within this time is given up: its keys are deleted unread.
const READ_MAX: Duration = Duration::from_secs(5);

/// Result of the work under one lock.
pub struct Step {
    pub deleted: usize,
    pub is_over: bool,
}

/// Reads what the next step needs, for a thread that no client waits for. Nothing is held.
pub fn read_records(node: &'static Node, walk: &mut Walk) {
    let wanted = walk.take_wanted();
    let Some(tier) = node.tier() else { return };
    let timeout = node.config.swap_read_timeout().map_or(READ_MAX, |timeout| timeout.min(READ_MAX));
    let gives_up = |waited: Duration| waited >= timeout || tier.state() == State::Failed;
    // One read that does not come stands for the rest: others wait for this thread.
    let mut answers = tier.state() != State::Failed;
    for bundle in wanted {
        let reference = bundle.reference;
        if !answers {
            walk.add(reference, WalkRecord::Lost);
            continue;
        }
        let cold = ColdKey::of_bundle(bundle);
        match tier.call(move |tier| tier.read_key(&node.keyspace, &cold), Some(&gives_up)) {
            // It was moved: the next step names it anew.
            Ok(None) => {}
            Ok(Some(fetched)) => walk.add(fetched.from, fetched.record().unwrap_or(WalkRecord::Lost)),
            Err(_) => {
                tier.note_read_timeout();
                answers = false;
                walk.add(reference, WalkRecord::Lost);
            }
        }
    }
}

/// Gives up the records that the walk has asked for: the next step deletes them unread.
pub fn give_up_records(walk: &mut Walk) {
    walk.take_wanted().into_iter().for_each(|bundle| walk.add(bundle.reference, WalkRecord::Lost));
}

/// Deletes some keys of a slot whose partition is held; those that a script has leased stay. `are_gone`: they
/// are not at another node either, so keyspace events report them. The log gets them one by one.
pub fn delete_some(
    held: &mut Held<'static>,
    pump: &mut Pump,
    slot: Slot,
    databases: u16,
    now: UnixMs,
    are_gone: bool,
) -> Step {
    let (mut deleted, mut stay, mut lost) = (0, 0, 0);
    for db in (0..databases).map(Db) {
        let left = KEYS_PER_HOLD_MAX - deleted;
        lost += held.thaw_slot(db, slot, left as u64, now);
        for name in held.slot_names_in_memory(db, slot, left) {
            match delete(held, pump, (db, &name), now, are_gone) {
                true => deleted += 1,
                false => stay += 1,
            }
        }
        // The records of the next database are asked for in another step.
        if deleted == KEYS_PER_HOLD_MAX || held.walk.is_wanting() {
            break;
        }
    }
    let has_all = deleted < KEYS_PER_HOLD_MAX && !held.walk.is_wanting();
    held.walk.note_advanced(deleted > 0);
    if has_all && stay == 0 && lost > 0 {
        drop_unreadable(held, pump, slot, lost);
    }
    let is_over = has_all && (deleted == 0 && stay > 0 || !held.has_frozen_in(slot));
    if !are_gone {
        // Clients that have waited for them were sent on, and are about to be taken out: no command is to
        // serve them.
        while held.take_ready().is_some() {}
    }
    Step { deleted, is_over }
}

/// Drops `count` frozen keys of the slot, its first ones, which could not be read. Nothing of the slot is in
/// memory. Their names are not known, so the log gets a command that deletes whatever is there.
fn drop_unreadable(held: &mut Held<'static>, pump: &mut Pump, slot: Slot, count: u64) {
    let looked_before = steps::looked();
    held.drop_frozen(slot, count);
    // For each record all keys of the database that are watched.
    held.exempt(steps::looked().wrapping_sub(looked_before));
    if pump.is_logging() {
        let number = slot.get().to_string();
        let words: [&[u8]; 3] = [b"CLUSTER", b"FLUSHSLOT", number.as_bytes()];
        pump.log.request(Db(0), ArgsBuf::from_slices(&words).args());
    }
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
