//! A pile: things are put on it one by one and taken off again. Its items are never moved, so that putting
//! the ten-millionth costs as much as the first.

use std::collections::LinkedList;

const CHUNK: usize = 64;

#[derive(Clone)]
pub(crate) struct Pile<T> {
    /// Chunks with items; none of them is empty.
    chunks: LinkedList<Vec<T>>,
    len: usize,
}

impl<T> Default for Pile<T> {
    fn default() -> Pile<T> {
        Pile { chunks: LinkedList::new(), len: 0 }
    }
}

impl<T> Pile<T> {
    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    pub fn len(&self) -> usize {
        self.len
    }

    /// Bytes in the global allocator, about.
    pub fn memory_bytes(&self) -> usize {
        self.chunks.len() * (CHUNK * size_of::<T>() + size_of::<Vec<T>>() + 16)
    }

    pub fn push(&mut self, item: T) {
        self.len += 1;
        match self.chunks.back_mut().filter(|chunk| chunk.len() < CHUNK) {
            Some(chunk) => chunk.push(item),
            None => self.chunks.push_back(vec![item]),
        }
    }

    pub fn pop(&mut self) -> Option<T> {
        let last = self.chunks.back_mut()?;
        let item = last.pop();
        self.len -= 1;
        if last.is_empty() {
            self.chunks.pop_back();
        }
        item
    }

    pub fn last(&self) -> Option<&T> {
        self.chunks.back()?.last()
    }

    /// Puts all of another pile on this one, however many they are.
    pub fn append(&mut self, other: &mut Pile<T>) {
        self.chunks.append(&mut other.chunks);
        self.len += std::mem::take(&mut other.len);
    }

    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.chunks.iter().flatten()
    }
}
