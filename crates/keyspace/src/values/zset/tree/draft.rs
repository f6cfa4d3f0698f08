//! A leaf taken apart, to be written anew: split in two, merged with another, or in another form.

use super::leaf::{self, Cell, EVEN_LONG, EVEN_NONE, Form, LONG, Leaf, MEMBERS_MAX, cell_bytes};
use std::ops::Range;

/// Members of a draft: one more than a leaf holds, the one that makes it split.
const DRAFT_MAX: usize = MEMBERS_MAX + 1;
/// Members of a full leaf that gets one more, or of two that are merged.
const AREA_BYTES: usize = 2048;

pub(super) struct Draft {
    len: usize,
    area_len: usize,
    scores: [u64; DRAFT_MAX],
    tags: [u8; DRAFT_MAX],
    area: [u8; AREA_BYTES],
}

impl Draft {
    pub fn new() -> Draft {
        Draft { len: 0, area_len: 0, scores: [0; DRAFT_MAX], tags: [0; DRAFT_MAX], area: [0; AREA_BYTES] }
    }

    pub fn of(leaf: &Leaf<'_>) -> Draft {
        let mut draft = Draft::new();
        draft.append(leaf);
        draft
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn append(&mut self, leaf: &Leaf<'_>) {
        for (index, cell) in leaf.cells().enumerate() {
            self.scores[self.len] = leaf.bits(index);
            self.tags[self.len] = cell.tag;
            self.area[self.area_len..self.area_len + cell.raw.len()].copy_from_slice(cell.raw);
            self.area_len += cell.raw.len();
            self.len += 1;
        }
    }

    pub fn insert(&mut self, index: usize, bits: u64, cell: Cell<'_>) {
        let place = self.place(index);
        self.scores.copy_within(index..self.len, index + 1);
        self.scores[index] = bits;
        self.tags.copy_within(index..self.len, index + 1);
        self.tags[index] = cell.tag;
        self.area.copy_within(place..self.area_len, place + cell.raw.len());
        self.area[place..place + cell.raw.len()].copy_from_slice(cell.raw);
        self.area_len += cell.raw.len();
        self.len += 1;
    }

    pub fn bits(&self, index: usize) -> u64 {
        self.scores[index]
    }

    fn place(&self, index: usize) -> usize {
        self.tags[..index].iter().map(|&tag| cell_bytes(tag)).sum()
    }

    /// Returns the index at which to cut so that the halves have nearly equal bytes: neither is empty.
    pub fn middle(&self) -> usize {
        debug_assert!(self.len >= 2);
        let half = (self.area_len + 8 * self.len) / 2;
        let mut bytes = 0;
        let middle = self.tags[..self.len].iter().position(|&tag| {
            bytes += cell_bytes(tag) + 8;
            bytes > half
        });
        middle.unwrap_or(self.len).clamp(1, self.len - 1)
    }

    /// The tightest form for a range of members.
    pub fn form(&self, range: Range<usize>) -> Form {
        let (scores, tags) = (&self.scores[range.clone()], &self.tags[range]);
        let (mut all, mut any, mut differ) = (u64::MAX, 0, 0);
        for &bits in scores {
            all &= bits;
            any |= bits;
            differ |= bits ^ scores[0];
        }
        let lead = (differ.leading_zeros() / 8) as usize;
        let (zeros, ones) = (any.trailing_zeros() as usize / 8, all.trailing_ones() as usize / 8);
        // Three bits of form: a score that is all zeros would be a NaN.
        let trail = zeros.max(ones).min(8 - lead).min(7);
        let even = match tags {
            [first, rest @ ..] if *first != LONG && rest.iter().all(|tag| tag == first) => *first,
            _ if tags.contains(&LONG) => EVEN_LONG,
            _ => EVEN_NONE,
        };
        Form { lead, trail, ones: ones > zeros, even }
    }

    pub fn size(&self, range: Range<usize>) -> usize {
        let member_bytes = self.place(range.end) - self.place(range.start);
        self.form(range.clone()).size(range.len(), member_bytes)
    }

    /// Writes a range of the members to a leaf with room for `size(range)`.
    pub fn write(&self, range: Range<usize>, bytes: &mut [u8]) {
        let area = &self.area[self.place(range.start)..self.place(range.end)];
        let form = self.form(range.clone());
        leaf::write(bytes, form, &self.scores[range.clone()], &self.tags[range], area);
    }
}
