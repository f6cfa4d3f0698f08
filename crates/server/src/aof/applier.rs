//! Playing back: the commands of a log change the keyspace as they did where they were recorded.
//!
//! ```text
//!   SELECT 3 | SET a b | MULTI | INCR c | DEL d | EXEC | ...
//!      db        run       |---- kept ----|       run together, under one hold
//! ```
//! What a log holds makes the same change at any moment, so no gate is asked and no expired key is removed: the log removes it.
//! The commands of an unfinished transaction have no effect.
//!
//! It does not know where the commands come from: a file, or a primary.

use isotherm_commands::Outcome;
use isotherm_commands::call::HashedKeys;
use isotherm_keyspace::{Db, Held};
use isotherm_resp::{Args, ArgsBuf, Reply};
use isotherm_stdx::parse_i64;
use std::fmt;

use crate::node::Node;
use crate::persistence::libraries;
use crate::request::caller::{Authority, Caller};
use crate::request::entry::{Entry, Handler};
use crate::request::execute::{self, Exec, Invocation};
use crate::request::follow_up;
use crate::request::resolve::{self, Found};

/// Commands of a transaction that are kept until its EXEC. More than any client can have queued is damage.
const QUEUED_BYTES_MAX: usize = 4 << 30;

/// Why a command of a log cannot be run.
#[derive(Debug)]
pub enum Refused {
    Unknown(Vec<u8>),
    WrongArity(Vec<u8>),
    /// The database's number.
    NoDatabase(Vec<u8>),
    Nested,
    /// EXEC without MULTI.
    NotBegun,
    /// The commands of one transaction take more memory than can be right.
    TransactionTooLarge,
    /// The data does not fit: what the command replied.
    OutOfMemory(String),
    Library(libraries::Refused),
    /// A payload of FUNCTION RESTORE that cannot be read.
    Payload,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::Unknown(name) => write!(f, "unknown command '{}'", name.escape_ascii()),
            Refused::WrongArity(name) => write!(f, "wrong number of arguments for '{}'", name.escape_ascii()),
            Refused::NoDatabase(db) => write!(f, "database {} does not exist", db.escape_ascii()),
            Refused::Nested => f.write_str("MULTI inside a transaction"),
            Refused::NotBegun => f.write_str("EXEC without MULTI"),
            Refused::TransactionTooLarge => f.write_str("a transaction that is too large"),
            Refused::OutOfMemory(error) => write!(f, "no memory: {error}"),
            Refused::Library(why) => write!(f, "Failed creating the library: {why}"),
            Refused::Payload => f.write_str("a damaged payload of FUNCTION RESTORE"),
        }
    }
}

pub struct Applier {
    exec: Exec,
    reply: Reply,
    db: Db,
    transaction: Option<Transaction>,
    /// All partitions are held from the beginning to the end.
    is_within: bool,
    /// Commands that replied with an error, which they did not where they were recorded.
    pub failed: u64,
}

#[derive(Default)]
struct Transaction {
    /// Of libraries of functions: FUNCTION and its arguments.
    functions: Vec<ArgsBuf>,
    commands: Vec<(Db, &'static Entry, ArgsBuf)>,
    bytes: usize,
}

impl Applier {
    pub fn new(node: &'static Node) -> Applier {
        let exec = Exec::of_control(node);
        Applier { exec, reply: Reply::default(), db: Db(0), transaction: None, is_within: false, failed: 0 }
    }

    /// For a thread that holds all partitions, and goes on doing so. The clients that wait for keys are served by what ends the
    /// hold.
    pub fn within(node: &'static Node, held: Held<'static>) -> Applier {
        let mut applier = Applier::new(node);
        applier.exec.held = held;
        applier.is_within = true;
        applier
    }

    /// What `within` was given.
    pub fn into_held(mut self) -> Held<'static> {
        self.exec.pump.flush();
        self.exec.held
    }

    /// The log has ended before the EXEC: what was kept has no effect.
    pub fn abandon_transaction(&mut self) {
        self.transaction = None;
    }

    /// Runs one command of the log, or keeps it for its EXEC. What it has locked stays locked while the next ones need the
    /// same; `release` ends that.
    pub fn apply(&mut self, args: Args<'_>) -> Result<(), Refused> {
        let name = args.get(0);
        match name.len() {
            6 if name.eq_ignore_ascii_case(b"SELECT") => return self.select(args),
            5 if name.eq_ignore_ascii_case(b"MULTI") => return self.begin(),
            4 if name.eq_ignore_ascii_case(b"EXEC") => return self.run_transaction(),
            8 if name.eq_ignore_ascii_case(b"FUNCTION") => return self.functions(args),
            _ => {}
        }
        let node = self.exec.node;
        let command = match resolve::resolve(&node.commands, &node.keyspace, args).found {
            Found::Command(command) => command,
            Found::WrongArity(_) => return Err(Refused::WrongArity(name.to_vec())),
            Found::Unknown | Found::UnknownSubcommand => return Err(Refused::Unknown(name.to_vec())),
        };
        // PING and REPLCONF of a primary, which change no data.
        if !matches!(command.handler, Some(Handler::Data(_))) {
            return Ok(());
        }
        let db = self.db;
        let Some(transaction) = &mut self.transaction else {
            if !self.is_within {
                self.exec.locks.clear();
                self.exec.locks.add_command(&node.keyspace, command, args);
                self.exec.acquire();
            }
            self.run(db, command, args)?;
            self.end_hold(command);
            return Ok(());
        };
        transaction.bytes = transaction.bytes.saturating_add(args.wire_bytes());
        if transaction.bytes > QUEUED_BYTES_MAX {
            return Err(Refused::TransactionTooLarge);
        }
        transaction.commands.push((db, command, ArgsBuf::from(args)));
        Ok(())
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

    /// FUNCTION: libraries are kept as their text. What other subcommands do is no change.
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
            None => self.change_libraries(args),
        }
    }

    fn change_libraries(&self, args: Args<'_>) -> Result<(), Refused> {
        let libraries = &self.exec.node.persistence.libraries;
        let what = args.try_get(1).unwrap_or_default().to_ascii_lowercase();
        let last = args.get(args.len() - 1);
        let is_said = |word: &[u8]| args.from(2).iter().any(|arg| arg.eq_ignore_ascii_case(word));
        match (what.as_slice(), args.len()) {
            (b"load", 3) => libraries.add(last, false).map_err(Refused::Library),
            (b"load", 4) => libraries.add(last, true).map_err(Refused::Library),
            (b"delete", 3) => {
                libraries.remove(last);
                Ok(())
            }
            (b"flush", _) => {
                libraries.clear();
                Ok(())
            }
            (b"restore", 3 | 4) => {
                let all = libraries::of_payload(args.get(2)).ok_or(Refused::Payload)?;
                if is_said(b"flush") {
                    libraries.clear();
                }
                all.iter()
                    .try_for_each(|code| libraries.add(code, is_said(b"replace")))
                    .map_err(Refused::Library)
            }
            (b"load" | b"delete" | b"restore", _) => Err(Refused::WrongArity(args.get(0).to_vec())),
            _ => Ok(()),
        }
    }

    fn begin(&mut self) -> Result<(), Refused> {
        match self.transaction.replace(Transaction::default()) {
            None => Ok(()),
            Some(_) => Err(Refused::Nested),
        }
    }

    fn run_transaction(&mut self) -> Result<(), Refused> {
        let transaction = self.transaction.take().ok_or(Refused::NotBegun)?;
        transaction.functions.iter().try_for_each(|args| self.change_libraries(args.args()))?;
        if !self.is_within {
            let keyspace = &self.exec.node.keyspace;
            self.exec.locks.clear();
            for (_, command, args) in &transaction.commands {
                self.exec.locks.add_command(keyspace, command, args.args());
            }
            self.exec.acquire();
        }
        self.exec.pump.log.begin_transaction();
        let mut all = transaction.commands.iter();
        let ran = all.try_for_each(|(db, command, args)| self.run(*db, command, args.args()));
        self.exec.pump.log.end_transaction();
        // Not before: what follows a FLUSHALL lets others have the partitions that the rest of the transaction needs.
        if let Some((_, command, _)) = transaction.commands.last() {
            self.end_hold(command);
        }
        ran
    }

    fn end_hold(&mut self, command: &'static Entry) {
        if !self.is_within {
            follow_up::end_hold(&mut self.exec, command, 0);
        }
    }

    /// What the command needs is held.
    fn run(&mut self, db: Db, command: &'static Entry, args: Args<'_>) -> Result<(), Refused> {
        let Some(Handler::Data(handler)) = command.handler else {
            unreachable!("only data commands get here")
        };
        let Applier { exec, reply, .. } = self;
        exec.clock.begin();
        let now = exec.clock.now();
        let errors_before = reply.error_count();
        loop {
            let caller = Caller { id: 0, may_wait: false, no_touch: true, authority: Authority::Log };
            let keys = HashedKeys::NONE;
            let invocation = Invocation { command, handler, args, db, keys, now, caller, reply };
            match execute::run(exec, invocation) {
                Outcome::Done => break,
                Outcome::Block(_) => unreachable!("a command that may not wait is answered"),
                Outcome::Cold(keys) => exec.node.cold.fetch_now(&keys),
            }
        }
        reply.out.clear();
        if reply.error_count() == errors_before {
            return Ok(());
        }
        let error = reply.last_error();
        if error.as_bytes().starts_with(b"OOM") {
            return Err(Refused::OutOfMemory(String::from_utf8_lossy(error.as_bytes()).into_owned()));
        }
        self.failed += 1;
        Ok(())
    }
}
