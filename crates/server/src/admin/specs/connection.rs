//! What is said of the commands of a connection and its transactions.

use isotherm_commands::spec::*;

pub const AUTH: Spec = Spec {
    name: "auth",
    summary: "Authenticates the connection.",
    group: Group::Connection,
    complexity: "O(N) where N is the number of passwords defined for the user",
    arity: -2,
    flags: Flags::NOSCRIPT
        .or(Flags::LOADING)
        .or(Flags::STALE)
        .or(Flags::FAST)
        .or(Flags::NO_AUTH)
        .or(Flags::ALLOW_BUSY),
    acl: AclCategories::CONNECTION,
    history: &[("6.0.0", "Added ACL style (username and password).")],
    arguments: &[Argument::string("username").since("6.0.0").optional(), Argument::string("password")],
    ..Spec::BASE
};

pub const ECHO: Spec = Spec {
    name: "echo",
    summary: "Returns the given string.",
    group: Group::Connection,
    complexity: "O(1)",
    arity: 2,
    flags: Flags::LOADING.or(Flags::STALE).or(Flags::FAST),
    acl: AclCategories::CONNECTION,
    arguments: &[Argument::string("message")],
    ..Spec::BASE
};

pub const HELLO: Spec = Spec {
    name: "hello",
    summary: "Handshakes with the server.",
    since: "6.0.0",
    group: Group::Connection,
    complexity: "O(1)",
    arity: -1,
    flags: Flags::NOSCRIPT
        .or(Flags::LOADING)
        .or(Flags::STALE)
        .or(Flags::FAST)
        .or(Flags::NO_AUTH)
        .or(Flags::ALLOW_BUSY),
    acl: AclCategories::CONNECTION,
    history: &[
        (
            "8.1.0",
            "A new `availability_zone` field is added to the response if the `availability-zone` config is set.",
        ),
        (
            "6.2.0",
            "`protover` made optional; when called without arguments the command reports the current connection's context.",
        ),
    ],
    arguments: &[Argument::block(
        "arguments",
        &[
            Argument::integer("protover"),
            Argument::block("auth", &[Argument::string("username"), Argument::string("password")])
                .token("AUTH")
                .optional(),
            Argument::string("clientname").token("SETNAME").optional(),
        ],
    )
    .optional()],
    ..Spec::BASE
};

pub const PING: Spec = Spec {
    name: "ping",
    summary: "Returns the server's liveliness response.",
    group: Group::Connection,
    complexity: "O(1)",
    arity: -1,
    flags: Flags::FAST.or(Flags::FOR_SUBSCRIBERS),
    acl: AclCategories::CONNECTION,
    tips: &["request_policy:all_shards", "response_policy:all_succeeded"],
    arguments: &[Argument::string("message").optional()],
    ..Spec::BASE
};

pub const QUIT: Spec = Spec {
    name: "quit",
    summary: "Closes the connection.",
    group: Group::Connection,
    complexity: "O(1)",
    arity: -1,
    flags: Flags::ALLOW_BUSY
        .or(Flags::NOSCRIPT)
        .or(Flags::LOADING)
        .or(Flags::STALE)
        .or(Flags::FAST)
        .or(Flags::NO_AUTH)
        .or(Flags::FOR_SUBSCRIBERS)
        .or(Flags::NEVER_QUEUED),
    acl: AclCategories::CONNECTION,
    ..Spec::BASE
};

pub const RESET: Spec = Spec {
    name: "reset",
    summary: "Resets the connection.",
    since: "6.2.0",
    group: Group::Connection,
    complexity: "O(1)",
    flags: Flags::NOSCRIPT
        .or(Flags::LOADING)
        .or(Flags::STALE)
        .or(Flags::FAST)
        .or(Flags::NO_AUTH)
        .or(Flags::ALLOW_BUSY)
        .or(Flags::FOR_SUBSCRIBERS)
        .or(Flags::NEVER_QUEUED),
    acl: AclCategories::CONNECTION,
    ..Spec::BASE
};

pub const SELECT: Spec = Spec {
    name: "select",
    summary: "Changes the selected database.",
    group: Group::Connection,
    complexity: "O(1)",
    arity: 2,
    flags: Flags::ALLOW_BUSY.or(Flags::LOADING).or(Flags::STALE).or(Flags::FAST),
    acl: AclCategories::CONNECTION,
    arguments: &[Argument::integer("index")],
    ..Spec::BASE
};

pub const DISCARD: Spec = Spec {
    name: "discard",
    summary: "Discards a transaction.",
    since: "2.0.0",
    group: Group::Transactions,
    complexity: "O(N), when N is the number of queued commands",
    flags: Flags::NOSCRIPT
        .or(Flags::LOADING)
        .or(Flags::STALE)
        .or(Flags::FAST)
        .or(Flags::ALLOW_BUSY)
        .or(Flags::NEVER_QUEUED),
    acl: AclCategories::TRANSACTION,
    ..Spec::BASE
};

pub const EXEC: Spec = Spec {
    name: "exec",
    summary: "Executes all commands in a transaction.",
    since: "1.2.0",
    group: Group::Transactions,
    complexity: "Depends on commands in the transaction",
    flags: Flags::NOSCRIPT
        .or(Flags::LOADING)
        .or(Flags::STALE)
        .or(Flags::SKIP_SLOWLOG)
        .or(Flags::NEVER_QUEUED),
    acl: AclCategories::TRANSACTION,
    ..Spec::BASE
};

pub const MULTI: Spec = Spec {
    name: "multi",
    summary: "Starts a transaction.",
    since: "1.2.0",
    group: Group::Transactions,
    complexity: "O(1)",
    flags: Flags::NOSCRIPT
        .or(Flags::LOADING)
        .or(Flags::STALE)
        .or(Flags::FAST)
        .or(Flags::NO_MULTI)
        .or(Flags::ALLOW_BUSY),
    acl: AclCategories::TRANSACTION,
    ..Spec::BASE
};

pub const UNWATCH: Spec = Spec {
    name: "unwatch",
    summary: "Forgets about watched keys of a transaction.",
    since: "2.2.0",
    group: Group::Transactions,
    complexity: "O(1)",
    flags: Flags::NOSCRIPT.or(Flags::LOADING).or(Flags::STALE).or(Flags::FAST).or(Flags::ALLOW_BUSY),
    acl: AclCategories::TRANSACTION,
    ..Spec::BASE
};

pub const WATCH: Spec = Spec {
    name: "watch",
    summary: "Monitors changes to keys to determine the execution of a transaction.",
    since: "2.2.0",
    group: Group::Transactions,
    complexity: "O(1) for every key.",
    arity: -2,
    flags: Flags::NOSCRIPT
        .or(Flags::LOADING)
        .or(Flags::STALE)
        .or(Flags::FAST)
        .or(Flags::NO_MULTI)
        .or(Flags::ALLOW_BUSY),
    acl: AclCategories::TRANSACTION,
    key_specs: &[KeySpec::range(1, -1, 1, KeyFlags::RO)],
    arguments: &[Argument::key("key", 0).multiple()],
    ..Spec::BASE
};
