//! One replica: its socket, and what is sent to it.
//!
//! ```text
//!   to send    out (replies, the length of a file) | the snapshot | the log
//! ```
//! Bytes of the log are written from the log's own memory, those of a snapshot from the spool's.

use isotherm_log::{Log, LogOffset};
use isotherm_reactor::Stream;
use isotherm_reactor::stream::Progress;
use isotherm_replication::Ms;
use isotherm_replication::feed::{Act, Announced, Feed, FeedState, Waiting};
use isotherm_resp::Parser;
use std::sync::Arc;
use std::time::Instant;

use crate::replication::full_sync::{FullSync, Source, Written};
use crate::replication::primary::ReplicaShared;
use crate::replication::spill::Spill;
use crate::replication::spool::{Ended, Found};
use crate::replication::state::Place;

/// One replica sends so much before the others have their turn.
const TURN_BYTES_MAX: u64 = 4 << 20;
/// What is read of a file at once.
pub const FILE_PIECE_BYTES: usize = 256 << 10;

pub struct Replica {
    pub stream: Stream,
    pub shared: Arc<ReplicaShared>,
    pub announced: Announced,
    pub feed: Feed,
    /// While it waits for a cut.
    pub waiting: Waiting,
    /// For the log of the process.
    pub name: Box<str>,
    pub parser: Parser,
    pub input: Vec<u8>,
    /// Short things that come before all else.
    out: Vec<u8>,
    pub sync: Option<Arc<FullSync>>,
    /// How much of the snapshot was sent.
    sync_at: u64,
    /// What is sent of the log begins here; what is before is not needed for it any more.
    pub at: LogOffset,
    /// The log is sent.
    pub gets_log: bool,
    /// The socket has not refused bytes since the last event.
    pub is_writable: bool,
    /// So many bytes were sent.
    pub sent_bytes: u64,
    /// Its log begins here: what is before it has.
    begins: LogOffset,
    /// Since when it takes more memory than the soft limit.
    pub soft_since: Option<Instant>,
}

/// Why nothing more is sent now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sent {
    /// There is nothing to send.
    All,
    /// The socket takes no more.
    Full,
    /// There is more.
    Turn,
    /// The snapshot has come to nothing.
    SyncFailed,
    /// The bytes that it needs are not there any more.
    Gone,
    /// It has got what it wanted.
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

    /// Its snapshot is on its way.
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

    /// What it may lack if it comes back begins here.
    pub fn lacks(&self) -> LogOffset {
        self.at.min(self.feed.acked().max(self.begins))
    }

    /// Whether the log from `at` on is still to be sent to it.
    pub fn needs_log(&self) -> bool {
        !self.announced.wants_snapshot_only && self.feed.state() != FeedState::AwaitsCut
    }

    pub fn sync_at(&self) -> u64 {
        self.sync_at
    }

    /// Sends what the socket takes. The log can be read to `end`.
    pub fn send(&mut self, log: &Log, ring: &Spill, end: LogOffset, piece: &mut Vec<u8>, now: Ms) -> Sent {
        if !self.is_writable {
            return Sent::Full;
        }
        let turn_ends = self.sent_bytes + TURN_BYTES_MAX;
        if let Some(stopped) = self.send_out() {
            return stopped;
        }
        if matches!(self.feed.state(), FeedState::AwaitsFile | FeedState::Streams | FeedState::SendsFile) {
            match self.send_snapshot(piece, turn_ends, now) {
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
                Ok(pieces) => pieces.iter().find_map(|piece| self.send_log(piece)),
                Err(_) if ring.covers(self.at) && ring.read(self.at, piece).is_ok() => self.send_log(piece),
                Err(_) => return Sent::Gone,
            };
            if let Some(stopped) = stopped {
                return stopped;
            }
        }
        Sent::All
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
    fn send_snapshot(&mut self, piece: &mut Vec<u8>, turn_ends: u64, now: Ms) -> Sent {
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
            let (stopped, left, len) = match find(&sync.source, self.sync_at) {
                Found::Later => return Sent::All,
                Found::End(Ended::Whole) => {
                    self.sync = None;
                    return Sent::Done;
                }
                Found::End(Ended::Failed) => return Sent::SyncFailed,
                Found::Memory(bytes, from) => {
                    let bytes = &bytes[from..];
                    let (stopped, left) = self.write(bytes);
                    (stopped, left, bytes.len())
                }
                Found::File(file, place, len) => {
                    piece.resize(FILE_PIECE_BYTES.min(len as usize), 0);
                    match file.read_at(piece, place) {
                        Ok(count @ 1..) => {
                            let (stopped, left) = self.write(&piece[..count]);
                            (stopped, left, count)
                        }
                        Ok(0) | Err(_) => return Sent::SyncFailed,
                    }
                }
            };
            self.sync_at += (len - left) as u64;
            self.feed.note_taken(stopped == Some(Sent::Full), now);
            if let Some(stopped) = stopped {
                return stopped;
            }
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
