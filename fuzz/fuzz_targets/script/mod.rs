//! Calls of library functions: the results must be a sound tape, and no larger than the arguments account
//! for.
// A target uses a part.
#![allow(dead_code)]

use isotherm_script::libraries::{ALL, Call, State};
use isotherm_script::tape::{Item, Reader, Writer, tags};

/// A tape has 9 bytes for the head of a table, and for a number; an input at least one.
const FACTOR: usize = 12;
const SLACK_BYTES: usize = 64;

/// The results, or `None` after an error.
pub fn call(library: &str, name: &str, args: &[u8], arg_count: usize) -> Option<Vec<u8>> {
    let library = ALL.iter().find(|known| known.name == library).expect("a library");
    let function = library.functions.iter().find(|known| known.name == name).expect("a function");
    let mut out = Vec::new();
    let mut state = State::default();
    let mut call = Call {
        args: Reader::new(args),
        arg_count,
        out: Writer::new(&mut out),
        instance: 0,
        state: &mut state,
    };
    let done = (function.run)(&mut call);
    assert!(out.len() <= FACTOR * args.len() + SLACK_BYTES, "{} B of {} B", out.len(), args.len());
    done.ok().map(|()| out)
}

pub fn text(bytes: &[u8]) -> Vec<u8> {
    let mut tape = Vec::new();
    Writer::new(&mut tape).string(bytes);
    tape
}

/// The one string that a tape holds.
pub fn as_text(tape: &[u8]) -> &[u8] {
    match Reader::new(tape).next() {
        Some(Item::String(text)) => text,
        other => panic!("{other:?}"),
    }
}

/// The results as the walker writes them: each table with its head, lists without nil values. The second part
/// is the number of values. The order of entries stays.
pub fn walked(tape: &[u8]) -> (Vec<u8>, usize) {
    let (mut out, mut at, mut count) = (Vec::new(), 0, 0);
    while at < tape.len() {
        at = walk(tape, at, &mut out);
        count += 1;
    }
    (out, count)
}

fn walk(tape: &[u8], at: usize, out: &mut Vec<u8>) -> usize {
    let (mut next, is_list) = match tape[at] {
        tags::LIST => (at + 5, true),
        tags::TABLE | tags::FIELDS => (at + 9, false),
        _ => {
            let end = at + item_len(&tape[at..]);
            out.extend_from_slice(&tape[at..end]);
            return end;
        }
    };
    let (mut pairs, mut index) = (Vec::new(), 0);
    while tape[next] != tags::TABLE_END {
        let (mut key, mut value) = (Vec::new(), Vec::new());
        index += 1;
        if is_list {
            Writer::new(&mut key).number(f64::from(index));
        } else {
            next = walk(tape, next, &mut key);
        }
        next = walk(tape, next, &mut value);
        if !is_list || value != [tags::NIL] {
            pairs.push((key, value));
        }
    }
    write_pairs(&pairs, out);
    next + 1
}

fn write_pairs(pairs: &[(Vec<u8>, Vec<u8>)], out: &mut Vec<u8>) {
    let is_key = |(place, (key, _)): (usize, &(Vec<u8>, Vec<u8>))| {
        Reader::new(key).next() == Some(Item::Number(place as f64 + 1.0))
    };
    let tag = if pairs.iter().enumerate().all(is_key) {
        tags::VALUES
    } else if pairs.iter().all(|(key, _)| key[0] == tags::NUMBER) {
        tags::NUMBERED
    } else {
        tags::KEYED
    };
    let head = Writer::new(out).begin_walked();
    for (key, value) in pairs {
        if tag != tags::VALUES {
            out.extend_from_slice(key);
        }
        out.extend_from_slice(value);
    }
    Writer::new(out).end_walked(head, tag, pairs.len() as u32);
}

fn item_len(tape: &[u8]) -> usize {
    let mut reader = Reader::new(tape);
    reader.next();
    tape.len() - reader.rest().len()
}
