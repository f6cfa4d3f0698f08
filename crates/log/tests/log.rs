//! The log against a model: a vector of bytes.

use isotherm_log::{CHUNK_BYTES_MAX, Collected, Frame, Gone, Log, LogOffset, Piece, ReaderId, ReaderKind};
use isotherm_stdx::Prng;
use std::collections::BTreeMap;
use std::sync::Mutex;

fn entry(number: u64, len: usize) -> Vec<u8> {
    let mut bytes = format!("<{number}>").into_bytes();
    bytes.resize(bytes.len() + len, b'.');
    bytes
}

fn collect(log: &Log) -> Vec<LogOffset> {
    let mut ends = Vec::new();
    log.collect(|collected| match collected {
        Collected::Frames(end, _) | Collected::FileEnd(end, _) => ends.push(end),
    });
    ends
}

fn read(log: &Log, from: LogOffset, to: LogOffset) -> Vec<u8> {
    let pieces = log.read(from, to).expect("it is in memory");
    pieces.iter().map(|piece| &**piece).collect::<Vec<&[u8]>>().concat()
}

/// Some lengths are small, some fill a chunk, some exceed it.
fn random_len(prng: &mut Prng) -> usize {
    match prng.below(20) {
        0 => prng.below(2 * CHUNK_BYTES_MAX as u64) as usize,
        1..4 => prng.below(40_000) as usize,
        _ => prng.below(100) as usize,
    }
}

struct Model {
    log: Log,
    start: u64,
    bytes: Vec<u8>,
    /// Database that the last append has selected, if it was one of a stream.
    stream_database: u32,
    /// Ends of frames, and the database that is selected after each.
    ends: BTreeMap<u64, u32>,
    readers: Vec<(ReaderId, LogOffset)>,
    held: Vec<(u64, Piece)>,
}

impl Model {
    fn append(&mut self, number: u64, prng: &mut Prng) {
        let bytes = entry(number, random_len(prng));
        let (end, selected) = if prng.one_in(5) {
            self.bytes.extend_from_slice(&bytes);
            self.stream_database = number as u32;
            (self.log.append_stream(&bytes, self.stream_database).end, self.stream_database)
        } else {
            // The first frame, and each one after a stream or a cut, brings its SELECT.
            let mut frame = Frame::default();
            frame.push_wire(7, &bytes);
            let end = self.log.append(&mut frame).end;
            self.stream_database = 0;
            let select = b"*2\r\n$6\r\nSELECT\r\n$1\r\n7\r\n";
            let added = end - (LogOffset(self.start) + self.bytes.len() as u64);
            if added > bytes.len() as u64 {
                self.bytes.extend_from_slice(select);
            }
            self.bytes.extend_from_slice(&bytes);
            (end, 7)
        };
        assert_eq!(end, self.end());
        self.ends.insert(end.0, selected);
    }

    fn end(&self) -> LogOffset {
        LogOffset(self.start) + self.bytes.len() as u64
    }

    fn at(&self, offset: LogOffset) -> usize {
        (offset.0 - self.start) as usize
    }

    fn check(&self, prng: &mut Prng) {
        self.log.check_invariants();
        for (_, position) in &self.readers {
            let to = *position + prng.below(self.log.collected() - *position + 1).min(100_000);
            let bytes = read(&self.log, *position, to);
            assert!(self.bytes[self.at(*position)..self.at(to)] == bytes);
        }
        for (at, piece) in &self.held {
            assert!(self.bytes[self.at(LogOffset(*at))..].starts_with(piece), "held bytes do not change");
        }
    }

    fn step(&mut self, number: u64, prng: &mut Prng) {
        match prng.below(12) {
            0..6 => self.append(number, prng),
            6 | 7 => self.log.collect(|one| match one {
                Collected::Frames(end, selected) => {
                    assert_eq!(self.ends.get(&end.0), Some(&selected), "a write stops where a frame ends");
                }
                Collected::FileEnd(end, _) => assert!(self.ends.contains_key(&end.0)),
            }),
            8 => {
                let cut = self.log.cut(true);
                assert_eq!(cut, self.end());
                let file_end = Collected::FileEnd(cut, self.stream_database);
                self.append(number, prng);
                let mut collected = Vec::new();
                self.log.collect(|block| collected.push(block));
                let at = collected.iter().position(|block| *block == file_end);
                let at = at.expect("a cut is reported");
                let before = Collected::Frames(cut, self.ends[&cut.0]);
                assert!(at == 0 || collected[at - 1] == before, "in its turn");
            }
            9 => {
                let from = self.log.first();
                let id = self.log.add_reader(ReaderKind::Follower, from).expect("it is in memory");
                self.readers.push((id, from));
            }
            10 if !self.readers.is_empty() => {
                let which = prng.below(self.readers.len() as u64) as usize;
                let (id, position) = &mut self.readers[which];
                let to = *position + prng.below(self.log.collected() - *position + 1).min(50_000);
                let pieces = self.log.read(*position, to).expect("a reader keeps its bytes");
                for piece in pieces {
                    let at = position.0;
                    *position = *position + piece.len() as u64;
                    self.held.push((at, piece));
                }
                assert_eq!(*position, to);
                self.log.advance(*id, *position);
            }
            _ => {
                if let Some((id, _)) = (!self.readers.is_empty()).then(|| self.readers.swap_remove(0)) {
                    self.log.remove_reader(id);
                }
                self.held.truncate(prng.below(3) as usize);
            }
        }
    }
}

#[test]
fn readers_see_the_bytes_in_their_order() {
    for seed in 0..30 {
        let mut prng = Prng::new(seed);
        let start = prng.below(1 << 40);
        let log = Log::new(LogOffset(start), 1 << 40);
        log.set_backlog_bytes(prng.below(3) * 100_000);
        let (bytes, ends) = (Vec::new(), BTreeMap::from([(start, 0)]));
        let mut model =
            Model { log, start, bytes, stream_database: 0, ends, readers: Vec::new(), held: Vec::new() };
        for number in 0..150 {
            model.step(number, &mut prng);
            model.check(&mut prng);
        }
    }
}

#[test]
fn what_is_not_needed_is_dropped_and_its_memory_accounted_for() {
    let log = Log::new(LogOffset(0), 1 << 40);
    let reader = log.add_reader(ReaderKind::Follower, LogOffset(0)).expect("the beginning");
    let idle_bytes = log.memory_bytes();
    let mut frame = Frame::default();
    for _ in 0..64 {
        frame.push_wire(0, &[b'x'; 60_000]);
        log.append(&mut frame);
    }
    collect(&log);
    let full_bytes = log.memory_bytes();
    assert!(full_bytes >= 64 * 60_000, "{full_bytes}");
    log.advance(reader, log.end());
    assert!(log.memory_bytes() <= idle_bytes + 4 * CHUNK_BYTES_MAX as u64, "{}", log.memory_bytes());
    assert_eq!(log.read(LogOffset(0), log.end()).err(), Some(Gone));
    assert_eq!(log.add_reader(ReaderKind::Follower, LogOffset(0)).err(), Some(Gone));
    assert_eq!(log.read(log.end(), log.end() + 1).err(), Some(Gone));
    log.check_invariants();
}

#[test]
fn many_small_appends_become_few_chunks() {
    let log = Log::new(LogOffset(0), 1 << 40);
    log.set_backlog_bytes(1 << 20);
    let mut frame = Frame::default();
    let mut held = Vec::new();
    for number in 0..20_000_u64 {
        let from = log.end();
        frame.push_wire(0, &entry(number, 30));
        log.append(&mut frame);
        collect(&log);
        // Two writes under way hold what they write.
        held.push(log.read(from, log.end()).expect("just collected"));
        held.drain(..held.len().saturating_sub(2));
    }
    let pieces = log.read(log.first(), log.end()).expect("the backlog").len();
    assert!(pieces < 100, "{pieces}");
}

#[test]
fn appends_have_room_as_long_as_the_writer_follows() {
    let log = Log::new(LogOffset(0), 1000);
    let mut frame = Frame::default();
    let mut append = |len: usize| {
        frame.push_wire(0, &vec![b'x'; len]);
        log.append(&mut frame).end
    };
    append(5000);
    assert!(log.has_room(), "without a writer nothing waits");
    collect(&log);
    let writer = log.add_reader(ReaderKind::Writer, log.end()).expect("the end");
    append(999);
    assert!(log.has_room());
    let end = append(1);
    assert!(!log.has_room());
    log.set_limit_bytes(2000);
    assert!(log.has_room());
    log.set_limit_bytes(1000);
    collect(&log);
    log.advance(writer, end);
    assert!(log.has_room());
}

#[test]
fn the_log_thread_is_woken_for_the_first_frame_only() {
    let log = Log::new(LogOffset(0), 1000);
    let mut frame = Frame::default();
    let mut append = || {
        frame.push_wire(0, b"x");
        log.append(&mut frame).was_empty
    };
    assert!(append());
    assert!(!append());
    collect(&log);
    assert!(append());
}

/// Four threads append under a lock of their own making; the log has their frames whole, and in that order.
#[test]
fn frames_of_many_threads_are_whole_and_in_the_order_of_their_offsets() {
    let log = Log::new(LogOffset(0), 1 << 40);
    let _keeps_all = log.add_reader(ReaderKind::Follower, LogOffset(0)).expect("the beginning");
    let order = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let (log, order) = (&log, &order);
            scope.spawn(move || {
                let (mut frame, mut prng) = (Frame::default(), Prng::new(thread));
                for number in 0..2_000 {
                    let bytes = entry(thread * 10_000 + number, random_len(&mut prng) / 50);
                    frame.push_wire(0, &bytes);
                    let end = log.append(&mut frame).end;
                    order.lock().expect("no panic").push((end, bytes));
                    if number % 100 == thread {
                        log.collect(|_| {});
                    }
                }
            });
        }
    });
    collect(&log);
    log.check_invariants();
    let bytes = read(&log, LogOffset(0), log.end());
    let mut order = order.into_inner().expect("no panic");
    order.sort_unstable();
    let all: Vec<u8> = order.into_iter().flat_map(|(_, bytes)| bytes).collect();
    assert!(bytes.ends_with(&all), "all frames behind one SELECT");
    assert_eq!(bytes.len(), all.len() + b"*2\r\n$6\r\nSELECT\r\n$1\r\n0\r\n".len());
}
