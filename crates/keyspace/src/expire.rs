//! The active expiry cycle: straight to the pages where something is due.
//!
//! ```text
//!   run bounds (64 slots each)  ->  record bound  ->  node bounds  ->  page: entries that are due leave
//! ```
//!
//! Every bound is a lower bound, so a due run, slot or page may turn out to have nothing due; its bound is then made
//! exact. The work is proportional to due pages, not to keys, and no key is sampled.

use crate::directory;
use crate::effect::{Effect, EffectSink, EventClass};
use crate::entry::EntryBytes;
use crate::lock::Keyspace;
use crate::object::Object;
use crate::page::ENTRIES_MAX;
use crate::partition::Partition;
use crate::record::{NEVER, bound_of, is_due};
use crate::value::Db;
use isotherm_stdx::UnixMs;

/// What one step did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ExpireStep {
    /// Keys that left.
    pub expired: u64,
    /// Fields of hashes that left.
    pub fields: u64,
    /// Whether the partition may have more that is due.
    pub more: bool,
}

impl Keyspace {
    /// Removes up to about `keys_max` due keys of one partition, under its lock.
    pub fn expire_step(
        &self,
        partition: u16,
        now: UnixMs,
        keys_max: u64,
        sink: &mut dyn EffectSink,
    ) -> ExpireStep {
        let mut guard = self.lock(partition);
        let mut step = ExpireStep::default();
        for db in guard.databases() {
            expire_database(&mut guard, db, now, keys_max, sink, &mut step);
            if step.expired >= keys_max {
                step.more = true;
                break;
            }
        }
        expire_fields(&mut guard, now, keys_max, sink, &mut step);
        step
    }
}

/// Removes up to about `fields_max` due fields: from the hashes that are listed under a due bound.
fn expire_fields(
    partition: &mut Partition,
    now: UnixMs,
    fields_max: u64,
    sink: &mut dyn EffectSink,
    step: &mut ExpireStep,
) {
    while let Some(&(bound, number)) = partition.store.field_bounds.first()
        && is_due(bound, now)
    {
        if step.fields >= fields_max {
            step.more = true;
            return;
        }
        let mut gone = Vec::new();
        let mut root = partition.store.open_object(number);
        let Object::Hash(fields) = &mut root.body else { unreachable!("only hashes are listed") };
        fields.expire(&mut partition.store, now, (fields_max - step.fields) as usize, &mut gone);
        let left = fields.record.keys;
        partition.store.objects.put(number, root);
        partition.store.list_bound(number);
        step.fields += gone.len() as u64;
        if !gone.is_empty() {
            tell_gone(partition, number, left, &gone, now, sink);
        }
    }
}

/// Tells whoever listens, and removes a hash that has no fields left.
fn tell_gone(
    partition: &mut Partition,
    number: u32,
    left: u32,
    gone: &[Vec<u8>],
    now: UnixMs,
    sink: &mut dyn EffectSink,
) {
    // One that was flushed under a snapshot has no name any more.
    let Some((db, location, key)) = partition.find_object(number) else { return };
    let mut command: Vec<&[u8]> = vec![b"HDEL", &key];
    command.extend(gone.iter().map(Vec::as_slice));
    sink.effect(Effect::Log { db, command: &command });
    sink.effect(Effect::Event { class: EventClass::Expired, name: "hexpired", db, key: &key });
    if left == 0 {
        partition.remove_at(db, &location, now);
        sink.effect(Effect::Log { db, command: &[b"DEL", &key] });
        sink.effect(Effect::Event { class: EventClass::Generic, name: "del", db, key: &key });
    } else {
        partition.recount(db, &location, number);
    }
    partition.watches.touch(db, &key);
    if partition.tells_changes {
        sink.effect(Effect::Touched { db, key: &key });
    }
}

fn expire_database(
    partition: &mut Partition,
    db: Db,
    now: UnixMs,
    keys_max: u64,
    sink: &mut dyn EffectSink,
    step: &mut ExpireStep,
) {
    let mut run = 0;
    while let Some(table) = partition.table(db) {
        let Some(due) = table.sums[run..].iter().position(|sum| is_due(sum.bound, now)) else { return };
        run += due;
        let slots = run * table.run_slots()..(run + 1) * table.run_slots();
        for place in slots {
            expire_slot(partition, db, place, now, keys_max, sink, step);
            if step.expired >= keys_max {
                return;
            }
        }
        if let Some((table, store)) = partition.table_and_store(db) {
            table.refresh_bound(&store.heap, run);
        }
        run += 1;
        if partition.table(db).is_none_or(|table| run == table.sums.len()) {
            return;
        }
    }
}

fn expire_slot(
    partition: &mut Partition,
    db: Db,
    place: usize,
    now: UnixMs,
    keys_max: u64,
    sink: &mut dyn EffectSink,
    step: &mut ExpireStep,
) {
    let mut from = 0;
    while let Some(table) = partition.table(db) {
        let record = partition.slot(table, place).record;
        let due = directory::next_bounded(&partition.store.heap, &record, from, &|bound| is_due(bound, now));
        let Some(index) = due else { return };
        let gone = expire_page(partition, db, place, index, now, sink);
        step.expired += gone;
        if step.expired >= keys_max {
            return;
        }
        // Pages may have merged meanwhile; what is due then keeps its bound and is found from the start again.
        from = if gone == 0 { index + 1 } else { 0 };
    }
}

/// Removes what is due in one page, all of it at once, and makes its bound exact; how many left.
fn expire_page(
    partition: &mut Partition,
    db: Db,
    place: usize,
    index: u32,
    now: UnixMs,
    sink: &mut dyn EffectSink,
) -> u64 {
    let table = partition.table(db).expect("the slot has pages");
    let record = partition.slot(table, place).record;
    let (Some(handle), _) = directory::get(&partition.store.heap, &record, index) else {
        tell_bound(partition, db, place, index, NEVER);
        return 0;
    };
    let page = partition.store.heap.page(handle);
    let (mut dead, mut gone, mut bound) = ([false; ENTRIES_MAX], 0, NEVER);
    for spot in page.spots() {
        let entry = EntryBytes(page.entry(spot));
        match entry.expiry() {
            Some(at) if at < now => {
                let key = partition.store.key_of(entry);
                if !partition.watches.is_empty() {
                    partition.watches.expire(db, key);
                }
                if !partition.waiters.is_empty() {
                    partition.waiters.wake_removed(db, key);
                }
                sink.effect(Effect::Expired { db, key });
                dead[spot.index] = true;
                gone += 1;
            }
            Some(at) => bound = bound.min(bound_of(at)),
            None => {}
        }
    }
    if gone == 0 {
        tell_bound(partition, db, place, index, bound);
    } else {
        partition.remove_dead(db, place, index, &dead, bound, now);
    }
    gone
}

fn tell_bound(partition: &mut Partition, db: Db, place: usize, index: u32, bound: u32) {
    let (table, store) = partition.table_and_store(db).expect("the slot has pages");
    let mut slot = table.slot(&store.heap, place);
    let before = slot.record;
    directory::set_bound(&mut store.heap, &mut slot.record, index, bound);
    table.store(&mut store.heap, &slot, &before);
}
