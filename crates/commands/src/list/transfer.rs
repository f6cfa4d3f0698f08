//! Elements change lists: LMOVE RPOPLPUSH, and the immediate part of BLMOVE BRPOPLPUSH.

use super::pop::{Found, kind_of, pop_event, take_one};
use super::push::push_event;
use crate::spec::*;
use crate::wait::Wait;
use crate::{Call, Handler, Outcome};
use isotherm_keyspace::{End, EventClass, Type};
use isotherm_resp::errors;

pub const LMOVE: Command<Handler> = Command::new(
    Spec {
        name: "lmove",
        summary: "Moves an element from an end of one list to an end of another and returns it; null for an absent source.",
        since: "6.2.0",
        group: Group::List,
        complexity: "O(1)",
        arity: 5,
        flags: Flags::WRITE.or(Flags::DENYOOM),
        acl: AclCategories::LIST,
        key_specs: &[
            KeySpec::one(1, KeyFlags::RW.or(KeyFlags::ACCESS).or(KeyFlags::DELETE)),
            KeySpec::one(2, KeyFlags::RW.or(KeyFlags::INSERT)),
        ],
        arguments: &[
            Argument::key("source", 0),
            Argument::key("destination", 1),
            Argument::one_of(
                "wherefrom",
                &[Argument::pure_token("left", "LEFT"), Argument::pure_token("right", "RIGHT")],
            ),
            Argument::one_of(
                "whereto",
                &[Argument::pure_token("left", "LEFT"), Argument::pure_token("right", "RIGHT")],
            ),
        ],
        ..Spec::BASE
    },
    lmove,
);

fn lmove(call: &mut Call<'_, '_, '_>) -> Outcome {
    let (Some(from), Some(to)) = (super::end(call.args.get(3)), super::end(call.args.get(4))) else {
        return call.fail(errors::SYNTAX);
    };
    transfer(call, from, to).unwrap_or_else(|| null(call))
}

pub const RPOPLPUSH: Command<Handler> = Command::new(
    Spec {
        name: "rpoplpush",
        summary: "Moves the last element of a list to the front of another and returns it; null for an absent source.",
        since: "1.2.0",
        group: Group::List,
        complexity: "O(1)",
        arity: 3,
        flags: Flags::WRITE.or(Flags::DENYOOM),
        acl: AclCategories::LIST,
        key_specs: &[
            KeySpec::one(1, KeyFlags::RW.or(KeyFlags::ACCESS).or(KeyFlags::DELETE)),
            KeySpec::one(2, KeyFlags::RW.or(KeyFlags::INSERT)),
        ],
        arguments: &[Argument::key("source", 0), Argument::key("destination", 1)],
        ..Spec::BASE
    },
    rpoplpush,
);

fn rpoplpush(call: &mut Call<'_, '_, '_>) -> Outcome {
    transfer(call, End::Back, End::Front).unwrap_or_else(|| null(call))
}

fn null(call: &mut Call<'_, '_, '_>) -> Outcome {
    call.reply.null();
    Outcome::Done
}

pub const BLMOVE: Command<Handler> = Command::new(
    Spec {
        name: "blmove",
        summary: "Moves an element from an end of one list to an end of another and returns it. Waits while the source is empty.",
        since: "6.2.0",
        group: Group::List,
        complexity: "O(1)",
        arity: 6,
        flags: Flags::WRITE.or(Flags::DENYOOM).or(Flags::BLOCKING),
        acl: AclCategories::LIST,
        key_specs: &[
            KeySpec::one(1, KeyFlags::RW.or(KeyFlags::ACCESS).or(KeyFlags::DELETE)),
            KeySpec::one(2, KeyFlags::RW.or(KeyFlags::INSERT)),
        ],
        arguments: &[
            Argument::key("source", 0),
            Argument::key("destination", 1),
            Argument::one_of(
                "wherefrom",
                &[Argument::pure_token("left", "LEFT"), Argument::pure_token("right", "RIGHT")],
            ),
            Argument::one_of(
                "whereto",
                &[Argument::pure_token("left", "LEFT"), Argument::pure_token("right", "RIGHT")],
            ),
            Argument::double("timeout"),
        ],
        ..Spec::BASE
    },
    blmove,
);

fn blmove(call: &mut Call<'_, '_, '_>) -> Outcome {
    let (Some(from), Some(to)) = (super::end(call.args.get(3)), super::end(call.args.get(4))) else {
        return call.fail(errors::SYNTAX);
    };
    move_or_wait(call, from, to, 5)
}

pub const BRPOPLPUSH: Command<Handler> = Command::new(
    Spec {
        name: "brpoplpush",
        summary: "Moves the last element of a list to the front of another and returns it. Waits while the source is empty.",
        since: "2.2.0",
        group: Group::List,
        complexity: "O(1)",
        arity: 4,
        flags: Flags::WRITE.or(Flags::DENYOOM).or(Flags::BLOCKING),
        acl: AclCategories::LIST,
        key_specs: &[
            KeySpec::one(1, KeyFlags::RW.or(KeyFlags::ACCESS).or(KeyFlags::DELETE)),
            KeySpec::one(2, KeyFlags::RW.or(KeyFlags::INSERT)),
        ],
        history: &[("6.0.0", "The `timeout` may have a fraction.")],
        arguments: &[
            Argument::key("source", 0),
            Argument::key("destination", 1),
            Argument::double("timeout"),
        ],
        ..Spec::BASE
    },
    brpoplpush,
);

fn brpoplpush(call: &mut Call<'_, '_, '_>) -> Outcome {
    move_or_wait(call, End::Back, End::Front, 3)
}

fn move_or_wait(call: &mut Call<'_, '_, '_>, from: End, to: End, timeout_at: usize) -> Outcome {
    let deadline = match call.deadline_of_seconds(timeout_at) {
        Ok(deadline) => deadline,
        Err(error) => return call.fail(error),
    };
    match transfer(call, from, to) {
        Some(outcome) => outcome,
        None if !call.may_wait => null(call),
        None => {
            call.wait_for(Wait { kind: Type::List, keys: 1..2, deadline, on_removal: false, instead: None })
        }
    }
}

/// Moves an element from the list at argument 1 to that at argument 2. `None` if there is none.
fn transfer(call: &mut Call<'_, '_, '_>, from: End, to: End) -> Option<Outcome> {
    let (source, target) = (call.key(1), call.key(2));
    match kind_of(call, &source) {
        Found::Absent => return None,
        Found::Other => return Some(call.fail(errors::WRONG_TYPE)),
        Found::List => {}
    }
    if kind_of(call, &target) == Found::Other {
        return Some(call.fail(errors::WRONG_TYPE));
    }
    let limits = &call.settings.limits;
    let element = if source.bytes == target.bytes {
        let moved = call.txn.edit_list(call.db, &source, limits, |list| {
            let element = list.end(from).expect("a list that is there has elements").to_vec();
            list.rotate(from, to).map(|()| element)
        });
        match moved.map(|edited| edited.result) {
            Ok(Ok(element)) => element,
            _ => return Some(call.out_of_memory()),
        }
    } else {
        // It is pushed before it is taken: pushing may find no memory.
        let read = call
            .txn
            .edit_list(call.db, &source, limits, |list| list.end(from).map(|element| element.to_vec()));
        // There is no element if memory does not suffice for promoting the list.
        let Ok(Some(element)) = read.map(|edited| edited.result) else {
            return Some(call.out_of_memory());
        };
        let pushed =
            call.txn.edit_list(call.db, &target, limits, |list| list.push(to, std::iter::once(&element[..])));
        if !pushed.is_ok_and(|edited| edited.result.is_ok()) {
            return Some(call.out_of_memory());
        }
        let taken = call.txn.edit_list(call.db, &source, limits, |list| take_one(list, from));
        match taken {
            Ok(edited) if edited.result.is_ok() => element,
            _ => return Some(call.out_of_memory()),
        }
    };
    call.wrote(EventClass::List, push_event(to), &target, 1);
    call.event(EventClass::List, pop_event(from), &source);
    call.reply.bulk(&element);
    record(call, from, to);
    Some(Outcome::Done)
}

/// Records the form that does not wait: LMOVE for BLMOVE, RPOPLPUSH for BRPOPLPUSH.
fn record(call: &mut Call<'_, '_, '_>, from: End, to: End) {
    let args = call.args;
    match args.len() {
        // BLMOVE source target from to timeout
        6 => call.record(&[b"LMOVE", args.get(1), args.get(2), args.get(3), args.get(4)]),
        // BRPOPLPUSH source target timeout
        4 if (from, to) == (End::Back, End::Front) => call.record(&[b"RPOPLPUSH", args.get(1), args.get(2)]),
        _ => {}
    }
}
