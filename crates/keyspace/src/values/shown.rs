//! Keys that lie outside memory with their values, and are shown from their record to commands that only
//! read: memory has no room for them.
//!
//! ```text
//!   add    of the record that was read: the value of one key, and a page with an entry that says the rest
//!   find   that entry, while its bundle still has the key             (a use is noted)
//!   drop   what was used goes with the locks of its command, the rest when it had its time
//! ```
//! Shown entries are no data: a key that is changed comes to memory before. Invariant: `bytes` is the sum
//! over what is shown.

use crate::layout::bound::NEVER;
use crate::layout::bundle::Item;
use crate::layout::cold::{ColdRef, ColdValue};
use crate::layout::entry::Draft;
use crate::layout::key::Key;
use crate::layout::kind::{Db, Form};
use crate::layout::page::{self, Page, Spot};
use isotherm_stdx::{SteadyMs, UnixMs};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;

/// First of the bits of a reference that say a length.
const LENGTH_SHIFT: u32 = 40;

/// A key of a record.
pub(crate) struct Shown {
    name: Box<[u8]>,
    pub from: ColdRef,
    /// Index among the keys of the record.
    pub ordinal: usize,
    pub form: Form,
    pub value: Box<[u8]>,
    pub expiry: Option<UnixMs>,
    /// A page of one entry, which has no value but its form, its length and its expiry.
    page: Box<[u8]>,
    pub spot: Spot,
    since: SteadyMs,
    is_used: Cell<bool>,
}

impl Shown {
    pub fn new(item: &Item<'_>, from: ColdRef, ordinal: usize, stamp: u16, now: UnixMs) -> Shown {
        // An empty value is none of a reference; to all that the entry is asked it is like one byte.
        let length = (item.value.len() as u64).max(1) << LENGTH_SHIFT;
        let address = from.raw() & ((1 << LENGTH_SHIFT) - 1);
        let value = ColdValue { form: item.form, reference: ColdRef::new(length | address), due: NEVER };
        let draft = Draft::cold(item.key, value, item.expiry);
        let (cap, used) = page::size_for(1, 0, draft.as_bytes().len());
        let mut bytes = vec![0; used.next_multiple_of(32)];
        page::init(&mut bytes, cap, 0, 0, stamp);
        let spot = page::append(&mut bytes, 1, draft.as_bytes(), 0);
        Shown {
            name: item.key.into(),
            from,
            ordinal,
            form: item.form,
            value: item.value.into(),
            expiry: item.expiry,
            page: bytes.into(),
            spot,
            since: SteadyMs::of(now),
            is_used: Cell::new(false),
        }
    }

    pub fn page(&self) -> Page<'_> {
        Page(&self.page)
    }

    fn bytes(&self) -> usize {
        self.name.len() + self.value.len() + self.page.len() + size_of::<Shown>() + 64
    }
}

/// Shown keys of a partition.
#[derive(Default)]
pub(crate) struct ShownKeys {
    /// Keys by database and hash: of two keys with the same the later is shown.
    keys: HashMap<(Db, u64), Shown>,
    bytes: usize,
    /// Moment before which none was shown.
    since: SteadyMs,
    used: RefCell<Vec<(Db, u64)>>,
}

impl ShownKeys {
    pub fn add(&mut self, db: Db, key: &Key<'_>, shown: Shown) {
        if self.keys.is_empty() {
            self.since = shown.since;
        }
        self.bytes += shown.bytes();
        if let Some(old) = self.keys.insert((db, key.hash), shown) {
            self.bytes -= old.bytes();
        }
    }

    pub fn find(&self, db: Db, key: &Key<'_>) -> Option<&Shown> {
        if self.keys.is_empty() {
            return None;
        }
        self.keys.get(&(db, key.hash)).filter(|shown| *shown.name == *key.bytes)
    }

    /// Notes that a command has been shown it.
    pub fn note_use(&self, db: Db, key: &Key<'_>, shown: &Shown) {
        if !shown.is_used.replace(true) {
            self.used.borrow_mut().push((db, key.hash));
        }
    }

    #[inline]
    pub fn has_used(&self) -> bool {
        !self.used.borrow().is_empty()
    }

    /// Counts what was used as not used.
    pub fn keep_used(&mut self) {
        for at in self.used.take() {
            if let Some(shown) = self.keys.get(&at) {
                shown.is_used.set(false);
            }
        }
    }

    /// Drops what commands have used.
    pub fn drop_used(&mut self) {
        for at in std::mem::take(self.used.get_mut()) {
            self.bytes -= self.keys.remove(&at).map_or(0, |shown| shown.bytes());
        }
        self.shrink_if_empty();
    }

    /// Drops keys that are shown for longer than `ms_max` milliseconds.
    pub fn drop_older(&mut self, now: SteadyMs, ms_max: i64) {
        if self.keys.is_empty() || now.ms_since(self.since) < ms_max {
            return;
        }
        self.keys.retain(|_, shown| now.ms_since(shown.since) < ms_max);
        self.bytes = self.keys.values().map(Shown::bytes).sum();
        self.since = self.keys.values().map(|shown| shown.since).min().unwrap_or_default();
        self.shrink_if_empty();
    }

    fn shrink_if_empty(&mut self) {
        if self.keys.is_empty() {
            self.keys = HashMap::new();
        }
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn check_invariants(&self) {
        assert_eq!(self.bytes, self.keys.values().map(Shown::bytes).sum());
    }
}
