//! The configuration: what the process was started with, and what CONFIG SET changed since.
//!
//! ```text
//! table   one declaration per parameter: name, alias, type, range, default, what it does
//! value   argument -> value -> shown text, by type        check, special   rules and syntaxes of single parameters
//! file    configuration file and command line             set              CONFIG GET and CONFIG SET
//! rewrite the file again (CONFIG REWRITE)                 docs             docs/config.md and isotherm.conf
//! ```
//! Every number, flag and choice is one atomic at a place that is known at compile time, so a worker reads
//! `maxmemory` for the price of a load. Texts are protected by a lock and handed out shared. Code that
//! derives something from values (limits of the parser) keeps it until `generation` moves.
//!
//! Only one thread changes values at a time (`set` holds a lock); readers may see a CONFIG SET of several
//! parameters half done, as they would in any order of events.

mod check;
pub mod params;
mod special;
mod table;
mod value;

pub mod file;
pub mod rewrite;
mod set;
mod swap;
mod values;

#[cfg(test)]
mod docs;

pub use params::{Apply, Id, Reason};
pub use special::{OUTPUT_CLASSES, OutputLimit, output_limits};
pub use swap::FreezeRule;
pub use table::{PARAMS, id};
pub use values::Defrag;

use params::{Kind, Param, Value};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use isotherm_runtime::time::{elapsed, instant};

/// The right to change values. To apply them takes partitions: a thread that holds some does not wait for
/// this right, and no worker does.
pub struct Writing<'c> {
    config: &'c Config,
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        *self.config.writer_since.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.config.is_free.notify_one();
    }
}

/// The current values.
pub struct Config {
    /// Numbers by `Id`; 0 where the parameter is a text.
    numbers: Box<[AtomicI64]>,
    /// Texts by `Id`; empty where the parameter is a number.
    texts: RwLock<Box<[Arc<[u8]>]>>,
    /// Moves with every change.
    generation: AtomicU64,
    /// Share of the machine's memory that stands in for `maxmemory` while that is 0; 0 without `swap-mode`.
    machine_share_bytes: AtomicU64,
    /// Moment at which a thread took the right to change values, while it has that.
    writer_since: Mutex<Option<Instant>>,
    /// Notified when that thread gives it up.
    is_free: Condvar,
    /// A transaction waits for that.
    is_awaited: AtomicBool,
    /// Held by the thread that writes the file of CONFIG REWRITE, which takes nothing else.
    file: Mutex<()>,
}

impl Default for Config {
    fn default() -> Config {
        let config = Config {
            numbers: PARAMS.iter().map(|_| AtomicI64::new(0)).collect(),
            texts: RwLock::new(PARAMS.iter().map(|_| Arc::from(&b""[..])).collect()),
            generation: AtomicU64::new(0),
            machine_share_bytes: AtomicU64::new(0),
            writer_since: Mutex::new(None),
            is_free: Condvar::new(),
            is_awaited: AtomicBool::new(false),
            file: Mutex::new(()),
        };
        for (at, param) in PARAMS.iter().enumerate() {
            config.store(Id(at as u16), param.default_value());
        }
        config
    }
}

impl Config {
    /// Waits for another thread's change, for `at_most`: an `Apply` may wait for a disk. `None`: it is still
    /// under way.
    pub fn begin_writing(&self, at_most: Duration) -> Option<Writing<'_>> {
        let since = self.writer_since.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.is_free.wait_timeout_while(since, at_most, |since| since.is_some());
        let mut since = waited.unwrap_or_else(PoisonError::into_inner).0;
        if since.is_some() {
            return None;
        }
        *since = Some(instant());
        Some(Writing { config: self })
    }

    /// A transaction waits for the right to change values.
    pub fn await_writing(&self) {
        self.is_awaited.store(true, Ordering::SeqCst);
    }

    /// Returns whether one has begun to wait since the last call.
    pub fn take_awaited(&self) -> bool {
        self.is_awaited.load(Ordering::Relaxed) && self.is_awaited.swap(false, Ordering::SeqCst)
    }

    /// Returns whether a thread has had the right for longer than `at_least`.
    pub fn is_written_since(&self, at_least: Duration) -> bool {
        let since = self.writer_since.lock().unwrap_or_else(PoisonError::into_inner);
        since.is_some_and(|since| elapsed(since) > at_least)
    }

    #[inline]
    pub fn number(&self, id: Id) -> i64 {
        self.numbers[id.index()].load(Ordering::Relaxed)
    }

    #[inline]
    pub fn flag(&self, id: Id) -> bool {
        self.number(id) != 0
    }

    pub fn text(&self, id: Id) -> Arc<[u8]> {
        let texts = self.texts.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&texts[id.index()])
    }

    pub fn is_default(&self, id: Id) -> bool {
        self.value(id) == PARAMS[id.index()].default_value()
    }

    /// Moves with every change.
    #[inline]
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Something other than the parameters has changed that workers keep copies of.
    pub fn touch(&self) {
        self.generation.fetch_add(1, Ordering::Release);
    }

    /// The primary that is followed, which REPLICAOF changes: "host port", or nothing.
    pub fn set_replica_of(&self, shown: Vec<u8>) {
        const REPLICA_OF: Id = table::id("replicaof");
        self.store(REPLICA_OF, Value::Text(shown));
    }

    /// Returns the value as CONFIG GET shows it.
    pub fn shown(&self, id: Id) -> Vec<u8> {
        value::show(&PARAMS[id.index()], &self.value(id))
    }

    fn value(&self, id: Id) -> Value {
        if is_text(&PARAMS[id.index()]) {
            Value::Text(self.text(id).to_vec())
        } else {
            Value::Number(self.number(id))
        }
    }

    fn store(&self, id: Id, value: Value) {
        match value {
            Value::Number(number) => self.numbers[id.index()].store(number, Ordering::Relaxed),
            Value::Text(text) => {
                self.texts.write().unwrap_or_else(PoisonError::into_inner)[id.index()] = text.into();
            }
        }
        self.touch();
    }
}

/// Returns whether the value is a secret.
pub fn is_sensitive(id: Id) -> bool {
    PARAMS[id.index()].flags.sensitive
}

fn is_text(param: &Param) -> bool {
    matches!(param.kind, Kind::Text { .. } | Kind::Special(_))
}

/// A parameter by its name or its alias, in any case, and that name as it is declared.
pub fn find(name: &[u8]) -> Option<(Id, &'static str)> {
    let named = |declared: &'static str| declared.as_bytes().eq_ignore_ascii_case(name).then_some(declared);
    PARAMS.iter().enumerate().find_map(|(at, param)| {
        let shown = named(param.name).or_else(|| param.alias.and_then(named))?;
        Some((Id(at as u16), shown))
    })
}
