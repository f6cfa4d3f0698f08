//! Commands that run an errand (`session::errand`): their client waits, and their worker serves others.

use isotherm_commands::Outcome;
use isotherm_commands::wait::Wait;
use isotherm_keyspace::{Type, UnixMs, Waiter};
use isotherm_resp::Reply;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use super::AdminCall;
use isotherm_engine::request::errands;
use isotherm_node::session::errand::{Answerer, Errand, Work};

// COMPAT(server): SAVE, CONFIG SET and REWRITE, ACL SAVE and LOAD hold up no other client. On a disk that
// does not answer for 5 s they are answered by an error and go on; within EXEC CONFIG REWRITE, ACL SAVE and
// ACL LOAD after a second, and a CONFIG SET that reads files waits for them. SAVE is given up after 5 s
// without progress: 60 with `rdb-save-incremental-fsync no`, `swap-read-timeout` and 5 with values on disk.
// Valkey serves no client until the disk answers. Why: a disk that hangs costs those who need it.
/// Time that a client waits for its errand.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// Time that a worker waits for an errand within a transaction, which may hold keys.
const WITHIN_EXEC_MAX: Duration = Duration::from_secs(1);

const LATE: &str = "ERR The disk does not answer. The command goes on, and the log has its end";

/// Runs `work` on another thread than the worker: it writes the reply. The client waits, with [`PATIENCE`].
pub fn run(call: &mut AdminCall<'_>, work: impl FnOnce(&mut Reply) + Send + 'static) -> Outcome {
    match call.session.in_exec {
        true => within_exec(call, work),
        false => park(call, Some(PATIENCE), as_work(work), true),
    }
}

/// Runs work that takes as long as the data is large, and has patience of its own.
pub fn run_long(call: &mut AdminCall<'_>, work: impl FnOnce(&mut Reply) + Send + 'static) -> Outcome {
    park(call, None, as_work(work), true)
}

fn as_work(work: impl FnOnce(&mut Reply) + Send + 'static) -> Work {
    Box::new(move |_: &Arc<Waiter>, reply: &mut Reply| {
        work(reply);
        Answerer::Errand
    })
}

/// Parks the client until its errand is over, for `at_most`.
pub fn park(call: &mut AdminCall<'_>, at_most: Option<Duration>, work: Work, is_counted: bool) -> Outcome {
    call.session.errand = Some(Box::new(Errand { work, late: LATE, is_counted }));
    let deadline = at_most.map(|at_most| UnixMs(call.now.0 + at_most.as_millis() as i64));
    let wait = Wait { kind: Type::String, keys: 0..0, deadline, on_removal: false, instead: None };
    Outcome::Block(Box::new(wait))
}

/// Runs it in a transaction, as Sentinels send CONFIG REWRITE. The worker stands still until it is over.
fn within_exec(call: &mut AdminCall<'_>, work: impl FnOnce(&mut Reply) + Send + 'static) -> Outcome {
    let (sender, answer) = channel();
    let (node, proto, name) = (call.node, call.session.proto, call.command.name.clone());
    let run = move || {
        let mut reply = Reply::new(proto);
        work(&mut reply);
        node.errands.end();
        // Its worker may not wait any more.
        if let Err(late) = sender.send(reply) {
            errands::log_late(&name, &errands::end_of(&late.0));
        }
    };
    if !node.errands.admit() {
        call.reply.error(errands::TOO_MANY);
        return Outcome::Done;
    }
    if let Err(error) = std::thread::Builder::new().name("errand".into()).spawn(run) {
        node.errands.end();
        call.reply.error(format!("ERR Can't start a thread: {error}"));
        return Outcome::Done;
    }
    match answer.recv_timeout(WITHIN_EXEC_MAX) {
        Ok(reply) => call.reply.raw(&reply.out),
        Err(_) => call.reply.error(LATE),
    }
    Outcome::Done
}
