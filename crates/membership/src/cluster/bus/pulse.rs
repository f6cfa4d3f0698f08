//! Test whether the workers serve clients: each is sent a beat once a second and answers it. A worker that
//! does not answer for as long as `cluster-stall-timeout` says stands still, or waits for a lock whose holder
//! does. Then the bus falls silent: a node that serves no client must not look alive, or no other node takes
//! its place.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use isotherm_node::Node;
use isotherm_node::mail::beat::Beat;
use isotherm_node::mail::message::WorkerMessage;

const BEAT_MS: u64 = 1000;

pub struct Pulse {
    /// Moment of the beat that each worker was sent last, and the beat that it has answered.
    workers: Vec<(u64, Arc<AtomicU64>)>,
}

impl Pulse {
    pub fn new(workers: usize) -> Pulse {
        Pulse { workers: (0..workers).map(|_| (0, Arc::default())).collect() }
    }

    /// Sends what is due; and whether all workers have answered in time.
    pub fn look(&mut self, node: &'static Node, now_ms: u64, stall_ms: u64) -> bool {
        let mut is_alive = true;
        for (worker, (sent_ms, answered)) in self.workers.iter_mut().enumerate() {
            // The next one is sent when the last one was answered, so none pile up.
            if answered.load(Relaxed) != *sent_ms {
                is_alive &= now_ms.saturating_sub(*sent_ms) < stall_ms;
            } else if now_ms >= *sent_ms + BEAT_MS {
                *sent_ms = now_ms;
                node.mail.post(worker, WorkerMessage::Beat(Beat::new(now_ms, answered)));
            }
        }
        is_alive
    }
}
