//! The frozen keys of a table: those that lie outside memory together with their values, some hundred to a
//! record.
//!
//! ```text
//!   a key that no page has  -->  bundles of its slot whose part it is in, a few levels  -->  16 bits of hash that are equal: read that record
//!   bundle = [place of the slot, part] -> [where its record is][how many live][16 bits of each key's hash]
//! ```
//! Pages know nothing of it, so splits and merges read nothing. A key is in a page or in a bundle, never in
//! both: it leaves the bundle (its bits become 0) when it comes to memory. A record is given back when all
//! its keys have left.
//!
//! A bundle of 100 keys: 44 B in the map, which is two thirds full, so 66, and 208 B of bits: 2.8 B a key.
//! One with keys that expire is in a second map, with a bound: none of them expires before. It is not exact:
//! keys leave, and only the record says when those expire that are left.
//!
//! Invariants: `keys` is the sum of the keys that live, `volatile` that of the keys that expire; every bundle
//! has a key that lives; `levels` counts bundles by level.

use crate::layout::bundle::{self, BundleName, Expiring, Interval, order_of, print_of};
use crate::layout::cold::ColdRef;
use crate::values::store::Store;
use crate::values::value::Entry;
use isotherm_stdx::UnixMs;
use std::collections::BTreeMap;
use std::ops::Bound;

const LEVELS: usize = Interval::LEVEL_MAX as usize + 1;
/// Nodes of the map are filled to two thirds, about.
const MAP_FILL: (usize, usize) = (3, 2);
/// A byte of the global allocator's for each that is asked for, about.
const HEAP_ROUNDING_BYTES: usize = 8;

/// Address of a bundle in a table.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct BundleAddress {
    /// The slot's place in its partition.
    place: u16,
    part: Interval,
    /// Several of one part are distinguished by it.
    number: u16,
}

impl BundleAddress {
    /// Returns an address before those of all bundles of a slot.
    pub fn first_of(place: usize) -> BundleAddress {
        let part = Interval { start: 0, level: 0 };
        BundleAddress { place: place as u16, part, number: 0 }
    }

    pub fn name(&self) -> BundleName {
        self.part.name()
    }

    pub fn place(&self) -> usize {
        usize::from(self.place)
    }
}

/// Keys outside memory, and where their record is.
#[derive(Debug)]
pub(crate) struct Bundle {
    pub reference: ColdRef,
    /// Version of the snapshot that has seen the bundle, as in a page.
    pub version: u8,
    live: u16,
    /// Hash bits of each key in the order of the record; 0 for a key that has left.
    prints: Box<[u16]>,
}

impl Bundle {
    /// Makes a bundle of the keys with these hashes, in the order of the record. `None` stands for a key of
    /// the record that did not come into the bundle.
    pub fn new(reference: ColdRef, version: u8, hashes: impl Iterator<Item = Option<u64>>) -> Bundle {
        let prints: Box<[u16]> = hashes.map(|hash| hash.map_or(0, print_of)).collect();
        let live = prints.iter().filter(|print| **print != 0).count() as u16;
        Bundle { reference, version, live, prints }
    }

    /// Makes a bundle from the hash bits in a file.
    pub fn restored(reference: ColdRef, version: u8, prints: &[[u8; 2]]) -> Bundle {
        let prints: Box<[u16]> = prints.iter().map(|print| u16::from_le_bytes(*print)).collect();
        let live = prints.iter().filter(|print| **print != 0).count() as u16;
        Bundle { reference, version, live, prints }
    }

    /// Visits the keys, with their hashes. The record is read under the lock. Returns whether it could be.
    pub fn visit(
        &self,
        store: &Store,
        address: &BundleAddress,
        visit: &mut dyn FnMut(u64, &[u8], &Entry<'_>),
    ) -> bool {
        let keeper = store.cold.keeper.as_ref().expect("what is frozen has a keeper");
        let payload = keeper.read(self.reference, address.name().as_bytes());
        payload.is_some_and(|payload| self.visit_items(store, &payload, visit))
    }

    /// Visits the keys of a payload. Returns whether it is this bundle's, as far as that can be seen.
    pub fn visit_items(
        &self,
        store: &Store,
        payload: &[u8],
        visit: &mut dyn FnMut(u64, &[u8], &Entry<'_>),
    ) -> bool {
        let items = bundle::items(payload).filter(|items| items.len() == self.prints.len());
        let Some(items) = items else { return false };
        let mut live = items.iter().zip(&self.prints).filter(|(_, print)| **print != 0);
        live.all(|(item, print)| {
            let hash = store.hasher.hash(item.key);
            let is_same = print_of(hash) == *print;
            if is_same {
                Entry::of_item(store, item, &mut |entry| visit(hash, item.key, entry));
            }
            is_same
        })
    }

    pub fn live(&self) -> u64 {
        u64::from(self.live)
    }

    pub fn prints(&self) -> &[u16] {
        &self.prints
    }

    pub fn is_live(&self, ordinal: usize) -> bool {
        self.prints.get(ordinal).is_some_and(|print| *print != 0)
    }

    pub fn proposes(&self, print: u16) -> bool {
        self.prints.contains(&print)
    }

    fn heap_bytes(&self) -> usize {
        self.prints.len() * 2 + HEAP_ROUNDING_BYTES
    }
}

#[derive(Default)]
pub(crate) struct Frozen {
    bundles: BTreeMap<BundleAddress, Bundle>,
    /// Bundles with keys that expire.
    expiring: BTreeMap<BundleAddress, Expiring>,
    pub keys: u64,
    pub volatile: u64,
    levels: Levels,
    /// Bytes of the hash bits in the global allocator.
    heap_bytes: usize,
}

struct Levels([u32; LEVELS]);

impl Default for Levels {
    fn default() -> Levels {
        Levels([0; LEVELS])
    }
}

impl Levels {
    fn used(&self) -> impl DoubleEndedIterator<Item = u8> {
        (0..LEVELS as u8).filter(|level| self.0[usize::from(*level)] > 0)
    }
}

impl Frozen {
    pub fn is_empty(&self) -> bool {
        self.bundles.is_empty()
    }

    pub fn bundle_count(&self) -> u64 {
        self.bundles.len() as u64
    }

    pub fn memory_bytes(&self) -> usize {
        let place_bytes = size_of::<BundleAddress>() + size_of::<Bundle>();
        let expiring_bytes = self.expiring.len() * (size_of::<BundleAddress>() + size_of::<Expiring>());
        (self.bundles.len() * place_bytes + expiring_bytes) * MAP_FILL.0 / MAP_FILL.1 + self.heap_bytes
    }

    pub fn get(&self, address: &BundleAddress) -> Option<&Bundle> {
        self.bundles.get(address)
    }

    pub fn get_mut(&mut self, address: &BundleAddress) -> Option<&mut Bundle> {
        self.bundles.get_mut(address)
    }

    // ---- finding ----

    /// The first bundle that may have a key of this hash, of those that `is_wanted`.
    pub fn propose(
        &self,
        place: usize,
        hash: u64,
        is_wanted: impl Fn(&Bundle) -> bool,
    ) -> Option<(BundleAddress, &Bundle)> {
        let (order, print) = (order_of(hash), print_of(hash));
        self.levels.used().find_map(|level| {
            let mut of_part = self.of_part(place, Interval::around(order, level));
            of_part.find(|(_, bundle)| bundle.proposes(print) && is_wanted(bundle))
        })
    }

    fn of_part(&self, place: usize, part: Interval) -> impl Iterator<Item = (BundleAddress, &Bundle)> {
        let at = |number| BundleAddress { place: place as u16, part, number };
        self.bundles.range(at(0)..=at(u16::MAX)).map(|(address, bundle)| (*address, bundle))
    }

    /// The one whose record is there.
    pub fn at(&self, place: usize, part: Interval, reference: ColdRef) -> Option<BundleAddress> {
        let mut of_part = self.of_part(place, part);
        of_part.find(|(_, bundle)| bundle.reference == reference).map(|(address, _)| address)
    }

    /// Returns the bundles of a slot from an address on.
    pub fn from(&self, from: BundleAddress) -> impl Iterator<Item = (BundleAddress, &Bundle)> {
        let all = self.bundles.range(from..).take_while(move |(address, _)| address.place == from.place);
        all.map(|(address, bundle)| (*address, bundle))
    }

    /// Keys of a slot.
    pub fn keys_of(&self, place: usize) -> u64 {
        self.from(BundleAddress::first_of(place)).map(|(_, bundle)| bundle.live()).sum()
    }

    /// The first slot from `place` on that has any.
    pub fn next_slot(&self, place: usize) -> Option<usize> {
        let first = self.bundles.range(BundleAddress::first_of(place)..).next();
        first.map(|(address, _)| usize::from(address.place))
    }

    /// The bundles around an order, and how far no other begins and none of these ends.
    pub fn around(&self, place: usize, order: u32) -> (Vec<BundleAddress>, u64) {
        let mut end = 1 << 32;
        let mut found = Vec::new();
        for level in self.levels.used() {
            let part = Interval::around(order, level);
            let before = found.len();
            found.extend(self.of_part(place, part).map(|(address, _)| address));
            if found.len() > before {
                end = part.end().min(end);
            }
        }
        let behind = BundleAddress {
            place: place as u16,
            part: Interval { start: order, level: Interval::LEVEL_MAX },
            number: u16::MAX,
        };
        if let Some((next, _)) = self.from(behind).find(|(address, _)| address.part.start > order) {
            end = end.min(u64::from(next.part.start));
        }
        (found, end)
    }

    /// A bundle by a number below [`Frozen::bundle_count`], found in as many steps.
    pub fn nth(&self, number: u64) -> Option<(BundleAddress, &Bundle)> {
        self.bundles.iter().nth(number as usize).map(|(address, bundle)| (*address, bundle))
    }

    // ---- what expires ----

    pub fn expiring(&self, address: &BundleAddress) -> Option<Expiring> {
        self.expiring.get(address).copied()
    }

    /// The first bundles after an address that may have keys whose time was over at `before`, of the next
    /// `looks` that have keys that expire; and the last one that was looked at, if there may be more.
    pub fn due(
        &self,
        behind: Option<BundleAddress>,
        before: UnixMs,
        looks: usize,
    ) -> (Vec<(BundleAddress, ColdRef)>, Option<BundleAddress>) {
        let from = behind.map_or(Bound::Unbounded, Bound::Excluded);
        let (mut found, mut last) = (Vec::new(), None);
        for (looked, (address, expiring)) in self.expiring.range((from, Bound::Unbounded)).enumerate() {
            if looked == looks {
                return (found, last);
            }
            last = Some(*address);
            if expiring.bound < before {
                found.push((*address, self.bundles[address].reference));
            }
        }
        (found, None)
    }

    /// The record was read: none of the keys that are left expires before.
    pub fn set_bound(&mut self, address: &BundleAddress, bound: UnixMs) {
        if let Some(expiring) = self.expiring.get_mut(address) {
            expiring.bound = bound;
        }
    }

    // ---- changing ----

    /// Adds one that has keys. `None`: its part has too many.
    pub fn add(
        &mut self,
        place: usize,
        part: Interval,
        bundle: Bundle,
        expiring: Option<Expiring>,
    ) -> Option<BundleAddress> {
        debug_assert!(bundle.live > 0);
        let last = self.of_part(place, part).last().map(|(address, _)| address.number);
        let number = last.map_or(Some(0), |last| last.checked_add(1))?;
        let address = BundleAddress { place: place as u16, part, number };
        self.keys += bundle.live();
        self.levels.0[usize::from(part.level)] += 1;
        self.heap_bytes += bundle.heap_bytes();
        self.bundles.insert(address, bundle);
        if let Some(expiring) = expiring {
            self.volatile += u64::from(expiring.keys);
            self.expiring.insert(address, expiring);
        }
        Some(address)
    }

    /// A key has come to memory. The place of the record if it was the last of its bundle.
    pub fn leave(&mut self, address: &BundleAddress, ordinal: usize, is_volatile: bool) -> Option<ColdRef> {
        if is_volatile {
            let expiring = self.expiring.get_mut(address).expect("it has keys that expire");
            expiring.keys -= 1;
            self.volatile -= 1;
            if expiring.keys == 0 {
                self.expiring.remove(address);
            }
        }
        let bundle = self.bundles.get_mut(address).expect("it was found");
        assert!(bundle.is_live(ordinal), "a key leaves once");
        bundle.prints[ordinal] = 0;
        bundle.live -= 1;
        self.keys -= 1;
        if bundle.live > 0 {
            return None;
        }
        let bundle = self.bundles.remove(address).expect("it was found");
        self.forget(address, &bundle);
        Some(bundle.reference)
    }

    /// Takes one out, whatever lives in it.
    pub fn take(&mut self, address: &BundleAddress) -> Option<Bundle> {
        let bundle = self.bundles.remove(address)?;
        self.keys -= bundle.live();
        self.forget(address, &bundle);
        Some(bundle)
    }

    /// Takes the first bundle out, whatever lives in it.
    pub fn pop(&mut self) -> Option<Bundle> {
        let (address, bundle) = self.bundles.pop_first()?;
        self.keys -= bundle.live();
        self.forget(&address, &bundle);
        Some(bundle)
    }

    fn forget(&mut self, address: &BundleAddress, bundle: &Bundle) {
        let expiring = self.expiring.remove(address);
        self.volatile -= expiring.map_or(0, |expiring| u64::from(expiring.keys));
        self.levels.0[usize::from(address.part.level)] -= 1;
        self.heap_bytes -= bundle.heap_bytes();
    }

    /// Returns how many keys and bundles there are.
    pub fn check_invariants(&self) -> [u64; 2] {
        let mut levels = Levels::default();
        let (mut keys, mut heap_bytes) = (0, 0);
        for (address, bundle) in &self.bundles {
            assert!(bundle.live > 0, "a bundle without keys is given back");
            let live = bundle.prints.iter().filter(|print| **print != 0).count();
            assert_eq!(live, usize::from(bundle.live));
            assert_eq!(Interval::around(address.part.start, address.part.level), address.part);
            levels.0[usize::from(address.part.level)] += 1;
            (keys, heap_bytes) = (keys + bundle.live(), heap_bytes + bundle.heap_bytes());
        }
        assert_eq!((self.keys, self.heap_bytes, self.levels.0), (keys, heap_bytes, levels.0));
        let mut volatile = 0;
        for (address, expiring) in &self.expiring {
            assert!(expiring.keys > 0 && expiring.keys <= self.bundles[address].live);
            volatile += u64::from(expiring.keys);
        }
        assert_eq!(self.volatile, volatile);
        [keys, self.bundle_count()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_stdx::Prng;
    use std::collections::BTreeSet;

    fn reference(number: u64) -> ColdRef {
        ColdRef::new(1 << 40 | number)
    }

    /// Keys in random bundles compared with a plain list.
    #[test]
    fn what_is_frozen_is_proposed_and_nothing_that_has_left() {
        let mut prng = Prng::new(5);
        let mut frozen = Frozen::default();
        let mut model: Vec<(usize, u64, BundleAddress, usize)> = Vec::new();
        for number in 0..300 {
            let (place, level) = (prng.below(3) as usize, prng.below(5) as u8);
            let part = Interval::around(prng.next_u64() as u32, level);
            let rest = u32::MAX.checked_shr(u32::from(level)).unwrap_or(0);
            let hashes: Vec<u64> = (0..1 + prng.below(6))
                .map(|_| {
                    let order = part.start | prng.next_u64() as u32 & rest;
                    prng.next_u64() << 32 | u64::from(order.reverse_bits())
                })
                .collect();
            let bundle = Bundle::new(reference(number), 0, hashes.iter().map(|hash| Some(*hash)));
            // Every second key expires, at the number of its bundle.
            let expiring = Expiring::of((1..hashes.len()).step_by(2).map(|_| UnixMs(number as i64)));
            let address = frozen.add(place, part, bundle, expiring).unwrap();
            assert_eq!(frozen.at(place, part, reference(number)), Some(address));
            model.extend(hashes.iter().enumerate().map(|(at, hash)| (place, *hash, address, at)));
            for _ in 0..prng.below(4) {
                let (_, _, address, at) = model.swap_remove(prng.below(model.len() as u64) as usize);
                let left = frozen.leave(&address, at, at % 2 == 1);
                assert_eq!(left.is_some(), model.iter().all(|other| other.2 != address));
            }
            frozen.check_invariants();
            assert_eq!(frozen.keys, model.len() as u64);
            assert_eq!(frozen.volatile, model.iter().filter(|(.., at)| at % 2 == 1).count() as u64);
            for (place, hash, address, _) in &model {
                let wanted = frozen.get(address).unwrap().reference;
                let found = frozen.propose(*place, *hash, |bundle| bundle.reference == wanted);
                assert_eq!(found.map(|(address, _)| address), Some(*address));
                let (around, end) = frozen.around(*place, order_of(*hash));
                assert!(around.contains(address) && end > u64::from(order_of(*hash)));
            }
        }
        // A walk from end to end meets every bundle, and each key within one step.
        for place in 0..3 {
            let (mut from, mut met) = (0, 0);
            while from < 1 << 32 {
                let (around, end) = frozen.around(place, from as u32);
                assert!(end > from);
                met += model
                    .iter()
                    .filter(|(at, hash, address, _)| {
                        let order = u64::from(order_of(*hash));
                        *at == place && (from..end).contains(&order) && around.contains(address)
                    })
                    .count();
                from = end;
            }
            assert_eq!(met, model.iter().filter(|(at, ..)| *at == place).count());
            assert_eq!(met as u64, frozen.keys_of(place));
        }
        // So does one over those that are due, in small steps.
        let (mut behind, mut due) = (None, Vec::new());
        loop {
            let (found, next) = frozen.due(behind, UnixMs(150), 7);
            due.extend(found);
            behind = next;
            if behind.is_none() {
                break;
            }
        }
        let wanted = model.iter().filter(|(.., at)| at % 2 == 1).map(|(_, _, address, _)| *address);
        let wanted: BTreeSet<_> =
            wanted.filter(|it| frozen.expiring(it).is_some_and(|it| it.bound < UnixMs(150))).collect();
        assert!(wanted.len() > 10);
        assert_eq!(due.iter().map(|(address, _)| *address).collect::<BTreeSet<_>>(), wanted);
        frozen.set_bound(&due[0].0, UnixMs(1000));
        assert_eq!(frozen.due(None, UnixMs(150), usize::MAX).0.len(), due.len() - 1);
        let address = model[0].2;
        assert!(
            frozen.take(&address).is_some_and(|bundle| bundle.live() > 0) && frozen.take(&address).is_none()
        );
        frozen.check_invariants();
        while let Some(bundle) = frozen.pop() {
            assert!(bundle.live() > 0);
        }
        assert_eq!((frozen.check_invariants(), frozen.volatile), ([0, 0], 0));
    }
}
