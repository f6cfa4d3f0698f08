//! What a command sees of an entry: never a byte layout.

use crate::layout::kind::{Encoding, Form, Type};
use crate::values::collection::Stored;
use crate::values::hash::HashView;
use crate::values::list::ListView;
use crate::values::set::SetView;
use crate::values::stream::StreamView;
use crate::values::zset::ZsetView;
use isotherm_stdx::UnixMs;

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
