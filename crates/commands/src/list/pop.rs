//! Elements leave at an end: LPOP RPOP LMPOP, and the immediate part of BLPOP BRPOP BLMPOP.

use crate::element::reply_element;
use crate::several::{Several, keys_behind};
use crate::spec::*;
use crate::{Call, Handler, Outcome};
use isotherm_keyspace::{EditError, End, EventClass, Key, ListEdit, Lookup, Type, Value};
use isotherm_resp::errors;
use isotherm_stdx::number::{I64_BYTES_MAX, write_i64};
use isotherm_stdx::parse_i64;
use std::ops::Range;

pub const LPOP: Command<Handler> = Command::new(
    Spec {
        name: "lpop",
        summary: "Takes elements from the front of a list and returns them; null for an absent key.",
        group: Group::List,
        complexity: "O(N), N the elements returned",
        arity: -2,
        flags: Flags::WRITE.or(Flags::FAST),
        acl: AclCategories::LIST,
        key_specs: &[KeySpec::one(1, KeyFlags::RW.or(KeyFlags::ACCESS).or(KeyFlags::DELETE))],
        history: &[("6.2.0", "New argument `count`.")],
        arguments: &[Argument::key("key", 0), Argument::integer("count").since("6.2.0").optional()],
        ..Spec::BASE
    },
    lpop,
);

fn lpop(call: &mut Call<'_, '_, '_>) -> Outcome {
    pop(call, End::Front, LPOP.spec.name)
}

pub const RPOP: Command<Handler> = Command::new(
    Spec {
        name: "rpop",
        summary: "Takes elements from the end of a list and returns them; null for an absent key.",
        group: Group::List,
        complexity: "O(N), N the elements returned",
        arity: -2,
        flags: Flags::WRITE.or(Flags::FAST),
        acl: AclCategories::LIST,
        key_specs: &[KeySpec::one(1, KeyFlags::RW.or(KeyFlags::ACCESS).or(KeyFlags::DELETE))],
        history: &[("6.2.0", "New argument `count`.")],
        arguments: &[Argument::key("key", 0), Argument::integer("count").since("6.2.0").optional()],
        ..Spec::BASE
    },
    rpop,
);

fn rpop(call: &mut Call<'_, '_, '_>) -> Outcome {
    pop(call, End::Back, RPOP.spec.name)
}

fn pop(call: &mut Call<'_, '_, '_>, end: End, name: &str) -> Outcome {
    let key = call.key(1);
    let count = match call.args.len() {
        2 => None,
        3 => match parse_i64(call.args.get(2)) {
            Some(count) if count >= 0 => Some(count as u64),
            _ => return call.fail(errors::MUST_BE_POSITIVE),
        },
        _ => return call.fail(errors::wrong_arity(name)),
    };
    match kind_of(call, &key) {
        Found::Absent if count.is_some() => call.reply.null_array(),
        Found::Absent => call.reply.null(),
        Found::Other => return call.fail(errors::WRONG_TYPE),
        Found::List if count == Some(0) => call.reply.array(0),
        Found::List => {
            let popped = match count {
                None => take(call, &key, end, 1, Shape::One),
                Some(count) => take(call, &key, end, count, Shape::Many),
            };
            if popped.is_err() {
                return call.out_of_memory();
            }
        }
    }
    Outcome::Done
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    Absent,
    List,
    Other,
}

pub(super) fn kind_of(call: &mut Call<'_, '_, '_>, key: &Key<'_>) -> Found {
    match call.txn.find(call.db, key, Lookup::Write).map(|entry| entry.value) {
        None => Found::Absent,
        Some(Value::List(_)) => Found::List,
        Some(_) => Found::Other,
    }
}

/// Form of the reply with popped elements.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    One,
    Many,
    /// The key, and one element.
    KeyAndOne,
    /// The key, and an array.
    KeyAndMany,
}

/// Pops up to `count` elements of a list that is there, and replies them. How many.
fn take(
    call: &mut Call<'_, '_, '_>,
    key: &Key<'_>,
    end: End,
    count: u64,
    shape: Shape,
) -> Result<u64, EditError> {
    let mark = call.reply.len();
    let reply = &mut *call.reply;
    let edited = call.txn.edit_list(call.db, key, &call.settings.limits, |list| {
        let count = count.min(list.len());
        match shape {
            Shape::One => {}
            Shape::Many => reply.array(count as usize),
            Shape::KeyAndOne | Shape::KeyAndMany => {
                reply.array(2);
                reply.bulk(key.bytes);
                if shape == Shape::KeyAndMany {
                    reply.array(count as usize);
                }
            }
        }
        if count == 1 {
            list.end(end).into_iter().for_each(|element| reply_element(reply, element));
        } else {
            let from = if end == End::Front { 0 } else { list.len() - 1 };
            list.iter(from, end).take(count as usize).for_each(|element| reply_element(reply, element));
        }
        list.remove(if end == End::Front { 0 } else { list.len() - count }, count).map(|()| count)
    });
    match edited.and_then(|edited| Ok(edited.result?)) {
        Ok(count) => {
            call.wrote(EventClass::List, pop_event(end), key, count);
            Ok(count)
        }
        Err(error) => {
            call.reply.truncate(mark);
            Err(error)
        }
    }
}

/// The event of elements that were popped.
pub(super) fn pop_event(end: End) -> &'static str {
    match end {
        End::Front => "lpop",
        End::Back => "rpop",
    }
}

/// Takes the element at an end of a list that has one.
pub(super) fn take_one(list: &mut ListEdit<'_, '_>, end: End) -> Result<Vec<u8>, EditError> {
    let element = list.end(end).expect("a list that is there has elements").to_vec();
    list.remove(if end == End::Front { 0 } else { list.len() - 1 }, 1)?;
    Ok(element)
}

fn pop_word(end: End) -> &'static [u8] {
    match end {
        End::Front => b"LPOP",
        End::Back => b"RPOP",
    }
}

pub const LMPOP: Command<Handler> = Command::new(
    Spec {
        name: "lmpop",
        summary: "Takes elements from the first list that has some and returns them with its key; null when all are empty.",
        since: "7.0.0",
        group: Group::List,
        complexity: "O(N+M), N the given keys, M the elements returned",
        arity: -4,
        flags: Flags::WRITE,
        acl: AclCategories::LIST,
        key_specs: &[keys_behind(1)],
        arguments: &[
            Argument::integer("numkeys"),
            Argument::key("key", 0).multiple(),
            Argument::one_of(
                "where",
                &[Argument::pure_token("left", "LEFT"), Argument::pure_token("right", "RIGHT")],
            ),
            Argument::integer("count").token("COUNT").optional(),
        ],
        ..Spec::BASE
    },
    lmpop,
);

fn lmpop(call: &mut Call<'_, '_, '_>) -> Outcome {
    let several = match Several::parse(call, 1, super::end) {
        Ok(several) => several,
        Err(error) => return call.fail(error),
    };
    pop_first(call, several.keys, several.end, Some(several.count)).unwrap_or_else(|| {
        call.reply.null_array();
        Outcome::Done
    })
}

pub const BLMPOP: Command<Handler> = Command::new(
    Spec {
        name: "blmpop",
        summary: "Takes elements from the first list that has some and returns them with its key. Waits while all lists are empty.",
        since: "7.0.0",
        group: Group::List,
        complexity: "O(N+M), N the given keys, M the elements returned",
        arity: -5,
        flags: Flags::WRITE.or(Flags::BLOCKING),
        acl: AclCategories::LIST,
        key_specs: &[keys_behind(2)],
        arguments: &[
            Argument::double("timeout"),
            Argument::integer("numkeys"),
            Argument::key("key", 0).multiple(),
            Argument::one_of(
                "where",
                &[Argument::pure_token("left", "LEFT"), Argument::pure_token("right", "RIGHT")],
            ),
            Argument::integer("count").token("COUNT").optional(),
        ],
        ..Spec::BASE
    },
    blmpop,
);

fn blmpop(call: &mut Call<'_, '_, '_>) -> Outcome {
    let several = match Several::parse(call, 2, super::end) {
        Ok(several) => several,
        Err(error) => return call.fail(error),
    };
    let deadline = match call.deadline_of_seconds(1) {
        Ok(deadline) => deadline,
        Err(error) => return call.fail(error),
    };
    pop_first(call, several.keys.clone(), several.end, Some(several.count))
        .unwrap_or_else(|| call.wait_for_one_of(Type::List, several.keys, deadline))
}

pub const BLPOP: Command<Handler> = Command::new(
    Spec {
        name: "blpop",
        summary: "Takes the first element of the first list that has one and returns it with the key. Waits while all lists are empty.",
        since: "2.0.0",
        group: Group::List,
        complexity: "O(N), N the given keys",
        arity: -3,
        flags: Flags::WRITE.or(Flags::BLOCKING),
        acl: AclCategories::LIST,
        key_specs: &[KeySpec::range(1, -2, 1, KeyFlags::RW.or(KeyFlags::ACCESS).or(KeyFlags::DELETE))],
        history: &[("6.0.0", "The `timeout` may have a fraction.")],
        arguments: &[Argument::key("key", 0).multiple(), Argument::double("timeout")],
        ..Spec::BASE
    },
    blpop,
);

fn blpop(call: &mut Call<'_, '_, '_>) -> Outcome {
    pop_or_block(call, End::Front)
}

pub const BRPOP: Command<Handler> = Command::new(
    Spec {
        name: "brpop",
        summary: "Takes the last element of the first list that has one and returns it with the key. Waits while all lists are empty.",
        since: "2.0.0",
        group: Group::List,
        complexity: "O(N), N the given keys",
        arity: -3,
        flags: Flags::WRITE.or(Flags::BLOCKING),
        acl: AclCategories::LIST,
        key_specs: &[KeySpec::range(1, -2, 1, KeyFlags::RW.or(KeyFlags::ACCESS).or(KeyFlags::DELETE))],
        history: &[("6.0.0", "The `timeout` may have a fraction.")],
        arguments: &[Argument::key("key", 0).multiple(), Argument::double("timeout")],
        ..Spec::BASE
    },
    brpop,
);

fn brpop(call: &mut Call<'_, '_, '_>) -> Outcome {
    pop_or_block(call, End::Back)
}

fn pop_or_block(call: &mut Call<'_, '_, '_>, end: End) -> Outcome {
    let timeout_at = call.args.len() - 1;
    let deadline = match call.deadline_of_seconds(timeout_at) {
        Ok(deadline) => deadline,
        Err(error) => return call.fail(error),
    };
    let keys = 1..timeout_at;
    pop_first(call, keys.clone(), end, None)
        .unwrap_or_else(|| call.wait_for_one_of(Type::List, keys, deadline))
}

/// Pops of the first of these keys that is there: one element, or up to a number of them. `None` if no key
/// is. Keys out of reach are as good as absent.
fn pop_first(
    call: &mut Call<'_, '_, '_>,
    keys: Range<usize>,
    end: End,
    count: Option<u64>,
) -> Option<Outcome> {
    for at in keys {
        let key = call.key(at);
        if !call.reaches(&key) {
            continue;
        }
        match kind_of(call, &key) {
            Found::Absent => continue,
            Found::Other => return Some(call.fail(errors::WRONG_TYPE)),
            Found::List => {}
        }
        let shape = if count.is_some() { Shape::KeyAndMany } else { Shape::KeyAndOne };
        let Ok(popped) = take(call, &key, end, count.unwrap_or(1), shape) else {
            return Some(call.out_of_memory());
        };
        let mut number = [0; I64_BYTES_MAX];
        let number = write_i64(popped as i64, &mut number);
        let words = [pop_word(end), key.bytes, number];
        call.record(if count.is_some() { &words } else { &words[..2] });
        return Some(Outcome::Done);
    }
    None
}
