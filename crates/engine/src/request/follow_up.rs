//! Work that follows a command: its waiters are served, its hold ends, sessions that monitor see it, and the
//! keys that a tracking session has read are noted.

use isotherm_commands::Flags;
use isotherm_commands::spec::Reach;
use isotherm_resp::Args;

use crate::request::blocking;
use crate::request::execute::Exec;
use crate::request::transaction;
use isotherm_node::effects::monitor;
use isotherm_node::mail::tasks::Tasks;
use isotherm_node::observe::holds;
use isotherm_node::observe::holds::Work;
use isotherm_node::request::entry::Entry;
use isotherm_node::session::Session;

/// A command of a session that tracks, or that another monitors, has run; what it has read is still held.
#[cold]
pub fn observe(exec: &mut Exec, session: &mut Session, command: &'static Entry, args: Args<'_>) {
    if exec.node.mail.tasks().has(Tasks::MONITORED) && monitor::shows(command.spec) {
        exec.node.feed_monitors(session, command.spec, args);
    }
    // The commands of a script have noted what they have read.
    if command.spec.flags.has(Flags::READONLY)
        && command.spec.reach != Reach::Script
        && let Some(reader) = session.reader()
    {
        exec.note_reads(reader, command, args);
    }
    if !session.in_exec {
        session.end_caching(command.keeps_caching);
    }
}

/// A command that took `taken` is over. The waiters of what it has changed are served in its hold; the work
/// that has no need of it comes after that.
#[inline(never)]
pub fn end_hold(exec: &mut Exec, command: &'static Entry, taken: u64) {
    // What came before it had its locks was no hold: evicting, waiting for them.
    let began = exec.clock.began() - taken;
    let from = began.max(exec.meter.hold_from()).max(exec.held.locked_at());
    let mut to = exec.clock.began();
    if exec.held.has_ready() {
        blocking::serve_waiters(exec);
        to = exec.clock.raw();
    }
    exec.meter.note_hold(&exec.held, &exec.hot, command, from, to);
    if exec.held.has_flushed() {
        free_flushed(exec, command);
    }
    if let Some(list) = exec.transaction.unwatched.take() {
        exec.release();
        transaction::unlist(*list, &mut exec.held);
    }
}

/// The keys are gone; others may have the partitions while memory is freed.
#[cold]
fn free_flushed(exec: &mut Exec, command: &'static Entry) {
    exec.release();
    if command.spec.flags.has(Flags::ALL_DBS) && !exec.node.mail.tasks().has(Tasks::LOADING) {
        (exec.node.hooks.forget_saved)(exec.node.store(), &mut exec.held);
    }
    let _working = holds::working(Work::LazyFree);
    exec.held.free_flushed();
}
