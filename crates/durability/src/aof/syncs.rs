//! The thread that syncs the append-only file, one call at a time: the thread that writes never waits for it.

use isotherm_disk::File;
use isotherm_log::writer::FsyncPolicy;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError};

use isotherm_node::aof::request::Request;
use isotherm_node::aof::state::AofState;
use isotherm_node::effects::change_log::ChangeLog;
use isotherm_node::observe::latency::monitor::{Event, Spikes};
use isotherm_runtime::routines::Routine;

/// A file for the sync thread, and whether replies wait for it.
pub type ToSync = (Arc<dyn File>, FsyncPolicy);

/// The sync thread. A step is the call, or the report of its end.
pub struct Syncs {
    pub files: Receiver<ToSync>,
    pub state: &'static AofState,
    pub spikes: Spikes<'static>,
    pub log: &'static ChangeLog,
    pub next: Option<ToSync>,
    pub ended: Option<io::Result<()>>,
    pub is_over: bool,
}

impl Routine for Syncs {
    fn step(&mut self) -> bool {
        if let Some(synced) = self.ended.take() {
            self.state.inbox.post(self.log, Request::SyncEnded(synced));
            return true;
        }
        if self.next.is_none() {
            match self.files.try_recv() {
                Ok(next) => self.next = Some(next),
                Err(TryRecvError::Empty) => {}
                Err(TryRecvError::Disconnected) => self.is_over = true,
            }
        }
        if let Some((file, policy)) = self.next.take() {
            self.ended = Some(match policy {
                FsyncPolicy::Always => self.spikes.time(Event::AofFsyncAlways, || file.sync_data()),
                FsyncPolicy::EverySecond | FsyncPolicy::No => file.sync_data(),
            });
        }
        !self.is_over
    }

    fn rest(&mut self) {
        if self.ended.is_none() && self.next.is_none() {
            match self.files.recv() {
                Ok(next) => self.next = Some(next),
                Err(_) => self.is_over = true,
            }
        }
    }
}
