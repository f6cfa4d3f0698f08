//! The thread that writes nodes.conf (`conf_file`).
//!
//! A save that is not waited for is skipped if a later one waits already.

use isotherm_cluster::conf::{self, Conf};
use isotherm_cluster::machine::CommitNumber;
use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use super::conf_file::ConfFile;
use isotherm_config::id;
use isotherm_node::Node;
use isotherm_node::cluster::requests::{BusMessage, BusSender};
use isotherm_runtime::log::{self, os_text};

pub struct Job {
    /// The number that is waited for, if the save is.
    pub number: Option<CommitNumber>,
    pub conf: Box<Conf>,
}

/// Shortest time between two logged failures.
const COMPLAINT: Duration = Duration::from_secs(30);

struct Saver {
    node: &'static Node,
    bus: BusSender,
    file: ConfFile,
    complained: Option<Instant>,
}

pub fn start(node: &'static Node, bus: BusSender, file: ConfFile) -> io::Result<Sender<Job>> {
    let (sender, jobs) = channel();
    let saver = Saver { node, bus, file, complained: None };
    std::thread::Builder::new().name("cluster-conf".into()).spawn(move || saver.run(&jobs))?;
    Ok(sender)
}

impl Saver {
    fn run(mut self, jobs: &Receiver<Job>) {
        while let Ok(first) = jobs.recv() {
            let waiting: Vec<Job> = std::iter::once(first).chain(jobs.try_iter()).collect();
            let numbers: Vec<CommitNumber> = waiting.iter().filter_map(|job| job.number).collect();
            let newest = waiting.last().expect("there is the first");
            let saved = self.file.write(&conf::write(&newest.conf), !numbers.is_empty());
            self.note(saved);
            numbers.into_iter().for_each(|number| self.bus.post(BusMessage::Saved(number)));
        }
    }

    fn note(&mut self, saved: io::Result<()>) {
        let member = self.node.cluster.get().expect("the file belongs to a member of a cluster");
        member.bus.note_save(saved.is_ok());
        let Err(error) = saved else { return };
        let is_strict = self.node.config.number(const { id("cluster-config-save-behavior") }) == 0;
        if is_strict {
            log::warning(format!("Could not save the cluster config file: {}", os_text(&error)));
            log::warning("Fatal: can't update cluster config file.");
            std::process::exit(1);
        }
        if self.complained.is_none_or(|at| at.elapsed() > COMPLAINT) {
            self.complained = Some(Instant::now());
            log::warning(format!(
                "Cluster config updated even though writing the cluster config file failed: {}",
                os_text(&error)
            ));
        }
    }
}
