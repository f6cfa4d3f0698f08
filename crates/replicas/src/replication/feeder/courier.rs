//! The thread that reads and writes files for the feeder, which itself never waits for a disk.
//!
//! ```text
//!   feeder --Write, Read--> [ one job after the other ] --Read, Written--> the feeder's mailbox
//! ```
//! The courier has one write on its way at most, and one read for each replica. A disk that hangs holds up
//! the replicas that need its bytes; the others, and clients that wait for their ACKs, continue.
//!
//! The thread begins with the first job. Where the system gives none the feeder carries jobs out itself.

use isotherm_disk::Disk;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};

use crate::replication::spill::{FileRange, RingWrite};
use isotherm_node::Node;
use isotherm_node::mail::message::FeederMessage;

pub struct Courier {
    node: &'static Node,
    jobs: Option<Sender<Job>>,
    /// A write is on its way, or hangs.
    is_writing: bool,
}

enum Job {
    Write(RingWrite, PathBuf),
    Read { reader: Reader, range: FileRange, bytes: Vec<u8> },
}

/// Receiver of the bytes that are read: a replica by the number of its client, and the number of its read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reader {
    pub client: u64,
    pub read: u64,
}

impl Courier {
    pub fn new(node: &'static Node) -> Courier {
        Courier { node, jobs: None, is_writing: false }
    }

    pub fn is_writing(&self) -> bool {
        self.is_writing
    }

    pub fn write(&mut self, write: RingWrite) {
        assert!(!self.is_writing, "one after the other");
        self.is_writing = true;
        self.hand_on(Job::Write(write, self.node.store().folder()));
    }

    /// The last write has come to its end.
    pub fn note_written(&mut self) {
        self.is_writing = false;
    }

    /// `bytes` is a buffer to use.
    pub fn read(&mut self, reader: Reader, range: FileRange, bytes: Vec<u8>) {
        self.hand_on(Job::Read { reader, range, bytes });
    }

    fn hand_on(&mut self, job: Job) {
        let node = self.node;
        if self.jobs.is_none() {
            let (sender, jobs) = channel();
            let spawned = std::thread::Builder::new()
                .name("feeder-disk".into())
                .spawn(move || carry_out_all(node, &jobs));
            self.jobs = spawned.is_ok().then_some(sender);
        }
        match &self.jobs {
            Some(jobs) => jobs.send(job).expect("it ends with the process"),
            None => carry_out(node, job),
        }
    }
}

fn carry_out_all(node: &'static Node, jobs: &Receiver<Job>) {
    jobs.iter().for_each(|job| carry_out(node, job));
}

fn carry_out(node: &'static Node, job: Job) {
    let disk: &dyn Disk = &*node.persistence.disk;
    node.mail.post_feeder(match job {
        Job::Write(write, folder) => {
            FeederMessage::Written { generation: write.generation, file: write.run(disk, &folder) }
        }
        Job::Read { reader: Reader { client, read }, range, mut bytes } => {
            let outcome = range.read(&mut bytes);
            FeederMessage::Read { client, read, bytes: outcome.map(|()| bytes) }
        }
    });
}
