//! The keys of a slot are deleted, some at a time: those of a slot that is flushed, or that is another
//! node's.
//!
//! Records of frozen keys are read between the steps, while nothing is held: a step names what the next one
//! needs (`Held::walk`). Keys whose records do not come are deleted unread. Keys that scripts have leased go
//! when the scripts have ended: the caller tries again.

use isotherm_cluster::Slot;
use isotherm_commands::call::ColdKey;
use isotherm_keyspace::{
    Conditions, Db, EventClass, ExpiryMode, Held, LostRecords, SlotKeys, Txn, UnixMs, Walk, WalkRecord,
    thaw_slot,
};
use isotherm_resp::ArgsBuf;
use isotherm_stdx::steps;
use std::time::Duration;

use isotherm_node::Node;
use isotherm_node::effects::pump::Pump;
use isotherm_node::tier::State;

/// Keys that are looked at under one lock; most of them are deleted.
const KEYS_PER_HOLD_MAX: usize = 200;
/// A record that does not come within this time is given up: its keys are deleted unread.
const READ_MAX: Duration = Duration::from_secs(5);

/// Keys that the slot has after a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rest {
    /// No key, or none that can be deleted.
    Nothing,
    /// The next step goes on.
    Some,
    /// Scripts have leased them: nothing can be done before these have ended.
    Leased,
}

/// Result of the work under one lock.
pub struct Step {
    pub deleted: usize,
    pub rest: Rest,
}

/// Reads what the next step needs, for a thread that no client waits for. Nothing is held. Returns whether
/// the disk answers: if not, the caller had better give up (`give_up_records`) what the next steps ask for.
pub fn read_records(node: &'static Node, walk: &mut Walk) -> bool {
    let wanted = walk.take_wanted();
    let Some(tier) = node.tier() else { return true };
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
    answers
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
    let mut hold = Hold { slot, now, are_gone, met: Met::default() };
    for db in (0..databases).map(Db) {
        if !hold.delete_of(held, pump, db) {
            break;
        }
    }
    let met = hold.met;
    held.walk.note_advanced(met.has_advanced());
    let is_stuck = !met.has_advanced() && !held.walk.is_wanting();
    if is_stuck && met.lost > 0 && met.leased == 0 && met.undeletable == 0 {
        drop_unreadable(held, pump, slot, met.lost);
    }
    let rest = match is_stuck {
        _ if SlotKeys::of(held, slot).is_empty() => Rest::Nothing,
        true if met.leased > 0 => Rest::Leased,
        true if met.undeletable > 0 => Rest::Nothing,
        _ => Rest::Some,
    };
    if !are_gone {
        // Clients that have waited for them were sent on, and are about to be taken out: no command is to
        // serve them.
        while held.take_ready().is_some() {}
    }
    Step { deleted: met.deleted, rest }
}

/// Finds of one hold so far.
#[derive(Clone, Copy, Default)]
struct Met {
    /// Names that were looked at, leased ones anew for each bundle that has come to memory.
    looked: usize,
    deleted: usize,
    has_thawed: bool,
    leased: usize,
    undeletable: usize,
    /// Frozen keys that could not be read.
    lost: u64,
}

impl Met {
    fn has_advanced(&self) -> bool {
        self.deleted > 0 || self.has_thawed
    }
}

/// Outcome for one key.
enum Fate {
    Deleted,
    Leased,
    Stays,
}

struct Hold {
    slot: Slot,
    now: UnixMs,
    are_gone: bool,
    met: Met,
}

impl Hold {
    /// Deletes keys of one database: those in memory first, then frozen ones, a bundle at a time. Returns
    /// whether it is the turn of the next database.
    fn delete_of(&mut self, held: &mut Held<'static>, pump: &mut Pump, db: Db) -> bool {
        loop {
            let left = KEYS_PER_HOLD_MAX - self.met.looked;
            let names = SlotKeys::of(held, self.slot).names_in_memory(db, left);
            self.met.looked += names.len();
            let (mut deleted, mut leased, mut undeletable) = (0, 0, 0);
            for name in &names {
                match self.delete(held, pump, db, name) {
                    Fate::Deleted => deleted += 1,
                    Fate::Leased => leased += 1,
                    Fate::Stays => undeletable += 1,
                }
            }
            self.met.deleted += deleted;
            if deleted == 0 || self.met.looked == KEYS_PER_HOLD_MAX {
                self.met.leased += leased;
                self.met.undeletable += undeletable;
            }
            if self.met.looked == KEYS_PER_HOLD_MAX {
                return false;
            }
            if deleted == 0 {
                let left = KEYS_PER_HOLD_MAX - self.met.looked;
                let thawed = thaw_slot(held, db, self.slot, left as u64, self.now);
                if !thawed.is_any {
                    self.met.lost += thawed.lost;
                    // The records of the next database are asked for in another step.
                    return !held.walk.is_wanting();
                }
                self.met.has_thawed = true;
            }
        }
    }

    fn delete(&self, held: &mut Held<'static>, pump: &mut Pump, db: Db, name: &[u8]) -> Fate {
        let key = held.keyspace().key(name);
        if held.is_leased(&key, None) {
            return Fate::Leased;
        }
        let conditions = Conditions { now: self.now, expiry_mode: ExpiryMode::Keep, no_touch: true };
        let mut txn = Txn::new(held, conditions, pump);
        let was_there = txn.remove(db, &key);
        if self.are_gone && was_there {
            txn.event(EventClass::Generic, "del", db, name);
        }
        txn.finish();
        if was_there && pump.is_logging() {
            pump.log.deleted(db, name);
        }
        if was_there { Fate::Deleted } else { Fate::Stays }
    }
}

/// Drops `count` frozen keys of the slot, its first ones, which could not be read. Nothing of the slot is in
/// memory. Their names are not known, so the log gets a command that deletes whatever is there.
fn drop_unreadable(held: &mut Held<'static>, pump: &mut Pump, slot: Slot, count: u64) {
    let looked_before = steps::looked();
    LostRecords::of(held, slot).drop_frozen(slot, count);
    // For each record all keys of the database that are watched.
    held.exempt(steps::looked().wrapping_sub(looked_before));
    if pump.is_logging() {
        let number = slot.get().to_string();
        let words: [&[u8]; 3] = [b"CLUSTER", b"FLUSHSLOT", number.as_bytes()];
        pump.log.request(Db(0), ArgsBuf::from_slices(&words).args());
    }
}
