//! Fields are stored, counted up and removed: HSET HMSET HSETNX HINCRBY HINCRBYFLOAT HDEL HGETDEL.

use super::{NUM_FIELDS, done, fields_at, finished, or_fail};
use crate::arguments::FIELDS;
use crate::call::is_word;
use crate::element::reply_element;
use crate::spec::*;
use crate::{Call, Handler, Outcome};
use isotherm_keyspace::{Element, EventClass, Full, HashEdit, Key, UnixMs};
use isotherm_resp::errors;
use isotherm_stdx::number::{I64_BYTES_MAX, write_i64};
use isotherm_stdx::{LongDouble, parse_i64};

pub const HSET: Command<Handler> = Command::new(
    Spec {
        name: "hset",
        summary: "Sets fields of a hash. Returns how many are new.",
        since: "2.0.0",
        group: Group::Hash,
        complexity: "O(1) for each field",
        arity: -4,
        flags: Flags::WRITE.or(Flags::DENYOOM).or(Flags::FAST),
        acl: AclCategories::HASH,
        key_specs: &[KeySpec::one(1, KeyFlags::RW.or(KeyFlags::UPDATE))],
        history: &[("4.0.0", "Several fields with values in one call.")],
        arguments: &[
            Argument::key("key", 0),
            Argument::block("data", &[Argument::string("field"), Argument::string("value")]).multiple(),
        ],
        ..Spec::BASE
    },
    hset,
);

fn hset(call: &mut Call<'_, '_, '_>) -> Outcome {
    match set_pairs(call, HSET.spec.name) {
        Ok(created) => call.reply.integer(created),
        Err(outcome) => return outcome,
    }
    done()
}

pub const HMSET: Command<Handler> = Command::new(
    Spec {
        name: "hmset",
        summary: "Sets fields of a hash and answers OK. HSET does the same and counts the new ones.",
        since: "2.0.0",
        group: Group::Hash,
        complexity: "O(N), N the given fields",
        arity: -4,
        flags: Flags::WRITE.or(Flags::DENYOOM).or(Flags::FAST),
        acl: AclCategories::HASH,
        key_specs: &[KeySpec::one(1, KeyFlags::RW.or(KeyFlags::UPDATE))],
        arguments: &[
            Argument::key("key", 0),
            Argument::block("data", &[Argument::string("field"), Argument::string("value")]).multiple(),
        ],
        ..Spec::BASE
    },
    hmset,
);

fn hmset(call: &mut Call<'_, '_, '_>) -> Outcome {
    match set_pairs(call, HMSET.spec.name) {
        Ok(_) => call.reply.ok(),
        Err(outcome) => return outcome,
    }
    done()
}

/// Stores field, value, field, value, ...; how many are new.
fn set_pairs(call: &mut Call<'_, '_, '_>, name: &'static str) -> Result<i64, Outcome> {
    let args = call.args;
    if args.len() % 2 == 1 {
        return Err(call.fail(errors::wrong_arity(name)));
    }
    let key = call.key(1);
    let edited = call.txn.edit_hash(call.db, &key, &call.settings.limits, |edit| {
        let longest = args.from(2).iter().map(<[u8]>::len).max().unwrap_or(0);
        edit.expect(args.len() / 2 - 1, longest)?;
        let (mut created, mut expired, mut at) = (0, 0, 2);
        while at < args.len() {
            let Ok(set) = edit.set(args.get(at), args.get(at + 1), None, false) else { break };
            (created, expired) = (created + i64::from(set.is_new), expired + u64::from(set.was_expired));
            at += 2;
        }
        Ok::<_, Full>((created, expired, at))
    });
    let (created, expired, end) = finished(edited).map_err(|error| call.fail(error))?;
    if end == 2 {
        return Err(call.out_of_memory());
    }
    if expired > 0 {
        call.txn.expired_fields += expired;
        call.hash_event("hexpired", &key);
    }
    call.wrote(EventClass::Hash, "hset", &key, end as u64 / 2 - 1);
    if end < args.len() {
        call.record_first(end);
        return Err(call.out_of_memory());
    }
    Ok(created)
}

pub const HSETNX: Command<Handler> = Command::new(
    Spec {
        name: "hsetnx",
        summary: "Sets a field that the hash does not have yet. Returns 1, or 0 for an existing one.",
        since: "2.0.0",
        group: Group::Hash,
        complexity: "O(1)",
        arity: 4,
        flags: Flags::WRITE.or(Flags::DENYOOM).or(Flags::FAST),
        acl: AclCategories::HASH,
        key_specs: &[KeySpec::one(1, KeyFlags::RW.or(KeyFlags::INSERT))],
        arguments: &[Argument::key("key", 0), Argument::string("field"), Argument::string("value")],
        ..Spec::BASE
    },
    hsetnx,
);

fn hsetnx(call: &mut Call<'_, '_, '_>) -> Outcome {
    let (key, args) = (call.key(1), call.args);
    let (field, value) = (args.get(2), args.get(3));
    let edited = call.txn.edit_hash(call.db, &key, &call.settings.limits, |edit| {
        if edit.contains(field) {
            return Ok::<_, Full>(None);
        }
        let volatile = edit.has_volatile();
        edit.expect(1, field.len().max(value.len()))?;
        Ok(Some((edit.set(field, value, None, false)?, volatile)))
    });
    let set = or_fail!(call, finished(edited));
    let Some((set, volatile)) = set else {
        call.reply.integer(0);
        return done();
    };
    if set.was_expired {
        call.txn.expired_fields += 1;
        call.hash_event("hexpired", &key);
    }
    call.wrote(EventClass::Hash, "hset", &key, 1);
    // Elsewhere the field may be there still.
    if volatile {
        call.record(&[b"HSET", key.bytes, field, value]);
    }
    call.reply.integer(1);
    done()
}

/// New value of an incremented field.
struct Counted {
    text: Vec<u8>,
    expiry: Option<UnixMs>,
    was_expired: bool,
    volatile: bool,
}

/// Replaces a field's value by what `next` makes of it; its time stays.
fn count(
    call: &mut Call<'_, '_, '_>,
    key: &Key<'_>,
    field: &[u8],
    event: &'static str,
    next: impl FnOnce(Option<Element<'_>>) -> Result<Vec<u8>, &'static str>,
) -> Result<Counted, Outcome> {
    let edited = call.txn.edit_hash(call.db, key, &call.settings.limits, |edit: &mut HashEdit<'_, '_>| {
        let found = edit.get(field);
        let expiry = found.and_then(|(_, expiry)| expiry);
        let text = match next(found.map(|(value, _)| value)) {
            Ok(text) => text,
            Err(error) => return Ok::<_, Full>(Err(error)),
        };
        let volatile = edit.has_volatile();
        let set = edit.set(field, &text, expiry, false)?;
        Ok(Ok(Counted { text, expiry, was_expired: set.was_expired, volatile }))
    });
    let counted = finished(edited).map_err(|error| call.fail(error))?;
    let counted = counted.map_err(|error| call.fail(error))?;
    if counted.was_expired {
        call.txn.expired_fields += 1;
        call.hash_event("hexpired", key);
    }
    call.wrote(EventClass::Hash, event, key, 1);
    Ok(counted)
}

/// The log gets the result, with the field's time if it has one.
fn record_result(call: &mut Call<'_, '_, '_>, key: &Key<'_>, field: &[u8], counted: &Counted) {
    match counted.expiry {
        None => call.record(&[b"HSET", key.bytes, field, &counted.text]),
        Some(at) => {
            let mut room = [0; I64_BYTES_MAX];
            let at = write_i64(at.get(), &mut room);
            let command: [&[u8]; 8] =
                [b"HSETEX", key.bytes, b"PXAT", at, b"FIELDS", b"1", field, &counted.text];
            call.record(&command);
        }
    }
}

pub const HINCRBY: Command<Handler> = Command::new(
    Spec {
        name: "hincrby",
        summary: "Adds to the integer in a field and returns it. An absent field counts as 0.",
        since: "2.0.0",
        group: Group::Hash,
        complexity: "O(1)",
        arity: 4,
        flags: Flags::WRITE.or(Flags::DENYOOM).or(Flags::FAST),
        acl: AclCategories::HASH,
        key_specs: &[KeySpec::one(1, KeyFlags::RW.or(KeyFlags::ACCESS).or(KeyFlags::UPDATE))],
        arguments: &[Argument::key("key", 0), Argument::string("field"), Argument::integer("increment")],
        ..Spec::BASE
    },
    hincrby,
);

fn hincrby(call: &mut Call<'_, '_, '_>) -> Outcome {
    let (key, field) = (call.key(1), call.args.get(2));
    let Some(increment) = parse_i64(call.args.get(3)) else {
        return call.fail(errors::NOT_AN_INTEGER);
    };
    let mut sum = 0;
    let counted = count(call, &key, field, "hincrby", |old| {
        let old = match old {
            None => 0,
            Some(Element::Int(int)) => int,
            Some(Element::Bytes(_)) => return Err("ERR hash value is not an integer"),
        };
        sum = old.checked_add(increment).ok_or(errors::INCREMENT_OVERFLOW)?;
        Ok(write_i64(sum, &mut [0; I64_BYTES_MAX]).to_vec())
    });
    let counted = match counted {
        Ok(counted) => counted,
        Err(outcome) => return outcome,
    };
    if counted.volatile {
        record_result(call, &key, field, &counted);
    }
    call.reply.integer(sum);
    done()
}

pub const HINCRBYFLOAT: Command<Handler> = Command::new(
    Spec {
        name: "hincrbyfloat",
        summary: "Adds to the number in a field and returns it. An absent field counts as 0.",
        since: "2.6.0",
        group: Group::Hash,
        complexity: "O(1)",
        arity: 4,
        flags: Flags::WRITE.or(Flags::DENYOOM).or(Flags::FAST),
        acl: AclCategories::HASH,
        key_specs: &[KeySpec::one(1, KeyFlags::RW.or(KeyFlags::ACCESS).or(KeyFlags::UPDATE))],
        arguments: &[Argument::key("key", 0), Argument::string("field"), Argument::double("increment")],
        ..Spec::BASE
    },
    hincrbyfloat,
);

fn hincrbyfloat(call: &mut Call<'_, '_, '_>) -> Outcome {
    let (key, field) = (call.key(1), call.args.get(2));
    let Some(increment) = LongDouble::parse(call.args.get(3)) else {
        return call.fail(errors::NOT_A_FLOAT);
    };
    if !increment.is_finite() {
        return call.fail("ERR value is NaN or Infinity");
    }
    let counted = count(call, &key, field, "hincrbyfloat", |old| {
        let old = match old {
            None => LongDouble::from_i64(0),
            Some(Element::Int(int)) => LongDouble::from_i64(int),
            Some(Element::Bytes(text)) => LongDouble::parse(text).ok_or("ERR hash value is not a float")?,
        };
        let sum = old + increment;
        if sum.is_finite() { Ok(sum.to_human().to_vec()) } else { Err(errors::INCREMENT_NOT_FINITE) }
    });
    let counted = match counted {
        Ok(counted) => counted,
        Err(outcome) => return outcome,
    };
    record_result(call, &key, field, &counted);
    call.reply.bulk(&counted.text);
    done()
}

pub const HDEL: Command<Handler> = Command::new(
    Spec {
        name: "hdel",
        summary: "Removes fields of a hash, and the key with the last one. Returns how many existed.",
        since: "2.0.0",
        group: Group::Hash,
        complexity: "O(N), N the given fields",
        arity: -3,
        flags: Flags::WRITE.or(Flags::FAST),
        acl: AclCategories::HASH,
        key_specs: &[KeySpec::one(1, KeyFlags::RW.or(KeyFlags::DELETE))],
        history: &[("2.4.0", "Several fields in one call.")],
        arguments: &[Argument::key("key", 0), Argument::string("field").multiple()],
        ..Spec::BASE
    },
    hdel,
);

fn hdel(call: &mut Call<'_, '_, '_>) -> Outcome {
    let (key, args) = (call.key(1), call.args);
    let is_logged = call.records.is_wanted();
    let edited = call.txn.edit_hash(call.db, &key, &call.settings.limits, |edit| {
        let mut deleted = Deleted::begin(is_logged, edit);
        args.from(2).iter().for_each(|field| deleted.remove(edit, field));
        Ok(deleted)
    });
    let deleted = or_fail!(call, finished(edited));
    call.reply.integer(deleted.count as i64);
    deleted.report(call, &key);
    done()
}

/// Fields that HDEL and HGETDEL have removed.
struct Deleted<'a> {
    count: u64,
    /// Deleted fields, if the log has to name them: the hash may have other fields that are past their time,
    /// and those stay.
    fields: Option<Vec<&'a [u8]>>,
}

impl<'a> Deleted<'a> {
    fn begin(is_logged: bool, edit: &HashEdit<'_, '_>) -> Deleted<'a> {
        Deleted { count: 0, fields: (is_logged && edit.has_volatile()).then(Vec::new) }
    }

    fn remove(&mut self, edit: &mut HashEdit<'_, '_>, field: &'a [u8]) {
        if edit.remove(field, false) {
            self.count += 1;
            if let Some(fields) = &mut self.fields {
                fields.push(field);
            }
        }
    }

    fn report(self, call: &mut Call<'_, '_, '_>, key: &Key<'_>) {
        if self.count == 0 {
            return;
        }
        call.wrote(EventClass::Hash, "hdel", key, self.count);
        if let Some(fields) = &self.fields {
            call.record_words(|words| {
                words.extend([b"HDEL", key.bytes]);
                words.extend(fields);
            });
        }
    }
}

pub const HGETDEL: Command<Handler> = Command::new(
    Spec {
        name: "hgetdel",
        summary: "Returns the values of fields and removes these; null for absent ones.",
        since: "9.1.0",
        group: Group::Hash,
        complexity: "O(N), N the given fields",
        arity: -5,
        flags: Flags::WRITE.or(Flags::FAST),
        acl: AclCategories::HASH,
        key_specs: &[KeySpec::one(1, KeyFlags::RW.or(KeyFlags::ACCESS).or(KeyFlags::DELETE))],
        arguments: &[Argument::key("key", 0), FIELDS],
        ..Spec::BASE
    },
    hgetdel,
);

fn hgetdel(call: &mut Call<'_, '_, '_>) -> Outcome {
    let (key, args) = (call.key(1), call.args);
    if !is_word(args.get(2), "FIELDS") {
        return call.fail(errors::SYNTAX);
    }
    let first = or_fail!(call, fields_at(args, 3, 1, NUM_FIELDS));
    let (mark, is_logged) = (call.reply.len(), call.records.is_wanted());
    call.reply.array(args.len() - first);
    let reply = &mut *call.reply;
    let edited = call.txn.edit_hash(call.db, &key, &call.settings.limits, |edit| {
        let mut deleted = Deleted::begin(is_logged, edit);
        for field in args.from(first).iter() {
            match edit.get(field) {
                Some((value, _)) => reply_element(reply, value),
                None => reply.null(),
            }
            deleted.remove(edit, field);
        }
        Ok(deleted)
    });
    let deleted = match finished(edited) {
        Ok(done) => done,
        Err(error) => {
            call.reply.truncate(mark);
            return call.fail(error);
        }
    };
    deleted.report(call, &key);
    done()
}
