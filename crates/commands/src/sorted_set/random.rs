//! Members by chance: ZRANDMEMBER.

use super::read::read_zset;
use super::reply::{write_members_head, write_scored};
use crate::call::is_word;
use crate::element::reply_element;
use crate::spec::*;
use crate::{Call, Handler, Outcome};
use isotherm_keyspace::ZsetView;
use isotherm_resp::{Reply, errors};
use isotherm_stdx::{Prng, parse_i64};
use std::collections::HashSet;

// COMPAT(sorted-sets): ZRANDMEMBER refuses counts below -2^28. Why: the reply is built in memory.
/// A reply with more members than this is refused: it would be gathered in memory.
const REPEATED_MEMBERS_MAX: u64 = 1 << 28;

pub const ZRANDMEMBER: Command<Handler> = Command::new(
    Spec {
        name: "zrandmember",
        summary: "Returns random members of a sorted set, which keeps them; null or empty for an absent key.",
        since: "6.2.0",
        group: Group::SortedSet,
        complexity: "O(N), N the members returned",
        arity: -2,
        flags: Flags::READONLY,
        acl: AclCategories::SORTEDSET,
        need: NeedFrom::Stated(Need::Elements),
        key_specs: &[KeySpec::one(1, KeyFlags::RO.or(KeyFlags::ACCESS))],
        tips: &["nondeterministic_output"],
        arguments: &[
            Argument::key("key", 0),
            Argument::block(
                "options",
                &[Argument::integer("count"), Argument::pure_token("withscores", "WITHSCORES").optional()],
            )
            .optional(),
        ],
        ..Spec::BASE
    },
    zrandmember,
);

fn zrandmember(call: &mut Call<'_, '_, '_>) -> Outcome {
    if call.args.len() == 2 {
        let number = call.prng.next_u64();
        return read_zset(call, Reply::null, |reply, view| {
            match view.nth(number % view.len()) {
                Some((member, _)) => reply_element(reply, member),
                // It runs again.
                None => reply.null(),
            }
        });
    }
    let count = match parse_i64(call.args.get(2)) {
        None => return call.fail(errors::NOT_AN_INTEGER),
        Some(i64::MIN) => return call.fail(errors::out_of_range_between(-i64::MAX, i64::MAX)),
        Some(count) => count,
    };
    let with_scores = match call.args.len() {
        3 => false,
        4 if is_word(call.args.get(3), "WITHSCORES") => true,
        _ => return call.fail(errors::SYNTAX),
    };
    if with_scores && count.unsigned_abs() > i64::MAX as u64 / 2 {
        return call.fail(errors::OUT_OF_RANGE);
    }
    let too_many = count < 0 && count.unsigned_abs() > REPEATED_MEMBERS_MAX;
    let mut prng = Prng::new(call.prng.next_u64());
    read_zset(
        call,
        |reply| reply.array(0),
        |reply, view| {
            if too_many {
                return reply.error(errors::OUT_OF_RANGE);
            }
            if count >= 0 {
                let ranks = different_ranks(&mut prng, count as u64, view.len());
                return write_ranks(reply, view, ranks.len(), ranks.into_iter(), with_scores);
            }
            let (count, len) = (count.unsigned_abs(), view.len());
            write_ranks(reply, view, count as usize, (0..count).map(|_| prng.below(len)), with_scores);
        },
    )
}

/// Returns `count` different ranks below `len`, or all if there are fewer.
fn different_ranks(prng: &mut Prng, count: u64, len: u64) -> Vec<u64> {
    if count >= len {
        return (0..len).collect();
    }
    // Of a part of the set: try until there are enough. Of most of it: go through it, and take each with the
    // chance that is left.
    if count < len / 3 {
        let mut chosen = HashSet::with_capacity(count as usize);
        let mut ranks = Vec::with_capacity(count as usize);
        while (ranks.len() as u64) < count {
            let rank = prng.below(len);
            if chosen.insert(rank) {
                ranks.push(rank);
            }
        }
        return ranks;
    }
    let mut left = count;
    let take = |rank: &u64| {
        let taken = prng.below(len - rank) < left;
        left -= u64::from(taken);
        taken
    };
    (0..len).filter(take).collect()
}

fn write_ranks(
    reply: &mut Reply,
    view: ZsetView<'_>,
    count: usize,
    ranks: impl Iterator<Item = u64>,
    with_scores: bool,
) {
    write_members_head(reply, count, with_scores);
    for rank in ranks {
        if reply.is_discarded() {
            return;
        }
        // Members that are not in memory are noted, and the command runs again.
        if let Some((member, score)) = view.nth(rank) {
            write_scored(reply, member, with_scores.then_some(score));
        }
    }
}
