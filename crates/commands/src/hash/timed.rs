//! Values and times at once: HSETEX HGETEX.

use super::expiry::Form;
use super::{NUM_FIELDS, done, fields_at, finished, hash, or_fail};
use crate::arguments::{self, FIELDS};
use crate::call::is_word;
use crate::element::reply_element;
use crate::spec::*;
use crate::{Call, Handler, Outcome};
use isotherm_keyspace::{EventClass, Full, Lookup, UnixMs};
use isotherm_resp::{Args, errors};
use isotherm_stdx::number::{I64_BYTES_MAX, write_i64};

/// A moment as it was written: its word's place, and how to read it.
#[derive(Clone, Copy)]
struct Time {
    at: usize,
    seconds: bool,
    relative: bool,
}

#[derive(Clone, Copy, Default)]
struct Options {
    nx: bool,
    xx: bool,
    fnx: bool,
    fxx: bool,
    keep: bool,
    persist: bool,
    time: Option<Time>,
    /// Place of the first field among the arguments.
    first: usize,
}

impl Options {
    /// `step` arguments a field: HSETEX has values too, HGETEX has not.
    fn parse(args: Args<'_>, step: usize) -> Result<Options, &'static str> {
        // COMPAT(hashes): HSETEX and HGETEX of a key with the name `fields` fail with an error about
        // `numfields`, in Valkey with `value is not an integer or out of range`. Why: both take the key for
        // the option FIELDS; the checks behind it come in another order.
        let fields = (0..args.len() - 1).find(|&at| is_word(args.get(at), "FIELDS"));
        let fields = fields.filter(|at| *at >= 2).ok_or(NUM_FIELDS)?;
        let mut options = Options::default();
        let mut at = 2;
        while at < fields {
            at += options.take(args, at, fields, step == 2).ok_or(errors::SYNTAX)?;
        }
        options.first = fields_at(args, fields + 1, step, NUM_FIELDS)?;
        Ok(options)
    }

    /// Takes one option; how many arguments it has, `None` if it is not allowed here.
    fn take(&mut self, args: Args<'_>, at: usize, end: usize, sets: bool) -> Option<usize> {
        const TIMES: [(&str, bool, bool); 4] =
            [("EX", true, true), ("PX", false, true), ("EXAT", true, false), ("PXAT", false, false)];
        let word = args.get(at);
        if let Some((_, seconds, relative)) = TIMES.iter().find(|(name, ..)| is_word(word, name)) {
            let (seconds, relative) = (*seconds, *relative);
            let same = |old: Time| (old.seconds, old.relative) == (seconds, relative);
            let allowed = self.time.is_none_or(same) && !self.keep && !self.persist && at + 1 < end;
            self.time = Some(Time { at, seconds, relative });
            return allowed.then_some(2);
        }
        if sets && is_word(word, "NX") && !self.xx {
            self.nx = true;
        } else if sets && is_word(word, "XX") && !self.nx {
            self.xx = true;
        } else if sets && is_word(word, "FNX") && !self.fxx {
            self.fnx = true;
        } else if sets && is_word(word, "FXX") && !self.fnx {
            self.fxx = true;
        } else if sets && is_word(word, "KEEPTTL") && self.time.is_none() {
            self.keep = true;
        } else if !sets && is_word(word, "PERSIST") && self.time.is_none() {
            self.persist = true;
        } else {
            return None;
        }
        Some(1)
    }

    fn moment(&self, args: Args<'_>, now: UnixMs, command: &'static str) -> Result<Option<UnixMs>, Vec<u8>> {
        let Some(time) = self.time else { return Ok(None) };
        let form = Form { command, seconds: time.seconds, relative: time.relative };
        form.moment(args.get(time.at + 1), now).map(Some)
    }
}

pub const HSETEX: Command<Handler> = Command::new(
    Spec {
        name: "hsetex",
        summary: "Sets fields of a hash with an expiry, all of them or none. Returns 1, or 0 when the condition fails.",
        since: "9.0.0",
        group: Group::Hash,
        complexity: "O(N), N the given fields",
        arity: -6,
        flags: Flags::WRITE.or(Flags::DENYOOM).or(Flags::FAST),
        acl: AclCategories::HASH,
        key_specs: &[KeySpec::one(1, KeyFlags::RW.or(KeyFlags::INSERT))],
        arguments: &[
            Argument::key("key", 0),
            Argument::one_of(
                "key-condition",
                &[Argument::pure_token("nx", "NX"), Argument::pure_token("xx", "XX")],
            )
            .optional(),
            Argument::one_of(
                "fields-condition",
                &[Argument::pure_token("fnx", "FNX"), Argument::pure_token("fxx", "FXX")],
            )
            .optional(),
            Argument::one_of(
                "expiration",
                &[
                    Argument::integer("seconds").token("EX"),
                    Argument::integer("milliseconds").token("PX"),
                    Argument::unix_time("unix-time-seconds").token("EXAT"),
                    Argument::unix_time("unix-time-milliseconds").token("PXAT"),
                    Argument::pure_token("keepttl", "KEEPTTL"),
                ],
            )
            .optional(),
            Argument::block(
                "fields",
                &[
                    arguments::NUM_FIELDS,
                    Argument::block("data", &[Argument::string("field"), Argument::string("value")])
                        .multiple(),
                ],
            )
            .token("FIELDS"),
        ],
        ..Spec::BASE
    },
    hsetex,
);

/// Result of HSETEX.
struct Stored<'a> {
    /// Fields that left, because the moment is over.
    gone: Vec<&'a [u8]>,
    /// Fields that were past their time.
    expired: Vec<&'a [u8]>,
    /// End of the arguments that were processed; memory may run out before the last one.
    end: usize,
}

fn hsetex(call: &mut Call<'_, '_, '_>) -> Outcome {
    let (key, args) = (call.key(1), call.args);
    let options = or_fail!(call, Options::parse(args, 2));
    let exists = or_fail!(call, hash(call.txn.find(call.db, &key, Lookup::Write))).is_some();
    if options.nx && exists || options.xx && !exists {
        call.reply.integer(0);
        return done();
    }
    let moment = or_fail!(call, options.moment(args, call.txn.now(), HSETEX.spec.name));
    let over = moment.is_some_and(|moment| call.is_over(moment));
    let pairs = || (options.first..args.len()).step_by(2).map(|at| (args.get(at), args.get(at + 1)));
    let edited = call.txn.edit_hash(call.db, &key, &call.settings.limits, |edit| {
        let conditional = options.fnx || options.fxx;
        if conditional && pairs().any(|(field, _)| edit.contains(field) != options.fxx) {
            return Ok::<_, Full>(None);
        }
        let mut stored = Stored { gone: Vec::new(), expired: Vec::new(), end: options.first };
        for (field, value) in pairs() {
            if over {
                if edit.remove(field, true) {
                    stored.gone.push(field);
                }
            } else {
                let Ok(set) = edit.set(field, value, moment, options.keep) else { break };
                stored.expired.extend(set.was_expired.then_some(field));
            }
            stored.end += 2;
        }
        Ok(Some(stored))
    });
    let stored = or_fail!(call, finished(edited));
    let Some(stored) = stored else {
        call.reply.integer(0);
        return done();
    };
    if stored.end == options.first {
        return call.out_of_memory();
    }
    if !stored.expired.is_empty() {
        call.hash_event("hexpired", &key);
        if options.keep {
            call.record_words(|words| {
                words.extend([b"HDEL", args.get(1)]);
                words.extend(&stored.expired);
            });
        }
    }
    let named = (stored.end - options.first) as u64 / 2;
    // Valkey counts every field that it was to delete, whether it was there or not.
    call.txn.expired_fields += stored.expired.len() as u64 + if over { named } else { 0 };
    record_hsetex(call, &options, moment, over, &stored);
    call.hash_event("hset", &key);
    if moment.is_some() {
        call.hash_event("hexpire", &key);
    }
    if over {
        call.hash_event("hexpired", &key);
    }
    if over && !exists {
        call.event(EventClass::Generic, "del", &key);
    }
    if stored.end < args.len() {
        return call.out_of_memory();
    }
    call.reply.integer(1);
    done()
}

/// HDEL of what left at once; else without conditions, and with the moment.
fn record_hsetex(
    call: &mut Call<'_, '_, '_>,
    options: &Options,
    moment: Option<UnixMs>,
    over: bool,
    stored: &Stored<'_>,
) {
    let args = call.args;
    if over {
        if stored.gone.is_empty() {
            return;
        }
        call.count(stored.gone.len() as u64);
        return call.record_words(|words| {
            words.extend([b"HDEL", args.get(1)]);
            words.extend(&stored.gone);
        });
    }
    let fields = (stored.end - options.first) as u64 / 2;
    call.count(fields);
    let conditional = options.nx || options.xx || options.fnx || options.fxx;
    let is_canonical = options.time.is_none_or(|time| !time.seconds && !time.relative);
    if !conditional && is_canonical && stored.end == args.len() {
        return call.record_request();
    }
    let (mut room, mut count) = ([0; I64_BYTES_MAX], [0; I64_BYTES_MAX]);
    let number = write_i64(moment.map_or(0, UnixMs::get), &mut room);
    let count = write_i64(fields as i64, &mut count);
    call.record_words(|words| {
        let mut at = 0;
        while at < stored.end {
            let is_option = at >= 2 && at < options.first;
            if is_option && ["NX", "XX", "FNX", "FXX"].iter().any(|name| is_word(args.get(at), name)) {
                at += 1;
            } else if options.time.is_some_and(|time| time.at == at) {
                words.extend([&b"PXAT"[..], number]);
                at += 2;
            } else if is_option && ["EX", "PX", "EXAT", "PXAT"].iter().any(|name| is_word(args.get(at), name))
            {
                // Of several times the last one counts.
                at += 2;
            } else {
                words.push(if at + 1 == options.first { count } else { args.get(at) });
                at += 1;
            }
        }
    });
}

pub const HGETEX: Command<Handler> = Command::new(
    Spec {
        name: "hgetex",
        summary: "Returns the values of fields and changes their expiry; null for absent ones.",
        since: "9.0.0",
        group: Group::Hash,
        complexity: "O(N), N the given fields",
        arity: -5,
        flags: Flags::WRITE.or(Flags::FAST),
        acl: AclCategories::HASH,
        key_specs: &[KeySpec::one(1, KeyFlags::RW.or(KeyFlags::ACCESS).or(KeyFlags::UPDATE))],
        arguments: &[
            Argument::key("key", 0),
            Argument::one_of(
                "expiration",
                &[
                    Argument::integer("seconds").token("EX"),
                    Argument::integer("milliseconds").token("PX"),
                    Argument::unix_time("unix-time-seconds").token("EXAT"),
                    Argument::unix_time("unix-time-milliseconds").token("PXAT"),
                    Argument::pure_token("persist", "PERSIST"),
                ],
            )
            .optional(),
            FIELDS,
        ],
        ..Spec::BASE
    },
    hgetex,
);

fn hgetex(call: &mut Call<'_, '_, '_>) -> Outcome {
    let (key, args) = (call.key(1), call.args);
    let options = or_fail!(call, Options::parse(args, 1));
    or_fail!(call, hash(call.txn.find(call.db, &key, Lookup::Read)));
    let moment = or_fail!(call, options.moment(args, call.txn.now(), HGETEX.spec.name));
    let over = moment.is_some_and(|moment| call.is_over(moment));
    let mark = call.reply.len();
    call.reply.array(args.len() - options.first);
    let reply = &mut *call.reply;
    let edited = call.txn.edit_hash(call.db, &key, &call.settings.limits, |edit| {
        let (mut changed, mut full) = (Vec::new(), false);
        for field in args.from(options.first).iter() {
            let Some((value, old)) = edit.get(field) else {
                reply.null();
                continue;
            };
            reply_element(reply, value);
            let change = if over {
                Ok(edit.remove(field, false))
            } else if moment.is_some() || options.persist && old.is_some() {
                edit.set_expiry(field, moment)
            } else {
                Ok(false)
            };
            full = change.is_err();
            if full {
                break;
            }
            changed.extend((change == Ok(true)).then_some(field));
        }
        Ok::<_, Full>((changed, full))
    });
    let (changed, full) = match finished(edited) {
        Ok(done) => done,
        Err(error) => {
            call.reply.truncate(mark);
            return call.fail(error);
        }
    };
    if full {
        call.reply.truncate(mark);
        _ = call.out_of_memory();
    }
    if changed.is_empty() {
        return done();
    }
    let (mut at, mut count) = ([0; I64_BYTES_MAX], [0; I64_BYTES_MAX]);
    let at = write_i64(moment.map_or(0, UnixMs::get), &mut at);
    let count = write_i64(changed.len() as i64, &mut count);
    call.record_words(|words| {
        match (over, moment) {
            (true, _) => words.extend([b"HDEL", args.get(1)]),
            (_, Some(_)) => words.extend([b"HPEXPIREAT", args.get(1), at, b"FIELDS", count]),
            (_, None) => words.extend([b"HPERSIST", args.get(1), b"FIELDS", count]),
        }
        words.extend(&changed);
    });
    if over {
        call.txn.expired_fields += changed.len() as u64;
    }
    let event = match (over, moment) {
        (true, _) => "hexpired",
        (_, Some(_)) => "hexpire",
        (_, None) => "hpersist",
    };
    call.wrote(EventClass::Hash, event, &key, changed.len() as u64);
    done()
}
