//! Bodies above 4 KB: vectors of the global allocator, known by number.
//!
//! The numbers live in chunks that never move, so the thousandth million of large values costs no copy of a table. A
//! body is shared with a snapshot that has yet to write it: a change then gets a copy first.
//!
//! Cost beside the body: 8 B here, 48 B of shared vector (counts 16, vector 24, account 8), 8 B of reference in the page.

use crate::layout::kind::Full;
use crate::layout::pile::Pile;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

const CHUNK: usize = 1024;
/// Two counts, the vector, and where it is accounted for.
const SHARED_BYTES: usize = 16 + size_of::<Body>();

/// What all bodies of a keyspace take of the global allocator.
#[derive(Debug)]
pub(crate) struct LargeAccount {
    bytes: AtomicI64,
    class_bytes: fn(usize) -> usize,
}

impl LargeAccount {
    pub fn new(class_bytes: fn(usize) -> usize) -> LargeAccount {
        LargeAccount { bytes: AtomicI64::new(0), class_bytes }
    }

    /// Rounded as the allocator rounds.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed) as u64
    }

    fn of(&self, capacity: usize) -> i64 {
        ((self.class_bytes)(capacity) + (self.class_bytes)(SHARED_BYTES)) as i64
    }
}

/// The bytes of a body: accounted for while they are there, once for all owners.
pub(crate) struct Body {
    bytes: Vec<u8>,
    account: Arc<LargeAccount>,
}

impl Body {
    fn new(bytes: Vec<u8>, account: &Arc<LargeAccount>) -> Shared {
        account.bytes.fetch_add(account.of(bytes.capacity()), Relaxed);
        Arc::new(Body { bytes, account: Arc::clone(account) })
    }

    /// Changes the vector by `work`, which may give it another capacity.
    fn change<R>(&mut self, work: impl FnOnce(&mut Vec<u8>) -> R) -> R {
        let before = self.account.of(self.bytes.capacity());
        let result = work(&mut self.bytes);
        self.account.bytes.fetch_add(self.account.of(self.bytes.capacity()) - before, Relaxed);
        result
    }
}

impl Drop for Body {
    fn drop(&mut self) {
        self.account.bytes.fetch_sub(self.account.of(self.bytes.capacity()), Relaxed);
    }
}

impl Deref for Body {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

/// A body, shared with snapshots that have yet to see it, and with copies of its entry.
pub(crate) type Shared = Arc<Body>;

pub(crate) struct Large {
    account: Arc<LargeAccount>,
    chunks: Vec<Box<[Option<Shared>]>>,
    free: Pile<u32>,
    len: u32,
}

impl Large {
    pub fn new(account: &Arc<LargeAccount>) -> Large {
        Large { account: Arc::clone(account), chunks: Vec::new(), free: Pile::default(), len: 0 }
    }

    /// What the table of numbers takes of the global allocator.
    pub fn table_bytes(&self) -> usize {
        self.chunks.len() * CHUNK * size_of::<Option<Shared>>() + self.free.memory_bytes()
    }

    pub fn get(&self, number: u32) -> &[u8] {
        self.slot(number).as_ref().expect("an entry refers to it")
    }

    /// For a snapshot: the body as it is now, whatever happens to it later.
    pub fn share(&self, number: u32) -> Shared {
        Arc::clone(self.slot(number).as_ref().expect("an entry refers to it"))
    }

    pub fn capacity(&self, number: u32) -> usize {
        self.slot(number).as_ref().expect("an entry refers to it").bytes.capacity()
    }

    /// A body of `len` zero bytes.
    pub fn insert(&mut self, len: usize) -> Result<u32, Full> {
        let mut body = Vec::new();
        body.try_reserve_exact(len).map_err(|_| Full)?;
        body.resize(len, 0);
        let number = self.free_number();
        *self.slot_mut(number) = Some(Body::new(body, &self.account));
        Ok(number)
    }

    /// A body that another entry has (COPY) or had (RENAME); the first change gets a copy.
    pub fn adopt(&mut self, body: Shared) -> u32 {
        let number = self.free_number();
        *self.slot_mut(number) = Some(body);
        number
    }

    /// The body, grown to `len` if it is shorter. A growing body gets an eighth more than it asks for, at most 1 MB,
    /// so that appending does not copy it every time.
    pub fn grow(&mut self, number: u32, len: usize) -> Result<&mut [u8], Full> {
        const SLACK_BYTES_MAX: usize = 1 << 20;
        let slot = &mut self.chunks[number as usize / CHUNK][number as usize % CHUNK];
        let shared = slot.as_mut().expect("an entry refers to it");
        if Arc::get_mut(shared).is_none() {
            let mut copy = Vec::new();
            copy.try_reserve_exact(shared.len().max(len)).map_err(|_| Full)?;
            copy.extend_from_slice(shared);
            *shared = Body::new(copy, &self.account);
        }
        let body = Arc::get_mut(shared).expect("it is ours alone now");
        if len > body.bytes.capacity() {
            let more = len - body.bytes.len() + (len / 8).min(SLACK_BYTES_MAX);
            body.change(|bytes| bytes.try_reserve_exact(more)).map_err(|_| Full)?;
        }
        if len > body.bytes.len() {
            body.bytes.resize(len, 0);
        }
        let shared = self.slot_mut(number).as_mut().expect("it is still there");
        Ok(&mut Arc::get_mut(shared).expect("it is still ours alone").bytes)
    }

    pub fn remove(&mut self, number: u32) {
        let body = self.slot_mut(number).take();
        assert!(body.is_some(), "an entry referred to it");
        self.free.push(number);
    }

    /// Values that are there.
    pub fn live(&self) -> u64 {
        u64::from(self.len) - self.free.len() as u64
    }

    fn free_number(&mut self) -> u32 {
        if let Some(number) = self.free.pop() {
            return number;
        }
        if self.len as usize == self.chunks.len() * CHUNK {
            self.chunks.push((0..CHUNK).map(|_| None).collect());
        }
        self.len += 1;
        self.len - 1
    }

    fn slot(&self, number: u32) -> &Option<Shared> {
        &self.chunks[number as usize / CHUNK][number as usize % CHUNK]
    }

    fn slot_mut(&mut self, number: u32) -> &mut Option<Shared> {
        &mut self.chunks[number as usize / CHUNK][number as usize % CHUNK]
    }
}
