//! Dispatch: from the arguments of a request to the reply of a command.
//!
//! ```text
//! resolve   which command? its first key, hashed             (for a whole batch: its memory can be fetched ahead)
//! gates     may it run, here and now?                        run it, queue it, refuse it, park the connection
//! lock set  what it names, locked; killed or paused meanwhile?
//! turn      the handler: a data command by `execute`, another with its session
//! metering  how long it took, how long it held what it locked; waiters are served
//! ```
//! Partitions of a batch stay locked while consecutive commands need the same partition, and is released
//! before anything that takes long.

use isotherm_commands::Outcome;
use isotherm_commands::call::HashedKeys;
use isotherm_keyspace::{Db, Key, Slot};
use isotherm_resp::{Args, ProtocolError, Reply, errors};

use crate::request::admin_call::{AdminHandler, AdminTable};
use crate::request::ahead;
use crate::request::blocking;
use crate::request::budget::Budget;
use crate::request::execute::Exec;
use crate::request::fetching::Passage;
use crate::request::follow_up;
use crate::request::gates::{self, Verdict};
use crate::request::leases;
use crate::request::locking;
use crate::request::metering::{Part, Timed};
use crate::request::slots::route::Hint;
use isotherm_node::Node;
use isotherm_node::effects::pubsub::Audience;
use isotherm_node::mail::tasks::Tasks;
use isotherm_node::observe::facts::Facts;
use isotherm_node::request::entry::{Entry, Locks};
use isotherm_node::request::gate_bits::Gates;
use isotherm_node::request::next::{Next, WaitReason};

use crate::request::prefetch;
use crate::request::refusal;
use crate::request::reply_limits::{ReplyLimits, account_reply, drop_reply};
use crate::request::resolve::{self, Found, Request};
use crate::request::transaction;
use crate::request::turn::Turn;
use isotherm_node::session::{Attention, ReplyMode, Session};
use isotherm_node::users::permission;

/// Runner of the requests of one worker.
pub struct Dispatcher {
    pub exec: Exec,
    pub reply: Reply,
    pub audience: Audience,
    limits: ReplyLimits,
    /// Requests that were run in this turn of the event loop.
    pub commands: u64,
    /// Bytes and time that are left of this turn.
    pub budget: Budget,
    /// Facts of the system, asked for before an EXEC that will report them.
    facts: Option<Facts>,
    admin: &'static AdminTable,
    pub handlers: Box<[Option<AdminHandler>]>,
}

/// Outcome of a command that was to run.
enum Ran {
    Done,
    /// The command has run, or cannot run yet: no further command of its session runs.
    Parked(WaitReason),
    /// No command was run: before it had its locks its session was killed, or the node got a task that holds
    /// it up.
    HeldUp,
}

impl Dispatcher {
    pub fn new(node: &'static Node, admin: &'static AdminTable, worker: usize) -> Dispatcher {
        let exec = Exec::new(node, worker);
        Dispatcher {
            budget: Budget::new(&exec.clock),
            exec,
            reply: Reply::default(),
            audience: Audience::default(),
            limits: ReplyLimits::default(),
            commands: 0,
            facts: None,
            admin,
            handlers: node.commands.table(admin.commands),
        }
    }

    /// Looks up command and first key. Nothing is decided here.
    #[inline]
    pub fn resolve<'b>(&self, args: Args<'b>) -> Request<'b> {
        let node = self.exec.node;
        resolve::resolve(&node.commands, &node.keyspace, args)
    }

    /// Fetches the memory that a batch will touch.
    #[inline]
    pub fn prefetch_batch(&self, db: Db, requests: &[Request<'_>]) {
        prefetch::prefetch(&self.exec.node.keyspace, db, requests);
    }

    // ---- a share ----

    /// Begins the share of another connection, or group of them: its requests run from now on. When they have
    /// taken their share of the turn, the rest of them waits for the next turn. The share is checked between
    /// batches and after commands that took long: the times of commands are known anyway, so it costs no
    /// reading of a clock.
    #[inline]
    pub fn begin_share(&mut self) {
        self.exec.clock.begin();
        self.budget.begin_share(self.exec.clock.began());
    }

    /// A part of the turn begins: what follows has a budget of its own.
    #[inline]
    pub fn begin_part(&mut self) {
        self.budget.begin_part(self.exec.clock.raw());
    }

    /// Returns whether the share is exceeded, so that the requests already read are not all run either.
    #[inline]
    pub fn share_is_exceeded(&self) -> bool {
        self.budget.is_share_exceeded(self.exec.clock.began())
    }

    // ---- a batch ----

    /// Runs requests of one session. `waiting` bytes of its replies are not written yet, and `of_others`
    /// bytes of the reply buffer are not its replies. Returns how many ran, and what comes next: `Go` if all
    /// of them did. One reply may be much, two of them would be too much: after the first the rest has to
    /// wait until it is written.
    #[inline]
    pub fn run_all(
        &mut self,
        session: &mut Session,
        requests: &[Request<'_>],
        waiting: usize,
        of_others: usize,
    ) -> (usize, Next) {
        self.reply.proto = session.proto;
        self.exec.begin_batch();
        self.limits.begin(&self.exec, session, &mut self.reply, waiting, of_others);
        let (ran, next) = self.run_each(session, requests);
        self.commands += ran as u64;
        (ran, next)
    }

    #[inline]
    fn run_each(&mut self, session: &mut Session, requests: &[Request<'_>]) -> (usize, Next) {
        for (at, request) in requests.iter().enumerate() {
            match self.run(session, request) {
                Next::Go => {}
                stopped @ Next::Park(cause) => {
                    if let WaitReason::Cold(ticket) = cause {
                        ahead::want(&mut self.exec, ticket, session.db, &requests[at + 1..]);
                    }
                    return (at + usize::from(cause.has_run()), stopped);
                }
                stopped => return (at + 1, stopped),
            }
            if at == 0 && requests.len() > 2 {
                prefetch::prefetch_collections(&mut self.exec.held, session.db, requests);
            }
            if self.limits.is_much(&self.reply) {
                // A session that has just begun to listen may get messages of many channels.
                if session.listening.is_some() && self.limits.are_above(&self.exec, session, &self.reply) {
                    return (at + 1, Next::Close { after_replies: false });
                }
                account_reply(&self.exec, session, &self.reply);
                if at + 1 < requests.len() {
                    return (at + 1, Next::Write);
                }
            }
        }
        (requests.len(), Next::Go)
    }

    /// Runs one request, to the end.
    #[inline]
    fn run(&mut self, session: &mut Session, request: &Request<'_>) -> Next {
        debug_assert_eq!(session.gates, session.gates_now(), "only handlers change what a session is");
        let mark = self.reply.len();
        let ran = match request.found {
            // The usual command of the usual session: nothing to ask, if the node has no task either.
            Found::Command(command) if self.is_open(session, command, request) => {
                match self.exec.route.hint(request.key.as_ref().map(|key| key.slot)) {
                    Hint::Here => self.lock_and_run(session, command, request, Tasks::ANY),
                    Hint::Moved(slot) => self.send_away(session, command, slot),
                    Hint::Ask => Ran::HeldUp,
                }
            }
            _ => Ran::HeldUp,
        };
        let ran = match ran {
            // A script that may not begin: perhaps its client gets an error.
            Ran::HeldUp | Ran::Parked(WaitReason::Lease) => {
                let asking = session.asking;
                match self.run_asked(session, request) {
                    Ok(ran) => {
                        end_asking(session, asking, &ran);
                        ran
                    }
                    Err(next) => return next,
                }
            }
            ran => ran,
        };
        if let Ran::Parked(cause) = ran {
            if cause == WaitReason::Lease {
                self.exec.node.runs.note_wait();
            }
            return Next::Park(cause);
        }
        if session.reply_mode != ReplyMode::On {
            drop_reply(session, &mut self.reply, mark);
        }
        if self.limits.are_checked && self.limits.are_above(&self.exec, session, &self.reply) {
            return Next::Close { after_replies: false };
        }
        match session.close_after_reply {
            true => leave(session),
            false => Next::Go,
        }
    }

    /// Returns whether no gate stands between this session and the command, except those that are asked under
    /// its locks.
    #[inline]
    fn is_open(&self, session: &mut Session, command: &Entry, request: &Request<'_>) -> bool {
        let gates = session.gates.or(self.exec.gates).and(command.gates);
        gates == Gates::NONE
            || gates == Gates::GROWTH && self.exec.node.has_room_below(self.exec.hot.memory_target_bytes)
            || gates.has(Gates::PERMISSION) && self.is_permitted(gates, session, command, request)
    }

    /// Returns whether the command is open to a session whose user may not do everything. The permission is
    /// checked here, so that such a session is as fast as others if no other gate stands in its way. A
    /// command that is denied takes the slow way, where the gate reports it.
    #[inline(never)]
    fn is_permitted(
        &self,
        gates: Gates,
        session: &mut Session,
        command: &Entry,
        request: &Request<'_>,
    ) -> bool {
        if gates == Gates::PERMISSION
            && let Some(key) = &request.key
            && self.exec.node.users.soon_permit(&session.user, command, key.bytes)
        {
            return true;
        }
        self.is_permitted_otherwise(gates, session, command, request)
    }

    #[inline(never)]
    fn is_permitted_otherwise(
        &self,
        gates: Gates,
        session: &mut Session,
        command: &Entry,
        request: &Request<'_>,
    ) -> bool {
        let node = self.exec.node;
        let is_open_else = gates == Gates::PERMISSION
            || gates == Gates::PERMISSION.or(Gates::GROWTH)
                && node.has_room_below(self.exec.hot.memory_target_bytes);
        is_open_else && permission::check_session(node, session, command, request.args, session.db).is_ok()
    }

    /// Asks the gates, then runs the request, queues it or refuses it; or says what comes next if it is none
    /// of these.
    #[inline(never)]
    fn run_asked(&mut self, session: &mut Session, request: &Request<'_>) -> Result<Ran, Next> {
        loop {
            if session.shared.is_asked(Attention::ANY) && !session.heeds(&self.exec.node.users) {
                return Err(Next::Close { after_replies: false });
            }
            self.exec.refresh();
            let verdict = gates::ask(&mut self.exec, session, request);
            match (verdict, request.found) {
                (Verdict::Pass, Found::Command(command)) => {
                    let unless = gates::pauses_for(self.exec.node, session, request);
                    match self.lock_and_run(session, command, request, unless) {
                        // The verdict of the gates holds no longer.
                        Ran::HeldUp => continue,
                        Ran::Done => follow_up::observe(&mut self.exec, session, command, request.args),
                        Ran::Parked(WaitReason::Lease) if self.exec.node.runs.is_busy() => {
                            let text = gates::busy_text(self.exec.node);
                            let args = request.args;
                            refusal::refuse(
                                &mut self.exec,
                                session,
                                &mut self.reply,
                                Some(command),
                                text.as_bytes(),
                                args,
                            );
                        }
                        Ran::Parked(cause) => {
                            // A transaction continues: it is observed when it is over.
                            if cause.has_run() && !matches!(cause, WaitReason::Exec(_)) {
                                follow_up::observe(&mut self.exec, session, command, request.args);
                            }
                            return Ok(Ran::Parked(cause));
                        }
                    }
                }
                (Verdict::Queue, Found::Command(command)) => {
                    let slot = self.exec.route.slot.filter(|_| command.gates.has(Gates::SLOT));
                    transaction::queue(self.exec.node, session, command, request.args, slot);
                    self.reply.simple("QUEUED");
                    self.exec.clock.lap();
                }
                (Verdict::Refuse(text), _) => {
                    let command = request.command();
                    self.exec.end_walk();
                    refusal::refuse(&mut self.exec, session, &mut self.reply, command, &text, request.args);
                }
                (Verdict::Redirect(text), _) => {
                    let command = request.command();
                    refusal::redirect(&mut self.exec, session, &mut self.reply, command, &text);
                }
                (Verdict::Park(cause), found) => {
                    if let Found::Command(command) = found {
                        // CLIENT LIST shows what it waits with.
                        session.last_command = command.index;
                    }
                    return Err(Next::Park(cause));
                }
                (Verdict::Attack, _) => {
                    refusal::log_attack(&session.shared.addr);
                    return Err(Next::Close { after_replies: false });
                }
                (Verdict::Pass | Verdict::Queue, _) => unreachable!("what is no command is refused"),
            }
            return Ok(Ran::Done);
        }
    }

    /// The slot of the one key is another node's, as far as its word says, and no gate has anything to say
    /// before that.
    #[inline(never)]
    fn send_away(&mut self, session: &mut Session, command: &'static Entry, slot: Slot) -> Ran {
        let Dispatcher { exec, reply, .. } = self;
        match refusal::send_away(exec, session, reply, command, slot) {
            true => Ran::Done,
            false => Ran::HeldUp,
        }
    }

    // ---- one command ----

    /// Locks what a command needs and runs it, unless the node has got one of these tasks before it had its
    /// locks.
    #[inline]
    fn lock_and_run(
        &mut self,
        session: &mut Session,
        command: &'static Entry,
        request: &Request<'_>,
        unless: Tasks,
    ) -> Ran {
        let mut keys = HashedKeys::NONE;
        match &request.key {
            Some(key) if command.has_one_key(request.args.len()) => {
                let exec = &mut self.exec;
                let partition = exec.node.keyspace.partition_of(key.slot);
                if exec.held.acquire_one(partition) {
                    exec.clock.outdate();
                }
                if !exec.admits(session, command, request.args, key.slot) {
                    return Ran::HeldUp;
                }
                keys = HashedKeys::one(usize::from(command.first_key), key);
            }
            Some(key) if command.key_step > 0 => {
                return self.lock_several_and_run(session, command, request.args, *key, unless);
            }
            _ if command.locks == Locks::Script => {
                return self.run_script(session, command, request.args, unless);
            }
            _ => {
                if locking::takes_writing(self.admin, session, command) {
                    let is_leased = self.exec.node.mail.tasks().has(Tasks::LEASED);
                    if is_leased && leases::holds_up(&mut self.exec, session, command, request.args)
                        || !locking::take_writing(&mut self.exec)
                    {
                        return Ran::Parked(WaitReason::Lease);
                    }
                }
                locking::lock(&mut self.exec, (self.admin, &mut self.facts), session, command, request.args);
                let ran = match self.exec.admits_asked(session, command, request.args) {
                    true => self.run_timed(session, command, request.args, keys, unless),
                    false => Ran::HeldUp,
                };
                self.exec.transaction.writing = None;
                return ran;
            }
        }
        self.run_timed(session, command, request.args, keys, unless)
    }

    #[inline(never)]
    fn lock_several_and_run<'b>(
        &mut self,
        session: &mut Session,
        command: &'static Entry,
        args: Args<'b>,
        first_key: Key<'b>,
        unless: Tasks,
    ) -> Ran {
        let mut keys = locking::HashedOnce::new();
        locking::lock_several(&mut self.exec, session.db, command, args, first_key, &mut keys);
        if self.exec.route.member.is_some()
            && !(locking::are_of_one_slot(command, args, &keys)
                && self.exec.admits(session, command, args, first_key.slot))
        {
            return Ran::HeldUp;
        }
        let (first, step) = (usize::from(command.first_key), usize::from(command.key_step));
        self.run_timed(session, command, args, HashedKeys { first, step, keys: &keys }, unless)
    }

    /// A script begins, with the token for meeting keys that it does not name, or its connection is parked.
    #[inline(never)]
    fn run_script(
        &mut self,
        session: &mut Session,
        command: &'static Entry,
        args: Args<'_>,
        unless: Tasks,
    ) -> Ran {
        if !leases::admits_script(&mut self.exec, command, args, session.debugs) {
            return Ran::Parked(WaitReason::Lease);
        }
        locking::lock(&mut self.exec, (self.admin, &mut self.facts), session, command, args);
        let ran = match self.exec.admits_asked(session, command, args) {
            true => self.run_timed(session, command, args, HashedKeys::NONE, unless),
            false => Ran::HeldUp,
        };
        self.exec.runs.found = None;
        // If it is suspended it has taken the token with it.
        if std::mem::take(&mut self.exec.runs.has_token) {
            self.exec.node.runs.give_token_back(&self.exec.node.mail);
        }
        ran
    }

    #[inline]
    fn run_timed(
        &mut self,
        session: &mut Session,
        command: &'static Entry,
        args: Args<'_>,
        keys: HashedKeys<'_>,
        unless: Tasks,
    ) -> Ran {
        let Dispatcher { exec, reply, audience, facts, handlers, .. } = self;
        // CLIENT KILL, PAUSE and ACL SETUSER set the mark first, and then hold every partition once before
        // their reply leaves (rule 12 of ARCHITECTURE.md). So a command that had its locks before was
        // awaited, and one that has them later sees the mark, however long it waited for them.
        if session.shared.is_asked(Attention::ANY) || exec.node.mail.tasks().has(unless) || !exec.knows_role()
        {
            return Ran::HeldUp;
        }
        if exec.node.mail.tasks().has(Tasks::LEASED) && leases::holds_up(exec, session, command, args) {
            return Ran::Parked(WaitReason::Lease);
        }
        // DEL of one key is as short as any command with one.
        let is_measured = command.is_measured && !(command.key_step > 0 && command.has_one_key(args.len()));
        // Without a limit nothing was evicted before it had its locks: its hold begins where the command
        // before it ended.
        if is_measured && exec.hot.memory_target_bytes > 0 || cfg!(debug_assertions) {
            exec.meter.begin_hold(&exec.clock);
        }
        let (began, now, mark) = (exec.clock.began(), exec.clock.now(), reply.bytes());
        let mut turn = Turn { exec, session, reply, audience, facts: facts.as_ref(), handlers };
        let mut outcome = turn.run(command, args, keys, now, true);
        if let Outcome::Cold(_) = outcome
            && turn.has_fetched_enough()
        {
            outcome = turn.run_to_end(command, args, keys, now, true);
        }
        (exec.has_waited, exec.was_late) = (false, false);
        let taken = exec.clock.lap_since(began);
        let ran = match outcome {
            Outcome::Done => {
                let reply_bytes = reply.bytes() - mark;
                let client = &session.shared;
                let (db, part) = (session.db, Part::Whole);
                let timed = Timed { client, db, command, args, ticks: taken, reply_bytes, part };
                exec.meter.count_time(&exec.clock, &exec.hot, &mut exec.prng, &timed);
                Ran::Done
            }
            Outcome::Block(wait) => {
                blocking::block(exec, session, command, args, *wait, taken);
                exec.meter.count_ticks(command, taken);
                Ran::Parked(WaitReason::Key)
            }
            Outcome::Cold(keys) => match exec.ask_passage(command, session.multi.as_deref(), &keys) {
                Passage::Free => Ran::Parked(WaitReason::Cold(exec.fetch(*keys))),
                Passage::Later => {
                    // That was no round to the disk.
                    session.fetches = session.fetches.saturating_sub(1);
                    Ran::Parked(WaitReason::Writers)
                }
                Passage::Refused => {
                    refusal::refuse(
                        exec,
                        session,
                        reply,
                        Some(command),
                        errors::OUT_OF_MEMORY.as_bytes(),
                        args,
                    );
                    Ran::Done
                }
            },
            Outcome::Later => Ran::Parked(exec.runs.parked.take().expect("a script was suspended")),
        };
        exec.end_walk();
        if is_measured || taken >= exec.hot.long_hold_ticks || exec.held.has_ready() || cfg!(debug_assertions)
        {
            follow_up::end_hold(exec, command, taken);
            if self.share_is_exceeded() {
                self.limits.end_batch();
            }
        }
        ran
    }

    // ---- outside commands ----

    /// A session that has waited for a key was served this.
    pub fn answer(&mut self, session: &mut Session, reply: &[u8]) {
        let mark = self.reply.len();
        self.reply.out.extend_from_slice(reply);
        session.commands += 1;
        if session.reply_mode != ReplyMode::On {
            drop_reply(session, &mut self.reply, mark);
        }
    }

    /// Answers input of a client that is no request.
    #[cold]
    pub fn protocol_error(&mut self, session: &mut Session, error: ProtocolError) {
        refusal::protocol_error(&mut self.exec, session, &mut self.reply, error);
    }
}

/// ASKING holds for one command, or for one transaction.
fn end_asking(session: &mut Session, before: u32, ran: &Ran) {
    let has_run = match ran {
        Ran::Done => true,
        Ran::Parked(WaitReason::Exec(_)) => false,
        Ran::Parked(cause) => cause.has_run(),
        Ran::HeldUp => false,
    };
    if before > 0 && has_run && session.asking == before && session.multi.is_none() {
        session.asking = 0;
        session.note_gates();
    }
}

/// No further command of the session runs here.
#[cold]
fn leave(session: &mut Session) -> Next {
    match session.asks_for_stream() {
        true => {
            session.close_after_reply = false;
            Next::Park(WaitReason::Leaving)
        }
        false => Next::Close { after_replies: true },
    }
}
