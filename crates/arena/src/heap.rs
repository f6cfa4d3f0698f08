//! The bookkeeping behind the arena's lock: which slab gives the next object, and where a freed one goes.
//!
//! ```text
//!   class --> hot: the object freed last, its lines still in a cache; taken before anything else
//!         --> bins[4]  nearly full    <-- allocate takes from the fullest bin that has a slab,
//!             ...                         so that nearly empty slabs drain
//!             bins[0]  nearly empty   --> compaction takes from the emptiest
//!   slab  --> room bits: the lowest free object first, so a young slab touches only its first pages
//! ```
//!
//! A page that grows moves to its next class and leaves a hole of its old one; the next page that grows into
//! that class gets the very bytes just read. That is the hot object: one per class, its room bit still clear.
//!
//! Invariants:
//! * a slab in service with 0 < live < count is in bin `bin_of(live)` of its class, whatever its order; a
//!   full one is in the list of full slabs of its order, except the largest order, whose full slabs are never
//!   looked for;
//! * no slab has live == 0, nor only the hot object: it goes back to the pool at once;
//! * `free` of a class counts the free objects of its slabs in service, the hot one included.

use crate::class::{BIN_COUNT, CLASSES, ORDERS, ROOM_BITS_INLINE, SHAPES, SLAB_ORDER_MAX, Shape, shape_of};
use crate::evacuate::Evacuation;
use crate::pool::Pool;
use crate::reserve::Region;
use crate::slab::{
    NO_LIST, Place, Table, UNITS_PER_CHUNK, link, room_word, set_room_word, state, unlink,
    zeroed_class_states,
};
use crate::{Exhausted, ReserveError};

pub(crate) struct Heap {
    pub table: Table,
    pub pool: Pool,
    /// State of each class, untouched (zero) until the class is used.
    pub classes: Box<[ClassState]>,
    pub evacuation: Option<Evacuation>,
    /// The class that compaction looks at first.
    pub next_class: usize,
}

#[derive(Copy, Clone, Default, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct ClassState {
    /// Handle of the object freed last, or 0.
    pub hot: u32,
    pub free: u32,
    /// Slabs of each order, the one under evacuation included.
    pub slabs: [u32; ORDERS],
    /// Live objects; the hot one is not.
    pub live: u32,
    /// A bit per list of `lists` that is not empty.
    lists_used: u32,
    /// The bins, then the full slabs of orders 0, 1 and 2.
    lists: [u32; LIST_COUNT],
}

/// Full slabs of this order are in `lists[FULL + order]`.
pub(crate) const FULL: usize = BIN_COUNT;
pub(crate) const LIST_COUNT: usize = BIN_COUNT + SLAB_ORDER_MAX as usize;

const _: () = assert!(size_of::<ClassState>() == 64);
const _: () = assert!(LIST_COUNT <= 32, "lists_used has a bit per list");

impl Heap {
    pub fn new(arena_bytes: usize) -> Result<Heap, ReserveError> {
        let classes = zeroed_class_states();
        Ok(Heap {
            table: Table::new(arena_bytes)?,
            pool: Pool::new(),
            classes,
            evacuation: None,
            next_class: 0,
        })
    }

    pub fn allocate(&mut self, memory: &Region, class: usize, owner: u16) -> Result<u32, Exhausted> {
        let state = &mut self.classes[class];
        let raw = if state.hot != 0 {
            let raw = std::mem::take(&mut state.hot);
            Place::of(&self.table, raw).set_owner(memory, owner);
            raw
        } else {
            let chunk = match self.slab_with_room(class) {
                Some(chunk) => chunk,
                None => self.open_slab(memory, class)?,
            };
            let place = self.take_lowest(memory, chunk);
            place.set_owner(memory, owner);
            place.handle_raw()
        };
        let state = &mut self.classes[class];
        state.free -= 1;
        state.live += 1;
        Ok(raw)
    }

    pub fn release(&mut self, memory: &Region, raw: u32) -> &'static Shape {
        let place = Place::of(&self.table, raw);
        self.assert_live(memory, place, raw);
        self.release_at(memory, place);
        place.shape
    }

    /// Frees a live object.
    pub fn release_at(&mut self, memory: &Region, place: Place) {
        let class = place.class();
        self.classes[class].live -= 1;
        if self.table.get(place.chunk).state == state::EVACUATING {
            return self.put_back(memory, place);
        }
        self.flush_hot(memory, class);
        self.classes[class].free += 1;
        if self.table.get(place.chunk).live == 1 {
            self.put_back(memory, place);
        } else {
            self.classes[class].hot = place.handle_raw();
        }
    }

    /// Returns whether an object whose class stays the same may stay in its place: unless its slab is being
    /// emptied.
    pub fn may_stay(&self, place: Place) -> bool {
        self.table.get(place.chunk).state == state::SLAB
    }

    /// The place of a live object, or None for any other number.
    pub fn find_live(&self, memory: &Region, raw: u32) -> Option<Place> {
        if raw / UNITS_PER_CHUNK >= self.pool.frontier() {
            return None;
        }
        let place = Place::find(&self.table, raw)?;
        self.is_live(memory, place, raw).then_some(place)
    }

    pub fn is_live(&self, memory: &Region, place: Place, raw: u32) -> bool {
        let word = room_word(&self.table, memory, place.chunk, place.shape, place.index / 64);
        word >> (place.index % 64) & 1 == 0 && self.classes[place.class()].hot != raw
    }

    pub fn assert_live(&self, memory: &Region, place: Place, raw: u32) {
        assert!(self.is_live(memory, place, raw), "the handle's object is not allocated");
    }

    /// Puts the hot object of a class into its slab's room.
    pub fn flush_hot(&mut self, memory: &Region, class: usize) {
        let raw = std::mem::take(&mut self.classes[class].hot);
        if raw != 0 {
            self.put_back(memory, Place::of(&self.table, raw));
        }
    }

    /// The order that the next slab of a class should have.
    pub fn order_wanted(&self, class: usize) -> u32 {
        CLASSES[class].order_for(self.live_bytes(class))
    }

    pub fn live_bytes(&self, class: usize) -> u64 {
        self.classes[class].live as u64 * CLASSES[class].bytes as u64
    }

    /// The fullest slab with room. Before a class opens another slab, its slab under evacuation comes back
    /// into service, unless the new one is smaller: then that is what the evacuation is for.
    fn slab_with_room(&mut self, class: usize) -> Option<u32> {
        if self.classes[class].free == 0
            && self.evacuated_order(class).is_some_and(|order| order <= self.order_wanted(class))
        {
            self.finish_evacuation();
        }
        self.classes[class].fullest()
    }

    /// Opens a slab of the wanted order, or of a smaller one if the address space is used up or in pieces.
    fn open_slab(&mut self, memory: &Region, class: usize) -> Result<u32, Exhausted> {
        let mut order = self.order_wanted(class);
        let chunk = loop {
            match self.pool.take(&mut self.table, memory, order) {
                Ok(chunk) => break chunk,
                Err(Exhausted) if order > 0 => order -= 1,
                Err(Exhausted) => return self.room_of_evacuation(class),
            }
        };
        let shape_number = shape_of(class, order);
        let shape = &SHAPES[shape_number];
        for c in chunk..chunk + (1 << order) {
            let record = self.table.get_mut(c);
            record.shape = shape_number as u16;
            record.state = if c == chunk { state::SLAB } else { state::SLAB_REST };
            record.resident = 1;
        }
        let record = self.table.get_mut(chunk);
        record.live = 0;
        record.list = NO_LIST;
        for word in 0..shape.room_words() {
            let bits = (shape.count as usize - 64 * word).min(64);
            set_room_word(&mut self.table, memory, chunk, shape, word, u64::MAX >> (64 - bits));
        }
        let state = &mut self.classes[class];
        state.slabs[order as usize] += 1;
        state.free += shape.count as u32;
        Ok(chunk)
    }

    /// The last resort of a class: the slab under evacuation, if it is the class's own and has room.
    fn room_of_evacuation(&mut self, class: usize) -> Result<u32, Exhausted> {
        if self.evacuated_order(class).is_some() {
            self.finish_evacuation();
        }
        self.classes[class].fullest().ok_or(Exhausted)
    }

    /// Takes the lowest free object of a slab with room; the caller counts it.
    fn take_lowest(&mut self, memory: &Region, chunk: u32) -> Place {
        let shape = &SHAPES[self.table.get(chunk).shape as usize];
        for word in 0..shape.room_words() {
            let room = room_word(&self.table, memory, chunk, shape, word);
            if room != 0 {
                set_room_word(&mut self.table, memory, chunk, shape, word, room & (room - 1));
                self.table.get_mut(chunk).live += 1;
                self.rebin(chunk);
                return Place { chunk, index: word * 64 + room.trailing_zeros() as usize, shape };
            }
        }
        panic!("a slab in a bin has no room");
    }

    /// Makes an object that is already counted as free available again; an empty slab goes back to the pool.
    fn put_back(&mut self, memory: &Region, place: Place) {
        let Place { chunk, index, shape } = place;
        let word = room_word(&self.table, memory, chunk, shape, index / 64);
        set_room_word(&mut self.table, memory, chunk, shape, index / 64, word | 1 << (index % 64));
        let record = self.table.get_mut(chunk);
        record.live -= 1;
        if record.live == 0 {
            self.close_slab(chunk, shape);
        } else if record.state == state::SLAB {
            self.rebin(chunk);
        }
    }

    fn close_slab(&mut self, chunk: u32, shape: &Shape) {
        let class = shape.class as usize;
        if self.table.get(chunk).state == state::EVACUATING {
            self.evacuation = None;
        } else {
            self.leave_list(chunk);
            self.classes[class].free -= shape.count as u32;
        }
        self.classes[class].slabs[shape.order as usize] -= 1;
        self.pool.give_resident(&mut self.table, chunk, shape.order as u32);
    }

    /// The list that a slab in service belongs to.
    pub fn list_of(shape: &Shape, live: u16) -> u8 {
        match live == shape.count {
            false => shape.bin_of(live as usize) as u8,
            true if (shape.order as u32) < SLAB_ORDER_MAX => FULL as u8 + shape.order,
            true => NO_LIST,
        }
    }

    /// Moves a slab in service to the list that its fill asks for.
    pub fn rebin(&mut self, chunk: u32) {
        let record = *self.table.get(chunk);
        let shape = &SHAPES[record.shape as usize];
        let list = Heap::list_of(shape, record.live);
        if list == record.list {
            return;
        }
        self.leave_list(chunk);
        if list != NO_LIST {
            let state = &mut self.classes[shape.class as usize];
            link(&mut self.table, &mut state.lists[list as usize], chunk);
            state.lists_used |= 1 << list;
            self.table.get_mut(chunk).list = list;
        }
    }

    pub fn leave_list(&mut self, chunk: u32) {
        let record = self.table.get_mut(chunk);
        let list = std::mem::replace(&mut record.list, NO_LIST);
        if list == NO_LIST {
            return;
        }
        let state = &mut self.classes[SHAPES[record.shape as usize].class as usize];
        unlink(&mut self.table, &mut state.lists[list as usize], chunk);
        if state.lists[list as usize] == 0 {
            state.lists_used &= !(1 << list);
        }
    }
}

impl ClassState {
    /// A slab of the fullest bin.
    fn fullest(&self) -> Option<u32> {
        match self.lists_used & ((1 << BIN_COUNT) - 1) {
            0 => None,
            used => Some(self.lists[used.ilog2() as usize]),
        }
    }

    /// The heads of the lists: bins from the emptiest on, then full slabs by order.
    pub fn lists(&self) -> [u32; LIST_COUNT] {
        self.lists
    }

    pub fn lists_used(&self) -> u32 {
        self.lists_used
    }
}

const _: () = assert!(ROOM_BITS_INLINE == 128, "a record holds two words of room bits");
