//! Cases that say which commands a command becomes in the replication stream, and how they are checked
//! against a real server. The file `tests/golden/effects.txt` holds them:
//!
//! ```text
//! == title                    a new case, from an empty server
//! > SET k v EX 100            a command; quotes as in a configuration file
//! SET k v PXAT <now+100000>   what it writes, in order; a line each; nothing if nothing follows
//! 1: DEL k                    the same, for database 1
//! ~ 30                        waits so many milliseconds; what the server writes meanwhile follows
//! ```
//! A moment that a server computes stands as `<now+N>`, N milliseconds after the command ran.

use std::time::{SystemTime, UNIX_EPOCH};

use isotherm_stdx::args_split::{Dialect, args_split};
use isotherm_stdx::parse_i64;

use crate::Fallible;
use crate::client::Client;
use crate::grammar::Command;
use crate::replication::{Listener, Written};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case {
    pub title: String,
    pub lines: Vec<Line>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    pub action: Action,
    /// Replicated commands as text, with times normalized.
    pub effects: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    Command(Command),
    WaitMs(u64),
}

pub const GOLDEN: &str = include_str!("../tests/golden/effects.txt");

/// The cases of the crate's golden file.
pub fn golden() -> Fallible<Vec<Case>> {
    parse(GOLDEN)
}

pub fn parse(text: &str) -> Fallible<Vec<Case>> {
    let mut cases: Vec<Case> = Vec::new();
    for (i, line) in text.lines().enumerate() {
        let wrong = || format!("effects, line {}: {line}", i + 1);
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(title) = line.strip_prefix("== ") {
            cases.push(Case { title: title.to_string(), lines: Vec::new() });
            continue;
        }
        let case = cases.last_mut().ok_or_else(wrong)?;
        if let Some(command) = line.strip_prefix("> ") {
            let words = args_split(command.as_bytes(), Dialect::File).map_err(|_| wrong())?;
            case.lines.push(Line { action: Action::Command(words), effects: Vec::new() });
        } else if let Some(wait) = line.strip_prefix("~ ") {
            let wait_ms = wait.parse().map_err(|_| wrong())?;
            case.lines.push(Line { action: Action::WaitMs(wait_ms), effects: Vec::new() });
        } else {
            case.lines.last_mut().ok_or_else(wrong)?.effects.push(line.to_string());
        }
    }
    Ok(cases)
}

pub fn print(cases: &[Case]) -> String {
    let mut text = String::new();
    for case in cases {
        text += &format!("\n== {}\n", case.title);
        for line in &case.lines {
            text += &match &line.action {
                Action::Command(command) => format!("> {}\n", words(command)),
                Action::WaitMs(wait_ms) => format!("~ {wait_ms}\n"),
            };
            for effect in &line.effects {
                text += effect;
                text.push('\n');
            }
        }
    }
    text
}

/// The lines of two runs of the same cases that differ, for people.
pub fn differences(expected: &[Case], observed: &[Case]) -> Vec<String> {
    let mut found = Vec::new();
    for (a, b) in expected.iter().zip(observed) {
        let differ = |(_, (x, y)): &(usize, (&Line, &Line))| {
            x.action != y.action
                || !x
                    .effects
                    .iter()
                    .map(|effect| certain(effect))
                    .eq(y.effects.iter().map(|effect| certain(effect)))
        };
        for (i, (x, y)) in a.lines.iter().zip(&b.lines).enumerate().filter(differ) {
            let action = match &x.action {
                Action::Command(command) => words(command),
                Action::WaitMs(wait_ms) => format!("wait {wait_ms}"),
            };
            let list = |effects: &[String]| {
                if effects.is_empty() { "nothing".to_string() } else { effects.join("; ") }
            };
            found.push(format!(
                "{}, line {}: {action}\n  expected: {}\n  written:  {}",
                a.title,
                i + 1,
                list(&x.effects),
                list(&y.effects)
            ));
        }
    }
    found
}

/// Returns an effect without what depends on the moment at which the command ran: any number of the case
/// below ten may be the milliseconds that it took.
fn certain(effect: &str) -> String {
    (1..10).fold(effect.to_string(), |text, ms| text.replace(&format!("<now+{ms}>"), "<now+0>"))
}

/// Runs cases against the server at `port` and gives them back with the effects that it wrote.
pub fn observe(port: u16, cases: &[Case]) -> Fallible<Vec<Case>> {
    let lost = |why: std::io::Error| format!("effects: {why}");
    let mut listener = Listener::connect(port).map_err(lost)?;
    let mut observed = Vec::new();
    for case in cases {
        // A connection for each case: it may end within MULTI, or in another database.
        let mut client = Client::connect(port).map_err(lost)?;
        client.call(&["FLUSHALL"]).map_err(lost)?;
        listener.written().map_err(lost)?;
        let mut lines = Vec::new();
        // A time given within MULTI shows with EXEC: any word of the case so far may be one.
        let mut given = Command::new();
        for line in &case.lines {
            if let Action::Command(command) = &line.action {
                given.extend(command.iter().cloned());
            }
            let effects = observe_line(&mut client, &mut listener, &line.action, &given).map_err(lost)?;
            lines.push(Line { action: line.action.clone(), effects });
        }
        observed.push(Case { title: case.title.clone(), lines });
    }
    Ok(observed)
}

fn observe_line(
    client: &mut Client,
    listener: &mut Listener,
    action: &Action,
    given: &Command,
) -> std::io::Result<Vec<String>> {
    let before = now_ms();
    match action {
        Action::Command(command) => drop(client.call(command)?),
        Action::WaitMs(wait_ms) => std::thread::sleep(std::time::Duration::from_millis(*wait_ms)),
    }
    let after = now_ms();
    let written = listener.written()?;
    Ok(written.iter().map(|written| normalized(written, given, before..=after)).collect())
}

fn now_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_millis() as i64)
}

/// A written command as a line. A number that is one of the given numbers (as seconds or milliseconds) after
/// the moment of the command stands as `<now+N>`.
pub fn normalized(written: &Written, given: &Command, ran_at: std::ops::RangeInclusive<i64>) -> String {
    let durations: Vec<i64> = given
        .iter()
        .filter_map(|word| parse_i64(word))
        .flat_map(|number| [number.checked_mul(1000), Some(number)])
        .flatten()
        .collect();
    let word = |word: &Vec<u8>| {
        let moment = parse_i64(word).filter(|_| !given.contains(word));
        let fits = |moment: i64, duration: i64| {
            moment.checked_sub(duration).is_some_and(|ran| ran_at.contains(&ran))
        };
        // Of durations a few milliseconds apart the longest: the shorter ones are a case's other numbers.
        let duration =
            moment.and_then(|moment| durations.iter().filter(|duration| fits(moment, **duration)).max());
        match duration {
            Some(duration) => format!("<now+{duration}>"),
            None => quoted(word),
        }
    };
    let command: Vec<String> = written.command.iter().map(word).collect();
    let db = if written.db == 0 { String::new() } else { format!("{}: ", written.db) };
    format!("{db}{}", command.join(" "))
}

fn words(command: &Command) -> String {
    command.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ")
}

fn quoted(word: &[u8]) -> String {
    let plain = !word.is_empty()
        && word.iter().all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\'' | b'\\'));
    if plain { String::from_utf8_lossy(word).into_owned() } else { format!("\"{}\"", word.escape_ascii()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(text: &str) -> Command {
        args_split(text.as_bytes(), Dialect::File).unwrap()
    }

    #[test]
    fn moments_are_named_by_their_distance() {
        let check = |given: &str, written: &str, expected: &str| {
            let written = Written { db: 0, command: command(written) };
            assert_eq!(normalized(&written, &command(given), 1_000_000..=1_000_005), expected);
        };
        check("SET k v EX 100", "SET k v PXAT 1100003", "SET k v PXAT <now+100000>");
        check("SET k v PX 100", "SET k v PXAT 1000103", "SET k v PXAT <now+100>");
        check("SET k 1000003 EX 100", "SET k 1000003 PXAT 1100000", "SET k 1000003 PXAT <now+100000>");
        check("SET k v PXAT 1100003", "SET k v PXAT 1100003", "SET k v PXAT 1100003");
        check("SET k v EX 100", "SET k v PXAT 1100006", "SET k v PXAT 1100006");
    }

    #[test]
    fn the_golden_file_is_read_and_printed_alike() {
        let cases = golden().unwrap();
        assert!(cases.len() > 40, "{}", cases.len());
        assert!(cases.iter().all(|case| !case.lines.is_empty()));
        assert_eq!(parse(&print(&cases)).unwrap(), cases);
        for wrong in ["> GET k", "== a\nSET k v", "== a\n> \"", "== a\n~ x"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
