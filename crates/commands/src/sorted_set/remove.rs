//! Members leave by name or by range: ZREM ZREMRANGEBYRANK ZREMRANGEBYSCORE ZREMRANGEBYLEX.

use super::bound::{Between, NOT_A_LEX_RANGE, NOT_A_SCORE_RANGE, parse_ranks, ranks};
use crate::spec::*;
use crate::{Call, Handler, Outcome};
use isotherm_keyspace::{EditError, EventClass, ZsetEdit};
use isotherm_resp::errors;

pub const ZREM: Command<Handler> = Command::new(
    Spec {
        name: "zrem",
        summary: "Removes members of a sorted set, and the key with the last one. Returns how many existed.",
        since: "1.2.0",
        group: Group::SortedSet,
        complexity: "O(M*log(N)), N the size of the sorted set, M the given members",
        arity: -3,
        flags: Flags::WRITE.or(Flags::FAST),
        acl: AclCategories::SORTEDSET,
        key_specs: &[KeySpec::one(1, KeyFlags::RW.or(KeyFlags::DELETE))],
        history: &[("2.4.0", "Several members in one call.")],
        arguments: &[Argument::key("key", 0), Argument::string("member").multiple()],
        ..Spec::BASE
    },
    zrem,
);

fn zrem(call: &mut Call<'_, '_, '_>) -> Outcome {
    let members = call.args.from(2);
    remove(call, "zrem", |edit| {
        // All or none: the log has them all.
        if members.len() > 1 && !edit.wants_members(&members.iter().collect::<Vec<_>>()) {
            return 0;
        }
        members.iter().filter(|member| edit.remove(member).is_some()).count() as u64
    })
}

pub const ZREMRANGEBYRANK: Command<Handler> = Command::new(
    Spec {
        name: "zremrangebyrank",
        summary: "Removes the members between two ranks. Returns how many.",
        since: "2.0.0",
        group: Group::SortedSet,
        complexity: "O(log(N)+M), N the size of the sorted set, M the members removed",
        arity: 4,
        flags: Flags::WRITE,
        acl: AclCategories::SORTEDSET,
        key_specs: &[KeySpec::one(1, KeyFlags::RW.or(KeyFlags::DELETE))],
        arguments: &[Argument::key("key", 0), Argument::integer("start"), Argument::integer("stop")],
        ..Spec::BASE
    },
    zremrangebyrank,
);

fn zremrangebyrank(call: &mut Call<'_, '_, '_>) -> Outcome {
    let Some((start, stop)) = parse_ranks(call.args.get(2), call.args.get(3)) else {
        return call.fail(errors::NOT_AN_INTEGER);
    };
    remove_range(call, "zremrangebyrank", |edit| ranks(start, stop, edit.len()))
}

pub const ZREMRANGEBYSCORE: Command<Handler> = Command::new(
    Spec {
        name: "zremrangebyscore",
        summary: "Removes the members between two scores. Returns how many.",
        since: "1.2.0",
        group: Group::SortedSet,
        complexity: "O(log(N)+M), N the size of the sorted set, M the members removed",
        arity: 4,
        flags: Flags::WRITE,
        acl: AclCategories::SORTEDSET,
        key_specs: &[KeySpec::one(1, KeyFlags::RW.or(KeyFlags::DELETE))],
        arguments: &[Argument::key("key", 0), Argument::double("min"), Argument::double("max")],
        ..Spec::BASE
    },
    zremrangebyscore,
);

fn zremrangebyscore(call: &mut Call<'_, '_, '_>) -> Outcome {
    let Some(between) = Between::scores(call.args.get(2), call.args.get(3)) else {
        return call.fail(NOT_A_SCORE_RANGE);
    };
    remove_range(call, "zremrangebyscore", |edit| {
        let (start, end) = (edit.rank_of(between.start), edit.rank_of(between.end));
        (start < end).then(|| (start, end - start))
    })
}

pub const ZREMRANGEBYLEX: Command<Handler> = Command::new(
    Spec {
        name: "zremrangebylex",
        summary: "Removes the members between two strings, for sorted sets of equal scores. Returns how many.",
        since: "2.8.9",
        group: Group::SortedSet,
        complexity: "O(log(N)+M), N the size of the sorted set, M the members removed",
        arity: 4,
        flags: Flags::WRITE,
        acl: AclCategories::SORTEDSET,
        key_specs: &[KeySpec::one(1, KeyFlags::RW.or(KeyFlags::DELETE))],
        arguments: &[Argument::key("key", 0), Argument::string("min"), Argument::string("max")],
        ..Spec::BASE
    },
    zremrangebylex,
);

fn zremrangebylex(call: &mut Call<'_, '_, '_>) -> Outcome {
    let Some(between) = Between::members(call.args.get(2), call.args.get(3)) else {
        return call.fail(NOT_A_LEX_RANGE);
    };
    remove_range(call, "zremrangebylex", |edit| Some(edit.lex_range(between.start, between.end, true)))
}

fn remove_range(
    call: &mut Call<'_, '_, '_>,
    event: &'static str,
    range: impl FnOnce(&ZsetEdit<'_, '_>) -> Option<(u64, u64)>,
) -> Outcome {
    remove(call, event, |edit| {
        let (start, count) = range(edit).unwrap_or_default();
        if edit.wants_range(start, count) { edit.remove_range(start, count) } else { 0 }
    })
}

/// Runs `work`, which says how many members it took out, and emits what follows from it.
fn remove(
    call: &mut Call<'_, '_, '_>,
    event: &'static str,
    work: impl FnOnce(&mut ZsetEdit<'_, '_>) -> u64,
) -> Outcome {
    let key = call.key(1);
    let edited = match call.txn.edit_zset(call.db, &key, &call.settings.limits, work) {
        Ok(edited) => edited,
        Err(EditError::WrongType) => return call.fail(errors::WRONG_TYPE),
        Err(EditError::Full) => return call.out_of_memory(),
    };
    if edited.result > 0 {
        call.wrote(EventClass::Zset, event, &key, edited.result);
    }
    call.reply.integer(edited.result as i64);
    Outcome::Done
}
