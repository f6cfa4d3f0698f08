//! Valkey 7.2 and 8.0: hash tables of entries, where a slot's keys are found by links in the entries, or by a
//! table a slot.
//!
//! ```text
//!   entry   [key 8][value 8][next 8]                                  24 B
//!   7.2     [key 8][value 8][next 8][slot's previous 8][slot's next 8]  40 B: the links are the map
//!   8.0     the plain entry, in one of 16384 tables: what those take beyond a single one is the map
//!   table   [type 8][two arrays 16][two counts 16][rehashing and exponents 16]   56 B and its array of pointers
//! ```
//!
//! Keys and values are the same in both and left out.

use isotherm_stdx::Slot;

use super::nodes::Nodes;

const TABLE_BYTES: usize = 56;
const ENTRY_BYTES: usize = 24;
const LINKS_BYTES: usize = 16;
const NEXT: usize = 16;
const SLOT_NEXT: usize = 32;
const BUCKETS_MIN: usize = 4;

pub struct Tables {
    entries: Nodes,
    tables: Vec<Table>,
    /// Blocks that C allocates for the tables themselves.
    _heads: Vec<Box<[u8]>>,
    entry_bytes: usize,
    /// First entry of each slot, where entries are linked; entry 0 is none.
    first: Vec<u64>,
}

struct Table {
    buckets: Vec<u64>,
    used: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    One,
    OneLinked,
    PerSlot,
}

impl Tables {
    /// `entries` has room for one more than there will be keys.
    pub fn new(kind: Kind, mut entries: Nodes) -> Tables {
        let count = if kind == Kind::PerSlot { Slot::COUNT } else { 1 };
        let entry_bytes = ENTRY_BYTES + if kind == Kind::OneLinked { LINKS_BYTES } else { 0 };
        entries.add(0);
        Tables {
            entries,
            tables: (0..count).map(|_| Table { buckets: Vec::new(), used: 0 }).collect(),
            _heads: vec![vec![0; TABLE_BYTES].into_boxed_slice(); count],
            entry_bytes,
            first: if kind == Kind::OneLinked { vec![0; Slot::COUNT] } else { Vec::new() },
        }
    }

    pub fn len(&self) -> usize {
        self.entries.len() - 1
    }

    pub fn insert(&mut self, slot: u16, hash: u64) {
        let number = usize::from(slot) % self.tables.len();
        let entry = self.entries.add(self.entry_bytes);
        // The key's address stands for the key; here its hash does, to find its bucket again.
        self.entries.set_pointer(entry, 0, hash);
        self.make_room(number);
        let table = &mut self.tables[number];
        let bucket = hash as usize & (table.buckets.len() - 1);
        self.entries.set_pointer(entry, NEXT, table.buckets[bucket]);
        table.buckets[bucket] = entry;
        table.used += 1;
        if let Some(first) = self.first.get_mut(usize::from(slot)) {
            self.entries.set_pointer(entry, SLOT_NEXT, *first);
            *first = entry;
        }
    }

    /// A full table doubles. (Both arrays are there while that is done step by step; here it is done at
    /// once.)
    fn make_room(&mut self, number: usize) {
        let table = &mut self.tables[number];
        if table.used < table.buckets.len() {
            return;
        }
        let old = std::mem::replace(&mut table.buckets, vec![0; (2 * table.used).max(BUCKETS_MIN)]);
        for mut entry in old {
            while entry != 0 {
                let next = self.entries.pointer(entry, NEXT);
                let bucket = self.entries.pointer(entry, 0) as usize & (table.buckets.len() - 1);
                self.entries.set_pointer(entry, NEXT, table.buckets[bucket]);
                table.buckets[bucket] = entry;
                entry = next;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_stdx::Prng;

    #[test]
    fn every_entry_stays_in_a_chain() {
        for kind in [Kind::One, Kind::OneLinked, Kind::PerSlot] {
            let mut tables = Tables::new(kind, Nodes::new(50_001));
            let mut prng = Prng::new(2);
            (0..50_000).for_each(|_| tables.insert(prng.below(16384) as u16, prng.next_u64()));
            let mut seen = 0;
            for start in tables.tables.iter().flat_map(|table| &table.buckets) {
                let mut entry = *start;
                while entry != 0 {
                    seen += 1;
                    entry = tables.entries.pointer(entry, NEXT);
                }
            }
            assert_eq!(seen, tables.len(), "{kind:?}");
        }
    }
}
