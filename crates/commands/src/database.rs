//! Whole databases: DBSIZE FLUSHDB FLUSHALL SWAPDB, of the group `server`.

use crate::call::is_word;
use crate::spec::*;
use crate::{Call, Handler, Outcome};
use isotherm_keyspace::Db;
use isotherm_resp::errors;
use isotherm_stdx::parse_i64;

pub const COMMANDS: &[Command<Handler>] = &[DBSIZE, FLUSHALL, FLUSHDB, SWAPDB];

pub const DBSIZE: Command<Handler> = Command::new(
    Spec {
        name: "dbsize",
        summary: "Returns how many keys the selected database has.",
        group: Group::Server,
        complexity: "O(1)",
        flags: Flags::READONLY.or(Flags::FAST),
        acl: AclCategories::KEYSPACE,
        reach: Reach::All,
        tips: &["request_policy:all_shards", "response_policy:agg_sum"],
        ..Spec::BASE
    },
    dbsize,
);

fn dbsize(call: &mut Call<'_, '_, '_>) -> Outcome {
    let len = call.txn.len(call.db);
    call.reply.integer(len as i64);
    Outcome::Done
}

pub const FLUSHALL: Command<Handler> = Command::new(
    Spec {
        name: "flushall",
        summary: "Deletes the keys of every database.",
        group: Group::Server,
        complexity: "O(N), N the keys of all databases",
        arity: -1,
        flags: Flags::WRITE.or(Flags::ALL_DBS),
        acl: AclCategories::DANGEROUS.or(AclCategories::KEYSPACE),
        reach: Reach::All,
        tips: &["request_policy:all_shards", "response_policy:all_succeeded"],
        history: &[("4.0.0", "New option `ASYNC`."), ("6.2.0", "New option `SYNC`.")],
        arguments: &[Argument::one_of(
            "flush-type",
            &[
                Argument::pure_token("async", "ASYNC").since("4.0.0"),
                Argument::pure_token("sync", "SYNC").since("6.2.0"),
            ],
        )
        .optional()],
        ..Spec::BASE
    },
    flushall,
);

fn flushall(call: &mut Call<'_, '_, '_>) -> Outcome {
    flush(call, None)
}

pub const FLUSHDB: Command<Handler> = Command::new(
    Spec {
        name: "flushdb",
        summary: "Deletes the keys of the selected database.",
        group: Group::Server,
        complexity: "O(N), N the keys of the database",
        arity: -1,
        flags: Flags::WRITE,
        acl: AclCategories::DANGEROUS.or(AclCategories::KEYSPACE),
        reach: Reach::All,
        tips: &["request_policy:all_shards", "response_policy:all_succeeded"],
        history: &[("4.0.0", "New option `ASYNC`."), ("6.2.0", "New option `SYNC`.")],
        arguments: &[Argument::one_of(
            "flush-type",
            &[
                Argument::pure_token("async", "ASYNC").since("4.0.0"),
                Argument::pure_token("sync", "SYNC").since("6.2.0"),
            ],
        )
        .optional()],
        ..Spec::BASE
    },
    flushdb,
);

fn flushdb(call: &mut Call<'_, '_, '_>) -> Outcome {
    flush(call, Some(call.db))
}

// COMPAT(keys): FLUSHALL and FLUSHDB without SYNC answer when the keys are gone and 50,000 entries, pages and
// slots are freed; the rest is freed in the background. With SYNC the reply waits until all are freed, and
// the worker of that client serves no other client until then, while other workers go on.
// `lazyfree-lazy-user-flush` has no effect. Why: freeing never blocks the other workers, so there is nothing
// to choose.
/// Number of entries, pages and slots that are gone through before the answer, without SYNC: some 5 ms. The
/// rest is freed in the background.
const FREED_BEFORE_ANSWER_MAX: u64 = 50_000;

/// The keys are gone at once, and others go on while their memory is freed. The log gets it even if nothing
/// was there.
fn flush(call: &mut Call<'_, '_, '_>, db: Option<Db>) -> Outcome {
    let waits = match call.args.len() {
        1 => false,
        2 if is_word(call.args.get(1), "ASYNC") => false,
        2 if is_word(call.args.get(1), "SYNC") => true,
        _ => return call.fail(errors::SYNTAX),
    };
    let removed = match waits {
        true => call.txn.flush_and_wait(db),
        false => call.txn.flush(db),
    };
    if !waits {
        call.txn.free_afterwards(FREED_BEFORE_ANSWER_MAX);
    }
    call.count(removed);
    call.record_request();
    call.reply.ok();
    Outcome::Done
}

pub const SWAPDB: Command<Handler> = Command::new(
    Spec {
        name: "swapdb",
        summary: "Exchanges the keys of two databases.",
        since: "4.0.0",
        group: Group::Server,
        complexity: "O(N), N the clients that watch or wait for keys of either database",
        arity: 3,
        flags: Flags::WRITE.or(Flags::FAST),
        acl: AclCategories::DANGEROUS.or(AclCategories::KEYSPACE),
        reach: Reach::All,
        arguments: &[Argument::integer("index1"), Argument::integer("index2")],
        database_arguments: Some(|args, databases, out| {
            let [first, second] = [1, 2].map(|at| number_at(args, at, databases));
            out.extend(first.zip(second).into_iter().flat_map(|(first, second)| [first, second]));
        }),
        ..Spec::BASE
    },
    swapdb,
);

fn swapdb(call: &mut Call<'_, '_, '_>) -> Outcome {
    if call.settings.in_cluster {
        return call.fail("ERR SWAPDB is not allowed in cluster mode");
    }
    let Some(a) = number(call, 1) else {
        return call.fail("ERR invalid first DB index");
    };
    let Some(b) = number(call, 2) else {
        return call.fail("ERR invalid second DB index");
    };
    let (Some(a), Some(b)) = (existing(call, a), existing(call, b)) else {
        return call.fail(errors::DB_OUT_OF_RANGE);
    };
    call.txn.swap(a, b);
    call.count(1);
    call.reply.ok();
    Outcome::Done
}

/// The database that an argument of COPY or MOVE names.
pub(crate) fn database(call: &Call<'_, '_, '_>, at: usize) -> Result<Db, String> {
    let number = parse_i64(call.args.get(at)).ok_or(errors::NOT_AN_INTEGER)?;
    let number = i32::try_from(number)
        .map_err(|_| errors::out_of_range_between(i64::from(i32::MIN), i64::from(i32::MAX)))?;
    existing(call, number).ok_or_else(|| errors::DB_OUT_OF_RANGE.to_string())
}

fn number(call: &Call<'_, '_, '_>, at: usize) -> Option<i32> {
    parse_i64(call.args.get(at)).and_then(|number| i32::try_from(number).ok())
}

fn existing(call: &Call<'_, '_, '_>, number: i32) -> Option<Db> {
    let number = u16::try_from(number).ok()?;
    (number < call.txn.databases()).then_some(Db(number))
}
