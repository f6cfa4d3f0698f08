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

pub const CLUSTER: Spec = Spec {
    name: "cluster",
    summary: "A container for Cluster commands.",
    since: "3.0.0",
    group: Group::Cluster,
    complexity: "Depends on subcommand.",
    arity: -2,
    ..Spec::BASE
};

pub const CLUSTER_COUNTKEYSINSLOT: Spec = Spec {
    name: "countkeysinslot",
    summary: "Returns the number of keys in a hash slot.",
    since: "3.0.0",
    group: Group::Cluster,
    complexity: "O(1)",
    arity: 3,
    flags: Flags::STALE,
    arguments: &[Argument::integer("slot")],
    ..Spec::BASE
};

pub const CLUSTER_GETKEYSINSLOT: Spec = Spec {
    name: "getkeysinslot",
    summary: "Returns the key names in a hash slot.",
    since: "3.0.0",
    group: Group::Cluster,
    complexity: "O(N) where N is the number of requested keys",
    arity: 4,
    flags: Flags::STALE,
    tips: &["nondeterministic_output"],
    arguments: &[Argument::integer("slot"), Argument::integer("count")],
    ..Spec::BASE
};

pub const CLUSTER_HELP: Spec = Spec {
    name: "help",
    summary: "Returns helpful text about the different subcommands.",
    since: "5.0.0",
    group: Group::Cluster,
    complexity: "O(1)",
    arity: 2,
    flags: Flags::LOADING.or(Flags::STALE),
    ..Spec::BASE
};

pub const CLUSTER_INFO: Spec = Spec {
    name: "info",
    summary: "Returns information about the state of a node.",
    since: "3.0.0",
    group: Group::Cluster,
    complexity: "O(1)",
    arity: 2,
    flags: Flags::LOADING.or(Flags::STALE),
    tips: &["nondeterministic_output"],
    ..Spec::BASE
};

pub const CLUSTER_KEYSLOT: Spec = Spec {
    name: "keyslot",
    summary: "Returns the hash slot for a key.",
    since: "3.0.0",
    group: Group::Cluster,
    complexity: "O(N) where N is the number of bytes in the key",
    arity: 3,
    flags: Flags::STALE,
    arguments: &[Argument::string("key")],
    ..Spec::BASE
};

pub const CLUSTER_MYID: Spec = Spec {
    name: "myid",
    summary: "Returns the ID of a node.",
    since: "3.0.0",
    group: Group::Cluster,
    complexity: "O(1)",
    arity: 2,
    flags: Flags::LOADING.or(Flags::STALE),
    ..Spec::BASE
};

pub const CLUSTER_NODES: Spec = Spec {
    name: "nodes",
    summary: "Returns the cluster configuration for a node.",
    since: "3.0.0",
    group: Group::Cluster,
    complexity: "O(N) where N is the total number of Cluster nodes",
    arity: 2,
    flags: Flags::LOADING.or(Flags::STALE),
    tips: &["nondeterministic_output"],
    ..Spec::BASE
};

pub const CLUSTER_SHARDS: Spec = Spec {
    name: "shards",
    summary: "Returns the mapping of cluster slots to shards.",
    since: "7.0.0",
    group: Group::Cluster,
    complexity: "O(N) where N is the total number of cluster nodes",
    arity: 2,
    flags: Flags::LOADING.or(Flags::STALE),
    tips: &["nondeterministic_output"],
    history: &[("9.1.0", "Added shard level `id` field and node level `availability-zone` field.")],
    ..Spec::BASE
};

pub const CLUSTER_SLOT_STATS: Spec = Spec {
    name: "slot-stats",
    summary: "Return an array of slot usage statistics for slots assigned to the current node.",
    since: "8.0.0",
    group: Group::Cluster,
    complexity: "O(N) where N is the total number of slots based on arguments. O(N*log(N)) with ORDERBY subcommand.",
    arity: -4,
    flags: Flags::STALE.or(Flags::LOADING),
    tips: &["nondeterministic_output", "request_policy:all_shards"],
    arguments: &[Argument::one_of(
        "filter",
        &[
            Argument::block("slotsrange", &[Argument::integer("start-slot"), Argument::integer("end-slot")])
                .token("SLOTSRANGE"),
            Argument::block(
                "orderby",
                &[
                    Argument::string("metric"),
                    Argument::integer("limit").token("LIMIT").optional(),
                    Argument::one_of(
                        "order",
                        &[Argument::pure_token("asc", "ASC"), Argument::pure_token("desc", "DESC")],
                    )
                    .optional(),
                ],
            )
            .token("ORDERBY"),
        ],
    )],
    ..Spec::BASE
};

pub const CLUSTER_SLOTS: Spec = Spec {
    name: "slots",
    summary: "Returns the mapping of cluster slots to nodes.",
    since: "3.0.0",
    group: Group::Cluster,
    complexity: "O(N) where N is the total number of Cluster nodes",
    arity: 2,
    flags: Flags::LOADING.or(Flags::STALE),
    tips: &["nondeterministic_output"],
    history: &[
        ("4.0.0", "Added node IDs."),
        ("7.0.0", "Added additional networking metadata field."),
        ("9.1.0", "Added `availability-zone` field inside the networking metadata."),
    ],
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
