//! Reads of a worker that end when the test says so, and those of the system on a simulated disk.

use crate::tier::fetches::*;
use isotherm_commands::spec::Need;
use isotherm_disk::{Disk, Mode, Plan, SimDisk};
use isotherm_keyspace::Db;
use std::path::Path;
use std::time::Duration;

/// Keys that are tried again have numbers from here on.
const AGAIN: usize = 1000;

/// Reads end when the test says so: with the byte at which they begin, or an error.
struct Manual {
    size: usize,
    under_way: Vec<Option<u64>>,
    /// Keys that are tried again, and whether their jobs are there.
    again: Vec<(u8, Weak<Sign>)>,
    tried: VecDeque<(usize, Option<u8>)>,
    ready: VecDeque<(usize, bool)>,
    shown: [u8; 1],
    has_turns: bool,
    /// Signs of the jobs of all reads.
    jobs: Vec<Weak<Sign>>,
}

impl Manual {
    fn new(size: usize) -> Manual {
        Manual {
            size,
            under_way: vec![None; size],
            again: Vec::new(),
            tried: VecDeque::new(),
            ready: VecDeque::new(),
            shown: [0],
            has_turns: false,
            jobs: Vec::new(),
        }
    }

    fn is_under_way(&self, at: u64) -> bool {
        self.under_way.contains(&Some(at))
    }

    fn end(&mut self, at: u64, is_read: bool) {
        let room = self.under_way.iter().position(|of| *of == Some(at)).expect("it is under way");
        self.ready.push_back((room, is_read));
    }

    /// Keys that are tried again for jobs that are there.
    fn again(&self) -> Vec<u8> {
        let are_there = self.again.iter().filter(|(_, job)| job.strong_count() > 0);
        are_there.map(|(byte, _)| *byte).collect()
    }

    /// The first of them that has this key has ended.
    fn end_again(&mut self, byte: u8, value: Option<u8>) {
        let number = self.again.iter().position(|(of, _)| *of == byte).expect("it is tried again");
        self.again[number].0 = u8::MAX;
        self.tried.push_back((AGAIN + number, value));
    }

    fn end_all(&mut self) {
        let ready = (0..self.size).filter(|room| self.under_way[*room].is_some()).map(|room| (room, true));
        self.ready = ready.collect();
    }
}

impl Port<u8> for Manual {
    fn has_turns(&self) -> bool {
        self.has_turns
    }

    fn begin(&mut self, _: &Arc<dyn File>, at: u64, _: usize, job: Weak<Sign>) -> Result<usize, Refusal> {
        let room = self.under_way.iter().position(Option::is_none).ok_or(Refusal::Full)?;
        self.under_way[room] = Some(at);
        self.jobs.push(job);
        Ok(room)
    }

    fn begin_again(&mut self, cold: &ColdKey, job: Weak<Sign>) -> usize {
        self.again.push((cold.key[0], job));
        AGAIN + self.again.len() - 1
    }

    fn is_full(&self) -> bool {
        self.under_way.iter().all(Option::is_some)
    }

    fn next_ended(&mut self) -> Option<(usize, Read<'_, u8>)> {
        if let Some((number, value)) = self.tried.pop_front() {
            return Some((number, Read::Value(value)));
        }
        let (room, is_read) = self.ready.pop_front()?;
        self.shown = [self.under_way[room].take().expect("it is under way") as u8];
        let bytes = if is_read { Ok(&self.shown[..]) } else { Err(io::ErrorKind::Other.into()) };
        Some((room, Read::Bytes(bytes)))
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
            _ => Look::Elsewhere { len: self.len },
        }
    }

    fn verify(&self, cold: &ColdKey, place: u8, bytes: io::Result<&[u8]>, _: Instant) -> Option<u8> {
        assert_eq!(cold.key[0], place);
        Some(bytes.ok()?[0])
    }

    fn bytes_max(&self) -> usize {
        BYTES_MAX
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

/// Jobs that have ended, with their values.
fn ended(fetches: &mut Tested) -> Vec<(u32, Vec<u8>)> {
    let values = |end| {
        let (End::All(values) | End::Late(values)) = end;
        let value = |(cold, value): (ColdKey, u8)| {
            assert_eq!(cold.key[0], value);
            value
        };
        values.into_iter().map(value).collect()
    };
    fetches.take_ended().into_iter().map(|(ticket, end)| (ticket, values(end))).collect()
}

/// Returns jobs that have got nothing for too long, with the values that they had got.
fn expired(fetches: &mut Tested, before: Instant) -> Vec<(u32, Vec<u8>)> {
    fetches.expire(before, false);
    let ended = fetches.take_ended();
    let (late, rest) = ended.into_iter().partition(|(_, end)| matches!(end, End::Late(_)));
    fetches.ended = late;
    let late = super::tests::ended(fetches);
    fetches.ended = rest;
    late
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
    assert_eq!(ended(&mut fetches), [(3, vec![])]);
    port.end(50, true);
    port.end(1, true);
    fetches.collect(&mut port, &mut source);
    assert_eq!(ended(&mut fetches), [(2, vec![50])]);
    for _ in 0..6 {
        fetches.advance(&mut port, &mut source);
        port.end_all();
        fetches.collect(&mut port, &mut source);
    }
    assert_eq!(ended(&mut fetches), [(1, vec![0, 1, 2, 3, 4, 5, 220])]);
    assert!(fetches.is_empty() && fetches.waiting() == 0);
}

#[test]
fn what_does_not_go_well_is_tried_again() {
    let (mut port, mut source, mut fetches) = (Manual::new(4), Bytes::new(), Tested::default());
    let now = Instant::now();
    fetches.add(1, keys(&[1, 2]), now);
    fetches.add(2, keys(&[3, 251, 4]), now);
    fetches.advance(&mut port, &mut source);
    port.end(2, false);
    port.end(3, true);
    fetches.collect(&mut port, &mut source);
    assert_eq!((port.again(), ended(&mut fetches)), (vec![251, 2], vec![]));
    port.end_all();
    port.end_again(2, Some(2));
    fetches.collect(&mut port, &mut source);
    assert_eq!(ended(&mut fetches), [(1, vec![1, 2])]);
    // One that needs no reading any more.
    port.end_again(251, None);
    fetches.collect(&mut port, &mut source);
    assert_eq!(ended(&mut fetches), [(2, vec![3, 4])]);
    assert!(fetches.is_empty());
    // The owner of the numbers is gone.
    fetches.add(3, keys(&[7]), now);
    fetches.advance(&mut port, &mut source);
    fetches.restart(&mut port, 0..4);
    assert_eq!(port.again(), [7]);
    // A job that is given up leaves no sign.
    assert!(fetches.expire(later(), false));
    assert_eq!(port.again(), []);
    port.end_again(7, Some(7));
    fetches.collect(&mut port, &mut source);
    assert_eq!((ended(&mut fetches), source.late.get()), (vec![(3, vec![])], (0, 0)));
}

/// Threads that read for others have not come to its keys yet.
#[test]
fn a_job_waits_for_its_turn_while_threads_read() {
    let (mut port, mut source, mut fetches) = (Manual::new(1), Bytes::new(), Tested::default());
    fetches.add(1, keys(&[1]), Instant::now());
    fetches.advance(&mut port, &mut source);
    port.end(1, false);
    fetches.collect(&mut port, &mut source);
    assert_eq!(port.again(), [1]);
    assert!(!fetches.expire(later(), true), "others are read");
    // A thread reads it, and does not come to an end.
    let sign = port.again[0].1.upgrade().expect("its job is there");
    sign.reading.fetch_add(1, Relaxed);
    drop(sign);
    assert!(fetches.expire(later(), true));
}

/// Without a ring, all reads wait for threads.
#[test]
fn jobs_wait_for_their_turn_at_threads() {
    let (mut port, mut source, mut fetches) = (Manual::new(1), Bytes::new(), Tested::default());
    port.has_turns = true;
    fetches.add(1, keys(&[1]), Instant::now());
    fetches.add(2, keys(&[2]), Instant::now());
    fetches.advance(&mut port, &mut source);
    assert!(!fetches.expire(later(), true), "one is queued at the threads, and one has no room there");
    let sign = port.jobs[0].upgrade().expect("its job is there");
    sign.reading.fetch_add(1, Relaxed);
    drop(sign);
    assert!(fetches.expire(later(), true), "a thread reads it, and does not come to an end");
    assert!(port.jobs[0].upgrade().is_none());
    assert!(!fetches.expire(later(), true));
    assert!(fetches.expire(later() + TURN_MAX, true), "its turn does not come");
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
    assert_eq!(ended(&mut fetches), [(4, vec![4])]);
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
    assert_eq!(ended(&mut fetches), [(1, vec![1, 3])]);
    // One that hangs is left behind; one of the command is given up for.
    fetches.add(2, with_ahead(&[4], &[5]), now);
    fetches.add(3, with_ahead(&[6], &[7]), now);
    fetches.advance(&mut port, &mut source);
    port.end(4, true);
    port.end(7, true);
    fetches.collect(&mut port, &mut source);
    assert_eq!(expired(&mut fetches, later()), [(3, vec![7])]);
    assert_eq!(ended(&mut fetches), [(2, vec![4])]);
    // Where the command's own fails, that alone is tried again.
    fetches.add(4, with_ahead(&[8], &[9, 251]), now);
    fetches.advance(&mut port, &mut source);
    port.end(8, false);
    port.end(9, false);
    fetches.collect(&mut port, &mut source);
    assert_eq!(port.again(), [8]);
    port.end_again(8, Some(8));
    fetches.collect(&mut port, &mut source);
    assert_eq!(ended(&mut fetches), [(4, vec![8])]);
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
}

#[test]
fn workers_read_a_part_of_memory() {
    assert_eq!(bytes_max(0, 4), BYTES_MAX);
    assert_eq!(bytes_max(20 << 20, 4), 320 << 10);
    assert_eq!(bytes_max(20 << 20, 16), BYTES_MIN);
    assert_eq!(bytes_max(1 << 40, 16), BYTES_MAX);
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
        assert_eq!(ended(&mut fetches), [(short, vec![50])]);
        (0..4).for_each(|key| port.end(at(job, key), true));
        fetches.collect(&mut port, &mut source);
        let values = [0, 1, 2, 3].map(|key| at(job, key) as u8);
        assert_eq!(ended(&mut fetches), [(u32::from(job), values.to_vec())]);
    }
    assert!(fetches.is_empty() && fetches.bytes == 0 && source.turnstile.enter().is_some());
}

/// Their values lie in memory just the same.
#[test]
fn values_of_closed_files_count_as_others_do() {
    let (mut port, mut source, mut fetches) = (Manual::new(8), Bytes::new(), Tested::default());
    source.len = BYTES_MAX / 2;
    let now = Instant::now();
    // Another worker has the turn.
    let turn = source.turnstile.enter();
    fetches.add(1, keys(&[251, 252, 253]), now);
    fetches.add(2, with_ahead(&[1], &[254]), now);
    fetches.advance(&mut port, &mut source);
    assert_eq!((port.again(), fetches.bytes), (vec![251], BYTES_MAX));
    port.end(1, true);
    fetches.collect(&mut port, &mut source);
    assert_eq!(ended(&mut fetches), [(2, vec![1])], "its key ahead is left");
    fetches.advance(&mut port, &mut source);
    assert_eq!(port.again(), [251, 252]);
    drop(turn);
    fetches.advance(&mut port, &mut source);
    assert_eq!(port.again(), [251, 252, 253]);
    [251, 252, 253].iter().for_each(|byte| port.end_again(*byte, Some(*byte)));
    fetches.collect(&mut port, &mut source);
    assert_eq!(ended(&mut fetches), [(1, vec![251, 252, 253])]);
    assert!(fetches.is_empty() && fetches.bytes == 0);
}
