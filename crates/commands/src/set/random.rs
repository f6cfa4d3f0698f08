//! A set at random, and piece by piece: SPOP SRANDMEMBER SSCAN.

use super::{done, finished, or_fail, set};
use crate::element::reply_element;
use crate::scanning::{ScanKind, ScanOptions, write_scan};
use crate::spec::*;
use crate::{Call, Handler, Outcome};
use isotherm_keyspace::{Element, EventClass, Full, Lookup, TextRoom};
use isotherm_resp::{Reply, errors};
use isotherm_stdx::{parse_i64, parse_u64};
use std::collections::HashSet;

pub const SPOP: Command<Handler> = Command::new(
    Spec {
        name: "spop",
        summary: "Takes random members from a set and returns them; null or empty for an absent key.",
        group: Group::Set,
        complexity: "O(N), N the count, which is one by default",
        arity: -2,
        flags: Flags::WRITE.or(Flags::FAST),
        acl: AclCategories::SET,
        key_specs: &[KeySpec::one(1, KeyFlags::RW.or(KeyFlags::ACCESS).or(KeyFlags::DELETE))],
        tips: &["nondeterministic_output"],
        history: &[("3.2.0", "New argument `count`.")],
        arguments: &[Argument::key("key", 0), Argument::integer("count").since("3.2.0").optional()],
        ..Spec::BASE
    },
    spop,
);

fn spop(call: &mut Call<'_, '_, '_>) -> Outcome {
    match call.args.len() {
        2 => {}
        3 => return pop_several(call),
        _ => return call.fail(errors::SYNTAX),
    }
    let key = call.key(1);
    let prng = &mut *call.prng;
    let edited = call.txn.edit_set(call.db, &key, &call.settings.limits, |edit| {
        Ok::<_, Full>(if edit.is_empty() { None } else { edit.pop(&mut |n| prng.below(n)) })
    });
    let popped = or_fail!(call, finished(edited));
    let Some(member) = popped else {
        call.reply.null();
        return done();
    };
    call.wrote(EventClass::Set, "spop", &key, 1);
    call.record(&[b"SREM", key.bytes, &member]);
    call.reply.bulk(&member);
    done()
}

/// `SPOP key count`
fn pop_several(call: &mut Call<'_, '_, '_>) -> Outcome {
    let count = parse_i64(call.args.get(2)).and_then(|count| u64::try_from(count).ok());
    let Some(count) = count else { return call.fail(errors::MUST_BE_POSITIVE) };
    let key = call.key(1);
    let len = or_fail!(call, set(call.txn.find(call.db, &key, Lookup::Write))).map(|view| view.len());
    let Some(len) = len.filter(|_| count > 0) else {
        call.reply.set(0);
        return done();
    };
    if count >= len {
        return pop_all(call, len);
    }
    let prng = &mut *call.prng;
    let edited = call.txn.edit_set(call.db, &key, &call.settings.limits, |edit| {
        // The command fails after a member that cannot be read; the members that were removed by then stay
        // removed.
        Ok::<_, Full>((0..count).map_while(|_| edit.pop(&mut |n| prng.below(n))).collect::<Vec<_>>())
    });
    let popped = or_fail!(call, finished(edited));
    call.wrote(EventClass::Set, "spop", &key, popped.len() as u64);
    call.reply.set(popped.len());
    popped.iter().for_each(|member| call.reply.bulk(member));
    call.record_elements(&[b"SREM", key.bytes], &popped);
    done()
}

/// Everything leaves, and the key with it.
fn pop_all(call: &mut Call<'_, '_, '_>, len: u64) -> Outcome {
    let key = call.key(1);
    call.txn.read_first();
    if let Some(view) = or_fail!(call, set(call.txn.find(call.db, &key, Lookup::Write))) {
        call.reply.set(view.len() as usize);
        view.for_each(|member| reply_element(call.reply, member));
    }
    if !call.txn.begin_changes() {
        // Members that could not be shown are read, and the command runs again.
        return call.out_of_memory();
    }
    call.wrote(EventClass::Set, "spop", &key, len);
    call.txn.remove(call.db, &key);
    call.event(EventClass::Generic, "del", &key);
    call.record_removal(&key);
    done()
}

pub const SRANDMEMBER: Command<Handler> = Command::new(
    Spec {
        name: "srandmember",
        summary: "Returns random members of a set, which keeps them; null or empty for an absent key.",
        group: Group::Set,
        complexity: "O(N), N the count without its sign, which is one by default",
        arity: -2,
        flags: Flags::READONLY,
        acl: AclCategories::SET,
        need: NeedFrom::Stated(Need::Elements),
        key_specs: &[KeySpec::one(1, KeyFlags::RO.or(KeyFlags::ACCESS))],
        tips: &["nondeterministic_output"],
        history: &[("2.6.0", "New argument `count`, which may be left out.")],
        arguments: &[Argument::key("key", 0), Argument::integer("count").since("2.6.0").optional()],
        ..Spec::BASE
    },
    srandmember,
);

fn srandmember(call: &mut Call<'_, '_, '_>) -> Outcome {
    match call.args.len() {
        2 => {}
        3 => return several(call),
        _ => return call.fail(errors::SYNTAX),
    }
    let key = call.key(1);
    let prng = &mut *call.prng;
    match or_fail!(call, set(call.txn.find(call.db, &key, Lookup::Read))) {
        Some(view) => match view.random(&mut |n| prng.below(n)) {
            Some(member) => reply_element(call.reply, member),
            // It runs again.
            None => call.reply.null(),
        },
        None => {
            call.reply.null();
        }
    }
    done()
}

/// `SRANDMEMBER key count`
fn several(call: &mut Call<'_, '_, '_>) -> Outcome {
    let Some(wanted) = parse_i64(call.args.get(2)) else { return call.fail(errors::NOT_AN_INTEGER) };
    if wanted == i64::MIN {
        return call.fail(errors::out_of_range_between(-i64::MAX, i64::MAX));
    }
    let key = call.key(1);
    let Some(view) = or_fail!(call, set(call.txn.find(call.db, &key, Lookup::Read))) else {
        call.reply.array(0);
        return done();
    };
    let (reply, prng) = (&mut *call.reply, &mut *call.prng);
    let (open, mut written) = (reply.defer(), 0);
    let mut write = |member: Element<'_>| {
        reply_element(reply, member);
        written += 1;
        !reply.is_discarded()
    };
    let count = wanted.unsigned_abs();
    if wanted < 0 {
        let mut missed = 0;
        for _ in 0..count {
            match view.random(&mut |n| prng.below(n)) {
                Some(member) if write(member) => {}
                // Members that are not in memory are noted, and the command runs again.
                None if missed < view.len() => missed += 1,
                Some(_) | None => break,
            }
        }
    } else if count >= view.len() {
        view.for_each(|member| {
            write(member);
        });
    } else if count * 3 > view.len() {
        let mut members = Vec::new();
        view.for_each(|member| members.push(member));
        // Those that are not in memory are lacking: then it runs again.
        for at in 0..(count as usize).min(members.len()) {
            let other = at + prng.below((members.len() - at) as u64) as usize;
            members.swap(at, other);
            write(members[at]);
        }
    } else {
        let (mut seen, mut missed) = (HashSet::new(), 0);
        while (seen.len() as u64) < count && missed < count {
            match view.random(&mut |n| prng.below(n)) {
                Some(member) if seen.insert(member.to_vec()) => _ = write(member),
                Some(_) => {}
                None => missed += 1,
            }
        }
    }
    call.reply.close_array(open, written);
    done()
}

pub const SSCAN: Command<Handler> = Command::new(
    Spec {
        name: "sscan",
        summary: "Returns some members of a set and the cursor of the next call.",
        since: "2.8.0",
        group: Group::Set,
        complexity: "O(1) for each call with a small COUNT, O(N) for all calls until the cursor is 0 again, N the elements",
        arity: -3,
        flags: Flags::READONLY,
        acl: AclCategories::SET,
        key_specs: &[KeySpec::one(1, KeyFlags::RO.or(KeyFlags::ACCESS))],
        tips: &["nondeterministic_output"],
        arguments: &[
            Argument::key("key", 0),
            Argument::integer("cursor"),
            Argument::pattern("pattern").token("MATCH").optional(),
            Argument::integer("count").token("COUNT").optional(),
        ],
        ..Spec::BASE
    },
    sscan,
);

fn sscan(call: &mut Call<'_, '_, '_>) -> Outcome {
    let Some(cursor) = parse_u64(call.args.get(2)) else {
        return call.fail(errors::INVALID_CURSOR);
    };
    let (key, args) = (call.key(1), call.args);
    let Some(view) = or_fail!(call, set(call.txn.find(call.db, &key, Lookup::Read))) else {
        write_scan(call.reply, 0, 0, &[]);
        return done();
    };
    let options = or_fail!(call, ScanOptions::parse(args, ScanKind::Set));
    let (mut found, mut count) = (Reply::new(call.reply.proto), 0);
    let next = view.scan(cursor, options.count, |member| {
        if options.takes(member.text(&mut TextRoom::default())) {
            reply_element(&mut found, member);
            count += 1;
        }
    });
    write_scan(call.reply, next, count, &found.out);
    done()
}
