//! What a real Valkey 9.1.2 makes of the calls in `libraries/cases.txt`, and these libraries of the same arguments.

use isotherm_script::libraries::{ALL, Call, Failure, Function, State};
use isotherm_script::tape::{Reader, Writer, tags};

const GOLDEN: &str = include_str!("libraries/valkey-9.1.2.txt");

#[derive(Debug, PartialEq)]
enum Outcome {
    Results(Vec<u8>),
    Error(String),
}

fn function(library: &str, name: &str) -> &'static Function {
    let library = ALL.iter().find(|known| known.name == library).expect("a library");
    library.functions.iter().find(|known| known.name == name).expect("a function")
}

fn count(tape: &[u8]) -> usize {
    let mut reader = Reader::new(tape);
    let mut count = 0;
    while !reader.is_at_end() {
        reader.skip();
        count += 1;
    }
    count
}

fn call(state: &mut State, function: &Function, args: &[u8]) -> Outcome {
    let mut out = Vec::new();
    let mut call = Call {
        args: Reader::new(args),
        arg_count: count(args),
        out: Writer::new(&mut out),
        instance: 0,
        state,
    };
    match (function.run)(&mut call) {
        Ok(()) => Outcome::Results(spelled_out(&out)),
        Err(Failure::Error(text)) => Outcome::Error(String::from_utf8_lossy(&text).into_owned()),
        Err(Failure::Plain(text)) => Outcome::Error(text.to_string()),
        Err(Failure::Argument(number, text)) => {
            Outcome::Error(format!("bad argument #{number} to '?' ({})", String::from_utf8_lossy(&text)))
        }
    }
}

/// Lists with their keys, promised sizes as 0, without what a table of Lua does not keep: nil values, and all but the last
/// value of a key; in the order of the keys' bytes.
fn spelled_out(tape: &[u8]) -> Vec<u8> {
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
        tags::TABLE => 9,
        _ => {
            let mut reader = Reader::new(&tape[at..]);
            reader.next();
            let end = tape.len() - reader.rest().len();
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
        // Tables are equal to themselves alone.
        if key[0] != tags::TABLE {
            entries.retain(|(known, _)| *known != key);
        }
        if value[0] != tags::NIL {
            entries.push((key, value));
        }
    }
    entries.sort();
    Writer::new(out).table(0, 0);
    entries.iter().for_each(|(key, value)| out.extend(key.iter().chain(value)));
    Writer::new(out).table_end();
    next + 1
}

/// Hexadecimal digits, and `(digits)times;` for what is repeated.
fn bytes(mut text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    while let Some((plain, rest)) = text.split_once('(') {
        let (unit, rest) = rest.split_once(')').expect("a closing parenthesis");
        let (times, rest) = rest.split_once(';').expect("a semicolon");
        out.extend(digits(plain));
        out.extend(digits(unit).repeat(times.parse().expect("a number")));
        text = rest;
    }
    out.extend(digits(text));
    out
}

fn digits(hex: &str) -> Vec<u8> {
    let digits = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).expect("digits"), 16);
    hex.as_bytes().chunks(2).map(|pair| digits(pair).expect("hexadecimal digits")).collect()
}

#[test]
fn calls_do_what_they_do_in_valkey() {
    let mut state = State::default();
    let (mut case, mut args) = ("", Vec::new());
    let mut compared = 0;
    let mut wrong = Vec::new();
    for line in GOLDEN.lines() {
        let Some((mark, text)) = line.split_once(' ') else {
            state.reset();
            continue;
        };
        let expected = match mark {
            ">" => {
                case = text;
                continue;
            }
            "<" => {
                args = bytes(text);
                continue;
            }
            "=" => Outcome::Results(spelled_out(&bytes(text))),
            "!" => Outcome::Error(String::from_utf8_lossy(&bytes(text)).into_owned()),
            _ => continue,
        };
        let (library, rest) = case.split_once('.').expect("library.function");
        let name = rest.split(' ').next().expect("a word");
        let found = call(&mut state, function(library, name), &args);
        compared += 1;
        if found != expected {
            wrong.push(format!("{case}\n  expected {}\n  found    {}", shown(&expected), shown(&found)));
        }
    }
    assert!(wrong.is_empty(), "{} of {compared}\n{}", wrong.len(), wrong.join("\n"));
    assert!(compared > 500, "{compared}");
}

fn shown(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Results(tape) => tape[..tape.len().min(200)].escape_ascii().to_string(),
        Outcome::Error(text) => text.clone(),
    }
}

#[test]
fn the_golden_file_has_all_cases() {
    let cases = include_str!("libraries/cases.txt").lines();
    let cases = cases.filter(|line| !line.is_empty() && !line.starts_with('#'));
    let golden = GOLDEN.lines().filter_map(|line| line.strip_prefix("> "));
    assert_eq!(cases.clone().count(), golden.clone().count());
    cases.zip(golden).for_each(|(case, golden)| assert_eq!(case, golden));
}
