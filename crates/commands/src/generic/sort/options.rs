//! The arguments of SORT: order, limit, patterns, where to.

use crate::call::is_word;
use isotherm_resp::{Args, errors};
use isotherm_stdx::{Slot, parse_i64};
use std::ops::Range;

pub struct Options<'a> {
    pub descending: bool,
    /// Order as text, not as numbers.
    pub alpha: bool,
    /// A BY without an asterisk: the elements stay as they are.
    pub keeps_order: bool,
    pub by: Option<&'a [u8]>,
    pub gets: Vec<&'a [u8]>,
    /// The argument that is the key to store under.
    pub store: Option<usize>,
    start: i64,
    /// Negative for all.
    count: i64,
}

impl<'a> Options<'a> {
    /// Returns whether a pattern names a field of hashes.
    pub fn reads_fields(&self) -> bool {
        let names_field = |pattern: &&[u8]| pattern.windows(2).any(|pair| pair == b"->");
        self.by.iter().chain(&self.gets).any(names_field)
    }

    /// A member of a cluster reads only keys that lie in the slot of the one that is sorted: a pattern has to
    /// show that they do.
    pub fn check_slots(&self, args: Args<'a>) -> Result<(), &'static str> {
        let slot = Slot::of_key(args.get(1));
        let leaves = |pattern: &[u8]| super::pattern::slot(pattern) != Some(slot);
        match () {
            () if self.by.is_some_and(|by| super::pattern::asterisk(by).is_some() && leaves(by)) => {
                Err("ERR BY option of SORT denied in Cluster mode when keys formed by the pattern may be in \
                     different slots.")
            }
            () if self.gets.iter().any(|get| *get != b"#" && leaves(get)) => Err(
                "ERR GET option of SORT denied in Cluster mode when keys formed by the pattern may be in \
                     different slots.",
            ),
            () => Ok(()),
        }
    }

    /// Returns an error if the patterns read keys and the user may not read every key: the request does not
    /// name the keys that a pattern reads.
    pub fn check_rights(&self, may_read_all: bool) -> Result<(), &'static str> {
        match () {
            () if may_read_all => Ok(()),
            () if self.by.is_some_and(|by| super::pattern::asterisk(by).is_some()) => {
                Err("ERR BY option of SORT denied due to insufficient ACL permissions.")
            }
            () if !self.gets.is_empty() => {
                Err("ERR GET option of SORT denied due to insufficient ACL permissions.")
            }
            () => Ok(()),
        }
    }

    pub fn read(args: Args<'a>, may_store: bool) -> Result<Options<'a>, &'static str> {
        let mut options = Options {
            descending: false,
            alpha: false,
            keeps_order: false,
            by: None,
            gets: Vec::new(),
            store: None,
            start: 0,
            count: -1,
        };
        let mut at = 2;
        while at < args.len() {
            at += 1 + options.read_one(args, at, may_store)?;
        }
        Ok(options)
    }

    /// Reads the option at `at`; how many arguments of its own it has.
    fn read_one(&mut self, args: Args<'a>, at: usize, may_store: bool) -> Result<usize, &'static str> {
        let (word, behind) = (args.get(at), args.len() - at - 1);
        let number = |at| parse_i64(args.get(at)).ok_or(errors::NOT_AN_INTEGER);
        match () {
            _ if is_word(word, "ASC") => self.descending = false,
            _ if is_word(word, "DESC") => self.descending = true,
            _ if is_word(word, "ALPHA") => self.alpha = true,
            _ if is_word(word, "LIMIT") && behind >= 2 => {
                (self.start, self.count) = (number(at + 1)?, number(at + 2)?);
                return Ok(2);
            }
            _ if is_word(word, "STORE") && behind >= 1 && may_store => {
                self.store = Some(at + 1);
                return Ok(1);
            }
            _ if is_word(word, "BY") && behind >= 1 => {
                self.by = Some(args.get(at + 1));
                self.keeps_order |= super::pattern::asterisk(args.get(at + 1)).is_none();
                return Ok(1);
            }
            _ if is_word(word, "GET") && behind >= 1 => {
                self.gets.push(args.get(at + 1));
                return Ok(1);
            }
            _ => return Err(errors::SYNTAX),
        }
        Ok(0)
    }

    /// The part of `len` elements that LIMIT leaves.
    pub fn range(&self, len: usize) -> Range<usize> {
        let start = usize::try_from(self.start.max(0)).unwrap_or(usize::MAX).min(len);
        let count = usize::try_from(self.count).unwrap_or(len);
        start..start.saturating_add(count).min(len)
    }
}

// COMPAT(keys): The key that SORT writes is the one after the last option STORE, for rights and slots too.
// Valkey's key finder also takes the value of a STORE for an option: of `SORT a STORE by STORE b` it finds
// `by`, and the command writes `b`. Why: rights and slots are those of the key that is written.
/// Returns the argument after the last STORE: options are read as `Options::read` does.
pub fn store_position(args: Args<'_>) -> Option<usize> {
    let mut found = None;
    let mut at = 2;
    while at < args.len() {
        let word = args.get(at);
        let own = match () {
            _ if is_word(word, "LIMIT") => 2,
            _ if is_word(word, "STORE") && at + 1 < args.len() => {
                found = Some(at + 1);
                1
            }
            _ if is_word(word, "GET") || is_word(word, "BY") => 1,
            _ => 0,
        };
        at += 1 + own;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_resp::ArgsBuf;

    #[test]
    fn the_key_that_is_written_is_the_one_that_is_asked_about() {
        let check = |words: &[&str], store: Option<usize>| {
            let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
            let args = ArgsBuf::from_slices(&words);
            assert_eq!(store_position(args.args()), store, "{words:?}");
            let options = Options::read(args.args(), true).expect("a sentence of SORT");
            assert_eq!(options.store, store, "{words:?}");
        };
        check(&["SORT", "a", "STORE", "by", "STORE", "b"], Some(5));
        check(&["SORT", "a", "STORE", "get", "GET", "STORE"], Some(3));
        check(&["SORT", "a", "BY", "store", "GET", "store"], None);
        check(&["SORT", "a", "LIMIT", "0", "1", "STORE", "limit", "ALPHA", "DESC", "STORE", "b"], Some(10));
    }

    #[test]
    fn limits() {
        let range = |start, count, len| {
            let args = ArgsBuf::from_slices(&[b"SORT", b"k"]);
            let options = Options::read(args.args(), true).expect("nothing is said");
            Options { start, count, ..options }.range(len)
        };
        assert_eq!(range(0, -1, 5), 0..5);
        assert_eq!(range(2, 2, 5), 2..4);
        assert_eq!(range(-3, 2, 5), 0..2);
        assert_eq!(range(4, i64::MAX, 5), 4..5);
        assert_eq!(range(i64::MAX, 1, 5), 5..5);
        assert_eq!(range(1, i64::MIN, 5), 1..5);
        assert_eq!(range(0, 0, 5), 0..0);
        assert_eq!(range(0, -1, 0), 0..0);
    }
}
