//! A script is found or compiled, it is looked whether it may run here and now, and it runs: to its end, or
//! until it takes long (`suspended`).

use isotherm_commands::Outcome;
use isotherm_commands::call::ColdKeys;
use isotherm_commands::spec::Flags;
use isotherm_keyspace::{Slot, SuspendedReady};
use isotherm_resp::errors;
use isotherm_script::{Debugger, Ended, Identity, Limits, Progress, Sha};
use isotherm_stdx::parse_i64;
use std::sync::Arc;

use super::super::AdminCall;
use super::host::ScriptHost;
use super::keys;
use super::slots;
use super::suspended::{self, Begun};
use isotherm_config::{Id, id};
use isotherm_engine::request::execute::Exec;
use isotherm_engine::request::gates;
use isotherm_engine::scripting::callee::Callee;
use isotherm_engine::scripting::engine::Engine;
use isotherm_engine::scripting::run::{Allowed, Awaits, Kept, RunState, ScriptTime};
use isotherm_node::Node;
use isotherm_node::mail::tasks::Tasks;
use isotherm_node::observe::slot_stats::SlotsMet;
use isotherm_node::process::version::{REDIS_VERSION, VALKEY_VERSION};
use isotherm_node::request::gate_bits::Gates;
use isotherm_node::scripting::cache::Script;
use isotherm_node::scripting::shebang::ScriptFlags;

const NO_SCRIPT: &str = "NOSCRIPT No matching script.";

/// A script within EXEC, where everything is held, keeps it for as many times as long: others wait for its
/// end either way, and it comes sooner without turns. They can wait 10 ms without an answer to PING.
const HOLDS_IN_EXEC: u64 = 10;

/// The text of an error reply.
pub type Refusal = Vec<u8>;

pub fn eval(call: &mut AdminCall<'_>) -> Outcome {
    if call.session.debugs && call.session.in_exec {
        call.reply.error("ERR Scripts can't be debugged within MULTI");
        return Outcome::Done;
    }
    run(call, |call| {
        let body = call.args.get(1);
        call.node.scripts.find_text(body).map_or_else(|| register(call, body, false), Ok)
    })
}

pub fn evalsha(call: &mut AdminCall<'_>) -> Outcome {
    if call.session.debugs {
        call.reply.error(match call.args.get(1).len() == size_of::<Sha>() {
            true => "ERR Please use EVAL instead of EVALSHA for debugging",
            false => NO_SCRIPT,
        });
        return Outcome::Done;
    }
    if call.args.get(1).len() != size_of::<Sha>() {
        // No script has such a name, however many keys are said to follow.
        feed_monitors(call);
        call.reply.error(NO_SCRIPT);
        return Outcome::Done;
    }
    run(call, |call| call.node.scripts.find(call.args.get(1)).ok_or_else(|| NO_SCRIPT.into()))
}

/// Compiles a text that is not known yet. `is_kept`: SCRIPT LOAD has brought it.
pub fn register(call: &mut AdminCall<'_>, body: &[u8], is_kept: bool) -> Result<Arc<Script>, Refusal> {
    let script = Script::new(body, &call.node.commands, keys::looks_at_no_key)?;
    let mut engine = engine(call)?;
    let compiled = compile(call, &mut engine, &script);
    call.exec.engine = Some(engine);
    compiled?;
    call.node.scripts.add(&script, is_kept);
    Ok(script)
}

fn compile(call: &AdminCall<'_>, engine: &mut Engine, script: &Script) -> Result<(), Refusal> {
    let compiled = engine.compile(&call.node.scripts, script);
    engine.note_bytes(&call.node.scripts);
    compiled.map_err(|error| [b"ERR Error compiling script (new function): ", &error.text[..]].concat())
}

/// The worker's interpreter of this generation.
fn engine(call: &mut AdminCall<'_>) -> Result<Box<Engine>, Refusal> {
    const INSECURE_API: Id = id("lua-enable-insecure-api");
    let (scripts, memory_bytes) = (&call.node.scripts, memory_limit(call.node));
    if let Some(mut engine) = call.exec.engine.take() {
        if engine.generation == scripts.generation() {
            engine.interpreter.set_memory_limit(memory_bytes);
            return Ok(engine);
        }
        engine.leave(scripts);
    }
    let identity =
        Identity { server_name: "valkey", redis_version: REDIS_VERSION, valkey_version: VALKEY_VERSION };
    let limits = Limits { memory_bytes, insecure_api: call.node.config.flag(INSECURE_API) };
    let engine = Engine::new(scripts.generation(), &limits, &identity);
    engine.map(Box::new).map_err(|_| b"ERR not enough memory for an interpreter".to_vec())
}

/// Returns the memory limit of an interpreter in bytes; 0 for no limit.
pub fn memory_limit(node: &Node) -> usize {
    const LIMIT: Id = id("script-memory-limit");
    node.config.number(LIMIT) as usize
}

type FindScript = fn(&mut AdminCall<'_>) -> Result<Arc<Script>, Refusal>;

fn run(call: &mut AdminCall<'_>, find: FindScript) -> Outcome {
    if let Some(keys) = cold_keys(call) {
        return Outcome::Cold(keys);
    }
    feed_monitors(call);
    try_run(call, find).unwrap_or_else(|text| {
        if call.session.debugs {
            // The session ends before it has begun.
            let ended = Debugger::new(b"").end();
            end_session(call, 0, &ended);
        }
        call.reply.error(text);
        Outcome::Done
    })
}

/// Shows the command to clients that monitor before the commands of the script.
fn feed_monitors(call: &AdminCall<'_>) {
    if call.node.mail.tasks().has(Tasks::MONITORED) {
        call.node.feed_monitors(call.session, call.command.spec, call.args);
    }
}

/// Values of the keys that a script or function names and that are not in memory: they are fetched before it
/// begins. Other values that it uses are read while it holds its locks.
pub fn cold_keys(call: &mut AdminCall<'_>) -> Option<Box<ColdKeys>> {
    let keys = call.exec.cold_keys(call.command, call.args, call.session.db)?;
    // It is looked for again.
    call.exec.runs.found = None;
    Some(keys)
}

fn try_run(call: &mut AdminCall<'_>, find: FindScript) -> Result<Outcome, Refusal> {
    let key_count = key_count(call, errors::NOT_AN_INTEGER)?;
    let script = match call.exec.runs.found.take() {
        Some(script) => script,
        None => find(call)?,
    };
    debug_assert!(script.is_named_by(call.args.get(1)), "each runs its own script");
    let allowed = allowed(call, script.flags)?;
    let mut engine = engine(call)?;
    if let Err(refusal) = compile(call, &mut engine, &script) {
        call.exec.engine = Some(engine);
        return Err(refusal);
    }
    if call.session.debugs {
        isotherm_runtime::log::notice("Synchronous debugging eval session started");
        engine.interpreter.debug(Debugger::new(call.args.get(1)));
    }
    Ok(run_callee(call, Callee::Script { engine, sha: script.sha }, key_count, allowed))
}
/// Returns the permissions of a script or a function that has declared these flags, for this call.
pub fn allowed(call: &AdminCall<'_>, flags: ScriptFlags) -> Result<Allowed, Refusal> {
    let is_ro = call.command.spec.flags.has(Flags::READONLY);
    let is_short = call.exec.hot.memory_target_bytes > 0 && !call.node.has_room();
    if let Some(refusal) = refusal(call, flags, is_ro, is_short) {
        return Err(refusal);
    }
    let is_declared = !flags.has(ScriptFlags::UNDECLARED);
    Ok(Allowed {
        writes: !(is_ro || is_declared && flags.has(ScriptFlags::NO_WRITES)),
        growth: !is_short || is_declared && flags.has(ScriptFlags::ALLOW_OOM),
        crossing: !is_declared || flags.has(ScriptFlags::ALLOW_CROSS_SLOT),
    })
}

/// `no_number`: what is answered if it is none.
pub fn key_count(call: &AdminCall<'_>, no_number: &str) -> Result<usize, Refusal> {
    let count = parse_i64(call.args.get(2)).ok_or(no_number)?;
    match usize::try_from(count) {
        Ok(count) if count <= call.args.len() - 3 => Ok(count),
        Ok(_) => Err(b"ERR Number of keys can't be greater than number of args".to_vec()),
        Err(_) => Err(b"ERR Number of keys can't be negative".to_vec()),
    }
}

/// Why a script that has declared what it does may not run here and now, in Valkey's order.
fn refusal(call: &AdminCall<'_>, flags: ScriptFlags, is_ro: bool, is_short: bool) -> Option<Refusal> {
    let of_node = call.exec.hot.gates;
    if flags.has(ScriptFlags::UNDECLARED) {
        return of_node.has(Gates::STALE).then(|| errors::PRIMARY_DOWN.into());
    }
    if flags.has(ScriptFlags::NO_CLUSTER) && call.exec.route.member.is_some() {
        return Some(slots::NO_CLUSTER.into());
    }
    if of_node.has(Gates::STALE) && !flags.has(ScriptFlags::ALLOW_STALE) {
        return Some(
            b"MASTERDOWN Link with MASTER is down, replica-serve-stale-data is set to 'no' and 'allow-stale' flag is not set \
              on the script."
                .to_vec(),
        );
    }
    if !flags.has(ScriptFlags::NO_WRITES) {
        if of_node.has(Gates::READ_ONLY) {
            return Some(b"READONLY Can not run script with write flag on readonly replica".to_vec());
        }
        if let Some(text) = gates::script_disk_error(call.node) {
            return Some(text);
        }
        if is_ro {
            return Some(b"ERR Can not execute a script with write flag using *_ro command.".to_vec());
        }
        if of_node.has(Gates::REPLICAS) {
            return Some(errors::NO_REPLICAS.into());
        }
    }
    let may_grow = flags.has(ScriptFlags::ALLOW_OOM.or(ScriptFlags::NO_WRITES));
    (is_short && !may_grow).then(|| {
        b"OOM allow-oom flag is not set on the script, can not run it when used memory > 'maxmemory'".to_vec()
    })
}

// COMPAT(scripts): EVAL in an append-only file or in the stream of a primary is refused. Why: Valkey, and
// Redis from 7.0 on, write the effects of scripts only.
/// Runs a script or a function: to its end, or until it takes long.
pub fn run_callee(
    call: &mut AdminCall<'_>,
    mut callee: Callee,
    key_count: usize,
    allowed: Allowed,
) -> Outcome {
    let (was_in_exec, db) = (call.session.in_exec, call.session.db);
    let (began, counted) = (call.exec.clock.raw(), call.exec.errors_counted());
    // Inside EXEC its frame is open.
    let is_logged = call.exec.pump.is_logging() && !was_in_exec;
    if is_logged {
        call.exec.pump.log.begin_transaction();
    }
    (call.session.in_exec, call.session.in_script) = (true, true);
    let had_time = std::mem::replace(&mut call.exec.script_time, ScriptTime::Unread);
    let (words, mark) = (call.args.from(3), call.reply.len());
    let mut state = begin(call, allowed, was_in_exec, callee.is_function());
    if call.exec.route.member.is_some() {
        state.slot = words.up_to(key_count).try_get(0).map(Slot::of_key);
    }
    // The host has the rest of the call meanwhile.
    let mut reply = std::mem::take(call.reply);
    let mut host = ScriptHost { call, state: &mut state, keys: words.up_to(key_count) };
    let progress = callee.run(words, key_count, &mut host, &mut reply);
    let frame = match progress {
        Progress::Ended(_) => None,
        Progress::Suspended => {
            keys::lease_all_met(&mut host);
            let pump = &mut host.call.exec.pump;
            pump.is_logging().then(|| pump.log.suspend_transaction())
        }
    };
    *call.reply = reply;
    let time = std::mem::replace(&mut call.exec.script_time, had_time);
    // An error reply to one of its commands is no error of its own.
    call.exec.set_errors_counted(counted);
    let session = &mut *call.session;
    (session.in_exec, session.in_script, session.db) = (was_in_exec, false, db);
    session.last_command = call.command.index;
    let ended = match progress {
        Progress::Ended(ended) => ended,
        Progress::Suspended => {
            let ticks = call.exec.clock.raw().saturating_sub(began);
            if let Some(debugger) = callee.debugger() {
                call.reply.out.extend(debugger.take_output());
            }
            suspended::add(call, Begun { callee, state, key_count, frame, time, began, ticks });
            return Outcome::Later;
        }
    };
    debug_assert!(call.reply.len() > mark, "a script has one reply");
    if let Some(mut debugger) = callee.take_debugger() {
        let ended = debugger.end();
        end_session(call, call.reply.len() - mark, &ended);
    }
    state.mark.end();
    call.exec.meter.note_slots_met(state.met);
    call.exec.runs.mark = Some(state.mark);
    call.exec.pump.log.set_muted(false);
    put_back(call.exec, callee);
    if is_logged {
        call.exec.pump.log.end_transaction();
        call.exec.note_gate();
    }
    call.exec.error_is_counted = ended == Ended::Failed { is_counted: true };
    Outcome::Done
}

/// Inserts the debugger's last output before the reply to EVAL, which is the last `reply_bytes` bytes
/// written. The connection is closed after the reply.
fn end_session(call: &mut AdminCall<'_>, reply_bytes: usize, ended: &[u8]) {
    let at = call.reply.len() - reply_bytes;
    call.reply.out.splice(at..at, ended.iter().copied());
    call.session.close_after_reply = true;
}

/// The interpreter of a run that has ended is the worker's again. One that was made meanwhile goes: what
/// libraries keep in their upvalues is in the older one.
pub fn put_back(exec: &mut Exec, mut callee: Callee) {
    callee.note_bytes(&exec.node.scripts);
    match callee {
        Callee::Script { engine, .. } => {
            if let Some(mut other) = exec.engine.replace(engine) {
                other.leave(&exec.node.scripts);
            }
        }
        Callee::Function { engine, .. } => exec.functions = Some(engine),
    }
}

/// The state of a run that begins, which is visible to SCRIPT KILL from now on.
fn begin(call: &mut AdminCall<'_>, allowed: Allowed, is_in_exec: bool, is_function: bool) -> RunState {
    let exec = &mut *call.exec;
    let mark = exec.runs.mark.take().unwrap_or_else(|| call.node.runs.new_mark());
    mark.begin(is_function);
    RunState {
        mark,
        has_token: exec.runs.has_token,
        allowed,
        kept: if is_in_exec { Kept::Everything } else { Kept::Guards },
        places: Vec::new(),
        needs_all: false,
        slot: None,
        met: SlotsMet::None,
        ready: SuspendedReady::default(),
        reader: call.session.reader(),
        pause_at: exec.clock.raw() + exec.hot.script_hold_ticks * if is_in_exec { HOLDS_IN_EXEC } else { 1 },
        awaits: Awaits::Nothing,
    }
}
