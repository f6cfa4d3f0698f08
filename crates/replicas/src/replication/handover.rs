//! FAILOVER: this primary hands over to one of its replicas, without a lost write.
//!
//! ```text
//!   FAILOVER --> writes pause, an ACK is asked for --> a replica has all of the log --+--> this node follows it:
//!                                 time limit: abort, or with FORCE -------------------+    PSYNC ... FAILOVER
//!                                                                                            |
//!       writes go on here, and get -READONLY <-- +CONTINUE, +FULLRESYNC <--------------------+
//!       this node stays, or is again, the primary; writes go on <-- anything else, ABORT <---+
//! ```
//! The thread that feeds replicas notices that one has all, and the control thread acts: it looks again while
//! everything is held, and the role changes under the same locks. So a command that was under way when writes
//! paused is with the replica, or this node still is the primary. The link to the new primary reports what
//! came of the request.
//!
//! The feeder waits for no script: with one in its middle the next step is tried again, and a time limit
//! ends the pause meanwhile.
//!
//! Invariants: the phase changes while everything is held, but for the end of a handover that has succeeded;
//! while it is `IN_PROGRESS` the node is a replica; writes pause exactly as long as the phase is not `NONE`.

use isotherm_keyspace::Held;

use super::role;
use isotherm_node::Node;
use isotherm_node::replication::failover::{Due, IN_PROGRESS, NONE, Plan, Target, WAITS};
use isotherm_node::replication::primary::ReplicaShared;
use isotherm_node::replication::state::Upstream;
use isotherm_node::request::pause::Cause;
use isotherm_runtime::log;
use isotherm_runtime::time::steady_now;

/// Writes pause from here on. Everything is held, and no failover is under way.
pub fn begin(node: &Node, plan: Plan) {
    let failover = &node.replication.failover;
    log::notice(match &plan.target {
        Some(Target { host, port }) => format!("FAILOVER requested to {host}:{port}."),
        None => "FAILOVER requested to any replica.".to_string(),
    });
    *failover.plan() = plan;
    let is_first = failover.change(NONE, WAITS);
    assert!(
        is_first,
        "FAILOVER is refused while one is under way, and holds all partitions from there to here"
    );
    node.pause.begin(&node.mail, Cause::Failover, i64::MAX, true);
    node.ask_for_acks();
}

/// Outcome of the next step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Acted {
    /// All that is due now is done.
    Done,
    /// The node follows another from here on: the link to it is to begin.
    Follows,
    /// A script is in its middle.
    Later,
}

/// Does what is due. Nothing is held.
pub fn act(node: &'static Node) -> Acted {
    let (failover, primary) = (&node.replication.failover, &node.replication.primary);
    match failover.due(primary, node.log.end(), steady_now()) {
        Some(Due::Synced(replica)) => {
            let port = u16::try_from(replica.port).unwrap_or(0);
            hand_over(node, Target { host: replica.address.to_string(), port }, Some(&replica))
        }
        Some(Due::Forced(target)) => hand_over(node, target, None),
        Some(Due::TimedOut) => {
            // The role stays what it is, and a script that runs while writes pause only reads.
            let mut held = Held::new(&node.keyspace);
            held.acquire_beside_leases();
            if failover.is_in_progress() {
                return Acted::Done;
            }
            abort(node, &mut held, "Replica never caught up before timeout");
            Acted::Done
        }
        Some(Due::Ask) | None => Acted::Done,
    }
}

/// Without a replica that has all, whatever the target has.
fn hand_over(node: &'static Node, target: Target, synced: Option<&ReplicaShared>) -> Acted {
    let (failover, primary) = (&node.replication.failover, &node.replication.primary);
    let mut held = Held::new(&node.keyspace);
    if !held.try_gate() {
        return Acted::Later;
    }
    // A command may have ended meanwhile that had its locks before the pause.
    if synced.is_some_and(|replica| !primary.has_all(replica, node.log.end())) {
        return Acted::Done;
    }
    // It may have been called off.
    if !failover.change(WAITS, IN_PROGRESS) {
        return Acted::Done;
    }
    let Target { host, port } = &target;
    log::notice(match synced {
        Some(_) => format!("Failover target {host}:{port} is synced, failing over."),
        None => format!("FAILOVER to {host}:{port} time out exceeded, failing over."),
    });
    failover.plan().target = Some(target.clone());
    node.config.set_replica_of(format!("{host} {port}").into_bytes());
    role::follow_for_now(node, &mut held, Upstream { host: target.host, port: target.port });
    Acted::Follows
}

/// The other one is the primary now. Called by the link to it.
pub fn succeed(node: &Node) {
    if node.replication.failover.change(IN_PROGRESS, NONE) {
        role::unblock_clients(node);
        node.pause.end(&node.mail, Cause::Failover);
    }
}

/// Calls the handover off: this node stays, or is again, the primary. Everything is held. Returns whether
/// there was a handover to call off.
pub fn abort(node: &'static Node, held: &mut Held<'static>, why: &str) -> bool {
    let failover = &node.replication.failover;
    let before = failover.end();
    if before == NONE {
        return false;
    }
    log::notice(match failover.plan().target.clone() {
        Some(Target { host, port }) => format!("FAILOVER to {host}:{port} aborted: {why}"),
        None => format!("FAILOVER to any replica aborted: {why}"),
    });
    if before == IN_PROGRESS && role::promote(node, held) {
        node.config.set_replica_of(Vec::new());
        look_for_clients(node);
    }
    node.pause.end(&node.mail, Cause::Failover);
    true
}

/// Calls it off for a thread that holds nothing. A script that runs while writes pause only reads: it
/// continues, and it reads the node's own data under both roles.
pub fn abort_alone(node: &'static Node, why: &str) -> bool {
    if !node.replication.failover.is_under_way() {
        return false;
    }
    let mut held = Held::new(&node.keyspace);
    held.acquire_beside_leases();
    abort(node, &mut held, why)
}

/// Clients that wait for a key were served nothing while this node was a replica.
fn look_for_clients(node: &Node) {
    for client in node.clients.all() {
        if let Some(waiter) = client.waiter().clone() {
            waiter.wake();
        }
    }
}
