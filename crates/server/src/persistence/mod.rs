//! Data that is written to disk and read at start: the RDB file.
//!
//! ```text
//! SAVE, save points, BGSAVE --> cut (all partitions held for a moment) --> Snapshot
//!                                                                             |
//!      under one partition's lock, some hundred items a step:            ItemWriter --> bytes in memory
//!      with no lock:                                                     temp-<pid>.rdb, sum, fsync, rename, fsync of the folder
//!
//! start --> dump.rdb in portions --> FileReader --> load_piece --> keyspace;   clients hear -LOADING meanwhile
//! ```
//! `save` writes a file, `background` decides when and on which thread, and `load` reads one. `state` answers
//! the questions of others, and `watch` writes the progress to the log. Nothing here knows a session or the
//! node: it gets [`Store`], the parts that it needs.
//!
//! **Invariants.** The file of that name is always a whole one: a save that fails or is ended leaves the one
//! before. A file that cannot be read ends the start: nothing half loaded is served. One save runs at a time.

mod away;
pub mod background;
mod delay;
mod items;
pub mod load;
pub mod report;
pub mod room;
pub mod save;
pub mod state;
pub mod watch;

use isotherm_keyspace::Keyspace;
use std::path::PathBuf;
use std::sync::Arc;

use crate::effects::change_log::ChangeLog;
use crate::mail::Mail;
use crate::observe::latency::monitor::Spikes;
use crate::observe::stats::Stats;
use crate::replication::state::Replication;
use crate::request::reply_gate::ReplyGate;
use crate::scripting::libraries::Libraries;
use crate::tier::Tier;
use isotherm_config::Config;
use state::Persistence;

/// Parts of the node that saving and loading work with.
#[derive(Clone, Copy)]
pub struct Store<'n> {
    pub keyspace: &'n Keyspace,
    pub config: &'n Config,
    pub stats: &'n Stats,
    pub mail: &'n Mail,
    pub state: &'n Persistence,
    pub spikes: Spikes<'n>,
    pub log: &'n ChangeLog,
    pub replication: &'n Replication,
    pub gate: &'n ReplyGate,
    pub libraries: &'n Libraries,
    pub tier: Option<&'n Arc<Tier>>,
    /// The Valkey whose format is written.
    pub valkey_version: &'static str,
}

impl Store<'_> {
    /// Returns the folder of the file. The path is absolute, since the working directory may change.
    pub fn folder(&self) -> PathBuf {
        self.config.folder()
    }

    pub fn file(&self) -> PathBuf {
        self.folder().join(self.config.db_filename())
    }
}
