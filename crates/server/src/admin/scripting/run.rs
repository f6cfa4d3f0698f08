//! A script is found or compiled, it is looked whether it may run here and now, and it runs.

use isotherm_commands::Outcome;
use isotherm_commands::spec::Flags;
use isotherm_resp::{Args, Reply, errors};
use isotherm_script::{Ended, Identity, Limits};
use isotherm_stdx::parse_i64;
use std::sync::Arc;

use super::super::AdminCall;
use super::host::{Allowed, ScriptHost};
use crate::node::Tasks;
use crate::process::time::unix_now_us;
use crate::process::version::{REDIS_VERSION, VALKEY_VERSION};
use crate::request::gate_bits::Gates;
use crate::request::gates;
use crate::scripting::cache::{Running, Script};
use crate::scripting::engine::Engine;
use crate::scripting::shebang::ScriptFlags;

const NO_SCRIPT: &str = "NOSCRIPT No matching script.";

/// The text of an error reply.
pub type Refusal = Vec<u8>;

pub fn eval(call: &mut AdminCall<'_>) -> Outcome {
    run(call, |call| {
        let body = call.args.get(1);
        call.node.scripts.find_text(body).map_or_else(|| register(call, body, false), Ok)
    })
}

pub fn evalsha(call: &mut AdminCall<'_>) -> Outcome {
    run(call, |call| call.node.scripts.find(call.args.get(1)).ok_or_else(|| NO_SCRIPT.into()))
}

/// Compiles a text that is not known yet. `is_kept`: SCRIPT LOAD has brought it.
pub fn register(call: &mut AdminCall<'_>, body: &[u8], is_kept: bool) -> Result<Arc<Script>, Refusal> {
    let script = Script::new(body)?;
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
    let scripts = &call.node.scripts;
    if let Some(mut engine) = call.exec.engine.take() {
        if engine.generation == scripts.generation() {
            return Ok(engine);
        }
        engine.leave(scripts);
    }
    let identity =
        Identity { server_name: "valkey", redis_version: REDIS_VERSION, valkey_version: VALKEY_VERSION };
    let limits = Limits { memory_bytes: 0, insecure_api: false };
    let engine = Engine::new(scripts.generation(), &limits, &identity);
    engine.map(Box::new).map_err(|_| b"ERR not enough memory for an interpreter".to_vec())
}

type FindScript = fn(&mut AdminCall<'_>) -> Result<Arc<Script>, Refusal>;

fn run(call: &mut AdminCall<'_>, find: FindScript) -> Outcome {
    // Before the commands of the script.
    if call.node.mail.tasks().has(Tasks::MONITORED) {
        call.node.feed_monitors(call.session, call.command.spec, call.args);
    }
    if let Err(text) = try_run(call, find) {
        call.reply.error(text);
    }
    Outcome::Done
}

fn try_run(call: &mut AdminCall<'_>, find: FindScript) -> Result<(), Refusal> {
    let key_count = key_count(call, errors::NOT_AN_INTEGER)?;
    let script = find(call)?;
    let allowed = allowed(call, script.flags)?;
    let mut engine = engine(call)?;
    let compiled = compile(call, &mut engine, &script);
    if compiled.is_ok() {
        run_held(call, allowed, |words, host, reply| {
            engine.interpreter.run(&script.sha, words, key_count, host, reply)
        });
        engine.note_bytes(&call.node.scripts);
    }
    call.exec.engine = Some(engine);
    compiled
}

/// What a script or a function that has declared this may do here and now.
pub fn allowed(call: &AdminCall<'_>, flags: ScriptFlags) -> Result<Allowed, Refusal> {
    let is_ro = call.command.spec.flags.has(Flags::READONLY);
    let is_short = call.exec.hot.maxmemory_bytes > 0 && !call.node.has_room();
    if let Some(refusal) = refusal(call, flags, is_ro, is_short) {
        return Err(refusal);
    }
    let is_declared = !flags.has(ScriptFlags::UNDECLARED);
    Ok(Allowed {
        writes: !(is_ro || is_declared && flags.has(ScriptFlags::NO_WRITES)),
        growth: !is_short || is_declared && flags.has(ScriptFlags::ALLOW_OOM),
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

// COMPAT(scripts): While a script runs, commands of all other clients that need a key wait until it ends; there is no -BUSY, and
// `busy-reply-threshold` has no effect. SCRIPT KILL reaches it from connections of other workers (with one worker from none), and so does
// SIGTERM, unless it has written. Why: scripts hold the gate until they have leases of their keys.
// COMPAT(scripts): EVAL in an append-only file or in the stream of a primary is refused. Why: Valkey, and Redis from 7.0 on, write the
// effects of scripts only.
/// Runs a script or a function under the gate: `body` gets its keys and arguments, its host, and where it answers.
pub fn run_held(
    call: &mut AdminCall<'_>,
    allowed: Allowed,
    body: impl FnOnce(Args<'_>, &mut ScriptHost<'_, '_>, &mut Reply) -> Ended,
) {
    let (was_in_exec, db, commands) = (call.session.in_exec, call.session.db, call.session.commands);
    let counted = call.exec.errors_counted();
    // Inside EXEC its frame is open.
    let begins = call.exec.pump.is_logging() && !was_in_exec;
    if begins {
        call.exec.pump.log.begin_transaction();
    }
    call.session.in_exec = true;
    let had_time = call.exec.frozen_time_us.replace(unix_now_us());
    call.node.scripts.set_running(Running::Clean);
    let (words, mark) = (call.args.from(3), call.reply.len());
    // The host has the rest of the call meanwhile.
    let mut reply = std::mem::take(call.reply);
    let mut host = ScriptHost::new(call, allowed);
    let ended = body(words, &mut host, &mut reply);
    *call.reply = reply;
    debug_assert!(call.reply.len() > mark, "a script has one reply");
    call.node.scripts.set_running(Running::None);
    call.exec.pump.log.set_muted(false);
    call.exec.frozen_time_us = had_time;
    let session = &mut *call.session;
    (session.in_exec, session.db, session.commands) = (was_in_exec, db, commands);
    session.last_command = call.command.index;
    if begins {
        call.exec.pump.log.end_transaction();
        call.exec.note_gate();
    }
    call.exec.error_is_counted = ended == Ended::Failed { is_counted: true };
    // What its commands have answered is no error of its own.
    call.exec.set_errors_counted(counted);
}
