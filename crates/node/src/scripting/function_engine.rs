//! The interpreter in which one thread runs functions, made with its first library, and what it has loaded.
//!
//! ```text
//!   FUNCTION LOAD here         its code was run: the library is loaded
//!   FCALL of another library   its code is run now, as where it was added
//!   the catalog has changed    libraries that left it are forgotten, with the next call or change here
//! ```
//! The upvalues of a library are this interpreter's. While a call of it takes long, calls of other clients of
//! the worker have another one, which goes when that call is over.

use isotherm_reactor::signals;
use isotherm_resp::{Args, Reply};
use isotherm_script::{
    Called, Checkpoint, FunctionInterpreter, Host, Identity, Limits, LoadError, LogLevel, Progress,
    Reference, Registered, Replication,
};
use std::collections::HashMap;
use std::time::{Duration, Instant};

use super::libraries::{Callee, Libraries, LibraryId};
use super::library_head::Refused;
use super::shebang::ScriptFlags;
use crate::process::version::{REDIS_VERSION, VALKEY_VERSION};
use isotherm_runtime::log;
use isotherm_runtime::time::{elapsed, instant};

/// Limit for the time in which a library loads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LoadTime {
    /// Time that Valkey allows a client.
    OfClient,
    /// No limit until the process is to end, for a library from a file or a primary: it was loaded before.
    Unlimited,
}

const CLIENT_TIME_MAX: Duration = Duration::from_millis(500);

pub struct FunctionEngine {
    libraries: &'static Libraries,
    interpreter: Option<FunctionInterpreter>,
    /// The functions of each library, by their number in it.
    loaded: HashMap<LibraryId, Vec<Reference>>,
    /// Generation of the catalog when it was last looked at.
    generation: u64,
    noted_bytes: usize,
    memory_bytes_max: usize,
}

/// Name, description, flags.
type RegisteredFunction = (Vec<u8>, Option<Vec<u8>>, ScriptFlags);

impl FunctionEngine {
    pub fn new(libraries: &'static Libraries) -> FunctionEngine {
        FunctionEngine {
            libraries,
            interpreter: None,
            loaded: HashMap::new(),
            generation: libraries.generation(),
            noted_bytes: 0,
            memory_bytes_max: 0,
        }
    }

    /// Sets the memory limit of the interpreter in bytes, from now on; 0 for no limit.
    pub fn set_memory_limit(&mut self, bytes: usize) {
        self.memory_bytes_max = bytes;
        if let Some(interpreter) = &mut self.interpreter {
            interpreter.set_memory_limit(bytes);
        }
    }

    fn interpreter(&mut self) -> Result<&mut FunctionInterpreter, Refused> {
        if self.interpreter.is_none() {
            let identity = Identity {
                server_name: "valkey",
                redis_version: REDIS_VERSION,
                valkey_version: VALKEY_VERSION,
            };
            let limits = Limits { memory_bytes: self.memory_bytes_max, insecure_api: false };
            let made = FunctionInterpreter::new(&limits, &identity);
            self.interpreter = Some(made.map_err(|_| Refused::new("not enough memory for an interpreter"))?);
        }
        Ok(self.interpreter.as_mut().expect("it was made"))
    }

    /// Runs the code of a library, which is not in the catalog yet.
    pub fn load(
        &mut self,
        id: LibraryId,
        code: &[u8],
        time: LoadTime,
    ) -> Result<Vec<RegisteredFunction>, Refused> {
        let until = (time == LoadTime::OfClient).then(|| (instant(), CLIENT_TIME_MAX));
        let registered = self.interpreter()?.load(code, &mut LoadHost { until });
        self.note_bytes();
        let registered = registered.map_err(|LoadError { text }| Refused(text))?;
        let functions = registered.iter().map(|function| function.reference).collect();
        self.loaded.insert(id, functions);
        let as_known = |Registered { name, description, flags, .. }| {
            // Clients see the description up to a NUL.
            let description = description.map(|text| until_zero(&text).to_vec());
            (name, description, ScriptFlags::of_bits(flags))
        };
        Ok(registered.into_iter().map(as_known).collect())
    }

    /// The library did not get into the catalog, or has left it.
    pub fn forget(&mut self, id: LibraryId) {
        if let (Some(functions), Some(interpreter)) = (self.loaded.remove(&id), &mut self.interpreter) {
            functions.iter().for_each(|function| interpreter.forget(*function));
        }
        self.note_bytes();
    }

    /// Forgets what has left the catalog.
    pub fn follow_catalog(&mut self) {
        let generation = self.libraries.generation();
        if self.generation == generation {
            return;
        }
        self.generation = generation;
        let catalog = self.libraries.catalog();
        let ids = catalog.libraries().map(|library| library.id).collect::<std::collections::HashSet<_>>();
        let gone: Vec<LibraryId> = self.loaded.keys().filter(|id| !ids.contains(id)).copied().collect();
        if gone.len() == self.loaded.len() {
            // Nothing of it is needed: its memory goes too.
            self.loaded.clear();
            self.interpreter = None;
        } else if !gone.is_empty() {
            gone.into_iter().for_each(|id| self.forget(id));
            self.interpreter.iter_mut().for_each(FunctionInterpreter::collect);
        }
        self.note_bytes();
    }

    /// Returns the reference of a function; its library is loaded if it is not loaded yet.
    pub fn reference(&mut self, callee: &Callee) -> Result<Reference, Refused> {
        self.follow_catalog();
        let library = &callee.library;
        if !self.loaded.contains_key(&library.id) {
            self.load(library.id, library.code(), LoadTime::Unlimited)?;
        }
        self.loaded[&library.id].get(callee.at).copied().ok_or_else(|| Refused::new("Function not found"))
    }

    pub fn run(
        &mut self,
        reference: Reference,
        words: Args<'_>,
        key_count: usize,
        host: &mut dyn Host,
        reply: &mut Reply,
    ) -> Progress {
        let interpreter = self.interpreter.as_mut().expect("a reference is one of an interpreter");
        let progress = interpreter.run(reference, words, key_count, host, reply);
        self.note_bytes();
        progress
    }

    /// Resumes the call that is suspended.
    pub fn resume(&mut self, host: &mut dyn Host, reply: &mut Reply) -> Progress {
        let interpreter = self.interpreter.as_mut().expect("a call is suspended");
        let progress = interpreter.resume(host, reply);
        self.note_bytes();
        progress
    }

    /// Accounts for the memory of the interpreter and of the table of loaded libraries.
    fn note_bytes(&mut self) {
        let of_loaded = self.loaded.capacity() * (size_of::<(LibraryId, Vec<Reference>)>() + 1);
        let bytes = of_loaded + self.interpreter.as_ref().map_or(0, FunctionInterpreter::used_bytes);
        self.libraries.note_interpreter(std::mem::replace(&mut self.noted_bytes, bytes), bytes);
    }
}

impl Drop for FunctionEngine {
    fn drop(&mut self) {
        self.libraries.note_interpreter(self.noted_bytes, 0);
    }
}

fn until_zero(text: &[u8]) -> &[u8] {
    text.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// Host of a library while it loads, with the time until which it may load.
struct LoadHost {
    until: Option<(Instant, Duration)>,
}

impl Host for LoadHost {
    /// Unreachable for a library: what it finds has no `call`.
    fn call(&mut self, _words: Args<'_>, reply: &mut Reply) -> Called {
        reply.error("ERR Commands can not be called while a library is loaded");
        Called::Done
    }

    fn set_replication(&mut self, _replication: Replication) {}

    fn log(&mut self, level: LogLevel, text: &[u8]) {
        log_line(level, text);
    }

    fn may_run(&mut self, _words: Args<'_>) -> Option<bool> {
        None
    }

    fn checkpoint(&mut self) -> Checkpoint {
        match self.until.is_some_and(|(begun, time)| elapsed(begun) > time) || signals::has_arrived() {
            true => Checkpoint::Stop,
            false => Checkpoint::GoOn,
        }
    }
}

/// `server.log`.
pub fn log_line(level: LogLevel, text: &[u8]) {
    let text = String::from_utf8_lossy(text);
    match level {
        LogLevel::Debug | LogLevel::Verbose => log::verbose(text),
        LogLevel::Notice => log::notice(text),
        LogLevel::Warning => log::warning(text),
    }
}
