//! From a decoded value to a key that holds it, by the same edits that commands make: which encoding comes of it is decided
//! by the limits in force here. Of a payload that came packed only the number of elements is looked at, as in Valkey.

use crate::stream;
use isotherm_keyspace::{
    Db, EditError, Edited, End, Expiry, Full, HashEdit, Key, Limits, ListEdit, NewValue, SetEdit, Txn, UnixMs,
};
use isotherm_persist::rdb::RdbType;
use isotherm_persist::rdb::record::Record;
use isotherm_persist::{RdbValue, Texts};

/// Stores a value under a key that is absent; `code` is the type that it came as. On an error the key is absent again.
pub fn load(
    txn: &mut Txn<'_, '_>,
    db: Db,
    key: &Key<'_>,
    (code, value): (u8, &RdbValue),
    limits: &Limits,
) -> Result<(), Full> {
    let loaded = load_parts(txn, db, key, (code, value), &as_it_came(code, limits));
    if loaded.is_err() {
        txn.remove(db, key);
    }
    loaded
}

/// Stores a key of a file instead of the one that may be there. On an error the key is absent.
pub fn load_record(txn: &mut Txn<'_, '_>, db: Db, record: &Record, limits: &Limits) -> Result<(), Full> {
    let key = txn.key(&record.key);
    txn.remove(db, &key);
    load(txn, db, &key, (record.code, &record.value), limits)?;
    let stored = txn.set_expiry(db, &key, record.expiry_ms.map(UnixMs));
    if stored.is_err() {
        txn.remove(db, &key);
    }
    stored.map(|_| ())
}

/// The limits without those of an element's bytes, if the payload is of a packed type.
fn as_it_came(code: u8, limits: &Limits) -> Limits {
    const HASHES: [u8; 2] = [RdbType::HashZiplist as u8, RdbType::HashListpack as u8];
    const ZSETS: [u8; 2] = [RdbType::ZsetZiplist as u8, RdbType::ZsetListpack as u8];
    let mut limits = *limits;
    if HASHES.contains(&code) {
        limits.hash_max_listpack_value = usize::MAX;
    } else if ZSETS.contains(&code) {
        limits.zset_max_listpack_value = usize::MAX;
    } else if code == RdbType::SetListpack as u8 {
        limits.set_max_listpack_value = usize::MAX;
    }
    limits
}

fn load_parts(
    txn: &mut Txn<'_, '_>,
    db: Db,
    key: &Key<'_>,
    (code, value): (u8, &RdbValue),
    limits: &Limits,
) -> Result<(), Full> {
    match value {
        RdbValue::String(text) => txn.set(db, key, NewValue::encode(text), Expiry::Clear).map(|_| ()),
        RdbValue::Hash { pairs, expiries_ms } => {
            finished(txn.edit_hash(db, key, limits, |hash| load_hash(hash, pairs, expiries_ms)))
        }
        RdbValue::Set(members) => {
            finished(txn.edit_set(db, key, limits, |set| load_set(set, code, members, limits)))
        }
        RdbValue::Zset(zset) => finished(txn.edit_zset(db, key, limits, |edit| {
            zset.iter().try_for_each(|(member, score)| edit.set(member, score).map(|_| ()))
        })),
        // COMPAT(transfer): RESTORE and DEBUG RELOAD cut lists and streams into nodes anew, by the current
        // parameters: OBJECT ENCODING of a list, the tree in XINFO STREAM and what `MAXLEN ~` removes may differ
        // afterwards if nodes had another size or deleted entries. Why: the bytes of nodes are those of another
        // format here.
        RdbValue::List(texts) => finished(txn.edit_list(db, key, limits, |list| load_list(list, texts))),
        RdbValue::Stream(value) => {
            finished(txn.edit_stream(db, key, limits, |edit| stream::load(edit, value)))
        }
    }
}

/// One after the other, because several at once are judged by their texts; at the end by what they take.
fn load_list(list: &mut ListEdit<'_, '_>, texts: &Texts) -> Result<(), Full> {
    texts.iter().try_for_each(|text| list.push(End::Back, std::iter::once(text)))?;
    list.before_growth(std::iter::empty())
}

fn load_hash(hash: &mut HashEdit<'_, '_>, pairs: &Texts, expiries_ms: &[i64]) -> Result<(), Full> {
    hash.expect(pairs.pairs().len(), 0)?;
    for (index, (field, value)) in pairs.pairs().enumerate() {
        let expiry_ms = expiries_ms.get(index).copied().filter(|&expiry_ms| expiry_ms >= 0);
        hash.set(field, value, expiry_ms.map(UnixMs), false)?;
    }
    Ok(())
}

/// A set that came as a listpack stays one, even of integers; others begin as integers, or as a hash table.
fn load_set(set: &mut SetEdit<'_, '_>, code: u8, members: &Texts, limits: &Limits) -> Result<(), Full> {
    const NO_INTEGER: &[u8] = b"";
    let was_listpack = code == RdbType::SetListpack as u8;
    let entries_max =
        if was_listpack { limits.set_max_listpack_entries } else { limits.set_max_intset_entries };
    if members.len() > entries_max {
        set.expect(NO_INTEGER, usize::MAX)?;
    } else if !was_listpack {
        set.begin_ints();
    }
    members.iter().try_for_each(|member| set.add(member).map(|_| ()))
}

fn finished(edited: Result<Edited<Result<(), Full>>, EditError>) -> Result<(), Full> {
    match edited {
        Ok(edited) => edited.result,
        Err(EditError::Full) => Err(Full),
        Err(EditError::WrongType) => unreachable!("the key was absent"),
    }
}
