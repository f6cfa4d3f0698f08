//! Table of a collection's nodes, by number: the only reference to each.
//!
//! Chunks of the table have 4 KB, so that no growth copies much. The last one grows by an eighth, so that a
//! set of a thousand members does not pay for one of a million.

use crate::layout::kind::Full;
use crate::layout::pile::Pile;
use isotherm_arena::{Handle, prefetch_value};

/// Places of nodes, by number.
#[derive(Default)]
pub(crate) struct Table {
    chunks: Vec<Vec<u32>>,
    len: u32,
    /// Numbers that are out of use.
    free: Pile<u32>,
}

const CHUNK: usize = 1024;

impl Table {
    /// Numbers given out so far, free ones included.
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Numbers in use.
    pub fn live(&self) -> usize {
        self.len as usize - self.free.len()
    }

    #[inline]
    pub fn get(&self, number: u32) -> Handle {
        self.find(number).expect("the number is in use")
    }

    #[inline]
    pub fn find(&self, number: u32) -> Option<Handle> {
        Handle::from_raw(self.chunks[number as usize / CHUNK][number as usize % CHUNK])
    }

    /// Asks for the line from which `find` reads.
    #[inline]
    pub fn prefetch(&self, number: u32) {
        prefetch_value(&self.chunks[number as usize / CHUNK][number as usize % CHUNK]);
    }

    #[inline]
    pub fn set(&mut self, number: u32, handle: Handle) {
        self.chunks[number as usize / CHUNK][number as usize % CHUNK] = handle.raw();
    }

    /// The number that the next `insert` takes.
    pub fn next(&self) -> u32 {
        self.free.last().copied().unwrap_or(self.len)
    }

    /// Gives `next()` a place.
    pub fn insert(&mut self, handle: Handle) -> u32 {
        match self.free.pop() {
            Some(number) => {
                self.set(number, handle);
                number
            }
            None => self.push(handle.raw()),
        }
    }

    fn push(&mut self, raw: u32) -> u32 {
        if self.len as usize == self.chunks.len() * CHUNK {
            self.chunks.push(Vec::new());
        }
        let chunk = self.chunks.last_mut().expect("a chunk was just made");
        if chunk.len() == chunk.capacity() {
            let more = (chunk.len() / 8 + 4).min(CHUNK - chunk.len());
            chunk.reserve_exact(more);
        }
        chunk.push(raw);
        self.len += 1;
        self.len - 1
    }

    /// Takes a number out of use.
    pub fn remove(&mut self, number: u32) -> Handle {
        let handle = self.get(number);
        if number + 1 == self.len {
            self.drop_last();
        } else {
            self.chunks[number as usize / CHUNK][number as usize % CHUNK] = 0;
            self.free.push(number);
        }
        handle
    }

    /// Takes the last number away; what was there, if it was in use. Only for tables that are being emptied.
    pub fn pop(&mut self) -> Option<Option<Handle>> {
        let number = self.len.checked_sub(1)?;
        let handle = self.find(number);
        self.drop_last();
        Some(handle)
    }

    fn drop_last(&mut self) {
        self.len -= 1;
        let chunk = self.chunks.last_mut().expect("it held the last number");
        chunk.pop();
        if chunk.is_empty() {
            self.chunks.pop();
        }
    }

    /// Gives `target` the same numbers, each at the place that `copy` returns for it. On an error `target`
    /// has the numbers that were copied before.
    pub fn duplicate(
        &self,
        target: &mut Table,
        mut copy: impl FnMut(Handle) -> Result<Handle, Full>,
    ) -> Result<(), Full> {
        for number in 0..self.len {
            match self.find(number) {
                Some(handle) => {
                    target.push(copy(handle)?.raw());
                }
                None => {
                    let unused = target.push(0);
                    target.free.push(unused);
                }
            }
        }
        Ok(())
    }

    pub fn memory_bytes(&self) -> usize {
        let words: usize =
            self.chunks.last().map_or(0, Vec::capacity) + self.chunks.len().saturating_sub(1) * CHUNK;
        words * size_of::<u32>() + self.chunks.capacity() * size_of::<Vec<u32>>() + self.free.memory_bytes()
    }

    pub fn check_invariants(&self) {
        assert_eq!(self.chunks.iter().map(Vec::len).sum::<usize>(), self.len as usize);
        let unused = (0..self.len).filter(|&number| self.find(number).is_none()).count();
        assert_eq!(unused, self.free.len(), "what is not in use is free");
        assert!(self.free.iter().all(|&number| self.find(number).is_none()));
    }
}
