//! Results of a real Valkey 9.1.2 for the calls in `cases.txt`, and of these libraries for the same
//! arguments.

use isotherm_script::libraries::State;

use crate::calls::{Outcome, call, function, shown, spelled_out};

const GOLDEN: &str = include_str!("valkey-9.1.2.txt");

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

#[test]
fn the_golden_file_has_all_cases() {
    let cases = include_str!("cases.txt").lines();
    let cases = cases.filter(|line| !line.is_empty() && !line.starts_with('#'));
    let golden = GOLDEN.lines().filter_map(|line| line.strip_prefix("> "));
    assert_eq!(cases.clone().count(), golden.clone().count());
    cases.zip(golden).for_each(|(case, golden)| assert_eq!(case, golden));
}
