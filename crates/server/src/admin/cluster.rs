//! CLUSTER and its relatives where there is no cluster: what a lone server can report of slots, and the words by which a
//! client learns that there is none (valkey-cli sends READONLY before it looks for big keys, and goes on only if it is
//! refused).

use isotherm_commands::Outcome;
use isotherm_commands::help::write_help;
use isotherm_commands::spec::*;
use isotherm_keyspace::Slot;
use isotherm_resp::errors;

use super::slot_stats::{CLUSTER_SLOT_STATS, slot_stats};
use super::{AdminCall, AdminHandler};

const CLUSTER: Spec = Spec {
    name: "cluster",
    summary: "A container for Cluster commands.",
    since: "3.0.0",
    group: Group::Cluster,
    complexity: "Depends on subcommand.",
    arity: -2,
    ..Spec::BASE
};

pub const COMMANDS: &[Command<AdminHandler>] = &[
    Command::new(ASKING, asking),
    Command::container(
        CLUSTER,
        &[
            // COMPAT(observability): Without a cluster, CLUSTER subcommands that read its state (INFO, NODES, SLOTS,
            // ...) answer that cluster support is disabled, as in Valkey; those that change it are unknown
            // subcommands. CLUSTER HELP lists what works. Why: there is no cluster yet.
            Command::new(CLUSTER_COUNTKEYSINSLOT, no_cluster),
            Command::new(CLUSTER_GETKEYSINSLOT, no_cluster),
            Command::new(CLUSTER_HELP, help),
            Command::new(CLUSTER_INFO, no_cluster),
            Command::new(CLUSTER_KEYSLOT, key_slot),
            Command::new(CLUSTER_MYID, no_cluster),
            Command::new(CLUSTER_NODES, no_cluster),
            Command::new(CLUSTER_SHARDS, no_cluster),
            Command::new(CLUSTER_SLOT_STATS, slot_stats),
            Command::new(CLUSTER_SLOTS, no_cluster),
        ],
    ),
    Command::new(READONLY, read_only),
    Command::new(READWRITE, read_write),
];

const ASKING: Spec = Spec {
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

const CLUSTER_COUNTKEYSINSLOT: Spec = Spec {
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

const CLUSTER_GETKEYSINSLOT: Spec = Spec {
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

const CLUSTER_INFO: Spec = Spec {
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

const CLUSTER_MYID: Spec = Spec {
    name: "myid",
    summary: "Returns the ID of a node.",
    since: "3.0.0",
    group: Group::Cluster,
    complexity: "O(1)",
    arity: 2,
    flags: Flags::LOADING.or(Flags::STALE),
    ..Spec::BASE
};

const CLUSTER_NODES: Spec = Spec {
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

const CLUSTER_SHARDS: Spec = Spec {
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

const CLUSTER_SLOTS: Spec = Spec {
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

const READONLY: Spec = Spec {
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

const READWRITE: Spec = Spec {
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

fn read_only(call: &mut AdminCall<'_>) -> Outcome {
    call.session.reads_of_replica = true;
    call.reply.ok();
    Outcome::Done
}

fn read_write(call: &mut AdminCall<'_>) -> Outcome {
    call.session.reads_of_replica = false;
    call.reply.ok();
    Outcome::Done
}

fn asking(call: &mut AdminCall<'_>) -> Outcome {
    if call.exec.route.member.is_none() {
        return no_cluster(call);
    }
    call.session.asking = call.session.asking.saturating_add(1);
    call.reply.ok();
    Outcome::Done
}

fn no_cluster(call: &mut AdminCall<'_>) -> Outcome {
    call.reply.error(errors::CLUSTER_DISABLED);
    Outcome::Done
}

const CLUSTER_KEYSLOT: Spec = Spec {
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

fn key_slot(call: &mut AdminCall<'_>) -> Outcome {
    call.reply.integer(i64::from(Slot::of_key(call.args.get(2)).get()));
    Outcome::Done
}

const CLUSTER_HELP: Spec = Spec {
    name: "help",
    summary: "Returns helpful text about the different subcommands.",
    since: "5.0.0",
    group: Group::Cluster,
    complexity: "O(1)",
    arity: 2,
    flags: Flags::LOADING.or(Flags::STALE),
    ..Spec::BASE
};

fn help(call: &mut AdminCall<'_>) -> Outcome {
    write_help(
        call.reply,
        "CLUSTER",
        &[
            "KEYSLOT <key>",
            "    Return the hash slot for <key>.",
            "SLOT-STATS",
            "    Return an array of slot usage statistics for slots assigned to the current node.",
        ],
    );
    Outcome::Done
}
