//! `/healthz`: are the workers alive? Each is sent a beat, as the cluster bus does it
//! (`cluster::bus::pulse`), and answers it between two commands. The probe is answered when all have, or when
//! `PATIENCE` is over.
//!
//! A worker that has not answered the last beat is sent no other, so none pile up where it stands still. The
//! answer to an old beat counts: the worker was still to give it when the probe came.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use isotherm_node::Node;
use isotherm_node::mail::beat::Beat;
use isotherm_node::mail::message::WorkerMessage;

/// A worker that takes longer serves no client. A prober mostly gives up after a second (kubelet's default).
const PATIENCE: Duration = Duration::from_millis(800);
/// Intervals at which answers are looked for: soon at first, as most come in microseconds, then rarely.
const LOOK_MIN: Duration = Duration::from_millis(1);
const LOOK_MAX: Duration = Duration::from_millis(16);

/// A worker with the number of the beat that it was sent last, and of the one that it has answered.
#[derive(Default)]
struct Asked {
    sent: u64,
    answered: Arc<AtomicU64>,
}

impl Asked {
    fn has_answered(&self) -> bool {
        self.answered.load(Relaxed) == self.sent
    }
}

pub struct Health {
    node: &'static Node,
    workers: Vec<Asked>,
    /// Begin of the wait for answers.
    since: Option<Instant>,
}

impl Health {
    pub fn new(node: &'static Node) -> Health {
        let workers = (0..node.worker_count()).map(|_| Asked::default()).collect();
        Health { node, workers, since: None }
    }

    /// Asks the workers. A probe that comes while they are asked hears what the first one hears.
    pub fn ask(&mut self) {
        if self.since.is_some() {
            return;
        }
        self.since = Some(Instant::now());
        for (worker, asked) in self.workers.iter_mut().enumerate().filter(|(_, asked)| asked.has_answered()) {
            asked.sent += 1;
            let beat = Beat::new(asked.sent, &asked.answered);
            self.node.mail.post(worker, WorkerMessage::Beat(beat));
        }
    }

    /// Moment of the next look.
    pub fn due(&self) -> Option<Instant> {
        let since = self.since?;
        let now = Instant::now();
        Some((now + ((now - since) / 4).clamp(LOOK_MIN, LOOK_MAX)).min(since + PATIENCE))
    }

    /// Returns how they are, once that is known: well, or which of them are not.
    pub fn look(&mut self) -> Option<Result<(), String>> {
        let since = self.since?;
        let silent: Vec<String> = (0..self.workers.len())
            .filter(|worker| !self.workers[*worker].has_answered())
            .map(|worker| worker.to_string())
            .collect();
        if !silent.is_empty() && since.elapsed() < PATIENCE {
            return None;
        }
        self.since = None;
        Some(match silent.is_empty() {
            true => Ok(()),
            false => {
                Err(format!("no answer for {} ms from workers {}\n", PATIENCE.as_millis(), silent.join(", ")))
            }
        })
    }
}
