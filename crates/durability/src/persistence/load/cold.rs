//! Keys of a base that refers to the swap log: they are stored as they are, without a look at their values,
//! or stay where they are as bundles.
//!
//! The records that are referred to were looked for before the first key (`tier::files`): which log it is,
//! that its segments are there, and how long they are. Here each reference has to lie within them; that its
//! record is the one of this key is proven when it is read.

use isotherm_codec::LoadError;
use isotherm_keyspace::{
    AccessNote, BundleName, ColdRef, ColdValue, Conditions, Db, Expiring, ExpiryMode, NoEffects, NotPut,
    Slot, StoredBundle, Txn, UnixMs, Want,
};
use isotherm_persist::rdb::file::{Bundle, Key};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::{Load, LoadFailure, PIECES_PER_HOLD};
use isotherm_node::tier::Tier;

/// Returns the slot of this number; `None` if there is no such slot.
fn slot_of(number: u16) -> Option<Slot> {
    (usize::from(number) < Slot::COUNT).then(|| Slot::new(number))
}

impl Load<'_> {
    pub(super) fn take_cold(
        &mut self,
        read: &Key<'_>,
        (form_number, reference, due_ms): (u8, u64, Option<i64>),
    ) -> Result<(), LoadFailure> {
        let db = Db(u16::try_from(read.db).expect("the database was checked"));
        let tier = self.tier()?;
        let durable = self.durable.get_or_insert_with(|| tier.files.durable());
        let value = ColdValue::of_file(form_number, reference, due_ms.map(UnixMs))
            .filter(|value| durable.has(value.reference, read.name.len()))
            .ok_or_else(|| self.texts.failure_of_reference(db, read.name))?;
        let key = self.store.keyspace.key(read.name);
        self.held.acquire(Want::One(self.store.keyspace.partition_of(key.slot)));
        let expiry = read.expiry_ms.map(UnixMs);
        tier.add(value.reference);
        let put = self.held.put_cold(db, &key, value, expiry, self.now);
        put.map_err(|why| match why {
            NotPut::Full => self.texts.failure_to_store(db, read.name, LoadError::Full),
            NotPut::Repeated => self.texts.failure_to_store(db, read.name, LoadError::RepeatedKey),
            NotPut::Unsuited => self.texts.failure_of_reference(db, read.name),
        })?;
        let note = match (read.frequency, read.idle_seconds) {
            (Some(frequency), _) => Some(AccessNote::Frequency(frequency)),
            (None, seconds) => seconds.map(AccessNote::IdleSeconds),
        };
        if let Some(note) = note {
            let conditions = Conditions { now: self.now, expiry_mode: ExpiryMode::Keep, no_touch: true };
            let mut effects = NoEffects;
            Txn::new(self.held, conditions, &mut effects).note_access(db, &key, note);
        }
        self.counts.loaded += 1;
        self.let_others_in();
        self.delay();
        Ok(())
    }

    /// Keys whose record the log has: they stay there.
    pub(super) fn take_bundle(&mut self, read: &Bundle<'_>) -> Result<(), LoadFailure> {
        let db = Db(u16::try_from(read.db).expect("the database was checked"));
        let tier = self.tier()?;
        if self.key_secret != Some(self.store.keyspace.config().hash_secret) {
            return Err(LoadFailure(vec![format!(
                "{} has keys in a swap-dir that are hashed otherwise than those of this process: it is loaded at a start only",
                self.portions.name()
            )]));
        }
        let durable = self.durable.get_or_insert_with(|| tier.files.durable());
        let failure = |load: &Self| load.texts.failure_of_bundle(db);
        let place = BundleName::of_bytes(&read.name).zip(slot_of(read.slot));
        let reference = ColdRef::new(read.reference);
        // A bundle with keys that expire has a bound.
        let place = place.filter(|_| read.volatile == 0 || read.bound_ms.is_some());
        let place = place.filter(|(name, _)| durable.has(reference, name.as_bytes().len()));
        let Some((name, slot)) = place else { return Err(failure(self)) };
        self.held.acquire(Want::One(self.store.keyspace.partition_of(slot)));
        tier.add(reference);
        let bound = read.bound_ms.map(UnixMs).filter(|_| read.volatile > 0);
        let expiring = bound.map(|bound| Expiring { keys: read.volatile, bound });
        let stored = StoredBundle { name, reference, prints: read.prints, expiring };
        let put = self.held.put_bundle((db, slot), &stored);
        let keys = put.map_err(|why| match why {
            NotPut::Full => self.texts.failure_to_store(db, &read.name, LoadError::Full),
            NotPut::Repeated | NotPut::Unsuited => failure(self),
        })?;
        tier.counters.frozen_keys.fetch_add(keys, Relaxed);
        self.counts.loaded += keys;
        self.let_others_in();
        Ok(())
    }

    fn tier(&self) -> Result<&'static Arc<Tier>, LoadFailure> {
        self.store.tier.ok_or_else(|| {
            LoadFailure(vec![format!(
                "{} refers to values in a swap-dir: it is loaded with swap-mode yes only, beside the folder of swap-dir that it \
                 belongs to",
                self.portions.name()
            )])
        })
    }

    fn let_others_in(&mut self) {
        self.pieces += 1;
        if !self.is_held && self.pieces >= PIECES_PER_HOLD {
            self.held.release();
            self.pieces = 0;
        }
    }
}
