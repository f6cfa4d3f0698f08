//! Place of a key in a table, or the place that it would have.

use crate::accounting::tally::{Account, InlineAccount};
use crate::layout::entry::{BodyRef, EntryBytes};
use crate::layout::page::{self, Spot};
use crate::layout::record::Record;
use crate::values::store::{Store, inline_account};
use isotherm_arena::Handle;
use isotherm_stdx::UnixMs;

/// A slot of a table: its place in the partition, and its record as it was read.
#[derive(Clone, Copy)]
pub(crate) struct SlotRef {
    pub at: usize,
    /// Run in which the record lies with those of its neighbours; `None` while all of these have no keys.
    pub run: Option<Handle>,
    pub record: Record,
}

/// Place of a key in a table, or the place that it would have.
#[derive(Clone, Copy)]
pub(crate) struct Location {
    pub slot: SlotRef,
    pub page_index: u32,
    pub page: Option<Handle>,
    pub spot: Option<Spot>,
}

/// Entry at a location, as it is before a change.
pub(crate) enum OldEntry {
    Inline(InlineAccount),
    Outside(BodyRef, Account),
}

impl OldEntry {
    #[inline]
    pub fn is_volatile(&self) -> bool {
        match self {
            OldEntry::Inline(account) => account.is_volatile(),
            OldEntry::Outside(_, account) => account.expiry_bytes > 0,
        }
    }

    pub fn account(&self) -> Account {
        match self {
            OldEntry::Inline(account) => (*account).into(),
            OldEntry::Outside(_, account) => *account,
        }
    }
}

impl Location {
    #[inline(always)]
    pub fn old_entry(&self, store: &Store) -> Option<OldEntry> {
        let entry = EntryBytes(store.heap.page(self.page?).entry(self.spot?));
        Some(match inline_account(entry) {
            Some(account) => OldEntry::Inline(account),
            None => {
                let body = entry.body().expect("its value lies in a body");
                OldEntry::Outside(body, store.account_outside(entry))
            }
        })
    }

    /// Returns the moment at which the entry expires, if there is an entry and it does.
    #[inline]
    pub fn expiry(&self, store: &Store) -> Option<UnixMs> {
        EntryBytes(store.heap.page(self.page?).entry(self.spot?)).expiry()
    }

    /// Returns whether the page has so little room that a new entry has to lie outside it. Only a flood of
    /// equal hashes, or very bad luck with long entries, causes this.
    #[inline]
    pub fn is_tight(&self, store: &Store) -> bool {
        self.page.is_some_and(|page| store.heap.page(page).used() > page::PAGE_BYTES_MAX - 512)
    }

    /// Returns whether there is an entry that is past its expiry.
    #[inline]
    pub fn is_stale(&self, store: &Store, now: UnixMs) -> bool {
        self.spot.is_some() && self.entry(store).expiry().is_some_and(|at| at < now)
    }

    /// The entry there; there is one.
    #[inline(always)]
    pub fn entry<'s>(&self, store: &'s Store) -> EntryBytes<'s> {
        let (page, spot) = self.page.zip(self.spot).expect("it was found");
        EntryBytes(store.heap.page(page).entry(spot))
    }

    /// The number of the object there, if it is one.
    pub fn object(&self, store: &Store) -> Option<u32> {
        self.entry(store).object()
    }
}
