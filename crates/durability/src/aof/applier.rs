//! Playing back: the commands of a log change the keyspace as they did where they were recorded.
//!
//! ```text
//!   SELECT 3 | SET a b | MULTI | INCR c | DEL d | EXEC | ...
//!      db        run       |---- kept ----|       run together, under one hold
//! ```
//! A command of a log makes the same change at any moment, so no gate is asked and no expired key is removed:
//! the log removes it. The commands of an unfinished transaction have no effect. `maxmemory` refuses nothing
//! here; where there is no memory at all, the caller hears whether a part was applied
//! (`Refused::HalfApplied`), and must not continue then.
//!
//! **Errors.** A log holds what has changed data, so a command of it that is answered with an error here
//! means that the data differ, or that this server lacks a command. It is refused, unless
//! `propagation-error-behavior` says that such errors are passed over.
//!
//! The applier does not know where the commands come from: a file, or a primary. Two things are special about
//! those of a primary: they stop when another primary is followed, and messages are published.

use isotherm_commands::call::HashedKeys;
use isotherm_commands::spec::AclCategories;
use isotherm_commands::{Flags, Outcome};
use isotherm_keyspace::{Db, Held, Want};
use isotherm_log::LogOffset;
use isotherm_resp::{Args, ArgsBuf, Reply};
use isotherm_stdx::parse_i64;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

pub use crate::aof::refused::{CommandFailure, Refused, behavior};
use crate::aof::slots;
use isotherm_config::{Id, id};
use isotherm_engine::request::execute;
use isotherm_engine::request::execute::{Exec, Invocation};
use isotherm_engine::request::fetching::Rounds;
use isotherm_engine::request::follow_up;
use isotherm_engine::request::leases;
use isotherm_engine::request::prefetch;
use isotherm_engine::request::resolve;
use isotherm_engine::request::resolve::{Found, Request};
use isotherm_engine::request::slots::deleting::Rest;
use isotherm_engine::scripting::library_change;
use isotherm_engine::scripting::library_change::Change;
use isotherm_node::Node;
use isotherm_node::effects::monitor;
use isotherm_node::mail::tasks::Tasks;
use isotherm_node::request::caller::{Authority, Caller};
use isotherm_node::request::entry::{Entry, Handler};
use isotherm_node::scripting::function_engine::{FunctionEngine, LoadTime};
use isotherm_node::scripting::library_head;
use isotherm_node::session::ClientShared;
use isotherm_swap::tier::together::Together;

/// Commands of a transaction that are kept until its EXEC. More than any client can have queued is damage.
const QUEUED_BYTES_MAX: usize = 4 << 30;

pub struct Applier {
    exec: Exec,
    reply: Reply,
    db: Db,
    transaction: Option<Transaction>,
    /// All partitions are held from the beginning to the end.
    is_within: bool,
    /// The link that the commands come from; none if it is a file.
    link: Option<Generation>,
    /// Connection of that link, as clients see it.
    client: Option<Arc<ClientShared>>,
    /// Commands that were passed over though they replied with an error, which they did not where they were
    /// recorded.
    pub failed: u64,
    /// The last of them.
    pub failure: Option<CommandFailure>,
    /// Command that was run last. Its locks are held until `end_hold`.
    ran: Option<&'static Entry>,
    /// Reader of frozen keys that commands to come will name.
    pub together: Together,
}

/// `Replication::generation` of a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Generation(pub u64);

#[derive(Default)]
struct Transaction {
    /// Database that was selected before the transaction.
    db_before: Db,
    /// FUNCTION commands that change libraries, with their arguments.
    functions: Vec<ArgsBuf>,
    commands: Vec<(Db, &'static Entry, ArgsBuf)>,
    bytes: usize,
}

impl Applier {
    pub fn new(node: &'static Node) -> Applier {
        Applier::of(Exec::of_control(node))
    }

    /// Makes an applier for the link to a primary.
    pub fn of_link(node: &'static Node, generation: Generation, db: Db) -> Applier {
        Applier { db, link: Some(generation), ..Applier::of(Exec::of_link(node)) }
    }

    fn of(exec: Exec) -> Applier {
        Applier {
            exec,
            reply: Reply::default(),
            db: Db(0),
            transaction: None,
            is_within: false,
            link: None,
            client: None,
            failed: 0,
            failure: None,
            ran: None,
            together: Together::default(),
        }
    }

    pub fn node(&self) -> &'static Node {
        self.exec.node
    }

    /// Clients that monitor see what runs as commands of this connection.
    pub fn set_client(&mut self, client: &Arc<ClientShared>) {
        self.client = Some(Arc::clone(client));
    }

    /// Selects the database that is selected where the log begins; 0 if that is not known.
    pub fn select_db(&mut self, db: Option<i64>) {
        self.db = Db(db.and_then(|db| u16::try_from(db).ok()).unwrap_or(0));
    }

    /// Returns the database that the commands have selected.
    pub fn db(&self) -> Db {
        self.db
    }

    /// Selects a database, as if the commands had done so.
    pub fn set_db(&mut self, db: Db) {
        self.db = db;
    }

    /// Returns whether all partitions are held from the beginning to the end.
    pub fn is_within(&self) -> bool {
        self.is_within
    }

    /// Returns whether a command has no consequence but its change of the data: no event has a subscriber,
    /// and the log has no reader.
    pub fn is_unobserved(&self) -> bool {
        !self.exec.hot.events.any() && !self.exec.pump.is_logging()
    }

    /// Returns whether a transaction has begun and not ended.
    pub fn is_in_transaction(&self) -> bool {
        self.transaction.is_some()
    }

    /// Returns whether something is held, so that no other thread sees what was changed.
    pub fn holds_any(&self) -> bool {
        self.exec.held.holds_any()
    }

    /// Holds something, so that everything is not held by another thread.
    pub fn hold_one(&mut self) -> Result<(), Refused> {
        if !self.holds_any() {
            self.exec.held.acquire(Want::One(0));
        }
        self.check_current()
    }

    /// Notes that the log has the changes up to `end`. A thread that sees the changed data waits for that
    /// place.
    pub fn stamp(&mut self, end: LogOffset) {
        if self.exec.node.mail.tasks().has(Tasks::GATED) {
            self.exec.held.stamps().for_each(|stamp| stamp.store(end.0, Relaxed));
        }
    }

    /// Takes over what was changed in the configuration; nothing is held.
    pub fn refresh(&mut self) {
        self.exec.refresh();
    }

    /// Fetches the memory that these commands will touch.
    pub fn prefetch(&self, requests: &[Request<'_>]) {
        prefetch::prefetch(&self.exec.node.keyspace, self.db, requests);
    }

    /// Fails if this node follows another primary by now. The locks that are held keep the role as it is.
    fn check_current(&self) -> Result<(), Refused> {
        match self.link {
            Some(Generation(generation)) if self.exec.node.replication.generation() != generation => {
                Err(Refused::Superseded)
            }
            _ => Ok(()),
        }
    }

    /// Makes an applier for a thread that holds all partitions and keeps holding them. The clients that wait
    /// for keys are served by the code that ends the hold.
    pub fn within(node: &'static Node, held: Held<'static>) -> Applier {
        let mut applier = Applier::new(node);
        applier.exec.held = held;
        applier.is_within = true;
        applier
    }

    /// Returns the partitions that `within` was given.
    pub fn into_held(mut self) -> Held<'static> {
        self.exec.pump.flush();
        self.exec.held
    }

    /// The log has ended before the EXEC: what was kept has no effect, and neither have its SELECTs.
    pub fn abandon_transaction(&mut self) {
        if let Some(transaction) = self.transaction.take() {
            self.db = transaction.db_before;
        }
    }

    /// Runs one command of the log, or keeps it for its EXEC. Its locks are kept while the next commands need
    /// them too; `release` ends that.
    pub fn apply(&mut self, args: Args<'_>) -> Result<(), Refused> {
        let node = self.exec.node;
        self.apply_resolved(&resolve::resolve_logged(&node.commands, &node.keyspace, args))
    }

    /// Runs or keeps a command that was looked up, as `apply` does.
    pub fn apply_resolved(&mut self, request: &Request<'_>) -> Result<(), Refused> {
        let args = request.args;
        let name = args.get(0);
        match name.len() {
            6 if name.eq_ignore_ascii_case(b"SELECT") => {
                self.select(args)?;
                self.show(self.db, request.command(), args);
                return Ok(());
            }
            5 if name.eq_ignore_ascii_case(b"MULTI") => {
                self.begin()?;
                self.show(self.db, request.command(), args);
                return Ok(());
            }
            4 if name.eq_ignore_ascii_case(b"EXEC") => {
                self.run_transaction()?;
                self.show(self.db, request.command(), args);
                return Ok(());
            }
            8 if name.eq_ignore_ascii_case(b"FUNCTION") => return self.functions(args),
            7 if name.eq_ignore_ascii_case(b"CLUSTER") => return self.slots(args),
            _ => {}
        }
        let command = match request.found {
            Found::Command(command) => command,
            Found::WrongArity(_) => return Err(Refused::WrongArity(name.to_vec())),
            Found::Unknown | Found::UnknownSubcommand => return Err(Refused::Unknown(name.to_vec())),
        };
        // Its changes would be missing.
        if command.spec.acl.has(AclCategories::SCRIPTING) {
            return Err(Refused::Unknown(name.to_vec()));
        }
        // PING and REPLCONF of a primary change no data.
        let is_data = matches!(command.handler, Some(Handler::Data(_)));
        let db = self.db;
        if !is_data && !is_message(command) {
            self.show(db, Some(command), args);
            return Ok(());
        }
        let Some(transaction) = &mut self.transaction else {
            if is_data && !self.is_within {
                self.lock(request, command);
                self.check_current()?;
            }
            let ran = self.run(db, command, args);
            self.note_ran(command);
            return ran.map_err(|why| why.of_part(true, makes_one_change(command, args)));
        };
        transaction.bytes = transaction.bytes.saturating_add(args.wire_bytes());
        if transaction.bytes > QUEUED_BYTES_MAX {
            return Err(Refused::TransactionTooLarge);
        }
        transaction.commands.push((db, command, ArgsBuf::from(args)));
        Ok(())
    }

    /// Locks what a command needs, and what no script of this node has leased: a script of a replica has read
    /// it.
    #[inline]
    fn lock(&mut self, request: &Request<'_>, command: &'static Entry) {
        self.lock_now(request, command);
        while self.exec.node.mail.tasks().has(Tasks::LEASED)
            && leases::holds_up_log(&mut self.exec, command, request.args)
        {
            self.await_scripts();
            self.lock_now(request, command);
        }
    }

    #[cold]
    fn await_scripts(&mut self) {
        self.exec.release();
        self.exec.node.keyspace.await_no_leases();
    }

    #[inline]
    fn lock_now(&mut self, request: &Request<'_>, command: &'static Entry) {
        let exec = &mut self.exec;
        match &request.key {
            Some(key) if command.has_one_key(request.args.len()) => {
                let partition = exec.node.keyspace.partition_of(key.slot);
                if exec.held.acquire_one(partition) {
                    exec.clock.outdate();
                }
            }
            _ => {
                exec.locks.clear();
                exec.locks.add_command(&exec.node.keyspace, command, request.args);
                exec.acquire();
            }
        }
    }

    /// Other threads may have what is held.
    pub fn release(&mut self) {
        if self.is_within {
            self.exec.pump.post_stale();
        } else {
            self.exec.release();
        }
    }

    fn select(&mut self, args: Args<'_>) -> Result<(), Refused> {
        let number = args.try_get(1).unwrap_or_default();
        let databases = self.exec.node.config.databases();
        match parse_i64(number).and_then(|db| u16::try_from(db).ok()).filter(|db| *db < databases) {
            Some(db) => {
                self.db = Db(db);
                Ok(())
            }
            None => Err(Refused::NoDatabase(number.to_vec())),
        }
    }

    /// FUNCTION: what other subcommands do is no change of the libraries.
    fn functions(&mut self, args: Args<'_>) -> Result<(), Refused> {
        match &mut self.transaction {
            Some(transaction) => {
                transaction.bytes = transaction.bytes.saturating_add(args.wire_bytes());
                if transaction.bytes > QUEUED_BYTES_MAX {
                    return Err(Refused::TransactionTooLarge);
                }
                transaction.functions.push(ArgsBuf::from(args));
                Ok(())
            }
            None => {
                if self.link.is_some() {
                    self.hold_one()?;
                }
                self.change_libraries(args)
            }
        }
    }

    /// CLUSTER SETSLOT and FLUSHSLOT, which stand in no transaction.
    fn slots(&mut self, args: Args<'_>) -> Result<(), Refused> {
        let node = self.exec.node;
        match slots::read(args) {
            slots::Words::SetSlot(request) => {
                if let Some(member) = node.cluster.get() {
                    member.bus.order(request);
                }
            }
            slots::Words::FlushSlot(slot) => loop {
                self.exec.held.acquire(Want::One(node.keyspace.partition_of(slot)));
                self.check_current()?;
                let rest = slots::flush_some(node, &mut self.exec.held, &mut self.exec.pump, slot);
                self.release();
                match rest {
                    Rest::Nothing => {
                        self.exec.end_walk();
                        return Ok(());
                    }
                    Rest::Some => slots::read_records(node, &mut self.exec.held.walk),
                    Rest::Leased => self.await_scripts(),
                }
            },
            slots::Words::Other => {}
        }
        Ok(())
    }

    fn change_libraries(&mut self, args: Args<'_>) -> Result<(), Refused> {
        let exec = &mut self.exec;
        let libraries = &exec.node.libraries;
        let refused = |text: Vec<u8>| Refused::Library(library_head::Refused(text));
        let change = match library_change::read(args).map_err(refused)? {
            Some(change) => change,
            None if is_change(args) => return Err(Refused::WrongArity(args.get(0).to_vec())),
            None => return Ok(()),
        };
        let engine = exec.functions.get_or_insert_with(|| Box::new(FunctionEngine::new(libraries)));
        let strict = exec.node.config.checks_rdb_version();
        match library_change::apply(change, libraries, engine, LoadTime::Unlimited, strict) {
            // It is gone, as it should be.
            Err(_) if matches!(change, Change::Delete { .. }) => Ok(()),
            done => done.map(|_| ()).map_err(Refused::Library),
        }
    }

    fn begin(&mut self) -> Result<(), Refused> {
        let transaction = Transaction { db_before: self.db, ..Transaction::default() };
        match self.transaction.replace(transaction) {
            None => Ok(()),
            Some(_) => Err(Refused::Nested),
        }
    }

    fn needs_leased(&mut self, transaction: &Transaction) -> bool {
        let exec = &mut self.exec;
        transaction.commands.iter().any(|(_, command, args)| leases::holds_up_log(exec, command, args.args()))
    }

    fn run_transaction(&mut self) -> Result<(), Refused> {
        let transaction = self.transaction.take().ok_or(Refused::NotBegun)?;
        if !self.is_within {
            let keyspace = &self.exec.node.keyspace;
            self.exec.locks.clear();
            for (_, command, args) in &transaction.commands {
                self.exec.locks.add_command(keyspace, command, args.args());
            }
            self.exec.acquire();
            while self.exec.node.mail.tasks().has(Tasks::LEASED) && self.needs_leased(&transaction) {
                self.await_scripts();
                self.exec.acquire();
            }
            if self.link.is_some() {
                self.hold_one()?;
            }
        }
        transaction.functions.iter().try_for_each(|args| self.change_libraries(args.args()))?;
        self.exec.pump.log.begin_transaction();
        let mut all = transaction.commands.iter().enumerate();
        let ran = all.try_for_each(|(at, (db, command, args))| {
            let is_first = at == 0 && transaction.functions.is_empty();
            let is_whole = is_first && makes_one_change(command, args.args());
            let ran = self.run(*db, command, args.args());
            ran.map_err(|why| why.of_part(is_first, is_whole))
        });
        self.exec.pump.log.end_transaction();
        // Not before: what follows a FLUSHALL lets others have the partitions that the rest of the
        // transaction needs.
        if let Some((_, command, _)) = transaction.commands.last() {
            self.note_ran(command);
        }
        ran
    }

    /// The stream of a primary is appended to the log before others see what it has changed.
    fn note_ran(&mut self, command: &'static Entry) {
        self.ran = Some(command);
        if self.link.is_none() {
            self.end_hold();
        }
    }

    /// Does what follows the command that was run: serves its waiters and frees what it has flushed.
    pub fn end_hold(&mut self) {
        if let Some(command) = self.ran.take()
            && !self.is_within
        {
            follow_up::end_hold(&mut self.exec, command, 0);
        }
    }

    /// Clients that monitor see a command of the primary.
    fn show(&self, db: Db, command: Option<&'static Entry>, args: Args<'_>) {
        let node = self.exec.node;
        if let (Some(client), Some(command)) = (&self.client, command)
            && node.mail.tasks().has(Tasks::MONITORED)
            && monitor::shows(command.spec)
        {
            node.feed_monitors_from_link(client, db, command.spec, args);
        }
    }

    /// Runs a command. The partitions that it needs are held.
    fn run(&mut self, db: Db, command: &'static Entry, args: Args<'_>) -> Result<(), Refused> {
        self.show(db, Some(command), args);
        let Some(Handler::Data(handler)) = command.handler else {
            self.publish(command, args);
            return Ok(());
        };
        let Applier { exec, reply, .. } = self;
        exec.clock.begin();
        let now = exec.clock.now();
        let errors_before = reply.error_count();
        let mut rounds = Rounds::default();
        loop {
            let caller = Caller {
                id: 0,
                may_wait: false,
                in_script: false,
                no_touch: true,
                may_read_all: true,
                authority: Authority::Log,
            };
            let keys = HashedKeys::NONE;
            let invocation = Invocation { command, handler, args, db, keys, now, caller, reply };
            match execute::run(exec, invocation) {
                Outcome::Done => break,
                // No command does so under `may_wait: false`.
                Outcome::Block(_) | Outcome::Later => {
                    reply.error("ERR a command of a log cannot wait");
                    break;
                }
                Outcome::Cold(keys) => exec.fetch_round(&mut rounds, keys),
            }
        }
        exec.end_rounds(&rounds);
        if exec.hot.counts_slots && self.link.is_some() {
            let ticks = exec.clock.lap();
            exec.count_followed(command, args, ticks);
        }
        if reply.error_count() == errors_before {
            reply.out.clear();
            return Ok(());
        }
        let text = String::from_utf8_lossy(reply.out.trim_ascii_end()).into_owned();
        reply.out.clear();
        // Nothing was changed, and no data without it is that of the log.
        if [&b"OOM"[..], b"SWAPERR"].iter().any(|start| reply.last_error().as_bytes().starts_with(start)) {
            return Err(Refused::OutOfMemory(text));
        }
        let failure = CommandFailure { command: &command.name, reply: text };
        if !self.passes_over_errors() {
            return Err(Refused::Failed(failure));
        }
        self.failed += 1;
        self.failure = Some(failure);
        Ok(())
    }

    /// Returns whether errors that commands are answered with do not stop this log. Writes by a writable
    /// replica's clients may collide with the stream, and its owner wants that.
    pub fn passes_over_errors(&self) -> bool {
        const READ_ONLY: Id = id("replica-read-only");
        let config = &self.exec.node.config;
        let wanted = config.number(behavior::PARAMETER);
        match self.link {
            Some(_) => wanted != behavior::STOP || !config.flag(READ_ONLY),
            None => [behavior::IGNORE, behavior::PANIC_ON_REPLICAS].contains(&wanted),
        }
    }

    /// Passes a message of the primary's clients to those of this node. A message in a file was delivered
    /// when it was recorded.
    fn publish(&self, command: &Entry, args: Args<'_>) {
        if self.link.is_some() {
            let node = self.exec.node;
            // Only a channel of a shard has a slot.
            let is_sharded = !command.spec.key_specs.is_empty();
            node.pubsub.publish(&node.mail, None, args.get(1), args.get(2), is_sharded);
        }
    }
}

/// Returns whether a command that finds no memory has changed nothing. A string is replaced as a whole or not
/// at all, and one element is added or not. Of several elements, some may have been added.
fn makes_one_change(command: &Entry, args: Args<'_>) -> bool {
    const KEY_AND_ELEMENT: usize = 3;
    let is_string = command.spec.acl.has(AclCategories::STRING);
    command.has_one_key(args.len()) && (is_string || args.len() <= KEY_AND_ELEMENT)
}

/// PUBLISH and its kin.
fn is_message(command: &Entry) -> bool {
    command.spec.flags.has(Flags::PUBSUB) && command.spec.flags.has(Flags::MAY_REPLICATE)
}

/// FUNCTION with one of the subcommands that change libraries.
fn is_change(args: Args<'_>) -> bool {
    let what = args.try_get(1).unwrap_or_default();
    [&b"load"[..], b"delete", b"flush", b"restore"].iter().any(|word| what.eq_ignore_ascii_case(word))
}
