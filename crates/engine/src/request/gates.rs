//! Gates: what may stand between a session and its command, asked in Valkey's order.
//!
//! ```text
//! session     no password yet, MULTI, listens to channels ...    a mask, kept by the session   \
//! worker      maxmemory is set, replicas are missing ...         a mask, kept by its `Exec`     > and-ed
//! command     which gates can matter for it at all               a mask, by its declaration    /
//!                no bit in common: nothing is asked
//! node        a pause, much undelivered                          asked again under the locks (`Tasks`)
//! ```
//! Every gate has a bit. One that is open for most commands most of the time costs nothing then, however many
//! gates there are. The tasks of the node as a whole change at any moment, so they are looked at when the
//! command has its locks; only if there are some the gates for them are asked too.

use isotherm_commands::Flags;
use isotherm_commands::spec::Reach;
use isotherm_resp::{Protocol, errors};
use std::borrow::Cow;
use std::io;

use crate::request::eviction::Room;
use crate::request::execute::Exec;
use crate::request::resolve::{Found, Request};
use crate::request::script_flags::flags_of_script;
use crate::request::slots::refusal::Refusal;
use crate::request::slots::route;
use crate::request::turn::FETCHES_MAX;
use isotherm_config::{Id, id};
use isotherm_node::Node;
use isotherm_node::effects::pubsub::Kind;
use isotherm_node::mail::tasks::Tasks;
use isotherm_node::request::caller::Authority;
use isotherm_node::request::entry::Entry;
use isotherm_node::request::gate_bits::{Gates, LOOKS_AT_KEYS};
use isotherm_node::request::next::WaitReason;
use isotherm_node::session::Session;
use isotherm_node::users::{noting, permission};
use isotherm_runtime::log::os_text;

/// `busy-reply-scope all`
const SCOPE_ALL: i64 = 1;

pub struct Gate {
    pub name: &'static str,
    /// Gate bits: the gate is asked if one of them is set.
    bits: Gates,
    ask: fn(&mut Asked<'_, '_>) -> Verdict,
}

/// Data from which a gate decides.
pub struct Asked<'a, 'b> {
    exec: &'a mut Exec,
    session: &'a mut Session,
    request: &'a Request<'b>,
    /// Flags that the command declares, and with EXEC those of its queue.
    flags: Flags,
    /// True if the messages that lay in the mailbox when the command was first to run have been handed out.
    has_heard: bool,
    /// The gate that is asked.
    gate: &'static str,
}

pub enum Verdict {
    Pass,
    Refuse(Cow<'static, [u8]>),
    /// Another server is to be asked: the transaction is discarded, and EXEC gives this text too.
    Redirect(Vec<u8>),
    /// Not now.
    Park(WaitReason),
    /// An HTTP request: a browser was tricked into talking to this server.
    Attack,
    /// The session is in MULTI: EXEC runs it.
    Queue,
}

/// All gates, in the order in which Valkey asks (`processCommand`). The first is of this server alone, and so
/// is backpressure.
pub const GATES: [Gate; 21] = [
    gate("mailbox", Gates::MAILBOX, mailbox),
    gate("http", Gates::HTTP, http),
    gate("authentication", Gates::AUTHENTICATION, authentication),
    gate("existence", Gates::EXISTENCE, existence),
    gate("arity", Gates::ARITY, arity),
    gate("protection", Gates::PROTECTION, protection),
    gate("no-multi", Gates::NO_MULTI, no_multi),
    gate("permission", Gates::PERMISSION, permission),
    gate("slot", Gates::SLOT.or(Gates::SLOTS), slot),
    gate("redirect", Gates::REDIRECT, redirect),
    gate("memory", Gates::MEMORY.or(Gates::GROWTH), memory),
    gate("save-failed", Gates::SAVE_FAILED, save_failed),
    gate("replicas", Gates::REPLICAS, replicas),
    gate("read-only", Gates::READ_ONLY, read_only),
    gate("subscriber", Gates::SUBSCRIBER, subscriber),
    gate("stale", Gates::STALE, stale),
    gate("loading", Gates::LOADING, loading),
    gate("busy", Gates::BUSY, busy),
    gate("monitor", Gates::MONITOR, monitor),
    gate("backpressure", Gates::BACKPRESSURE, backpressure),
    gate("pause", Gates::PAUSE, pause),
];

const fn gate(name: &'static str, bits: Gates, ask: fn(&mut Asked<'_, '_>) -> Verdict) -> Gate {
    Gate { name, bits, ask }
}

/// Asks the gates that can matter. A request that passes all of them is run, or queued.
pub fn ask(exec: &mut Exec, session: &mut Session, request: &Request<'_>) -> Verdict {
    let (of_command, of_request) = match request.found {
        Found::Command(command) => (command.gates, Gates::NONE),
        Found::WrongArity(_) | Found::UnknownSubcommand | Found::Unknown => (Gates::ALL, Gates::UNRESOLVED),
    };
    let of_node = Gates::OF_TASKS.when(exec.node.mail.tasks() != Tasks::NONE);
    let of_member = Gates::SLOT.when(exec.route.member.is_some());
    let gates = session.gates.or(exec.gates).or(of_member).or(of_node).or(of_request).and(of_command);
    let flags = flags_of(exec.node, session, request);
    let mut asked = Asked { exec, session, request, flags, has_heard: false, gate: "" };
    for gate in GATES.iter().filter(|gate| gates.has(gate.bits)) {
        asked.gate = gate.name;
        match (gate.ask)(&mut asked) {
            Verdict::Pass => {}
            otherwise => return otherwise,
        }
    }
    if gates.has(Gates::QUEUE) { Verdict::Queue } else { Verdict::Pass }
}

/// The tasks of the node that hold this request up. They are looked for again when it has its locks.
pub fn pauses_for(node: &Node, session: &Session, request: &Request<'_>) -> Tasks {
    let needs_data = request.command().is_some_and(|command| needs_data(session, command));
    pauses_of(flags_of(node, session, request)).or(if needs_data { Tasks::LOADING } else { Tasks::NONE })
}

fn pauses_of(flags: Flags) -> Tasks {
    let may_write = flags.has(Flags::WRITE.or(Flags::MAY_REPLICATE));
    if may_write { Tasks::PAUSES } else { Tasks::PAUSE_ALL }
}

fn flags_of(node: &Node, session: &Session, request: &Request<'_>) -> Flags {
    let Some(command) = request.command() else { return Flags(0) };
    if command.spec.reach == Reach::Script {
        return flags_of_script(node, command, request.args);
    }
    let queue = session.multi.as_ref().filter(|_| command.spec.reach == Reach::Queue);
    command.spec.flags.or(queue.map_or(Flags(0), |multi| multi.flags))
}

impl Asked<'_, '_> {
    /// The gates after `existence` and `arity` are asked about commands only.
    fn command(&self) -> &'static Entry {
        self.request.command().unwrap_or_else(|| panic!("{} is asked before existence", self.gate))
    }
}

fn refuse(text: impl Into<Vec<u8>>) -> Verdict {
    Verdict::Refuse(Cow::Owned(text.into()))
}

const fn refuse_with(text: &'static str) -> Verdict {
    Verdict::Refuse(Cow::Borrowed(text.as_bytes()))
}

/// A session that listens runs a command only when the messages that lay in the mailbox are handed out. After
/// each look one command runs, so that the session makes progress whatever is published meanwhile.
fn mailbox(asked: &mut Asked<'_, '_>) -> Verdict {
    let Some(listening) = &mut asked.session.listening else { return Verdict::Pass };
    // It holds for this command, whichever gate it has waited at.
    asked.has_heard = std::mem::take(&mut listening.heard);
    let awaits = asked.session.is_subscriber() && !asked.has_heard;
    match awaits && has_messages(asked.exec, asked.session) {
        true => Verdict::Park(WaitReason::Mailbox),
        false => Verdict::Pass,
    }
}

fn has_messages(exec: &Exec, session: &Session) -> bool {
    exec.has_undelivered || exec.node.mail.has_messages(session.shared.worker)
}

fn http(asked: &mut Asked<'_, '_>) -> Verdict {
    let word = asked.request.args.get(0);
    let is_http = word.eq_ignore_ascii_case(b"host:") || word.eq_ignore_ascii_case(b"post");
    if matches!(asked.request.found, Found::Unknown) && is_http { Verdict::Attack } else { Verdict::Pass }
}

fn authentication(asked: &mut Asked<'_, '_>) -> Verdict {
    let is_free = asked.request.command().is_some_and(|command| command.spec.flags.has(Flags::NO_AUTH));
    match asked.session.authenticated || is_free || !asked.exec.node.users.auth_required() {
        true => Verdict::Pass,
        false => refuse_with(errors::NO_AUTH),
    }
}

fn existence(asked: &mut Asked<'_, '_>) -> Verdict {
    match asked.request.found {
        Found::Command(_) | Found::WrongArity(_) => Verdict::Pass,
        Found::UnknownSubcommand => refuse(errors::unknown_subcommand(asked.request.args)),
        Found::Unknown => refuse(errors::unknown_command(asked.request.args)),
    }
}

fn arity(asked: &mut Asked<'_, '_>) -> Verdict {
    match asked.request.found {
        Found::WrongArity(command) => refuse(errors::wrong_arity(&command.name)),
        _ => Verdict::Pass,
    }
}

fn protection(asked: &mut Asked<'_, '_>) -> Verdict {
    let config = &asked.exec.node.config;
    let (name, parameter, permission) = match asked.command().parent {
        Some("module") => ("MODULE", "enable-module-command", config.module_permission()),
        _ => ("DEBUG", "enable-debug-command", config.debug_permission()),
    };
    match permission.allows(asked.session.shared.is_local()) {
        true => Verdict::Pass,
        false => refuse(format!(
            "ERR {name} command not allowed. If the {parameter} option is set to \"local\", \
             you can run it from a local connection, otherwise you need to set this option \
             in the configuration file, and then restart the server."
        )),
    }
}

fn no_multi(asked: &mut Asked<'_, '_>) -> Verdict {
    refuse(format!("ERR Command '{}' not allowed inside a transaction", asked.command().name))
}

fn permission(asked: &mut Asked<'_, '_>) -> Verdict {
    let (node, command, args) = (asked.exec.node, asked.command(), asked.request.args);
    let session = &mut *asked.session;
    let db = permission::database_of(session);
    let Err(denial) = permission::check_session(node, session, command, args, db) else {
        return Verdict::Pass;
    };
    let context = noting::context_of(session);
    noting::denied(node, session, command, (command, args), denial, context);
    refuse(permission::error(&session.user, command, args, denial))
}

/// A member of a cluster runs what concerns its own slots.
fn slot(asked: &mut Asked<'_, '_>) -> Verdict {
    let (command, args) = (asked.command(), asked.request.args);
    // A slot that became this node's after the word was read is asked about once more.
    for _ in 0..2 {
        let Err(refusal) = route::ask(&mut asked.exec.desk(), asked.session, command, args, asked.flags)
        else {
            return Verdict::Pass;
        };
        match refusal {
            Refusal::UnderWay => return Verdict::Park(WaitReason::Lease),
            Refusal::Unread if may_wait_for_records(asked) => {
                let keys = asked.exec.route.take_unread();
                return Verdict::Park(WaitReason::Cold(asked.exec.fetch(keys)));
            }
            _ => {}
        }
        let mut desk = asked.exec.desk();
        if let Some(text) = route::text_of(&mut desk, refusal, &asked.session.shared) {
            return Verdict::Redirect(text);
        }
    }
    Verdict::Redirect(Refusal::Unbound.text().into())
}

/// Counts a wait for records that say whether keys are there. Without another one the keys count as there.
fn may_wait_for_records(asked: &mut Asked<'_, '_>) -> bool {
    let fetches = &mut asked.session.fetches;
    let may_wait = asked.exec.may_fetch(Authority::Server) && *fetches < FETCHES_MAX;
    *fetches = if may_wait { *fetches + 1 } else { 0 };
    may_wait
}

fn redirect(asked: &mut Asked<'_, '_>) -> Verdict {
    let (node, flags) = (asked.exec.node, asked.flags);
    let reads_elsewhere = flags.has(Flags::READONLY) && !asked.session.reads_of_replica;
    if !(flags.has(Flags::WRITE) || reads_elsewhere) || !node.mail.tasks().has(Tasks::REPLICA) {
        return Verdict::Pass;
    }
    // The other one may be a replica still: it would send the client back. The pause of the failover ends
    // with it.
    if node.replication.failover.is_in_progress() {
        return Verdict::Park(WaitReason::Pause);
    }
    node.replication.redirection().map_or(Verdict::Pass, |text| Verdict::Redirect(text.into()))
}

fn memory(asked: &mut Asked<'_, '_>) -> Verdict {
    let exec = &mut *asked.exec;
    let evicted = exec.stats.values.evicted_keys.get();
    let room = exec.make_room();
    let has_evicted = exec.stats.values.evicted_keys.get() != evicted;
    // The client hears that its reads of evicted keys are stale before it is answered. It waits once: keys
    // may be evicted for a long time.
    if has_evicted
        && !asked.has_heard
        && asked.session.tracking().is_some()
        && has_messages(exec, asked.session)
    {
        return Verdict::Park(WaitReason::Mailbox);
    }
    match room == Room::None && asked.flags.has(Flags::DENYOOM) {
        true => refuse_with(errors::OUT_OF_MEMORY),
        false => Verdict::Pass,
    }
}

fn save_failed(asked: &mut Asked<'_, '_>) -> Verdict {
    // A queue is refused for its writes alone: what else is in it was asked about when it was queued.
    let is_refused =
        asked.flags.has(Flags::WRITE) || asked.command().spec.flags.has(Flags::REPORTS_DISK_ERRORS);
    let text = is_refused.then(|| disk_error(asked.exec.node)).flatten();
    text.map_or(Verdict::Pass, refuse)
}

/// Error with which writes are refused while the disk does not take them: that of the append-only file, or
/// else that of the last save.
enum DiskError {
    Log(String),
    Save,
}

fn find_disk_error(node: &Node) -> Option<DiskError> {
    let log_failed = node.mail.tasks().has(Tasks::LOG_FAILED);
    if let Some(failure) = log_failed.then(|| node.aof.failure()).flatten() {
        return Some(DiskError::Log(os_text(&io::Error::from_raw_os_error(failure.errno))));
    }
    let refuses = node.mail.tasks().has(Tasks::SAVE_FAILED)
        && node.config.stops_writes_on_save_error()
        && !node.config.save_points().is_empty();
    refuses.then_some(DiskError::Save)
}

/// Why a command that writes is refused, as far as it is about the disk.
pub fn disk_error(node: &Node) -> Option<Vec<u8>> {
    let name = server_name(node.config.extended_redis_compatibility());
    Some(match find_disk_error(node)? {
        DiskError::Log(why) => errors::cannot_log(&why).into(),
        DiskError::Save => errors::cannot_save(name).into(),
    })
}

/// Returns the disk error for a script that has declared that it writes.
pub fn script_disk_error(node: &Node) -> Option<Vec<u8>> {
    let name = server_name(node.config.extended_redis_compatibility());
    let (what, behind) = match find_disk_error(node)? {
        DiskError::Log(why) => ("persist data to AOF", format!(" AOF error: {why}")),
        DiskError::Save => ("save RDB snapshots", String::new()),
    };
    Some(
        format!(
            "MISCONF {name} is configured to {what}, but it's currently unable to persist to disk. Writable scripts are blocked. \
             Use 'no-writes' flag for read only scripts.{behind}"
        )
        .into(),
    )
}

/// Returns the error for clients that have waited for a script for too long.
pub fn busy_text(node: &Node) -> String {
    let name = server_name(node.config.extended_redis_compatibility());
    errors::busy_with_script(name, node.runs.is_busy_with_function())
}

/// Returns the name of the server for error texts that contain it.
pub fn server_name(as_redis: bool) -> &'static str {
    if as_redis { "Redis" } else { "Isotherm" }
}

/// Returns whether the command, or one in the queue that it runs, cannot run while a file is loaded.
fn needs_data(session: &Session, command: &Entry) -> bool {
    let queue = session.multi.as_ref().filter(|_| command.spec.reach == Reach::Queue);
    !command.spec.flags.has(Flags::LOADING) || queue.is_some_and(|multi| multi.needs_data)
}

/// Returns the error for commands that cannot run while a file is loaded.
pub fn loading_text(node: &Node) -> String {
    errors::is_loading(server_name(node.config.extended_redis_compatibility()))
}

fn loading(asked: &mut Asked<'_, '_>) -> Verdict {
    let node = asked.exec.node;
    match node.mail.tasks().has(Tasks::LOADING) && needs_data(asked.session, asked.command()) {
        true => refuse(loading_text(node)),
        false => Verdict::Pass,
    }
}

// COMPAT(scripts): While a script takes long, only clients that need one of its keys, or all keys, wait, and
// get BUSY from `busy-reply-threshold` on; the others are served. With `busy-reply-scope all` all get it, as
// in Valkey. Several scripts may take long at the same time; SCRIPT KILL ends all that have not written. Why:
// one slow script need not stop everything.
// COMPAT(scripts): While a script within EXEC takes long, commands that need no key (PING, INFO, SCRIPT KILL)
// are served also behind `busy-reply-threshold`. A SHUTDOWN or SCRIPT KILL of a new connection reaches it
// sooner than that. Why: it is suspended, as others are.
/// Refuses the command while a script takes long, with `busy-reply-scope all`. Otherwise a command that needs
/// a key of the script waits, or gets this error, when it has its locks.
fn busy(asked: &mut Asked<'_, '_>) -> Verdict {
    const SCOPE: Id = id("busy-reply-scope");
    let node = asked.exec.node;
    match node.runs.is_busy() && node.config.number(SCOPE) == SCOPE_ALL {
        true => refuse(busy_text(node)),
        false => Verdict::Pass,
    }
}

fn replicas(asked: &mut Asked<'_, '_>) -> Verdict {
    if asked.flags.has(Flags::WRITE) { refuse_with(errors::NO_REPLICAS) } else { Verdict::Pass }
}

fn read_only(asked: &mut Asked<'_, '_>) -> Verdict {
    if asked.flags.has(Flags::WRITE) { refuse_with(errors::READONLY) } else { Verdict::Pass }
}

fn stale(asked: &mut Asked<'_, '_>) -> Verdict {
    let runs_queue = asked.command().spec.reach == Reach::Queue;
    let queue_needs_fresh = runs_queue && asked.session.multi.as_ref().is_some_and(|multi| multi.needs_fresh);
    match asked.flags.has(Flags::STALE) && !queue_needs_fresh {
        true => Verdict::Pass,
        false => refuse_with(errors::PRIMARY_DOWN),
    }
}

fn subscriber(asked: &mut Asked<'_, '_>) -> Verdict {
    debug_assert!(asked.session.is_subscriber() && asked.session.proto == Protocol::Resp2);
    refuse(errors::not_for_subscribers(&asked.command().name))
}

fn monitor(asked: &mut Asked<'_, '_>) -> Verdict {
    if asked.flags.has(LOOKS_AT_KEYS) { refuse_with(errors::NOT_FOR_MONITORS) } else { Verdict::Pass }
}

fn backpressure(asked: &mut Asked<'_, '_>) -> Verdict {
    let mail = &asked.exec.node.mail;
    let (tasks, writes) = (mail.tasks(), asked.flags.has(Flags::WRITE));
    // COMPAT(pubsub): Commands that publish, and scripts, wait while more than 64 MB of messages, counted
    // once for each receiver, are undelivered; so do commands that write, where keyspace events or CLIENT
    // TRACKING make messages of that. Why: the memory of messages is bounded, and the time that they take.
    if tasks.has(Tasks::BACKPRESSURE) && sends_messages(asked, tasks) && mail.has_backpressure() {
        return Verdict::Park(WaitReason::Backpressure);
    }
    // Published messages are in the log for replicas: they may fill it to twice its limit.
    let is_logged = || asked.flags.has(Flags::PUBSUB) && asked.exec.node.replication.primary.has_backlog();
    let adds_to_log = || is_logged() && asked.exec.node.log.is_twice_full();
    match tasks.has(Tasks::WRITERS_WAIT) && (writes || adds_to_log()) && mail.makes_writers_wait() {
        true => Verdict::Park(WaitReason::Writers),
        false => Verdict::Pass,
    }
}

fn sends_messages(asked: &Asked<'_, '_>, tasks: Tasks) -> bool {
    let (node, flags) = (asked.exec.node, asked.flags);
    let has_listeners = || node.pubsub.count(Kind::Channel) + node.pubsub.count(Kind::Pattern) > 0;
    let writes_send = || node.trackers.sessions() > 0 || asked.exec.hot.events.any() && has_listeners();
    let is_script = asked.request.command().is_some_and(|command| command.spec.reach == Reach::Script);
    tasks.has(Tasks::MONITORED)
        || flags.has(Flags::PUBSUB)
        || flags.has(Flags::WRITE) && writes_send()
        || is_script && flags.has(Flags::WRITE.or(Flags::MAY_REPLICATE))
}

fn pause(asked: &mut Asked<'_, '_>) -> Verdict {
    if asked.exec.node.mail.tasks().has(pauses_of(asked.flags)) {
        // If no connection had to wait for the end of one, this is where it is noticed.
        asked.exec.node.end_pause_if_over(asked.exec.clock.now());
        if asked.exec.node.mail.tasks().has(pauses_of(asked.flags)) {
            return Verdict::Park(WaitReason::Pause);
        }
    }
    Verdict::Pass
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gates_are_asked_in_the_order_of_valkey() {
        assert_eq!(
            GATES.map(|gate| gate.name),
            [
                // Ours.
                "mailbox",
                // processCommand, from its top to its end.
                "http",
                "authentication",
                "existence",
                "arity",
                "protection",
                "no-multi",
                "permission",
                "slot",
                "redirect",
                "memory",
                "save-failed",
                "replicas",
                "read-only",
                "subscriber",
                "stale",
                "loading",
                "busy",
                "monitor",
                // Ours.
                "backpressure",
                "pause",
            ]
        );
    }

    #[test]
    fn no_bit_has_two_gates() {
        for (at, gate) in GATES.iter().enumerate() {
            assert!(GATES[..at].iter().all(|other| !other.bits.has(gate.bits)), "{}", gate.name);
        }
    }
}
