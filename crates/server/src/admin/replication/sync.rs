//! REPLCONF, PSYNC, SYNC: a client becomes a replica. The feeder does the rest (`replication::feeder`).

use isotherm_cluster::NodeId;
use isotherm_commands::Outcome;
use isotherm_commands::spec::*;
use isotherm_replication::feed::{Capabilities, Filter, Members, Said, SyncRequest, WrongRequest};
use isotherm_resp::errors;

use super::AdminCall;
use isotherm_engine::request::gates;
use isotherm_engine::request::leases::GATE_TRY;
use isotherm_node::mail::tasks::Tasks;
use isotherm_node::session::line;
use isotherm_replicas::replication::{feeder, role};
use isotherm_runtime::log::{self, os_text};

pub const REPLCONF: Spec = Spec {
    name: "replconf",
    summary: "Configures the link of a replica (internal).",
    since: "3.0.0",
    group: Group::Server,
    complexity: "O(1)",
    arity: -1,
    flags: Flags::ADMIN.or(Flags::NOSCRIPT).or(Flags::LOADING).or(Flags::STALE).or(Flags::ALLOW_BUSY),
    doc_flags: &["syscmd"],
    ..Spec::BASE
};

pub fn replconf(call: &mut AdminCall<'_>) -> Outcome {
    let topology = call.node.cluster.get().map(|member| member.topologies.newest().1);
    let knows = |id: &[u8]| {
        let id = NodeId::parse(id);
        topology.as_ref().zip(id).is_some_and(|(topology, id)| topology.find(&id).is_some())
    };
    let members: Members<'_> = if topology.is_some() { Some(&knows) } else { None };
    let talk = call.session.replica.get_or_insert_default();
    match talk.announced.replconf(call.args, members) {
        Ok(Said::Options) => call.reply.ok(),
        // A client that is no replica acknowledges nothing, and none of ours asks a client for an ACK.
        Ok(Said::Ack(_) | Said::GetAck) => {}
        Err(refused) => call.reply.error(&refused.0),
    }
    Outcome::Done
}

pub const PSYNC: Spec = Spec {
    name: "psync",
    summary: "Starts or continues the replication to a replica (internal).",
    since: "2.8.0",
    group: Group::Server,
    arity: -3,
    flags: Flags::NO_ASYNC_LOADING
        .or(Flags::STOPS_ALL)
        .or(Flags::ADMIN)
        .or(Flags::NO_MULTI)
        .or(Flags::NOSCRIPT),
    arguments: &[Argument::string("replicationid"), Argument::integer("offset")],
    ..Spec::BASE
};

pub const SYNC: Spec = Spec {
    name: "sync",
    summary: "Starts the replication of all data to a replica (internal).",
    since: "1.0.0",
    arity: 1,
    arguments: &[],
    ..PSYNC
};

pub fn psync(call: &mut AdminCall<'_>) -> Outcome {
    if let Err(text) = ask(call) {
        call.reply.error(&text);
    }
    Outcome::Done
}

/// The primary of this node has become a replica, and hands over: this node takes its place.
fn take_over(call: &mut AdminCall<'_>, name: &[u8]) -> Result<(), String> {
    let node = call.node;
    log::notice(format!("Failover request received for replid {}.", name.escape_ascii()));
    if !node.mail.tasks().has(Tasks::REPLICA) {
        return Err("ERR PSYNC FAILOVER can't be sent to a master.".into());
    }
    if !name.eq_ignore_ascii_case(node.replication.state().history.id().as_bytes()) {
        return Err("ERR PSYNC FAILOVER replid must match my replid.".into());
    }
    // No script was in its middle when this command was admitted.
    if !call.exec.held.gate_within(GATE_TRY) {
        return Err("NOMASTERLINK Can't take over in the middle of a script".into());
    }
    // Since this command was admitted.
    if node.mail.tasks().has(Tasks::LOADING) {
        call.exec.held.release();
        return Err(gates::loading_text(node));
    }
    if role::promote(node, &mut call.exec.held) {
        node.config.set_replica_of(Vec::new());
        let client = line::short(node, &call.session.shared);
        log::notice(format!("PRIMARY MODE enabled (failover request from '{client}')"));
    }
    call.exec.held.release();
    Ok(())
}

/// The connection leaves its worker, or there is an error.
fn ask(call: &mut AdminCall<'_>) -> Result<(), String> {
    let node = call.node;
    let request = SyncRequest::parse(call.args);
    // COMPAT(replication): A node that hands over refuses to be handed over to; Valkey becomes a primary
    // first. Why: its writes would pause until FAILOVER ABORT.
    if node.replication.failover.is_under_way() {
        return Err("NOMASTERLINK Can't SYNC while failing over".into());
    }
    if let Ok(SyncRequest::Psync { failover: true, text, .. }) = &request {
        take_over(call, text)?;
    }
    let is_replica = node.mail.tasks().has(Tasks::REPLICA);
    if is_replica && !node.replication.is_link_up() {
        return Err("NOMASTERLINK Can't SYNC while not connected with my master".into());
    }
    let talk = call.session.replica.get_or_insert_default();
    if talk.announced.filter != Filter::default() && !talk.announced.capabilities.has(Capabilities::EOF) {
        return Err("ERR Filtered replica requires EOF capability".into());
    }
    let name = feeder::name_of(&talk.announced, &call.session.shared);
    log::notice(format!("Replica {name} asks for synchronization"));
    let request = request.map_err(|WrongRequest| {
        log::warning(format!("Replica {name} asks for synchronization but with a wrong offset"));
        errors::NOT_AN_INTEGER.to_string()
    })?;
    node.replication.primary.begin_once(|| feeder::start(node)).map_err(|error| {
        log::warning(format!("Can't start the thread that feeds replicas: {}", os_text(&error)));
        format!("ERR {}", os_text(&error))
    })?;
    talk.request = Some(request);
    call.session.close_after_reply = true;
    Ok(())
}
