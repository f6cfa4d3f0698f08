//! Replica as the feeder knows it: its socket, and the bytes that are sent to it.
//!
//! ```text
//!   to send    out (replies, the length of a file) | the snapshot | the log
//! ```
//! Bytes of the log are written from the log's own memory, those of a snapshot from the spool's. Bytes in a
//! file are asked for, a piece at a time, and sent when the courier has read them.

use isotherm_log::{Log, LogOffset};
use isotherm_reactor::Stream;
use isotherm_reactor::stream::Progress;
use isotherm_replication::Ms;
use isotherm_replication::feed::{Act, Announced, Feed, FeedState, Waiting};
use isotherm_resp::Parser;
use std::io;
use std::sync::Arc;
use std::time::Instant;

use super::courier::{Courier, Reader};
use crate::replication::full_sync::{FullSync, Source, Written};
use crate::replication::spill::{FileRange, Spill};
use crate::replication::spool::{Ended, Found};
use isotherm_node::replication::primary::ReplicaShared;
use isotherm_node::replication::state::Place;

/// Maximum of bytes that one replica sends before the others have their turn.
const TURN_BYTES_MAX: u64 = 4 << 20;
/// Bytes that are read from a file at once.
pub const FILE_PIECE_BYTES: usize = 256 << 10;

pub struct Replica {
    pub stream: Stream,
    pub shared: Arc<ReplicaShared>,
    pub announced: Announced,
    pub feed: Feed,
    /// While it waits for a cut.
    pub waiting: Waiting,
    /// Name of the replica in the log of the process.
    pub name: Box<str>,
    pub parser: Parser,
    pub input: Vec<u8>,
    /// Short things that come before all else.
    out: Vec<u8>,
    pub sync: Option<Arc<FullSync>>,
    /// Bytes of the snapshot that were sent.
    sync_at: u64,
    /// Offset in the log of the next byte to send. The log before it is not needed for this replica any more.
    pub at: LogOffset,
    /// The log is sent.
    pub gets_log: bool,
    /// The socket has not refused bytes since the last event.
    pub is_writable: bool,
    /// Bytes that were sent.
    pub sent_bytes: u64,
    /// Offset at which the replica's log begins: it has everything before.
    begins: LogOffset,
    /// Since when it takes more memory than the soft limit.
    pub soft_since: Option<Instant>,
    /// Piece of a file that the replica gets.
    fetch: Option<Box<Fetch>>,
    /// Number of pieces of files that were asked for.
    reads: u64,
}

/// Sources of a replica's bytes.
pub struct Sources<'s> {
    pub log: &'s Log,
    pub ring: &'s Spill,
    pub courier: &'s mut Courier,
}

/// A piece of a file: asked for, or here.
struct Fetch {
    read: u64,
    of: FileOf,
    /// Start of the piece: an offset in the log, or in the snapshot.
    at: u64,
    state: FetchState,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum FileOf {
    /// The ring, of this generation.
    Ring(u64),
    Snapshot,
}

enum FetchState {
    Coming,
    Here(Vec<u8>),
    Failed,
}

/// Why nothing more is sent now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sent {
    /// No bytes are ready to be sent now.
    All,
    /// The socket takes no more.
    Full,
    /// More is to be sent, in the next turn.
    Turn,
    /// The snapshot has come to nothing.
    SyncFailed,
    /// The bytes that it needs are not there any more.
    Gone,
    /// The replica has got what it asked for.
    Done,
    Broken,
}

impl Replica {
    pub fn new(
        stream: Stream,
        shared: Arc<ReplicaShared>,
        announced: Announced,
        feed: Feed,
        name: Box<str>,
        now: Ms,
    ) -> Replica {
        let waiting = Waiting::new(&announced, now);
        Replica {
            stream,
            shared,
            announced,
            feed,
            waiting,
            name,
            parser: Parser::new(),
            input: Vec::new(),
            out: Vec::new(),
            sync: None,
            sync_at: 0,
            at: LogOffset(0),
            gets_log: false,
            is_writable: true,
            sent_bytes: 0,
            begins: LogOffset(0),
            soft_since: None,
            fetch: None,
            reads: 0,
        }
    }

    pub fn say(&mut self, text: &str) {
        self.out.extend_from_slice(text.as_bytes());
    }

    /// An empty line, unless there is something to send anyway.
    pub fn say_newline(&mut self) {
        if self.out.is_empty() {
            self.out.push(b'\n');
        }
    }

    /// Begins the full sync of the replica, whose snapshot is on its way.
    pub fn begin_sync(&mut self, sync: &Arc<FullSync>) {
        self.feed.cut(sync.group.transfer);
        (self.sync, self.sync_at) = (Some(Arc::clone(sync)), 0);
        self.begin_at(sync.place.offset);
        if !self.feed.is_old() {
            let Place { id, offset, .. } = sync.place;
            self.say(&format!("+FULLRESYNC {id} {offset}\r\n"));
        }
    }

    pub fn begin_at(&mut self, at: LogOffset) {
        (self.at, self.begins) = (at, at);
    }

    /// Returns the offset from which on the replica may lack the log if it comes back.
    pub fn lacks(&self) -> LogOffset {
        self.at.min(self.feed.acked().max(self.begins))
    }

    /// Returns whether the log from `at` on is still to be sent to the replica.
    pub fn needs_log(&self) -> bool {
        !self.announced.wants_snapshot_only && self.feed.state() != FeedState::AwaitsCut
    }

    pub fn sync_at(&self) -> u64 {
        self.sync_at
    }

    /// Sends what the socket takes. The log can be read to `end`.
    pub fn send(&mut self, sources: Sources<'_>, end: LogOffset, now: Ms) -> Sent {
        let Sources { log, ring, courier } = sources;
        if !self.is_writable {
            return Sent::Full;
        }
        let turn_ends = self.sent_bytes + TURN_BYTES_MAX;
        if let Some(stopped) = self.send_out() {
            return stopped;
        }
        if matches!(self.feed.state(), FeedState::AwaitsFile | FeedState::Streams | FeedState::SendsFile) {
            match self.send_snapshot(courier, turn_ends, now) {
                Sent::Done => match self.feed.snapshot_sent(now) {
                    Act::SendLog => self.gets_log = true,
                    Act::Close(_) => return Sent::Done,
                    Act::Nothing | Act::SendNewline => {}
                },
                stopped => return stopped,
            }
        }
        if !self.gets_log {
            return Sent::All;
        }
        while self.at < end {
            if self.sent_bytes >= turn_ends {
                return Sent::Turn;
            }
            let to = end.min(self.at + TURN_BYTES_MAX);
            let stopped = match log.read(self.at, to) {
                Ok(pieces) => {
                    self.fetch = None;
                    pieces.iter().find_map(|piece| self.send_log(piece))
                }
                Err(_) => self.send_ring(ring, courier),
            };
            if let Some(stopped) = stopped {
                return stopped;
            }
        }
        Sent::All
    }

    /// Sends the part of the log that the replica lacks and that has left memory.
    fn send_ring(&mut self, ring: &Spill, courier: &mut Courier) -> Option<Sent> {
        let (of, at) = (FileOf::Ring(ring.generation()), self.at.0);
        // Bytes that are on their way, or here, are right even where the ring has been written over since.
        if !self.has_fetched(of, at) && !ring.covers(self.at) {
            return Some(Sent::Gone);
        }
        let (stopped, sent_bytes) = self.send_fetched(of, at, courier, || ring.range_at(LogOffset(at)));
        self.at = self.at + sent_bytes;
        if stopped == Some(Sent::SyncFailed) { Some(Sent::Gone) } else { stopped }
    }

    fn send_log(&mut self, bytes: &[u8]) -> Option<Sent> {
        let (stopped, left) = self.write(bytes);
        self.at = self.at + (bytes.len() - left) as u64;
        stopped
    }

    fn send_out(&mut self) -> Option<Sent> {
        let out = std::mem::take(&mut self.out);
        let (stopped, left) = self.write(&out);
        self.out = out[out.len() - left..].to_vec();
        stopped
    }

    /// `Done` when all of it is sent.
    fn send_snapshot(&mut self, courier: &mut Courier, turn_ends: u64, now: Ms) -> Sent {
        let Some(sync) = self.sync.clone() else { return Sent::All };
        if self.feed.state() == FeedState::AwaitsFile
            && let Source::File(slot) = &sync.source
        {
            match slot.written() {
                None => return Sent::All,
                Some(Written::Failed) => return Sent::SyncFailed,
                Some(Written::File(_, len)) => {
                    self.feed.file_is_there();
                    self.say(&format!("${len}\r\n"));
                    if let Some(stopped) = self.send_out() {
                        return stopped;
                    }
                }
            }
        }
        loop {
            if self.sent_bytes >= turn_ends {
                return Sent::Turn;
            }
            let (stopped, sent_bytes) = match find(&sync.source, self.sync_at) {
                Found::Later => return Sent::All,
                Found::End(Ended::Whole) => {
                    (self.sync, self.fetch) = (None, None);
                    return Sent::Done;
                }
                Found::End(Ended::Failed) => return Sent::SyncFailed,
                Found::Memory(bytes, from) => {
                    let bytes = &bytes[from..];
                    let (stopped, left) = self.write(bytes);
                    (stopped, (bytes.len() - left) as u64)
                }
                Found::File(file, place, len) => {
                    let len = FILE_PIECE_BYTES.min(len as usize);
                    self.send_fetched(FileOf::Snapshot, self.sync_at, courier, || FileRange {
                        file,
                        place,
                        len,
                    })
                }
            };
            self.sync_at += sent_bytes;
            self.feed.note_taken(stopped == Some(Sent::Full), now);
            if let Some(stopped) = stopped {
                return stopped;
            }
        }
    }

    // ---- what comes from files ----

    /// Returns whether the bytes at `at` are here, or on their way.
    fn has_fetched(&self, of: FileOf, at: u64) -> bool {
        self.fetch.as_ref().is_some_and(|fetch| fetch.of == of && fetch.has(at))
    }

    /// Sends what is here of a file from `at` on, or asks for it: then nothing is sent, and nothing is to be
    /// sent before it is here. Returns what stopped it, and how many bytes were sent.
    fn send_fetched(
        &mut self,
        of: FileOf,
        at: u64,
        courier: &mut Courier,
        range: impl FnOnce() -> FileRange,
    ) -> (Option<Sent>, u64) {
        let fetch = self.fetch.take();
        match fetch {
            Some(fetch) if fetch.of == of && fetch.has(at) => {
                let result = match &fetch.state {
                    FetchState::Coming => (Some(Sent::All), 0),
                    FetchState::Failed => (Some(Sent::SyncFailed), 0),
                    FetchState::Here(bytes) => {
                        let bytes = &bytes[(at - fetch.at) as usize..];
                        let (stopped, left) = self.write(bytes);
                        (stopped, (bytes.len() - left) as u64)
                    }
                };
                self.fetch = Some(fetch);
                result
            }
            other => {
                let buffer = match other.map(|fetch| fetch.state) {
                    Some(FetchState::Here(bytes)) => bytes,
                    _ => Vec::new(),
                };
                self.reads += 1;
                let read = self.reads;
                courier.read(Reader { client: self.shared.client.id, read }, range(), buffer);
                self.fetch = Some(Box::new(Fetch { read, of, at, state: FetchState::Coming }));
                (Some(Sent::All), 0)
            }
        }
    }

    /// A piece of a file has come. One that is not waited for any more is dropped.
    pub fn take_read(&mut self, reader: Reader, bytes: io::Result<Vec<u8>>) {
        if let Some(fetch) = self.fetch.as_mut().filter(|fetch| fetch.read == reader.read) {
            fetch.state = bytes.map_or(FetchState::Failed, FetchState::Here);
        }
    }

    /// Writes what the socket takes. Returns what stopped it, and how many bytes are left.
    fn write(&mut self, bytes: &[u8]) -> (Option<Sent>, usize) {
        let mut written = 0;
        while written < bytes.len() {
            match self.stream.write(&bytes[written..]) {
                Progress::Bytes(count) => {
                    written += count;
                    self.sent_bytes += count as u64;
                }
                Progress::Later => {
                    self.is_writable = false;
                    return (Some(Sent::Full), bytes.len() - written);
                }
                Progress::Ended | Progress::Broken(_) => return (Some(Sent::Broken), bytes.len() - written),
            }
        }
        (None, 0)
    }
}

impl Fetch {
    /// Returns whether the piece has the byte at `at`, or will have it.
    fn has(&self, at: u64) -> bool {
        match &self.state {
            FetchState::Here(bytes) => (self.at..self.at + bytes.len() as u64).contains(&at),
            FetchState::Coming | FetchState::Failed => self.at == at,
        }
    }
}

fn find(source: &Source, at: u64) -> Found {
    match source {
        Source::Spool(spool) => spool.find(at),
        Source::File(slot) => match slot.written() {
            Some(Written::File(file, len)) if at < len => Found::File(file, at, len - at),
            Some(Written::File(..)) => Found::End(Ended::Whole),
            Some(Written::Failed) => Found::End(Ended::Failed),
            None => Found::Later,
        },
    }
}
