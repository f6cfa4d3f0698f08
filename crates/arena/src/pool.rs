//! Free chunks: blocks of 1, 2, 4 or 8 chunks, aligned to their size, split and merged as buddies.
//!
//! ```text
//!   8 chunks  |  0   1   2   3   4   5   6   7 |    heads[resident][order]: 2 x 4 lists, threaded through the records
//!   slab 16 KB       x                             -> free blocks left: [0] order 0, [2 3] order 1, [4 5 6 7] order 2
//! ```
//!
//! A block that still has pages behind it (resident) is taken before one that was given back to the kernel or
//! never touched, even if it must be split: using it again costs neither a page fault nor RSS. Within a list
//! the block freed last comes first, since its lines are the likeliest to be in a cache.
//!
//! Invariants: no two free buddies of the same order stand side by side; `resident_chunks` counts the free
//! chunks with `resident` set; a block is in the resident list iff one of its chunks is.

use crate::Exhausted;
use crate::class::{CHUNK_BYTES, ORDERS, SLAB_ORDER_MAX};
use crate::reserve::Region;
use crate::slab::{Table, link, state, unlink};

/// The largest block: 8 chunks.
pub(crate) const BLOCK_CHUNKS_MAX: u32 = 1 << SLAB_ORDER_MAX;

const CLEAN: usize = 0;
const RESIDENT: usize = 1;

pub(crate) struct Pool {
    heads: [[u32; ORDERS]; 2],
    /// Chunks below this have been in use or in a list; a multiple of 8.
    frontier: u32,
    resident_chunks: u32,
    free_chunks: u32,
}

impl Pool {
    pub fn new() -> Pool {
        Pool { heads: [[0; ORDERS]; 2], frontier: 0, resident_chunks: 0, free_chunks: 0 }
    }

    pub fn frontier(&self) -> u32 {
        self.frontier
    }

    pub fn resident_chunks(&self) -> u32 {
        self.resident_chunks
    }

    /// Takes an aligned block of `1 << order` chunks. Its records are the caller's to fill.
    pub fn take(&mut self, table: &mut Table, memory: &Region, order: u32) -> Result<u32, Exhausted> {
        loop {
            for list in [RESIDENT, CLEAN] {
                for larger in order..=SLAB_ORDER_MAX {
                    let chunk = self.heads[list][larger as usize];
                    if chunk != 0 {
                        self.unlink(table, chunk);
                        self.split(table, chunk, larger, order);
                        self.count_out(table, chunk, order);
                        return Ok(chunk);
                    }
                }
            }
            self.grow(table, memory)?;
        }
    }

    /// Takes a resident block out of the pool, whole, to give its pages back. It returns through
    /// `give_clean`.
    pub fn take_resident(&mut self, table: &mut Table) -> Option<(u32, u32)> {
        let chunk = self.heads[RESIDENT].into_iter().rev().find(|&chunk| chunk != 0)?;
        let order = table.get(chunk).order as u32;
        self.unlink(table, chunk);
        self.count_out(table, chunk, order);
        for c in chunk..chunk + (1 << order) {
            table.get_mut(c).state = state::LEAVING;
        }
        Some((chunk, order))
    }

    pub fn give_resident(&mut self, table: &mut Table, chunk: u32, order: u32) {
        self.give(table, chunk, order, RESIDENT);
    }

    pub fn give_clean(&mut self, table: &mut Table, chunk: u32, order: u32) {
        self.give(table, chunk, order, CLEAN);
    }

    fn give(&mut self, table: &mut Table, mut chunk: u32, mut order: u32, list: usize) {
        let chunks = 1 << order;
        for c in chunk..chunk + chunks {
            let record = table.get_mut(c);
            record.state = state::FREE_REST;
            record.resident = list as u8;
        }
        self.free_chunks += chunks;
        self.resident_chunks += if list == RESIDENT { chunks } else { 0 };

        while order < SLAB_ORDER_MAX {
            let buddy = chunk ^ (1 << order);
            let record = table.get(buddy);
            if record.state != state::FREE || record.order as u32 != order {
                break;
            }
            self.unlink(table, buddy);
            table.get_mut(buddy).state = state::FREE_REST;
            chunk = chunk.min(buddy);
            order += 1;
        }
        self.link(table, chunk, order);
    }

    /// Keeps the first `1 << order` chunks of a block and puts the rest back, upper halves first.
    fn split(&mut self, table: &mut Table, chunk: u32, mut have: u32, order: u32) {
        while have > order {
            have -= 1;
            self.link(table, chunk + (1 << have), have);
        }
    }

    fn count_out(&mut self, table: &Table, chunk: u32, order: u32) {
        let resident: u32 = (chunk..chunk + (1 << order)).map(|c| table.get(c).resident as u32).sum();
        self.resident_chunks -= resident;
        self.free_chunks -= 1 << order;
    }

    /// Opens the next 8 chunks of the reservation.
    fn grow(&mut self, table: &mut Table, memory: &Region) -> Result<(), Exhausted> {
        let first = self.frontier;
        let end = first + BLOCK_CHUNKS_MAX;
        memory.commit_to(end as usize * CHUNK_BYTES)?;
        table.commit_to(end)?;
        self.frontier = end;
        if first == 0 {
            // Chunk 0 is never given out: its first unit would be handle 0, and 0 ends the lists.
            table.get_mut(0).state = state::NEVER;
            for order in 0..SLAB_ORDER_MAX {
                self.give(table, 1 << order, order, CLEAN);
            }
        } else {
            self.give(table, first, SLAB_ORDER_MAX, CLEAN);
        }
        Ok(())
    }

    fn link(&mut self, table: &mut Table, chunk: u32, order: u32) {
        let resident = (chunk..chunk + (1 << order)).any(|c| table.get(c).resident != 0);
        let list = if resident { RESIDENT } else { CLEAN };
        let record = table.get_mut(chunk);
        record.state = state::FREE;
        record.order = order as u8;
        record.list = list as u8;
        link(table, &mut self.heads[list][order as usize], chunk);
    }

    fn unlink(&mut self, table: &mut Table, chunk: u32) {
        let record = *table.get(chunk);
        unlink(table, &mut self.heads[record.list as usize][record.order as usize], chunk);
    }

    pub fn check_invariants(&self, table: &Table) {
        assert!(self.frontier.is_multiple_of(BLOCK_CHUNKS_MAX));
        let (mut blocks, mut free, mut resident) = (0, 0, 0);
        let mut chunk = 0;
        while chunk < self.frontier {
            let record = table.get(chunk);
            if record.state != state::FREE {
                assert!(record.state != state::FREE_REST && record.state != state::FRESH);
                chunk += 1;
                continue;
            }
            let order = record.order as u32;
            let chunks = 1u32 << order;
            assert!(order <= SLAB_ORDER_MAX && chunk.is_multiple_of(chunks));
            if order < SLAB_ORDER_MAX {
                let buddy = table.get(chunk ^ chunks);
                assert!(buddy.state != state::FREE || buddy.order as u32 != order, "unmerged buddies");
            }
            let rest = (chunk + 1..chunk + chunks).map(|c| table.get(c));
            assert!(rest.clone().all(|r| r.state == state::FREE_REST));
            let inside: u32 = record.resident as u32 + rest.map(|r| r.resident as u32).sum::<u32>();
            assert_eq!(record.list as usize, if inside > 0 { RESIDENT } else { CLEAN });
            blocks += 1;
            free += chunks;
            resident += inside;
            chunk += chunks;
        }
        assert_eq!(free, self.free_chunks);
        assert_eq!(resident, self.resident_chunks);

        let mut listed = 0;
        for (list, heads) in self.heads.iter().enumerate() {
            for (order, &head) in heads.iter().enumerate() {
                let (mut chunk, mut previous) = (head, 0);
                while chunk != 0 {
                    let record = table.get(chunk);
                    assert_eq!(
                        (record.state, record.prev, record.list as usize, record.order as usize),
                        (state::FREE, previous, list, order)
                    );
                    listed += 1;
                    (previous, chunk) = (chunk, record.next);
                }
            }
        }
        assert_eq!(listed, blocks);
    }
}
