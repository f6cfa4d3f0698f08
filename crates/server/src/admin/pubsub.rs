//! Commands of pub/sub. What SUBSCRIBE and its kin answer are pushes, one a name; they come also under CLIENT REPLY OFF.

use isotherm_commands::Outcome;
use isotherm_commands::help::write_help;
use isotherm_commands::spec::Command;

use super::{AdminCall, AdminHandler, specs};
use crate::effects::pubsub::Kind;

pub const COMMANDS: &[Command<AdminHandler>] = &[
    Command::new(specs::SUBSCRIBE, |call| subscribe(call, Kind::Channel, "subscribe")),
    Command::new(specs::UNSUBSCRIBE, |call| unsubscribe(call, Kind::Channel, "unsubscribe")),
    Command::new(specs::PSUBSCRIBE, |call| subscribe(call, Kind::Pattern, "psubscribe")),
    Command::new(specs::PUNSUBSCRIBE, |call| unsubscribe(call, Kind::Pattern, "punsubscribe")),
    Command::new(specs::SSUBSCRIBE, |call| subscribe(call, Kind::ShardChannel, "ssubscribe")),
    Command::new(specs::SUNSUBSCRIBE, |call| unsubscribe(call, Kind::ShardChannel, "sunsubscribe")),
    Command::new(specs::PUBLISH, |call| publish(call, false)),
    Command::new(specs::SPUBLISH, |call| publish(call, true)),
    Command::container(
        specs::PUBSUB,
        &[
            Command::new(specs::PUBSUB_CHANNELS, |call| channels(call, Kind::Channel)),
            Command::new(specs::PUBSUB_HELP, help),
            Command::new(specs::PUBSUB_NUMPAT, numpat),
            Command::new(specs::PUBSUB_NUMSUB, |call| numsub(call, Kind::Channel)),
            Command::new(specs::PUBSUB_SHARDCHANNELS, |call| channels(call, Kind::ShardChannel)),
            Command::new(specs::PUBSUB_SHARDNUMSUB, |call| numsub(call, Kind::ShardChannel)),
        ],
    ),
];

fn subscribe(call: &mut AdminCall<'_>, kind: Kind, word: &str) -> Outcome {
    // The other two are let through for clients that have always done so.
    if kind == Kind::ShardChannel && call.session.in_exec {
        call.reply.error("ERR SSUBSCRIBE isn't allowed for a DENY BLOCKING client");
        return Outcome::Done;
    }
    for name in call.args.from(1).iter() {
        call.session.subscribe(call.node, call.audience, kind, name);
        answer(call, kind, word, Some(name));
    }
    Outcome::Done
}

fn unsubscribe(call: &mut AdminCall<'_>, kind: Kind, word: &str) -> Outcome {
    if call.args.len() > 1 {
        for name in call.args.from(1).iter() {
            call.session.unsubscribe(call.node, call.audience, kind, name);
            answer(call, kind, word, Some(name));
        }
        return Outcome::Done;
    }
    let names = call.session.subscribed(kind);
    if names.is_empty() {
        answer(call, kind, word, None);
    }
    for name in names {
        call.session.unsubscribe(call.node, call.audience, kind, &name);
        answer(call, kind, word, Some(&name));
    }
    Outcome::Done
}

fn answer(call: &mut AdminCall<'_>, kind: Kind, word: &str, name: Option<&[u8]>) {
    call.session.pushed = true;
    call.reply.push(3);
    call.reply.bulk(word.as_bytes());
    match name {
        Some(name) => call.reply.bulk(name),
        None => call.reply.null(),
    }
    call.reply.integer(call.session.subscriptions(kind) as i64);
}

fn publish(call: &mut AdminCall<'_>, sharded: bool) -> Outcome {
    let from = Some(call.session.shared.worker);
    let receivers =
        call.node.pubsub.publish(&call.node.mail, from, call.args.get(1), call.args.get(2), sharded);
    call.reply.integer(receivers as i64);
    Outcome::Done
}

// ---- PUBSUB ----

fn channels(call: &mut AdminCall<'_>, kind: Kind) -> Outcome {
    if call.args.len() > 3 {
        call.reply.error(isotherm_resp::errors::subcommand_syntax(call.args));
        return Outcome::Done;
    }
    let names = call.node.pubsub.channels(kind, call.args.try_get(2));
    call.reply.array(names.len());
    names.iter().for_each(|name| call.reply.bulk(name));
    Outcome::Done
}

fn numsub(call: &mut AdminCall<'_>, kind: Kind) -> Outcome {
    let names = call.args.from(2);
    call.reply.array(names.len() * 2);
    for name in names.iter() {
        call.reply.bulk(name);
        call.reply.integer(call.node.pubsub.hearers(kind, name) as i64);
    }
    Outcome::Done
}

fn numpat(call: &mut AdminCall<'_>) -> Outcome {
    call.reply.integer(call.node.pubsub.count(Kind::Pattern) as i64);
    Outcome::Done
}

fn help(call: &mut AdminCall<'_>) -> Outcome {
    write_help(
        call.reply,
        "PUBSUB",
        &[
            "CHANNELS [<pattern>]",
            "    Return the currently active channels matching a <pattern> (default: '*').",
            "NUMPAT",
            "    Return number of subscriptions to patterns.",
            "NUMSUB [<channel> ...]",
            "    Return the number of subscribers for the specified channels, excluding",
            "    pattern subscriptions(default: no channels).",
            "SHARDCHANNELS [<pattern>]",
            "    Return the currently active shard level channels matching a <pattern> (default: '*').",
            "SHARDNUMSUB [<shardchannel> ...]",
            "    Return the number of subscribers for the specified shard level channel(s)",
        ],
    );
    Outcome::Done
}
