//! A block of a list: elements in a row, and what each one is in a column that grows towards them.
//!
//! ```text
//!   0             4        8           9         10          12          14        16         18        20
//!   [object u32][id u32][version u8][flags u8][count u16][start u16][end u16][room u16][dead u16][tag u8][-][stamp u16]
//!                                                                                                     21  22   24 B
//!
//!   [head 24][ freed ][data ............][ room to grow ][tag n-1]..[tag 1][tag 0][freed]
//!            24      start              end                                       room - dead
//!
//!   flags  bit 0  reversed: the last element lies first, so that a push to the front is an append too
//!          bit 1  uniform: all tags are `tag`, and there is no column
//!          bit 7  not in memory: the node is a stub (see `values::nodes`)
//!   stamp  when it was changed last (see `layout::last_used`)
//!   tag    as in `packed`; a long string (255) has its length (u16) before and behind it, so that it is met from
//!          either side
//! ```
//!
//! Appending moves nothing, and taking from either end moves nothing: `start` and `dead` go up. Bytes freed
//! in this way come back when the block is laid out anew (`lay_out`).
//!
//! Blocks end at 7680 B: 17 of them fill a slab of 128 KB to 0.3 %, which 8 KB would miss by 6 %. Of 16-byte
//! elements, all equally long: (7680 - 24) / 16 = 478 in a block, 16.07 B each.

use crate::layout::packed::{Coded, Element, LONG_TAG, fixed_bytes};
use isotherm_stdx::steps;

pub(super) const HEAD_BYTES: usize = 24;
pub(super) const BLOCK_BYTES_MAX: usize = 7680;
/// Elements of a block. Small numbers have no data at all, and a place is found by adding up what is before
/// it.
pub(super) const BLOCK_ELEMENTS_MAX: usize = 2048;
/// Data of one element that a block can hold; above it the element lies alone, in the global allocator.
pub(super) const DATA_BYTES_MAX: usize = BLOCK_BYTES_MAX - HEAD_BYTES - 1;
const LONG_LENGTHS_BYTES: usize = 4;

/// Offset of the flags. The bytes in front belong to the node.
const FLAGS: usize = 9;
const STAMP: usize = 22;
const REVERSED: u8 = 1;
const UNIFORM: u8 = 2;

const _: () = assert!(BLOCK_BYTES_MAX <= isotherm_arena::OBJECT_BYTES_MAX);
const _: () =
    assert!(isotherm_arena::class_bytes(isotherm_arena::Kind::Node, BLOCK_BYTES_MAX) == BLOCK_BYTES_MAX);

/// Bytes of data that an element takes in a block.
#[inline]
pub(super) fn data_bytes(coded: &Coded<'_>) -> usize {
    coded.body().len() + if coded.tag() == LONG_TAG { LONG_LENGTHS_BYTES } else { 0 }
}

/// A block to read.
#[derive(Clone, Copy)]
pub(super) struct Block<'a>(pub &'a [u8]);

/// An element's place in a block: its tag, and where its data lie.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Cell {
    pub tag: u8,
    pub from: usize,
    pub to: usize,
}

impl<'a> Block<'a> {
    #[inline]
    fn u16(self, at: usize) -> usize {
        usize::from(u16::from_le_bytes([self.0[at], self.0[at + 1]]))
    }
    pub fn is_reversed(self) -> bool {
        self.0[9] & REVERSED != 0
    }
    #[inline]
    pub fn is_uniform(self) -> bool {
        self.0[9] & UNIFORM != 0
    }
    #[inline]
    pub fn count(self) -> usize {
        self.u16(10)
    }
    #[inline]
    pub fn start(self) -> usize {
        self.u16(12)
    }
    #[inline]
    pub fn end(self) -> usize {
        self.u16(14)
    }
    #[inline]
    pub fn room(self) -> usize {
        self.u16(16)
    }
    #[inline]
    pub fn dead(self) -> usize {
        self.u16(18)
    }
    pub fn stamp(self) -> u16 {
        self.u16(STAMP) as u16
    }
    #[inline]
    fn common_tag(self) -> u8 {
        self.0[20]
    }
    /// Bytes of the column in use.
    #[inline]
    fn column(self) -> usize {
        if self.is_uniform() { 0 } else { self.count() }
    }
    /// Bytes that the block would have if it was laid out anew.
    pub fn bytes(self) -> usize {
        HEAD_BYTES + self.end() - self.start() + self.column()
    }
    /// Bytes between the data and the column.
    #[inline]
    fn gap(self) -> usize {
        self.room() - self.dead() - self.column() - self.end()
    }

    /// The tag of the element that lies `index`-th.
    #[inline]
    fn tag(self, index: usize) -> u8 {
        if self.is_uniform() { self.common_tag() } else { self.0[self.room() - 1 - self.dead() - index] }
    }

    /// The tags, the last one first; of a uniform block none.
    #[inline]
    fn tags(self) -> &'a [u8] {
        let end = self.room() - self.dead();
        &self.0[end - self.column()..end]
    }

    #[inline]
    fn data_bytes_at(self, tag: u8, at: usize) -> usize {
        if tag == LONG_TAG { self.u16(at) + LONG_LENGTHS_BYTES } else { fixed_bytes(tag) }
    }

    /// Returns the index of an element in the block's own order, in which the elements lie.
    #[inline]
    fn lying(self, index: usize) -> usize {
        if self.is_reversed() { self.count() - 1 - index } else { index }
    }

    /// Element `index` of the list's order.
    #[inline]
    pub fn get(self, index: usize) -> Cell {
        self.lying_cell(self.lying(index))
    }

    fn lying_cell(self, index: usize) -> Cell {
        if self.is_uniform() {
            let len = fixed_bytes(self.common_tag());
            let from = self.start() + index * len;
            return Cell { tag: self.common_tag(), from, to: from + len };
        }
        let tags = self.tags();
        let last = tags.len() - 1;
        let tag = tags[last - index];
        steps::note(index.min(last - index) as u64 + 1);
        if index > last / 2 {
            let mut to = self.end();
            for (&tag, _) in tags.iter().zip(index..last) {
                to -= self.data_bytes_before(tag, to);
            }
            return Cell { tag, from: to - self.data_bytes_before(tag, to), to };
        }
        let mut from = self.start();
        for &tag in tags[last + 1 - index..].iter().rev() {
            from += self.data_bytes_at(tag, from);
        }
        Cell { tag, from, to: from + self.data_bytes_at(tag, from) }
    }

    #[inline]
    fn data_bytes_before(self, tag: u8, to: usize) -> usize {
        if tag == LONG_TAG { self.u16(to - 2) + LONG_LENGTHS_BYTES } else { fixed_bytes(tag) }
    }

    #[inline]
    pub fn element(self, cell: Cell) -> Element<'a> {
        let data = &self.0[cell.from..cell.to];
        if cell.tag == LONG_TAG {
            Element::Bytes(&data[2..data.len() - 2])
        } else {
            Element::decode(cell.tag, data)
        }
    }

    /// The cell of the next element of the list's order.
    #[inline]
    pub fn next(self, index: usize, cell: Cell) -> Option<Cell> {
        if index + 1 == self.count() {
            return None;
        }
        Some(if self.is_reversed() {
            self.cell_left_of(index + 1, cell)
        } else {
            self.cell_right_of(index + 1, cell)
        })
    }

    /// The cell of the element before, in the list's order.
    #[inline]
    pub fn previous(self, index: usize, cell: Cell) -> Option<Cell> {
        if index == 0 {
            return None;
        }
        Some(if self.is_reversed() {
            self.cell_right_of(index - 1, cell)
        } else {
            self.cell_left_of(index - 1, cell)
        })
    }

    #[inline]
    fn cell_right_of(self, index: usize, cell: Cell) -> Cell {
        let (tag, from) = (self.tag(self.lying(index)), cell.to);
        Cell { tag, from, to: from + self.data_bytes_at(tag, from) }
    }

    #[inline]
    fn cell_left_of(self, index: usize, cell: Cell) -> Cell {
        let (tag, to) = (self.tag(self.lying(index)), cell.from);
        Cell { tag, from: to - self.data_bytes_before(tag, to), to }
    }

    /// All cells in the list's order.
    pub fn cells(self) -> impl Iterator<Item = Cell> {
        let mut next = (self.count() > 0).then(|| (0, self.get(0)));
        std::iter::from_fn(move || {
            let (index, cell) = next?;
            next = self.next(index, cell).map(|cell| (index + 1, cell));
            Some(cell)
        })
    }

    /// Returns whether the element at a cell is the wanted one.
    #[inline]
    pub fn is(self, cell: Cell, wanted: &Coded<'_>) -> bool {
        if cell.tag != wanted.tag() {
            return false;
        }
        let data = &self.0[cell.from..cell.to];
        if cell.tag == LONG_TAG { &data[2..data.len() - 2] == wanted.body() } else { data == wanted.body() }
    }

    /// Returns whether an element can be put at the end of the block's own order without laying out the block
    /// anew.
    #[inline]
    pub fn has_gap_for(self, coded: &Coded<'_>) -> bool {
        let count = self.count();
        let tags = if self.is_uniform() && self.keeps_uniform(coded) { 0 } else { count + 1 - self.column() };
        self.gap() >= tags + data_bytes(coded)
    }

    /// Bytes of the block, laid out anew, with one more element.
    pub fn bytes_with(self, coded: &Coded<'_>) -> usize {
        let column = if self.is_uniform() && self.keeps_uniform(coded) { 0 } else { self.count() + 1 };
        HEAD_BYTES + self.end() - self.start() + column + data_bytes(coded)
    }

    #[inline]
    fn keeps_uniform(self, coded: &Coded<'_>) -> bool {
        coded.tag() == self.common_tag() || self.count() == 0 && coded.tag() != LONG_TAG
    }

    /// Returns whether an element can be put at the beginning of the block's own order without laying out the
    /// block anew.
    pub fn has_front_for(self, coded: &Coded<'_>) -> bool {
        let tag_fits = if self.is_uniform() { coded.tag() == self.common_tag() } else { self.dead() > 0 };
        tag_fits && self.start() - HEAD_BYTES >= data_bytes(coded)
    }

    pub fn check_invariants(self) {
        assert!(self.count() > 0, "a block without elements is freed");
        assert!(HEAD_BYTES <= self.start() && self.start() <= self.end());
        assert!(self.end() + self.column() + self.dead() <= self.room() && self.room() == self.0.len());
        assert!(
            !(self.is_uniform() && self.common_tag() == LONG_TAG),
            "long strings are not all equally long"
        );
        let mut at = self.start();
        for index in 0..self.count() {
            let tag = self.tag(index);
            let cell = self.lying_cell(index);
            assert_eq!(cell, Cell { tag, from: at, to: at + self.data_bytes_at(tag, at) });
            assert_eq!(at, cell.to - self.data_bytes_before(tag, cell.to));
            at = cell.to;
        }
        assert_eq!(at, self.end());
    }
}

// ---- changing ----

#[inline]
fn set_u16(block: &mut [u8], at: usize, value: usize) {
    block[at..at + 2].copy_from_slice(&(value as u16).to_le_bytes());
}

#[inline]
pub(super) fn set_stamp(block: &mut [u8], stamp: u16) {
    set_u16(block, STAMP, usize::from(stamp));
}

/// The block laid out anew, as short as may be, without what belongs to its node.
pub(super) fn write_payload(block: Block<'_>, into: &mut Vec<u8>) {
    into.resize(block.bytes(), 0);
    into[..FLAGS].fill(0);
    lay_out(block.0, into);
    set_stamp(into, 0);
}

/// The elements of a payload. `None` if it is none.
pub(super) fn of_payload(payload: &[u8]) -> Option<Block<'_>> {
    let block = Block(payload);
    (payload.len() >= HEAD_BYTES && block.room() == payload.len()).then_some(block)
}

/// Makes an empty block of the bytes after the common head; `block` is the whole room.
pub(super) fn init(block: &mut [u8], reversed: bool, stamp: u16) {
    let room = block.len();
    block[9] = UNIFORM | if reversed { REVERSED } else { 0 };
    set_u16(block, 10, 0);
    set_u16(block, 12, HEAD_BYTES);
    set_u16(block, 14, HEAD_BYTES);
    set_u16(block, 16, room);
    set_u16(block, 18, 0);
    block[20..STAMP].fill(0);
    set_stamp(block, stamp);
}

/// Writes the column out, so that the next tag may be another one. There is room for it.
fn open_column(block: &mut [u8]) {
    let view = Block(block);
    let (count, room, tag) = (view.count(), view.room(), view.common_tag());
    block[9] &= !UNIFORM;
    set_u16(block, 18, 0);
    block[room - count..room].fill(tag);
}

fn write_data(target: &mut [u8], coded: &Coded<'_>) {
    let (len, body) = (target.len(), coded.body());
    if coded.tag() == LONG_TAG {
        set_u16(target, 0, body.len());
        target[2..len - 2].copy_from_slice(body);
        set_u16(target, len - 2, body.len());
    } else {
        target.copy_from_slice(body);
    }
}

/// Puts an element at the end of the block's own order: the list's front if it is reversed. `has_gap_for` it.
#[inline]
pub(super) fn append(block: &mut [u8], coded: &Coded<'_>) {
    let view = Block(block);
    let (count, end) = (view.count(), view.end());
    if view.is_uniform() {
        if view.keeps_uniform(coded) {
            block[20] = coded.tag();
        } else {
            open_column(block);
        }
    }
    let view = Block(block);
    if !view.is_uniform() {
        let at = view.room() - 1 - view.dead() - count;
        block[at] = coded.tag();
    }
    let new_end = end + data_bytes(coded);
    write_data(&mut block[end..new_end], coded);
    set_u16(block, 10, count + 1);
    set_u16(block, 14, new_end);
}

/// Puts an element at the beginning of the block's own order. `has_front_for` it.
pub(super) fn prepend(block: &mut [u8], coded: &Coded<'_>) {
    let view = Block(block);
    let (count, start, dead) = (view.count(), view.start(), view.dead());
    if !view.is_uniform() {
        let at = view.room() - dead;
        block[at] = coded.tag();
        set_u16(block, 18, dead - 1);
    }
    let new_start = start - data_bytes(coded);
    write_data(&mut block[new_start..start], coded);
    set_u16(block, 10, count + 1);
    set_u16(block, 12, new_start);
}

/// Takes `count` elements, not all of them, from one end of the list's order.
pub(super) fn drop_end(block: &mut [u8], from_front: bool, count: usize) {
    let view = Block(block);
    let left = view.count() - count;
    debug_assert!(count > 0 && left > 0);
    if from_front != view.is_reversed() {
        let start = view.lying_cell(count).from;
        set_u16(block, 12, start);
        if !Block(block).is_uniform() {
            let dead = Block(block).dead() + count;
            set_u16(block, 18, dead);
        }
    } else {
        let end = view.lying_cell(left - 1).to;
        set_u16(block, 14, end);
    }
    set_u16(block, 10, left);
}

/// Writes an element over another that has the same tag, and so the same length. Not of a long string.
pub(super) fn overwrite(block: &mut [u8], cell: Cell, coded: &Coded<'_>) {
    debug_assert!(cell.tag == coded.tag() && cell.tag != LONG_TAG);
    block[cell.from..cell.to].copy_from_slice(coded.body());
}

/// Copies the elements of `old` into `new`, an area of another size (its common head written), without freed
/// bytes.
pub(super) fn lay_out(old: &[u8], new: &mut [u8]) {
    let view = Block(old);
    init(new, view.is_reversed(), view.stamp());
    let (count, data, tags) = (view.count(), &old[view.start()..view.end()], view.tags());
    let room = new.len();
    let end = HEAD_BYTES + data.len();
    new[HEAD_BYTES..end].copy_from_slice(data);
    if view.is_uniform() {
        new[20] = view.common_tag();
    } else {
        new[9] &= !UNIFORM;
        new[room - tags.len()..].copy_from_slice(tags);
    }
    set_u16(new, 10, count);
    set_u16(new, 14, end);
}

/// Elements of a block to come, in the list's order: copies of their data.
#[derive(Default)]
pub(super) struct Draft {
    tags: Vec<u8>,
    data: Vec<u8>,
}

impl Draft {
    pub fn len(&self) -> usize {
        self.tags.len()
    }

    pub fn push_cell(&mut self, block: Block<'_>, cell: Cell) {
        self.tags.push(cell.tag);
        self.data.extend_from_slice(&block.0[cell.from..cell.to]);
    }

    pub fn push(&mut self, coded: &Coded<'_>) {
        self.tags.push(coded.tag());
        let from = self.data.len();
        self.data.resize(from + data_bytes(coded), 0);
        write_data(&mut self.data[from..], coded);
    }

    fn is_uniform(&self) -> bool {
        self.tags[0] != LONG_TAG && self.tags.iter().all(|&tag| tag == self.tags[0])
    }

    /// Bytes of the block.
    pub fn bytes(&self) -> usize {
        HEAD_BYTES + self.data.len() + if self.is_uniform() { 0 } else { self.tags.len() }
    }

    /// Makes `block`, its common head written, of these elements.
    pub fn write(&self, block: &mut [u8], stamp: u16) {
        init(block, false, stamp);
        let (room, end) = (block.len(), HEAD_BYTES + self.data.len());
        block[HEAD_BYTES..end].copy_from_slice(&self.data);
        if self.is_uniform() {
            block[20] = self.tags[0];
        } else {
            block[9] &= !UNIFORM;
            block[room - self.tags.len()..].iter_mut().rev().zip(&self.tags).for_each(|(to, tag)| *to = *tag);
        }
        set_u16(block, 10, self.tags.len());
        set_u16(block, 14, end);
    }

    /// Two drafts of about the same bytes; both have elements, because this one has two at least.
    pub fn split(&self) -> [Draft; 2] {
        let (mut at, mut index) = (0, 0);
        while index < self.tags.len() - 1
            && (index == 0 || at + index < (self.data.len() + self.tags.len()) / 2)
        {
            let tag = self.tags[index];
            at += if tag == LONG_TAG {
                usize::from(u16::from_le_bytes([self.data[at], self.data[at + 1]])) + LONG_LENGTHS_BYTES
            } else {
                fixed_bytes(tag)
            };
            index += 1;
        }
        [
            Draft { tags: self.tags[..index].to_vec(), data: self.data[..at].to_vec() },
            Draft { tags: self.tags[index..].to_vec(), data: self.data[at..].to_vec() },
        ]
    }
}
