//! Elements come: LPUSH RPUSH LPUSHX RPUSHX LINSERT LSET.

use crate::call::is_word;
use crate::spec::*;
use crate::{Call, Handler, Outcome};
use isotherm_keyspace::{EditError, Element, End, EventClass, Lookup, Value};
use isotherm_resp::errors;
use isotherm_stdx::{parse_i64, steps};

pub const LPUSH: Command<Handler> = Command::new(
    Spec {
        name: "lpush",
        summary: "Adds elements to the front of a list, each before the former. Returns the new length.",
        group: Group::List,
        complexity: "O(1) for each element",
        arity: -3,
        flags: Flags::WRITE.or(Flags::DENYOOM).or(Flags::FAST),
        acl: AclCategories::LIST,
        key_specs: &[KeySpec::one(1, KeyFlags::RW.or(KeyFlags::INSERT))],
        history: &[("2.4.0", "Several elements in one call.")],
        arguments: &[Argument::key("key", 0), Argument::string("element").multiple()],
        ..Spec::BASE
    },
    lpush,
);

fn lpush(call: &mut Call<'_, '_, '_>) -> Outcome {
    push(call, End::Front, false)
}

pub const RPUSH: Command<Handler> = Command::new(
    Spec {
        name: "rpush",
        summary: "Adds elements to the end of a list. Returns the new length.",
        group: Group::List,
        complexity: "O(1) for each element",
        arity: -3,
        flags: Flags::WRITE.or(Flags::DENYOOM).or(Flags::FAST),
        acl: AclCategories::LIST,
        key_specs: &[KeySpec::one(1, KeyFlags::RW.or(KeyFlags::INSERT))],
        history: &[("2.4.0", "Several elements in one call.")],
        arguments: &[Argument::key("key", 0), Argument::string("element").multiple()],
        ..Spec::BASE
    },
    rpush,
);

fn rpush(call: &mut Call<'_, '_, '_>) -> Outcome {
    push(call, End::Back, false)
}

pub const LPUSHX: Command<Handler> = Command::new(
    Spec {
        name: "lpushx",
        summary: "Adds elements to the front of an existing list. Returns the new length; 0 for an absent key.",
        since: "2.2.0",
        group: Group::List,
        complexity: "O(1) for each element",
        arity: -3,
        flags: Flags::WRITE.or(Flags::DENYOOM).or(Flags::FAST),
        acl: AclCategories::LIST,
        key_specs: &[KeySpec::one(1, KeyFlags::RW.or(KeyFlags::INSERT))],
        history: &[("4.0.0", "Several elements in one call.")],
        arguments: &[Argument::key("key", 0), Argument::string("element").multiple()],
        ..Spec::BASE
    },
    lpushx,
);

fn lpushx(call: &mut Call<'_, '_, '_>) -> Outcome {
    push(call, End::Front, true)
}

pub const RPUSHX: Command<Handler> = Command::new(
    Spec {
        name: "rpushx",
        summary: "Adds elements to the end of an existing list. Returns the new length; 0 for an absent key.",
        since: "2.2.0",
        group: Group::List,
        complexity: "O(1) for each element",
        arity: -3,
        flags: Flags::WRITE.or(Flags::DENYOOM).or(Flags::FAST),
        acl: AclCategories::LIST,
        key_specs: &[KeySpec::one(1, KeyFlags::RW.or(KeyFlags::INSERT))],
        history: &[("4.0.0", "Several elements in one call.")],
        arguments: &[Argument::key("key", 0), Argument::string("element").multiple()],
        ..Spec::BASE
    },
    rpushx,
);

fn rpushx(call: &mut Call<'_, '_, '_>) -> Outcome {
    push(call, End::Back, true)
}

/// The event of a push.
pub(super) fn push_event(end: End) -> &'static str {
    match end {
        End::Front => "lpush",
        End::Back => "rpush",
    }
}

fn push(call: &mut Call<'_, '_, '_>, end: End, only_present: bool) -> Outcome {
    let (key, args) = (call.key(1), call.args);
    if only_present && call.txn.find(call.db, &key, Lookup::Write).is_none() {
        call.reply.integer(0);
        return Outcome::Done;
    }
    let edited = call.txn.edit_list(call.db, &key, &call.settings.limits, |list| {
        let before = list.len();
        let done = list.push(end, args.iter().skip(2).inspect(|_| steps::note(1)));
        (done, before, list.len())
    });
    let edited = match edited {
        Ok(edited) => edited,
        Err(EditError::WrongType) => return call.fail(errors::WRONG_TYPE),
        Err(EditError::Full) => return call.out_of_memory(),
    };
    let (done, before, len) = edited.result;
    let pushed = len - before;
    if pushed > 0 {
        call.wrote(EventClass::List, push_event(end), &key, pushed);
    }
    if done.is_ok() {
        call.reply.integer(len as i64);
        return Outcome::Done;
    }
    if pushed > 0 {
        // The log gets what is there.
        call.record_first(2 + pushed as usize);
    }
    call.out_of_memory()
}

pub const LINSERT: Command<Handler> = Command::new(
    Spec {
        name: "linsert",
        summary: "Inserts an element next to the first one that equals the pivot. Returns the length; -1 without it, 0 for an absent key.",
        since: "2.2.0",
        group: Group::List,
        complexity: "O(N), N the elements in front of the pivot",
        arity: 5,
        flags: Flags::WRITE.or(Flags::DENYOOM),
        acl: AclCategories::LIST,
        key_specs: &[KeySpec::one(1, KeyFlags::RW.or(KeyFlags::INSERT))],
        arguments: &[
            Argument::key("key", 0),
            Argument::one_of(
                "where",
                &[Argument::pure_token("before", "BEFORE"), Argument::pure_token("after", "AFTER")],
            ),
            Argument::string("pivot"),
            Argument::string("element"),
        ],
        ..Spec::BASE
    },
    linsert,
);

fn linsert(call: &mut Call<'_, '_, '_>) -> Outcome {
    let (key, pivot, text) = (call.key(1), call.args.get(3), call.args.get(4));
    let behind = if is_word(call.args.get(2), "AFTER") {
        1
    } else if is_word(call.args.get(2), "BEFORE") {
        0
    } else {
        return call.fail(errors::SYNTAX);
    };
    if call.txn.find(call.db, &key, Lookup::Write).is_none() {
        call.reply.integer(0);
        return Outcome::Done;
    }
    let edited = call.txn.edit_list(call.db, &key, &call.settings.limits, |list| {
        list.before_growth(std::iter::once(text))?;
        let found = list.iter(0, End::Front).search(Element::of(pivot), u64::MAX).next();
        let Some(at) = found else { return Ok(None) };
        list.insert(at + behind, text).map(|()| Some(list.len()))
    });
    let inserted = match edited {
        Ok(edited) => edited.result,
        Err(EditError::WrongType) => return call.fail(errors::WRONG_TYPE),
        Err(EditError::Full) => return call.out_of_memory(),
    };
    match inserted {
        Err(_) => return call.out_of_memory(),
        Ok(None) => call.reply.integer(-1),
        Ok(Some(len)) => {
            call.wrote(EventClass::List, "linsert", &key, 1);
            call.reply.integer(len as i64);
        }
    }
    Outcome::Done
}

pub const LSET: Command<Handler> = Command::new(
    Spec {
        name: "lset",
        summary: "Replaces the element at an index. An error out of range and for an absent key.",
        group: Group::List,
        complexity: "O(N), N the elements between the index and the nearer end",
        arity: 4,
        flags: Flags::WRITE.or(Flags::DENYOOM),
        acl: AclCategories::LIST,
        key_specs: &[KeySpec::one(1, KeyFlags::RW.or(KeyFlags::UPDATE))],
        arguments: &[Argument::key("key", 0), Argument::integer("index"), Argument::string("element")],
        ..Spec::BASE
    },
    lset,
);

fn lset(call: &mut Call<'_, '_, '_>) -> Outcome {
    let (key, text) = (call.key(1), call.args.get(3));
    match call.txn.find(call.db, &key, Lookup::Write).map(|entry| entry.value) {
        None => return call.fail(errors::NO_SUCH_KEY),
        Some(Value::List(_)) => {}
        Some(_) => return call.fail(errors::WRONG_TYPE),
    }
    let Some(index) = parse_i64(call.args.get(2)) else {
        return call.fail(errors::NOT_AN_INTEGER);
    };
    let edited = call.txn.edit_list(call.db, &key, &call.settings.limits, |list| {
        list.before_growth(std::iter::once(text))?;
        // COMPAT(lists): LSET refuses an index that does not fit into 32 bits; Valkey uses its low 32 bits.
        // Why: the element at that index does not exist.
        match super::absolute(index, list.len()) {
            Some(index) => list.set(index, text).map(|()| true),
            None => Ok(false),
        }
    });
    match edited.map(|edited| edited.result) {
        Err(_) | Ok(Err(_)) => return call.out_of_memory(),
        Ok(Ok(false)) => return call.fail(errors::INDEX_OUT_OF_RANGE),
        Ok(Ok(true)) => {}
    }
    call.wrote(EventClass::List, "lset", &key, 1);
    call.reply.ok();
    Outcome::Done
}
