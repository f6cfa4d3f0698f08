//! Composition of a table's entries, counted when they change: keys, their bytes, and those of their values,
//! by type and encoding.
//!
//! ```text
//!   entry + body  =  key  +  value  +  expiry  +  head          (lengths, mark, reference, a blob's hash)
//!
//!   in pages and blobs     keys + values + expiries + heads  =  entry bytes + blob bytes          exactly
//!   elsewhere              what lies in a large body or in an object is accounted for there; here it counts for its class only
//! ```
//!
//! An entry has an [`Account`] before it changes and another one after it: the first is taken off and the
//! second added. Both are read from the entry's bytes. Of an object, whose size does not follow from its
//! entry, the root remembers what was counted last. A change that keeps lengths and form (most overwrites)
//! has equal accounts and is not reported at all.
//!
//! A class costs 32 B, and only where it is in use: a table of plain strings has one or two.

use crate::accounting::sizes;
use crate::layout::entry::Parts;
use crate::layout::kind::{Encoding, Form, Type, stride_of};
use crate::layout::packed::Packed;
use crate::layout::packed_ints::packed_ints_len;
use crate::layout::record::{UNIT_BYTES, Units};

/// A type in one of its encodings.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Class(u8);

/// Types and encodings in the order in which they are shown.
pub(crate) const CLASSES: [(Type, Encoding); 13] = [
    (Type::String, Encoding::Int),
    (Type::String, Encoding::Embstr),
    (Type::String, Encoding::Raw),
    (Type::List, Encoding::Listpack),
    (Type::List, Encoding::Quicklist),
    (Type::Set, Encoding::Intset),
    (Type::Set, Encoding::Listpack),
    (Type::Set, Encoding::Hashtable),
    (Type::Zset, Encoding::Listpack),
    (Type::Zset, Encoding::Skiplist),
    (Type::Hash, Encoding::Listpack),
    (Type::Hash, Encoding::Hashtable),
    (Type::Stream, Encoding::Stream),
];

impl Class {
    #[inline]
    pub fn number(self) -> usize {
        usize::from(self.0)
    }

    #[inline]
    pub fn new(kind: Type, encoding: Encoding) -> Class {
        Class(match (kind, encoding) {
            (Type::String, Encoding::Int) => 0,
            (Type::String, Encoding::Embstr) => 1,
            (Type::String, _) => 2,
            (Type::List, Encoding::Listpack) => 3,
            (Type::List, _) => 4,
            (Type::Set, Encoding::Intset) => 5,
            (Type::Set, Encoding::Listpack) => 6,
            (Type::Set, _) => 7,
            (Type::Zset, Encoding::Listpack) => 8,
            (Type::Zset, _) => 9,
            (Type::Hash, Encoding::Listpack) => 10,
            (Type::Hash, _) => 11,
            (Type::Stream, _) => 12,
        })
    }

    /// Returns the class of a value that is no object.
    #[inline]
    pub fn of_value(form: Form, key_bytes: usize, value_bytes: usize, is_volatile: bool) -> Class {
        /// Classes by form, for `Bytes` that of strings that are not embedded.
        const CLASSES_OF_FORMS: [u8; 14] = [2, 0, 2, 3, 10, 6, 5, 8, 12, 4, 11, 7, 9, 11];
        match form {
            Form::Bytes if is_embstr(key_bytes, value_bytes, is_volatile) => Class(1),
            form => Class(CLASSES_OF_FORMS[form as usize]),
        }
    }
}

/// Account of one entry in its table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Account {
    pub class: Class,
    /// Bytes of a string as it is stored, elements of a collection.
    pub items: u64,
    pub key_bytes: u32,
    /// Bytes of the value; of an object: all that it takes but its key.
    pub value_bytes: u64,
    pub expiry_bytes: u8,
    /// The entry in its page.
    pub entry_bytes: u8,
    /// Bytes of the entry's blob with the hash in front, before rounding.
    pub blob_bytes: u32,
    /// Bytes of a large body, or of an object: of key and value, `elsewhere`.
    pub elsewhere: [u64; 2],
}

impl Account {
    /// Returns the bytes that the entry takes, its share of the page apart.
    #[inline]
    pub fn memory_bytes(&self) -> u64 {
        u64::from(self.entry_bytes) + self.outside_bytes()
    }

    /// Returns the part of these bytes that is not in the page.
    #[inline]
    fn outside_bytes(&self) -> u64 {
        u64::from(self.blob_bytes) + self.elsewhere[0] + self.elsewhere[1]
    }

    /// Makes the account of an object's entry, as if the object took nothing.
    #[inline]
    pub fn of_object(parts: &Parts<'_>, key_bytes: usize, entry_bytes: usize) -> Account {
        let key_elsewhere = if parts.key.is_none() { key_bytes as u64 } else { 0 };
        Account {
            class: Class(0),
            items: 0,
            key_bytes: key_bytes as u32,
            value_bytes: 0,
            expiry_bytes: parts.expiry_bytes() as u8,
            entry_bytes: entry_bytes as u8,
            blob_bytes: 0,
            elsewhere: [key_elsewhere, 0],
        }
    }

    /// The account of an entry whose value is not in memory: it has no bytes here. Of a string the length is
    /// known, and counts among the sizes; of a collection no element is seen.
    pub fn with_cold(self, form: Form, key_bytes: usize, cold_bytes: usize) -> Account {
        let class = Class::of_value(form, key_bytes, cold_bytes, self.expiry_bytes > 0);
        let items = if form.is_collection() { 0 } else { cold_bytes as u64 };
        Account { class, items, ..self }
    }

    /// The account of an object's entry, now that the object counts for this.
    #[inline]
    pub fn with_object(self, tallied: &Tallied) -> Account {
        let value_bytes = tallied.units.get() * UNIT_BYTES - self.elsewhere[0];
        Account {
            class: tallied.class,
            items: tallied.items,
            value_bytes,
            elsewhere: [self.elsewhere[0], value_bytes],
            ..self
        }
    }
}

/// The account of an entry whose value lies in it: less than 256 of everything, so that all of it fits a
/// register. Most changes are from one such to another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct InlineAccount {
    class: Class,
    items: u8,
    key_bytes: u8,
    value_bytes: u8,
    expiry_bytes: u8,
    entry_bytes: u8,
}

impl InlineAccount {
    /// Makes the account of an entry of `entry_bytes`.
    #[inline(always)]
    pub fn of(parts: &Parts<'_>, entry_bytes: usize) -> InlineAccount {
        let account = InlineAccount {
            class: Class(0),
            items: 0,
            key_bytes: parts.key.map_or(0, <[u8]>::len) as u8,
            value_bytes: 0,
            expiry_bytes: parts.expiry_bytes() as u8,
            entry_bytes: 0,
        };
        account.with_value(parts.form(), parts.tail, entry_bytes)
    }

    /// The account of the same key with another value, which lies in its entry as the old one does.
    #[inline(always)]
    pub fn with_value(self, form: Form, value: &[u8], entry_bytes: usize) -> InlineAccount {
        InlineAccount {
            class: Class::of_value(form, usize::from(self.key_bytes), value.len(), self.is_volatile()),
            items: items_of(form, value) as u8,
            value_bytes: value.len() as u8,
            entry_bytes: entry_bytes as u8,
            ..self
        }
    }

    /// The account of the same key with a text that lies in its entry and is longer by `added`.
    #[inline]
    pub fn with_longer_text(self, added: usize) -> InlineAccount {
        InlineAccount {
            items: self.items + added as u8,
            value_bytes: self.value_bytes + added as u8,
            entry_bytes: self.entry_bytes + added as u8,
            ..self
        }
    }

    #[inline]
    pub fn is_volatile(self) -> bool {
        self.expiry_bytes > 0
    }
}

impl From<InlineAccount> for Account {
    #[inline(always)]
    fn from(inline: InlineAccount) -> Account {
        let InlineAccount { class, items, key_bytes, value_bytes, expiry_bytes, entry_bytes } = inline;
        Account {
            class,
            items: u64::from(items),
            key_bytes: u32::from(key_bytes),
            value_bytes: u64::from(value_bytes),
            expiry_bytes,
            entry_bytes,
            blob_bytes: 0,
            elsewhere: [0; 2],
        }
    }
}

/// Sums over the entries of a class.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ClassSums {
    pub keys: u64,
    pub key_bytes: u64,
    pub value_bytes: u64,
    /// Entries and bodies, whole.
    pub memory_bytes: u64,
}

impl ClassSums {
    #[inline(always)]
    fn add(&mut self, account: &Account, sign: i64) {
        let change = |sum: &mut u64, by: u64| *sum = sum.wrapping_add_signed(by as i64 * sign);
        change(&mut self.keys, 1);
        change(&mut self.key_bytes, u64::from(account.key_bytes));
        change(&mut self.value_bytes, account.value_bytes);
        change(&mut self.memory_bytes, account.memory_bytes());
    }

    pub(crate) fn merge(&mut self, other: &ClassSums) {
        self.keys += other.keys;
        self.key_bytes += other.key_bytes;
        self.value_bytes += other.value_bytes;
        self.memory_bytes += other.memory_bytes;
    }
}

/// Sums over all entries, to be compared with what pages and blobs hold.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Totals {
    pub blob_bytes: u64,
    pub expiry_bytes: u64,
    /// Bytes of keys and of values that lie in large bodies and in objects.
    pub elsewhere: [u64; 2],
}

impl Totals {
    #[inline(always)]
    fn add(&mut self, account: &Account, sign: i64) {
        let change = |sum: &mut u64, by: u64| *sum = sum.wrapping_add_signed(by as i64 * sign);
        if account.expiry_bytes > 0 {
            change(&mut self.expiry_bytes, u64::from(account.expiry_bytes));
        }
        // Most lie in their pages, whole.
        if account.outside_bytes() == 0 {
            return;
        }
        change(&mut self.blob_bytes, u64::from(account.blob_bytes));
        change(&mut self.elsewhere[0], account.elsewhere[0]);
        change(&mut self.elsewhere[1], account.elsewhere[1]);
    }
}

const ABSENT: u8 = u8::MAX;

#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Tally {
    pub totals: Totals,
    /// Position of each class's sums.
    places: [u8; CLASSES.len()],
    sums: Vec<ClassSums>,
}

impl Default for Tally {
    fn default() -> Tally {
        Tally { totals: Totals::default(), places: [ABSENT; CLASSES.len()], sums: Vec::new() }
    }
}

impl Tally {
    #[inline(always)]
    pub fn add(&mut self, account: &Account) {
        self.count(account, 1);
    }

    #[inline(always)]
    pub fn remove(&mut self, account: &Account) {
        self.count(account, -1);
    }

    /// An entry that was there has become another, of the same key.
    #[inline(always)]
    pub fn replace(&mut self, old: &Account, new: &Account) {
        if old.class != new.class {
            return self.reclassify(old, new);
        }
        debug_assert_eq!(old.key_bytes, new.key_bytes, "the key is the same");
        // The usual change: what is the same is not looked at twice.
        if old.expiry_bytes != new.expiry_bytes || old.outside_bytes() | new.outside_bytes() != 0 {
            self.totals.add(old, -1);
            self.totals.add(new, 1);
        }
        let sums = &mut self.sums[usize::from(self.places[old.class.number()])];
        let change = |sum: &mut u64, old: u64, new: u64| *sum = sum.wrapping_add(new.wrapping_sub(old));
        change(&mut sums.value_bytes, old.value_bytes, new.value_bytes);
        change(&mut sums.memory_bytes, old.memory_bytes(), new.memory_bytes());
    }

    /// An object of this class takes more or less.
    #[inline(always)]
    pub fn change_object(&mut self, class: Class, [old, new]: [u64; 2]) {
        let sums = &mut self.sums[usize::from(self.places[class.number()])];
        for sum in [&mut sums.value_bytes, &mut sums.memory_bytes, &mut self.totals.elsewhere[1]] {
            *sum = sum.wrapping_add(new.wrapping_sub(old));
        }
    }

    #[inline(never)]
    fn reclassify(&mut self, old: &Account, new: &Account) {
        self.count(old, -1);
        self.count(new, 1);
    }

    #[inline(always)]
    fn count(&mut self, account: &Account, sign: i64) {
        self.totals.add(account, sign);
        let mut place = self.places[usize::from(account.class.0)];
        if place == ABSENT {
            place = self.open(account.class);
        }
        self.sums[usize::from(place)].add(account, sign);
    }

    #[cold]
    fn open(&mut self, class: Class) -> u8 {
        self.sums.reserve_exact(1);
        self.sums.push(ClassSums::default());
        let place = self.sums.len() as u8 - 1;
        self.places[usize::from(class.0)] = place;
        place
    }

    /// Every class that has keys.
    pub fn classes(&self) -> impl Iterator<Item = (Type, Encoding, &ClassSums)> {
        let present = CLASSES.iter().zip(self.places).filter(|(_, place)| *place != ABSENT);
        let sums = present.map(|(class, place)| (class.0, class.1, &self.sums[usize::from(place)]));
        sums.filter(|(_, _, sums)| sums.keys > 0)
    }

    /// Entries in their pages.
    pub fn entry_bytes(&self) -> u64 {
        let outside = self.totals.blob_bytes + self.totals.elsewhere.iter().sum::<u64>();
        self.sums.iter().map(|sums| sums.memory_bytes).sum::<u64>() - outside
    }

    pub fn key_bytes(&self) -> u64 {
        self.sums.iter().map(|sums| sums.key_bytes).sum()
    }

    pub fn value_bytes(&self) -> u64 {
        self.sums.iter().map(|sums| sums.value_bytes).sum()
    }

    /// Returns the bytes that it takes from the global allocator.
    pub fn memory_bytes(&self) -> usize {
        self.sums.capacity() * size_of::<ClassSums>()
    }

    /// Asserts that it counts what `counted` does, which was made anew of the entries.
    pub fn check_invariants(&self, counted: &Tally) {
        assert_eq!(self.totals, counted.totals);
        assert!(self.classes().eq(counted.classes()), "{self:?} is not {counted:?}");
        let inside = self.entry_bytes() + self.totals.blob_bytes;
        let payload = self.key_bytes() + self.value_bytes() - self.totals.elsewhere.iter().sum::<u64>();
        assert!(payload + self.totals.expiry_bytes <= inside, "the parts of an entry lie in it");
    }
}

/// Part of an object's account that its root remembers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Tallied {
    pub class: Class,
    /// Units of 16 B that its slot's record counts for the object.
    pub units: Units,
    pub items: u64,
}

impl Tallied {
    /// Returns whether nothing differs that is counted, except memory: elements are in no sum, only in the
    /// histogram of sizes.
    #[inline]
    pub fn is_alike(&self, other: &Tallied) -> bool {
        self.class == other.class && sizes::are_alike(self.items, other.items)
    }
}

/// A string is embstr in Valkey while it fits 128 B together with its header (8 B), its key (with 1 or 3 B of
/// length and a NUL), its own length and NUL (4 B), a byte, and its expiry (8 B).
pub(crate) fn is_embstr(key_bytes: usize, value_bytes: usize, is_volatile: bool) -> bool {
    const EMBEDDED_BYTES_MAX: usize = 128;
    let lengths = if key_bytes < 32 { 1 } else { 3 };
    let expiry = if is_volatile { 8 } else { 0 };
    8 + key_bytes + lengths + 1 + 1 + value_bytes + 4 + expiry <= EMBEDDED_BYTES_MAX
}

/// Bytes of a string, elements of a collection that is no object.
#[inline]
pub(crate) fn items_of(form: Form, value: &[u8]) -> u64 {
    match form {
        Form::Int | Form::Bytes | Form::Raw => value.len() as u64,
        Form::IntSet => packed_ints_len(value) as u64,
        form => {
            let stride = stride_of(form);
            (Packed::new(value, stride).len() / stride) as u64
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_class_has_its_number() {
        for (number, (kind, encoding)) in CLASSES.into_iter().enumerate() {
            assert_eq!(Class::new(kind, encoding), Class(number as u8));
        }
    }

    #[test]
    fn every_form_has_its_class() {
        use Form::*;
        for form in [Bytes, Int, Raw, List, Hash, Set, IntSet, Zset, Stream] {
            let encoding = match form {
                Int => Encoding::Int,
                Bytes | Raw => Encoding::Raw,
                form => crate::layout::kind::packed_encoding(form),
            };
            assert_eq!(Class::of_value(form, 16, 1000, false), Class::new(form.kind(), encoding), "{form:?}");
        }
        assert_eq!(Class::of_value(Bytes, 16, 16, false), Class::new(Type::String, Encoding::Embstr));
    }

    #[test]
    fn what_is_taken_off_leaves_nothing() {
        let account = |class, value_bytes| Account {
            class: Class(class),
            items: 3,
            key_bytes: 16,
            value_bytes,
            expiry_bytes: 5,
            entry_bytes: 60,
            blob_bytes: 0,
            elsewhere: [0, value_bytes],
        };
        let mut tally = Tally::default();
        tally.add(&account(1, 30));
        tally.add(&account(12, 1 << 33));
        tally.replace(&account(1, 30), &account(2, 31));
        let classes: Vec<_> = tally.classes().map(|(kind, _, sums)| (kind, sums.value_bytes)).collect();
        assert_eq!(classes, [(Type::String, 31), (Type::Stream, 1 << 33)]);
        tally.remove(&account(12, 1 << 33));
        tally.remove(&account(2, 31));
        assert_eq!((tally.totals, tally.classes().count()), (Totals::default(), 0));
    }
}
