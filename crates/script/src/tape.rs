//! Values on their way between Lua and Rust, as bytes.
//!
//! Lua raises errors by `longjmp`, which must not pass a Rust frame. So Rust never touches a Lua state: C
//! walks the arguments of a function onto a tape, calls Rust with it, and plays the tape that Rust wrote onto
//! Lua's stack once Rust has returned.
//!
//! ```text
//! one value                          (numbers little endian)
//! 0                                  nil
//! 1 | 2                              false | true
//! 3  f64                             number
//! 4  u32 len, bytes                  string
//! 6                                  the table ends
//! 7  u8 type                         what cannot be carried: Lua's number of the type
//! 8                                  a light userdata that is NULL: cjson.null
//!
//! a table as it is walked: the number of its entries, all its bytes
//! 12 u32 entries, u64 bytes          its keys are 1, 2, 3, ...: value value ..., until 6
//! 13 u32 entries, u64 bytes          all its keys are numbers, in any order: key value key value ..., until 6
//! 14 u32 entries, u64 bytes          any other: key value key value ..., until 6
//! 9                                  deeper than the walker's limit
//!
//! a table as it is played
//! 5  u32 array, u32 hash             sizes to create it with; then key value key value ..., until 6
//! 10 u32 array                       of the keys 1, 2, 3, ...: value value ..., until 6
//! 15 u32 fields, u32 0               at most 32 keys that are strings, no value is nil: key value key value ..., until 6
//! 11 u32 instance                    a new table of the functions of this library, for this instance
//! ```
//! * A walked table comes in the order of `lua_next`, without regard to metatables.
//! * The sizes of a played table decide the order in which `pairs` goes over it, as the order of insertion
//!   does: where Valkey's C creates a table with `lua_newtable`, they are 0. A table of fields has the order
//!   of one with sizes of 0.
//! * Both sides are trusted: a reader panics on bytes that no writer writes.

/// Lua's numbers of types, for [`Item::Other`] and messages.
pub mod types {
    pub const NIL: u8 = 0;
    pub const BOOLEAN: u8 = 1;
    pub const LIGHT_USERDATA: u8 = 2;
    pub const NUMBER: u8 = 3;
    pub const STRING: u8 = 4;
    pub const TABLE: u8 = 5;
    pub const FUNCTION: u8 = 6;
    pub const USERDATA: u8 = 7;
    pub const THREAD: u8 = 8;

    /// Returns the name that `lua_typename` has for a type.
    pub fn name(of: u8) -> &'static str {
        match of {
            NIL => "nil",
            BOOLEAN => "boolean",
            LIGHT_USERDATA | USERDATA => "userdata",
            NUMBER => "number",
            STRING => "string",
            TABLE => "table",
            FUNCTION => "function",
            THREAD => "thread",
            _ => "no value",
        }
    }
}

pub mod tags {
    pub const NIL: u8 = 0;
    pub const FALSE: u8 = 1;
    pub const TRUE: u8 = 2;
    pub const NUMBER: u8 = 3;
    pub const STRING: u8 = 4;
    pub const TABLE: u8 = 5;
    pub const TABLE_END: u8 = 6;
    pub const OTHER: u8 = 7;
    pub const NULL: u8 = 8;
    pub const TOO_DEEP: u8 = 9;
    pub const LIST: u8 = 10;
    pub const LIBRARY: u8 = 11;
    pub const VALUES: u8 = 12;
    pub const NUMBERED: u8 = 13;
    pub const KEYED: u8 = 14;
    pub const FIELDS: u8 = 15;
}

/// The bytes of the head of a walked table.
pub const WALKED_HEAD: usize = 13;

/// A table of more fields is written with tag 5.
pub const FIELDS_MAX: usize = 32;

/// Item of a tape: a value, or the beginning or the end of a table.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Item<'a> {
    Nil,
    Boolean(bool),
    Number(f64),
    String(&'a [u8]),
    /// Keys and values follow in turn, or values alone, until `TableEnd`.
    Table,
    TableEnd,
    /// A function, a thread or a userdata: Lua's number of the type.
    Other(u8),
    Null,
    TooDeep,
}

impl Item<'_> {}

/// Reads a tape from its beginning. It is a place: a copy goes back to it.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { bytes }
    }

    /// Returns the bytes that have not been read.
    pub fn rest(&self) -> &'a [u8] {
        self.bytes
    }

    #[inline]
    pub fn is_at_end(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Returns the next item; `None` at the end of the tape. The reader is no iterator: it is copied to go
    /// back, and it skips values, not items.
    #[expect(clippy::should_implement_trait)]
    #[inline]
    pub fn next(&mut self) -> Option<Item<'a>> {
        let (&tag, rest) = self.bytes.split_first()?;
        self.bytes = rest;
        Some(match tag {
            tags::NIL => Item::Nil,
            tags::FALSE => Item::Boolean(false),
            tags::TRUE => Item::Boolean(true),
            tags::NUMBER => Item::Number(f64::from_le_bytes(self.take())),
            tags::STRING => {
                let len = u32::from_le_bytes(self.take()) as usize;
                let (text, rest) = self.bytes.split_at(len);
                self.bytes = rest;
                Item::String(text)
            }
            tags::TABLE | tags::FIELDS => {
                let _: [u8; 8] = self.take();
                Item::Table
            }
            tags::LIST => {
                let _: [u8; 4] = self.take();
                Item::Table
            }
            tags::VALUES | tags::NUMBERED | tags::KEYED => {
                let _: [u8; WALKED_HEAD - 1] = self.take();
                Item::Table
            }
            tags::TABLE_END => Item::TableEnd,
            tags::OTHER => Item::Other(self.take::<1>()[0]),
            tags::NULL => Item::Null,
            tags::TOO_DEEP => Item::TooDeep,
            _ => panic!("a tape with a tag {tag}"),
        })
    }

    /// Passes over one value, a table with all that is in it.
    pub fn skip(&mut self) {
        let mut depth = 0;
        while let Some(item) = self.next() {
            match item {
                Item::Table => depth += 1,
                Item::TableEnd => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                return;
            }
        }
    }

    #[inline]
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let (head, rest) = self.bytes.split_first_chunk().expect("the tape was cut off");
        self.bytes = rest;
        *head
    }
}

/// A writer of a tape, which it appends to `bytes`.
#[derive(Debug)]
pub struct Writer<'a> {
    bytes: &'a mut Vec<u8>,
}

impl<'a> Writer<'a> {
    pub fn new(bytes: &'a mut Vec<u8>) -> Writer<'a> {
        Writer { bytes }
    }

    #[inline]
    pub fn nil(&mut self) {
        self.bytes.push(tags::NIL);
    }

    #[inline]
    pub fn boolean(&mut self, value: bool) {
        self.bytes.push(if value { tags::TRUE } else { tags::FALSE });
    }

    #[inline]
    pub fn number(&mut self, value: f64) {
        self.bytes.push(tags::NUMBER);
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    /// Panics above 4 GB: what comes from Lua or from a request is shorter, and no library makes more of it.
    #[inline]
    pub fn string(&mut self, text: &[u8]) {
        let len = u32::try_from(text.len()).expect("a string of less than 4 GB");
        self.bytes.push(tags::STRING);
        self.bytes.extend_from_slice(&len.to_le_bytes());
        self.bytes.extend_from_slice(text);
    }

    /// Keys and values are to follow in turn, then `table_end`. The sizes are those of `lua_createtable`.
    #[inline]
    pub fn table(&mut self, array: u32, hash: u32) {
        self.bytes.push(tags::TABLE);
        self.bytes.extend_from_slice(&array.to_le_bytes());
        self.bytes.extend_from_slice(&hash.to_le_bytes());
    }

    #[inline]
    pub fn table_end(&mut self) {
        self.bytes.push(tags::TABLE_END);
    }

    /// Begins a table as the walker does; `end_walked` is to follow with what this returns.
    pub fn begin_walked(&mut self) -> usize {
        let head = self.bytes.len();
        self.bytes.extend_from_slice(&[0; WALKED_HEAD]);
        head
    }

    /// Ends it. `tag`: `VALUES`, `NUMBERED` or `KEYED`.
    pub fn end_walked(&mut self, head: usize, tag: u8, entries: u32) {
        self.table_end();
        let len = (self.bytes.len() - head) as u64;
        self.bytes[head] = tag;
        self.bytes[head + 1..head + 5].copy_from_slice(&entries.to_le_bytes());
        self.bytes[head + 5..head + WALKED_HEAD].copy_from_slice(&len.to_le_bytes());
    }

    #[inline]
    pub fn null(&mut self) {
        self.bytes.push(tags::NULL);
    }

    /// A new table with the functions of the library that is being called, which are called with this
    /// instance.
    pub fn library(&mut self, instance: u32) {
        self.bytes.push(tags::LIBRARY);
        self.bytes.extend_from_slice(&instance.to_le_bytes());
    }

    /// Returns the bytes written so far, for a library that writes tags by itself and corrects lengths
    /// afterwards.
    pub fn bytes(&mut self) -> &mut Vec<u8> {
        self.bytes
    }

    /// Returns the place of the next value. `truncate` with it removes what is written later.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub fn truncate(&mut self, len: usize) {
        self.bytes.truncate(len);
    }
}
