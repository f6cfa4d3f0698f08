//! Values as DUMP writes them. The collections' builders take one element at a time, so that a value need not
//! exist twice.

use super::encode_list::{self, ListShape};
use super::encode_stream;
use super::kind::RdbType;
use super::listpack::{Element, ListpackBuilder};
use super::value::{Encoding, RdbValue, Texts, ZsetMembers};
use super::write::Writer;
use crate::sink::Sink;

/// Whole numbers up to half of what an i64 holds are kept as integers.
const SCORE_INTEGER_MAX: f64 = (i64::MAX / 2) as f64;

/// Writes the bytes after the type; `rising` holds each integer once.
pub fn intset<S: Sink>(writer: &mut Writer<S>, rising: &[i64]) {
    writer.text(&super::intset::build(rising));
}

/// A small set: its members in their order.
fn listpack_texts<'a, S: Sink>(writer: &mut Writer<S>, members: impl IntoIterator<Item = &'a [u8]>) {
    let mut listpack = ListpackBuilder::new();
    members.into_iter().for_each(|member| listpack.push(member));
    writer.byte(RdbType::SetListpack as u8);
    writer.text(listpack.finish());
}

/// A small hash.
fn listpack_pairs<'a, S: Sink>(
    writer: &mut Writer<S>,
    pairs: impl IntoIterator<Item = (&'a [u8], &'a [u8])>,
) {
    let mut listpack = ListpackBuilder::new();
    for (field, value) in pairs {
        listpack.push(field);
        listpack.push(value);
    }
    writer.byte(RdbType::HashListpack as u8);
    writer.text(listpack.finish());
}

/// Builder of the bytes after the type of a small sorted set, in ascending order of scores.
#[derive(Default)]
pub struct ScoreListpack {
    listpack: ListpackBuilder,
    text: Vec<u8>,
}

impl ScoreListpack {
    pub fn push(&mut self, member: Element<'_>, score: f64) {
        self.listpack.add(member);
        let whole = score as i64;
        if score.abs() <= SCORE_INTEGER_MAX && whole as f64 == score {
            self.listpack.push_integer(whole);
        } else {
            self.text.clear();
            isotherm_stdx::push_f64(&mut self.text, score);
            self.listpack.push(&self.text);
        }
    }

    pub fn finish<S: Sink>(mut self, writer: &mut Writer<S>) {
        writer.text(self.listpack.finish());
    }
}

/// Writer of the bytes after the type of a large hash: field by field, with expiries if any field has one
/// (`Hash2`).
#[derive(Clone, Copy)]
pub struct HashWriter {
    expiries: bool,
}

impl HashWriter {
    pub fn begin<S: Sink>(writer: &mut Writer<S>, count: u64, expiries: bool) -> HashWriter {
        writer.length(count);
        HashWriter { expiries }
    }

    /// `expiry_ms` is -1 for never.
    pub fn push<S: Sink>(self, writer: &mut Writer<S>, field: &[u8], value: &[u8], expiry_ms: i64) {
        writer.text(field);
        writer.text(value);
        if self.expiries {
            writer.milliseconds(expiry_ms);
        }
    }
}

/// Parameters that decide where lists are cut into nodes, with Valkey's defaults. Streams have nodes of their
/// own.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// `list-max-listpack-size`
    pub list_size: i32,
}

impl Default for Shape {
    fn default() -> Self {
        Shape { list_size: -2 }
    }
}

/// Writes type and value.
pub fn encode<S: Sink>(writer: &mut Writer<S>, value: &RdbValue, encoding: Encoding, shape: &Shape) {
    match value {
        RdbValue::String(text) => {
            writer.byte(RdbType::String as u8);
            writer.text(text);
        }
        RdbValue::List(texts) => {
            let shape = ListShape::new(shape.list_size, encoding == Encoding::Listpack);
            writer.byte(RdbType::ListQuicklist2 as u8);
            encode_list::list(writer, texts.iter(), &shape);
        }
        RdbValue::Set(members) => encode_set(writer, members, encoding),
        RdbValue::Zset(zset) => encode_zset(writer, zset, encoding),
        RdbValue::Hash { pairs, expiries_ms } => {
            if encoding == Encoding::Listpack && expiries_ms.is_empty() {
                return listpack_pairs(writer, pairs.pairs());
            }
            writer.byte(if expiries_ms.is_empty() { RdbType::Hash } else { RdbType::Hash2 } as u8);
            let hash = HashWriter::begin(writer, pairs.pairs().len() as u64, !expiries_ms.is_empty());
            for (index, (field, value)) in pairs.pairs().enumerate() {
                hash.push(writer, field, value, expiries_ms.get(index).copied().unwrap_or(-1));
            }
        }
        RdbValue::Stream(stream) => {
            writer.byte(RdbType::StreamListpacks3 as u8);
            encode_stream::stream(writer, stream);
        }
    }
}

fn encode_set<S: Sink>(writer: &mut Writer<S>, members: &Texts, encoding: Encoding) {
    match encoding {
        Encoding::Intset => {
            let integer = |member| isotherm_stdx::parse_i64(member).expect("an intset holds integers");
            let mut rising: Vec<i64> = members.iter().map(integer).collect();
            rising.sort_unstable();
            writer.byte(RdbType::SetIntset as u8);
            intset(writer, &rising);
        }
        Encoding::Listpack => listpack_texts(writer, members.iter()),
        Encoding::Plain => {
            writer.byte(RdbType::Set as u8);
            writer.length(members.len() as u64);
            members.iter().for_each(|member| writer.text(member));
        }
    }
}

/// Writes a sorted set in the order of the value; a Valkey server writes a large one from the greatest score
/// down.
fn encode_zset<S: Sink>(writer: &mut Writer<S>, zset: &ZsetMembers, encoding: Encoding) {
    if encoding == Encoding::Listpack {
        writer.byte(RdbType::ZsetListpack as u8);
        let mut listpack = ScoreListpack::default();
        zset.iter().for_each(|(member, score)| listpack.push(Element::Text(member), score));
        return listpack.finish(writer);
    }
    writer.byte(RdbType::Zset2 as u8);
    writer.length(zset.scores.len() as u64);
    for (member, score) in zset.iter() {
        writer.text(member);
        writer.double(score);
    }
}
