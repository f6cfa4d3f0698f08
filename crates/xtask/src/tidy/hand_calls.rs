//! Consequences of a change, written by hand in a handler: events, records of the log, counts of changes.
//!
//! A handler that forgets one of them compiles. The fewer of them there are, the fewer can be forgotten.

use super::{File, Measure};

/// A method called on something.
const METHODS: [&str; 5] = ["wrote", "wrote_in", "event", "event_in", "record"];

/// `record_words`, `record_request` and others are the same thing.
const PREFIX: &str = "record_";

const DEFINITIONS: [&str; 2] = ["/call.rs", "/record.rs"];

/// `call.rs` and `record.rs` define these methods; all others call them. Takes files without comments and
/// strings.
pub fn measures(code: &[File]) -> Vec<Measure> {
    let handlers = code
        .iter()
        .filter(|file| file.path.starts_with("crates/commands/src/"))
        .filter(|file| !DEFINITIONS.iter().any(|name| file.path.ends_with(name)));
    let mut places = Vec::new();
    for file in handlers {
        for (index, line) in file.text.lines().enumerate() {
            places.extend((0..calls(line)).map(|_| format!("{}:{}", file.path, index + 1)));
        }
    }
    vec![Measure::of_places("hand calls of events, records and counts of changes".to_string(), places)]
}

fn calls(line: &str) -> usize {
    let names = line.match_indices('.').map(|(at, _)| {
        let rest = &line[at + 1..];
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        rest.split_at(end)
    });
    names.filter(|(name, after)| is_hand_call(name, after)).count()
}

fn is_hand_call(name: &str, after: &str) -> bool {
    let called = after.starts_with('(') && (METHODS.contains(&name) || name.starts_with(PREFIX));
    // That of an iterator takes nothing.
    let counted = name == "count" && after.starts_with('(') && !after.starts_with("()");
    let after = after.trim_start();
    let assigned = ["= ", "+= ", "-= "].iter().any(|sign| after.starts_with(sign));
    called || counted || name == "dirty" && assigned
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_and_assignments_count_and_questions_do_not() {
        assert_eq!(calls("call.wrote(CLASS, name, key, 1); call.record(&words)"), 2);
        assert_eq!(calls("call.txn.dirty += 1; call.record_words(|words| {})"), 2);
        assert_eq!(calls("call.count(2); call.event(CLASS, name, key)"), 2);
        assert_eq!(calls("if call.txn.dirty == before && call.records.is_wanted() {"), 0);
        assert_eq!(calls("members.iter().count() + x.recorded"), 0);
    }
}
