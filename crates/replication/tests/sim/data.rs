//! The data of a node: the writes it has applied, its history, and the end of the log.

use isotherm_log::LogOffset;
use isotherm_replication::{History, ReplId};
use std::collections::HashMap;

/// A write, as the log has it.
pub fn write_frame(number: u64) -> Vec<u8> {
    let number = number.to_string();
    format!("*2\r\n$1\r\nW\r\n${}\r\n{number}\r\n", number.len()).into_bytes()
}

/// An entry of the log that changes nothing.
pub const PING: &[u8] = b"*1\r\n$4\r\nPING\r\n";

/// A command at the start of `bytes`, and its length. None if it is not complete.
pub fn parse(bytes: &[u8]) -> Option<(Vec<Vec<u8>>, usize)> {
    let mut at = 0;
    let line = |at: &mut usize| {
        let end = *at + bytes[*at..].windows(2).position(|two| two == b"\r\n")?;
        let text = std::str::from_utf8(&bytes[*at..end]).expect("digits");
        *at = end + 2;
        Some(text)
    };
    let count: usize = line(&mut at)?.strip_prefix('*').expect("a command").parse().expect("a count");
    let mut words = Vec::new();
    for _ in 0..count {
        let len: usize = line(&mut at)?.strip_prefix('$').expect("a word").parse().expect("a length");
        words.push(bytes.get(at..at + len)?.to_vec());
        bytes.get(at + len..at + len + 2)?;
        at += len + 2;
    }
    Some((words, at))
}

#[derive(Clone)]
pub struct Data {
    pub history: History,
    pub writes: Vec<u64>,
    /// The place at which the rest of the log begins.
    first: LogOffset,
    log: Vec<u8>,
}

impl Data {
    pub fn new(id: ReplId) -> Data {
        Data { history: History::new(id), writes: Vec::new(), first: LogOffset(0), log: Vec::new() }
    }

    pub fn first(&self) -> LogOffset {
        self.first
    }

    pub fn end(&self) -> LogOffset {
        self.first + self.log.len() as u64
    }

    /// Appends an entry, and makes its change.
    pub fn apply(&mut self, entry: &[u8]) {
        let (words, len) = parse(entry).expect("an entry is whole");
        assert_eq!(len, entry.len(), "one entry");
        if words[0] == b"W" {
            self.writes.push(std::str::from_utf8(&words[1]).unwrap().parse().unwrap());
        }
        self.log.extend_from_slice(entry);
    }

    pub fn read(&self, from: LogOffset, bytes_max: usize) -> Option<&[u8]> {
        let from = from.0.checked_sub(self.first.0)? as usize;
        let rest = self.log.get(from..)?;
        Some(&rest[..rest.len().min(bytes_max)])
    }

    /// Forgets the oldest of the log: the backlog is bounded.
    pub fn trim(&mut self, bytes_max: usize) {
        let gone = self.log.len().saturating_sub(bytes_max);
        self.log.drain(..gone);
        self.first = self.first + gone as u64;
    }

    /// As a snapshot has it.
    pub fn encode(&self) -> Vec<u8> {
        self.writes.iter().flat_map(|number| number.to_le_bytes()).collect()
    }

    /// A snapshot was loaded.
    pub fn replace(&mut self, id: ReplId, end: LogOffset, snapshot: &[u8]) {
        assert!(snapshot.len().is_multiple_of(8), "a snapshot is whole");
        let numbers = snapshot.chunks(8).map(|bytes| u64::from_le_bytes(bytes.try_into().unwrap()));
        *self = Data { history: History::new(id), writes: numbers.collect(), first: end, log: Vec::new() };
    }

    fn digest(&self) -> u64 {
        self.writes.iter().fold(0xcbf2_9ce4_8422_2325, |sum: u64, number| {
            (sum ^ number).wrapping_mul(0x100_0000_01b3).rotate_left(5)
        })
    }
}

/// The meaning of each name and offset so far, on any node.
#[derive(Default)]
pub struct Meanings(HashMap<([u8; ReplId::LEN], u64), u64>);

impl Meanings {
    pub fn note(&mut self, data: &Data) {
        let place = (*data.history.id().as_bytes(), data.end().0);
        let digest = data.digest();
        let before = *self.0.entry(place).or_insert(digest);
        assert_eq!(before, digest, "two states at {} of {}", place.1, data.history.id());
    }
}
