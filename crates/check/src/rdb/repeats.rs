//! Elements that a collection has twice, of those that come element by element.
//!
//! The check keeps 16 B of each element, two sums with keys that are drawn at start: equal ones are equal
//! elements but for a chance of n^2 / 2^129, and no file can be made to have two. Packed collections were
//! checked where they were parsed.

use isotherm_persist::rdb::RdbValue;
use isotherm_persist::rdb::file::{Piece, PieceValue};
use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};

#[derive(Default)]
pub struct Repeats {
    keys: [RandomState; 2],
    seen: HashSet<u128>,
}

impl Repeats {
    /// Valkey's text for an element of this piece, or of one before it of the same key, that was there
    /// before.
    pub fn find(&mut self, piece: &Piece<'_>) -> Option<&'static str> {
        let PieceValue::Collection(value) = piece.value else { return None };
        // A packed one counts as one whole.
        if piece.is_first && piece.is_last && piece.total == 1 {
            return None;
        }
        if piece.is_first {
            self.seen = HashSet::new();
        }
        let (mut texts, text): (Box<dyn Iterator<Item = &[u8]>>, _) = match value {
            RdbValue::Set(members) => (Box::new(members.iter()), "Duplicate set members detected"),
            RdbValue::Zset(zset) => (Box::new(zset.members.iter()), "Duplicate zset fields detected"),
            RdbValue::Hash { pairs, .. } => {
                (Box::new(pairs.pairs().map(|(field, _)| field)), "Duplicate hash fields detected")
            }
            RdbValue::String(_) | RdbValue::List(_) | RdbValue::Stream(_) => return None,
        };
        texts.any(|text| !self.insert(text)).then_some(text)
    }

    fn insert(&mut self, text: &[u8]) -> bool {
        let [high, low] = self.keys.each_ref().map(|key| u128::from(key.hash_one(text)));
        self.seen.insert(high << 64 | low)
    }
}
