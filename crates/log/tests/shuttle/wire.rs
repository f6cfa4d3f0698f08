//! The frames that the models append, and their reader: `SET <number> <padding>`, in MULTI and EXEC or not.

use isotherm_log::{Database, Frame, LogOffset};

/// A frame as the model means it.
#[derive(Clone, Copy)]
pub struct Plan {
    pub database: Database,
    /// The second entry's, if it has one.
    pub then: Option<Database>,
    pub padding: usize,
    /// Bytes of another log, which bring their SELECT.
    pub is_stream: bool,
}

impl Plan {
    pub fn frame(&self, number: u64) -> Frame {
        let mut frame = Frame::default();
        for database in std::iter::once(self.database).chain(self.then) {
            let (number, padding) = (number.to_string(), "x".repeat(self.padding));
            frame.push(database, [&b"SET"[..], number.as_bytes(), padding.as_bytes()].into_iter());
        }
        frame
    }

    pub fn stream(&self, number: u64) -> Vec<u8> {
        let (number, padding) = (number.to_string(), "x".repeat(self.padding));
        ["SELECT", &self.database.to_string()]
            .iter()
            .fold(b"*2\r\n".to_vec(), word)
            .into_iter()
            .chain(["SET", &number, &padding].iter().fold(b"*3\r\n".to_vec(), word))
            .collect()
    }
}

fn word(mut bytes: Vec<u8>, word: &&str) -> Vec<u8> {
    bytes.extend_from_slice(format!("${}\r\n{word}\r\n", word.len()).as_bytes());
    bytes
}

/// The entries of one frame.
pub struct Read {
    pub number: u64,
    pub databases: Vec<Database>,
    pub end: LogOffset,
}

/// Splits a log into frames.
pub struct Frames<'b> {
    bytes: &'b [u8],
    at: usize,
    start: LogOffset,
    /// Selected database, as a replica knows it.
    pub selected: Option<Database>,
}

impl<'b> Frames<'b> {
    pub fn new(bytes: &'b [u8], start: LogOffset) -> Frames<'b> {
        Frames { bytes, at: 0, start, selected: None }
    }

    fn line(&mut self) -> &'b str {
        let rest = &self.bytes[self.at..];
        let len = rest.windows(2).position(|pair| pair == b"\r\n").expect("a whole line");
        self.at += len + 2;
        std::str::from_utf8(&rest[..len]).expect("text")
    }

    fn command(&mut self) -> Vec<&'b str> {
        let words =
            self.line().strip_prefix('*').expect("a command begins").parse::<usize>().expect("a number");
        (0..words)
            .map(|_| {
                let len =
                    self.line().strip_prefix('$').expect("a word begins").parse::<usize>().expect("a number");
                let word = self.line();
                assert_eq!(word.len(), len, "a whole word");
                word
            })
            .collect()
    }
}

impl Iterator for Frames<'_> {
    type Item = Read;

    fn next(&mut self) -> Option<Read> {
        if self.at == self.bytes.len() {
            return None;
        }
        let (mut read, mut is_in_multi) = (Read { number: 0, databases: Vec::new(), end: self.start }, false);
        loop {
            match *self.command() {
                ["MULTI"] => is_in_multi = true,
                ["EXEC"] => break,
                ["SELECT", database] => self.selected = database.parse().ok(),
                ["SET", number, _] => {
                    let number = number.parse().expect("a number");
                    assert!(read.databases.is_empty() || read.number == number, "a frame is contiguous");
                    read.number = number;
                    read.databases.push(self.selected.expect("a SELECT came before"));
                    if !is_in_multi {
                        break;
                    }
                }
                ref other => panic!("{other:?} was not appended"),
            }
        }
        read.end = self.start + self.at as u64;
        Some(read)
    }
}
