//! What is said of the commands of pub/sub, and of MONITOR.

use isotherm_commands::spec::*;

pub const SUBSCRIBE: Spec = Spec {
    name: "subscribe",
    summary: "Listens for messages published to channels.",
    since: "2.0.0",
    group: Group::PubSub,
    complexity: "O(N) where N is the number of channels to subscribe to.",
    arity: -2,
    flags: Flags::PUBSUB.or(Flags::NOSCRIPT).or(Flags::LOADING).or(Flags::STALE).or(Flags::FOR_SUBSCRIBERS),
    arguments: &[Argument::string("channel").multiple()],
    ..Spec::BASE
};

pub const UNSUBSCRIBE: Spec = Spec {
    name: "unsubscribe",
    summary: "Stops listening to messages posted to channels.",
    since: "2.0.0",
    group: Group::PubSub,
    complexity: "O(N) where N is the number of channels to unsubscribe.",
    arity: -1,
    flags: Flags::PUBSUB.or(Flags::NOSCRIPT).or(Flags::LOADING).or(Flags::STALE).or(Flags::FOR_SUBSCRIBERS),
    arguments: &[Argument::string("channel").optional().multiple()],
    ..Spec::BASE
};

pub const PSUBSCRIBE: Spec = Spec {
    name: "psubscribe",
    summary: "Listens for messages published to channels that match one or more patterns.",
    since: "2.0.0",
    group: Group::PubSub,
    complexity: "O(N) where N is the number of patterns to subscribe to.",
    arity: -2,
    flags: Flags::PUBSUB.or(Flags::NOSCRIPT).or(Flags::LOADING).or(Flags::STALE).or(Flags::FOR_SUBSCRIBERS),
    arguments: &[Argument::pattern("pattern").multiple()],
    ..Spec::BASE
};

pub const PUNSUBSCRIBE: Spec = Spec {
    name: "punsubscribe",
    summary: "Stops listening to messages published to channels that match one or more patterns.",
    since: "2.0.0",
    group: Group::PubSub,
    complexity: "O(N) where N is the number of patterns to unsubscribe.",
    arity: -1,
    flags: Flags::PUBSUB.or(Flags::NOSCRIPT).or(Flags::LOADING).or(Flags::STALE).or(Flags::FOR_SUBSCRIBERS),
    arguments: &[Argument::pattern("pattern").optional().multiple()],
    ..Spec::BASE
};

pub const SSUBSCRIBE: Spec = Spec {
    name: "ssubscribe",
    summary: "Listens for messages published to shard channels.",
    since: "7.0.0",
    group: Group::PubSub,
    complexity: "O(N) where N is the number of shard channels to subscribe to.",
    arity: -2,
    flags: Flags::PUBSUB.or(Flags::NOSCRIPT).or(Flags::LOADING).or(Flags::STALE).or(Flags::FOR_SUBSCRIBERS),
    key_specs: &[KeySpec::range(1, -1, 1, KeyFlags::NOT_KEY)],
    arguments: &[Argument::string("shardchannel").multiple()],
    ..Spec::BASE
};

pub const SUNSUBSCRIBE: Spec = Spec {
    name: "sunsubscribe",
    summary: "Stops listening to messages posted to shard channels.",
    since: "7.0.0",
    group: Group::PubSub,
    complexity: "O(N) where N is the number of shard channels to unsubscribe.",
    arity: -1,
    flags: Flags::PUBSUB.or(Flags::NOSCRIPT).or(Flags::LOADING).or(Flags::STALE).or(Flags::FOR_SUBSCRIBERS),
    key_specs: &[KeySpec::range(1, -1, 1, KeyFlags::NOT_KEY)],
    arguments: &[Argument::string("shardchannel").optional().multiple()],
    ..Spec::BASE
};

pub const PUBLISH: Spec = Spec {
    name: "publish",
    summary: "Posts a message to a channel.",
    since: "2.0.0",
    group: Group::PubSub,
    complexity: "O(N+M) where N is the number of clients subscribed to the receiving channel and M is the total number of subscribed patterns (by any client).",
    arity: 3,
    flags: Flags::PUBSUB.or(Flags::LOADING).or(Flags::STALE).or(Flags::FAST).or(Flags::MAY_REPLICATE),
    arguments: &[Argument::string("channel"), Argument::string("message")],
    ..Spec::BASE
};

pub const SPUBLISH: Spec = Spec {
    name: "spublish",
    summary: "Posts a message to a shard channel.",
    since: "7.0.0",
    group: Group::PubSub,
    complexity: "O(N) where N is the number of clients subscribed to the receiving shard channel.",
    arity: 3,
    flags: Flags::PUBSUB.or(Flags::LOADING).or(Flags::STALE).or(Flags::FAST).or(Flags::MAY_REPLICATE),
    key_specs: &[KeySpec::one(1, KeyFlags::NOT_KEY)],
    arguments: &[Argument::string("shardchannel"), Argument::string("message")],
    ..Spec::BASE
};

pub const PUBSUB: Spec = Spec {
    name: "pubsub",
    summary: "A container for Pub/Sub commands.",
    since: "2.8.0",
    group: Group::PubSub,
    complexity: "Depends on subcommand.",
    arity: -2,
    ..Spec::BASE
};

pub const PUBSUB_CHANNELS: Spec = Spec {
    name: "channels",
    summary: "Returns the active channels.",
    since: "2.8.0",
    group: Group::PubSub,
    complexity: "O(N) where N is the number of active channels, and assuming constant time pattern matching (relatively short channels and patterns)",
    arity: -2,
    flags: Flags::PUBSUB.or(Flags::LOADING).or(Flags::STALE),
    arguments: &[Argument::pattern("pattern").optional()],
    ..Spec::BASE
};

pub const PUBSUB_HELP: Spec = Spec {
    name: "help",
    summary: "Returns helpful text about the different subcommands.",
    since: "6.2.0",
    group: Group::PubSub,
    complexity: "O(1)",
    arity: 2,
    flags: Flags::LOADING.or(Flags::STALE),
    ..Spec::BASE
};

pub const PUBSUB_NUMPAT: Spec = Spec {
    name: "numpat",
    summary: "Returns a count of unique pattern subscriptions.",
    since: "2.8.0",
    group: Group::PubSub,
    complexity: "O(1)",
    arity: 2,
    flags: Flags::PUBSUB.or(Flags::LOADING).or(Flags::STALE),
    ..Spec::BASE
};

pub const PUBSUB_NUMSUB: Spec = Spec {
    name: "numsub",
    summary: "Returns a count of subscribers to channels.",
    since: "2.8.0",
    group: Group::PubSub,
    complexity: "O(N) for the NUMSUB subcommand, where N is the number of requested channels",
    arity: -2,
    flags: Flags::PUBSUB.or(Flags::LOADING).or(Flags::STALE),
    arguments: &[Argument::string("channel").optional().multiple()],
    ..Spec::BASE
};

pub const PUBSUB_SHARDCHANNELS: Spec = Spec {
    name: "shardchannels",
    summary: "Returns the active shard channels.",
    since: "7.0.0",
    group: Group::PubSub,
    complexity: "O(N) where N is the number of active shard channels, and assuming constant time pattern matching (relatively short shard channels).",
    arity: -2,
    flags: Flags::PUBSUB.or(Flags::LOADING).or(Flags::STALE),
    arguments: &[Argument::pattern("pattern").optional()],
    ..Spec::BASE
};

pub const PUBSUB_SHARDNUMSUB: Spec = Spec {
    name: "shardnumsub",
    summary: "Returns the count of subscribers of shard channels.",
    since: "7.0.0",
    group: Group::PubSub,
    complexity: "O(N) for the SHARDNUMSUB subcommand, where N is the number of requested shard channels",
    arity: -2,
    flags: Flags::PUBSUB.or(Flags::LOADING).or(Flags::STALE),
    arguments: &[Argument::string("shardchannel").optional().multiple()],
    ..Spec::BASE
};

pub const MONITOR: Spec = Spec {
    name: "monitor",
    summary: "Listens for all requests received by the server in real-time.",
    group: Group::Server,
    arity: 1,
    flags: Flags::ADMIN.or(Flags::NOSCRIPT).or(Flags::LOADING).or(Flags::STALE),
    ..Spec::BASE
};
