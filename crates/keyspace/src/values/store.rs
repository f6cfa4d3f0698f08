//! Store that the databases of a partition share: memory, the bodies of entries, the accounts of entries, and
//! large objects. The pages are in `pages`.

use crate::accounting::lazy::{LAZY_EFFORT_MIN, LazyFrees};
use crate::accounting::tally::{Account, Class, InlineAccount, items_of};
use crate::layout::cold::ColdRef;
use crate::layout::entry::{
    BLOB_HEAD_BYTES, BodyRef, EntryBytes, Place, Plan, body_head_bytes, form_of, split_keyed, value_bytes,
};
use crate::layout::heap::Heap;
use crate::layout::key::slot_of_blob_head;
use crate::layout::key::{Key, blob_head, tag_of};
use crate::layout::kind::{Expiry, Form, Full, NewValue};
use crate::layout::large::{Large, Shared};
use crate::layout::last_used::{self, AccessMode};
use crate::layout::packed::PackedBuf;
use crate::layout::page::{self, Spot};
use crate::layout::record::{NEVER, UNIT_BYTES};
use crate::values::cold::Cold;
use crate::values::object::{Object, Objects, Root};
use crate::values::saved::SnapshotState;
use isotherm_arena::{Handle, Kind, class_bytes};
use isotherm_stdx::{Prng, UnixMs, steps};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

/// Memory and settings that all databases of a partition share.
pub(crate) struct Store {
    pub heap: Heap,
    pub large: Large,
    pub access: AccessMode,
    pub lfu_log_factor: u32,
    pub prng: Prng,
    pub hasher: crate::layout::key::KeyHasher,
    pub snapshot: SnapshotState,
    pub objects: Objects,
    /// A removed object of no more elements is freed at once.
    pub freed_at_once_max: u64,
    /// Flag that something removed may wait for `free_step`: read without the lock.
    pub unfreed: Arc<AtomicBool>,
    pub lazy: Arc<LazyFrees>,
    /// True if removed collections are counted in `lazy`. Those of flushed databases are not: their keys are.
    pub counts_lazy: bool,
    /// Hashes that have fields with a time, by the lower bound of these.
    pub field_bounds: BTreeSet<(u32, u32)>,
    /// Buffers in which a small collection is changed and encoded again: kept for the next one.
    pub scratch: PackedBuf,
    pub scratch_bytes: Vec<u8>,
    pub cold: Cold,
    /// The request whose argument is being stored, if that may be stored as it lies.
    pub lent: Option<Shared>,
}

/// Returns the account of an entry whose value lies in it. `None` for other entries: ask the store that has
/// the body.
#[inline(always)]
pub(crate) fn inline_account(entry: EntryBytes<'_>) -> Option<InlineAccount> {
    let parts = entry.parts();
    parts.is_inline().then(|| InlineAccount::of(&parts, entry.0.len()))
}

impl Store {
    /// Something waits for `free_step`: `Keyspace::has_unfreed` says so until a step has found nothing.
    pub fn note_unfreed(&self) {
        self.unfreed.store(true, Relaxed);
    }

    // ---- bodies ----

    pub fn body(&self, body: BodyRef) -> &[u8] {
        match body.place {
            Place::Blob => self.heap.blob(blob(body), body.len as usize),
            Place::Large => &self.large.get(body.raw)[..body.len as usize],
            Place::Inline | Place::Object => unreachable!("neither an inline value nor an object has a body"),
            Place::Cold => {
                let lent = body.cold().and_then(|reference| self.cold.used(reference));
                lent.expect("what is not in memory is fetched before it is read")
            }
        }
    }

    pub fn body_mut(&mut self, body: BodyRef) -> &mut [u8] {
        match body.place {
            Place::Blob => self.heap.blob_mut(blob(body), body.len as usize),
            Place::Large => self.large.grow(body.raw, 0).expect("nothing grows"),
            Place::Inline | Place::Object => unreachable!("neither an inline value nor an object has a body"),
            Place::Cold => unreachable!("what is not in memory is fetched before it is changed"),
        }
    }

    pub fn free_body(&mut self, body: BodyRef) {
        match body.place {
            Place::Blob => self.heap.release(blob(body)),
            Place::Large => self.large.remove(body.raw),
            Place::Object => self.release_object(body.raw),
            Place::Cold => self.cold.retire(body),
            Place::Inline => unreachable!("an inline value has no body"),
        }
    }

    /// Returns whether a body is a hash that has fields with a time, as its table counts it.
    pub fn is_timed(&self, body: BodyRef) -> bool {
        match body.place {
            Place::Object => self.objects.get(body.raw).timed,
            _ => body.timed,
        }
    }

    /// Returns the memory of a body, in units of 16 B.
    pub fn body_units(&self, body: BodyRef) -> u64 {
        let bytes = match body.place {
            Place::Object => return self.objects.get(body.raw).tallied.units.get(),
            Place::Blob => class_bytes(Kind::Blob, crate::layout::entry::BLOB_HEAD_BYTES + body.len as usize),
            Place::Large => body.len as usize,
            Place::Cold => return 0,
            Place::Inline => unreachable!("an inline value has no body"),
        };
        (bytes as u64).div_ceil(UNIT_BYTES)
    }

    /// A body with room for a value of `value_bytes`, its key written if it belongs there, the value not yet.
    pub fn empty_body(&mut self, plan: Plan, key: &Key<'_>, value_bytes: usize) -> Result<BodyRef, Full> {
        let head = body_head_bytes(plan.keyed, key.bytes.len());
        let len = head + value_bytes;
        if len > crate::BODY_BYTES_MAX {
            return Err(Full);
        }
        let raw = match plan.place {
            Place::Blob => self.heap.new_blob(blob_head(key), len)?.raw(),
            Place::Large => self.large.insert(len)?,
            Place::Object => unreachable!("an object has no body"),
            Place::Inline | Place::Cold => unreachable!("it has no body in memory"),
        };
        let body = BodyRef { place: plan.place, raw, len: len as u32, keyed: plan.keyed, timed: false };
        if plan.keyed {
            let bytes = self.body_mut(body);
            bytes[..4].copy_from_slice(&(key.bytes.len() as u32).to_le_bytes());
            bytes[4..head].copy_from_slice(key.bytes);
        }
        Ok(body)
    }

    pub fn new_body(&mut self, plan: Plan, key: &Key<'_>, value: NewValue<'_>) -> Result<BodyRef, Full> {
        if let Some(lent) = self.lent_as(plan, value) {
            let (len, raw) = (lent.len() as u32, self.large.adopt(lent));
            return Ok(BodyRef { place: Place::Large, raw, len, keyed: false, timed: false });
        }
        let body = self.empty_body(plan, key, value_bytes(value))?;
        let head = body_head_bytes(plan.keyed, key.bytes.len());
        let target = &mut self.body_mut(body)[head..];
        match value {
            NewValue::Int(int) => target.copy_from_slice(&int.to_le_bytes()[..target.len()]),
            NewValue::Bytes(bytes) | NewValue::Raw(bytes) => target.copy_from_slice(bytes),
            NewValue::Packed(packed) => target.copy_from_slice(packed.bytes),
        }
        Ok(body)
    }

    /// The argument that was lent, if it is this value, and no key has to stand before it.
    fn lent_as(&self, plan: Plan, value: NewValue<'_>) -> Option<Shared> {
        let lent = self.lent.as_ref().filter(|_| plan.place == Place::Large && !plan.keyed)?;
        match value {
            NewValue::Bytes(bytes) | NewValue::Raw(bytes) if std::ptr::eq(bytes, &***lent) => {
                Some(Shared::clone(lent))
            }
            _ => None,
        }
    }

    // ---- entries ----

    /// The entry of a key in its page.
    #[inline(always)]
    pub fn find(&self, page: Handle, key: &Key<'_>) -> Option<Spot> {
        self.heap.page(page).find(tag_of(key.hash), |entry| self.is_key(EntryBytes(entry), key.bytes))
    }

    #[inline(always)]
    pub fn is_key(&self, entry: EntryBytes<'_>, key: &[u8]) -> bool {
        entry.is_seen_to_be(key) || self.is_key_beyond(entry, key)
    }

    /// Returns whether an entry has this key, for entries of every kind.
    fn is_key_beyond(&self, entry: EntryBytes<'_>, key: &[u8]) -> bool {
        match entry.inline_key() {
            Some(inline) => inline == key,
            None => self.key_of(entry) == key,
        }
    }

    #[inline]
    pub fn key_of<'a>(&'a self, entry: EntryBytes<'a>) -> &'a [u8] {
        match entry.inline_key() {
            Some(key) => key,
            None => {
                let body = entry.body().expect("a key that is not inline lies in the body");
                if body.place == Place::Object {
                    return self.objects.get(body.raw).key.as_deref().expect("the object has the key");
                }
                split_keyed(self.body(body)).0
            }
        }
    }

    /// The bytes of the value, in whatever form.
    #[inline]
    pub fn value_bytes_of<'a>(&'a self, entry: EntryBytes<'a>) -> &'a [u8] {
        match entry.body() {
            None => entry.tail(),
            Some(body) if body.keyed => split_keyed(self.body(body)).1,
            Some(body) => self.body(body),
        }
    }

    /// Bytes of a value that is no object, in memory or not.
    pub fn value_len_of(&self, entry: EntryBytes<'_>) -> usize {
        entry.cold().map_or_else(|| self.value_bytes_of(entry).len(), ColdRef::value_bytes)
    }

    // ---- what is counted ----

    /// Returns the account of an entry of one of the tables.
    #[inline(always)]
    pub fn account(&self, entry: EntryBytes<'_>) -> Account {
        match inline_account(entry) {
            Some(account) => account.into(),
            None => self.account_outside(entry),
        }
    }

    #[inline(never)]
    pub fn account_outside(&self, entry: EntryBytes<'_>) -> Account {
        let (parts, body) = (entry.parts(), entry.body().expect("its value lies in a body"));
        let key_bytes = parts.key.map_or_else(|| self.key_of(entry).len(), <[u8]>::len);
        let mut account = Account::of_object(&parts, key_bytes, entry.0.len());
        if body.place == Place::Object {
            return account.with_object(&self.objects.get(body.raw).tallied);
        }
        if let Some(reference) = body.cold() {
            return account.with_cold(parts.form(), key_bytes, reference.value_bytes());
        }
        let head = body_head_bytes(body.keyed, key_bytes);
        let value_bytes = body.len as usize - head;
        account.value_bytes = value_bytes as u64;
        if body.place == Place::Blob {
            account.blob_bytes = BLOB_HEAD_BYTES as u32 + body.len;
            account.elsewhere[0] = 0;
        } else {
            account.elsewhere[1] = account.value_bytes;
        }
        let form = parts.form();
        account.class = Class::of_value(form, key_bytes, value_bytes, account.expiry_bytes > 0);
        account.items = items_of(form, &self.body(body)[head..]);
        account
    }

    // ---- access stamps, and values changed in place ----

    /// Refreshes an entry's access stamp. Returns false if its page has no column for it.
    #[inline]
    pub fn touch(&mut self, page: Handle, index: usize, now: UnixMs) -> bool {
        let view = self.heap.page(page);
        match self.access {
            AccessMode::Page => {
                let stamp = last_used::stamp(now);
                if view.stamp() != stamp {
                    page::set_stamp(self.heap.page_mut(page), stamp);
                }
            }
            AccessMode::Lru => {
                let Some(old) = view.access(index, AccessMode::Lru.width()) else { return false };
                let stamp = last_used::stamp(now);
                if old != stamp {
                    page::set_access(self.heap.page_mut(page), index, stamp);
                }
            }
            AccessMode::Lfu => {
                let Some(old) = view.access(index, AccessMode::Lfu.width()) else { return false };
                let counter = last_used::lfu_increment(old, self.lfu_log_factor, &mut self.prng);
                if counter != old {
                    page::set_access(self.heap.page_mut(page), index, counter);
                }
            }
        }
        true
    }

    /// Writes a stamp that is known from elsewhere, if the mode in force keeps such stamps.
    pub fn note_access(&mut self, page: Handle, index: usize, note: last_used::AccessNote, now: UnixMs) {
        let has_column = self.heap.page(page).access(index, self.access.width()).is_some();
        if let Some(stamp) = note.stamp(self.access, now).filter(|_| has_column) {
            page::set_access(self.heap.page_mut(page), index, stamp);
        }
    }

    /// The bytes of a string's value, to write. Not of an integer.
    pub fn value_mut(&mut self, page: Handle, spot: Spot) -> &mut [u8] {
        let view = self.heap.page(page);
        let bytes = view.entry(spot);
        let entry = EntryBytes(bytes);
        debug_assert_ne!(entry.form(), Form::Int);
        match entry.body() {
            None => {
                let (end, len) = (spot.offset + bytes.len(), entry.tail().len());
                &mut self.heap.page_mut(page)[end - len..end]
            }
            Some(body) => {
                let value = self.value_bytes_of(entry).len();
                let body_len = body.len as usize;
                &mut self.body_mut(body)[body_len - value..body_len]
            }
        }
    }

    /// Puts a value over an inline one of the same form and length, expiry and all else staying as they are:
    /// nothing moves, and nothing is to be counted. Returns false if it does not fit so, or if a snapshot has
    /// to see the old one first.
    #[inline]
    pub fn overwrite(
        &mut self,
        (page, spot): (Handle, Spot),
        value: NewValue<'_>,
        expiry: Expiry,
        now: UnixMs,
    ) -> bool {
        let view = self.heap.page(page);
        let (old_stamp, entry) = (view.stamp(), EntryBytes(view.entry(spot)));
        let stays = match expiry {
            Expiry::Clear => !entry.is_volatile(),
            Expiry::Keep => true,
            Expiry::At(_) => false,
        };
        let (end, old_len) = (spot.offset + entry.0.len(), entry.tail().len());
        if !stays
            || self.snapshot.is_active()
            || entry.place() != Place::Inline
            || old_len != value_bytes(value)
            || entry.form() != form_of(value)
        {
            return false;
        }
        let stamp = last_used::stamp(now);
        let bytes = self.heap.page_mut(page);
        let target = &mut bytes[end - old_len..end];
        match value {
            NewValue::Int(int) => target.copy_from_slice(&int.to_le_bytes()[..old_len]),
            NewValue::Bytes(new) | NewValue::Raw(new) => target.copy_from_slice(new),
            NewValue::Packed(packed) => target.copy_from_slice(packed.bytes),
        }
        if old_stamp != stamp {
            page::set_stamp(bytes, stamp);
        }
        true
    }

    /// Writes over bytes of a page that stay where they are, which counts as a use of the page.
    #[inline]
    pub fn write_in_place(&mut self, page: Handle, at: usize, new: &[u8], now: UnixMs) {
        let stamp = last_used::stamp(now);
        let bytes = self.heap.page_mut(page);
        bytes[at..at + new.len()].copy_from_slice(new);
        page::set_stamp(bytes, stamp);
    }

    // ---- objects ----

    /// Takes an object out of the table to change it.
    pub fn open_object(&mut self, number: u32) -> Box<Root> {
        let mut root = self.objects.take(number);
        let saving = self.snapshot_needs(&root);
        if saving && root.cut.is_none() {
            root.cut = Some(root.outline());
            self.snapshot.keeping.push(number);
        }
        root.body.structure_mut().set_saving(saving);
        root
    }

    /// Returns whether a snapshot has yet to emit an object that is about to change or to go.
    fn snapshot_needs(&self, root: &Root) -> bool {
        let state = &self.snapshot;
        state.is_active() && root.seen != state.version() && state.covers(|| slot_of_blob_head(root.home))
    }

    /// Lets an object drop about `nodes_max` nodes of what it kept for a snapshot that ended early. Returns
    /// false if there is none.
    pub fn forget_step(&mut self, nodes_max: usize) -> bool {
        if self.snapshot.is_active() {
            return false;
        }
        self.objects.doom_step(nodes_max);
        let Some(&number) = self.snapshot.keeping.last() else { return self.objects.has_kept() };
        let done = !self.objects.contains(number) || {
            let mut root = self.open_object(number);
            root.cut = None;
            let done = root.body.structure_mut().forget_step(self, nodes_max);
            self.objects.put(number, root);
            self.note_garbage(number);
            done
        };
        if done {
            self.snapshot.keeping.pop();
        }
        true
    }

    /// A copy of an object, which no entry names yet. `from` is the store that it lies in, if that is another
    /// than ours.
    pub fn copy_object(&mut self, from: Option<&Store>, root: &Root) -> Result<u32, Full> {
        let number = self.objects.reserve();
        let structure = root.body.structure();
        let copied = match from {
            None => structure.duplicate(self, number),
            Some(from) => structure.duplicate_from(from, self, number),
        };
        let body = match copied {
            Ok(body) => body,
            Err(full) => {
                self.objects.give_back(number);
                return Err(full);
            }
        };
        let seen = self.snapshot.version();
        self.objects.put(number, Root::new(body, seen));
        self.list_bound(number);
        Ok(number)
    }

    /// Lists a hash that has fields with a time under its bound, where the active cycle finds it.
    pub fn list_bound(&mut self, number: u32) {
        let root = self.objects.get_mut(number);
        let Object::Hash(fields) = &mut root.body else { return };
        let bound = if fields.record.volatile > 0 { fields.record.bound } else { NEVER };
        let old = std::mem::replace(&mut fields.listed, bound);
        if old == bound {
            return;
        }
        if old != NEVER {
            self.field_bounds.remove(&(old, number));
        }
        if bound != NEVER {
            self.field_bounds.insert((bound, number));
        }
    }

    /// An entry that named an object is gone.
    pub fn release_object(&mut self, number: u32) {
        if self.objects.get(number).references == 1
            && let Object::Hash(fields) = &mut self.objects.get_mut(number).body
            && fields.listed != NEVER
        {
            let listed = std::mem::replace(&mut fields.listed, NEVER);
            self.field_bounds.remove(&(listed, number));
        }
        // An object that the snapshot under way has yet to emit stays.
        let keeps = self.snapshot_needs(self.objects.get(number));
        if !self.objects.release(number, keeps) {
            return;
        }
        if self.counts_lazy && self.objects.get(number).free_effort() > LAZY_EFFORT_MIN {
            self.objects.get_mut(number).is_lazy = true;
            self.lazy.remove(1);
        }
        if keeps {
            return;
        }
        if self.objects.get(number).body.structure().parts() <= self.freed_at_once_max {
            while !self.free_next_pending(usize::MAX) {}
        } else {
            self.note_unfreed();
        }
    }

    /// Notes whether `free_step` has something to do for an object.
    #[inline]
    pub fn note_garbage(&mut self, number: u32) {
        if self.objects.note_garbage(number) {
            self.note_unfreed();
        }
    }

    // ---- objects that are gone ----

    /// Frees about `nodes_max` nodes of removed objects. Returns false when none is left that may go.
    pub fn free_pending(&mut self, nodes_max: usize) -> bool {
        if !self.snapshot.is_active() {
            self.objects.doom_step(nodes_max);
        }
        if self.objects.next_pending_free().is_none() {
            return false;
        }
        self.free_next_pending(nodes_max);
        steps::note(nodes_max as u64);
        true
    }

    /// Continues to free the object that was removed last; there is one. Returns true if it is gone.
    fn free_next_pending(&mut self, nodes_max: usize) -> bool {
        let number = self.objects.next_pending_free().expect("an object is pending free");
        let mut root = self.open_object(number);
        let structure = root.body.structure_mut();
        let done = structure.forget_step(self, nodes_max) && structure.free_step(self, nodes_max);
        let was_lazy = root.is_lazy;
        self.objects.put(number, root);
        if done {
            self.objects.bury();
            self.lazy.free(u64::from(was_lazy));
        }
        done
    }

    /// Returns whether a snapshot has yet to see a page.
    pub fn awaits_snapshot(&self, page: Handle) -> bool {
        self.snapshot.is_active() && self.heap.page(page).version() != self.snapshot.version()
    }

    /// Moves a node of an object.
    pub fn relocate_node(&mut self, handle: Handle) -> bool {
        let head = self.heap.bytes(handle, 8);
        let number = u32::from_le_bytes(head[..4].try_into().expect("four bytes"));
        let id = u32::from_le_bytes(head[4..].try_into().expect("four bytes"));
        let mut root = self.objects.take(number);
        let moved = root.body.structure_mut().relocate(self, id, handle);
        self.objects.put(number, root);
        moved
    }

    /// Moves a page of a hash or set.
    pub fn relocate_page_of(&mut self, number: u32, handle: Handle) -> bool {
        let mut root = self.objects.take(number);
        let moved = match &mut root.body {
            Object::Hash(fields) | Object::Set(fields) => fields.relocate_page(self, handle),
            _ => unreachable!("only hashes and sets have pages"),
        };
        self.objects.put(number, root);
        moved
    }
}

fn blob(body: BodyRef) -> Handle {
    Handle::from_raw(body.raw).expect("a blob's handle is one")
}
