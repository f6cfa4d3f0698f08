//! A small set of integers: ascending, all as wide as the widest.
//!
//! ```text
//!   [width u8][integer width B, little endian] x n
//! ```

use crate::layout::entry::{int_bytes, read_int};
use crate::layout::packed::{Element, PackedBuf};

/// Integers as they are stored.
#[derive(Clone, Copy)]
pub(crate) struct Ints<'a> {
    width: usize,
    bytes: &'a [u8],
}

impl<'a> Ints<'a> {
    pub fn new(bytes: &'a [u8]) -> Ints<'a> {
        Ints { width: usize::from(bytes[0]), bytes: &bytes[1..] }
    }
    pub fn len(self) -> usize {
        self.bytes.len() / self.width
    }
    pub fn get(self, index: usize) -> i64 {
        read_int(&self.bytes[index * self.width..(index + 1) * self.width])
    }
    pub fn find(self, int: i64) -> Result<usize, usize> {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = (low + high) / 2;
            match self.get(middle).cmp(&int) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Equal => return Ok(middle),
                std::cmp::Ordering::Greater => high = middle,
            }
        }
        Err(low)
    }
}

/// Fills `buf` with the integers as elements, for a change.
pub(crate) fn load_ints(bytes: &[u8], buf: &mut PackedBuf) {
    let ints = Ints::new(bytes);
    buf.clear(1);
    (0..ints.len()).for_each(|at| buf.push(Element::Int(ints.get(at))));
}

pub(crate) fn encode_ints(buf: &PackedBuf, out: &mut Vec<u8>) {
    let int_of = |element| match element {
        Element::Int(int) => int,
        Element::Bytes(_) => unreachable!("a set of integers has nothing else"),
    };
    let ints = || buf.view().cells().map(|cell| int_of(cell.element()));
    let width = ints().map(int_bytes).max().unwrap_or(1);
    out.clear();
    out.push(width as u8);
    ints().for_each(|int| out.extend_from_slice(&int.to_le_bytes()[..width]));
}

/// Members of a packed set of integers.
#[inline]
pub(crate) fn packed_ints_len(bytes: &[u8]) -> usize {
    Ints::new(bytes).len()
}
