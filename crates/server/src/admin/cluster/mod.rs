//! CLUSTER and its relatives: what is asked about slots and nodes.
//!
//! ```text
//!   of keys        COUNTKEYSINSLOT, GETKEYSINSLOT, FLUSHSLOT ...    this thread, under the lock of the slot's partition
//!   of the others  SLOTS, SHARDS, NODES, INFO, MYID ...             this thread, from the newest topology
//!   changes        MEET, ADDSLOTS, SETSLOT ...                      the bus thread; the client is parked until it has answered
//! ```
//! Without a cluster nearly all of them answer that there is none (valkey-cli sends READONLY before it looks for big keys, and goes on
//! only if it is refused).

mod keys;
mod specs;
mod topology;

use isotherm_commands::Outcome;
use isotherm_commands::help::write_help;
use isotherm_commands::spec::*;
use isotherm_commands::wait::Wait;
use isotherm_keyspace::Type;
use isotherm_resp::{ArgsBuf, errors};
use std::sync::mpsc::channel;
use std::time::Duration;

use super::slot_stats::{CLUSTER_SLOT_STATS, slot_stats};
use super::{AdminCall, AdminHandler};
use crate::cluster::requests::{Asker, ClusterRequest};
use crate::cluster::state::Member;
use specs::*;

pub const COMMANDS: &[Command<AdminHandler>] = &[
    Command::new(ASKING, asking),
    Command::container(
        CLUSTER,
        &[
            Command::new(CLUSTER_ADDSLOTS, ask_bus),
            Command::new(CLUSTER_ADDSLOTSRANGE, ask_bus),
            Command::new(CLUSTER_BUMPEPOCH, ask_bus),
            Command::new(CLUSTER_CANCELSLOTMIGRATIONS, no_migrations),
            Command::new(CLUSTER_COUNT_FAILURE_REPORTS, ask_bus),
            Command::new(CLUSTER_COUNTKEYSINSLOT, keys::count),
            Command::new(CLUSTER_DELSLOTS, ask_bus),
            Command::new(CLUSTER_DELSLOTSRANGE, ask_bus),
            Command::new(CLUSTER_FAILOVER, no_failover),
            Command::new(CLUSTER_FLUSHSLOT, keys::flush),
            Command::new(CLUSTER_FLUSHSLOTS, ask_bus),
            Command::new(CLUSTER_FORGET, ask_bus),
            Command::new(CLUSTER_GETKEYSINSLOT, keys::names),
            Command::new(CLUSTER_GETSLOTMIGRATIONS, migrations),
            Command::new(CLUSTER_HELP, help),
            Command::new(CLUSTER_INFO, topology::info),
            Command::new(CLUSTER_KEYSLOT, keys::slot),
            Command::new(CLUSTER_LINKS, ask_bus),
            Command::new(CLUSTER_MEET, ask_bus),
            Command::new(CLUSTER_MIGRATESLOTS, no_migrations),
            Command::new(CLUSTER_MYID, topology::my_id),
            Command::new(CLUSTER_MYSHARDID, topology::my_shard_id),
            Command::new(CLUSTER_NODES, topology::nodes),
            Command::new(CLUSTER_REPLICAS, topology::replicas),
            Command::new(CLUSTER_REPLICATE, ask_bus),
            Command::new(CLUSTER_RESET, ask_bus),
            Command::new(CLUSTER_SAVECONFIG, ask_bus),
            Command::new(CLUSTER_SET_CONFIG_EPOCH, ask_bus),
            Command::new(CLUSTER_SETSLOT, ask_bus),
            Command::new(CLUSTER_SHARDS, topology::shards),
            Command::new(CLUSTER_SLAVES, topology::replicas),
            Command::new(CLUSTER_SLOT_STATS, slot_stats),
            Command::new(CLUSTER_SLOTS, topology::slots),
            Command::new(CLUSTER_SYNCSLOTS, no_migrations),
        ],
    ),
    Command::new(READONLY, read_only),
    Command::new(READWRITE, read_write),
];

// ---- of the session ----

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

// COMPAT(observability): Without a cluster, CLUSTER KEYSLOT, SLOT-STATS and HELP answer all the same; the others answer that cluster
// support is disabled, as in Valkey. Why: storage is organised by slots in any case.
fn no_cluster(call: &mut AdminCall<'_>) -> Outcome {
    fail(call, errors::CLUSTER_DISABLED)
}

fn fail(call: &mut AdminCall<'_>, text: impl AsRef<[u8]>) -> Outcome {
    call.reply.error(text);
    Outcome::Done
}

// ---- of the bus thread ----

/// The bus thread knows, or is to change something: its answer is the client's reply.
fn ask_bus(call: &mut AdminCall<'_>) -> Outcome {
    let Some(member) = call.exec.route.member else { return no_cluster(call) };
    if !member.bus.is_attached() {
        return fail(call, "ERR The cluster bus is not ready yet");
    }
    if call.session.in_exec {
        return ask_within(call, member);
    }
    call.session.asks_bus = true;
    let wait = Wait { kind: Type::String, keys: 0..0, deadline: None, on_removal: false, instead: None };
    Outcome::Block(Box::new(wait))
}

// COMPAT(cluster): CLUSTER subcommands that change the cluster, COUNT-FAILURE-REPORTS and LINKS work in a transaction only if that has no
// commands about keys. Why: they answer when all workers obey, which waits for the locks that such a transaction holds.
/// In a transaction, as `valkey-cli --cluster fix` sends them. The worker stands still until it is answered.
fn ask_within(call: &mut AdminCall<'_>, member: &Member) -> Outcome {
    const PATIENCE: Duration = Duration::from_secs(2);
    if call.exec.held.holds_any() {
        let name = call.command.name.replace('|', " ");
        return fail(
            call,
            format!("ERR '{name}' is not allowed in scripts, and beside commands about keys in transactions"),
        );
    }
    let (sender, answer) = channel();
    let asker = Asker::worker(call.session.proto, sender);
    member.bus.ask(ClusterRequest { args: ArgsBuf::from(call.args), asker });
    match answer.recv_timeout(PATIENCE) {
        Ok(reply) => call.reply.raw(&reply.out),
        Err(_) => call.reply.error("ERR The cluster bus has not answered in time"),
    }
    Outcome::Done
}

// COMPAT(cluster): CLUSTER FAILOVER, MIGRATESLOTS, CANCELSLOTMIGRATIONS and SYNCSLOTS are refused, and GETSLOTMIGRATIONS has nothing to
// report. Why: manual failover and atomic migration of slots are not there yet.
fn no_failover(call: &mut AdminCall<'_>) -> Outcome {
    if call.exec.route.member.is_none() {
        return no_cluster(call);
    }
    fail(call, "ERR CLUSTER FAILOVER is not supported yet")
}

fn no_migrations(call: &mut AdminCall<'_>) -> Outcome {
    if call.exec.route.member.is_none() {
        return no_cluster(call);
    }
    fail(call, "ERR Atomic migration of slots is not supported yet")
}

fn migrations(call: &mut AdminCall<'_>) -> Outcome {
    if call.exec.route.member.is_none() {
        return no_cluster(call);
    }
    call.reply.array(0);
    Outcome::Done
}

// ---- help ----

fn help(call: &mut AdminCall<'_>) -> Outcome {
    const ALONE: &[&str] = &[
        "KEYSLOT <key>",
        "    Return the hash slot for <key>.",
        "SLOT-STATS",
        "    Return an array of slot usage statistics for slots assigned to the current node.",
    ];
    match call.exec.route.member {
        Some(_) => write_help(call.reply, call.args, HELP),
        None => write_help(call.reply, call.args, ALONE),
    }
    Outcome::Done
}

const HELP: &[&str] = &[
    "COUNTKEYSINSLOT <slot>",
    "    Return the number of keys in <slot>.",
    "GETKEYSINSLOT <slot> <count>",
    "    Return key names stored by current node in a slot.",
    "INFO",
    "    Return information about the cluster.",
    "KEYSLOT <key>",
    "    Return the hash slot for <key>.",
    "MYID",
    "    Return the node id.",
    "MYSHARDID",
    "    Return the node's shard id.",
    "NODES",
    "    Return cluster configuration seen by node. Output format:",
    "    <id> <ip:port@bus-port[,hostname]> <flags> <primary> <pings> <pongs> <epoch> <link> <slot> ...",
    "REPLICAS <node-id>",
    "    Return <node-id> replicas.",
    "SLOTS",
    "    Return information about slots range mappings. Each range is made of:",
    "    start, end, primary and replicas IP addresses, ports and ids",
    "SLOT-STATS",
    "    Return an array of slot usage statistics for slots assigned to the current node.",
    "SHARDS",
    "    Return information about slot range mappings and the nodes associated with them.",
    "ADDSLOTS <slot> [<slot> ...]",
    "    Assign slots to current node.",
    "ADDSLOTSRANGE <start slot> <end slot> [<start slot> <end slot> ...]",
    "    Assign slots which are between <start-slot> and <end-slot> to current node.",
    "BUMPEPOCH",
    "    Advance the cluster config epoch.",
    "COUNT-FAILURE-REPORTS <node-id>",
    "    Return number of failure reports for <node-id>.",
    "DELSLOTS <slot> [<slot> ...]",
    "    Delete slots information from current node.",
    "DELSLOTSRANGE <start slot> <end slot> [<start slot> <end slot> ...]",
    "    Delete slots information which are between <start-slot> and <end-slot> from current node.",
    "FAILOVER [FORCE|TAKEOVER]",
    "    Promote current replica node to being a master.",
    "FORGET <node-id>",
    "    Remove a node from the cluster.",
    "FLUSHSLOTS",
    "    Delete current node own slots information.",
    "MEET <ip> <port> [<bus-port>]",
    "    Connect nodes into a working cluster.",
    "REPLICATE <node-id>",
    "    Configure current node as replica to <node-id>.",
    "RESET [HARD|SOFT]",
    "    Reset current node (default: soft).",
    "SET-CONFIG-EPOCH <epoch>",
    "    Set config epoch of current node.",
    "SETSLOT <slot> (IMPORTING <node-id>|MIGRATING <node-id>|STABLE|NODE <node-id>)",
    "    Set slot state.",
    "SAVECONFIG",
    "    Force saving cluster configuration on disk.",
    "LINKS",
    "    Return information about all network links between this node and its peers.",
    "    Output format is an array where each array element is a map containing attributes of a link",
    "MIGRATESLOTS SLOTSRANGE start-slot end-slot [start-slot end-slot ...] NODE node-id [SLOTSRANGE start-slot end-slot [start-slot end-slot ...] NODE node-id ...]",
    "    Migrate the specified slot ranges from this node to the specified node.",
    "CANCELSLOTMIGRATIONS ALL",
    "    Cancel all migrations.",
    "GETSLOTMIGRATIONS",
    "    Get information about ongoing and recently finished slot imports and exports.",
];
