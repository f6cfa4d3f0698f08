//! Entries come and go one by one, and what is known of them: XADD XDEL XSETID XLEN.

use super::id::parse_strict;
use super::trim::{Options, Trimming, log_words};
use super::{Found, kind_of};
use crate::call::is_word;
use crate::spec::*;
use crate::{Call, Handler, Outcome};
use isotherm_keyspace::{EditError, EventClass, Full, Lookup, StreamEdit, StreamId, UnixMs, Value};
use isotherm_resp::errors;
use isotherm_stdx::{parse_i64, steps};

pub const XADD: Command<Handler> = Command::new(
    Spec {
        name: "xadd",
        summary: "Appends an entry to a stream, which is created by default. Returns its ID.",
        since: "5.0.0",
        group: Group::Stream,
        complexity: "O(1) to append, O(N) to trim N entries",
        arity: -5,
        flags: Flags::WRITE.or(Flags::DENYOOM).or(Flags::FAST),
        acl: AclCategories::STREAM,
        key_specs: &[KeySpec::one(1, KeyFlags::RW.or(KeyFlags::UPDATE))
            .notes("UPDATE, not INSERT: entries may be trimmed")],
        tips: &["nondeterministic_output"],
        history: &[
            ("6.2.0", "New options `NOMKSTREAM`, `MINID` and `LIMIT`."),
            ("7.0.0", "IDs of the form `<ms>-*`."),
        ],
        arguments: &[
            Argument::key("key", 0),
            Argument::pure_token("nomkstream", "NOMKSTREAM").since("6.2.0").optional(),
            Argument::block(
                "trim",
                &[
                    Argument::one_of(
                        "strategy",
                        &[
                            Argument::pure_token("maxlen", "MAXLEN"),
                            Argument::pure_token("minid", "MINID").since("6.2.0"),
                        ],
                    ),
                    Argument::one_of(
                        "operator",
                        &[Argument::pure_token("equal", "="), Argument::pure_token("approximately", "~")],
                    )
                    .optional(),
                    Argument::string("threshold"),
                    Argument::integer("count").token("LIMIT").since("6.2.0").optional(),
                ],
            )
            .optional(),
            Argument::one_of("id-selector", &[Argument::pure_token("auto-id", "*"), Argument::string("id")]),
            Argument::block("data", &[Argument::string("field"), Argument::string("value")]).multiple(),
        ],
        ..Spec::BASE
    },
    xadd,
);

/// Why an entry was not added.
enum NotAdded {
    Exhausted,
    Behind,
    Full,
}

impl From<Full> for NotAdded {
    fn from(_: Full) -> NotAdded {
        NotAdded::Full
    }
}

fn xadd(call: &mut Call<'_, '_, '_>) -> Outcome {
    let options = match Options::parse(call, true) {
        Ok(options) => options,
        Err(error) => return call.fail(error),
    };
    let (key, args) = (call.key(1), call.args);
    let fields: Vec<&[u8]> = args.iter().skip(options.id_at + 1).inspect(|_| steps::note(1)).collect();
    if fields.is_empty() || fields.len() % 2 == 1 {
        return call.fail(errors::wrong_arity(XADD.spec.name));
    }
    if options.id == Some((0, Some(0))) {
        return call.fail("ERR The ID specified in XADD must be greater than 0-0");
    }
    // A command that may create it finds out by the change itself what is there.
    if !options.create && kind_of(call, &key) == Found::Absent {
        call.reply.null();
        return Outcome::Done;
    }
    let now = call.txn.now();
    let edited = call.txn.edit_stream(call.db, &key, &call.settings.limits, |stream| {
        let id = next_id(stream, options.id, now)?;
        stream.want_add(options.trimming.as_ref().map(Trimming::terms))?;
        stream.add(id, &fields)?;
        let Some(trimming) = options.trimming else { return Ok((id, 0, None)) };
        let trimmed = trimming.run(stream);
        // Without memory to trim there is the entry all the same, and the log gets what is there.
        let is_exact = trimming.whole || trimmed.is_err();
        let text = trimming.logged(stream.len(), stream.first_of_blocks());
        Ok((id, trimmed.unwrap_or(0), Some((Trimming { whole: is_exact, ..trimming }, text))))
    });
    let result = match edited {
        Ok(edited) => edited.result,
        Err(EditError::WrongType) => return call.fail(errors::WRONG_TYPE),
        Err(EditError::Full) => return call.out_of_memory(),
    };
    let (id, trimmed, trimming) = match result {
        Ok(added) => added,
        Err(NotAdded::Exhausted) => {
            return call.fail("ERR The stream has exhausted the last possible ID, unable to add more items");
        }
        Err(NotAdded::Behind) => {
            return call
                .fail("ERR The ID specified in XADD is equal or smaller than the target stream top item");
        }
        Err(NotAdded::Full) => return call.out_of_memory(),
    };
    call.wrote(EventClass::Stream, "xadd", &key, 1);
    if trimmed > 0 {
        call.event(EventClass::Stream, "xtrim", &key);
    }
    let id_text = id.to_text();
    call.reply.bulk(&id_text);
    let open_id = !matches!(options.id, Some((_, Some(_))));
    let trimming = trimming.as_ref().map(|(trimming, text)| (trimming, &text[..]));
    call.record_words(|words| {
        log_words(args, open_id.then_some((options.id_at, &id_text[..])), trimming, words)
    });
    Outcome::Done
}

/// The id of the next entry: as asked, or the next one at this moment.
fn next_id(
    stream: &StreamEdit<'_, '_>,
    asked: Option<(u64, Option<u64>)>,
    now: UnixMs,
) -> Result<StreamId, NotAdded> {
    let last = stream.state().last_id;
    if last == StreamId::MAX {
        return Err(NotAdded::Exhausted);
    }
    let now_ms = now.get() as u64;
    let id = match asked {
        Some((ms, Some(seq))) => Some(StreamId { ms, seq }),
        Some((ms, None)) if ms == last.ms => last.seq.checked_add(1).map(|seq| StreamId { ms, seq }),
        Some((ms, None)) => Some(StreamId { ms, seq: 0 }),
        None if now_ms > last.ms => Some(StreamId { ms: now_ms, seq: 0 }),
        None => last.next(),
    };
    id.filter(|id| *id > last).ok_or(NotAdded::Behind)
}

pub const XDEL: Command<Handler> = Command::new(
    Spec {
        name: "xdel",
        summary: "Removes entries from a stream by ID. Returns how many existed.",
        since: "5.0.0",
        group: Group::Stream,
        complexity: "O(1) for each ID, whatever the length of the stream",
        arity: -3,
        flags: Flags::WRITE.or(Flags::FAST),
        acl: AclCategories::STREAM,
        key_specs: &[KeySpec::one(1, KeyFlags::RW.or(KeyFlags::DELETE))],
        arguments: &[Argument::key("key", 0), Argument::string("id").multiple()],
        ..Spec::BASE
    },
    xdel,
);

fn xdel(call: &mut Call<'_, '_, '_>) -> Outcome {
    let key = call.key(1);
    match kind_of(call, &key) {
        Found::Absent => {
            call.reply.integer(0);
            return Outcome::Done;
        }
        Found::Other => return call.fail(errors::WRONG_TYPE),
        Found::Stream => {}
    }
    let ids: Result<Vec<StreamId>, _> = call.args.iter().skip(2).map(|text| parse_strict(text, 0)).collect();
    let ids = match ids {
        Ok(ids) => ids,
        Err(error) => return call.fail(error),
    };
    let edited = call.txn.edit_stream(call.db, &key, &call.settings.limits, |stream| {
        let (mut deleted, mut tried) = (0, 0);
        stream.want_ids(&ids)?;
        for &id in &ids {
            let Ok(is_deleted) = stream.delete(id) else { break };
            if is_deleted {
                let state = stream.state_mut();
                state.max_deleted_id = state.max_deleted_id.max(id);
                deleted += 1;
            }
            tried += 1;
        }
        Ok::<_, EditError>((deleted, tried))
    });
    let Ok((deleted, tried)) = edited.and_then(|edited| edited.result) else { return call.out_of_memory() };
    if deleted > 0 {
        call.wrote(EventClass::Stream, "xdel", &key, deleted);
    }
    if tried < ids.len() {
        call.record_first(2 + tried);
        return call.out_of_memory();
    }
    call.reply.integer(deleted as i64);
    Outcome::Done
}

pub const XSETID: Command<Handler> = Command::new(
    Spec {
        name: "xsetid",
        summary: "Sets the last ID and the counters of a stream (internal).",
        since: "5.0.0",
        group: Group::Stream,
        complexity: "O(1)",
        arity: -3,
        flags: Flags::WRITE.or(Flags::DENYOOM).or(Flags::FAST),
        acl: AclCategories::STREAM,
        key_specs: &[KeySpec::one(1, KeyFlags::RW.or(KeyFlags::UPDATE))],
        history: &[("7.0.0", "New options `ENTRIESADDED` and `MAXDELETEDID`.")],
        arguments: &[
            Argument::key("key", 0),
            Argument::string("last-id"),
            Argument::integer("entries-added").token("ENTRIESADDED").since("7.0.0").optional(),
            Argument::string("max-deleted-id").token("MAXDELETEDID").since("7.0.0").optional(),
        ],
        ..Spec::BASE
    },
    xsetid,
);

// COMPAT(keys): XSETID changes its key for WATCH and tracking, as every command that writes. Valkey's is
// no change to them. Why: what a client has read of the stream is another value afterwards.
fn xsetid(call: &mut Call<'_, '_, '_>) -> Outcome {
    match parse_xsetid(call) {
        Ok(()) => Outcome::Done,
        Err(error) => call.fail(error),
    }
}

fn parse_xsetid(call: &mut Call<'_, '_, '_>) -> Result<(), &'static str> {
    let args = call.args;
    let id = parse_strict(args.get(2), 0)?;
    let (mut entries_added, mut max_deleted) = (None, StreamId::MIN);
    let mut at = 3;
    while at < args.len() {
        let value = args.try_get(at + 1).ok_or(errors::SYNTAX)?;
        if is_word(args.get(at), "ENTRIESADDED") {
            let number = parse_i64(value).ok_or(errors::NOT_AN_INTEGER)?;
            entries_added = Some(u64::try_from(number).map_err(|_| "ERR entries_added must be positive")?);
        } else if is_word(args.get(at), "MAXDELETEDID") {
            max_deleted = parse_strict(value, 0)?;
            if id < max_deleted {
                return Err(
                    "ERR The ID specified in XSETID is smaller than the provided max_deleted_entry_id",
                );
            }
        } else {
            return Err(errors::SYNTAX);
        }
        at += 2;
    }
    let key = call.key(1);
    call.txn.read_first();
    match call.txn.find(call.db, &key, Lookup::Write).map(|entry| entry.value) {
        None => return Err(errors::NO_SUCH_KEY),
        Some(Value::Stream(stream)) => {
            if id < stream.state().max_deleted_id {
                return Err("ERR The ID specified in XSETID is smaller than current max_deleted_entry_id");
            }
            let top = stream.range_back(StreamId::MIN, StreamId::MAX).at_most(1).next();
            if top.is_some_and(|top| id < top.id) {
                return Err("ERR The ID specified in XSETID is smaller than the target stream top item");
            }
            if entries_added.is_some_and(|added| stream.len() > added) {
                return Err(
                    "ERR The entries_added specified in XSETID is smaller than the target stream length",
                );
            }
        }
        Some(_) => return Err(errors::WRONG_TYPE),
    }
    if !call.txn.begin_changes() {
        return Err(errors::NO_MEMORY_FOR_KEY);
    }
    let edited = call.txn.edit_stream(call.db, &key, &call.settings.limits, |stream| {
        let state = stream.state_mut();
        state.last_id = id;
        state.entries_added = entries_added.unwrap_or(state.entries_added);
        if max_deleted != StreamId::MIN {
            state.max_deleted_id = max_deleted;
        }
    });
    if edited.is_err() {
        return Err(errors::NO_MEMORY_FOR_KEY);
    }
    call.wrote(EventClass::Stream, "xsetid", &key, 1);
    call.reply.ok();
    Ok(())
}

pub const XLEN: Command<Handler> = Command::new(
    Spec {
        name: "xlen",
        summary: "Returns how many entries a stream has; 0 for an absent key.",
        since: "5.0.0",
        group: Group::Stream,
        complexity: "O(1)",
        arity: 2,
        flags: Flags::READONLY.or(Flags::FAST),
        acl: AclCategories::STREAM,
        key_specs: &[KeySpec::one(1, KeyFlags::RO)],
        arguments: &[Argument::key("key", 0)],
        ..Spec::BASE
    },
    xlen,
);

fn xlen(call: &mut Call<'_, '_, '_>) -> Outcome {
    let key = call.key(1);
    match call.txn.find(call.db, &key, Lookup::Read).map(|entry| entry.value) {
        Some(Value::Stream(stream)) => call.reply.integer(stream.len() as i64),
        Some(_) => return call.fail(errors::WRONG_TYPE),
        None => call.reply.integer(0),
    }
    Outcome::Done
}
