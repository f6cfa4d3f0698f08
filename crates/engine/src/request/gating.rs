//! Conditions that replies wait for, as the configuration and the role say (`reply_gate`).

use isotherm_keyspace::Held;
use std::sync::atomic::Ordering::Relaxed;

use isotherm_config::{Id, id};
use isotherm_node::Node;
use isotherm_node::mail::tasks::Tasks;

/// Replies wait for what the configuration and the role say, from now on. The caller holds nothing.
pub fn apply(node: &'static Node) {
    let mut held = Held::new(&node.keyspace);
    held.acquire_beside_leases();
    apply_held(node, &mut held);
}

/// Makes replies wait for what the configuration and the role say, for a caller that holds everything.
pub fn apply_held(node: &'static Node, held: &mut Held<'_>) {
    const QUORUM: Id = id("repl-ack-quorum");
    let syncs =
        node.aof.is_on() && node.aof.awaits_each_sync(&node.config) && !node.aof.awaits_base.load(Relaxed);
    let has_quorum = node.config.number(QUORUM) > 0 && !node.mail.tasks().has(Tasks::REPLICA);
    let is_gated = syncs || has_quorum;
    if is_gated && !node.mail.tasks().has(Tasks::GATED) {
        // Changes that were made without a gate are in the log before its end.
        let end = node.log.end();
        held.stamps().for_each(|stamp| stamp.store(end.0, Relaxed));
    }
    if node.gate.has_quorum() && node.mail.tasks().has(Tasks::REPLICA) {
        node.gate.give_up_quorum();
    }
    node.gate.ask_for(&node.mail, [syncs, has_quorum]);
    if has_quorum {
        // Without a log there is nothing to acknowledge.
        (node.hooks.keep_log)(node);
    }
    node.mail.set_tasks(Tasks::GATED, if is_gated { Tasks::GATED } else { Tasks::NONE });
}
