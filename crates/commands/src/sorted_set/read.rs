//! Commands that read a member or a count: ZCARD ZSCORE ZMSCORE ZRANK ZREVRANK ZCOUNT ZLEXCOUNT.

use super::bound::{Between, NOT_A_LEX_RANGE, NOT_A_SCORE_RANGE};
use crate::call::is_word;
use crate::spec::*;
use crate::{Call, Handler, Outcome};
use isotherm_keyspace::{Key, Lookup, Value, ZsetView};
use isotherm_resp::{Reply, errors};

/// Reads the sorted set at argument 1: `answer` replies from it, `absent` if the key is not there.
pub(crate) fn read_zset(
    call: &mut Call<'_, '_, '_>,
    absent: impl FnOnce(&mut Reply),
    answer: impl FnOnce(&mut Reply, ZsetView<'_>),
) -> Outcome {
    let key: Key<'_> = call.key(1);
    match call.txn.find(call.db, &key, Lookup::Read).map(|entry| entry.value) {
        Some(Value::Zset(view)) => answer(call.reply, view),
        Some(_) => call.reply.error(errors::WRONG_TYPE),
        None => {
            absent(call.reply);
        }
    }
    Outcome::Done
}

pub const ZCARD: Command<Handler> = Command::new(
    Spec {
        name: "zcard",
        summary: "Returns how many members a sorted set has; 0 for an absent key.",
        since: "1.2.0",
        group: Group::SortedSet,
        complexity: "O(1)",
        arity: 2,
        flags: Flags::READONLY.or(Flags::FAST),
        acl: AclCategories::SORTEDSET,
        key_specs: &[KeySpec::one(1, KeyFlags::RO)],
        arguments: &[Argument::key("key", 0)],
        ..Spec::BASE
    },
    zcard,
);

fn zcard(call: &mut Call<'_, '_, '_>) -> Outcome {
    read_zset(call, |reply| reply.integer(0), |reply, view| reply.integer(view.len() as i64))
}

pub const ZSCORE: Command<Handler> = Command::new(
    Spec {
        name: "zscore",
        summary: "Returns the score of a member; null for an absent one.",
        since: "1.2.0",
        group: Group::SortedSet,
        complexity: "O(1)",
        arity: 3,
        flags: Flags::READONLY.or(Flags::FAST),
        acl: AclCategories::SORTEDSET,
        key_specs: &[KeySpec::one(1, KeyFlags::RO.or(KeyFlags::ACCESS))],
        arguments: &[Argument::key("key", 0), Argument::string("member")],
        ..Spec::BASE
    },
    zscore,
);

fn zscore(call: &mut Call<'_, '_, '_>) -> Outcome {
    let member = call.args.get(2);
    read_zset(call, Reply::null, |reply, view| write_score(reply, view.score(member)))
}

fn write_score(reply: &mut Reply, score: Option<f64>) {
    match score {
        Some(score) => reply.double(score),
        None => reply.null(),
    }
}

pub const ZMSCORE: Command<Handler> = Command::new(
    Spec {
        name: "zmscore",
        summary: "Returns the scores of the given members; null for absent ones.",
        since: "6.2.0",
        group: Group::SortedSet,
        complexity: "O(N), N the given members",
        arity: -3,
        flags: Flags::READONLY.or(Flags::FAST),
        acl: AclCategories::SORTEDSET,
        key_specs: &[KeySpec::one(1, KeyFlags::RO.or(KeyFlags::ACCESS))],
        arguments: &[Argument::key("key", 0), Argument::string("member").multiple()],
        ..Spec::BASE
    },
    zmscore,
);

fn zmscore(call: &mut Call<'_, '_, '_>) -> Outcome {
    let members = call.args.from(2);
    let absent = |reply: &mut Reply| {
        reply.array(members.len());
        members.iter().for_each(|_| reply.null());
    };
    read_zset(call, absent, |reply, view| {
        reply.array(members.len());
        members.iter().for_each(|member| write_score(reply, view.score(member)));
    })
}

pub const ZRANK: Command<Handler> = Command::new(
    Spec {
        name: "zrank",
        summary: "Returns how many members come before one, lowest score first; null for an absent one.",
        since: "2.0.0",
        group: Group::SortedSet,
        complexity: "O(log(N))",
        arity: -3,
        flags: Flags::READONLY.or(Flags::FAST),
        acl: AclCategories::SORTEDSET,
        key_specs: &[KeySpec::one(1, KeyFlags::RO.or(KeyFlags::ACCESS))],
        history: &[("7.2.0", "New option `WITHSCORE`.")],
        arguments: &[
            Argument::key("key", 0),
            Argument::string("member"),
            Argument::pure_token("withscore", "WITHSCORE").optional(),
        ],
        ..Spec::BASE
    },
    zrank,
);

fn zrank(call: &mut Call<'_, '_, '_>) -> Outcome {
    rank(call, ZRANK.spec.name, false)
}

pub const ZREVRANK: Command<Handler> = Command::new(
    Spec {
        name: "zrevrank",
        summary: "Returns how many members come before one, highest score first; null for an absent one.",
        since: "2.0.0",
        group: Group::SortedSet,
        complexity: "O(log(N))",
        arity: -3,
        flags: Flags::READONLY.or(Flags::FAST),
        acl: AclCategories::SORTEDSET,
        key_specs: &[KeySpec::one(1, KeyFlags::RO.or(KeyFlags::ACCESS))],
        history: &[("7.2.0", "New option `WITHSCORE`.")],
        arguments: &[
            Argument::key("key", 0),
            Argument::string("member"),
            Argument::pure_token("withscore", "WITHSCORE").optional(),
        ],
        ..Spec::BASE
    },
    zrevrank,
);

fn zrevrank(call: &mut Call<'_, '_, '_>) -> Outcome {
    rank(call, ZREVRANK.spec.name, true)
}

fn rank(call: &mut Call<'_, '_, '_>, name: &str, reverse: bool) -> Outcome {
    if call.args.len() > 4 {
        return call.fail(errors::wrong_arity(name));
    }
    let with_score = match call.args.try_get(3) {
        None => false,
        Some(word) if is_word(word, "WITHSCORE") => true,
        Some(_) => return call.fail(errors::SYNTAX),
    };
    let member = call.args.get(2);
    let absent = |reply: &mut Reply| if with_score { reply.null_array() } else { reply.null() };
    read_zset(call, absent, |reply, view| {
        let Some((rank, score)) = view.rank(member) else { return absent(reply) };
        if with_score {
            reply.array(2);
        }
        reply.integer(if reverse { view.len() - 1 - rank } else { rank } as i64);
        if with_score {
            reply.double(score);
        }
    })
}

pub const ZCOUNT: Command<Handler> = Command::new(
    Spec {
        name: "zcount",
        summary: "Returns how many members have scores in a range.",
        since: "2.0.0",
        group: Group::SortedSet,
        complexity: "O(log N), N the size of the sorted set",
        arity: 4,
        flags: Flags::READONLY.or(Flags::FAST),
        acl: AclCategories::SORTEDSET,
        key_specs: &[KeySpec::one(1, KeyFlags::RO.or(KeyFlags::ACCESS))],
        arguments: &[Argument::key("key", 0), Argument::double("min"), Argument::double("max")],
        ..Spec::BASE
    },
    zcount,
);

fn zcount(call: &mut Call<'_, '_, '_>) -> Outcome {
    let Some(between) = Between::scores(call.args.get(2), call.args.get(3)) else {
        return call.fail(NOT_A_SCORE_RANGE);
    };
    read_zset(
        call,
        |reply| reply.integer(0),
        |reply, view| {
            let (start, end) = (view.rank_of(between.start), view.rank_of(between.end));
            reply.integer(end.saturating_sub(start) as i64);
        },
    )
}

pub const ZLEXCOUNT: Command<Handler> = Command::new(
    Spec {
        name: "zlexcount",
        summary: "Returns how many members lie between two strings, for sorted sets of equal scores.",
        since: "2.8.9",
        group: Group::SortedSet,
        complexity: "O(log N), N the size of the sorted set",
        arity: 4,
        flags: Flags::READONLY.or(Flags::FAST),
        acl: AclCategories::SORTEDSET,
        key_specs: &[KeySpec::one(1, KeyFlags::RO.or(KeyFlags::ACCESS))],
        arguments: &[Argument::key("key", 0), Argument::string("min"), Argument::string("max")],
        ..Spec::BASE
    },
    zlexcount,
);

fn zlexcount(call: &mut Call<'_, '_, '_>) -> Outcome {
    let Some(between) = Between::members(call.args.get(2), call.args.get(3)) else {
        return call.fail(NOT_A_LEX_RANGE);
    };
    read_zset(
        call,
        |reply| reply.integer(0),
        |reply, view| {
            reply.integer(view.lex_range(between.start, between.end, true).1 as i64);
        },
    )
}
