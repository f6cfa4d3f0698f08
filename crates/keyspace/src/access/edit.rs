//! Changing a collection: out of its entry, through the handler's closure, back into an entry.

use crate::access::partition::Partition;
use crate::accounting::tally::{Account, Tallied};
use crate::layout::directory;
use crate::layout::entry::{BodyRef, Draft, EntryBytes, Place, Plan};
use crate::layout::key::{Key, blob_head, slot_of_blob_head, tag_of};
use crate::layout::kind::{Db, Expiry, Form, Full, NewValue, PackedValue, stride_of};
use crate::layout::packed::PackedBuf;
use crate::layout::record::page_index;
use crate::tables::location::Location;
use crate::values::collection::{EditBody, EditError, Edited, Editing, Limits};
use crate::values::list::pack_again;
use crate::values::object::Root;
use crate::values::store::Store;
use isotherm_stdx::{Steps, UnixMs};
use std::sync::atomic::Ordering::Relaxed;

/// Result of an edit's closure, and what the closure left of the collection.
struct Left<R> {
    result: R,
    form: Form,
    body: EditBody,
    changed: bool,
    /// The object that it was before.
    object: Option<u32>,
    has_shrunk: bool,
}

/// Form of the collection that is edited, and the limits and the time that hold for the edit.
#[derive(Clone, Copy)]
pub(crate) struct EditTerms<'a> {
    pub form: Form,
    pub limits: &'a Limits,
    pub now: UnixMs,
}

impl Partition {
    /// Runs `work` on the collection at `location` (just looked up, of the database's table if it has one),
    /// or on an empty one of `form`.
    pub fn edit<R>(
        &mut self,
        db: Db,
        location: Option<Location>,
        key: &Key<'_>,
        EditTerms { form, limits, now }: EditTerms<'_>,
        work: impl FnOnce(&mut Editing<'_>) -> R,
    ) -> Result<Edited<R>, EditError> {
        let found = location.filter(|location| location.spot.is_some());
        let mut left = run_edit(&mut self.store, found, key, form, limits, now, work)?;
        if left.has_shrunk && self.pack_again(db, location, key, &mut left, now) {
            return Ok(Edited { result: left.result, changed: true, created: false, emptied: false });
        }
        let existed = found.is_some();
        let mut edited =
            Edited { result: left.result, changed: left.changed, created: false, emptied: false };
        match left.body {
            EditBody::Packed(buf) => {
                let empty = buf.len() == 0;
                let stored = if !left.changed || (empty && !existed && left.form != Form::Stream) {
                    Ok(())
                } else if empty && left.form != Form::Stream {
                    self.remove_at(db, &found.expect("it existed"), now);
                    edited.emptied = true;
                    Ok(())
                } else {
                    edited.created = !existed;
                    self.put_packed(db, location, key, left.form, &buf, now)
                };
                self.store.scratch = buf;
                stored?;
            }
            EditBody::Object(number, mut root) => {
                let is_old = left.object == Some(number);
                let empty = root.body.structure().len() == 0 && left.form != Form::Stream;
                if is_old && !empty {
                    self.recount_root(db, &found.expect("it existed"), &mut root);
                }
                let (is_hash, has_garbage) = (left.form == Form::Hash, root.body.structure().has_garbage());
                self.store.objects.put(number, root);
                if is_hash {
                    self.store.list_bound(number);
                }
                if has_garbage {
                    self.store.note_garbage(number);
                }
                match (is_old, empty) {
                    (true, true) => {
                        self.remove_at(db, &found.expect("it existed"), now);
                        edited.emptied = true;
                    }
                    (true, false) => {}
                    (false, true) => {
                        self.store.objects.get_mut(number).references += 1;
                        self.store.release_object(number);
                        if let Some(location) = found {
                            self.remove_at(db, &location, now);
                            edited.emptied = true;
                        }
                    }
                    (false, false) => {
                        edited.created = !existed;
                        self.put_object(db, location, key, left.form, number, now)?;
                    }
                }
            }
        }
        Ok(edited)
    }

    /// Puts the elements of an object that has become small into the entry that names it; the object goes by
    /// way of it. Returns false if the entry is still to be stored: there is none yet, or no memory, and the
    /// object stays.
    #[cold]
    fn pack_again<R>(
        &mut self,
        db: Db,
        location: Option<Location>,
        key: &Key<'_>,
        left: &mut Left<R>,
        now: UnixMs,
    ) -> bool {
        let mut buf = std::mem::take(&mut self.store.scratch);
        let old = std::mem::replace(&mut left.body, EditBody::Packed(PackedBuf::default()));
        let EditBody::Object(number, mut root) = old else { unreachable!("what has shrunk is an object") };
        if !pack_again(&root.body, &self.store, &mut buf) {
            (self.store.scratch, left.body) = (buf, EditBody::Object(number, root));
            return false;
        }
        if left.object != Some(number) {
            // Made by this very change: no entry names it yet.
            while !root.body.structure_mut().free_step(&mut self.store, usize::MAX) {}
            self.store.objects.give_back(number);
            left.body = EditBody::Packed(buf);
            return false;
        }
        self.store.objects.put(number, root);
        let is_stored = self.put_packed(db, location, key, left.form, &buf, now).is_ok();
        self.store.scratch = buf;
        if !is_stored {
            left.body = EditBody::Object(number, self.store.objects.take(number));
        }
        is_stored
    }

    fn put_packed(
        &mut self,
        db: Db,
        location: Option<Location>,
        key: &Key<'_>,
        form: Form,
        buf: &PackedBuf,
        now: UnixMs,
    ) -> Result<(), Full> {
        let mut bytes = std::mem::take(&mut self.store.scratch_bytes);
        if form == Form::IntSet {
            crate::layout::packed_ints::encode_ints(buf, &mut bytes);
        } else {
            buf.encode(&mut bytes);
        }
        let value = PackedValue { form, bytes: &bytes };
        let done = match (location, self.table_and_store(db)) {
            (Some(mut location), Some((table, store))) => {
                table.set_inline(store, &mut location, key, value, now)
            }
            _ => Ok(false),
        };
        let done = match done {
            Ok(false) => self.set_at(db, location, key, NewValue::Packed(value), Expiry::Keep, now),
            done => done.map(|_| ()),
        };
        self.store.scratch_bytes = bytes;
        done
    }

    /// Stores an entry that names an object, in the place of what is there; the expiry stays. If there is no
    /// memory the object is pending free.
    pub fn put_object(
        &mut self,
        db: Db,
        location: Option<Location>,
        key: &Key<'_>,
        form: Form,
        number: u32,
        now: UnixMs,
    ) -> Result<(), Full> {
        let expiry = location.as_ref().and_then(|location| location.expiry(&self.store));
        self.put_object_with(db, location, key, form, number, expiry, now)
    }

    #[allow(clippy::too_many_arguments)]
    pub fn put_object_with(
        &mut self,
        db: Db,
        location: Option<Location>,
        key: &Key<'_>,
        form: Form,
        number: u32,
        expiry: Option<UnixMs>,
        now: UnixMs,
    ) -> Result<(), Full> {
        let mut location = self.make_location(db, location, key).inspect_err(|_| {
            self.store.objects.get_mut(number).references += 1;
            self.store.release_object(number);
        })?;
        let plan = Plan::object(key.bytes.len(), location.is_tight(&self.store));
        if self.store.objects.get(number).references == 0 {
            self.store.objects.set_key(number, plan.keyed.then_some(key.bytes));
        }
        let root = self.store.objects.get_mut(number);
        root.references += 1;
        root.home = blob_head(key);
        if root.references == 1 {
            root.tallied = root.tally();
            root.timed = root.has_timed_fields();
        }
        let body = BodyRef { place: Place::Object, raw: number, len: 0, keyed: plan.keyed, timed: false };
        let draft = Draft::outside(key.bytes, form, body, expiry);
        let (table, store) = self.table_and_store(db).expect("the table is there");
        // An error frees the draft's body, which dooms the object.
        let done = table.put(store, &mut location, key, &draft, now);
        if done.is_err() {
            self.drop_table_if_empty(db);
        }
        done
    }

    /// Stores the object under another name of this partition, in the place of what is there. Returns false
    /// if that cannot be done without a copy. The caller removes the source.
    pub fn share_object(&mut self, source: &Location, to: (Db, &Key<'_>), now: UnixMs) -> Result<bool, Full> {
        let Some(number) = source.object(&self.store) else { return Ok(false) };
        let target = self.locate(to.0, to.1);
        let tight = target.as_ref().is_some_and(|target| target.is_tight(&self.store));
        let root = self.store.objects.get(number);
        // COMPAT(keys): RENAME and COPY of a large value copy it if the name of a key is longer than 158
        // bytes; other large values are moved or shared. Why: such a name lies beside its value.
        if root.key.is_some() || Plan::object(to.1.bytes.len(), tight).keyed {
            return Ok(false);
        }
        // A snapshot of some slots decides by `home` whether it has to save an object: the answer must not
        // change.
        let snapshot = &self.store.snapshot;
        let is_covered = |slot| snapshot.covers(|| slot);
        if snapshot.is_active() && is_covered(slot_of_blob_head(root.home)) != is_covered(to.1.slot) {
            return Ok(false);
        }
        let (form, expiry, home) = (root.body.form(), source.entry(&self.store).expiry(), root.home);
        let done = self.put_object_with(to.0, target, to.1, form, number, expiry, now);
        if done.is_err() {
            self.store.objects.get_mut(number).home = home;
        }
        done.map(|()| true)
    }

    /// The entry that names an object, and its key.
    pub fn find_object(&self, number: u32) -> Option<(Db, Location, Vec<u8>)> {
        let home = self.store.objects.get(number).home;
        let place = self.geometry.place_of(slot_of_blob_head(home));
        self.databases().find_map(|db| {
            let slot = self.table(db)?.slot(&self.store.heap, place);
            if slot.record.pages == 0 {
                return None;
            }
            let page_index = page_index(home, slot.record.pages);
            let page = directory::get(&self.store.heap, &slot.record, page_index).0?;
            let view = self.store.heap.page(page);
            let spot = view.find(tag_of(home), |entry| {
                let body = EntryBytes(entry).body();
                body.is_some_and(|body| body.place == Place::Object && body.raw == number)
            })?;
            let key = self.store.key_of(EntryBytes(view.entry(spot))).to_vec();
            Some((db, Location { slot, page_index, page: Some(page), spot: Some(spot) }, key))
        })
    }

    /// Frees up to about `nodes_max` nodes of removed collections, entries of flushed databases, or nodes of
    /// what was cut off others. Returns false when nothing is left that may go.
    pub fn free_step(&mut self, nodes_max: usize) -> bool {
        if self.store.forget_step(nodes_max)
            || self.store.free_pending(nodes_max)
            || self.free_flushed(&mut Steps::new(nodes_max as u64))
            || self.sweep(nodes_max)
        {
            return true;
        }
        self.store.unfreed.store(false, Relaxed);
        false
    }

    /// Frees about `nodes_max` nodes of what was cut off a collection. Returns false if there is none.
    fn sweep(&mut self, nodes_max: usize) -> bool {
        let Some(number) = self.store.objects.take_garbage() else { return false };
        let mut root = self.store.open_object(number);
        root.body.structure_mut().sweep_step(&mut self.store, nodes_max);
        self.store.objects.put(number, root);
        self.store.note_garbage(number);
        if self.store.objects.get(number).references > 0
            && let Some((db, location, _)) = self.find_object(number)
        {
            self.recount(db, &location, number);
        }
        true
    }

    /// Updates what the slot and the table of an object count for it, after a change of an object that stays
    /// where it is.
    pub fn recount(&mut self, db: Db, location: &Location, number: u32) {
        let mut root = self.store.objects.take(number);
        self.recount_root(db, location, &mut root);
        self.store.objects.put(number, root);
    }

    /// Counts a changed object that stays where it is, while its root is taken out.
    fn recount_root(&mut self, db: Db, location: &Location, root: &mut Root) {
        let (old, new) = (root.tallied, root.tally());
        let (was_timed, timed) = (root.timed, root.has_timed_fields());
        let is_alike = old.is_alike(&new) && was_timed == timed;
        (root.tallied, root.timed) = (new, timed);
        match is_alike {
            true if old.units == new.units => {}
            true => self.count_units(db, location, root, old.units.get()),
            false => self.count_root(db, location, root, (&old, was_timed)),
        }
    }

    /// The usual change of one: it takes more or less memory, and that is all.
    #[inline(always)]
    fn count_units(&mut self, db: Db, location: &Location, root: &Root, old_units: u64) {
        let new_units = root.tallied.units.get();
        let (table, store) = self.table_and_store(db).expect("it was found");
        let key = || {
            let entry = location.entry(store);
            (entry, entry.inline_key().or(root.key.as_deref()).expect("the object has the key"))
        };
        table.count_units(root.tallied.class, tag_of(root.home), [old_units, new_units], key);
        let mut slot = location.slot;
        let before = slot.record;
        slot.record.change_outside(old_units, new_units);
        table.store(&mut store.heap, &slot, &before);
    }

    /// Counts an object whose account has changed in more than its units.
    #[inline(never)]
    fn count_root(&mut self, db: Db, location: &Location, root: &Root, (old, was_timed): (&Tallied, bool)) {
        let (new, timed) = (&root.tallied, root.timed);
        let (table, store) = self.table_and_store(db).expect("it was found");
        let (page, spot) = location.page.zip(location.spot).expect("it was found");
        let view = store.heap.page(page);
        let entry = EntryBytes(view.entry(spot));
        let key = entry.inline_key().or(root.key.as_deref()).expect("the object has the key");
        let account = Account::of_object(&entry.parts(), key.len(), entry.0.len());
        let (before, after) = (account.with_object(old), account.with_object(new));
        table.account_change(key, view.tag(spot.index), Some(&before), Some(&after));
        table.timed_hashes = table.timed_hashes - u64::from(was_timed) + u64::from(timed);
        let mut slot = location.slot;
        let before = slot.record;
        slot.record.change_outside(old.units.get(), new.units.get());
        table.store(&mut store.heap, &slot, &before);
    }
}

fn run_edit<R>(
    store: &mut Store,
    found: Option<Location>,
    key: &Key<'_>,
    form: Form,
    limits: &Limits,
    now: UnixMs,
    work: impl FnOnce(&mut Editing<'_>) -> R,
) -> Result<Left<R>, EditError> {
    let kind = form.kind();
    let (form, object) = match &found {
        None => (form, None),
        Some(location) => {
            let parts = location.entry(store).parts();
            (parts.form(), parts.object())
        }
    };
    if form.kind() != kind {
        return Err(EditError::WrongType);
    }
    let body = match (object, found) {
        (Some(number), _) => EditBody::Object(number, store.open_object(number)),
        (None, None) => {
            let mut buf = std::mem::take(&mut store.scratch);
            buf.clear(stride_of(form));
            EditBody::Packed(buf)
        }
        (None, Some(location)) => {
            let mut buf = std::mem::take(&mut store.scratch);
            let entry = location.entry(store);
            let parts = entry.parts();
            let bytes = if parts.is_inline() { parts.tail } else { store.value_bytes_of(entry) };
            if form == Form::IntSet {
                crate::layout::packed_ints::load_ints(bytes, &mut buf);
            } else {
                buf.load(bytes, stride_of(form));
            }
            EditBody::Packed(buf)
        }
    };
    let home = blob_head(key);
    let absent = found.is_none();
    let mut editing = Editing {
        store,
        limits,
        now,
        fields_from: now,
        form,
        body,
        changed: false,
        absent,
        home,
        has_shrunk: false,
    };
    let result = work(&mut editing);
    let Editing { form, body, changed, has_shrunk, .. } = editing;
    Ok(Left { result, form, body, changed, object, has_shrunk })
}
