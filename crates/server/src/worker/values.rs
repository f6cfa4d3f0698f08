//! Values on disk that commands of this worker wait for, read by a ring of its own, or by threads of the tier.
//!
//! ```text
//!   a turn of the event loop:   commands that meet cold values leave tickets (`Exec::wanted`)
//!   at its end:                 what has ended is handed over, and its connections go on
//!                               what is wanted is begun: one call of the system for all of it, or one lock of the queue of the threads
//!   an event of the ring, or a message of a thread:      ends the wait for events, nothing else
//!   each 50 ms meanwhile:       those for which nothing comes for swap-read-timeout get their error
//! ```
//! There is a ring since the first value was wanted, if there can be one; without it the threads read where it would (`tier::errands`). All
//! that does not go well is theirs in any case, job by job (`tier::reads`).

use isotherm_commands::call::ColdKey;
use isotherm_disk::{Ended, File, Refusal, Ring};
use isotherm_keyspace::Want;
use isotherm_reactor::{Events, Token};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Due, Inner, Worker};
use crate::mail::message::{Came, WorkerMessage};
use crate::observe::latency::monitor::Event as LatencyEvent;
use crate::process::log;
use crate::process::time::unix_now;
use crate::request::next::Ticket;
use crate::tier::Tier;
use crate::tier::errands::Errands;
use crate::tier::fetches::{End, Fetches, Port};
use crate::tier::health::Event;
use crate::tier::rings::TierSource;
use crate::tier::target::{Fetched, Target, slot_of};

/// How much later than its time a wait may end.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// Who reads.
enum Way {
    Ring(Box<Ring>),
    Threads(Errands),
}

/// What a worker reads.
#[derive(Default)]
pub struct Values {
    /// Since something was wanted.
    way: Option<Way>,
    fetches: Fetches<Ticket, Target, Fetched>,
    /// Some have ended that are not handed over.
    has_more: bool,
    /// There is a moment at which it is seen whether some wait too long.
    looks: bool,
    /// As others were shown.
    waiting: u64,
    /// Bytes that are read, as the tier knows them.
    bytes: u64,
}

impl Values {
    #[inline]
    pub fn is_busy(&self) -> bool {
        match &self.way {
            Some(Way::Ring(ring)) => ring.under_way() > 0,
            Some(Way::Threads(errands)) => errands.under_way() > 0,
            None => false,
        }
    }

    /// Whether there is something to do without waiting for an event.
    #[inline]
    pub fn has_work(&self) -> bool {
        self.has_more
    }

    /// Before something is read for this worker.
    fn open(&mut self, events: &Events, worker: u16, by_ring: bool) {
        if self.way.is_some() {
            return;
        }
        if !by_ring {
            self.way = Some(Way::Threads(Errands::new(worker)));
            return;
        }
        let opened = Ring::new().and_then(|ring| {
            events.watch_readable(ring.event(), Token::RING)?;
            Ok(ring)
        });
        match opened {
            Ok(ring) => self.way = Some(Way::Ring(Box::new(ring))),
            Err(why) => self.refuse(&why, worker),
        }
    }

    /// Threads read from now on.
    fn refuse(&mut self, why: &io::Error, worker: u16) {
        log::warning(format!("swap: a worker cannot read by io_uring any more ({why}): threads read for it"));
        self.way = Some(Way::Threads(Errands::new(worker)));
        self.has_more = false;
        self.fetches.give_up_all();
    }

    /// Hands over what was begun; a ring takes what has ended.
    fn submit(&mut self, tier: &Tier<WorkerMessage>, worker: u16) {
        match &mut self.way {
            Some(Way::Ring(ring)) => match ring.submit() {
                Ok(has_more) => self.has_more = has_more,
                Err(why) => self.refuse(&why, worker),
            },
            Some(Way::Threads(errands)) => errands.submit(&tier.reads),
            None => {}
        }
    }
}

impl Port for Way {
    fn begin(&mut self, file: &Arc<dyn File>, at: u64, len: usize) -> Result<usize, Refusal> {
        match self {
            Way::Ring(ring) => ring.begin(file, at, len),
            Way::Threads(errands) => errands.begin(file, at, len),
        }
    }

    fn is_full(&self) -> bool {
        match self {
            Way::Ring(ring) => ring.is_full(),
            Way::Threads(errands) => errands.is_full(),
        }
    }

    fn next_ended(&mut self) -> Option<Ended<'_>> {
        match self {
            Way::Ring(ring) => ring.next_ended(),
            Way::Threads(errands) => errands.next_ended(),
        }
    }
}

impl Worker {
    /// At the end of a turn.
    #[inline]
    pub(super) fn turn_values(&mut self) {
        let values = &self.inner.values;
        if values.is_busy() || values.fetches.holds_back() || !self.inner.dispatcher.exec.wanted.is_empty() {
            self.read_values();
        }
    }

    #[cold]
    fn read_values(&mut self) {
        let Some(tier) = self.inner.node.tier() else { return };
        let worker = self.inner.number;
        self.inner.dispatcher.begin_part();
        self.inner.values.open(&self.events, worker, tier.rings.is_on());
        self.inner.values.submit(tier, worker);
        self.inner.collect_values(tier);
        self.inner.begin_values(tier);
        self.inner.values.submit(tier, worker);
        let values = &mut self.inner.values;
        tier.rings.note_waiting(&mut values.waiting, values.fetches.waiting() as u64);
        tier.rings.note_bytes(&mut values.bytes, values.fetches.bytes());
    }
}

impl Inner {
    fn collect_values(&mut self, tier: &Tier<WorkerMessage>) {
        let values = &mut self.values;
        if let Some(way) = &mut values.way {
            let (node, held) = (self.node, &mut self.dispatcher.exec.held);
            let note_time = |took| node.note_latency(LatencyEvent::SwapRead, took);
            let keyspace = &node.keyspace;
            values.fetches.collect(way, &mut TierSource { keyspace, tier, held, note_time: &note_time });
        }
        self.hand_over_values(tier);
    }

    fn begin_values(&mut self, tier: &Tier<WorkerMessage>) {
        let values = &mut self.values;
        let wanted = std::mem::take(&mut self.dispatcher.exec.wanted);
        if !wanted.is_empty() {
            let now = Instant::now();
            wanted.into_iter().for_each(|(ticket, wanted)| values.fetches.add(ticket, wanted, now));
            if !std::mem::replace(&mut values.looks, true) {
                self.timers.add(now + LOOK_INTERVAL, Due::ValuesLook);
            }
        }
        if let Some(way) = &mut values.way {
            let (node, held) = (self.node, &mut self.dispatcher.exec.held);
            let note_time = |took| node.note_latency(LatencyEvent::SwapRead, took);
            let keyspace = &node.keyspace;
            values.fetches.advance(way, &mut TierSource { keyspace, tier, held, note_time: &note_time });
        }
        self.hand_over_values(tier);
    }

    /// Jobs that have ended: their connections go on, or threads read for them.
    fn hand_over_values(&mut self, tier: &Tier<WorkerMessage>) {
        for (ticket, end) in self.values.fetches.take_ended() {
            match end {
                End::All(values) => {
                    self.hand_over(tier, ticket, values);
                    self.fetched(ticket, Came::All);
                }
                End::Late(values) => {
                    self.hand_over(tier, ticket, values);
                    tier.reads.note_timeouts(1);
                    tier.note(Event::ReadTimedOut);
                    self.fetched(ticket, Came::Late);
                }
                End::Elsewhere(keys, values, since) => {
                    self.hand_over(tier, ticket, values);
                    tier.reads.add_since(keys, self.number, WorkerMessage::fetched(ticket, Came::All), since);
                }
            }
        }
    }

    /// Gives values to their keys, and records to the walk that waits for them with this ticket.
    fn hand_over(&mut self, tier: &Tier<WorkerMessage>, ticket: Ticket, values: Vec<(ColdKey, Fetched)>) {
        let (now, exec) = (unix_now(), &mut self.dispatcher.exec);
        for (cold, fetched) in values {
            if cold.bundle.is_some() {
                exec.add_records(ticket, fetched.record().map(|record| (fetched.from, record)));
                continue;
            }
            let keyspace = &self.node.keyspace;
            exec.held.acquire(Want::One(keyspace.partition_of(slot_of(keyspace, &cold))));
            tier.hand_over(&mut exec.held, &cold, &fetched, now);
            exec.held.release();
        }
    }

    /// Ends fetches of which nothing comes with their error.
    pub(super) fn look_at_values(&mut self) {
        self.values.looks = false;
        let Some(tier) = self.node.tier() else { return };
        let before =
            self.node.config.swap_read_timeout().and_then(|timeout| Instant::now().checked_sub(timeout));
        if let Some(before) = before {
            self.values.fetches.expire(before);
        }
        self.hand_over_values(tier);
        if !self.values.fetches.is_empty() {
            self.values.looks = true;
            self.timers.add(Instant::now() + LOOK_INTERVAL, Due::ValuesLook);
        }
    }
}
