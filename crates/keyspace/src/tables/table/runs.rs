//! The runs of a table: where the record of a slot is.
//!
//! ```text
//!   whole    run -> [record 32 B] x 64
//!   sparse   run -> [which of its slots u64][record 32 B] x as many      with one key 40 B, not 2 KB
//! ```
//! Databases but the first are sparse while they have few keys: 250 databases of 200 keys have 2 MB of
//! records instead of 70. A record is added by making its run larger, which may move; it stays until the run
//! goes. When half of the slots have one, all runs become whole, at once: as many bytes as a partition has
//! records, 32 KB at most with 16 partitions. The first database is whole from the start: its commands look
//! for no bit.
//!
//! A slot that was looked up may be changed after such a move, so the place of its record is looked up again.

use crate::layout::heap::Heap;
use crate::layout::kind::Full;
use crate::layout::record::{RECORD_BYTES, Record};
use crate::tables::location::SlotRef;
use isotherm_arena::{Handle, Kind};

pub(crate) const RUN_SLOTS_MAX: usize = 64;

/// Bytes of the bits that say which records a sparse run has.
const BITS_BYTES: usize = 8;
/// Part of the slots, by division, that have records when runs become whole.
const WHOLE_DIVISOR: usize = 2;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Layout {
    /// Runs that have had all their records from the beginning.
    Whole,
    /// Runs that have all their records by now: a run may have moved since a slot was looked up.
    WholeNow,
    Sparse,
}

pub(crate) struct Runs {
    /// Object with the handle of each run; 0: it has no keys.
    index: Handle,
    count: usize,
    /// Slots of a run, as a power of two: every command divides by it.
    run_bits: u32,
    layout: Layout,
    /// Records that sparse runs have.
    sparse_records: u32,
}

fn bits_of(heap: &Heap, run: Handle) -> u64 {
    u64::from_le_bytes(heap.bytes(run, BITS_BYTES).try_into().expect("eight bytes"))
}

fn bytes_of(records: u32) -> usize {
    BITS_BYTES + records as usize * RECORD_BYTES
}

/// Finds the place of the record of a bit among those of these bits, there or not.
fn offset_of(bits: u64, bit: u64) -> usize {
    bytes_of((bits & (bit - 1)).count_ones())
}

impl Runs {
    pub fn new(heap: &mut Heap, slots: usize, layout: Layout) -> Result<Runs, Full> {
        let run_slots = slots.min(RUN_SLOTS_MAX);
        let count = slots / run_slots;
        let (index, _) = heap.allocate(Kind::Index, count * 4)?;
        heap.bytes_mut(index, count * 4).fill(0);
        Ok(Runs { index, count, run_bits: run_slots.trailing_zeros(), layout, sparse_records: 0 })
    }

    pub fn index(&self) -> Handle {
        self.index
    }

    #[inline]
    pub fn run_slots(&self) -> usize {
        1 << self.run_bits
    }

    #[inline]
    pub fn run_of(&self, at: usize) -> usize {
        at >> self.run_bits
    }

    /// The run of a slot, and where its record begins there if it is whole.
    #[inline]
    fn in_run(&self, at: usize) -> (usize, usize) {
        (at >> self.run_bits, (at & (self.run_slots() - 1)) * RECORD_BYTES)
    }

    #[inline]
    fn run(&self, heap: &Heap, run: usize) -> Option<Handle> {
        let bytes = &heap.bytes(self.index, run * 4 + 4)[run * 4..];
        Handle::from_raw(u32::from_le_bytes(bytes.try_into().expect("four bytes")))
    }

    fn set_run(&mut self, heap: &mut Heap, run: usize, handle: Option<Handle>) {
        let raw = handle.map_or(0, Handle::raw);
        heap.bytes_mut(self.index, run * 4 + 4)[run * 4..].copy_from_slice(&raw.to_le_bytes());
    }

    pub fn is_there(&self, heap: &Heap, run: usize) -> bool {
        self.run(heap, run).is_some()
    }

    #[inline(always)]
    pub fn slot(&self, heap: &Heap, at: usize) -> SlotRef {
        let (run, offset) = self.in_run(at);
        let run = self.run(heap, run);
        if self.layout == Layout::Sparse {
            return self.sparse_slot(heap, at, run);
        }
        let record = match run {
            None => Record::EMPTY,
            Some(run) => Record::read(&heap.bytes(run, offset + RECORD_BYTES)[offset..]),
        };
        SlotRef { at, run, record }
    }

    /// Makes sure that the slot has a record.
    pub fn materialise(&mut self, heap: &mut Heap, slot: &mut SlotRef) -> Result<(), Full> {
        if slot.run.is_some() {
            return Ok(());
        }
        if self.layout == Layout::Sparse {
            return self.materialise_sparse(heap, slot);
        }
        let bytes = self.run_slots() * RECORD_BYTES;
        let (run, _) = heap.allocate(Kind::Index, bytes)?;
        for record in heap.bytes_mut(run, bytes).chunks_exact_mut(RECORD_BYTES) {
            Record::EMPTY.write(record);
        }
        self.set_run(heap, self.in_run(slot.at).0, Some(run));
        slot.run = Some(run);
        Ok(())
    }

    /// Writes a record back. Returns the number of its run.
    #[inline]
    pub fn write(&self, heap: &mut Heap, slot: &SlotRef) -> usize {
        let (run, offset) = self.in_run(slot.at);
        let handle = slot.run.expect("a changed slot has its run");
        let (handle, offset) = match self.layout {
            Layout::Whole => (handle, offset),
            Layout::WholeNow | Layout::Sparse => self.place_now(heap, slot.at),
        };
        slot.record.write(&mut heap.bytes_mut(handle, offset + RECORD_BYTES)[offset..]);
        run
    }

    /// Gives back a run whose slots are all empty. Returns whether it was there.
    pub fn release(&mut self, heap: &mut Heap, run: usize) -> bool {
        let Some(handle) = self.run(heap, run) else { return false };
        if self.layout == Layout::Sparse {
            self.sparse_records -= bits_of(heap, handle).count_ones();
        }
        heap.release(handle);
        self.set_run(heap, run, None);
        true
    }

    // ---- sparse ----

    fn bit_of(&self, at: usize) -> u64 {
        1 << (at & (self.run_slots() - 1))
    }

    fn sparse_offset(&self, heap: &Heap, run: Handle, at: usize) -> Option<usize> {
        let (bits, bit) = (bits_of(heap, run), self.bit_of(at));
        (bits & bit != 0).then(|| offset_of(bits, bit))
    }

    /// A slot without a record has no run.
    #[cold]
    fn sparse_slot(&self, heap: &Heap, at: usize, run: Option<Handle>) -> SlotRef {
        let found = run.and_then(|run| Some((run, self.sparse_offset(heap, run, at)?)));
        match found {
            None => SlotRef { at, run: None, record: Record::EMPTY },
            Some((run, offset)) => {
                let record = Record::read(&heap.bytes(run, offset + RECORD_BYTES)[offset..]);
                SlotRef { at, run: Some(run), record }
            }
        }
    }

    /// Finds where the record of a slot is by now: its run, and the offset there.
    #[cold]
    fn place_now(&self, heap: &Heap, at: usize) -> (Handle, usize) {
        let (run, offset) = self.in_run(at);
        let run = self.run(heap, run).expect("a changed slot has its run");
        match self.layout {
            Layout::Whole | Layout::WholeNow => (run, offset),
            Layout::Sparse => {
                (run, self.sparse_offset(heap, run, at).expect("a changed slot has its record"))
            }
        }
    }

    #[cold]
    fn materialise_sparse(&mut self, heap: &mut Heap, slot: &mut SlotRef) -> Result<(), Full> {
        // Without room for whole runs they stay sparse.
        let slots = self.count << self.run_bits;
        if self.sparse_records as usize * WHOLE_DIVISOR >= slots && self.make_whole(heap).is_ok() {
            slot.run = self.run(heap, self.in_run(slot.at).0);
            return self.materialise(heap, slot);
        }
        let (number, bit) = (self.in_run(slot.at).0, self.bit_of(slot.at));
        let (run, bits) = match self.run(heap, number) {
            None => (heap.allocate(Kind::Index, bytes_of(1))?.0, 0),
            Some(run) => {
                let bits = bits_of(heap, run);
                if bits & bit != 0 {
                    slot.run = Some(run);
                    return Ok(());
                }
                let count = bits.count_ones();
                (heap.reallocate(run, bytes_of(count), bytes_of(count + 1))?.0, bits)
            }
        };
        let (offset, end) = (offset_of(bits, bit), bytes_of(bits.count_ones()));
        let bytes = heap.bytes_mut(run, end + RECORD_BYTES);
        bytes.copy_within(offset..end, offset + RECORD_BYTES);
        Record::EMPTY.write(&mut bytes[offset..offset + RECORD_BYTES]);
        bytes[..BITS_BYTES].copy_from_slice(&(bits | bit).to_le_bytes());
        self.sparse_records += 1;
        self.set_run(heap, number, Some(run));
        slot.run = Some(run);
        Ok(())
    }

    /// Gives each run all of its records. After an error all is as it was.
    fn make_whole(&mut self, heap: &mut Heap) -> Result<(), Full> {
        let run_slots = self.run_slots();
        let mut made: Vec<(usize, Handle, Handle)> = Vec::new();
        for number in 0..self.count {
            let Some(sparse) = self.run(heap, number) else { continue };
            let Ok((whole, _)) = heap.allocate(Kind::Index, run_slots * RECORD_BYTES) else {
                made.iter().for_each(|(_, _, whole)| heap.release(*whole));
                return Err(Full);
            };
            for at in 0..run_slots {
                let record = self.sparse_slot(heap, number * run_slots + at, Some(sparse)).record;
                let offset = at * RECORD_BYTES;
                record.write(&mut heap.bytes_mut(whole, offset + RECORD_BYTES)[offset..]);
            }
            made.push((number, sparse, whole));
        }
        for (number, sparse, whole) in made {
            heap.release(sparse);
            self.set_run(heap, number, Some(whole));
        }
        (self.layout, self.sparse_records) = (Layout::WholeNow, 0);
        Ok(())
    }

    pub fn check_invariants(&self, heap: &Heap) {
        let runs = (0..self.count).filter_map(|number| self.run(heap, number));
        let records: u32 = match self.layout {
            Layout::Sparse => runs.map(|run| bits_of(heap, run).count_ones()).sum(),
            Layout::Whole | Layout::WholeNow => 0,
        };
        assert_eq!(self.sparse_records, records);
    }
}
