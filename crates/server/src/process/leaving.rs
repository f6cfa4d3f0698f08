//! Leaving: SHUTDOWN or a signal asks for the end, replicas get what they lack, then the process may end.
//!
//! ```text
//!   ask --> writes pause --> all replicas have the log? --yes--> finish --> the last file (`shutdown`) --> ends
//!                              no: clients wait ------ all have it, or shutdown-timeout -----'   |
//!                                       '--- SHUTDOWN ABORT --> nothing has happened <--- the file cannot be written
//! ```

use isotherm_cluster::Flags;
use isotherm_keyspace::{Held, UnixMs};

use crate::process::shutdown::{ATTEMPTS, End};
use isotherm_config::{Id, id};
use isotherm_engine::request::blocking;
use isotherm_node::Node;
use isotherm_node::mail::message::Without;
use isotherm_node::process::asked_end::Options;
use isotherm_node::request::pause::Cause;
use isotherm_runtime::log;
use isotherm_runtime::routines;
use isotherm_runtime::time::{elapsed, instant, steady_now, unix_now};

/// Outcome of a request for the end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    Ends,
    /// The end comes, or is called off, later.
    Waits,
    /// Something stands in its way; the log says what.
    Refused,
}

/// `by` says which client has asked, if it was not a signal. Nothing is held.
pub fn ask(node: &'static Node, options: Options, by: Option<&str>) -> Answer {
    const TIMEOUT: Id = id("shutdown-timeout");
    let ending = &node.process.ending;
    if ending.is_deciding() {
        if by.is_some() && options.has(Options::NOSAVE) {
            // The thread that decides may wait for a script, or write the file.
            node.process.wish.set_insisted(true);
            node.persistence.cancel(|_| true);
        }
        return Answer::Waits;
    }
    // COMPAT(server): SHUTDOWN NOW also ends an end that waits for replicas; Valkey does not hear it until
    // `shutdown-timeout`. Why: it says that replicas are not to be waited for.
    if ending.is_under_way() && !options.has(Options::NOW) {
        return Answer::Waits;
    }
    log::notice(format!("User requested shutdown...{}", by.unwrap_or("")));
    node.runs.set_ending(by.is_none());
    let timeout_ms = node.config.number(TIMEOUT) * 1000;
    let primary = &node.replication.primary;
    if !options.has(Options::NOW) && timeout_ms > 0 && !primary.replicas().is_empty() {
        node.pause.begin(&node.mail, Cause::Shutdown, i64::MAX, true);
        // What had its locks before has ended: it is in the log, and its reply may be on its way.
        // A worker that runs a script does not wait for its end: SHUTDOWN NOSAVE is what ends such a script.
        let mut held = Held::new(&node.keyspace);
        match by.is_some() && options.has(Options::NOSAVE) {
            true => _ = held.acquire_beside_leases(),
            false => match lock_gate(node, &mut held, by.is_none()) {
                Gate::Had => {}
                Gate::DecidedElsewhere => return Answer::Waits,
                Gate::BehindScript => {
                    log::warning("A script is in its middle, can't exit.");
                    node.pause.end(&node.mail, Cause::Shutdown);
                    return Answer::Refused;
                }
            },
        }
        drop(held);
        if !primary.lagging(node.log.end()).is_empty() {
            if ending.begin(options, by.is_none(), UnixMs(unix_now().0 + timeout_ms)) {
                log::notice("Waiting for replicas before shutting down.");
                node.ask_for_acks();
            }
            return Answer::Waits;
        }
    }
    finish(node, options)
}

/// The wait is over, or there was none. One thread at a time: a signal comes to the control thread, SHUTDOWN
/// to a worker, and the second would end the save of the first, and let writes continue after its cut.
pub fn finish(node: &'static Node, options: Options) -> Answer {
    if !node.process.ending.begin_deciding() {
        return Answer::Waits;
    }
    // One that came to another attempt is not about this one.
    node.process.wish.set_insisted(false);
    say_how_far(node);
    let is_safe = is_safe(node, options);
    if !is_safe {
        // Another attempt would find the same.
        node.process.wish.call_off();
    }
    let may_come = is_safe && End::of(node).may_come(options);
    let is_insisted = node.process.wish.is_insisted();
    if may_come || is_insisted {
        if is_insisted || options.has(Options::NOSAVE) {
            node.runs.abandon();
        }
        return Answer::Ends;
    }
    log::warning("Errors trying to shut down the server. Check the logs for more information.");
    cancel(node, true);
    Answer::Refused
}

/// SHUTDOWN SAFE: a primary whose vote the cluster counts on stays, unless it is forced to go.
fn is_safe(node: &Node, options: Options) -> bool {
    let votes = node.cluster.get().is_some_and(|member| {
        let (_, topology) = member.topologies.newest();
        topology.me().flags.has(Flags::PRIMARY) && !topology.me().slots.is_empty()
    });
    if !votes || !options.has(Options::SAFE) {
        return true;
    }
    let is_forced = options.has(Options::FORCE);
    let what = if is_forced { "Exit anyway." } else { "Can't exit." };
    log::warning(format!("This is a voting primary. Shutting down may cause the cluster to go down. {what}"));
    is_forced
}

/// Outcome of an attempt to lock everything.
enum Gate {
    Had,
    /// Another thread decides about the end.
    DecidedElsewhere,
    BehindScript,
}

/// Locks everything once no script is in its middle. The guard ends the process that a signal has asked to
/// end; a worker waits for a moment only: when it was asked there was no such script.
fn lock_gate(node: &'static Node, held: &mut Held<'static>, is_guarded: bool) -> Gate {
    let begun = instant();
    while !held.try_gate() {
        if node.process.ending.is_deciding() {
            return Gate::DecidedElsewhere;
        }
        if !is_guarded && elapsed(begun) > ATTEMPTS {
            return Gate::BehindScript;
        }
        routines::pause(routines::LOOK);
    }
    Gate::Had
}

fn say_how_far(node: &Node) {
    let (primary, end) = (&node.replication.primary, node.log.end());
    let lagging = primary.lagging(end);
    for replica in &lagging {
        let seen = &replica.seen;
        let lag_seconds = seen.lag_seconds(steady_now());
        log::notice(format!(
            "Lagging replica {}:{} reported offset {} behind master, lag={}, state={}.",
            replica.address,
            replica.port,
            end.0 as i64 - seen.acked().0 as i64,
            lag_seconds,
            seen.state().name()
        ));
    }
    let count = primary.replicas().len();
    if count > 0 {
        let in_sync = count.saturating_sub(lagging.len());
        log::notice(format!("{in_sync} of {count} replicas are in sync when shutting down."));
    }
}

/// SHUTDOWN ABORT, while no signal is pending. Whether there was something to call off.
pub fn abort(node: &'static Node) -> bool {
    let was_under_way = cancel(node, false);
    // Or its file could not be written, and it is tried again.
    let was_wished = !node.process.pending_end.is_some() && node.process.wish.abort();
    if was_under_way || was_wished {
        log::notice("Shutdown manually aborted.");
    }
    was_under_way || was_wished
}

/// SHUTDOWN ABORT, while a signal is pending. Whether there was one.
pub fn abort_pending(node: &'static Node) -> bool {
    let was_pending = node.process.abort_pending();
    if was_pending {
        node.runs.set_ending(false);
    }
    was_pending
}

/// Clients that have asked for the end get an error, and writes continue.
fn cancel(node: &'static Node, by_decider: bool) -> bool {
    let Some(waiters) = node.process.ending.end(by_decider) else { return false };
    for waiter in &waiters {
        blocking::answer_without_end(waiter, Without::NoEnd);
    }
    node.pause.end(&node.mail, Cause::Shutdown);
    node.runs.set_ending(false);
    node.process.wish.set_insisted(false);
    true
}
