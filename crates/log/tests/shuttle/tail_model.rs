//! The log between workers that append under the locks of partitions, a thread that cuts it, and its readers.
//!
//! ```text
//!   worker       locks partitions, notes its frame in each, appends, releases, wakes the reader
//!   cutter       locks all partitions and notes how far each has come, or locks none; cuts
//!   log thread   collects, reads, advances, sleeps when there is no more
//!   follower     reads what was collected, in its own steps
//! ```
//! Then the bytes are split into frames again and compared with what was noted.

use crate::wire::{Frames, Plan, Read};
use crate::{Reader, explore};
use isotherm_log::{Collected, Log, LogOffset, ReaderId, ReaderKind};
use shuttle::sync::Mutex;
use shuttle::thread;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const ITERATIONS: usize = 1000;
const PARTITIONS: usize = 2;
const START: LogOffset = LogOffset(1000);

/// Frames in database 0, and in database 1.
const ZERO: Plan = Plan { database: 0, then: None, padding: 1, is_stream: false };
const ONE: Plan = Plan { database: 1, ..ZERO };
const TRANSACTION: Plan = Plan { then: Some(1), ..ZERO };
/// Frame that is moved, not copied.
const LARGE: Plan = Plan { padding: 100, ..ONE };
const STREAM: Plan = Plan { database: 2, is_stream: true, ..ONE };

#[derive(Clone, Copy)]
struct Cut {
    ends_file: bool,
    /// The locks of all partitions.
    holds_all: bool,
}

/// The partitions whose locks it takes, ascending, and what it appends under them.
type Step = (&'static [usize], Plan);

#[derive(Default)]
struct Notes {
    /// Plan and end of each frame, by its number.
    ends: BTreeMap<u64, (Plan, LogOffset)>,
    /// Places of the cuts, and the number of frames of each partition if all were held.
    cuts: Vec<(LogOffset, Cut, Option<[usize; PARTITIONS]>)>,
}

struct World {
    log: Log,
    reader: Reader,
    /// The frames under this lock, in the order of its holders.
    partitions: [Mutex<Vec<u64>>; PARTITIONS],
    /// Outside of the model: no switch happens here.
    notes: std::sync::Mutex<Notes>,
    frames: usize,
}

/// Data that a reader has seen.
#[derive(Default)]
struct Seen {
    bytes: Vec<u8>,
    stops: Vec<LogOffset>,
    file_ends: Vec<LogOffset>,
}

impl World {
    fn notes(&self) -> std::sync::MutexGuard<'_, Notes> {
        self.notes.lock().expect("no panic before")
    }

    /// Runs steps; `holds_while_appending`: false to see that the model finds it.
    fn work(&self, worker: u64, steps: &[Step], holds_while_appending: bool) {
        for (number, &(partitions, plan)) in (worker * 100..).zip(steps) {
            let mut held: Vec<_> =
                partitions.iter().map(|&at| self.partitions[at].lock().expect("no panic before")).collect();
            held.iter_mut().for_each(|partition| partition.push(number));
            if !holds_while_appending {
                held.clear();
            }
            let appended = match plan.is_stream {
                true => self.log.append_stream(&plan.stream(number), 0),
                false => self.log.append(&mut plan.frame(number)),
            };
            assert!(self.log.end() >= appended.end, "a command that is over is in the log");
            self.notes().ends.insert(number, (plan, appended.end));
            drop(held);
            self.reader.wake();
        }
    }

    fn cut(&self, cut: Cut) {
        let held = cut.holds_all.then(|| {
            self.partitions
                .iter()
                .map(|partition| partition.lock().expect("no panic before"))
                .collect::<Vec<_>>()
        });
        let at = self.log.cut(cut.ends_file);
        let lens = held.as_ref().map(|held| std::array::from_fn(|partition| held[partition].len()));
        self.notes().cuts.push((at, cut, lens));
        drop(held);
        self.reader.unpark();
    }

    /// The log thread. `is_over`: whether all was appended.
    fn collect(&self, reader: ReaderId, is_over: &dyn Fn() -> bool) -> Seen {
        self.reader.is(thread::current());
        let (mut seen, mut position) = (Seen::default(), START);
        loop {
            // Asked first: what was appended before it is then collected.
            let is_last = is_over();
            let promised = self.log.end();
            self.log.collect(|collected| match collected {
                Collected::Frames(end, _) => seen.stops.push(end),
                Collected::FileEnd(end, _) => {
                    assert!(seen.stops.last().is_none_or(|&stop| stop == end), "all frames before it came");
                    seen.file_ends.push(end);
                }
            });
            let end = self.log.collected();
            assert!(end >= promised, "the end is not known before the bytes are there");
            self.read(&mut seen, position, end);
            position = end;
            self.log.advance(reader, position);
            if is_last {
                return seen;
            }
            self.reader.is_asleep.set(0);
            if self.log.collected() == self.log.end() && !is_over() {
                thread::park();
            }
        }
    }

    fn read(&self, seen: &mut Seen, from: LogOffset, to: LogOffset) {
        let pieces = self.log.read(from, to).expect("a reader keeps what it has not read");
        pieces.iter().for_each(|piece| seen.bytes.extend_from_slice(piece));
    }

    /// A reader of its own: it sees what was collected so far.
    fn follow(&self, reader: ReaderId) -> Vec<u8> {
        let (mut seen, mut position) = (Seen::default(), START);
        for _ in 0..3 {
            let end = self.log.collected();
            self.read(&mut seen, position, end);
            position = end;
            self.log.advance(reader, position);
            thread::yield_now();
        }
        self.log.remove_reader(reader);
        seen.bytes
    }

    fn check(&self, seen: &Seen, followed: &[u8]) {
        self.log.check_invariants();
        assert!(seen.bytes.starts_with(followed), "all readers see the same log");
        let notes = self.notes();
        let cuts: BTreeSet<LogOffset> = notes.cuts.iter().map(|cut| cut.0).collect();
        let (mut order, mut ends, mut before) = (Vec::new(), BTreeSet::from([START]), START);
        let mut frames = Frames::new(&seen.bytes, START);
        loop {
            // A log that is read from here has selected no database.
            if cuts.contains(&before) {
                frames.selected = None;
            }
            let Some(Read { number, databases, end }) = frames.next() else { break };
            let (plan, appended_end) = notes.ends[&number];
            assert_eq!(end, appended_end, "offsets are exact");
            assert!(
                databases.into_iter().eq(std::iter::once(plan.database).chain(plan.then)),
                "of frame {number}"
            );
            if plan.is_stream {
                frames.selected = None;
            }
            order.push(number);
            ends.insert(end);
            before = end;
        }
        assert_eq!(before, self.log.end(), "offsets are dense");
        assert_eq!(order.len(), self.frames, "nothing is lost or there twice");
        assert!(seen.stops.iter().all(|stop| ends.contains(stop)), "a reader stops behind whole frames");
        assert!(seen.stops.is_sorted());
        let file_ends = notes.cuts.iter().filter(|cut| cut.1.ends_file).map(|cut| cut.0);
        assert!(cuts.is_subset(&ends), "a cut is between frames");
        assert!(file_ends.eq(seen.file_ends.iter().copied()), "each file ends where the log was cut");
        for (at, partition) in self.partitions.iter().enumerate() {
            let held = partition.lock().expect("no panic before");
            let logged: Vec<u64> = order.iter().copied().filter(|number| held.contains(number)).collect();
            assert_eq!(*held, logged, "the log has the order of the locks");
            for (cut, lens) in notes.cuts.iter().filter_map(|&(cut, _, lens)| Some((cut, lens?))) {
                let before = held.iter().filter(|&number| notes.ends[number].1 <= cut).count();
                assert_eq!(before, lens[at], "what was held came before the cut");
            }
        }
    }
}

fn run(batches: &[&'static [Step]], cuts: &'static [Cut], holds_while_appending: bool) {
    let world = Arc::new(World {
        log: Log::new(START, u64::MAX),
        reader: Reader::default(),
        partitions: Default::default(),
        notes: Default::default(),
        frames: batches.iter().map(|batch| batch.len()).sum(),
    });
    let running = Arc::new(shuttle::sync::atomic::AtomicUsize::new(batches.len() + 1));
    let spawn = |work: Box<dyn FnOnce(&World) + Send>| {
        let (world, running) = (Arc::clone(&world), Arc::clone(&running));
        thread::spawn(move || {
            work(&world);
            running.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
            // Work that is not in the log.
            world.reader.unpark();
        })
    };
    let follower = world.log.add_reader(ReaderKind::Follower, START).expect("the log begins here");
    let writer = world.log.add_reader(ReaderKind::Writer, START).expect("the log begins here");
    let mut threads: Vec<_> = (1..)
        .zip(batches)
        .map(|(worker, &batch)| {
            spawn(Box::new(move |world| world.work(worker, batch, holds_while_appending)))
        })
        .collect();
    threads.push(spawn(Box::new(move |world| cuts.iter().for_each(|&cut| world.cut(cut)))));
    let log_thread = {
        let (world, running) = (Arc::clone(&world), Arc::clone(&running));
        let is_over = move || running.load(std::sync::atomic::Ordering::SeqCst) == 0;
        thread::spawn(move || world.collect(writer, &is_over))
    };
    let follower = {
        let world = Arc::clone(&world);
        thread::spawn(move || world.follow(follower))
    };
    threads.into_iter().for_each(|thread| thread.join().expect("no thread fails"));
    let seen = log_thread.join().expect("no thread fails");
    world.check(&seen, &follower.join().expect("no thread fails"));
}

/// Small frames: one partition, several, and databases that change.
#[test]
fn the_log_has_the_order_of_the_locks() {
    explore(ITERATIONS, || {
        run(
            &[
                &[(&[0], ZERO), (&[0, 1], ONE), (&[1], ZERO)],
                &[(&[1], ZERO), (&[0, 1], TRANSACTION), (&[0], ONE)],
                &[(&[0], ONE), (&[1], ONE)],
            ],
            &[Cut { ends_file: false, holds_all: true }],
            true,
        );
    });
}

/// Blocks that fill, frames that are moved, bytes of another log, and files that end between them.
#[test]
fn blocks_and_cuts_are_between_whole_frames() {
    explore(ITERATIONS, || {
        run(
            &[
                &[(&[0], TRANSACTION), (&[1], LARGE), (&[0], ZERO), (&[1], TRANSACTION)],
                &[(&[0, 1], ONE), (&[1], STREAM), (&[0], LARGE), (&[0], ONE)],
            ],
            &[
                Cut { ends_file: true, holds_all: true },
                Cut { ends_file: false, holds_all: false },
                Cut { ends_file: true, holds_all: false },
            ],
            true,
        );
    });
}

/// The check can fail: a frame that is appended when its locks are released is found out of order.
#[test]
#[should_panic(expected = "the log has the order of the locks")]
fn an_append_without_locks_is_found() {
    explore(ITERATIONS, || {
        run(&[&[(&[0], ZERO), (&[0], ZERO)], &[(&[0], ZERO), (&[0], ZERO)]], &[], false);
    });
}
