//! A hash piece by piece, and at random: HSCAN HRANDFIELD.

use super::{done, hash, or_fail};
use crate::call::is_word;
use crate::element::reply_element;
use crate::scanning::{ScanKind, ScanOptions, write_scan};
use crate::spec::*;
use crate::{Call, Handler, Outcome};
use isotherm_keyspace::{Element, Lookup, TextRoom};
use isotherm_resp::{Protocol, Reply, errors};
use isotherm_stdx::{parse_i64, parse_u64};
use std::collections::HashSet;

pub const HSCAN: Command<Handler> = Command::new(
    Spec {
        name: "hscan",
        summary: "Returns some fields of a hash with their values, and the cursor of the next call.",
        since: "2.8.0",
        group: Group::Hash,
        complexity: "O(1) for each call with a small COUNT, O(N) for all calls until the cursor is 0 again, N the elements",
        arity: -3,
        flags: Flags::READONLY,
        acl: AclCategories::HASH,
        key_specs: &[KeySpec::one(1, KeyFlags::RO.or(KeyFlags::ACCESS))],
        tips: &["nondeterministic_output"],
        arguments: &[
            Argument::key("key", 0),
            Argument::integer("cursor"),
            Argument::pattern("pattern").token("MATCH").optional(),
            Argument::integer("count").token("COUNT").optional(),
            Argument::pure_token("novalues", "NOVALUES").optional(),
        ],
        ..Spec::BASE
    },
    hscan,
);

fn hscan(call: &mut Call<'_, '_, '_>) -> Outcome {
    let Some(cursor) = parse_u64(call.args.get(2)) else {
        return call.fail(errors::INVALID_CURSOR);
    };
    let (key, args) = (call.key(1), call.args);
    let Some(view) = or_fail!(call, hash(call.txn.find(call.db, &key, Lookup::Read))) else {
        write_scan(call.reply, 0, 0, &[]);
        return done();
    };
    let options = or_fail!(call, ScanOptions::parse(args, ScanKind::Hash));
    let (mut found, mut count) = (Reply::new(call.reply.proto), 0);
    let next = view.scan(cursor, options.count, |field, value| {
        if options.takes(field.text(&mut TextRoom::default())) {
            reply_element(&mut found, field);
            count += 1;
            if options.values {
                reply_element(&mut found, value);
                count += 1;
            }
        }
    });
    write_scan(call.reply, next, count, &found.out);
    done()
}

pub const HRANDFIELD: Command<Handler> = Command::new(
    Spec {
        name: "hrandfield",
        summary: "Returns random fields of a hash, with their values on request; null or empty for an absent key.",
        since: "6.2.0",
        group: Group::Hash,
        complexity: "O(N), N the fields returned",
        arity: -2,
        flags: Flags::READONLY,
        acl: AclCategories::HASH,
        need: NeedFrom::Stated(Need::Elements),
        key_specs: &[KeySpec::one(1, KeyFlags::RO.or(KeyFlags::ACCESS))],
        tips: &["nondeterministic_output"],
        arguments: &[
            Argument::key("key", 0),
            Argument::block(
                "options",
                &[Argument::integer("count"), Argument::pure_token("withvalues", "WITHVALUES").optional()],
            )
            .optional(),
        ],
        ..Spec::BASE
    },
    hrandfield,
);

fn hrandfield(call: &mut Call<'_, '_, '_>) -> Outcome {
    if call.args.len() > 2 {
        return several(call);
    }
    let key = call.key(1);
    let prng = &mut *call.prng;
    match or_fail!(call, hash(call.txn.find(call.db, &key, Lookup::Read))) {
        Some(view) => match view.draws().next(&mut |n| prng.below(n)) {
            Some((field, _)) => reply_element(call.reply, field),
            None => call.reply.null(),
        },
        None => {
            call.reply.null();
        }
    }
    done()
}

/// `HRANDFIELD key count [WITHVALUES]`
fn several(call: &mut Call<'_, '_, '_>) -> Outcome {
    let (key, args) = (call.key(1), call.args);
    let Some(wanted) = parse_i64(args.get(2)) else { return call.fail(errors::NOT_AN_INTEGER) };
    if wanted == i64::MIN {
        return call.fail(errors::out_of_range_between(-i64::MAX, i64::MAX));
    }
    let values = args.len() == 4 && is_word(args.get(3), "WITHVALUES");
    if args.len() > 3 && !values {
        return call.fail(errors::SYNTAX);
    }
    if values && wanted.unsigned_abs() > i64::MAX as u64 / 2 {
        return call.fail(errors::OUT_OF_RANGE);
    }
    let Some(view) = or_fail!(call, hash(call.txn.find(call.db, &key, Lookup::Read))) else {
        call.reply.array(0);
        return done();
    };
    let nested = values && call.reply.proto == Protocol::Resp3;
    let (reply, prng) = (&mut *call.reply, &mut *call.prng);
    let (open, mut count) = (reply.defer(), 0);
    let mut write = |field: Element<'_>, value: Element<'_>| {
        if nested {
            reply.array(2);
        }
        reply_element(reply, field);
        if values {
            reply_element(reply, value);
        }
        count += 1;
        !reply.is_discarded()
    };
    let wanted_count = wanted.unsigned_abs();
    let mut draws = view.draws();
    if wanted < 0 {
        for _ in 0..wanted_count {
            match draws.next(&mut |n| prng.below(n)) {
                Some((field, value)) if write(field, value) => {}
                // Fields that are not in memory are noted, and the command runs again.
                None if (1..view.len()).contains(&draws.missed()) => {}
                Some(_) | None => break,
            }
        }
    } else if wanted_count >= view.len() {
        view.for_each(|field, value| {
            write(field, value);
        });
    } else {
        let mut seen = HashSet::new();
        // Of a large part most draws would be repeats; so they are when fewer are visible than there are.
        let repeats_max = if wanted_count * 3 > view.len() { 0 } else { 100 + wanted_count };
        let mut repeats = 0;
        while repeats < repeats_max && (seen.len() as u64) < wanted_count {
            match draws.next(&mut |n| prng.below(n)) {
                Some((field, value)) if seen.insert(field.to_vec()) => _ = write(field, value),
                Some(_) => repeats += 1,
                None if (1..wanted_count).contains(&draws.missed()) => {}
                None => break,
            }
        }
        // Each of those left is taken with the chance that is left.
        let mut rest = Vec::new();
        if (seen.len() as u64) < wanted_count && draws.missed() == 0 {
            view.for_each(|field, value| rest.push((field, value)));
            rest.retain(|(field, _)| seen.is_empty() || !seen.contains(&field.to_vec()));
        }
        for at in 0..(wanted_count as usize - seen.len()).min(rest.len()) {
            let other = at + prng.below((rest.len() - at) as u64) as usize;
            rest.swap(at, other);
            write(rest[at].0, rest[at].1);
        }
    }
    let len = if values && !nested { count * 2 } else { count };
    call.reply.close_array(open, len);
    done()
}
