//! The declarations of CLUSTER and its subcommands, READONLY, READWRITE and ASKING.

use isotherm_commands::spec::*;

/// Of what an administrator asks for, to change or to see the cluster.
const CHANGES: Flags = Flags::NO_ASYNC_LOADING.or(Flags::ADMIN).or(Flags::STALE);

pub const CLUSTER: Spec = Spec {
    name: "cluster",
    summary: "A container for Cluster commands.",
    since: "3.0.0",
    group: Group::Cluster,
    complexity: "Depends on subcommand.",
    arity: -2,
    ..Spec::BASE
};

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

pub const CLUSTER_COUNTKEYSINSLOT: Spec = Spec {
    name: "countkeysinslot",
    summary: "Returns the number of keys in a hash slot.",
    since: "3.0.0",
    group: Group::Cluster,
    complexity: "O(1)",
    arity: 3,
    flags: Flags::STALE,
    arguments: &[Argument::integer("slot")],
    reach: Reach::Each,
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
    reach: Reach::Each,
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

pub const CLUSTER_ADDSLOTS: Spec = Spec {
    name: "addslots",
    summary: "Assigns new hash slots to a node.",
    since: "3.0.0",
    group: Group::Cluster,
    complexity: "O(N) where N is the total number of hash slot arguments",
    arity: -3,
    flags: CHANGES,
    arguments: &[Argument::integer("slot").multiple()],
    ..Spec::BASE
};

pub const CLUSTER_ADDSLOTSRANGE: Spec = Spec {
    name: "addslotsrange",
    summary: "Assigns new hash slot ranges to a node.",
    since: "7.0.0",
    group: Group::Cluster,
    complexity: "O(N) where N is the total number of the slots between the start slot and end slot arguments.",
    arity: -4,
    flags: CHANGES,
    arguments: &[Argument::block("range", &[Argument::integer("start-slot"), Argument::integer("end-slot")])
        .multiple()],
    ..Spec::BASE
};

pub const CLUSTER_BUMPEPOCH: Spec = Spec {
    name: "bumpepoch",
    summary: "Advances the cluster config epoch.",
    since: "3.0.0",
    group: Group::Cluster,
    complexity: "O(1)",
    arity: 2,
    flags: CHANGES,
    tips: &["nondeterministic_output"],
    ..Spec::BASE
};

pub const CLUSTER_CANCELSLOTMIGRATIONS: Spec = Spec {
    name: "cancelslotmigrations",
    summary: "Cancel all current ongoing slot migration operations.",
    since: "9.0.0",
    group: Group::Cluster,
    complexity: "O(N), where N is the number of slot migration operations being cancelled.",
    arity: 2,
    flags: Flags::NO_ASYNC_LOADING.or(Flags::ADMIN).or(Flags::STALE).or(Flags::ALL_DBS),
    ..Spec::BASE
};

pub const CLUSTER_COUNT_FAILURE_REPORTS: Spec = Spec {
    name: "count-failure-reports",
    summary: "Returns the number of active failure reports for a node. No new reports are created once the node is marked as failed.",
    since: "3.0.0",
    group: Group::Cluster,
    complexity: "O(N) where N is the number of failure reports",
    arity: 3,
    flags: Flags::ADMIN.or(Flags::STALE),
    tips: &["nondeterministic_output"],
    history: &[("9.0.0", "Ignore additional failure reports for a node which has been marked as failed.")],
    arguments: &[Argument::string("node-id")],
    ..Spec::BASE
};

pub const CLUSTER_DELSLOTS: Spec = Spec {
    name: "delslots",
    summary: "Sets hash slots as unbound for a node.",
    since: "3.0.0",
    group: Group::Cluster,
    complexity: "O(N) where N is the total number of hash slot arguments",
    arity: -3,
    flags: CHANGES,
    arguments: &[Argument::integer("slot").multiple()],
    ..Spec::BASE
};

pub const CLUSTER_DELSLOTSRANGE: Spec = Spec {
    name: "delslotsrange",
    summary: "Sets hash slot ranges as unbound for a node.",
    since: "7.0.0",
    group: Group::Cluster,
    complexity: "O(N) where N is the total number of the slots between the start slot and end slot arguments.",
    arity: -4,
    flags: CHANGES,
    arguments: &[Argument::block("range", &[Argument::integer("start-slot"), Argument::integer("end-slot")])
        .multiple()],
    ..Spec::BASE
};

pub const CLUSTER_FAILOVER: Spec = Spec {
    name: "failover",
    summary: "Forces a replica to perform a manual failover of its primary.",
    since: "3.0.0",
    group: Group::Cluster,
    complexity: "O(1)",
    arity: -2,
    flags: CHANGES,
    arguments: &[Argument::one_of(
        "options",
        &[Argument::pure_token("force", "FORCE"), Argument::pure_token("takeover", "TAKEOVER")],
    )
    .optional()],
    ..Spec::BASE
};

pub const CLUSTER_FLUSHSLOT: Spec = Spec {
    name: "flushslot",
    summary: "Removes all keys from the target slot.",
    since: "9.0.0",
    group: Group::Cluster,
    complexity: "O(N) where N is the number of keys in the target slot",
    arity: -3,
    flags: Flags::WRITE.or(Flags::NO_ASYNC_LOADING).or(Flags::ADMIN).or(Flags::ALL_DBS),
    acl: AclCategories::KEYSPACE,
    reach: Reach::Each,
    arguments: &[
        Argument::integer("slot"),
        Argument::one_of(
            "flush-type",
            &[Argument::pure_token("async", "ASYNC"), Argument::pure_token("sync", "SYNC")],
        )
        .optional(),
    ],
    ..Spec::BASE
};

pub const CLUSTER_FLUSHSLOTS: Spec = Spec {
    name: "flushslots",
    summary: "Deletes all slots information from a node.",
    since: "3.0.0",
    group: Group::Cluster,
    complexity: "O(1)",
    arity: 2,
    flags: CHANGES,
    ..Spec::BASE
};

pub const CLUSTER_FORGET: Spec = Spec {
    name: "forget",
    summary: "Removes a node from the nodes table.",
    since: "3.0.0",
    group: Group::Cluster,
    complexity: "O(1)",
    arity: 3,
    flags: CHANGES,
    arguments: &[Argument::string("node-id")],
    ..Spec::BASE
};

pub const CLUSTER_GETSLOTMIGRATIONS: Spec = Spec {
    name: "getslotmigrations",
    summary: "Gets the status of ongoing and recently finished slot import and export operations.",
    since: "9.0.0",
    group: Group::Cluster,
    complexity: "O(N), where N is the number of active slot import and export jobs.",
    arity: 2,
    flags: CHANGES,
    ..Spec::BASE
};

pub const CLUSTER_LINKS: Spec = Spec {
    name: "links",
    summary: "Returns a list of all TCP links to and from peer nodes.",
    since: "7.0.0",
    group: Group::Cluster,
    complexity: "O(N) where N is the total number of Cluster nodes",
    arity: 2,
    flags: Flags::STALE,
    tips: &["nondeterministic_output"],
    ..Spec::BASE
};

pub const CLUSTER_MEET: Spec = Spec {
    name: "meet",
    summary: "Forces a node to handshake with another node.",
    since: "3.0.0",
    group: Group::Cluster,
    complexity: "O(1)",
    arity: -4,
    flags: CHANGES,
    history: &[("4.0.0", "Added the optional `cluster_bus_port` argument.")],
    arguments: &[
        Argument::string("ip"),
        Argument::integer("port"),
        Argument::integer("cluster-bus-port").since("4.0.0").optional(),
    ],
    ..Spec::BASE
};

pub const CLUSTER_MIGRATESLOTS: Spec = Spec {
    name: "migrateslots",
    summary: "Migrate the given slots from this node to the specified nodes.",
    since: "9.0.0",
    group: Group::Cluster,
    complexity: "O(N) where N is the total number of the slots between all start slot and end slot arguments.",
    arity: -4,
    flags: Flags::NO_ASYNC_LOADING.or(Flags::ADMIN).or(Flags::STALE).or(Flags::ALL_DBS),
    arguments: &[Argument::block(
        "migration-group",
        &[
            Argument::pure_token("slotsrange-token", "SLOTSRANGE"),
            Argument::block("range", &[Argument::integer("start-slot"), Argument::integer("end-slot")])
                .multiple(),
            Argument::pure_token("node-token", "NODE"),
            Argument::string("node-id"),
        ],
    )
    .multiple()],
    ..Spec::BASE
};

pub const CLUSTER_MYSHARDID: Spec = Spec {
    name: "myshardid",
    summary: "Returns the shard ID of a node.",
    since: "7.2.0",
    group: Group::Cluster,
    complexity: "O(1)",
    arity: 2,
    flags: Flags::LOADING.or(Flags::STALE),
    tips: &["nondeterministic_output"],
    ..Spec::BASE
};

pub const CLUSTER_REPLICAS: Spec = Spec {
    name: "replicas",
    summary: "Lists the replica nodes of a primary node.",
    since: "5.0.0",
    group: Group::Cluster,
    complexity: "O(N) where N is the number of replicas.",
    arity: 3,
    flags: Flags::ADMIN.or(Flags::STALE),
    tips: &["nondeterministic_output"],
    arguments: &[Argument::string("node-id")],
    ..Spec::BASE
};

pub const CLUSTER_REPLICATE: Spec = Spec {
    name: "replicate",
    summary: "Configures a node as replica of a primary node or detaches a replica from its primary.",
    since: "3.0.0",
    group: Group::Cluster,
    complexity: "O(1)",
    arity: -3,
    flags: CHANGES,
    history: &[(
        "9.0.0",
        "Added support of 'NO ONE' arg instead of <node-id> resulting into detaching replica from primary node.",
    )],
    arguments: &[Argument::one_of(
        "args",
        &[
            Argument::string("node-id"),
            Argument::block(
                "no-one",
                &[Argument::pure_token("no", "NO"), Argument::pure_token("one", "ONE")],
            )
            .since("9.0.0"),
        ],
    )],
    ..Spec::BASE
};

pub const CLUSTER_RESET: Spec = Spec {
    name: "reset",
    summary: "Resets a node.",
    since: "3.0.0",
    group: Group::Cluster,
    complexity: "O(N) where N is the number of known nodes. The command may execute a FLUSHALL as a side effect.",
    arity: -2,
    flags: Flags::ADMIN.or(Flags::STALE).or(Flags::NOSCRIPT),
    arguments: &[Argument::one_of(
        "reset-type",
        &[Argument::pure_token("hard", "HARD"), Argument::pure_token("soft", "SOFT")],
    )
    .optional()],
    ..Spec::BASE
};

pub const CLUSTER_SAVECONFIG: Spec = Spec {
    name: "saveconfig",
    summary: "Forces a node to save the cluster configuration to disk.",
    since: "3.0.0",
    group: Group::Cluster,
    complexity: "O(1)",
    arity: 2,
    flags: CHANGES,
    ..Spec::BASE
};

pub const CLUSTER_SET_CONFIG_EPOCH: Spec = Spec {
    name: "set-config-epoch",
    summary: "Sets the configuration epoch for a new node.",
    since: "3.0.0",
    group: Group::Cluster,
    complexity: "O(1)",
    arity: 3,
    flags: CHANGES,
    arguments: &[Argument::integer("config-epoch")],
    ..Spec::BASE
};

pub const CLUSTER_SETSLOT: Spec = Spec {
    name: "setslot",
    summary: "Binds a hash slot to a node.",
    since: "3.0.0",
    group: Group::Cluster,
    complexity: "O(1)",
    arity: -4,
    flags: Flags::NO_ASYNC_LOADING.or(Flags::ADMIN).or(Flags::STALE).or(Flags::MAY_REPLICATE),
    history: &[("8.0.0", "Added the `TIMEOUT` option.")],
    arguments: &[
        Argument::integer("slot"),
        Argument::one_of(
            "subcommand",
            &[
                Argument::string("importing").token("IMPORTING").display("node-id"),
                Argument::string("migrating").token("MIGRATING").display("node-id"),
                Argument::string("node").token("NODE").display("node-id"),
                Argument::pure_token("stable", "STABLE"),
            ],
        ),
        Argument::integer("timeout").token("TIMEOUT").since("8.0.0").optional(),
    ],
    ..Spec::BASE
};

pub const CLUSTER_SLAVES: Spec = Spec {
    name: "slaves",
    summary: "Lists the replica nodes of a primary node.",
    since: "3.0.0",
    group: Group::Cluster,
    complexity: "O(N) where N is the number of replicas.",
    arity: 3,
    flags: Flags::ADMIN.or(Flags::STALE),
    tips: &["nondeterministic_output"],
    doc_flags: &["deprecated"],
    deprecated_since: Some("5.0.0"),
    replaced_by: Some("`CLUSTER REPLICAS`"),
    arguments: &[Argument::string("node-id")],
    ..Spec::BASE
};

pub const CLUSTER_SYNCSLOTS: Spec = Spec {
    name: "syncslots",
    summary: "A container for internal slot migration commands.",
    since: "9.0.0",
    group: Group::Cluster,
    complexity: "Depends on subcommand.",
    arity: -3,
    flags: Flags::NO_ASYNC_LOADING.or(Flags::ADMIN).or(Flags::STALE).or(Flags::MAY_REPLICATE),
    doc_flags: &["syscmd"],
    ..Spec::BASE
};
