//! Callee of a run: a script or a function of a library, with the interpreter that has compiled it.

use isotherm_resp::{Args, Reply};
use isotherm_script::{Debugger, Host, Progress, Reference, Sha};

use super::engine::Engine;
use isotherm_node::scripting::cache::Scripts;
use isotherm_node::scripting::function_engine::FunctionEngine;

pub enum Callee {
    Script { engine: Box<Engine>, sha: Sha },
    Function { engine: Box<FunctionEngine>, reference: Reference },
}

impl Callee {
    pub fn is_function(&self) -> bool {
        matches!(self, Callee::Function { .. })
    }

    /// Calls it with these keys, `key_count` of them, and arguments.
    pub fn run(
        &mut self,
        words: Args<'_>,
        key_count: usize,
        host: &mut dyn Host,
        reply: &mut Reply,
    ) -> Progress {
        match self {
            Callee::Script { engine, sha } => engine.interpreter.run(sha, words, key_count, host, reply),
            Callee::Function { engine, reference } => engine.run(*reference, words, key_count, host, reply),
        }
    }

    /// Resumes the call that is suspended.
    pub fn resume(&mut self, host: &mut dyn Host, reply: &mut Reply) -> Progress {
        match self {
            Callee::Script { engine, .. } => engine.interpreter.resume(host, reply),
            Callee::Function { engine, .. } => engine.resume(host, reply),
        }
    }

    /// Returns the debugger of the suspended call, if it is debugged.
    pub fn debugger(&mut self) -> Option<&mut Debugger> {
        match self {
            Callee::Script { engine, .. } => engine.interpreter.debugger(),
            Callee::Function { .. } => None,
        }
    }

    /// Takes the debugger of the call that has ended.
    pub fn take_debugger(&mut self) -> Option<Box<Debugger>> {
        match self {
            Callee::Script { engine, .. } => engine.interpreter.take_debugger(),
            Callee::Function { .. } => None,
        }
    }

    /// Accounts for the memory of the interpreter of a script.
    pub fn note_bytes(&mut self, scripts: &Scripts) {
        if let Callee::Script { engine, .. } = self {
            engine.note_bytes(scripts);
        }
    }
}
