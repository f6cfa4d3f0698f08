//! Strings that are changed in place (APPEND, SETRANGE, SETBIT): they become raw, and longer where they lie
//! if that can be.

use crate::access::partition::Partition;
use crate::layout::entry::{
    BodyRef, Draft, EntryBytes, INLINE_BYTES_MAX, Place, Plan, body_head_bytes, set_form,
};
use crate::layout::key::Key;
use crate::layout::kind::{Db, Expiry, Form, Full, NewValue};
use crate::layout::page;
use crate::tables::location::Location;
use crate::values::store::Store;
use crate::values::value::Value;
use isotherm_stdx::{UnixMs, write_i64};

impl Partition {
    /// The bytes of a string that is `len` long from now on, or as long as it was, and raw; what was there
    /// is kept, the rest is zero. [`Full`] also for what is no string.
    pub fn edit_at(
        &mut self,
        db: Db,
        location: Option<Location>,
        key: &Key<'_>,
        len: usize,
        now: UnixMs,
    ) -> Result<&mut [u8], Full> {
        let found = location.filter(|location| location.spot.is_some());
        let location = match found {
            Some(location) if self.grows_in_place(&location, len) => {
                self.grow_in_place(db, &location, len)?;
                location
            }
            _ => self.rewrite_longer(db, location, key, len, now).inspect_err(|_| {
                self.drop_table_if_empty(db);
            })?,
        };
        let place = location.page.zip(location.spot);
        let (page, spot) = place.or_else(|| self.find(db, key)).expect("it was just written");
        if let Some((table, store)) = self.table_and_store(db) {
            // The bytes are about to change: a snapshot needs them as they are.
            store.before_change(table.snapshot_db, page);
        }
        Ok(self.store.value_mut(page, spot))
    }

    /// A large text, which becomes raw where it lies, or a raw one of the same length.
    fn grows_in_place(&self, location: &Location, len: usize) -> bool {
        let (Some(page), Some(spot)) = (location.page, location.spot) else { return false };
        let entry = EntryBytes(self.store.heap.page(page).entry(spot));
        let value_bytes = self.store.value_bytes_of(entry).len();
        match (entry.form(), entry.place()) {
            (Form::Bytes | Form::Raw, Place::Large) => value_bytes <= len,
            (Form::Raw, _) => value_bytes == len,
            _ => false,
        }
    }

    fn grow_in_place(&mut self, db: Db, location: &Location, len: usize) -> Result<(), Full> {
        let (page, spot) = location.page.zip(location.spot).expect("it was found");
        let (table, store) = self.table_and_store(db).expect("it was found");
        store.before_change(table.snapshot_db, page);
        let view = store.heap.page(page);
        let entry = EntryBytes(view.entry(spot));
        let Some(body @ BodyRef { place: Place::Large, .. }) = entry.body() else { return Ok(()) };
        let key_bytes = store.key_of(entry).len();
        let body_len = body_head_bytes(body.keyed, key_bytes) + len;
        if body_len > crate::BODY_BYTES_MAX {
            return Err(Full);
        }
        let grown = BodyRef { len: body_len as u32, ..body };
        let mut bytes = view.entry(spot).to_vec();
        let tail = bytes.len() - 4;
        bytes[tail..].copy_from_slice(&grown.len.to_le_bytes());
        set_form(&mut bytes, Form::Raw);
        let old = store.account(entry);
        store.large.grow(body.raw, body_len)?;
        page::replace(store.heap.page_mut(page), spot, &bytes);
        let grown_page = store.heap.page(page);
        let entry = EntryBytes(grown_page.entry(spot));
        let (tag, new) = (grown_page.tag(spot.index), store.account(entry));
        table.account_change(store.key_of(entry), tag, Some(&old), Some(&new));
        let mut slot = location.slot;
        let before = slot.record;
        slot.record.change_outside(store.body_units(body), store.body_units(grown));
        table.store(&mut store.heap, &slot, &before);
        Ok(())
    }

    /// Stores the value again, `len` long and raw, with the expiry it had. The location is as after
    /// `Table::set`.
    fn rewrite_longer(
        &mut self,
        db: Db,
        location: Option<Location>,
        key: &Key<'_>,
        len: usize,
        now: UnixMs,
    ) -> Result<Location, Full> {
        let mut integer = [0; 20];
        let mut location = self.make_location(db, location, key)?;
        let (table, store) = self.table_and_store(db).expect("make_location has made it");
        let old_len = match location.page.zip(location.spot) {
            None => 0,
            Some((page, spot)) => {
                match Value::of(store, EntryBytes(store.heap.page(page).entry(spot)), now) {
                    Value::Int(int) => write_i64(int, &mut integer).len(),
                    Value::Bytes(bytes) => bytes.len(),
                    _ => return Err(Full),
                }
            }
        };
        let len = len.max(old_len);
        if table.stretch_inline(store, &mut location, key, len, now)? {
            return Ok(location);
        }
        if let Some(draft) = stretched(store, &location, len) {
            table.put(store, &mut location, key, &draft, now)?;
            return Ok(location);
        }
        let old: &[u8] = match location.page.zip(location.spot) {
            None => &[],
            Some((page, spot)) => {
                match Value::of(store, EntryBytes(store.heap.page(page).entry(spot)), now) {
                    Value::Int(int) => write_i64(int, &mut integer),
                    Value::Bytes(bytes) => bytes,
                    _ => return Err(Full),
                }
            }
        };
        if len <= INLINE_BYTES_MAX {
            let mut value = [0; INLINE_BYTES_MAX];
            value[..old.len()].copy_from_slice(old);
            table.set(store, &mut location, key, NewValue::Raw(&value[..len]), Expiry::Keep, now)?;
            return Ok(location);
        }
        let mut old = old.to_vec();
        let plan = Plan::new(key.bytes.len(), len, false);
        if plan.place != Place::Large {
            // Below 4 KB: a copy on the side is the simple way.
            old.resize(len, 0);
            table.set(store, &mut location, key, NewValue::Raw(&old), Expiry::Keep, now)?;
            return Ok(location);
        }
        let expiry = location.expiry(store);
        let body = store.empty_body(plan, key, len)?;
        let head = body_head_bytes(body.keyed, key.bytes.len());
        store.body_mut(body)[head..head + old.len()].copy_from_slice(&old);
        let draft = Draft::outside(key.bytes, Form::Raw, body, expiry);
        table.put(store, &mut location, key, &draft, now)?;
        Ok(location)
    }
}

/// The entry at a location with zeros after its value, raw: where a text lies in the page and may stay there.
fn stretched(store: &Store, location: &Location, len: usize) -> Option<Draft> {
    let entry = EntryBytes(store.heap.page(location.page?).entry(location.spot?));
    let stays = entry.place() == Place::Inline && entry.form() != Form::Int;
    let plan = Plan::new(entry.inline_key()?.len(), len, location.is_tight(store));
    (stays && plan.place == Place::Inline).then(|| Draft::stretched(entry, len))
}
