//! Counts of error replies by their first word, of all threads. Scripts choose words, so the number of words
//! is limited: others count together, as Valkey has it.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Words that have counts of their own.
const WORDS_MAX: usize = 128;
/// Word under which all others are counted.
const OVERFLOW: &[u8] = b"ERRORSTATS_OVERFLOW";

#[derive(Default)]
pub struct ErrorCounts(Mutex<BTreeMap<Box<[u8]>, u64>>);

impl ErrorCounts {
    pub fn add(&self, word: &[u8]) {
        let mut counts = self.counts();
        if let Some(count) = counts.get_mut(word) {
            *count += 1;
            return;
        }
        let word = if counts.len() < WORDS_MAX { word } else { OVERFLOW };
        *counts.entry(word.into()).or_default() += 1;
    }

    pub fn all(&self) -> BTreeMap<Box<[u8]>, u64> {
        self.counts().clone()
    }

    pub fn clear(&self) {
        self.counts().clear();
    }

    fn counts(&self) -> MutexGuard<'_, BTreeMap<Box<[u8]>, u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_bounded_and_freed() {
        let counts = ErrorCounts::default();
        for round in 0..2 {
            for number in 0..200 {
                counts.add(format!("E{number}").as_bytes());
            }
            let all = counts.all();
            assert_eq!(all.len(), WORDS_MAX + 1);
            assert_eq!(all[OVERFLOW], (round + 1) * 72);
        }
        counts.clear();
        counts.add(b"ERR");
        assert_eq!(counts.all().into_iter().collect::<Vec<_>>(), [((*b"ERR").into(), 1)]);
    }
}
