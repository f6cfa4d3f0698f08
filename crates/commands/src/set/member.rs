//! Members come, go and are asked for: SADD SREM SMOVE SISMEMBER SMISMEMBER SCARD SMEMBERS.

use super::{done, finished, or_fail, set};
use crate::call::is_word;
use crate::element::reply_element;
use crate::spec::*;
use crate::{Call, Handler, Outcome};
use isotherm_keyspace::{EventClass, Full, Lookup};
use isotherm_resp::errors;

pub const SADD: Command<Handler> = Command::new(
    Spec {
        name: "sadd",
        summary: "Adds members to a set. Returns how many are new.",
        group: Group::Set,
        complexity: "O(1) for each element",
        arity: -3,
        flags: Flags::WRITE.or(Flags::DENYOOM).or(Flags::FAST),
        acl: AclCategories::SET,
        key_specs: &[KeySpec::one(1, KeyFlags::RW.or(KeyFlags::INSERT))],
        history: &[("2.4.0", "Several members in one call.")],
        arguments: &[Argument::key("key", 0), Argument::string("member").multiple()],
        ..Spec::BASE
    },
    sadd,
);

fn sadd(call: &mut Call<'_, '_, '_>) -> Outcome {
    let (key, args) = (call.key(1), call.args);
    let edited = call.txn.edit_set(call.db, &key, &call.settings.limits, |edit| {
        edit.expect(args.get(2), args.len() - 2)?;
        let (mut added, mut tried) = (0, 0);
        for member in args.from(2).iter() {
            let Ok(is_new) = edit.add(member) else { break };
            (added, tried) = (added + u64::from(is_new), tried + 1);
        }
        Ok::<_, Full>((added, tried))
    });
    let (added, tried) = or_fail!(call, finished(edited));
    if added > 0 {
        call.wrote(EventClass::Set, "sadd", &key, added);
    }
    if tried < args.len() - 2 {
        if added > 0 {
            call.record_first(2 + tried);
        }
        return call.out_of_memory();
    }
    call.reply.integer(added as i64);
    done()
}

pub const SREM: Command<Handler> = Command::new(
    Spec {
        name: "srem",
        summary: "Removes members of a set, and the key with the last one. Returns how many existed.",
        group: Group::Set,
        complexity: "O(N), N the given members",
        arity: -3,
        flags: Flags::WRITE.or(Flags::FAST),
        acl: AclCategories::SET,
        key_specs: &[KeySpec::one(1, KeyFlags::RW.or(KeyFlags::DELETE))],
        history: &[("2.4.0", "Several members in one call.")],
        arguments: &[Argument::key("key", 0), Argument::string("member").multiple()],
        ..Spec::BASE
    },
    srem,
);

fn srem(call: &mut Call<'_, '_, '_>) -> Outcome {
    let (key, args) = (call.key(1), call.args);
    let edited = call.txn.edit_set(call.db, &key, &call.settings.limits, |edit| {
        Ok(args.from(2).iter().filter(|member| edit.remove(member)).count())
    });
    let removed = or_fail!(call, finished(edited));
    if removed > 0 {
        call.wrote(EventClass::Set, "srem", &key, removed as u64);
    }
    call.reply.integer(removed as i64);
    done()
}

pub const SMOVE: Command<Handler> = Command::new(
    Spec {
        name: "smove",
        summary: "Moves a member to another set. Returns 1, or 0 when the source does not have it.",
        group: Group::Set,
        complexity: "O(1)",
        arity: 4,
        flags: Flags::WRITE.or(Flags::FAST),
        acl: AclCategories::SET,
        key_specs: &[
            KeySpec::one(1, KeyFlags::RW.or(KeyFlags::ACCESS).or(KeyFlags::DELETE)),
            KeySpec::one(2, KeyFlags::RW.or(KeyFlags::INSERT)),
        ],
        arguments: &[Argument::key("source", 0), Argument::key("destination", 1), Argument::string("member")],
        ..Spec::BASE
    },
    smove,
);

fn smove(call: &mut Call<'_, '_, '_>) -> Outcome {
    let (from, to, member) = (call.key(1), call.key(2), call.args.get(3));
    let source = set(call.txn.find(call.db, &from, Lookup::Write));
    let Some(is_there) = or_fail!(call, source).map(|view| view.contains(member)) else {
        call.reply.integer(0);
        return done();
    };
    or_fail!(call, set(call.txn.find(call.db, &to, Lookup::Write)));
    if from.bytes == to.bytes || !is_there {
        call.reply.integer(i64::from(is_there));
        return done();
    }
    // Added first, so that a full store loses nothing.
    let added = call.txn.edit_set(call.db, &to, &call.settings.limits, |edit| {
        edit.expect(member, 1)?;
        edit.add(member)
    });
    let added = or_fail!(call, finished(added));
    let removed = call.txn.edit_set(call.db, &from, &call.settings.limits, |edit| Ok(edit.remove(member)));
    if let Err(error) = finished(removed) {
        if added {
            call.wrote(EventClass::Set, "sadd", &to, 1);
            call.record(&[b"SADD", to.bytes, member]);
        }
        return call.fail(error);
    }
    call.wrote(EventClass::Set, "srem", &from, 1);
    if added {
        call.wrote(EventClass::Set, "sadd", &to, 1);
    }
    call.reply.integer(1);
    done()
}

pub const SISMEMBER: Command<Handler> = Command::new(
    Spec {
        name: "sismember",
        summary: "Returns 1 for a member of the set, otherwise 0.",
        group: Group::Set,
        complexity: "O(1)",
        arity: -3,
        flags: Flags::READONLY.or(Flags::FAST),
        acl: AclCategories::SET,
        key_specs: &[KeySpec::one(1, KeyFlags::RO)],
        history: &[("9.2.0", "Added the `XX` option.")],
        arguments: &[
            Argument::key("key", 0),
            Argument::string("member"),
            Argument::pure_token("xx", "XX").since("9.2.0").optional(),
        ],
        ..Spec::BASE
    },
    sismember,
);

// COMPAT(sets): SISMEMBER has the option XX of Valkey 9.2 (-1: the key is not there), built from its sources
// and not compared with a running server. Why: programs for 9.2 run here.
fn sismember(call: &mut Call<'_, '_, '_>) -> Outcome {
    let (key, member) = (call.key(1), call.args.get(2));
    let shows_absence = call.args.len() > 3;
    if shows_absence && !(call.args.len() == 4 && is_word(call.args.get(3), "XX")) {
        return call.fail(errors::SYNTAX);
    }
    let found = or_fail!(call, set(call.txn.find(call.db, &key, Lookup::Read)));
    let answer = match found.map(|view| view.contains(member)) {
        None if shows_absence => -1,
        is_member => i64::from(is_member == Some(true)),
    };
    call.reply.integer(answer);
    done()
}

pub const SMISMEMBER: Command<Handler> = Command::new(
    Spec {
        name: "smismember",
        summary: "Returns 1 or 0 for each given value: whether the set has it.",
        since: "6.2.0",
        group: Group::Set,
        complexity: "O(N), N the given members",
        arity: -3,
        flags: Flags::READONLY.or(Flags::FAST),
        acl: AclCategories::SET,
        key_specs: &[KeySpec::one(1, KeyFlags::RO.or(KeyFlags::ACCESS))],
        arguments: &[Argument::key("key", 0), Argument::string("member").multiple()],
        ..Spec::BASE
    },
    smismember,
);

fn smismember(call: &mut Call<'_, '_, '_>) -> Outcome {
    let (key, args) = (call.key(1), call.args);
    let found = or_fail!(call, set(call.txn.find(call.db, &key, Lookup::Read)));
    call.reply.array(args.len() - 2);
    for member in args.from(2).iter() {
        call.reply.integer(i64::from(found.is_some_and(|view| view.contains(member))));
    }
    done()
}

pub const SCARD: Command<Handler> = Command::new(
    Spec {
        name: "scard",
        summary: "Returns how many members a set has; 0 for an absent key.",
        group: Group::Set,
        complexity: "O(1)",
        arity: 2,
        flags: Flags::READONLY.or(Flags::FAST),
        acl: AclCategories::SET,
        key_specs: &[KeySpec::one(1, KeyFlags::RO)],
        arguments: &[Argument::key("key", 0)],
        ..Spec::BASE
    },
    scard,
);

fn scard(call: &mut Call<'_, '_, '_>) -> Outcome {
    let key = call.key(1);
    let len = or_fail!(call, set(call.txn.find(call.db, &key, Lookup::Read))).map(|view| view.len());
    call.reply.integer(len.unwrap_or(0) as i64);
    done()
}

pub const SMEMBERS: Command<Handler> = Command::new(
    Spec {
        name: "smembers",
        summary: "Returns every member of a set; empty for an absent key.",
        group: Group::Set,
        complexity: "O(N), N the members of the set",
        arity: 2,
        flags: Flags::READONLY,
        acl: AclCategories::SET,
        key_specs: &[KeySpec::one(1, KeyFlags::RO.or(KeyFlags::ACCESS))],
        tips: &["nondeterministic_output_order"],
        arguments: &[Argument::key("key", 0)],
        ..Spec::BASE
    },
    smembers,
);

fn smembers(call: &mut Call<'_, '_, '_>) -> Outcome {
    let key = call.key(1);
    match or_fail!(call, set(call.txn.find(call.db, &key, Lookup::Read))) {
        Some(view) => {
            call.reply.set(view.len() as usize);
            view.for_each(|member| reply_element(call.reply, member));
        }
        None => {
            call.reply.set(0);
        }
    }
    done()
}
