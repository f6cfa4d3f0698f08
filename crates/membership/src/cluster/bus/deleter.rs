//! The thread that deletes the keys of slots which this node has lost.
//!
//! ```text
//!   hands  --Delete-->  step | step | ...  --Deleted-->  bus    a slot is not gained again before
//!          --Look---->  behind all deletions  --Looked-->       does the node have keys?
//! ```
//! A step waits for records on disk; keys that a script has leased wait for its end, while other slots go on.
//! Two things wait for this thread: a slot that is gained again, since its old keys would be served, and a
//! request that depends on whether the node has keys. The latter is answered once leased keys are all that is
//! left: the node has some, and a script may run for ever.
//!
//! Under the lock under which it deletes, a step looks whether the slot is another node's and this node a
//! primary: what a replica has is its primary's, and is deleted by what that one sends.

use isotherm_cluster::Slot;
use isotherm_keyspace::Want;
use std::collections::VecDeque;
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};

use super::requests;
use crate::cluster::changes;
use isotherm_engine::request::execute::Exec;
use isotherm_engine::request::leases::GATE_REST;
use isotherm_engine::request::slots::deleting::{self, Rest, Step};
use isotherm_node::Node;
use isotherm_node::cluster::requests::{BusMessage, BusSender, Looked};
use isotherm_runtime::time::unix_now;

pub enum Job {
    Delete(Vec<Slot>),
    /// Request that depends on whether this node has keys.
    Look(Looked),
}

/// Slots whose end is said to the bus together, as most that are lost have no keys.
const DONE_MAX: usize = 256;

struct Deleter {
    node: &'static Node,
    bus: BusSender,
    exec: Exec,
    slots: VecDeque<Slot>,
    looks: Vec<Looked>,
    /// Slots whose keys are deleted, which the bus has not heard of.
    done: Vec<Slot>,
    /// The disk did not answer: what else is on it is deleted unread, for this round.
    is_disk_silent: bool,
}

pub fn start(node: &'static Node, bus: BusSender) -> io::Result<Sender<Job>> {
    let (sender, jobs) = channel();
    std::thread::Builder::new().name("cluster-deleter".into()).spawn(move || {
        let deleter = Deleter {
            node,
            bus,
            exec: Exec::of_control(node),
            slots: VecDeque::new(),
            looks: Vec::new(),
            done: Vec::new(),
            is_disk_silent: false,
        };
        deleter.run(&jobs);
    })?;
    Ok(sender)
}

impl Deleter {
    fn run(mut self, jobs: &Receiver<Job>) {
        while let Ok(job) = jobs.recv() {
            self.take(job);
            while !self.slots.is_empty() {
                jobs.try_iter().for_each(|job| self.take(job));
                let has_advanced = self.go_round();
                self.report();
                // The rest is leased. Scripts end; nothing says so here.
                if !has_advanced {
                    self.answer_looks();
                    match jobs.recv_timeout(GATE_REST) {
                        Ok(job) => self.take(job),
                        Err(RecvTimeoutError::Timeout) => {}
                        Err(RecvTimeoutError::Disconnected) => return,
                    }
                }
            }
            self.answer_looks();
        }
    }

    fn answer_looks(&mut self) {
        for looked in std::mem::take(&mut self.looks) {
            self.bus.post(BusMessage::Looked(requests::look(looked, self.node)));
        }
    }

    fn take(&mut self, job: Job) {
        match job {
            Job::Delete(slots) => self.slots.extend(slots),
            Job::Look(looked) => self.looks.push(looked),
        }
    }

    /// Deletes the keys of each slot as far as they are not leased. Returns whether any slot is done.
    fn go_round(&mut self) -> bool {
        self.is_disk_silent = false;
        let mut has_advanced = false;
        for _ in 0..self.slots.len() {
            let Some(slot) = self.slots.pop_front() else { break };
            let is_done = self.delete(slot);
            self.exec.end_walk();
            match is_done {
                true => self.done.push(slot),
                false => self.slots.push_back(slot),
            }
            has_advanced |= is_done;
            if self.done.len() >= DONE_MAX {
                self.report();
            }
        }
        has_advanced
    }

    fn report(&mut self) {
        if !self.done.is_empty() {
            self.bus.post(BusMessage::Deleted(std::mem::take(&mut self.done)));
        }
    }

    /// Deletes keys of a slot in steps, with other commands between them. Returns whether no more of them are
    /// to be deleted; the rest is leased otherwise.
    fn delete(&mut self, slot: Slot) -> bool {
        self.exec.refresh();
        loop {
            match self.step(slot) {
                None | Some(Rest::Nothing) => return true,
                Some(Rest::Leased) => return false,
                Some(Rest::Some) => {}
            }
            // A slot that takes longer holds up none that is done.
            self.report();
            match self.is_disk_silent {
                true => deleting::give_up_records(&mut self.exec.held.walk),
                false => {
                    self.is_disk_silent = !deleting::read_records(self.node, &mut self.exec.held.walk);
                }
            }
        }
    }

    /// Deletes some keys under one lock. `None`: they are not to be deleted.
    fn step(&mut self, slot: Slot) -> Option<Rest> {
        let (node, exec) = (self.node, &mut self.exec);
        exec.held.acquire(Want::One(node.keyspace.partition_of(slot)));
        if !changes::is_anothers(node, slot) {
            exec.release();
            return None;
        }
        let databases = node.config.databases();
        let Step { deleted, rest } =
            deleting::delete_some(&mut exec.held, &mut exec.pump, slot, databases, unix_now(), false);
        exec.held.exempt(deleted as u64);
        exec.note_gate();
        exec.release();
        Some(rest)
    }
}
