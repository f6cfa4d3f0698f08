//! A bundle: small keys of one slot that lie outside memory as one record, keys and values.
//!
//! ```text
//!   record    name     [level u8][start u32]                                which part of the slot its keys are of
//!             payload  [keys u16] then of each key [form u8][key u8][value u16]([expiry, ms i64])[key ...][value ...]
//!                                                   '- bit 7: it has an expiry
//!   memory    [16 bits of each key's hash]     0: that key has left the bundle
//! ```
//! `start` is where the part begins in the bit-reversed order of hashes, in which SCAN goes and pages split;
//! it has the first `level` bits of the hashes of all its keys, the rest are zeros. So a part is an interval,
//! and of two parts one lies in the other or they are apart.
//!
//! The 16 bits only propose: a key of another name has the same with a chance of 1 in 65,536 a key. The
//! record outside memory is read to know.

use crate::layout::cold::ColdRef;
use crate::layout::kind::{Db, Form};
use isotherm_stdx::format::{FormatPart, number};
use isotherm_stdx::{Slot, UnixMs};

/// A bundle's payload is no longer, unless one key alone is: one read of the disk gets it.
pub(crate) const BUNDLE_BYTES_MAX: usize = 6000;
/// No bundle has more keys: they leave their pages in one hold.
pub(crate) const BUNDLE_KEYS_MAX: usize = 256;
/// Bytes of an item's head, which stands in front of the key.
pub(crate) const ITEM_HEAD_BYTES: usize = 4;
const EXPIRY_BYTES: usize = 8;
const HAS_EXPIRY: u8 = 0x80;
const COUNT_BYTES: usize = 2;
const NAME_BYTES: usize = 5;
/// The form of bundles, for their keeper: no value has it.
pub(crate) const FORM_OF_BUNDLES: u8 = 15;

/// Rows of `--layout`.
pub(crate) const FORMAT: FormatPart = (
    "bundle",
    &[
        ("payload, most", number(BUNDLE_BYTES_MAX)),
        ("keys, most", number(BUNDLE_KEYS_MAX)),
        ("head of an item", number(ITEM_HEAD_BYTES)),
        ("expiry", number(EXPIRY_BYTES)),
        ("form: has an expiry", number(HAS_EXPIRY as usize)),
        ("count", number(COUNT_BYTES)),
        ("name", number(NAME_BYTES)),
        ("form of bundles", number(FORM_OF_BUNDLES as usize)),
    ],
);

const _: () = assert!(BUNDLE_KEYS_MAX < u16::MAX as usize && FORM_OF_BUNDLES < HAS_EXPIRY);

/// Sixteen bits of a key's hash that no page uses, never 0.
pub(crate) fn print_of(hash: u64) -> u16 {
    ((hash >> 48) as u16).max(1)
}

/// Returns the position of a hash in the order in which SCAN goes through a slot.
pub(crate) fn order_of(hash: u64) -> u32 {
    (hash as u32).reverse_bits()
}

/// A part of a slot: the keys whose hashes begin, in the order of SCAN, with `level` given bits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Interval {
    pub start: u32,
    pub level: u8,
}

impl Interval {
    pub const LEVEL_MAX: u8 = 32;

    /// The one of this level that an order is in.
    pub fn around(order: u32, level: u8) -> Interval {
        let mask = u32::MAX.checked_shl(32 - u32::from(level)).unwrap_or(0);
        Interval { start: order & mask, level }
    }

    /// The first order after it: 2^32 after the last.
    pub fn end(self) -> u64 {
        u64::from(self.start) + (1 << (32 - u32::from(self.level)))
    }

    pub fn name(self) -> BundleName {
        let [a, b, c, d] = self.start.to_le_bytes();
        BundleName([self.level, a, b, c, d])
    }
}

/// Name of a bundle: the key of its record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BundleName([u8; NAME_BYTES]);

impl BundleName {
    /// The name that these bytes are; `None` if they are none.
    pub fn of_bytes(bytes: &[u8]) -> Option<BundleName> {
        let name = BundleName(bytes.try_into().ok()?);
        name.interval().map(|_| name)
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    pub(crate) fn interval(self) -> Option<Interval> {
        let [level, start @ ..] = self.0;
        let start = u32::from_le_bytes(start);
        let is_one = level <= Interval::LEVEL_MAX && Interval::around(start, level).start == start;
        is_one.then_some(Interval { start, level })
    }
}

/// A bundle, and where its record is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BundleAt {
    pub db: Db,
    pub slot: Slot,
    pub name: BundleName,
    pub reference: ColdRef,
}

/// A key in a bundle.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Item<'a> {
    pub form: Form,
    pub expiry: Option<UnixMs>,
    pub key: &'a [u8],
    pub value: &'a [u8],
}

impl Item<'_> {
    pub fn bytes(&self) -> usize {
        ITEM_HEAD_BYTES + self.expiry.map_or(0, |_| EXPIRY_BYTES) + self.key.len() + self.value.len()
    }

    /// Returns whether the key is past its expiry. No reader sees it then, as in memory.
    pub fn is_due(&self, now: UnixMs) -> bool {
        self.expiry.is_some_and(|at| at < now)
    }
}

/// Number of a bundle's keys that expire, and a bound: none of them expires before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Expiring {
    pub keys: u16,
    pub bound: UnixMs,
}

impl Expiring {
    /// Counts keys with these expiries, and takes the earliest one as the bound; `None` if there are none.
    pub fn of(expiries: impl Iterator<Item = UnixMs>) -> Option<Expiring> {
        expiries.fold(None, |found: Option<Expiring>, at| {
            let Expiring { keys, bound } = found.unwrap_or(Expiring { keys: 0, bound: at });
            Some(Expiring { keys: keys + 1, bound: bound.min(at) })
        })
    }
}

/// Writes a payload over what is in `into`.
pub(crate) fn write<'a>(items: impl ExactSizeIterator<Item = Item<'a>>, into: &mut Vec<u8>) {
    into.clear();
    into.extend_from_slice(&u16::try_from(items.len()).expect("a bundle has few keys").to_le_bytes());
    for item in items {
        into.push(item.form as u8 | item.expiry.map_or(0, |_| HAS_EXPIRY));
        into.push(u8::try_from(item.key.len()).expect("keys of bundles lie in pages"));
        into.extend_from_slice(
            &u16::try_from(item.value.len()).expect("values of bundles are small").to_le_bytes(),
        );
        if let Some(UnixMs(at)) = item.expiry {
            into.extend_from_slice(&at.to_le_bytes());
        }
        into.extend_from_slice(item.key);
        into.extend_from_slice(item.value);
    }
}

/// The items of a payload, in order; `None` if it is none.
pub(crate) fn items(payload: &[u8]) -> Option<Vec<Item<'_>>> {
    let (count, mut rest) = payload.split_first_chunk::<COUNT_BYTES>()?;
    let mut items = Vec::new();
    for _ in 0..u16::from_le_bytes(*count) {
        let (&[form, key_bytes, low, high], tail) = rest.split_first_chunk::<ITEM_HEAD_BYTES>()?;
        let (expiry, tail) = match form & HAS_EXPIRY != 0 {
            true => {
                tail.split_first_chunk().map(|(at, tail)| (Some(UnixMs(i64::from_le_bytes(*at))), tail))?
            }
            false => (None, tail),
        };
        let form = Form::of_number(form & !HAS_EXPIRY).filter(|form| !form.is_of_images())?;
        let (key, tail) = tail.split_at_checked(usize::from(key_bytes))?;
        let (value, tail) = tail.split_at_checked(usize::from(u16::from_le_bytes([low, high])))?;
        // An integer takes a byte to eight.
        if form == Form::Int && !(1..=8).contains(&value.len()) {
            return None;
        }
        items.push(Item { form, expiry, key, value });
        rest = tail;
    }
    rest.is_empty().then_some(items)
}

/// Reads a payload and writes it again.
#[cfg(fuzzing)]
pub fn fuzz_bundle(payload: &[u8]) -> Option<Vec<u8>> {
    let mut again = Vec::new();
    write(items(payload)?.into_iter(), &mut again);
    Some(again)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_come_back_and_no_cut_is_a_payload() {
        let all = [
            Item { form: Form::Bytes, expiry: None, key: b"key", value: b"" },
            Item { form: Form::Int, expiry: Some(UnixMs(-5)), key: b"", value: &[7] },
            Item { form: Form::Hash, expiry: Some(UnixMs(1 << 41)), key: &[1; 158], value: &[9; 500] },
        ];
        let mut bytes = vec![1, 2, 3];
        write(all.iter().copied(), &mut bytes);
        assert_eq!(bytes.len(), 2 + all.iter().map(Item::bytes).sum::<usize>());
        assert_eq!(items(&bytes).as_deref(), Some(&all[..]));
        for cut in 0..bytes.len() {
            assert_eq!(items(&bytes[..cut]), None, "{cut}");
        }
        bytes.push(0);
        assert_eq!(items(&bytes), None);
        assert!(all[1].is_due(UnixMs(-4)) && !all[1].is_due(UnixMs(-5)) && !all[0].is_due(UnixMs(i64::MAX)));
        assert_eq!(items(&[1, 0, Form::Int as u8, 0, 0, 0]), None, "an integer without a byte");
        assert_eq!(items(&[1, 0, Form::Skiplist as u8, 0, 0, 0]), None, "no image is in a bundle");
    }

    #[test]
    fn intervals_lie_in_each_other_or_apart() {
        let order = 0b1011 << 28 | 5;
        assert_eq!(Interval::around(order, 0), Interval { start: 0, level: 0 });
        assert_eq!(Interval::around(order, 0).end(), 1 << 32);
        assert_eq!(Interval::around(order, 3), Interval { start: 0b101 << 29, level: 3 });
        assert_eq!(Interval::around(order, 3).end(), 0b11 << 30);
        assert_eq!(Interval::around(order, 32), Interval { start: order, level: 32 });
        for level in 0..=32 {
            let interval = Interval::around(order, level);
            assert_eq!(interval.name().interval(), Some(interval));
            assert_eq!(BundleName::of_bytes(interval.name().as_bytes()), Some(interval.name()));
        }
        assert_eq!(BundleName::of_bytes(&[1, 0, 0, 0, 1]), None, "more bits than its level");
        assert_eq!(BundleName::of_bytes(&[33, 0, 0, 0, 0]), None);
    }
}
