//! What is said of CLIENT and its subcommands.

use isotherm_commands::spec::*;

pub const CLIENT: Spec = Spec {
    name: "client",
    summary: "A container for client connection commands.",
    since: "2.4.0",
    group: Group::Connection,
    complexity: "Depends on subcommand.",
    arity: -2,
    flags: Flags::KEEPS_CACHING,
    ..Spec::BASE
};

pub const CLIENT_CACHING: Spec = Spec {
    name: "caching",
    summary: "Instructs the server whether to track the keys in the next request.",
    since: "6.0.0",
    group: Group::Connection,
    complexity: "O(1)",
    arity: 3,
    flags: Flags::ALLOW_BUSY.or(Flags::NOSCRIPT).or(Flags::LOADING).or(Flags::STALE),
    acl: AclCategories::CONNECTION,
    arguments: &[Argument::one_of(
        "mode",
        &[Argument::pure_token("yes", "YES"), Argument::pure_token("no", "NO")],
    )],
    ..Spec::BASE
};

pub const CLIENT_CAPA: Spec = Spec {
    name: "capa",
    summary: "A client claims its capability.",
    since: "8.0.0",
    group: Group::Connection,
    complexity: "O(1)",
    arity: -3,
    flags: Flags::ALLOW_BUSY.or(Flags::NOSCRIPT).or(Flags::LOADING).or(Flags::STALE),
    acl: AclCategories::CONNECTION,
    arguments: &[Argument::string("capability").multiple()],
    ..Spec::BASE
};

pub const CLIENT_GETNAME: Spec = Spec {
    name: "getname",
    summary: "Returns the name of the connection.",
    since: "2.6.9",
    group: Group::Connection,
    complexity: "O(1)",
    arity: 2,
    flags: Flags::ALLOW_BUSY.or(Flags::NOSCRIPT).or(Flags::LOADING).or(Flags::STALE),
    acl: AclCategories::CONNECTION,
    ..Spec::BASE
};

pub const CLIENT_GETREDIR: Spec = Spec {
    name: "getredir",
    summary: "Returns the client ID to which the connection's tracking notifications are redirected.",
    since: "6.0.0",
    group: Group::Connection,
    complexity: "O(1)",
    arity: 2,
    flags: Flags::ALLOW_BUSY.or(Flags::NOSCRIPT).or(Flags::LOADING).or(Flags::STALE),
    acl: AclCategories::CONNECTION,
    ..Spec::BASE
};

pub const CLIENT_HELP: Spec = Spec {
    name: "help",
    summary: "Returns helpful text about the different subcommands.",
    since: "5.0.0",
    group: Group::Connection,
    complexity: "O(1)",
    arity: 2,
    flags: Flags::LOADING.or(Flags::STALE),
    acl: AclCategories::CONNECTION,
    ..Spec::BASE
};

pub const CLIENT_ID: Spec = Spec {
    name: "id",
    summary: "Returns the unique client ID of the connection.",
    since: "5.0.0",
    group: Group::Connection,
    complexity: "O(1)",
    arity: 2,
    flags: Flags::ALLOW_BUSY.or(Flags::NOSCRIPT).or(Flags::LOADING).or(Flags::STALE),
    acl: AclCategories::CONNECTION,
    ..Spec::BASE
};

pub const CLIENT_IMPORT_SOURCE: Spec = Spec {
    name: "import-source",
    summary: "Marks this client as an import source when the server is in import mode.",
    since: "8.1.0",
    group: Group::Connection,
    complexity: "O(1)",
    arity: 3,
    flags: Flags::NOSCRIPT.or(Flags::LOADING).or(Flags::STALE),
    acl: AclCategories::CONNECTION,
    arguments: &[Argument::one_of(
        "enabled",
        &[Argument::pure_token("on", "ON"), Argument::pure_token("off", "OFF")],
    )],
    ..Spec::BASE
};

pub const CLIENT_INFO: Spec = Spec {
    name: "info",
    summary: "Returns information about the connection.",
    since: "6.2.0",
    group: Group::Connection,
    complexity: "O(1)",
    arity: 2,
    flags: Flags::NOSCRIPT.or(Flags::LOADING).or(Flags::STALE),
    acl: AclCategories::CONNECTION,
    tips: &["nondeterministic_output"],
    ..Spec::BASE
};

pub const CLIENT_KILL: Spec = Spec {
    name: "kill",
    summary: "Terminates open connections.",
    since: "2.4.0",
    group: Group::Connection,
    complexity: "O(N) where N is the number of client connections",
    arity: -3,
    flags: Flags::ADMIN.or(Flags::NOSCRIPT).or(Flags::LOADING).or(Flags::STALE),
    acl: AclCategories::CONNECTION,
    history: &[
        ("2.8.12", "Added new filter format."),
        ("2.8.12", "`ID` option."),
        ("3.2.0", "Added `master` type in for `TYPE` option."),
        (
            "5.0.0",
            "Replaced `slave` `TYPE` with `replica`. `slave` still supported for backward compatibility.",
        ),
        ("6.2.0", "`LADDR` option."),
        ("8.0.0", "`MAXAGE` option."),
        (
            "8.0.0",
            "Replaced `master` `TYPE` with `primary`. `master` still supported for backward compatibility.",
        ),
        ("8.1.0", "`ID` option accepts multiple IDs."),
        (
            "9.0.0",
            "Added filters NAME, IDLE, FLAGS, LIB-NAME, LIB-VER, DB, CAPA, and IP. And negative filters NOT-ID, NOT-TYPE, NOT-ADDR, NOT-LADDR, NOT-USER, NOT-FLAGS, NOT-NAME, NOT-LIB-NAME, NOT-LIB-VER, NOT-DB, NOT-CAPA, NOT-IP.",
        ),
    ],
    arguments: &[Argument::one_of(
        "filter",
        &[
            Argument::string("old-format").deprecated_since("2.8.12").display("ip:port"),
            Argument::one_of(
                "new-format",
                &[
                    Argument::integer("client-id").token("ID").since("2.8.12").optional().multiple(),
                    Argument::one_of(
                        "client-type",
                        &[
                            Argument::pure_token("normal", "NORMAL"),
                            Argument::pure_token("master", "MASTER").since("3.2.0"),
                            Argument::pure_token("primary", "PRIMARY").since("8.0.0"),
                            Argument::pure_token("slave", "SLAVE"),
                            Argument::pure_token("replica", "REPLICA").since("5.0.0"),
                            Argument::pure_token("pubsub", "PUBSUB"),
                        ],
                    )
                    .token("TYPE")
                    .since("2.8.12")
                    .optional(),
                    Argument::string("username").token("USER").optional(),
                    Argument::string("addr").token("ADDR").optional().display("ip:port"),
                    Argument::string("laddr").token("LADDR").since("6.2.0").optional().display("ip:port"),
                    Argument::one_of(
                        "skipme",
                        &[Argument::pure_token("yes", "YES"), Argument::pure_token("no", "NO")],
                    )
                    .token("SKIPME")
                    .optional(),
                    Argument::integer("maxage").token("MAXAGE").since("8.0.0").optional(),
                    Argument::string("name").token("NAME").since("9.0.0").optional(),
                    Argument::integer("idle").token("IDLE").since("9.0.0").optional(),
                    Argument::string("flags").token("FLAGS").since("9.0.0").optional(),
                    Argument::string("lib-name").token("LIB-NAME").since("9.0.0").optional(),
                    Argument::string("lib-ver").token("LIB-VER").since("9.0.0").optional(),
                    Argument::integer("db").token("DB").since("9.0.0").optional(),
                    Argument::string("capa").token("CAPA").since("9.0.0").optional(),
                    Argument::string("ip").token("IP").since("9.0.0").optional(),
                    Argument::one_of(
                        "not-client-type",
                        &[
                            Argument::pure_token("normal", "NORMAL"),
                            Argument::pure_token("master", "MASTER"),
                            Argument::pure_token("primary", "PRIMARY"),
                            Argument::pure_token("slave", "SLAVE"),
                            Argument::pure_token("replica", "REPLICA"),
                            Argument::pure_token("pubsub", "PUBSUB"),
                        ],
                    )
                    .token("NOT-TYPE")
                    .since("9.0.0")
                    .optional(),
                    Argument::integer("not-client-id").token("NOT-ID").since("9.0.0").optional().multiple(),
                    Argument::string("not-username").token("NOT-USER").since("9.0.0").optional(),
                    Argument::string("not-addr")
                        .token("NOT-ADDR")
                        .since("9.0.0")
                        .optional()
                        .display("ip:port"),
                    Argument::string("not-laddr")
                        .token("NOT-LADDR")
                        .since("9.0.0")
                        .optional()
                        .display("ip:port"),
                    Argument::string("not-name").token("NOT-NAME").since("9.0.0").optional(),
                    Argument::string("not-flags").token("NOT-FLAGS").since("9.0.0").optional(),
                    Argument::string("not-lib-name").token("NOT-LIB-NAME").since("9.0.0").optional(),
                    Argument::string("not-lib-ver").token("NOT-LIB-VER").since("9.0.0").optional(),
                    Argument::integer("not-db").token("NOT-DB").since("9.0.0").optional(),
                    Argument::string("not-capa").token("NOT-CAPA").since("9.0.0").optional(),
                    Argument::string("not-ip").token("NOT-IP").since("9.0.0").optional(),
                ],
            )
            .multiple(),
        ],
    )],
    ..Spec::BASE
};

pub const CLIENT_LIST: Spec = Spec {
    name: "list",
    summary: "Lists open connections.",
    since: "2.4.0",
    group: Group::Connection,
    complexity: "O(N) where N is the number of client connections",
    arity: -2,
    flags: Flags::ADMIN.or(Flags::NOSCRIPT).or(Flags::LOADING).or(Flags::STALE),
    acl: AclCategories::CONNECTION,
    tips: &["nondeterministic_output"],
    history: &[
        ("2.8.12", "Added unique client `id` field."),
        ("5.0.0", "Added optional `TYPE` filter."),
        ("6.0.0", "Added `user` field."),
        ("6.2.0", "Added `argv-mem`, `tot-mem`, `laddr` and `redir` fields and the optional `ID` filter."),
        ("7.0.0", "Added `resp`, `multi-mem`, `rbs` and `rbp` fields."),
        ("7.0.3", "Added `ssub` field."),
        (
            "8.0.0",
            "Replaced `master` `TYPE` with `primary`. `master` still supported for backward compatibility.",
        ),
        ("8.1.0", "Added filters USER, ADDR, LADDR, SKIPME, and MAXAGE."),
        (
            "9.0.0",
            "Added filters NAME, IDLE, FLAGS, LIB-NAME, LIB-VER, DB, CAPA, and IP. And negative filters NOT-ID, NOT-TYPE, NOT-ADDR, NOT-LADDR, NOT-USER, NOT-FLAGS, NOT-NAME, NOT-LIB-NAME, NOT-LIB-VER, NOT-DB, NOT-CAPA, NOT-IP.",
        ),
    ],
    arguments: &[
        Argument::one_of(
            "client-type",
            &[
                Argument::pure_token("normal", "NORMAL"),
                Argument::pure_token("master", "MASTER"),
                Argument::pure_token("replica", "REPLICA"),
                Argument::pure_token("pubsub", "PUBSUB"),
            ],
        )
        .token("TYPE")
        .since("5.0.0")
        .optional(),
        Argument::integer("client-id").token("ID").since("6.2.0").optional().multiple(),
        Argument::string("username").token("USER").since("8.1.0").optional(),
        Argument::string("addr").token("ADDR").since("8.1.0").optional().display("ip:port"),
        Argument::string("laddr").token("LADDR").since("8.1.0").optional().display("ip:port"),
        Argument::one_of("skipme", &[Argument::pure_token("yes", "YES"), Argument::pure_token("no", "NO")])
            .token("SKIPME")
            .since("8.1.0")
            .optional(),
        Argument::integer("maxage").token("MAXAGE").since("8.1.0").optional(),
        Argument::string("name").token("NAME").since("9.0.0").optional(),
        Argument::integer("idle").token("IDLE").since("9.0.0").optional(),
        Argument::string("flags").token("FLAGS").since("9.0.0").optional(),
        Argument::string("lib-name").token("LIB-NAME").since("9.0.0").optional(),
        Argument::string("lib-ver").token("LIB-VER").since("9.0.0").optional(),
        Argument::integer("db").token("DB").since("9.0.0").optional(),
        Argument::string("capa").token("CAPA").since("9.0.0").optional(),
        Argument::string("ip").token("IP").since("9.0.0").optional(),
        Argument::one_of(
            "not-client-type",
            &[
                Argument::pure_token("normal", "NORMAL"),
                Argument::pure_token("master", "MASTER"),
                Argument::pure_token("replica", "REPLICA"),
                Argument::pure_token("pubsub", "PUBSUB"),
            ],
        )
        .token("NOT-TYPE")
        .since("9.0.0")
        .optional(),
        Argument::integer("not-client-id").token("NOT-ID").since("9.0.0").optional().multiple(),
        Argument::string("not-username").token("NOT-USER").since("9.0.0").optional(),
        Argument::string("not-addr").token("NOT-ADDR").since("9.0.0").optional().display("ip:port"),
        Argument::string("not-laddr").token("NOT-LADDR").since("9.0.0").optional().display("ip:port"),
        Argument::string("not-name").token("NOT-NAME").since("9.0.0").optional(),
        Argument::string("not-flags").token("NOT-FLAGS").since("9.0.0").optional(),
        Argument::string("not-lib-name").token("NOT-LIB-NAME").since("9.0.0").optional(),
        Argument::string("not-lib-ver").token("NOT-LIB-VER").since("9.0.0").optional(),
        Argument::integer("not-db").token("NOT-DB").since("9.0.0").optional(),
        Argument::string("not-capa").token("NOT-CAPA").since("9.0.0").optional(),
        Argument::string("not-ip").token("NOT-IP").since("9.0.0").optional(),
    ],
    ..Spec::BASE
};

pub const CLIENT_NO_EVICT: Spec = Spec {
    name: "no-evict",
    summary: "Sets the client eviction mode of the connection.",
    since: "7.0.0",
    group: Group::Connection,
    complexity: "O(1)",
    arity: 3,
    flags: Flags::ALLOW_BUSY.or(Flags::ADMIN).or(Flags::NOSCRIPT).or(Flags::LOADING).or(Flags::STALE),
    acl: AclCategories::CONNECTION,
    arguments: &[Argument::one_of(
        "enabled",
        &[Argument::pure_token("on", "ON"), Argument::pure_token("off", "OFF")],
    )],
    ..Spec::BASE
};

pub const CLIENT_NO_TOUCH: Spec = Spec {
    name: "no-touch",
    summary: "Controls whether commands sent by the client affect the LRU/LFU of accessed keys.",
    since: "7.2.0",
    group: Group::Connection,
    complexity: "O(1)",
    arity: 3,
    flags: Flags::ALLOW_BUSY.or(Flags::NOSCRIPT).or(Flags::LOADING).or(Flags::STALE),
    acl: AclCategories::CONNECTION,
    arguments: &[Argument::one_of(
        "enabled",
        &[Argument::pure_token("on", "ON"), Argument::pure_token("off", "OFF")],
    )],
    ..Spec::BASE
};

pub const CLIENT_PAUSE: Spec = Spec {
    name: "pause",
    summary: "Suspends commands processing.",
    since: "3.0.0",
    group: Group::Connection,
    complexity: "O(1)",
    arity: -3,
    flags: Flags::ADMIN.or(Flags::NOSCRIPT).or(Flags::LOADING).or(Flags::STALE),
    acl: AclCategories::CONNECTION,
    history: &[("6.2.0", "`CLIENT PAUSE WRITE` mode added along with the `mode` option.")],
    arguments: &[
        Argument::integer("timeout"),
        Argument::one_of(
            "mode",
            &[Argument::pure_token("write", "WRITE"), Argument::pure_token("all", "ALL")],
        )
        .since("6.2.0")
        .optional(),
    ],
    ..Spec::BASE
};

pub const CLIENT_REPLY: Spec = Spec {
    name: "reply",
    summary: "Instructs the server whether to reply to commands.",
    since: "3.2.0",
    group: Group::Connection,
    complexity: "O(1)",
    arity: 3,
    flags: Flags::ALLOW_BUSY.or(Flags::NOSCRIPT).or(Flags::NO_MULTI).or(Flags::LOADING).or(Flags::STALE),
    acl: AclCategories::CONNECTION,
    arguments: &[Argument::one_of(
        "action",
        &[
            Argument::pure_token("on", "ON"),
            Argument::pure_token("off", "OFF"),
            Argument::pure_token("skip", "SKIP"),
        ],
    )],
    ..Spec::BASE
};

pub const CLIENT_SETINFO: Spec = Spec {
    name: "setinfo",
    summary: "Sets information specific to the client or connection.",
    since: "7.2.0",
    group: Group::Connection,
    complexity: "O(1)",
    arity: 4,
    flags: Flags::ALLOW_BUSY.or(Flags::NOSCRIPT).or(Flags::LOADING).or(Flags::STALE),
    acl: AclCategories::CONNECTION,
    tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
    arguments: &[Argument::one_of(
        "attr",
        &[Argument::string("libname").token("LIB-NAME"), Argument::string("libver").token("LIB-VER")],
    )],
    ..Spec::BASE
};

pub const CLIENT_SETNAME: Spec = Spec {
    name: "setname",
    summary: "Sets the connection name.",
    since: "2.6.9",
    group: Group::Connection,
    complexity: "O(1)",
    arity: 3,
    flags: Flags::ALLOW_BUSY.or(Flags::NOSCRIPT).or(Flags::LOADING).or(Flags::STALE),
    acl: AclCategories::CONNECTION,
    tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
    arguments: &[Argument::string("connection-name")],
    ..Spec::BASE
};

pub const CLIENT_TRACKING: Spec = Spec {
    name: "tracking",
    summary: "Controls server-assisted client-side caching for the connection.",
    since: "6.0.0",
    group: Group::Connection,
    complexity: "O(1). Some options may introduce additional complexity.",
    arity: -3,
    flags: Flags::NOSCRIPT.or(Flags::LOADING).or(Flags::STALE),
    acl: AclCategories::CONNECTION,
    arguments: &[
        Argument::one_of("status", &[Argument::pure_token("on", "ON"), Argument::pure_token("off", "OFF")]),
        Argument::integer("client-id").token("REDIRECT").optional(),
        Argument::string("prefix").token("PREFIX").optional().multiple_token(),
        Argument::pure_token("bcast", "BCAST").optional(),
        Argument::pure_token("optin", "OPTIN").optional(),
        Argument::pure_token("optout", "OPTOUT").optional(),
        Argument::pure_token("noloop", "NOLOOP").optional(),
    ],
    ..Spec::BASE
};

pub const CLIENT_TRACKINGINFO: Spec = Spec {
    name: "trackinginfo",
    summary: "Returns information about server-assisted client-side caching for the connection.",
    since: "6.2.0",
    group: Group::Connection,
    complexity: "O(1)",
    arity: 2,
    flags: Flags::NOSCRIPT.or(Flags::LOADING).or(Flags::STALE),
    acl: AclCategories::CONNECTION,
    ..Spec::BASE
};

pub const CLIENT_UNBLOCK: Spec = Spec {
    name: "unblock",
    summary: "Unblocks a client blocked by a blocking command from a different connection.",
    since: "5.0.0",
    group: Group::Connection,
    complexity: "O(log N) where N is the number of client connections",
    arity: -3,
    flags: Flags::ADMIN.or(Flags::NOSCRIPT).or(Flags::LOADING).or(Flags::STALE),
    acl: AclCategories::CONNECTION,
    arguments: &[
        Argument::integer("client-id"),
        Argument::one_of(
            "unblock-type",
            &[Argument::pure_token("timeout", "TIMEOUT"), Argument::pure_token("error", "ERROR")],
        )
        .optional(),
    ],
    ..Spec::BASE
};

pub const CLIENT_UNPAUSE: Spec = Spec {
    name: "unpause",
    summary: "Resumes processing commands from paused clients.",
    since: "6.2.0",
    group: Group::Connection,
    complexity: "O(N) Where N is the number of paused clients",
    arity: 2,
    flags: Flags::ADMIN.or(Flags::NOSCRIPT).or(Flags::LOADING).or(Flags::STALE),
    acl: AclCategories::CONNECTION,
    ..Spec::BASE
};
