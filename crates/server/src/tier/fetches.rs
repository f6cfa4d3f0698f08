//! Values that a worker reads by itself: it hands reads to the system and goes on, until its event loop says that some have ended.
//!
//! ```text
//!   add(ticket, keys)      [job: key key key]  [job: key]      each takes its turn, key by key
//!                                |
//!   advance()              look where the key is -> port.begin -> [room 3 = (ticket, key)]     as many as the port takes
//!                                |
//!   collect()              port.next_ended -> verified -> the job; its last one ends it: `End::All`
//!   expire(before)         jobs of which nothing has come since: what had come is kept
//! ```
//! What jobs have read or are reading is bounded (`BYTES_MAX`). Beyond that each may have one value, so that
//! short ones get on; of long ones the oldest goes on, if it has the one turn for that of all workers
//! (`Turnstile`), and the others are **held back** until bytes are free. Those do not expire: who is in front
//! of them ends, or expires.
//!
//! Behind the keys of its command a job may have some that requests behind it will need. It ends when they have come too, or have failed; but
//! what fails of them, or hangs, does not matter to the command.
//!
//! Only what goes well is done here. A job that meets anything else - an error, a record that does not verify, a value that is too long, a
//! disk that is to fail - is for the threads that read (`End::Elsewhere`, `reads`), all that it lacks: these
//! look again, try again, and judge.
//!
//! All values of a command are handed over at one moment, so that the first one is not dropped while the last one is read.
//! Invariant: a job ends once, by `collect`, `advance` or `expire`.

use isotherm_commands::call::{ColdKey, ColdKeys};
use isotherm_disk::{Ended, File, Refusal, Ring};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// Bytes of records that a worker reads for commands which are not ready to run.
const BYTES_MAX: usize = 8 << 20;
/// Bytes that each job may read in any case.
const OWN_BYTES_MAX: usize = 64 << 10;

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

/// What reads are handed to.
pub trait Port {
    /// Returns the number under which the read ends.
    fn begin(&mut self, file: &Arc<dyn File>, at: u64, len: usize) -> Result<usize, Refusal>;
    fn is_full(&self) -> bool;
    fn next_ended(&mut self) -> Option<Ended<'_>>;
}

impl Port for Ring {
    fn begin(&mut self, file: &Arc<dyn File>, at: u64, len: usize) -> Result<usize, Refusal> {
        Ring::begin(self, file, at, len)
    }

    fn is_full(&self) -> bool {
        Ring::is_full(self)
    }

    fn next_ended(&mut self) -> Option<Ended<'_>> {
        Ring::next_ended(self)
    }
}

/// Where a key is. `P` is a place on disk, `V` what becomes of a value.
pub enum Look<P, V> {
    /// It needs no reading any more.
    Here,
    /// It is in memory, but not where it is to be.
    Lent(V),
    Away {
        place: P,
        file: Arc<dyn File>,
        at: u64,
        len: usize,
    },
    /// It is not for this one.
    Elsewhere,
}

/// What knows keys, places and records.
pub trait Source<P, V> {
    fn look(&mut self, cold: &ColdKey) -> Look<P, V>;
    /// What was read of a key since. `None`: it has to be read again.
    fn verify(&self, cold: &ColdKey, place: P, bytes: io::Result<&[u8]>, since: Instant) -> Option<V>;
    /// The same of one that is not waited for any more.
    fn came_late(&self, is_read: bool);
    /// The turn of a job that may read without a bound, if no other has it.
    fn turn(&self) -> Option<Turn>;
}

/// A key is not for this one.
struct NotHere;

/// How a job has ended.
pub enum End<V> {
    All(Vec<(ColdKey, V)>),
    /// Ended since nothing more has come of it for too long, with what had.
    Late(Vec<(ColdKey, V)>),
    /// All that the command needs, what was read of it, and since when nothing more has come.
    Elsewhere(ColdKeys, Vec<(ColdKey, V)>, Instant),
}

/// What a job is to read.
pub struct Wanted {
    keys: Vec<ColdKey>,
    /// So many are of the command that waits.
    own: usize,
}

impl Wanted {
    pub fn of(keys: ColdKeys) -> Wanted {
        Wanted { own: keys.keys.len(), keys: keys.keys }
    }

    #[cfg(test)]
    pub fn into_keys(self) -> ColdKeys {
        ColdKeys { keys: self.keys }
    }

    /// Keys that are read for requests behind it.
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
    /// Whose end is awaited, and how many of those are of its command.
    left: usize,
    own_left: usize,
    values: Vec<(usize, V)>,
}

/// One key of a job.
struct UnderWay<T, P> {
    ticket: T,
    key: usize,
    place: P,
    since: Instant,
}

/// `T` names a job; later ones are greater.
pub struct Fetches<T, P, V> {
    jobs: BTreeMap<T, Job<V>>,
    /// Those with keys that were not looked at. Some are over.
    queue: VecDeque<T>,
    /// Jobs with keys that were not looked at, and the length of the next record: it is their turn when there
    /// is room for that.
    held_back: BTreeMap<T, usize>,
    /// The one that may read without a bound.
    exceeding: Option<(T, Turn)>,
    /// Bytes of all jobs.
    bytes: usize,
    /// By the number of the port.
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
        let job = Job { wanted, moved: since, bytes: 0, next: 0, left, own_left, values };
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

    #[inline]
    pub fn holds_back(&self) -> bool {
        !self.held_back.is_empty()
    }

    /// Begins what the port takes.
    pub fn advance(&mut self, port: &mut impl Port, source: &mut impl Source<P, V>) {
        let now = Instant::now();
        self.let_in(source, now);
        while !port.is_full()
            && let Some(ticket) = self.queue.pop_front()
        {
            let Some(job) = self.jobs.get_mut(&ticket) else { continue };
            let key = job.next;
            job.next += 1;
            match source.look(&job.wanted.keys[key]) {
                Look::Here => self.end_key(ticket, key, Ok(None), now),
                Look::Lent(value) => self.end_key(ticket, key, Ok(Some(value)), now),
                Look::Away { len, .. } if !self.admits(ticket, len, source) => {
                    self.hold_back(ticket, len);
                    continue;
                }
                Look::Away { place, file, at, len } => match port.begin(&file, at, len) {
                    Ok(number) => {
                        self.note_bytes(ticket, len);
                        let under_way = UnderWay { ticket, key, place, since: Instant::now() };
                        self.note_under_way(number, under_way);
                    }
                    Err(Refusal::NotHere | Refusal::Full) => self.end_key(ticket, key, Err(NotHere), now),
                },
                Look::Elsewhere => self.end_key(ticket, key, Err(NotHere), now),
            }
            // Others have their turn before its next key.
            if self.jobs.get(&ticket).is_some_and(|job| job.next < job.wanted.keys.len()) {
                self.queue.push_back(ticket);
            }
        }
    }

    // ---- how much may be read ----

    /// Returns whether a job may read a record of so many bytes now.
    fn admits(&mut self, ticket: T, len: usize, source: &impl Source<P, V>) -> bool {
        let own = self.jobs.get(&ticket).map_or(0, |job| job.bytes);
        if self.bytes + len <= BYTES_MAX || own == 0 || own + len <= OWN_BYTES_MAX {
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

    /// Lets jobs go on that were held back, the oldest first, as far as there is room for their next record.
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
    pub fn collect(&mut self, port: &mut impl Port, source: &mut impl Source<P, V>) {
        let now = Instant::now();
        while let Some(Ended { room, bytes }) = port.next_ended() {
            let under_way = self.under_way[room].take().expect("it was begun");
            let Some(job) = self.jobs.get_mut(&under_way.ticket) else {
                source.came_late(bytes.is_ok());
                continue;
            };
            let UnderWay { ticket, key, place, since } = under_way;
            let value = source.verify(&job.wanted.keys[key], place, bytes, since);
            self.end_key(ticket, key, value.map(Some).ok_or(NotHere), now);
        }
    }

    /// A key of a job has its value, or needs none. One that is not for this decides over its job, if its command waits for it.
    fn end_key(&mut self, ticket: T, key: usize, value: Result<Option<V>, NotHere>, now: Instant) {
        let Some(job) = self.jobs.get_mut(&ticket) else { return };
        let is_own = key < job.wanted.own;
        if value.is_err() && is_own {
            return self.give_up(ticket);
        }
        job.values.extend(value.ok().flatten().map(|value| (key, value)));
        job.moved = now;
        job.left -= 1;
        job.own_left -= usize::from(is_own);
        if job.left == 0 {
            self.complete(ticket);
        }
    }

    /// Ends jobs of which nothing has come since then; well, if their command has all that it needs.
    pub fn expire(&mut self, before: Instant) {
        let is_late =
            |(ticket, job): &(&T, &Job<V>)| job.moved < before && !self.held_back.contains_key(*ticket);
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
    }

    /// All of them are for others: the port is gone.
    pub fn give_up_all(&mut self) {
        self.under_way.clear();
        self.queue.clear();
        let tickets: Vec<T> = self.jobs.keys().copied().collect();
        tickets.into_iter().for_each(|ticket| self.give_up(ticket));
    }

    pub fn take_ended(&mut self) -> Vec<(T, End<V>)> {
        std::mem::take(&mut self.ended)
    }

    fn complete(&mut self, ticket: T) {
        let Some(Job { wanted, values, .. }) = self.remove(ticket) else { return };
        self.ended.push((ticket, End::All(in_order(wanted.keys, values))));
    }

    fn give_up(&mut self, ticket: T) {
        if let Some(Job { wanted: Wanted { keys, own }, moved, values, .. }) = self.remove(ticket) {
            let of_command = ColdKeys { keys: keys[..own].to_vec() };
            self.ended.push((ticket, End::Elsewhere(of_command, in_order(keys, values), moved)));
        }
    }
}

/// Keys with their values, in the order of the keys, of which some have none.
fn in_order<V>(keys: Vec<ColdKey>, mut values: Vec<(usize, V)>) -> Vec<(ColdKey, V)> {
    values.sort_unstable_by_key(|(key, _)| *key);
    let mut values = values.into_iter().peekable();
    let with_value = |(at, key)| values.next_if(|(of, _)| *of == at).map(|(_, value)| (key, value));
    keys.into_iter().enumerate().filter_map(with_value).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_commands::spec::Need;
    use isotherm_disk::{Disk, Mode, Plan, SimDisk};
    use isotherm_keyspace::Db;
    use std::path::Path;
    use std::time::Duration;

    /// Reads end when the test says so: with the byte at which they begin, or an error.
    struct Manual {
        size: usize,
        under_way: Vec<Option<u64>>,
        ready: VecDeque<(usize, bool)>,
        shown: [u8; 1],
    }

    impl Manual {
        fn new(size: usize) -> Manual {
            Manual { size, under_way: vec![None; size], ready: VecDeque::new(), shown: [0] }
        }

        fn is_under_way(&self, at: u64) -> bool {
            self.under_way.contains(&Some(at))
        }

        fn end(&mut self, at: u64, is_read: bool) {
            let room = self.under_way.iter().position(|of| *of == Some(at)).expect("it is under way");
            self.ready.push_back((room, is_read));
        }

        fn end_all(&mut self) {
            let ready =
                (0..self.size).filter(|room| self.under_way[*room].is_some()).map(|room| (room, true));
            self.ready = ready.collect();
        }
    }

    impl Port for Manual {
        fn begin(&mut self, _: &Arc<dyn File>, at: u64, _: usize) -> Result<usize, Refusal> {
            let room = self.under_way.iter().position(Option::is_none).ok_or(Refusal::Full)?;
            self.under_way[room] = Some(at);
            Ok(room)
        }

        fn is_full(&self) -> bool {
            self.under_way.iter().all(Option::is_some)
        }

        fn next_ended(&mut self) -> Option<Ended<'_>> {
            let (room, is_read) = self.ready.pop_front()?;
            self.shown = [self.under_way[room].take().expect("it is under way") as u8];
            let bytes = if is_read { Ok(&self.shown[..]) } else { Err(io::ErrorKind::Other.into()) };
            Some(Ended { room, bytes })
        }
    }

    /// A key is a byte: 0..100 lie at their own place, 100.. are here, 200.. lent, 250.. elsewhere.
    struct Bytes {
        file: Arc<dyn File>,
        /// Length of each record.
        len: usize,
        turnstile: Turnstile,
        late: std::cell::Cell<(u32, u32)>,
    }

    impl Bytes {
        fn new() -> Bytes {
            let disk = SimDisk::new(1, Plan::default());
            let file = disk.open(Path::new("file"), Mode::Create).expect("it is made");
            Bytes { file, len: 1, turnstile: Turnstile::default(), late: std::cell::Cell::default() }
        }
    }

    impl Source<u8, u8> for Bytes {
        fn look(&mut self, cold: &ColdKey) -> Look<u8, u8> {
            match cold.key[0] {
                place @ ..100 => {
                    Look::Away { place, file: Arc::clone(&self.file), at: place.into(), len: self.len }
                }
                ..200 => Look::Here,
                value @ ..250 => Look::Lent(value),
                _ => Look::Elsewhere,
            }
        }

        fn verify(&self, cold: &ColdKey, place: u8, bytes: io::Result<&[u8]>, _: Instant) -> Option<u8> {
            assert_eq!(cold.key[0], place);
            Some(bytes.ok()?[0])
        }

        fn turn(&self) -> Option<Turn> {
            self.turnstile.enter()
        }

        fn came_late(&self, is_read: bool) {
            let (read, not) = self.late.get();
            self.late.set(if is_read { (read + 1, not) } else { (read, not + 1) });
        }
    }

    fn key(byte: u8) -> ColdKey {
        ColdKey::of(Db(0), &[byte], Need::All, false)
    }

    fn keys(bytes: &[u8]) -> Wanted {
        Wanted::of(ColdKeys { keys: bytes.iter().copied().map(key).collect() })
    }

    fn with_ahead(own: &[u8], ahead: &[u8]) -> Wanted {
        let mut wanted = keys(own);
        ahead.iter().for_each(|byte| wanted.add_ahead(key(*byte)));
        wanted
    }

    type Tested = Fetches<u32, u8, u8>;

    /// Of jobs that have ended: the values, or that they are for others.
    fn ended(fetches: &mut Tested) -> Vec<(u32, Option<Vec<u8>>)> {
        let values = |end| match end {
            End::All(values) | End::Late(values) => Some(
                values
                    .into_iter()
                    .map(|(cold, value)| {
                        assert_eq!(cold.key[0], value);
                        value
                    })
                    .collect(),
            ),
            End::Elsewhere(..) => None,
        };
        fetches.take_ended().into_iter().map(|(ticket, end)| (ticket, values(end))).collect()
    }

    /// Returns the jobs of which nothing has come for too long, with what had.
    fn expired(fetches: &mut Tested, before: Instant) -> Vec<(u32, Vec<u8>)> {
        fetches.expire(before);
        let ended = fetches.take_ended();
        let (late, rest) = ended.into_iter().partition(|(_, end)| matches!(end, End::Late(_)));
        fetches.ended = late;
        let late = super::tests::ended(fetches);
        fetches.ended = rest;
        late.into_iter().map(|(ticket, values)| (ticket, values.expect("it is late"))).collect()
    }

    /// All that has happened so far was before that.
    fn later() -> Instant {
        Instant::now() + Duration::from_millis(1)
    }

    #[test]
    fn values_of_a_job_come_together_and_each_job_has_its_turn() {
        let (mut port, mut source, mut fetches) = (Manual::new(4), Bytes::new(), Tested::default());
        let now = Instant::now();
        fetches.add(1, keys(&[0, 1, 2, 3, 4, 5, 150, 220]), now);
        fetches.add(2, keys(&[50]), now);
        fetches.add(3, keys(&[150, 151]), now);
        fetches.advance(&mut port, &mut source);
        // The short one does not wait for the long one.
        assert!(port.is_under_way(0) && port.is_under_way(50) && port.is_under_way(1));
        assert_eq!(ended(&mut fetches), [(3, Some(vec![]))]);
        port.end(50, true);
        port.end(1, true);
        fetches.collect(&mut port, &mut source);
        assert_eq!(ended(&mut fetches), [(2, Some(vec![50]))]);
        for _ in 0..6 {
            fetches.advance(&mut port, &mut source);
            port.end_all();
            fetches.collect(&mut port, &mut source);
        }
        assert_eq!(ended(&mut fetches), [(1, Some(vec![0, 1, 2, 3, 4, 5, 220]))]);
        assert!(fetches.is_empty() && fetches.waiting() == 0);
    }

    #[test]
    fn what_does_not_go_well_is_for_others_all_of_it() {
        let (mut port, mut source, mut fetches) = (Manual::new(4), Bytes::new(), Tested::default());
        let now = Instant::now();
        fetches.add(1, keys(&[1, 2]), now);
        fetches.add(2, keys(&[3, 251, 4]), now);
        fetches.advance(&mut port, &mut source);
        assert_eq!(ended(&mut fetches), [(2, None)]);
        port.end(2, false);
        fetches.collect(&mut port, &mut source);
        assert_eq!(ended(&mut fetches), [(1, None)]);
        assert!(fetches.is_empty());
        // What was under way for them comes late, to none.
        port.end_all();
        fetches.collect(&mut port, &mut source);
        assert_eq!((ended(&mut fetches), source.late.get()), (vec![], (2, 0)));
        fetches.add(3, keys(&[7]), now);
        fetches.advance(&mut port, &mut source);
        fetches.give_up_all();
        assert_eq!(ended(&mut fetches), [(3, None)]);
    }

    #[test]
    fn reads_that_hang_are_given_up_and_hold_their_places() {
        let (mut port, mut source, mut fetches) = (Manual::new(2), Bytes::new(), Tested::default());
        let now = Instant::now();
        (1..=3).for_each(|ticket| fetches.add(ticket, keys(&[ticket as u8]), now));
        fetches.advance(&mut port, &mut source);
        assert_eq!((fetches.waiting(), expired(&mut fetches, now)), (1, vec![]));
        fetches.add(4, keys(&[4]), now + Duration::from_secs(1));
        // One that waits for a place is given up too.
        assert_eq!(
            expired(&mut fetches, now + Duration::from_millis(1)),
            [1, 2, 3].map(|ticket| (ticket, vec![]))
        );
        fetches.advance(&mut port, &mut source);
        assert!(fetches.waiting() == 1 && !port.is_under_way(4), "no place is free");
        port.end(1, true);
        port.end(2, false);
        fetches.collect(&mut port, &mut source);
        assert_eq!(source.late.get(), (1, 1));
        fetches.advance(&mut port, &mut source);
        port.end(4, true);
        fetches.collect(&mut port, &mut source);
        assert_eq!(ended(&mut fetches), [(4, Some(vec![4]))]);
    }

    #[test]
    fn what_is_read_ahead_fails_and_hangs_for_itself() {
        let (mut port, mut source, mut fetches) = (Manual::new(8), Bytes::new(), Tested::default());
        let now = Instant::now();
        let wanted = with_ahead(&[1], &[2, 2, 1, 251, 150, 3]);
        assert_eq!(wanted.ahead(), 4, "each once");
        fetches.add(1, wanted, now);
        fetches.advance(&mut port, &mut source);
        port.end(1, true);
        port.end(2, false);
        fetches.collect(&mut port, &mut source);
        assert_eq!(ended(&mut fetches), [], "it waits for the rest");
        port.end(3, true);
        fetches.collect(&mut port, &mut source);
        assert_eq!(ended(&mut fetches), [(1, Some(vec![1, 3]))]);
        // One that hangs is left behind; one of the command is given up for.
        fetches.add(2, with_ahead(&[4], &[5]), now);
        fetches.add(3, with_ahead(&[6], &[7]), now);
        fetches.advance(&mut port, &mut source);
        port.end(4, true);
        port.end(7, true);
        fetches.collect(&mut port, &mut source);
        assert_eq!(expired(&mut fetches, later()), [(3, vec![7])]);
        assert_eq!(ended(&mut fetches), [(2, Some(vec![4]))]);
        // Where the command's own fails, threads read that alone.
        fetches.add(4, with_ahead(&[8], &[9]), now);
        fetches.advance(&mut port, &mut source);
        port.end(8, false);
        fetches.collect(&mut port, &mut source);
        let Some((4, End::Elsewhere(keys, ..))) = fetches.take_ended().pop() else {
            panic!("it is for others")
        };
        assert_eq!(keys.keys, [key(8)]);
        assert!(fetches.is_empty());
    }

    #[test]
    fn a_job_lives_as_long_as_something_comes_and_what_came_is_kept() {
        let (mut port, mut source, mut fetches) = (Manual::new(1), Bytes::new(), Tested::default());
        fetches.add(1, keys(&[1, 2, 3]), Instant::now());
        for place in 1..=2 {
            let before = later();
            while Instant::now() <= before {}
            fetches.advance(&mut port, &mut source);
            port.end(place, true);
            fetches.collect(&mut port, &mut source);
            assert_eq!(expired(&mut fetches, before), [], "something has come since");
        }
        fetches.advance(&mut port, &mut source);
        assert_eq!(expired(&mut fetches, later()), [(1, vec![1, 2])]);
        assert!(fetches.is_empty());
        // What threads are to read is the rest.
        fetches.add(2, keys(&[4, 251]), Instant::now());
        port.end(3, true);
        fetches.collect(&mut port, &mut source);
        fetches.advance(&mut port, &mut source);
        port.end(4, true);
        fetches.collect(&mut port, &mut source);
        fetches.advance(&mut port, &mut source);
        let Some((2, End::Elsewhere(keys, read, _))) = fetches.take_ended().pop() else {
            panic!("it is for others")
        };
        assert_eq!((keys.keys.len(), read), (2, vec![(key(4), 4)]));
    }

    #[test]
    fn long_jobs_have_their_turn_one_after_the_other() {
        let (mut port, mut source, mut fetches) = (Manual::new(64), Bytes::new(), Tested::default());
        source.len = BYTES_MAX / 3;
        let now = Instant::now();
        let at = |job: u8, key: u8| u64::from(job * 10 + key);
        for job in 0..3u8 {
            fetches.add(u32::from(job), keys(&[0, 1, 2, 3].map(|key| at(job, key) as u8)), now);
        }
        // Another worker has the turn.
        let turn = source.turnstile.enter();
        fetches.advance(&mut port, &mut source);
        assert_eq!((fetches.waiting(), port.under_way.iter().flatten().count()), (3, 3));
        drop(turn);
        for job in 0..3u8 {
            fetches.advance(&mut port, &mut source);
            assert!((0..4).all(|key| port.is_under_way(at(job, key))), "{job}");
            assert!((job + 1..3).all(|other| !port.is_under_way(at(other, 1))));
            // A short one gets on.
            let short = 100 + u32::from(job);
            fetches.add(short, keys(&[50]), now);
            fetches.advance(&mut port, &mut source);
            port.end(50, true);
            fetches.collect(&mut port, &mut source);
            assert_eq!(ended(&mut fetches), [(short, Some(vec![50]))]);
            (0..4).for_each(|key| port.end(at(job, key), true));
            fetches.collect(&mut port, &mut source);
            let values = [0, 1, 2, 3].map(|key| at(job, key) as u8);
            assert_eq!(ended(&mut fetches), [(u32::from(job), Some(values.to_vec()))]);
        }
        assert!(fetches.is_empty() && fetches.bytes == 0 && source.turnstile.enter().is_some());
    }
}
