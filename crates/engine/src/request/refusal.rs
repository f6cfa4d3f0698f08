//! Replies where no command runs: to a request that the gates refuse, and to bytes that are no request.

use isotherm_keyspace::Slot;
use isotherm_resp::{Args, ProtocolError, Reply, errors};

use crate::request::execute::Exec;
use crate::request::slots::route;
use crate::request::transaction;
use isotherm_node::mail::tasks::Tasks;
use isotherm_node::request::entry::{Entry, Locks};
use isotherm_node::session::{NO_COMMAND, ReplyMode, Session};
use isotherm_runtime::log;
use isotherm_runtime::time::steady_now;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

/// Time after such a line of the log without another.
const ATTACK_REST_MS: i64 = 60_000;

/// A request is refused with this error; `command` if it names one.
pub fn refuse(
    exec: &mut Exec,
    session: &mut Session,
    reply: &mut Reply,
    command: Option<&'static Entry>,
    text: &[u8],
    args: Args<'_>,
) {
    if let Some(command) = command.filter(|command| command.locks == Locks::Queue) {
        // As Valkey does, even if there is no transaction to discard.
        transaction::leave(session, &mut exec.held);
        session.note_gates();
        let why = text.strip_prefix(b"ERR ").unwrap_or(text);
        reply.error(errors::exec_abort_because(why));
        // A client that monitors has seen MULTI, and sees that it is over.
        if exec.node.mail.tasks().has(Tasks::MONITORED) {
            exec.node.feed_monitors(session, command.spec, args);
        }
    } else {
        if let Some(multi) = &mut session.multi {
            multi.abort();
        }
        reply.error(text);
    }
    note_refusal(exec, session, reply, command);
}

/// Another server is to be asked.
#[cold]
pub fn redirect(
    exec: &mut Exec,
    session: &mut Session,
    reply: &mut Reply,
    command: Option<&'static Entry>,
    text: &[u8],
) {
    match &mut session.multi {
        Some(_) if command.is_some_and(|command| command.locks == Locks::Queue) => {
            transaction::leave(session, &mut exec.held);
            session.note_gates();
        }
        Some(multi) => multi.abort(),
        None => {}
    }
    reply.error(text);
    note_refusal(exec, session, reply, command);
}

/// Refuses a request with one key that is in another node's slot, which may happen often. Returns whether
/// there is such a node.
pub fn send_away(
    exec: &mut Exec,
    session: &mut Session,
    reply: &mut Reply,
    command: &'static Entry,
    slot: Slot,
) -> bool {
    let mut text = std::mem::take(&mut exec.route.text);
    text.clear();
    let has_moved = route::write_redirection(&mut exec.desk(), ("MOVED", slot), &session.shared, &mut text);
    if has_moved {
        reply.error(&text[..]);
        note_refusal(exec, session, reply, Some(command));
    }
    exec.route.text = text;
    has_moved
}

fn note_refusal(exec: &mut Exec, session: &mut Session, reply: &Reply, command: Option<&'static Entry>) {
    exec.stats.count_error(reply.last_error().as_bytes());
    if let Some(command) = command {
        exec.stats.commands[usize::from(command.index)].rejected.add(1);
    }
    // A name of no command is a request too.
    session.end_caching(command.is_some_and(|command| command.keeps_caching));
    session.last_command = command.map_or(NO_COMMAND, |command| command.index);
    exec.clock.lap();
}

/// Answers input of a client that is no request.
#[cold]
pub fn protocol_error(exec: &mut Exec, session: &mut Session, reply: &mut Reply, error: ProtocolError) {
    let mark = reply.len();
    reply.error(error.text());
    exec.stats.count_error(reply.last_error().as_bytes());
    if session.reply_mode != ReplyMode::On {
        reply.truncate(mark);
    }
    // COMPAT(protocol): A connection is closed after a protocol error under CLIENT REPLY OFF and SKIP too;
    // Valkey leaves it open but stops reading it. Why: such a connection is of no further use to its client.
    session.close_after_reply = true;
    log::verbose(format!("Protocol error ({}) from client: id={}", error.log_text(), session.id()));
}

/// Notes that an HTTP request has come, once a minute: every client can send them.
#[cold]
pub fn log_attack(addr: &str) {
    static LAST_MS: AtomicI64 = AtomicI64::new(i64::MIN);
    let now_ms = steady_now().0;
    if now_ms.saturating_sub(LAST_MS.load(Relaxed)) < ATTACK_REST_MS {
        return;
    }
    LAST_MS.store(now_ms, Relaxed);
    log::warning(format!(
        "Possible SECURITY ATTACK detected. It looks like somebody is sending POST or Host: commands to Isotherm. \
         This is likely due to an attacker attempting to use Cross Protocol Scripting to compromise your Isotherm \
         instance. Connection from {addr} aborted."
    ));
}
