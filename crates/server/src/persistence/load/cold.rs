//! Keys of a base that refers to the swap log: they are stored as they are, without a look at their values.
//!
//! Whether the log has what is referred to was seen before the first key (`tier::files`): which log it is, that its segments are there, and
//! how long they are. Here each reference has to lie within them; that its record is the one of this key is proven when it is read.

use isotherm_codec::LoadError;
use isotherm_keyspace::{
    AccessNote, ColdValue, Conditions, Db, ExpiryMode, NoEffects, NotPut, Txn, UnixMs, Want,
};
use isotherm_persist::rdb::file::Key;

use super::{Load, LoadFailure, PIECES_PER_HOLD};

impl Load<'_> {
    pub(super) fn take_cold(
        &mut self,
        read: &Key<'_>,
        form_number: u8,
        reference: u64,
    ) -> Result<(), LoadFailure> {
        let db = Db(u16::try_from(read.db).expect("the database was checked"));
        let Some(tier) = self.store.cold.disk() else {
            return Err(LoadFailure(vec![format!(
                "{} refers to values in a swap-dir: it is loaded with swap-mode yes only, beside the folder of swap-dir that it \
                 belongs to",
                self.portions.name()
            )]));
        };
        let durable = self.durable.get_or_insert_with(|| tier.files.durable());
        let value = ColdValue::of_file(form_number, reference)
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
        self.pieces += 1;
        if !self.is_held && self.pieces >= PIECES_PER_HOLD {
            self.held.release();
            self.pieces = 0;
        }
        self.delay();
        Ok(())
    }
}
