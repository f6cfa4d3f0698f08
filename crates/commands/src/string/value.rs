//! A stored string is text or a number; code that needs its bytes asks here.

use isotherm_keyspace::{Entry, Type, Value};
use isotherm_resp::{Reply, SharedBytes, errors};
use isotherm_stdx::number::{I64_BYTES_MAX, write_i64};
use std::ops::Range;

/// `string` lets strings pass only, and values that are not in memory are fetched before a command that reads
/// them runs (`need.rs`; a test asks it about every command).
const NOT_A_STRING: &str = "a string in memory was found before";

/// Room for the text of a number, so that reading one needs no allocation.
pub(super) type NumberText = [u8; I64_BYTES_MAX];
pub(super) const NO_TEXT: NumberText = [0; I64_BYTES_MAX];

/// The value of what was found, if that is a string.
#[inline]
pub(super) fn string(found: Option<Entry<'_>>) -> Result<Option<Value<'_>>, &'static str> {
    match found {
        Some(entry) if entry.kind() != Type::String => Err(errors::WRONG_TYPE),
        found => Ok(found.map(|entry| entry.value)),
    }
}

/// The bytes of a value; a number is written to `room`.
#[inline]
pub(super) fn text<'a>(value: Value<'a>, room: &'a mut NumberText) -> &'a [u8] {
    match value {
        Value::Int(int) => write_i64(int, room),
        Value::Bytes(bytes) => bytes,
        other => unreachable!("{NOT_A_STRING}: {:?}", other.kind()),
    }
}

#[inline]
pub(super) fn len(value: Value<'_>) -> usize {
    match value {
        Value::Cold(cold) => cold.bytes(),
        value => text(value, &mut NO_TEXT.clone()).len(),
    }
}

pub(super) fn equals(value: Value<'_>, bytes: &[u8]) -> bool {
    text(value, &mut NO_TEXT.clone()) == bytes
}

/// Replies the string that was found; a large one is not copied.
#[inline]
pub(super) fn write(reply: &mut Reply, entry: &Entry<'_>) {
    match entry.value {
        Value::Int(int) => reply.bulk_i64(int),
        Value::Bytes(bytes) if !reply.shares_bulk(bytes.len()) => reply.bulk(bytes),
        Value::Bytes(bytes) => share_part(reply, entry, bytes, 0..bytes.len()),
        other => unreachable!("{NOT_A_STRING}: {:?}", other.kind()),
    }
}

/// Replies a part of the bytes of what was found. A reply that shares keeps the whole value in memory, and
/// from being changed in place: a small part is copied.
#[inline]
pub(super) fn write_part(reply: &mut Reply, entry: &Entry<'_>, bytes: &[u8], part: Range<usize>) {
    match reply.shares_bulk(part.len()) && part.len() >= bytes.len() / 2 {
        true => share_part(reply, entry, bytes, part),
        false => reply.bulk(&bytes[part]),
    }
}

#[cold]
fn share_part(reply: &mut Reply, entry: &Entry<'_>, bytes: &[u8], part: Range<usize>) {
    match entry.shared_text() {
        Some(text) => reply.bulk_shared(SharedBytes::of_value(text, part)),
        None => reply.bulk(&bytes[part]),
    }
}
