//! Values as DUMP writes them. The collections' builders take one element at a time, so that a value need not exist twice.

use super::encode_list::ListWriter;
use super::encode_stream::StreamWriter;
use super::kind::RdbType;
use super::listpack::ListpackBuilder;
use super::value::{Encoding, RdbValue, Texts, ZsetMembers};
use super::write::Writer;

/// Whole numbers up to half of what an i64 holds are kept as integers.
const SCORE_INTEGER_MAX: f64 = (i64::MAX / 2) as f64;

/// `rising` holds each integer once.
pub fn intset(writer: &mut Writer, rising: &[i64]) {
    writer.byte(RdbType::SetIntset as u8);
    writer.text(&super::intset::build(rising));
}

/// A small set: its members in their order.
pub fn listpack_texts<'a>(writer: &mut Writer, members: impl IntoIterator<Item = &'a [u8]>) {
    let mut listpack = ListpackBuilder::new();
    members.into_iter().for_each(|member| listpack.push(member));
    writer.byte(RdbType::SetListpack as u8);
    writer.text(&listpack.finish());
}

/// A small hash.
pub fn listpack_pairs<'a>(writer: &mut Writer, pairs: impl IntoIterator<Item = (&'a [u8], &'a [u8])>) {
    let mut listpack = ListpackBuilder::new();
    for (field, value) in pairs {
        listpack.push(field);
        listpack.push(value);
    }
    writer.byte(RdbType::HashListpack as u8);
    writer.text(&listpack.finish());
}

/// A small sorted set, rising by score.
#[derive(Default)]
pub struct ScoreListpack {
    listpack: ListpackBuilder,
    text: Vec<u8>,
}

impl ScoreListpack {
    pub fn push(&mut self, member: &[u8], score: f64) {
        self.listpack.push(member);
        let whole = score as i64;
        if score.abs() <= SCORE_INTEGER_MAX && whole as f64 == score {
            self.listpack.push_integer(whole);
        } else {
            self.text.clear();
            isotherm_stdx::push_f64(&mut self.text, score);
            self.listpack.push(&self.text);
        }
    }

    pub fn finish(self, writer: &mut Writer) {
        writer.byte(RdbType::ZsetListpack as u8);
        writer.text(&self.listpack.finish());
    }
}

/// A large hash, field by field, with expiries if any field has one.
pub struct HashWriter<'w> {
    writer: &'w mut Writer,
    expiries: bool,
}

impl<'w> HashWriter<'w> {
    pub fn new(writer: &'w mut Writer, count: u64, expiries: bool) -> HashWriter<'w> {
        writer.byte(if expiries { RdbType::Hash2 } else { RdbType::Hash } as u8);
        writer.length(count);
        HashWriter { writer, expiries }
    }

    /// `expiry_ms` is -1 for never.
    pub fn push(&mut self, field: &[u8], value: &[u8], expiry_ms: i64) {
        self.writer.text(field);
        self.writer.text(value);
        if self.expiries {
            self.writer.milliseconds(expiry_ms);
        }
    }
}

/// Where lists are cut into nodes: a parameter, with the field's default. Streams have nodes of their own.
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
pub fn encode(writer: &mut Writer, value: &RdbValue, encoding: Encoding, shape: &Shape) {
    match value {
        RdbValue::String(text) => {
            writer.byte(RdbType::String as u8);
            writer.text(text);
        }
        RdbValue::List(texts) => {
            let mut list = ListWriter::new(writer, shape.list_size, encoding == Encoding::Listpack);
            texts.iter().for_each(|text| list.push(text));
            list.finish();
        }
        RdbValue::Set(members) => encode_set(writer, members, encoding),
        RdbValue::Zset(zset) => encode_zset(writer, zset, encoding),
        RdbValue::Hash { pairs, expiries_ms } => {
            if encoding == Encoding::Listpack && expiries_ms.is_empty() {
                return listpack_pairs(writer, pairs.pairs());
            }
            let mut hash = HashWriter::new(writer, pairs.pairs().len() as u64, !expiries_ms.is_empty());
            for (index, (field, value)) in pairs.pairs().enumerate() {
                hash.push(field, value, expiries_ms.get(index).copied().unwrap_or(-1));
            }
        }
        RdbValue::Stream(stream) => {
            let mut out = StreamWriter::new(writer);
            for (node, entries) in stream.nodes() {
                out.begin_node(entries[0].id, stream.names(node));
                for entry in entries {
                    if entry.shares_names(node) {
                        out.push_values(entry.id, stream.values(entry));
                    } else {
                        out.push_pairs(entry.id, stream.pairs(entry));
                    }
                }
            }
            out.finish(&stream.counters(), &stream.groups);
        }
    }
}

fn encode_set(writer: &mut Writer, members: &Texts, encoding: Encoding) {
    match encoding {
        Encoding::Intset => {
            let integer = |member| isotherm_stdx::parse_i64(member).expect("an intset holds integers");
            let mut rising: Vec<i64> = members.iter().map(integer).collect();
            rising.sort_unstable();
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

/// In the order of the value; a server of the field writes a large one from the greatest score down.
fn encode_zset(writer: &mut Writer, zset: &ZsetMembers, encoding: Encoding) {
    if encoding == Encoding::Listpack {
        let mut listpack = ScoreListpack::default();
        zset.iter().for_each(|(member, score)| listpack.push(member, score));
        return listpack.finish(writer);
    }
    writer.byte(RdbType::Zset2 as u8);
    writer.length(zset.scores.len() as u64);
    for (member, score) in zset.iter() {
        writer.text(member);
        writer.double(score);
    }
}
