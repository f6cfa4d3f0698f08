//! What a command sees of an entry, and what it hands in: never a byte layout.

use crate::layout::entry::Form;
use crate::values::collection::Stored;
use crate::values::hash::HashView;
use crate::values::list::ListView;
use crate::values::set::SetView;
use crate::values::stream::StreamView;
use crate::values::zset::ZsetView;
use isotherm_stdx::UnixMs;

/// A database number (SELECT).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Db(pub u16);

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

/// The encoding that OBJECT ENCODING reports, in the field's names. Of a collection it is policy, not storage: what the
/// field would have made of it under the same limits.
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

/// A stored value, borrowed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Value<'a> {
    /// A string that is a canonical signed integer.
    Int(i64),
    Bytes(&'a [u8]),
    List(ListView<'a>),
    Hash(HashView<'a>),
    Set(SetView<'a>),
    Zset(ZsetView<'a>),
    Stream(StreamView<'a>),
}

impl<'a> Value<'a> {
    #[inline]
    pub fn kind(&self) -> Type {
        match self {
            Value::Int(_) | Value::Bytes(_) => Type::String,
            Value::List(_) => Type::List,
            Value::Hash(_) => Type::Hash,
            Value::Set(_) => Type::Set,
            Value::Zset(_) => Type::Zset,
            Value::Stream(_) => Type::Stream,
        }
    }

    /// A view of a collection; `form` is one.
    #[inline]
    pub(crate) fn collection(form: Form, stored: Stored<'a>, now: UnixMs) -> Value<'a> {
        match form {
            Form::List => Value::List(ListView::new(stored)),
            Form::Hash => Value::Hash(HashView::new(stored, now)),
            Form::Set | Form::IntSet => Value::Set(SetView::new(form, stored)),
            Form::Zset => Value::Zset(ZsetView::new(stored)),
            Form::Stream => Value::Stream(StreamView::new(stored)),
            Form::Bytes | Form::Int | Form::Raw => unreachable!("a string is no collection"),
        }
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

/// What a write does to the expiry of its key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Expiry {
    /// The key lives for ever from now on.
    Clear,
    /// As it was; a new key lives for ever.
    Keep,
    At(UnixMs),
}

/// An entry as a lookup returns it.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    pub value: Value<'a>,
    pub expiry: Option<UnixMs>,
    pub(crate) meta: crate::tables::store::EntryMeta<'a>,
}

impl<'a> Entry<'a> {
    pub fn kind(&self) -> Type {
        self.value.kind()
    }

    /// What OBJECT ENCODING reports. Computed when asked, which GET never does.
    pub fn encoding(&self) -> Encoding {
        self.meta.encoding()
    }

    /// Seconds since the last access: exact, or a lower bound that the page shares (see `access`).
    pub fn idle_seconds(&self) -> u64 {
        self.meta.idle_seconds()
    }

    /// The logarithmic access counter under an LFU policy, else 0.
    pub fn frequency(&self) -> u8 {
        self.meta.frequency()
    }

    /// Bytes that this entry takes, its share of the page included (MEMORY USAGE).
    pub fn memory_bytes(&self) -> usize {
        self.meta.memory_bytes()
    }
}

/// The store cannot take the entry: a slot or the arena has reached its limit. The user gets the OOM error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Full;
