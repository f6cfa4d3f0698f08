//! Changing the role of the node, at one moment for all commands.
//!
//! ```text
//!   hold everything --> role, history, Tasks::REPLICA, whether commands write the log --> new generation --> let go
//! ```
//! A command that was admitted before, and gets its locks afterwards, finds that the role is another than it
//! was prepared for (`Exec::knows_role`) and asks the gates again. Commands that the link to the former
//! primary still has are not applied: it looks at `Replication::generation` under its locks.

use isotherm_keyspace::{Held, Want};
use isotherm_log::LogOffset;
use isotherm_replication::ReplId;
use isotherm_replication::link::Phase;
use std::sync::atomic::Ordering::Relaxed;

use super::feeder;
use isotherm_config::{Id, id};
use isotherm_durability::aof::switch;
use isotherm_durability::persistence::load::History as LoadedHistory;
use isotherm_engine::request::{blocking, gating};
use isotherm_node::Node;
use isotherm_node::effects::change_log::LogReader;
use isotherm_node::mail::message::Without;
use isotherm_node::mail::tasks::Tasks;
use isotherm_node::process::hold_all;
use isotherm_node::replication::state::{Role, Upstream};
use isotherm_runtime::log;
use isotherm_runtime::random::random_bytes;

/// The node takes this role. `held` has all partitions.
fn take(node: &'static Node, held: &mut Held<'static>, role: Role) {
    debug_assert!(held.holds_all(), "commands see one role at a time");
    let follows = matches!(role, Role::Replica(_));
    node.replication.begin_generation();
    node.replication.set_link_up(false);
    node.replication.own_keys.clear();
    let view = &node.replication.link;
    view.refuses_empty.store(false, Relaxed);
    view.accepts_empty.store(false, Relaxed);
    view.lacks_memory.store(false, Relaxed);
    let mut state = node.replication.state();
    (state.role, state.is_synced) = (role, false);
    drop(state);
    log::set_role(follows);
    node.mail.set_tasks(Tasks::REPLICA, if follows { Tasks::REPLICA } else { Tasks::NONE });
    node.log.set_follows(&node.mail, follows);
    gating::apply_held(node, held);
    node.config.touch();
}

/// REPLICAOF host port. Everything is held. The link begins when `link::spawn` is called.
pub fn follow(node: &'static Node, held: &mut Held<'static>, upstream: Upstream) {
    let was_primary = node.replication.upstream().is_none();
    follow_for_now(node, held, upstream);
    if was_primary {
        unblock_clients(node);
    }
}

/// Makes this node follow another without an end of the waits of clients for keys: the other node may refuse
/// to be the primary.
pub fn follow_for_now(node: &'static Node, held: &mut Held<'static>, upstream: Upstream) {
    let was_primary = node.replication.upstream().is_none();
    let was_up = node.replication.is_link_up();
    take(node, held, Role::Replica(upstream));
    // Until the link to this one begins, INFO and ROLE would show the state of the last link.
    node.replication.link.set_phase(Phase::Resting);
    if was_primary {
        log::notice(
            "Before turning into a replica, using my own primary parameters to synthesize a cached primary: I may be able to \
             synchronize with the new primary with just a partial transfer.",
        );
        node.replication.state().has_position = true;
        node.replication.link.forget_down();
    } else if was_up {
        log::notice("Caching the disconnected primary state.");
        node.replication.link.note_down();
    }
}

/// The process starts: with `replicaof` the node is a replica before it has any data. Its link begins when
/// that is loaded.
pub fn begin(node: &'static Node) -> Result<(), String> {
    const REPLICA_OF: Id = id("replicaof");
    let text = String::from_utf8_lossy(&node.config.text(REPLICA_OF)).into_owned();
    let Some((host, port)) = text.rsplit_once(' ') else { return Ok(()) };
    let port =
        port.trim().trim_start_matches('+').parse().map_err(|_| format!("Invalid primary port {port}"))?;
    begin_behind(node, Upstream { host: host.to_string(), port });
    Ok(())
}

/// Makes the process start as a replica of that one. The loaded data continues in the history that the file
/// states (`take_over`).
pub fn begin_behind(node: &'static Node, upstream: Upstream) {
    let mut held = Held::new(&node.keyspace);
    held.acquire(Want::All);
    take(node, &mut held, Role::Replica(upstream));
}

/// Outcome for the history that a file states.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TakenOver {
    /// The file states none.
    Nothing,
    /// The node is a replica, and continues in the history.
    Continued,
    /// The node is a primary: replicas that know the history may continue in this node's own.
    Renamed,
}

/// Takes over the place in a history that the file of the loaded data states. A replica continues there; a
/// primary begins a history of its own, in which replicas that know the one of the file may continue. No
/// command runs yet.
pub fn take_over(node: &'static Node, loaded: &LoadedHistory) -> TakenOver {
    let LoadedHistory { id: Some(id), offset: Some(offset), db } = loaded else { return TakenOver::Nothing };
    let (Some(id), Ok(offset)) = (ReplId::parse(id), u64::try_from(*offset)) else {
        return TakenOver::Nothing;
    };
    // With a quorum the log is kept from the start on, before it is known where it begins; `keep_log` keeps
    // it again.
    feeder::let_go(node);
    let mut held = Held::new(&node.keyspace);
    held.acquire(Want::All);
    node.log.go_on_at(LogOffset(offset), db.and_then(|db| u32::try_from(db).ok()).unwrap_or(0));
    let mut state = node.replication.state();
    let own = state.history.id();
    state.history.replace(id);
    state.has_position = true;
    if let Role::Replica(_) = state.role {
        state.is_synced = true;
        return TakenOver::Continued;
    }
    state.history.promote(own, LogOffset(offset));
    drop(state);
    node.log.close_gap();
    TakenOver::Renamed
}

/// The data is loaded. A primary whose history others may know keeps what it logs from here on: they may come
/// at once. So does one whose replies wait for replicas.
pub fn keep_log(node: &'static Node) {
    let state = node.replication.state();
    let is_known = matches!(state.role, Role::Primary) && state.history.second().is_some();
    drop(state);
    if is_known || node.gate.has_quorum() {
        feeder::keep_now(node);
    }
}

/// REPLICAOF NO ONE. Everything is held. False if the node follows none.
pub fn promote(node: &'static Node, held: &mut Held<'static>) -> bool {
    if node.replication.upstream().is_none() {
        return false;
    }
    take(node, held, Role::Primary);
    begin_history(node);
    feeder::disconnect(node);
    // It may rest for a snapshot of the primary that never came.
    switch::resume_any(node);
    true
}

/// Begins a history of this node's own: from here on the log belongs to it. Everything is held.
fn begin_history(node: &'static Node) {
    let name = random_bytes().map(ReplId::new).expect("the system had random bytes at the start");
    let end = node.log.end();
    let mut state = node.replication.state();
    let former = state.history.id();
    state.has_position = true;
    node.replication.link.forget_down();
    if node.log.has_gap() {
        // Nothing may continue from here: writes of this node are not logged.
        return state.history.replace(name);
    }
    state.history.promote(name, end);
    drop(state);
    end_file(node);
    log::notice(format!(
        "Setting secondary replication ID to {former}, valid up to offset: {}. New replication ID is {name}",
        end.0 + 1
    ));
}

// COMPAT(replication): A replica that has no memory for a command of the stream takes its link down
// (`master_refused:memory` in INFO) and tries again; if a part of a transaction was applied, it asks for all
// data. Valkey ends when the system refuses memory. Why: what it has can be read meanwhile, and is never
// taken for a state that it is not.
/// The data is no state of any history now (a part of a transaction is in it, or all is replaced): nothing
/// continues from here. The changed data is held, so that a snapshot, which holds everything, comes before or
/// after this.
pub fn lose_place(node: &Node) {
    let name = random_bytes().map(ReplId::new).expect("the system had random bytes at the start");
    let mut state = node.replication.state();
    state.history.replace(name);
    state.has_position = false;
}

/// The history has a new name: a file of the log has bytes of one only, and is listed with it. Everything is
/// held.
pub fn end_file(node: &'static Node) {
    node.log.cut(true);
    node.log.wake(LogReader::Aof);
}

/// The process is about to end: nothing of the primary's stream is applied from here on.
pub fn end_link(node: &'static Node) {
    let mut held = Held::new(&node.keyspace);
    hold_all::lock_all(node, &mut held);
    node.replication.begin_generation();
}

/// Clients that wait for a key of a primary wait for nothing now.
pub fn unblock_clients(node: &Node) {
    for client in node.clients.all() {
        blocking::unblock(&client, Without::RoleChanged);
    }
}
