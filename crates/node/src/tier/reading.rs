//! Reading of a record, and what its end says of the disk: what is tried again, how often, and how long
//! callers wait.
//!
//! ```text
//!   read              once
//!   read_again        at a place that stays what it is: up to three times
//!   read_found        wherever a key is by now: up to three times at one place; one that was moved begins anew
//!   call, read_held   by a thread that can be left behind (`reads`): until its caller gives up, or so long as any command waits
//! ```
//! Workers read by themselves what goes well (`fetches`); the rest is tried again here.

use isotherm_commands::call::ColdKey;
use isotherm_keyspace::{ColdRef, Held, Keyspace, Want};
use isotherm_tier::Place;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use super::files::{Files, ReadError};
use super::health::{Event, State};
use super::reads::{GivesUp, Waits};
use super::state::Tier;
use super::target::{Fetched, Target, slot_of};

/// Number of reads at one place of a record that cannot be read there.
pub const READS_MAX: u32 = 3;

impl Tier {
    fn note_read<R>(&self, result: &Result<R, ReadError>) {
        match result {
            Ok(_) if self.suspects_reads() => self.note(Event::ReadDone),
            // It was moved meanwhile.
            Ok(_) | Err(ReadError::NoFile | ReadError::NoAnswer) => {}
            Err(ReadError::Io(_)) => self.note_read_error(),
            Err(ReadError::Damaged(_) | ReadError::OtherKey) => {
                self.counters.damaged.fetch_add(1, Relaxed);
            }
        }
    }

    pub fn note_read_error(&self) {
        self.counters.read_errors.fetch_add(1, Relaxed);
        self.note(Event::ReadFailed);
        self.probe_if_due();
    }

    /// Returns the number of keys that wait for a reader.
    pub fn reads_waiting(&self) -> u64 {
        self.reads.waiting() as u64 + self.rings.waiting()
    }

    /// The value of a key at a place.
    pub fn read(&self, reference: ColdRef, key: &[u8]) -> Result<Vec<u8>, ReadError> {
        self.read_with(|files, place| files.read(place, key), reference)
    }

    fn read_with(
        &self,
        read: impl Fn(&Files, Place) -> Result<Vec<u8>, ReadError>,
        reference: ColdRef,
    ) -> Result<Vec<u8>, ReadError> {
        let from = Instant::now();
        let value = read(&self.files, Place::from_raw(reference.raw()));
        self.note_read_end(from, &value);
        value
    }

    /// Notes the end of a read that began at `from`.
    pub fn note_read_end(&self, from: Instant, value: &Result<Vec<u8>, ReadError>) {
        self.note_read(value);
        self.count_read(from, value.as_ref().map_or(0, Vec::len));
    }

    /// Notes the end of a read that has brought several values.
    pub fn note_read_bytes(&self, from: Instant, bytes: usize) {
        self.note_read(&Ok(()));
        self.count_read(from, bytes);
    }

    fn count_read(&self, from: Instant, bytes: usize) {
        self.counters.reads.fetch_add(1, Relaxed);
        let us = from.elapsed().as_micros() as u64;
        self.counters.read_us.fetch_add(us, Relaxed);
        self.counters.read_times.add(us);
        self.counters.read_bytes.fetch_add(bytes as u64, Relaxed);
    }

    /// Reads what a key refers to. `None`: it is no longer away, or was not.
    pub fn read_key(&self, keyspace: &Keyspace, cold: &ColdKey) -> Option<Fetched> {
        let (target, read) = self.read_found(keyspace, cold, false)?;
        let error = match read {
            Ok(bytes) => return Some(target.fetched(Some(bytes))),
            Err(error) => error,
        };
        self.counters.unreadable.fetch_add(1, Relaxed);
        let is_lost = match &cold.bundle {
            Some(bundle) => {
                // Others can be read.
                let is_alone = error.is_damage() || error.is_of_system() && self.probe();
                is_alone && self.damaged_records.note(keyspace, bundle, &error)
            }
            None => {
                self.complain(&cold.key, &error);
                false
            }
        };
        Some(Fetched { is_lost, ..target.fetched(None) })
    }

    /// Reads what a key refers to, as often as it refers to something else meanwhile; where it cannot be read
    /// at one place it is tried some times. Holds its partition only to look. Lent values count as read,
    /// unless it is the record that matters.
    pub fn read_found(
        &self,
        keyspace: &Keyspace,
        cold: &ColdKey,
        from_disk: bool,
    ) -> Option<(Target, Result<Vec<u8>, ReadError>)> {
        let slot = slot_of(keyspace, cold);
        let look = || {
            let mut held = Held::new(keyspace);
            held.acquire(Want::One(keyspace.partition_of(slot)));
            Target::find(&mut held, cold)
        };
        let mut failed: Option<(ColdRef, u32, ReadError)> = None;
        loop {
            let (target, lent) = look()?;
            if let Some(lent) = lent.filter(|_| !from_disk) {
                return Some((target, Ok(lent.into_vec())));
            }
            // One that was moved is no failure of the disk.
            let (tries, error) = match failed.take().filter(|(from, ..)| *from == target.from) {
                Some((_, tries, error)) => (tries, Some(error)),
                None => (0, None),
            };
            if let Some(error) = error.filter(|_| tries == READS_MAX) {
                return Some((target, Err(error)));
            }
            match self.read(target.from, target.name(&cold.key)) {
                Ok(bytes) => return Some((target, Ok(bytes))),
                Err(error) => failed = Some((target.from, tries + 1, error)),
            }
        }
    }

    fn complain(&self, key: &[u8], error: &ReadError) {
        let Some(withheld) = self.read_warnings.note(self.now_ms()) else { return };
        let before = if withheld > 0 { format!(", and {withheld} before it") } else { String::new() };
        isotherm_runtime::log::warning(format!(
            "A value on disk cannot be read ({error}){before}; its key has {} bytes and stays: it can be overwritten or deleted",
            key.len()
        ));
    }

    /// Says how many values could not be read since the last line about one, a second later.
    pub fn end_complaints(&self) {
        if let Some(withheld) = self.read_warnings.take_due(self.now_ms()) {
            isotherm_runtime::log::warning(format!("{withheld} more values on disk could not be read"));
        }
    }

    /// The value at a place whose partition is held: for a command that cannot be interrupted any more. Its
    /// thread waits for a reader, not for the disk. `None`: it did not come in time.
    pub(super) fn read_held(&self, reference: ColdRef, key: &[u8]) -> Option<Result<Vec<u8>, ReadError>> {
        if self.state() == State::Failed && !self.reads.is_alone() {
            return None;
        }
        let key: Box<[u8]> = key.into();
        let at_most_ms = self.read_timeout_ms.load(Relaxed);
        let gives_up = |waited: Duration| at_most_ms > 0 && waited.as_millis() as u64 >= at_most_ms;
        let read = move |tier: &Tier| tier.read_again(reference, &key);
        let value = self.reads.call(self, Waits::Holding, read, &gives_up);
        if value.is_none() {
            self.note_read_timeout();
        }
        value
    }

    /// Notes that a caller has given up a read.
    pub fn note_read_timeout(&self) {
        self.reads.note_timeout();
        self.note(Event::ReadTimedOut);
    }

    /// Probes the disk. Returns whether anything can be read.
    pub fn probe(&self) -> bool {
        let works = self.files.probe();
        self.is_probing.store(false, Relaxed);
        self.note(Event::Probed { works });
        works
    }

    /// Calls the disk on a thread that can be left behind, until `gives_up`; without that on this one, which
    /// holds locks that those may wait for.
    pub fn call<T: Send + 'static>(
        &self,
        call: impl FnOnce(&Tier) -> T + Send + 'static,
        gives_up: Option<&GivesUp<'_>>,
    ) -> Result<T, ReadError> {
        match gives_up {
            Some(gives_up) => self.reads.call(self, Waits::Free, call, gives_up).ok_or(ReadError::NoAnswer),
            None => Ok(call(self)),
        }
    }

    /// Reads a value for a snapshot, which takes values in the order of slots, as they were written.
    pub fn read_in_order(&self, reference: ColdRef, key: &[u8]) -> Result<Vec<u8>, ReadError> {
        let value = self.read_with(|files, place| files.read_in_order(place, key), reference);
        value.or_else(|_| self.read_again(reference, key))
    }

    /// Reads at a place that stays what it is, and repeats a read that fails.
    pub fn read_again(&self, reference: ColdRef, key: &[u8]) -> Result<Vec<u8>, ReadError> {
        let mut last = self.read(reference, key);
        for _ in 1..READS_MAX {
            if last.is_ok() {
                break;
            }
            last = self.read(reference, key);
        }
        last
    }
}
