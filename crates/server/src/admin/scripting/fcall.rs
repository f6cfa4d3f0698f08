//! FCALL and FCALL_RO.
//!
//! ```text
//!   name --> library, number of the function --> its reference in this worker's interpreter --> run, as a script is
//! ```
//! The gates check the declared flags of the function before, as if it were a command with these flags;
//! inside EXEC, and for the declaration of the current command (_RO), they are checked here.

use isotherm_commands::Outcome;
use isotherm_commands::spec::*;

use super::super::AdminCall;
use super::run::{self, Refusal};
use super::{ARGUMENTS, RO, RW, SHOWN, keys, runs};
use isotherm_engine::request::execute::Exec;
use isotherm_engine::scripting::callee::Callee;
use isotherm_node::mail::tasks::Tasks;
use isotherm_node::scripting::function_engine::FunctionEngine;
use isotherm_node::scripting::library_head::Refused;

const FCALL_ARGUMENTS: [Argument; 4] =
    [Argument::string("function"), ARGUMENTS[1], ARGUMENTS[2], ARGUMENTS[3]];

pub const FCALL: Spec = Spec {
    complexity: "That of the function",
    flags: SHOWN.or(Flags::MAY_REPLICATE).or(Flags::RUNS_FUNCTION),
    key_specs: &[keys(RW).notes("The code may read and write any of its keys")],
    arguments: &FCALL_ARGUMENTS,
    ..runs("fcall", "Calls a function of a library with keys and arguments.", "7.0.0")
};
pub const FCALL_RO: Spec = Spec {
    complexity: "That of the function",
    flags: SHOWN.or(Flags::READONLY).or(Flags::RUNS_FUNCTION),
    key_specs: &[keys(RO).notes("The code may read any of its keys")],
    arguments: &FCALL_ARGUMENTS,
    ..runs("fcall_ro", "Calls a function that may not write.", "7.0.0")
};

pub fn fcall(call: &mut AdminCall<'_>) -> Outcome {
    if let Some(keys) = run::cold_keys(call) {
        return Outcome::Cold(keys);
    }
    // Before the commands of the function.
    if call.node.mail.tasks().has(Tasks::MONITORED) {
        call.node.feed_monitors(call.session, call.command.spec, call.args);
    }
    try_call(call).unwrap_or_else(|text| {
        call.reply.error(text);
        Outcome::Done
    })
}

fn try_call(call: &mut AdminCall<'_>) -> Result<Outcome, Refusal> {
    let found = call.node.libraries.find(call.args.get(1));
    let callee = found.ok_or_else(|| b"ERR Function not found".to_vec())?;
    let key_count = run::key_count(call, "ERR Bad number of keys provided")?;
    let allowed = run::allowed(call, callee.function().flags)?;
    let mut engine = take_engine(call.exec);
    match engine.reference(&callee) {
        Ok(reference) => {
            Ok(run::run_callee(call, Callee::Function { engine, reference }, key_count, allowed))
        }
        Err(refused) => {
            call.exec.functions = Some(engine);
            Err(as_reply(refused))
        }
    }
}

/// The worker's interpreter of functions; it is to be put back.
pub fn take_engine(exec: &mut Exec) -> Box<FunctionEngine> {
    let engine = exec.functions.take();
    let mut engine = engine.unwrap_or_else(|| Box::new(FunctionEngine::new(&exec.node.libraries)));
    engine.set_memory_limit(run::memory_limit(exec.node));
    engine
}

pub fn as_reply(refused: Refused) -> Refusal {
    [&b"ERR "[..], &refused.0].concat()
}
