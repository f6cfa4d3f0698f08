//! Load of a decoded value into a key, by the same edits that commands make: the limits in force here decide
//! which encoding it gets. Of a payload that came packed only the number of elements is looked at, as in
//! Valkey.

use crate::stream;
use isotherm_keyspace::{
    AccessNote, Db, EditError, Edited, End, Expiry, Full, HashEdit, Key, Limits, ListEdit, NewValue, SetEdit,
    Txn, UnixMs,
};
use isotherm_persist::rdb::RdbType;
use isotherm_persist::rdb::file::{Piece, PieceValue};
use isotherm_persist::{RdbValue, Texts};

/// Stores a value under a key that is absent; `code` is the type that it came as. On an error the key is
/// absent again.
pub fn load(
    txn: &mut Txn<'_, '_>,
    db: Db,
    key: &Key<'_>,
    (code, value): (u8, &RdbValue),
    limits: &Limits,
) -> Result<(), Full> {
    let part = Part { code, value, total: 0, is_first: true, is_last: true, keeps_from: None };
    let loaded = load_part(txn, db, key, &part, limits);
    if loaded.is_err() {
        txn.remove(db, key);
    }
    loaded.map_err(|error| match error {
        LoadError::Full => Full,
        LoadError::RepeatedElement | LoadError::RepeatedKey => unreachable!("values are decoded without any"),
    })
}

// ---- a file ----

/// Rules for the keys of a file.
#[derive(Clone, Copy)]
pub struct FileTerms<'l> {
    pub limits: &'l Limits,
    /// Keys and fields that expired before this time stay behind, as in a primary that starts; `None` keeps
    /// all.
    pub keeps_from: Option<UnixMs>,
    /// A key that is there already is replaced; otherwise it is an error.
    pub replaces: bool,
}

/// Result of loading a piece.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Loaded {
    Stored,
    /// The time of the key is over.
    Expired,
    /// The last piece of a hash came, and none of its fields still lives.
    FieldsExpired,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LoadError {
    Full,
    /// The key is there already.
    RepeatedKey,
    RepeatedElement,
}

impl From<Full> for LoadError {
    fn from(_: Full) -> LoadError {
        LoadError::Full
    }
}

/// Stores a piece of a file. The pieces of a key come one after the other; after an error the key may be
/// there in part.
pub fn load_piece(
    txn: &mut Txn<'_, '_>,
    db: Db,
    piece: &Piece<'_>,
    terms: &FileTerms<'_>,
) -> Result<Loaded, LoadError> {
    let expiry = piece.key.expiry_ms.map(UnixMs);
    if let (Some(at), Some(from)) = (expiry, terms.keeps_from)
        && at < from
    {
        return Ok(Loaded::Expired);
    }
    let key = txn.key(piece.key.name);
    let loaded = match piece.value {
        PieceValue::Text(text) => {
            let expiry = expiry.map_or(Expiry::Clear, Expiry::At);
            let was_there = txn.set(db, &key, NewValue::encode(text), expiry)?;
            (!was_there || terms.replaces).then_some(Loaded::Stored).ok_or(LoadError::RepeatedKey)?
        }
        PieceValue::Collection(value) => load_collection(txn, db, &key, piece, value, terms)?,
    };
    if piece.is_last {
        let note = match (piece.key.frequency, piece.key.idle_seconds) {
            (Some(frequency), _) => Some(AccessNote::Frequency(frequency)),
            (None, Some(seconds)) => Some(AccessNote::IdleSeconds(seconds)),
            (None, None) => None,
        };
        note.into_iter().for_each(|note| txn.note_access(db, &key, note));
    }
    Ok(loaded)
}

fn load_collection(
    txn: &mut Txn<'_, '_>,
    db: Db,
    key: &Key<'_>,
    piece: &Piece<'_>,
    value: &RdbValue,
    terms: &FileTerms<'_>,
) -> Result<Loaded, LoadError> {
    let Piece { code, total, is_first, is_last, .. } = *piece;
    if is_first && txn.contains(db, key) {
        if !terms.replaces {
            return Err(LoadError::RepeatedKey);
        }
        txn.remove(db, key);
    }
    let total = usize::try_from(total).unwrap_or(usize::MAX);
    let part = Part { code, value, total, is_first, is_last, keeps_from: terms.keeps_from };
    load_part(txn, db, key, &part, terms.limits)?;
    if !is_last {
        return Ok(Loaded::Stored);
    }
    if matches!(value, RdbValue::Hash { .. }) && !txn.contains(db, key) {
        return Ok(Loaded::FieldsExpired);
    }
    if let Some(at) = piece.key.expiry_ms {
        txn.set_expiry(db, key, Some(UnixMs(at)))?;
    }
    Ok(Loaded::Stored)
}

// ---- one value ----

/// A value, or a part of one.
struct Part<'p> {
    code: u8,
    value: &'p RdbValue,
    /// Elements of the whole, if that is known.
    total: usize,
    is_first: bool,
    is_last: bool,
    keeps_from: Option<UnixMs>,
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

fn load_part(
    txn: &mut Txn<'_, '_>,
    db: Db,
    key: &Key<'_>,
    part: &Part<'_>,
    limits: &Limits,
) -> Result<(), LoadError> {
    let limits = &as_it_came(part.code, limits);
    match part.value {
        RdbValue::String(text) => {
            txn.set(db, key, NewValue::encode(text), Expiry::Clear)?;
            Ok(())
        }
        RdbValue::Hash { pairs, expiries_ms } => {
            finished(txn.edit_hash(db, key, limits, |hash| load_hash(hash, part, pairs, expiries_ms)))
        }
        RdbValue::Set(members) => {
            finished(txn.edit_set(db, key, limits, |set| load_set(set, part, members, limits)))
        }
        RdbValue::Zset(zset) => finished(txn.edit_zset(db, key, limits, |edit| {
            // In a tree from the first member on, if it was one: the packed form knows no score of -0.
            if part.code == RdbType::Zset2 as u8 || part.code == RdbType::Zset as u8 {
                let longest = zset.iter().map(|(member, _)| member.len()).max().unwrap_or(0);
                edit.expect(part.total.max(zset.members.len()), longest)?;
            }
            zset.iter().try_for_each(|(member, score)| new_if(edit.set(member, score)?.is_added()))
        })),
        // COMPAT(transfer): RESTORE and RDB files cut lists and streams into nodes anew, by the current
        // parameters: OBJECT ENCODING of a list, the tree in XINFO STREAM and what `MAXLEN ~` removes may
        // differ afterwards if nodes had another size or deleted entries. Why: the bytes of nodes are those
        // of another format here.
        RdbValue::List(texts) => finished(txn.edit_list(db, key, limits, |list| load_list(list, texts))),
        RdbValue::Stream(value) => finished(txn.edit_stream(db, key, limits, |edit| {
            stream::load_blocks(edit, value)?;
            if part.is_last {
                stream::load_state(edit, value);
            }
            Ok(())
        })),
    }
}

fn new_if(is_new: bool) -> Result<(), LoadError> {
    is_new.then_some(()).ok_or(LoadError::RepeatedElement)
}

/// Loads the elements one by one: several at once are judged by their texts. At the end the list is judged by
/// its size.
fn load_list(list: &mut ListEdit<'_, '_>, texts: &Texts) -> Result<(), LoadError> {
    texts.iter().try_for_each(|text| list.push(End::Back, std::iter::once(text)))?;
    Ok(list.before_growth(std::iter::empty())?)
}

fn load_hash(
    hash: &mut HashEdit<'_, '_>,
    part: &Part<'_>,
    pairs: &Texts,
    expiries_ms: &[i64],
) -> Result<(), LoadError> {
    hash.expect(pairs.pairs().len().max(part.total), 0)?;
    for (index, (field, value)) in pairs.pairs().enumerate() {
        let expiry_ms = expiries_ms.get(index).copied().filter(|&expiry_ms| expiry_ms >= 0);
        let expiry = expiry_ms.map(UnixMs);
        let is_over = expiry.zip(part.keeps_from).is_some_and(|(at, from)| at < from);
        if !is_over {
            new_if(hash.set(field, value, expiry, false)?.is_new)?;
        }
    }
    Ok(())
}

/// A set that came as a listpack stays one, even of integers; others begin as integers, or as a hash table.
fn load_set(
    set: &mut SetEdit<'_, '_>,
    part: &Part<'_>,
    members: &Texts,
    limits: &Limits,
) -> Result<(), LoadError> {
    const NO_INTEGER: &[u8] = b"";
    let was_listpack = part.code == RdbType::SetListpack as u8;
    let entries_max =
        if was_listpack { limits.set_max_listpack_entries } else { limits.set_max_intset_entries };
    if part.is_first && members.len().max(part.total) > entries_max {
        set.expect(NO_INTEGER, usize::MAX)?;
    } else if part.is_first && !was_listpack {
        set.begin_ints();
    }
    members.iter().try_for_each(|member| new_if(set.add(member)?))
}

fn finished(edited: Result<Edited<Result<(), LoadError>>, EditError>) -> Result<(), LoadError> {
    match edited {
        Ok(edited) => edited.result,
        Err(EditError::Full) => Err(LoadError::Full),
        Err(EditError::WrongType) => unreachable!("the key was absent"),
    }
}
