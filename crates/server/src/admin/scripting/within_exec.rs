//! Transactions that stand in the middle of one of their scripts.
//!
//! ```text
//!   EXEC   the gate is held | SET .. | EVAL .. takes 10 ms: every key is leased, the connection parked
//!                                        |   turns of the worker, as of any script: SCRIPT KILL is heard
//!          the gate is held | .. INCR <--'   it has ended: all is locked, the leases are freed
//! ```
//! No other script begins meanwhile (`RunRegistry::is_exclusive`), so there are no other leases when the
//! queue continues: it never has to wait for the gate. Its frame of the log is kept with the script's, and
//! its connection stays until it is over, for the rest of the queue may change the session.

use isotherm_commands::Outcome;
use isotherm_log::LogOffset;
use isotherm_resp::Reply;

use super::super::{AdminCall, AdminHandler};
use super::suspended;
use isotherm_engine::request::execute::Exec;
use isotherm_engine::request::follow_up;
use isotherm_engine::request::metering::{Part, Timed};
use isotherm_engine::request::transaction;
use isotherm_engine::scripting::run::{SuspendedExec, SuspendedRun};
use isotherm_node::effects::pubsub::Audience;
use isotherm_node::request::next::WaitReason;
use isotherm_node::session::Session;

/// Ends the script: everything is held as it was before, and the frame of the transaction is open. False
/// if the process ends without it.
pub fn finish(exec: &mut Exec, run: &mut SuspendedRun) -> bool {
    let (node, state) = (exec.node, &mut run.state);
    exec.held.acquire_beside_leases();
    if node.runs.are_abandoned() {
        exec.release();
        let is_logging = run.transaction.as_ref().is_some_and(|transaction| transaction.is_logging);
        run.frame = is_logging.then(|| exec.pump.log.suspend_transaction());
        return false;
    }
    exec.pump.log.set_muted(false);
    exec.held.resume_ready(std::mem::take(&mut state.ready));
    exec.held.free_leases(state.mark.id);
    node.runs.set_exclusive(false);
    node.runs.end_leases(&node.keyspace, &node.mail);
    state.mark.end();
    if run.is_slow {
        node.runs.forget_slow(state.mark.is_function());
    }
    true
}

/// Continues the queue after the script that has ended (`finish`). Returns the reply to EXEC, or why its
/// connection is parked again.
pub fn go_on(
    exec: &mut Exec,
    audience: &mut Audience,
    handlers: &[Option<AdminHandler>],
    session: &mut Session,
    mut run: SuspendedRun,
) -> Result<Reply, WaitReason> {
    let now = run.now;
    let rest = *run.transaction.take().expect("it is a transaction's");
    let mut reply = suspended::take_apart(exec, run);
    let SuspendedExec { command, args, multi, next, replied_bytes, writing, asking, .. } = rest;
    if session.close_after_reply {
        // It has killed itself before the script.
        reply.truncate(replied_bytes);
    }
    let args = args.args();
    exec.transaction.writing = writing;
    exec.clock.begin();
    exec.meter.begin_hold(&exec.clock);
    let began = exec.clock.began();
    let conditions = exec.conditions(now, session.no_touch, session.authority());
    let outcome = transaction::run_queue(
        &mut AdminCall {
            node: exec.node,
            args,
            command,
            now,
            conditions,
            exec,
            session,
            reply: &mut reply,
            audience,
            // Facts about the system are out of date by now.
            facts: None,
            handlers,
        },
        multi,
        next,
        0,
    );
    exec.transaction.writing = None;
    exec.refresh();
    session.note_gates();
    let written = exec.pump.log.take_written();
    if written != LogOffset::default() {
        session.written = written;
    }
    if let Outcome::Later = outcome {
        exec.release();
        return Err(exec.runs.parked.take().expect("a script was suspended"));
    }
    session.in_exec = false;
    if session.asking == asking && session.multi.is_none() {
        session.asking = 0;
        session.note_gates();
    }
    // An error reply to one of its commands is no error of its own.
    exec.count_call(command, &Reply::default(), 0);
    let ticks = exec.clock.lap_since(began);
    let (client, db, reply_bytes) = (&session.shared, session.db, reply.len());
    let timed = Timed { client, db, command, args, ticks, reply_bytes, part: Part::Whole };
    exec.meter.count_time(&exec.clock, &exec.hot, &mut exec.prng, &timed);
    follow_up::observe(exec, session, command, args);
    exec.end_walk();
    follow_up::end_hold(exec, command, ticks);
    exec.release();
    Ok(reply)
}
