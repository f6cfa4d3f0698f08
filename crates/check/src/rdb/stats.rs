//! The figures of `--stats`: keys, elements and their sizes, of each database and type.
//!
//! ```text
//! [info] db.0.type.string.keys.total:10        info
//! db.0.type.name    string  list  set ...      table, a column a type
//! db.0.type.name,string,list,set ...           csv
//! ```

use isotherm_persist::rdb::RdbValue;
use isotherm_persist::rdb::file::{Piece, PieceValue};
use isotherm_stdx::float::push_f64_digits;
use std::collections::BTreeMap;

use super::histogram::Histogram;
use crate::{Checked, Report};

/// Types in Valkey's order.
const TYPES: [&str; 7] = ["string", "list", "set", "zset", "hash", "module", "stream"];
const ELEMENTS_MAX: u64 = 200 * 1024;
const ELEMENT_BYTES_MAX: u64 = 1 << 20;
/// No server has more databases; each one that is shown takes 18 lines.
const DATABASES_MAX: u64 = 1 << 16;

const FIELDS: [&str; 18] = [
    "type.name",
    "keys.total",
    "expire_keys.total",
    "already_expired.total",
    "keys.size",
    "keys.value_size",
    "elements.total",
    "elements.size",
    "elements.num.max",
    "elements.num.avg",
    "elements.num.p99",
    "elements.num.p90",
    "elements.num.p50",
    "elements.size.max",
    "elements.size.avg",
    "elements.size.p99",
    "elements.size.p90",
    "elements.size.p50",
];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    Table,
    Info,
    Csv,
}

/// Statistics of one type in one database.
struct Group {
    keys: u64,
    expires: u64,
    already_expired: u64,
    key_bytes: u64,
    elements: u64,
    element_bytes: u64,
    elements_max: u64,
    element_bytes_max: u64,
    counts: Histogram,
    sizes: Histogram,
}

pub struct Stats {
    is_wanted: bool,
    groups: BTreeMap<(u64, usize), Group>,
    /// Elements of the current key so far.
    elements: u64,
}

impl Stats {
    pub fn new(is_wanted: bool) -> Stats {
        Stats { is_wanted, groups: BTreeMap::new(), elements: 0 }
    }

    pub fn note(&mut self, piece: &Piece<'_>, now_ms: i64) {
        if !self.is_wanted || piece.key.db >= DATABASES_MAX {
            return;
        }
        let group = self.groups.entry((piece.key.db, type_of(&piece.value))).or_insert_with(Group::new);
        if piece.is_first {
            self.elements = 0;
            group.keys += 1;
            group.key_bytes += piece.key.name.len() as u64;
            group.expires += u64::from(piece.key.expiry_ms.is_some());
            group.already_expired += u64::from(piece.key.expiry_ms.is_some_and(|expiry| expiry < now_ms));
        }
        self.elements += group.note_elements(&piece.value);
        if piece.is_last {
            group.elements += self.elements;
            group.elements_max = group.elements_max.max(self.elements);
            group.counts.record(self.elements);
        }
    }

    pub fn show(&self, report: &mut Report<'_>, format: Format) -> Checked<()> {
        let databases = self.groups.last_key_value().map_or(0, |((db, _), _)| *db);
        let none = Group::new();
        for db in 0..=databases {
            for (index, field) in FIELDS.iter().enumerate() {
                let values = TYPES.iter().enumerate().map(|(number, name)| {
                    let group = self.groups.get(&(db, number)).unwrap_or(&none);
                    (name, group.show(index, name))
                });
                match format {
                    Format::Info if index == 0 => {}
                    Format::Info => {
                        for (name, value) in values {
                            report.line(format!("[info] db.{db}.type.{name}.{field}:{value}"))?;
                        }
                    }
                    Format::Table => {
                        let columns: String = values.map(|(_, value)| format!("\t{value:<5}")).collect();
                        report.line(format!("{:<30}{columns}", format!("db.{db}.{field}")))?;
                    }
                    Format::Csv => {
                        let columns: String = values.map(|(_, value)| format!(",{value}")).collect();
                        report.line(format!("db.{db}.{field}{columns}"))?;
                    }
                }
            }
        }
        Ok(())
    }
}

fn type_of(value: &PieceValue<'_>) -> usize {
    match value {
        PieceValue::Text(_) | PieceValue::Collection(RdbValue::String(_)) => 0,
        PieceValue::Collection(RdbValue::List(_)) => 1,
        PieceValue::Collection(RdbValue::Set(_)) => 2,
        PieceValue::Collection(RdbValue::Zset(_)) => 3,
        PieceValue::Collection(RdbValue::Hash { .. }) => 4,
        PieceValue::Collection(RdbValue::Stream(_)) => 6,
    }
}

impl Group {
    fn new() -> Group {
        Group {
            keys: 0,
            expires: 0,
            already_expired: 0,
            key_bytes: 0,
            elements: 0,
            element_bytes: 0,
            elements_max: 0,
            element_bytes_max: 0,
            counts: Histogram::new(ELEMENTS_MAX),
            sizes: Histogram::new(ELEMENT_BYTES_MAX),
        }
    }

    /// Notes the sizes of a piece's elements, and returns how many there are.
    fn note_elements(&mut self, value: &PieceValue<'_>) -> u64 {
        let value = match value {
            PieceValue::Text(text) => return self.note_all([text.len()]),
            PieceValue::Collection(value) => value,
        };
        match value {
            RdbValue::String(text) => self.note_all([text.len()]),
            RdbValue::List(texts) | RdbValue::Set(texts) => self.note_all(texts.iter().map(<[u8]>::len)),
            RdbValue::Zset(zset) => {
                let mut text = Vec::new();
                self.note_all(zset.iter().map(|(member, score)| {
                    text.clear();
                    push_f64_digits(&mut text, score);
                    member.len() + text.len()
                }))
            }
            RdbValue::Hash { pairs, .. } => {
                self.note_all(pairs.pairs().map(|(field, value)| field.len() + value.len()))
            }
            // An element is an entry; a size is that of a field with its value.
            RdbValue::Stream(stream) => {
                for entry in stream.entries() {
                    self.note_all(stream.pairs(entry).map(|(name, value)| name.len() + value.len()));
                }
                stream.len() as u64
            }
        }
    }

    fn note_all(&mut self, sizes: impl IntoIterator<Item = usize>) -> u64 {
        let mut count = 0;
        for size in sizes {
            let size = size as u64;
            count += 1;
            self.element_bytes += size;
            self.element_bytes_max = self.element_bytes_max.max(size);
            self.sizes.record(size);
        }
        count
    }

    /// The field of this index.
    fn show(&self, field: usize, name: &str) -> String {
        // Valkey computes averages with 24 bits.
        let average = |sum: u64, count: u64| match count {
            0 => 0.0,
            count => f64::from(sum as f32 / count as f32),
        };
        match field {
            0 => name.to_string(),
            1 => self.keys.to_string(),
            2 => self.expires.to_string(),
            3 => self.already_expired.to_string(),
            4 => self.key_bytes.to_string(),
            5 | 7 => self.element_bytes.to_string(),
            6 => self.elements.to_string(),
            8 => self.elements_max.to_string(),
            9 => format!("{:.2}", average(self.elements, self.keys)),
            10 => format!("{:.2}", self.counts.percentile(99.0) as f32),
            11 => format!("{:.2}", self.counts.percentile(90.0) as f32),
            12 => format!("{:.2}", self.counts.percentile(50.0) as f32),
            13 => self.element_bytes_max.to_string(),
            14 => format!("{:.2}", average(self.element_bytes, self.elements)),
            15 => format!("{:.2}", self.sizes.percentile(99.0) as f32),
            16 => format!("{:.2}", self.sizes.percentile(90.0) as f32),
            _ => format!("{:.2}", self.sizes.percentile(50.0) as f32),
        }
    }
}
