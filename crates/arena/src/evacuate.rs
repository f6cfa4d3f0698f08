//! Compaction: the emptiest slab of a class is emptied into the others, then its chunks are free.
//!
//! ```text
//!   class with free >= count of a slab: its objects would fit into one slab less
//!     [#######.] [######..] [#.......]          victims() marks the last one EVACUATING and lists its objects;
//!     [########] [#######.]      free           the keyspace moves each (owner's lock, then allocate and release)
//!
//!   class that has shrunk so far that its slabs are too large (class.rs): into smaller ones
//!     [##..............]  ->  [##..]
//!
//!   class that has grown: its small slabs, full ones too, into the room of a larger one, which has less tail
//!     [###'] [###'] + [####........']  ->  [##########..']
//! ```
//!
//! The arena never calls back and knows no references: the owner of the objects drives this from cron, a few
//! objects at a time, and may skip those whose owner is busy. Classes take turns. An evacuation is begun only
//! if the class ends with fewer chunks than before, so a quiet arena comes to rest; there a class wastes half
//! a slab on average.

use crate::class::{CLASS_COUNT, CLASSES, Kind, SHAPES, shape_of};
use crate::handle::Handle;
use crate::heap::{FULL, Heap};
use crate::reserve::Region;
use crate::slab::{Place, Record, state};

/// A live object of the slab under evacuation.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Victim {
    pub handle: Handle,
    pub kind: Kind,
    /// Bytes of its class.
    pub bytes: usize,
    pub owner: u16,
}

#[derive(Copy, Clone)]
pub(crate) struct Evacuation {
    pub chunk: u32,
    /// The object that the next call looks at first, so that objects of a busy owner do not hide the others.
    cursor: usize,
}

/// Number of slabs of a class that are compared, from the emptiest bin on.
const CANDIDATES_MAX: usize = 32;

impl Heap {
    pub fn victims(&mut self, memory: &Region, out: &mut Vec<Victim>, objects_max: usize) -> bool {
        if self.evacuation.is_none() && !self.begin_evacuation(memory) {
            return false;
        }
        let Evacuation { chunk, cursor } = self.evacuation.expect("it is under way");
        let shape = &SHAPES[self.table.get(chunk).shape as usize];
        let count = shape.count as usize;
        let mut listed = 0;
        let mut looked_at = 0;
        while looked_at < count && listed < objects_max {
            let place = Place { chunk, index: (cursor + looked_at) % count, shape };
            looked_at += 1;
            let raw = place.handle_raw();
            if self.is_live(memory, place, raw) {
                let handle = Handle::from_raw(raw).expect("no object lies in chunk 0");
                let owner = place.owner(memory);
                out.push(Victim { handle, kind: shape.kind, bytes: shape.bytes as usize, owner });
                listed += 1;
            }
        }
        self.evacuation = Some(Evacuation { chunk, cursor: (cursor + looked_at) % count });
        true
    }

    pub fn finish_evacuation(&mut self) {
        let Some(Evacuation { chunk, .. }) = self.evacuation.take() else { return };
        let record = self.table.get_mut(chunk);
        record.state = state::SLAB;
        let shape = &SHAPES[record.shape as usize];
        self.classes[shape.class as usize].free += (shape.count - record.live) as u32;
        self.rebin(chunk);
    }

    /// The order of the slab under evacuation, if it is of this class.
    pub fn evacuated_order(&self, class: usize) -> Option<u32> {
        let shape = &SHAPES[self.table.get(self.evacuation?.chunk).shape as usize];
        (shape.class as usize == class).then_some(shape.order as u32)
    }

    fn begin_evacuation(&mut self, memory: &Region) -> bool {
        for turn in 0..CLASS_COUNT {
            let class = (self.next_class + turn) % CLASS_COUNT;
            if CLASSES[class].kind == Kind::Index || !self.may_gain(class) {
                continue;
            }
            self.flush_hot(memory, class);
            if let Some(chunk) = self.best_candidate(class) {
                self.evacuate(class, chunk);
                self.next_class = (class + 1) % CLASS_COUNT;
                return true;
            }
        }
        false
    }

    fn evacuate(&mut self, class: usize, chunk: u32) {
        self.leave_list(chunk);
        let record = self.table.get_mut(chunk);
        record.state = state::EVACUATING;
        self.classes[class].free -= (SHAPES[record.shape as usize].count - record.live) as u32;
        self.evacuation = Some(Evacuation { chunk, cursor: 0 });
    }

    /// A quick test without looking at slabs: there is room for the objects of a slab, or a slab is too
    /// large.
    fn may_gain(&self, class: usize) -> bool {
        let state = &self.classes[class];
        let Some(smallest) = state.slabs.iter().position(|&slabs| slabs > 0) else { return false };
        let largest = state.slabs.iter().rposition(|&slabs| slabs > 0).unwrap_or(smallest);
        state.free >= SHAPES[shape_of(class, smallest as u32)].count as u32
            || largest as u32 > self.order_to_shrink_to(class)
    }

    /// Slabs above this order are too large for the class. Twice the live bytes, so that a class that swings
    /// around a crossing keeps its slabs.
    fn order_to_shrink_to(&self, class: usize) -> u32 {
        CLASSES[class].order_for(2 * self.live_bytes(class))
    }

    /// The slab that frees most chunks for the objects moved.
    fn best_candidate(&self, class: usize) -> Option<u32> {
        let state = &self.classes[class];
        let mut best = None;
        let mut looked_at = 0;
        for (list, mut chunk) in state.lists().into_iter().enumerate() {
            // Moving a full slab gains something only if it is smaller than slabs of this class should be.
            if let Some(order) = list.checked_sub(FULL)
                && (order as u32 >= self.order_wanted(class)
                    || state.free < SHAPES[shape_of(class, order as u32)].count as u32)
            {
                continue;
            }
            while chunk != 0 && looked_at < CANDIDATES_MAX {
                let record = self.table.get(chunk);
                // Objects to move per chunk gained, in 64ths.
                let cost = (record.live as u32 * 64).checked_div(self.chunks_gained(class, record));
                if let Some(cost) = cost
                    && best.is_none_or(|(least, _)| cost < least)
                {
                    best = Some((cost, chunk));
                }
                looked_at += 1;
                chunk = record.next;
            }
        }
        best.map(|(_, chunk)| chunk)
    }

    /// Returns by how many chunks the class would shrink without this slab: its own, less those of the
    /// smaller slabs that must be opened for the objects that find no room in others.
    fn chunks_gained(&self, class: usize, record: &Record) -> u32 {
        let shape = &SHAPES[record.shape as usize];
        let own = 1 << shape.order;
        // free - (count - live) is the room elsewhere, live - that must be housed anew.
        let homeless = (shape.count as u32).saturating_sub(self.classes[class].free);
        if homeless == 0 {
            return own;
        }
        if self.order_to_shrink_to(class) >= shape.order as u32 {
            return 0;
        }
        let order = self.order_wanted(class);
        let slabs = homeless.div_ceil(SHAPES[shape_of(class, order)].count as u32);
        own.saturating_sub(slabs << order)
    }
}
