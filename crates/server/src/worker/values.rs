//! Values on disk that commands of this worker wait for, read by a ring of its own, or by threads of the
//! tier.
//!
//! ```text
//!   a turn of the event loop:   commands that meet cold values leave tickets (`Exec::wanted`)
//!   at its end:                 what has ended is handed over, and its connections go on
//!                               what is wanted is begun: one call of the system for all of it, and one lock of the queue of the threads
//!   an event of the ring, or a message of a thread:      ends the wait for events, nothing else
//!   each 50 ms meanwhile:       those for which nothing comes for swap-read-timeout get their error
//! ```
//! The ring is made when the first value is wanted, if the kernel has one; without it threads read in its
//! place (`tier::errands`). Threads try again each key whose read has failed, with a ring or without.

use isotherm_commands::call::{ColdKey, ColdKeys};
use isotherm_disk::{Ended, File, RING_READS_MAX, Refusal, Ring};
use isotherm_keyspace::Waiter;
use isotherm_reactor::{Events, Token};
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use super::{Due, Inner, Worker};
use isotherm_node::observe::latency::monitor::Event as LatencyEvent;
use isotherm_node::request::next::{Came, Ticket};
use isotherm_node::tier::Tier;
use isotherm_node::tier::errands::Errands;
use isotherm_node::tier::fetches::{End, Fetches, Port, Read, Sign, Wanted};
use isotherm_node::tier::rings::TierSource;
use isotherm_node::tier::target::{Fetched, Target};
use isotherm_runtime::log;

/// Time by which a wait may end later than it should.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// Readers of a worker: a ring if there is one, and threads.
struct Way {
    ring: Option<Box<Ring>>,
    /// Numbers of these follow the ring's.
    errands: Errands,
}

/// Reads of values from disk of one worker.
#[derive(Default)]
pub struct Values {
    /// Since something was wanted.
    way: Option<Way>,
    fetches: Fetches<Ticket, Target, Fetched>,
    /// Clients that wait for a key, for which something is fetched.
    waiters: BTreeMap<Ticket, Arc<Waiter>>,
    /// Some have ended that are not handed over.
    has_more: bool,
    /// True while a timer for the next look at waits that take too long is set.
    looks: bool,
    /// Number of waits that was last published for other threads.
    waiting: u64,
    /// Bytes that are read, as the tier knows them.
    bytes: u64,
}

impl Values {
    #[inline]
    pub fn is_busy(&self) -> bool {
        self.way.as_ref().is_some_and(|way| {
            way.ring.as_ref().is_some_and(|ring| ring.under_way() > 0) || way.errands.under_way() > 0
        })
    }

    /// Returns whether there is work to do without waiting for an event.
    #[inline]
    pub fn has_work(&self) -> bool {
        self.has_more
    }

    /// Before something is read for this worker.
    fn open(&mut self, events: &Events, worker: u16, by_ring: bool) {
        if self.way.is_some() {
            return;
        }
        let opened = by_ring.then(|| -> io::Result<Box<Ring>> {
            let ring = Ring::new()?;
            events.watch_readable(ring.event(), Token::RING)?;
            Ok(Box::new(ring))
        });
        let ring = opened.transpose().inspect_err(warn_of_threads).ok().flatten();
        self.way = Some(Way { ring, errands: Errands::new(worker) });
    }

    /// Hands over what was begun; a ring takes what has ended.
    fn submit(&mut self, tier: &Tier) {
        let Some(way) = &mut self.way else { return };
        if let Some(ring) = &mut way.ring {
            self.has_more = match ring.submit() {
                Ok(has_more) => has_more,
                Err(why) => {
                    warn_of_threads(&why);
                    way.ring = None;
                    self.fetches.restart(way, 0..RING_READS_MAX);
                    false
                }
            };
        }
        way.errands.submit(&tier.reads);
    }
}

/// Threads read from now on.
fn warn_of_threads(why: &io::Error) {
    log::warning(format!("swap: a worker cannot read by io_uring any more ({why}): threads read for it"));
}

impl Port<Fetched> for Way {
    fn has_turns(&self) -> bool {
        self.ring.is_none()
    }

    fn begin(
        &mut self,
        file: &Arc<dyn File>,
        at: u64,
        len: usize,
        job: Weak<Sign>,
    ) -> Result<usize, Refusal> {
        match &mut self.ring {
            Some(ring) => ring.begin(file, at, len),
            None => self.errands.begin(file, at, len, job).map(|room| RING_READS_MAX + room),
        }
    }

    fn begin_again(&mut self, cold: &ColdKey, job: Weak<Sign>) -> usize {
        RING_READS_MAX + self.errands.begin_again(cold, job)
    }

    fn is_full(&self) -> bool {
        self.ring.as_ref().map_or_else(|| self.errands.is_full(), |ring| ring.is_full())
    }

    fn next_ended(&mut self) -> Option<(usize, Read<'_, Fetched>)> {
        if let Some(Ended { room, bytes }) = self.ring.as_mut().and_then(|ring| ring.next_ended()) {
            return Some((room, Read::Bytes(bytes)));
        }
        let (room, read) = self.errands.next_ended()?;
        Some((RING_READS_MAX + room, read))
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
        self.inner.values.submit(tier);
        self.inner.collect_values(tier);
        self.inner.begin_values(tier);
        self.inner.values.submit(tier);
        let values = &mut self.inner.values;
        tier.rings.note_waiting(&mut values.waiting, values.fetches.waiting() as u64);
        tier.rings.note_bytes(&mut values.bytes, values.fetches.bytes());
    }
}

impl Inner {
    fn collect_values(&mut self, tier: &Tier) {
        let values = &mut self.values;
        if let Some(way) = &mut values.way {
            let (node, held) = (self.node, &mut self.dispatcher.exec.held);
            let note_time = |took| node.note_latency(LatencyEvent::SwapRead, took);
            let keyspace = &node.keyspace;
            values.fetches.collect(way, &mut TierSource { keyspace, tier, held, note_time: &note_time });
        }
        self.hand_over_values(tier);
    }

    fn begin_values(&mut self, tier: &Tier) {
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

    /// Hands over the values of jobs that have ended: their connections continue.
    fn hand_over_values(&mut self, tier: &Tier) {
        for (ticket, end) in self.values.fetches.take_ended() {
            let waiter = self.values.waiters.remove(&ticket);
            let (values, is_late) = match end {
                End::All(values) => (values, false),
                End::Late(values) => (values, true),
            };
            // A client that waits for a key has no connection that hears of what cannot be read: it meets the
            // note.
            let notes = waiter.is_some() && !is_late;
            let came = self.dispatcher.exec.hand_over(tier, ticket, values, notes);
            if is_late {
                tier.note_read_timeout();
            }
            match waiter {
                Some(waiter) => self.look_for(&waiter),
                None => self.fetched(ticket, if is_late { Came::Late } else { came }),
            }
        }
    }

    /// Fetches what a client needs that waits for a key, and looks again then.
    pub(super) fn fetch_for(&mut self, waiter: Arc<Waiter>, keys: ColdKeys) {
        let ticket = self.dispatcher.exec.next_ticket();
        self.dispatcher.exec.wanted.push((ticket, Wanted::of(keys)));
        self.values.waiters.insert(ticket, waiter);
    }

    /// Ends fetches for which nothing comes, with their error.
    pub(super) fn look_at_values(&mut self) {
        self.values.looks = false;
        let Some(tier) = self.node.tier() else { return };
        let before =
            self.node.config.swap_read_timeout().and_then(|timeout| Instant::now().checked_sub(timeout));
        if let Some(before) = before
            && self.values.fetches.expire(before, tier.reads.has_moved_since(before))
        {
            tier.reads.forget_unwanted();
        }
        self.hand_over_values(tier);
        if !self.values.fetches.is_empty() {
            self.values.looks = true;
            self.timers.add(Instant::now() + LOOK_INTERVAL, Due::ValuesLook);
        }
    }
}
