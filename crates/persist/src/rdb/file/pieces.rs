//! A collection that comes element by element: read in pieces, and each piece is a value of its own.
//!
//! ```text
//! [count] unit unit unit ...        unit: an element, a pair, a node of a list or a stream
//!         |------|------|---        a piece ends behind `PIECE_BYTES`, or with the collection
//! ```
//! A unit whose bytes are not all there leaves no trace. After the nodes of a stream its counters and groups
//! are one unit.

use super::super::decode;
use super::super::decode_stream;
use super::super::kind::RdbType;
use super::super::read::{RdbError, Reader, Result};
use super::super::value::{RdbStream, RdbValue, Texts, ZsetMembers};

/// Memory of the part of a collection that is handed out at once.
const PIECE_BYTES: usize = 64 << 10;
/// Memory of a text besides its own bytes: the place where it ends.
const TEXT_BYTES: usize = size_of::<usize>();

pub(super) struct Pieces {
    kind: RdbType,
    /// Units that are still to come.
    left: u64,
    /// Elements, as far as the count says so; nodes of lists and streams.
    pub total: u64,
    pub is_first: bool,
    /// Smallest expiry of a hash whose expiries are relative to it.
    smallest_ms: i64,
    tail_is_read: bool,
    pub value: RdbValue,
}

/// Returns whether the value is read in pieces, not from one string and not as a whole at once.
pub(super) fn comes_in_pieces(kind: RdbType) -> bool {
    use RdbType::*;
    match kind {
        List | Set | Zset | Zset2 | Hash | Hash2 | ForeignHashExpiry | ListQuicklist | ListQuicklist2
        | StreamListpacks | StreamListpacks2 | StreamListpacks3 => true,
        String
        | ModulePreGa
        | Module2
        | HashZipmap
        | ListZiplist
        | SetIntset
        | ZsetZiplist
        | HashZiplist
        | HashListpack
        | ZsetListpack
        | SetListpack
        | ForeignHashListpackExpiry => false,
    }
}

impl Pieces {
    /// Reads what stands in front of the first unit.
    pub fn begin(kind: RdbType, reader: &mut Reader<'_>) -> Result<Pieces> {
        use RdbType::*;
        let smallest_ms = match kind {
            ForeignHashExpiry => decode::checked_expiry(reader.milliseconds()?)?,
            _ => 0,
        };
        let total = reader.number()?;
        let value = match kind {
            List | ListQuicklist | ListQuicklist2 => RdbValue::List(Texts::default()),
            Set => RdbValue::Set(Texts::default()),
            Zset | Zset2 => RdbValue::Zset(ZsetMembers::default()),
            Hash | Hash2 | ForeignHashExpiry => {
                RdbValue::Hash { pairs: Texts::default(), expiries_ms: Vec::new() }
            }
            _ => RdbValue::Stream(Box::default()),
        };
        Ok(Pieces { kind, left: total, total, is_first: true, smallest_ms, tail_is_read: false, value })
    }

    /// Returns about how many bytes of memory the piece takes.
    fn piece_bytes(&self) -> usize {
        let of = |texts: &Texts| texts.bytes() + TEXT_BYTES * texts.len();
        match &self.value {
            RdbValue::String(_) => 0,
            RdbValue::List(texts) | RdbValue::Set(texts) => of(texts),
            RdbValue::Zset(zset) => of(&zset.members) + TEXT_BYTES * zset.scores.len(),
            RdbValue::Hash { pairs, expiries_ms } => of(pairs) + TEXT_BYTES * expiries_ms.len(),
            RdbValue::Stream(stream) => {
                of(&stream.names) + of(&stream.values) + size_of_val(stream.entries.as_slice())
            }
        }
    }

    pub fn is_last(&self) -> bool {
        self.left == 0 && (self.tail_is_read || !matches!(self.value, RdbValue::Stream(_)))
    }

    /// The value is over and had no elements: counts of zero, or nodes without any. A stream may be empty.
    pub fn is_empty(&self) -> bool {
        let has_none = match &self.value {
            RdbValue::String(_) | RdbValue::Stream(_) => false,
            RdbValue::List(texts) | RdbValue::Set(texts) => texts.is_empty(),
            RdbValue::Zset(zset) => zset.members.is_empty(),
            RdbValue::Hash { pairs, .. } => pairs.is_empty(),
        };
        has_none && self.is_first && self.is_last()
    }

    /// Reads one unit. True if the piece is to be handed out.
    pub fn read_unit(&mut self, reader: &mut Reader<'_>) -> Result<bool> {
        if self.left > 0 {
            self.unit(reader)?;
            self.left -= 1;
        } else if let (RdbValue::Stream(stream), false) = (&mut self.value, self.tail_is_read) {
            decode_stream::tail(reader, generation(self.kind), stream)?;
            self.tail_is_read = true;
        }
        Ok(self.is_last() || self.piece_bytes() >= PIECE_BYTES)
    }

    fn unit(&mut self, reader: &mut Reader<'_>) -> Result<()> {
        use RdbType::*;
        let (kind, smallest_ms) = (self.kind, self.smallest_ms);
        match &mut self.value {
            RdbValue::List(texts) if kind == ListQuicklist => decode::quicklist_node(reader, texts),
            RdbValue::List(texts) if kind == ListQuicklist2 => decode::quicklist2_node(reader, texts),
            RdbValue::List(texts) | RdbValue::Set(texts) => push_text(reader, texts),
            RdbValue::Zset(zset) => {
                let len = zset.members.len();
                push_text(reader, &mut zset.members)?;
                let score = if kind == Zset { decode::score_text(reader) } else { reader.double() };
                match score {
                    Ok(score) if score.is_nan() => Err(RdbError::Corrupt("a score that is not a number")),
                    Ok(score) => {
                        zset.scores.push(score);
                        Ok(())
                    }
                    Err(error) => {
                        zset.members.truncate(len);
                        Err(error)
                    }
                }
            }
            RdbValue::Hash { pairs, expiries_ms } => {
                let len = pairs.len();
                let read = pair(reader, kind, smallest_ms, pairs);
                match read {
                    Ok(Some(expiry_ms)) => expiries_ms.push(expiry_ms),
                    Ok(None) => {}
                    Err(error) => {
                        pairs.truncate(len);
                        return Err(error);
                    }
                }
                Ok(())
            }
            RdbValue::Stream(stream) => decode_stream::keyed_node(reader, stream),
            RdbValue::String(_) => unreachable!("a string comes whole"),
        }
    }

    /// The piece was handed out: the next one begins.
    pub fn begin_next(&mut self) {
        self.is_first = false;
        match &mut self.value {
            RdbValue::String(_) => {}
            RdbValue::List(texts) | RdbValue::Set(texts) => texts.truncate(0),
            RdbValue::Zset(zset) => {
                zset.members.truncate(0);
                zset.scores.clear();
            }
            RdbValue::Hash { pairs, expiries_ms } => {
                pairs.truncate(0);
                expiries_ms.clear();
            }
            RdbValue::Stream(stream) => RdbStream::begin_piece(stream),
        }
    }
}

fn generation(kind: RdbType) -> u8 {
    match kind {
        RdbType::StreamListpacks => 1,
        RdbType::StreamListpacks2 => 2,
        _ => 3,
    }
}

fn push_text(reader: &mut Reader<'_>, texts: &mut Texts) -> Result<()> {
    let len = texts.len();
    let read = texts.push_with(|bytes| reader.text_into(bytes));
    if read.is_err() {
        texts.truncate(len);
    }
    read
}

/// A field, its value and its expiry, if the type has one.
fn pair(reader: &mut Reader<'_>, kind: RdbType, smallest_ms: i64, pairs: &mut Texts) -> Result<Option<i64>> {
    let before = match kind {
        RdbType::ForeignHashExpiry => Some(decode::relative_expiry(reader.number()?, smallest_ms)?),
        _ => None,
    };
    push_text(reader, pairs)?;
    push_text(reader, pairs)?;
    match kind {
        RdbType::Hash2 => Ok(Some(decode::checked_expiry(reader.milliseconds()?)?)),
        _ => Ok(before),
    }
}
