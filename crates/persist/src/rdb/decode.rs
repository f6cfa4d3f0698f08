//! Decoder from a type and its bytes to a value: the whole value is checked, or there is an error and no
//! value.
//!
//! Every count is compared with the bytes that are left before anything is allocated for it. Values that real
//! servers can write are accepted. Contradictions are not, even where Valkey accepts them (ids of stream
//! entries out of order).

use super::kind::RdbType;
use super::read::{Limits, RdbError, Reader, Result, within};
use super::value::{RdbValue, Texts, ZsetMembers};
use super::{decode_stream, intset, listpack, ziplist, zipmap};

const EXPIRY_NONE: i64 = -1;
const REPEATED: RdbError = RdbError::Corrupt("an element that is there twice");

/// The value at the front of `bytes`, and how many of them it takes.
pub fn decode(code: u8, version: u16, bytes: &[u8], limits: &Limits) -> Result<(RdbValue, usize)> {
    let kind = RdbType::new(code, version).ok_or(RdbError::UnknownType(code))?;
    let mut reader = Reader::new(bytes, limits);
    let value = value(kind, &mut reader)?;
    Ok((value, bytes.len() - reader.left()))
}

pub(super) fn value(kind: RdbType, reader: &mut Reader<'_>) -> Result<RdbValue> {
    use RdbType::*;
    match kind {
        String => reader.text().map(|text| RdbValue::String(text.into_owned())),
        List => checked_list(plain_texts(reader, 1)?),
        ListZiplist => checked_list(ziplist_texts(&reader.text()?)?),
        ListQuicklist => checked_list(quicklist(reader, quicklist_node)?),
        ListQuicklist2 => checked_list(quicklist(reader, quicklist2_node)?),
        Set => checked_set(plain_texts(reader, 1)?),
        SetIntset => {
            let mut members = Texts::default();
            intset::read(&reader.text()?, &mut members)?;
            Ok(RdbValue::Set(members))
        }
        SetListpack => {
            let set = listpack_texts(&reader.text()?).and_then(checked_set);
            set.map_err(within(RdbError::Corrupt("Set listpack integrity check failed.")))
        }
        Zset => plain_zset(reader, score_text),
        Zset2 => plain_zset(reader, |reader| reader.double()),
        ZsetZiplist => {
            let bytes = reader.text()?;
            let zset = ziplist::open(&bytes).and_then(|mut elements| compact_zset(|| elements.next()));
            zset.map_err(within(RdbError::Corrupt("Zset ziplist integrity check failed.")))
        }
        ZsetListpack => {
            let bytes = reader.text()?;
            let zset = listpack::open(&bytes).and_then(|mut elements| compact_zset(|| elements.next()));
            zset.map_err(within(RdbError::Corrupt("Zset listpack integrity check failed.")))
        }
        Hash => checked_hash(plain_texts(reader, 2)?, Vec::new()),
        Hash2 => hash_with_expiry(reader),
        HashZipmap => {
            let mut pairs = Texts::default();
            zipmap::read(&reader.text()?, &mut pairs)?;
            let corrupt = RdbError::Corrupt("Zipmap integrity check failed.");
            // No server has written one without pairs.
            if pairs.is_empty() {
                return Err(corrupt);
            }
            checked_hash(pairs, Vec::new()).map_err(within(corrupt))
        }
        HashZiplist => {
            let hash = ziplist_texts(&reader.text()?).and_then(|pairs| checked_hash(pairs, Vec::new()));
            hash.map_err(within(RdbError::Corrupt("Hash ziplist integrity check failed.")))
        }
        HashListpack => {
            let hash = listpack_texts(&reader.text()?).and_then(|pairs| checked_hash(pairs, Vec::new()));
            hash.map_err(within(RdbError::Corrupt("Hash listpack integrity check failed.")))
        }
        ForeignHashExpiry => foreign_hash(reader),
        ForeignHashListpackExpiry => foreign_hash_listpack(reader),
        StreamListpacks => decode_stream::stream(reader, 1),
        StreamListpacks2 => decode_stream::stream(reader, 2),
        StreamListpacks3 => decode_stream::stream(reader, 3),
        ModulePreGa => Err(RdbError::Module("a module of a release candidate".to_string())),
        Module2 => Err(RdbError::Module(module_name(reader.number()?))),
    }
}

/// Ten bits of version below nine characters of six bits.
pub(super) fn module_name(id: u64) -> String {
    const CHARACTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    (0..9).map(|index| char::from(CHARACTERS[(id >> (58 - 6 * index)) as usize & 63])).collect()
}

fn plain_texts(reader: &mut Reader<'_>, per_element: usize) -> Result<Texts> {
    let count = reader.count(per_element)?;
    let mut texts = Texts::default();
    for _ in 0..count * per_element {
        texts.push_with(|bytes| reader.text_into(bytes))?;
    }
    Ok(texts)
}

fn listpack_texts(bytes: &[u8]) -> Result<Texts> {
    let mut texts = Texts::default();
    listpack_into(bytes, &mut texts)?;
    Ok(texts)
}

fn listpack_into(bytes: &[u8], texts: &mut Texts) -> Result<()> {
    let mut elements = listpack::open(bytes)?;
    while let Some(element) = elements.next()? {
        element.push_to(texts);
    }
    Ok(())
}

fn ziplist_texts(bytes: &[u8]) -> Result<Texts> {
    let mut texts = Texts::default();
    ziplist_into(bytes, &mut texts)?;
    Ok(texts)
}

fn ziplist_into(bytes: &[u8], texts: &mut Texts) -> Result<()> {
    let mut elements = ziplist::open(bytes)?;
    while let Some(element) = elements.next()? {
        element.push_to(texts);
    }
    Ok(())
}

const CONTAINER_PLAIN: u64 = 1;
const CONTAINER_PACKED: u64 = 2;

/// Nodes, each one long element or a run of short ones. Nodes without elements are passed over.
fn quicklist(
    reader: &mut Reader<'_>,
    node: impl Fn(&mut Reader<'_>, &mut Texts) -> Result<()>,
) -> Result<Texts> {
    let nodes = reader.count(1)?;
    let mut texts = Texts::default();
    for _ in 0..nodes {
        node(reader, &mut texts)?;
    }
    Ok(texts)
}

/// A ziplist.
pub(super) fn quicklist_node(reader: &mut Reader<'_>, texts: &mut Texts) -> Result<()> {
    let bytes = reader.text()?;
    not_empty(&bytes)?;
    ziplist_into(&bytes, texts)
}

/// A container, and a listpack or the one element.
pub(super) fn quicklist2_node(reader: &mut Reader<'_>, texts: &mut Texts) -> Result<()> {
    let container = reader.number()?;
    let bytes = reader.text()?;
    not_empty(&bytes)?;
    match container {
        CONTAINER_PLAIN => texts.push(&bytes),
        CONTAINER_PACKED => listpack_into(&bytes, texts)?,
        _ => return Err(RdbError::Corrupt("a list node of no known kind")),
    }
    Ok(())
}

fn not_empty(bytes: &[u8]) -> Result<()> {
    if bytes.is_empty() { Err(RdbError::Corrupt("a list node of no bytes")) } else { Ok(()) }
}

fn checked_list(texts: Texts) -> Result<RdbValue> {
    if texts.is_empty() { Err(RdbError::Empty) } else { Ok(RdbValue::List(texts)) }
}

fn checked_set(members: Texts) -> Result<RdbValue> {
    if members.is_empty() {
        Err(RdbError::Empty)
    } else if members.repeats(1) {
        Err(REPEATED)
    } else {
        Ok(RdbValue::Set(members))
    }
}

fn checked_hash(pairs: Texts, expiries_ms: Vec<i64>) -> Result<RdbValue> {
    if pairs.is_empty() {
        Err(RdbError::Empty)
    } else if !pairs.len().is_multiple_of(2) {
        Err(RdbError::Corrupt("a field without a value"))
    } else if pairs.repeats(2) {
        Err(REPEATED)
    } else {
        Ok(RdbValue::Hash { pairs, expiries_ms })
    }
}

fn plain_zset(reader: &mut Reader<'_>, score: impl Fn(&mut Reader<'_>) -> Result<f64>) -> Result<RdbValue> {
    let count = reader.count(2)?;
    let mut zset = ZsetMembers::default();
    for _ in 0..count {
        zset.members.push_with(|bytes| reader.text_into(bytes))?;
        zset.scores.push(score(reader)?);
    }
    checked_zset(zset)
}

/// `[253 = nan][254 = inf][255 = -inf]`, or a length and decimal text.
pub(super) fn score_text(reader: &mut Reader<'_>) -> Result<f64> {
    match reader.byte()? {
        253 => Ok(f64::NAN),
        254 => Ok(f64::INFINITY),
        255 => Ok(f64::NEG_INFINITY),
        len => {
            let text = reader.take(usize::from(len))?;
            // COMPAT(transfer): RESTORE refuses a packed score that is not a number. Why: a damaged value
            // must not become data.
            isotherm_stdx::parse_f64(text).ok_or(RdbError::Corrupt("a score that is no number"))
        }
    }
}

fn compact_zset<'a>(mut next: impl FnMut() -> Result<Option<listpack::Element<'a>>>) -> Result<RdbValue> {
    let mut zset = ZsetMembers::default();
    while let Some(member) = next()? {
        member.push_to(&mut zset.members);
        let score = next()?.and_then(listpack::Element::score);
        zset.scores.push(score.ok_or(RdbError::Corrupt("a member without a score"))?);
    }
    checked_zset(zset)
}

fn checked_zset(zset: ZsetMembers) -> Result<RdbValue> {
    if zset.members.is_empty() {
        Err(RdbError::Empty)
    } else if zset.scores.iter().any(|score| score.is_nan()) {
        Err(RdbError::Corrupt("a score that is not a number"))
    } else if zset.members.repeats(1) {
        Err(REPEATED)
    } else {
        Ok(RdbValue::Zset(zset))
    }
}

/// `[field][value][expiry i64]` each, -1 for never.
fn hash_with_expiry(reader: &mut Reader<'_>) -> Result<RdbValue> {
    let count = reader.count(2 + 8)?;
    let mut pairs = Texts::default();
    let mut expiries_ms = Vec::new();
    for _ in 0..count {
        pairs.push_with(|bytes| reader.text_into(bytes))?;
        pairs.push_with(|bytes| reader.text_into(bytes))?;
        expiries_ms.push(checked_expiry(reader.milliseconds()?)?);
    }
    checked_hash(pairs, or_none(expiries_ms))
}

pub(super) fn checked_expiry(expiry_ms: i64) -> Result<i64> {
    if expiry_ms < EXPIRY_NONE { Err(RdbError::Corrupt("an expiry before 1970")) } else { Ok(expiry_ms) }
}

fn or_none(expiries_ms: Vec<i64>) -> Vec<i64> {
    let any = expiries_ms.iter().any(|&expiry_ms| expiry_ms != EXPIRY_NONE);
    if any { expiries_ms } else { Vec::new() }
}

/// `[smallest expiry i64][count]{[0 = never, or expiry - smallest + 1][field][value]}`.
fn foreign_hash(reader: &mut Reader<'_>) -> Result<RdbValue> {
    let smallest_ms = checked_expiry(reader.milliseconds()?)?;
    let count = reader.count(3)?;
    let mut pairs = Texts::default();
    let mut expiries_ms = Vec::new();
    for _ in 0..count {
        expiries_ms.push(relative_expiry(reader.number()?, smallest_ms)?);
        pairs.push_with(|bytes| reader.text_into(bytes))?;
        pairs.push_with(|bytes| reader.text_into(bytes))?;
    }
    checked_hash(pairs, or_none(expiries_ms))
}

/// Returns the expiry of a field from the number that is written for it: 0 for never, else the distance from
/// the smallest expiry, plus one.
pub(super) fn relative_expiry(written: u64, smallest_ms: i64) -> Result<i64> {
    let Some(after) = written.checked_sub(1) else { return Ok(EXPIRY_NONE) };
    let sum = i64::try_from(after).ok().and_then(|after| smallest_ms.checked_add(after));
    checked_expiry(sum.ok_or(RdbError::Corrupt("an expiry past all times"))?)
}

/// `[smallest expiry i64][listpack of field, value, expiry or 0]`.
fn foreign_hash_listpack(reader: &mut Reader<'_>) -> Result<RdbValue> {
    reader.milliseconds()?;
    let bytes = reader.text()?;
    let mut elements = listpack::open(&bytes)?;
    let mut pairs = Texts::default();
    let mut expiries_ms = Vec::new();
    while let Some(field) = elements.next()? {
        field.push_to(&mut pairs);
        elements.expect()?.push_to(&mut pairs);
        let expiry_ms = match elements.expect_integer()? {
            0 => EXPIRY_NONE,
            expiry_ms => checked_expiry(expiry_ms)?,
        };
        expiries_ms.push(expiry_ms);
    }
    checked_hash(pairs, or_none(expiries_ms))
}
