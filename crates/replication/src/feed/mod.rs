//! One replica, as its primary sees it.
//!
//! ```text
//!   REPLCONF ...      what it says of itself (`Announced`)
//!   PSYNC id offset   may it go on? (`History::resume`)    yes: Online
//!        | no
//!        v
//!   AwaitsCut ---cut---> AwaitsFile ---file---> SendsFile ---+--> AwaitsAck ---ACK---> Online
//!   \n each second        \n each second                     |    (a mark ended the snapshot)
//!               \------stream------> Streams ----------------+--> Online               (its length was known)
//!                                                            +--> Sent                 (it wanted nothing else)
//! ```
//! A snapshot that ends with a mark is followed by nothing until the replica has acknowledged it: so the
//! replica finds the mark as the last bytes that it has read.
//!
//! An ACK says what the replica has applied (and `fack`, what it has synced). Both only grow; one beyond the
//! end of the log, or below the last one, is not believed.

mod announced;
mod due;
mod request;

pub use announced::{Announced, Capabilities, Filter, Members, Refused, Said};
pub use due::{Group, Terms, Waiting, next_group};
pub use request::{SyncRequest, WrongRequest};

use isotherm_log::LogOffset;

use crate::Ms;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FeedState {
    AwaitsCut,
    AwaitsFile,
    SendsFile,
    Streams,
    AwaitsAck,
    Online,
    Sent,
}

impl FeedState {
    /// Returns the name of the state as INFO shows it.
    pub fn name(self) -> &'static str {
        match self {
            FeedState::AwaitsCut | FeedState::AwaitsFile | FeedState::Streams => "wait_bgsave",
            FeedState::SendsFile => "send_bulk",
            FeedState::AwaitsAck | FeedState::Online => "online",
            FeedState::Sent => "rdb_transmitted",
        }
    }

    /// Returns whether the replica counts among those that have the data.
    pub fn is_online(self) -> bool {
        matches!(self, FeedState::AwaitsAck | FeedState::Online)
    }
}

/// Way in which the end of the snapshot is found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transfer {
    /// Snapshot in a file, sent after its length.
    File,
    /// Snapshot sent while it is made, and ended by a mark.
    Stream,
}

/// Action that the caller takes now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Act {
    Nothing,
    /// An empty line keeps the link alive; it is no part of what is counted.
    SendNewline,
    /// The log follows, from the place of the snapshot on.
    SendLog,
    Close(Closing),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Closing {
    /// Completed transfer to a replica that wanted a snapshot only.
    HasSnapshot,
    /// Silence of an online replica: it has acknowledged nothing for too long.
    SilentOnline,
    /// Silence of a replica in its sync: it has taken no byte of the snapshot for too long.
    SilentInSync,
}

pub struct Feed {
    wants_snapshot_only: bool,
    /// True if the replica has sent SYNC instead of PSYNC: such a replica acknowledges nothing.
    is_old: bool,
    state: FeedState,
    /// True if the replica acknowledged before this node noticed the end of its snapshot.
    has_acked: bool,
    acked: LogOffset,
    synced: LogOffset,
    heard: Ms,
    /// Since when its socket takes nothing of the snapshot.
    stalled: Option<Ms>,
}

impl Feed {
    /// Builds the feed of a replica that waits for the next cut.
    pub fn full(announced: &Announced, request: &SyncRequest, now: Ms) -> Feed {
        Feed {
            wants_snapshot_only: announced.wants_snapshot_only,
            is_old: matches!(request, SyncRequest::Sync),
            state: FeedState::AwaitsCut,
            has_acked: false,
            acked: LogOffset(0),
            synced: LogOffset(0),
            heard: now,
            stalled: None,
        }
    }

    /// Builds the feed of a replica that continues without a snapshot.
    pub fn resumed(announced: &Announced, request: &SyncRequest, now: Ms) -> Feed {
        Feed { state: FeedState::Online, ..Feed::full(announced, request, now) }
    }

    pub fn state(&self) -> FeedState {
        self.state
    }

    pub fn acked(&self) -> LogOffset {
        self.acked
    }

    /// Returns the offset up to which the replica has synced its append-only file.
    pub fn synced(&self) -> LogOffset {
        self.synced
    }

    /// Returns the time when the replica was last heard of, or came online.
    pub fn heard(&self) -> Ms {
        self.heard
    }

    pub fn is_old(&self) -> bool {
        self.is_old
    }

    /// Records that the cut for this replica was made.
    pub fn cut(&mut self, transfer: Transfer) {
        assert_eq!(self.state, FeedState::AwaitsCut, "one cut for each sync");
        self.state = match transfer {
            Transfer::File => FeedState::AwaitsFile,
            Transfer::Stream => FeedState::Streams,
        };
    }

    /// The cut came to nothing, before a byte was sent: it waits for another one.
    pub fn cut_again(&mut self) {
        assert!(matches!(self.state, FeedState::AwaitsFile | FeedState::Streams));
        self.state = FeedState::AwaitsCut;
    }

    /// The file with its snapshot is there.
    pub fn file_is_there(&mut self) {
        assert_eq!(self.state, FeedState::AwaitsFile);
        self.state = FeedState::SendsFile;
    }

    /// Records that the replica's socket has taken some of the snapshot, or (`is_stalled`) takes no more.
    pub fn note_taken(&mut self, is_stalled: bool, now: Ms) {
        self.stalled = if is_stalled { Some(self.stalled.unwrap_or(now)) } else { None };
    }

    /// Records that the replica's socket has taken the last byte of the snapshot.
    pub fn snapshot_sent(&mut self, now: Ms) -> Act {
        let ends_with_mark = self.state == FeedState::Streams;
        assert!(ends_with_mark || self.state == FeedState::SendsFile);
        (self.heard, self.stalled) = (now, None);
        if self.wants_snapshot_only {
            self.state = FeedState::Sent;
            return Act::Close(Closing::HasSnapshot);
        }
        let awaits_ack = ends_with_mark && !self.has_acked;
        self.state = if awaits_ack { FeedState::AwaitsAck } else { FeedState::Online };
        if awaits_ack { Act::Nothing } else { Act::SendLog }
    }

    /// REPLCONF ACK. The log ends at `end`.
    pub fn ack(&mut self, acked: LogOffset, synced: Option<LogOffset>, end: LogOffset, now: Ms) -> Act {
        // COMPAT(replication): An acknowledgement beyond the end of the log counts for nothing; Valkey
        // believes it. Why: WAIT would count a replica that has another history.
        let grown = |before: LogOffset, said: LogOffset| if said <= end { before.max(said) } else { before };
        self.acked = grown(self.acked, acked);
        self.synced = synced.map_or(self.synced, |synced| grown(self.synced, synced));
        self.heard = now;
        if self.state != FeedState::AwaitsAck {
            self.has_acked = true;
            return Act::Nothing;
        }
        self.state = FeedState::Online;
        Act::SendLog
    }

    /// Once a second. `timeout_ms`: `repl-timeout`.
    pub fn tick(&mut self, now: Ms, timeout_ms: u64) -> Act {
        let is_over = |since: Ms| now.0.saturating_sub(since.0) > timeout_ms;
        match self.state {
            FeedState::AwaitsCut | FeedState::AwaitsFile => Act::SendNewline,
            FeedState::Streams if self.stalled.is_some_and(is_over) => Act::Close(Closing::SilentInSync),
            FeedState::AwaitsAck | FeedState::Online if !self.is_old && is_over(self.heard) => {
                Act::Close(Closing::SilentOnline)
            }
            _ => Act::Nothing,
        }
    }

    pub fn check_invariants(&self, end: LogOffset) {
        assert!(self.acked <= end && self.synced <= end);
        assert!(self.state != FeedState::Sent || self.wants_snapshot_only);
    }
}

#[cfg(test)]
mod tests;
