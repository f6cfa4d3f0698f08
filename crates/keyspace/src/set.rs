//! A set: members without an order, unless they are all integers.
//!
//! ```text
//!   small, integers   [width u8][integer width B, little endian] x n      ascending, all as wide as the widest
//!   small             packed
//!   large             `fields`: pages of entries without values
//! ```
//!
//! Five integers below 2^15: 1 + 5 x 2 = 11 B.

use crate::collection::{EditBody, Editing, Stored, packed_encoding};
use crate::entry::{Form, int_bytes, read_int};
use crate::packed::{Element, Packed, PackedBuf};
use crate::value::{Encoding, Full};

/// A set to read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SetView<'a> {
    stored: Stored<'a>,
    ints: bool,
}

/// Integers as they are stored.
#[derive(Clone, Copy)]
struct Ints<'a> {
    width: usize,
    bytes: &'a [u8],
}

impl<'a> Ints<'a> {
    fn new(bytes: &'a [u8]) -> Ints<'a> {
        Ints { width: usize::from(bytes[0]), bytes: &bytes[1..] }
    }
    fn len(self) -> usize {
        self.bytes.len() / self.width
    }
    fn get(self, index: usize) -> i64 {
        read_int(&self.bytes[index * self.width..(index + 1) * self.width])
    }
    fn find(self, int: i64) -> Result<usize, usize> {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = (low + high) / 2;
            match self.get(middle).cmp(&int) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Equal => return Ok(middle),
                std::cmp::Ordering::Greater => high = middle,
            }
        }
        Err(low)
    }
}

/// For a change: integers become elements.
pub(crate) fn load_ints(bytes: &[u8], buf: &mut PackedBuf) {
    let ints = Ints::new(bytes);
    buf.clear(1);
    (0..ints.len()).for_each(|at| buf.push(Element::Int(ints.get(at))));
}

pub(crate) fn encode_ints(buf: &PackedBuf, out: &mut Vec<u8>) {
    let int_of = |element| match element {
        Element::Int(int) => int,
        Element::Bytes(_) => unreachable!("a set of integers has nothing else"),
    };
    let ints = || buf.view().cells().map(|cell| int_of(cell.element()));
    let width = ints().map(int_bytes).max().unwrap_or(1);
    out.clear();
    out.push(width as u8);
    ints().for_each(|int| out.extend_from_slice(&int.to_le_bytes()[..width]));
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
            Stored::Packed(bytes) if self.ints => Ints::new(bytes).len() as u64,
            Stored::Packed(bytes) => Packed::new(bytes, 1).len() as u64,
            Stored::Object(root, _) => root.body.structure().len(),
        }
    }

    pub fn encoding(&self) -> Encoding {
        match self.stored {
            Stored::Packed(_) if self.ints => Encoding::Intset,
            Stored::Packed(_) => packed_encoding(Form::Set),
            Stored::Object(root, _) => root.body.structure().encoding(),
        }
    }

    #[inline]
    pub fn contains(&self, member: &[u8]) -> bool {
        match (self.stored, Element::of(member)) {
            (Stored::Packed(bytes), Element::Int(int)) if self.ints => Ints::new(bytes).find(int).is_ok(),
            (Stored::Packed(_), Element::Bytes(_)) if self.ints => false,
            (Stored::Packed(bytes), element) => Packed::new(bytes, 1).find(0, element).is_some(),
            (Stored::Object(..), _) => false,
        }
    }

    /// Calls `visit` with every member.
    pub fn for_each(&self, mut visit: impl FnMut(Element<'a>)) {
        match self.stored {
            Stored::Packed(bytes) if self.ints => {
                let ints = Ints::new(bytes);
                (0..ints.len()).for_each(|at| visit(Element::Int(ints.get(at))));
            }
            Stored::Packed(bytes) => Packed::new(bytes, 1).cells().for_each(|cell| visit(cell.element())),
            Stored::Object(..) => {}
        }
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
        let EditBody::Packed(buf) = &self.editing.body else { return false };
        buf.view().find(0, Element::of(member)).is_some()
    }

    /// Adds a member. Returns whether it is new.
    pub fn add(&mut self, member: &[u8]) -> Result<bool, Full> {
        let element = Element::of(member);
        if self.contains(member) {
            return Ok(false);
        }
        if self.is_empty() && matches!(element, Element::Int(_)) {
            self.editing.form = Form::IntSet;
        } else if matches!(element, Element::Bytes(_)) {
            self.editing.form = Form::Set;
        }
        self.editing.changed = true;
        let ints = self.editing.form == Form::IntSet;
        let Some(buf) = self.editing.buf() else { return Err(Full) };
        let at = match element {
            Element::Int(int) if ints => buf
                .view()
                .cells()
                .position(|cell| matches!(cell.element(), Element::Int(other) if other > int))
                .unwrap_or(buf.len()),
            _ => buf.len(),
        };
        buf.insert(at, element);
        Ok(true)
    }

    /// Removes a member. Returns whether it was there.
    pub fn remove(&mut self, member: &[u8]) -> bool {
        let Some(buf) = self.editing.buf() else { return false };
        let Some(at) = buf.view().find(0, Element::of(member)) else { return false };
        buf.remove(at, 1);
        self.editing.changed = true;
        true
    }
}
