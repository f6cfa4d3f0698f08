//! The id of an entry: milliseconds and a number within them. Ids only rise.

use isotherm_stdx::number::push_u64;
use isotherm_stdx::parse_u64;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct StreamId {
    pub ms: u64,
    pub seq: u64,
}

impl StreamId {
    pub const MIN: StreamId = StreamId { ms: 0, seq: 0 };
    pub const MAX: StreamId = StreamId { ms: u64::MAX, seq: u64::MAX };

    /// Returns the next id; `None` after the last possible one.
    pub fn next(self) -> Option<StreamId> {
        match self.seq.checked_add(1) {
            Some(seq) => Some(StreamId { seq, ..self }),
            None => Some(StreamId { ms: self.ms.checked_add(1)?, seq: 0 }),
        }
    }

    /// Returns the id before; `None` before the first possible one.
    pub fn previous(self) -> Option<StreamId> {
        match self.seq.checked_sub(1) {
            Some(seq) => Some(StreamId { seq, ..self }),
            None => Some(StreamId { ms: self.ms.checked_sub(1)?, seq: u64::MAX }),
        }
    }

    /// The difference to a lower one, part by part.
    pub(super) fn apart(self, lower: StreamId) -> StreamId {
        StreamId { ms: self.ms - lower.ms, seq: self.seq.wrapping_sub(lower.seq) }
    }

    /// `ms-seq`, or `ms` alone, which leaves the number open.
    pub fn parse(text: &[u8]) -> Option<(u64, Option<u64>)> {
        match text.iter().position(|&byte| byte == b'-') {
            None => Some((parse_u64(text)?, None)),
            Some(at) => Some((parse_u64(&text[..at])?, Some(parse_u64(&text[at + 1..])?))),
        }
    }

    /// `ms-seq`
    pub fn to_text(self) -> Vec<u8> {
        let mut text = Vec::with_capacity(42);
        push_u64(&mut text, self.ms);
        text.push(b'-');
        push_u64(&mut text, self.seq);
        text
    }
}
