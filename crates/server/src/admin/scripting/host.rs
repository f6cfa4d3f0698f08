//! What a script asks of the server: its commands, run on what EVAL holds.

use isotherm_commands::Outcome;
use isotherm_commands::call::HashedKeys;
use isotherm_commands::spec::Flags;
use isotherm_reactor::signals;
use isotherm_resp::{Args, Reply, errors};
use isotherm_script::{Host, LogLevel, Replication};

use super::super::AdminCall;
use crate::effects::monitor;
use crate::node::Tasks;
use crate::request::entry::Entry;
use crate::request::gate_bits::Gates;
use crate::request::gates;
use crate::request::resolve::{Found, resolve};
use crate::request::turn::Turn;
use crate::scripting::cache::Running;
use crate::scripting::function_engine::log_line;

/// What a script may do besides reading.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Allowed {
    pub writes: bool,
    /// Commands that may take memory, as long as it has not written.
    pub growth: bool,
}

pub struct ScriptHost<'h, 'c> {
    call: &'h mut AdminCall<'c>,
    allowed: Allowed,
}

impl<'h, 'c> ScriptHost<'h, 'c> {
    pub fn new(call: &'h mut AdminCall<'c>, allowed: Allowed) -> ScriptHost<'h, 'c> {
        ScriptHost { call, allowed }
    }

    /// What is asked about the command.
    fn flags_of(&self, command: &Entry, words: Args<'_>) -> Flags {
        let is_for_tests = || {
            let word = words.try_get(1).unwrap_or_default();
            word.eq_ignore_ascii_case(b"protocol") || word.eq_ignore_ascii_case(b"sleep")
        };
        match command.spec.flags.has(Flags::PROTECTED)
            && self.call.node.debug.scripts_may_debug.is_on()
            && is_for_tests()
        {
            true => command.spec.flags.without(Flags::NOSCRIPT),
            false => command.spec.flags,
        }
    }

    /// Why the command does not run here, in Valkey's order. A script that has written is not held up by what may change.
    fn refusal(&self, flags: Flags) -> Option<Vec<u8>> {
        let (node, of_node) = (self.call.node, self.call.exec.hot.gates);
        let has_written = node.scripts.running() == Running::Dirty;
        let writes = flags.has(Flags::WRITE) && !has_written;
        let text = match () {
            () if flags.has(Flags::NOSCRIPT) => "ERR This Valkey command is not allowed from script",
            () if !self.allowed.growth && !has_written && flags.has(Flags::DENYOOM) => errors::OUT_OF_MEMORY,
            () if !self.allowed.writes && flags.has(Flags::WRITE.or(Flags::MAY_REPLICATE)) => {
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

    /// Runs a command that may run.
    fn run(&mut self, command: &'static Entry, words: Args<'_>, reply: &mut Reply) {
        let AdminCall { exec, session, audience, facts, handlers, now, node, .. } = &mut *self.call;
        if node.mail.tasks().has(Tasks::MONITORED) && monitor::shows(command.spec) {
            node.feed_monitors_from_script(session, command.spec, words);
        }
        exec.clock.lap();
        let mut turn = Turn { exec, session, reply, audience, facts: *facts, handlers };
        loop {
            match turn.run(command, words, HashedKeys::NONE, *now, false) {
                Outcome::Done => break,
                Outcome::Block(_) => unreachable!("a command that may not wait is answered"),
                Outcome::Cold(keys) => turn.exec.node.cold.fetch_now(&keys),
            }
        }
        if command.spec.flags.has(Flags::READONLY)
            && let Some(reader) = session.reader()
        {
            exec.note_reads(reader, command, words);
        }
        let ticks = exec.clock.lap();
        exec.meter.count_ticks(command, ticks);
    }
}

impl Host for ScriptHost<'_, '_> {
    fn call(&mut self, words: Args<'_>, reply: &mut Reply) {
        let node = self.call.node;
        let refused = match resolve(&node.commands, &node.keyspace, words).found {
            Found::Unknown => Some(b"ERR Unknown command called from script".to_vec()),
            Found::UnknownSubcommand => Some(errors::unknown_subcommand(words)),
            Found::WrongArity(_) => Some(b"ERR Wrong number of args calling command from script".to_vec()),
            Found::Command(command) => match self.refusal(self.flags_of(command, words)) {
                Some(text) => {
                    self.call.exec.stats.commands[usize::from(command.index)].rejected.add(1);
                    Some(text)
                }
                None if command.spec.flags.has(Flags::WRITE) && !node.scripts.begin_write() => {
                    let what = if node.scripts.under_way.is_function() { "FUNCTION" } else { "SCRIPT" };
                    Some(format!("ERR Script killed by user with {what} KILL.").into_bytes())
                }
                None => return self.run(command, words, reply),
            },
        };
        reply.error(refused.expect("what runs has returned"));
        self.call.exec.stats.count_error(reply.last_error().as_bytes());
    }

    // COMPAT(scripts): redis.set_repl with REPL_AOF or REPL_REPLICA alone does what REPL_ALL does. Why: the append-only file and
    // replicas read the same bytes of one log.
    fn set_replication(&mut self, replication: Replication) {
        self.call.exec.pump.log.set_muted(!replication.aof && !replication.replicas);
    }

    fn log(&mut self, level: LogLevel, text: &[u8]) {
        log_line(level, text);
    }

    fn may_run(&mut self, words: Args<'_>) -> Option<bool> {
        let node = self.call.node;
        matches!(resolve(&node.commands, &node.keyspace, words).found, Found::Command(_)).then_some(true)
    }

    fn is_to_stop(&mut self) -> bool {
        let scripts = &self.call.node.scripts;
        scripts.under_way.show(self.call.args, self.call.exec.frozen_time_us.unwrap_or_default());
        // The thread that would act on the signal may wait for what this script holds.
        scripts.running() == Running::Killed || signals::has_arrived() && scripts.kill() == Running::Killed
    }
}
