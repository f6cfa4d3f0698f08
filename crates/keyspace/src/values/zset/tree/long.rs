//! Members too long for a leaf: shared vectors of the global allocator, known by number.
//!
//! A leaf holds [number u32] in place of such a member. A snapshot that has yet to write one shares it.

use crate::layout::pile::Pile;
use std::sync::Arc;

#[derive(Default, Clone)]
pub(super) struct Longs {
    /// Chunks that never move.
    chunks: Vec<Vec<Option<Arc<[u8]>>>>,
    len: usize,
    free: Pile<u32>,
    bytes: usize,
}

const CHUNK: usize = 1024;

impl Longs {
    pub fn get(&self, number: u32) -> &[u8] {
        self.slot(number)
    }

    /// The member as it is, whatever happens to it later.
    pub fn share(&self, number: u32) -> Arc<[u8]> {
        Arc::clone(self.slot(number))
    }

    fn slot(&self, number: u32) -> &Arc<[u8]> {
        self.chunks[number as usize / CHUNK][number as usize % CHUNK].as_ref().expect("a leaf refers to it")
    }

    fn slot_mut(&mut self, number: u32) -> &mut Option<Arc<[u8]>> {
        &mut self.chunks[number as usize / CHUNK][number as usize % CHUNK]
    }

    pub fn insert(&mut self, member: &[u8]) -> u32 {
        self.bytes += memory_bytes(member);
        let shared = Some(Arc::from(member));
        if let Some(number) = self.free.pop() {
            *self.slot_mut(number) = shared;
            return number;
        }
        if self.len == self.chunks.len() * CHUNK {
            self.chunks.push(Vec::new());
        }
        self.chunks.last_mut().expect("a chunk was just made").push(shared);
        self.len += 1;
        u32::try_from(self.len - 1).expect("memory ends before 2^32 long members")
    }

    pub fn remove(&mut self, number: u32) {
        let member = self.slot_mut(number).take().expect("a leaf referred to it");
        self.bytes -= memory_bytes(&member);
        self.free.push(number);
    }

    /// Drops up to about `members_max` of those that are left. Returns whether none is.
    pub fn free_step(&mut self, members_max: usize) -> bool {
        let gone = self.chunks.len().min(members_max.div_ceil(CHUNK));
        self.chunks.truncate(self.chunks.len() - gone);
        self.chunks.is_empty()
    }

    pub fn live(&self) -> usize {
        self.len - self.free.len()
    }

    pub fn memory_bytes(&self) -> usize {
        let last = self.chunks.last().map_or(0, Vec::capacity);
        let places = self.chunks.len().saturating_sub(1) * CHUNK + last;
        self.bytes + places * size_of::<Option<Arc<[u8]>>>()
    }
}

/// The member and its two counts.
fn memory_bytes(member: &[u8]) -> usize {
    16 + member.len()
}
