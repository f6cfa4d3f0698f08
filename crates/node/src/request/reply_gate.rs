//! Up to which place of the log replies may leave.
//!
//! ```text
//!   durable     what this node has synced                              if `appendfsync always`
//!   quorum      what `repl-ack-quorum` replicas have acknowledged      if that is not 0
//!   reached     the lower of those that are asked for; without one the end of all things
//! ```
//! `give_up`: the disk has been full for long. Until it has room again replies do not wait for it; those that
//! do are to be refused. So are those that wait for replicas when this node becomes one (`give_up_quorum`).
//!
//! A reply shows the last change of the partitions that its command held (`Exec::note_gate`), and leaves once
//! `reached` is there. So a reader never sees what a failure of this machine may take back.

use isotherm_log::LogOffset;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Mutex, PoisonError};

use crate::mail::Mail;
use crate::mail::message::WorkerMessage;

/// Condition that a reply may wait for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    Durable,
    Quorum,
}

pub const PARTS: usize = 2;

pub struct ReplyGate {
    reached: AtomicU64,
    parts: Mutex<[PartState; PARTS]>,
    has_quorum: AtomicBool,
    /// Times that replies which waited were given up, by `Part`.
    given_up: [AtomicU64; PARTS],
    /// True for each worker that has replies which wait.
    waits: Box<[AtomicBool]>,
    /// Number of connections of each worker with replies that wait.
    held: Box<[AtomicU64]>,
}

#[derive(Clone, Copy, Default)]
struct PartState {
    reached: LogOffset,
    is_asked_for: bool,
    /// Not for now.
    is_given_up: bool,
}

impl ReplyGate {
    pub fn new(workers: usize) -> ReplyGate {
        ReplyGate {
            reached: AtomicU64::new(u64::MAX),
            parts: Mutex::default(),
            has_quorum: AtomicBool::new(false),
            given_up: Default::default(),
            waits: (0..workers).map(|_| AtomicBool::new(false)).collect(),
            held: (0..workers).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    #[inline]
    pub fn reached(&self) -> LogOffset {
        LogOffset(self.reached.load(SeqCst))
    }

    /// Returns whether replies wait for replicas.
    pub fn has_quorum(&self) -> bool {
        self.has_quorum.load(Relaxed)
    }

    /// Returns the offset that enough replicas have acknowledged.
    pub fn quorum(&self) -> LogOffset {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)[Part::Quorum as usize].reached
    }

    /// Returns the place up to which this node has synced, if replies wait for that.
    pub fn durable(&self) -> LogOffset {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)[Part::Durable as usize].reached
    }

    /// The disk is full, and will be for long: replies do not wait for it until `go_on`. Workers refuse those
    /// that do.
    pub fn give_up(&self, mail: &Mail) {
        // Before they could leave: a thread that sees that the gate is open sees this.
        self.given_up[Part::Durable as usize].fetch_add(1, SeqCst);
        self.change(mail, |parts| parts[Part::Durable as usize].is_given_up = true);
    }

    pub fn go_on(&self, mail: &Mail) {
        self.change(mail, |parts| parts[Part::Durable as usize].is_given_up = false);
    }

    /// Lets replies that wait for replicas be refused, as none will acknowledge to this node any more. Called
    /// before `ask_for` opens the gate.
    pub fn give_up_quorum(&self) {
        self.given_up[Part::Quorum as usize].fetch_add(1, SeqCst);
    }

    /// Counts the calls of `give_up` and of `give_up_quorum`, by `Part`. Asked after `reached`.
    pub fn given_up(&self) -> [u64; PARTS] {
        [Part::Durable, Part::Quorum].map(|part| self.given_up[part as usize].load(SeqCst))
    }

    /// The part has come further. Workers that wait are woken.
    pub fn set(&self, mail: &Mail, part: Part, reached: LogOffset) {
        self.change(mail, |parts| parts[part as usize].reached = reached);
    }

    /// Sets which parts replies wait for from now on, by `Part`.
    pub fn ask_for(&self, mail: &Mail, asked: [bool; PARTS]) {
        self.has_quorum.store(asked[Part::Quorum as usize], Relaxed);
        self.change(mail, |parts| {
            parts.iter_mut().zip(asked).for_each(|(part, is_asked_for)| part.is_asked_for = is_asked_for);
        });
    }

    fn change(&self, mail: &Mail, change: impl FnOnce(&mut [PartState; PARTS])) {
        let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut parts);
        let asked = parts.iter().filter(|part| part.is_asked_for && !part.is_given_up);
        let asked = asked.map(|part| part.reached.0);
        self.reached.store(asked.min().unwrap_or(u64::MAX), SeqCst);
        drop(parts);
        for (worker, waits) in self.waits.iter().enumerate() {
            if waits.load(SeqCst) && waits.swap(false, SeqCst) {
                mail.post(worker, WorkerMessage::Durable);
            }
        }
    }

    /// Notes that `connections` connections of a worker have replies that wait.
    pub fn note_held(&self, worker: u16, connections: usize) {
        self.held[usize::from(worker)].store(connections as u64, Relaxed);
    }

    pub fn held(&self) -> u64 {
        self.held.iter().map(|connections| connections.load(Relaxed)).sum()
    }

    /// A worker has replies that wait for `until`, and asks to be woken when that may be over. Whether they
    /// need not wait.
    pub fn is_reached_after_asking(&self, worker: u16, until: LogOffset) -> bool {
        self.waits[usize::from(worker)].store(true, SeqCst);
        self.reached() >= until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_part_decides() {
        let mail =
            Mail::new(Box::new([]), isotherm_reactor::Events::new().unwrap().mailbox().unwrap().sender());
        let gate = ReplyGate::new(0);
        assert_eq!(gate.reached(), LogOffset(u64::MAX));
        gate.set(&mail, Part::Durable, LogOffset(5));
        assert_eq!(gate.reached(), LogOffset(u64::MAX), "none asks for it");
        gate.ask_for(&mail, [true, true]);
        assert_eq!(gate.reached(), LogOffset(0));
        gate.set(&mail, Part::Quorum, LogOffset(9));
        assert_eq!(gate.reached(), LogOffset(5));
        gate.set(&mail, Part::Durable, LogOffset(20));
        assert_eq!((gate.reached(), gate.quorum()), (LogOffset(9), LogOffset(9)));
        gate.ask_for(&mail, [true, false]);
        assert_eq!(gate.reached(), LogOffset(20));
        gate.give_up(&mail);
        assert_eq!((gate.reached(), gate.durable()), (LogOffset(u64::MAX), LogOffset(20)));
        gate.go_on(&mail);
        assert_eq!(gate.reached(), LogOffset(20));
    }
}
