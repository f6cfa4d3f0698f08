//! State of saves and loads that all threads see, and [`Store`], the parts of the node that they work with.

pub mod state;

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
