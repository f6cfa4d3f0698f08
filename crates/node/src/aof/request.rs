//! Requests of other threads to the thread that writes the append-only file.

use isotherm_disk::File;
use isotherm_log::LogOffset;
use isotherm_log::writer::FsyncPolicy;
use isotherm_persist::aof::manifest::AofFile;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use crate::effects::change_log::{ChangeLog, LogReader};

pub enum Request {
    Policy(FsyncPolicy),
    BaseSaved(Base),
    /// The sync thread is done.
    SyncEnded(io::Result<()>),
    /// The next log file, which is prepared, and its bytes.
    Prepared(io::Result<(Arc<dyn File>, u64)>),
    /// All that was logged is to be synced, under every policy.
    Flush,
    /// All up to this place is to be synced, then the thread ends. The log after it is for other readers.
    Stop(Stop),
    /// The thread ends as soon as the disk answers.
    Abandon,
}

#[derive(Clone, Copy)]
pub struct Stop {
    pub end: LogOffset,
    /// The manifest says that the log was switched off then.
    pub ended: Option<Moment>,
}

/// The moment at which the log has its last command.
#[derive(Clone, Copy)]
pub struct Moment {
    pub seconds: i64,
    /// RDB files that had been replaced.
    pub replaced: u64,
    pub is_saving: bool,
    /// Number of the log in RDB files.
    pub log: Option<u64>,
}

/// A new base, which is complete and durable.
pub struct Base {
    pub file: AofFile,
    /// Place of the log at which its contents end.
    pub cut: LogOffset,
    /// Work that follows when the base is listed.
    pub finish: Box<dyn FnOnce() + Send>,
}

/// Requests for the writer, which sleeps until there is one.
#[derive(Default)]
pub struct Inbox {
    requests: Mutex<Vec<Request>>,
}

impl Inbox {
    pub fn post(&self, log: &ChangeLog, request: Request) {
        self.push(request);
        log.wake(LogReader::Aof);
    }

    fn push(&self, request: Request) {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).push(request);
    }

    pub fn take(&self) -> Vec<Request> {
        std::mem::take(&mut self.requests.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
