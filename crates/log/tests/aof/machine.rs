//! The writer with a log before it and a simulated disk behind it. A seed picks which of them moves.

use crate::recovery::{Recovered, path, record, write_list};
use isotherm_disk::{Disk, File, Mode, SimDisk, write_all_at};
use isotherm_log::writer::{AofWriter, FileId, FsyncPolicy, Input, List, Ms, Output};
use isotherm_log::{Collected, Frame, Log, LogOffset, ReaderId, ReaderKind};
use isotherm_persist::aof::commit::Lines;
use isotherm_stdx::Prng;
use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::Arc;

/// A sync that was begun: the call is made at its beginning or at its end.
struct Sync {
    file: FileId,
    result: Option<io::Result<()>>,
}

pub struct Run {
    pub disk: SimDisk,
    lines: Lines,
    log: Log,
    reader: ReaderId,
    pub writer: AofWriter,
    /// All bytes of the log from `start` on.
    start: LogOffset,
    pub bytes: Vec<u8>,
    pub now: Ms,
    files: HashMap<FileId, Arc<dyn File>>,
    call: Option<Output>,
    sync: Option<Sync>,
    failed_syncs: HashSet<FileId>,
    cut: Option<LogOffset>,
    pub durable: LogOffset,
    pub is_refusing: bool,
    pub has_exited: bool,
    pub flushes: u32,
    /// A sync has failed of what memory had no more.
    pub needs_base: bool,
}

impl Run {
    /// A writer on the files that a start has found: it continues there, or in files that await a base.
    pub fn new(
        disk: SimDisk,
        lines: Lines,
        policy: FsyncPolicy,
        found: Option<Recovered>,
        awaits_base: bool,
        now: Ms,
    ) -> Run {
        let empty = List { base: None, segments: Vec::new() };
        let (list, start, bytes) =
            found.map_or((empty, LogOffset(0), Vec::new()), |found| (found.list, found.start, found.bytes));
        let end = start + bytes.len() as u64;
        let mut files: HashMap<FileId, Arc<dyn File>> = HashMap::new();
        let writer = match list.segments.last().copied() {
            _ if awaits_base => AofWriter::awaiting_base(policy, list, end, now),
            Some(last) => {
                if let Ok(file) = disk.open(&path(last.file), Mode::Update) {
                    files.insert(last.file, file);
                }
                AofWriter::resume(policy, list, end, now)
            }
            None => AofWriter::new(policy, list, end, now),
        };
        let log = Log::new(end, 1 << 30);
        let reader = log.add_reader(ReaderKind::Writer, end).expect("the end");
        Run {
            disk,
            lines,
            log,
            reader,
            writer,
            start,
            bytes,
            now,
            files,
            call: None,
            sync: None,
            failed_syncs: HashSet::new(),
            cut: None,
            durable: end,
            is_refusing: false,
            has_exited: false,
            flushes: 0,
            needs_base: false,
        }
    }

    pub fn end(&self) -> LogOffset {
        self.start + self.bytes.len() as u64
    }

    /// The log's bytes between two places.
    pub fn slice(&self, from: LogOffset, to: LogOffset) -> &[u8] {
        &self.bytes[(from - self.start) as usize..(to - self.start) as usize]
    }

    /// Appends a transaction or a command with this value.
    pub fn append(&mut self, value: &[u8], in_transaction: bool) {
        let mut frame = Frame::default();
        let head = format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n${}\r\n", value.len());
        let set = [head.as_bytes(), value, b"\r\n"].concat();
        let (multi, exec) = (&b"*1\r\n$5\r\nMULTI\r\n"[..], &b"*1\r\n$4\r\nEXEC\r\n"[..]);
        let select = b"*2\r\n$6\r\nSELECT\r\n$1\r\n0\r\n";
        frame.push_wire(0, &set);
        let mut expected = set.clone();
        if in_transaction {
            frame.push(0, [&b"SET"[..], b"k", value].into_iter());
            expected = [multi, &set, &set, exec].concat();
        }
        let end = self.log.append(&mut frame).end;
        // After a cut it brings its SELECT.
        if end - self.end() > expected.len() as u64 {
            let at = if in_transaction { multi.len() } else { 0 };
            expected.splice(at..at, select.iter().copied());
        }
        self.bytes.extend_from_slice(&expected);
        assert_eq!(end, self.end());
    }

    pub fn cut(&mut self) {
        self.cut = Some(self.log.cut(true));
    }

    /// The snapshot of the last cut is complete.
    pub fn save_base(&mut self) {
        if let Some(cut) = self.cut.take() {
            self.input(Input::BaseSaved { base: cut.0, cut });
        }
    }

    pub fn collect(&mut self) {
        let mut collected = Vec::new();
        self.log.collect(|block| collected.push(block));
        for block in collected {
            self.input(match block {
                Collected::Frames(end, _) => Input::Collected(end),
                Collected::FileEnd(end, _) => Input::FileEnd(end),
            });
        }
    }

    pub fn input(&mut self, input: Input) {
        let mut outputs = Vec::new();
        self.writer.step(input, self.now, &mut outputs);
        self.writer.check_invariants();
        for output in outputs {
            self.output(output);
        }
    }

    fn output(&mut self, output: Output) {
        match output {
            Output::Create { .. } | Output::Write { .. } | Output::SetLen { .. } | Output::List(_) => {
                assert!(self.call.is_none(), "one call at a time");
                self.call = Some(output);
            }
            Output::Sync { file } => {
                assert!(self.sync.is_none(), "one sync at a time");
                assert!(!self.failed_syncs.contains(&file), "a failed sync is never repeated on its file");
                self.sync = Some(Sync { file, result: None });
            }
            Output::Close { file } => _ = self.files.remove(&file),
            // A file that is left behind does no harm.
            Output::Remove { file } => _ = self.disk.remove(&path(file)),
            Output::Durable(offset) => {
                assert!(self.durable < offset && offset <= self.writer.written(), "it only grows");
                self.durable = offset;
            }
            Output::Release(offset) => self.log.advance(self.reader, offset),
            Output::RefuseWrites(_) => {
                assert!(!self.is_refusing);
                self.is_refusing = true;
            }
            Output::AcceptWrites => {
                assert!(self.is_refusing);
                self.is_refusing = false;
            }
            Output::Flushed => self.flushes += 1,
            Output::BaseNeeded => self.needs_base = true,
            Output::GiveUp => assert!(self.is_refusing),
            Output::Exit(_) => self.has_exited = true,
        }
    }

    pub fn has_call(&self) -> bool {
        self.call.is_some()
    }

    pub fn has_sync(&self) -> bool {
        self.sync.is_some()
    }

    /// The log thread makes its call.
    pub fn make_call(&mut self) {
        let Some(call) = self.call.take() else { return };
        let input = match self.try_call(&call) {
            Ok(input) => input,
            Err(error) => Input::Failed { errno: error.raw_os_error().unwrap_or(0) },
        };
        if !self.disk.is_stopped() {
            self.input(input);
        }
    }

    fn try_call(&mut self, call: &Output) -> io::Result<Input> {
        match call {
            Output::Create { file } => {
                let opened = self.disk.open(&path(*file), Mode::Create)?;
                if !opened.is_empty()? {
                    opened.set_len(0)?;
                    opened.sync_all()?;
                }
                self.files.insert(*file, opened);
                Ok(Input::Done)
            }
            Output::Write { file, at, from, to } => {
                let pieces = self.log.read(*from, *to).expect("it is not released");
                let bytes: Vec<u8> = pieces.iter().flat_map(|piece| piece.to_vec()).collect();
                assert!(bytes == self.slice(*from, *to), "the log's own bytes");
                let record = record(self.lines, *at, self.writer.durable_bytes(), &bytes);
                write_all_at(&*self.files[file], &record, *at).map_err(|short| short.error)?;
                Ok(Input::Wrote { file_bytes: record.len() as u64 })
            }
            Output::SetLen { file, len } => {
                self.files[file].set_len(*len)?;
                Ok(Input::Done)
            }
            Output::List(list) => {
                write_list(&self.disk, list)?;
                Ok(Input::Done)
            }
            other => panic!("no call: {other:?}"),
        }
    }

    /// The sync thread moves: begins the call, or reports its result.
    pub fn move_sync(&mut self, prng: &mut Prng) {
        let Some(Sync { file, result }) = self.sync.take() else { return };
        match result {
            None if prng.one_in(2) => {
                let result = Some(self.files[&file].sync_data());
                self.sync = Some(Sync { file, result });
            }
            result => {
                let result = result.unwrap_or_else(|| self.files[&file].sync_data());
                if self.disk.is_stopped() {
                    return;
                }
                let input = match result {
                    Ok(()) => Input::Synced,
                    Err(error) => {
                        self.failed_syncs.insert(file);
                        Input::SyncFailed { errno: error.raw_os_error().unwrap_or(0) }
                    }
                };
                self.input(input);
            }
        }
    }

    pub fn pass(&mut self, ms: u64) {
        self.now = Ms(self.now.0 + ms);
        self.input(Input::Tick);
    }

    /// Everything moves until nothing is left to do.
    pub fn settle(&mut self) {
        let mut prng = Prng::new(1);
        self.collect();
        for _ in 0..10_000 {
            if self.has_call() {
                self.make_call();
            } else if self.has_sync() {
                self.move_sync(&mut prng);
            } else {
                return;
            }
        }
        panic!("the writer comes to no end");
    }
}
