//! A pile: things are put on it one by one and taken off some at a time. What lies there is never moved, so that
//! putting the ten-millionth costs as much as the first.

use std::collections::LinkedList;

const CHUNK: usize = 64;

pub(crate) struct Pile<T> {
    chunks: LinkedList<Vec<T>>,
}

impl<T> Default for Pile<T> {
    fn default() -> Pile<T> {
        Pile { chunks: LinkedList::new() }
    }
}

impl<T> Pile<T> {
    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    pub fn push(&mut self, item: T) {
        match self.chunks.back_mut().filter(|chunk| chunk.len() < CHUNK) {
            Some(chunk) => chunk.push(item),
            None => self.chunks.push_back(vec![item]),
        }
    }

    /// Takes off up to 64 of them.
    pub fn take_some(&mut self) -> Option<Vec<T>> {
        self.chunks.pop_back()
    }

    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.chunks.iter().flatten()
    }
}
