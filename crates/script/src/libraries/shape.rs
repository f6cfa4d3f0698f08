//! Shape of a walked table, as its keys decide it: an array, up to some length, or a map.
//!
//! The walker has counted the entries, and knows whether the keys are 1, 2, 3, .... Only if all are numbers
//! and some are out of place, one pass over the table looks at each key. It skips each value in one step.

use super::args::{after, entries_at, f64_at};
use super::numbers::int_of;
use crate::tape::WALKED_HEAD;
use crate::tape::tags::{NUMBERED, TABLE_END, VALUES};

#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub entries: u32,
    /// The largest key as an `int` of C sees it, if all keys are whole numbers from 1: one that does not fit
    /// is the smallest `int`, and the next replaces it.
    pub max: i32,
    /// All keys are whole numbers from 1.
    pub whole: bool,
    /// And all fit into an `int`.
    pub fits: bool,
    /// The keys are 1, 2, 3, ... in this order.
    pub in_order: bool,
}

impl Shape {
    /// Returns the shape of the table whose head stands at `at`.
    #[inline]
    pub fn of(tape: &[u8], at: usize) -> Shape {
        let entries = entries_at(tape, at);
        let of_values = Shape { entries, max: entries as i32, whole: true, fits: true, in_order: true };
        match tape[at] {
            VALUES => of_values,
            NUMBERED => Shape::of_numbers(tape, at + WALKED_HEAD),
            _ => Shape { max: 0, whole: false, in_order: false, ..of_values },
        }
    }

    fn of_numbers(tape: &[u8], mut at: usize) -> Shape {
        let mut shape = Shape { entries: 0, max: 0, whole: true, fits: true, in_order: true };
        while tape[at] != TABLE_END {
            shape.add(f64_at(tape, at + 1));
            at = after(tape, after(tape, at));
        }
        shape
    }

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
}
