//! XGROUP: groups and consumers come and go. XACK: what was delivered is done.

use super::id::{parse, parse_strict};
use super::{Found, kind_of, no_group};
use crate::call::is_word;
use crate::help::write_help;
use crate::spec::*;
use crate::{Call, Handler, Outcome};
use isotherm_keyspace::{ConsumerGroup, EditError, EventClass, Lookup, StreamEdit, StreamId, Value};
use isotherm_resp::errors;
use isotherm_stdx::{parse_i64, steps};

pub const XGROUP: Command<Handler> = Command::container(
    Spec {
        name: "xgroup",
        summary: "Manages the consumer groups of a stream.",
        since: "5.0.0",
        group: Group::Stream,
        complexity: "That of the subcommand",
        arity: -2,
        ..Spec::BASE
    },
    SUBCOMMANDS,
);

const SUBCOMMANDS: &[Command<Handler>] =
    &[XGROUP_CREATE, XGROUP_CREATECONSUMER, XGROUP_DELCONSUMER, XGROUP_DESTROY, XGROUP_HELP, XGROUP_SETID];

const NO_KEY: &str = "ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to use the \
                      MKSTREAM option to create an empty stream automatically.";

/// Options of CREATE and SETID: whether the stream is to be made, and what the group has read.
fn options(call: &Call<'_, '_, '_>, creates: bool) -> Result<(bool, Option<u64>), Vec<u8>> {
    let args = call.args;
    let (mut make, mut entries_read) = (false, None);
    let mut at = 5;
    while at < args.len() {
        if creates && is_word(args.get(at), "MKSTREAM") {
            make = true;
            at += 1;
        } else if is_word(args.get(at), "ENTRIESREAD") && at + 1 < args.len() {
            entries_read = match parse_i64(args.get(at + 1)).ok_or(errors::NOT_AN_INTEGER)? {
                -1 => None,
                number => Some(
                    u64::try_from(number).map_err(|_| "ERR value for ENTRIESREAD must be positive or -1")?,
                ),
            };
            at += 2;
        } else {
            return Err(errors::subcommand_syntax(args));
        }
    }
    Ok((make, entries_read))
}

/// Changes a stream that is there, and a group of it that is there if `grouped`.
fn change<R>(
    call: &mut Call<'_, '_, '_>,
    grouped: bool,
    work: impl FnOnce(&mut StreamEdit<'_, '_>) -> R,
) -> Result<R, Vec<u8>> {
    let (key, name) = (call.key(2), call.args.get(3));
    match call.txn.find(call.db, &key, Lookup::Write).map(|entry| entry.value) {
        None => return Err(NO_KEY.into()),
        Some(Value::Stream(stream)) if grouped && stream.group(name).is_none() => {
            return Err(no_group(name, key.bytes));
        }
        Some(Value::Stream(_)) => {}
        Some(_) => return Err(errors::WRONG_TYPE.into()),
    }
    match call.txn.edit_stream(call.db, &key, &call.settings.limits, work) {
        Ok(edited) => Ok(edited.result),
        Err(_) => Err(errors::NO_MEMORY_FOR_KEY.into()),
    }
}

fn done(call: &mut Call<'_, '_, '_>, event: &'static str) {
    let key = call.key(2);
    call.wrote(EventClass::Stream, event, &key, 1);
}

pub const XGROUP_CREATE: Command<Handler> = Command::new(
    Spec {
        name: "create",
        summary: "Adds a group that reads from an ID on. An error for an existing one.",
        since: "5.0.0",
        group: Group::Stream,
        complexity: "O(1)",
        arity: -5,
        flags: Flags::WRITE.or(Flags::DENYOOM),
        acl: AclCategories::STREAM,
        key_specs: &[KeySpec::one(2, KeyFlags::RW.or(KeyFlags::INSERT))],
        history: &[("7.0.0", "New option `ENTRIESREAD`.")],
        arguments: &[
            Argument::key("key", 0),
            Argument::string("group"),
            Argument::one_of("id-selector", &[Argument::string("id"), Argument::pure_token("new-id", "$")]),
            Argument::pure_token("mkstream", "MKSTREAM").optional(),
            Argument::integer("entriesread").token("ENTRIESREAD").optional().display("entries-read"),
        ],
        ..Spec::BASE
    },
    create,
);

fn create(call: &mut Call<'_, '_, '_>) -> Outcome {
    let (make, entries_read) = match options(call, true) {
        Ok(options) => options,
        Err(error) => return call.fail(error),
    };
    let (key, name) = (call.key(2), call.args.get(3));
    match kind_of(call, &key) {
        Found::Other => return call.fail(errors::WRONG_TYPE),
        Found::Absent if !make => return call.fail(NO_KEY),
        _ => {}
    }
    if call.args.len() > 8 {
        return call.fail(errors::subcommand_syntax(call.args));
    }
    let id = match call.args.get(4) {
        b"$" => None,
        text => match parse_strict(text, 0) {
            Ok(id) => Some(id),
            Err(error) => return call.fail(error),
        },
    };
    let edited = call.txn.edit_stream(call.db, &key, &call.settings.limits, |stream| {
        stream.create()?;
        let id = id.unwrap_or(stream.state().last_id);
        let is_new = !stream.groups().is_some_and(|groups| groups.contains_key(name));
        if is_new {
            stream.add_group(name, ConsumerGroup::new(id, entries_read));
        }
        Ok::<bool, EditError>(is_new)
    });
    let Ok(Ok(is_new)) = edited.map(|edited| edited.result) else {
        return call.out_of_memory();
    };
    if !is_new {
        return call.fail("BUSYGROUP Consumer Group name already exists");
    }
    call.reply.ok();
    done(call, "xgroup-create");
    Outcome::Done
}

pub const XGROUP_SETID: Command<Handler> = Command::new(
    Spec {
        name: "setid",
        summary: "Sets the ID after which a group reads on.",
        since: "5.0.0",
        group: Group::Stream,
        complexity: "O(1)",
        arity: -5,
        flags: Flags::WRITE,
        acl: AclCategories::STREAM,
        key_specs: &[KeySpec::one(2, KeyFlags::RW.or(KeyFlags::UPDATE))],
        history: &[("7.0.0", "New option `ENTRIESREAD`, which may be left out.")],
        arguments: &[
            Argument::key("key", 0),
            Argument::string("group"),
            Argument::one_of("id-selector", &[Argument::string("id"), Argument::pure_token("new-id", "$")]),
            Argument::integer("entriesread").token("ENTRIESREAD").optional().display("entries-read"),
        ],
        ..Spec::BASE
    },
    setid,
);

fn setid(call: &mut Call<'_, '_, '_>) -> Outcome {
    let entries_read = match options(call, false) {
        Ok((_, entries_read)) => entries_read,
        Err(error) => return call.fail(error),
    };
    let args = call.args;
    let (name, text) = (args.get(3), args.get(4));
    let changed = change(call, true, |stream| {
        if args.len() > 7 {
            return Err(errors::subcommand_syntax(args));
        }
        let id = if text == b"$" { stream.state().last_id } else { parse(text, 0)? };
        let mut group = stream.group_mut(name).expect("it was found");
        (group.last_id, group.entries_read) = (id, entries_read);
        Ok(())
    });
    match changed {
        Ok(Ok(())) => {}
        Ok(Err(error)) => return call.fail(error),
        Err(error) => return call.fail(error),
    }
    call.reply.ok();
    done(call, "xgroup-setid");
    Outcome::Done
}

pub const XGROUP_DESTROY: Command<Handler> = Command::new(
    Spec {
        name: "destroy",
        summary: "Removes a group with its consumers. Returns 1, or 0 for an unknown one.",
        since: "5.0.0",
        group: Group::Stream,
        complexity: "O(N), N the pending entries of the group",
        arity: 4,
        flags: Flags::WRITE,
        acl: AclCategories::STREAM,
        key_specs: &[KeySpec::one(2, KeyFlags::RW.or(KeyFlags::DELETE))],
        arguments: &[Argument::key("key", 0), Argument::string("group")],
        ..Spec::BASE
    },
    destroy,
);

fn destroy(call: &mut Call<'_, '_, '_>) -> Outcome {
    let name = call.args.get(3);
    let removed = change(call, false, |stream| stream.remove_group(name));
    match removed {
        Err(error) => return call.fail(error),
        Ok(removed) => {
            call.reply.integer(i64::from(removed));
            if removed {
                call.txn.note_waiters(call.db, &call.key(2));
                done(call, "xgroup-destroy");
            }
        }
    }
    Outcome::Done
}

pub const XGROUP_CREATECONSUMER: Command<Handler> = Command::new(
    Spec {
        name: "createconsumer",
        summary: "Adds a consumer to a group. Returns 1, or 0 for an existing one.",
        since: "6.2.0",
        group: Group::Stream,
        complexity: "O(1)",
        arity: 5,
        flags: Flags::WRITE.or(Flags::DENYOOM),
        acl: AclCategories::STREAM,
        key_specs: &[KeySpec::one(2, KeyFlags::RW.or(KeyFlags::INSERT))],
        arguments: &[Argument::key("key", 0), Argument::string("group"), Argument::string("consumer")],
        ..Spec::BASE
    },
    createconsumer,
);

fn createconsumer(call: &mut Call<'_, '_, '_>) -> Outcome {
    let (group, name, now_ms) = (call.args.get(3), call.args.get(4), call.txn.now().get());
    let created = change(call, true, |stream| {
        let there = stream
            .groups()
            .and_then(|groups| groups.get(group))
            .is_some_and(|group| group.consumers().contains_key(name));
        !there && super::consumer(stream, group, name, now_ms)
    });
    match created {
        Err(error) => return call.fail(error),
        Ok(created) => {
            call.reply.integer(i64::from(created));
            if created {
                done(call, "xgroup-createconsumer");
            }
        }
    }
    Outcome::Done
}

pub const XGROUP_DELCONSUMER: Command<Handler> = Command::new(
    Spec {
        name: "delconsumer",
        summary: "Removes a consumer with its pending entries. Returns how many these were.",
        since: "5.0.0",
        group: Group::Stream,
        complexity: "O(1)",
        arity: 5,
        flags: Flags::WRITE,
        acl: AclCategories::STREAM,
        key_specs: &[KeySpec::one(2, KeyFlags::RW.or(KeyFlags::DELETE))],
        arguments: &[Argument::key("key", 0), Argument::string("group"), Argument::string("consumer")],
        ..Spec::BASE
    },
    delconsumer,
);

fn delconsumer(call: &mut Call<'_, '_, '_>) -> Outcome {
    let (group, name) = (call.args.get(3), call.args.get(4));
    let removed = change(call, true, |stream| {
        stream.group_mut(group).and_then(|mut group| group.remove_consumer(name))
    });
    match removed {
        Err(error) => return call.fail(error),
        Ok(removed) => {
            call.reply.integer(removed.unwrap_or(0) as i64);
            if removed.is_some() {
                done(call, "xgroup-delconsumer");
            }
        }
    }
    Outcome::Done
}

pub const XGROUP_HELP: Command<Handler> = Command::new(
    Spec { since: "5.0.0", group: Group::Stream, acl: AclCategories::STREAM, ..Spec::HELP },
    help,
);

fn help(call: &mut Call<'_, '_, '_>) -> Outcome {
    write_help(
        call.reply,
        call.args,
        &[
            "CREATE <key> <groupname> <id|$> [option]",
            "    Add a group that reads the entries after this ID; $ is the last one. Options are:",
            "    * MKSTREAM",
            "      An absent stream is created, without entries.",
            "    * ENTRIESREAD entries_read",
            "      Count this many entries as read, for the lag.",
            "CREATECONSUMER <key> <groupname> <consumer>",
            "    Add a consumer to this group.",
            "DELCONSUMER <key> <groupname> <consumer>",
            "    Remove a consumer. Return how many pending entries it had.",
            "DESTROY <key> <groupname>",
            "    Remove this group with its consumers.",
            "SETID <key> <groupname> <id|$> [ENTRIESREAD entries_read]",
            "    Let this group read on after this ID, and set its count of entries read.",
        ],
    )
}

pub const XACK: Command<Handler> = Command::new(
    Spec {
        name: "xack",
        summary: "Takes entries off the pending list of a group. Returns how many were on it.",
        since: "5.0.0",
        group: Group::Stream,
        complexity: "O(1) for each ID",
        arity: -4,
        flags: Flags::WRITE.or(Flags::FAST),
        acl: AclCategories::STREAM,
        key_specs: &[KeySpec::one(1, KeyFlags::RW.or(KeyFlags::UPDATE))],
        arguments: &[Argument::key("key", 0), Argument::string("group"), Argument::string("id").multiple()],
        ..Spec::BASE
    },
    xack,
);

fn xack(call: &mut Call<'_, '_, '_>) -> Outcome {
    let (key, name) = (call.key(1), call.args.get(2));
    match call.txn.find(call.db, &key, Lookup::Read).map(|entry| entry.value) {
        Some(Value::Stream(stream)) if stream.group(name).is_some() => {}
        Some(Value::Stream(_)) | None => {
            call.reply.integer(0);
            return Outcome::Done;
        }
        Some(_) => return call.fail(errors::WRONG_TYPE),
    }
    let ids: Result<Vec<StreamId>, _> = call.args.iter().skip(3).map(|text| parse_strict(text, 0)).collect();
    let ids = match ids {
        Ok(ids) => ids,
        Err(error) => return call.fail(error),
    };
    let edited = call.txn.edit_stream(call.db, &key, &call.settings.limits, |stream| {
        let mut group = stream.group_mut(name).expect("it was found");
        ids.into_iter().inspect(|_| steps::note(1)).filter(|id| group.acknowledge(*id)).count() as u64
    });
    let Ok(acknowledged) = edited.map(|edited| edited.result) else { return call.out_of_memory() };
    call.count(acknowledged);
    call.reply.integer(acknowledged as i64);
    Outcome::Done
}
