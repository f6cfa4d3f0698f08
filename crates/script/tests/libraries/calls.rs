//! Calls of library functions, and their results in a form that can be compared.

use isotherm_script::libraries::{ALL, Call, Failure, Function, State};
use isotherm_script::tape::{Item, Reader, Writer, tags};

#[derive(Debug, PartialEq)]
pub enum Outcome {
    Results(Vec<u8>),
    Error(String),
}

pub fn function(library: &str, name: &str) -> &'static Function {
    let library = ALL.iter().find(|known| known.name == library).expect("a library");
    library.functions.iter().find(|known| known.name == name).expect("a function")
}

/// Returns results as the walker makes them, and the number of values: each table has its head, and lists are
/// without their nils. The order of entries stays.
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

/// `args`: a tape as `spelled_out` writes it.
pub fn call(state: &mut State, function: &Function, args: &[u8]) -> Outcome {
    let mut out = Vec::new();
    let (args, arg_count) = walked(args);
    let mut call =
        Call { args: Reader::new(&args), arg_count, out: Writer::new(&mut out), instance: 0, state };
    match (function.run)(&mut call) {
        Ok(()) => Outcome::Results(spelled_out(&out)),
        Err(Failure::Error(text)) => Outcome::Error(String::from_utf8_lossy(&text).into_owned()),
        Err(Failure::Plain(text)) => Outcome::Error(text.to_string()),
        Err(Failure::Argument(number, text)) => {
            Outcome::Error(format!("bad argument #{number} to '?' ({})", String::from_utf8_lossy(&text)))
        }
    }
}

/// Lists with their keys, promised sizes as 0, without what a table of Lua does not keep: nil values, and all
/// but the last value of a key; in the order of the keys' bytes.
pub fn spelled_out(tape: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut at = 0;
    while at < tape.len() {
        at = spell(tape, at, &mut out);
    }
    out
}

fn spell(tape: &[u8], at: usize, out: &mut Vec<u8>) -> usize {
    let head = match tape[at] {
        tags::LIST => 5,
        tags::TABLE | tags::FIELDS => 9,
        _ => {
            let end = at + item_len(&tape[at..]);
            out.extend_from_slice(&tape[at..end]);
            return end;
        }
    };
    let mut entries: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
    let mut next = at + head;
    let mut index = 0.0;
    while tape[next] != tags::TABLE_END {
        let (mut key, mut value) = (Vec::new(), Vec::new());
        if tape[at] == tags::LIST {
            index += 1.0;
            Writer::new(&mut key).number(index);
        } else {
            next = spell(tape, next, &mut key);
        }
        next = spell(tape, next, &mut value);
        match entries.iter_mut().find(|(known, _)| is_same_key(known, &key)) {
            Some((_, known)) => *known = value,
            None => entries.push((key, value)),
        }
    }
    entries.retain(|(_, value)| value[0] != tags::NIL);
    entries.sort();
    Writer::new(out).table(0, 0);
    entries.iter().for_each(|(key, value)| out.extend(key.iter().chain(value)));
    Writer::new(out).table_end();
    next + 1
}

/// Tables are equal to themselves alone, and the first of two zeros is kept as the key.
fn is_same_key(known: &[u8], key: &[u8]) -> bool {
    match (Reader::new(known).next(), Reader::new(key).next()) {
        (Some(Item::Table), _) => false,
        (Some(Item::Number(known)), Some(Item::Number(key))) => known == key,
        _ => known == key,
    }
}

pub fn shown(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Results(tape) => tape[..tape.len().min(200)].escape_ascii().to_string(),
        Outcome::Error(text) => text.clone(),
    }
}
