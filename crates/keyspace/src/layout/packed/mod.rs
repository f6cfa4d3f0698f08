//! A small collection as a byte string: elements in a row, with a byte in front that says what each one is.
//!
//! ```text
//!   [head u8][count u16 if the head says 127][tag x count, or x stride][data ...]
//!
//!   head  bits 0-6  count of elements (127: in the next two bytes)
//!         bit 7     uniform: one tag a column, because all elements of a column have the same
//!   tag   0..=191    a string of that length                    data: the string
//!         192..=200  an integer of 0 to 8 bytes, little endian  data: those bytes (192 alone is 0)
//!         201..=249  the integers 1 to 49                       no data
//!         250        a double (scores)                          data: 8 bytes
//!         255        a string of any length                     data: [len u32][string]
//!
//!   columns: one in a list or set, two in a hash (field, value) or sorted set (member, score)
//! ```
//!
//! A hash of five fields of 6 B with values of 8 B: 1 + 2 + 5 x 14 = 73 B; of one field of 28 B with the
//! value "1": 1 + 2 + 28 = 31 B. Text becomes an integer only if it comes back exactly.
//!
//! A collection is read where it lies ([`Packed`]) and changed on the side ([`PackedBuf`]): tags and data
//! apart, then encoded again, a copy of a kilobyte at most. Foreign bytes go through `PackedBuf` too.

use isotherm_stdx::format::{FormatPart, number};
use isotherm_stdx::number::I64_BYTES_MAX;
use isotherm_stdx::{parse_i64, steps, write_i64};

const UNIFORM: u8 = 0x80;
const COUNT_ELSEWHERE: u8 = 127;
const STRING_TAG_MAX: usize = 191;
const INT_TAG: u8 = 192;
const SMALL_TAG: u8 = 200;
const SMALL_MAX: i64 = 49;
const SCORE_TAG: u8 = 250;
pub(crate) const LONG_TAG: u8 = 255;
const COLUMNS_MAX: usize = 2;

/// Rows of `--layout`.
pub(crate) const FORMAT: FormatPart = (
    "packed collection",
    &[
        ("head: uniform", number(UNIFORM as usize)),
        ("head: count elsewhere", number(COUNT_ELSEWHERE as usize)),
        ("tag: string, last", number(STRING_TAG_MAX)),
        ("tag: integer, first", number(INT_TAG as usize)),
        ("tag: small integer, first", number(SMALL_TAG as usize)),
        ("small integer, largest", number(SMALL_MAX as usize)),
        ("tag: score", number(SCORE_TAG as usize)),
        ("tag: long string", number(LONG_TAG as usize)),
    ],
);

const _: () = assert!(INT_TAG as usize == STRING_TAG_MAX + 1 && INT_TAG + 8 == SMALL_TAG);
const _: () = assert!(SMALL_TAG as i64 + SMALL_MAX < SCORE_TAG as i64);

/// An element as commands see it: text that is a canonical integer comes as a number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Element<'a> {
    Int(i64),
    Bytes(&'a [u8]),
}

/// Room for the text of a number.
pub type TextRoom = [u8; I64_BYTES_MAX];

impl<'a> Element<'a> {
    /// The element that `text` is.
    #[inline]
    pub fn of(text: &'a [u8]) -> Element<'a> {
        match if text.len() <= I64_BYTES_MAX { parse_i64(text) } else { None } {
            Some(int) => Element::Int(int),
            None => Element::Bytes(text),
        }
    }

    /// The element of a tag, not a long one's, and its data.
    #[inline]
    pub(crate) fn decode(tag: u8, data: &'a [u8]) -> Element<'a> {
        Cell { tag, data }.element()
    }

    /// Returns the element's text. The text of a number is written to `room`.
    #[inline]
    pub fn text(self, room: &'a mut TextRoom) -> &'a [u8] {
        match self {
            Element::Int(int) => write_i64(int, room),
            Element::Bytes(bytes) => bytes,
        }
    }

    pub fn to_vec(self) -> Vec<u8> {
        self.text(&mut TextRoom::default()).to_vec()
    }

    /// Bytes of its text.
    pub fn text_len(self) -> usize {
        match self {
            Element::Int(_) => self.text(&mut TextRoom::default()).len(),
            Element::Bytes(bytes) => bytes.len(),
        }
    }

    pub fn is_text(self, text: &[u8]) -> bool {
        match self {
            Element::Int(_) => self.text(&mut TextRoom::default()) == text,
            Element::Bytes(bytes) => bytes == text,
        }
    }
}

/// Encoded element: its tag, and the data bytes that the tag describes.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Cell<'a> {
    tag: u8,
    data: &'a [u8],
}

impl<'a> Cell<'a> {
    /// The element; not of a double.
    #[inline]
    pub fn element(self) -> Element<'a> {
        match self.tag {
            INT_TAG..=249 => Element::Int(self.int()),
            LONG_TAG => Element::Bytes(&self.data[4..]),
            _ => {
                debug_assert_ne!(self.tag, SCORE_TAG, "a score is no element");
                Element::Bytes(self.data)
            }
        }
    }

    /// The score: of a number only.
    #[inline]
    pub fn score(self) -> f64 {
        match self.tag {
            SCORE_TAG => f64::from_le_bytes(self.data.try_into().expect("eight bytes")),
            _ => self.int() as f64,
        }
    }

    #[inline]
    fn int(self) -> i64 {
        match self.tag {
            INT_TAG => 0,
            tag if (INT_TAG..=SMALL_TAG).contains(&tag) => crate::layout::entry::read_int(self.data),
            _ => i64::from(self.tag - SMALL_TAG),
        }
    }
}

/// Encoding of an element to be stored: its tag, and its data. The data of a number lie in `number`; a text
/// stays where it is.
#[derive(Clone, Copy)]
pub(crate) struct Coded<'a> {
    tag: u8,
    number: [u8; 8],
    text: &'a [u8],
}

impl<'a> Coded<'a> {
    #[inline]
    pub fn element(element: Element<'a>) -> Coded<'a> {
        match element {
            Element::Int(int) => Coded::int(int),
            Element::Bytes(text) if text.len() <= STRING_TAG_MAX => {
                Coded { tag: text.len() as u8, number: [0; 8], text }
            }
            Element::Bytes(text) => Coded { tag: LONG_TAG, number: [0; 8], text },
        }
    }

    #[inline]
    pub fn tag(&self) -> u8 {
        self.tag
    }

    /// The bytes of the string or number, without any length.
    #[inline]
    pub fn body(&self) -> &[u8] {
        match self.tag {
            0..=191 | LONG_TAG => self.text,
            tag => &self.number[..fixed_bytes(tag)],
        }
    }

    #[inline]
    fn int(int: i64) -> Coded<'a> {
        let tag = match int {
            0 => INT_TAG,
            1..=SMALL_MAX => SMALL_TAG + int as u8,
            _ => INT_TAG + crate::layout::entry::int_bytes(int) as u8,
        };
        Coded { tag, number: int.to_le_bytes(), text: &[] }
    }

    /// Whole scores take as little as integers; -0 is not whole, because it has a sign.
    fn score(score: f64) -> Coded<'a> {
        let int = score as i64;
        if int as f64 == score && int != i64::MAX && !(int == 0 && score.is_sign_negative()) {
            return Coded::int(int);
        }
        Coded { tag: SCORE_TAG, number: score.to_le_bytes(), text: &[] }
    }

    fn push_to(&self, data: &mut Vec<u8>) {
        match self.tag {
            LONG_TAG => {
                data.extend_from_slice(&(self.text.len() as u32).to_le_bytes());
                data.extend_from_slice(self.text);
            }
            0..=191 => data.extend_from_slice(self.text),
            tag => data.extend_from_slice(&self.number[..fixed_bytes(tag)]),
        }
    }

    /// Writes the data to the beginning of `target`; what is left of it.
    fn write_to<'t>(&self, target: &'t mut [u8]) -> &'t mut [u8] {
        let (own, rest) = target.split_at_mut(self.data_bytes());
        if self.tag == LONG_TAG {
            own[..4].copy_from_slice(&(self.text.len() as u32).to_le_bytes());
            own[4..].copy_from_slice(self.text);
        } else {
            own.copy_from_slice(self.body());
        }
        rest
    }

    fn data_bytes(&self) -> usize {
        if self.tag == LONG_TAG { 4 + self.text.len() } else { fixed_bytes(self.tag) }
    }

    #[inline]
    fn is(&self, cell: Cell<'_>) -> bool {
        // Names begin alike more often than they end alike.
        cell.tag == self.tag
            && match self.tag {
                LONG_TAG => cell.data[4..] == *self.text,
                0..=191 => cell.data.last() == self.text.last() && cell.data == self.text,
                tag => cell.data == &self.number[..fixed_bytes(tag)],
            }
    }
}

/// Bytes of data after a tag other than `LONG_TAG`.
#[inline]
pub(crate) fn fixed_bytes(tag: u8) -> usize {
    match tag {
        0..INT_TAG => usize::from(tag),
        INT_TAG..=SMALL_TAG => usize::from(tag - INT_TAG),
        SCORE_TAG => 8,
        _ => 0,
    }
}

/// Bytes of data after these tags, none of which is `LONG_TAG`.
#[inline]
fn sum_fixed(tags: &[u8]) -> usize {
    tags.iter().map(|&tag| fixed_bytes(tag)).sum()
}

#[inline]
fn data_bytes(tag: u8, data: &[u8]) -> usize {
    if tag == LONG_TAG {
        4 + u32::from_le_bytes(data[..4].try_into().expect("four bytes")) as usize
    } else {
        fixed_bytes(tag)
    }
}

/// A collection to read where it lies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packed<'a> {
    count: usize,
    /// Tags: one for each column if uniform, else one for each element.
    tags: &'a [u8],
    uniform: bool,
    stride: usize,
    data: &'a [u8],
}

impl<'a> Packed<'a> {
    /// `stride`: columns, 1 or 2.
    #[inline]
    pub fn new(bytes: &'a [u8], stride: usize) -> Packed<'a> {
        let head = bytes[0];
        let (mut count, mut at) = (usize::from(head & !UNIFORM), 1);
        if count == usize::from(COUNT_ELSEWHERE) {
            (count, at) = (usize::from(u16::from_le_bytes([bytes[1], bytes[2]])), 3);
        }
        let uniform = head & UNIFORM != 0;
        let tags = if uniform { stride } else { count };
        Packed { count, tags: &bytes[at..at + tags], uniform, stride, data: &bytes[at + tags..] }
    }

    /// Elements, fields and values alike.
    #[inline]
    pub fn len(&self) -> usize {
        self.count
    }

    #[inline]
    pub fn cells(&self) -> Cells<'a> {
        Cells { packed: *self, at: 0, data: self.data }
    }

    /// The column of element `index`. There are one or two: no loop is to wait for a division.
    #[inline]
    fn column(&self, index: usize) -> usize {
        index & (self.stride - 1)
    }

    #[inline]
    fn tag(&self, index: usize) -> u8 {
        self.tags[if self.uniform { self.column(index) } else { index }]
    }

    /// Element `index`: its data follow those of all elements before it.
    #[inline]
    pub fn get(&self, index: usize) -> Option<Cell<'a>> {
        if index >= self.count {
            return None;
        }
        let (tag, data) = (self.tag(index), &self.data[self.offset(index)..]);
        Some(Cell { tag, data: &data[..data_bytes(tag, data)] })
    }

    /// Returns the offset at which the data of element `index` begin, or all data end if there are no more
    /// elements.
    #[inline]
    fn offset(&self, index: usize) -> usize {
        if self.uniform {
            return self.offset_by_rows(index);
        }
        // From the nearer end; the length of a long string stands only in front.
        let behind = &self.tags[index..];
        if behind.len() < index && !behind.contains(&LONG_TAG) {
            return self.data.len() - sum_fixed(behind);
        }
        self.tags[..index].iter().fold(0, |at, &tag| at + data_bytes(tag, &self.data[at..]))
    }

    fn offset_by_rows(&self, index: usize) -> usize {
        if self.tags.contains(&LONG_TAG) {
            return (0..index).fold(0, |at, index| at + data_bytes(self.tag(index), &self.data[at..]));
        }
        let (row, column) = (index >> (self.stride - 1), self.column(index));
        row * sum_fixed(self.tags) + sum_fixed(&self.tags[..column])
    }

    /// The index of an element in column `column`, from row 0 on.
    #[inline]
    pub fn find(&self, column: usize, element: Element<'_>) -> Option<usize> {
        self.find_row(column, element).map(|(index, _)| index)
    }

    /// The index of an element in column `column`, and the cell after it, if there is one.
    pub fn find_row(&self, column: usize, element: Element<'_>) -> Option<(usize, Option<Cell<'a>>)> {
        let wanted = Coded::element(element);
        if self.uniform && self.tags[column] != wanted.tag {
            return None;
        }
        let mut at = 0;
        for index in 0..self.count {
            let tag = self.tag(index);
            let bytes = data_bytes(tag, &self.data[at..]);
            let cell = Cell { tag, data: &self.data[at..at + bytes] };
            at += bytes;
            steps::note(1);
            if self.column(index) == column && wanted.is(cell) {
                let mut rest = Cells { packed: *self, at: index + 1, data: &self.data[at..] };
                return Some((index, rest.next()));
            }
        }
        None
    }
}

impl Packed<'_> {
    /// Returns the position at which an integer belongs among ascending ones.
    pub fn lower_bound(&self, int: i64) -> usize {
        let is_less = |cell: Cell<'_>| matches!(cell.element(), Element::Int(other) if other < int);
        self.cells().position(|cell| !is_less(cell)).unwrap_or(self.count)
    }
}

#[derive(Clone)]
pub(crate) struct Cells<'a> {
    packed: Packed<'a>,
    at: usize,
    data: &'a [u8],
}

impl<'a> Iterator for Cells<'a> {
    type Item = Cell<'a>;

    #[inline]
    fn next(&mut self) -> Option<Cell<'a>> {
        if self.at == self.packed.count {
            return None;
        }
        let tag = self.packed.tag(self.at);
        let (data, rest) = self.data.split_at(data_bytes(tag, self.data));
        self.data = rest;
        self.at += 1;
        Some(Cell { tag, data })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.packed.count - self.at, Some(self.packed.count - self.at))
    }
}

/// A collection to change.
#[derive(Default, Debug, Clone)]
pub(crate) struct PackedBuf {
    stride: usize,
    tags: Vec<u8>,
    data: Vec<u8>,
}

impl PackedBuf {
    pub fn capacity_bytes(&self) -> usize {
        self.tags.capacity() + self.data.capacity()
    }

    /// Empty, whatever it held.
    pub fn clear(&mut self, stride: usize) {
        debug_assert!((1..=COLUMNS_MAX).contains(&stride));
        self.stride = stride;
        self.tags.clear();
        self.data.clear();
    }

    pub fn load(&mut self, bytes: &[u8], stride: usize) {
        self.clear(stride);
        let packed = Packed::new(bytes, stride);
        if packed.uniform {
            self.tags.resize(packed.count, packed.tags[0]);
            let second = packed.tags[stride - 1];
            self.tags.iter_mut().skip(1).step_by(2).for_each(|tag| *tag = second);
        } else {
            self.tags.extend_from_slice(packed.tags);
        }
        self.data.extend_from_slice(packed.data);
    }

    #[inline]
    pub fn len(&self) -> usize {
        self.tags.len()
    }

    /// Returns a view of the elements, to read them.
    #[inline]
    pub fn view(&self) -> Packed<'_> {
        Packed {
            count: self.tags.len(),
            tags: &self.tags,
            uniform: false,
            stride: self.stride,
            data: &self.data,
        }
    }

    /// An upper bound of what `encode` writes.
    #[inline]
    pub fn bytes_bound(&self) -> usize {
        3 + self.tags.len() + self.data.len()
    }

    pub fn push(&mut self, element: Element<'_>) {
        self.push_coded(Coded::element(element));
    }

    /// Puts a member and its score after all others.
    pub fn push_scored(&mut self, member: Element<'_>, score: f64) {
        self.push_coded(Coded::element(member));
        self.push_coded(Coded::score(score));
    }

    pub fn insert(&mut self, index: usize, element: Element<'_>) {
        self.splice(index, 0, &[Coded::element(element)]);
    }

    /// Inserts a member and its score.
    pub fn insert_scored(&mut self, index: usize, member: Element<'_>, score: f64) {
        self.splice(index, 0, &[Coded::element(member), Coded::score(score)]);
    }

    pub fn replace(&mut self, index: usize, element: Element<'_>) {
        self.splice(index, 1, &[Coded::element(element)]);
    }

    /// Takes out `count` elements from `index` on.
    pub fn remove(&mut self, index: usize, count: usize) {
        let (from, to) = (self.offset(index), self.offset(index + count));
        self.data.drain(from..to);
        self.tags.drain(index..index + count);
    }

    fn push_coded(&mut self, coded: Coded<'_>) {
        assert!(self.tags.len() < usize::from(u16::MAX), "a packed collection is small");
        self.tags.push(coded.tag);
        coded.push_to(&mut self.data);
    }

    /// Puts elements in the place of `old` others: none, or as many.
    fn splice(&mut self, index: usize, old: usize, new: &[Coded<'_>]) {
        let (from, to) = (self.offset(index), self.offset(index + old));
        let (end, new_bytes) = (self.data.len(), new.iter().map(Coded::data_bytes).sum::<usize>());
        self.data.resize(end.max(end + new_bytes - (to - from)), 0);
        self.data.copy_within(to..end, from + new_bytes);
        self.data.truncate(end + new_bytes - (to - from));
        let mut target = &mut self.data[from..from + new_bytes];
        for coded in new {
            target = coded.write_to(target);
        }
        if old == 0 {
            assert!(self.tags.len() + new.len() <= usize::from(u16::MAX), "a packed collection is small");
            let count = self.tags.len();
            self.tags.resize(count + new.len(), 0);
            self.tags.copy_within(index..count, index + new.len());
        }
        self.tags[index..].iter_mut().zip(new).for_each(|(tag, coded)| *tag = coded.tag);
    }

    /// Returns the offset at which the data of element `index` begin.
    fn offset(&self, index: usize) -> usize {
        self.view().offset(index)
    }

    /// Writes the collection as it is stored.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.clear();
        let (count, stride) = (self.tags.len(), self.stride);
        let uniform = count >= stride && self.tags[stride..] == self.tags[..count - stride];
        let head = if uniform { UNIFORM } else { 0 };
        if count < usize::from(COUNT_ELSEWHERE) {
            out.push(head | count as u8);
        } else {
            out.push(head | COUNT_ELSEWHERE);
            out.extend_from_slice(&(count as u16).to_le_bytes());
        }
        out.extend_from_slice(if uniform { &self.tags[..stride] } else { &self.tags });
        out.extend_from_slice(&self.data);
    }
}

#[cfg(test)]
mod tests;
