//! From an entry to the bytes that DUMP sends: in the encoding that a server of the field would have the value in.

use crate::stream;
use isotherm_keyspace::{
    Element, Encoding, End, Entry, HashView, Limits, ListView, SetView, TextRoom, Value, ZsetView,
};
use isotherm_persist::rdb::{
    self, HashWriter, ListShape, ListWriter, ListpackBuilder, Place, RdbType, Writer,
};
use isotherm_persist::{Sink, dump};
use isotherm_stdx::parse_i64;

/// In the bytes: the field does not expire.
const EXPIRY_NONE: i64 = -1;

/// A whole payload, with its footer. `None` of a hash whose last field has just expired.
pub fn dump(entry: &Entry<'_>, limits: &Limits, compress: bool) -> Option<Vec<u8>> {
    if matches!(entry.value, Value::Hash(hash) if hash.has_volatile() && visible(hash) == 0) {
        return None;
    }
    let mut writer = Writer::new(compress);
    save(&mut writer, entry, limits);
    Some(dump::seal(writer.into_bytes()))
}

/// What the value takes in a file, uncompressed and without its type.
pub fn saved_bytes(entry: &Entry<'_>, limits: &Limits) -> usize {
    let mut writer = Writer::new(false);
    save(&mut writer, entry, limits);
    writer.bytes().len() - 1
}

/// Type and value.
pub fn save<S: Sink>(writer: &mut Writer<S>, entry: &Entry<'_>, limits: &Limits) {
    let compact = matches!(entry.encoding(), Encoding::Listpack | Encoding::Intset);
    match entry.value {
        Value::Int(int) => save_string(writer, Element::Int(int)),
        Value::Bytes(bytes) => save_string(writer, Element::Bytes(bytes)),
        Value::Hash(hash) => save_hash(writer, hash, compact),
        Value::Set(set) => save_set(writer, set, entry.encoding()),
        Value::Zset(zset) => save_zset(writer, zset, compact),
        Value::List(list) => save_list(writer, list, compact, limits),
        Value::Stream(view) => stream::save(writer, view),
    }
}

fn save_string<S: Sink>(writer: &mut Writer<S>, text: Element<'_>) {
    writer.byte(RdbType::String as u8);
    writer.text(text.text(&mut TextRoom::default()));
}

pub(crate) fn to_rdb(element: Element<'_>) -> rdb::Element<'_> {
    match element {
        Element::Int(int) => rdb::Element::Integer(int),
        Element::Bytes(bytes) => rdb::Element::Text(bytes),
    }
}

fn push(listpack: &mut ListpackBuilder, element: Element<'_>) {
    listpack.add(to_rdb(element));
}

/// Twice over the elements: the number of nodes stands in front of them.
fn save_list<S: Sink>(writer: &mut Writer<S>, list: ListView<'_>, compact: bool, limits: &Limits) {
    let mut room = TextRoom::default();
    let shape = || ListShape::new(limits.list_max_listpack_size, compact);
    let (mut nodes, mut counted) = (0, shape());
    for element in list.iter(0, End::Front) {
        nodes += u64::from(counted.place(element.text(&mut room)) != Place::Joins);
    }
    let mut out = ListWriter::begin(writer, nodes);
    let mut shape = shape();
    for element in list.iter(0, End::Front) {
        let text = element.text(&mut room);
        let place = shape.place(text);
        if place != Place::Joins {
            out.node(writer, place == Place::Alone);
        }
        out.push(writer, rdb::Element::Text(text));
    }
    out.end(writer);
}

fn save_hash<S: Sink>(writer: &mut Writer<S>, hash: HashView<'_>, compact: bool) {
    if compact {
        let mut listpack = ListpackBuilder::new();
        hash.for_each(|field, value| {
            push(&mut listpack, field);
            push(&mut listpack, value);
        });
        writer.byte(RdbType::HashListpack as u8);
        writer.text(listpack.finish());
        return;
    }
    let out = HashWriter::begin(writer, visible(hash), hash.has_volatile());
    let (mut name, mut text) = (TextRoom::default(), TextRoom::default());
    hash.for_each_with_expiry(|field, value, expiry| {
        let expiry_ms = expiry.map_or(EXPIRY_NONE, |at| at.0);
        out.push(writer, field.text(&mut name), value.text(&mut text), expiry_ms);
    });
}

/// What is walked: a field whose time has come may still be in its page.
fn visible(hash: HashView<'_>) -> u64 {
    let mut count = 0;
    hash.for_each(|_, _| count += 1);
    count
}

fn save_set<S: Sink>(writer: &mut Writer<S>, set: SetView<'_>, encoding: Encoding) {
    match encoding {
        Encoding::Intset => {
            let mut rising = Vec::with_capacity(set.len() as usize);
            set.for_each(|member| {
                rising.push(match member {
                    Element::Int(int) => int,
                    Element::Bytes(text) => parse_i64(text).expect("an intset holds integers"),
                });
            });
            rising.sort_unstable();
            rdb::intset(writer, &rising);
        }
        Encoding::Listpack => {
            let mut listpack = ListpackBuilder::new();
            set.for_each(|member| push(&mut listpack, member));
            writer.byte(RdbType::SetListpack as u8);
            writer.text(listpack.finish());
        }
        _ => {
            writer.byte(RdbType::Set as u8);
            writer.length(set.len());
            let mut room = TextRoom::default();
            set.for_each(|member| writer.text(member.text(&mut room)));
        }
    }
}

/// A large one from the greatest score down, so that whoever loads it always inserts in front.
fn save_zset<S: Sink>(writer: &mut Writer<S>, zset: ZsetView<'_>, compact: bool) {
    if compact {
        let mut listpack = rdb::ScoreListpack::default();
        zset.for_each(0, zset.len(), true, |member, score| listpack.push(to_rdb(member), score));
        return listpack.finish(writer);
    }
    writer.byte(RdbType::Zset2 as u8);
    writer.length(zset.len());
    let mut room = TextRoom::default();
    zset.for_each(0, zset.len(), false, |member, score| {
        writer.text(member.text(&mut room));
        writer.double(score);
    });
}
