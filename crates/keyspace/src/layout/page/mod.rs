//! The packed page: some 17 entries of one slot, without a pointer to any of them.
//!
//! ```text
//!   0      1         2       4       5         6       8
//!   [n u8][cap/width][used u16][class u8][version u8][stamp u16]   header
//!   [tag x cap]                8 bits of each entry's hash, never 0
//!   [len x cap]                bytes of each entry, 1..=254
//!   [access x cap x width]     width 0, 1 (LFU) or 2 (LRU)
//!   [owner u32]                only in a page of an object (a large hash or set): its number
//!   [entry 0][entry 1] ... [entry n-1]                             see `entry`
//!   ... free up to class x 32
//! ```
//!
//! cap is a multiple of 8 (column words), in bits 0-4 of its byte; width in bits 5-6; bit 7 says that there
//! is an owner. Entry i begins at `8 + (2 + width) cap + (4 with an owner) + sum(len[0..i])`. 17 entries of 1
//! + 16 + 16 B: 8 + 2 x 24 + 17 x 33 = 617 B; 36.3 B an entry, 37 with the class's rounding.
//!
//! Invariants: n <= cap <= 248; used = end of the last entry <= 32 class <= `PAGE_BYTES_MAX`; tags and lens
//! of absent entries are 0. The functions here know bytes of entries only as runs of bytes; the code that
//! changes a page has made sure that there is room (`size_for`).

pub(crate) mod stub;
pub(crate) mod words;

use isotherm_stdx::format::{FormatPart, number};
use isotherm_stdx::steps;
use words::{equal_bytes, first_bytes, pair_sums, prefix_sum, sum_lanes};

pub(crate) const HEADER_BYTES: usize = 8;
pub(crate) const ENTRIES_MAX: usize = 248;
/// The largest size class that fits the class byte: 252 x 32.
pub(crate) const PAGE_BYTES_MAX: usize = 8064;
/// The longest entry that the len column can hold.
pub(crate) const ENTRY_BYTES_MAX: usize = 254;

/// Bytes of the owner in a page that has one.
pub(crate) const OWNER_BYTES: usize = 4;

const CLASS_UNIT_BYTES: usize = 32;
const _: () = assert!(PAGE_BYTES_MAX / CLASS_UNIT_BYTES <= u8::MAX as usize);
const _: () = assert!(ENTRIES_MAX.is_multiple_of(8) && ENTRIES_MAX / 8 < 32, "cap / 8 takes 5 bits");

const N: usize = 0;
const CAP: usize = 1;
const USED: usize = 2;
const CLASS: usize = 4;
const VERSION: usize = 5;
const STAMP: usize = 6;

/// Rows of `--layout`.
pub(crate) const FORMAT: FormatPart = (
    "page",
    &[
        ("header", number(HEADER_BYTES)),
        ("at: entries", number(N)),
        ("at: capacity and width", number(CAP)),
        ("at: used", number(USED)),
        ("at: class", number(CLASS)),
        ("at: version", number(VERSION)),
        ("at: stamp", number(STAMP)),
        ("entries, most", number(ENTRIES_MAX)),
        ("page, most", number(PAGE_BYTES_MAX)),
        ("entry, most", number(ENTRY_BYTES_MAX)),
        ("owner", number(OWNER_BYTES)),
        ("unit of a class", number(CLASS_UNIT_BYTES)),
    ],
);

/// Entry i and where its bytes begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Spot {
    pub index: usize,
    pub offset: usize,
}

/// A page to read.
#[derive(Clone, Copy)]
pub(crate) struct Page<'a>(pub &'a [u8]);

impl<'a> Page<'a> {
    #[inline]
    pub fn len(self) -> usize {
        usize::from(self.0[N])
    }
    #[inline]
    pub fn cap(self) -> usize {
        usize::from(self.0[CAP] & 31) * 8
    }
    /// Bytes of the access column per entry.
    #[inline]
    pub fn width(self) -> usize {
        usize::from(self.0[CAP] >> 5 & 3)
    }
    /// Bytes of the owner: 0 or 4.
    #[inline]
    pub fn owner_bytes(self) -> usize {
        usize::from(self.0[CAP] >> 7) * OWNER_BYTES
    }
    /// The object that the page belongs to; none: a slot's.
    #[inline]
    pub fn owner(self) -> Option<u32> {
        let at = self.columns_end();
        (self.0[CAP] >> 7 != 0)
            .then(|| u32::from_le_bytes(self.0[at..at + OWNER_BYTES].try_into().expect("four bytes")))
    }
    #[inline]
    pub fn used(self) -> usize {
        usize::from(u16::from_le_bytes([self.0[USED], self.0[USED + 1]]))
    }
    #[inline]
    pub fn version(self) -> u8 {
        self.0[VERSION]
    }
    #[inline]
    pub fn stamp(self) -> u16 {
        u16::from_le_bytes([self.0[STAMP], self.0[STAMP + 1]])
    }
    #[inline]
    fn tags(self) -> &'a [u8] {
        &self.0[HEADER_BYTES..HEADER_BYTES + self.cap()]
    }
    #[inline]
    fn lens(self) -> &'a [u8] {
        let cap = self.cap();
        &self.0[HEADER_BYTES + cap..HEADER_BYTES + 2 * cap]
    }
    #[inline]
    fn columns_end(self) -> usize {
        HEADER_BYTES + (2 + self.width()) * self.cap()
    }
    #[inline]
    fn entries_start(self) -> usize {
        self.columns_end() + self.owner_bytes()
    }
    #[inline]
    pub fn tag(self, index: usize) -> u8 {
        self.tags()[index]
    }
    /// The bytes of an entry.
    #[inline]
    pub fn entry(self, spot: Spot) -> &'a [u8] {
        let len = usize::from(self.lens()[spot.index]);
        &self.0[spot.offset..spot.offset + len]
    }
    /// Returns the spot at which entry `index` lies.
    #[inline(always)]
    pub fn spot(self, index: usize) -> Spot {
        debug_assert!(index < self.len());
        Spot { index, offset: self.entries_start() + prefix_sum(self.lens(), index) }
    }
    /// All entries in order.
    pub fn spots(self) -> impl Iterator<Item = Spot> + use<'a> {
        let mut offset = self.entries_start();
        let lens = &self.lens()[..self.len()];
        lens.iter().enumerate().map(move |(index, &len)| {
            let spot = Spot { index, offset };
            offset += usize::from(len);
            spot
        })
    }
    /// The entry with this tag that `is_it` accepts. The tag only proposes.
    #[inline(always)]
    pub fn find(self, tag: u8, mut is_it: impl FnMut(&'a [u8]) -> bool) -> Option<Spot> {
        let cap = self.cap();
        let (tags, lens) = self.0[HEADER_BYTES..HEADER_BYTES + 2 * cap].split_at(cap);
        let (tags, lens) = (tags.as_chunks::<8>().0, lens.as_chunks::<8>().0);
        // The index of the word's first entry, and the lengths of those in front of it, added up as far as
        // costs little.
        let (mut first, mut before) = (0, 0);
        steps::note(1);
        for (tags, lens) in tags.iter().zip(lens) {
            let (mut hits, lens) = (equal_bytes(u64::from_le_bytes(*tags), tag), u64::from_le_bytes(*lens));
            while hits != 0 {
                steps::note(1);
                let within = (hits.trailing_zeros() / 8) as usize;
                let front = sum_lanes(before + pair_sums(first_bytes(lens, within)));
                let offset = self.entries_start() + front;
                let len = usize::from((lens >> (within * 8)) as u8);
                if is_it(&self.0[offset..offset + len]) {
                    return Some(Spot { index: first + within, offset });
                }
                hits &= hits - 1;
            }
            first += 8;
            before += pair_sums(lens);
        }
        None
    }
    /// The access column's value of an entry; `None` if the page has no column of this width.
    #[inline]
    pub fn access(self, index: usize, width: usize) -> Option<u16> {
        if width == 0 || self.width() != width {
            return None;
        }
        let at = HEADER_BYTES + 2 * self.cap() + index * width;
        Some(if width == 1 {
            u16::from(self.0[at])
        } else {
            u16::from_le_bytes([self.0[at], self.0[at + 1]])
        })
    }

    pub fn check_invariants(self) {
        assert!(self.len() <= self.cap() && self.cap() <= ENTRIES_MAX && self.width() <= 2);
        let end = self.entries_start() + prefix_sum(self.lens(), self.cap());
        assert_eq!(end, self.used(), "used is the end of the last entry, and absent entries have length 0");
        assert!(self.used() <= self.0.len() && self.0.len() == usize::from(self.0[CLASS]) * CLASS_UNIT_BYTES);
        assert!(self.tags()[..self.len()].iter().all(|&tag| tag != 0));
        assert!(self.tags()[self.len()..].iter().all(|&tag| tag == 0));
        assert!(self.lens()[..self.len()].iter().all(|&len| (1..=254).contains(&len)));
    }
}

/// Bytes and columns that a page needs: (cap, used) of a page like `page` with `entries` entries of `bytes`
/// in all.
#[inline]
pub(crate) fn size_for(entries: usize, width: usize, bytes: usize) -> (usize, usize) {
    let cap = entries.next_multiple_of(8);
    (cap, HEADER_BYTES + (2 + width) * cap + bytes)
}

/// Bytes of all entries together.
#[inline]
pub(crate) fn entry_bytes(page: Page<'_>) -> usize {
    page.used() - page.entries_start()
}

/// Makes an empty page of all of `bytes`.
pub(crate) fn init(bytes: &mut [u8], cap: usize, width: usize, version: u8, stamp: u16) {
    let start = HEADER_BYTES + (2 + width) * cap;
    bytes[..start].fill(0);
    bytes[CAP] = (cap / 8) as u8 | (width as u8) << 5;
    set_used(bytes, start);
    set_class(bytes);
    bytes[VERSION] = version;
    bytes[STAMP..STAMP + 2].copy_from_slice(&stamp.to_le_bytes());
}

/// Gives an empty page, just made with room for it, its owner.
pub(crate) fn set_owner(bytes: &mut [u8], owner: u32) {
    debug_assert!(Page(bytes).len() == 0 && Page(bytes).owner().is_none());
    let at = Page(bytes).columns_end();
    bytes[at..at + OWNER_BYTES].copy_from_slice(&owner.to_le_bytes());
    bytes[CAP] |= 0x80;
    set_used(bytes, at + OWNER_BYTES);
}

/// Gives a page that has an owner another one.
pub(crate) fn change_owner(bytes: &mut [u8], owner: u32) {
    let at = Page(bytes).columns_end();
    debug_assert!(Page(bytes).owner_bytes() == OWNER_BYTES);
    bytes[at..at + OWNER_BYTES].copy_from_slice(&owner.to_le_bytes());
}

/// Notes the size class after a move to another one: the slice is the whole object.
#[inline]
pub(crate) fn set_class(bytes: &mut [u8]) {
    debug_assert!(bytes.len().is_multiple_of(CLASS_UNIT_BYTES) && bytes.len() <= PAGE_BYTES_MAX);
    bytes[CLASS] = (bytes.len() / CLASS_UNIT_BYTES) as u8;
}

/// The object's size as its header says it. `header` is at least the header.
#[inline]
pub(crate) fn class_size(header: &[u8]) -> usize {
    usize::from(header[CLASS]) * CLASS_UNIT_BYTES
}

#[inline]
fn set_used(bytes: &mut [u8], used: usize) {
    bytes[USED..USED + 2].copy_from_slice(&(used as u16).to_le_bytes());
}

#[inline]
pub(crate) fn set_version(bytes: &mut [u8], version: u8) {
    bytes[VERSION] = version;
}

#[inline]
pub(crate) fn set_stamp(bytes: &mut [u8], stamp: u16) {
    bytes[STAMP..STAMP + 2].copy_from_slice(&stamp.to_le_bytes());
}

#[inline]
pub(crate) fn set_access(bytes: &mut [u8], index: usize, value: u16) {
    let page = Page(bytes);
    let (width, at) = (page.width(), HEADER_BYTES + 2 * page.cap() + index * page.width());
    match width {
        1 => bytes[at] = value as u8,
        2 => bytes[at..at + 2].copy_from_slice(&value.to_le_bytes()),
        _ => {}
    }
}

/// The access column, for the hand that ages it.
pub(crate) fn access_column(bytes: &mut [u8]) -> &mut [u8] {
    let page = Page(bytes);
    let (at, len) = (HEADER_BYTES + 2 * page.cap(), page.width() * page.len());
    &mut bytes[at..at + len]
}

/// Gives the columns room for `cap` entries and `width` bytes of access stamps; new stamps are `fresh`.
pub(crate) fn widen(bytes: &mut [u8], cap: usize, width: usize, fresh: u16) {
    let page = Page(bytes);
    // The owner moves along with the entries after it.
    let (old_cap, old_width, old_start, used) = (page.cap(), page.width(), page.columns_end(), page.used());
    let owned = bytes[CAP] & 0x80;
    debug_assert!(cap >= old_cap);
    let start = HEADER_BYTES + (2 + width) * cap;
    bytes.copy_within(old_start..used, start);
    // From the back, so that no column is overwritten before it has moved.
    let stamps = HEADER_BYTES + 2 * cap;
    if width == old_width {
        let old = HEADER_BYTES + 2 * old_cap;
        bytes.copy_within(old..old + width * old_cap, stamps);
        bytes[stamps + width * old_cap..start].fill(0);
    } else {
        bytes[stamps..start].fill(0);
    }
    bytes.copy_within(HEADER_BYTES + old_cap..HEADER_BYTES + 2 * old_cap, HEADER_BYTES + cap);
    bytes[HEADER_BYTES + cap + old_cap..HEADER_BYTES + 2 * cap].fill(0);
    bytes[HEADER_BYTES + old_cap..HEADER_BYTES + cap].fill(0);
    bytes[CAP] = (cap / 8) as u8 | (width as u8) << 5 | owned;
    set_used(bytes, used - old_start + start);
    if width != old_width {
        for index in 0..Page(bytes).len() {
            set_access(bytes, index, fresh);
        }
    }
}

/// Adds an entry at the end; columns and class have room. Returns where it lies.
#[inline]
pub(crate) fn append(bytes: &mut [u8], tag: u8, entry: &[u8], access: u16) -> Spot {
    let page = Page(bytes);
    let (index, cap, offset) = (page.len(), page.cap(), page.used());
    debug_assert!(index < cap && tag != 0);
    bytes[HEADER_BYTES + index] = tag;
    bytes[HEADER_BYTES + cap + index] = entry.len() as u8;
    bytes[offset..offset + entry.len()].copy_from_slice(entry);
    bytes[N] += 1;
    set_used(bytes, offset + entry.len());
    set_access(bytes, index, access);
    Spot { index, offset }
}

/// Adds all entries of another page at the end, column by column; columns and class have room. Stamps of
/// another width become `fresh`.
pub(crate) fn append_all(bytes: &mut [u8], source: Page<'_>, fresh: u16) {
    let page = Page(bytes);
    let (at, cap, width, offset) = (page.len(), page.cap(), page.width(), page.used());
    let (n, entries) = (source.len(), &source.0[source.entries_start()..source.used()]);
    debug_assert!(at + n <= cap);
    bytes[HEADER_BYTES + at..][..n].copy_from_slice(&source.tags()[..n]);
    bytes[HEADER_BYTES + cap + at..][..n].copy_from_slice(&source.lens()[..n]);
    bytes[offset..offset + entries.len()].copy_from_slice(entries);
    bytes[N] += n as u8;
    set_used(bytes, offset + entries.len());
    if width == source.width() {
        let stamps = &source.0[HEADER_BYTES + 2 * source.cap()..][..n * width];
        bytes[HEADER_BYTES + 2 * cap + at * width..][..n * width].copy_from_slice(stamps);
    } else {
        (at..at + n).for_each(|index| set_access(bytes, index, fresh));
    }
}

/// Replaces an entry by another of any length; the class has room.
#[inline]
pub(crate) fn replace(bytes: &mut [u8], spot: Spot, entry: &[u8]) {
    replace_behind(bytes, spot, 0, entry);
}

/// Replaces the bytes after the first `kept` ones of an entry by others, of any length; the class has room.
#[inline]
pub(crate) fn replace_behind(bytes: &mut [u8], spot: Spot, kept: usize, tail: &[u8]) {
    let page = Page(bytes);
    let (cap, used) = (page.cap(), page.used());
    let (old, len) = (page.entry(spot).len(), kept + tail.len());
    debug_assert!(kept <= old && len <= ENTRY_BYTES_MAX);
    if old != len {
        bytes.copy_within(spot.offset + old..used, spot.offset + len);
        bytes[HEADER_BYTES + cap + spot.index] = len as u8;
        set_used(bytes, used - old + len);
    }
    bytes[spot.offset + kept..spot.offset + len].copy_from_slice(tail);
}

/// Takes an entry out; those after it move up.
pub(crate) fn remove(bytes: &mut [u8], spot: Spot) {
    let page = Page(bytes);
    let (n, cap, width, used) = (page.len(), page.cap(), page.width(), page.used());
    let len = page.entry(spot).len();
    bytes.copy_within(spot.offset + len..used, spot.offset);
    for column in [HEADER_BYTES, HEADER_BYTES + cap] {
        bytes.copy_within(column + spot.index + 1..column + n, column + spot.index);
        bytes[column + n - 1] = 0;
    }
    let stamps = HEADER_BYTES + 2 * cap;
    bytes.copy_within(stamps + (spot.index + 1) * width..stamps + n * width, stamps + spot.index * width);
    bytes[N] -= 1;
    set_used(bytes, used - len);
}

/// Takes free columns out: the opposite of `widen`.
pub(crate) fn narrow(bytes: &mut [u8], cap: usize) {
    let page = Page(bytes);
    let (old_cap, width, old_start, used, n) =
        (page.cap(), page.width(), page.columns_end(), page.used(), page.len());
    let owned = bytes[CAP] & 0x80;
    debug_assert!(n <= cap && cap <= old_cap);
    let start = HEADER_BYTES + (2 + width) * cap;
    bytes.copy_within(HEADER_BYTES + old_cap..HEADER_BYTES + old_cap + cap, HEADER_BYTES + cap);
    let stamps = HEADER_BYTES + 2 * old_cap;
    bytes.copy_within(stamps..stamps + width * cap, HEADER_BYTES + 2 * cap);
    bytes.copy_within(old_start..used, start);
    bytes[CAP] = (cap / 8) as u8 | (width as u8) << 5 | owned;
    set_used(bytes, used - old_start + start);
}

#[cfg(test)]
mod tests;
