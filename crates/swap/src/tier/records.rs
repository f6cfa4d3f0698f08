//! Values as records of the log: what is written of one, and the database of one that was read.

use isotherm_keyspace::{Db, SinkRoom, Sinkable};
use isotherm_tier::{Full, Log, Place, Record, Stream};

pub fn append(log: &mut Log, value: &Sinkable<'_>, room: &mut SinkRoom) -> Result<Place, Full> {
    let payload = value.payload(room);
    let record = Record {
        form: payload.form_number,
        expiry: value.expiry,
        database: u32::from(value.db.0),
        slot: value.slot,
        key: value.key,
        payload: payload.bytes,
    };
    log.append(Stream::Fresh, &record, None)
}

pub fn db_of(record: &Record<'_>) -> Db {
    Db(record.database as u16)
}
