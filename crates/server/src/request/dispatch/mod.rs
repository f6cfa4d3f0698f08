//! Dispatch: from the arguments of a request to the reply of a command.
//!
//! ```text
//! resolve   which command? its first key, hashed      (for a whole batch, so that its memory can be fetched ahead)
//! admit     known? arity? authenticated? allowed here? memory? paused?      -> run it, queue it, refuse it, wait
//! call      lock what the declaration says, killed or paused meanwhile? run the handler, count
//! ```
//! The order of the checks and their texts are Valkey's. What a batch has locked stays locked while consecutive commands
//! need the same partition, and is released before anything that takes long.

mod metering;

use arrayvec::ArrayVec;
use isotherm_commands::call::HashedKeys;
use isotherm_commands::spec::key_positions;
use isotherm_commands::{Call, Flags, Outcome};
use isotherm_keyspace::{Conditions, Db, ExpiryMode, Held, Key, Slot, Txn, UnixMs, Want};
use isotherm_resp::{Args, ArgsBuf, Protocol, ProtocolError, Reply, errors};
use isotherm_stdx::{Prng, steps};
use std::borrow::Cow;
use std::sync::atomic::Ordering;

use crate::admin::{self, AdminCall};
use crate::config::OutputLimit;
use crate::effects::pubsub::Audience;
use crate::effects::pump::Pump;
use crate::effects::tracking::Tracker;
use crate::node::{Node, Tasks, unix_now};
use crate::observe::holds::{self, Work};
use crate::observe::info::Facts;
use crate::observe::latency::Noted;
use crate::observe::sample::Sampler;
use crate::observe::stats::ThreadStats;
use crate::process::log;
use crate::request::cached_config::{Hot, counted_output_bytes, reply_bytes_in_vain};
use crate::request::clock::CommandClock;
use crate::request::lock_set::Wanted;
use crate::request::registry::{Entry, Handler, Locks};
use crate::request::transaction;
use crate::session::{Attention, NO_COMMAND, Queued, ReplyMode, Session};
use crate::upkeep::memory::Room;
use isotherm_allocator::class_bytes;

/// One request of a batch, looked up but not run.
#[derive(Clone, Copy)]
pub struct Request<'b> {
    pub args: Args<'b>,
    pub found: Found,
    /// The key at `Entry::first_key`.
    pub key: Option<Key<'b>>,
}

#[derive(Clone, Copy)]
pub enum Found {
    Command(&'static Entry),
    WrongArity(&'static Entry),
    UnknownSubcommand,
    Unknown,
}

/// What the worker does after a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// The next command.
    Go,
    /// Much has been answered: it is to be written before the next command runs.
    Write,
    /// Nothing was run: again when that is over.
    Wait(Cause),
    /// Nothing was run: again when the messages that wait for the session are handed out.
    Hear,
    /// The session waits for a key.
    Block,
    /// Close the connection, after its replies if `after_replies`.
    Close { after_replies: bool },
}

/// What a command waits for before it is run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cause {
    /// The end of CLIENT PAUSE.
    Pause,
    /// Undelivered messages take much memory (`Tasks::CROWDED`).
    Crowd,
}

impl Cause {
    pub const ALL: [Cause; 2] = [Cause::Pause, Cause::Crowd];
    pub const COUNT: usize = Cause::ALL.len();
}

/// What runs the commands of one worker.
pub struct Dispatcher {
    pub node: &'static Node,
    pub stats: &'static ThreadStats,
    pub held: Held<'static>,
    pub reply: Reply,
    pub clock: CommandClock,
    pub hot: Hot,
    pub(crate) pump: Pump,
    pub audience: Audience,
    pub(crate) wanted: Wanted,
    pub(crate) prng: Prng,
    noted_times: Noted,
    pub(crate) sampler: Sampler,
    /// Of the session in hand: replies that wait in its outbox, and what of the reply buffer is not its own.
    unsent_before: usize,
    replies_of_others: usize,
    /// Its replies may be too much before they are written.
    judged: bool,
    /// Requests that were run in this turn of the event loop.
    pub commands: u64,
    /// What the system says, asked for ahead of an EXEC that will tell it.
    pub(crate) facts: Option<Facts>,
    /// Number of the worker.
    thread: usize,
    /// Since when the command under way holds what it needs, if that was looked at; and the processor time then.
    hold_from: u64,
    hold_cpu_from: u64,
    /// Kept for its memory.
    pub(crate) positions: Vec<(usize, isotherm_commands::spec::KeyFlags)>,
}

enum Admitted {
    /// Unless one of these tasks has come when it has its locks.
    Run(&'static Entry, Tasks),
    Queue(&'static Entry),
    Refuse(Option<&'static Entry>, Cow<'static, [u8]>),
    Wait(Cause),
    Hear,
    /// An HTTP request: somebody tricks a browser into talking to us.
    Attack,
}

impl Dispatcher {
    pub fn new(node: &'static Node, worker: usize) -> Dispatcher {
        let clock = CommandClock::new();
        let hot = Hot::new(node, &clock);
        let mut pump = Pump::new(node, Some(worker as u16));
        pump.listen(hot.events);
        Dispatcher {
            node,
            stats: node.stats.thread(worker),
            held: Held::new(&node.keyspace),
            reply: Reply::default(),
            hot,
            clock,
            pump,
            audience: Audience::default(),
            wanted: Wanted::default(),
            prng: Prng::new(node.seed ^ (worker as u64 + 1)),
            noted_times: Noted::default(),
            sampler: Sampler::default(),
            unsent_before: 0,
            replies_of_others: 0,
            judged: false,
            commands: 0,
            facts: None,
            thread: worker,
            hold_from: 0,
            hold_cpu_from: 0,
            positions: Vec::new(),
        }
    }

    /// Takes over what was changed in the configuration.
    #[inline]
    pub fn refresh(&mut self) {
        if self.hot.refresh(self.node, &self.clock) {
            self.pump.listen(self.hot.events);
            self.sampler.restart();
        }
    }

    // ---- resolve ----

    /// Looks up command and first key. Nothing is decided here.
    #[inline]
    pub fn resolve<'b>(&self, args: Args<'b>) -> Request<'b> {
        let found = self.look_up(args);
        let key = match found {
            Found::Command(command) if command.first_key > 0 => {
                args.try_get(usize::from(command.first_key)).map(|name| self.node.keyspace.key(name))
            }
            _ => None,
        };
        Request { args, found, key }
    }

    #[inline]
    fn look_up(&self, args: Args<'_>) -> Found {
        let Some(mut command) = self.node.commands.find(args.get(0)) else { return Found::Unknown };
        if command.is_container() && args.len() > 1 {
            match command.subcommand(args.get(1)) {
                Some(subcommand) => command = subcommand,
                None => return Found::UnknownSubcommand,
            }
        }
        if command.takes(args.len()) { Found::Command(command) } else { Found::WrongArity(command) }
    }

    /// Fetches the memory that a batch will touch.
    #[inline]
    pub fn prefetch_batch(&self, db: Db, requests: &[Request<'_>]) {
        crate::request::prefetch::prefetch(&self.node.keyspace, db, requests);
    }

    // ---- admit and run ----

    /// Runs requests of one session, of whose replies `waiting` bytes are not written yet and `of_others` bytes of the
    /// reply buffer are none. Returns how many ran, and what comes next: `Go` if all of them did. One reply may be much,
    /// two of them would be too much: behind the first the rest has to wait until it is written.
    #[inline]
    pub fn run_all(
        &mut self,
        session: &mut Session,
        requests: &[Request<'_>],
        waiting: usize,
        of_others: usize,
    ) -> (usize, Next) {
        self.reply.proto = session.proto;
        self.commands += requests.len() as u64;
        (self.unsent_before, self.replies_of_others) = (waiting, of_others);
        self.judged = self.hot.judges_replies || session.listening.is_some();
        self.reply.bytes_max = if self.judged { self.reply_bytes_max_of(session) } else { 0 };
        for (at, request) in requests.iter().enumerate() {
            match self.run(session, request) {
                Next::Go => {}
                stopped @ (Next::Wait(_) | Next::Hear) => return (at, stopped),
                stopped => return (at + 1, stopped),
            }
            if at == 0 && requests.len() > 2 {
                crate::request::prefetch::prefetch_collections(&mut self.held, session.db, requests);
            }
            if self.reply.len() - of_others >= self.hot.reply_bytes_max {
                // Whoever has just begun to listen may be told of many channels.
                if session.listening.is_some() && self.is_above_output_limit(session) {
                    return (at + 1, Next::Close { after_replies: false });
                }
                self.book_reply(session);
                if at + 1 < requests.len() {
                    return (at + 1, Next::Write);
                }
            }
        }
        (requests.len(), Next::Go)
    }

    /// Whether replies should be written now.
    #[inline]
    pub fn has_much_to_write(&self) -> bool {
        self.reply.len() >= self.hot.reply_bytes_max
    }

    /// What a client may leave unread before it is stopped. While all of them take little it may be more.
    #[inline]
    pub fn unsent_bytes_max(&self) -> usize {
        match self.node.clients.bytes() < self.hot.clients_little_bytes {
            true => self.hot.unsent_generous_bytes_max,
            false => self.hot.unsent_bytes_max,
        }
    }

    /// Replies are given up that nobody will read, with the memory that many of them took.
    pub fn drop_replies(&mut self) {
        self.reply.out.clear();
        if self.reply.out.capacity() > self.hot.reply_bytes_max {
            self.reply.out = Vec::new();
        }
    }

    /// A large reply belongs to its client from now on, not only when a part of it has to wait: whoever looks for memory
    /// meanwhile must not take a key for it.
    #[cold]
    fn book_reply(&self, session: &Session) {
        let booked = &session.shared.seen.output_bytes;
        let bytes = class_bytes(self.reply.out.capacity()) as u64;
        booked.store(booked.load(Ordering::Relaxed) + bytes, Ordering::Relaxed);
        let total = session.shared.seen.total_bytes.load(Ordering::Relaxed);
        self.node.clients.book_total(&session.shared, total + bytes);
    }

    /// Runs one request, to the end.
    #[inline]
    pub fn run(&mut self, session: &mut Session, request: &Request<'_>) -> Next {
        let mark = self.reply.len();
        let has_run = match request.found {
            // The usual command of the usual session: nothing to ask, if the node has no task either.
            Found::Command(command) if self.is_calm(session) => {
                self.call_locked(session, command, request, Tasks::ANY)
            }
            _ => false,
        };
        if !has_run && let Some(next) = self.run_admitted(session, request) {
            return next;
        }
        if session.blocked.is_some() {
            return Next::Block;
        }
        if session.reply_mode != ReplyMode::On {
            self.drop_reply(session, mark);
        }
        if self.judged && self.is_above_output_limit(session) {
            return Next::Close { after_replies: false };
        }
        match session.close_after_reply {
            true => Next::Close { after_replies: true },
            false => Next::Go,
        }
    }

    /// Asks everything that there is to ask, then runs the request, queues it or refuses it. Says what comes next if it is
    /// none of these.
    #[inline(never)]
    fn run_admitted(&mut self, session: &mut Session, request: &Request<'_>) -> Option<Next> {
        loop {
            if session.shared.is_asked(Attention::KILL) {
                return Some(Next::Close { after_replies: false });
            }
            match self.admit(session, request) {
                Admitted::Run(command, unless) => {
                    if self.call_locked(session, command, request, unless) {
                        self.follow(session, command, request.args);
                        return None;
                    }
                    // The answers have changed before it had its locks.
                }
                Admitted::Queue(command) => {
                    self.queue(session, command, request.args);
                    return None;
                }
                Admitted::Refuse(command, text) => {
                    self.refuse(session, command, &text, request.args);
                    return None;
                }
                Admitted::Wait(cause) => return Some(Next::Wait(cause)),
                Admitted::Hear => return Some(Next::Hear),
                Admitted::Attack => return Some(self.attack(session)),
            }
        }
    }

    /// Whether a command is not to run after all. Asked once it has its locks: CLIENT KILL and PAUSE set the mark first,
    /// and then hold every partition once before their reply leaves (rule 12 of ARCHITECTURE.md). So a command that had its
    /// locks before was awaited, and one that has them later sees the mark, however long it waited for them.
    #[inline]
    pub(crate) fn is_held_up(&self, session: &Session, unless: Tasks) -> bool {
        session.shared.is_asked(Attention::KILL) || self.node.tasks().has(unless)
    }

    /// Whether the replies of this session, written or not, are more than may wait for a client. Judged before they are
    /// written, as the field does: a client that would read them fast enough is closed as well.
    #[cold]
    fn is_above_output_limit(&self, session: &Session) -> bool {
        let unsent = (self.reply.len() + self.unsent_before).saturating_sub(self.replies_of_others);
        let limit = self.output_limit_of(session).hard_bytes;
        let is_stranger = !session.was_authenticated && self.node.auth_required();
        let is_above = limit > 0 && counted_output_bytes(unsent) >= limit
            || is_stranger && self.hot.reply_lists && unsent > 0;
        if is_above {
            self.log_output_limit(session);
        }
        is_above
    }

    /// That of its class.
    pub fn output_limit_of(&self, session: &Session) -> OutputLimit {
        match session.is_subscriber() {
            true => self.hot.output_of_subscribers,
            false => self.hot.output,
        }
    }

    /// A handler that would answer more than its client may be sent need not go on.
    #[cold]
    fn reply_bytes_max_of(&self, session: &Session) -> usize {
        let limit = self.output_limit_of(session).hard_bytes;
        if limit > 0 { reply_bytes_in_vain(limit).saturating_add(self.replies_of_others) } else { 0 }
    }

    pub fn log_output_limit(&self, session: &Session) {
        self.stats.values.output_buffer_limit_disconnections.add(1);
        let client = admin::client_line(self.node, &session.shared, unix_now());
        log::warning(format!("Client {client} closed for overcoming of output buffer limits."));
    }

    /// Whether nothing stands between this session and any command that exists, except what `is_held_up` asks.
    #[inline]
    fn is_calm(&self, session: &Session) -> bool {
        session.authenticated && session.multi.is_none() && session.listening.is_none() && self.hot.calm
    }

    #[cold]
    fn admit(&mut self, session: &mut Session, request: &Request<'_>) -> Admitted {
        if self.hears_first(session) {
            return Admitted::Hear;
        }
        let args = request.args;
        let command = match request.found {
            Found::Command(command) | Found::WrongArity(command) => Some(command),
            Found::Unknown if is_http(args.get(0)) => return Admitted::Attack,
            Found::Unknown | Found::UnknownSubcommand => None,
        };
        let refuse = |text: Cow<'static, [u8]>| Admitted::Refuse(command, text);
        let may_be_unauthenticated = command.is_some_and(|command| command.spec.flags.has(Flags::NO_AUTH));
        if !session.authenticated && !may_be_unauthenticated && self.node.auth_required() {
            return refuse(errors::NO_AUTH.as_bytes().into());
        }
        let command = match request.found {
            Found::Command(command) => command,
            Found::WrongArity(command) => {
                return refuse(errors::wrong_arity(&command.name).into_bytes().into());
            }
            Found::UnknownSubcommand => return refuse(errors::unknown_subcommand(args).into()),
            Found::Unknown => return refuse(errors::unknown_command(args).into()),
        };
        if let Some(text) = self.node.protects(session, command) {
            return refuse(text.into_bytes().into());
        }
        let in_multi = session.multi.is_some();
        if in_multi && command.spec.flags.has(Flags::NO_MULTI) {
            let text = format!("ERR Command '{}' not allowed inside a transaction", command.name);
            return refuse(text.into_bytes().into());
        }
        let is_exec = matches!(command.handler, Some(Handler::Exec));
        let queued_flags = session.multi.as_ref().filter(|_| is_exec).map_or(Flags(0), |multi| multi.flags);
        let flags = command.spec.flags.or(queued_flags);
        if self.hot.maxmemory_bytes > 0 {
            let evicted = self.stats.values.evicted_keys.get();
            let room = self.make_room();
            let has_evicted = self.stats.values.evicted_keys.get() != evicted;
            // What it has read of that is stale before it is answered.
            if has_evicted && session.tracking().is_some() && self.node.has_letters(session.shared.worker) {
                return Admitted::Hear;
            }
            if room == Room::None && flags.has(Flags::DENYOOM) {
                return refuse(errors::OUT_OF_MEMORY.as_bytes().into());
            }
        }
        if self.hot.lacks_replicas && flags.has(Flags::WRITE) {
            return refuse(errors::NO_REPLICAS.as_bytes().into());
        }
        if session.is_subscriber() && session.proto == Protocol::Resp2 && !suits_subscribers(command) {
            return refuse(errors::not_for_subscribers(&command.name).into_bytes().into());
        }
        let looks_at_keys = Flags::WRITE.or(Flags::READONLY).or(Flags::MAY_REPLICATE);
        if session.monitors() && flags.has(looks_at_keys) {
            return refuse(errors::NOT_FOR_MONITORS.as_bytes().into());
        }
        let tasks = self.node.tasks();
        let makes_letters = flags.has(Flags::WRITE.or(Flags::PUBSUB)) || tasks.has(Tasks::MONITORED);
        // COMPAT(pubsub): Commands that write or publish wait while more than 64 MB of messages between workers are
        // undelivered. Why: the memory of messages is bounded.
        if tasks.has(Tasks::CROWDED) && makes_letters && self.node.is_crowded() {
            return Admitted::Wait(Cause::Crowd);
        }
        let may_write = flags.has(Flags::WRITE.or(Flags::MAY_REPLICATE));
        let pauses = if may_write { Tasks::PAUSES } else { Tasks::PAUSE_ALL };
        if tasks.has(pauses) {
            let now = self.clock.now();
            if self.node.pause.is_on(now) {
                return Admitted::Wait(Cause::Pause);
            }
            // No connection had to wait for its end: this is where it is noticed.
            self.node.end_pause_if_over(now);
        }
        let runs_at_once = matches!(&*command.name, "exec" | "discard" | "quit" | "reset");
        if in_multi && !runs_at_once { Admitted::Queue(command) } else { Admitted::Run(command, pauses) }
    }

    /// Whether the session is to hear what lies in the mailbox before its next command runs. Behind each look one
    /// command runs, so that it gets on whatever is published meanwhile.
    fn hears_first(&self, session: &mut Session) -> bool {
        if !session.is_subscriber() {
            return false;
        }
        let worker = session.shared.worker;
        let Some(listening) = &mut session.listening else { return false };
        !std::mem::take(&mut listening.heard) && self.node.has_letters(worker)
    }

    fn make_room(&mut self) -> Room {
        if self.node.has_room() {
            return Room::Enough;
        }
        self.held.release();
        let room = self.node.make_room(&mut self.prng, &mut self.pump, self.stats);
        self.pump.flush();
        // The command behind it holds nothing yet, and this may have taken long.
        self.hold_from = self.clock.raw();
        self.clock.outdate();
        room
    }

    fn queue(&mut self, session: &mut Session, command: &'static Entry, args: Args<'_>) {
        let changed = session.watched_key_changed();
        let multi = session.multi.as_mut().expect("only sessions in MULTI queue");
        // What fails anyway need not take memory.
        if !changed && !multi.dirty_exec {
            multi.queue.push(Queued { command, args: ArgsBuf::from(args) });
            multi.bytes += transaction::queued_bytes(args);
            multi.flags = multi.flags.or(command.spec.flags);
        }
        session.last_command = command.index;
        self.reply.simple("QUEUED");
        self.clock.lap();
    }

    fn refuse(
        &mut self,
        session: &mut Session,
        command: Option<&'static Entry>,
        text: &[u8],
        args: Args<'_>,
    ) {
        let is_exec = command.is_some_and(|command| matches!(command.handler, Some(Handler::Exec)));
        // As the field does, even if there is no transaction to discard.
        if is_exec {
            transaction::leave(session, &mut self.held);
            let why = text.strip_prefix(b"ERR ").unwrap_or(text);
            self.reply.error([&b"EXECABORT Transaction discarded because of: "[..], why].concat());
            // Who monitors has seen MULTI, and sees that it is over.
            if let Some(command) = command.filter(|_| self.node.tasks().has(Tasks::MONITORED)) {
                self.node.feed_monitors(session, &command.name, args);
            }
        } else {
            if let Some(multi) = &mut session.multi {
                multi.abort();
            }
            self.reply.error(text);
        }
        self.stats.count_error(self.reply.last_error().as_bytes());
        if let Some(command) = command {
            self.stats.commands[usize::from(command.index)].rejected.add(1);
            session.end_caching(command.parent == Some("client"));
        }
        session.last_command = command.map_or(NO_COMMAND, |command| command.index);
        self.clock.lap();
    }

    /// A command of a session that tracks, or that somebody monitors, has run; what it has read is still held.
    #[cold]
    fn follow(&mut self, session: &mut Session, command: &'static Entry, args: Args<'_>) {
        const HIDDEN: Flags = Flags::ADMIN.or(Flags::SKIP_MONITOR);
        if self.node.tasks().has(Tasks::MONITORED) && !command.spec.flags.has(HIDDEN) {
            self.node.feed_monitors(session, &command.name, args);
        }
        if command.spec.flags.has(Flags::READONLY)
            && let Some(reader) = session.reader()
        {
            self.note_reads(reader, command, args);
        }
        if !session.in_exec {
            session.end_caching(command.parent == Some("client"));
        }
    }

    /// Whoever has read these keys is told when they change.
    pub(crate) fn note_reads(&mut self, reader: Tracker, command: &Entry, args: Args<'_>) {
        self.positions.clear();
        if key_positions(command.spec, args, &mut self.positions).is_ok() {
            for (at, _) in &self.positions {
                self.node.note_read(self.thread as u16, reader, args.get(*at));
            }
        }
    }

    /// A batch is over: what it has changed is sent to those who have read it, and others may have what it held. Behind
    /// that come those who have named prefixes, since there may be very many; the replies come behind both.
    #[inline]
    pub fn release(&mut self) {
        self.pump.tell_readers();
        self.held.release();
        self.pump.broadcast();
        if !self.noted_times.is_empty() {
            self.record_times();
        }
    }

    fn attack(&mut self, session: &Session) -> Next {
        self.node.log_attack(&session.shared.addr);
        Next::Close { after_replies: false }
    }

    /// CLIENT REPLY has been used.
    #[cold]
    pub(crate) fn drop_reply(&mut self, session: &mut Session, mark: usize) {
        let pushed = std::mem::take(&mut session.pushed);
        match session.reply_mode {
            ReplyMode::On => {}
            ReplyMode::Skip if pushed => session.reply_mode = ReplyMode::On,
            ReplyMode::Off if pushed => {}
            ReplyMode::Off => self.reply.truncate(mark),
            ReplyMode::SkipNext => session.reply_mode = ReplyMode::Skip,
            ReplyMode::Skip => {
                self.reply.truncate(mark);
                session.reply_mode = ReplyMode::On;
            }
        }
    }

    // ---- call ----

    /// Locks what a command needs and runs it. False if it was not run: its session was killed, or the node has got one
    /// of the tasks `unless`, before it had its locks.
    #[inline]
    fn call_locked(
        &mut self,
        session: &mut Session,
        command: &'static Entry,
        request: &Request<'_>,
        unless: Tasks,
    ) -> bool {
        if matches!(command.handler, Some(Handler::Exec)) {
            return self.call_exec(session, command, unless);
        }
        let mut keys = HashedKeys::NONE;
        match &request.key {
            Some(key) if command.has_one_key(request.args.len()) => {
                let partition = self.node.keyspace.partition_of(key.slot);
                if self.held.acquire(Want::One(partition)) {
                    self.clock.outdate();
                }
                keys = HashedKeys::one(usize::from(command.first_key), key);
            }
            Some(key) if command.key_step > 0 => {
                return self.call_several(session, command, request.args, *key, unless);
            }
            // It may take its time, or look at anything.
            _ if matches!(command.locks, Locks::None | Locks::Each) => {
                self.held.release();
                holds::enter_command(command.index);
            }
            _ => {
                self.lock_keys(command, request.args);
                if command.locks == Locks::Keys {
                    let names = self.positions.iter().map(|(at, _)| request.args.get(*at));
                    crate::request::prefetch::prefetch_names(
                        &self.node.keyspace,
                        session.db,
                        names,
                        command.intent,
                    );
                }
            }
        }
        self.call_timed(session, command, request.args, keys, unless)
    }

    #[inline]
    fn call_timed(
        &mut self,
        session: &mut Session,
        command: &'static Entry,
        args: Args<'_>,
        keys: HashedKeys<'_>,
        unless: Tasks,
    ) -> bool {
        if self.is_held_up(session, unless) {
            return false;
        }
        // DEL of one key is as short as any command with one.
        let is_measured = command.is_measured && !(command.key_step > 0 && command.has_one_key(args.len()));
        // Without a limit nothing was evicted before it had its locks: its hold begins where the command before it ended.
        if is_measured && self.hot.maxmemory_bytes > 0 || cfg!(debug_assertions) {
            self.begin_hold();
        }
        let now = self.clock.now();
        let mark = self.reply.len();
        self.call(session, command, args, keys, now, true);
        let taken = self.clock.lap();
        if session.blocked.is_none() {
            self.count_time(&session.shared, session.db, command, args, taken, self.reply.len() - mark);
        } else {
            // What it is measured by is how long it takes when its key is there.
            self.stats.commands[usize::from(command.index)].ticks.add(taken);
        }
        if is_measured || taken >= self.hot.long_hold_ticks || self.held.has_ready() || cfg!(debug_assertions)
        {
            self.end_hold(command, taken);
        }
        true
    }

    /// The keys are gone; others may have the partitions while memory is freed.
    #[cold]
    pub(crate) fn free_flushed(&mut self) {
        self.release();
        let _working = holds::working(Work::LazyFree);
        self.held.free_flushed();
    }

    /// A command of several keys in a row. Each is hashed once: for its lock, the prefetch and the handler.
    #[inline(never)]
    fn call_several<'b>(
        &mut self,
        session: &mut Session,
        command: &'static Entry,
        args: Args<'b>,
        first_key: Key<'b>,
        unless: Tasks,
    ) -> bool {
        let (first, step) = (usize::from(command.first_key), usize::from(command.key_step));
        let mut names = args.from(first).iter().step_by(step);
        names.next();
        let keyspace = &self.node.keyspace;
        let mut keys: ArrayVec<Key<'_>, KEYS_HASHED_MAX> = ArrayVec::new();
        keys.push(first_key);
        keys.extend(names.by_ref().take(KEYS_HASHED_MAX - 1).map(|name| keyspace.key(name)));
        self.wanted.clear();
        if keyspace.partition_count() == 1 {
            self.wanted.add(0);
        } else {
            keys.iter().for_each(|key| self.wanted.add(keyspace.partition_of(key.slot)));
            names.clone().for_each(|name| self.wanted.add(keyspace.partition_of(Slot::of_key(name))));
        }
        self.acquire_wanted();
        crate::request::prefetch::prefetch_keys(keyspace, session.db, &keys, command.intent);
        crate::request::prefetch::prefetch_names(keyspace, session.db, names, command.intent);
        self.call_timed(session, command, args, HashedKeys { first, step, keys: &keys }, unless)
    }

    #[inline(never)]
    fn lock_keys(&mut self, command: &'static Entry, args: Args<'_>) {
        self.wanted.clear();
        self.want(command, args);
        self.acquire_wanted();
    }

    /// Locks what `wanted` says.
    #[inline]
    pub(crate) fn acquire_wanted(&mut self) {
        if self.wanted.acquire(&mut self.held) {
            self.clock.outdate();
        }
    }

    /// Adds what `command` needs to `wanted`.
    pub(crate) fn want(&mut self, command: &'static Entry, args: Args<'_>) {
        match command.locks {
            Locks::None => {}
            // In a transaction nothing can be locked later.
            Locks::All | Locks::Each => self.wanted.add_all(),
            Locks::One | Locks::Keys => {
                self.positions.clear();
                if key_positions(command.spec, args, &mut self.positions).is_err() {
                    // The handler knows a better answer; whatever it looks at on the way is held.
                    return self.wanted.add_all();
                }
                for (at, _) in &self.positions {
                    self.wanted.add(self.node.keyspace.partition_of(Slot::of_key(args.get(*at))));
                }
            }
        }
    }

    fn call_exec(&mut self, session: &mut Session, command: &'static Entry, unless: Tasks) -> bool {
        let errors = self.reply.error_count();
        let Some(in_commands) = self.exec(session, command, unless) else { return false };
        let counters = &self.stats.commands[usize::from(command.index)];
        counters.calls.add(1);
        let taken = in_commands + self.clock.lap();
        self.count_time(&session.shared, session.db, command, Args::default(), taken, 0);
        // Errors of the commands inside were counted with them; EXEC's own come before any of them is run.
        if in_commands == 0 && self.reply.error_count() > errors {
            counters.failed.add(1);
            self.stats.count_error(self.reply.last_error().as_bytes());
        }
        session.last_command = command.index;
        session.commands += 1;
        true
    }

    /// One command of a transaction; its partitions are held. Returns its ticks.
    pub(crate) fn run_queued(&mut self, session: &mut Session, queued: &Queued, now: UnixMs) -> u64 {
        let (command, args, mark) = (queued.command, queued.args.args(), self.reply.len());
        let has_ended = session.close_after_reply;
        self.call(session, command, args, HashedKeys::NONE, now, false);
        if has_ended {
            // It has killed itself, and still does what it began; but nobody is told any more.
            self.reply.truncate(mark);
        }
        self.follow(session, command, args);
        let taken = self.clock.lap();
        self.count_time(&session.shared, session.db, command, args, taken, self.reply.len() - mark);
        taken
    }

    #[inline]
    fn call(
        &mut self,
        session: &mut Session,
        command: &'static Entry,
        args: Args<'_>,
        keys: HashedKeys<'_>,
        now: UnixMs,
        may_wait: bool,
    ) {
        let errors_before = self.reply.error_count();
        let conditions = self.conditions(session, now);
        let looked_before = steps::looked();
        let named_before = if cfg!(debug_assertions) { session.named_items() } else { 0 };
        session.last_command = command.index;
        self.pump.author = session.shared.id;
        let outcome = match command.handler {
            Some(Handler::Data(handler)) => {
                let mut txn = Txn::new(&mut self.held, conditions, &mut self.pump);
                let mut call = Call {
                    txn: &mut txn,
                    db: session.db,
                    args,
                    keys,
                    reply: &mut self.reply,
                    prng: &mut self.prng,
                    settings: &self.hot.settings,
                    may_wait,
                    wait: None,
                };
                let outcome = handler(&mut call);
                let wait = call.wait.take();
                self.stats.count_txn(txn.hits, txn.misses, txn.expired, txn.dirty);
                self.note_own_work(command, args, looked_before, named_before);
                if let Some(wait) = wait {
                    return self.block(session, command, args, *wait);
                }
                outcome
            }
            Some(Handler::Admin(handler)) => {
                // It may be asked for what came before it in its batch.
                self.record_times();
                let outcome = handler(&mut AdminCall {
                    node: self.node,
                    session,
                    args,
                    command,
                    reply: &mut self.reply,
                    now,
                    conditions,
                    held: &mut self.held,
                    sink: &mut self.pump,
                    prng: &mut self.prng,
                    audience: &mut self.audience,
                    facts: self.facts.as_ref(),
                });
                self.note_own_work(command, args, looked_before, named_before);
                // What CONFIG SET has changed holds from here on, for itself too.
                self.refresh();
                outcome
            }
            Some(Handler::Exec) | None => unreachable!("{} has no code of its own", command.name),
        };
        assert_eq!(outcome, Outcome::Done, "{} waits for nothing", command.name);
        session.commands += 1;
        let counters = &self.stats.commands[usize::from(command.index)];
        counters.calls.add(1);
        if self.reply.error_count() > errors_before {
            counters.failed.add(1);
            self.stats.count_error(self.reply.last_error().as_bytes());
        }
    }

    #[inline]
    pub(crate) fn conditions(&self, session: &Session, now: UnixMs) -> Conditions {
        Conditions {
            now,
            expiry_mode: self.expiry_mode_of(session.import_source),
            no_touch: session.no_touch,
        }
    }

    /// While the server is paused expired keys stay, and while data is imported, the source decides about them.
    #[inline]
    pub(crate) fn expiry_mode_of(&self, import_source: bool) -> ExpiryMode {
        if self.hot.import_mode {
            return if import_source { ExpiryMode::Keep } else { ExpiryMode::Hide };
        }
        if self.node.tasks().has(Tasks::PAUSES) { ExpiryMode::Hide } else { ExpiryMode::Delete }
    }
}

// ---- what the worker asks of it beside commands ----

impl Dispatcher {
    /// What a client sent is no request.
    #[cold]
    pub fn protocol_error(&mut self, session: &mut Session, error: ProtocolError) {
        let mark = self.reply.len();
        self.reply.error(error.text());
        self.stats.count_error(self.reply.last_error().as_bytes());
        if session.reply_mode != ReplyMode::On {
            self.reply.truncate(mark);
        }
        // COMPAT(protocol): A connection is closed after a protocol error under CLIENT REPLY OFF and SKIP too;
        // Valkey leaves it open but stops reading it. Why: such a connection is of no further use to its client.
        session.close_after_reply = true;
        log::verbose(format!("Protocol error ({}) from client: id={}", error.log_text(), session.id()));
    }

    #[inline]
    pub fn count_read(&self, session: &Session, bytes: usize) {
        self.stats.values.net_input_bytes.add(bytes as u64);
        self.stats.values.reads_processed.add(1);
        let total = &session.shared.seen.input_total_bytes;
        total.store(total.load(Ordering::Relaxed) + bytes as u64, Ordering::Relaxed);
    }

    #[inline]
    pub fn count_written(&self, session: &Session, bytes: u64) {
        self.stats.values.net_output_bytes.add(bytes);
        self.stats.values.writes_processed.add(1);
        let total = &session.shared.seen.output_total_bytes;
        total.store(total.load(Ordering::Relaxed) + bytes, Ordering::Relaxed);
    }

    /// A large reply's memory is returned; what usual replies need is kept.
    #[inline]
    pub fn trim_reply(&mut self) {
        if self.reply.out.capacity() > REPLY_CAPACITY_MAX {
            self.reply.out = Vec::new();
        }
    }
}

/// What a session that can only be sent messages may ask for.
fn suits_subscribers(command: &Entry) -> bool {
    const WORDS: [&str; 9] = [
        "ping",
        "subscribe",
        "unsubscribe",
        "psubscribe",
        "punsubscribe",
        "ssubscribe",
        "sunsubscribe",
        "quit",
        "reset",
    ];
    WORDS.contains(&&*command.name)
}

/// Keys of one command that are hashed once only, 32 B each.
const KEYS_HASHED_MAX: usize = 128;

/// What precedes and follows an argument on the wire: `$536870912\r\n` and `\r\n`.
const HEADER_BYTES_MAX: usize = 14;

/// Kept between batches.
const REPLY_CAPACITY_MAX: usize = 1 << 20;

/// The first word of an HTTP request, or of one of its headers.
fn is_http(word: &[u8]) -> bool {
    word.eq_ignore_ascii_case(b"host:") || word.eq_ignore_ascii_case(b"post")
}
