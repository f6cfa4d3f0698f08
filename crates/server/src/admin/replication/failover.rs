//! FAILOVER: this primary hands over to a replica (`replication::failover`).

use isotherm_commands::Outcome;
use isotherm_commands::spec::*;
use isotherm_keyspace::SteadyMs;
use isotherm_resp::errors;
use isotherm_stdx::parse_i64;

use super::AdminCall;
use isotherm_node::mail::tasks::Tasks;
use isotherm_node::replication::failover::{Plan, Target};
use isotherm_replicas::replication::handover;

pub const FAILOVER: Spec = Spec {
    name: "failover",
    summary: "Hands the role of the primary over to a replica once that has all data.",
    since: "6.2.0",
    group: Group::Server,
    complexity: "O(1)",
    arity: -1,
    flags: Flags::ADMIN.or(Flags::NOSCRIPT).or(Flags::STALE),
    arguments: &[
        Argument::block(
            "target",
            &[
                Argument::string("host"),
                Argument::integer("port"),
                Argument::pure_token("force", "FORCE").optional(),
            ],
        )
        .token("TO")
        .optional(),
        Argument::pure_token("abort", "ABORT").optional(),
        Argument::integer("milliseconds").token("TIMEOUT").optional(),
    ],
    // Which writes are handed over is decided at one moment for all commands.
    reach: Reach::All,
    ..Spec::BASE
};

pub fn failover(call: &mut AdminCall<'_>) -> Outcome {
    if call.node.cluster.is_enabled() {
        call.reply.error("ERR FAILOVER not allowed in cluster mode. Use CLUSTER FAILOVER command instead.");
        return Outcome::Done;
    }
    let is_abort = call.args.len() == 2 && call.args.get(1).eq_ignore_ascii_case(b"abort");
    let begun = match is_abort {
        true if handover::abort(call.node, &mut call.exec.held, "Failover manually aborted") => Ok(()),
        true => Err("ERR No failover in progress.".to_string()),
        false => begin(call),
    };
    match begun {
        Ok(()) => call.reply.ok(),
        Err(text) => call.reply.error(&text),
    }
    Outcome::Done
}

fn begin(call: &mut AdminCall<'_>) -> Result<(), String> {
    let (node, args) = (call.node, call.args);
    let (mut plan, mut timeout_ms, mut at) = (Plan::default(), 0, 1);
    let number = |at: usize| parse_i64(args.get(at)).ok_or(errors::NOT_AN_INTEGER.to_string());
    while at < args.len() {
        match args.get(at).to_ascii_lowercase().as_slice() {
            b"timeout" if at + 1 < args.len() && timeout_ms == 0 => {
                timeout_ms = number(at + 1)?;
                if timeout_ms <= 0 {
                    return Err("ERR FAILOVER timeout must be greater than 0".into());
                }
                at += 1;
            }
            b"to" if at + 2 < args.len() && plan.target.is_none() => {
                let host = String::from_utf8_lossy(args.get(at + 1)).into_owned();
                plan.target = Some(Target { host, port: u16::try_from(number(at + 2)?).unwrap_or(0) });
                at += 2;
            }
            b"force" if !plan.is_forced => plan.is_forced = true,
            _ => return Err(errors::SYNTAX.into()),
        }
        at += 1;
    }
    let refused = |text: &str| Err(format!("ERR {text}"));
    if node.replication.failover.is_under_way() {
        return refused("FAILOVER already in progress.");
    }
    if node.mail.tasks().has(Tasks::REPLICA) {
        return refused("FAILOVER is not valid when server is a replica.");
    }
    if node.replication.primary.replicas().is_empty() {
        return refused("FAILOVER requires connected replicas.");
    }
    if plan.is_forced && (timeout_ms == 0 || plan.target.is_none()) {
        return refused("FAILOVER with force option requires both a timeout and target HOST and IP.");
    }
    if let Some(target) = &plan.target {
        match target.find(&node.replication.primary) {
            None => return refused("FAILOVER target HOST and PORT is not a replica."),
            Some(replica) if !replica.seen.state().is_online() => {
                return refused("FAILOVER target replica is not online.");
            }
            Some(_) => {}
        }
    }
    plan.deadline = (timeout_ms > 0).then(|| SteadyMs(SteadyMs::of(call.now).0.saturating_add(timeout_ms)));
    handover::begin(node, plan);
    Ok(())
}
