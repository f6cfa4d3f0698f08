//! Commands of pub/sub. SUBSCRIBE and its kin answer by pushes, one a name; they come also under CLIENT REPLY
//! OFF.

use isotherm_commands::Outcome;
use isotherm_commands::help::write_help;
use isotherm_commands::spec::*;
use isotherm_keyspace::Slot;

use super::{AdminCall, AdminHandler};
use isotherm_node::effects::pubsub::{Frame, Kind};
use isotherm_node::session::ReplyMode;

const PUBSUB: Spec = Spec {
    name: "pubsub",
    summary: "Shows channels and subscriptions.",
    since: "2.8.0",
    group: Group::PubSub,
    complexity: "That of the subcommand",
    arity: -2,
    ..Spec::BASE
};

pub const COMMANDS: &[Command<AdminHandler>] = &[
    Command::new(SUBSCRIBE, |call| subscribe(call, Kind::Channel, "subscribe")),
    Command::new(UNSUBSCRIBE, |call| unsubscribe(call, Kind::Channel, "unsubscribe")),
    Command::new(PSUBSCRIBE, |call| subscribe(call, Kind::Pattern, "psubscribe")),
    Command::new(PUNSUBSCRIBE, |call| unsubscribe(call, Kind::Pattern, "punsubscribe")),
    Command::new(SSUBSCRIBE, |call| subscribe(call, Kind::ShardChannel, "ssubscribe")),
    Command::new(SUNSUBSCRIBE, |call| unsubscribe(call, Kind::ShardChannel, "sunsubscribe")),
    Command::new(PUBLISH, |call| publish(call, false)),
    Command::new(SPUBLISH, |call| publish(call, true)),
    Command::container(
        PUBSUB,
        &[
            Command::new(PUBSUB_CHANNELS, |call| channels(call, Kind::Channel)),
            Command::new(PUBSUB_HELP, help),
            Command::new(PUBSUB_NUMPAT, numpat),
            Command::new(PUBSUB_NUMSUB, |call| numsub(call, Kind::Channel)),
            Command::new(PUBSUB_SHARDCHANNELS, |call| channels(call, Kind::ShardChannel)),
            Command::new(PUBSUB_SHARDNUMSUB, |call| numsub(call, Kind::ShardChannel)),
        ],
    ),
];

const SUBSCRIBE: Spec = Spec {
    name: "subscribe",
    channels: Channels::All,
    summary: "Subscribes this connection to channels.",
    since: "2.0.0",
    group: Group::PubSub,
    complexity: "O(N), N the given channels",
    arity: -2,
    flags: Flags::PUBSUB.or(Flags::NOSCRIPT).or(Flags::LOADING).or(Flags::STALE).or(Flags::FOR_SUBSCRIBERS),
    arguments: &[Argument::string("channel").multiple()],
    ..Spec::BASE
};

const PSUBSCRIBE: Spec = Spec {
    name: "psubscribe",
    channels: Channels::Patterns,
    summary: "Subscribes this connection to all channels that match patterns.",
    since: "2.0.0",
    group: Group::PubSub,
    complexity: "O(N), N the given patterns",
    arity: -2,
    flags: Flags::PUBSUB.or(Flags::NOSCRIPT).or(Flags::LOADING).or(Flags::STALE).or(Flags::FOR_SUBSCRIBERS),
    arguments: &[Argument::pattern("pattern").multiple()],
    ..Spec::BASE
};

const SSUBSCRIBE: Spec = Spec {
    name: "ssubscribe",
    channels: Channels::All,
    summary: "Subscribes this connection to shard channels, all of one slot.",
    since: "7.0.0",
    group: Group::PubSub,
    complexity: "O(N), N the given channels",
    arity: -2,
    flags: Flags::PUBSUB.or(Flags::NOSCRIPT).or(Flags::LOADING).or(Flags::STALE).or(Flags::FOR_SUBSCRIBERS),
    key_specs: &[KeySpec::range(1, -1, 1, KeyFlags::NOT_KEY)],
    arguments: &[Argument::string("shardchannel").multiple()],
    ..Spec::BASE
};

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

const UNSUBSCRIBE: Spec = Spec {
    name: "unsubscribe",
    summary: "Ends subscriptions to the given channels, or to all.",
    since: "2.0.0",
    group: Group::PubSub,
    complexity: "O(N), N the ended subscriptions",
    arity: -1,
    flags: Flags::PUBSUB.or(Flags::NOSCRIPT).or(Flags::LOADING).or(Flags::STALE).or(Flags::FOR_SUBSCRIBERS),
    arguments: &[Argument::string("channel").optional().multiple()],
    ..Spec::BASE
};

const PUNSUBSCRIBE: Spec = Spec {
    name: "punsubscribe",
    summary: "Ends subscriptions to the given patterns, or to all.",
    since: "2.0.0",
    group: Group::PubSub,
    complexity: "O(N), N the ended subscriptions",
    arity: -1,
    flags: Flags::PUBSUB.or(Flags::NOSCRIPT).or(Flags::LOADING).or(Flags::STALE).or(Flags::FOR_SUBSCRIBERS),
    arguments: &[Argument::pattern("pattern").optional().multiple()],
    ..Spec::BASE
};

const SUNSUBSCRIBE: Spec = Spec {
    name: "sunsubscribe",
    summary: "Ends subscriptions to the given shard channels, or to all.",
    since: "7.0.0",
    group: Group::PubSub,
    complexity: "O(N), N the ended subscriptions",
    arity: -1,
    flags: Flags::PUBSUB.or(Flags::NOSCRIPT).or(Flags::LOADING).or(Flags::STALE).or(Flags::FOR_SUBSCRIBERS),
    key_specs: &[KeySpec::range(1, -1, 1, KeyFlags::NOT_KEY)],
    arguments: &[Argument::string("shardchannel").optional().multiple()],
    ..Spec::BASE
};

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
    let mark = call.reply.len();
    call.reply.push(3);
    call.reply.bulk(word.as_bytes());
    match name {
        Some(name) => call.reply.bulk(name),
        None => call.reply.null(),
    }
    call.reply.integer(call.session.subscriptions(kind) as i64);
    if call.session.reply_mode != ReplyMode::On {
        call.session.pushed.extend_from_slice(&call.reply.out[mark..]);
    }
}

const PUBLISH: Spec = Spec {
    name: "publish",
    channels: Channels::One,
    summary: "Sends a message to a channel. Returns how many received it from this server.",
    since: "2.0.0",
    group: Group::PubSub,
    complexity: "O(N+M), N the subscribers of the channel, M the patterns of all clients",
    arity: 3,
    flags: Flags::PUBSUB.or(Flags::LOADING).or(Flags::STALE).or(Flags::FAST).or(Flags::MAY_REPLICATE),
    arguments: &[Argument::string("channel"), Argument::string("message")],
    ..Spec::BASE
};

const SPUBLISH: Spec = Spec {
    name: "spublish",
    channels: Channels::One,
    summary: "Sends a message to a shard channel. Returns how many received it from this node.",
    since: "7.0.0",
    group: Group::PubSub,
    complexity: "O(N), N the subscribers of the channel",
    arity: 3,
    flags: Flags::PUBSUB.or(Flags::LOADING).or(Flags::STALE).or(Flags::FAST).or(Flags::MAY_REPLICATE),
    key_specs: &[KeySpec::one(1, KeyFlags::NOT_KEY)],
    arguments: &[Argument::string("shardchannel"), Argument::string("message")],
    ..Spec::BASE
};

fn publish(call: &mut AdminCall<'_>, sharded: bool) -> Outcome {
    let from = Some(call.session.shared.worker);
    let receivers =
        call.node.pubsub.publish(&call.node.mail, from, call.args.get(1), call.args.get(2), sharded);
    if sharded && receivers > 0 && call.exec.hot.counts_slots {
        count_sent(call, receivers);
    }
    match call.node.cluster.get() {
        // Replicas are nodes too: they get it by the bus.
        Some(member) => member.bus.publish(call.args.get(1), call.args.get(2), sharded),
        None if call.exec.pump.is_logging() && call.node.replication.primary.has_backlog() => {
            log_message(call)
        }
        None => {}
    }
    call.reply.integer(receivers as i64);
    Outcome::Done
}

/// Counts the bytes sent to the subscribers of a shard channel as output of its slot.
fn count_sent(call: &AdminCall<'_>, receivers: usize) {
    let (channel, message) = (call.args.get(1), call.args.get(2));
    let frame = Frame::new(&[b"smessage", channel, message]);
    let counters = call.exec.stats.slots.of(Slot::of_key(channel));
    counters.output_bytes.add((frame.wire_bytes() * receivers) as u64);
}

/// Subscribers of replicas get it too.
fn log_message(call: &mut AdminCall<'_>) {
    if !call.session.in_exec {
        call.exec.held.acquire_one(0);
    }
    // While something is held it stays as it is.
    if call.exec.pump.is_logging() {
        call.exec.pump.log.message(call.session.db, call.args);
    }
}

// ---- PUBSUB ----

const PUBSUB_CHANNELS: Spec = Spec {
    name: "channels",
    summary: "Returns the channels that have subscribers, or those of them that match a pattern.",
    since: "2.8.0",
    group: Group::PubSub,
    complexity: "O(N), N the channels with subscribers, when names and pattern are short",
    arity: -2,
    flags: Flags::PUBSUB.or(Flags::LOADING).or(Flags::STALE),
    arguments: &[Argument::pattern("pattern").optional()],
    ..Spec::BASE
};

const PUBSUB_SHARDCHANNELS: Spec = Spec {
    name: "shardchannels",
    summary: "Returns the shard channels that have subscribers, or those of them that match a pattern.",
    since: "7.0.0",
    group: Group::PubSub,
    complexity: "O(N), N the shard channels with subscribers, when names and pattern are short",
    arity: -2,
    flags: Flags::PUBSUB.or(Flags::LOADING).or(Flags::STALE),
    arguments: &[Argument::pattern("pattern").optional()],
    ..Spec::BASE
};

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

const PUBSUB_NUMSUB: Spec = Spec {
    name: "numsub",
    summary: "Returns each named channel with the number of its subscribers, patterns not counted.",
    since: "2.8.0",
    group: Group::PubSub,
    complexity: "O(N), N the named channels",
    arity: -2,
    flags: Flags::PUBSUB.or(Flags::LOADING).or(Flags::STALE),
    arguments: &[Argument::string("channel").optional().multiple()],
    ..Spec::BASE
};

const PUBSUB_SHARDNUMSUB: Spec = Spec {
    name: "shardnumsub",
    summary: "Returns each named shard channel with the number of its subscribers.",
    since: "7.0.0",
    group: Group::PubSub,
    complexity: "O(N), N the named shard channels",
    arity: -2,
    flags: Flags::PUBSUB.or(Flags::LOADING).or(Flags::STALE),
    arguments: &[Argument::string("shardchannel").optional().multiple()],
    ..Spec::BASE
};

fn numsub(call: &mut AdminCall<'_>, kind: Kind) -> Outcome {
    let names = call.args.from(2);
    call.reply.array(names.len() * 2);
    for name in names.iter() {
        call.reply.bulk(name);
        call.reply.integer(call.node.pubsub.subscribers(kind, name) as i64);
    }
    Outcome::Done
}

const PUBSUB_NUMPAT: Spec = Spec {
    name: "numpat",
    summary: "Returns how many different patterns are subscribed to.",
    since: "2.8.0",
    group: Group::PubSub,
    complexity: "O(1)",
    arity: 2,
    flags: Flags::PUBSUB.or(Flags::LOADING).or(Flags::STALE),
    ..Spec::BASE
};

fn numpat(call: &mut AdminCall<'_>) -> Outcome {
    call.reply.integer(call.node.pubsub.count(Kind::Pattern) as i64);
    Outcome::Done
}

const PUBSUB_HELP: Spec = Spec { since: "6.2.0", group: Group::PubSub, ..Spec::HELP };

fn help(call: &mut AdminCall<'_>) -> Outcome {
    write_help(
        call.reply,
        call.args,
        &[
            "CHANNELS [<pattern>]",
            "    Return the channels with subscribers that fit <pattern> (default: all).",
            "NUMPAT",
            "    Return how many different patterns have subscribers.",
            "NUMSUB [<channel> ...]",
            "    Return these channels with the numbers of their subscribers,",
            "    without those of patterns.",
            "SHARDCHANNELS [<pattern>]",
            "    Return the shard channels with subscribers that fit <pattern> (default: all).",
            "SHARDNUMSUB [<shardchannel> ...]",
            "    Return these shard channels with the numbers of their subscribers.",
        ],
    )
}
