//! The latest requests of one client and the replies to them: kept in a ring of fixed size, written out when
//! a run fails.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use isotherm_resp::reply_parse::Value;

/// 200 clients x 400 lines x some 100 B = 8 MB.
const LINES_MAX: usize = 400;
const WORDS_SHOWN: usize = 12;
const BYTES_SHOWN: usize = 48;

pub struct Record {
    pub name: String,
    /// Number of times that the member has done its work.
    done: AtomicU64,
    lines: Mutex<VecDeque<(Duration, String)>>,
}

impl Record {
    pub fn new(name: String) -> Record {
        Record { name, done: AtomicU64::new(0), lines: Mutex::default() }
    }

    pub fn note_done(&self) {
        self.done.fetch_add(1, Ordering::Relaxed);
    }

    pub fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    pub fn note(&self, at: Duration, line: String) {
        let mut lines = self.lines.lock().expect("no thread panics with it");
        if lines.len() == LINES_MAX {
            lines.pop_front();
        }
        lines.push_back((at, line));
    }

    pub fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let lines = self.lines.lock().expect("no thread panics with it");
        lines.iter().try_for_each(|(at, line)| writeln!(out, "{:>10.4} {line}", at.as_secs_f64()))
    }
}

/// A request on one line: long words and long requests are cut.
pub fn request(words: &[impl AsRef<[u8]>]) -> String {
    let mut line = String::from(">");
    for word in words.iter().take(WORDS_SHOWN) {
        line.push(' ');
        line.push_str(&short(word.as_ref()));
    }
    if words.len() > WORDS_SHOWN {
        line.push_str(&format!(" ... ({} words)", words.len()));
    }
    line
}

pub fn reply(value: &Value) -> String {
    format!("< {}", brief(value))
}

/// A reply for people: the first things in it.
pub fn brief(value: &Value) -> String {
    match value {
        Value::Simple(text) => format!("+{}", short(text)),
        Value::Error(text) => format!("-{}", String::from_utf8_lossy(text)),
        Value::Integer(number) => number.to_string(),
        Value::Bulk(text) => short(text),
        Value::Null | Value::NullBulk | Value::NullArray => "nil".to_string(),
        Value::Array(items) | Value::Push(items) | Value::Set(items) => {
            let shown: Vec<String> = items.iter().take(4).map(brief).collect();
            let more = if items.len() > 4 { format!(" ... ({})", items.len()) } else { String::new() };
            format!("[{}{more}]", shown.join(" "))
        }
        Value::Map(pairs) => format!("map of {}", pairs.len()),
        other => short(format!("{other:?}").as_bytes()),
    }
}

/// A reply for people, all of it: what is in lists stands in lines, indented by its depth.
pub fn whole(value: &Value) -> String {
    fn write(value: &Value, depth: usize, into: &mut String) {
        match value {
            Value::Array(items) | Value::Push(items) | Value::Set(items) => {
                items.iter().for_each(|item| write(item, depth + 1, into));
            }
            Value::Bulk(text) | Value::Verbatim { text, .. } => {
                into.push_str(&format!("{}{}\n", "  ".repeat(depth), String::from_utf8_lossy(text)));
            }
            other => into.push_str(&format!("{}{}\n", "  ".repeat(depth), brief(other))),
        }
    }
    let mut text = String::new();
    write(value, 0, &mut text);
    text
}

pub fn short(bytes: &[u8]) -> String {
    let shown = bytes[..bytes.len().min(BYTES_SHOWN)].escape_ascii().to_string();
    if bytes.len() > BYTES_SHOWN { format!("{shown}...({} B)", bytes.len()) } else { shown }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_kept() {
        let record = Record::new("queues-1".to_string());
        for number in 0..LINES_MAX + 5 {
            record.note(Duration::from_millis(number as u64), format!("line {number}"));
        }
        let mut out = Vec::new();
        record.write(&mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text.lines().count(), LINES_MAX);
        assert!(text.lines().next().unwrap().ends_with(" line 5"), "{text}");
    }

    #[test]
    fn long_things_are_cut() {
        let line = request(&[&b"SET"[..], b"k\r\n", &[b'x'; 1000]]);
        assert!(line.starts_with("> SET k\\r\\n xxx") && line.ends_with("(1000 B)"), "{line}");
        assert!(request(&vec![b"x"; 100]).ends_with("(100 words)"));
        assert_eq!(brief(&Value::Array(vec![Value::Integer(1); 9])), "[1 1 1 1 ... (9)]");
    }
}
