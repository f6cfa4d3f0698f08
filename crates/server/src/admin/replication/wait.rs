//! WAIT, WAITAOF: until replicas, or the disk, have the changes of this session.

use isotherm_commands::Outcome;
use isotherm_commands::spec::*;
use isotherm_commands::wait::Wait;
use isotherm_keyspace::{Type, UnixMs};
use isotherm_replication::acks::Wish;
use isotherm_resp::errors;
use isotherm_stdx::parse_i64;

use super::AdminCall;
use isotherm_node::mail::tasks::Tasks;
use isotherm_node::replication::waits;

pub const WAIT: Spec = Spec {
    name: "wait",
    summary: "Waits until enough replicas have acknowledged this connection's writes, or for the timeout. Returns how many have.",
    since: "3.0.0",
    group: Group::Generic,
    complexity: "O(1)",
    arity: 3,
    flags: Flags::BLOCKING,
    acl: AclCategories::CONNECTION,
    tips: &["request_policy:all_shards", "response_policy:agg_min"],
    arguments: &[Argument::integer("numreplicas"), Argument::integer("timeout")],
    ..Spec::BASE
};

pub const WAITAOF: Spec = Spec {
    name: "waitaof",
    summary: "Waits until this connection's writes are on disk here and on replicas, or for the timeout. Returns the counts.",
    since: "7.2.0",
    group: Group::Generic,
    complexity: "O(1)",
    arity: 4,
    flags: Flags::BLOCKING,
    acl: AclCategories::CONNECTION,
    tips: &["request_policy:all_shards", "response_policy:agg_min"],
    arguments: &[
        Argument::integer("numlocal"),
        Argument::integer("numreplicas"),
        Argument::integer("timeout"),
    ],
    ..Spec::BASE
};

const IS_REPLICA: &str = "ERR WAIT cannot be used with replica instances. Please also note that if a replica is configured to be \
                          writable (which is not the default) writes to replicas are just local and are not propagated.";
const IS_REPLICA_TOO: &str = "ERR WAITAOF cannot be used with replica instances. Please also note that writes to replicas are just \
                              local and are not propagated.";

// COMPAT(replication): WAIT waits for the changes that its client has made; Valkey for all that were made
// when its client last ran a command, a read too. Why: nothing that the client did is missing.
pub fn wait(call: &mut AdminCall<'_>) -> Outcome {
    let asked = ask_wait(call);
    run(call, asked)
}

pub fn waitaof(call: &mut AdminCall<'_>) -> Outcome {
    let asked = ask_waitaof(call);
    run(call, asked)
}

/// A wish, and until when it is waited for.
type Asked = (Wish, Option<UnixMs>);

fn is_replica(call: &AdminCall<'_>) -> bool {
    call.node.mail.tasks().has(Tasks::REPLICA)
}

fn ask_wait(call: &AdminCall<'_>) -> Result<Asked, String> {
    if is_replica(call) {
        return Err(IS_REPLICA.into());
    }
    let replicas = parse_i64(call.args.get(1)).ok_or(errors::NOT_AN_INTEGER)?;
    let deadline = deadline(call, 2)?;
    let replicas = usize::try_from(replicas).unwrap_or(0);
    Ok((Wish { place: call.session.written, replicas, synced: false, here: false }, deadline))
}

fn ask_waitaof(call: &AdminCall<'_>) -> Result<Asked, String> {
    let here = match parse_i64(call.args.get(1)).ok_or(errors::NOT_AN_INTEGER)? {
        0 => false,
        1 => true,
        _ => return Err(errors::out_of_range_between(0, 1)),
    };
    let replicas = parse_i64(call.args.get(2)).and_then(|number| usize::try_from(number).ok());
    let replicas = replicas.ok_or(errors::MUST_BE_POSITIVE)?;
    let deadline = deadline(call, 3)?;
    if is_replica(call) {
        return Err(IS_REPLICA_TOO.into());
    }
    if here && !call.node.aof.is_on() {
        return Err(waits::NOTHING_SYNCED.into());
    }
    Ok((Wish { place: call.session.written, replicas, synced: true, here }, deadline))
}

fn deadline(call: &AdminCall<'_>, at: usize) -> Result<Option<UnixMs>, String> {
    let ms = parse_i64(call.args.get(at)).ok_or("ERR timeout is not an integer or out of range")?;
    match ms {
        ..0 => Err(errors::TIMEOUT_NEGATIVE.into()),
        0 => Ok(None),
        _ => {
            call.now.0.checked_add(ms).map(|at| Some(UnixMs(at))).ok_or("ERR timeout is out of range".into())
        }
    }
}

fn run(call: &mut AdminCall<'_>, asked: Result<Asked, String>) -> Outcome {
    let (wish, deadline) = match asked {
        Ok(asked) => asked,
        Err(text) => {
            call.reply.error(&text);
            return Outcome::Done;
        }
    };
    let reached = call.node.reached(&wish);
    if wish.is_met(reached) || call.session.in_exec {
        waits::reply(call.reply, &wish, reached);
        return Outcome::Done;
    }
    call.session.wish = Some(Box::new(wish));
    let wait = Wait { kind: Type::String, keys: 0..0, deadline, on_removal: false, instead: None };
    Outcome::Block(Box::new(wait))
}
