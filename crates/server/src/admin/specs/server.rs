//! What is said of the commands of the server: COMMAND, CONFIG, INFO, MEMORY and single ones.

use isotherm_commands::spec::*;

pub const DEBUG: Spec = Spec {
    name: "debug",
    summary: "A container for debugging commands.",
    group: Group::Server,
    complexity: "Depends on subcommand.",
    arity: -2,
    flags: Flags::ADMIN.or(Flags::NOSCRIPT).or(Flags::LOADING).or(Flags::STALE).or(Flags::PROTECTED),
    doc_flags: &["syscmd"],
    ..Spec::BASE
};

pub const INFO: Spec = Spec {
    name: "info",
    summary: "Returns information and statistics about the server.",
    group: Group::Server,
    complexity: "O(1)",
    arity: -1,
    flags: Flags::LOADING.or(Flags::STALE).or(Flags::ASKS_SYSTEM),
    acl: AclCategories::DANGEROUS,
    tips: &["nondeterministic_output", "request_policy:all_shards", "response_policy:special"],
    history: &[("7.0.0", "Added support for taking multiple section arguments.")],
    arguments: &[Argument::string("section").optional().multiple()],
    ..Spec::BASE
};

pub const SHUTDOWN: Spec = Spec {
    name: "shutdown",
    summary: "Synchronously saves the database(s) to disk and shuts down the server.",
    group: Group::Server,
    complexity: "O(N) when saving, where N is the total number of keys in all databases when saving data, otherwise O(1)",
    arity: -1,
    flags: Flags::ADMIN
        .or(Flags::NOSCRIPT)
        .or(Flags::LOADING)
        .or(Flags::STALE)
        .or(Flags::NO_MULTI)
        .or(Flags::ALLOW_BUSY),
    history: &[
        ("7.0.0", "Added the `NOW`, `FORCE` and `ABORT` modifiers."),
        ("9.0.0", "Added the `SAFE` and `FAILOVER` modifiers."),
    ],
    arguments: &[Argument::one_of(
        "abort-selector",
        &[
            Argument::block(
                "save-selector-block",
                &[
                    Argument::one_of(
                        "save-selector",
                        &[Argument::pure_token("nosave", "NOSAVE"), Argument::pure_token("save", "SAVE")],
                    )
                    .optional(),
                    Argument::pure_token("now", "NOW").since("7.0.0").optional(),
                    Argument::pure_token("force", "FORCE").since("7.0.0").optional(),
                    Argument::pure_token("safe", "SAFE").since("9.0.0").optional(),
                    Argument::pure_token("failover", "FAILOVER").since("9.0.0").optional(),
                ],
            ),
            Argument::pure_token("abort", "ABORT").since("7.0.0"),
        ],
    )
    .optional()],
    ..Spec::BASE
};

pub const TIME: Spec = Spec {
    name: "time",
    summary: "Returns the server time.",
    since: "2.6.0",
    group: Group::Server,
    complexity: "O(1)",
    flags: Flags::LOADING.or(Flags::STALE).or(Flags::FAST),
    tips: &["nondeterministic_output"],
    ..Spec::BASE
};

pub const COMMAND: Spec = Spec {
    name: "command",
    summary: "Returns detailed information about all commands.",
    since: "2.8.13",
    group: Group::Server,
    complexity: "O(N) where N is the total number of commands",
    arity: -1,
    flags: Flags::LOADING.or(Flags::STALE),
    acl: AclCategories::CONNECTION,
    tips: &["nondeterministic_output_order"],
    ..Spec::BASE
};

pub const COMMAND_COUNT: Spec = Spec {
    name: "count",
    summary: "Returns a count of commands.",
    since: "2.8.13",
    group: Group::Server,
    complexity: "O(1)",
    arity: 2,
    flags: Flags::LOADING.or(Flags::STALE),
    acl: AclCategories::CONNECTION,
    ..Spec::BASE
};

pub const COMMAND_DOCS: Spec = Spec {
    name: "docs",
    summary: "Returns documentary information about one, multiple or all commands.",
    since: "7.0.0",
    group: Group::Server,
    complexity: "O(N) where N is the number of commands to look up",
    arity: -2,
    flags: Flags::LOADING.or(Flags::STALE),
    acl: AclCategories::CONNECTION,
    tips: &["nondeterministic_output_order"],
    arguments: &[Argument::string("command-name").optional().multiple()],
    ..Spec::BASE
};

pub const COMMAND_GETKEYS: Spec = Spec {
    name: "getkeys",
    summary: "Extracts the key names from an arbitrary command.",
    since: "2.8.13",
    group: Group::Server,
    complexity: "O(N) where N is the number of arguments to the command",
    arity: -3,
    flags: Flags::LOADING.or(Flags::STALE),
    acl: AclCategories::CONNECTION,
    arguments: &[Argument::string("command"), Argument::string("arg").optional().multiple()],
    ..Spec::BASE
};

pub const COMMAND_GETKEYSANDFLAGS: Spec = Spec {
    name: "getkeysandflags",
    summary: "Extracts the key names and access flags for an arbitrary command.",
    since: "7.0.0",
    group: Group::Server,
    complexity: "O(N) where N is the number of arguments to the command",
    arity: -3,
    flags: Flags::LOADING.or(Flags::STALE),
    acl: AclCategories::CONNECTION,
    arguments: &[Argument::string("command"), Argument::string("arg").optional().multiple()],
    ..Spec::BASE
};

pub const COMMAND_HELP: Spec = Spec {
    name: "help",
    summary: "Returns helpful text about the different subcommands.",
    since: "5.0.0",
    group: Group::Server,
    complexity: "O(1)",
    arity: 2,
    flags: Flags::LOADING.or(Flags::STALE),
    acl: AclCategories::CONNECTION,
    ..Spec::BASE
};

pub const COMMAND_INFO: Spec = Spec {
    name: "info",
    summary: "Returns information about one, multiple or all commands.",
    since: "2.8.13",
    group: Group::Server,
    complexity: "O(N) where N is the number of commands to look up",
    arity: -2,
    flags: Flags::LOADING.or(Flags::STALE),
    acl: AclCategories::CONNECTION,
    tips: &["nondeterministic_output_order"],
    history: &[("7.0.0", "Allowed to be called with no argument to get info on all commands.")],
    arguments: &[Argument::string("command-name").optional().multiple()],
    ..Spec::BASE
};

pub const COMMAND_LIST: Spec = Spec {
    name: "list",
    summary: "Returns a list of command names.",
    since: "7.0.0",
    group: Group::Server,
    complexity: "O(N) where N is the total number of commands",
    arity: -2,
    flags: Flags::LOADING.or(Flags::STALE),
    acl: AclCategories::CONNECTION,
    tips: &["nondeterministic_output_order"],
    arguments: &[Argument::one_of(
        "filterby",
        &[
            Argument::string("module-name").token("MODULE"),
            Argument::string("category").token("ACLCAT"),
            Argument::pattern("pattern").token("PATTERN"),
        ],
    )
    .token("FILTERBY")
    .optional()],
    ..Spec::BASE
};

pub const CONFIG: Spec = Spec {
    name: "config",
    summary: "A container for server configuration commands.",
    since: "2.0.0",
    group: Group::Server,
    complexity: "Depends on subcommand.",
    arity: -2,
    ..Spec::BASE
};

pub const CONFIG_GET: Spec = Spec {
    name: "get",
    summary: "Returns the effective values of configuration parameters.",
    since: "2.0.0",
    group: Group::Server,
    complexity: "O(N) when N is the number of configuration parameters provided",
    arity: -3,
    flags: Flags::ADMIN.or(Flags::NOSCRIPT).or(Flags::LOADING).or(Flags::STALE),
    history: &[("7.0.0", "Added the ability to pass multiple pattern parameters in one call")],
    arguments: &[Argument::string("parameter").multiple()],
    ..Spec::BASE
};

pub const CONFIG_HELP: Spec = Spec {
    name: "help",
    summary: "Returns helpful text about the different subcommands.",
    since: "5.0.0",
    group: Group::Server,
    complexity: "O(1)",
    arity: 2,
    flags: Flags::LOADING.or(Flags::STALE),
    ..Spec::BASE
};

pub const CONFIG_RESETSTAT: Spec = Spec {
    name: "resetstat",
    summary: "Resets the server's statistics.",
    since: "2.0.0",
    group: Group::Server,
    complexity: "O(1)",
    arity: 2,
    flags: Flags::ADMIN.or(Flags::NOSCRIPT).or(Flags::LOADING).or(Flags::STALE),
    tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
    ..Spec::BASE
};

pub const CONFIG_REWRITE: Spec = Spec {
    name: "rewrite",
    summary: "Persists the effective configuration to file.",
    since: "2.8.0",
    group: Group::Server,
    complexity: "O(1)",
    arity: 2,
    flags: Flags::ADMIN.or(Flags::NOSCRIPT).or(Flags::LOADING).or(Flags::STALE),
    tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
    ..Spec::BASE
};

pub const CONFIG_SET: Spec = Spec {
    name: "set",
    summary: "Sets configuration parameters in-flight.",
    since: "2.0.0",
    group: Group::Server,
    complexity: "O(N) when N is the number of configuration parameters provided",
    arity: -4,
    flags: Flags::ADMIN.or(Flags::NOSCRIPT).or(Flags::LOADING).or(Flags::STALE),
    tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
    history: &[("7.0.0", "Added the ability to set multiple parameters in one call.")],
    arguments: &[
        Argument::block("data", &[Argument::string("parameter"), Argument::string("value")]).multiple()
    ],
    ..Spec::BASE
};

pub const MEMORY: Spec = Spec {
    name: "memory",
    summary: "A container for memory diagnostics commands.",
    since: "4.0.0",
    group: Group::Server,
    complexity: "Depends on subcommand.",
    arity: -2,
    ..Spec::BASE
};

pub const MEMORY_DIFF: Spec = Spec {
    name: "diff",
    summary: "Returns what has changed in memory since a mark, or sets the mark.",
    since: "9.1.0",
    group: Group::Server,
    complexity: "O(N) where N is the number of partitions",
    arity: -2,
    tips: &["nondeterministic_output", "request_policy:all_shards", "response_policy:special"],
    arguments: &[Argument::pure_token("mark", "MARK").optional()],
    flags: Flags::ASKS_SYSTEM.or(Flags::ASKS_MEMORY_MAP),
    ..Spec::BASE
};

pub const MEMORY_DOCTOR: Spec = Spec {
    name: "doctor",
    summary: "Outputs a memory problems report.",
    since: "4.0.0",
    group: Group::Server,
    complexity: "O(1)",
    arity: 2,
    tips: &["nondeterministic_output", "request_policy:all_shards", "response_policy:special"],
    flags: Flags::ASKS_SYSTEM,
    ..Spec::BASE
};

pub const MEMORY_MAP: Spec = Spec {
    name: "map",
    summary: "Tells where every byte of memory is.",
    since: "9.1.0",
    group: Group::Server,
    complexity: "O(N) where N is the number of lock stripes and databases; asking the kernel takes some ten milliseconds a gigabyte",
    arity: 2,
    reach: Reach::Each,
    tips: &["nondeterministic_output", "request_policy:all_shards", "response_policy:special"],
    flags: Flags::ASKS_SYSTEM.or(Flags::ASKS_MEMORY_MAP),
    ..Spec::BASE
};

pub const MEMORY_HELP: Spec = Spec {
    name: "help",
    summary: "Returns helpful text about the different subcommands.",
    since: "4.0.0",
    group: Group::Server,
    complexity: "O(1)",
    arity: 2,
    flags: Flags::LOADING.or(Flags::STALE),
    ..Spec::BASE
};

pub const MEMORY_MALLOC_STATS: Spec = Spec {
    name: "malloc-stats",
    summary: "Returns the allocator statistics.",
    since: "4.0.0",
    group: Group::Server,
    complexity: "Depends on how much memory is allocated, could be slow",
    arity: -2,
    flags: Flags::LOADING,
    tips: &["nondeterministic_output", "request_policy:all_shards", "response_policy:special"],
    ..Spec::BASE
};

pub const MEMORY_PREFIXES: Spec = Spec {
    name: "prefixes",
    summary: "Returns what the prefixes of keys take.",
    since: "9.1.0",
    group: Group::Server,
    complexity: "O(1)",
    arity: -2,
    tips: &["nondeterministic_output", "request_policy:all_shards", "response_policy:special"],
    arguments: &[
        Argument::integer("depth").token("DEPTH").optional(),
        Argument::integer("count").token("TOP").optional(),
    ],
    ..Spec::BASE
};

pub const MEMORY_PROFILE: Spec = Spec {
    name: "profile",
    summary: "Samples the allocations that live, and writes the sample to a file.",
    since: "1.0.0",
    group: Group::Server,
    complexity: "Depends on how much memory is allocated, could be slow",
    arity: -3,
    flags: Flags::ADMIN.or(Flags::NOSCRIPT).or(Flags::LOADING),
    arguments: &[
        Argument::one_of(
            "order",
            &[
                Argument::pure_token("on", "ON"),
                Argument::pure_token("off", "OFF"),
                Argument::pure_token("dump", "DUMP"),
            ],
        ),
        Argument::string("file").optional(),
    ],
    tips: &["nondeterministic_output", "request_policy:all_shards", "response_policy:all_succeeded"],
    ..Spec::BASE
};

pub const MEMORY_PURGE: Spec = Spec {
    name: "purge",
    summary: "Asks the allocator to release memory.",
    since: "4.0.0",
    group: Group::Server,
    complexity: "Depends on how much memory is allocated, could be slow",
    arity: 2,
    flags: Flags::LOADING,
    tips: &["request_policy:all_shards", "response_policy:all_succeeded"],
    ..Spec::BASE
};

pub const MEMORY_STATS: Spec = Spec {
    name: "stats",
    summary: "Returns details about memory usage.",
    since: "4.0.0",
    group: Group::Server,
    complexity: "O(1)",
    arity: 2,
    tips: &["nondeterministic_output", "request_policy:all_shards", "response_policy:special"],
    flags: Flags::ASKS_SYSTEM,
    ..Spec::BASE
};

pub const MEMORY_TOP: Spec = Spec {
    name: "top",
    summary: "Returns the keys that take the most memory.",
    since: "9.1.0",
    group: Group::Server,
    complexity: "O(N) where N is the number of partitions",
    arity: -2,
    tips: &["nondeterministic_output", "request_policy:all_shards", "response_policy:special"],
    arguments: &[Argument::integer("count").optional()],
    ..Spec::BASE
};

pub const MEMORY_USAGE: Spec = Spec {
    name: "usage",
    summary: "Estimates the memory usage of a key.",
    since: "4.0.0",
    group: Group::Server,
    complexity: "O(N) where N is the number of samples.",
    arity: -3,
    flags: Flags::READONLY,
    key_specs: &[KeySpec::one(2, KeyFlags::RO)],
    arguments: &[Argument::key("key", 0), Argument::integer("count").token("SAMPLES").optional()],
    ..Spec::BASE
};
