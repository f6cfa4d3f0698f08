//! The shapes of the tables on a tape: where each ends, how many entries it has, whether its keys are those of an array.
//!
//! Whether a table is an array or a map depends on all its keys, which stand between its values. One pass over the tape finds the shapes of a
//! table and of all below it, in the order in which they begin; the encoders then never look at an item twice.
//!
//! ```text
//! tape    table 1 table "a" 1 end 2 table end end
//! shapes  [0] 1..      [1] "a"          [2]             next of [0] is 3, of [1] is 2
//! ```

use super::args::{f64_at, item_len};
use super::numbers::int_of;
use crate::tape::tags::{NUMBER, TABLE, TABLE_END};

#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Behind the end of the table.
    pub end: usize,
    /// The number of the first table that begins behind it.
    pub next: u32,
    pub entries: u32,
    /// The largest key as an `int` of C sees it, if all keys are whole numbers from 1: one that does not fit is the smallest
    /// `int`, and the next replaces it.
    pub max: i32,
    /// All keys are whole numbers from 1.
    pub whole: bool,
    /// And all fit into an `int`.
    pub fits: bool,
    /// They are 1, 2, 3, ... in this order.
    pub in_order: bool,
}

/// Shapes of one table and those below it.
#[derive(Default)]
pub struct Shapes {
    shapes: Vec<Shape>,
    open: Vec<Open>,
}

/// A table whose end is to come.
struct Open {
    shape: u32,
    /// The next item is a key.
    at_key: bool,
}

impl Shapes {
    /// Of the table that begins at `at`, which gets the number 0.
    pub fn measure(&mut self, tape: &[u8], mut at: usize) {
        self.shapes.clear();
        self.open.clear();
        self.begin();
        at += item_len(tape, at);
        while let Some(open) = self.open.last_mut() {
            if tape[at] == TABLE_END {
                at += 1;
                self.end(at);
                continue;
            }
            if open.at_key {
                let shape = &mut self.shapes[open.shape as usize];
                match tape[at] {
                    NUMBER => shape.add(f64_at(tape, at + 1)),
                    _ => shape.add_other(),
                }
            }
            open.at_key = !open.at_key;
            if tape[at] == TABLE {
                self.begin();
            }
            at += item_len(tape, at);
        }
    }

    fn begin(&mut self) {
        self.open.push(Open { shape: self.shapes.len() as u32, at_key: true });
        self.shapes.push(Shape {
            end: 0,
            next: 0,
            entries: 0,
            max: 0,
            whole: true,
            fits: true,
            in_order: true,
        });
    }

    fn end(&mut self, at: usize) {
        let open = self.open.pop().expect("a table is open");
        let next = self.shapes.len() as u32;
        let shape = &mut self.shapes[open.shape as usize];
        shape.end = at;
        shape.next = next;
    }

    pub fn get(&self, number: u32) -> &Shape {
        &self.shapes[number as usize]
    }

    pub fn shrink(&mut self) {
        super::shrink(&mut self.shapes);
        super::shrink(&mut self.open);
    }
}

impl Shape {
    fn add(&mut self, key: f64) {
        self.entries += 1;
        if key == f64::from(self.entries) && self.in_order {
            self.max = self.entries as i32;
            return;
        }
        self.in_order = false;
        if !(key.floor() == key && key >= 1.0) {
            self.whole = false;
            return;
        }
        self.fits &= key <= f64::from(i32::MAX);
        if key > f64::from(self.max) {
            self.max = int_of(key);
        }
    }

    fn add_other(&mut self) {
        self.entries += 1;
        self.in_order = false;
        self.whole = false;
    }
}
