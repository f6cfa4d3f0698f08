//! A leaf: up to some 48 members in order, with their scores.
//!
//! ```text
//!   0     13    14    15         17
//!   [head][form][even][stamp u16][lead bytes][score x count][len x count][member x count]
//!
//!   form   bits 0-3  lead: bytes that all scores begin with; they stand once, in front
//!          bits 4-6  trail: bytes that all scores end with, all 00 or, with bit 7, all ff; they stand nowhere
//!   even   0..=200: every member has this length, and there is no column of lengths
//!          255: a column; 254: a column, in which 255 marks a long member ([number u32] in place of its bytes)
//!   stamp  when it was changed last, or came to memory (`layout::last_used`)
//!   score  8 - lead - trail bytes, big endian, of `score::bits_of`
//! ```
//!
//! Random doubles between 0 and 1, a million of them: a leaf's share their first 3 bytes; 40 members of 16 B
//! take 17 + 3 + 40 x (5 + 16) = 860 B, where plain scores and lengths would take 1015.
//!
//! Invariants: members are in order of (score, member); `used` is the end of the last member.

use super::long::Longs;
use super::node;
use super::score::{order_of, score_of};
use crate::layout::page::words;
use isotherm_stdx::steps;
use std::sync::Arc;

const FORM: usize = node::HEAD_BYTES;
const EVEN: usize = FORM + 1;
const STAMP: usize = FORM + 2;
const LEAD: usize = FORM + 4;

const LEAD_BITS: u8 = 0x0f;
const TRAIL_SHIFT: u8 = 4;
const TRAIL_BITS: u8 = 0x70;
const FILL_ONES: u8 = 0x80;

/// A member up to this length lies in the leaf, so that four fit in any case.
pub(super) const INLINE_BYTES_MAX: usize = 200;
pub(super) const LONG: u8 = 255;
pub(super) const EVEN_LONG: u8 = 254;
pub(super) const EVEN_NONE: u8 = 255;
const LONG_REF_BYTES: usize = 4;

pub(super) const MEMBERS_MAX: usize = 255;

/// A member as it lies in a leaf.
#[derive(Clone, Copy)]
pub(super) struct Cell<'a> {
    /// Length of the member, or `LONG`.
    pub tag: u8,
    /// Bytes of the member, or the number of a long one.
    pub raw: &'a [u8],
}

impl Cell<'_> {
    pub fn long_number(&self) -> Option<u32> {
        (self.tag == LONG).then(|| node::word(self.raw, 0))
    }
}

/// Bytes of a member with this tag.
#[inline]
pub(super) fn cell_bytes(tag: u8) -> usize {
    if tag == LONG { LONG_REF_BYTES } else { usize::from(tag) }
}

/// Format of the scores and lengths in a leaf.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Form {
    pub lead: usize,
    pub trail: usize,
    pub ones: bool,
    pub even: u8,
}

impl Form {
    pub fn width(self) -> usize {
        8 - self.lead - self.trail
    }

    /// Bytes of a leaf of `members` members.
    pub fn size(self, members: usize, member_bytes: usize) -> usize {
        let lens = if self.even < EVEN_LONG { 0 } else { members };
        LEAD + self.lead + members * self.width() + lens + member_bytes
    }
}

/// Layout of a leaf.
#[derive(Clone, Copy)]
struct Shape {
    count: usize,
    form: Form,
    /// First byte of the scores, of the lengths (or of the members, if there are none), of the members.
    scores: usize,
    lens: usize,
    members: usize,
    /// Bytes that every score has: its first ones, and its last ones.
    shared: u64,
}

impl Shape {
    #[inline]
    fn of(bytes: &[u8]) -> Shape {
        let (count, form, even) = (node::count(bytes), bytes[FORM], bytes[EVEN]);
        let lead = usize::from(form & LEAD_BITS);
        let trail = usize::from((form & TRAIL_BITS) >> TRAIL_SHIFT);
        let form = Form { lead, trail, ones: form & FILL_ONES != 0, even };
        let scores = LEAD + lead;
        let lens = scores + count * form.width();
        let members = if even < EVEN_LONG { lens } else { lens + count };
        let mut shared = 0;
        if lead > 0 {
            shared = word_before(bytes, scores) << (64 - 8 * lead);
        }
        Shape { count, form, scores, lens, members, shared: shared | form.fill() }
    }

    #[inline]
    fn is_even(&self) -> bool {
        self.form.even < EVEN_LONG
    }

    #[inline]
    fn bits(&self, bytes: &[u8], index: usize) -> u64 {
        let width = self.form.width();
        if width == 0 {
            return self.shared;
        }
        let own = word_before(bytes, self.scores + (index + 1) * width) & (u64::MAX >> (64 - 8 * width));
        self.shared | own << (8 * self.form.trail)
    }

    #[inline]
    fn tag(&self, bytes: &[u8], index: usize) -> u8 {
        if self.is_even() { self.form.even } else { bytes[self.lens + index] }
    }

    /// Returns the offset at which member `index` begins.
    #[inline]
    fn place(&self, bytes: &[u8], index: usize) -> usize {
        let before = match self.form.even {
            EVEN_NONE => sum(bytes, self.lens, index),
            EVEN_LONG => {
                bytes[self.lens..self.lens + index].iter().map(|&tag| cell_bytes(tag)).sum::<usize>()
            }
            even => index * usize::from(even),
        };
        self.members + before
    }

    /// Returns whether a member can be written in the leaf's form.
    #[inline]
    fn fits(&self, bits: u64, tag: u8) -> bool {
        let tag_fits = match self.form.even {
            EVEN_NONE => tag != LONG,
            EVEN_LONG => true,
            even => even == tag,
        };
        tag_fits && (bits ^ self.shared) & self.form.shared_mask() == 0
    }
}

impl Form {
    #[inline]
    fn fill(self) -> u64 {
        if self.ones { (1 << (8 * self.trail)) - 1 } else { 0 }
    }

    /// The bits that are not written with each score.
    #[inline]
    fn shared_mask(self) -> u64 {
        let width = self.width();
        if width == 0 { u64::MAX } else { !((u64::MAX >> (64 - 8 * width)) << (8 * self.trail)) }
    }
}

/// The eight bytes that end at `end`, of which at least the head stands in front.
#[inline]
fn word_before(bytes: &[u8], end: usize) -> u64 {
    u64::from_be_bytes(bytes[end - 8..end].try_into().expect("eight bytes"))
}

/// The sum of the first `count` lengths.
#[inline]
fn sum(bytes: &[u8], lens: usize, count: usize) -> usize {
    let whole = count / 8 * 8;
    let column = &bytes[lens..];
    let mut sum = 0;
    for at in 0..whole / 8 {
        sum += words::sum_bytes(words::word(column, at));
    }
    sum + column[whole..count].iter().map(|&len| usize::from(len)).sum::<usize>()
}

/// Target of a search: a boundary in the order of the members.
pub(super) trait Target {
    /// Returns whether members of a score lie on the left of the boundary, if the score decides.
    fn by_order(&self, order: u64) -> Option<bool>;
    /// Returns whether this member lies on the left of the boundary.
    fn includes(&self, order: u64, member: &[u8]) -> bool;
}

/// Returns the stamp of the leaf's last change, or of its coming to memory.
pub(super) fn stamp(bytes: &[u8]) -> u16 {
    u16::from_le_bytes([bytes[STAMP], bytes[STAMP + 1]])
}

#[inline]
pub(super) fn set_stamp(bytes: &mut [u8], stamp: u16) {
    bytes[STAMP..LEAD].copy_from_slice(&stamp.to_le_bytes());
}

/// Returns whether some members may lie outside the leaf.
pub(super) fn has_longs(bytes: &[u8]) -> bool {
    bytes[EVEN] == EVEN_LONG
}

/// A leaf to read.
#[derive(Clone, Copy)]
pub(super) struct Leaf<'a> {
    bytes: &'a [u8],
    longs: &'a Longs,
    shape: Shape,
}

impl<'a> Leaf<'a> {
    #[inline]
    pub fn new(bytes: &'a [u8], longs: &'a Longs) -> Leaf<'a> {
        Leaf { bytes, longs, shape: Shape::of(bytes) }
    }
    #[inline]
    pub fn len(&self) -> usize {
        self.shape.count
    }
    pub fn used(&self) -> usize {
        node::used(self.bytes)
    }
    #[inline]
    pub fn bits(&self, index: usize) -> u64 {
        self.shape.bits(self.bytes, index)
    }
    #[inline]
    pub fn order(&self, index: usize) -> u64 {
        order_of(self.bits(index))
    }
    #[inline]
    pub fn score(&self, index: usize) -> f64 {
        score_of(self.bits(index))
    }
    #[inline]
    pub fn place(&self, index: usize) -> usize {
        self.shape.place(self.bytes, index)
    }
    /// The member `index`, which begins at `place`.
    #[inline]
    pub fn cell_at(&self, index: usize, place: usize) -> Cell<'a> {
        let tag = self.shape.tag(self.bytes, index);
        Cell { tag, raw: &self.bytes[place..place + cell_bytes(tag)] }
    }
    #[inline]
    pub fn cell(&self, index: usize) -> Cell<'a> {
        self.cell_at(index, self.place(index))
    }
    #[inline]
    pub fn resolve(&self, cell: Cell<'a>) -> &'a [u8] {
        match cell.long_number() {
            None => cell.raw,
            Some(number) => self.longs.get(number),
        }
    }
    /// A member that does not lie in the leaf.
    pub fn share(&self, cell: Cell<'a>) -> Option<Arc<[u8]>> {
        cell.long_number().map(|number| self.longs.share(number))
    }
    #[inline]
    pub fn member(&self, index: usize) -> &'a [u8] {
        self.resolve(self.cell(index))
    }
    /// All members' cells in order.
    pub fn cells(&self) -> impl Iterator<Item = Cell<'a>> + use<'a> {
        let (leaf, mut place) = (*self, self.shape.members);
        (0..self.len()).map(move |index| {
            let cell = leaf.cell_at(index, place);
            place += cell.raw.len();
            cell
        })
    }
    #[inline]
    pub fn fits(&self, bits: u64, tag: u8) -> bool {
        self.shape.fits(bits, tag)
    }
    /// Bytes of the leaf with one more member that fits.
    #[inline]
    pub fn used_with(&self, cell: Cell<'_>) -> usize {
        self.used() + self.shape.form.width() + usize::from(!self.shape.is_even()) + cell.raw.len()
    }

    /// Returns the number of members on the left of a boundary.
    pub fn partition(&self, target: &impl Target) -> usize {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = (low + high) / 2;
            let order = self.order(middle);
            let is_left = match target.by_order(order) {
                Some(decided) => decided,
                None => target.includes(order, self.member(middle)),
            };
            if is_left { low = middle + 1 } else { high = middle }
        }
        low
    }

    /// The member's index, by looking at all of them.
    pub fn find(&self, member: &[u8]) -> Option<usize> {
        // A leaf has a bound; how often another one has to be looked at for nothing depends on how full the
        // index is.
        steps::note(1);
        let even = self.shape.form.even;
        if even >= EVEN_LONG || member.is_empty() {
            let is_it = |cell: Cell<'a>| {
                let short = usize::from(cell.tag) == member.len() && cell.raw == member;
                if cell.tag == LONG { self.resolve(cell) == member } else { short }
            };
            return self.cells().position(is_it);
        }
        if usize::from(even) != member.len() {
            return None;
        }
        let members = self.bytes[self.shape.members..node::used(self.bytes)].chunks_exact(member.len());
        match member.last_chunk::<8>() {
            // Members that differ mostly differ in their last bytes; one comparison without a call.
            Some(end) => members.enumerate().find_map(|(index, other)| {
                let equal = other.last_chunk::<8>() == Some(end) && other == member;
                equal.then_some(index)
            }),
            None => members.into_iter().position(|other| other == member),
        }
    }

    pub fn check_invariants(&self) {
        let end = self.shape.members + self.cells().map(|cell| cell.raw.len()).sum::<usize>();
        assert_eq!(end, self.used(), "used is the end of the last member");
        assert!(end <= self.bytes.len() && self.len() > 0);
        for index in 1..self.len() {
            let (before, after) = (self.order(index - 1), self.order(index));
            assert!(before < after || before == after && self.member(index - 1) < self.member(index));
        }
    }
}

/// Puts a member that fits in front of member `index`; the class has room.
pub(super) fn insert(bytes: &mut [u8], index: usize, bits: u64, cell: Cell<'_>) {
    let shape = Shape::of(bytes);
    debug_assert!(shape.fits(bits, cell.tag));
    let (used, width, column) = (node::used(bytes), shape.form.width(), usize::from(!shape.is_even()));
    let place = shape.place(bytes, index);
    // From the back, so that nothing is overwritten before it has moved.
    bytes.copy_within(place..used, place + width + column + cell.raw.len());
    bytes[place + width + column..][..cell.raw.len()].copy_from_slice(cell.raw);
    bytes.copy_within(shape.members..place, shape.members + width + column);
    if column == 1 {
        let at = shape.lens + index;
        bytes.copy_within(at..shape.members, at + width + 1);
        bytes[at + width] = cell.tag;
        bytes.copy_within(shape.lens..at, shape.lens + width);
    }
    let at = shape.scores + index * width;
    bytes.copy_within(at..shape.lens, at + width);
    write_score(&mut bytes[at..at + width], shape.form, bits);
    node::set_count(bytes, shape.count + 1);
    node::set_used(bytes, used + width + column + cell.raw.len());
}

/// Takes member `index` out.
pub(super) fn remove(bytes: &mut [u8], index: usize) {
    let shape = Shape::of(bytes);
    let (used, width, column) = (node::used(bytes), shape.form.width(), usize::from(!shape.is_even()));
    let place = shape.place(bytes, index);
    let len = cell_bytes(shape.tag(bytes, index));
    let at = shape.scores + index * width;
    bytes.copy_within(at + width..shape.lens, at);
    if column == 1 {
        let at = shape.lens + index;
        bytes.copy_within(shape.lens..at, shape.lens - width);
        bytes.copy_within(at + 1..shape.members, at - width);
    }
    bytes.copy_within(shape.members..place, shape.members - width - column);
    bytes.copy_within(place + len..used, place - width - column);
    node::set_count(bytes, shape.count - 1);
    node::set_used(bytes, used - width - column - len);
}

/// The score's own bytes.
#[inline]
fn write_score(target: &mut [u8], form: Form, bits: u64) {
    let own = bits.to_be_bytes();
    target.copy_from_slice(&own[form.lead..8 - form.trail]);
}

/// Writes a leaf anew: its form, scores and lengths; members come from `area`, which lies elsewhere.
pub(super) fn write(bytes: &mut [u8], form: Form, scores: &[u64], tags: &[u8], area: &[u8]) {
    bytes[FORM] = form.lead as u8 | (form.trail as u8) << TRAIL_SHIFT | if form.ones { FILL_ONES } else { 0 };
    bytes[EVEN] = form.even;
    let lead = scores.first().map_or([0; 8], |first| first.to_be_bytes());
    bytes[LEAD..LEAD + form.lead].copy_from_slice(&lead[..form.lead]);
    let (mut at, width) = (LEAD + form.lead, form.width());
    for &bits in scores {
        write_score(&mut bytes[at..at + width], form, bits);
        at += width;
    }
    if form.even >= EVEN_LONG {
        bytes[at..at + tags.len()].copy_from_slice(tags);
        at += tags.len();
    }
    bytes[at..at + area.len()].copy_from_slice(area);
    node::set_count(bytes, scores.len());
    node::set_used(bytes, at + area.len());
}
