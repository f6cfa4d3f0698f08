//! What is said of the commands of a member of a cluster, as far as they exist without one.

use isotherm_commands::spec::*;

pub const ASKING: Spec = Spec {
    name: "asking",
    summary: "Signals that a cluster client is following an -ASK redirect.",
    since: "3.0.0",
    group: Group::Cluster,
    complexity: "O(1)",
    arity: 1,
    flags: Flags::FAST,
    acl: AclCategories::CONNECTION,
    ..Spec::BASE
};

pub const READONLY: Spec = Spec {
    name: "readonly",
    summary: "Enables read-only queries for a connection to a Valkey replica node.",
    since: "3.0.0",
    group: Group::Cluster,
    complexity: "O(1)",
    arity: 1,
    flags: Flags::FAST.or(Flags::LOADING).or(Flags::STALE),
    acl: AclCategories::CONNECTION,
    ..Spec::BASE
};

pub const READWRITE: Spec = Spec {
    name: "readwrite",
    summary: "Enables read-write queries for a connection to a Valkey replica node.",
    since: "3.0.0",
    group: Group::Cluster,
    complexity: "O(1)",
    arity: 1,
    flags: Flags::FAST.or(Flags::LOADING).or(Flags::STALE),
    acl: AclCategories::CONNECTION,
    ..Spec::BASE
};
