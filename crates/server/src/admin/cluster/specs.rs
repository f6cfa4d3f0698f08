//! The declarations of CLUSTER and its subcommands, READONLY, READWRITE and ASKING.

use isotherm_commands::spec::*;

/// Flags of the subcommands by which an administrator changes or inspects the cluster.
const CHANGES: Flags = Flags::NO_ASYNC_LOADING.or(Flags::ADMIN).or(Flags::STALE);

pub const CLUSTER: Spec = Spec {
    name: "cluster",
    summary: "Shows and manages the cluster.",
    since: "3.0.0",
    group: Group::Cluster,
    complexity: "That of the subcommand",
    arity: -2,
    ..Spec::BASE
};

pub const ASKING: Spec = Spec {
    name: "asking",
    summary: "Lets the next command use a slot that this node is importing.",
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
    summary: "Returns how many keys of a slot this node holds.",
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
    summary: "Returns up to a given number of keys of a slot.",
    since: "3.0.0",
    group: Group::Cluster,
    complexity: "O(N), N the count",
    arity: 4,
    flags: Flags::STALE,
    tips: &["nondeterministic_output"],
    arguments: &[Argument::integer("slot"), Argument::integer("count")],
    reach: Reach::Each,
    ..Spec::BASE
};

pub const CLUSTER_INFO: Spec = Spec {
    name: "info",
    summary: "Returns the state and the counters of the cluster as this node sees them.",
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
    summary: "Returns the ID of this node.",
    since: "3.0.0",
    group: Group::Cluster,
    complexity: "O(1)",
    arity: 2,
    flags: Flags::LOADING.or(Flags::STALE),
    ..Spec::BASE
};

pub const CLUSTER_NODES: Spec = Spec {
    name: "nodes",
    summary: "Returns a line for each known node: ID, address, flags, epoch, link and slots.",
    since: "3.0.0",
    group: Group::Cluster,
    complexity: "O(N), N the known nodes",
    arity: 2,
    flags: Flags::LOADING.or(Flags::STALE),
    tips: &["nondeterministic_output"],
    ..Spec::BASE
};

pub const CLUSTER_SHARDS: Spec = Spec {
    name: "shards",
    summary: "Returns each shard with its ranges of slots and its nodes.",
    since: "7.0.0",
    group: Group::Cluster,
    complexity: "O(N), N the nodes of the cluster",
    arity: 2,
    flags: Flags::LOADING.or(Flags::STALE),
    tips: &["nondeterministic_output"],
    history: &[("9.1.0", "New fields: `id` of a shard, `availability-zone` of a node.")],
    ..Spec::BASE
};

pub const CLUSTER_SLOTS: Spec = Spec {
    name: "slots",
    summary: "Returns each range of slots with the addresses of its primary and replicas.",
    since: "3.0.0",
    group: Group::Cluster,
    complexity: "O(N), N the known nodes",
    arity: 2,
    flags: Flags::LOADING.or(Flags::STALE),
    tips: &["nondeterministic_output"],
    history: &[
        ("4.0.0", "The reply has the IDs of nodes."),
        ("7.0.0", "Each node has a list of further facts about its network."),
        ("9.1.0", "The facts about a node's network have `availability-zone`."),
    ],
    ..Spec::BASE
};

pub const READONLY: Spec = Spec {
    name: "readonly",
    summary: "Allows reads on this connection to a replica of a cluster.",
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
    summary: "Ends READONLY: reads of slots that a replica does not own are redirected to the primary again.",
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
    summary: "Computes the slot of a key.",
    since: "3.0.0",
    group: Group::Cluster,
    complexity: "O(N), N the length of the key",
    arity: 3,
    flags: Flags::STALE,
    arguments: &[Argument::string("key")],
    ..Spec::BASE
};

pub const CLUSTER_HELP: Spec = Spec { since: "5.0.0", group: Group::Cluster, ..Spec::HELP };

pub const CLUSTER_ADDSLOTS: Spec = Spec {
    name: "addslots",
    summary: "Gives unassigned slots to this node.",
    since: "3.0.0",
    group: Group::Cluster,
    complexity: "O(N), N the given slots",
    arity: -3,
    flags: CHANGES,
    arguments: &[Argument::integer("slot").multiple()],
    ..Spec::BASE
};

pub const CLUSTER_ADDSLOTSRANGE: Spec = Spec {
    name: "addslotsrange",
    summary: "Gives ranges of unassigned slots to this node.",
    since: "7.0.0",
    group: Group::Cluster,
    complexity: "O(N), N the slots in the ranges",
    arity: -4,
    flags: CHANGES,
    arguments: &[Argument::block("range", &[Argument::integer("start-slot"), Argument::integer("end-slot")])
        .multiple()],
    ..Spec::BASE
};

pub const CLUSTER_BUMPEPOCH: Spec = Spec {
    name: "bumpepoch",
    summary: "Raises the epoch of this node above all others, unless it is already the highest.",
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
    summary: "Cancels all slot migrations away from this node.",
    since: "9.0.0",
    group: Group::Cluster,
    complexity: "O(N), N the cancelled migrations",
    arity: 2,
    flags: Flags::NO_ASYNC_LOADING.or(Flags::ADMIN).or(Flags::STALE).or(Flags::ALL_DBS),
    ..Spec::BASE
};

pub const CLUSTER_COUNT_FAILURE_REPORTS: Spec = Spec {
    name: "count-failure-reports",
    summary: "Returns how many nodes currently report a node as failing.",
    since: "3.0.0",
    group: Group::Cluster,
    complexity: "O(N), N the reports",
    arity: 3,
    flags: Flags::ADMIN.or(Flags::STALE),
    tips: &["nondeterministic_output"],
    history: &[("9.0.0", "Reports about a node that is already marked as failed are not counted.")],
    arguments: &[Argument::string("node-id")],
    ..Spec::BASE
};

pub const CLUSTER_DELSLOTS: Spec = Spec {
    name: "delslots",
    summary: "Makes this node forget the owners of slots.",
    since: "3.0.0",
    group: Group::Cluster,
    complexity: "O(N), N the given slots",
    arity: -3,
    flags: CHANGES,
    arguments: &[Argument::integer("slot").multiple()],
    ..Spec::BASE
};

pub const CLUSTER_DELSLOTSRANGE: Spec = Spec {
    name: "delslotsrange",
    summary: "Makes this node forget the owners of ranges of slots.",
    since: "7.0.0",
    group: Group::Cluster,
    complexity: "O(N), N the slots in the ranges",
    arity: -4,
    flags: CHANGES,
    arguments: &[Argument::block("range", &[Argument::integer("start-slot"), Argument::integer("end-slot")])
        .multiple()],
    ..Spec::BASE
};

pub const CLUSTER_FAILOVER: Spec = Spec {
    name: "failover",
    summary: "Makes this replica take over from its primary.",
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
    summary: "Deletes all keys of a slot.",
    since: "9.0.0",
    group: Group::Cluster,
    complexity: "O(N), N the keys of the slot",
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
    summary: "Makes this node forget all its slots. It must hold no keys.",
    since: "3.0.0",
    group: Group::Cluster,
    complexity: "O(1)",
    arity: 2,
    flags: CHANGES,
    ..Spec::BASE
};

pub const CLUSTER_FORGET: Spec = Spec {
    name: "forget",
    summary: "Takes a node off the list of known nodes and ignores gossip about it for a minute.",
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
    summary: "Returns the running and latest slot migrations with their states.",
    since: "9.0.0",
    group: Group::Cluster,
    complexity: "O(N), N the migrations",
    arity: 2,
    flags: CHANGES,
    ..Spec::BASE
};

pub const CLUSTER_LINKS: Spec = Spec {
    name: "links",
    summary: "Returns the connections to and from the other nodes, with their buffers.",
    since: "7.0.0",
    group: Group::Cluster,
    complexity: "O(N), N the known nodes",
    arity: 2,
    flags: Flags::STALE,
    tips: &["nondeterministic_output"],
    ..Spec::BASE
};

pub const CLUSTER_MEET: Spec = Spec {
    name: "meet",
    summary: "Introduces this node to another one, which joins the two clusters.",
    since: "3.0.0",
    group: Group::Cluster,
    complexity: "O(1)",
    arity: -4,
    flags: CHANGES,
    history: &[("4.0.0", "New argument `cluster_bus_port`, which may be left out.")],
    arguments: &[
        Argument::string("ip"),
        Argument::integer("port"),
        Argument::integer("cluster-bus-port").since("4.0.0").optional(),
    ],
    ..Spec::BASE
};

pub const CLUSTER_MIGRATESLOTS: Spec = Spec {
    name: "migrateslots",
    summary: "Starts to move ranges of slots with their keys to other nodes.",
    since: "9.0.0",
    group: Group::Cluster,
    complexity: "O(N), N the slots in all ranges",
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
    summary: "Returns the ID of the shard of this node.",
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
    summary: "Returns the lines of CLUSTER NODES of a primary's replicas.",
    since: "5.0.0",
    group: Group::Cluster,
    complexity: "O(N), N the replicas",
    arity: 3,
    flags: Flags::ADMIN.or(Flags::STALE),
    tips: &["nondeterministic_output"],
    arguments: &[Argument::string("node-id")],
    ..Spec::BASE
};

pub const CLUSTER_REPLICATE: Spec = Spec {
    name: "replicate",
    summary: "Makes this node a replica of a primary, or detaches it with NO ONE.",
    since: "3.0.0",
    group: Group::Cluster,
    complexity: "O(1)",
    arity: -3,
    flags: CHANGES,
    history: &[("9.0.0", "With `NO ONE` for the ID of a node, a replica leaves its primary.")],
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
    summary: "Makes this node forget the cluster; HARD also changes its ID and epochs.",
    since: "3.0.0",
    group: Group::Cluster,
    complexity: "O(N), N the known nodes; a replica deletes its keys too",
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
    summary: "Writes the node's view of the cluster to its file, and waits for the disk.",
    since: "3.0.0",
    group: Group::Cluster,
    complexity: "O(1)",
    arity: 2,
    flags: CHANGES,
    ..Spec::BASE
};

pub const CLUSTER_SET_CONFIG_EPOCH: Spec = Spec {
    name: "set-config-epoch",
    summary: "Sets the epoch of a fresh node that knows no others.",
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
    summary: "Marks a slot as importing, migrating or stable, or assigns it to a node.",
    since: "3.0.0",
    group: Group::Cluster,
    complexity: "O(1)",
    arity: -4,
    flags: Flags::NO_ASYNC_LOADING.or(Flags::ADMIN).or(Flags::STALE).or(Flags::MAY_REPLICATE),
    history: &[("8.0.0", "New option `TIMEOUT`.")],
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
    summary: "Returns the lines of CLUSTER NODES of a primary's replicas.",
    since: "3.0.0",
    group: Group::Cluster,
    complexity: "O(N), N the replicas",
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
    summary: "Moves slots between nodes (internal).",
    since: "9.0.0",
    group: Group::Cluster,
    complexity: "That of the subcommand",
    arity: -3,
    flags: Flags::NO_ASYNC_LOADING.or(Flags::ADMIN).or(Flags::STALE).or(Flags::MAY_REPLICATE),
    doc_flags: &["syscmd"],
    ..Spec::BASE
};
