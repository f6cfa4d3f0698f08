//! The scripts of the node: their texts by SHA-1, and the SHA-1 of a text that EVAL brings again.
//!
//! **Invariants.** At most `EVAL_SCRIPTS_MAX` scripts have an age: those that only EVAL has brought; the one
//! used longest ago goes first. Scripts that SCRIPT LOAD has named stay until SCRIPT FLUSH. `by_age` has
//! exactly the scripts with an age.

use isotherm_allocator::class_bytes;
use isotherm_script::Sha;
use isotherm_stdx::sha1::{hex, sha1};
use isotherm_stdx::steps;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::bound::{self, NeedsNothing};
use super::shebang::{self, ScriptFlags};
use crate::request::registry::Commands;

/// Most texts of EVAL that are kept, as many as in Valkey.
pub const EVAL_SCRIPTS_MAX: usize = 500;

#[derive(Debug)]
pub struct Script {
    pub sha: Sha,
    pub body: Arc<[u8]>,
    pub flags: ScriptFlags,
    pub code_from: usize,
    /// True if the script looks at no key but those that it is called with (`bound`).
    pub is_bound: bool,
}

struct Entry {
    script: Arc<Script>,
    age: Option<u64>,
}

#[derive(Default)]
struct Cache {
    by_sha: HashMap<Sha, Entry>,
    by_text: HashMap<Arc<[u8]>, Sha>,
    by_age: BTreeMap<u64, Sha>,
    next_age: u64,
    body_bytes: usize,
}

#[derive(Default)]
pub struct Scripts {
    cache: Mutex<Cache>,
    generation: AtomicU64,
    evicted: AtomicU64,
    interpreter_bytes: AtomicU64,
}

impl Scripts {
    fn lock(&self) -> MutexGuard<'_, Cache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The script with this text, if EVAL or SCRIPT LOAD has brought it.
    pub fn find_text(&self, body: &[u8]) -> Option<Arc<Script>> {
        let mut cache = self.lock();
        let sha = *cache.by_text.get(body)?;
        cache.touch(&sha)
    }

    pub fn find(&self, sha: &[u8]) -> Option<Arc<Script>> {
        let sha = sha_of(sha)?;
        self.lock().touch(&sha)
    }

    /// Without counting as a use.
    pub fn look_at(&self, sha: &[u8]) -> Option<Arc<Script>> {
        let sha = sha_of(sha)?;
        self.lock().by_sha.get(&sha).map(|entry| Arc::clone(&entry.script))
    }

    pub fn has(&self, sha: &[u8]) -> bool {
        steps::note(1);
        sha_of(sha).is_some_and(|sha| self.lock().by_sha.contains_key(&sha))
    }

    /// Keeps a known script for SCRIPT LOAD: it is not evicted any more. Returns whether it is known.
    pub fn keep(&self, sha: &Sha) -> bool {
        let mut cache = self.lock();
        let Some(entry) = cache.by_sha.get_mut(sha) else { return false };
        if let Some(age) = entry.age.take() {
            cache.by_age.remove(&age);
        }
        true
    }

    /// `is_kept`: it came with SCRIPT LOAD.
    pub fn add(&self, script: &Arc<Script>, is_kept: bool) {
        let mut cache = self.lock();
        if cache.by_sha.contains_key(&script.sha) {
            return;
        }
        while !is_kept && cache.by_age.len() >= EVAL_SCRIPTS_MAX {
            let (_, oldest) = cache.by_age.pop_first().expect("there are so many");
            cache.remove(&oldest);
            self.evicted.fetch_add(1, Relaxed);
        }
        cache.body_bytes += class_bytes(script.body.len() + 2 * size_of::<usize>());
        cache.by_text.insert(Arc::clone(&script.body), script.sha);
        cache.by_sha.insert(script.sha, Entry { script: Arc::clone(script), age: None });
        if !is_kept {
            let age = cache.take_age();
            cache.by_age.insert(age, script.sha);
            cache.by_sha.get_mut(&script.sha).expect("it was added").age = Some(age);
        }
    }

    /// Forgets all: interpreters of an older generation are made anew.
    pub fn flush(&self) {
        let old = std::mem::take(&mut *self.lock());
        self.generation.fetch_add(1, Relaxed);
        drop(old);
    }

    pub fn generation(&self) -> u64 {
        self.generation.load(Relaxed)
    }

    // ---- memory accounting ----

    pub fn count(&self) -> usize {
        self.lock().by_sha.len()
    }

    pub fn evicted(&self) -> u64 {
        self.evicted.load(Relaxed)
    }

    /// CONFIG RESETSTAT.
    pub fn reset_stats(&self) {
        self.evicted.store(0, Relaxed);
    }

    /// Texts and tables.
    pub fn bytes(&self) -> u64 {
        let cache = self.lock();
        let by_sha = cache.by_sha.capacity() * (size_of::<(Sha, Entry)>() + 1);
        let by_text = cache.by_text.capacity() * (size_of::<(Arc<[u8]>, Sha)>() + 1);
        let scripts = cache.by_sha.len() * class_bytes(size_of::<Script>() + 2 * size_of::<usize>());
        (by_sha + by_text + scripts + cache.by_age.len() * size_of::<(u64, Sha)>() + cache.body_bytes) as u64
    }

    pub fn interpreter_bytes(&self) -> u64 {
        self.interpreter_bytes.load(Relaxed)
    }

    /// An interpreter has grown or shrunk.
    pub fn note_interpreter(&self, before: usize, after: usize) {
        self.interpreter_bytes.fetch_add((after as u64).wrapping_sub(before as u64), Relaxed);
    }
}

impl Cache {
    fn take_age(&mut self) -> u64 {
        self.next_age += 1;
        self.next_age
    }

    /// Returns a script that is used. If it may be evicted, it is now the youngest of those.
    fn touch(&mut self, sha: &Sha) -> Option<Arc<Script>> {
        let age = self.take_age();
        let entry = self.by_sha.get_mut(sha)?;
        if let Some(before) = entry.age.replace(age) {
            self.by_age.remove(&before);
            self.by_age.insert(age, *sha);
        } else {
            entry.age = None;
        }
        Some(Arc::clone(&entry.script))
    }

    fn remove(&mut self, sha: &Sha) {
        if let Some(entry) = self.by_sha.remove(sha) {
            self.by_text.remove(&entry.script.body);
            self.body_bytes -= class_bytes(entry.script.body.len() + 2 * size_of::<usize>());
        }
    }
}

impl Script {
    /// The error is the text of the reply.
    pub fn new(
        body: &[u8],
        commands: &Commands,
        needs_nothing: NeedsNothing,
    ) -> Result<Arc<Script>, Vec<u8>> {
        let shebang = shebang::read(body)?;
        let (sha, code_from) = (hash(body), shebang.code_from);
        let is_bound = bound::is_bound(&body[code_from..], commands, needs_nothing);
        Ok(Arc::new(Script { sha, body: body.into(), flags: shebang.flags, code_from, is_bound }))
    }

    /// Returns whether `word` is the text of the script, or its SHA-1.
    pub fn is_named_by(&self, word: &[u8]) -> bool {
        word == &*self.body || word.eq_ignore_ascii_case(&self.sha)
    }

    pub fn code(&self) -> &[u8] {
        &self.body[self.code_from..]
    }
}

pub fn hash(body: &[u8]) -> Sha {
    let digits = hex(&sha1(body));
    let bytes: &[u8] = digits.as_ref();
    bytes.try_into().expect("20 bytes are 40 digits")
}

fn sha_of(word: &[u8]) -> Option<Sha> {
    let mut sha: Sha = word.try_into().ok()?;
    sha.make_ascii_lowercase();
    Some(sha)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_text_of_eval_goes_and_a_loaded_one_stays() {
        let scripts = Scripts::default();
        let commands = Commands::build::<()>(&[]);
        let script = |at: usize| {
            Script::new(format!("return {at}").as_bytes(), &commands, |_| true).expect("no first line")
        };
        let loaded = script(10_000);
        scripts.add(&loaded, true);
        (0..EVAL_SCRIPTS_MAX).for_each(|at| scripts.add(&script(at), false));
        assert!(scripts.find_text(b"return 0").is_some());
        scripts.add(&script(EVAL_SCRIPTS_MAX), false);
        assert!(scripts.has(&script(0).sha), "it was used");
        assert!(!scripts.has(&script(1).sha));
        assert!(scripts.has(&loaded.sha));
        assert_eq!((scripts.count(), scripts.evicted()), (EVAL_SCRIPTS_MAX + 1, 1));
        assert!(scripts.keep(&script(2).sha));
        (1000..1000 + EVAL_SCRIPTS_MAX).for_each(|at| scripts.add(&script(at), false));
        assert!(scripts.has(&script(2).sha) && !scripts.has(&script(3).sha));
        let generation = scripts.generation();
        scripts.flush();
        assert_eq!((scripts.count(), scripts.generation()), (0, generation + 1));
    }
}
