//! One client: what it writes under each number, and which of its numbers were answered when.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use isotherm_probe::{Client, command};
use isotherm_resp::reply_parse::Value;

use crate::Fallible;

/// Commands that are written for every number whose remainder, divided by the number of kinds, is the `index`
/// of this kind.
pub struct Kind {
    /// A single command, or the commands of a transaction. `{c}` is the client, `{n}` the number, and `{w}`
    /// the number with enough leading zeros that it may leave memory.
    pub writes: &'static [&'static str],
    /// Requests that read the written values afterwards.
    pub reads: &'static [(&'static str, Shows)],
}

/// Meaning of the number that a read returns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shows {
    /// The last number of the kind that is there.
    Last,
    /// Count of the numbers of this kind that are present.
    Count,
}

use Shows::{Count, Last};

pub const KINDS: [Kind; 12] = [
    Kind { writes: &["SET {c}:string {n}"], reads: &[("GET {c}:string", Last)] },
    Kind { writes: &["SET {c}:timed {w} PX 100000000"], reads: &[("GET {c}:timed", Last)] },
    Kind { writes: &["HSET {c}:hash last {n} f{n} x"], reads: &[("HGET {c}:hash last", Last)] },
    Kind { writes: &["HSETEX {c}:timed-f EX 90000 FIELDS 1 f {n}"], reads: &[("HGET {c}:timed-f f", Last)] },
    Kind {
        writes: &["RPUSH {c}:list {n}"],
        reads: &[("LLEN {c}:list", Count), ("LINDEX {c}:list -1", Last)],
    },
    Kind { writes: &["SADD {c}:set {n}"], reads: &[("SCARD {c}:set", Count)] },
    Kind {
        writes: &["ZADD {c}:zset {n} {n}"],
        reads: &[("ZCARD {c}:zset", Count), ("ZRANGE {c}:zset -1 -1", Last)],
    },
    Kind { writes: &["XADD {c}:stream {n}-0 field value"], reads: &[("XLEN {c}:stream", Count)] },
    Kind { writes: &["APPEND {c}:text x"], reads: &[("STRLEN {c}:text", Count)] },
    Kind { writes: &["INCR {c}:number"], reads: &[("GET {c}:number", Count)] },
    Kind { writes: &["SETBIT {c}:bits {n} 1"], reads: &[("BITCOUNT {c}:bits", Count)] },
    // Keys of several slots.
    Kind {
        writes: &["SET {c}:one {n}", "SET {c}:two {w}", "RPUSH {c}:three {n}", "INCR {c}:four"],
        reads: &[
            ("GET {c}:one", Last),
            ("GET {c}:two", Last),
            ("LLEN {c}:three", Count),
            ("GET {c}:four", Count),
        ],
    },
];

/// Returns how many of the numbers up to `number` are of this kind. Numbers begin with 1.
pub fn count_up_to(number: u64, kind: usize) -> u64 {
    let (kinds, kind) = (KINDS.len() as u64, kind as u64);
    number / kinds + u64::from(kind != 0 && number % kinds >= kind)
}

/// The last number of a kind if there are `count` numbers; 0 if there is none.
pub fn last_of(count: u64, kind: usize) -> u64 {
    let (kinds, kind) = (KINDS.len() as u64, kind as u64);
    match (count, kind) {
        (0, _) => 0,
        (count, 0) => count * kinds,
        (count, kind) => (count - 1) * kinds + kind,
    }
}

/// The request that a template stands for.
pub fn request(out: &mut Vec<u8>, template: &str, client: usize, number: u64) {
    let fill = |word: &str| {
        let wide = format!("{number:080}");
        word.replace("{c}", &format!("c{client}"))
            .replace("{n}", &number.to_string())
            .replace("{w}", &wide)
            .into_bytes()
    };
    let words: Vec<Vec<u8>> = template.split(' ').map(fill).collect();
    command(out, words.iter().map(Vec::as_slice));
}

/// A number, and when it was on its way.
pub struct Sent {
    pub number: u64,
    pub sent: Instant,
    pub answered: Option<Instant>,
}

pub struct Writer {
    pub client: usize,
    /// The last number that was sent.
    pub last: u64,
    /// The newest ones, oldest first; older ones were answered long ago.
    pub recent: VecDeque<Sent>,
    answered: u64,
}

/// Answers as old as this are there under every policy.
const REMEMBERED: Duration = Duration::from_secs(5);

impl Writer {
    pub fn new(client: usize) -> Writer {
        Writer { client, last: 0, recent: VecDeque::new(), answered: 0 }
    }

    /// Writes that were answered, in all.
    pub fn answered(&self) -> u64 {
        self.answered
    }

    /// Continues after this number.
    pub fn go_on_from(&mut self, number: u64) {
        self.last = number;
        self.recent.clear();
    }

    /// Writes until the server is gone.
    pub fn work(&mut self, port: u16) -> Fallible {
        let Ok(mut client) = Client::connect(port) else { return Ok(()) };
        loop {
            let number = self.last + 1;
            let kind = &KINDS[(number % KINDS.len() as u64) as usize];
            let mut out = Vec::new();
            let is_transaction = kind.writes.len() > 1;
            if is_transaction {
                command(&mut out, [b"MULTI".as_slice()].into_iter());
            }
            kind.writes.iter().for_each(|write| request(&mut out, write, self.client, number));
            if is_transaction {
                command(&mut out, [b"EXEC".as_slice()].into_iter());
            }
            self.last = number;
            self.recent.push_back(Sent { number, sent: Instant::now(), answered: None });
            let replies = kind.writes.len() + if is_transaction { 2 } else { 0 };
            if client.send(&out).is_err() {
                return Ok(());
            }
            for _ in 0..replies {
                match client.read() {
                    Ok(Value::Array(replies)) => refuse_errors(&replies)?,
                    Ok(_) => {}
                    // An error reply has its code in front; anything else is the end of the connection.
                    Err(why) if why.starts_with(|first: char| first.is_ascii_uppercase()) => {
                        return Err(format!("{}: {why}", kind.writes[0]));
                    }
                    Err(_) => return Ok(()),
                }
            }
            let now = Instant::now();
            self.recent.back_mut().expect("it was just sent").answered = Some(now);
            self.answered += 1;
            while self.recent.front().is_some_and(|old| now.duration_since(old.sent) > REMEMBERED) {
                self.recent.pop_front();
            }
        }
    }
}

fn refuse_errors(replies: &[Value]) -> Fallible {
    match replies.iter().find(|reply| matches!(reply, Value::Error(_))) {
        Some(error) => Err(format!("EXEC has an error inside: {error:?}")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_and_last_numbers_agree() {
        for kind in 0..KINDS.len() {
            for number in 0..100 {
                let of_kind = (1..=number).filter(|n| n % KINDS.len() as u64 == kind as u64);
                let (count, last) = (of_kind.clone().count() as u64, of_kind.max().unwrap_or(0));
                assert_eq!(count_up_to(number, kind), count, "{kind} up to {number}");
                assert_eq!(last_of(count, kind), last, "{kind} up to {number}");
            }
        }
    }

    #[test]
    fn a_template_is_filled() {
        let mut out = Vec::new();
        request(&mut out, "XADD {c}:s {n}-0", 7, 12);
        assert_eq!(out, b"*3\r\n$4\r\nXADD\r\n$4\r\nc7:s\r\n$4\r\n12-0\r\n");
    }
}
