//! A snapshot for replicas: one cut for all that wait for one.
//!
//! ```text
//!   stream    cut --walk--> spool ($EOF:mark, RDB, mark) --> replicas, while it is made
//!   file      cut --walk--> dump.rdb --> replicas, with its length first, once it is there
//! ```
//! The cut is made by the thread that feeds replicas, the walk by a thread of its own. There is one walk at a
//! time, for whatever it is: a sync waits for a save or a rewrite of the AOF.

use isotherm_disk::File;
use isotherm_keyspace::Held;
use isotherm_replication::feed::{Group, Transfer};
use std::io;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::spool::{Ended, Spool};
use isotherm_durability::persistence::background;
use isotherm_durability::persistence::background::Asked;
use isotherm_durability::persistence::save;
use isotherm_durability::persistence::save::{Cut, SaveError, Streaming};
use isotherm_engine::request::leases::try_gate;
use isotherm_node::Node;
use isotherm_node::mail::message::FeederMessage;
use isotherm_node::persistence::state::Job;
use isotherm_node::replication::state::Place;
use isotherm_runtime::log::{self, os_text};
use isotherm_runtime::random::random_bytes;
use isotherm_runtime::routines::{self, Routine};

/// Time that the walk rests while neither memory nor the disk has room for its output.
const FULL_REST: Duration = Duration::from_millis(20);

pub struct FullSync {
    pub place: Place,
    pub source: Source,
    /// Kind of snapshot that the replicas of this sync asked for.
    pub group: Group,
}

pub enum Source {
    Spool(Arc<Spool>),
    File(Arc<FileSlot>),
}

/// The file with the snapshot, once it is written.
#[derive(Default)]
pub struct FileSlot(Mutex<Option<Written>>);

#[derive(Clone)]
pub enum Written {
    /// With its length.
    File(Arc<dyn File>, u64),
    Failed,
}

impl FileSlot {
    pub fn written(&self) -> Option<Written> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, written: Written) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(written);
    }
}

pub enum Begun {
    Started(FullSync),
    /// Something else walks the keyspace.
    Busy,
    Failed,
}

/// Makes the cut and begins the walk. The caller holds nothing.
pub fn begin(node: &'static Node, group: Group) -> Begun {
    let job = match group.transfer {
        Transfer::Stream => Job::Stream,
        Transfer::File => Job::BackgroundSave,
    };
    let mut held = Held::new(&node.keyspace);
    // The thread that feeds replicas waits for no script: it asks again.
    if !try_gate(node, &mut held) || !node.persistence.begin(job) {
        return Begun::Busy;
    }
    let target = if job == Job::Stream { "replicas sockets" } else { "disk" };
    log::notice(format!("Starting BGSAVE for SYNC with target: {target} using: normal sync"));
    let cut = save::cut(node.store(), &mut held, node.used_memory_bytes());
    held.release();
    let Some((cut, place)) = cut.and_then(|cut| cut.place.map(|place| (cut, place))) else {
        return failed(node);
    };
    let source = match job {
        Job::Stream => begin_stream(node, cut, &group),
        _ => begin_file(node, cut),
    };
    match source {
        Some(source) => Begun::Started(FullSync { place, source, group }),
        None => failed(node),
    }
}

fn begin_stream(node: &'static Node, cut: Cut, group: &Group) -> Option<Source> {
    let mark: String = match random_bytes::<20>() {
        Ok(random) => random.iter().map(|byte| format!("{byte:02x}")).collect(),
        Err(why) => {
            log::warning(why);
            return None;
        }
    };
    let total = Arc::clone(&node.replication.primary.spool_bytes);
    let spool = Arc::new(Spool::new(Arc::clone(&node.persistence.disk), node.store().folder(), total));
    let streaming = Streaming::new(node.store(), cut, group.is_80, group.filter);
    let walk = Walk { node, streaming, spool: Arc::clone(&spool), mark, has_begun: false };
    match routines::start("repl-sync", walk) {
        Ok(_) => {
            let pid = std::process::id();
            log::notice(format!(
                "Background RDB transfer started by pid {pid} to pipe through parent process"
            ));
            Some(Source::Spool(spool))
        }
        Err(error) => {
            log::warning(format!("Can't save in background: {}", os_text(&error)));
            None
        }
    }
}

fn begin_file(node: &'static Node, cut: Cut) -> Option<Source> {
    let slot = Arc::new(FileSlot::default());
    let filled = Arc::clone(&slot);
    let then = move |written: Option<io::Result<Arc<dyn File>>>| {
        filled.set(written.map_or(Written::Failed, of_file));
        node.mail.post_feeder(FeederMessage::Walked);
    };
    match background::write_in_background(node.store(), cut, Box::new(then)) {
        Asked::Started => Some(Source::File(slot)),
        Asked::Busy | Asked::Failed => None,
    }
}

/// A replica leaves before it has the whole snapshot. One that no other takes is not made to its end.
pub fn leave(node: &Node, sync: &Arc<FullSync>) {
    let Source::Spool(spool) = &sync.source else { return };
    // No other walk begins meanwhile.
    let saving = node.persistence.saving();
    if Arc::strong_count(sync) == 1 && !spool.has_ended() {
        log::notice("Diskless rdb transfer, last replica dropped, killing fork child.");
        node.persistence.is_cancelled.store(true, Relaxed);
    }
    drop(saving);
}

fn failed(node: &Node) -> Begun {
    log::warning("BGSAVE for replication failed");
    node.persistence.saving().running = None;
    Begun::Failed
}

/// The walk of a snapshot that is sent while it is made.
struct Walk {
    node: &'static Node,
    streaming: Streaming,
    spool: Arc<Spool>,
    mark: String,
    has_begun: bool,
}

impl Routine for Walk {
    fn step(&mut self) -> bool {
        let stepped = self.try_step();
        if let Ok(true) = stepped {
            return true;
        }
        match &stepped {
            Ok(_) => log::notice("Background RDB transfer terminated with success"),
            Err(_) => log::warning("Background RDB transfer error"),
        }
        self.spool.finish(if stepped.is_ok() { Ended::Whole } else { Ended::Failed });
        self.node.persistence.saving().running = None;
        self.node.mail.post_feeder(FeederMessage::Walked);
        false
    }
}

impl Walk {
    /// Takes one step of the walk. Returns whether there is more.
    fn try_step(&mut self) -> Result<bool, SaveError> {
        let Walk { node, streaming, spool, mark, has_begun } = self;
        let mut put = |bytes: &mut Vec<u8>| put(node, spool, bytes);
        if !std::mem::replace(has_begun, true) {
            put(&mut format!("$EOF:{mark}\r\n").into_bytes())?;
        }
        let has_more = streaming.step(&mut put)?;
        if !has_more {
            put(&mut mark.clone().into_bytes())?;
        }
        Ok(has_more)
    }
}

/// The walk waits only where neither memory nor the disk has room.
fn put(node: &Node, spool: &Spool, bytes: &mut Vec<u8>) -> Result<(), SaveError> {
    let mut has_said_so = false;
    while let Err(error) = spool.append(bytes) {
        if !std::mem::replace(&mut has_said_so, true) {
            log::warning(format!(
                "The snapshot for replicas waits: its file can't be written: {}",
                os_text(&error)
            ));
        }
        if node.persistence.is_cancelled.load(Relaxed) {
            return Err(SaveError::Cancelled);
        }
        routines::pause(FULL_REST);
    }
    node.mail.post_feeder(FeederMessage::Walked);
    Ok(())
}

fn of_file(opened: io::Result<Arc<dyn File>>) -> Written {
    let opened = opened.and_then(|file| Ok(Written::File(Arc::clone(&file), file.len()?)));
    opened.unwrap_or_else(|error| {
        log::warning(format!("SYNC failed. Can't open DB after BGSAVE: {}", os_text(&error)));
        Written::Failed
    })
}
