//! CLUSTER and its relatives: what is asked about slots and nodes.
//!
//! ```text
//!   of keys        COUNTKEYSINSLOT, GETKEYSINSLOT, FLUSHSLOT ...    this thread, under the lock of the slot's partition
//!   of the others  SLOTS, SHARDS, NODES, INFO, MYID ...             this thread, from the newest topology
//!   changes        MEET, ADDSLOTS, SETSLOT ...                      the bus thread; the client is parked until it has answered
//! ```
//! Without a cluster nearly all of them answer that there is none (valkey-cli sends READONLY before it looks
//! for big keys, and continues only if it is refused).

mod keys;
mod specs;
mod topology;

use isotherm_commands::Outcome;
use isotherm_commands::help::write_help;
use isotherm_commands::spec::*;
use isotherm_commands::wait::Wait;
use isotherm_keyspace::{Type, UnixMs};
use isotherm_resp::{Args, ArgsBuf, errors};
use isotherm_stdx::parse_i64;
use std::sync::mpsc::channel;
use std::time::Duration;

use super::slot_stats::{CLUSTER_SLOT_STATS, slot_stats};
use super::{AdminCall, AdminHandler, errand};
use isotherm_node::cluster::requests::{Asker, ClusterRequest};
use isotherm_node::cluster::state::Member;
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

// COMPAT(observability): Without a cluster, CLUSTER KEYSLOT, SLOT-STATS and HELP answer all the same; the
// others answer that cluster support is disabled, as in Valkey. Why: storage is organised by slots in any
// case.
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
    let deadline = Some(UnixMs(call.now.0.saturating_add(patience_ms(call.args))));
    let wait = Wait { kind: Type::String, keys: 0..0, deadline, on_removal: false, instead: None };
    Outcome::Block(Box::new(wait))
}

// COMPAT(cluster): CLUSTER subcommands that change the cluster are answered by an error where nodes.conf has
// not been written within 5 s. What they ask for goes on, and CLUSTER NODES shows its end. Valkey serves no
// client until the disk answers. Why: a disk that hangs costs those who need it.
/// Time that a client waits for the bus, and for replicas as long as CLUSTER SETSLOT ... TIMEOUT says.
fn patience_ms(args: Args<'_>) -> i64 {
    let is_timeout = |at: &usize| args.get(at - 1).eq_ignore_ascii_case(b"timeout");
    let timeout_ms = (3..args.len()).rev().find(is_timeout).and_then(|at| parse_i64(args.get(at)));
    timeout_ms.unwrap_or(0).max(0).saturating_add(errand::PATIENCE.as_millis() as i64)
}

// COMPAT(cluster): CLUSTER subcommands that change the cluster, COUNT-FAILURE-REPORTS and LINKS work in a
// transaction only if that has no commands about keys. Why: they answer when all workers obey, which waits
// for the locks that such a transaction holds.
/// Asks the bus from within a transaction, as `valkey-cli --cluster fix` does. The worker blocks until the
/// answer is there.
fn ask_within(call: &mut AdminCall<'_>, member: &'static Member) -> Outcome {
    const PATIENCE: Duration = Duration::from_secs(2);
    if call.exec.held.holds_any() {
        let name = call.command.name.replace('|', " ");
        return fail(
            call,
            format!("ERR '{name}' is not allowed in scripts, and beside commands about keys in transactions"),
        );
    }
    call.exec.transaction.quiet.get_or_insert_with(|| member.bus.keep_quiet());
    let (sender, answer) = channel();
    let asker = Asker::worker(call.session.proto, sender);
    member.bus.ask(ClusterRequest { args: ArgsBuf::from(call.args), asker });
    match answer.recv_timeout(PATIENCE) {
        Ok(reply) => call.reply.raw(&reply.out),
        Err(_) => call.reply.error("ERR The cluster bus has not answered in time"),
    }
    Outcome::Done
}

// COMPAT(cluster): CLUSTER FAILOVER, MIGRATESLOTS, CANCELSLOTMIGRATIONS and SYNCSLOTS are refused, and
// GETSLOTMIGRATIONS has nothing to report. Why: manual failover and atomic migration of slots are not there
// yet.
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
        "    Return the slot of <key>.",
        "SLOT-STATS",
        "    Return counters of this node's slots: keys, CPU time, network bytes.",
    ];
    match call.exec.route.member {
        Some(_) => write_help(call.reply, call.args, HELP),
        None => write_help(call.reply, call.args, ALONE),
    }
}

const HELP: &[&str] = &[
    "COUNTKEYSINSLOT <slot>",
    "    Return how many keys of <slot> this node holds.",
    "GETKEYSINSLOT <slot> <count>",
    "    Return at most <count> keys of <slot> that this node holds.",
    "INFO",
    "    Return the state and the counters of the cluster.",
    "KEYSLOT <key>",
    "    Return the slot of <key>.",
    "MYID",
    "    Return the ID of this node.",
    "MYSHARDID",
    "    Return the ID of this node's shard.",
    "NODES",
    "    Return a line for each known node:",
    "    <id> <ip:port@bus-port[,hostname]> <flags> <primary> <pings> <pongs> <epoch> <link> <slot> ...",
    "REPLICAS <node-id>",
    "    Return the lines of NODES of the replicas of <node-id>.",
    "SLOTS",
    "    Return each range of slots: first slot, last slot, then address, port and ID",
    "    of the primary and of each replica.",
    "SLOT-STATS",
    "    Return counters of this node's slots: keys, CPU time, network bytes.",
    "SHARDS",
    "    Return each shard: its ranges of slots and its nodes.",
    "ADDSLOTS <slot> [<slot> ...]",
    "    Give slots without an owner to this node.",
    "ADDSLOTSRANGE <start slot> <end slot> [<start slot> <end slot> ...]",
    "    Give ranges of slots without an owner to this node, <end slot> included.",
    "BUMPEPOCH",
    "    Raise this node's epoch above all others, unless it is the highest.",
    "COUNT-FAILURE-REPORTS <node-id>",
    "    Return how many nodes report <node-id> as failing.",
    "DELSLOTS <slot> [<slot> ...]",
    "    Forget the owners of these slots.",
    "DELSLOTSRANGE <start slot> <end slot> [<start slot> <end slot> ...]",
    "    Forget the owners of these ranges of slots, <end slot> included.",
    "FAILOVER [FORCE|TAKEOVER]",
    "    Make this replica the primary of its shard.",
    "FORGET <node-id>",
    "    Take <node-id> off the known nodes.",
    "FLUSHSLOTS",
    "    Forget all slots of this node.",
    "MEET <ip> <port> [<bus-port>]",
    "    Introduce this node to the one at this address.",
    "REPLICATE <node-id>",
    "    Make this node a replica of <node-id>.",
    "RESET [HARD|SOFT]",
    "    Forget the cluster; HARD also takes a new ID and epoch 0 (default: SOFT).",
    "SET-CONFIG-EPOCH <epoch>",
    "    Set the epoch of this node, which must know no others.",
    "SETSLOT <slot> (IMPORTING <node-id>|MIGRATING <node-id>|STABLE|NODE <node-id>)",
    "    Mark <slot> as on its way from or to a node, end that, or change its owner.",
    "SAVECONFIG",
    "    Write the cluster's state to this node's file.",
    "LINKS",
    "    Return a map of facts for each connection to or from another node.",
    "MIGRATESLOTS SLOTSRANGE start-slot end-slot [start-slot end-slot ...] NODE node-id [SLOTSRANGE start-slot end-slot [start-slot end-slot ...] NODE node-id ...]",
    "    Start to move these ranges of slots with their keys to other nodes.",
    "CANCELSLOTMIGRATIONS ALL",
    "    Cancel every slot migration away from this node.",
    "GETSLOTMIGRATIONS",
    "    Return the running and latest slot migrations.",
];
