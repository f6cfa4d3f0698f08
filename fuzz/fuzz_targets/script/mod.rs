//! Calls of library functions: the results must be a sound tape, and no larger than the arguments account for.

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
    let mut call =
        Call { args: Reader::new(args), arg_count, out: Writer::new(&mut out), instance: 0, state: &mut state };
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

/// Results as arguments: lists with their keys, without nils. And how many there are.
pub fn walked(tape: &[u8]) -> (Vec<u8>, usize) {
    let (mut out, mut at, mut count) = (Vec::new(), 0, 0);
    // The next key of each open list; nothing for a table.
    let mut open: Vec<Option<f64>> = Vec::new();
    while at < tape.len() {
        let begins = matches!(tape[at], tags::LIST | tags::TABLE);
        let ends = tape[at] == tags::TABLE_END;
        count += usize::from(open.is_empty());
        let len = if tape[at] == tags::LIST { 5 } else { item_len(&tape[at..]) };
        if let (false, Some(Some(index))) = (ends, open.last_mut()) {
            *index += 1.0;
            if tape[at] == tags::NIL {
                at += len;
                continue;
            }
            Writer::new(&mut out).number(*index);
        }
        match (begins, ends) {
            (true, _) => {
                open.push((tape[at] == tags::LIST).then_some(0.0));
                Writer::new(&mut out).table(0, 0);
            }
            (_, true) => {
                open.pop().expect("a table is open");
                Writer::new(&mut out).table_end();
            }
            _ => out.extend_from_slice(&tape[at..at + len]),
        }
        at += len;
    }
    assert!(open.is_empty());
    (out, count)
}

fn item_len(tape: &[u8]) -> usize {
    let mut reader = Reader::new(tape);
    reader.next();
    tape.len() - reader.rest().len()
}
