//! The interpreter of one worker, made with its first script, and what it has compiled.

use isotherm_script::{CompileError, Identity, Interpreter, Limits, OutOfMemory, Sha};
use std::collections::HashSet;

use super::cache::{Script, Scripts};

/// So many more scripts than the node keeps may be compiled before those that are gone are looked for.
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

    /// Its memory is accounted for, after a run.
    pub fn note_bytes(&mut self, scripts: &Scripts) {
        let bytes = self.interpreter.used_bytes();
        scripts.note_interpreter(std::mem::replace(&mut self.noted_bytes, bytes), bytes);
    }

    /// It is about to be dropped.
    pub fn leave(&mut self, scripts: &Scripts) {
        scripts.note_interpreter(std::mem::take(&mut self.noted_bytes), 0);
    }
}
