//! Values that a worker reads by itself: it hands reads to the system and does other work, until its event
//! loop says that some have ended.
//!
//! ```text
//!   add(ticket, keys)      [job: key key key]  [job: key]      each takes its turn, key by key
//!                                |
//!   advance()              look where the key is -> port.begin -> [room 3 = (ticket, key)]     as many as the port takes
//!                                |
//!   collect()              port.next_ended -> verified -> the job; its last one ends it: `End::All`
//!   expire(before)         jobs of which nothing has come since: what had come is kept
//! ```
//! Bytes that jobs have read or are reading are bounded (`Source::bytes_max`). Beyond that each may have one
//! value, so that short ones make progress. The oldest of the long ones continues, if it has the one turn for
//! that of all workers (`Turnstile`), and the others are **held back** until bytes are free. Those do not
//! expire: the job in front of them ends, or expires.
//!
//! After the keys of its command a job may have some that later requests will need. It ends when they have
//! come too, or have failed; but a read of them that fails or hangs does not matter to the command.
//!
//! Only what goes well is done here. A key that meets anything else - an error, a record that does not
//! verify, a value that is too long, a disk that is to fail - is for threads (`Port::begin_again`), which
//! look where it is, try again, and judge. Its job waits on.
//!
//! All values of a command are handed over at one moment, so that the first one is not dropped while the last
//! one is read. Invariant: a job ends once, by `collect`, `advance` or `expire`.

use isotherm_commands::call::{ColdKey, ColdKeys};
use isotherm_disk::{File, Refusal};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// Bytes of records that a worker reads for commands which are not ready to run,
const BYTES_MAX: usize = 8 << 20;
/// and where memory is small: a part of its limit, of all workers together.
const BYTES_MIN: usize = 256 << 10;
const BYTES_DIVISOR: u64 = 16;
/// Longest wait of a job for its turn at threads, after `swap-read-timeout`: reads of others that move are no
/// proof that its turn comes.
const TURN_MAX: Duration = Duration::from_secs(30);
/// Bytes that each job may read in any case.
const OWN_BYTES_MAX: usize = 64 << 10;

/// Returns what each of some workers may read where memory has this limit.
pub fn bytes_max(limit_bytes: u64, workers: u64) -> usize {
    match limit_bytes {
        0 => BYTES_MAX,
        limit => (limit / BYTES_DIVISOR / workers.max(1)).clamp(BYTES_MIN as u64, BYTES_MAX as u64) as usize,
    }
}

/// Entrance for the one job of all workers that may read without a bound.
#[derive(Default)]
pub struct Turnstile(Arc<AtomicBool>);

impl Turnstile {
    pub fn enter(&self) -> Option<Turn> {
        (!self.0.swap(true, Ordering::AcqRel)).then(|| Turn(Arc::clone(&self.0)))
    }
}

/// Right to read without a bound, until it is dropped.
pub struct Turn(Arc<AtomicBool>);

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// Result of a read.
pub enum Read<'r, V> {
    Bytes(io::Result<&'r [u8]>),
    /// Final result for a key. `None`: it needs no reading any more.
    Value(Option<V>),
}

/// Sign that a job is there, for the threads that read its keys.
#[derive(Default)]
pub struct Sign {
    /// Keys of the job that threads read at present.
    pub reading: AtomicUsize,
}

impl Sign {
    /// Returns whether keys of the job are queued, and no thread reads one of them.
    fn waits_its_turn(sign: &Arc<Sign>) -> bool {
        Arc::weak_count(sign) > 0 && sign.reading.load(Relaxed) == 0
    }
}

/// Receiver of reads.
pub trait Port<V> {
    /// Returns whether threads read, in turns: reads wait while those of others are under way. Then jobs have
    /// signs.
    fn has_turns(&self) -> bool;
    /// Returns the number under which the read ends.
    fn begin(&mut self, file: &Arc<dyn File>, at: u64, len: usize, job: Weak<Sign>)
    -> Result<usize, Refusal>;
    /// Hands a key to threads, which try it again, and judge, as long as its job is there. Returns the number
    /// under which that ends.
    fn begin_again(&mut self, cold: &ColdKey, job: Weak<Sign>) -> usize;
    /// Returns whether it takes no more but what is tried again.
    fn is_full(&self) -> bool;
    fn next_ended(&mut self) -> Option<(usize, Read<'_, V>)>;
}

/// Whereabouts of a key. `P` is a place on disk, `V` the form in which a value is returned.
pub enum Look<P, V> {
    /// The key needs no reading any more.
    Here,
    /// Value that is in memory, but not where it is to be.
    Lent(V),
    Away {
        place: P,
        file: Arc<dyn File>,
        at: u64,
        len: usize,
    },
    /// Not to be read at once: a record of about `len` bytes, for threads.
    Elsewhere {
        len: usize,
    },
}

/// Access to keys, places and records.
pub trait Source<P, V> {
    fn look(&mut self, cold: &ColdKey) -> Look<P, V>;
    /// Returns what `bytes`, read since then, hold of a key. `None`: the key has to be tried again.
    fn verify(&self, cold: &ColdKey, place: P, bytes: io::Result<&[u8]>, since: Instant) -> Option<V>;
    /// Notes the end of a read that is not waited for any more.
    fn came_late(&self, is_read: bool);
    /// Bytes of records that jobs may read together.
    fn bytes_max(&self) -> usize;
    /// The turn of a job that may read without a bound, if no other has it.
    fn turn(&self) -> Option<Turn>;
}

/// Result of a job.
pub enum End<V> {
    All(Vec<(ColdKey, V)>),
    /// Ended since nothing more has come of it for too long, with what had.
    Late(Vec<(ColdKey, V)>),
}

/// Keys that a job is to read.
pub struct Wanted {
    keys: Vec<ColdKey>,
    /// Number of the keys that the waiting command needs; they come first.
    own: usize,
}

impl Wanted {
    pub fn of(keys: ColdKeys) -> Wanted {
        Wanted { own: keys.keys.len(), keys: keys.keys }
    }

    #[cfg(debug_assertions)]
    pub fn into_keys(self) -> ColdKeys {
        ColdKeys { keys: self.keys }
    }

    /// Returns the number of keys that are read for later requests.
    pub fn ahead(&self) -> usize {
        self.keys.len() - self.own
    }

    pub fn add_ahead(&mut self, cold: ColdKey) {
        let is_same = |other: &ColdKey| (other.db, &other.key, other.node) == (cold.db, &cold.key, cold.node);
        if !self.keys.iter().any(is_same) {
            self.keys.push(cold);
        }
    }
}

struct Job<V> {
    wanted: Wanted,
    /// Moment at which something of it came last, or it was added, or its turn has come.
    moved: Instant,
    /// Bytes of records that were read for it, or are being read.
    bytes: usize,
    /// The first key that was not looked at.
    next: usize,
    /// Number of keys whose end is awaited; `own_left` is the part of them that the job's command needs.
    left: usize,
    own_left: usize,
    values: Vec<(usize, V)>,
    /// Sign for threads that it is there, since one tries a key of it again.
    sign: Option<Arc<Sign>>,
}

/// Key of a job that is being read.
struct UnderWay<T, P> {
    ticket: T,
    key: usize,
    /// Place of what is read. `None`: a thread looks for it.
    place: Option<P>,
    since: Instant,
}

/// `T` names a job; later ones are greater.
pub struct Fetches<T, P, V> {
    jobs: BTreeMap<T, Job<V>>,
    /// Jobs with keys that were not looked at. Some of these jobs are over.
    queue: VecDeque<T>,
    /// Jobs with keys that were not looked at, and the length of the next record: it is their turn when there
    /// is room for that.
    held_back: BTreeMap<T, usize>,
    /// The one that may read without a bound.
    exceeding: Option<(T, Turn)>,
    /// Bytes of all jobs.
    bytes: usize,
    /// True if the port has turns.
    has_turns: bool,
    /// Keys that are being read, by the number that the port gave them.
    under_way: Vec<Option<UnderWay<T, P>>>,
    ended: Vec<(T, End<V>)>,
}

impl<T, P, V> Default for Fetches<T, P, V> {
    fn default() -> Fetches<T, P, V> {
        Fetches {
            jobs: BTreeMap::new(),
            queue: VecDeque::new(),
            held_back: BTreeMap::new(),
            exceeding: None,
            bytes: 0,
            has_turns: false,
            under_way: Vec::new(),
            ended: Vec::new(),
        }
    }
}

impl<T: Copy + Ord, P: Copy, V> Fetches<T, P, V> {
    pub fn add(&mut self, ticket: T, wanted: Wanted, since: Instant) {
        let (left, own_left) = (wanted.keys.len(), wanted.own);
        assert!(own_left > 0, "a job has a key");
        let values = Vec::with_capacity(left.min(64));
        let job = Job { wanted, moved: since, bytes: 0, next: 0, left, own_left, values, sign: None };
        assert!(self.jobs.insert(ticket, job).is_none(), "tickets are given once");
        self.queue.push_back(ticket);
    }

    pub fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    /// Jobs with keys whose reads were not begun.
    pub fn waiting(&self) -> usize {
        self.queue.len() + self.held_back.len()
    }

    /// Bytes of records that jobs have read or are reading.
    pub fn bytes(&self) -> u64 {
        self.bytes as u64
    }

    #[inline]
    pub fn holds_back(&self) -> bool {
        !self.held_back.is_empty()
    }

    /// Begins what the port takes.
    pub fn advance(&mut self, port: &mut impl Port<V>, source: &mut impl Source<P, V>) {
        let now = Instant::now();
        self.let_in(source, now);
        self.has_turns = port.has_turns();
        while !port.is_full()
            && let Some(ticket) = self.queue.pop_front()
        {
            let Some(job) = self.jobs.get_mut(&ticket) else { continue };
            let key = job.next;
            job.next += 1;
            let sign = match self.has_turns {
                true => Arc::downgrade(job.sign.get_or_insert_default()),
                false => Weak::new(),
            };
            match source.look(&job.wanted.keys[key]) {
                Look::Here => self.end_key(ticket, key, None, now),
                Look::Lent(value) => self.end_key(ticket, key, Some(value), now),
                // Read ahead: no thread reads that.
                Look::Elsewhere { .. } if key >= job.wanted.own => self.end_key(ticket, key, None, now),
                Look::Away { len, .. } | Look::Elsewhere { len } if !self.admits(ticket, len, source) => {
                    self.hold_back(ticket, len);
                    continue;
                }
                Look::Away { place, file, at, len } => match port.begin(&file, at, len, sign) {
                    Ok(number) => {
                        self.note_bytes(ticket, len);
                        let (place, since) = (Some(place), Instant::now());
                        self.note_under_way(number, UnderWay { ticket, key, place, since });
                    }
                    Err(Refusal::NotHere | Refusal::Full) => {
                        self.note_bytes(ticket, len);
                        self.begin_again(port, ticket, key, now);
                    }
                },
                Look::Elsewhere { len } => {
                    self.note_bytes(ticket, len);
                    self.begin_again(port, ticket, key, now);
                }
            }
            // Others have their turn before its next key.
            if self.jobs.get(&ticket).is_some_and(|job| job.next < job.wanted.keys.len()) {
                self.queue.push_back(ticket);
            }
        }
    }

    // ---- how much may be read ----

    /// Returns whether a job may read a record of `len` bytes now.
    fn admits(&mut self, ticket: T, len: usize, source: &impl Source<P, V>) -> bool {
        let own = self.jobs.get(&ticket).map_or(0, |job| job.bytes);
        let is_room = self.bytes + len <= BYTES_MIN || self.bytes + len <= source.bytes_max();
        if is_room || own == 0 || own + len <= OWN_BYTES_MAX {
            return true;
        }
        if self.exceeding.is_none()
            && self.jobs.first_key_value().is_some_and(|(oldest, _)| *oldest == ticket)
        {
            self.exceeding = source.turn().map(|turn| (ticket, turn));
        }
        self.exceeding.as_ref().is_some_and(|(exceeding, _)| *exceeding == ticket)
    }

    fn hold_back(&mut self, ticket: T, len: usize) {
        if let Some(job) = self.jobs.get_mut(&ticket) {
            job.next -= 1;
            self.held_back.insert(ticket, len);
        }
    }

    /// Lets jobs continue that were held back, the oldest first, as far as there is room for their next
    /// record.
    fn let_in(&mut self, source: &impl Source<P, V>, now: Instant) {
        while let Some((ticket, len)) = self.held_back.first_key_value().map(|(ticket, len)| (*ticket, *len))
        {
            if !self.admits(ticket, len, source) {
                return;
            }
            self.held_back.remove(&ticket);
            if let Some(job) = self.jobs.get_mut(&ticket) {
                job.moved = now;
                self.queue.push_back(ticket);
            }
        }
    }

    fn note_bytes(&mut self, ticket: T, len: usize) {
        if let Some(job) = self.jobs.get_mut(&ticket) {
            job.bytes += len;
            self.bytes += len;
        }
    }

    fn remove(&mut self, ticket: T) -> Option<Job<V>> {
        let job = self.jobs.remove(&ticket)?;
        self.bytes -= job.bytes;
        self.held_back.remove(&ticket);
        self.exceeding.take_if(|(exceeding, _)| *exceeding == ticket);
        Some(job)
    }

    fn note_under_way(&mut self, number: usize, under_way: UnderWay<T, P>) {
        if self.under_way.len() <= number {
            self.under_way.resize_with(number + 1, || None);
        }
        assert!(self.under_way[number].replace(under_way).is_none(), "its number is free");
    }

    /// Takes what has ended.
    pub fn collect(&mut self, port: &mut impl Port<V>, source: &mut impl Source<P, V>) {
        let now = Instant::now();
        while let Some((number, read)) = port.next_ended() {
            let UnderWay { ticket, key, place, since } = self.under_way[number].take().expect("it was begun");
            let job = self.jobs.get(&ticket);
            let value = match (read, place) {
                (Read::Value(value), _) => value,
                (Read::Bytes(bytes), place) => {
                    let Some((job, place)) = job.zip(place) else {
                        source.came_late(bytes.is_ok());
                        continue;
                    };
                    match source.verify(&job.wanted.keys[key], place, bytes, since) {
                        None => {
                            self.begin_again(port, ticket, key, now);
                            continue;
                        }
                        value => value,
                    }
                }
            };
            self.end_key(ticket, key, value, now);
        }
    }

    /// Has a key tried again that its command waits for. A key that was only a guess ends without its value.
    fn begin_again(&mut self, port: &mut impl Port<V>, ticket: T, key: usize, now: Instant) {
        let Some(job) = self.jobs.get_mut(&ticket) else { return };
        if key >= job.wanted.own {
            return self.end_key(ticket, key, None, now);
        }
        let sign = Arc::downgrade(job.sign.get_or_insert_default());
        let number = port.begin_again(&job.wanted.keys[key], sign);
        self.note_under_way(number, UnderWay { ticket, key, place: None, since: now });
    }

    /// A key of a job has its value, or needs none.
    fn end_key(&mut self, ticket: T, key: usize, value: Option<V>, now: Instant) {
        let Some(job) = self.jobs.get_mut(&ticket) else { return };
        job.values.extend(value.map(|value| (key, value)));
        job.moved = now;
        job.left -= 1;
        job.own_left -= usize::from(key < job.wanted.own);
        if job.left == 0 {
            self.complete(ticket);
        }
    }

    /// Ends jobs that have got nothing since `before`; well, if their command has all that it needs. With
    /// `threads_move`, threads have read for others since then: jobs that wait for their turn there stay.
    /// Returns whether there were any.
    pub fn expire(&mut self, before: Instant, threads_move: bool) -> bool {
        let is_late = |(ticket, job): &(&T, &Job<V>)| {
            let has_more = self.has_turns && job.next < job.wanted.keys.len();
            let is_served = has_more || job.sign.as_ref().is_some_and(Sign::waits_its_turn);
            let waited = before.saturating_duration_since(job.moved);
            let is_served = threads_move && is_served && waited < TURN_MAX;
            job.moved < before && !is_served && !self.held_back.contains_key(*ticket)
        };
        let late: Vec<T> = self.jobs.iter().filter(is_late).map(|(ticket, _)| *ticket).collect();
        for ticket in &late {
            match self.jobs[ticket].own_left {
                0 => self.complete(*ticket),
                _ => {
                    let Some(Job { wanted, values, .. }) = self.remove(*ticket) else { continue };
                    self.ended.push((*ticket, End::Late(in_order(wanted.keys, values))));
                }
            }
        }
        if !late.is_empty() {
            self.queue.retain(|ticket| self.jobs.contains_key(ticket));
        }
        !late.is_empty()
    }

    /// Has reads tried again that do not end, as what had their numbers is gone.
    pub fn restart(&mut self, port: &mut impl Port<V>, numbers: Range<usize>) {
        let now = Instant::now();
        for number in numbers {
            if let Some(UnderWay { ticket, key, .. }) = self.under_way.get_mut(number).and_then(Option::take)
            {
                self.begin_again(port, ticket, key, now);
            }
        }
    }

    pub fn take_ended(&mut self) -> Vec<(T, End<V>)> {
        std::mem::take(&mut self.ended)
    }

    fn complete(&mut self, ticket: T) {
        let Some(Job { wanted, values, .. }) = self.remove(ticket) else { return };
        self.ended.push((ticket, End::All(in_order(wanted.keys, values))));
    }
}

/// Returns keys with their values, in the order of the keys, without the keys that have none.
fn in_order<V>(keys: Vec<ColdKey>, mut values: Vec<(usize, V)>) -> Vec<(ColdKey, V)> {
    values.sort_unstable_by_key(|(key, _)| *key);
    let mut values = values.into_iter().peekable();
    let with_value = |(at, key)| values.next_if(|(of, _)| *of == at).map(|(_, value)| (key, value));
    keys.into_iter().enumerate().filter_map(with_value).collect()
}

#[cfg(test)]
mod tests;
