//! The keys of a slot: how many, which, and away with them.

use isotherm_commands::Outcome;
use isotherm_keyspace::{Conditions, ExpiryMode, OnCold, Slot, SlotKeys, Txn, Want};
use isotherm_resp::{Reply, errors};
use isotherm_stdx::{parse_i64, steps};

use super::{AdminCall, fail, no_cluster};
use crate::admin::slot_stats::read_slot;
use isotherm_engine::request::blocking;
use isotherm_engine::request::slots::deleting::{self, Rest};
use isotherm_node::request::caller::Authority;
use isotherm_node::request::next::WaitReason;

pub fn slot(call: &mut AdminCall<'_>) -> Outcome {
    call.reply.integer(i64::from(Slot::of_key(call.args.get(2)).get()));
    Outcome::Done
}

fn slot_of(number: i64) -> Option<Slot> {
    u16::try_from(number).ok().filter(|number| usize::from(*number) < Slot::COUNT).map(Slot::new)
}

/// Locks the partition of the slot. Locks that are held before are those of the batch, not of this command;
/// within EXEC everything is held.
fn hold(call: &mut AdminCall<'_>, slot: Slot) {
    let partition = call.node.keyspace.partition_of(slot);
    if call.exec.held.acquire(Want::One(partition)) {
        call.exec.clock.outdate();
    }
}

pub fn count(call: &mut AdminCall<'_>) -> Outcome {
    if call.exec.route.member.is_none() {
        return no_cluster(call);
    }
    let Some(number) = parse_i64(call.args.get(2)) else { return fail(call, errors::NOT_AN_INTEGER) };
    let Some(slot) = slot_of(number) else { return fail(call, "ERR Invalid slot") };
    hold(call, slot);
    let keys = SlotKeys::of(&call.exec.held, slot).len_in(call.session.db);
    call.reply.integer(keys as i64);
    Outcome::Done
}

pub fn names(call: &mut AdminCall<'_>) -> Outcome {
    if call.exec.route.member.is_none() {
        return no_cluster(call);
    }
    let [number, count] = [2, 3].map(|at| parse_i64(call.args.get(at)));
    let (Some(number), Some(count)) = (number, count) else { return fail(call, errors::NOT_AN_INTEGER) };
    let (Some(slot), Ok(count)) = (slot_of(number), usize::try_from(count)) else {
        return fail(call, "ERR Invalid slot or number of keys");
    };
    hold(call, slot);
    let db = call.session.db;
    let conditions = Conditions { expiry_mode: ExpiryMode::Keep, no_touch: true, ..call.conditions };
    let mut one = Reply::new(call.reply.proto);
    let looked_before = steps::looked();
    let mut txn = Txn::new(&mut call.exec.held, conditions, &mut call.exec.pump);
    // Records are read while nothing is held; then the walk continues from where it was.
    txn.on_cold = OnCold::Collect;
    let found = txn.walk(db, Some(slot), count, |found, name| {
        steps::note(1);
        std::mem::swap(&mut one.out, found);
        one.bulk(name);
        std::mem::swap(&mut one.out, found);
        true
    });
    txn.finish();
    // As many as the client has asked for.
    call.exec.held.exempt(steps::looked().wrapping_sub(looked_before));
    let Some(found) = found else { return call.exec.fetch_for_walk(call.reply) };
    call.reply.array(found.count);
    call.reply.raw(&found.found);
    Outcome::Done
}

// COMPAT(cluster): CLUSTER FLUSHSLOT goes into the log as a DEL of each key. Why: they leave in steps,
// between other commands.
pub fn flush(call: &mut AdminCall<'_>) -> Outcome {
    if call.exec.route.member.is_none() {
        return no_cluster(call);
    }
    let slot = match read_slot(call.args.get(2)) {
        Ok(number) => Slot::new(number as u16),
        Err(text) => return fail(call, text),
    };
    // Either way memory is freed in steps.
    let is_known = |word: &[u8]| word.eq_ignore_ascii_case(b"async") || word.eq_ignore_ascii_case(b"sync");
    match call.args.len() {
        3 => {}
        4 if is_known(call.args.get(3)) => {}
        4 => return fail(call, errors::SYNTAX),
        _ => return fail(call, errors::subcommand_syntax(call.args)),
    }
    // Nothing is read while a transaction holds what it does, and nothing is deleted by halves.
    if call.session.in_exec && SlotKeys::of(&call.exec.held, slot).has_frozen() {
        return fail(call, errors::NOT_READ_HERE);
    }
    delete_all(call, slot)
}

/// Deletes in steps. It waits for records of frozen keys, and for scripts that have leased keys, while
/// nothing is held, and then runs again.
fn delete_all(call: &mut AdminCall<'_>, slot: Slot) -> Outcome {
    let (now, databases) = (call.now, call.node.config.databases());
    loop {
        hold(call, slot);
        let exec = &mut *call.exec;
        let step = deleting::delete_some(&mut exec.held, &mut exec.pump, slot, databases, now, true);
        exec.held.exempt(step.deleted as u64);
        exec.note_gate();
        if !call.session.in_exec {
            if exec.held.has_ready() {
                blocking::serve_waiters(exec);
            }
            exec.release();
        }
        match step.rest {
            // A transaction has waited for all scripts before it began.
            Rest::Leased if !call.session.in_exec => {
                exec.runs.parked = Some(WaitReason::Lease);
                return Outcome::Later;
            }
            Rest::Leased | Rest::Nothing => {
                call.reply.ok();
                return Outcome::Done;
            }
            Rest::Some => {}
        }
        if exec.held.walk.is_wanting() {
            if exec.may_fetch(Authority::Server) {
                return exec.fetch_for_walk(call.reply);
            }
            deleting::give_up_records(&mut exec.held.walk);
        }
    }
}
