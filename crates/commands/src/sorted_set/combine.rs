//! Several sorted sets, and sets, become one: ZUNION ZINTER ZDIFF, their STORE forms, ZINTERCARD.
//!
//! Sources are read one after another, each under its own lookup. A plain set counts as a sorted one whose
//! scores are all 1. Sums depend on the order in which they are made: sources come by size, those of equal
//! size as they are named, which is Valkey's order.

use super::reply::{write_members_head, write_scored};
use super::store::{Scored, store_members};
use crate::arguments::AGGREGATE;
use crate::call::is_word;
use crate::spec::*;
use crate::{Call, Handler, Outcome};
use isotherm_keyspace::{Element, Key, Lookup, TextRoom, Value};
use isotherm_resp::errors;
use isotherm_stdx::{parse_f64, parse_i64};
use std::collections::HashMap;

const WEIGHT_NOT_A_FLOAT: &str = "ERR weight value is not a float";
const LIMIT_NEGATIVE: &str = "ERR LIMIT can't be negative";

pub const ZUNION: Command<Handler> = Command::new(
    Spec {
        name: "zunion",
        summary: "Returns the members of all sorted sets together, with combined scores.",
        since: "6.2.0",
        group: Group::SortedSet,
        complexity: "O(N)+O(M*log(M)), N the members of all sorted sets, M those of the result",
        arity: -3,
        flags: Flags::READONLY,
        acl: AclCategories::SORTEDSET,
        key_specs: &[KeySpec {
            notes: "",
            flags: KeyFlags::RO.or(KeyFlags::ACCESS),
            begin: Begin::Index(1),
            find: Find::KeyNum { at: 0, first: 1, step: 1 },
        }],
        arguments: &[
            Argument::integer("numkeys"),
            Argument::key("key", 0).multiple(),
            Argument::integer("weight").token("WEIGHTS").optional().multiple(),
            AGGREGATE,
            Argument::pure_token("withscores", "WITHSCORES").optional(),
        ],
        ..Spec::BASE
    },
    zunion,
);

fn zunion(call: &mut Call<'_, '_, '_>) -> Outcome {
    combine(call, Operation::Union, Form::Reply, ZUNION.spec.name)
}

pub const ZINTER: Command<Handler> = Command::new(
    Spec {
        name: "zinter",
        summary: "Returns the members that all sorted sets have, with combined scores.",
        since: "6.2.0",
        group: Group::SortedSet,
        complexity: "O(N*K)+O(M*log(M)) at worst, N the members of the smallest sorted set, K the sorted sets, M the members of the result",
        arity: -3,
        flags: Flags::READONLY,
        acl: AclCategories::SORTEDSET,
        key_specs: &[KeySpec {
            notes: "",
            flags: KeyFlags::RO.or(KeyFlags::ACCESS),
            begin: Begin::Index(1),
            find: Find::KeyNum { at: 0, first: 1, step: 1 },
        }],
        arguments: &[
            Argument::integer("numkeys"),
            Argument::key("key", 0).multiple(),
            Argument::integer("weight").token("WEIGHTS").optional().multiple(),
            AGGREGATE,
            Argument::pure_token("withscores", "WITHSCORES").optional(),
        ],
        ..Spec::BASE
    },
    zinter,
);

fn zinter(call: &mut Call<'_, '_, '_>) -> Outcome {
    combine(call, Operation::Inter, Form::Reply, ZINTER.spec.name)
}

pub const ZDIFF: Command<Handler> = Command::new(
    Spec {
        name: "zdiff",
        summary: "Returns the members of the first sorted set that are in no other.",
        since: "6.2.0",
        group: Group::SortedSet,
        complexity: "O(L + (N-K)log(N)) at worst, L the members of all sets, N those of the first, K those of the result",
        arity: -3,
        flags: Flags::READONLY,
        acl: AclCategories::SORTEDSET,
        key_specs: &[KeySpec {
            notes: "",
            flags: KeyFlags::RO.or(KeyFlags::ACCESS),
            begin: Begin::Index(1),
            find: Find::KeyNum { at: 0, first: 1, step: 1 },
        }],
        arguments: &[
            Argument::integer("numkeys"),
            Argument::key("key", 0).multiple(),
            Argument::pure_token("withscores", "WITHSCORES").optional(),
        ],
        ..Spec::BASE
    },
    zdiff,
);

fn zdiff(call: &mut Call<'_, '_, '_>) -> Outcome {
    combine(call, Operation::Diff, Form::Reply, ZDIFF.spec.name)
}

pub const ZUNIONSTORE: Command<Handler> = Command::new(
    Spec {
        name: "zunionstore",
        summary: "Stores the members of all sorted sets together, with combined scores. Returns how many they are.",
        since: "2.0.0",
        group: Group::SortedSet,
        complexity: "O(N)+O(M*log(M)), N the members of all sorted sets, M those of the result",
        arity: -4,
        flags: Flags::WRITE.or(Flags::DENYOOM),
        acl: AclCategories::SORTEDSET,
        key_specs: &[
            KeySpec::one(1, KeyFlags::OW.or(KeyFlags::UPDATE)),
            KeySpec {
                notes: "",
                flags: KeyFlags::RO.or(KeyFlags::ACCESS),
                begin: Begin::Index(2),
                find: Find::KeyNum { at: 0, first: 1, step: 1 },
            },
        ],
        arguments: &[
            Argument::key("destination", 0),
            Argument::integer("numkeys"),
            Argument::key("key", 1).multiple(),
            Argument::integer("weight").token("WEIGHTS").optional().multiple(),
            AGGREGATE,
        ],
        ..Spec::BASE
    },
    zunionstore,
);

fn zunionstore(call: &mut Call<'_, '_, '_>) -> Outcome {
    combine(call, Operation::Union, Form::Store, ZUNIONSTORE.spec.name)
}

pub const ZINTERSTORE: Command<Handler> = Command::new(
    Spec {
        name: "zinterstore",
        summary: "Stores the members that all sorted sets have, with combined scores. Returns how many they are.",
        since: "2.0.0",
        group: Group::SortedSet,
        complexity: "O(N*K)+O(M*log(M)) at worst, N the members of the smallest sorted set, K the sorted sets, M the members of the result",
        arity: -4,
        flags: Flags::WRITE.or(Flags::DENYOOM),
        acl: AclCategories::SORTEDSET,
        key_specs: &[
            KeySpec::one(1, KeyFlags::OW.or(KeyFlags::UPDATE)),
            KeySpec {
                notes: "",
                flags: KeyFlags::RO.or(KeyFlags::ACCESS),
                begin: Begin::Index(2),
                find: Find::KeyNum { at: 0, first: 1, step: 1 },
            },
        ],
        arguments: &[
            Argument::key("destination", 0),
            Argument::integer("numkeys"),
            Argument::key("key", 1).multiple(),
            Argument::integer("weight").token("WEIGHTS").optional().multiple(),
            AGGREGATE,
        ],
        ..Spec::BASE
    },
    zinterstore,
);

fn zinterstore(call: &mut Call<'_, '_, '_>) -> Outcome {
    combine(call, Operation::Inter, Form::Store, ZINTERSTORE.spec.name)
}

pub const ZDIFFSTORE: Command<Handler> = Command::new(
    Spec {
        name: "zdiffstore",
        summary: "Stores the members of the first sorted set that are in no other. Returns how many they are.",
        since: "6.2.0",
        group: Group::SortedSet,
        complexity: "O(L + (N-K)log(N)) at worst, L the members of all sets, N those of the first, K those of the result",
        arity: -4,
        flags: Flags::WRITE.or(Flags::DENYOOM),
        acl: AclCategories::SORTEDSET,
        key_specs: &[
            KeySpec::one(1, KeyFlags::OW.or(KeyFlags::UPDATE)),
            KeySpec {
                notes: "",
                flags: KeyFlags::RO.or(KeyFlags::ACCESS),
                begin: Begin::Index(2),
                find: Find::KeyNum { at: 0, first: 1, step: 1 },
            },
        ],
        arguments: &[
            Argument::key("destination", 0),
            Argument::integer("numkeys"),
            Argument::key("key", 1).multiple(),
        ],
        ..Spec::BASE
    },
    zdiffstore,
);

fn zdiffstore(call: &mut Call<'_, '_, '_>) -> Outcome {
    combine(call, Operation::Diff, Form::Store, ZDIFFSTORE.spec.name)
}

pub const ZINTERCARD: Command<Handler> = Command::new(
    Spec {
        name: "zintercard",
        summary: "Returns how many members all sorted sets have in common, up to a limit.",
        since: "7.0.0",
        group: Group::SortedSet,
        complexity: "O(N*K) at worst, N the members of the smallest sorted set, K the sorted sets",
        arity: -3,
        flags: Flags::READONLY,
        acl: AclCategories::SORTEDSET,
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
    zintercard,
);

fn zintercard(call: &mut Call<'_, '_, '_>) -> Outcome {
    combine(call, Operation::Inter, Form::Count, ZINTERCARD.spec.name)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Operation {
    Union,
    Inter,
    Diff,
}

/// Use of the result.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Reply,
    Store,
    Count,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Aggregate {
    Sum,
    Min,
    Max,
}

impl Aggregate {
    fn of(self, score: f64, other: f64) -> f64 {
        match self {
            // Infinities of both signs cancel.
            Aggregate::Sum => number(score + other),
            Aggregate::Min if other < score => other,
            Aggregate::Max if other > score => other,
            Aggregate::Min | Aggregate::Max => score,
        }
    }
}

/// A score, or 0 if it is none.
fn number(score: f64) -> f64 {
    if score.is_nan() { 0.0 } else { score }
}

struct Source<'c> {
    key: Key<'c>,
    len: u64,
    weight: f64,
}

struct Options {
    aggregate: Aggregate,
    with_scores: bool,
    /// 0: none.
    limit: u64,
}

fn combine(call: &mut Call<'_, '_, '_>, operation: Operation, form: Form, name: &str) -> Outcome {
    let count_at = if form == Form::Store { 2 } else { 1 };
    let args = call.args;
    let Some(count) = parse_i64(args.get(count_at)) else {
        return call.fail(errors::NOT_AN_INTEGER);
    };
    if count < 1 {
        return call.fail(format!("ERR at least 1 input key is needed for '{name}' command"));
    }
    let keys_at = count_at + 1;
    if count > (args.len() - keys_at) as i64 {
        return call.fail(errors::SYNTAX);
    }
    let options_at = keys_at + count as usize;
    if form == Form::Store {
        call.txn.read_first();
    }
    let mut sources = match look_up(call, keys_at..options_at) {
        Ok(sources) => sources,
        Err(error) => return call.fail(error),
    };
    let options = match parse_options(call, options_at, operation, form, &mut sources) {
        Ok(options) => options,
        Err(error) => return call.fail(error),
    };
    if operation != Operation::Diff {
        sources.sort_by_key(|source| source.len);
    }
    let mut members = match operation {
        Operation::Union => union(call, &sources, options.aggregate),
        Operation::Inter => inter(call, &sources, options.aggregate),
        Operation::Diff => diff(call, &sources),
    };
    if form == Form::Count {
        let count = members.len() as u64;
        let shown = if options.limit == 0 { count } else { count.min(options.limit) };
        call.reply.integer(shown as i64);
        return Outcome::Done;
    }
    members
        .sort_unstable_by(|a, b| a.1.partial_cmp(&b.1).expect("no score is NaN").then_with(|| a.0.cmp(&b.0)));
    if form == Form::Store {
        let target = call.key(1);
        let event = match operation {
            Operation::Union => "zunionstore",
            Operation::Inter => "zinterstore",
            Operation::Diff => "zdiffstore",
        };
        return store_members(call, &target, &members, event, 1);
    }
    write_members_head(call.reply, members.len(), options.with_scores);
    for (member, score) in &members {
        write_scored(call.reply, Element::Bytes(member), options.with_scores.then_some(*score));
    }
    Outcome::Done
}

/// Looks every source up, once, in the order in which they are named.
fn look_up<'c>(
    call: &mut Call<'c, '_, '_>,
    keys: std::ops::Range<usize>,
) -> Result<Vec<Source<'c>>, &'static str> {
    let mut sources = Vec::with_capacity(keys.len());
    for at in keys {
        let key = call.key(at);
        let len = match call.txn.find(call.db, &key, Lookup::Read).map(|entry| entry.value) {
            Some(Value::Zset(view)) => view.len(),
            Some(Value::Set(view)) => view.len(),
            Some(_) => return Err(errors::WRONG_TYPE),
            None => 0,
        };
        sources.push(Source { key, len, weight: 1.0 });
    }
    Ok(sources)
}

fn parse_options(
    call: &Call<'_, '_, '_>,
    mut at: usize,
    operation: Operation,
    form: Form,
    sources: &mut [Source<'_>],
) -> Result<Options, &'static str> {
    let args = call.args;
    let mut options = Options { aggregate: Aggregate::Sum, with_scores: false, limit: 0 };
    let weighs = operation != Operation::Diff && form != Form::Count;
    while let Some(word) = args.try_get(at) {
        let left = args.len() - at;
        at += 1;
        if weighs && left > sources.len() && is_word(word, "WEIGHTS") {
            for source in sources.iter_mut() {
                source.weight = parse_f64(args.get(at)).ok_or(WEIGHT_NOT_A_FLOAT)?;
                at += 1;
            }
        } else if weighs && left >= 2 && is_word(word, "AGGREGATE") {
            options.aggregate = match args.get(at) {
                word if is_word(word, "SUM") => Aggregate::Sum,
                word if is_word(word, "MIN") => Aggregate::Min,
                word if is_word(word, "MAX") => Aggregate::Max,
                _ => return Err(errors::SYNTAX),
            };
            at += 1;
        } else if form == Form::Reply && is_word(word, "WITHSCORES") {
            options.with_scores = true;
        } else if form == Form::Count && left >= 2 && is_word(word, "LIMIT") {
            let limit = parse_i64(args.get(at)).and_then(|limit| u64::try_from(limit).ok());
            options.limit = limit.ok_or(LIMIT_NEGATIVE)?;
            at += 1;
        } else {
            return Err(errors::SYNTAX);
        }
    }
    Ok(options)
}

/// Calls `visit` with every member of a source.
fn for_each(call: &mut Call<'_, '_, '_>, source: &Source<'_>, mut visit: impl FnMut(&[u8], f64)) {
    let mut room = TextRoom::default();
    match call.txn.find(call.db, &source.key, Lookup::Silent).map(|entry| entry.value) {
        Some(Value::Zset(view)) => {
            view.for_each(0, view.len(), true, |member, score| visit(member.text(&mut room), score));
        }
        Some(Value::Set(view)) => view.for_each(|member| visit(member.text(&mut room), 1.0)),
        _ => {}
    }
}

/// Gives `with` a way to ask a source for scores.
fn ask<R>(
    call: &mut Call<'_, '_, '_>,
    source: &Source<'_>,
    with: impl FnOnce(&dyn Fn(&[u8]) -> Option<f64>) -> R,
) -> R {
    match call.txn.find(call.db, &source.key, Lookup::Silent).map(|entry| entry.value) {
        Some(Value::Zset(view)) => with(&|member| view.score(member)),
        Some(Value::Set(view)) => with(&|member| view.contains(member).then_some(1.0)),
        _ => with(&|_| None),
    }
}

fn union(call: &mut Call<'_, '_, '_>, sources: &[Source<'_>], aggregate: Aggregate) -> Vec<Scored> {
    let mut scores: HashMap<Vec<u8>, f64> = HashMap::new();
    for source in sources {
        for_each(call, source, |member, score| {
            let score = number(source.weight * score);
            match scores.get_mut(member) {
                Some(sum) => *sum = aggregate.of(*sum, score),
                None => {
                    scores.insert(member.to_vec(), score);
                }
            }
        });
    }
    scores.into_iter().collect()
}

fn inter(call: &mut Call<'_, '_, '_>, sources: &[Source<'_>], aggregate: Aggregate) -> Vec<Scored> {
    let [smallest, others @ ..] = sources else { return Vec::new() };
    let mut members: Vec<Scored> = Vec::new();
    for_each(call, smallest, |member, score| {
        members.push((member.to_vec(), number(smallest.weight * score)))
    });
    for source in others {
        ask(call, source, |score_of| {
            members.retain_mut(|(member, sum)| match score_of(member) {
                Some(score) => {
                    *sum = aggregate.of(*sum, source.weight * score);
                    true
                }
                None => false,
            });
        });
    }
    members
}

fn diff(call: &mut Call<'_, '_, '_>, sources: &[Source<'_>]) -> Vec<Scored> {
    let [first, others @ ..] = sources else { return Vec::new() };
    let mut members: Vec<Scored> = Vec::new();
    for_each(call, first, |member, score| members.push((member.to_vec(), score)));
    for source in others {
        ask(call, source, |score_of| members.retain(|(member, _)| score_of(member).is_none()));
    }
    members
}
