//! CLUSTER SETSLOT reaches the replicas of this node before it is obeyed here: one that takes the place of
//! its primary in the middle of a slot's move knows of the move.
//!
//! SETSLOT stands in the stream like any command, and is passed on once all replicas that are online have
//! acknowledged it. A thread of its own waits for them, one request after the other.

use isotherm_resp::ArgsBuf;
use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use super::requests::parse_timeout;
use isotherm_engine::request::execute::Exec;
use isotherm_keyspace::{Db, Want};
use isotherm_node::Node;
use isotherm_node::cluster::requests::{BusMessage, BusSender, Looked};

/// Between two looks at what was acknowledged.
const LOOK: Duration = Duration::from_millis(1);

pub fn start(node: &'static Node, bus: BusSender) -> io::Result<Sender<Looked>> {
    let (sender, requests) = channel();
    std::thread::Builder::new().name("cluster-setslot".into()).spawn(move || run(node, &bus, &requests))?;
    Ok(sender)
}

/// Returns whether a replica has to get the request first.
pub fn are_wanted(node: &Node) -> bool {
    node.replication.upstream().is_none()
        && node.replication.primary.replicas().iter().any(|replica| replica.seen.state().is_online())
}

fn run(node: &'static Node, bus: &BusSender, requests: &Receiver<Looked>) {
    const TOO_FEW: &[u8] = b"NOREPLICAS Not enough good replicas to write.";
    while let Ok(looked) = requests.recv() {
        let done = parse_timeout(looked.args.args()).and_then(|timeout| {
            append(node, &looked.args);
            await_acks(node, timeout).then_some(()).ok_or_else(|| TOO_FEW.to_vec())
        });
        bus.post(BusMessage::Replicated(looked, done));
    }
}

/// Puts it into the stream.
fn append(node: &'static Node, args: &ArgsBuf) {
    let mut exec = Exec::of_control(node);
    exec.held.acquire(Want::One(0));
    if exec.pump.is_logging() {
        exec.pump.log.request(Db(0), args.args());
    }
    exec.note_gate();
    exec.release();
}

/// Waits until all online replicas have the stream. Returns whether they have it in time; `None`: waits as
/// long as it takes.
fn await_acks(node: &'static Node, timeout: Option<Duration>) -> bool {
    let (end, begun) = (node.log.end(), Instant::now());
    loop {
        node.ask_for_acks();
        let replicas = node.replication.primary.replicas().clone();
        let is_behind = |replica: &&std::sync::Arc<_>| -> bool {
            let replica: &isotherm_node::replication::primary::ReplicaShared = replica;
            replica.seen.state().is_online() && replica.seen.acked() < end
        };
        if !replicas.iter().any(|replica| is_behind(&replica)) {
            return true;
        }
        if timeout.is_some_and(|timeout| begun.elapsed() > timeout) {
            return false;
        }
        std::thread::sleep(LOOK);
    }
}
