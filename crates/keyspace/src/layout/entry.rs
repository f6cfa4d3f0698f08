//! Layout of an entry in a page.
//!
//! ```text
//!   [159 + klen][key klen][value ...]                                  short: plain bytes inline, klen <= 47
//!   [207 + klen][expiry 5][key klen][value ...]                        short, with an expiry
//!   [klen u8][meta u8][expiry 0, 5 or 8][key klen][value ...]          value inline
//!   [klen u8][meta u8][expiry 0, 5 or 8][key klen][ref u32][len u32]   value in a body elsewhere
//!   [klen u8][meta u8][expiry 0, 5 or 8][key klen][reference u64]      value not in memory (see `cold`)
//!   [klen u8][meta u8][expiry 0, 5 or 8][key klen][reference u64][due u32]    the same of a hash with fields that have times
//!   [  255  ][meta u8][expiry 0, 5 or 8]          [ref u32][len u32]   key and value in a body elsewhere
//!
//!   klen is at most 158. An entry is short if it can be: what it holds determines its bytes.
//!
//!   meta  bits 0-3  form: 0 bytes, 1 integer (1 to 8 B little endian), 2 bytes edited in place ("raw"),
//!                   3 list, 4 hash, 5 set, 6 set of integers, 7 sorted set, 8 stream; 9 to 13 of images alone (see
//!                   `values::image`)
//!         bits 4-5  width of the expiry: 0 none, 1: 5 B, 2: 8 B
//!         bits 6-7  where: 0 inline, 1 blob in the arena, 2 large value, 3 object (ref: its number; len: zeros) or,
//!                   where these are not zeros, not in memory
//!
//!   A small collection is a byte string (see `packed`) under its form: it moves, is copied and saved as any other. A
//!   large one is an object (see `object`), which has the key too if klen is 255.
//!
//!   a blob's bytes    [hash u64, slot in its top 14 bits][body]     the hash leads compaction to the entry
//!   a body            value, or, of an entry with klen 255: [klen u32][key][value]
//!   expiry, 5 B       milliseconds since 2020-01-01 UTC, to 2054-11; anything outside takes the 8-byte form (Unix ms)
//! ```
//!
//! 16 B key and 16 B value: 1 + 16 + 16 = 33 B, 1 + 5 + 16 + 16 = 38 with an expiry.

use crate::layout::bound::{EPOCH_MS, NEVER, bound_of};
use crate::layout::cold::{ColdRef, ColdValue};
use crate::layout::kind::{Form, NewValue};
use crate::layout::page::ENTRY_BYTES_MAX;
use isotherm_stdx::UnixMs;
use isotherm_stdx::format::{FormatPart, number};

const SHORT_EXPIRY_MAX: i64 = (1 << 40) - 1;
const SHORT_EXPIRY_BYTES: usize = 5;

/// An entry up to this size lies in its page.
pub(crate) const INLINE_BYTES_MAX: usize = 208;
/// A key up to this size lies in the page, whatever its value's size.
pub(crate) const INLINE_KEY_BYTES_MAX: usize = 158;
/// A body up to this size is a blob.
pub(crate) const BLOB_BODY_BYTES_MAX: usize = 4096;
pub(crate) const BLOB_HEAD_BYTES: usize = 8;
const REF_BYTES: usize = 8;
const DUE_BYTES: usize = 4;
const KLEN_ELSEWHERE: u8 = 255;
/// The head of a short entry is this and its klen,
const SHORT_HEAD: u8 = 159;
/// or this if it has an expiry.
const SHORT_VOLATILE_HEAD: u8 = 207;
const SHORT_KEY_BYTES_MAX: usize = 47;
/// The meta byte that a short entry with an expiry does without.
const SHORT_VOLATILE_META: u8 = 1 << 4;

/// Rows of `--layout`.
pub(crate) const FORMAT: FormatPart = (
    "entry",
    &[
        ("key length: in a body elsewhere", number(KLEN_ELSEWHERE as usize)),
        ("key length: most in a page", number(INLINE_KEY_BYTES_MAX)),
        ("short: first head", number(SHORT_HEAD as usize)),
        ("short with an expiry: first head", number(SHORT_VOLATILE_HEAD as usize)),
        ("short: key bytes, most", number(SHORT_KEY_BYTES_MAX)),
        ("bytes in a page, most", number(INLINE_BYTES_MAX)),
        ("body of a blob, most", number(BLOB_BODY_BYTES_MAX)),
        ("head of a blob", number(BLOB_HEAD_BYTES)),
        ("reference", number(REF_BYTES)),
        ("due time of fields", number(DUE_BYTES)),
        ("short expiry", number(SHORT_EXPIRY_BYTES)),
        ("epoch of the short expiry, Unix days", number((EPOCH_MS / 86_400_000) as usize)),
    ],
);

const _: () = assert!(INLINE_KEY_BYTES_MAX < SHORT_HEAD as usize);
const _: () = assert!(SHORT_HEAD as usize + SHORT_KEY_BYTES_MAX < SHORT_VOLATILE_HEAD as usize);
const _: () = assert!(SHORT_VOLATILE_HEAD as usize + SHORT_KEY_BYTES_MAX < KLEN_ELSEWHERE as usize);

// The largest entry: a key that just fits, a late expiry, and a reference.
const _: () = assert!(2 + 8 + INLINE_KEY_BYTES_MAX + REF_BYTES + DUE_BYTES <= ENTRY_BYTES_MAX);
// Setting an expiry never moves a value out of its page.
const _: () = assert!(INLINE_BYTES_MAX + 8 <= ENTRY_BYTES_MAX);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Place {
    Inline = 0,
    Blob = 1,
    Large = 2,
    Object = 3,
    /// Not in memory. In the entry the same bits as `Object`, and a length that is not zero.
    Cold = 4,
}

impl Place {
    /// Bits 6 and 7 of the meta byte.
    #[inline]
    fn meta_bits(self) -> u8 {
        (self as u8).min(Place::Object as u8) << 6
    }
}

/// Reference to a body, which lies outside its entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BodyRef {
    pub place: Place,
    /// A blob's handle, or the number of a large value or object.
    pub raw: u32,
    /// Bytes of the body. Of what is not in memory: the second half of its reference.
    pub len: u32,
    /// True if the key lies in the body too.
    pub keyed: bool,
    /// True for a hash that is not in memory and has fields with times.
    pub timed: bool,
}

impl BodyRef {
    /// Returns the reference to the value if it is not in memory.
    pub fn cold(self) -> Option<ColdRef> {
        (self.place == Place::Cold).then(|| ColdRef::of_halves([self.raw, self.len]))
    }
}

/// An entry's bytes, read.
#[derive(Clone, Copy)]
pub(crate) struct EntryBytes<'a>(pub &'a [u8]);

/// An entry that was taken apart once, for callers that ask it several things.
#[derive(Clone, Copy)]
pub(crate) struct Parts<'a> {
    meta: u8,
    /// The key, if it lies in the page.
    pub key: Option<&'a [u8]>,
    /// Bytes after the key: the value if it is inline.
    pub tail: &'a [u8],
}

impl Parts<'_> {
    #[inline]
    pub fn form(&self) -> Form {
        form_of_meta(self.meta)
    }

    #[inline]
    pub fn is_inline(&self) -> bool {
        self.meta >> 6 == Place::Inline as u8
    }

    /// The number of the object, if it is one.
    #[inline]
    pub fn object(&self) -> Option<u32> {
        if self.meta >> 6 != Place::Object as u8 {
            return None;
        }
        let [raw, len] = self.reference();
        (len == 0).then_some(raw)
    }

    /// Returns the two halves of the reference that stands in place of an inline value.
    #[inline]
    fn reference(&self) -> [u32; 2] {
        let word = u64::from_le_bytes(self.tail[..8].try_into().expect("eight bytes"));
        [word as u32, (word >> 32) as u32]
    }

    /// The reference to the body, of a value that is not inline.
    #[inline]
    pub fn outside(&self) -> BodyRef {
        let [raw, len] = self.reference();
        let place = match self.meta >> 6 {
            1 => Place::Blob,
            2 => Place::Large,
            _ if len == 0 => Place::Object,
            _ => Place::Cold,
        };
        let timed = self.meta & 15 == Form::TimedHash as u8;
        BodyRef { place, raw, len, keyed: self.key.is_none(), timed }
    }

    #[inline]
    pub fn expiry_bytes(&self) -> usize {
        expiry_bytes_of_meta(self.meta)
    }
}

#[inline]
fn form_of_meta(meta: u8) -> Form {
    let number = meta & 15;
    Form::of_number(number).unwrap_or_else(|| unreachable!("no entry has the form {number}"))
}

#[inline]
fn expiry_bytes_of_meta(meta: u8) -> usize {
    // A byte each for 0 to 3, in a register: an array would be made in memory each time.
    (0x0808_0500_u32 >> ((meta >> 4 & 3) * 8)) as usize & 15
}

impl<'a> EntryBytes<'a> {
    /// Short and without an expiry, as most are: the first byte answers all questions.
    #[inline(always)]
    pub fn is_plain(self) -> bool {
        (SHORT_HEAD..SHORT_VOLATILE_HEAD).contains(&self.0[0])
    }
    /// Returns whether the key is this one, if its place is quickly found: in a plain entry, and in a long
    /// one that has its key. `false` says nothing about the other entries.
    #[inline(always)]
    pub fn is_seen_to_be(self, key: &[u8]) -> bool {
        let (head, klen) = (usize::from(self.0[0]), key.len());
        let at = if head == usize::from(SHORT_HEAD) + klen && klen <= SHORT_KEY_BYTES_MAX {
            1
        } else if head == klen && klen < usize::from(SHORT_HEAD) {
            2 + expiry_bytes_of_meta(self.0[1])
        } else {
            return false;
        };
        self.0.get(at..at + klen) == Some(key)
    }
    /// The value of a plain entry.
    #[inline(always)]
    pub fn plain_value(self) -> Option<&'a [u8]> {
        self.is_plain().then(|| &self.0[1 + usize::from(self.0[0] - SHORT_HEAD)..])
    }
    #[inline]
    fn is_short(self) -> bool {
        (SHORT_HEAD..KLEN_ELSEWHERE).contains(&self.0[0])
    }
    /// A short entry's says: plain bytes, inline.
    #[inline]
    fn meta(self) -> u8 {
        match self.0[0] {
            KLEN_ELSEWHERE | ..SHORT_HEAD => self.0[1],
            SHORT_HEAD..SHORT_VOLATILE_HEAD => 0,
            SHORT_VOLATILE_HEAD.. => SHORT_VOLATILE_META,
        }
    }
    /// Returns the offset of the expiry, or of what follows if there is none.
    #[inline]
    fn expiry_at(self) -> usize {
        if self.is_short() { 1 } else { 2 }
    }
    #[inline]
    pub fn form(self) -> Form {
        form_of_meta(self.meta())
    }
    #[inline]
    pub fn place(self) -> Place {
        if self.is_inline() { Place::Inline } else { self.parts().outside().place }
    }
    #[inline]
    pub fn is_inline(self) -> bool {
        self.meta() >> 6 == Place::Inline as u8
    }
    #[inline]
    pub fn expiry_bytes(self) -> usize {
        expiry_bytes_of_meta(self.meta())
    }
    #[inline]
    pub fn is_volatile(self) -> bool {
        self.meta() & 0x30 != 0
    }
    #[inline(always)]
    pub fn expiry(self) -> Option<UnixMs> {
        let is_long_without = self.0[0] < SHORT_HEAD && self.0[1] & 0x30 == 0;
        if self.is_plain() || is_long_without { None } else { self.expiry_if_any() }
    }
    fn expiry_if_any(self) -> Option<UnixMs> {
        match self.expiry_bytes() {
            0 => None,
            5 => {
                let mut word = [0; 8];
                let at = self.expiry_at();
                word[..5].copy_from_slice(&self.0[at..at + 5]);
                Some(UnixMs(EPOCH_MS + i64::from_le_bytes(word)))
            }
            _ => Some(UnixMs(i64::from_le_bytes(self.0[2..10].try_into().expect("eight bytes")))),
        }
    }
    /// Returns the offset in the entry of an expiry that `expiry` can replace in place, and the bytes to
    /// write there. `None` unless both expiries are short.
    #[inline]
    pub fn expiry_in_place(self, expiry: UnixMs) -> Option<(usize, [u8; SHORT_EXPIRY_BYTES])> {
        let both_short = self.expiry_bytes() == SHORT_EXPIRY_BYTES && expiry_width(Some(expiry)) == 1;
        let [bytes @ .., _, _, _] = (expiry.0 - EPOCH_MS).to_le_bytes();
        both_short.then(|| (self.expiry_at(), bytes))
    }
    /// Returns the range of the key in the entry. It is empty if the key lies elsewhere.
    #[inline]
    fn key_range(self) -> std::ops::Range<usize> {
        let head = self.0[0];
        let (at, klen) = match head {
            KLEN_ELSEWHERE => (2 + self.expiry_bytes(), 0),
            ..SHORT_HEAD => (2 + self.expiry_bytes(), head),
            SHORT_HEAD..SHORT_VOLATILE_HEAD => (1, head - SHORT_HEAD),
            SHORT_VOLATILE_HEAD.. => (1 + 5, head - SHORT_VOLATILE_HEAD),
        };
        at..at + usize::from(klen)
    }
    #[inline(always)]
    pub fn parts(self) -> Parts<'a> {
        let head = self.0[0];
        let (meta, at, klen) = match head {
            KLEN_ELSEWHERE => (self.0[1], 2 + expiry_bytes_of_meta(self.0[1]), 0),
            ..SHORT_HEAD => (self.0[1], 2 + expiry_bytes_of_meta(self.0[1]), head),
            SHORT_HEAD..SHORT_VOLATILE_HEAD => (0, 1, head - SHORT_HEAD),
            SHORT_VOLATILE_HEAD.. => (SHORT_VOLATILE_META, 1 + 5, head - SHORT_VOLATILE_HEAD),
        };
        let (front, tail) = self.0.split_at(at + usize::from(klen));
        Parts { meta, key: (head != KLEN_ELSEWHERE).then(|| &front[at..]), tail }
    }
    /// The key, if it lies in the page.
    #[inline]
    pub fn inline_key(self) -> Option<&'a [u8]> {
        (self.0[0] != KLEN_ELSEWHERE).then(|| &self.0[self.key_range()])
    }
    /// Returns the bytes after the key: the value if it is inline.
    #[inline]
    pub fn tail(self) -> &'a [u8] {
        &self.0[self.key_range().end..]
    }
    /// Returns whether the entry stays where it is when its inline value becomes one of the same length and
    /// of this form.
    #[inline]
    pub fn keeps_head(self, form: Form) -> bool {
        self.is_short() == is_short(form, self.place(), self.inline_key(), self.meta() >> 4 & 3)
    }
    /// The number of the object, if it is one.
    #[inline]
    pub fn object(self) -> Option<u32> {
        self.parts().object()
    }
    /// The reference to the value if it is not in memory.
    #[inline]
    pub fn cold(self) -> Option<ColdRef> {
        // Most are neither: one look at the meta byte answers.
        if self.meta() >> 6 != Place::Object as u8 { None } else { self.body().and_then(BodyRef::cold) }
    }
    /// The value if it is not in memory.
    pub fn cold_value(self) -> Option<ColdValue> {
        let reference = self.cold()?;
        Some(ColdValue { form: self.form(), reference, due: self.due().unwrap_or(NEVER) })
    }
    /// Returns the offset of the reference to a value that is not in memory.
    pub fn cold_at(self) -> usize {
        self.key_range().end
    }
    /// The bound of the first field that comes due, of a hash that is not in memory.
    #[inline]
    pub fn due(self) -> Option<u32> {
        if self.meta() & 15 != Form::TimedHash as u8 {
            return None;
        }
        let due = &self.tail()[REF_BYTES..];
        Some(u32::from_le_bytes(due.try_into().expect("four bytes")))
    }
    /// The bound of the first thing that comes due: the entry itself, or a field of a hash that is not in
    /// memory.
    #[inline]
    pub fn bound(self) -> u32 {
        if self.is_plain() {
            return NEVER;
        }
        let own = self.expiry().map_or(NEVER, bound_of);
        self.due().map_or(own, |due| own.min(due))
    }
    /// The reference to the body, unless the value is inline.
    #[inline]
    pub fn body(self) -> Option<BodyRef> {
        if self.is_inline() { None } else { Some(self.parts().outside()) }
    }
}

/// Gives an entry's value another form, under which it `keeps_head`.
#[inline]
pub(crate) fn set_form(entry: &mut [u8], form: Form) {
    debug_assert!(EntryBytes(entry).keeps_head(form));
    if !EntryBytes(entry).is_short() {
        entry[1] = entry[1] & !15 | form as u8;
    }
}

/// Returns whether an entry needs no meta byte. `width` is the code of the width of its expiry.
#[inline]
fn is_short(form: Form, place: Place, key: Option<&[u8]>, width: u8) -> bool {
    let short_key = key.is_some_and(|key| key.len() <= SHORT_KEY_BYTES_MAX);
    form == Form::Bytes && place == Place::Inline && width <= 1 && short_key
}

/// The code of an expiry's width: 0 none, 1: 5 B, 2: 8 B.
#[inline]
fn expiry_width(expiry: Option<UnixMs>) -> u8 {
    match expiry {
        None => 0,
        Some(at) if (EPOCH_MS..=EPOCH_MS + SHORT_EXPIRY_MAX).contains(&at.0) => 1,
        Some(_) => 2,
    }
}

/// Splits a keyed body.
#[inline]
pub(crate) fn split_keyed(body: &[u8]) -> (&[u8], &[u8]) {
    let klen = u32::from_le_bytes(body[..4].try_into().expect("four bytes")) as usize;
    body[4..].split_at(klen)
}

/// Bytes before the value in a body.
#[inline]
pub(crate) fn body_head_bytes(keyed: bool, key_bytes: usize) -> usize {
    if keyed { 4 + key_bytes } else { 0 }
}

/// Integers are stored in as few bytes as their value needs.
#[inline]
pub(crate) fn int_bytes(value: i64) -> usize {
    // -1 and 0 still take one byte; the sign needs a bit.
    let bits = 65 - (value ^ (value >> 63)).leading_zeros() as usize;
    bits.div_ceil(8)
}

#[inline]
pub(crate) fn read_int(bytes: &[u8]) -> i64 {
    let mut word = if bytes[bytes.len() - 1] & 0x80 != 0 { [0xff; 8] } else { [0; 8] };
    word[..bytes.len()].copy_from_slice(bytes);
    i64::from_le_bytes(word)
}

/// Place of the value of an entry to be stored, and whether its key lies there too.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Plan {
    pub place: Place,
    pub keyed: bool,
}

impl Plan {
    /// `tight`: the page has no room for an inline entry; as little as possible is to lie in it.
    #[inline]
    pub fn new(key_bytes: usize, value_bytes: usize, tight: bool) -> Plan {
        let keyed = tight || key_bytes > INLINE_KEY_BYTES_MAX;
        if !keyed && 2 + 5 + key_bytes + value_bytes <= INLINE_BYTES_MAX {
            return Plan { place: Place::Inline, keyed };
        }
        let body = body_head_bytes(keyed, key_bytes) + value_bytes;
        let place = if body <= BLOB_BODY_BYTES_MAX { Place::Blob } else { Place::Large };
        Plan { place, keyed }
    }

    /// Returns the plan for an object, which lies outside whatever its size.
    #[inline]
    pub fn object(key_bytes: usize, tight: bool) -> Plan {
        Plan { place: Place::Object, keyed: tight || key_bytes > INLINE_KEY_BYTES_MAX }
    }
}

/// An entry under construction: at most 254 B, on the stack.
pub(crate) struct Draft {
    bytes: [u8; 256],
    len: usize,
}

impl Draft {
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    #[inline]
    fn head(form: Form, place: Place, key: Option<&[u8]>, expiry: Option<UnixMs>) -> Draft {
        debug_assert!(key.is_none_or(|key| key.len() <= INLINE_KEY_BYTES_MAX));
        let mut draft = Draft { bytes: [0; 256], len: 1 };
        let width = expiry_width(expiry);
        draft.bytes[0] = key.map_or(KLEN_ELSEWHERE, |key| key.len() as u8);
        if is_short(form, place, key, width) {
            draft.bytes[0] += [SHORT_HEAD, SHORT_VOLATILE_HEAD][usize::from(width)];
        } else {
            draft.len = 2;
            draft.bytes[1] = form as u8 | width << 4 | place.meta_bits();
        }
        match expiry {
            None => {}
            Some(at) if width == 1 => draft.push(&(at.0 - EPOCH_MS).to_le_bytes()[..SHORT_EXPIRY_BYTES]),
            Some(at) => draft.push(&at.0.to_le_bytes()),
        }
        if let Some(key) = key {
            draft.push(key);
        }
        draft
    }

    /// An entry whose value lies in the page.
    #[inline]
    pub fn inline(key: &[u8], value: NewValue<'_>, expiry: Option<UnixMs>) -> Draft {
        let mut draft = Draft::head(form_of(value), Place::Inline, Some(key), expiry);
        match value {
            NewValue::Int(int) => draft.push(&int.to_le_bytes()[..int_bytes(int)]),
            NewValue::Bytes(bytes) | NewValue::Raw(bytes) => draft.push(bytes),
            NewValue::Packed(packed) => draft.push(packed.bytes),
        }
        draft
    }

    /// An entry whose value lies in a body.
    pub fn outside(key: &[u8], form: Form, body: BodyRef, expiry: Option<UnixMs>) -> Draft {
        let mut draft = Draft::head(form, body.place, (!body.keyed).then_some(key), expiry);
        draft.push(&body.raw.to_le_bytes());
        draft.push(&body.len.to_le_bytes());
        draft
    }

    /// An entry whose value is not in memory.
    pub fn cold(key: &[u8], value: ColdValue, expiry: Option<UnixMs>) -> Draft {
        let mut draft = Draft::head(value.form, Place::Cold, Some(key), expiry);
        draft.push(&value.reference.raw().to_le_bytes());
        if value.form == Form::TimedHash {
            draft.push(&value.due.to_le_bytes());
        }
        draft
    }

    /// Makes a draft of the same entry with another expiry.
    pub fn with_expiry(entry: EntryBytes<'_>, expiry: Option<UnixMs>) -> Draft {
        let mut draft = Draft::head(entry.form(), entry.place(), entry.inline_key(), expiry);
        draft.push(entry.tail());
        draft
    }

    /// Makes a draft of the same entry with its text raw and `len` long: zeros follow the old text.
    pub fn stretched(entry: EntryBytes<'_>, len: usize) -> Draft {
        let mut draft = Draft::head(Form::Raw, Place::Inline, entry.inline_key(), entry.expiry());
        draft.push(entry.tail());
        draft.len += len.checked_sub(entry.tail().len()).expect("rewrite_longer takes the longer length");
        draft
    }

    #[inline]
    fn push(&mut self, bytes: &[u8]) {
        self.bytes[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }
}

#[inline]
pub(crate) fn form_of(value: NewValue<'_>) -> Form {
    match value {
        NewValue::Int(_) => Form::Int,
        NewValue::Bytes(_) => Form::Bytes,
        NewValue::Raw(_) => Form::Raw,
        NewValue::Packed(packed) => packed.form,
    }
}

/// Bytes that a value takes in a page or body. An integer never lies in a body in binary form.
#[inline]
pub(crate) fn value_bytes(value: NewValue<'_>) -> usize {
    match value {
        NewValue::Int(int) => int_bytes(int),
        NewValue::Bytes(bytes) | NewValue::Raw(bytes) => bytes.len(),
        NewValue::Packed(packed) => packed.bytes.len(),
    }
}

#[cfg(test)]
mod tests;
