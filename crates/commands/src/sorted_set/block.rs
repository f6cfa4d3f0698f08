//! Members leave from one end, and a client that finds none waits: BZPOPMIN BZPOPMAX BZMPOP.

use super::pop::{End, Shape, pop_first};
use crate::several::{Several, keys_behind};
use crate::spec::*;
use crate::{Call, Handler, Outcome};
use isotherm_keyspace::Type;

pub const BZPOPMIN: Command<Handler> = Command::new(
    Spec {
        name: "bzpopmin",
        summary: "Takes the member with the lowest score of the first sorted set that has one. Waits while all are empty.",
        since: "5.0.0",
        group: Group::SortedSet,
        complexity: "O(log N), N the size of the sorted set",
        arity: -3,
        flags: Flags::WRITE.or(Flags::FAST).or(Flags::BLOCKING),
        acl: AclCategories::SORTEDSET,
        key_specs: &[KeySpec::range(1, -2, 1, KeyFlags::RW.or(KeyFlags::ACCESS).or(KeyFlags::DELETE))],
        history: &[("6.0.0", "The `timeout` may have a fraction.")],
        arguments: &[Argument::key("key", 0).multiple(), Argument::double("timeout")],
        ..Spec::BASE
    },
    bzpopmin,
);

fn bzpopmin(call: &mut Call<'_, '_, '_>) -> Outcome {
    pop_one(call, End::Min)
}

pub const BZPOPMAX: Command<Handler> = Command::new(
    Spec {
        name: "bzpopmax",
        summary: "Takes the member with the highest score of the first sorted set that has one. Waits while all are empty.",
        since: "5.0.0",
        group: Group::SortedSet,
        complexity: "O(log N), N the size of the sorted set",
        arity: -3,
        flags: Flags::WRITE.or(Flags::FAST).or(Flags::BLOCKING),
        acl: AclCategories::SORTEDSET,
        key_specs: &[KeySpec::range(1, -2, 1, KeyFlags::RW.or(KeyFlags::ACCESS).or(KeyFlags::DELETE))],
        history: &[("6.0.0", "The `timeout` may have a fraction.")],
        arguments: &[Argument::key("key", 0).multiple(), Argument::double("timeout")],
        ..Spec::BASE
    },
    bzpopmax,
);

fn bzpopmax(call: &mut Call<'_, '_, '_>) -> Outcome {
    pop_one(call, End::Max)
}

fn pop_one(call: &mut Call<'_, '_, '_>, end: End) -> Outcome {
    let timeout_at = call.args.len() - 1;
    let deadline = match call.deadline_of_seconds(timeout_at) {
        Ok(deadline) => deadline,
        Err(error) => return call.fail(error),
    };
    let keys = 1..timeout_at;
    pop_first(call, keys.clone(), end, 1, Shape::Flat)
        .unwrap_or_else(|| call.wait_for_one_of(Type::Zset, keys, deadline))
}

pub const BZMPOP: Command<Handler> = Command::new(
    Spec {
        name: "bzmpop",
        summary: "Takes members with the lowest or highest scores from the first sorted set that has some. Waits while all are empty.",
        since: "7.0.0",
        group: Group::SortedSet,
        complexity: "O(K) + O(M*log(N)), K the given keys, N the size of the sorted set, M the members taken",
        arity: -5,
        flags: Flags::WRITE.or(Flags::BLOCKING),
        acl: AclCategories::SORTEDSET,
        key_specs: &[keys_behind(2)],
        arguments: &[
            Argument::double("timeout"),
            Argument::integer("numkeys"),
            Argument::key("key", 0).multiple(),
            Argument::one_of(
                "where",
                &[Argument::pure_token("min", "MIN"), Argument::pure_token("max", "MAX")],
            ),
            Argument::integer("count").token("COUNT").optional(),
        ],
        ..Spec::BASE
    },
    bzmpop,
);

fn bzmpop(call: &mut Call<'_, '_, '_>) -> Outcome {
    let several = match Several::parse(call, 2, End::of_word) {
        Ok(several) => several,
        Err(error) => return call.fail(error),
    };
    let deadline = match call.deadline_of_seconds(1) {
        Ok(deadline) => deadline,
        Err(error) => return call.fail(error),
    };
    pop_first(call, several.keys.clone(), several.end, several.count, Shape::Nested)
        .unwrap_or_else(|| call.wait_for_one_of(Type::Zset, several.keys, deadline))
}
