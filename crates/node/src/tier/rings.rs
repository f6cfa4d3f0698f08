//! Part of the tier that workers need for reads of their own: where a key is, and whether the bytes that were
//! read are its value (`fetches`).

use isotherm_commands::call::ColdKey;
use isotherm_commands::spec::Need;
use isotherm_keyspace::{Held, Keyspace, Want};
use isotherm_tier::{Place, record_bytes};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use super::fetches::{Look, Source, Turn};
use super::files::Files;
use super::health::Event;
use super::state::Tier;
use super::target::{Fetched, Target, slot_of};

/// State of the rings by which workers read, if they are on.
#[derive(Default)]
pub struct Rings {
    is_on: AtomicBool,
    waiting: AtomicU64,
    /// Bytes of records that workers have read, or are reading, for commands that wait.
    bytes: AtomicU64,
    /// Limit of these for each worker.
    bytes_max: AtomicUsize,
}

impl Rings {
    /// Before workers run.
    pub fn set_on(&self, is_on: bool) {
        self.is_on.store(is_on, Relaxed);
    }

    pub fn is_on(&self) -> bool {
        self.is_on.load(Relaxed)
    }

    /// Returns the name that INFO shows.
    pub fn backend(&self) -> &'static str {
        if self.is_on() { "io_uring" } else { "threads" }
    }

    /// Notes how many jobs of a worker wait for a place in its ring. `before` is the number that was noted
    /// last.
    pub fn note_waiting(&self, before: &mut u64, now: u64) {
        if *before != now {
            self.waiting.fetch_add(now, Relaxed);
            self.waiting.fetch_sub(std::mem::replace(before, now), Relaxed);
        }
    }

    /// Notes how many bytes a worker holds for commands that wait; `before` is the number of the last note.
    pub fn note_bytes(&self, before: &mut u64, now: u64) {
        if *before != now {
            self.bytes.fetch_add(now, Relaxed);
            self.bytes.fetch_sub(std::mem::replace(before, now), Relaxed);
        }
    }

    /// Copies of what is on disk, of all workers.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    pub fn set_bytes_max(&self, bytes: usize) {
        self.bytes_max.store(bytes, Relaxed);
    }

    pub fn waiting(&self) -> u64 {
        self.waiting.load(Relaxed)
    }
}

/// Source for a worker, which holds nothing.
pub struct TierSource<'s> {
    pub keyspace: &'static Keyspace,
    pub tier: &'s Tier,
    pub held: &'s mut Held<'static>,
    /// Takes how long each read took.
    pub note_time: &'s dyn Fn(Duration),
}

impl Source<Target, Fetched> for TierSource<'_> {
    fn look(&mut self, cold: &ColdKey) -> Look<Target, Fetched> {
        self.held.acquire(Want::One(self.keyspace.partition_of(slot_of(self.keyspace, cold))));
        let found = Target::find(self.held, cold);
        self.held.release();
        let Some((target, lent)) = found else { return Look::Here };
        // Read ahead for a command that needs no value, but its key.
        if cold.need == Need::Nothing && !target.is_bundle() {
            return Look::Here;
        }
        if let Some(lent) = lent {
            return Look::Lent(target.fetched(Some(lent.into_vec())));
        }
        let place = Place::from_raw(target.from.raw());
        let key_bytes = target.name(&cold.key).len();
        match self.tier.files.locate(place, key_bytes) {
            Some((file, at, len)) => Look::Away { place: target, file, at, len },
            None => Look::Elsewhere { len: record_bytes(key_bytes, place.payload_bytes()) },
        }
    }

    fn verify(
        &self,
        cold: &ColdKey,
        target: Target,
        bytes: io::Result<&[u8]>,
        since: Instant,
    ) -> Option<Fetched> {
        // A record whose read fails is read again, by threads that note it.
        let value = Files::verify(Place::from_raw(target.from.raw()), target.name(&cold.key), bytes.ok()?);
        if value.is_ok() {
            self.tier.note_read_end(since, &value);
            (self.note_time)(since.elapsed());
        }
        Some(target.fetched(Some(value.ok()?)))
    }

    fn bytes_max(&self) -> usize {
        self.tier.rings.bytes_max.load(Relaxed)
    }

    fn turn(&self) -> Option<Turn> {
        self.tier.turnstile.enter()
    }

    fn came_late(&self, is_read: bool) {
        if is_read && self.tier.suspects_reads() {
            self.tier.note(Event::ReadDone);
        }
    }
}
