//! Executing: one data command on what is held, for any caller.
//!
//! ```text
//! request of a session ---+
//! command inside EXEC ----+--> run(Invocation):  before | handler | after  --> Outcome: Done, Block(wait), Cold(keys)
//! waiter that is served --+
//! ```
//! **What this module does not know:** a session. A `Caller` asks, and the reply goes where the invocation
//! says. The caller decides what an outcome means: a session waits, a waiter continues waiting, a transaction
//! was not to block.

use isotherm_commands::call::HashedKeys;
use isotherm_commands::{Call, Flags, Handler, Outcome, Records, naming};
use isotherm_keyspace::{Conditions, Db, ExpiryMode, Held, OnCold, Slot, Txn, UnixMs, Walk};
use isotherm_log::LogOffset;
use isotherm_resp::{Args, Reply};
use isotherm_stdx::{Prng, steps};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use crate::request::beside_locks::BesideLocks;
use crate::request::cached_config::Hot;
use crate::request::clock::CommandClock;
use crate::request::eviction::{self, Room};
use crate::request::fetching::Unreadable;
use crate::request::lock_set::LockSet;
use crate::request::metering::Metering;
use crate::request::nodes::Draws;
use crate::request::own_expiry;
use crate::request::slots::route::{self, Desk, Route};
use crate::scripting::engine::Engine;
use crate::scripting::run::ScriptTime;
use crate::scripting::runs::Runs;
use isotherm_node::Node;
use isotherm_node::cluster::words::Word;
use isotherm_node::effects::pump::Pump;
use isotherm_node::effects::tracking::Tracker;
use isotherm_node::mail::tasks::Tasks;
use isotherm_node::observe::stats::ThreadStats;
use isotherm_node::request::caller::{Authority, Caller};
use isotherm_node::request::entry::{Entry, Locks};
use isotherm_node::request::gate_bits::Gates;
use isotherm_node::request::next::Ticket;
use isotherm_node::request::reply_gate::Part;
use isotherm_node::scripting::function_engine::FunctionEngine;
use isotherm_node::session::Session;
use isotherm_node::tier::fetches::Wanted;

/// State with which the commands of one worker run.
pub struct Exec {
    pub node: &'static Node,
    pub stats: &'static ThreadStats,
    pub held: Held<'static>,
    pub clock: CommandClock,
    pub hot: Hot,
    pub pump: Pump,
    pub records: Records,
    pub prng: Prng,
    /// Generators with which clients' commands drew that met parts which are not in memory: they draw the
    /// same again.
    draws: Draws,
    pub locks: LockSet,
    pub meter: Metering,
    /// Script engine of this worker.
    pub engine: Option<Box<Engine>>,
    /// Engine of the functions that this thread runs or loads.
    pub functions: Option<Box<FunctionEngine>>,
    pub runs: Runs,
    /// The gates that can matter to commands of this worker.
    pub gates: Gates,
    pub transaction: BesideLocks,
    /// The place in the log that replies which are not sent yet have to wait for.
    not_before: LogOffset,
    /// Knowledge of this thread about the cluster.
    pub route: Route,
    /// Time that TIME answers while a script runs.
    pub script_time: ScriptTime,
    /// Error replies that were counted for the commands that made them.
    errors_counted: u64,
    /// The error that a script has answered is one of a command of it, for which that was counted.
    pub error_is_counted: bool,
    last_ticket: Ticket,
    /// The current command has waited for values that did not come.
    pub has_waited: bool,
    /// The wait for them ended since nothing came for too long.
    pub was_late: bool,
    /// Values that this worker is to read, for the commands that wait with these tickets.
    pub wanted: Vec<(Ticket, Wanted)>,
    /// Walks over keys that wait.
    pub walks: BTreeMap<Ticket, Walk>,
    /// The current command lacks keys on disk, and cannot be interrupted.
    pub refuses_walk: bool,
    /// Messages that are no longer in the mailbox of this worker wait for their turn.
    pub has_undelivered: bool,
}

/// Parameters of one run of a data command.
pub struct Invocation<'i> {
    pub command: &'static Entry,
    pub handler: Handler,
    pub args: Args<'i>,
    pub db: Db,
    pub keys: HashedKeys<'i>,
    pub now: UnixMs,
    pub caller: Caller,
    pub reply: &'i mut Reply,
}

/// Runs a command on what is held. Only what is `Done` is counted as a call: the rest runs again.
#[inline(always)]
pub fn run(exec: &mut Exec, invocation: Invocation<'_>) -> Outcome {
    if !cfg!(debug_assertions) {
        return run_named(exec, invocation);
    }
    naming::restrict(&mut exec.held, invocation.command.spec, invocation.args);
    let outcome = run_named(exec, invocation);
    exec.held.unrestrict();
    outcome
}

/// Runs a command, which resolves the keys that its arguments name.
#[inline(always)]
fn run_named(exec: &mut Exec, invocation: Invocation<'_>) -> Outcome {
    let Invocation { command, handler, args, db, keys, now, caller, reply } = invocation;
    let (mut on_cold, mut fetches, mut is_tiered) = (OnCold::Show, false, false);
    if exec.node.tier().is_some() {
        (on_cold, fetches) = exec.on_cold(command);
        is_tiered = true;
        // What something else has met, that has no reply of its own, is not this command's.
        exec.held.take_missing();
    }
    if fetches {
        let looked_before = steps::looked();
        // One that only reads meets its parts.
        let found = exec.find_cold_keys(command, args, db, on_cold != OnCold::Collect);
        // As many as its client has named.
        exec.held.exempt(steps::looked().wrapping_sub(looked_before));
        match found {
            Ok(None) => {}
            Ok(Some(keys)) if exec.may_fetch(caller.authority) => return Outcome::Cold(keys),
            Ok(Some(_)) | Err(Unreadable) => return exec.answer_unreadable(command, reply),
        }
    }
    let drew_with = (on_cold == OnCold::Collect).then(|| exec.draws.begin(&mut exec.prng, caller.id));
    let conditions = exec.conditions(now, caller.no_touch, caller.authority);
    let (errors_before, mark) = (reply.error_count(), reply.len());
    let looked_before = steps::looked();
    exec.pump.begin(caller.id);
    let is_logging = exec.pump.is_logging();
    exec.records.begin(is_logging);
    if is_logging {
        exec.pump.log.begin_command();
    }
    let mut txn = Txn::new(&mut exec.held, conditions, &mut exec.pump);
    txn.on_cold = on_cold;
    let outcome = handler(&mut Call {
        txn: &mut txn,
        db,
        args,
        keys,
        reply,
        prng: &mut exec.prng,
        settings: &exec.hot.settings,
        records: &mut exec.records,
        may_wait: caller.may_wait,
        in_script: caller.in_script,
        may_read_all: caller.may_read_all,
        is_played_back: caller.authority == Authority::Log,
    });
    let counts = txn.finish();
    if is_logging {
        exec.log(command, args, db, counts.dirty);
    } else if exec.hot.is_replica {
        // Changes of the primary may not be durable here yet.
        exec.note_gate();
        if caller.authority != Authority::Log && command.spec.flags.has(Flags::WRITE) {
            let own_keys = &exec.node.replication.own_keys;
            own_expiry::note(own_keys, (&mut exec.held, &mut exec.pump), command.spec, args, (db, now));
        }
    }
    exec.meter.note_own_work(&mut exec.held, command, args, looked_before, 0);
    if is_tiered {
        exec.held.note_passed();
    }
    if exec.held.has_missed() || exec.held.walk.is_wanting() {
        debug_assert_eq!(counts.dirty, 0, "{} took what it could not see for absent", command.name);
        exec.held.keep_passed();
        exec.stats.count_expired(counts);
        reply.drop_since(mark);
        reply.forget_errors(errors_before);
        if let Some(prng) = drew_with {
            exec.draws.keep(caller.id, prng);
        }
        return exec.missed(command, caller.authority, counts, reply);
    }
    exec.stats.count_txn(counts);
    match outcome {
        Outcome::Done => exec.count_call(command, reply, errors_before),
        Outcome::Cold(_) if !exec.may_fetch(caller.authority) => {
            return exec.answer_unreadable(command, reply);
        }
        _ => {}
    }
    outcome
}

impl Exec {
    pub fn new(node: &'static Node, worker: usize) -> Exec {
        Exec::of_thread(node, worker, Some(worker as u16))
    }

    /// Creates the state for commands that no worker runs: those of a log that is played back.
    pub fn of_control(node: &'static Node) -> Exec {
        Exec::of_thread(node, node.worker_count(), None)
    }

    /// Creates the state for the commands of a primary, which the thread of the link runs.
    pub fn of_link(node: &'static Node) -> Exec {
        Exec::of_thread(node, node.worker_count() + 1, None)
    }

    /// Creates the state for a thread of MIGRATE. Its counters are updated only while the thread has the
    /// turn.
    pub fn of_migrations(node: &'static Node) -> Exec {
        Exec::of_thread(node, node.migrations_number(), None)
    }

    fn of_thread(node: &'static Node, thread: usize, worker: Option<u16>) -> Exec {
        let clock = CommandClock::default();
        let hot = Hot::new(node, &clock);
        let mut pump = Pump::new(node, worker);
        pump.listen(hot.events);
        let stats = node.stats.thread(thread);
        Exec {
            node,
            stats,
            held: Held::new(&node.keyspace),
            clock,
            hot,
            pump,
            records: Records::default(),
            prng: Prng::new(node.process.seed ^ (thread as u64 + 1)),
            draws: Draws::default(),
            locks: LockSet::default(),
            meter: Metering::new(node, stats, thread),
            engine: None,
            functions: None,
            runs: Runs::default(),
            gates: Gates::ALL,
            transaction: BesideLocks::default(),
            route: Route::new(node),
            not_before: LogOffset::default(),
            script_time: ScriptTime::None,
            errors_counted: 0,
            error_is_counted: false,
            last_ticket: Ticket(0),
            has_waited: false,
            was_late: false,
            wanted: Vec::new(),
            walks: BTreeMap::new(),
            refuses_walk: false,
            has_undelivered: false,
        }
    }

    /// Takes over what was changed in the configuration.
    #[inline]
    pub fn refresh(&mut self) {
        self.route.refresh();
        if self.hot.refresh(self.node, &self.clock) {
            self.pump.listen(self.hot.events);
            self.meter.restart();
            self.begin_batch();
        }
    }

    /// Returns whether the node still has the role that commands of this thread were prepared for. The
    /// partitions that are held keep it so.
    #[inline]
    pub fn knows_role(&self) -> bool {
        self.node.mail.tasks().has(Tasks::REPLICA) == self.hot.is_replica
    }

    /// Requests are about to run. Whether memory is short is looked at once for all of them; what takes some
    /// looks again (`Gates::GROWTH`).
    #[inline]
    pub fn begin_batch(&mut self) {
        self.gates = self.hot.gates.or(self.route.gates);
        if self.gates.has(Gates::GROWTH) && !self.node.has_room() {
            self.gates = self.gates.or(Gates::MEMORY);
        }
    }

    /// Evicts what is necessary. Nothing is held afterwards, unless there was room.
    pub fn make_room(&mut self) -> Room {
        if self.node.has_room() {
            return Room::Enough;
        }
        self.held.release();
        let room = eviction::make_room(self.node, &mut self.prng, &mut self.pump, self.stats);
        self.pump.flush();
        // The command that follows holds nothing yet, and this may have taken long.
        self.meter.note_delay(&self.clock);
        self.clock.outdate();
        room
    }

    #[inline]
    pub fn conditions(&self, now: UnixMs, no_touch: bool, authority: Authority) -> Conditions {
        Conditions { now, expiry_mode: self.expiry_mode(authority), no_touch }
    }

    /// While the server is paused expired keys stay, and while data is imported, the source decides about
    /// them.
    #[inline]
    fn expiry_mode(&self, authority: Authority) -> ExpiryMode {
        if self.hot.import_mode || authority == Authority::Log {
            return if authority == Authority::Server { ExpiryMode::Hide } else { ExpiryMode::Keep };
        }
        // A replica's keys are deleted by what its primary sends.
        match self.node.mail.tasks().has(Tasks::PAUSES.or(Tasks::REPLICA)) {
            true => ExpiryMode::Hide,
            false => ExpiryMode::Delete,
        }
    }

    /// A command is over, and its partitions are held. Expired keys that it has met are in the log's frame
    /// already.
    #[inline(never)]
    fn log(&mut self, command: &Entry, args: Args<'_>, db: Db, changes: u64) {
        let stands_alone = command.spec.flags.has(Flags::TOUCHES_ARBITRARY_KEYS);
        let bytes = self.pump.log.end_command(db, args, changes, &mut self.records, stands_alone);
        if self.hot.counts_slots && bytes > 0 {
            self.count_replicated(command, args, bytes);
        }
        self.note_gate();
    }

    /// Each replica is sent this of a command.
    #[cold]
    fn count_replicated(&mut self, command: &Entry, args: Args<'_>, bytes: usize) {
        let replicas = self.node.replication.primary.replicas().len();
        let first = self.locks.find_keys(command, args).unwrap_or_default().first();
        if let Some((at, _)) = first.filter(|_| replicas > 0) {
            let counters = self.stats.slots.of(Slot::of_key(args.get(*at)));
            counters.output_bytes.add((bytes * replicas) as u64);
        }
    }

    /// A command of the primary has run in `ticks`.
    pub fn count_followed(&mut self, command: &Entry, args: Args<'_>, ticks: u64) {
        let first = self.locks.find_keys(command, args).unwrap_or_default().first();
        if let Some((at, _)) = first {
            let counters = self.stats.slots.of(Slot::of_key(args.get(*at)));
            counters.ticks.add(ticks);
            counters.input_bytes.add(args.wire_bytes() as u64);
        }
    }

    /// A frame may have ended; its partitions are held. Replies show what they hold, and wait until that is
    /// durable.
    pub fn note_gate(&mut self) {
        // Taken in any case: kept until replies wait again, it would be an older place than the partitions
        // have by then.
        let end = self.pump.log.take_end();
        if self.node.mail.tasks().has(Tasks::GATED) {
            if let Some(end) = end {
                self.held.stamps().for_each(|stamp| stamp.store(end.0, Ordering::Relaxed));
            }
            let latest = self.held.stamps().map(|stamp| stamp.load(Ordering::Relaxed)).max();
            self.wait_for(LogOffset(latest.unwrap_or(0)));
        }
    }

    /// The next replies wait for this place, at least.
    pub fn wait_for(&mut self, not_before: LogOffset) {
        self.not_before = self.not_before.max(not_before);
    }

    /// Returns whether replies that waited for replicas were given up since the configuration was last looked
    /// at: before the commands of this batch, or while they ran.
    #[cold]
    pub fn has_lost_quorum(&self) -> bool {
        self.node.gate.given_up()[Part::Quorum as usize] != self.hot.quorums_given_up
    }

    /// Takes the log offset that the replies which are sent now have to wait for.
    #[inline]
    pub fn take_not_before(&mut self) -> LogOffset {
        std::mem::take(&mut self.not_before)
    }

    pub fn not_before(&self) -> LogOffset {
        self.not_before
    }

    /// Returns a new ticket for a wait of a connection of this worker.
    pub fn next_ticket(&mut self) -> Ticket {
        self.last_ticket.0 += 1;
        self.last_ticket
    }

    // ---- the cluster ----

    /// Returns the state with which `route` judges requests.
    pub fn desk(&mut self) -> Desk<'_> {
        let Exec { node, route, held, clock, pump, locks, .. } = self;
        Desk { node, route, held, clock, pump, locks, reads_now: false }
    }

    /// Returns whether a command with keys in this slot may run; the slot's partition is held.
    #[inline]
    pub fn admits(&mut self, session: &Session, command: &Entry, args: Args<'_>, slot: Slot) -> bool {
        match self.route.member {
            Some(member) if member.words.get(slot) != Word::MINE => {
                route::judges(&mut self.desk(), session, command, args, slot)
            }
            _ => true,
        }
    }

    /// Returns whether a command whose slot the gate has found may run.
    #[inline]
    pub fn admits_asked(&mut self, session: &Session, command: &Entry, args: Args<'_>) -> bool {
        match self.route.slot {
            Some(slot) if command.gates.has(Gates::SLOTS) => self.admits(session, command, args, slot),
            _ => true,
        }
    }

    // ---- leases ----

    /// Returns whether one of the command's keys, as far as they are held, is leased to a script.
    pub fn names_leased(&mut self, command: &Entry, args: Args<'_>) -> bool {
        let Exec { node, held, locks, .. } = self;
        let Ok(positions) = locks.find_keys(command, args) else {
            // All others are held as well, or it is refused.
            return command.locks != Locks::Script;
        };
        positions.iter().any(|(at, _)| {
            let key = node.keyspace.key(args.get(*at));
            held.holds(&key) && held.is_leased(&key, None)
        })
    }

    // ---- counting ----

    /// A command is done. `reply` had `errors_before` errors before it.
    #[inline]
    pub fn count_call(&mut self, command: &Entry, reply: &Reply, errors_before: u64) {
        let counters = &self.stats.commands[usize::from(command.index)];
        counters.calls.add(1);
        if reply.error_count() > errors_before {
            counters.failed.add(1);
            if !std::mem::take(&mut self.error_is_counted) {
                self.stats.count_error(reply.last_error().as_bytes());
            }
            self.errors_counted += reply.error_count() - errors_before;
        }
    }

    /// Errors that were counted so far: those of commands inside a transaction are not the transaction's.
    pub fn errors_counted(&self) -> u64 {
        self.errors_counted
    }

    /// A script is over: what its commands were counted for is not its own.
    pub fn set_errors_counted(&mut self, counted: u64) {
        self.errors_counted = counted;
    }

    /// After SCRIPT FLUSH.
    pub fn drop_old_engine(&mut self) {
        let scripts = &self.node.scripts;
        if let Some(mut engine) = self.engine.take_if(|engine| engine.generation != scripts.generation()) {
            engine.leave(scripts);
        }
    }

    /// A client that tracks has read these keys: it gets a message when they change.
    pub fn note_reads(&mut self, reader: Tracker, command: &Entry, args: Args<'_>) {
        let (node, worker) = (self.node, self.meter.thread() as u16);
        for (at, _) in self.locks.find_keys(command, args).unwrap_or_default() {
            node.note_read(worker, reader, args.get(*at));
        }
    }

    // ---- locks ----

    /// Locks what `locks` says.
    #[inline]
    pub fn acquire(&mut self) {
        if self.locks.acquire(&mut self.held) {
            self.clock.outdate();
        }
    }

    /// A batch is over: its changed keys are sent to clients that have read them, and then others may have
    /// what it held. Clients that have named prefixes get theirs after that, since there may be very many;
    /// the replies come after both.
    #[inline]
    pub fn release(&mut self) {
        self.pump.post_stale();
        self.held.release();
        self.pump.broadcast();
        self.meter.settle();
    }
}
