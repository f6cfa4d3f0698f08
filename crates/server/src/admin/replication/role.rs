//! REPLICAOF and ROLE: whom this node follows.

use isotherm_commands::Outcome;
use isotherm_commands::spec::*;
use isotherm_replication::link::Phase;
use isotherm_stdx::parse_i64;

use std::sync::atomic::Ordering::Relaxed;

use super::AdminCall;
use isotherm_engine::request::transaction;
use isotherm_node::replication::state::Upstream;
use isotherm_node::session::line;
use isotherm_replicas::replication::link;
use isotherm_replicas::replication::role;
use isotherm_runtime::log;

const PORT_MAX: i64 = 65_535;

const ARGUMENTS: &[Argument] = &[Argument::one_of(
    "args",
    &[
        Argument::block("host-port", &[Argument::string("host"), Argument::integer("port")]),
        Argument::block("no-one", &[Argument::pure_token("no", "NO"), Argument::pure_token("one", "ONE")]),
    ],
)];

pub const REPLICAOF: Spec = Spec {
    name: "replicaof",
    summary: "Makes this server a replica of another one, or a primary with NO ONE.",
    since: "5.0.0",
    group: Group::Server,
    complexity: "O(1)",
    arity: 3,
    flags: Flags::NO_ASYNC_LOADING.or(Flags::ADMIN).or(Flags::NOSCRIPT).or(Flags::STALE),
    arguments: ARGUMENTS,
    // The role changes at one moment for all commands.
    reach: Reach::All,
    ..Spec::BASE
};

pub const SLAVEOF: Spec = Spec {
    name: "slaveof",
    doc_flags: &["deprecated"],
    summary: "Makes this server a replica of another one, or a primary with NO ONE. Old name of REPLICAOF.",
    since: "1.0.0",
    deprecated_since: Some("5.0.0"),
    replaced_by: Some("`REPLICAOF`"),
    ..REPLICAOF
};

pub fn replicaof(call: &mut AdminCall<'_>) -> Outcome {
    let (host, port) = (call.args.get(1), call.args.get(2));
    if call.node.cluster.is_enabled() {
        call.reply.error("ERR REPLICAOF not allowed in cluster mode.");
        return Outcome::Done;
    }
    if call.node.replication.failover.is_under_way() {
        call.reply.error("ERR REPLICAOF not allowed while failing over.");
        return Outcome::Done;
    }
    if host.eq_ignore_ascii_case(b"no") && port.eq_ignore_ascii_case(b"one") {
        if role::promote(call.node, &mut call.exec.held) {
            call.node.config.set_replica_of(Vec::new());
            let client = line::short(call.node, &call.session.shared);
            log::notice(format!("PRIMARY MODE enabled (user request from '{client}')"));
        }
        call.reply.ok();
        return Outcome::Done;
    }
    let number = match parse_i64(port) {
        Some(number @ 0..=PORT_MAX) => number as u16,
        _ => {
            call.reply.error("ERR Invalid master port");
            return Outcome::Done;
        }
    };
    let upstream = Upstream { host: String::from_utf8_lossy(host).into_owned(), port: number };
    let current = call.node.replication.upstream();
    let is_same = |now: &Upstream| now.host.eq_ignore_ascii_case(&upstream.host) && now.port == number;
    if current.as_ref().is_some_and(is_same) {
        let view = &call.node.replication.link;
        view.accepts_empty.store(view.refuses_empty.load(Relaxed), Relaxed);
        log::notice(
            "REPLICAOF would result into synchronization with the primary we are already connected with. No operation performed.",
        );
        call.reply.simple("OK Already connected to specified master");
        return Outcome::Done;
    }
    call.node.config.set_replica_of([host, port].join(&b' '));
    // What a transaction has done so far is a part of the history that ends here.
    transaction::close_frame(call);
    role::follow(call.node, &mut call.exec.held, upstream.clone());
    link::spawn(call.node);
    let client = line::short(call.node, &call.session.shared);
    let Upstream { host, port } = upstream;
    log::notice(format!("REPLICAOF {host}:{port} enabled (user request from '{client}')"));
    call.reply.ok();
    Outcome::Done
}

pub const ROLE: Spec = Spec {
    name: "role",
    summary: "Returns the role of this server with its offset, and its replicas or its primary.",
    since: "2.8.12",
    group: Group::Server,
    complexity: "O(1)",
    arity: 1,
    flags: Flags::NOSCRIPT.or(Flags::LOADING).or(Flags::STALE).or(Flags::FAST),
    acl: AclCategories::ADMIN.or(AclCategories::DANGEROUS),
    ..Spec::BASE
};

/// A primary, what it has sent, and its replicas; or a replica, its primary, and how far it has come.
pub fn role(call: &mut AdminCall<'_>) -> Outcome {
    let (node, reply) = (call.node, &mut *call.reply);
    let end = node.log.end().0 as i64;
    let Some(Upstream { host, port }) = node.replication.upstream() else {
        reply.array(3);
        reply.bulk(b"master");
        reply.integer(end);
        let replicas = node.replication.primary.replicas().clone();
        let online: Vec<_> = replicas.iter().filter(|replica| replica.seen.state().is_online()).collect();
        reply.array(online.len());
        for replica in online {
            reply.array(3);
            reply.bulk(replica.address.as_bytes());
            reply.bulk_i64(replica.port);
            reply.bulk_i64(replica.seen.acked().0 as i64);
        }
        return Outcome::Done;
    };
    let phase = node.replication.link.phase();
    reply.array(5);
    reply.bulk(b"slave");
    reply.bulk(host.as_bytes());
    reply.integer(i64::from(port));
    reply.bulk(match phase {
        Phase::Resting => b"connect",
        Phase::Connecting => b"connecting",
        Phase::Handshake => b"handshake",
        Phase::Transfer => b"sync",
        Phase::Connected => b"connected",
    });
    reply.integer(if phase == Phase::Connected { end } else { -1 });
    Outcome::Done
}
