//! Scripts that take long: they run a little at a time, between the commands of other clients of their
//! worker.
//!
//! ```text
//!   EVAL ---> 1 ms ---> suspended: keys leased, partitions unlocked, its connection parked
//!   turn of the worker:   resume --> 100 us --> suspended --> other clients
//!                         resume --> needs a leased key --> waits until scripts have ended
//!                         resume --> ended: its partitions locked once more: the log, its waiters, no more leases; the reply
//! ```
//! No client sees what it has done before its end, for commands that need one of its keys wait; and what it
//! has recorded becomes one frame of the log then, under the locks of all partitions that it has used.

use isotherm_reactor::signals;
use isotherm_resp::{ArgsBuf, Reply};
use isotherm_script::{Ended, Progress};
use std::time::Duration;

use super::super::{AdminCall, AdminHandler};
use super::host::ScriptHost;
use super::run;
use super::within_exec;
use isotherm_config::{Id, id};
use isotherm_engine::request::blocking;
use isotherm_engine::request::execute::Exec;
use isotherm_engine::request::metering::{Part, Timed};
use isotherm_engine::scripting::callee::Callee;
use isotherm_engine::scripting::run::{Awaits, RunState, ScriptTime, SuspendedRun};
use isotherm_node::effects::change_log::SuspendedFrame;
use isotherm_node::effects::pubsub::Audience;
use isotherm_node::request::next::WaitReason;
use isotherm_node::scripting::registry::FunctionCall;
use isotherm_node::session::Session;
use isotherm_runtime::time::instant;

/// Run that `run` has begun.
pub struct Begun {
    pub callee: Callee,
    pub state: RunState,
    pub key_count: usize,
    pub frame: Option<SuspendedFrame>,
    pub time: ScriptTime,
    pub began: u64,
    pub ticks: u64,
}

/// The run is listed among those of its worker.
#[cold]
pub fn add(call: &mut AdminCall<'_>, begun: Begun) {
    let Begun { callee, state, key_count, frame, time, began, ticks } = begun;
    let ticket = call.exec.next_ticket();
    let mut run = SuspendedRun {
        ticket,
        callee,
        state,
        session: Session::of_script(call.session),
        command: call.command,
        args: ArgsBuf::from(call.args),
        key_count,
        frame,
        now: call.now,
        time,
        began,
        ticks,
        is_slow: false,
        reply: Reply::new(call.session.proto),
        transaction: None,
    };
    let (now, ran) = (instant(), Duration::from_nanos(call.exec.clock.nanos(ticks)));
    let began = now.checked_sub(ran).unwrap_or(now);
    run.state.mark.show(FunctionCall { words: ArgsBuf::from(call.args), began });
    let parked = match wait_for_user(&mut run) {
        true => WaitReason::Debugger(ticket),
        false => WaitReason::Script(ticket),
    };
    let runs = &mut call.exec.runs;
    runs.add(Box::new(run));
    runs.parked = Some(parked);
    // The token goes with it.
    runs.has_token = false;
}

/// Returns whether the run is debugged. A run that was suspended because its debugger has no command waits
/// for its user.
fn wait_for_user(run: &mut SuspendedRun) -> bool {
    let debugger = run.callee.debugger();
    if debugger.as_ref().is_some_and(|debugger| debugger.is_waiting()) {
        run.state.awaits = Awaits::User;
    }
    debugger.is_some()
}

/// Resumes the run until its share of the turn is over. Returns it if it has ended; its reply is written.
pub fn step(
    exec: &mut Exec,
    audience: &mut Audience,
    handlers: &[Option<AdminHandler>],
    mut run: Box<SuspendedRun>,
) -> Option<Box<SuspendedRun>> {
    exec.refresh();
    exec.clock.begin();
    let from = exec.clock.began();
    note_if_slow(exec, &mut run, from);
    run.state.pause_at = from + exec.hot.script_slice_ticks;
    // The process is to end, and does not wait for a user.
    if (signals::has_arrived() || exec.node.runs.is_ending())
        && let Some(debugger) = run.callee.debugger()
    {
        debugger.leave();
    }
    let counted = exec.errors_counted();
    let had_time = std::mem::replace(&mut exec.script_time, run.time);
    let is_logged = run.frame.is_some();
    if let Some(frame) = run.frame.take() {
        exec.pump.log.resume_transaction(frame);
    }
    let progress = resume(exec, audience, handlers, &mut run);
    run.time = std::mem::replace(&mut exec.script_time, had_time);
    exec.set_errors_counted(counted);
    run.callee.note_bytes(&exec.node.scripts);
    let ended = match progress {
        Progress::Ended(ended) => Some(ended),
        Progress::Suspended => {
            run.frame = is_logged.then(|| exec.pump.log.suspend_transaction());
            None
        }
    };
    run.ticks += exec.clock.raw().saturating_sub(from);
    let Some(ended) = ended.filter(|_| finish(exec, &mut run, is_logged)) else {
        wait_for_user(&mut run);
        let said = run.callee.debugger().map(|debugger| debugger.take_output());
        exec.runs.said = said.filter(|said| !said.is_empty()).map(|said| (run.ticket, said));
        exec.runs.add(run);
        return None;
    };
    exec.error_is_counted = ended == Ended::Failed { is_counted: true };
    count(exec, &run);
    Some(run)
}

fn resume(
    exec: &mut Exec,
    audience: &mut Audience,
    handlers: &[Option<AdminHandler>],
    run: &mut SuspendedRun,
) -> Progress {
    let SuspendedRun { callee, state, session, command, args, key_count, now, reply, .. } = run;
    let args = args.args();
    let mut host = ScriptHost {
        keys: args.from(3).up_to(*key_count),
        call: &mut AdminCall {
            node: exec.node,
            args,
            command,
            now: *now,
            conditions: exec.conditions(*now, session.no_touch, session.authority()),
            exec,
            session,
            // Of the script's commands each has its own.
            reply: &mut Reply::default(),
            audience,
            facts: None,
            handlers,
        },
        state,
    };
    callee.resume(&mut host, reply)
}

/// Clients have waited for it long enough: they get an error from now on.
fn note_if_slow(exec: &Exec, run: &mut SuspendedRun, ticks: u64) {
    const THRESHOLD: Id = id("busy-reply-threshold");
    if run.is_slow {
        return;
    }
    let threshold_ms = exec.node.config.number(THRESHOLD);
    let taken_ms = exec.clock.nanos(ticks.saturating_sub(run.began)) / 1_000_000;
    if threshold_ms > 0 && taken_ms >= threshold_ms as u64 {
        run.is_slow = true;
        isotherm_runtime::log::warning(format!(
            "Slow script detected: still in execution after {taken_ms} milliseconds. You can try killing the script using the \
             {} KILL command. Script name is: {}.",
            if run.state.mark.is_function() { "FUNCTION" } else { "SCRIPT" },
            String::from_utf8_lossy(&run.args.args()[1])
        ));
        exec.node.runs.note_slow(run.state.mark.is_function(), &exec.node.mail);
    }
}

/// Ends the run: its changes become visible, all of them at once. Returns false if the run was abandoned
/// because the process ends. The end of the process has held these locks before it closes the log, so the log
/// must not grow any more. A client that got its reply now would rely on changes that no file and no replica
/// has.
fn finish(exec: &mut Exec, run: &mut SuspendedRun, is_logged: bool) -> bool {
    if run.transaction.is_some() {
        return within_exec::finish(exec, run);
    }
    let (node, state) = (exec.node, &mut run.state);
    match state.needs_all {
        true => _ = exec.held.acquire_beside_leases(),
        false => {
            exec.locks.clear();
            state.places.iter().for_each(|place| exec.locks.add(place.partition));
            exec.acquire();
        }
    }
    if node.runs.are_abandoned() {
        exec.release();
        run.frame = is_logged.then(|| exec.pump.log.suspend_transaction());
        return false;
    }
    exec.pump.log.set_muted(false);
    if is_logged {
        exec.pump.log.end_transaction();
        exec.note_gate();
        run.session.written = exec.pump.log.take_written();
    }
    exec.held.resume_ready(std::mem::take(&mut state.ready));
    exec.held.free_leases(state.mark.id);
    if exec.held.has_ready() {
        blocking::serve_waiters(exec);
    }
    exec.release();
    node.runs.end_leases(&node.keyspace, &node.mail);
    if state.has_token {
        node.runs.give_token_back(&node.mail);
    }
    state.mark.end();
    if run.is_slow {
        node.runs.forget_slow(state.mark.is_function());
    }
    true
}

fn count(exec: &mut Exec, run: &SuspendedRun) {
    exec.count_call(run.command, &run.reply, 0);
    let timed = Timed {
        client: &run.session.shared,
        db: run.session.db,
        command: run.command,
        args: run.args.args(),
        ticks: run.ticks,
        reply_bytes: run.reply.len(),
        part: if run.transaction.is_some() { Part::Queued } else { Part::Whole },
    };
    exec.meter.note_slots_met(run.state.met);
    exec.meter.count_time(&exec.clock, &exec.hot, &mut exec.prng, &timed);
}

/// Returns the parts of a run that has ended to its worker.
pub fn take_apart(exec: &mut Exec, run: SuspendedRun) -> Reply {
    let SuspendedRun { callee, state, reply, .. } = run;
    run::put_back(exec, callee);
    match &exec.runs.mark {
        None => exec.runs.mark = Some(state.mark),
        Some(_) => exec.node.runs.drop_mark(&state.mark),
    }
    reply
}
