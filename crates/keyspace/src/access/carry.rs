//! Values that COPY and RENAME carry from one partition to another; large collections go node by node.

use crate::access::lock::Held;
use crate::access::partition::Partition;
use crate::layout::entry::{BodyRef, Draft, EntryBytes, Place, Plan, read_int};
use crate::layout::key::{Key, blob_head};
use crate::layout::kind::{Db, Expiry, Form, Full, NewValue, PackedValue};
use crate::layout::large::Shared;
use crate::tables::location::Location;
use crate::values::image::{is_image, object_of};
use crate::values::object::Root;
use isotherm_stdx::UnixMs;

/// Value and expiry that COPY and RENAME carry from one partition to another.
pub(crate) struct Carried {
    value: CarriedValue,
    expiry: Option<UnixMs>,
}

enum CarriedValue {
    Int(i64),
    Bytes(Vec<u8>, Form),
    /// A large body without its key: not copied, but shared.
    Body(Shared, Form),
}

impl Partition {
    pub fn carry(&self, location: &Location) -> Carried {
        let (page, spot) = location.page.zip(location.spot).expect("it was found");
        let entry = EntryBytes(self.store.heap.page(page).entry(spot));
        if let Some(body @ BodyRef { place: Place::Large, keyed: false, .. }) = entry.body() {
            let value = CarriedValue::Body(self.store.large.share(body.raw), entry.form());
            return Carried { value, expiry: entry.expiry() };
        }
        let bytes = self.store.value_bytes_of(entry);
        let value = match entry.form() {
            Form::Int => CarriedValue::Int(read_int(bytes)),
            form => CarriedValue::Bytes(bytes.to_vec(), form),
        };
        Carried { value, expiry: entry.expiry() }
    }

    pub fn put_carried(&mut self, db: Db, key: &Key<'_>, carried: Carried, now: UnixMs) -> Result<(), Full> {
        let value = match &carried.value {
            CarriedValue::Body(body, form) => {
                return self.put_body(db, key, body, *form, carried.expiry, now);
            }
            CarriedValue::Int(int) => NewValue::Int(*int),
            CarriedValue::Bytes(bytes, form) if is_image(*form, bytes.len()) => {
                return self.put_image(db, key, *form, bytes, carried.expiry, now);
            }
            CarriedValue::Bytes(bytes, form) => as_form(*form, bytes),
        };
        let expiry = carried.expiry.map_or(Expiry::Clear, Expiry::At);
        self.set_at(db, self.locate(db, key), key, value, expiry, now)
    }

    /// Stores an object again that was an image, in the place of what is there.
    pub fn put_image(
        &mut self,
        db: Db,
        key: &Key<'_>,
        form: Form,
        bytes: &[u8],
        expiry: Option<UnixMs>,
        now: UnixMs,
    ) -> Result<(), Full> {
        let number = self.store.objects.reserve();
        let body = match object_of(&mut self.store, number, form, bytes) {
            Ok(body) => body,
            Err(full) => {
                self.store.objects.give_back(number);
                return Err(full);
            }
        };
        let (form, mut root) = (body.form(), Root::new(body, self.store.snapshot.version()));
        root.home = blob_head(key);
        self.store.objects.put(number, root);
        self.store.list_bound(number);
        let location = self.locate(db, key);
        self.put_object_with(db, location, key, form, number, expiry, now)
    }

    fn put_body(
        &mut self,
        db: Db,
        key: &Key<'_>,
        body: &Shared,
        form: Form,
        expiry: Option<UnixMs>,
        now: UnixMs,
    ) -> Result<(), Full> {
        if Plan::new(key.bytes.len(), body.len(), false).keyed {
            let value = as_form(form, body);
            let expiry = expiry.map_or(Expiry::Clear, Expiry::At);
            return self.set_at(db, self.locate(db, key), key, value, expiry, now);
        }
        self.make_table(db)?;
        let mut location = self.locate(db, key).expect("the table is there");
        let raw = self.store.large.adopt(Shared::clone(body));
        let body = BodyRef { place: Place::Large, raw, len: body.len() as u32, keyed: false, timed: false };
        let draft = Draft::outside(key.bytes, form, body, expiry);
        let (table, store) = self.table_and_store(db).expect("the table is there");
        let done = table.put(store, &mut location, key, &draft, now);
        self.drop_table_if_empty(db);
        done
    }
}

/// Copies a large collection to another key, in the place of what is there.
pub(super) fn copy_object(
    held: &mut Held<'_>,
    from: (&Key<'_>, &Location),
    to: (Db, &Key<'_>),
    expiry: Option<UnixMs>,
    now: UnixMs,
) -> Result<(), Full> {
    let (slot, source) = (from.0.slot, from.1);
    let partition = held.partition(slot);
    let number = source.object(&partition.store).expect("the caller has seen it");
    let root = partition.store.objects.take(number);
    let (form, home) = (root.body.form(), partition.number);
    let copied = if held.partition(to.1.slot).number == home {
        held.partition(to.1.slot).store.copy_object(None, &root)
    } else {
        let (source, target) = held.two(slot, to.1.slot);
        target.store.copy_object(Some(&source.store), &root)
    };
    held.partition(slot).store.objects.put(number, root);
    let target = held.partition(to.1.slot);
    target.put_object_with(to.0, target.locate(to.0, to.1), to.1, form, copied?, expiry, now)
}

/// Bytes to store again as they were.
pub(super) fn as_form(form: Form, bytes: &[u8]) -> NewValue<'_> {
    match form {
        Form::Raw => NewValue::Raw(bytes),
        Form::Bytes => NewValue::Bytes(bytes),
        form => {
            debug_assert!(!is_image(form, bytes.len()), "an object is put otherwise");
            NewValue::Packed(PackedValue { form, bytes })
        }
    }
}
