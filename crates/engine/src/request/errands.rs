//! The threads of errands (`session::errand`), each for one.

use isotherm_keyspace::Waiter;
use isotherm_resp::Reply;
use isotherm_resp::reply::Protocol;
use std::sync::Arc;

use super::blocking::answer_in_time;
use isotherm_node::Node;
use isotherm_node::session::errand::{Answerer, Errand};
use isotherm_runtime::log;
use isotherm_runtime::routines::{self, Routine};

pub const TOO_MANY: &str = "ERR Too many commands wait for a disk that does not answer";

struct Thread {
    node: &'static Node,
    /// Absent after its end.
    errand: Option<Errand>,
    waiter: Arc<Waiter>,
    proto: Protocol,
    name: &'static str,
}

/// Starts the errand of a client that is parked.
pub fn start(node: &'static Node, errand: Errand, waiter: &Arc<Waiter>, proto: Protocol, name: &'static str) {
    if errand.is_counted && !node.errands.admit() {
        return refuse(waiter, proto, TOO_MANY);
    }
    let is_counted = errand.is_counted;
    let thread = Thread { node, errand: Some(errand), waiter: Arc::clone(waiter), proto, name };
    if let Err((error, _)) = routines::try_start("errand", thread) {
        if is_counted {
            node.errands.end();
        }
        refuse(waiter, proto, &format!("ERR Can't start a thread: {error}"));
    }
}

fn refuse(waiter: &Arc<Waiter>, proto: Protocol, text: &str) {
    let mut reply = Reply::new(proto);
    reply.error(text);
    answer_in_time(waiter, reply);
}

/// Returns the end of an errand in words, for the log.
pub fn end_of(reply: &Reply) -> String {
    match reply.out.first() {
        Some(b'-') => String::from_utf8_lossy(&reply.out).trim_end().to_string(),
        _ => "done".to_string(),
    }
}

/// Logs the end of an errand that its client no longer waits for.
pub fn log_late(name: &str, end: &str) {
    let name = name.replace('|', " ").to_ascii_uppercase();
    log::notice(format!("{name} has ended behind its client's wait: {end}"));
}

impl Routine for Thread {
    fn step(&mut self) -> bool {
        let Some(Errand { work, is_counted, .. }) = self.errand.take() else { return false };
        let mut reply = Reply::new(self.proto);
        let answerer = work(&self.waiter, &mut reply);
        if is_counted {
            self.node.errands.end();
        }
        if answerer == Answerer::Errand {
            let end = end_of(&reply);
            if !answer_in_time(&self.waiter, reply) {
                log_late(self.name, &end);
            }
        }
        false
    }
}
