//! A large collection as one string of bytes: how it leaves memory as a whole, and comes back.
//!
//! ```text
//!   object (pages, a tree, blocks)  --write-->  image: its elements packed (see `packed`), and a form  --object_of-->  object
//!                                               of a stream see `stream::image`, of fields with times `timed`
//!
//!   form    what OBJECT ENCODING says     listpack, intset       List, Hash, Set, IntSet, Zset, as of a small collection
//!                                         quicklist, hashtable,  Quicklist, TableHash, TableSet, Skiplist
//!                                         skiplist
//! ```
//! An image is read as a packed collection is, element by element from its beginning, so only a short one is
//! lent: a command that asks a long one for many elements would look at all of it each time. Others come back
//! to memory when they are read, streams always.
//!
//! Collections that take more than `SOURCE_BYTES_MAX` or have more than `ELEMENTS_MAX` do not leave as a
//! whole.

use crate::layout::kind::{Encoding, Form, Full, packed_encoding, stride_of};
use crate::layout::packed::{Element, PackedBuf};
use crate::layout::packed_ints::{encode_ints, load_ints};
use crate::values::blocks::{reading_of, room_of};
use crate::values::collection::{PACKED_BYTES_MAX, Stored};
use crate::values::hash::{HashView, fields_from};
use crate::values::list::{End, ListView, blocks_from};
use crate::values::object::{Object, Root};
use crate::values::set::{SetView, members_from};
use crate::values::store::Store;
use crate::values::stream::Stream;
use crate::values::timed::{self, Timed};
use crate::values::zset::{ZsetView, tree_from};
use isotherm_stdx::UnixMs;

/// Memory up to which a collection leaves as a whole.
const SOURCE_BYTES_MAX: u64 = 64 << 10;
/// Elements up to which a collection leaves as a whole: all are looked at under a lock, some 100 us. The
/// count of a packed collection has two bytes.
const ELEMENTS_MAX: u64 = 4096;
const _: () = assert!(ELEMENTS_MAX <= u16::MAX as u64);
/// Bytes up to which an image is lent.
const LENT_BYTES_MAX: usize = 4 << 10;

/// Fields that have no time are there at any moment.
const ANY_TIME: UnixMs = UnixMs(i64::MIN);

/// Buffers in which images are made: kept for the next one.
#[derive(Default)]
pub(crate) struct ImageRoom {
    packed: PackedBuf,
    /// Times of the fields of a hash.
    times: Vec<Option<UnixMs>>,
    pairs: Vec<u8>,
    pub bytes: Vec<u8>,
}

/// Elements of an image: fields and values, members and scores, entries and what is pending.
pub(crate) fn element_count(root: &Root) -> u64 {
    let structure = root.body.structure();
    match root.body {
        Object::Stream(_) => structure.parts(),
        _ => structure.len() * stride_of(root.body.form()) as u64,
    }
}

/// Returns whether an object leaves memory node by node: it is too large to leave as a whole, or has begun to
/// leave by nodes.
pub(crate) fn goes_by_nodes(root: &Root) -> bool {
    root.body.structure().away_nodes() > 0
        || root.memory_bytes() > SOURCE_BYTES_MAX
        || element_count(root) > ELEMENTS_MAX
}

/// Returns whether an object can leave memory as a whole now: not with garbage, which is freed soon.
pub(crate) fn has_image(root: &Root) -> bool {
    let structure = root.body.structure();
    !goes_by_nodes(root)
        && (structure.len() > 0 || matches!(root.body, Object::Stream(_)))
        && !structure.has_garbage()
}

/// Writes the image of an object that has one. Its form.
pub(crate) fn write(root: &Root, store: &Store, room: &mut ImageRoom) -> Form {
    let ImageRoom { packed, times, pairs, bytes } = room;
    times.clear();
    if let Object::Stream(stream) = &root.body {
        bytes.clear();
        stream.write_image(reading_of(store), bytes);
        return Form::Stream;
    }
    let stored = Stored::Object(root, store);
    packed.clear(stride_of(root.body.form()));
    match &root.body {
        Object::List(_) => ListView::new(stored).iter(0, End::Front).for_each(|element| packed.push(element)),
        Object::Hash(_) => HashView::new(stored, ANY_TIME).for_each_with_expiry(|field, value, time| {
            packed.push(as_number(field));
            packed.push(value);
            times.push(time);
        }),
        Object::Set(_) => {
            SetView::new(Form::Set, stored).for_each(|member| packed.push(as_number(member)));
        }
        Object::Zset(_) => {
            let view = ZsetView::new(stored);
            view.for_each(0, view.len(), true, |member, score| packed.push_scored(as_number(member), score));
        }
        Object::Stream(_) => unreachable!("it was written"),
    }
    let form = form_of(root);
    match form {
        Form::IntSet => encode_ints(packed, bytes),
        Form::TimedHash => timed::write(times, packed, pairs, bytes),
        _ => packed.encode(bytes),
    }
    form
}

/// Returns a text that is an integer as a number, as it is in packed form.
fn as_number(element: Element<'_>) -> Element<'_> {
    match element {
        Element::Bytes(text) => Element::of(text),
        number => number,
    }
}

fn form_of(root: &Root) -> Form {
    match (&root.body, root.body.structure().encoding()) {
        (Object::Hash(_), _) if root.has_timed_fields() => Form::TimedHash,
        (Object::List(_), Encoding::Quicklist) => Form::Quicklist,
        (Object::Hash(_), Encoding::Hashtable) => Form::TableHash,
        (Object::Set(_), Encoding::Hashtable) => Form::TableSet,
        (Object::Set(_), Encoding::Intset) => Form::IntSet,
        (Object::Zset(_), Encoding::Skiplist) => Form::Skiplist,
        (body, _) => body.form(),
    }
}

/// Returns whether bytes of this form are an image: in memory they are an object.
#[inline]
pub(crate) fn is_image(form: Form, bytes: usize) -> bool {
    form.is_of_images() || form == Form::Stream || form.is_collection() && bytes > PACKED_BYTES_MAX
}

/// Returns whether a value can be read as it is, while it is lent.
pub(crate) fn can_be_lent(form: Form, bytes: usize) -> bool {
    // A skiplist answers ranges by member otherwise than a listpack, if scores differ. A stream would be
    // taken apart for it, and fields that have a time are hidden, and found by the active cycle, where they
    // are in memory.
    !is_image(form, bytes)
        || bytes <= LENT_BYTES_MAX && !matches!(form, Form::Skiplist | Form::Stream | Form::TimedHash)
}

/// The object again, under a number that is reserved for it.
pub(crate) fn object_of(store: &mut Store, number: u32, form: Form, bytes: &[u8]) -> Result<Object, Full> {
    if form == Form::Stream {
        return Stream::of_image(number, &mut room_of(store, ANY_TIME), bytes).map(Object::Stream);
    }
    let mut packed = PackedBuf::default();
    match form {
        Form::IntSet => load_ints(bytes, &mut packed),
        _ => packed.load(timed::packed_part(form, bytes), stride_of(form)),
    }
    let encoding = packed_encoding(form);
    match form {
        Form::List | Form::Quicklist => {
            blocks_from(store, number, &packed, encoding == Encoding::Quicklist, ANY_TIME)
        }
        Form::Hash | Form::TableHash => {
            fields_from(store, number, &packed, (encoding, ANY_TIME), std::iter::repeat(None))
        }
        Form::TimedHash => {
            let times = Timed::new(bytes).times();
            fields_from(store, number, &packed, (encoding, ANY_TIME), times)
        }
        Form::Set | Form::IntSet | Form::TableSet => members_from(store, number, &packed, encoding, ANY_TIME),
        Form::Zset | Form::Skiplist => {
            tree_from(store, number, &packed, encoding == Encoding::Listpack, ANY_TIME)
        }
        Form::Bytes | Form::Int | Form::Raw | Form::Stream => unreachable!("it is no image"),
    }
}
