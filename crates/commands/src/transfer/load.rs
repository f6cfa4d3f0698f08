//! From a decoded value to a key that holds it, by the same edits that commands make: which encoding comes of it is decided
//! by the limits in force here, not by the payload.

use isotherm_keyspace::{Db, EditError, Edited, End, Expiry, Full, Key, Limits, NewValue, Txn};
use isotherm_persist::RdbValue;

/// Stores a value under a key that is absent. On an error the key is absent again.
pub fn load(
    txn: &mut Txn<'_, '_>,
    db: Db,
    key: &Key<'_>,
    value: &RdbValue,
    limits: &Limits,
) -> Result<(), Full> {
    let loaded = load_parts(txn, db, key, value, limits);
    if loaded.is_err() {
        txn.remove(db, key);
    }
    loaded
}

fn load_parts(
    txn: &mut Txn<'_, '_>,
    db: Db,
    key: &Key<'_>,
    value: &RdbValue,
    limits: &Limits,
) -> Result<(), Full> {
    match value {
        RdbValue::String(text) => txn.set(db, key, NewValue::encode(text), Expiry::Clear).map(|_| ()),
        RdbValue::Hash { pairs, expiries_ms } => {
            assert!(expiries_ms.is_empty());
            finished(txn.edit_hash(db, key, limits, |hash| {
                pairs.pairs().try_for_each(|(field, value)| hash.set(field, value).map(|_| ()))
            }))
        }
        RdbValue::Set(members) => finished(txn.edit_set(db, key, limits, |set| {
            members.iter().try_for_each(|member| set.add(member).map(|_| ()))
        })),
        RdbValue::Zset(zset) => finished(txn.edit_zset(db, key, limits, |edit| {
            zset.iter().try_for_each(|(member, score)| edit.set(member, score).map(|_| ()))
        })),
        RdbValue::List(texts) => {
            finished(txn.edit_list(db, key, limits, |list| list.push(End::Back, texts.iter())))
        }
        RdbValue::Stream(_) => Err(Full),
    }
}

fn finished(edited: Result<Edited<Result<(), Full>>, EditError>) -> Result<(), Full> {
    match edited {
        Ok(edited) => edited.result,
        Err(EditError::Full) => Err(Full),
        Err(EditError::WrongType) => unreachable!("the key was absent"),
    }
}
