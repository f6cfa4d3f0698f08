//! A node: what all workers share. It is made once and lives as long as the process, so it is handed around
//! as `&'static Node`.
//!
//! The node is wiring: each part owns its state and its functions, takes what it needs as arguments, and
//! knows no node. The functions here join two parts that do not know each other.

use isotherm_commands::spec::Spec;
use isotherm_disk::Disk;
use isotherm_keyspace::{Db, Held, Keyspace, UnixMs, Waiter};
use isotherm_log::LogOffset;
use isotherm_reactor::Hangups;
use isotherm_replication::acks::{Reached, Wish};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::aof::state::AofState;
use crate::cluster::ClusterState;
use crate::effects::change_log::{ChangeLog, LogReader};
use crate::effects::monitor::{self, Monitors};
use crate::effects::pubsub::PubSub;
use crate::effects::tracking::{Tracker, Trackers};
use crate::mail::Mail;
use crate::mail::message::Without;
use crate::mail::tasks::Tasks;
use crate::migration::state::Migrations;
use crate::observe::command_log::CommandLog;
use crate::observe::holds::{self, HoldSinks};
use crate::observe::latency::monitor::{Event, Monitor, Spikes};
use crate::observe::stats::{Stats, ThreadStats};
use crate::persistence::Store;
use crate::persistence::state::Persistence;
use crate::process::asked_end::Options;
use crate::process::debug_switches::DebugSwitches;
use crate::process::state::Process;
use crate::replication::state::Replication;
use crate::replication::waits;
use crate::request::pause::Pause;
use crate::request::registry::Commands;
use crate::request::reply_gate::{Part, ReplyGate};
use crate::room::memory::{Apart, Memory};
use crate::scripting::cache::Scripts;
use crate::scripting::libraries::Libraries;
use crate::scripting::registry::RunRegistry;
use crate::session::clients::Clients;
use crate::session::errand::Errands;
use crate::session::{ClientShared, Session};
use crate::tier::Tier;
use crate::tls::TlsState;
use crate::users::Users;
use isotherm_config::file::Origin;
use isotherm_config::{Config, Id, id};
use isotherm_resp::Args;
use isotherm_runtime::time::unix_now;

pub struct Node {
    tier: OnceLock<Arc<Tier>>,
    /// Changes of the data, in order.
    pub log: ChangeLog,
    pub aof: AofState,
    /// Up to where replies may leave.
    pub gate: ReplyGate,
    pub keyspace: Keyspace,
    pub config: Config,
    pub commands: Commands,
    pub clients: Clients,
    pub users: Users,
    pub stats: Stats,
    pub command_log: CommandLog,
    pub latency: Monitor,
    pub memory: Memory,
    pub pause: Pause,
    pub pubsub: PubSub,
    pub monitors: Monitors,
    pub trackers: Trackers,
    pub mail: Mail,
    /// Clients that have waited for a key, which may be gone before their worker sees it.
    pub hangups: Hangups,
    pub process: Process,
    pub debug: DebugSwitches,
    pub persistence: Persistence,
    pub replication: Replication,
    /// State of the cluster, which is empty unless this node is a member of one.
    pub cluster: ClusterState,
    pub scripts: Scripts,
    pub libraries: Libraries,
    pub runs: RunRegistry,
    pub migrations: Migrations,
    pub errands: Errands,
    pub tls: TlsState,
    pub hooks: Hooks,
}

/// Functions of higher floors that lower ones call, at rare moments.
#[derive(Clone, Copy)]
pub struct Hooks {
    /// Keeps the log for replicas from now on, for replies that wait for them. Locks may be held.
    pub keep_log: fn(&'static Node),
    /// Replaces the RDB file after FLUSHALL, which has keys that are gone.
    pub forget_saved: fn(Store<'static>, &mut Held<'static>),
}

/// Parts from which a node is made.
pub struct Parts {
    pub keyspace: Keyspace,
    pub config: Config,
    pub commands: Commands,
    pub config_file: Option<Origin>,
    pub mail: Mail,
    pub disk: Arc<dyn Disk>,
    pub random: [u8; 32],
    /// The name of the history that begins here, in random bytes.
    pub history: [u8; 20],
    pub cluster: ClusterState,
    pub hooks: Hooks,
}

impl Node {
    /// Makes the node of this process.
    pub fn start(parts: Parts) -> &'static Node {
        // The last places of the counters are those of the control thread, of the link to a primary, of the
        // threads of MIGRATE, and of that which writes to swap-dir.
        let threads = parts.mail.worker_count() + 3 + usize::from(parts.config.swaps());
        let stats = Stats::new(threads, parts.commands.all().len());
        let node = Node {
            tier: OnceLock::new(),
            aof: AofState::default(),
            gate: ReplyGate::new(parts.mail.worker_count()),
            log: ChangeLog::new(LogOffset::default(), parts.config.log_memory_bytes()),
            keyspace: parts.keyspace,
            clients: Clients::default(),
            users: Users::new(&parts.commands, &parts.config.password()),
            commands: parts.commands,
            stats,
            command_log: CommandLog::default(),
            latency: Monitor::default(),
            memory: Memory::default(),
            pause: Pause::default(),
            pubsub: PubSub::default(),
            monitors: Monitors::default(),
            trackers: Trackers::default(),
            replication: Replication::new(parts.history),
            cluster: parts.cluster,
            hangups: Hangups::new(parts.mail.worker_count()),
            process: Process::new(parts.random, parts.config_file, parts.config.metrics_address()),
            debug: DebugSwitches::default(),
            scripts: Scripts::default(),
            libraries: Libraries::default(),
            runs: RunRegistry::default(),
            migrations: Migrations::default(),
            errands: Errands::default(),
            tls: TlsState::default(),
            hooks: parts.hooks,
            persistence: Persistence::new(parts.disk, unix_now().0 / 1000),
            config: parts.config,
            mail: parts.mail,
        };
        node.keyspace.watch_holds(holds::WATCH);
        Box::leak(Box::new(node))
    }

    pub fn worker_count(&self) -> usize {
        self.mail.worker_count()
    }

    /// Returns the counters of the control thread.
    pub fn control_stats(&self) -> &ThreadStats {
        self.stats.thread(self.worker_count())
    }

    /// Returns the counters of the link to a primary.
    pub fn link_stats(&self) -> &ThreadStats {
        self.stats.thread(self.worker_count() + 1)
    }

    /// The number under which the threads of MIGRATE count, one at a time.
    pub fn migrations_number(&self) -> usize {
        self.worker_count() + 2
    }

    /// Returns the parts that saving and loading use.
    pub fn store(&self) -> Store<'_> {
        let Node {
            keyspace, config, stats, mail, log, replication, gate, libraries, persistence: state, ..
        } = self;
        Store {
            keyspace,
            config,
            stats,
            mail,
            state,
            log,
            replication,
            gate,
            libraries,
            tier: self.tier(),
            spikes: Spikes { monitor: &self.latency, config },
            valkey_version: crate::process::version::VALKEY_VERSION,
        }
    }

    /// Values that are not in memory. `None` without `swap-mode`.
    #[inline]
    pub fn tier(&self) -> Option<&Arc<Tier>> {
        self.tier.get()
    }

    /// Lets values leave memory from now on. Before any command runs.
    pub fn set_tier(&self, tier: Arc<Tier>) {
        assert!(self.tier.set(tier).is_ok(), "there is one");
    }

    /// Counters of the thread that writes to swap-dir. Without `swap-mode` there are none.
    pub fn tier_stats(&self) -> &ThreadStats {
        self.stats.thread(self.worker_count() + 3)
    }

    // ---- memory ----

    /// Returns the share of a CPU that compaction may take now, in percent.
    pub fn compaction_share_percent(&self) -> u32 {
        let always = self.config.compaction_cpu_percent();
        let Some(defrag) = self.config.defrag() else { return always };
        let stats = self.keyspace.arenas().iter().map(|arena| arena.stats());
        let (live, free) = stats.fold((0, 0), |(live, free), stats| {
            (live + stats.live_bytes, free + stats.partial_free_bytes + stats.tail_bytes)
        });
        always.max(defrag.percent_of(live, free))
    }

    /// used_memory.
    #[inline]
    pub fn used_memory_bytes(&self) -> u64 {
        Memory::used_bytes(&self.keyspace)
    }

    /// Bytes of used_memory that have limits of their own.
    pub fn apart(&self) -> Apart {
        Apart::of(&self.keyspace, &self.log, &self.replication.primary.spool_bytes)
    }

    /// Returns the bytes that are compared with `maxmemory`.
    pub fn counted_memory_bytes(&self) -> u64 {
        (self.used_memory_bytes() + self.memory.excess_bytes()).saturating_sub(self.apart().total())
    }

    /// Bytes for which values, and at last keys, have to leave: copies of what is on disk are none.
    pub fn pressing_memory_bytes(&self) -> u64 {
        self.pressing_used_bytes() + self.memory.excess_bytes()
    }

    /// Part of used_memory among them.
    pub fn pressing_used_bytes(&self) -> u64 {
        let copies = self.tier().map_or(0, |tier| tier.copies_bytes());
        self.used_memory_bytes().saturating_sub(self.apart().total() + copies)
    }

    /// Returns whether there is memory for more, below `maxmemory` and in every arena.
    #[inline]
    pub fn has_room(&self) -> bool {
        self.has_room_below(self.config.memory_target_bytes())
    }

    /// Returns whether there is memory for more below `limit_bytes`, and in every arena. Workers keep a copy
    /// of the limit and ask before each command that may take memory.
    #[inline(always)]
    pub fn has_room_below(&self, limit_bytes: u64) -> bool {
        let Some(live_bytes) = self.keyspace.live_bytes_unless_full() else { return false };
        let used_bytes = live_bytes + isotherm_allocator::allocated_bytes() + self.memory.excess_bytes();
        used_bytes <= limit_bytes || self.presses_below(limit_bytes)
    }

    /// Returns whether memory is below a limit, though more is used: some of that does not count.
    #[cold]
    fn presses_below(&self, limit_bytes: u64) -> bool {
        self.pressing_memory_bytes() <= limit_bytes
    }

    /// A replica evicts nothing and refuses nothing for its memory: its primary does
    /// (`replica-ignore-maxmemory`).
    pub fn leaves_memory_to_primary(&self) -> bool {
        const IGNORES_LIMIT: Id = id("replica-ignore-maxmemory");
        self.mail.tasks().has(Tasks::REPLICA) && self.config.flag(IGNORES_LIMIT)
    }

    /// Returns whether keys are removed when they expire. Those of a replica are removed by commands of its
    /// primary.
    pub fn expires_keys(&self) -> bool {
        let stays = Tasks::PAUSES.or(Tasks::LOADING).or(Tasks::REPLICA);
        !self.mail.tasks().has(stays) && !self.debug.no_active_expire.is_on() && !self.config.import_mode()
    }

    // ---- time ----

    /// Notes an event if it took as long as `latency-monitor-threshold`.
    pub fn note_latency(&self, event: Event, took: Duration) {
        self.latency.note(self.config.latency_threshold_ms(), event, took);
    }

    pub fn hold_sinks(&self) -> HoldSinks<'_> {
        HoldSinks { stats: &self.stats, latency: &self.latency, config: &self.config }
    }

    // ---- what waits for replicas and the disk ----

    /// Returns the offset up to which this node has synced the log; `None` without an append-only file.
    pub fn durable(&self) -> Option<LogOffset> {
        self.aof.is_on().then(|| self.aof.durable())
    }

    pub fn set_durable(&self, durable: LogOffset) {
        self.aof.set_durable(durable);
        self.gate.set(&self.mail, Part::Durable, durable);
    }

    pub fn reached(&self, wish: &Wish) -> Reached {
        waits::reached(&self.replication.primary, wish, self.durable())
    }

    /// Returns the answer to a client that waits with this wish; `None` if it has to wait longer.
    pub fn answer_of(&self, wish: &Wish) -> Option<Without> {
        match () {
            () if wish.here && !self.aof.is_on() => Some(Without::NothingSynced),
            () if wish.is_met(self.reached(wish)) => Some(Without::Acknowledged),
            () => None,
        }
    }

    /// The end has waited for replicas, and does so no longer.
    pub fn end_is_due(&self) -> Option<Options> {
        self.process.ending.due(&self.replication.primary, self.log.end(), unix_now())
    }

    /// Replicas are asked how far they are.
    pub fn ask_for_acks(&self) {
        if self.replication.primary.want_acks() {
            self.log.wake_readers_and(LogReader::Feeder);
        }
    }

    /// The client waits from now on. Acknowledgements that have come meanwhile count too.
    pub fn wait_for_acks(&self, waiter: &Arc<Waiter>, wish: Wish) {
        let primary = &self.replication.primary;
        primary.waits.add(waiter, wish);
        self.look_at_waits();
        self.ask_for_acks();
    }

    /// Replicas, or the disk, have come further.
    pub fn look_at_waits(&self) {
        self.replication.primary.waits.look(|wish| self.answer_of(wish).is_some());
    }

    // ---- two parts that do not know each other ----

    pub fn end_pause_if_over(&self, now: UnixMs) {
        self.pause.end_if_over(&self.mail, now);
    }

    #[cold]
    pub fn feed_monitors(&self, session: &Session, spec: &Spec, args: Args<'_>) {
        let client = &session.shared;
        let from = monitor::From { client, worker: Some(client.worker), is_script: false };
        self.monitors.feed(&self.mail, &self.config, from, session.db, spec, args);
    }

    /// Sends a command that a script of the session has called to the clients of MONITOR.
    pub fn feed_monitors_from_script(&self, session: &Session, spec: &Spec, args: Args<'_>) {
        let client = &session.shared;
        let from = monitor::From { client, worker: Some(client.worker), is_script: true };
        self.monitors.feed(&self.mail, &self.config, from, session.db, spec, args);
    }

    /// Sends a command of the primary that this node follows to the clients of MONITOR.
    pub fn feed_monitors_from_link(&self, client: &ClientShared, db: Db, spec: &Spec, args: Args<'_>) {
        let from = monitor::From { client, worker: None, is_script: false };
        self.monitors.feed(&self.mail, &self.config, from, db, spec, args);
    }

    pub fn note_read(&self, from: u16, tracker: Tracker, key: &[u8]) {
        self.trackers.note_read(&self.mail, &self.config, from, tracker, key);
    }
}
