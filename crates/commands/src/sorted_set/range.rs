//! A range of members is read, or stored: ZRANGE and its older sisters, ZRANGESTORE.

use super::bound::{Between, NOT_A_LEX_RANGE, NOT_A_SCORE_RANGE, parse_ranks, ranks};
use super::reply::{write_members_head, write_scored};
use super::store::{Scored, store_members};
use crate::arguments::LIMIT;
use crate::call::is_word;
use crate::spec::*;
use crate::{Call, Handler, Outcome};
use isotherm_keyspace::{Encoding, Lookup, Value, ZsetView};
use isotherm_resp::{Args, errors};

const LIMIT_BY_RANK: &str =
    "ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX";
const SCORES_BY_LEX: &str = "ERR syntax error, WITHSCORES not supported in combination with BYLEX";

// COMPAT(sorted-sets): ZRANGE and its older sisters have the option XX of Valkey 9.2 (a null array: the key
// is not there), built from its sources and not compared with a running server. Why: programs for 9.2 run
// here.
const XX: Argument = Argument::pure_token("xx", "XX").since("9.2.0").optional();

pub const ZRANGE: Command<Handler> = Command::new(
    Spec {
        name: "zrange",
        summary: "Returns the members between two ranks, scores or strings; empty for an absent key.",
        since: "1.2.0",
        group: Group::SortedSet,
        complexity: "O(log(N)+M), N the size of the sorted set, M the members returned",
        arity: -4,
        flags: Flags::READONLY,
        acl: AclCategories::SORTEDSET,
        key_specs: &[KeySpec::one(1, KeyFlags::RO.or(KeyFlags::ACCESS))],
        history: &[("6.2.0", "New options `REV`, `BYSCORE`, `BYLEX` and `LIMIT`.")],
        arguments: &[
            Argument::key("key", 0),
            Argument::string("start"),
            Argument::string("stop"),
            Argument::one_of(
                "sortby",
                &[Argument::pure_token("byscore", "BYSCORE"), Argument::pure_token("bylex", "BYLEX")],
            )
            .since("6.2.0")
            .optional(),
            Argument::pure_token("rev", "REV").since("6.2.0").optional(),
            Argument::block("limit", &[Argument::integer("offset"), Argument::integer("count")])
                .token("LIMIT")
                .since("6.2.0")
                .optional(),
            Argument::pure_token("withscores", "WITHSCORES").optional(),
            XX,
        ],
        ..Spec::BASE
    },
    zrange,
);

fn zrange(call: &mut Call<'_, '_, '_>) -> Outcome {
    reply_range(call, None, None)
}

pub const ZREVRANGE: Command<Handler> = Command::new(
    Spec {
        name: "zrevrange",
        summary: "Returns the members between two ranks, highest score first; empty for an absent key.",
        since: "1.2.0",
        group: Group::SortedSet,
        complexity: "O(log(N)+M), N the size of the sorted set, M the members returned",
        arity: -4,
        flags: Flags::READONLY,
        acl: AclCategories::SORTEDSET,
        key_specs: &[KeySpec::one(1, KeyFlags::RO.or(KeyFlags::ACCESS))],
        arguments: &[
            Argument::key("key", 0),
            Argument::integer("start"),
            Argument::integer("stop"),
            Argument::pure_token("withscores", "WITHSCORES").optional(),
            XX,
        ],
        ..Spec::BASE
    },
    zrevrange,
);

fn zrevrange(call: &mut Call<'_, '_, '_>) -> Outcome {
    reply_range(call, Some(By::Rank), Some(true))
}

pub const ZRANGEBYSCORE: Command<Handler> = Command::new(
    Spec {
        name: "zrangebyscore",
        summary: "Returns the members between two scores, lowest first.",
        since: "1.0.5",
        group: Group::SortedSet,
        complexity: "O(log(N)+M), N the size of the sorted set, M the members returned: bounded by LIMIT",
        arity: -4,
        flags: Flags::READONLY,
        acl: AclCategories::SORTEDSET,
        key_specs: &[KeySpec::one(1, KeyFlags::RO.or(KeyFlags::ACCESS))],
        history: &[("2.0.0", "New option `WITHSCORES`.")],
        arguments: &[
            Argument::key("key", 0),
            Argument::double("min"),
            Argument::double("max"),
            Argument::pure_token("withscores", "WITHSCORES").since("2.0.0").optional(),
            LIMIT,
            XX,
        ],
        ..Spec::BASE
    },
    zrangebyscore,
);

fn zrangebyscore(call: &mut Call<'_, '_, '_>) -> Outcome {
    reply_range(call, Some(By::Score), Some(false))
}

pub const ZREVRANGEBYSCORE: Command<Handler> = Command::new(
    Spec {
        name: "zrevrangebyscore",
        summary: "Returns the members between two scores, highest first.",
        since: "2.2.0",
        group: Group::SortedSet,
        complexity: "O(log(N)+M), N the size of the sorted set, M the members returned: bounded by LIMIT",
        arity: -4,
        flags: Flags::READONLY,
        acl: AclCategories::SORTEDSET,
        key_specs: &[KeySpec::one(1, KeyFlags::RO.or(KeyFlags::ACCESS))],
        history: &[("2.1.6", "Ranges may exclude `min` and `max`.")],
        arguments: &[
            Argument::key("key", 0),
            Argument::double("max"),
            Argument::double("min"),
            Argument::pure_token("withscores", "WITHSCORES").optional(),
            LIMIT,
            XX,
        ],
        ..Spec::BASE
    },
    zrevrangebyscore,
);

fn zrevrangebyscore(call: &mut Call<'_, '_, '_>) -> Outcome {
    reply_range(call, Some(By::Score), Some(true))
}

pub const ZRANGEBYLEX: Command<Handler> = Command::new(
    Spec {
        name: "zrangebylex",
        summary: "Returns the members between two strings, for sorted sets of equal scores.",
        since: "2.8.9",
        group: Group::SortedSet,
        complexity: "O(log(N)+M), N the size of the sorted set, M the members returned: bounded by LIMIT",
        arity: -4,
        flags: Flags::READONLY,
        acl: AclCategories::SORTEDSET,
        key_specs: &[KeySpec::one(1, KeyFlags::RO.or(KeyFlags::ACCESS))],
        arguments: &[Argument::key("key", 0), Argument::string("min"), Argument::string("max"), LIMIT, XX],
        ..Spec::BASE
    },
    zrangebylex,
);

fn zrangebylex(call: &mut Call<'_, '_, '_>) -> Outcome {
    reply_range(call, Some(By::Lex), Some(false))
}

pub const ZREVRANGEBYLEX: Command<Handler> = Command::new(
    Spec {
        name: "zrevrangebylex",
        summary: "Returns the members between two strings, last first, for sorted sets of equal scores.",
        since: "2.8.9",
        group: Group::SortedSet,
        complexity: "O(log(N)+M), N the size of the sorted set, M the members returned: bounded by LIMIT",
        arity: -4,
        flags: Flags::READONLY,
        acl: AclCategories::SORTEDSET,
        key_specs: &[KeySpec::one(1, KeyFlags::RO.or(KeyFlags::ACCESS))],
        arguments: &[Argument::key("key", 0), Argument::string("max"), Argument::string("min"), LIMIT, XX],
        ..Spec::BASE
    },
    zrevrangebylex,
);

fn zrevrangebylex(call: &mut Call<'_, '_, '_>) -> Outcome {
    reply_range(call, Some(By::Lex), Some(true))
}

pub const ZRANGESTORE: Command<Handler> = Command::new(
    Spec {
        name: "zrangestore",
        summary: "Stores the members between two ranks, scores or strings under another key. Returns how many they are.",
        since: "6.2.0",
        group: Group::SortedSet,
        complexity: "O(log(N)+M), N the size of the sorted set, M the members stored",
        arity: -5,
        flags: Flags::WRITE.or(Flags::DENYOOM),
        acl: AclCategories::SORTEDSET,
        key_specs: &[
            KeySpec::one(1, KeyFlags::OW.or(KeyFlags::UPDATE)),
            KeySpec::one(2, KeyFlags::RO.or(KeyFlags::ACCESS)),
        ],
        arguments: &[
            Argument::key("dst", 0),
            Argument::key("src", 1),
            Argument::string("min"),
            Argument::string("max"),
            Argument::one_of(
                "sortby",
                &[Argument::pure_token("byscore", "BYSCORE"), Argument::pure_token("bylex", "BYLEX")],
            )
            .optional(),
            Argument::pure_token("rev", "REV").optional(),
            LIMIT,
        ],
        ..Spec::BASE
    },
    zrangestore,
);

fn zrangestore(call: &mut Call<'_, '_, '_>) -> Outcome {
    let query = match Query::parse(call.args.from(3), None, None, true) {
        Ok(query) => query,
        Err(error) => return call.fail(error),
    };
    let source = call.key(2);
    call.txn.read_first();
    let mut members: Vec<Scored> = Vec::new();
    match call.txn.find(call.db, &source, Lookup::Read).map(|entry| entry.value) {
        Some(Value::Zset(view)) => {
            let (rank, count) = query.ranks(view);
            view.for_each(rank, count, !query.reverse, |member, score| {
                members.push((member.to_vec(), score))
            });
        }
        Some(_) => return call.fail(errors::WRONG_TYPE),
        None => {}
    }
    let target = call.key(1);
    store_members(call, &target, &members, "zrangestore", 1)
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum By {
    Rank,
    Score,
    Lex,
}

#[derive(Clone, Copy)]
enum Range<'a> {
    Ranks(i64, i64),
    Scores(Between<'a>),
    Members(Between<'a>),
}

/// Parsed request for a range.
struct Query<'a> {
    range: Range<'a>,
    reverse: bool,
    with_scores: bool,
    /// An absent key is answered by a null.
    shows_absence: bool,
    offset: i64,
    limit: i64,
}

impl<'a> Query<'a> {
    /// `args`: the two ends and what follows them. Properties that the command's name fixes already are not
    /// read.
    fn parse(
        args: Args<'a>,
        by: Option<By>,
        reverse: Option<bool>,
        stored: bool,
    ) -> Result<Query<'a>, &'static str> {
        let (fixed_by, fixed_reverse) = (by.is_some(), reverse.is_some());
        let (mut by, mut reverse) = (by.unwrap_or(By::Rank), reverse.unwrap_or(false));
        let (mut with_scores, mut offset, mut limit) = (false, 0, -1);
        let (mut by_given, mut shows_absence) = (fixed_by, false);
        let mut at = 2;
        while let Some(word) = args.try_get(at) {
            at += 1;
            match word {
                _ if !stored && is_word(word, "WITHSCORES") => with_scores = true,
                _ if !stored && is_word(word, "XX") => shows_absence = true,
                _ if is_word(word, "LIMIT") && at + 2 <= args.len() => {
                    let limits = parse_ranks(args.get(at), args.get(at + 1));
                    (offset, limit) = limits.ok_or(errors::NOT_AN_INTEGER)?;
                    at += 2;
                }
                // A direction that is given twice is refused, as the second word finds nothing to say.
                _ if !fixed_reverse && !reverse && is_word(word, "REV") => reverse = true,
                _ if !by_given && is_word(word, "BYLEX") => (by, by_given) = (By::Lex, true),
                _ if !by_given && is_word(word, "BYSCORE") => (by, by_given) = (By::Score, true),
                _ => return Err(errors::SYNTAX),
            }
        }
        if limit != -1 && by == By::Rank {
            return Err(LIMIT_BY_RANK);
        }
        if with_scores && by == By::Lex {
            return Err(SCORES_BY_LEX);
        }
        let (first, second) = (args.get(0), args.get(1));
        let (min, max) = if reverse { (second, first) } else { (first, second) };
        let range = match by {
            By::Rank => {
                let (start, stop) = parse_ranks(first, second).ok_or(errors::NOT_AN_INTEGER)?;
                Range::Ranks(start, stop)
            }
            By::Score => Range::Scores(Between::scores(min, max).ok_or(NOT_A_SCORE_RANGE)?),
            By::Lex => Range::Members(Between::members(min, max).ok_or(NOT_A_LEX_RANGE)?),
        };
        Ok(Query { range, reverse, with_scores, shows_absence, offset, limit })
    }

    /// Returns the members of a set that the query means, as (first, count), counted from the end if
    /// `reverse`.
    fn ranks(&self, view: ZsetView<'_>) -> (u64, u64) {
        let len = view.len();
        let (start, count) = match self.range {
            Range::Ranks(start, stop) => return ranks(start, stop, len).unwrap_or_default(),
            Range::Scores(Between { start, end }) => {
                if self.offset > 0 && self.offset as u64 >= len {
                    return (0, 0);
                }
                let (start, end) = (view.rank_of(start), view.rank_of(end));
                let count = end.saturating_sub(start);
                (if self.reverse { len - start - count } else { start }, count)
            }
            Range::Members(Between { start, end }) => {
                let (start, count) = view.lex_range(start, end, !self.reverse);
                (if self.reverse { len - start - count } else { start }, count)
            }
        };
        let Some(skipped) = self.skipped(view, count) else { return (0, 0) };
        let limit = u64::try_from(self.limit).unwrap_or(u64::MAX);
        (start + skipped, (count - skipped).min(limit))
    }

    /// Members that the offset leaves out; `None` if all. A negative offset finds nothing in a listpack, and
    /// counts from the other end of the range in a skiplist.
    fn skipped(&self, view: ZsetView<'_>, count: u64) -> Option<u64> {
        let skipped = match u64::try_from(self.offset) {
            Ok(offset) => offset,
            Err(_) if view.encoding() == Encoding::Listpack => return None,
            Err(_) => count.checked_sub(self.offset.unsigned_abs())?,
        };
        (skipped < count).then_some(skipped)
    }
}

fn reply_range(call: &mut Call<'_, '_, '_>, by: Option<By>, reverse: Option<bool>) -> Outcome {
    let query = match Query::parse(call.args.from(2), by, reverse, false) {
        Ok(query) => query,
        Err(error) => return call.fail(error),
    };
    super::read::read_zset(
        call,
        |reply| if query.shows_absence { reply.null_array() } else { reply.array(0) },
        |reply, view| {
            let (rank, count) = query.ranks(view);
            write_members_head(reply, count as usize, query.with_scores);
            view.for_each(rank, count, !query.reverse, |member, score| {
                write_scored(reply, member, query.with_scores.then_some(score));
            });
        },
    )
}
