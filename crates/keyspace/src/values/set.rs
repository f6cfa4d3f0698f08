//! A set: members without an order, unless they are all integers.
//!
//! ```text
//!   small, integers   [width u8][integer width B, little endian] x n      ascending, all as wide as the widest
//!   small             packed
//!   large             `fields`: pages of entries without values
//! ```
//!
//! Five integers below 2^15: 1 + 5 x 2 = 11 B.

use crate::layout::kind::{Encoding, Form, Full, NewValue, packed_encoding};
use crate::layout::packed::{Element, Packed, PackedBuf};
use crate::layout::packed_ints::Ints;
use crate::values::collection::{EditBody, Editing, PACKED_BYTES_MAX, Stored};
use crate::values::fields::Fields;
use crate::values::object::{Object, Root};
use crate::values::store::Store;
use isotherm_stdx::UnixMs;

/// A set to read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SetView<'a> {
    stored: Stored<'a>,
    ints: bool,
}

fn fields_of(root: &Root) -> &Fields {
    match &root.body {
        Object::Set(fields) => fields,
        _ => unreachable!("the entry's form is that of its object"),
    }
}

impl<'a> SetView<'a> {
    #[inline]
    pub(crate) fn new(form: Form, stored: Stored<'a>) -> SetView<'a> {
        SetView { stored, ints: form == Form::IntSet }
    }

    /// Members.
    #[allow(clippy::len_without_is_empty, reason = "an empty set is absent")]
    pub fn len(&self) -> u64 {
        match self.stored {
            Stored::Packed(bytes, _) if self.ints => Ints::new(bytes).len() as u64,
            Stored::Packed(bytes, _) => Packed::new(bytes, 1).len() as u64,
            Stored::Object(root, _) => root.body.structure().len(),
        }
    }

    /// Notes each part that is not in memory.
    pub fn note_away(&self) {
        if let Stored::Object(root, store) = self.stored
            && root.body.structure().away_nodes() > 0
        {
            fields_of(root).for_each(store, |_| {});
        }
    }

    pub fn encoding(&self) -> Encoding {
        match self.stored {
            Stored::Packed(_, form) => packed_encoding(form),
            Stored::Object(root, _) => root.body.structure().encoding(),
        }
    }

    #[inline]
    pub fn contains(&self, member: &[u8]) -> bool {
        match (self.stored, Element::of(member)) {
            (Stored::Packed(bytes, _), Element::Int(int)) if self.ints => Ints::new(bytes).find(int).is_ok(),
            (Stored::Packed(..), Element::Bytes(_)) if self.ints => false,
            (Stored::Packed(bytes, _), element) => Packed::new(bytes, 1).find(0, element).is_some(),
            (Stored::Object(root, store), _) => fields_of(root).get(store, member).is_some(),
        }
    }

    /// Calls `visit` with every member.
    pub fn for_each(&self, mut visit: impl FnMut(Element<'a>)) {
        match self.stored {
            Stored::Packed(bytes, _) if self.ints => {
                let ints = Ints::new(bytes);
                (0..ints.len()).for_each(|at| visit(Element::Int(ints.get(at))));
            }
            Stored::Packed(bytes, _) => Packed::new(bytes, 1).cells().for_each(|cell| visit(cell.element())),
            Stored::Object(root, store) => {
                self.for_each_of_object(root, store, &mut visit);
            }
        }
    }

    /// Integers of one piece come ascending, as from Valkey.
    fn for_each_of_object(&self, root: &'a Root, store: &'a Store, visit: &mut dyn FnMut(Element<'a>)) {
        let fields = fields_of(root);
        if fields.encoding != Encoding::Intset {
            return fields.for_each(store, |field| visit(Element::Bytes(field.name)));
        }
        let mut ints = Vec::new();
        fields.for_each(store, |field| {
            if let Element::Int(int) = Element::of(field.name) {
                ints.push(int);
            }
        });
        ints.sort_unstable();
        ints.into_iter().for_each(|int| visit(Element::Int(int)));
    }

    /// SSCAN: continues at `cursor` until `count` were seen; the next cursor, 0 at the end. A set that Valkey
    /// would keep in one piece comes in one.
    pub fn scan(&self, cursor: u64, count: u64, mut visit: impl FnMut(Element<'a>)) -> u64 {
        match self.stored {
            // COMPAT(sets): A set of more than 1 KB that still reports `listpack` returns its members in the
            // order of their hashes, not in the order of insertion. Why: it is already stored in pages.
            Stored::Object(root, store) if self.encoding() == Encoding::Hashtable => {
                fields_of(root).scan(store, cursor, count, |field| visit(Element::Bytes(field.name)))
            }
            _ => {
                self.for_each(visit);
                0
            }
        }
    }

    /// A random member, each equally likely. `None`: it is not in memory, and the command runs again when it
    /// is.
    pub fn random(&self, random: &mut dyn FnMut(u64) -> u64) -> Option<Element<'a>> {
        Some(match self.stored {
            Stored::Packed(bytes, _) if self.ints => {
                let ints = Ints::new(bytes);
                Element::Int(ints.get(random(ints.len() as u64) as usize))
            }
            Stored::Packed(bytes, _) => {
                let packed = Packed::new(bytes, 1);
                let at = random(packed.len() as u64) as usize;
                packed.get(at).expect("it is below the length").element()
            }
            Stored::Object(root, store) => Element::Bytes(fields_of(root).random(store, random)?.name),
        })
    }
}

/// A set to change.
pub struct SetEdit<'c, 'e> {
    pub(crate) editing: &'c mut Editing<'e>,
}

impl SetEdit<'_, '_> {
    pub fn len(&self) -> u64 {
        self.editing.len(1)
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn contains(&self, member: &[u8]) -> bool {
        match &self.editing.body {
            EditBody::Packed(buf) => buf.view().find(0, Element::of(member)).is_some(),
            EditBody::Object(_, root) => fields_of(root).get(self.editing.store, member).is_some(),
        }
    }

    fn encoding(&self) -> Encoding {
        match &self.editing.body {
            EditBody::Packed(_) if self.editing.form == Form::IntSet => Encoding::Intset,
            EditBody::Packed(_) => Encoding::Listpack,
            EditBody::Object(_, root) => fields_of(root).encoding,
        }
    }

    /// Prepares for `members` members to be added, the first one `first`: Valkey chooses the encoding by
    /// their number.
    pub fn expect(&mut self, first: &[u8], members: usize) -> Result<(), Full> {
        let limits = self.editing.limits;
        if self.is_empty() && self.editing.absent {
            let is_int = matches!(Element::of(first), Element::Int(_));
            if is_int && members <= limits.set_max_intset_entries {
                self.editing.form = Form::IntSet;
            } else if members > limits.set_max_listpack_entries {
                self.convert(Encoding::Hashtable)?;
            }
            return Ok(());
        }
        let too_many = match self.encoding() {
            Encoding::Listpack => members > limits.set_max_listpack_entries,
            Encoding::Intset => members > limits.set_max_intset_entries,
            _ => false,
        };
        if too_many { self.convert(Encoding::Hashtable) } else { Ok(()) }
    }

    /// Members that are all integers may be kept as such, if they are not too many.
    pub fn begin_ints(&mut self) {
        if self.is_empty() && self.editing.buf().is_some() {
            self.editing.form = Form::IntSet;
        }
    }

    /// Adds a member. Returns whether it is new.
    pub fn add(&mut self, member: &[u8]) -> Result<bool, Full> {
        if self.encoding() == Encoding::Hashtable {
            // The last of the encodings: it stays, and one look is enough.
            let now = self.editing.now;
            let (fields, store) = self.fields();
            let added = fields.add(store, member, now)?;
            self.editing.changed |= added;
            return Ok(added);
        }
        if let EditBody::Object(_, root) = &mut self.editing.body
            && let Object::Set(fields) = &mut root.body
        {
            fields.bring_element_home(self.editing.store, member, self.editing.now);
        }
        if self.contains(member) {
            return Ok(false);
        }
        let (limits, len) = (*self.editing.limits, self.len());
        let element = Element::of(member);
        let encoding = match (self.encoding(), element) {
            (Encoding::Intset, Element::Int(_)) if len < limits.set_max_intset_entries as u64 => {
                Encoding::Intset
            }
            (Encoding::Intset, Element::Bytes(_)) | (Encoding::Listpack, _)
                if len < limits.set_max_listpack_entries as u64
                    && member.len() <= limits.set_max_listpack_value
                    && self.longest_int() <= limits.set_max_listpack_value =>
            {
                Encoding::Listpack
            }
            _ => Encoding::Hashtable,
        };
        if encoding == Encoding::Hashtable {
            self.convert(Encoding::Hashtable)?;
        }
        self.editing.changed = true;
        if encoding == Encoding::Listpack && self.editing.form == Form::IntSet {
            self.editing.form = Form::Set;
        }
        let ints = encoding == Encoding::Intset;
        if let Some(buf) = self.editing.buf() {
            let at = match element {
                Element::Int(int) if ints => buf.view().lower_bound(int),
                _ => buf.len(),
            };
            buf.insert(at, element);
            if buf.bytes_bound() > PACKED_BYTES_MAX {
                self.convert(encoding)?;
            }
            return Ok(true);
        }
        let now = self.editing.now;
        let (fields, store) = self.fields();
        fields.encoding = encoding;
        fields.set(store, member, NewValue::Bytes(b""), None, false, now)
    }

    /// Returns the number of digits of the longest integer in a set of integers; 0 for other sets.
    fn longest_int(&self) -> usize {
        match &self.editing.body {
            EditBody::Packed(buf) if self.editing.form == Form::IntSet && buf.len() > 0 => {
                let digits = |at: usize| buf.view().get(at).map_or(0, |cell| cell.element().text_len());
                digits(0).max(digits(buf.len() - 1))
            }
            _ => 0,
        }
    }

    /// Removes a member. Returns whether it was there.
    pub fn remove(&mut self, member: &[u8]) -> bool {
        if let Some(buf) = self.editing.buf() {
            let Some(at) = buf.view().find(0, Element::of(member)) else { return false };
            buf.remove(at, 1);
            self.editing.changed = true;
            return true;
        }
        let now = self.editing.now;
        let (fields, store) = self.fields();
        let removed = fields.remove(store, member, now);
        self.editing.changed |= removed;
        removed
    }

    /// Takes a random member out; there is one. `None` if it cannot be read.
    pub fn pop(&mut self, random: &mut dyn FnMut(u64) -> u64) -> Option<Vec<u8>> {
        let member = match self.editing.buf() {
            Some(buf) => {
                let at = random(buf.len() as u64) as usize;
                buf.view().get(at).expect("it is below the length").element().to_vec()
            }
            None => {
                let (now, (fields, store)) = (self.editing.now, self.fields());
                fields.random_home(store, random, now)?.name.to_vec()
            }
        };
        // It was just drawn: what keeps it is a page that could not be read.
        self.remove(&member).then_some(member)
    }

    fn fields(&mut self) -> (&mut Fields, &mut Store) {
        match &mut self.editing.body {
            EditBody::Object(_, root) => match &mut root.body {
                Object::Set(fields) => (fields, self.editing.store),
                _ => unreachable!("the entry's form is that of its object"),
            },
            EditBody::Packed(_) => unreachable!("it was converted"),
        }
    }

    /// Makes it an object, or one that has crossed the limits.
    fn convert(&mut self, encoding: Encoding) -> Result<(), Full> {
        let now = self.editing.now;
        self.editing.promote(|store, number, buf| members_from(store, number, buf, encoding, now))?;
        self.editing.form = Form::Set;
        if encoding == Encoding::Hashtable {
            self.fields().0.encoding = encoding;
        }
        Ok(())
    }
}

/// Pages of the same members.
pub(crate) fn members_from(
    store: &mut Store,
    number: u32,
    buf: &PackedBuf,
    encoding: Encoding,
    now: UnixMs,
) -> Result<Object, Full> {
    let mut fields = Fields::new(number, true, encoding);
    for cell in buf.view().cells() {
        let mut room = Default::default();
        let member = cell.element().text(&mut room);
        if let Err(full) = fields.set(store, member, NewValue::Bytes(b""), None, false, now) {
            fields.free_all(store);
            return Err(full);
        }
    }
    Ok(Object::Set(fields))
}
