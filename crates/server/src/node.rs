//! A node: what all workers share. It is made once and lives as long as the process, so it is handed around as
//! `&'static Node`.

use isotherm_keyspace::{Keyspace, UnixMs};
use isotherm_reactor::Sender;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::config::Config;
use crate::effects::monitor::Monitors;
use crate::effects::pubsub::PubSub;
use crate::effects::tracking::Trackers;
use crate::observe::command_log::CommandLog;
use crate::observe::holds;
use crate::observe::latency::monitor::{Event, Monitor};
use crate::observe::stats::Stats;
use crate::process::control;
use crate::process::listeners::Listeners;
use crate::process::log;
use crate::process::shutdown::Pending;
use crate::request::cold::ColdTier;
use crate::request::registry::Commands;
use crate::session::{Attention, ClientShared};
use crate::upkeep::compaction::Progress;
use crate::upkeep::memory::Memory;
use crate::worker::letter::Letter;

pub struct Node {
    pub cold: ColdTier<Letter>,
    pub keyspace: Keyspace,
    pub config: Config,
    pub commands: Commands,
    pub clients: Clients,
    pub stats: Stats,
    pub command_log: CommandLog,
    pub latency: Monitor,
    pub memory: Memory,
    pub compaction: Progress,
    pub pause: Pause,
    pub pubsub: PubSub,
    pub monitors: Monitors,
    pub trackers: Trackers,
    pub listeners: Listeners,
    pub started: UnixMs,
    /// 40 hexadecimal digits, new with every start.
    pub run_id: Box<str>,
    /// For random numbers that need not be secret.
    pub seed: u64,
    /// The executable and the configuration file as absolute paths.
    pub executable: PathBuf,
    pub config_file: Option<PathBuf>,
    /// Where metrics are served.
    pub metrics: Option<(String, u16)>,
    /// DEBUG SET-ACTIVE-EXPIRE.
    pub active_expire: AtomicBool,
    /// DEBUG PAUSE-CRON.
    pub cron_paused: AtomicBool,
    /// DEBUG CLIENT-ENFORCE-REPLY-LIST.
    pub reply_lists: AtomicBool,
    /// Until when no look for connections to close is worth it (`client_memory`).
    pub futile_until_ms: AtomicI64,
    /// Held by the thread that chooses connections to close.
    pub evicting_clients: Mutex<()>,
    /// DEBUG SET-SKIP-CHECKSUM-VALIDATION.
    pub skip_checksums: AtomicBool,
    /// Attempts to authenticate that failed, since the start or CONFIG RESETSTAT.
    pub auth_denied: AtomicU64,
    /// A signal to end that nobody has acted on yet.
    pub pending_end: Pending,
    tasks: AtomicU32,
    /// The default user has a password.
    password: AtomicBool,
    workers: Box<[Sender<Letter>]>,
    /// By worker: one of its connections waits until undelivered messages take less.
    uncrowding_awaited: Box<[AtomicBool]>,
    control: Sender<control::Letter>,
}

/// What a node is made of beside its configuration.
pub struct Parts {
    pub commands: Commands,
    pub keyspace: Keyspace,
    pub config: Config,
    pub config_file: Option<PathBuf>,
    pub workers: Box<[Sender<Letter>]>,
    pub control: Sender<control::Letter>,
    pub random: [u8; 32],
}

/// What the whole node is about and every command has to ask for; mostly nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tasks(pub u32);

impl Tasks {
    /// CLIENT PAUSE.
    pub const PAUSE_ALL: Tasks = Tasks(1);
    pub const PAUSE_WRITE: Tasks = Tasks(2);
    /// Letters wait that take much memory: what causes more of them waits too.
    pub const CROWDED: Tasks = Tasks(4);
    /// Somebody wants a line for every command.
    pub const MONITORED: Tasks = Tasks(8);
    /// Either pause.
    pub const PAUSES: Tasks = Tasks::PAUSE_ALL.or(Tasks::PAUSE_WRITE);
    pub const NONE: Tasks = Tasks(0);
    pub const ANY: Tasks = Tasks(u32::MAX);

    pub const fn or(self, other: Tasks) -> Tasks {
        Tasks(self.0 | other.0)
    }
    /// One of `tasks` at least.
    pub const fn has(self, tasks: Tasks) -> bool {
        self.0 & tasks.0 != 0
    }
}

impl Node {
    /// Makes the node of this process.
    pub fn start(parts: Parts) -> &'static Node {
        // The last place of the counters is the control thread's.
        let stats = Stats::new(parts.workers.len() + 1, parts.commands.all().len());
        let (id, seed) = parts.random.split_at(20);
        let node = Node {
            cold: ColdTier::default(),
            keyspace: parts.keyspace,
            commands: parts.commands,
            clients: Clients::default(),
            stats,
            command_log: CommandLog::default(),
            latency: Monitor::default(),
            memory: Memory::default(),
            compaction: Progress::default(),
            pause: Pause::default(),
            pubsub: PubSub::default(),
            monitors: Monitors::default(),
            trackers: Trackers::default(),
            listeners: Listeners::default(),
            started: unix_now(),
            run_id: id.iter().map(|byte| format!("{byte:02x}")).collect::<String>().into(),
            seed: seed.iter().fold(0, |seed, byte| seed << 8 | u64::from(*byte)),
            executable: std::env::current_exe().unwrap_or_default(),
            config_file: parts.config_file,
            metrics: parts.config.metrics_address(),
            active_expire: AtomicBool::new(true),
            cron_paused: AtomicBool::new(false),
            reply_lists: AtomicBool::new(false),
            futile_until_ms: AtomicI64::new(0),
            evicting_clients: Mutex::default(),
            skip_checksums: AtomicBool::new(false),
            auth_denied: AtomicU64::new(0),
            pending_end: Pending::default(),
            tasks: AtomicU32::new(0),
            password: AtomicBool::new(!parts.config.password().is_empty()),
            config: parts.config,
            uncrowding_awaited: parts.workers.iter().map(|_| AtomicBool::new(false)).collect(),
            workers: parts.workers,
            control: parts.control,
        };
        node.keyspace.watch_holds(holds::WATCH);
        node.apply_eviction_policy();
        Box::leak(Box::new(node))
    }

    #[inline]
    pub fn tasks(&self) -> Tasks {
        Tasks(self.tasks.load(Ordering::Acquire))
    }

    pub fn worker_count(&self) -> usize {
        self.workers.len()
    }

    /// Where the control thread counts.
    pub fn control_stats(&self) -> &crate::observe::stats::ThreadStats {
        self.stats.thread(self.workers.len())
    }

    pub fn post(&self, worker: usize, letter: Letter) {
        self.workers[worker].post(letter);
    }

    /// The same; a letter to the worker `from`, who posts it, does not wake it. Were it another thread that posts, the
    /// worker would sleep on it, and on all that comes behind it: only the first letter wakes.
    pub fn post_from(&self, from: Option<u16>, worker: u16, letter: Letter) {
        debug_assert!(
            from.is_none_or(|from| holds::thread() == Some(usize::from(from))),
            "the poster is the thread that runs"
        );
        let sender = &self.workers[usize::from(worker)];
        if from == Some(worker) { sender.leave(letter) } else { sender.post(letter) }
    }

    /// Whether something lies in the mailbox of `worker`.
    pub fn has_letters(&self, worker: u16) -> bool {
        self.workers[usize::from(worker)].has_letters()
    }

    pub fn post_control(&self, letter: control::Letter) {
        self.control.post(letter);
    }

    // ---- who may ----

    /// Whether a session has to authenticate.
    #[inline]
    pub fn auth_required(&self) -> bool {
        self.password.load(Ordering::Acquire)
    }

    /// The password has changed (CONFIG SET requirepass). Sessions that are there stay as they are.
    pub fn password_changed(&self) {
        self.password.store(!self.config.password().is_empty(), Ordering::Release);
    }

    pub fn log_attack(&self, addr: &str) {
        log::warning(format!(
            "Possible SECURITY ATTACK detected. It looks like somebody is sending POST or Host: commands to Isotherm. \
             This is likely due to an attacker attempting to use Cross Protocol Scripting to compromise your Isotherm \
             instance. Connection from {addr} aborted."
        ));
    }

    // ---- watching ----

    /// Notes an event if it took as long as `latency-monitor-threshold`.
    pub fn note_latency(&self, event: Event, took: Duration) {
        if self.config.latency_threshold_ms().is_some_and(|ms| took.as_millis() >= u128::from(ms)) {
            self.latency.add(event, took, unix_now().0.div_euclid(1000));
        }
    }

    // ---- connections ----

    /// The connection runs no further command, takes nothing that it waits for, and is closed by its owner.
    pub fn kill(&self, client: &ClientShared) {
        client.ask(Attention::KILL);
        client.end_waiting();
        let token = client.token.load(Ordering::Acquire);
        self.post(usize::from(client.worker), Letter::Attend { token, id: client.id });
    }

    pub fn disconnected(&self, client: &ClientShared) {
        self.clients.remove(client.id);
    }

    // ---- pausing ----

    /// CLIENT PAUSE: until `end_ms`, commands wait; with `writes_only`, only those that write. A later end stays.
    pub fn pause(&self, end_ms: i64, writes_only: bool) {
        let _changing = self.pause.changing();
        let before = self.tasks();
        self.pause.end_ms.fetch_max(end_ms, Ordering::AcqRel);
        let kind = if writes_only { Tasks::PAUSE_WRITE } else { Tasks::PAUSE_ALL };
        self.set_pauses(kind);
        if before.has(Tasks::PAUSE_ALL) && writes_only {
            self.post_pause_changed();
        }
    }

    /// CLIENT UNPAUSE.
    pub fn unpause(&self) {
        let _changing = self.pause.changing();
        self.end_pause();
    }

    fn end_pause(&self) {
        self.pause.end_ms.store(0, Ordering::Release);
        self.set_pauses(Tasks(0));
        self.post_pause_changed();
    }

    /// Whoever notices first that the time is over says so to all.
    pub fn end_pause_if_over(&self, now: UnixMs) {
        if !self.tasks().has(Tasks::PAUSES) || self.pause.is_on(now) {
            return;
        }
        let _changing = self.pause.changing();
        // Another thread may have ended it, and a client may have begun a new one.
        if self.tasks().has(Tasks::PAUSES) && !self.pause.is_on(now) {
            self.end_pause();
        }
    }

    /// Whether letters take too much. Whoever sets the task may come late: the bytes decide.
    pub fn is_crowded(&self) -> bool {
        if self.tasks().has(Tasks::CROWDED) && !self.pubsub.is_crowded() {
            self.set_task(Tasks::CROWDED, false);
        }
        self.tasks().has(Tasks::CROWDED)
    }

    /// The same, asked by a worker one of whose connections waits while it is so. If it is, `Letter::Uncrowded` comes when
    /// it is over: here the flag is raised before the bytes are read, and a delivery subtracts its bytes before it reads
    /// the flag, so one of the two sees the other.
    pub fn awaits_uncrowding(&self, worker: u16) -> bool {
        self.uncrowding_awaited[usize::from(worker)].store(true, Ordering::SeqCst);
        self.is_crowded()
    }

    /// Undelivered messages have come to take little: workers with connections that wait for that get a notice.
    pub fn post_uncrowded(&self) {
        for (worker, is_awaited) in self.uncrowding_awaited.iter().enumerate() {
            if is_awaited.swap(false, Ordering::SeqCst) {
                self.post(worker, Letter::Uncrowded);
            }
        }
    }

    pub fn set_task(&self, task: Tasks, on: bool) {
        let bit = if on { task.0 } else { 0 };
        let set = |tasks: u32| Some(tasks & !task.0 | bit);
        let _ = self.tasks.fetch_update(Ordering::AcqRel, Ordering::Acquire, set);
    }

    fn set_pauses(&self, kind: Tasks) {
        let set = |tasks: u32| Some(tasks & !Tasks::PAUSES.0 | kind.0);
        let _ = self.tasks.fetch_update(Ordering::AcqRel, Ordering::Acquire, set);
    }

    fn post_pause_changed(&self) {
        (0..self.workers.len()).for_each(|worker| self.post(worker, Letter::PauseChanged));
    }

    // ---- the end ----

    /// Ends the process in an orderly way, soon.
    pub fn shut_down(&self) {
        self.post_control(control::Letter::ShutDown);
    }
}

/// When CLIENT PAUSE ends.
#[derive(Default)]
pub struct Pause {
    end_ms: AtomicI64,
    /// Held while the end and the tasks of the node change together.
    changing: Mutex<()>,
}

impl Pause {
    fn changing(&self) -> MutexGuard<'_, ()> {
        self.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn is_on(&self, now: UnixMs) -> bool {
        now.0 < self.end_ms()
    }

    /// Milliseconds since 1970; 0 if nothing is paused.
    pub fn end_ms(&self) -> i64 {
        self.end_ms.load(Ordering::Acquire)
    }
}

/// The clock of everything but commands.
pub fn unix_now() -> UnixMs {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    UnixMs(since.as_millis() as i64)
}

/// Every connection, by its id.
#[derive(Default)]
pub struct Clients {
    next_id: AtomicU64,
    /// Those on their way to their worker are counted already.
    count: AtomicUsize,
    all: Mutex<BTreeMap<u64, Arc<ClientShared>>>,
    /// What they take together (`client_memory`).
    bytes: AtomicU64,
    /// Those who wait for a key.
    pub blocked: AtomicUsize,
}

impl Clients {
    /// A connection was accepted.
    pub fn next_id(&self) -> u64 {
        self.count.fetch_add(1, Ordering::AcqRel);
        self.next_id.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// It has been given to its owner, and takes so much by itself.
    pub fn add(&self, client: &Arc<ClientShared>, own_bytes: u64) {
        self.book_total(client, own_bytes);
        self.lock().insert(client.id, Arc::clone(client));
    }

    pub fn remove(&self, id: u64) {
        if let Some(client) = self.lock().remove(&id) {
            self.book_total(&client, 0);
            self.count.fetch_sub(1, Ordering::AcqRel);
        }
    }

    pub fn get(&self, id: u64) -> Option<Arc<ClientShared>> {
        self.lock().get(&id).cloned()
    }

    /// All of them, by id.
    pub fn all(&self) -> Vec<Arc<ClientShared>> {
        self.lock().values().cloned().collect()
    }

    /// What all of them take.
    #[inline]
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// One of them takes so much now. Only its owner says so: there is no second writer of the total.
    pub fn book_total(&self, client: &ClientShared, bytes: u64) {
        let before = client.seen.total_bytes.load(Ordering::Relaxed);
        client.seen.total_bytes.store(bytes, Ordering::Relaxed);
        self.bytes.fetch_add(bytes.wrapping_sub(before), Ordering::Relaxed);
    }

    pub fn len(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<ClientShared>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
