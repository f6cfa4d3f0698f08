//! Several sets at once: SINTER SINTERCARD SINTERSTORE SUNION SUNIONSTORE SDIFF SDIFFSTORE.
//!
//! Only one key can be looked at at a time, so members are copied out of one set and asked for in the others.

use super::{done, finished, or_fail, set, union};
use crate::call::is_word;
use crate::spec::*;
use crate::{Call, Handler, Outcome};
use isotherm_keyspace::{Encoding, EventClass, Full, Key, Lookup};
use isotherm_resp::errors;
use isotherm_stdx::parse_i64;
use std::collections::HashSet;
use std::ops::Range;

type Members = Vec<Vec<u8>>;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Operation {
    Inter,
    Union,
    Diff,
}

/// The sets of a command: how many members each has, if it is there, and which argument names it.
struct Operands {
    sets: Vec<(Option<u64>, usize)>,
    all_ints: bool,
}

impl Operands {
    /// Types and lengths first: an error comes before anything else.
    fn of(call: &mut Call<'_, '_, '_>, keys: Range<usize>) -> Result<Operands, &'static str> {
        let mut operands = Operands { sets: Vec::with_capacity(keys.len()), all_ints: true };
        for at in keys {
            let key = call.key(at);
            let found = set(call.txn.find(call.db, &key, Lookup::Read))?;
            operands.all_ints &= found.is_none_or(|view| view.encoding() == Encoding::Intset);
            let len = found.map(|view| view.len());
            operands.sets.push((len, at));
        }
        Ok(operands)
    }

    /// Calls `visit` with members that all sets have, some at a time, until it has enough: goes through the
    /// smallest set and asks the others.
    fn for_each_common(mut self, call: &mut Call<'_, '_, '_>, mut visit: impl FnMut(Members) -> bool) {
        const MEMBERS_AT_ONCE: u64 = 100;
        self.sets.sort();
        let (Some(_), smallest) = self.sets[0] else { return };
        let mut cursor = 0;
        loop {
            let key = call.key(smallest);
            let mut some = Members::new();
            if let Ok(Some(view)) = set(call.txn.find(call.db, &key, Lookup::Silent)) {
                cursor = view.scan(cursor, MEMBERS_AT_ONCE, |member| some.push(member.to_vec()));
            }
            let some = keep(call, some, self.sets[1..].iter().map(|(_, at)| *at), true);
            if !visit(some) || cursor == 0 {
                return;
            }
        }
    }
}

/// The members of the result; the keys are the arguments `keys`.
fn compute(
    call: &mut Call<'_, '_, '_>,
    operands: Operands,
    keys: Range<usize>,
    operation: Operation,
) -> Members {
    let all_ints = operands.all_ints;
    let mut members = match operation {
        Operation::Inter => {
            let mut members = Members::new();
            operands.for_each_common(call, |some| {
                members.extend(some);
                true
            });
            members
        }
        Operation::Diff => {
            let members = copy_of(call, keys.start);
            keep(call, members, keys.start + 1..keys.end, false)
        }
        Operation::Union => {
            let mut seen = HashSet::new();
            let mut members = Vec::new();
            for at in keys {
                for member in copy_of(call, at) {
                    if seen.insert(member.clone()) {
                        members.push(member);
                    }
                }
            }
            members
        }
    };
    if all_ints && operation != Operation::Inter {
        members.sort_by_cached_key(|member| parse_i64(member));
    }
    members
}

fn copy_of(call: &mut Call<'_, '_, '_>, at: usize) -> Members {
    let key = call.key(at);
    let mut members = Vec::new();
    if let Ok(Some(view)) = set(call.txn.find(call.db, &key, Lookup::Silent)) {
        view.for_each(|member| members.push(member.to_vec()));
    }
    members
}

/// Returns the members that are in the other sets too, or in none of them, by `present`.
fn keep(
    call: &mut Call<'_, '_, '_>,
    mut members: Members,
    others: impl Iterator<Item = usize>,
    present: bool,
) -> Members {
    for at in others {
        let key = call.key(at);
        let found = call.txn.find(call.db, &key, Lookup::Silent);
        if let Ok(Some(view)) = set(found) {
            members.retain(|member| view.contains(member) == present);
        }
    }
    members
}

fn reply_members(call: &mut Call<'_, '_, '_>, operation: Operation) -> Outcome {
    let keys = 1..call.args.len();
    let operands = or_fail!(call, Operands::of(call, keys.clone()));
    let members = compute(call, operands, keys, operation);
    call.reply.set(members.len());
    members.iter().for_each(|member| call.reply.bulk(member));
    done()
}

/// Stores the result under the first key, whatever was there.
fn store(call: &mut Call<'_, '_, '_>, operation: Operation, event: &'static str) -> Outcome {
    call.txn.read_first();
    let keys = 2..call.args.len();
    let operands = or_fail!(call, Operands::of(call, keys.clone()));
    let is_union = operation == Operation::Union;
    let large = if is_union { union::large(call, &operands.sets, keys.clone()) } else { None };
    let members = match large {
        Some(_) => Members::new(),
        None => compute(call, operands, keys, operation),
    };
    if !call.txn.begin_changes() {
        // Sets that could not be shown are read, and the command runs again.
        return call.out_of_memory();
    }
    let target = call.key(1);
    let (existed, len) = match large {
        Some(large) => union::make(call, large),
        None => (call.txn.clear(call.db, &target), put(call, &target, &members)),
    };
    match len {
        Err(_) => return call.result_is_cut_short(&target, existed),
        Ok(0) => call.result_is_empty(&target, existed),
        Ok(_) => call.wrote(EventClass::Set, event, &target, 1),
    }
    call.reply.integer(len.map_or(0, |len| len as i64));
    done()
}

/// Stores members under a key that is absent. Returns how many they are.
fn put(call: &mut Call<'_, '_, '_>, target: &Key<'_>, members: &Members) -> Result<u64, Full> {
    if members.is_empty() {
        return Ok(0);
    }
    let edited = call.txn.edit_set(call.db, target, &call.settings.limits, |edit| {
        edit.begin_ints();
        for member in members {
            edit.add(member)?;
        }
        Ok::<_, Full>(())
    });
    finished(edited).map_or(Err(Full), |()| Ok(members.len() as u64))
}

pub const SINTER: Command<Handler> = Command::new(
    Spec {
        name: "sinter",
        summary: "Returns the members that all sets have; empty when a key is absent.",
        group: Group::Set,
        complexity: "O(N*M) at worst, N the members of the smallest set, M the sets",
        arity: -2,
        flags: Flags::READONLY,
        acl: AclCategories::SET,
        key_specs: &[KeySpec::range(1, -1, 1, KeyFlags::RO.or(KeyFlags::ACCESS))],
        tips: &["nondeterministic_output_order"],
        arguments: &[Argument::key("key", 0).multiple()],
        ..Spec::BASE
    },
    sinter,
);

fn sinter(call: &mut Call<'_, '_, '_>) -> Outcome {
    reply_members(call, Operation::Inter)
}

pub const SINTERCARD: Command<Handler> = Command::new(
    Spec {
        name: "sintercard",
        summary: "Returns how many members all sets have in common, up to a limit.",
        since: "7.0.0",
        group: Group::Set,
        complexity: "O(N*M) at worst, N the members of the smallest set, M the sets",
        arity: -3,
        flags: Flags::READONLY,
        acl: AclCategories::SET,
        key_specs: &[KeySpec {
            notes: "",
            flags: KeyFlags::RO.or(KeyFlags::ACCESS),
            begin: Begin::Index(1),
            find: Find::KeyNum { at: 0, first: 1, step: 1 },
        }],
        arguments: &[
            Argument::integer("numkeys"),
            Argument::key("key", 0).multiple(),
            Argument::integer("limit").token("LIMIT").optional(),
        ],
        ..Spec::BASE
    },
    sintercard,
);

fn sintercard(call: &mut Call<'_, '_, '_>) -> Outcome {
    let args = call.args;
    let count = parse_i64(args.get(1)).and_then(|count| usize::try_from(count).ok()).filter(|n| *n > 0);
    let Some(count) = count else { return call.fail("ERR numkeys should be greater than 0") };
    if count > args.len() - 2 {
        return call.fail("ERR Number of keys can't be greater than number of args");
    }
    let (mut at, mut limit) = (2 + count, 0);
    while at < args.len() {
        let next = args.try_get(at + 1).filter(|_| is_word(args.get(at), "LIMIT"));
        let Some(next) = next else { return call.fail(errors::SYNTAX) };
        let Some(number) = parse_i64(next).filter(|number| *number >= 0) else {
            return call.fail("ERR LIMIT can't be negative");
        };
        limit = number;
        at += 2;
    }
    let operands = or_fail!(call, Operands::of(call, 2..2 + count));
    let most = if limit > 0 { limit } else { i64::MAX };
    let mut found = 0;
    operands.for_each_common(call, |some| {
        found += some.len() as i64;
        found < most
    });
    call.reply.integer(found.min(most));
    done()
}

pub const SINTERSTORE: Command<Handler> = Command::new(
    Spec {
        name: "sinterstore",
        summary: "Stores the members that all sets have. Returns how many they are.",
        group: Group::Set,
        complexity: "O(N*M) at worst, N the members of the smallest set, M the sets",
        arity: -3,
        flags: Flags::WRITE.or(Flags::DENYOOM),
        acl: AclCategories::SET,
        key_specs: &[
            KeySpec::one(1, KeyFlags::OW.or(KeyFlags::UPDATE)),
            KeySpec::range(2, -1, 1, KeyFlags::RO.or(KeyFlags::ACCESS)),
        ],
        arguments: &[Argument::key("destination", 0), Argument::key("key", 1).multiple()],
        ..Spec::BASE
    },
    sinterstore,
);

fn sinterstore(call: &mut Call<'_, '_, '_>) -> Outcome {
    store(call, Operation::Inter, "sinterstore")
}

pub const SUNION: Command<Handler> = Command::new(
    Spec {
        name: "sunion",
        summary: "Returns the members of all sets together.",
        group: Group::Set,
        complexity: "O(N), N the members of all sets",
        arity: -2,
        flags: Flags::READONLY,
        acl: AclCategories::SET,
        key_specs: &[KeySpec::range(1, -1, 1, KeyFlags::RO.or(KeyFlags::ACCESS))],
        tips: &["nondeterministic_output_order"],
        arguments: &[Argument::key("key", 0).multiple()],
        ..Spec::BASE
    },
    sunion,
);

fn sunion(call: &mut Call<'_, '_, '_>) -> Outcome {
    reply_members(call, Operation::Union)
}

pub const SUNIONSTORE: Command<Handler> = Command::new(
    Spec {
        name: "sunionstore",
        summary: "Stores the members of all sets together. Returns how many they are.",
        group: Group::Set,
        complexity: "O(N), N the members of all sets",
        arity: -3,
        flags: Flags::WRITE.or(Flags::DENYOOM),
        acl: AclCategories::SET,
        key_specs: &[
            KeySpec::one(1, KeyFlags::OW.or(KeyFlags::UPDATE)),
            KeySpec::range(2, -1, 1, KeyFlags::RO.or(KeyFlags::ACCESS)),
        ],
        arguments: &[Argument::key("destination", 0), Argument::key("key", 1).multiple()],
        ..Spec::BASE
    },
    sunionstore,
);

fn sunionstore(call: &mut Call<'_, '_, '_>) -> Outcome {
    store(call, Operation::Union, "sunionstore")
}

pub const SDIFF: Command<Handler> = Command::new(
    Spec {
        name: "sdiff",
        summary: "Returns the members of the first set that are in no other.",
        group: Group::Set,
        complexity: "O(N), N the members of all sets",
        arity: -2,
        flags: Flags::READONLY,
        acl: AclCategories::SET,
        key_specs: &[KeySpec::range(1, -1, 1, KeyFlags::RO.or(KeyFlags::ACCESS))],
        tips: &["nondeterministic_output_order"],
        arguments: &[Argument::key("key", 0).multiple()],
        ..Spec::BASE
    },
    sdiff,
);

fn sdiff(call: &mut Call<'_, '_, '_>) -> Outcome {
    reply_members(call, Operation::Diff)
}

pub const SDIFFSTORE: Command<Handler> = Command::new(
    Spec {
        name: "sdiffstore",
        summary: "Stores the members of the first set that are in no other. Returns how many they are.",
        group: Group::Set,
        complexity: "O(N), N the members of all sets",
        arity: -3,
        flags: Flags::WRITE.or(Flags::DENYOOM),
        acl: AclCategories::SET,
        key_specs: &[
            KeySpec::one(1, KeyFlags::OW.or(KeyFlags::UPDATE)),
            KeySpec::range(2, -1, 1, KeyFlags::RO.or(KeyFlags::ACCESS)),
        ],
        arguments: &[Argument::key("destination", 0), Argument::key("key", 1).multiple()],
        ..Spec::BASE
    },
    sdiffstore,
);

fn sdiffstore(call: &mut Call<'_, '_, '_>) -> Outcome {
    store(call, Operation::Diff, "sdiffstore")
}
