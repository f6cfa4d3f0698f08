//! A list as commands see it, whatever it is stored as: packed bytes while it is small, blocks above.
//!
//! The answer of OBJECT ENCODING follows Valkey's rules, not the storage: a list is a "listpack" while all of
//! it would fit into one under `list-max-listpack-size`, then a "quicklist", until it has shrunk to half of
//! the limit. A packed list is always the former; blocks know (`List::quick`).

use super::{End, Iter, List};
use crate::layout::kind::{Encoding, Full, packed_encoding};
use crate::layout::listpack::{LISTPACK_EMPTY_BYTES, entry_bytes};
use crate::layout::packed::{Element, Packed, PackedBuf};
use crate::values::blocks::{reading_of, reading_to_change, room_of};
use crate::values::collection::{EditBody, Editing, PACKED_BYTES_MAX, Stored};
use crate::values::nodes::Room;
use crate::values::object::{Footprint, Object, Structure};
use crate::values::receiver::Receiver;
use crate::values::store::Store;
use isotherm_arena::Handle;
use isotherm_stdx::{UnixMs, steps};

/// Blocks whose elements take no more than this in a listpack are packed again.
const PACKED_AGAIN_BYTES: u64 = PACKED_BYTES_MAX as u64 / 2;
/// Bytes that a limit by count still allows.
const COUNTED_LISTPACK_BYTES_MAX: u64 = 8192;

/// Time of a change that is made without a command.
pub(super) const NO_TIME: UnixMs = UnixMs(0);

/// A list to read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ListView<'a> {
    stored: Stored<'a>,
}

impl<'a> ListView<'a> {
    #[inline]
    pub(crate) fn new(stored: Stored<'a>) -> ListView<'a> {
        ListView { stored }
    }

    pub fn encoding(&self) -> Encoding {
        match self.stored {
            Stored::Packed(_, form) => packed_encoding(form),
            Stored::Object(root, _) => root.body.structure().encoding(),
        }
    }

    #[allow(clippy::len_without_is_empty, reason = "an empty one is absent")]
    #[inline]
    pub fn len(&self) -> u64 {
        match self.stored {
            Stored::Packed(bytes, _) => Packed::new(bytes, 1).len() as u64,
            Stored::Object(root, _) => root.body.structure().len(),
        }
    }

    /// Element `index` from the front.
    pub fn get(&self, index: u64) -> Option<Element<'a>> {
        match self.stored {
            Stored::Packed(bytes, _) => {
                Some(Packed::new(bytes, 1).get(usize::try_from(index).ok()?)?.element())
            }
            Stored::Object(root, store) => blocks(&root.body).get(reading_of(store), index),
        }
    }

    /// Elements from `index` on, coming from `from`.
    pub fn iter(&self, index: u64, from: End) -> Elements<'a> {
        match self.stored {
            Stored::Packed(bytes, _) => Elements::packed(Packed::new(bytes, 1), index, from),
            Stored::Object(root, store) => {
                Elements::Blocks(blocks(&root.body).iter(reading_of(store), index, from))
            }
        }
    }
}

fn blocks(object: &Object) -> &List {
    match object {
        Object::List(list) => list,
        _ => unreachable!("a list's entry names a list"),
    }
}

/// Elements in a row.
pub enum Elements<'a> {
    #[doc(hidden)]
    Packed(std::vec::IntoIter<Element<'a>>),
    #[doc(hidden)]
    Blocks(Iter<'a>),
}

impl<'a> Elements<'a> {
    fn packed(packed: Packed<'a>, index: u64, from: End) -> Elements<'a> {
        let all = packed.cells().map(|cell| cell.element());
        let index = usize::try_from(index).unwrap_or(usize::MAX);
        let elements: Vec<Element<'a>> = match from {
            End::Front => all.skip(index).collect(),
            End::Back => {
                let mut elements: Vec<Element<'a>> = all.take(index.saturating_add(1)).collect();
                elements.reverse();
                elements
            }
        };
        Elements::Packed(elements.into_iter())
    }
}

impl<'a> Elements<'a> {
    /// Returns the positions of the elements that equal `wanted`, among the next `len_max` ones: for each,
    /// the number of elements before it. An element may be found before all blocks were read that are not in
    /// memory.
    pub fn search<'w>(self, wanted: Element<'w>, len_max: u64) -> impl Iterator<Item = u64> + use<'a, 'w> {
        let (packed, blocks) = match self {
            Elements::Packed(elements) => (Some(elements), None),
            Elements::Blocks(elements) => (None, Some(elements.search(wanted, len_max))),
        };
        let looked_at = packed.into_iter().flatten().inspect(|_| steps::note(1));
        let found = looked_at.zip(0..len_max).filter(move |(element, _)| *element == wanted);
        found.map(|(_, at)| at).chain(blocks.into_iter().flatten())
    }
}

impl<'a> Iterator for Elements<'a> {
    type Item = Element<'a>;

    #[inline]
    fn next(&mut self) -> Option<Element<'a>> {
        steps::note(1);
        match self {
            Elements::Packed(elements) => elements.next(),
            Elements::Blocks(elements) => elements.next(),
        }
    }
}

/// A list to change.
pub struct ListEdit<'c, 'e> {
    pub(crate) editing: &'c mut Editing<'e>,
}

impl ListEdit<'_, '_> {
    #[inline]
    pub fn len(&self) -> u64 {
        self.editing.len(1)
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Element `index` from the front.
    pub fn get(&self, index: u64) -> Option<Element<'_>> {
        match &self.editing.body {
            EditBody::Packed(buf) => Some(buf.view().get(usize::try_from(index).ok()?)?.element()),
            EditBody::Object(_, root) => blocks(&root.body).get(reading_to_change(self.editing.store), index),
        }
    }

    /// The element at an end.
    pub fn end(&self, end: End) -> Option<Element<'_>> {
        match &self.editing.body {
            EditBody::Packed(buf) => Some(
                buf.view()
                    .get(match end {
                        End::Front => 0,
                        End::Back => buf.len().checked_sub(1)?,
                    })?
                    .element(),
            ),
            EditBody::Object(_, root) => blocks(&root.body).end(reading_to_change(self.editing.store), end),
        }
    }

    /// Elements from `index` on, coming from `from`.
    pub fn iter(&self, index: u64, from: End) -> Elements<'_> {
        match &self.editing.body {
            EditBody::Packed(buf) => Elements::packed(buf.view(), index, from),
            EditBody::Object(_, root) => {
                Elements::Blocks(blocks(&root.body).iter(reading_to_change(self.editing.store), index, from))
            }
        }
    }

    /// Puts texts at an end, one after the other. On an error some of them may be there.
    pub fn push<'t>(&mut self, end: End, texts: impl Iterator<Item = &'t [u8]> + Clone) -> Result<(), Full> {
        self.before_growth(texts.clone())?;
        let mut texts = texts;
        while let Some(text) = texts.next() {
            let element = Element::of(text);
            match (self.packed_with_room(element)?, end) {
                (Some(buf), End::Front) => buf.insert(0, element),
                (Some(buf), End::Back) => buf.push(element),
                (None, _) => self.push_each(end, element, &mut texts)?,
            }
            self.editing.changed = true;
        }
        Ok(())
    }

    /// Pushes the elements to blocks: once there are such, all that follow go there.
    #[inline]
    fn push_each<'t>(
        &mut self,
        end: End,
        first: Element<'_>,
        rest: &mut impl Iterator<Item = &'t [u8]>,
    ) -> Result<(), Full> {
        let mut changed = false;
        let done = self.with_blocks(|list, room| {
            list.push(room, end, first)?;
            changed = true;
            rest.try_for_each(|text| list.push(room, end, Element::of(text)))
        });
        self.editing.changed |= changed;
        done
    }

    /// Puts a text before element `index`.
    pub fn insert(&mut self, index: u64, text: &[u8]) -> Result<(), Full> {
        let element = Element::of(text);
        if let Some(buf) = self.packed_with_room(element)? {
            buf.insert(index as usize, element);
        } else {
            self.with_blocks(|list, room| list.insert(room, index, element))?;
        }
        self.editing.changed = true;
        Ok(())
    }

    /// Puts a text in the place of element `index`.
    pub fn set(&mut self, index: u64, text: &[u8]) -> Result<(), Full> {
        let element = Element::of(text);
        if let Some(buf) = self.packed_with_room(element)? {
            buf.replace(index as usize, element);
        } else {
            self.with_blocks(|list, room| list.set(room, index, element))?;
        }
        self.editing.changed = true;
        self.after_shrinking();
        Ok(())
    }

    /// Takes out `count` elements from `index` on.
    pub fn remove(&mut self, index: u64, count: u64) -> Result<(), Full> {
        if let Some(buf) = self.editing.buf() {
            buf.remove(index as usize, count as usize);
        } else {
            self.with_blocks(|list, room| list.remove(room, index, count))?;
        }
        self.editing.changed = true;
        self.after_shrinking();
        Ok(())
    }

    /// Takes out all but the elements of a range.
    pub fn trim(&mut self, kept: std::ops::Range<u64>) -> Result<(), Full> {
        if let EditBody::Object(_, root) = &self.editing.body {
            let (list, reading) = (blocks(&root.body), reading_to_change(self.editing.store));
            list.want_edges(reading, [kept.start, kept.end])?;
        }
        let behind = self.len() - kept.end;
        if behind > 0 {
            self.remove(kept.end, behind)?;
        }
        if kept.start > 0 { self.remove(0, kept.start) } else { Ok(()) }
    }

    /// Takes out elements equal to a text, up to `count`, beginning at an end. Returns how many there were.
    pub fn remove_equal(&mut self, from: End, count: u64, text: &[u8]) -> Result<u64, Full> {
        let element = Element::of(text);
        let removed = if let Some(buf) = self.editing.buf() {
            remove_equal_packed(buf, from, count, element)
        } else {
            self.with_blocks(|list, room| list.remove_equal(room, from, count, element))?
        };
        if removed > 0 {
            self.editing.changed = true;
            self.after_shrinking();
        }
        Ok(removed)
    }

    // ---- storage ----

    /// The packed elements, if they have room for one more; else they are blocks from now on.
    #[inline]
    fn packed_with_room(&mut self, element: Element<'_>) -> Result<Option<&mut PackedBuf>, Full> {
        const TAG_AND_LENGTH_BYTES: usize = 5;
        if let EditBody::Packed(buf) = &self.editing.body {
            let bytes = match element {
                Element::Int(_) => 8,
                Element::Bytes(text) => text.len(),
            };
            if buf.bytes_bound() + bytes + TAG_AND_LENGTH_BYTES > PACKED_BYTES_MAX {
                self.make_blocks(false)?;
            }
        }
        Ok(self.editing.buf())
    }

    fn make_blocks(&mut self, quick: bool) -> Result<(), Full> {
        let now = self.editing.now;
        self.editing.promote(|store, number, buf| blocks_from(store, number, buf, quick, now))
    }

    fn with_blocks<R>(
        &mut self,
        work: impl FnOnce(&mut List, &mut Room<'_>) -> Result<R, Full>,
    ) -> Result<R, Full> {
        // Elements that the command has looked at before may not have been there.
        if self.editing.store.cold.has_failed() {
            return Err(Full);
        }
        let EditBody::Object(_, root) = &mut self.editing.body else { unreachable!("it is not packed") };
        let Object::List(list) = &mut root.body else { unreachable!("a list's entry names a list") };
        let now = self.editing.now;
        work(list, &mut room_of(self.editing.store, now))
    }

    // ---- encodings ----

    /// Texts are about to come: the list may become a "quicklist". As Valkey does it, before it is known
    /// whether they will be put in at all.
    pub fn before_growth<'t>(&mut self, texts: impl Iterator<Item = &'t [u8]>) -> Result<(), Full> {
        let (mut bytes, mut count) = (LISTPACK_EMPTY_BYTES, self.len());
        for text in texts {
            (bytes, count) = (bytes + text.len() as u64, count + 1);
        }
        let limit = Limit::of(self.editing.limits.list_max_listpack_size);
        match &mut self.editing.body {
            EditBody::Packed(buf) => {
                // No element takes more than three times its packed bytes.
                if limit.allows(bytes + 3 * buf.bytes_bound() as u64, count) {
                    return Ok(());
                }
                let packed: u64 = buf.view().cells().map(|cell| entry_bytes(cell.element())).sum();
                if limit.allows(bytes + packed, count) { Ok(()) } else { self.make_blocks(true) }
            }
            EditBody::Object(_, root) => {
                let Object::List(list) = &mut root.body else { unreachable!("a list's entry names a list") };
                list.quick |= !limit.allows(bytes + list.listpack_bytes() - LISTPACK_EMPTY_BYTES, count);
                Ok(())
            }
        }
    }

    /// Moves the element at one end to an end. Steps that can fail come before the first change.
    pub fn rotate(&mut self, from: End, to: End) -> Result<(), Full> {
        let last = self.len().checked_sub(1).expect("a list that is there has elements");
        let at = |end: End, last: u64| if end == End::Front { 0 } else { last };
        let element = self.end(from).expect("it has elements").to_vec();
        let element = Element::of(&element);
        if let Some(buf) = self.editing.buf() {
            buf.remove(at(from, last) as usize, 1);
            buf.insert(at(to, last) as usize, element);
        } else {
            self.with_blocks(|list, room| {
                list.push(room, to, element)?;
                list.remove(room, at(from, last + 1), 1)
            })?;
        }
        self.editing.changed = true;
        // As far as the limits have changed since. Without memory for blocks it stays packed.
        let _ = self.before_growth(std::iter::empty());
        self.after_shrinking();
        Ok(())
    }

    /// Elements have left: the list may become a "listpack" again, and packed.
    fn after_shrinking(&mut self) {
        let limit = Limit::of(self.editing.limits.list_max_listpack_size);
        let EditBody::Object(_, root) = &mut self.editing.body else { return };
        let Object::List(list) = &mut root.body else { unreachable!("a list's entry names a list") };
        // COMPAT(lists): OBJECT ENCODING of a list that shrinks goes back to `listpack` when the whole list
        // fits into half of the limit; in Valkey it also depends on how many quicklist nodes are left. Why:
        // there are no quicklist nodes.
        list.quick &= !limit.half().allows(list.listpack_bytes(), list.len());
        self.editing.has_shrunk = is_packed_again(list);
    }
}

fn is_packed_again(list: &List) -> bool {
    !list.quick && list.listpack_bytes() <= PACKED_AGAIN_BYTES && !list.is_empty() && list.nodes.away() == 0
}

/// Fills `buf` with the elements of a list of blocks, if it is small enough to be packed again.
pub(crate) fn pack_again(object: &Object, store: &Store, buf: &mut PackedBuf) -> bool {
    let Object::List(list) = object else { return false };
    let is_small = is_packed_again(list);
    if is_small {
        buf.clear(1);
        list.iter(reading_of(store), 0, End::Front).for_each(|element| buf.push(element));
    }
    is_small
}

/// Blocks of the same elements.
pub(crate) fn blocks_from(
    store: &mut Store,
    number: u32,
    buf: &PackedBuf,
    quick: bool,
    now: UnixMs,
) -> Result<Object, Full> {
    let mut list = List::new(number);
    list.quick = quick;
    let mut room = room_of(store, now);
    for cell in buf.view().cells() {
        if let Err(full) = list.push(&mut room, End::Back, cell.element()) {
            while !list.free_pieces(&mut room, usize::MAX) {}
            return Err(full);
        }
    }
    Ok(Object::List(list))
}

fn remove_equal_packed(buf: &mut PackedBuf, from: End, count: u64, element: Element<'_>) -> u64 {
    let equal = |(index, found): (usize, Element<'_>)| (found == element).then_some(index);
    let cells = buf.view();
    let mut found: Vec<usize> =
        cells.cells().map(|cell| cell.element()).enumerate().filter_map(equal).collect();
    let count = usize::try_from(count).unwrap_or(usize::MAX).min(found.len());
    match from {
        End::Front => found.truncate(count),
        End::Back => _ = found.drain(..found.len() - count),
    }
    found.iter().rev().for_each(|&index| buf.remove(index, 1));
    count as u64
}

/// Limit of one listpack.
#[derive(Clone, Copy)]
struct Limit {
    bytes: u64,
    count: u64,
}

impl Limit {
    /// Returns the limit for a `list-max-listpack-size`: a number of elements, or one of five sizes if it is
    /// negative.
    fn of(size: i32) -> Limit {
        const SIZES: [u64; 5] = [4096, 8192, 16_384, 32_768, 65_536];
        match size {
            0.. => Limit { bytes: COUNTED_LISTPACK_BYTES_MAX, count: size.max(1) as u64 },
            _ => Limit { bytes: SIZES[(-1 - i64::from(size)).min(4) as usize], count: u64::MAX },
        }
    }

    /// Returns the limit that a shrinking list has to come down to.
    fn half(self) -> Limit {
        if self.count == u64::MAX {
            Limit { bytes: self.bytes / 2, ..self }
        } else {
            Limit { count: self.count / 2, ..self }
        }
    }

    #[inline]
    fn allows(self, bytes: u64, count: u64) -> bool {
        bytes <= self.bytes && count <= self.count
    }
}

impl Structure for List {
    fn len(&self) -> u64 {
        List::len(self)
    }

    fn memory_bytes(&self) -> u64 {
        List::memory_bytes(self) as u64
    }

    fn footprint(&self) -> Footprint {
        let malloc_bytes = self.nodes.table_bytes() + self.table_bytes();
        Footprint { malloc_bytes: malloc_bytes as u64, ..Footprint::default() }
    }

    fn encoding(&self) -> Encoding {
        if self.quick { Encoding::Quicklist } else { Encoding::Listpack }
    }

    fn nodes(&self) -> u64 {
        self.chain.items()
    }

    fn away_nodes(&self) -> u64 {
        u64::from(self.nodes.away())
    }

    fn relocate(&mut self, store: &mut Store, id: u32, handle: Handle) -> bool {
        let size = self.block(reading_of(store), id).room();
        let Ok((moved, _)) = store.heap.reallocate(handle, size, size) else { return false };
        if moved != handle {
            self.moved(id, handle, moved);
        }
        moved != handle
    }

    fn free_step(&mut self, store: &mut Store, nodes_max: usize) -> bool {
        self.free_pieces(&mut room_of(store, NO_TIME), nodes_max)
    }

    fn duplicate(&self, store: &mut Store, number: u32) -> Result<Object, Full> {
        self.nodes.refuse_away(reading_of(store))?;
        self.copied(None, store, number)
    }

    fn duplicate_from(&self, from: &Store, store: &mut Store, number: u32) -> Result<Object, Full> {
        self.nodes.refuse_away(reading_of(from))?;
        self.copied(Some(reading_of(from)), store, number)
    }

    fn set_saving(&mut self, saving: bool) {
        self.keep_cut(saving);
    }

    fn emit_step(&mut self, store: &mut Store, _: &mut u64, receiver: &mut dyn Receiver) -> bool {
        self.emit_cut(&mut room_of(store, NO_TIME), receiver)
    }

    fn forget_step(&mut self, store: &mut Store, nodes_max: usize) -> bool {
        self.forget_cut(&mut room_of(store, NO_TIME), nodes_max)
    }

    fn kept_bytes(&self) -> u64 {
        self.cut.as_ref().map_or(0, |cut| cut.kept_bytes())
    }

    fn has_garbage(&self) -> bool {
        !self.debris.is_empty()
    }

    fn sweep_step(&mut self, store: &mut Store, nodes_max: usize) -> bool {
        self.sweep(&mut room_of(store, NO_TIME), nodes_max)
    }

    fn parts(&self) -> u64 {
        Structure::len(self)
    }

    fn check_invariants(&self, store: &Store, _: u32) -> u64 {
        List::check_invariants(self, reading_of(store));
        self.nodes.len() as u64
    }

    fn large_bodies(&self, _: &Store) -> u64 {
        self.large
    }
}
