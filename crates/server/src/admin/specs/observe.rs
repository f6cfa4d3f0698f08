//! What is said of the commands that tell how the server does: COMMANDLOG, HOTKEYS, LATENCY and SLOWLOG; and of ROLE and
//! LOLWUT.

use isotherm_commands::spec::*;

pub const COMMANDLOG: Spec = Spec {
    name: "commandlog",
    summary: "A container for command log commands.",
    since: "8.1.0",
    group: Group::Server,
    complexity: "Depends on subcommand.",
    arity: -2,
    ..Spec::BASE
};

pub const COMMANDLOG_GET: Spec = Spec {
    name: "get",
    summary: "Returns the specified command log's entries.",
    since: "8.1.0",
    group: Group::Server,
    complexity: "O(N) where N is the number of entries returned",
    arity: 4,
    flags: Flags::ADMIN.or(Flags::LOADING).or(Flags::STALE),
    tips: &["request_policy:all_nodes", "nondeterministic_output"],
    arguments: &[
        Argument::integer("count"),
        Argument::one_of(
            "type",
            &[
                Argument::pure_token("slow", "SLOW"),
                Argument::pure_token("large-request", "LARGE-REQUEST"),
                Argument::pure_token("large-reply", "LARGE-REPLY"),
            ],
        ),
    ],
    ..Spec::BASE
};

pub const COMMANDLOG_HELP: Spec = Spec {
    name: "help",
    summary: "Shows helpful text about the different subcommands.",
    since: "8.1.0",
    group: Group::Server,
    complexity: "O(1)",
    arity: 2,
    flags: Flags::LOADING.or(Flags::STALE),
    ..Spec::BASE
};

pub const COMMANDLOG_LEN: Spec = Spec {
    name: "len",
    summary: "Returns the number of entries in the specified type of command log.",
    since: "8.1.0",
    group: Group::Server,
    complexity: "O(1)",
    arity: 3,
    flags: Flags::ADMIN.or(Flags::LOADING).or(Flags::STALE),
    tips: &["request_policy:all_nodes", "response_policy:agg_sum", "nondeterministic_output"],
    arguments: &[Argument::one_of(
        "type",
        &[
            Argument::pure_token("slow", "SLOW"),
            Argument::pure_token("large-request", "LARGE-REQUEST"),
            Argument::pure_token("large-reply", "LARGE-REPLY"),
        ],
    )],
    ..Spec::BASE
};

pub const COMMANDLOG_RESET: Spec = Spec {
    name: "reset",
    summary: "Clears all entries from the specified type of command log.",
    since: "8.1.0",
    group: Group::Server,
    complexity: "O(N) where N is the number of entries in the commandlog",
    arity: 3,
    flags: Flags::ADMIN.or(Flags::LOADING).or(Flags::STALE),
    tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
    arguments: &[Argument::one_of(
        "type",
        &[
            Argument::pure_token("slow", "SLOW"),
            Argument::pure_token("large-request", "LARGE-REQUEST"),
            Argument::pure_token("large-reply", "LARGE-REPLY"),
        ],
    )],
    ..Spec::BASE
};

pub const HOTKEYS: Spec = Spec {
    name: "hotkeys",
    summary: "A container for commands about the most used keys.",
    since: "9.1.0",
    group: Group::Server,
    complexity: "Depends on subcommand.",
    arity: -2,
    ..Spec::BASE
};

pub const HOTKEYS_GET: Spec = Spec {
    name: "get",
    summary: "Returns the most used keys, estimated from a sample of the commands.",
    since: "9.1.0",
    group: Group::Server,
    complexity: "O(W) where W is the number of workers",
    arity: -2,
    flags: Flags::ADMIN.or(Flags::NOSCRIPT).or(Flags::LOADING).or(Flags::STALE),
    tips: &["nondeterministic_output", "request_policy:all_nodes", "response_policy:special"],
    arguments: &[Argument::integer("count").token("COUNT").optional()],
    ..Spec::BASE
};

pub const HOTKEYS_HELP: Spec = Spec {
    name: "help",
    summary: "Returns helpful text about the different subcommands.",
    since: "9.1.0",
    group: Group::Server,
    complexity: "O(1)",
    arity: 2,
    flags: Flags::LOADING.or(Flags::STALE),
    ..Spec::BASE
};

pub const HOTKEYS_RESET: Spec = Spec {
    name: "reset",
    summary: "Forgets which keys were used most.",
    since: "9.1.0",
    group: Group::Server,
    complexity: "O(W) where W is the number of workers",
    arity: 2,
    flags: Flags::ADMIN.or(Flags::NOSCRIPT).or(Flags::LOADING).or(Flags::STALE),
    tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
    ..Spec::BASE
};

pub const LATENCY: Spec = Spec {
    name: "latency",
    summary: "A container for latency diagnostics commands.",
    since: "2.8.13",
    group: Group::Server,
    complexity: "Depends on subcommand.",
    arity: -2,
    ..Spec::BASE
};

pub const LATENCY_DOCTOR: Spec = Spec {
    name: "doctor",
    summary: "Returns a human-readable latency analysis report.",
    since: "2.8.13",
    group: Group::Server,
    complexity: "O(1)",
    arity: 2,
    flags: Flags::ADMIN.or(Flags::NOSCRIPT).or(Flags::LOADING).or(Flags::STALE),
    tips: &["nondeterministic_output", "request_policy:all_nodes", "response_policy:special"],
    ..Spec::BASE
};

pub const LATENCY_GRAPH: Spec = Spec {
    name: "graph",
    summary: "Returns a latency graph for an event.",
    since: "2.8.13",
    group: Group::Server,
    complexity: "O(1)",
    arity: 3,
    flags: Flags::ADMIN.or(Flags::NOSCRIPT).or(Flags::LOADING).or(Flags::STALE),
    tips: &["nondeterministic_output", "request_policy:all_nodes", "response_policy:special"],
    arguments: &[Argument::string("event")],
    ..Spec::BASE
};

pub const LATENCY_HELP: Spec = Spec {
    name: "help",
    summary: "Returns helpful text about the different subcommands.",
    since: "2.8.13",
    group: Group::Server,
    complexity: "O(1)",
    arity: 2,
    flags: Flags::LOADING.or(Flags::STALE),
    ..Spec::BASE
};

pub const LATENCY_HISTOGRAM: Spec = Spec {
    name: "histogram",
    summary: "Returns the cumulative distribution of latencies of a subset or all commands.",
    since: "7.0.0",
    group: Group::Server,
    complexity: "O(N) where N is the number of commands with latency information being retrieved.",
    arity: -2,
    flags: Flags::ADMIN.or(Flags::NOSCRIPT).or(Flags::LOADING).or(Flags::STALE),
    tips: &["nondeterministic_output", "request_policy:all_nodes", "response_policy:special"],
    arguments: &[Argument::string("command").optional().multiple()],
    ..Spec::BASE
};

pub const LATENCY_HISTORY: Spec = Spec {
    name: "history",
    summary: "Returns timestamp-latency samples for an event.",
    since: "2.8.13",
    group: Group::Server,
    complexity: "O(1)",
    arity: 3,
    flags: Flags::ADMIN.or(Flags::NOSCRIPT).or(Flags::LOADING).or(Flags::STALE),
    tips: &["nondeterministic_output", "request_policy:all_nodes", "response_policy:special"],
    arguments: &[Argument::string("event")],
    ..Spec::BASE
};

pub const LATENCY_LATEST: Spec = Spec {
    name: "latest",
    summary: "Returns the latest latency samples for all events.",
    since: "2.8.13",
    group: Group::Server,
    complexity: "O(1)",
    arity: 2,
    flags: Flags::ADMIN.or(Flags::NOSCRIPT).or(Flags::LOADING).or(Flags::STALE),
    tips: &["nondeterministic_output", "request_policy:all_nodes", "response_policy:special"],
    ..Spec::BASE
};

pub const LATENCY_RESET: Spec = Spec {
    name: "reset",
    summary: "Resets the latency data for one or more events.",
    since: "2.8.13",
    group: Group::Server,
    complexity: "O(1)",
    arity: -2,
    flags: Flags::ADMIN.or(Flags::NOSCRIPT).or(Flags::LOADING).or(Flags::STALE),
    tips: &["request_policy:all_nodes", "response_policy:agg_sum"],
    arguments: &[Argument::string("event").optional().multiple()],
    ..Spec::BASE
};

pub const SLOWLOG: Spec = Spec {
    name: "slowlog",
    summary: "A container for slow log commands.",
    since: "2.2.12",
    group: Group::Server,
    complexity: "Depends on subcommand.",
    arity: -2,
    ..Spec::BASE
};

pub const SLOWLOG_GET: Spec = Spec {
    name: "get",
    summary: "Returns the slow log's entries.",
    since: "2.2.12",
    group: Group::Server,
    complexity: "O(N) where N is the number of entries returned",
    arity: -2,
    flags: Flags::ADMIN.or(Flags::LOADING).or(Flags::STALE),
    tips: &["request_policy:all_nodes", "nondeterministic_output"],
    history: &[("4.0.0", "Added client IP address, port and name to the reply.")],
    arguments: &[Argument::integer("count").optional()],
    ..Spec::BASE
};

pub const SLOWLOG_HELP: Spec = Spec {
    name: "help",
    summary: "Shows helpful text about the different subcommands.",
    since: "6.2.0",
    group: Group::Server,
    complexity: "O(1)",
    arity: 2,
    flags: Flags::LOADING.or(Flags::STALE),
    ..Spec::BASE
};

pub const SLOWLOG_LEN: Spec = Spec {
    name: "len",
    summary: "Returns the number of entries in the slow log.",
    since: "2.2.12",
    group: Group::Server,
    complexity: "O(1)",
    arity: 2,
    flags: Flags::ADMIN.or(Flags::LOADING).or(Flags::STALE),
    tips: &["request_policy:all_nodes", "response_policy:agg_sum", "nondeterministic_output"],
    ..Spec::BASE
};

pub const SLOWLOG_RESET: Spec = Spec {
    name: "reset",
    summary: "Clears all entries from the slow log.",
    since: "2.2.12",
    group: Group::Server,
    complexity: "O(N) where N is the number of entries in the slowlog",
    arity: 2,
    flags: Flags::ADMIN.or(Flags::LOADING).or(Flags::STALE),
    tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
    ..Spec::BASE
};

pub const ROLE: Spec = Spec {
    name: "role",
    summary: "Returns the replication role.",
    since: "2.8.12",
    group: Group::Server,
    complexity: "O(1)",
    arity: 1,
    flags: Flags::NOSCRIPT.or(Flags::LOADING).or(Flags::STALE).or(Flags::FAST),
    acl: AclCategories::ADMIN.or(AclCategories::DANGEROUS),
    ..Spec::BASE
};

pub const LOLWUT: Spec = Spec {
    name: "lolwut",
    summary: "Displays computer art and the server version.",
    since: "5.0.0",
    group: Group::Server,
    complexity: "",
    arity: -1,
    flags: Flags::READONLY.or(Flags::FAST),
    arguments: &[Argument::integer("version").token("VERSION").optional()],
    ..Spec::BASE
};
