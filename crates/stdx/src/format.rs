//! Tables of formats: the sizes and marks of bytes that lie on disk or on the wire, by name.
//!
//! A file that declares a format lists its constants once more under their names. The server prints all
//! tables (`--layout`), and a test compares them with the ones in the tree.

/// Part of a format: its name, and its rows.
pub type FormatPart = (&'static str, &'static [FormatRow]);

/// Name of a size or a mark, and its value.
pub type FormatRow = (&'static str, FormatValue);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FormatValue {
    Number(u64),
    Text(&'static [u8]),
}

/// Returns the value of a size, of an offset or of a mark.
pub const fn number(value: usize) -> FormatValue {
    FormatValue::Number(value as u64)
}

/// Returns the value of a mark that is text.
pub const fn text(value: &'static [u8]) -> FormatValue {
    FormatValue::Text(value)
}
