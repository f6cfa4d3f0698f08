//! Sketch of what prefixes without a line of their own take together: enough to detect when one of them has
//! become large.
//!
//! ```text
//!   3 rows of 512 cells; a prefix has one cell in each row, and a sign       (a count sketch)
//!   cell   [bytes i64][keys i32][volatile i32]        16 B x 1536 = 24.6 KB
//! ```
//! Everything that a prefix takes is added to its cells under its sign. Others' share in a cell has either
//! sign, so it is 0 in the mean, and its spread follows from the row itself: the root of the sum of its
//! squares, over the root of 512. The middle one of three rows is the estimate. Adding and taking off
//! commute: what was put in comes out again.

use super::prefixes::Sums;

const ROWS: usize = 3;
const COLUMN_BITS: u32 = 9;
const COLUMNS: usize = 1 << COLUMN_BITS;

#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
struct Cell {
    bytes: i64,
    keys: i32,
    volatile: i32,
}

pub(crate) struct Sketch {
    cells: Box<[[Cell; COLUMNS]; ROWS]>,
    /// Sums of the squares of a row's cells: of bytes, and of keys.
    squares: [[i128; 2]; ROWS],
}

pub(crate) const SKETCH_BYTES: usize = ROWS * COLUMNS * size_of::<Cell>();

/// The spread of an estimate: one standard deviation.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Spread {
    pub keys: i64,
    pub bytes: i64,
}

impl Default for Sketch {
    fn default() -> Sketch {
        Sketch { cells: Box::new([[Cell::default(); COLUMNS]; ROWS]), squares: [[0; 2]; ROWS] }
    }
}

/// The column of a prefix in a row, and its sign there.
#[inline]
fn place(hash: u64, row: usize) -> (usize, i64) {
    let column = hash >> (COLUMN_BITS as usize * row) & (COLUMNS as u64 - 1);
    (column as usize, if hash >> (60 + row) & 1 == 0 { 1 } else { -1 })
}

impl Sketch {
    /// Adds `sums`, or takes them off, with `times` -1.
    pub fn add(&mut self, hash: u64, sums: &Sums, times: i64) {
        for (row, (cells, squares)) in self.cells.iter_mut().zip(&mut self.squares).enumerate() {
            let (column, sign) = place(hash, row);
            let (cell, times) = (&mut cells[column], times * sign);
            let before = *cell;
            cell.bytes = cell.bytes.wrapping_add(sums.bytes * times);
            cell.keys = cell.keys.wrapping_add((sums.keys * times) as i32);
            cell.volatile = cell.volatile.wrapping_add((sums.volatile * times) as i32);
            let grown = |now: i64, before: i64| i128::from(now).pow(2) - i128::from(before).pow(2);
            squares[0] += grown(cell.bytes, before.bytes);
            squares[1] += grown(cell.keys.into(), before.keys.into());
        }
    }

    /// Returns the sums of a prefix, about.
    pub fn estimate(&self, hash: u64) -> Sums {
        let seen: [[i64; 3]; ROWS] = std::array::from_fn(|row| {
            let (column, sign) = place(hash, row);
            let cell = self.cells[row][column];
            [cell.keys.into(), cell.volatile.into(), cell.bytes].map(|sum: i64| sum * sign)
        });
        let middle = |of: usize| {
            let mut values = seen.map(|row| row[of]);
            values.sort_unstable();
            values[ROWS / 2]
        };
        Sums::estimated(middle(0), middle(1), middle(2))
    }

    pub fn spread(&self) -> Spread {
        let deviation = |of: usize| {
            let mean = self.squares.iter().map(|squares| squares[of]).sum::<i128>() as f64 / ROWS as f64;
            (mean / COLUMNS as f64).sqrt() as i64
        };
        Spread { keys: deviation(1), bytes: deviation(0) }
    }

    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.squares == [[0; 2]; ROWS] && self.cells.iter().flatten().all(|cell| *cell == Cell::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_stdx::Prng;

    #[test]
    fn what_was_put_in_comes_out() {
        let (mut sketch, mut prng) = (Sketch::default(), Prng::new(1));
        let mut all: Vec<(u64, Sums)> = Vec::new();
        for _ in 0..1000 {
            let sums = Sums::estimated(16, 0, 16 * prng.below(1000) as i64);
            all.push((prng.next_u64(), sums));
        }
        all.iter().for_each(|(hash, sums)| sketch.add(*hash, sums, 1));
        assert!(sketch.spread().bytes > 0);
        all.iter().rev().for_each(|(hash, sums)| sketch.add(*hash, sums, -1));
        assert!(sketch.is_empty() && sketch.spread() == Spread::default());
    }

    /// Among many small ones the large one is seen, and estimates are as far off as the spread says.
    #[test]
    fn estimates_are_within_their_spread() {
        let (mut sketch, mut prng) = (Sketch::default(), Prng::new(2));
        let small = Sums::estimated(16, 16, 16 * 60);
        let hashes: Vec<u64> = (0..if cfg!(miri) { 500 } else { 50_000 }).map(|_| prng.next_u64()).collect();
        hashes.iter().for_each(|hash| sketch.add(*hash, &small, 1));
        let large = Sums::estimated(160_000, 0, 9_600_000);
        sketch.add(7, &large, 1);
        let spread = sketch.spread();
        let off = |hash: u64, truth: i64| (sketch.estimate(hash).bytes - truth).abs();
        assert!(off(7, large.bytes) <= 3 * spread.bytes);
        let far = hashes.iter().filter(|&&hash| off(hash, small.bytes) > 2 * spread.bytes).count();
        assert!(far < hashes.len() / 50, "{far} of {} are far off", hashes.len());
    }
}
