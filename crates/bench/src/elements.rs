//! Requests to lists, hashes, sets, sorted sets and streams. One seed sends the same bytes to both servers.
//!
//! Element `index` of collection `key` has the number `index x keys + key`, and its bytes belong to that
//! number: a read asks for what a write has put there, and a new element is a number that was not used.
//!
//! ```text
//! key      key:000000000042, or 32 hexadecimal digits
//! element  Bytes(16)    random bytes        Field    field0, field1, ... within each hash
//!          Digits(28)   hexadecimal text    Integer  a number below a million
//! score    Whole        below a million     Random   a double of 0..1      Rising  milliseconds, 0 to 20 apart
//! ```

use isotherm_probe::command;
use isotherm_stdx::Prng;

use crate::shape::{Commands, named, scramble, stride_through};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    List,
    Hash,
    Set,
    Zset,
    Stream,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Element {
    Bytes(usize),
    Digits(usize),
    Field,
    Integer,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Score {
    Whole,
    Random,
    Rising,
}

/// Collections of one make.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Make {
    pub kind: Kind,
    pub keys: u64,
    /// Elements that each gets before anything is measured.
    pub each: u64,
    pub element: Element,
    /// Bytes of a hash's or stream's value; 1 is the text "1".
    pub value_bytes: usize,
    pub score: Score,
    pub hexadecimal_keys: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Deed {
    /// Elements from the first on, `at_once` a command (RPUSH for lists).
    Fill { at_once: u64 },
    /// New elements, one a command (LPUSH for lists).
    Add,
    /// New values or scores of elements that are there.
    Change,
    /// HGET, SISMEMBER, ZSCORE of elements that are there.
    Read,
    /// RPOP.
    Pop,
    /// ZRANGE 0 99.
    Range,
    /// ZREM of the elements that `goes` names.
    Remove,
}

/// Returns whether an element belongs to the random half that `Deed::Remove` takes.
pub fn goes(number: u64) -> bool {
    scramble(number ^ 0xdead).is_multiple_of(2)
}

/// A stream of commands.
pub struct Deeds {
    make: Make,
    deed: Deed,
    /// Numbers are drawn from `first..first + count`.
    first: u64,
    count: u64,
    next: u64,
    stride: u64,
    prng: Prng,
}

/// XADD names moments, ten entries a millisecond, where the row is about memory: a server's own clock would
/// make the entries of a fast server smaller.
const MOMENT_MS: u64 = 1_700_000_000_000;

impl Deeds {
    pub fn new(make: Make, deed: Deed, seed: u64) -> Deeds {
        let there = make.keys * make.each;
        let (first, count) = match deed {
            Deed::Fill { at_once } => (0, there / at_once),
            Deed::Add => (there, there),
            _ => (0, there),
        };
        Deeds { make, deed, first, count, next: 0, stride: stride_through(count), prng: Prng::new(seed) }
    }

    fn draw(&mut self) -> u64 {
        let next = self.next;
        self.next += 1;
        match self.deed {
            // In order, because moments and scores that only rise do.
            Deed::Fill { .. } => next,
            Deed::Remove => {
                while !goes(self.next - 1) {
                    self.next += 1;
                }
                self.next - 1
            }
            // Each once, in no order: so every collection grows or shrinks alike.
            Deed::Add | Deed::Pop => {
                let mixed = u128::from(next) * u128::from(self.stride) % u128::from(self.count);
                self.first + mixed as u64
            }
            Deed::Change | Deed::Read | Deed::Range => self.prng.below(self.count),
        }
    }

    fn elements(&mut self, number: u64, words: &mut Vec<Vec<u8>>) {
        let Make { kind, keys, each, .. } = self.make;
        let (first, at_once) = match self.deed {
            // Command n fills collection n, or, where there is one only, continues it.
            Deed::Fill { at_once } if at_once == each => (number, at_once),
            Deed::Fill { at_once } => (number % keys + number / keys * at_once * keys, at_once),
            _ => (number, 1),
        };
        words.push(self.key(first % keys));
        for number in (0..at_once).map(|step| first + step * keys) {
            self.element(kind, number, words);
        }
    }

    fn element(&mut self, kind: Kind, number: u64, words: &mut Vec<Vec<u8>>) {
        if kind == Kind::Stream {
            words.push(match self.deed {
                Deed::Fill { .. } => format!("{}-{}", MOMENT_MS + number / 10, number % 10).into_bytes(),
                _ => b"*".to_vec(),
            });
            for name in [&b"field1"[..], b"field2"] {
                words.extend([name.to_vec(), self.value()]);
            }
            return;
        }
        let has_more = matches!(self.deed, Deed::Fill { .. } | Deed::Add | Deed::Change);
        if kind == Kind::Zset && has_more {
            words.push(self.score(number));
        }
        words.push(self.name(number));
        if kind == Kind::Hash && has_more {
            words.push(self.value());
        }
    }

    fn key(&self, number: u64) -> Vec<u8> {
        if self.make.hexadecimal_keys {
            return hexadecimal(number, 32);
        }
        named(number).to_vec()
    }

    fn name(&self, number: u64) -> Vec<u8> {
        match self.make.element {
            Element::Bytes(bytes) => noise(number, bytes),
            Element::Digits(digits) => hexadecimal(!number, digits),
            Element::Field => format!("field{}", number / self.make.keys).into_bytes(),
            Element::Integer => (scramble(number) % 1_000_000).to_string().into_bytes(),
        }
    }

    fn value(&mut self) -> Vec<u8> {
        match self.make.value_bytes {
            1 => b"1".to_vec(),
            bytes => noise(self.prng.next_u64(), bytes),
        }
    }

    fn score(&mut self, number: u64) -> Vec<u8> {
        match self.make.score {
            Score::Whole => self.prng.below(1_000_000).to_string().into_bytes(),
            Score::Random => {
                ((self.prng.next_u64() >> 11) as f64 / (1u64 << 53) as f64).to_string().into_bytes()
            }
            Score::Rising => (MOMENT_MS + 10 * number + scramble(number) % 11).to_string().into_bytes(),
        }
    }
}

impl Commands for Deeds {
    fn write(&mut self, out: &mut Vec<u8>) {
        let number = self.draw();
        let mut words = vec![verb(self.make.kind, self.deed).as_bytes().to_vec()];
        match self.deed {
            Deed::Pop => words.push(self.key(number % self.make.keys)),
            Deed::Range => {
                words.extend([self.key(number % self.make.keys), b"0".to_vec(), b"99".to_vec()]);
            }
            _ => self.elements(number, &mut words),
        }
        command(out, words.iter().map(Vec::as_slice));
    }
}

pub fn verb(kind: Kind, deed: Deed) -> &'static str {
    match (kind, deed) {
        (Kind::List, Deed::Fill { .. }) => "RPUSH",
        (Kind::List, Deed::Add) => "LPUSH",
        (Kind::List, Deed::Pop) => "RPOP",
        (Kind::Hash, Deed::Fill { .. } | Deed::Add | Deed::Change) => "HSET",
        (Kind::Hash, Deed::Read) => "HGET",
        (Kind::Set, Deed::Fill { .. } | Deed::Add | Deed::Change) => "SADD",
        (Kind::Set, Deed::Read) => "SISMEMBER",
        (Kind::Zset, Deed::Fill { .. } | Deed::Add | Deed::Change) => "ZADD",
        (Kind::Zset, Deed::Read) => "ZSCORE",
        (Kind::Zset, Deed::Range) => "ZRANGE",
        (Kind::Zset, Deed::Remove) => "ZREM",
        (Kind::Stream, Deed::Fill { .. } | Deed::Add) => "XADD",
        (kind, deed) => unreachable!("no row does {deed:?} to a {kind:?}"),
    }
}

/// Random bytes that belong to `number`.
fn noise(number: u64, bytes: usize) -> Vec<u8> {
    let mut prng = Prng::new(number ^ 0x00c0_11ec_7104);
    let mut noise = Vec::with_capacity(bytes.next_multiple_of(8));
    while noise.len() < bytes {
        noise.extend_from_slice(&prng.next_u64().to_le_bytes());
    }
    noise.truncate(bytes);
    noise
}

fn hexadecimal(number: u64, digits: usize) -> Vec<u8> {
    let digit = |half: u8| char::from_digit(u32::from(half), 16).expect("below 16") as u8;
    let bytes = noise(number, digits.div_ceil(2));
    let mut text: Vec<u8> = bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect();
    text.truncate(digits);
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    const SETS: Make = Make {
        kind: Kind::Set,
        keys: 7,
        each: 5,
        element: Element::Bytes(8),
        value_bytes: 0,
        score: Score::Whole,
        hexadecimal_keys: false,
    };

    fn written(make: Make, deed: Deed, commands: u64) -> Vec<Vec<u8>> {
        let mut deeds = Deeds::new(make, deed, 1);
        let one = |_| {
            let mut out = Vec::new();
            deeds.write(&mut out);
            out
        };
        (0..commands).map(one).collect()
    }

    #[test]
    fn a_fill_in_any_steps_has_the_same_elements_and_reads_ask_for_them() {
        let elements = |deed, commands| -> HashSet<(u64, Vec<u8>)> {
            let mut deeds = Deeds::new(SETS, deed, 1);
            let mut all = HashSet::new();
            for _ in 0..commands {
                let (number, mut words) = (deeds.draw(), Vec::new());
                deeds.elements(number, &mut words);
                all.extend(words[1..].iter().map(|word| (number % 7, word.clone())));
            }
            all
        };
        let filled = elements(Deed::Fill { at_once: 5 }, 7);
        assert_eq!(filled.len(), 35);
        assert_eq!(elements(Deed::Fill { at_once: 1 }, 35), filled);
        assert!(elements(Deed::Read, 100).is_subset(&filled));
        let added = elements(Deed::Add, 35);
        assert_eq!((added.len(), added.is_disjoint(&filled)), (35, true));
    }

    #[test]
    fn writes_what_a_client_would() {
        let zsets = Make { kind: Kind::Zset, element: Element::Field, ..SETS };
        let range = b"*4\r\n$6\r\nZRANGE\r\n$16\r\nkey:";
        assert!(written(zsets, Deed::Range, 1)[0].starts_with(range));
        let hashes = Make { kind: Kind::Hash, element: Element::Field, value_bytes: 1, ..SETS };
        assert_eq!(
            written(hashes, Deed::Fill { at_once: 1 }, 8)[7],
            b"*4\r\n$4\r\nHSET\r\n$16\r\nkey:000000000000\r\n$6\r\nfield1\r\n$1\r\n1\r\n"
        );
        let half = (0..35).filter(|number| goes(*number)).count() as u64;
        let gone: HashSet<_> = written(zsets, Deed::Remove, half).into_iter().collect();
        assert_eq!(gone.len() as u64, half);
    }
}
