//! A hash: fields and their values, and a time of its own for each field that has one.
//!
//! ```text
//!   small   packed: field, value, field, value, ...   in the order they came; no field has a time
//!   large   `fields`: pages of entries, as the keyspace's own
//! ```
//!
//! A field past its time is hidden from every reader, counts in the length, and leaves by the active cycle or
//! when it is stored again: as in Valkey.

use crate::layout::kind::{Encoding, Form, Full, NewValue, packed_encoding};
use crate::layout::packed::{Element, Packed, PackedBuf};
use crate::values::collection::{EditBody, Editing, PACKED_BYTES_MAX, Stored};
use crate::values::fields::{Field, Fields};
use crate::values::object::{Object, Root};
use crate::values::store::Store;
use crate::values::timed::{Timed, packed_part};
use isotherm_stdx::{UnixMs, steps};

/// A hash to read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HashView<'a> {
    stored: Stored<'a>,
    /// Fields whose time was before this are hidden.
    now: UnixMs,
}

fn fields_of(root: &Root) -> &Fields {
    match &root.body {
        Object::Hash(fields) => fields,
        _ => unreachable!("the entry's form is that of its object"),
    }
}

#[inline]
fn is_visible(field: &Field<'_>, now: UnixMs) -> bool {
    is_visible_at(field.expiry, now)
}

#[inline]
fn is_visible_at(expiry: Option<UnixMs>, now: UnixMs) -> bool {
    expiry.is_none_or(|at| at >= now)
}

impl<'a> HashView<'a> {
    #[inline]
    pub(crate) fn new(stored: Stored<'a>, now: UnixMs) -> HashView<'a> {
        HashView { stored, now }
    }

    /// A caller that keeps expired keys (a replica's stream) sees expired fields too.
    pub(crate) fn show_all(&mut self) {
        self.now = UnixMs(i64::MIN);
    }

    /// Fields, hidden ones included.
    #[allow(clippy::len_without_is_empty, reason = "an empty hash is absent")]
    pub fn len(&self) -> u64 {
        match self.stored {
            Stored::Packed(bytes, form) => (Packed::new(packed_part(form, bytes), 2).len() / 2) as u64,
            Stored::Object(root, _) => root.body.structure().len(),
        }
    }

    pub fn encoding(&self) -> Encoding {
        match self.stored {
            Stored::Packed(_, form) => packed_encoding(form),
            Stored::Object(root, _) => root.body.structure().encoding(),
        }
    }

    /// Returns whether any field has a time.
    pub fn has_volatile(&self) -> bool {
        match self.stored {
            Stored::Packed(_, form) => form == Form::TimedHash,
            Stored::Object(root, _) => fields_of(root).record.volatile > 0,
        }
    }

    #[inline]
    pub fn get(&self, field: &[u8]) -> Option<Element<'a>> {
        match self.stored {
            Stored::Packed(bytes, form) if form != Form::TimedHash => {
                let (_, value) = Packed::new(bytes, 2).find_row(0, Element::of(field))?;
                Some(value?.element())
            }
            _ => self.get_with_expiry(field).map(|(value, _)| value),
        }
    }

    pub fn get_with_expiry(&self, field: &[u8]) -> Option<(Element<'a>, Option<UnixMs>)> {
        match self.stored {
            Stored::Packed(bytes, Form::TimedHash) => {
                let timed = Timed::new(bytes);
                let (at, value) = Packed::new(timed.packed, 2).find_row(0, Element::of(field))?;
                let time = timed.time(at / 2);
                is_visible_at(time, self.now).then_some((value?.element(), time))
            }
            Stored::Packed(..) => self.get(field).map(|value| (value, None)),
            Stored::Object(root, store) => {
                let found = fields_of(root).get(store, field)?;
                is_visible(&found, self.now).then_some((found.value, found.expiry))
            }
        }
    }

    /// Calls `visit` with every field and value.
    pub fn for_each(&self, mut visit: impl FnMut(Element<'a>, Element<'a>)) {
        self.for_each_with_expiry(|field, value, _| visit(field, value));
    }

    pub fn for_each_with_expiry(&self, mut visit: impl FnMut(Element<'a>, Element<'a>, Option<UnixMs>)) {
        match self.stored {
            Stored::Packed(bytes, Form::TimedHash) => {
                let timed = Timed::new(bytes);
                let mut cells = Packed::new(timed.packed, 2).cells();
                for time in timed.times() {
                    let (field, value) =
                        cells.next().zip(cells.next()).expect("each time is that of a field");
                    if is_visible_at(time, self.now) {
                        visit(field.element(), value.element(), time);
                    }
                }
            }
            Stored::Packed(bytes, _) => {
                let mut cells = Packed::new(bytes, 2).cells();
                while let (Some(field), Some(value)) = (cells.next(), cells.next()) {
                    visit(field.element(), value.element(), None);
                }
            }
            Stored::Object(root, store) => fields_of(root).for_each(store, |field| {
                if is_visible(&field, self.now) {
                    visit(Element::Bytes(field.name), field.value, field.expiry);
                }
            }),
        }
    }

    /// Calls `visit` with some fields, their values and their times. Continues at `cursor` until `count`
    /// fields were seen, and returns the next cursor: 0 at the end.
    pub fn scan_with_expiry(
        &self,
        cursor: u64,
        count: u64,
        mut visit: impl FnMut(Element<'a>, Element<'a>, Option<UnixMs>),
    ) -> u64 {
        match self.stored {
            Stored::Object(root, store) if self.encoding() == Encoding::Hashtable => {
                fields_of(root).scan(store, cursor, count, |field| {
                    if is_visible(&field, self.now) {
                        visit(Element::Bytes(field.name), field.value, field.expiry);
                    }
                })
            }
            _ => {
                self.for_each_with_expiry(visit);
                0
            }
        }
    }

    /// HSCAN: continues at `cursor` until `count` were seen; the next cursor, 0 at the end. A hash that
    /// Valkey would keep in one piece comes in one.
    pub fn scan(&self, cursor: u64, count: u64, mut visit: impl FnMut(Element<'a>, Element<'a>)) -> u64 {
        // COMPAT(hashes): A hash of more than 1 KB that still reports `listpack` returns its fields in the
        // order of their hashes, not in the order of insertion. Why: it is already stored in pages.
        self.scan_with_expiry(cursor, count, |field, value, _| visit(field, value))
    }

    /// Random fields, one after the other, each time each equally likely.
    pub fn draws(&self) -> Draws<'a> {
        Draws {
            view: *self,
            misses_left: MISSES_FIRST + self.len() / MISSES_FIELDS,
            missed: 0,
            visible: None,
        }
    }
}

/// Misses that the first draw may have in any hash, however small.
const MISSES_FIRST: u64 = 100;
/// Number of fields of the hash that allow one more miss: a page has about as many, so all misses cost no
/// more than a walk.
const MISSES_FIELDS: u64 = 16;
/// Misses that each field that was found allows for the next draw: while one of seventeen is visible nothing
/// is walked.
const MISSES_PER_HIT: u64 = 16;

/// Draws fields that are visible from a hash in which others may be past their time and not collected yet.
///
/// A draw that meets a hidden field is repeated. When hidden ones were met too often, so that few are
/// visible, all those are gathered by one walk, and the draws continue among them. So a visible field is
/// found if there is one; every field is as likely as another; and any number of draws looks at a bounded
/// number of fields: 17 a draw, a sixteenth of the hash, the hash once.
pub struct Draws<'a> {
    view: HashView<'a>,
    misses_left: u64,
    /// Number of drawn fields that were not in memory.
    missed: u64,
    /// All that is visible, once it was gathered.
    visible: Option<Vec<(Element<'a>, Element<'a>)>>,
}

impl<'a> Draws<'a> {
    /// Returns the number of drawn fields that were not in memory.
    pub fn missed(&self) -> u64 {
        self.missed
    }

    /// Draws a field. `None` if no field is visible, or if the field is not in memory: then the command runs
    /// again when it is.
    pub fn next(&mut self, random: &mut dyn FnMut(u64) -> u64) -> Option<(Element<'a>, Element<'a>)> {
        let (root, store) = match self.view.stored {
            Stored::Packed(_, Form::TimedHash) => return self.next_visible(random),
            Stored::Packed(bytes, _) => {
                let packed = Packed::new(bytes, 2);
                let row = random(packed.len() as u64 / 2) as usize;
                return Some((packed.get(row * 2)?.element(), packed.get(row * 2 + 1)?.element()));
            }
            Stored::Object(root, store) => (root, store),
        };
        while self.visible.is_none() && self.misses_left > 0 {
            steps::note(1);
            let Some(field) = fields_of(root).random(store, random) else {
                self.missed += 1;
                return None;
            };
            if is_visible(&field, self.view.now) {
                self.misses_left += MISSES_PER_HIT;
                return Some((Element::Bytes(field.name), field.value));
            }
            self.misses_left -= 1;
        }
        self.next_visible(random)
    }

    /// Draws one of all fields that are visible.
    fn next_visible(&mut self, random: &mut dyn FnMut(u64) -> u64) -> Option<(Element<'a>, Element<'a>)> {
        let view = self.view;
        let visible = self.visible.get_or_insert_with(|| {
            let mut all = Vec::new();
            view.for_each(|field, value| all.push((field, value)));
            all
        });
        if visible.is_empty() { None } else { Some(visible[random(visible.len() as u64) as usize]) }
    }
}

/// State of a field before it was stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FieldSet {
    /// True if the field was not there, or past its time.
    pub is_new: bool,
    /// True if the field was there, past its time.
    pub was_expired: bool,
}

/// A hash to change.
pub struct HashEdit<'c, 'e> {
    pub(crate) editing: &'c mut Editing<'e>,
}

impl HashEdit<'_, '_> {
    /// Fields, hidden ones included.
    pub fn len(&self) -> u64 {
        self.editing.len(2)
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns whether the key was absent before.
    pub fn is_absent(&self) -> bool {
        self.editing.absent
    }

    pub fn has_volatile(&self) -> bool {
        matches!(&self.editing.body, EditBody::Object(_, root) if fields_of(root).record.volatile > 0)
    }

    pub fn contains(&self, field: &[u8]) -> bool {
        self.get(field).is_some()
    }

    /// A field that is about to be looked at is in memory. Commands that name it have had it read before.
    fn bring_home(&mut self, field: &[u8]) {
        if let EditBody::Object(_, root) = &mut self.editing.body
            && let Object::Hash(fields) = &mut root.body
        {
            fields.bring_element_home(self.editing.store, field, self.editing.now);
        }
    }

    pub fn get(&self, field: &[u8]) -> Option<(Element<'_>, Option<UnixMs>)> {
        match &self.editing.body {
            EditBody::Packed(buf) => {
                let (_, value) = buf.view().find_row(0, Element::of(field))?;
                Some((value?.element(), None))
            }
            EditBody::Object(_, root) => {
                let found = fields_of(root).get(self.editing.store, field)?;
                is_visible(&found, self.editing.fields_from).then_some((found.value, found.expiry))
            }
        }
    }

    /// Returns whether a field is there that is not visible.
    pub fn is_hidden(&self, field: &[u8]) -> bool {
        match &self.editing.body {
            EditBody::Packed(_) => false,
            EditBody::Object(_, root) => {
                let found = fields_of(root).get(self.editing.store, field);
                found.is_some_and(|found| !is_visible(&found, self.editing.fields_from))
            }
        }
    }

    /// Prepares for several fields to be stored: too many of them, or too long ones, end the compact encoding
    /// at once.
    pub fn expect(&mut self, fields: usize, longest_bytes: usize) -> Result<(), Full> {
        let limits = self.editing.limits;
        if fields > limits.hash_max_listpack_entries || longest_bytes > limits.hash_max_listpack_value {
            return self.convert(Encoding::Hashtable);
        }
        Ok(())
    }

    /// Stores a field, with a time if one is given. `keep`: a field that is there keeps its own.
    pub fn set(
        &mut self,
        field: &[u8],
        value: &[u8],
        expiry: Option<UnixMs>,
        keep: bool,
    ) -> Result<FieldSet, Full> {
        let limits = self.editing.limits;
        if expiry.is_some() || field.len().max(value.len()) > limits.hash_max_listpack_value {
            self.convert(Encoding::Hashtable)?;
        }
        self.bring_home(field);
        self.editing.changed = true;
        let new = Element::of(value);
        if let Some(buf) = self.editing.buf() {
            let element = Element::of(field);
            if let Some(at) = buf.view().find(0, element) {
                buf.replace(at + 1, new);
            } else {
                buf.push(element);
                buf.push(new);
                let is_new = FieldSet { is_new: true, was_expired: false };
                return self.keep_small().map(|()| is_new);
            }
            return self.keep_small().map(|()| FieldSet { is_new: false, was_expired: false });
        }
        let (now, fields_from) = (self.editing.now, self.editing.fields_from);
        let (fields, store) = self.fields();
        // Most hashes have no field with a time, and need no look at the old one.
        let is_over = |old: Field<'_>| old.expiry.is_some_and(|at| at <= fields_from);
        let is_expired = fields.record.volatile > 0 && fields.get(store, field).is_some_and(is_over);
        let new = match new {
            Element::Int(int) => NewValue::Int(int),
            Element::Bytes(bytes) => NewValue::Bytes(bytes),
        };
        let is_new = fields.set(store, field, new, expiry, keep && !is_expired, now)?;
        self.check_limits();
        Ok(FieldSet { is_new: is_new || is_expired, was_expired: is_expired })
    }

    /// Removes a field that is visible, or any if `hidden_too`. Returns whether it was there.
    pub fn remove(&mut self, field: &[u8], hidden_too: bool) -> bool {
        if let Some(buf) = self.editing.buf() {
            let Some(at) = buf.view().find(0, Element::of(field)) else { return false };
            buf.remove(at, 2);
            self.editing.changed = true;
            return true;
        }
        self.bring_home(field);
        if !hidden_too && !self.contains(field) {
            return false;
        }
        let (now, (fields, store)) = (self.editing.now, self.fields());
        let removed = fields.remove(store, field, now);
        self.editing.changed |= removed;
        removed
    }

    /// Sets or clears the time of a visible field. Returns whether it is there.
    pub fn set_expiry(&mut self, field: &[u8], expiry: Option<UnixMs>) -> Result<bool, Full> {
        self.bring_home(field);
        if !self.contains(field) {
            return Ok(false);
        }
        self.convert(Encoding::Hashtable)?;
        let (now, (fields, store)) = (self.editing.now, self.fields());
        fields.set_expiry(store, field, expiry, now)?;
        self.editing.changed = true;
        Ok(true)
    }

    /// The large form; there is no small one left.
    fn fields(&mut self) -> (&mut Fields, &mut Store) {
        match &mut self.editing.body {
            EditBody::Object(_, root) => match &mut root.body {
                Object::Hash(fields) => (fields, self.editing.store),
                _ => unreachable!("the entry's form is that of its object"),
            },
            EditBody::Packed(_) => unreachable!("it was converted"),
        }
    }

    /// Ends the packed form if it has become too large by a change.
    fn keep_small(&mut self) -> Result<(), Full> {
        let (limits, len) = (self.editing.limits, self.len());
        if len > limits.hash_max_listpack_entries as u64 {
            return self.convert(Encoding::Hashtable);
        }
        let EditBody::Packed(buf) = &self.editing.body else { return Ok(()) };
        if buf.bytes_bound() > PACKED_BYTES_MAX { self.convert(Encoding::Listpack) } else { Ok(()) }
    }

    fn check_limits(&mut self) {
        let (limits, len) = (self.editing.limits, self.len());
        let (fields, _) = self.fields();
        if len > limits.hash_max_listpack_entries as u64 {
            fields.encoding = Encoding::Hashtable;
        }
    }

    /// Makes it an object, or one that has crossed the limits.
    fn convert(&mut self, encoding: Encoding) -> Result<(), Full> {
        let now = self.editing.now;
        self.editing.promote(|store, number, buf| {
            fields_from(store, number, buf, (encoding, now), std::iter::repeat(None))
        })?;
        if encoding == Encoding::Hashtable {
            self.fields().0.encoding = encoding;
        }
        Ok(())
    }
}

/// Pages of the same fields, each of which has a time, or none.
pub(crate) fn fields_from(
    store: &mut Store,
    number: u32,
    buf: &PackedBuf,
    (encoding, now): (Encoding, UnixMs),
    mut times: impl Iterator<Item = Option<UnixMs>>,
) -> Result<Object, Full> {
    let mut fields = Fields::new(number, false, encoding);
    let packed = buf.view();
    let mut cells = packed.cells();
    while let (Some(field), Some(value)) = (cells.next(), cells.next()) {
        let value = match value.element() {
            Element::Int(int) => NewValue::Int(int),
            Element::Bytes(bytes) => NewValue::Bytes(bytes),
        };
        let mut room = Default::default();
        let (name, time) = (field.element().text(&mut room), times.next().flatten());
        if let Err(full) = fields.set(store, name, value, time, false, now) {
            fields.free_all(store);
            return Err(full);
        }
    }
    Ok(Object::Hash(fields))
}
