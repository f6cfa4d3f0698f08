//! A turn: one command of a session, of either kind, once what it needs is held.
//!
//! ```text
//! data command           execute::run                 knows a caller, and no session
//! of session or server   its handler, an `AdminCall`  may look at the session and change it
//! ```
//! EXEC is of the second kind, and takes a turn for each command of its queue.

use isotherm_commands::Outcome;
use isotherm_commands::call::HashedKeys;
use isotherm_commands::spec::AclCategories;
use isotherm_keyspace::UnixMs;
use isotherm_log::LogOffset;
use isotherm_resp::{Args, Reply};
use isotherm_stdx::steps;

use crate::request::admin_call::{AdminCall, AdminHandler};
use crate::request::execute::{self, Exec, Invocation};
use crate::request::fetching::Rounds;
use isotherm_node::effects::pubsub::Audience;
use isotherm_node::observe::facts::Facts;
use isotherm_node::request::entry::{Entry, Handler, Locks};
use isotherm_node::session::Session;

/// Maximum number of times that a command is parked for values on disk. Commands that search a list, or a
/// sorted set among equal scores, are parked some 15 times.
pub(super) const FETCHES_MAX: u8 = 16;

/// State with which a command of a session is run.
pub struct Turn<'t> {
    pub exec: &'t mut Exec,
    pub session: &'t mut Session,
    pub reply: &'t mut Reply,
    pub audience: &'t mut Audience,
    pub facts: Option<&'t Facts>,
    /// Handlers of the commands of the session and the server, by `Entry::index`.
    pub handlers: &'t [Option<AdminHandler>],
}

impl Turn<'_> {
    #[inline(always)]
    pub fn run(
        &mut self,
        command: &'static Entry,
        args: Args<'_>,
        keys: HashedKeys<'_>,
        now: UnixMs,
        may_wait: bool,
    ) -> Outcome {
        self.session.last_command = command.index;
        let outcome = match command.handler {
            Some(Handler::Data(handler)) => {
                let caller = self.session.caller(may_wait);
                let (db, reply) = (self.session.db, &mut *self.reply);
                let invocation = Invocation { command, handler, args, db, keys, now, caller, reply };
                execute::run(self.exec, invocation)
            }
            Some(Handler::Admin) => self.run_admin(command, args, now),
            None => unreachable!("{} has no code of its own", command.name),
        };
        if let Outcome::Done = outcome {
            self.session.commands += 1;
            self.session.fetches = 0;
        }
        let written = self.exec.pump.log.take_written();
        if written != LogOffset::default() {
            self.session.written = written;
        }
        outcome
    }

    /// A command lacks values on disk. Whether it has been parked for some so often that it no longer waits
    /// without its locks: others took away what it was lent before it ran, and may do so for ever.
    #[cold]
    pub fn has_fetched_enough(&mut self) -> bool {
        // A walk that comes further waits as often as it takes.
        if self.exec.held.walk.has_advanced() {
            self.session.fetches = 0;
        }
        let has_enough = self.session.fetches == FETCHES_MAX;
        self.session.fetches += u8::from(!has_enough);
        has_enough
    }

    /// Runs a command that does not wait for the disk, or has done so too often: the values that it lacks are
    /// read while it keeps its locks.
    #[inline]
    pub fn run_to_end(
        &mut self,
        command: &'static Entry,
        args: Args<'_>,
        keys: HashedKeys<'_>,
        now: UnixMs,
        may_wait: bool,
    ) -> Outcome {
        let mut rounds = Rounds::default();
        loop {
            match self.run(command, args, keys, now, may_wait) {
                Outcome::Cold(cold) => self.exec.fetch_round(&mut rounds, cold),
                outcome => {
                    self.exec.end_rounds(&rounds);
                    return outcome;
                }
            }
        }
    }

    #[inline(never)]
    fn run_admin(&mut self, command: &'static Entry, args: Args<'_>, now: UnixMs) -> Outcome {
        let Turn { exec, session, reply, audience, facts, handlers } = self;
        let handler = handlers[usize::from(command.index)].expect("its entry says so");
        let (errors_before, counted_before) = (reply.error_count(), exec.errors_counted());
        let looked_before = steps::looked();
        let named_before = if cfg!(debug_assertions) { session.named_items() } else { 0 };
        // It may be asked for what came before it in its batch.
        exec.meter.record_times();
        exec.pump.begin(session.id());
        let outcome = handler(&mut AdminCall {
            node: exec.node,
            args,
            command,
            now,
            conditions: exec.conditions(now, session.no_touch, session.authority()),
            exec,
            session,
            reply,
            audience,
            facts: *facts,
            handlers,
        });
        // The commands of a queue, or of a script, have noted theirs.
        let runs_others = command.locks == Locks::Queue || command.spec.acl.has(AclCategories::SCRIPTING);
        if !runs_others {
            exec.meter.note_own_work(&mut exec.held, command, args, looked_before, named_before);
        }
        // What CONFIG SET has changed holds from here on, for itself too; and so does what it has done to its
        // session.
        exec.refresh();
        session.note_gates();
        if let Outcome::Done = outcome {
            let of_others = exec.errors_counted() - counted_before;
            exec.count_call(command, reply, errors_before + of_others);
        }
        outcome
    }
}
