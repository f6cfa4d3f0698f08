//! The invariants of an arena, recomputed from the records.

use crate::class::{CLASS_COUNT, ORDERS, SHAPES};
use crate::heap::{ClassState, Heap, LIST_COUNT};
use crate::reserve::Region;
use crate::slab::{NO_LIST, Place, room_word, state};

impl Heap {
    pub fn check_invariants(&self, memory: &Region, live_bytes: u64) {
        self.pool.check_invariants(&self.table);
        let mut slabs = [[0u32; ORDERS]; CLASS_COUNT];
        let mut live = [0u32; CLASS_COUNT];
        let mut free = [0u64; CLASS_COUNT];
        let mut evacuating = None;
        let mut chunk = 0;
        while chunk < self.pool.frontier() {
            let record = self.table.get(chunk);
            if !matches!(record.state, state::SLAB | state::EVACUATING) {
                assert!(record.state != state::SLAB_REST, "a part of a slab without its first chunk");
                assert_eq!(record.state == state::NEVER, chunk == 0);
                chunk += 1;
                continue;
            }
            let shape = &SHAPES[record.shape as usize];
            let class = shape.class as usize;
            assert!(chunk.is_multiple_of(1 << shape.order), "a slab is aligned to its size");
            for rest in chunk + 1..chunk + (1 << shape.order) {
                assert_eq!(self.table.get(rest).state, state::SLAB_REST);
                assert_eq!(self.table.get(rest).shape, record.shape);
            }
            let room: u32 = (0..shape.room_words())
                .map(|word| room_word(&self.table, memory, chunk, shape, word).count_ones())
                .sum();
            assert_eq!(room, (shape.count - record.live) as u32, "room bits and the live count differ");
            assert!(record.live > self.hot_in(class, chunk), "an empty slab was kept");
            if record.state == state::EVACUATING {
                assert!(evacuating.replace(chunk).is_none() && record.list == NO_LIST);
            } else {
                let list = Heap::list_of(shape, record.live);
                assert_eq!(record.list, list, "a slab is in the wrong list");
            }
            slabs[class][shape.order as usize] += 1;
            live[class] += (record.live - self.hot_in(class, chunk)) as u32;
            free[class] += room as u64 + self.hot_in(class, chunk) as u64;
            chunk += 1 << shape.order;
        }
        assert_eq!(evacuating, self.evacuation.map(|e| e.chunk));
        for class in 0..CLASS_COUNT {
            if slabs[class] == [0; ORDERS] {
                assert!(self.classes[class] == ClassState::default(), "a class without slabs has a state");
                continue;
            }
            assert_eq!(slabs[class], self.classes[class].slabs);
            assert_eq!(live[class], self.classes[class].live);
            assert_eq!(free[class], self.free_objects(class));
            self.check_lists(class);
        }
        let stats = self.stats(memory);
        assert_eq!(stats.live_bytes, live_bytes);
        // Slabs consist of objects, tails and headers; `metadata_bytes` has the headers and the tables.
        let tables = stats.metadata_bytes - self.header_bytes();
        assert_eq!(
            stats.slab_bytes + tables,
            stats.live_bytes + stats.partial_free_bytes + stats.tail_bytes + stats.metadata_bytes
        );
        assert!(stats.slab_bytes + stats.free_slab_bytes <= stats.committed_bytes);
    }

    fn header_bytes(&self) -> u64 {
        let slabs = self.classes.iter().flat_map(|state| state.slabs);
        slabs
            .zip(&SHAPES)
            .filter(|(slabs, _)| *slabs > 0)
            .map(|(slabs, shape)| slabs as u64 * shape.header_bytes() as u64)
            .sum()
    }

    /// 1 if the hot object of the class lies in this slab.
    fn hot_in(&self, class: usize, chunk: u32) -> u16 {
        let hot = self.classes[class].hot;
        u16::from(hot != 0 && Place::of(&self.table, hot).chunk == chunk)
    }

    fn check_lists(&self, class: usize) {
        let state = &self.classes[class];
        if state.hot != 0 {
            let place = Place::of(&self.table, state.hot);
            assert!(place.class() == class && self.table.get(place.chunk).state == state::SLAB);
        }
        for list in 0..LIST_COUNT {
            let (mut chunk, mut previous) = (state.lists()[list], 0);
            assert_eq!(chunk != 0, state.lists_used() >> list & 1 == 1);
            while chunk != 0 {
                let record = self.table.get(chunk);
                assert_eq!((record.state, record.prev), (state::SLAB, previous));
                assert_eq!(
                    (SHAPES[record.shape as usize].class as usize, record.list as usize),
                    (class, list)
                );
                (previous, chunk) = (chunk, record.next);
            }
        }
    }
}
