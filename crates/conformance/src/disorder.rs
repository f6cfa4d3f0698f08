//! Requests whose options are repeated, reordered or misplaced: readers of the same arguments (handler, key
//! finder, rights, slots) must agree on these too.

use isotherm_stdx::Prng;

use crate::grammar::Command;

/// Words that are options of some command, or may be taken for a count, a key or the end of one.
const WORDS: [&[u8]; 36] = [
    b"STORE",
    b"STOREDIST",
    b"BY",
    b"GET",
    b"LIMIT",
    b"STREAMS",
    b"STREAMS\0",
    b"FIELDS",
    b"COUNT",
    b"WEIGHTS",
    b"AGGREGATE",
    b"DB",
    b"REPLACE",
    b"GROUP",
    b"BLOCK",
    b"MATCH",
    b"KEYS",
    b"IFEQ",
    b"NX",
    b"PXAT",
    b"MAXLEN",
    b"LEFT",
    b"MIN",
    b"ASC",
    b"ALPHA",
    b"SET",
    b"OVERFLOW",
    b"0",
    b"1",
    b"2",
    b"3",
    b"-1",
    b"01",
    b"+2",
    b"a",
    b"",
];

/// Arguments that are moved or repeated together, at most: an option with its values.
const TOGETHER_MAX: u64 = 3;

/// Changes the order of the arguments after the name, one to three times.
pub fn disorder(command: &mut Command, prng: &mut Prng) {
    for _ in 0..1 + prng.below(3) {
        change(command, prng);
    }
}

fn change(command: &mut Command, prng: &mut Prng) {
    if command.len() < 2 {
        return command.push(prng.pick(&WORDS).to_vec());
    }
    let arguments = command.len() as u64 - 1;
    let from = 1 + prng.below(arguments) as usize;
    let to = 1 + prng.below(arguments) as usize;
    let some = from..(from + 1 + prng.below(TOGETHER_MAX) as usize).min(command.len());
    match prng.below(6) {
        0 => command.swap(from, to),
        1 => {
            let copied = command[some].to_vec();
            command.splice(to..to, copied);
        }
        2 => {
            let moved: Vec<_> = command.drain(some).collect();
            let to = to.min(command.len());
            command.splice(to..to, moved);
        }
        3 => drop(command.remove(from)),
        4 => command[from] = prng.pick(&WORDS).to_vec(),
        _ => command.insert(to, prng.pick(&WORDS).to_vec()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_stays_and_all_else_may_move() {
        let mut prng = Prng::new(1);
        let words: Command =
            [&b"SORT"[..], b"k", b"LIMIT", b"0", b"1", b"STORE", b"b"].map(<[u8]>::to_vec).into();
        let mut drawn = std::collections::HashSet::new();
        for _ in 0..1000 {
            let mut command = words.clone();
            disorder(&mut command, &mut prng);
            assert_eq!(command[0], b"SORT");
            drawn.insert(command);
        }
        assert!(drawn.len() > 500, "{}", drawn.len());
        let mut bare: Command = vec![b"PING".to_vec()];
        disorder(&mut bare, &mut prng);
        assert_eq!(bare[0], b"PING");
    }
}
