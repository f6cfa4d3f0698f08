//! Giving free chunks back to the kernel.
//!
//! The blocks leave the pool under the lock, their pages are dropped without it (at 0.1 to 0.3 us a page that
//! takes the kernel some 25 to 75 us for a step of 1 MB, which must not stop any thread's allocation), and
//! they come back as clean blocks. Neighbours are dropped in one call.

use crate::class::CHUNK_BYTES;
use crate::heap::Heap;
use crate::huge::Huge;
use crate::reserve::Region;

/// Maximum number of bytes that one step gives back; a caller that wants more calls again.
pub(crate) const TRIM_STEP_BYTES: usize = 1 << 20;
const STEP_CHUNKS_MAX: usize = TRIM_STEP_BYTES / CHUNK_BYTES;

/// A block on its way out.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Leaving {
    chunk: u32,
    order: u32,
}

impl Heap {
    /// Takes blocks out of the pool until `keep_chunks` resident ones are left or a step is full.
    pub fn trim_begin(&mut self, keep_chunks: usize) -> Vec<Leaving> {
        let mut leaving = Vec::new();
        let mut chunks = 0;
        while self.pool.resident_chunks() as usize > keep_chunks && chunks < STEP_CHUNKS_MAX {
            let Some((chunk, order)) = self.pool.take_resident(&mut self.table) else { break };
            leaving.push(Leaving { chunk, order });
            chunks += 1 << order;
        }
        leaving
    }

    pub fn trim_end(&mut self, leaving: &[Leaving]) {
        for &Leaving { chunk, order } in leaving {
            self.pool.give_clean(&mut self.table, chunk, order);
        }
    }
}

/// Drops the pages of the blocks, a run of neighbours at a time; the bytes that left.
pub(crate) fn discard(memory: &Region, leaving: &mut [Leaving], huge: &mut Huge) -> usize {
    leaving.sort_unstable();
    let mut total = 0;
    for run in leaving.chunk_by(|a, b| a.chunk + (1 << a.order) == b.chunk) {
        let chunks: usize = run.iter().map(|block| 1 << block.order).sum();
        let (offset, bytes) = (run[0].chunk as usize * CHUNK_BYTES, chunks * CHUNK_BYTES);
        memory.discard(offset, bytes);
        huge.forget(memory, offset, bytes);
        total += bytes;
    }
    total
}
