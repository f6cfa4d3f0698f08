//! Bodies above 4 KB: vectors of the global allocator, known by number.
//!
//! The numbers live in chunks that never move, so the thousandth million of large values costs no copy of a table. A
//! body is shared with a snapshot that has yet to write it: whoever changes it then gets a copy first.
//!
//! Cost beside the body: 8 B here, 40 B of shared vector (counts 16, vector 24), 8 B of reference in the page.

use crate::pile::Pile;
use crate::value::Full;
use std::sync::Arc;

const CHUNK: usize = 1024;

/// A body, shared with snapshots that have yet to see it, and with copies of its entry.
pub(crate) type Shared = Arc<Vec<u8>>;

#[derive(Default)]
pub(crate) struct Large {
    chunks: Vec<Box<[Option<Shared>]>>,
    free: Pile<u32>,
    len: u32,
}

impl Large {
    pub fn get(&self, number: u32) -> &[u8] {
        self.slot(number).as_ref().expect("an entry refers to it")
    }

    /// For a snapshot: the body as it is now, whatever happens to it later.
    pub fn share(&self, number: u32) -> Shared {
        Arc::clone(self.slot(number).as_ref().expect("an entry refers to it"))
    }

    pub fn capacity(&self, number: u32) -> usize {
        self.slot(number).as_ref().expect("an entry refers to it").capacity()
    }

    /// A body of `len` zero bytes.
    pub fn insert(&mut self, len: usize) -> Result<u32, Full> {
        let mut body = Vec::new();
        body.try_reserve_exact(len).map_err(|_| Full)?;
        body.resize(len, 0);
        let number = self.free_number();
        *self.slot_mut(number) = Some(Arc::new(body));
        Ok(number)
    }

    /// A body that another entry has (COPY) or had (RENAME); whoever changes it first gets a copy.
    pub fn adopt(&mut self, body: Shared) -> u32 {
        let number = self.free_number();
        *self.slot_mut(number) = Some(body);
        number
    }

    /// The body, grown to `len` if it is shorter. A growing body gets an eighth more than it asks for, at most 1 MB,
    /// so that appending does not copy it every time.
    pub fn grow(&mut self, number: u32, len: usize) -> Result<&mut [u8], Full> {
        const SLACK_BYTES_MAX: usize = 1 << 20;
        let shared = self.slot_mut(number).as_mut().expect("an entry refers to it");
        if Arc::get_mut(shared).is_none() {
            let mut copy = Vec::new();
            copy.try_reserve_exact(shared.len().max(len)).map_err(|_| Full)?;
            copy.extend_from_slice(shared);
            *shared = Arc::new(copy);
        }
        let body = Arc::get_mut(shared).expect("it is ours alone now");
        if len > body.capacity() {
            body.try_reserve_exact(len - body.len() + (len / 8).min(SLACK_BYTES_MAX)).map_err(|_| Full)?;
        }
        if len > body.len() {
            body.resize(len, 0);
        }
        let shared = self.slot_mut(number).as_mut().expect("it is still there");
        Ok(Arc::get_mut(shared).expect("it is still ours alone"))
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
