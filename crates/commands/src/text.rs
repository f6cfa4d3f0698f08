//! A string as bytes, for commands that look at it as bits or registers: a stored number is its text.

use isotherm_keyspace::{Type, Value};
use isotherm_stdx::number::{I64_BYTES_MAX, write_i64};

/// Room for the text of a number, so that reading one needs no allocation.
pub(crate) type NumberText = [u8; I64_BYTES_MAX];
pub(crate) const NO_TEXT: NumberText = [0; I64_BYTES_MAX];

/// The bytes of a string; a number is written to `room`. `None` for a value of another type.
#[inline]
pub(crate) fn text<'a>(value: Value<'a>, room: &'a mut NumberText) -> Option<&'a [u8]> {
    match value {
        Value::Int(int) => Some(write_i64(int, room)),
        Value::Bytes(bytes) => Some(bytes),
        // It could not be read: an error, whatever the command says of other types.
        _ => None,
    }
}

/// Returns the length of a string in bytes; `None` for a value of another type.
pub(crate) fn len(value: Value<'_>) -> Option<usize> {
    match value {
        Value::Cold(cold) if cold.kind() == Type::String => Some(cold.bytes()),
        Value::Cold(_) => None,
        value => text(value, &mut NO_TEXT.clone()).map(<[u8]>::len),
    }
}
