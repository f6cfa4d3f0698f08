//! ACL and its subcommands, declared.

use isotherm_commands::spec::*;

/// Flags of the subcommands that show or change users.
const OF_USERS: Flags = Flags::ADMIN.or(Flags::NOSCRIPT).or(Flags::LOADING).or(Flags::STALE);

pub const ACL: Spec = Spec {
    name: "acl",
    summary: "Manages users and their rules (ACL).",
    since: "6.0.0",
    group: Group::Server,
    complexity: "That of the subcommand",
    arity: -2,
    flags: Flags(0),
    ..Spec::BASE
};

pub const ACL_CAT: Spec = Spec {
    name: "cat",
    summary: "Returns the names of all categories, or of the commands in one of them.",
    since: "6.0.0",
    group: Group::Server,
    complexity: "O(1): categories and commands are fixed",
    arity: -2,
    flags: Flags::NOSCRIPT.or(Flags::LOADING).or(Flags::STALE),
    arguments: &[Argument::string("category").optional()],
    ..Spec::BASE
};

pub const ACL_DELUSER: Spec = Spec {
    name: "deluser",
    summary: "Removes users and closes the connections that they opened. Returns how many existed.",
    since: "6.0.0",
    group: Group::Server,
    complexity: "O(1) for each user, when users have few rules",
    arity: -3,
    flags: OF_USERS,
    tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
    arguments: &[Argument::string("username").multiple()],
    secrets: Some(|_, at| at > 1),
    reach: Reach::Each,
    ..Spec::BASE
};

pub const ACL_DIGEST: Spec = Spec {
    name: "digest",
    summary: "Returns a fingerprint of the ACL rules currently in effect.",
    since: "9.2.0",
    group: Group::Server,
    complexity: "O(N). Where N is the number of configured users and roles.",
    arity: 2,
    flags: OF_USERS,
    ..Spec::BASE
};

pub const ACL_DRYRUN: Spec = Spec {
    name: "dryrun",
    summary: "Checks whether a user may run a command, without running it.",
    since: "7.0.0",
    group: Group::Server,
    complexity: "O(1).",
    arity: -4,
    flags: OF_USERS,
    arguments: &[
        Argument::string("username"),
        Argument::string("command"),
        Argument::string("arg").optional().multiple(),
    ],
    ..Spec::BASE
};

pub const ACL_GENPASS: Spec = Spec {
    name: "genpass",
    summary: "Returns a random password of the given number of bits, 256 by default, as hex digits.",
    since: "6.0.0",
    group: Group::Server,
    complexity: "O(1)",
    arity: -2,
    flags: Flags::NOSCRIPT.or(Flags::LOADING).or(Flags::STALE),
    arguments: &[Argument::integer("bits").optional()],
    ..Spec::BASE
};

pub const ACL_GETUSER: Spec = Spec {
    name: "getuser",
    summary: "Returns the flags, passwords and rules of a user; null for an unknown one.",
    since: "6.0.0",
    group: Group::Server,
    complexity: "O(N), N the user's rules",
    arity: 3,
    flags: OF_USERS,
    history: &[
        ("6.2.0", "Patterns of channels."),
        ("7.0.0", "The reply has selectors; patterns of keys and channels are shown as rules."),
        ("9.1.0", "Rules for databases."),
    ],
    arguments: &[Argument::string("username")],
    secrets: Some(|_, at| at > 1),
    ..Spec::BASE
};

pub const ACL_HELP: Spec = Spec { since: "6.0.0", group: Group::Server, ..Spec::HELP };

pub const ACL_LIST: Spec = Spec {
    name: "list",
    summary: "Returns all users, each as the line of an ACL file.",
    since: "6.0.0",
    group: Group::Server,
    complexity: "O(N), N all users",
    arity: 2,
    flags: OF_USERS,
    ..Spec::BASE
};

pub const ACL_LOAD: Spec = Spec {
    name: "load",
    summary: "Replaces all users by those of the ACL file; after an error in it nothing changes.",
    since: "6.0.0",
    group: Group::Server,
    complexity: "O(N), N all users",
    arity: 2,
    flags: OF_USERS,
    reach: Reach::Each,
    ..Spec::BASE
};

pub const ACL_LOG: Spec = Spec {
    name: "log",
    summary: "Returns the latest refused commands and logins, or clears this log.",
    since: "6.0.0",
    group: Group::Server,
    complexity: "O(N), N the entries returned",
    arity: -2,
    flags: OF_USERS,
    history: &[("7.2.0", "Each entry has an ID and the times of its first and latest event.")],
    arguments: &[Argument::one_of(
        "operation",
        &[Argument::integer("count"), Argument::pure_token("reset", "RESET")],
    )
    .optional()],
    ..Spec::BASE
};

pub const ACL_SAVE: Spec = Spec {
    name: "save",
    summary: "Writes all users to the ACL file.",
    since: "6.0.0",
    group: Group::Server,
    complexity: "O(N), N all users",
    arity: 2,
    flags: OF_USERS,
    tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
    ..Spec::BASE
};

pub const ACL_SETUSER: Spec = Spec {
    name: "setuser",
    summary: "Applies rules to a user, which is created without rights when it is new.",
    since: "6.0.0",
    group: Group::Server,
    complexity: "O(N), N the given rules",
    arity: -3,
    flags: OF_USERS,
    tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
    history: &[
        ("6.2.0", "Patterns of channels."),
        ("7.0.0", "Selectors, and separate rights to read and write keys."),
        ("9.1.0", "Rules for databases."),
    ],
    arguments: &[Argument::string("username"), Argument::string("rule").optional().multiple()],
    secrets: Some(|_, at| at > 1),
    reach: Reach::Each,
    ..Spec::BASE
};

pub const ACL_USERS: Spec = Spec {
    name: "users",
    summary: "Returns the names of all users.",
    since: "6.0.0",
    group: Group::Server,
    complexity: "O(N), N all users",
    arity: 2,
    flags: OF_USERS,
    ..Spec::BASE
};

pub const ACL_WHOAMI: Spec = Spec {
    name: "whoami",
    summary: "Returns the name of the user that this connection is authenticated as.",
    since: "6.0.0",
    group: Group::Server,
    complexity: "O(1)",
    arity: 2,
    flags: Flags::NOSCRIPT.or(Flags::LOADING).or(Flags::STALE),
    ..Spec::BASE
};
