//! Changing a collection: out of its entry, through the handler's closure, back into an entry.

use crate::collection::{EditBody, EditError, Edited, Editing, Limits};
use crate::entry::{BodyRef, Draft, EntryBytes, Form, Place, Plan};
use crate::key::Key;
use crate::object::Root;
use crate::partition::Partition;
use crate::store::Store;
use crate::table::{Location, blob_head};
use crate::value::{Db, Expiry, Full, NewValue, PackedValue, Type};
use isotherm_arena::Handle;
use isotherm_stdx::UnixMs;

/// Columns of a packed collection.
pub(crate) fn stride_of(form: Form) -> usize {
    match form {
        Form::Hash | Form::Zset => 2,
        _ => 1,
    }
}

/// What the closure left.
struct Left<R> {
    result: R,
    form: Form,
    body: EditBody,
    changed: bool,
}

impl Partition {
    /// Runs `work` on the collection at `location` (just looked up, of the database's table if it has one), or on an
    /// empty one of `form`.
    pub fn edit<R>(
        &mut self,
        db: Db,
        location: Option<Location>,
        key: &Key<'_>,
        form: Form,
        limits: &Limits,
        now: UnixMs,
        work: impl FnOnce(&mut Editing<'_>) -> R,
    ) -> Result<Edited<R>, EditError> {
        let found = location.filter(|location| location.spot.is_some());
        if found.is_some_and(|location| self.store.kind_at(&location) != form.kind()) {
            return Err(EditError::WrongType);
        }
        let left = self.store.run_edit(found, key, form, limits, now, work);
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
            EditBody::Object(number, root) => {
                let is_old = found.is_some_and(|location| self.store.object_at(&location) == Some(number));
                let empty = root.body.structure().len() == 0 && left.form != Form::Stream;
                self.store.objects.put(number, root);
                match (is_old, empty) {
                    (true, true) => {
                        self.remove_at(db, &found.expect("it existed"), now);
                        edited.emptied = true;
                    }
                    (true, false) => self.recount(db, &found.expect("it existed"), number),
                    (false, true) => {
                        self.store.objects.get_mut(number).references += 1;
                        self.store.objects.release(number);
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

    fn put_packed(
        &mut self,
        db: Db,
        location: Option<Location>,
        key: &Key<'_>,
        form: Form,
        buf: &crate::packed::PackedBuf,
        now: UnixMs,
    ) -> Result<(), Full> {
        let mut bytes = std::mem::take(&mut self.store.scratch_bytes);
        if form == Form::IntSet {
            crate::set::encode_ints(buf, &mut bytes);
        } else {
            buf.encode(&mut bytes);
        }
        let value = NewValue::Packed(PackedValue { form, bytes: &bytes });
        let done = self.set_at(db, location, key, value, Expiry::Keep, now);
        self.store.scratch_bytes = bytes;
        done
    }

    /// Stores an entry that names an object, in the place of what is there; the expiry stays. If there is no memory the
    /// object is doomed.
    pub fn put_object(
        &mut self,
        db: Db,
        location: Option<Location>,
        key: &Key<'_>,
        form: Form,
        number: u32,
        now: UnixMs,
    ) -> Result<(), Full> {
        let expiry = location.as_ref().and_then(|location| self.store.old_entry(location)?.expiry);
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
        let mut location = self.location_in_table(db, location, key).inspect_err(|_| {
            self.store.objects.get_mut(number).references += 1;
            self.store.objects.release(number);
        })?;
        let plan = Plan::object(key.bytes.len(), self.store.is_tight(&location));
        let root = self.store.objects.get_mut(number);
        root.references += 1;
        root.home = blob_head(key);
        root.key = plan.keyed.then(|| key.bytes.into());
        root.units = units_of(root);
        let body = BodyRef { place: Place::Object, raw: number, len: 0, keyed: plan.keyed };
        let draft = Draft::outside(key.bytes, form, body, expiry);
        let (table, store) = self.table_and_store(db).expect("the table is there");
        // An error frees the draft's body, which dooms the object.
        let done = table.put(store, &mut location, key, &draft, now);
        if done.is_err() {
            self.drop_table_if_empty(db);
        }
        done
    }

    /// After a change of an object that stays where it is: what its slot counts for it.
    fn recount(&mut self, db: Db, location: &Location, number: u32) {
        let root = self.store.objects.get_mut(number);
        let (old, new) = (root.units, units_of(root));
        if old == new {
            return;
        }
        root.units = new;
        let (table, store) = self.table_and_store(db).expect("it was found");
        let mut slot = location.slot;
        let before = slot.record;
        slot.record.outside = slot.record.outside - old + new;
        table.store(&mut store.heap, &slot, &before);
    }
}

fn units_of(root: &Root) -> u32 {
    root.memory_bytes().div_ceil(16).min(u64::from(u32::MAX / 2)) as u32
}

impl Store {
    #[inline]
    fn entry_at(&self, location: &Location) -> EntryBytes<'_> {
        let (page, spot) = location.page.zip(location.spot).expect("it was found");
        EntryBytes(self.heap.page(page).entry(spot))
    }

    pub fn kind_at(&self, location: &Location) -> Type {
        self.entry_at(location).form().kind()
    }

    /// The number of the object at a location, if it is one.
    pub fn object_at(&self, location: &Location) -> Option<u32> {
        let body = self.entry_at(location).body()?;
        (body.place == Place::Object).then_some(body.raw)
    }

    fn run_edit<R>(
        &mut self,
        found: Option<Location>,
        key: &Key<'_>,
        form: Form,
        limits: &Limits,
        now: UnixMs,
        work: impl FnOnce(&mut Editing<'_>) -> R,
    ) -> Left<R> {
        let mut buf = std::mem::take(&mut self.scratch);
        let mut form = form;
        let body = match found {
            None => {
                buf.clear(stride_of(form));
                EditBody::Packed(buf)
            }
            Some(location) => match self.object_at(&location) {
                Some(number) => {
                    self.scratch = buf;
                    form = self.entry_at(&location).form();
                    EditBody::Object(number, self.objects.take(number))
                }
                None => {
                    let entry = self.entry_at(&location);
                    form = entry.form();
                    let bytes = self.value_bytes_of(entry);
                    if form == Form::IntSet {
                        crate::set::load_ints(bytes, &mut buf);
                    } else {
                        buf.load(bytes, stride_of(form));
                    }
                    EditBody::Packed(buf)
                }
            },
        };
        let home = blob_head(key);
        let absent = found.is_none();
        let mut editing = Editing { store: self, limits, now, form, body, changed: false, absent, home };
        let result = work(&mut editing);
        let Editing { form, body, changed, .. } = editing;
        Left { result, form, body, changed }
    }

    // ---- objects that are gone ----

    /// Frees about `nodes_max` nodes of removed objects. False when none is left that may go.
    pub fn free_doomed(&mut self, nodes_max: usize) -> bool {
        let saved = self.snapshot.is_active().then_some(self.snapshot.version());
        let Some(at) = self
            .objects
            .doomed()
            .iter()
            .position(|&number| saved.is_none_or(|epoch| self.objects.get(number).seen == epoch))
        else {
            return false;
        };
        let number = self.objects.doomed()[at];
        let mut root = self.objects.take(number);
        let done = root.body.structure_mut().free_step(self, nodes_max);
        self.objects.put(number, root);
        if done {
            self.objects.bury(at);
        }
        true
    }

    /// Moves a node of an object.
    pub fn relocate_node(&mut self, handle: Handle) -> bool {
        let head = self.heap.bytes(handle, 8);
        let number = u32::from_le_bytes(head[..4].try_into().expect("four bytes"));
        let id = u32::from_le_bytes(head[4..].try_into().expect("four bytes"));
        self.relocate_of(number, id, handle)
    }

    pub fn relocate_of(&mut self, number: u32, id: u32, handle: Handle) -> bool {
        let mut root = self.objects.take(number);
        let moved = root.body.structure_mut().relocate(self, id, handle);
        self.objects.put(number, root);
        moved
    }
}
