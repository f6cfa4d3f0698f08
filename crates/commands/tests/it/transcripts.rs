//! Transcripts: commands, the reply to each, and what each emits. They were written down beside Valkey 9.1.2,
//! except `newer`.
//!
//! ```text
//! == title                    a new case, from an empty keyspace
//! > SET k v EX 100            a command; "..." with escapes, @20x a for twenty times the character a (without the blank)
//! = +OK                       its reply, line ends as blanks
//! 3 +OK                       its reply in RESP3, if that is another one
//! ! expire k                  a keyspace event
//! ! 1: set k                  the same, in database 1
//! SET k v PXAT <now+100000>   what the log gets; a moment that was computed is N milliseconds after now
//! ~ 10                        so many milliseconds pass
//! ```
//! Each case runs in both protocols, and over one partition and over eight.

use crate::common::{Server, words};
use isotherm_commands::Record;
use isotherm_keyspace::{Db, Effect, EffectMask, EffectSink, UnixMs};
use isotherm_resp::reply::Protocol;
use isotherm_resp::{ArgsBuf, Reply};
use isotherm_stdx::parse_i64;
use std::fmt::Debug;

const TRANSCRIPTS: &[(&str, &str)] = &[
    ("bitmap", include_str!("transcripts/bitmap.txt")),
    ("generic", include_str!("transcripts/generic.txt")),
    ("geo", include_str!("transcripts/geo.txt")),
    ("hash", include_str!("transcripts/hash.txt")),
    ("hyperloglog", include_str!("transcripts/hyperloglog.txt")),
    ("list", include_str!("transcripts/list.txt")),
    ("newer", include_str!("transcripts/newer.txt")),
    ("set", include_str!("transcripts/set.txt")),
    ("sort", include_str!("transcripts/sort.txt")),
    ("sorted_set", include_str!("transcripts/sorted_set.txt")),
    ("stream", include_str!("transcripts/stream.txt")),
    ("string", include_str!("transcripts/string.txt")),
    ("transfer", include_str!("transcripts/transfer.txt")),
];

/// Transcript in the same format without replies and events, from the crate that compares whole servers.
const LOGGED: &str = include_str!("../../../conformance/tests/golden/effects.txt");

#[test]
fn transcripts() {
    let mut commands = 0;
    let mut wrong = Vec::new();
    for &(name, text) in TRANSCRIPTS {
        for case in parse(text) {
            for proto in [Protocol::Resp2, Protocol::Resp3] {
                for partitions in [1, 8] {
                    commands += run(name, &case, proto, partitions, &mut wrong);
                }
            }
        }
    }
    assert_all_right(&wrong);
    assert!(commands > 4 * 800, "only {commands} commands were compared");
}

#[test]
fn what_the_log_gets() {
    const OF_SESSIONS: [&str; 5] = ["MULTI", "CONFIG", "DEBUG", "PING", "WATCH"];
    let is_of_session = |step: &Step| OF_SESSIONS.iter().any(|word| step.line.starts_with(word));
    let mut cases = parse(LOGGED);
    cases.retain(|case| !case.steps.iter().any(is_of_session));
    // There expired keys leave by themselves.
    cases.retain(|case| !case.steps.iter().any(|step| step.wait_ms > 0));
    assert!(cases.len() > 20, "{}", cases.len());
    // That several effects of one command arrive together is the stream's promise, and not emitted by a
    // handler.
    for log in cases.iter_mut().flat_map(|case| &mut case.steps).map(|step| &mut step.log) {
        if log.first().is_some_and(|first| first == "MULTI") {
            (*log).pop();
            log.remove(0);
        }
    }
    let mut wrong = Vec::new();
    cases.iter().for_each(|case| _ = run("effects", case, Protocol::Resp2, 8, &mut wrong));
    assert_all_right(&wrong);
}

fn assert_all_right(wrong: &[String]) {
    const SHOWN_MAX: usize = 20;
    let shown = wrong.iter().take(SHOWN_MAX).cloned().collect::<Vec<_>>().join("\n");
    assert!(wrong.is_empty(), "{} differences, the first of them:\n{shown}", wrong.len());
}

struct Case {
    title: String,
    steps: Vec<Step>,
}

#[derive(Default)]
struct Step {
    line: String,
    wait_ms: i64,
    /// Not compared if there is none.
    reply: Option<String>,
    resp3: Option<String>,
    events: Vec<String>,
    log: Vec<String>,
}

fn parse(text: &str) -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if let Some(title) = line.strip_prefix("== ") {
            cases.push(Case { title: title.to_string(), steps: Vec::new() });
            continue;
        }
        let steps = &mut cases.last_mut().expect("a case begins with its title").steps;
        if let Some(command) = line.strip_prefix("> ") {
            steps.push(Step { line: command.to_string(), ..Step::default() });
            continue;
        }
        if let Some(wait) = line.strip_prefix("~ ") {
            let wait_ms = wait.parse().expect("milliseconds");
            steps.push(Step { wait_ms, ..Step::default() });
            continue;
        }
        let step = steps.last_mut().expect("a command comes first");
        match line.split_at(line.len().min(2)) {
            ("= ", reply) => step.reply = Some(reply.to_string()),
            ("3 ", reply) => step.resp3 = Some(reply.to_string()),
            ("! ", event) => step.events.push(event.to_string()),
            _ => step.log.push(line.to_string()),
        }
    }
    cases
}

/// Runs one case; returns how many replies were compared.
fn run(file: &str, case: &Case, proto: Protocol, partitions: usize, wrong: &mut Vec<String>) -> usize {
    let mut server = Server::new(proto, partitions);
    let mut compared = 0;
    for step in &case.steps {
        if step.line.is_empty() {
            server.conditions.now = UnixMs(server.conditions.now.get() + step.wait_ms);
            continue;
        }
        let args = words(&step.line);
        let mut emitted = Emitted { now: server.conditions.now, given: args.clone(), ..Emitted::default() };
        let mut records = Vec::new();
        let mut log = |db, record: Record<'_>| records.push((db, record.args().iter().collect::<ArgsBuf>()));
        let reply = shown(&server.run_recorded(args.args(), &mut emitted, Some(&mut log)));
        for (db, record) in &records {
            emitted.push(*db, &record.args().iter().collect::<Vec<_>>());
        }
        let mut compare = |what: &str, ours: &dyn Debug, expected: &dyn Debug| {
            let (ours, expected) = (format!("{ours:?}"), format!("{expected:?}"));
            if ours != expected {
                let place = format!("{file}, {proto:?}, {partitions} partitions, {}", case.title);
                wrong.push(format!("{place}: {}\n  {what} {ours}\n  expected {expected}", step.line));
            }
        };
        if let Some(expected) = &step.reply {
            let other = step.resp3.as_ref().filter(|_| proto == Protocol::Resp3);
            compare("reply", &reply, &other.unwrap_or(expected));
            compare("events", &emitted.events, &step.events);
            compared += 1;
        }
        compare("log", &emitted.log, &step.log);
    }
    compared
}

/// Output of a command, as the transcript writes it.
#[derive(Default)]
struct Emitted {
    now: UnixMs,
    given: ArgsBuf,
    events: Vec<String>,
    log: Vec<String>,
}

impl EffectSink for Emitted {
    fn mask(&self) -> EffectMask {
        EffectMask::ALL
    }

    fn effect(&mut self, effect: Effect<'_>) {
        match effect {
            Effect::Event { name, db, key, .. } => {
                self.events.push(format!("{}{name} {}", prefix(db), quoted(key)));
            }
            Effect::Expired { db, key } => {
                self.events.push(format!("{}expired {}", prefix(db), quoted(key)));
                self.log.push(format!("{}UNLINK {}", prefix(db), quoted(key)));
            }
            Effect::Evicted { .. } => panic!("a command never evicts"),
            Effect::FieldsExpired { .. } => {
                panic!("a command reports fields that it removes by its own record")
            }
            Effect::Written { .. } | Effect::Flushed { .. } => panic!("changes are not reported"),
        }
    }
}

impl Emitted {
    fn push(&mut self, db: Db, command: &[&[u8]]) {
        let words: Vec<String> = command.iter().map(|word| self.named(word)).collect();
        self.log.push(format!("{}{}", prefix(db), words.join(" ")));
    }

    /// A moment that is now, or one of the given numbers from now, in seconds or milliseconds, stands as
    /// `<now+N>`.
    fn named(&self, word: &[u8]) -> String {
        let given = self.given.args();
        let computed = parse_i64(word).filter(|_| !given.iter().any(|given| given == word));
        let distance = computed.map(|moment| UnixMs(moment).ms_since(self.now));
        let is_given = |distance: &i64| {
            *distance == 0
                || given.iter().filter_map(parse_i64).any(|number| {
                    number == *distance || number.checked_mul(1000).is_some_and(|number| number == *distance)
                })
        };
        match distance.filter(is_given) {
            Some(distance) => format!("<now+{distance}>"),
            None => quoted(word),
        }
    }
}

fn prefix(db: Db) -> String {
    if db.0 == 0 { String::new() } else { format!("{}: ", db.0) }
}

/// Words shorter than this are never shown as repetitions.
const REPEATED_LEN_MIN: usize = 61;

fn quoted(word: &[u8]) -> String {
    let plain = !word.is_empty()
        && word.iter().all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\'' | b'\\'));
    let repeats = word.len() >= REPEATED_LEN_MIN && word.iter().all(|byte| *byte == word[0]);
    match (repeats, plain) {
        (true, _) => format!("@{}x{}", word.len(), char::from(word[0])),
        (_, true) => String::from_utf8_lossy(word).into_owned(),
        _ => format!("\"{}\"", word.escape_ascii()),
    }
}

/// The longest reply that is compared as a whole.
const SHOWN_LEN_MAX: usize = 1000;

fn shown(reply: &Reply) -> String {
    let text = reply.out.escape_ascii().to_string();
    let text = text.strip_suffix("\\r\\n").expect("a reply ends with its line").replace("\\r\\n", " ");
    if text.len() <= SHOWN_LEN_MAX { text } else { format!("{}...{}", &text[..60], reply.out.len()) }
}
