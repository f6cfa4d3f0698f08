//! Blocked clients: those that wait for a key (BLPOP and its kin), and how they are answered.
//!
//! ```text
//! worker 0                                   worker 1
//! BLPOP a 5   nothing there
//!   listed under `a`, in a's partition  ...  LPUSH a x, and before a's partition is let go:
//!                                            BLPOP a 5 again, for the client of worker 0
//!   writes the reply  <---- message --------  its reply
//! ```
//! Three ways lead to an answer: another client's command serves this one (`WorkerMessage::Served`); CLIENT
//! UNBLOCK, from anywhere (`WorkerMessage::Unblocked`); its time is over, which its own worker sees. The
//! waiter's one byte of state decides between them. Where its own worker has to run the command, with all
//! locks, it is asked to (`WorkerMessage::Look`). The keyspace decides which waiters are served, and in which
//! order (`serving`); here are the commands, the mailboxes and the sessions.
//!
//! A client that is killed, for whatever reason, waits no longer from that moment on, and takes nothing. An
//! answer that was served to it before is on its way: its worker awaits that and writes it, then closes.

use isotherm_acl::{Context, User};
use isotherm_commands::call::{ColdKeys, HashedKeys};
use isotherm_commands::spec::key_positions;
use isotherm_commands::wait::Wait;
use isotherm_commands::{Flags, Outcome};
use isotherm_keyspace::{
    Attempt, Conditions, Db, ExpiryMode, Held, Key, Lookup, Serve, Slot, SteadyMs, Txn, Type, UnixMs, Waiter,
    look, serve_ready,
};
use isotherm_log::LogOffset;
use isotherm_replication::acks::Wish;
use isotherm_resp::reply::Protocol;
use isotherm_resp::{Args, ArgsBuf, Reply};
use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::request::errands;
use crate::request::execute::{self, Exec, Invocation};
use crate::request::lock_set::{try_extend, try_extend_to_keys};
use crate::request::metering::{Part, Timed};
use crate::request::slots::refusal::Refusal;
use crate::request::slots::route::{self, Asked, Who};
use isotherm_allocator::class_bytes;
use isotherm_node::Node;
use isotherm_node::cluster::requests::{Asker, ClusterRequest};
use isotherm_node::cluster::words::Word;
use isotherm_node::effects::tracking::Tracker;
use isotherm_node::mail::message::{Without, WorkerMessage, carried_bytes};
use isotherm_node::mail::tasks::Tasks;
use isotherm_node::migration::job::Job;
use isotherm_node::observe::latency::monitor::Event;
use isotherm_node::replication::waits;
use isotherm_node::request::caller::Caller;
use isotherm_node::request::entry::{Entry, Handler};
use isotherm_node::session::{Attention, Blocked, ClientShared, Session};
use isotherm_node::users::{noting, permission};

/// Everything that is needed to run the command of a waiting client again, on any worker.
struct Client {
    node: &'static Node,
    shared: Arc<ClientShared>,
    command: &'static Entry,
    args: ArgsBuf,
    db: Db,
    proto: Protocol,
    caller: Caller,
    /// User of the client, and the generation of the users at which it was looked up.
    user: Arc<User>,
    users_seen: u64,
    /// Tracker of the client, if it tracks what it reads.
    reader: Option<Tracker>,
    /// Wait for ACKs, if the client waits for these and for no key.
    wish: Option<Wish>,
    /// True if the client reads from a replica too (READONLY).
    reads_of_replica: bool,
    /// True if it waits for the answer of the cluster bus, or for the end of its MIGRATE or its errand.
    awaits_answer: bool,
    /// True if its own worker counts its command: the thread that answers counts none.
    is_counted_here: bool,
    /// Error at the deadline of its errand, or of the bus.
    late: Option<&'static str>,
    /// Ticks that the command took to find nothing.
    ticks: u64,
}

impl Client {
    fn of(waiter: &Waiter) -> &Client {
        waiter.client.downcast_ref().expect("every waiter is made by `block`")
    }

    fn post(&self, message: WorkerMessage) {
        self.node.mail.post(usize::from(self.shared.worker), message);
    }

    fn first_key(&self) -> Option<&[u8]> {
        let mut positions = Vec::new();
        key_positions(self.command.spec, self.args.args(), &mut positions).ok()?;
        positions.first().map(|(at, _)| self.args.args().get(*at))
    }

    fn memory_bytes(&self) -> usize {
        class_bytes(size_of::<Client>()) + self.args.memory_bytes(class_bytes)
    }
}

/// Keys of a waiter that others' commands lock in addition to their own: each may be a lock that others want.
const KEYS_EXTENDED_MAX: usize = 16;

const BUS_LATE: &str = "ERR The cluster bus has not answered in time. What was asked for goes on";

pub const NO_END: &str = "ERR Errors trying to SHUTDOWN. Check logs.";

/// CLIENT UNBLOCK. Whether the client was blocked.
pub fn unblock(client: &ClientShared, how: Without) -> bool {
    let Some(waiter) = client.waiter().clone() else { return false };
    if how == Without::RoleChanged && Client::of(&waiter).reads_of_replica {
        return false;
    }
    if Client::of(&waiter).awaits_answer || how == Without::ClusterDown && waiter.keys.is_empty() {
        return false;
    }
    answer_without_end(&waiter, how)
}

/// Answers a client that waits for an answer with `reply`.
pub fn answer_with(waiter: &Arc<Waiter>, reply: Reply) {
    answer_in_time(waiter, reply);
}

/// Answers one that waits for an answer. Returns whether it still waited.
pub fn answer_in_time(waiter: &Arc<Waiter>, reply: Reply) -> bool {
    answer_behind(waiter, reply, LogOffset::default(), LogOffset::default())
}

/// A thread that counts no commands has answered the client of this worker.
pub fn count_answer(exec: &mut Exec, waiter: &Waiter, reply: &[u8]) {
    let client = Client::of(waiter);
    if !client.is_counted_here {
        return;
    }
    let mut counted = Reply::new(client.proto);
    match reply.strip_prefix(b"-") {
        Some(text) => counted.error(text.trim_ascii_end()),
        None => counted.raw(reply),
    }
    exec.count_call(client.command, &counted, 0);
    count_time(exec, client, 0, reply.len());
}

/// Answers a client whose MIGRATE is over. The migration has spent `ticks` on locks.
pub fn answer_migration(exec: &mut Exec, waiter: &Arc<Waiter>, reply: Reply, ticks: u64) {
    let client = Client::of(waiter);
    exec.count_call(client.command, &reply, 0);
    count_time(exec, client, ticks, reply.len());
    exec.meter.settle();
    let (not_before, written) = (exec.take_not_before(), exec.pump.log.take_written());
    answer_behind(waiter, reply, not_before, written);
}

/// `not_before`: the place in the log that the reply waits for. `written`: where its changes end.
fn answer_behind(waiter: &Arc<Waiter>, reply: Reply, not_before: LogOffset, written: LogOffset) -> bool {
    let ended = waiter.answer_otherwise();
    if ended {
        let client = Client::of(waiter);
        client.node.mail.add_queued(carried_bytes(&reply.out));
        client.post(WorkerMessage::Served {
            waiter: Arc::clone(waiter),
            reply: reply.out,
            not_before,
            written,
        });
    }
    ended
}

/// Answers a waiting client as `how` says, whatever it waits for. Returns whether it still waited.
pub fn answer_without_end(waiter: &Arc<Waiter>, how: Without) -> bool {
    let ended = waiter.answer_otherwise();
    if ended {
        let of = Client::of(waiter);
        of.post(WorkerMessage::Unblocked { waiter: Arc::clone(waiter), how });
    }
    ended
}

/// A slot whose keys the client waits for is no longer this node's. The lock of its partition is held.
/// `is_readable`: clients that read of replicas are still served.
pub fn leave_slot(waiter: &Arc<Waiter>, slot: Slot, is_readable: bool) {
    if !(is_readable && Client::of(waiter).reads_of_replica) {
        answer_without_end(waiter, Without::SlotLost(slot));
    }
}

/// The command has found nothing, in `ticks`: the session waits. The partitions of its keys are still held,
/// so nothing was pushed meanwhile.
#[cold]
pub fn block(
    exec: &mut Exec,
    session: &mut Session,
    command: &'static Entry,
    args: Args<'_>,
    wait: Wait,
    ticks: u64,
) {
    let keys = wait.keys.map(|at| (session.db, args.get(at)));
    let asks_bus = std::mem::take(&mut session.asks_bus);
    let errand = session.errand.take();
    let client = Client {
        node: exec.node,
        shared: Arc::clone(&session.shared),
        command,
        args: wait.instead.unwrap_or_else(|| ArgsBuf::from(args)),
        db: session.db,
        proto: session.proto,
        caller: session.caller(true),
        user: Arc::clone(&session.user),
        users_seen: session.users_seen,
        reader: session.reader(),
        wish: session.wish.take().map(|wish| *wish),
        reads_of_replica: session.reads_of_replica && !command.spec.flags.has(Flags::WRITE),
        awaits_answer: asks_bus || errand.is_some() || session.migration.is_some(),
        is_counted_here: asks_bus || errand.is_some(),
        late: errand.as_ref().map(|errand| errand.late).or(asks_bus.then_some(BUS_LATE)),
        ticks,
    };
    let wish = client.wish;
    let wake = |waiter: &Arc<Waiter>| {
        Client::of(waiter).post(WorkerMessage::Look { waiter: Arc::clone(waiter) });
    };
    let (argument_bytes, client_bytes) = (client.args.args().bytes_total(), client.memory_bytes());
    let keyspace = &exec.node.keyspace;
    let waiter = Waiter::new(keyspace, wait.kind, wait.on_removal, keys, wake, Box::new(client));
    exec.held.wait(&waiter);
    *session.shared.waiter() = Some(Arc::clone(&waiter));
    // A kill that did not find the waiter has left its mark before it looked for it.
    if session.shared.is_asked(Attention::KILL) {
        waiter.end();
    }
    exec.node.clients.blocked.fetch_add(1, Ordering::AcqRel);
    let bytes = client_bytes + waiter.memory_bytes(class_bytes);
    if let Some(wish) = wish {
        exec.node.wait_for_acks(&waiter, wish);
    }
    if asks_bus && let Some(member) = exec.node.cluster.get() {
        let asker = Asker::new(&waiter, session.proto, answer_with);
        member.bus.ask(ClusterRequest { args: ArgsBuf::from(args), asker });
    }
    if let Some(errand) = errand {
        errands::start(exec.node, *errand, &waiter, session.proto, &command.name);
    }
    if let Some(order) = session.migration.take() {
        let (client, caller, db) = (Arc::clone(&session.shared), session.caller(true), session.db);
        let (waiter, proto) = (Arc::clone(&waiter), session.proto);
        let job = Job { order: *order, waiter, client, caller, db, proto };
        if let Err((jobs, error)) = exec.node.migrations.begin(job) {
            let text = format!("ERR Can't start a thread: {error}");
            jobs.iter().for_each(|job| answer_with(&job.waiter, job.error(&text)));
        }
    }
    let is_down = exec.node.cluster.get().is_some_and(|member| member.topologies.is_down());
    if is_down && !waiter.keys.is_empty() {
        answer_without_end(&waiter, Without::ClusterDown);
    }
    let deadline = wait.deadline.map(SteadyMs::of);
    session.blocked = Some(Box::new(Blocked { waiter, deadline, is_noted: false, argument_bytes, bytes }));
}

/// The session waits no longer: it has been or is about to be answered, or is gone. No locks are held.
pub fn stop_waiting(exec: &mut Exec, session: &mut Session) -> Option<Box<Blocked>> {
    let blocked = session.blocked.take()?;
    blocked.waiter.end();
    *session.shared.waiter() = None;
    exec.node.clients.blocked.fetch_sub(1, Ordering::AcqRel);
    exec.held.forget(&blocked.waiter);
    Some(blocked)
}

// ---- serving ----

/// Serves the waiters of keys that were changed. Their commands run at their own time: a transaction may have
/// taken so long that what it pushed has expired.
#[cold]
pub fn serve_waiters(exec: &mut Exec) {
    exec.clock.begin();
    let now = exec.clock.now();
    serve_ready(&mut Serving { exec, now, is_denied: false });
}

fn run_again(exec: &mut Exec, waiter: &Arc<Waiter>, now: UnixMs) -> Attempt<Reply, Box<ColdKeys>> {
    let client = Client::of(waiter);
    let &Client { command, db, caller, .. } = client;
    // Its key may have been there before; the next primary answers for it.
    if command.spec.flags.has(Flags::WRITE) && exec.node.replication.failover.is_in_progress() {
        return Attempt::Nothing;
    }
    match judge(exec, client) {
        Judged::MayRun => {}
        Judged::Refused(error) => return Attempt::Answer(error),
        Judged::UnderWay => {
            await_arrival(exec, waiter);
            return Attempt::Nothing;
        }
    }
    let Some(Handler::Data(handler)) = command.handler else {
        unreachable!("only data commands wait");
    };
    let (args, keys, mut reply) = (client.args.args(), HashedKeys::NONE, Reply::new(client.proto));
    let invocation = Invocation { command, handler, args, db, keys, now, caller, reply: &mut reply };
    match execute::run(exec, invocation) {
        Outcome::Done => {}
        Outcome::Block(_) | Outcome::Later => return Attempt::Nothing,
        Outcome::Cold(keys) => return Attempt::Missing(keys),
    }
    if let Some(reader) = client.reader.filter(|_| command.spec.flags.has(Flags::READONLY)) {
        exec.note_reads(reader, command, args);
    }
    Attempt::Answer(reply)
}

/// Returns whether the client of another worker has hung up, which that worker is going to see: it ends the
/// waiting.
fn is_gone(exec: &Exec, client: &Client) -> bool {
    let worker = client.shared.worker;
    exec.pump.worker != Some(worker) && exec.node.hangups.has(usize::from(worker), client.shared.id)
}

/// Returns the error for a client whose user has lost a right in the meantime, if it has. The partitions that
/// the command locks are held.
fn denial_of(exec: &mut Exec, client: &Client) -> Option<Reply> {
    let node = exec.node;
    let is_unchanged = client.users_seen == node.users.generation();
    if is_unchanged && client.user.permits_everything() {
        return None;
    }
    let user = if is_unchanged { Some(Arc::clone(&client.user)) } else { node.users.get(&client.user.name) };
    // The connection of one that is no more is closed.
    let user = user.filter(|user| !user.permits_everything())?;
    let (command, args) = (client.command, client.args.args());
    let denial = permission::check(node, &user, command, args, client.db).err()?;
    noting::denied_to(node, &client.shared, (&user.name, command, args), denial, Context::TopLevel);
    let mut reply = Reply::new(client.proto);
    reply.error(permission::error(&user, command, args, denial));
    exec.stats.commands[usize::from(command.index)].rejected.add(1);
    exec.stats.count_error(reply.last_error().as_bytes());
    Some(reply)
}

/// A verdict of the slot of a waiter's keys.
enum Judged {
    MayRun,
    Refused(Reply),
    /// A key is missing that a MIGRATE has: the error that its target deserves is known once that is over.
    UnderWay,
}

/// Judges whether the command may run in a member of a cluster, whose slot may have left or be migrating. The
/// partitions that the command locks are held.
fn judge(exec: &mut Exec, client: &Client) -> Judged {
    let Some(member) = exec.route.member else { return Judged::MayRun };
    let Some(slot) = client.first_key().map(Slot::of_key) else { return Judged::MayRun };
    if member.words.get(slot) == Word::MINE {
        return Judged::MayRun;
    }
    let &Client { command, db, reads_of_replica, .. } = client;
    let who = Who { db, reads_of_replica, asking: false, is_queued: false, queue: None };
    let asked = Asked { command, args: client.args.args(), flags: command.spec.flags, slot, who };
    let refusal = match route::judge(&mut exec.desk(), asked) {
        Ok(()) => return Judged::MayRun,
        Err(Refusal::UnderWay) => return Judged::UnderWay,
        Err(refusal) => refusal,
    };
    // Without a text the slot has come to this node.
    route::text_of(&mut exec.desk(), refusal, &client.shared).map_or(Judged::MayRun, |text| {
        let mut reply = Reply::new(client.proto);
        reply.error(text);
        Judged::Refused(reply)
    })
}

/// Has the waiter's worker look again when the MIGRATE that has its key is over.
fn await_arrival(exec: &mut Exec, waiter: &Arc<Waiter>) {
    exec.node.runs.postpone(waiter);
    // That takes no lock: it may have been over before the waiter was listed.
    if !matches!(judge(exec, Client::of(waiter)), Judged::UnderWay) {
        look_again(Arc::clone(waiter));
    }
}

// ---- what the waiter's own worker does ----

/// Looks for the keys of a waiting client again: they may exist, and the thread that saw them could not serve
/// the client. Returns how to answer a client that does not wait for keys, if its wait has ended.
pub fn look_for(exec: &mut Exec, waiter: &Arc<Waiter>) -> Option<Without> {
    if let Some(wish) = Client::of(waiter).wish {
        waiter.clear_woken();
        return exec.node.answer_of(&wish).filter(|_| waiter.answer_otherwise());
    }
    exec.refresh();
    // The time is read when the locks are had.
    look(&mut Serving { exec, now: UnixMs(0), is_denied: false }, waiter);
    let (from, to) = (exec.meter.hold_from(), exec.clock.raw());
    exec.meter.note_hold(&exec.held, &exec.hot, Client::of(waiter).command, from, to);
    exec.release();
    None
}

/// Asks the worker of a waiting client to look for its keys again, as the client may have waited for the end
/// of a script.
pub fn look_again(waiter: Arc<Waiter>) {
    Client::of(&waiter).post(WorkerMessage::Look { waiter: Arc::clone(&waiter) });
}

/// The reply of a session that was not served.
pub fn answer_without(exec: &mut Exec, session: &Session, waiter: &Waiter, how: Without) -> Vec<u8> {
    let mut reply = Reply::new(session.proto);
    let client = Client::of(waiter);
    let counters = &exec.stats.commands[usize::from(client.command.index)];
    counters.calls.add(1);
    match how {
        Without::TimedOut | Without::Acknowledged => match &client.wish {
            Some(wish) => waits::reply(&mut reply, wish, exec.node.reached(wish)),
            None => match client.late {
                Some(text) => {
                    reply.error(text);
                    exec.stats.count_error(reply.last_error().as_bytes());
                }
                None => reply.null_array(),
            },
        },
        Without::NothingSynced => reply.error(waits::NOTHING_SYNCED),
        Without::Error
        | Without::RoleChanged
        | Without::NoEnd
        | Without::SlotLost(_)
        | Without::ClusterDown => {
            match how {
                Without::SlotLost(slot) => {
                    reply.error(route::redirection_of(exec.node, slot, &session.shared));
                }
                Without::ClusterDown => reply.error(Refusal::Down.text()),
                Without::NoEnd => reply.error(NO_END),
                Without::RoleChanged => reply.error(answer_of_replica(exec, session, waiter).as_bytes()),
                _ => reply.error("UNBLOCKED client unblocked via CLIENT UNBLOCK"),
            }
            counters.rejected.add(1);
            exec.stats.count_error(reply.last_error().as_bytes());
        }
    }
    count_time(exec, client, 0, reply.len());
    reply.out
}

/// The node follows a primary now: the client asks that one, or gets this reply and no other.
fn answer_of_replica(exec: &Exec, session: &Session, waiter: &Waiter) -> Cow<'static, str> {
    let can_follow = session.redirects && !waiter.keys.is_empty();
    if let Some(text) = can_follow.then(|| exec.node.replication.redirection()).flatten() {
        return Cow::Owned(text);
    }
    session.shared.ask(Attention::KILL);
    Cow::Borrowed(
        "UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)",
    )
}

fn count_time(exec: &mut Exec, client: &Client, ticks: u64, reply_bytes: usize) {
    let &Client { ref shared, db, command, .. } = client;
    let (args, part) = (client.args.args(), Part::Waited(client.ticks));
    let timed = Timed { client: shared, db, command, args, ticks, reply_bytes, part };
    exec.meter.count_time(&exec.clock, &exec.hot, &mut exec.prng, &timed);
}

/// A worker that serves, at this time.
struct Serving<'e> {
    exec: &'e mut Exec,
    now: UnixMs,
    /// The last one was denied: nothing ran, so it took no time.
    is_denied: bool,
}

impl Serve<'static> for Serving<'_> {
    type Answer = Reply;
    type Missing = Box<ColdKeys>;

    fn held(&mut self) -> &mut Held<'static> {
        &mut self.exec.held
    }

    fn acquire(&mut self, waiter: &Waiter) {
        let client = Client::of(waiter);
        let exec = &mut *self.exec;
        exec.locks.clear();
        exec.locks.add_command(&exec.node.keyspace, client.command, client.args.args());
        exec.locks.acquire(&mut exec.held);
        exec.clock.begin();
        self.now = exec.clock.now();
        exec.meter.begin_hold(&exec.clock);
    }

    fn reaches(&mut self, waiter: &Waiter) -> bool {
        let client = Client::of(waiter);
        let held = &mut self.exec.held;
        // COMPAT(blocking): A client that waits for several keys (BLPOP, BZPOPMIN, XREAD) is served from
        // the keys that the pushing command has locked, or, if they are 16 at most, can lock without
        // waiting; its other keys count as absent, as they were when it began to wait. Why: to wait for
        // locks in the middle of a command could deadlock.
        //
        // COMPAT(blocking): A client that waits to move an element (BLMOVE, BRPOPLPUSH) may be passed by a
        // command that pops it, while another thread has the partition of its target. Why: to wait for
        // locks in the middle of a command could deadlock.
        if client.command.spec.key_specs.len() > 1 {
            return try_extend_to_keys(held, client.command, client.args.args());
        }
        let is_leasing = self.exec.node.mail.tasks().has(Tasks::LEASED);
        if (2..=KEYS_EXTENDED_MAX).contains(&waiter.keys.len()) && !is_leasing {
            waiter.keys.iter().for_each(|key| _ = try_extend(held, key.partition));
        }
        true
    }

    fn is_leased(&mut self, waiter: &Waiter) -> bool {
        let client = Client::of(waiter);
        self.exec.node.mail.tasks().has(Tasks::LEASED)
            && self.exec.names_leased(client.command, client.args.args())
    }

    fn postpone(&mut self, waiter: &Arc<Waiter>) {
        self.exec.node.runs.postpone(waiter);
    }

    fn kind_of(&mut self, db: Db, key: &Key<'_>) -> Option<Type> {
        let conditions = Conditions { now: self.now, expiry_mode: ExpiryMode::Hide, no_touch: true };
        let Exec { held, pump, .. } = &mut *self.exec;
        Txn::new(held, conditions, pump).find(db, key, Lookup::Silent).map(|entry| entry.kind())
    }

    fn run(&mut self, waiter: &Arc<Waiter>) -> Attempt<Reply, Box<ColdKeys>> {
        let client = Client::of(waiter);
        if is_gone(self.exec, client) {
            return Attempt::Nothing;
        }
        let denial = denial_of(self.exec, client);
        self.is_denied = denial.is_some();
        denial.map_or_else(|| run_again(self.exec, waiter, self.now), Attempt::Answer)
    }

    fn fetch(&mut self, waiter: &Arc<Waiter>, missing: Box<ColdKeys>) {
        Client::of(waiter).post(WorkerMessage::Fetch { waiter: Arc::clone(waiter), keys: missing });
    }

    fn answer(&mut self, waiter: &Arc<Waiter>, reply: Reply) {
        let client = Client::of(waiter);
        let exec = &mut *self.exec;
        let taken = exec.clock.lap();
        if !self.is_denied {
            count_time(exec, client, taken, reply.len());
        }
        let took = Duration::from_nanos(exec.clock.nanos(taken));
        exec.node.note_latency(Event::CommandUnblocking, took);
        let (not_before, written) = (exec.not_before(), exec.pump.log.take_written());
        exec.node.mail.add_queued(carried_bytes(&reply.out));
        client.post(WorkerMessage::Served {
            waiter: Arc::clone(waiter),
            reply: reply.out,
            not_before,
            written,
        });
    }
}

/// The connection that a waiter belongs to: its number at its worker, and its id.
pub fn owner(waiter: &Waiter) -> (usize, u64) {
    let shared = &Client::of(waiter).shared;
    (shared.token.load(Ordering::Acquire), shared.id)
}
