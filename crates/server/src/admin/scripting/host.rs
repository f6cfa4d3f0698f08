//! Host of a script: runs its commands on the keys that it holds or leases.

use isotherm_acl::Context;
use isotherm_commands::Outcome;
use isotherm_commands::call::HashedKeys;
use isotherm_commands::spec::Flags;
use isotherm_keyspace::Slot;
use isotherm_reactor::signals;
use isotherm_resp::{Args, Reply, errors};
use isotherm_script::{Called, Checkpoint, Host, LogLevel, Replication};

use super::super::AdminCall;
use super::keys;
use super::slots;
use isotherm_engine::request::gates;
use isotherm_engine::request::metering::{Part, Timed};
use isotherm_engine::request::resolve::{Found, resolve};
use isotherm_engine::request::turn::Turn;
use isotherm_engine::scripting::run::{Awaits, RunState};
use isotherm_node::effects::monitor;
use isotherm_node::mail::tasks::Tasks;
use isotherm_node::request::entry::Entry;
use isotherm_node::request::gate_bits::Gates;
use isotherm_node::scripting::function_engine::log_line;
use isotherm_node::scripting::registry::Running;
use isotherm_node::users::{noting, permission};

pub struct ScriptHost<'h, 'c> {
    pub call: &'h mut AdminCall<'c>,
    pub state: &'h mut RunState,
    /// The keys that it was called with.
    pub keys: Args<'h>,
}

impl ScriptHost<'_, '_> {
    /// Returns the flags by which the command is judged. NOSCRIPT is missing for the commands of tests if the
    /// switch for tests is on.
    fn flags_of(&self, command: &Entry, words: Args<'_>) -> Flags {
        let is_for_tests = || {
            let word = words.try_get(1).unwrap_or_default();
            let is_debug = command.spec.flags.has(Flags::PROTECTED)
                && (word.eq_ignore_ascii_case(b"protocol") || word.eq_ignore_ascii_case(b"sleep"));
            is_debug || &*command.name == "client|list"
        };
        match command.spec.flags.has(Flags::NOSCRIPT)
            && self.call.node.debug.scripts_may_debug.is_on()
            && is_for_tests()
        {
            true => command.spec.flags.without(Flags::NOSCRIPT),
            false => command.spec.flags,
        }
    }

    /// Why the command does not run here, in Valkey's order. A script that has written is not held up by what
    /// may change.
    fn refusal(&self, flags: Flags) -> Option<Vec<u8>> {
        let (node, of_node) = (self.call.node, self.call.exec.hot.gates);
        let (allowed, has_written) = (self.state.allowed, self.state.mark.running() == Running::Dirty);
        let writes = flags.has(Flags::WRITE) && !has_written;
        let text = match () {
            () if flags.has(Flags::NOSCRIPT) => "ERR This Valkey command is not allowed from script",
            () if !allowed.growth && !has_written && flags.has(Flags::DENYOOM) => errors::OUT_OF_MEMORY,
            () if allowed.refuses_write(flags) => {
                "ERR Write commands are not allowed from read-only scripts."
            }
            () if writes && of_node.has(Gates::REPLICAS) => errors::NO_REPLICAS,
            () if writes => match gates::disk_error(node) {
                Some(text) => return Some(text),
                None if of_node.has(Gates::READ_ONLY) => errors::READONLY,
                None => return None,
            },
            () if !flags.has(Flags::STALE) && of_node.has(Gates::STALE) => {
                "ERR Can not execute the command on a stale replica"
            }
            () => return None,
        };
        Some(text.into())
    }

    /// Why the user of the script's client may not run it.
    fn denial(&mut self, command: &'static Entry, words: Args<'_>) -> Option<Vec<u8>> {
        let AdminCall { node, session, command: shown, .. } = &mut *self.call;
        // Its client may be parked, and heeds nothing meanwhile.
        if session.users_seen != node.users.generation() {
            session.look_up_user(&node.users);
        }
        if session.user.permits_everything() {
            return None;
        }
        let db = session.db;
        let denial = permission::check_session(node, session, command, words, db).err()?;
        noting::denied(node, session, shown, (command, words), denial, Context::Lua);
        let text = permission::text(&session.user, command, words, denial, false);
        Some([b"ERR ACL failure in script: ", &text[..]].concat())
    }

    /// Runs a command that may run.
    fn run(&mut self, command: &'static Entry, words: Args<'_>, keys: HashedKeys<'_>, reply: &mut Reply) {
        let AdminCall { exec, session, audience, facts, handlers, now, node, .. } = &mut *self.call;
        if node.mail.tasks().has(Tasks::MONITORED) && monitor::shows(command.spec) {
            node.feed_monitors_from_script(session, command.spec, words);
        }
        exec.clock.lap();
        let mark = reply.len();
        let mut turn = Turn { exec, session, reply, audience, facts: *facts, handlers };
        let outcome = turn.run_to_end(command, words, keys, *now, false);
        assert!(matches!(outcome, Outcome::Done), "a command that may not wait is answered");
        if command.spec.flags.has(Flags::READONLY)
            && let Some(reader) = self.state.reader
        {
            exec.note_reads(reader, command, words);
        }
        let (ticks, reply_bytes) = (exec.clock.lap(), reply.len() - mark);
        let (client, db) = (&session.shared, session.db);
        let timed = Timed { client, db, command, args: words, ticks, reply_bytes, part: Part::Called };
        if exec.hot.counts_slots {
            let keys = exec.locks.find_slot_keys(command, words);
            keys.iter().for_each(|(at, _)| self.state.met.note(Slot::of_key(words.get(*at))));
        }
        exec.meter.count_time(&exec.clock, &exec.hot, &mut exec.prng, &timed);
    }
}

impl Host for ScriptHost<'_, '_> {
    fn call(&mut self, words: Args<'_>, reply: &mut Reply) -> Called {
        if self.is_to_pause(self.call.exec.clock.began()) {
            self.state.awaits = Awaits::Nothing;
            return Called::Later;
        }
        let node = self.call.node;
        let request = resolve(&node.commands, &node.keyspace, words);
        let refused = match request.found {
            Found::Unknown => Some(b"ERR Unknown command called from script".to_vec()),
            Found::UnknownSubcommand => Some(errors::unknown_subcommand(words)),
            Found::WrongArity(command) => {
                self.call.exec.stats.commands[usize::from(command.index)].rejected.add(1);
                Some(b"ERR Wrong number of args calling command from script".to_vec())
            }
            Found::Command(command) => match self.refusal(self.flags_of(command, words)) {
                Some(text) => {
                    self.call.exec.stats.commands[usize::from(command.index)].rejected.add(1);
                    Some(text)
                }
                None if let Some(text) = self.denial(command, words) => {
                    self.call.exec.stats.commands[usize::from(command.index)].rejected.add(1);
                    Some(text)
                }
                None if keys::is_refused(self, command, words) => Some(keys::REFUSED.into()),
                None if !keys::secure(self, command, words) => return Called::Later,
                None if let Some(text) = slots::refusal(self, command, words) => {
                    self.call.exec.stats.commands[usize::from(command.index)].rejected.add(1);
                    Some(text)
                }
                None if command.spec.flags.has(Flags::WRITE) && !self.state.mark.begin_write() => {
                    let what = if self.state.mark.is_function() { "FUNCTION" } else { "SCRIPT" };
                    Some(format!("ERR Script killed by user with {what} KILL.").into_bytes())
                }
                None => {
                    keys::begin_command(self);
                    let keys = match &request.key {
                        Some(key) if command.has_one_key(words.len()) => {
                            HashedKeys::one(usize::from(command.first_key), key)
                        }
                        _ => HashedKeys::NONE,
                    };
                    self.run(command, words, keys, reply);
                    keys::end_command(self);
                    return Called::Done;
                }
            },
        };
        reply.error(refused.expect("what runs has returned"));
        self.call.exec.stats.count_error(reply.last_error().as_bytes());
        Called::Done
    }

    fn shown_refusal(&mut self, words: Args<'_>) -> Option<Vec<u8>> {
        let node = self.call.node;
        match resolve(&node.commands, &node.keyspace, words).found {
            Found::Unknown => Some(errors::unknown_command(words)),
            Found::WrongArity(command) => Some(errors::wrong_arity(&command.name).into_bytes()),
            Found::Command(command) if self.flags_of(command, words).has(Flags::NOSCRIPT) => {
                Some(format!("ERR command '{}' is not allowed on script mode", command.name).into_bytes())
            }
            Found::Command(_) | Found::UnknownSubcommand => None,
        }
    }

    // COMPAT(scripts): redis.set_repl with REPL_AOF or REPL_REPLICA alone does what REPL_ALL does. Why: the
    // append-only file and replicas read the same bytes of one log.
    fn set_replication(&mut self, replication: Replication) {
        self.call.exec.pump.log.set_muted(!replication.aof && !replication.replicas);
    }

    fn log(&mut self, level: LogLevel, text: &[u8]) {
        log_line(level, text);
    }

    fn may_run(&mut self, words: Args<'_>) -> Option<bool> {
        let AdminCall { node, session, .. } = &mut *self.call;
        if session.users_seen != node.users.generation() {
            session.look_up_user(&node.users);
        }
        let (user, db) = (&session.user, session.db);
        match resolve(&node.commands, &node.keyspace, words).found {
            Found::Command(command) => Some(permission::check(node, user, command, words, db).is_ok()),
            // Without its arguments the command alone is asked about.
            Found::WrongArity(command) => Some(permission::may_run(node, user, command, words, db)),
            _ => None,
        }
    }

    fn checkpoint(&mut self) -> Checkpoint {
        let (mark, ticks) = (&self.state.mark, self.call.exec.clock.raw());
        // The thread that acts on the signal may wait for what this script holds or leases.
        let is_ending = signals::has_arrived() || self.call.node.runs.is_ending();
        let is_killed = mark.running() == Running::Killed || is_ending && mark.kill() == Running::Killed;
        match is_killed {
            true => Checkpoint::Stop,
            false if self.is_to_pause(ticks) => {
                self.state.awaits = Awaits::Nothing;
                Checkpoint::Pause
            }
            false => Checkpoint::GoOn,
        }
    }
}

impl ScriptHost<'_, '_> {
    /// Others have their turn.
    fn is_to_pause(&self, ticks: u64) -> bool {
        ticks >= self.state.pause_at
    }
}
