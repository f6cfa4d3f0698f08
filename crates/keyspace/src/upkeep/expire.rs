//! The active expiry cycle: straight to the pages where something is due.
//!
//! ```text
//!   run bounds (64 slots each)  ->  record bound  ->  node bounds  ->  page: entries that are due leave
//!   hashes by their bound       ->  record bound  ->  node bounds  ->  page: fields that are due leave
//! ```
//!
//! Every bound is a lower bound, so a due run, slot, hash or page may turn out to have nothing due; its bound
//! is then made exact. The work is proportional to due pages, not to keys, and no key is sampled. Keys whose
//! time was prolonged keep their old bounds: a million of them come due at once and none leaves. So a step
//! counts what it looks at, and ends when its budget is spent; the next one finds its way by the bounds.
//! Databases and hashes take turns, so that one of them which always has more to do does not keep the others
//! from theirs.
//!
//! A hash that is not in memory has the bound of its fields in its entry. When that is due it is asked for,
//! and its fields leave when it has come back to memory: a page's bound is then the moment at which it is
//! asked for again.
//!
//! Keys that a script has leased stay until it is over, for it has read them: their bounds stay due, and are
//! passed over.

use crate::access::effect::EffectSink;
use crate::access::followers::ChangeCause;
use crate::access::partition::Partition;
use crate::layout::directory::{self, Bounded, PAGE_STEPS};
use crate::layout::entry::EntryBytes;
use crate::layout::kind::Db;
use crate::layout::page::ENTRIES_MAX;
use crate::layout::record::{NEVER, bound_of, is_due};
use crate::values::object::{FREED_AT_ONCE_MAX, FREED_AT_ONCE_MAX_BY_EXPIRY, Object};
use isotherm_stdx::{Steps, UnixMs};

/// Runs of slots, and slots, whose bounds count as one step: they lie side by side.
const SUMS_A_STEP: usize = 64;
/// Time after which a hash that was asked for, and did not come back to memory, is asked for again.
const ASKED_AGAIN_MS: i64 = 1000;

/// Outcome of one step.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ExpireStep {
    /// Keys that left.
    pub expired: u64,
    /// Fields of hashes that left.
    pub fields: u64,
    /// True if the partition may have more that is due.
    pub more: bool,
}

/// State of one step under way.
struct Step<'a> {
    now: UnixMs,
    sink: &'a mut dyn EffectSink,
    steps: Steps,
    done: ExpireStep,
}

/// Removes what is due in a partition, until it has looked at `steps_max` entries, pages or hashes.
pub(super) fn step(
    partition: &mut Partition,
    now: UnixMs,
    steps_max: u64,
    sink: &mut dyn EffectSink,
) -> ExpireStep {
    if partition.leases.has_all() {
        return ExpireStep::default();
    }
    let mut step = Step { now, sink, steps: Steps::new(steps_max), done: ExpireStep::default() };
    // One turn more than databases: that of the fields.
    let turns = partition.databases().len() + 1;
    step.done.more = true;
    while step.done.more && !step.steps.is_spent() {
        let turn = partition.expiry_turn.at;
        step.steps.look(1);
        let is_done = match turn + 1 < turns {
            true => step.expire_database(partition, Db(turn as u16)),
            false => step.expire_fields(partition),
        };
        partition.expiry_turn.at = (turn + 1) % turns;
        partition.expiry_turn.done = if is_done { partition.expiry_turn.done + 1 } else { 0 };
        step.done.more = partition.expiry_turn.done < turns;
    }
    if !step.done.more {
        partition.expiry_turn.done = 0;
    }
    step.done
}

impl Step<'_> {
    /// Fields: from the hashes that are listed under a due bound. Returns false if some are left.
    fn expire_fields(&mut self, partition: &mut Partition) -> bool {
        while let Some((bound, number)) = self.next_due_hash(partition) {
            self.steps.look(1);
            let mut gone = Vec::new();
            let mut root = partition.store.open_object(number);
            let Object::Hash(fields) = &mut root.body else { unreachable!("only hashes are listed") };
            fields.expire(&mut partition.store, self.now, &mut self.steps, &mut gone);
            let left = fields.record.keys;
            partition.store.objects.put(number, root);
            partition.store.list_bound(number);
            let is_stuck = partition.store.field_bounds.first() == Some(&(bound, number));
            debug_assert!(!is_stuck || self.steps.is_spent(), "a hash with nothing due has a later bound");
            if !gone.is_empty() && fields_expired(partition, number, left, &gone, self.now, self.sink) {
                self.done.fields += gone.len() as u64;
            }
            // After a hash that was looked at: each turn makes progress.
            if self.steps.is_spent() {
                return false;
            }
        }
        true
    }

    /// The first hash under a due bound that is not leased.
    fn next_due_hash(&mut self, partition: &Partition) -> Option<(u32, u32)> {
        let mut due =
            partition.store.field_bounds.iter().copied().take_while(|(bound, _)| is_due(*bound, self.now));
        if partition.leases.is_empty() {
            return due.next();
        }
        due.find(|(_, number)| {
            let key = partition.find_object(*number).map(|(_, _, key)| partition.store.hasher.key(&key).hash);
            // As many are passed over as are leased.
            key.is_none_or(|hash| !partition.leases.has(hash))
        })
    }

    /// False if some keys that are due may be left.
    fn expire_database(&mut self, partition: &mut Partition, db: Db) -> bool {
        let mut run = 0;
        while let Some(table) = partition.table(db) {
            let runs = table.sums.len();
            self.steps.look((1 + (runs - run) / SUMS_A_STEP) as u64);
            let Some(due) = table.sums[run..].iter().position(|sum| is_due(sum.bound, self.now)) else {
                break;
            };
            run += due;
            for place in run * table.run_slots()..(run + 1) * table.run_slots() {
                // The first slot is completed, however small the budget: each step makes progress.
                if self.expire_slot(partition, db, place) && self.steps.is_spent() {
                    return false;
                }
            }
            if let Some((table, store)) = partition.table_and_store(db) {
                table.refresh_bound(&store.heap, run);
            }
            run += 1;
            if run == runs {
                break;
            }
        }
        true
    }

    /// Expires what is due in a slot. Returns whether there was something to look at.
    fn expire_slot(&mut self, partition: &mut Partition, db: Db, place: usize) -> bool {
        let (mut from, mut looked, now) = (0, false, self.now);
        let mut is_passed_over = false;
        loop {
            let due = match partition.table_and_store(db) {
                Some((table, store)) => {
                    let is_due = |bound| is_due(bound, now);
                    table.next_bounded(&mut store.heap, place, from, &is_due, &mut self.steps)
                }
                None => Bounded::None,
            };
            from = match due {
                Bounded::Page(index) => {
                    let (gone, has_leased) = expire_page(partition, db, place, index, now, self.sink);
                    self.steps.look(PAGE_STEPS + gone);
                    self.done.expired += gone;
                    is_passed_over |= has_leased;
                    // Pages may have merged meanwhile; what is due then keeps its bound and is found from the
                    // start.
                    if gone == 0 || has_leased { index + 1 } else { 0 }
                }
                // Only a search from the start makes the bound of the slot exact. With leased keys it is due
                // anyway.
                Bounded::None if from > 0 && !is_passed_over => 0,
                Bounded::None => return looked,
                Bounded::OutOfBudget => return true,
            };
            looked = true;
            if self.steps.is_spent() {
                return true;
            }
        }
    }
}

/// Reports fields that left, and removes a hash that has none left. Returns false for a hash of a flushed
/// database, which no client sees any more: nothing is reported of it.
fn fields_expired(
    partition: &mut Partition,
    number: u32,
    left: u32,
    fields: &[Vec<u8>],
    now: UnixMs,
    sink: &mut dyn EffectSink,
) -> bool {
    let Some((db, location, key)) = partition.find_object(number) else { return false };
    let is_emptied = left == 0;
    match is_emptied {
        true => partition.remove_at(db, &location, now),
        false => partition.recount(db, &location, number),
    }
    let cause = ChangeCause::FieldsExpired { fields, is_emptied };
    partition.followers.changed(db, &key, cause, None, sink);
    true
}

/// Removes what is due in one page, all of it at once, and makes its bound exact; how many left, and whether
/// leased keys stay. Of collections all but the smallest are left to `free_step`: a page may hold some 200 of
/// them.
fn expire_page(
    partition: &mut Partition,
    db: Db,
    place: usize,
    index: u32,
    now: UnixMs,
    sink: &mut dyn EffectSink,
) -> (u64, bool) {
    let table = partition.table(db).expect("the slot has pages");
    let record = table.slot(&partition.store.heap, place).record;
    let (Some(handle), _) = directory::get(&partition.store.heap, &record, index) else {
        set_bound(partition, db, place, index, NEVER);
        return (0, false);
    };
    let page = partition.store.heap.page(handle);
    let (mut dead, mut gone, mut bound, mut has_leased) = ([false; ENTRIES_MAX], 0, NEVER, false);
    let is_leased = |key: &[u8]| {
        !partition.leases.is_empty() && partition.leases.has(partition.store.hasher.key(key).hash)
    };
    for spot in page.spots() {
        let entry = EntryBytes(page.entry(spot));
        match entry.expiry() {
            Some(at) if at < now => {
                let key = partition.store.key_of(entry);
                if is_leased(key) {
                    (has_leased, bound) = (true, bound.min(bound_of(at)));
                    continue;
                }
                partition.followers.changed(db, key, ChangeCause::Expired, None, sink);
                dead[spot.index] = true;
                gone += 1;
                continue;
            }
            Some(at) => bound = bound.min(bound_of(at)),
            None => {}
        }
        if let Some(due) = entry.due() {
            bound = bound.min(ask_for(partition, db, entry, due, now));
        }
    }
    if gone == 0 {
        set_bound(partition, db, place, index, bound);
    } else {
        partition.store.freed_at_once_max = FREED_AT_ONCE_MAX_BY_EXPIRY;
        partition.remove_dead(db, place, index, &dead, bound, now);
        partition.store.freed_at_once_max = FREED_AT_ONCE_MAX;
    }
    (gone, has_leased)
}

/// A hash that is not in memory, with fields that come due at a bound: it is asked for when that is now. When
/// to look at it next.
fn ask_for(partition: &Partition, db: Db, entry: EntryBytes<'_>, due: u32, now: UnixMs) -> u32 {
    if !is_due(due, now) {
        return due;
    }
    let keeper = partition.store.cold.keeper.as_ref().expect("what is cold has a keeper");
    keeper.fields_are_due(db, partition.store.key_of(entry));
    bound_of(UnixMs(now.0 + ASKED_AGAIN_MS))
}

fn set_bound(partition: &mut Partition, db: Db, place: usize, index: u32, bound: u32) {
    let (table, store) = partition.table_and_store(db).expect("the slot has pages");
    let mut slot = table.slot(&store.heap, place);
    let before = slot.record;
    directory::set_bound(&mut store.heap, &mut slot.record, index, bound);
    table.store(&mut store.heap, &slot, &before);
}
