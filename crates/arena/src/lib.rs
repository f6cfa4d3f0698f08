//! Memory for objects of 32 B to 8 KB that can be moved, behind 4-byte handles.
//!
//! General allocators can't give memory back once small objects are scattered over it, because they don't
//! know which pointers refer to an object. Here only the caller's directory knows where an object is, so
//! objects can be moved and RSS follows the live bytes; and because everything lies in one reservation of
//! address space, a handle is 4 B and a hint may look at any address without a lock.
//!
//! ```text
//!   reservation   |c0|c1|c2|c3|c4|c5|c6|c7| ...            chunks of 16 KB, committed from the front
//!   slabs            |A | B   | C         |                1 to 8 chunks, objects of one class and kind
//!   slab A        [owners][object][object] ... [object][tail]
//!   side table    |r0|r1|r2|r3| ...                        32 B per chunk: shape, live, links, room bits
//! ```
//!
//! *What is absent:* the arena does not know what the bytes mean, which references an object has, or what an
//! owner is; it makes no callbacks; it reads no clock. It is shared by several owners (lock stripes). Each of
//! them touches only its own objects, under its own lock; the arena's lock is taken last, for some ten
//! nanoseconds, around the bookkeeping.
//!
//! Bound, asserted by `tests/bound.rs`: at rest after compaction, free room in slabs and tails is at most 1.5
//! MB + 2 % of the live bytes.
//!
//! Reading order: `handle`, `class`, `reserve`, `slab`, `pool`, `heap`, `evacuate`, `trim`, `huge`, `access`,
//! `stats`, `check`.

mod access;
mod check;
mod class;
mod evacuate;
mod handle;
mod heap;
mod huge;
mod lock;
mod pool;
mod reserve;
mod slab;
mod stats;
mod trim;

pub use access::{Hint, prefetch_value};
pub use class::{BLOB_BYTES_MAX, Kind, OBJECT_BYTES_MAX, class_bytes};
pub use evacuate::Victim;
pub use handle::{Handle, UNIT_BYTES};
pub use reserve::ReserveError;
pub use stats::{ArenaStats, KindStats};

use class::{CHUNK_BYTES, CLASSES, class_of};
use heap::Heap;
use huge::Huge;
use lock::{Guard, Lock};
use reserve::Region;
use slab::Place;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Memory is opened by this much at a time: one mprotect per 64 chunks.
#[cfg(not(miri))]
const COMMIT_STEP_BYTES: usize = 1 << 20;
#[cfg(miri)]
const COMMIT_STEP_BYTES: usize = 128 << 10;

/// 2^32 handles of 16 B: 64 GB.
pub const RESERVE_BYTES_MAX: u64 = 1 << 36;
/// A refused reservation is halved down to this, never below.
const RESERVE_BYTES_MIN: u64 = 64 << 20;

/// A full arena is one until a 32nd of what lived in it has left: eviction comes back for more if that was
/// too little.
const RELIEF_SHARE: u64 = 32;

/// Under Miri the reservation is real memory.
#[cfg(miri)]
const RESERVE_BYTES_MIRI: u64 = 4 << 20;

const _: () = assert!(RESERVE_BYTES_MAX == UNIT_BYTES as u64 * (1 << 32));
const _: () = assert!(COMMIT_STEP_BYTES.is_multiple_of(CHUNK_BYTES * pool::BLOCK_CHUNKS_MAX as usize));

#[derive(Copy, Clone, Debug)]
pub struct ArenaConfig {
    /// Address space to reserve; rounded up to the commit step, capped at 64 GB.
    pub reserve_bytes: u64,
}

/// An object that was just allocated.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Block {
    pub handle: Handle,
    /// The bytes of its class: at least what was asked for. Their contents are arbitrary.
    pub bytes: usize,
}

/// The reservation is used up, or the kernel refuses to commit more.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Exhausted;

impl std::fmt::Display for Exhausted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the arena's memory is exhausted")
    }
}

impl std::error::Error for Exhausted {}

pub struct Arena {
    memory: Region,
    /// Class-rounded bytes of live objects: written under the lock, read anywhere.
    live_bytes: AtomicU64,
    /// Once it was full: what may live in it until it no longer counts as full. 0: it was not.
    relief_bytes: AtomicU64,
    halvings: u32,
    heap: Lock<Heap>,
    /// Held while the kernel works, so no lock that a command waits for.
    huge: Mutex<Huge>,
}

impl Arena {
    /// Reserves address space. If the kernel refuses (`ulimit -v`), half of it is tried, down to 64 MB.
    pub fn new(config: ArenaConfig) -> Result<Arena, ReserveError> {
        let bytes = config.reserve_bytes.clamp(1, RESERVE_BYTES_MAX);
        #[cfg(miri)]
        let bytes = bytes.min(RESERVE_BYTES_MIRI);
        let mut bytes = bytes.next_multiple_of(COMMIT_STEP_BYTES as u64);
        let mut halvings = 0;
        loop {
            match Arena::reserve(bytes as usize) {
                Ok((memory, heap)) => {
                    let heap = Lock::new(heap);
                    let (live_bytes, relief_bytes) = (AtomicU64::new(0), AtomicU64::new(0));
                    let huge = Mutex::default();
                    return Ok(Arena { memory, live_bytes, relief_bytes, halvings, heap, huge });
                }
                Err(error) if bytes / 2 < RESERVE_BYTES_MIN => return Err(error),
                Err(_) => bytes = (bytes / 2).next_multiple_of(COMMIT_STEP_BYTES as u64),
            }
            halvings += 1;
        }
    }

    fn reserve(bytes: usize) -> Result<(Region, Heap), ReserveError> {
        Ok((Region::reserve(bytes, COMMIT_STEP_BYTES)?, Heap::new(bytes)?))
    }

    /// Address space for objects. Smaller than asked for by a factor of `2^halvings()`.
    pub fn reservation_bytes(&self) -> u64 {
        self.memory.reserved() as u64
    }

    /// The addresses of the reservation and of the side table: what of them is there, the kernel knows.
    pub fn mappings(&self) -> [Range<usize>; 2] {
        [self.memory.addresses(), self.lock().table_addresses()]
    }

    /// Returns how often the reservation was refused and halved.
    pub fn halvings(&self) -> u32 {
        self.halvings
    }

    /// An object of at least `bytes` bytes with arbitrary contents. `owner` is kept with it for compaction.
    pub fn allocate(&self, kind: Kind, bytes: usize, owner: u16) -> Result<Block, Exhausted> {
        let class = class_of(kind, bytes);
        let raw = {
            let mut heap = self.lock();
            let raw = heap.allocate(&self.memory, class, owner)?;
            self.count(CLASSES[class].bytes as i64);
            raw
        };
        Ok(block(raw, class))
    }

    /// Frees an object. A handle that names none is a bug of the caller, found here.
    pub fn release(&self, handle: Handle) {
        let mut heap = self.lock();
        let shape = heap.release(&self.memory, handle.raw());
        self.count(-(shape.bytes as i64));
    }

    /// Moves an object to the class of `new_bytes`, with its first `used_bytes` bytes and its kind. The
    /// handle stays the same if the class does, unless the object lies in a slab that is being emptied. After
    /// an error the object is where it was. Within a class there is no error. The owner is the one given at
    /// allocation: the caller that moves an object knows it, and reading it from the slab's front would wait
    /// for memory.
    pub fn reallocate(
        &self,
        handle: Handle,
        owner: u16,
        used_bytes: usize,
        new_bytes: usize,
    ) -> Result<Block, Exhausted> {
        let mut heap = self.lock();
        let place = Place::of(&heap.table, handle.raw());
        heap.assert_live(&self.memory, place, handle.raw());
        let old = place.shape;
        let class = class_of(old.kind, new_bytes);
        let new = &CLASSES[class];
        assert!(used_bytes <= old.bytes.min(new.bytes) as usize, "more is in use than the object can hold");
        if class == place.class() && heap.may_stay(place) {
            return Ok(block(handle.raw(), class));
        }
        debug_assert_eq!(place.owner(&self.memory), owner, "an object is moved by its owner");
        let raw = heap.allocate(&self.memory, class, owner)?;
        let target = block(raw, class);
        self.copy(handle, target.handle, used_bytes);
        heap.release_at(&self.memory, place);
        self.count(new.bytes as i64 - old.bytes as i64);
        Ok(target)
    }

    /// Lists up to `objects_max` live objects of the slab under evacuation, after choosing one if there is
    /// none: the emptiest of the next class that can do with fewer slabs. False: nothing would be gained by
    /// moving anything.
    ///
    /// The caller moves each object under the lock of its owner, after asking `is_still`, by `reallocate`
    /// with its own size or by allocate and release; it may skip any. Repeated calls go round the slab.
    pub fn victims(&self, out: &mut Vec<Victim>, objects_max: usize) -> bool {
        self.lock().victims(&self.memory, out, objects_max)
    }

    /// Puts a slab that could not be emptied back into service.
    pub fn finish_evacuation(&self) {
        self.lock().finish_evacuation();
    }

    /// Returns whether this is still an object of this owner. The answer lasts only under the owner's lock.
    pub fn is_live(&self, handle: Handle, owner: u16) -> bool {
        let heap = self.lock();
        heap.find_live(&self.memory, handle.raw()).is_some_and(|place| place.owner(&self.memory) == owner)
    }

    /// Returns whether the victim's place still holds an object of its owner and kind: since it was listed
    /// its slab may have been emptied and made anew, of another kind. The answer lasts only under the owner's
    /// lock.
    pub fn is_still(&self, victim: &Victim) -> bool {
        let heap = self.lock();
        let place = heap.find_live(&self.memory, victim.handle.raw());
        place.is_some_and(|at| at.owner(&self.memory) == victim.owner && at.shape.kind == victim.kind)
    }

    /// The owner given at allocation.
    pub fn owner(&self, handle: Handle) -> u16 {
        let heap = self.lock();
        let place = heap.find_live(&self.memory, handle.raw());
        place.expect("the handle's object is not allocated").owner(&self.memory)
    }

    /// Gives free slabs back to the kernel, at most 1 MB in a call, but keeps `keep_slabs` chunks of 16 KB
    /// ready. Returns the bytes given back; 0 when there is nothing left to give.
    pub fn trim(&self, keep_slabs: usize) -> usize {
        let mut leaving = self.lock().trim_begin(keep_slabs);
        if leaving.is_empty() {
            return 0;
        }
        let bytes = trim::discard(&self.memory, &mut leaving, &mut self.huge());
        self.lock().trim_end(&leaving);
        bytes
    }

    /// Puts full ranges on huge pages, some at a time. How many: as long as there are any, more may follow.
    pub fn collapse(&self) -> usize {
        self.huge().step(&self.memory)
    }

    pub fn stats(&self) -> ArenaStats {
        self.lock().stats(&self.memory)
    }

    /// Class-rounded bytes of all live objects, without the lock.
    #[inline]
    pub fn live_bytes(&self) -> u64 {
        self.live_bytes.load(Relaxed)
    }

    /// Returns whether the arena was refused further memory, and hardly anything was freed since. Freed
    /// objects give room to objects of their own class at once, and to others once compaction has emptied
    /// slabs.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.memory.was_refused() && !self.is_relieved()
    }

    #[cold]
    fn is_relieved(&self) -> bool {
        let live = self.live_bytes();
        let relief = match self.relief_bytes.load(Relaxed) {
            0 => live - live / RELIEF_SHARE,
            known => known,
        };
        let is_relieved = live == 0 || live <= relief;
        if is_relieved {
            self.memory.forget_refusal();
        }
        self.relief_bytes.store(if is_relieved { 0 } else { relief }, Relaxed);
        is_relieved
    }

    /// Asserts everything that the files of this crate call an invariant.
    pub fn check_invariants(&self) {
        let heap = self.lock();
        heap.check_invariants(&self.memory, self.live_bytes());
    }

    fn huge(&self) -> MutexGuard<'_, Huge> {
        self.huge.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[inline]
    fn lock(&self) -> Guard<'_, Heap> {
        self.heap.lock()
    }

    /// Called under the lock, so that a plain load and store lose nothing.
    fn count(&self, bytes: i64) {
        self.live_bytes.store(self.live_bytes.load(Relaxed).wrapping_add_signed(bytes), Relaxed);
    }
}

fn block(raw: u32, class: usize) -> Block {
    let handle = Handle::from_raw(raw).expect("no object lies in chunk 0");
    Block { handle, bytes: CLASSES[class].bytes as usize }
}
