//! View of an entry for commands: never a byte layout.

use crate::accounting::tally::is_embstr;
use crate::layout::bundle::Item;
use crate::layout::cold::ColdValue;
use crate::layout::directory;
use crate::layout::entry::{BodyRef, Draft, EntryBytes, Parts, Place, read_int};
use crate::layout::kind::{Encoding, Form, NewValue, Type, packed_encoding};
use crate::layout::large::SharedText;
use crate::layout::last_used::{self, AccessMode};
use crate::layout::page::{self, Page, Spot};
use crate::layout::record::UNIT_BYTES;
use crate::values::collection::Stored;
use crate::values::hash::HashView;
use crate::values::list::ListView;
use crate::values::set::SetView;
use crate::values::shown::Shown;
use crate::values::store::Store;
use crate::values::stream::StreamView;
use crate::values::stream::image::StreamImage;
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
    /// Not in memory. A command whose declaration says what it needs never meets one if it needs more than
    /// type and length: its values are fetched first.
    Cold(ColdValue),
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
            Value::Cold(cold) => cold.kind(),
        }
    }

    /// The value of an entry as it is at `now`.
    #[inline]
    pub(crate) fn of(store: &'a Store, entry: EntryBytes<'a>, now: UnixMs) -> Value<'a> {
        if let Some(bytes) = entry.plain_value() {
            return Value::Bytes(bytes);
        }
        let parts = entry.parts();
        let form = parts.form();
        if parts.is_inline() {
            Value::of_bytes(form, parts.tail, now)
        } else {
            Value::of_outside(store, entry, &parts, now)
        }
    }

    #[inline]
    pub(crate) fn of_bytes(form: Form, bytes: &'a [u8], now: UnixMs) -> Value<'a> {
        match form {
            Form::Int => Value::Int(read_int(bytes)),
            Form::Bytes | Form::Raw => Value::Bytes(bytes),
            _ => Value::collection(form, Stored::Packed(bytes, form), now),
        }
    }

    fn of_outside(store: &'a Store, entry: EntryBytes<'a>, parts: &Parts<'a>, now: UnixMs) -> Value<'a> {
        let (form, body) = (parts.form(), parts.outside());
        match body.place {
            Place::Object => Value::collection(form, Stored::Object(store.objects.get(body.raw), store), now),
            Place::Cold => {
                let reference = body.cold().expect("it is cold");
                if form == Form::Stream {
                    return match store.cold.image::<StreamImage>(reference) {
                        Some((image, bytes)) => Value::Stream(StreamView::of_image(image, bytes)),
                        None => Value::Cold(entry.cold_value().expect("it is cold")),
                    };
                }
                match store.cold.used(reference) {
                    Some(bytes) => Value::of_bytes(form, bytes, now),
                    None => Value::Cold(entry.cold_value().expect("it is cold")),
                }
            }
            _ => Value::of_bytes(form, store.value_bytes_of(entry), now),
        }
    }

    /// A view of a collection; `form` is one.
    #[inline]
    pub(crate) fn collection(form: Form, stored: Stored<'a>, now: UnixMs) -> Value<'a> {
        match form {
            Form::List | Form::Quicklist => Value::List(ListView::new(stored)),
            Form::Hash | Form::TableHash | Form::TimedHash => Value::Hash(HashView::new(stored, now)),
            Form::Set | Form::IntSet | Form::TableSet => Value::Set(SetView::new(form, stored)),
            Form::Zset | Form::Skiplist => Value::Zset(ZsetView::new(stored)),
            Form::Stream => Value::Stream(StreamView::new(stored)),
            Form::Bytes | Form::Int | Form::Raw => unreachable!("a string is no collection"),
        }
    }
}

impl ColdValue {
    /// The value, of the bytes that were read.
    pub fn with_bytes(self, bytes: &[u8]) -> ReadValue<'_> {
        let stream = (self.form == Form::Stream).then(|| StreamImage::open(bytes));
        ReadValue { form: self.form, bytes, stream }
    }
}

/// A value that was read from where it is kept, without a partition.
pub struct ReadValue<'a> {
    form: Form,
    bytes: &'a [u8],
    /// Index of a stream, which leads through its bytes.
    stream: Option<StreamImage>,
}

impl ReadValue<'_> {
    pub fn value(&self) -> Value<'_> {
        match &self.stream {
            Some(image) => Value::Stream(StreamView::of_image(image, self.bytes)),
            // A snapshot has what is stored, whether its time has come or not.
            None => Value::of_bytes(self.form, self.bytes, UnixMs(i64::MIN)),
        }
    }
}

/// An entry as a lookup returns it.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    pub value: Value<'a>,
    pub expiry: Option<UnixMs>,
    meta: EntryMeta<'a>,
}

impl<'a> Entry<'a> {
    /// An entry as commands see it.
    #[inline]
    pub(crate) fn of(store: &'a Store, page: Page<'a>, spot: Spot, now: UnixMs) -> Entry<'a> {
        let entry = EntryBytes(page.entry(spot));
        let value = Value::of(store, entry, now);
        Entry { value, expiry: entry.expiry(), meta: EntryMeta { store, page, spot, now } }
    }

    /// An item of a bundle, as it would be in memory but for what a page knows of its use.
    pub(crate) fn of_item(store: &Store, item: &Item<'_>, visit: &mut dyn FnMut(&Entry<'_>)) {
        // A page of its own, without the value: that may be longer than an entry in a page can be.
        let draft = Draft::inline(item.key, NewValue::Bytes(b""), None);
        let (cap, used) = page::size_for(1, 0, draft.as_bytes().len());
        let mut bytes = vec![0; used.next_multiple_of(32)];
        page::init(&mut bytes, cap, 0, 0, 0);
        let spot = page::append(&mut bytes, 1, draft.as_bytes(), 0);
        let now = UnixMs(i64::MIN);
        let value = Value::of_bytes(item.form, item.value, now);
        visit(&Entry {
            value,
            expiry: item.expiry,
            meta: EntryMeta { store, page: Page(&bytes), spot, now },
        });
    }

    /// Makes the entry of a key that is shown from its record.
    pub(crate) fn of_shown(store: &'a Store, shown: &'a Shown, now: UnixMs) -> Entry<'a> {
        let value = Value::of_bytes(shown.form, &shown.value, now);
        let meta = EntryMeta { store, page: shown.page(), spot: shown.spot, now };
        Entry { value, expiry: shown.expiry, meta }
    }

    pub fn kind(&self) -> Type {
        self.value.kind()
    }

    /// Returns the encoding that OBJECT ENCODING reports. Computed when asked, which GET never does.
    pub fn encoding(&self) -> Encoding {
        self.meta.encoding()
    }

    /// Seconds since the last access: exact, or a lower bound that the page shares (see `last_used`).
    pub fn idle_seconds(&self) -> u64 {
        self.meta.idle_seconds()
    }

    /// The logarithmic access counter under an LFU policy, else 0.
    pub fn frequency(&self) -> u8 {
        self.meta.frequency()
    }

    /// The text of a large string, shared with what is stored: it stays as it is, whatever a later command
    /// changes.
    pub fn shared_text(&self) -> Option<SharedText> {
        self.meta.shared_text()
    }

    /// Bytes that this entry takes, its share of the page included (MEMORY USAGE).
    pub fn memory_bytes(&self) -> usize {
        self.meta.memory_bytes()
    }
}

/// Data with which an entry view reports its access stamp and its memory, when asked.
#[derive(Clone, Copy)]
struct EntryMeta<'a> {
    store: &'a Store,
    page: Page<'a>,
    spot: Spot,
    now: UnixMs,
}

impl EntryMeta<'_> {
    /// Valkey's encoding names follow from its own layout.
    fn encoding(&self) -> Encoding {
        let entry = EntryBytes(self.page.entry(self.spot));
        match entry.form() {
            Form::Int => Encoding::Int,
            Form::Raw => Encoding::Raw,
            Form::Bytes => {
                let (key, value) = (self.store.key_of(entry).len(), self.store.value_len_of(entry));
                // COMPAT(keys): OBJECT ENCODING of a string of some 100 bytes that had a TTL, or replaced a
                // string with one, is `embstr`; Valkey may report `raw`. Why: Valkey keeps the room of a
                // removed TTL, here there is none to keep.
                if is_embstr(key, value, entry.is_volatile()) { Encoding::Embstr } else { Encoding::Raw }
            }
            form => match entry.body() {
                Some(body) if body.place == Place::Object => {
                    self.store.objects.get(body.raw).body.structure().encoding()
                }
                _ => packed_encoding(form),
            },
        }
    }

    fn idle_seconds(&self) -> u64 {
        let own = self.page.access(self.spot.index, AccessMode::Lru.width());
        u64::from(last_used::idle_seconds(own.unwrap_or(self.page.stamp()), self.now))
    }

    fn frequency(&self) -> u8 {
        self.page.access(self.spot.index, AccessMode::Lfu.width()).map_or(0, |counter| counter as u8)
    }

    fn shared_text(&self) -> Option<SharedText> {
        let entry = EntryBytes(self.page.entry(self.spot));
        let body = entry.body().filter(|body| body.place == Place::Large)?;
        let is_text = matches!(entry.form(), Form::Bytes | Form::Raw);
        let (len, value_bytes) = (body.len as usize, self.store.value_bytes_of(entry).len());
        is_text.then(|| SharedText::new(self.store.large.share(body.raw), len - value_bytes..len))
    }

    /// The entry, its columns, its share of page and directory, and its body.
    fn memory_bytes(&self) -> usize {
        let bytes = self.page.entry(self.spot);
        let shared = self.page.0.len() - page::entry_bytes(self.page) + directory::CHILD_BYTES;
        let body = match EntryBytes(bytes).body() {
            None => 0,
            Some(BodyRef { place: Place::Cold, .. }) => 0,
            Some(body @ BodyRef { place: Place::Large, .. }) => self.store.large.memory_bytes(body.raw),
            Some(BodyRef { place: Place::Object, raw, .. }) => {
                self.store.objects.get(raw).memory_bytes() as usize
            }
            Some(body) => (self.store.body_units(body) * UNIT_BYTES) as usize,
        };
        bytes.len() + shared.div_ceil(self.page.len()) + body
    }
}

impl std::fmt::Debug for EntryMeta<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EntryMeta").field("spot", &self.spot).finish_non_exhaustive()
    }
}
