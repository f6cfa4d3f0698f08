//! Bodies above 4 KB: vectors of the global allocator, known by number.
//!
//! The numbers live in chunks that never move, so the thousandth million of large values costs no copy of a
//! table. A body is shared with a snapshot that has yet to write it, and with a reply that was not sent yet:
//! a change then gets a copy first.
//!
//! Cost besides the body: 8 B here, 48 B of shared vector (counts 16, vector 24, account 8), 8 B of reference
//! in the page.
//!
//! A body may lie within the request that brought it:
//!
//! ```text
//!   request   *3 $3 SET $1 k $268435456 | value ........ | \r\n |
//!                                         <--- body --->            until it grows, the rest stays around it
//! ```

use crate::layout::kind::Full;
use crate::layout::pile::Pile;
use std::any::Any;
use std::collections::TryReserveError;
use std::ops::{Deref, DerefMut, Range};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

const CHUNK: usize = 1024;
/// Two counts, the vector, and where it is accounted for.
const SHARED_BYTES: usize = 16 + size_of::<Body>();

/// Bytes that all bodies of a keyspace take from the global allocator.
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

    fn of(&self, bytes: &Bytes) -> i64 {
        let beside = match bytes {
            Bytes::Own(_) => 0,
            Bytes::Lent(_) => (self.class_bytes)(size_of::<Request>()),
        };
        (bytes.memory_bytes(self.class_bytes) + beside + (self.class_bytes)(SHARED_BYTES)) as i64
    }
}

/// Bytes that a body lies in.
enum Bytes {
    Own(Vec<u8>),
    Lent(Box<Request>),
}

/// A request that has the body as one of its arguments.
struct Request {
    bytes: Vec<u8>,
    argument: Range<usize>,
    memory: RequestMemory,
}

/// Memory of a request, as its reader knows it.
pub struct RequestMemory {
    /// Bytes of its allocation that were ever written to.
    pub touched_bytes: usize,
    /// An object of the reader's, kept as long as the allocation is there.
    pub keeps: Box<dyn Any + Send + Sync>,
}

impl Bytes {
    fn memory_bytes(&self, class_bytes: fn(usize) -> usize) -> usize {
        match self {
            Bytes::Own(bytes) => class_bytes(bytes.capacity()),
            Bytes::Lent(request) => request.memory.touched_bytes,
        }
    }

    /// Makes room for a body of `len` bytes, of its own. A growing body gets an eighth more than it asks for,
    /// at most 1 MB, so that appending does not copy it every time.
    fn reserve(&mut self, len: usize) -> Result<(), TryReserveError> {
        const SLACK_BYTES_MAX: usize = 1 << 20;
        if let Bytes::Lent(request) = self {
            let mut bytes = std::mem::take(&mut request.bytes);
            bytes.truncate(request.argument.end);
            bytes.drain(..request.argument.start);
            *self = Bytes::Own(bytes);
        }
        match self {
            Bytes::Own(bytes) if len > bytes.capacity() => {
                bytes.try_reserve_exact(len - bytes.len() + (len / 8).min(SLACK_BYTES_MAX))
            }
            _ => Ok(()),
        }
    }
}

impl Deref for Bytes {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            Bytes::Own(bytes) => bytes,
            Bytes::Lent(request) => &request.bytes[request.argument.clone()],
        }
    }
}

impl DerefMut for Bytes {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        match self {
            Bytes::Own(bytes) => bytes,
            Bytes::Lent(request) => &mut request.bytes[request.argument.clone()],
        }
    }
}

/// The bytes of a body: accounted for while they are there, once for all owners.
pub(crate) struct Body {
    bytes: Bytes,
    account: Arc<LargeAccount>,
}

impl Body {
    fn new(bytes: Bytes, account: &Arc<LargeAccount>) -> Shared {
        account.bytes.fetch_add(account.of(&bytes), Relaxed);
        Arc::new(Body { bytes, account: Arc::clone(account) })
    }

    /// Changes what it lies in by `work`, which may give it another capacity.
    fn change<R>(&mut self, work: impl FnOnce(&mut Bytes) -> R) -> R {
        let before = self.account.of(&self.bytes);
        let result = work(&mut self.bytes);
        self.account.bytes.fetch_add(self.account.of(&self.bytes) - before, Relaxed);
        result
    }
}

impl Drop for Body {
    fn drop(&mut self) {
        self.account.bytes.fetch_sub(self.account.of(&self.bytes), Relaxed);
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

/// A request that is lent to the command that it names: the argument may be stored as it lies.
pub struct Lent(pub(crate) Shared);

impl Lent {
    pub(crate) fn new(
        bytes: Vec<u8>,
        argument: Range<usize>,
        memory: RequestMemory,
        account: &Arc<LargeAccount>,
    ) -> Lent {
        Lent(Body::new(Bytes::Lent(Box::new(Request { bytes, argument, memory })), account))
    }

    /// The whole request.
    pub fn request(&self) -> &[u8] {
        match &self.0.bytes {
            Bytes::Lent(request) => &request.bytes,
            Bytes::Own(bytes) => bytes,
        }
    }

    /// The request and its memory, unless the argument was stored.
    pub fn take_back(mut self) -> Option<(Vec<u8>, RequestMemory)> {
        let body = Arc::get_mut(&mut self.0)?;
        match body.change(|bytes| std::mem::replace(bytes, Bytes::Own(Vec::new()))) {
            Bytes::Lent(request) => Some((request.bytes, request.memory)),
            Bytes::Own(_) => None,
        }
    }
}

/// A text of the keyspace as it was when it was shared, whatever becomes of it.
pub struct SharedText {
    body: Shared,
    range: Range<usize>,
}

impl SharedText {
    pub(crate) fn new(body: Shared, range: Range<usize>) -> SharedText {
        SharedText { body, range }
    }
}

impl Deref for SharedText {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.body[self.range.clone()]
    }
}

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

    /// Returns the bytes that the table of numbers takes from the global allocator.
    pub fn table_bytes(&self) -> usize {
        self.chunks.len() * CHUNK * size_of::<Option<Shared>>() + self.free.memory_bytes()
    }

    pub fn get(&self, number: u32) -> &[u8] {
        self.slot(number).as_ref().expect("an entry refers to it")
    }

    /// Returns the body as it is now, whatever happens to it later. Called for a snapshot.
    pub fn share(&self, number: u32) -> Shared {
        Arc::clone(self.slot(number).as_ref().expect("an entry refers to it"))
    }

    /// Returns the bytes that a body takes, its room for growth included.
    pub fn memory_bytes(&self, number: u32) -> usize {
        self.slot(number).as_ref().expect("an entry refers to it").bytes.memory_bytes(|bytes| bytes)
    }

    /// A body of `len` zero bytes.
    pub fn insert(&mut self, len: usize) -> Result<u32, Full> {
        let mut body = Vec::new();
        body.try_reserve_exact(len).map_err(|_| Full)?;
        body.resize(len, 0);
        let number = self.free_number();
        *self.slot_mut(number) = Some(Body::new(Bytes::Own(body), &self.account));
        Ok(number)
    }

    /// A body that another entry has (COPY) or had (RENAME); the first change gets a copy.
    pub fn adopt(&mut self, body: Shared) -> u32 {
        let number = self.free_number();
        *self.slot_mut(number) = Some(body);
        number
    }

    /// The body, grown to `len` if it is shorter.
    pub fn grow(&mut self, number: u32, len: usize) -> Result<&mut [u8], Full> {
        let slot = &mut self.chunks[number as usize / CHUNK][number as usize % CHUNK];
        let shared = slot.as_mut().expect("an entry refers to it");
        if Arc::get_mut(shared).is_none() {
            let mut copy = Vec::new();
            copy.try_reserve_exact(shared.len().max(len)).map_err(|_| Full)?;
            copy.extend_from_slice(shared);
            *shared = Body::new(Bytes::Own(copy), &self.account);
        }
        let body = Arc::get_mut(shared).expect("it is ours alone now");
        if len > body.len() {
            let has_room = matches!(&body.bytes, Bytes::Own(bytes) if len <= bytes.capacity());
            if !has_room {
                body.change(|bytes| bytes.reserve(len)).map_err(|_| Full)?;
            }
            if let Bytes::Own(bytes) = &mut body.bytes {
                bytes.resize(len, 0);
            }
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
