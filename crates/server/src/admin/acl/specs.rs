//! ACL and its subcommands, declared.

use isotherm_commands::spec::*;

/// Of what shows or changes users.
const OF_USERS: Flags = Flags::ADMIN.or(Flags::NOSCRIPT).or(Flags::LOADING).or(Flags::STALE);

pub const ACL: Spec = Spec {
    name: "acl",
    summary: "A container for Access List Control commands.",
    since: "6.0.0",
    group: Group::Server,
    complexity: "Depends on subcommand.",
    arity: -2,
    flags: Flags(0),
    ..Spec::BASE
};

pub const ACL_CAT: Spec = Spec {
    name: "cat",
    summary: "Lists the ACL categories, or the commands inside a category.",
    since: "6.0.0",
    group: Group::Server,
    complexity: "O(1) since the categories and commands are a fixed set.",
    arity: -2,
    flags: Flags::NOSCRIPT.or(Flags::LOADING).or(Flags::STALE),
    arguments: &[Argument::string("category").optional()],
    ..Spec::BASE
};

pub const ACL_DELUSER: Spec = Spec {
    name: "deluser",
    summary: "Deletes ACL users, and terminates their connections.",
    since: "6.0.0",
    group: Group::Server,
    complexity: "O(1) amortized time considering the typical user.",
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
    summary: "Simulates the execution of a command by a user, without executing the command.",
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
    summary: "Generates a pseudorandom, secure password that can be used to identify ACL users.",
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
    summary: "Lists the ACL rules of a user.",
    since: "6.0.0",
    group: Group::Server,
    complexity: "O(N). Where N is the number of password, command and pattern rules that the user has.",
    arity: 3,
    flags: OF_USERS,
    history: &[
        ("6.2.0", "Added Pub/Sub channel patterns."),
        (
            "7.0.0",
            "Added selectors and changed the format of key and channel patterns from a list to their rule representation.",
        ),
        ("9.1.0", "Added database permission rules."),
    ],
    arguments: &[Argument::string("username")],
    secrets: Some(|_, at| at > 1),
    ..Spec::BASE
};

pub const ACL_HELP: Spec = Spec {
    name: "help",
    summary: "Returns helpful text about the different subcommands.",
    since: "6.0.0",
    group: Group::Server,
    complexity: "O(1)",
    arity: 2,
    flags: Flags::LOADING.or(Flags::STALE),
    ..Spec::BASE
};

pub const ACL_LIST: Spec = Spec {
    name: "list",
    summary: "Dumps the effective rules in ACL file format.",
    since: "6.0.0",
    group: Group::Server,
    complexity: "O(N). Where N is the number of configured users.",
    arity: 2,
    flags: OF_USERS,
    ..Spec::BASE
};

pub const ACL_LOAD: Spec = Spec {
    name: "load",
    summary: "Reloads the rules from the configured ACL file.",
    since: "6.0.0",
    group: Group::Server,
    complexity: "O(N). Where N is the number of configured users.",
    arity: 2,
    flags: OF_USERS,
    reach: Reach::Each,
    ..Spec::BASE
};

pub const ACL_LOG: Spec = Spec {
    name: "log",
    summary: "Lists recent security events generated due to ACL rules.",
    since: "6.0.0",
    group: Group::Server,
    complexity: "O(N) with N being the number of entries shown.",
    arity: -2,
    flags: OF_USERS,
    history: &[("7.2.0", "Added entry ID, timestamp created, and timestamp last updated.")],
    arguments: &[Argument::one_of(
        "operation",
        &[Argument::integer("count"), Argument::pure_token("reset", "RESET")],
    )
    .optional()],
    ..Spec::BASE
};

pub const ACL_SAVE: Spec = Spec {
    name: "save",
    summary: "Saves the effective ACL rules in the configured ACL file.",
    since: "6.0.0",
    group: Group::Server,
    complexity: "O(N). Where N is the number of configured users.",
    arity: 2,
    flags: OF_USERS,
    tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
    ..Spec::BASE
};

pub const ACL_SETUSER: Spec = Spec {
    name: "setuser",
    summary: "Creates and modifies an ACL user and its rules.",
    since: "6.0.0",
    group: Group::Server,
    complexity: "O(N). Where N is the number of rules provided.",
    arity: -3,
    flags: OF_USERS,
    tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
    history: &[
        ("6.2.0", "Added Pub/Sub channel patterns."),
        ("7.0.0", "Added selectors and key based permissions."),
        ("9.1.0", "Added database permission rules."),
    ],
    arguments: &[Argument::string("username"), Argument::string("rule").optional().multiple()],
    secrets: Some(|_, at| at > 1),
    reach: Reach::Each,
    ..Spec::BASE
};

pub const ACL_USERS: Spec = Spec {
    name: "users",
    summary: "Lists all ACL users.",
    since: "6.0.0",
    group: Group::Server,
    complexity: "O(N). Where N is the number of configured users.",
    arity: 2,
    flags: OF_USERS,
    ..Spec::BASE
};

pub const ACL_WHOAMI: Spec = Spec {
    name: "whoami",
    summary: "Returns the authenticated username of the current connection.",
    since: "6.0.0",
    group: Group::Server,
    complexity: "O(1)",
    arity: 2,
    flags: Flags::NOSCRIPT.or(Flags::LOADING).or(Flags::STALE),
    ..Spec::BASE
};
