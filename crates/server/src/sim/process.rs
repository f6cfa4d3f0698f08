//! Life of the server: from its start on a disk to the moment when it is gone.

use isotherm_cluster::NodeId;
use isotherm_cluster::topology::Address;
use isotherm_disk::{Disk, SimDisk};
use isotherm_keyspace::{Config as Layout, Keyspace};
use isotherm_log::LogOffset;
use isotherm_reactor::Mailbox;
use isotherm_resp::{Args, Limits, Parsed, Parser};
use isotherm_stdx::Prng;
use std::cell::RefCell;
use std::ffi::OsString;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::state::{self, State};
use crate::admin;
use crate::process::{start, swap_start};
use crate::worker;
use isotherm_config::file::{self, Start};
use isotherm_durability::aof;
use isotherm_durability::persistence::background;
use isotherm_engine::request::dispatch::Dispatcher;
use isotherm_node::cluster::state::{ClusterState, alone};
use isotherm_node::effects::pump::Pump;
use isotherm_node::mail::Mail;
use isotherm_node::mail::message::{ControlMessage, WorkerMessage};
use isotherm_node::mail::tasks::Tasks;
use isotherm_node::request::next::{Came, Next, Ticket, WaitReason};
use isotherm_node::request::registry::Commands;
use isotherm_node::session::{ClientShared, Session, Transport};
use isotherm_node::{Node, Parts};
use isotherm_replicas::replication::role;
use isotherm_runtime::routines;
use isotherm_runtime::time::unix_now;

const WORKERS: usize = 2;
const PARTITIONS: usize = 4;
/// Most runs of one command.
const READS_MAX: u32 = 100;
pub const DATABASES: u16 = 3;
/// The history of a life is read from the log's memory.
const BACKLOG_BYTES: u64 = 1 << 30;

/// Objects that all lives of one thread share, because they cost descriptors or are never freed.
struct Lasting {
    commands: Commands,
    workers: Vec<(isotherm_reactor::Events, Mailbox<WorkerMessage>)>,
    control: (isotherm_reactor::Events, Mailbox<ControlMessage>),
}

thread_local! {
    static LASTING: Lasting = {
        let events = isotherm_reactor::Events::new().expect("an event loop");
        let mailbox = events.mailbox().expect("a mailbox");
        Lasting {
            commands: Commands::build(admin::COMMANDS),
            workers: worker::mailboxes(WORKERS).expect("mailboxes"),
            control: (events, mailbox),
        }
    };
}

pub struct Process {
    pub node: &'static Node,
    workers: Vec<Dispatcher>,
    sessions: Vec<Session>,
    expires: Pump,
    partition: u16,
    disk: SimDisk,
    /// The data when it was last looked at.
    last: RefCell<State>,
}

/// Answer to a client.
pub struct Answer {
    pub reply: Vec<u8>,
    /// Offset up to which the log must be durable before the reply leaves.
    pub not_before: LogOffset,
    pub was_gated: bool,
    /// True if the command could not run now.
    pub is_parked: bool,
}

impl Answer {
    pub fn is_error(&self) -> bool {
        self.reply.starts_with(b"-")
    }
}

/// Each life has a history of its own; what it is called changes nothing else.
pub fn next_name() -> [u8; 20] {
    static LIVES: AtomicU64 = AtomicU64::new(0);
    let mut name = [0; 20];
    name[..8].copy_from_slice(&LIVES.fetch_add(1, Relaxed).to_be_bytes());
    name
}

impl Process {
    /// Starts a process with these parameters, as `process::start` does. Says why it could not.
    pub fn start(disk: &SimDisk, parameters: &[String], seed: u64) -> Result<Process, String> {
        routines::simulated::begin(seed);
        let fixed = ["--save", "", "--databases", &DATABASES.to_string(), "--enable-debug-command", "yes"]
            .map(String::from);
        let arguments: Vec<OsString> = fixed.iter().chain(parameters).map(OsString::from).collect();
        let Ok(Start::Run(loaded)) = file::load(&arguments, &mut |_, _| Ok(()), |_, _| Ok(())) else {
            panic!("{arguments:?} are no parameters")
        };
        let shared: Arc<dyn Disk> = Arc::new(disk.clone());
        let kept = aof::base_head::key_secret(&shared, &loaded.config)?;
        let hash_secret = kept.unwrap_or(*b"0123456789abcdef");
        let keyspace = Keyspace::new(Layout {
            partitions: PARTITIONS,
            arenas: 1,
            databases: DATABASES,
            reserve_bytes: 64 << 20,
            hash_secret,
            class_bytes: |bytes| bytes,
        });
        let cluster = match loaded.config.is_clustered() {
            true => ClusterState::member(Arc::new(alone(
                NodeId::new([1; 20]),
                NodeId::new([1; 20]),
                Address::default(),
            ))),
            false => ClusterState::none(),
        };
        let node = LASTING.with(|lasting| {
            lasting.workers.iter().for_each(|(_, mailbox)| drop(mailbox.take()));
            drop(lasting.control.1.take());
            let mail = Mail::new(worker::senders(&lasting.workers), lasting.control.1.sender());
            let mut random = [0; 32];
            random[24..].copy_from_slice(&seed.to_be_bytes());
            Node::start(Parts {
                keyspace: keyspace.expect("address space"),
                config: loaded.config,
                commands: lasting.commands.clone(),
                config_file: None,
                mail,
                disk: shared,
                random,
                history: next_name(),
                cluster,
                hooks: start::HOOKS,
            })
        });
        node.log.set_backlog_bytes(BACKLOG_BYTES);
        role::begin(node)?;
        swap_start::begin(node)?;
        if let Some(data) = start::find_data(node)? {
            node.mail.set_tasks(Tasks::LOADING, Tasks::LOADING);
            start::load_now(node, data)?;
            node.mail.set_tasks(Tasks::LOADING, Tasks::NONE);
        }
        let session = |worker: u16, id: u64| {
            let addresses = ("sim".into(), "sim".into());
            let shared = ClientShared::new(id, worker, -1, addresses, Transport::Unix, true, unix_now());
            Session::new(Arc::new(shared), node.users.default_user(), true)
        };
        Ok(Process {
            node,
            workers: (0..WORKERS).map(|worker| Dispatcher::new(node, &admin::TABLE, worker)).collect(),
            sessions: (0..2 * WORKERS as u16)
                .map(|number| session(number % WORKERS as u16, u64::from(number) + 1))
                .collect(),
            expires: Pump::new(node, None),
            partition: 0,
            disk: disk.clone(),
            last: RefCell::default(),
        })
    }

    pub fn sessions(&self) -> usize {
        self.sessions.len()
    }

    /// The database that a session has selected.
    pub fn db_of(&self, session: usize) -> u16 {
        self.sessions[session].db.0
    }

    /// Returns the data. If values are on a disk that has stopped, they cannot be read, and no change gets
    /// there any more: the data is that of the last look.
    pub fn state(&self) -> State {
        if self.node.tier().is_some() && self.disk.is_stopped() {
            return self.last.borrow().clone();
        }
        let state = self.disk.look(|| state::of(self.node));
        self.last.borrow_mut().clone_from(&state);
        state
    }

    /// Runs one request of a session, to its end.
    pub fn run(&mut self, session: usize, words: &[Vec<u8>]) -> Answer {
        let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            bytes.extend_from_slice(word);
            bytes.extend_from_slice(b"\r\n");
        }
        let mut spans = Vec::new();
        let parsed = Parser::new().parse(&mut bytes, &Limits::default(), &mut spans);
        assert!(matches!(parsed, Parsed::Request { .. }));
        let args = Args::new(&bytes, &spans);
        let mut came = Came::All;
        for _ in 0..READS_MAX {
            match self.try_run(session, args, came) {
                (_, Next::Park(WaitReason::Cold(ticket))) => came = self.read_for(session, ticket),
                (answer, Next::Park(_)) => return self.run_errand(session, answer),
                (answer, _) => return answer,
            }
        }
        panic!("{:?} needs ever more of the disk", words[0].escape_ascii().to_string());
    }

    /// Runs the errand that the client may wait for. Returns the answer of that.
    fn run_errand(&mut self, session: usize, parked: Answer) -> Answer {
        if routines::simulated::step_one(|name| name == "errand").is_none() {
            return parked;
        }
        let worker = self.sessions[session].shared.worker;
        let served = self.messages(usize::from(worker)).into_iter().find_map(|message| match message {
            WorkerMessage::Served { reply, .. } => Some(reply),
            _ => None,
        });
        match served {
            Some(reply) => Answer { reply, is_parked: false, ..parked },
            None => parked,
        }
    }

    /// `came`: of what it has waited for.
    fn try_run(&mut self, session: usize, args: Args<'_>, came: Came) -> (Answer, Next) {
        let session = &mut self.sessions[session];
        let dispatcher = &mut self.workers[usize::from(session.shared.worker)];
        dispatcher.exec.refresh();
        dispatcher.exec.has_waited = came != Came::All;
        dispatcher.exec.clock.begin();
        dispatcher.exec.clock.outdate();
        let was_gated = self.node.mail.tasks().has(Tasks::GATED);
        let request = dispatcher.resolve(args);
        let (_, next) = dispatcher.run_all(session, &[request], 0, 0);
        dispatcher.exec.release();
        dispatcher.exec.has_waited = false;
        let not_before = dispatcher.exec.take_not_before();
        let reply = std::mem::take(&mut dispatcher.reply.out);
        dispatcher.reply = Default::default();
        let is_parked = matches!(next, Next::Park(_));
        (Answer { reply, not_before, was_gated, is_parked }, next)
    }

    /// Reads the values that a command waits for, while the routines of `swap-dir` move. Returns what came of
    /// it.
    fn read_for(&mut self, session: usize, ticket: Ticket) -> Came {
        let worker = self.sessions[session].shared.worker;
        let tier = self.node.tier().expect("values leave memory to a disk");
        let exec = &mut self.workers[usize::from(worker)].exec;
        let mut of_ticket = Came::All;
        for (wanting, wanted) in std::mem::take(&mut exec.wanted) {
            let mut values = Vec::new();
            for cold in wanted.into_keys().keys {
                routines::simulated::step_one(|name| name.starts_with("swap-"));
                let fetched = tier.read_key(&self.node.keyspace, &cold);
                values.extend(fetched.map(|fetched| (cold, fetched)));
            }
            let came = exec.hand_over(tier, wanting, values, false);
            if wanting == ticket {
                of_ticket = came;
            }
        }
        of_ticket
    }

    /// Takes the messages out of the mailbox of a worker.
    pub fn messages(&self, worker: usize) -> Vec<WorkerMessage> {
        LASTING.with(|lasting| lasting.workers[worker].1.take().into_iter().collect())
    }

    /// Returns a session, and the dispatcher of its worker.
    pub fn session(&mut self, session: usize) -> (&mut Dispatcher, &mut Session) {
        let session = &mut self.sessions[session];
        (&mut self.workers[usize::from(session.shared.worker)], session)
    }

    /// A round of the cron, as far as it concerns persistence.
    pub fn cron(&mut self, prng: &mut Prng) {
        let partitions = self.node.keyspace.partition_count() as u16;
        for _ in 0..partitions {
            let step = self.node.keyspace.expire_step(self.partition, unix_now(), 20, &mut self.expires);
            if !step.more {
                self.partition = (self.partition + 1) % partitions;
            }
        }
        self.expires.flush();
        self.tick(prng);
    }

    /// Runs a round of the cron as far as it concerns persistence, but without expiry, as on a replica.
    pub fn tick(&mut self, prng: &mut Prng) {
        if prng.one_in(2) {
            background::tick(self.node.store(), self.node.used_memory_bytes());
            aof::rewrite::tick(self.node);
        }
        let messages = LASTING.with(|lasting| {
            lasting.workers.iter().for_each(|(_, mailbox)| drop(mailbox.take()));
            lasting.control.1.take()
        });
        aof::switch::watch_ending(self.node);
        for message in messages {
            if let ControlMessage::Aof = message {
                let _ = aof::switch::apply(self.node);
            }
        }
    }

    /// The end of a process that may end by itself.
    pub fn shut_down(self) {
        aof::switch::close(self.node);
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        routines::simulated::end();
    }
}
