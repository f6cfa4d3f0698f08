//! The libraries of functions of the node.
//!
//! ```text
//!   FUNCTION LOAD, RESTORE \
//!   RDB file, AOF           > code --> a worker's or loader's interpreter runs it --> Library --> Catalog
//!   the stream of a primary /                                                                      |
//!                                                              FCALL: name -> library, number of the function
//!                                                              RDB file, base of an AOF, DUMP: its text, byte for byte
//! ```
//! A library is known by its id, which no other ever gets. Interpreters run its code when one of its
//! functions is first called there; a library that is replaced, deleted or flushed leaves the catalog, whose
//! generation changes: they then forget it.
//!
//! **Invariants.** No two libraries have the same name, and no two of them functions whose names differ by
//! case alone. `functions` has exactly those of `by_name`, in lower case; `bytes` is what these take. A
//! change is made as a whole or not at all: nothing runs while the lock is held, and while one change is
//! prepared no other is (the caller holds a partition, which one at a time can, or nothing else runs yet).

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::function_engine::{FunctionEngine, LoadTime};
use super::library_head::{self, Refused, is_name};
use super::shebang::ScriptFlags;

/// All of a library's text.
pub type Code = Arc<[u8]>;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct LibraryId(pub u64);

#[derive(Debug)]
pub struct Function {
    pub name: Vec<u8>,
    pub description: Option<Vec<u8>>,
    pub flags: ScriptFlags,
}

#[derive(Debug)]
pub struct Library {
    pub id: LibraryId,
    pub name: Vec<u8>,
    pub text: Code,
    /// Functions in the order in which they were registered.
    pub functions: Vec<Function>,
}

impl Library {
    /// Returns the code that is run: the text without its first line.
    pub fn code(&self) -> &[u8] {
        library_head::read(&self.text).expect("it was read when the library was made").code
    }

    /// Returns the bytes that the allocator gives for the library and for its entries in the catalog.
    fn bytes(&self) -> u64 {
        /// The two counts of an `Arc`.
        const COUNTS: usize = 2 * size_of::<usize>();
        /// A name, and what it leads to.
        const PLACE: usize = size_of::<(Vec<u8>, (Arc<Library>, usize))>() + 1;
        let class = isotherm_allocator::class_bytes;
        let of_function = |function: &Function| {
            let description = function.description.as_ref().map_or(0, |text| class(text.len()));
            2 * class(function.name.len()) + description + PLACE
        };
        let functions = class(self.functions.len() * size_of::<Function>())
            + self.functions.iter().map(of_function).sum::<usize>();
        let own = class(COUNTS + size_of::<Library>()) + 2 * class(self.name.len()) + PLACE;
        (own + class(self.text.len() + COUNTS) + functions) as u64
    }
}

/// A function, as it is called.
#[derive(Clone, Debug)]
pub struct Callee {
    pub library: Arc<Library>,
    /// Number of the function in the library.
    pub at: usize,
}

impl Callee {
    pub fn function(&self) -> &Function {
        &self.library.functions[self.at]
    }
}

#[derive(Clone, Default)]
pub struct Catalog {
    by_name: BTreeMap<Vec<u8>, Arc<Library>>,
    /// Functions by name in lower case. If names of one library differ by case alone, the first one counts.
    functions: HashMap<Vec<u8>, Callee>,
    bytes: u64,
}

impl Catalog {
    pub fn libraries(&self) -> impl ExactSizeIterator<Item = &Arc<Library>> {
        self.by_name.values()
    }

    fn has(&self, id: LibraryId, name: &[u8]) -> bool {
        self.by_name.get(name).is_some_and(|library| library.id == id)
    }

    /// Adds a library. It replaces one of the same name; other libraries must not have its functions.
    fn insert(&mut self, library: &Arc<Library>) -> Result<(), Refused> {
        let is_taken = |function: &&Function| {
            let callee = self.functions.get(&function.name.to_ascii_lowercase());
            callee.is_some_and(|callee| callee.library.name != library.name)
        };
        if let Some(function) = library.functions.iter().find(is_taken) {
            return Err(Refused::about("Function ", &function.name, " already exists"));
        }
        self.remove(&library.name);
        for (at, function) in library.functions.iter().enumerate() {
            let callee = Callee { library: Arc::clone(library), at };
            self.functions.entry(function.name.to_ascii_lowercase()).or_insert(callee);
        }
        self.bytes += library.bytes();
        self.by_name.insert(library.name.clone(), Arc::clone(library));
        Ok(())
    }

    fn remove(&mut self, name: &[u8]) -> bool {
        let Some(library) = self.by_name.remove(name) else { return false };
        for function in &library.functions {
            self.functions.remove(&function.name.to_ascii_lowercase());
        }
        self.bytes -= library.bytes();
        true
    }

    fn check_invariants(&self) {
        let libraries = self.by_name.values();
        assert_eq!(self.bytes, libraries.clone().map(|library| library.bytes()).sum::<u64>());
        let functions = libraries.flat_map(|library| &library.functions);
        assert!(
            functions
                .clone()
                .all(|function| { self.functions.contains_key(&function.name.to_ascii_lowercase()) })
        );
        assert!(self.functions.len() <= functions.count());
        for (name, callee) in &self.functions {
            assert!(name.eq_ignore_ascii_case(&callee.function().name));
            assert!(self.has(callee.library.id, &callee.library.name));
        }
    }
}

/// Rule for libraries that exist when others are restored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RestorePolicy {
    Flush,
    /// Refuse the restore if a library of the same name exists.
    Append,
    Replace,
}

#[derive(Default)]
pub struct Libraries {
    catalog: Mutex<Arc<Catalog>>,
    generation: AtomicU64,
    last_id: AtomicU64,
    interpreter_bytes: AtomicU64,
}

impl Libraries {
    fn lock(&self) -> MutexGuard<'_, Arc<Catalog>> {
        self.catalog.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the catalog as it is now. The returned one does not change.
    pub fn catalog(&self) -> Arc<Catalog> {
        Arc::clone(&self.lock())
    }

    /// Upper and lower case are the same here.
    pub fn find(&self, function: &[u8]) -> Option<Callee> {
        self.lock().functions.get(&function.to_ascii_lowercase()).cloned()
    }

    pub fn flags_of(&self, function: &[u8]) -> Option<ScriptFlags> {
        let name = function.to_ascii_lowercase();
        self.lock().functions.get(&name).map(|callee| callee.function().flags)
    }

    /// Runs the code of a library and keeps it. `replaces`: in the place of one of the same name.
    pub fn add(
        &self,
        text: &[u8],
        replaces: bool,
        time: LoadTime,
        engine: &mut FunctionEngine,
    ) -> Result<Arc<Library>, Refused> {
        let head = library_head::read(text)?;
        if !replaces && self.lock().by_name.contains_key(&head.name) {
            return Err(Refused::about("Library '", &head.name, "' already exists"));
        }
        let library = self.load(text, time, engine)?;
        let added = self.change(|catalog| Arc::make_mut(catalog).insert(&library));
        if added.is_err() {
            engine.forget(library.id);
        }
        added.map(|()| library)
    }

    /// Runs the code; the library is in no catalog yet.
    fn load(
        &self,
        text: &[u8],
        time: LoadTime,
        engine: &mut FunctionEngine,
    ) -> Result<Arc<Library>, Refused> {
        let head = library_head::read(text)?;
        let id = LibraryId(self.last_id.fetch_add(1, Relaxed) + 1);
        let registered = engine.load(id, head.code, time)?;
        let functions: Vec<Function> = registered
            .into_iter()
            .map(|(name, description, flags)| Function { name, description, flags })
            .collect();
        if let Err(refused) = check_functions(&functions) {
            engine.forget(id);
            return Err(refused);
        }
        Ok(Arc::new(Library { id, name: head.name, text: text.into(), functions }))
    }

    /// All of these, or none. An error among `codes` is one of what has brought them.
    pub fn restore<C: AsRef<[u8]>>(
        &self,
        codes: impl Iterator<Item = Result<C, Refused>>,
        policy: RestorePolicy,
        time: LoadTime,
        engine: &mut FunctionEngine,
    ) -> Result<(), Refused> {
        let mut restored = Catalog::default();
        let result = self
            .load_all(codes, &mut restored, time, engine)
            .and_then(|()| self.change(|catalog| join(catalog, &restored, policy)));
        if result.is_err() {
            restored.libraries().for_each(|library| engine.forget(library.id));
        }
        result
    }

    fn load_all<C: AsRef<[u8]>>(
        &self,
        codes: impl Iterator<Item = Result<C, Refused>>,
        restored: &mut Catalog,
        time: LoadTime,
        engine: &mut FunctionEngine,
    ) -> Result<(), Refused> {
        for code in codes {
            let code = code?;
            let head = library_head::read(code.as_ref())?;
            if restored.by_name.contains_key(&head.name) {
                return Err(Refused::about("Library '", &head.name, "' already exists"));
            }
            let library = self.load(code.as_ref(), time, engine)?;
            restored.insert(&library).inspect_err(|_| engine.forget(library.id))?;
        }
        Ok(())
    }

    /// Removes a library. Returns whether there was one.
    pub fn remove(&self, name: &[u8]) -> bool {
        self.lock().by_name.contains_key(name)
            && self.change(|catalog| Ok(Arc::make_mut(catalog).remove(name))) == Ok(true)
    }

    pub fn clear(&self) {
        let old = std::mem::take(&mut *self.lock());
        self.generation.fetch_add(1, Relaxed);
        drop(old);
    }

    fn change<T>(&self, change: impl FnOnce(&mut Arc<Catalog>) -> Result<T, Refused>) -> Result<T, Refused> {
        let changed = change(&mut self.lock());
        self.generation.fetch_add(1, Relaxed);
        changed
    }

    /// Counts the changes of the catalog.
    pub fn generation(&self) -> u64 {
        self.generation.load(Relaxed)
    }

    // ---- memory accounting ----

    pub fn count(&self) -> usize {
        self.lock().by_name.len()
    }

    pub fn function_count(&self) -> usize {
        self.lock().functions.len()
    }

    /// Texts, names and tables.
    pub fn bytes(&self) -> u64 {
        self.lock().bytes
    }

    pub fn interpreter_bytes(&self) -> u64 {
        self.interpreter_bytes.load(Relaxed)
    }

    /// An interpreter has grown or shrunk.
    pub fn note_interpreter(&self, before: usize, after: usize) {
        self.interpreter_bytes.fetch_add((after as u64).wrapping_sub(before as u64), Relaxed);
    }

    pub fn check_invariants(&self) {
        self.catalog().check_invariants();
    }
}

/// Checks the functions that a library has registered, in Valkey's order.
fn check_functions(functions: &[Function]) -> Result<(), Refused> {
    let mut names = std::collections::HashSet::new();
    for function in functions {
        if !is_name(&function.name) {
            return Err(Refused::new(
                "Function names can only contain letters, numbers, or underscores(_) and must be at least one character long",
            ));
        }
        if !names.insert(&function.name) {
            return Err(Refused::new("Function already exists in the library"));
        }
    }
    match functions.is_empty() {
        true => Err(Refused::new("No functions registered")),
        false => Ok(()),
    }
}

/// Puts the restored libraries into the catalog, or leaves it as it is.
fn join(catalog: &mut Arc<Catalog>, restored: &Catalog, policy: RestorePolicy) -> Result<(), Refused> {
    let mut joined = match policy {
        RestorePolicy::Flush => Catalog::default(),
        RestorePolicy::Append | RestorePolicy::Replace => Catalog::clone(catalog),
    };
    for name in restored.by_name.keys() {
        // All of them first: a function may be in one that is replaced.
        if joined.remove(name) && policy == RestorePolicy::Append {
            return Err(Refused::about("Library ", name, " already exists"));
        }
    }
    restored.libraries().try_for_each(|library| joined.insert(library))?;
    *catalog = Arc::new(joined);
    Ok(())
}
