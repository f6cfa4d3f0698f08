//! Kinds: databases, types, forms and encodings, and what a write hands in. Scalars, which every layer names.

use isotherm_stdx::UnixMs;
use isotherm_stdx::format::{FormatPart, number};

/// A database number (SELECT).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Db(pub u16);

impl Db {
    /// No database has this number: what is kept under it is none of a snapshot's.
    pub(crate) const HIDDEN: Db = Db(u16::MAX);
}

/// The type that TYPE reports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Type {
    String,
    List,
    Hash,
    Set,
    Zset,
    Stream,
}

impl Type {
    pub const COUNT: usize = 6;

    pub fn name(self) -> &'static str {
        match self {
            Type::String => "string",
            Type::List => "list",
            Type::Hash => "hash",
            Type::Set => "set",
            Type::Zset => "zset",
            Type::Stream => "stream",
        }
    }
}

/// Format of a value's bytes, by which they are read. An entry has it in addition to the value's length.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Form {
    Bytes = 0,
    Int = 1,
    Raw = 2,
    List = 3,
    Hash = 4,
    Set = 5,
    IntSet = 6,
    Zset = 7,
    Stream = 8,
    /// First of four forms that only images of large collections have (see `values::image`): images that are
    /// no listpack for Valkey. No entry whose value is in memory has one of these forms.
    Quicklist = 9,
    TableHash = 10,
    TableSet = 11,
    Skiplist = 12,
    /// A hash with fields that have times (see `values::timed`).
    TimedHash = 13,
}

/// Rows of `--layout`.
pub(crate) const FORMAT: FormatPart = (
    "form of a value",
    &[
        ("bytes", number(Form::Bytes as usize)),
        ("integer", number(Form::Int as usize)),
        ("edited bytes", number(Form::Raw as usize)),
        ("list", number(Form::List as usize)),
        ("hash", number(Form::Hash as usize)),
        ("set", number(Form::Set as usize)),
        ("set of integers", number(Form::IntSet as usize)),
        ("sorted set", number(Form::Zset as usize)),
        ("stream", number(Form::Stream as usize)),
        ("quicklist", number(Form::Quicklist as usize)),
        ("table of a hash", number(Form::TableHash as usize)),
        ("table of a set", number(Form::TableSet as usize)),
        ("skiplist", number(Form::Skiplist as usize)),
        ("hash with field times", number(Form::TimedHash as usize)),
    ],
);

impl Form {
    /// The form with this number, if there is one.
    #[inline]
    pub fn of_number(number: u8) -> Option<Form> {
        Some(match number {
            0 => Form::Bytes,
            1 => Form::Int,
            2 => Form::Raw,
            3 => Form::List,
            4 => Form::Hash,
            5 => Form::Set,
            6 => Form::IntSet,
            7 => Form::Zset,
            8 => Form::Stream,
            9 => Form::Quicklist,
            10 => Form::TableHash,
            11 => Form::TableSet,
            12 => Form::Skiplist,
            13 => Form::TimedHash,
            _ => return None,
        })
    }

    /// A collection, small or large.
    #[inline]
    pub fn is_collection(self) -> bool {
        self as u8 >= Form::List as u8
    }

    #[inline]
    pub fn kind(self) -> Type {
        match self {
            Form::Bytes | Form::Int | Form::Raw => Type::String,
            Form::List | Form::Quicklist => Type::List,
            Form::Hash | Form::TableHash | Form::TimedHash => Type::Hash,
            Form::Set | Form::IntSet | Form::TableSet => Type::Set,
            Form::Zset | Form::Skiplist => Type::Zset,
            Form::Stream => Type::Stream,
        }
    }

    /// Returns whether only images have this form.
    #[inline]
    pub fn is_of_images(self) -> bool {
        self as u8 > Form::Stream as u8
    }
}

/// The encoding that OBJECT ENCODING reports, in Valkey's names. Of a collection it is policy, not storage:
/// what Valkey would have made of it under the same limits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Encoding {
    Int,
    Embstr,
    Raw,
    Listpack,
    Quicklist,
    Hashtable,
    Intset,
    Skiplist,
    Stream,
}

impl Encoding {
    pub fn name(self) -> &'static str {
        match self {
            Encoding::Int => "int",
            Encoding::Embstr => "embstr",
            Encoding::Raw => "raw",
            Encoding::Listpack => "listpack",
            Encoding::Quicklist => "quicklist",
            Encoding::Hashtable => "hashtable",
            Encoding::Intset => "intset",
            Encoding::Skiplist => "skiplist",
            Encoding::Stream => "stream",
        }
    }
}

/// Columns of a packed collection.
pub(crate) fn stride_of(form: Form) -> usize {
    match form {
        Form::Hash | Form::Zset | Form::TableHash | Form::TimedHash | Form::Skiplist => 2,
        _ => 1,
    }
}

/// Returns the encoding that OBJECT ENCODING reports for a packed collection or an image.
pub(crate) fn packed_encoding(form: Form) -> Encoding {
    match form {
        Form::IntSet => Encoding::Intset,
        Form::Stream => Encoding::Stream,
        Form::Quicklist => Encoding::Quicklist,
        Form::TableHash | Form::TimedHash | Form::TableSet => Encoding::Hashtable,
        Form::Skiplist => Encoding::Skiplist,
        _ => Encoding::Listpack,
    }
}

/// A value to store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NewValue<'a> {
    Int(i64),
    /// A string as SET stores it: embstr if it is short.
    Bytes(&'a [u8]),
    /// A string that was edited in place (APPEND, SETRANGE): always raw.
    Raw(&'a [u8]),
    /// A small collection; only the keyspace itself makes one.
    Packed(PackedValue<'a>),
}

/// A small collection as it is stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PackedValue<'a> {
    pub(crate) form: Form,
    pub(crate) bytes: &'a [u8],
}

impl<'a> NewValue<'a> {
    /// The form in which SET stores `bytes`: an integer if they are one in canonical form.
    #[inline]
    pub fn encode(bytes: &'a [u8]) -> NewValue<'a> {
        // "-9223372036854775808" has 20 characters; nothing longer is an integer.
        if bytes.len() <= 20
            && let Some(value) = isotherm_stdx::parse_i64(bytes)
        {
            return NewValue::Int(value);
        }
        NewValue::Bytes(bytes)
    }
}

/// Effect of a write on the expiry of its key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Expiry {
    /// The key lives for ever from now on.
    Clear,
    /// The expiry stays as it was; a new key lives for ever.
    Keep,
    At(UnixMs),
}

/// The store cannot take the entry: a slot or the arena has reached its limit. The user gets the OOM error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Full;
