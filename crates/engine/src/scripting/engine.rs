//! The interpreter of one worker, made with its first script, and what it has compiled.

use isotherm_script::{CompileError, Identity, Interpreter, Limits, OutOfMemory, Sha};
use std::collections::HashSet;

use isotherm_node::scripting::cache::{Script, Scripts};

/// Compiled scripts above the number of those that the node keeps. If there are more, those that the node no
/// longer keeps are removed.
const STALE_MAX: usize = 100;

pub struct Engine {
    pub interpreter: Interpreter,
    pub generation: u64,
    compiled: HashSet<Sha>,
    noted_bytes: usize,
}

impl Engine {
    pub fn new(generation: u64, limits: &Limits, identity: &Identity) -> Result<Engine, OutOfMemory> {
        let interpreter = Interpreter::new(limits, identity)?;
        Ok(Engine { interpreter, generation, compiled: HashSet::new(), noted_bytes: 0 })
    }

    pub fn compile(&mut self, scripts: &Scripts, script: &Script) -> Result<(), CompileError> {
        if self.interpreter.is_compiled(&script.sha) {
            return Ok(());
        }
        if self.compiled.len() > scripts.count() + STALE_MAX {
            let interpreter = &mut self.interpreter;
            self.compiled.retain(|sha| {
                let is_kept = scripts.has(sha);
                if !is_kept {
                    interpreter.forget(sha);
                }
                is_kept
            });
        }
        self.interpreter.compile(&script.sha, script.code())?;
        self.compiled.insert(script.sha);
        Ok(())
    }

    /// Accounts for the memory of the interpreter after a run.
    pub fn note_bytes(&mut self, scripts: &Scripts) {
        let bytes = self.interpreter.used_bytes();
        scripts.note_interpreter(std::mem::replace(&mut self.noted_bytes, bytes), bytes);
    }

    /// Takes the memory out of the account before the engine is dropped.
    pub fn leave(&mut self, scripts: &Scripts) {
        scripts.note_interpreter(std::mem::take(&mut self.noted_bytes), 0);
    }
}
