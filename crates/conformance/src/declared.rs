//! The statements of both servers about their commands: COMMAND LIST, INFO and DOCS, and the keys that they
//! find in generated requests (COMMAND GETKEYS, GETKEYSANDFLAGS).
//!
//! Sentences are each server's own (summaries, complexities, changes, notes about keys): where Valkey has
//! one, there must be one here.
//!
//! A request is drawn from the arguments that Valkey documents for its command, or is a random sequence of
//! their words, so that keys are looked for in sound requests and in nonsense.

use std::collections::{BTreeMap, BTreeSet};

use isotherm_resp::reply_parse::Value;
use isotherm_stdx::Prng;

use crate::Fallible;
use crate::client::Client;

/// Commands that Valkey 9.1 does not have, as COMPAT.md names them, by the beginning of their names.
const NOT_THERE: &[&str] = &[
    "acl|digest",
    "delex",
    "dumpfromssdb",
    "hotkeys",
    "locatekey",
    "memory|diff",
    "memory|map",
    "memory|prefixes",
    "memory|profile",
    "memory|top",
    "rediskeys",
    "ssdbkeys",
    "storetossdb",
    "swap",
];

/// Commands with words of Valkey 9.2, or an arity of our own.
const OTHERWISE: &[&str] = &[
    "exec",
    "memory|malloc-stats",
    "move",
    "set",
    "sismember",
    "zrange",
    "zrangebylex",
    "zrangebyscore",
    "zrevrange",
    "zrevrangebylex",
    "zrevrangebyscore",
];

#[derive(Default)]
pub struct Report {
    pub compared: u64,
    pub differences: Vec<String>,
}

/// `requests`: how many are drawn for each command.
pub fn run(ours: u16, theirs: u16, requests: u64, seed: u64) -> Fallible<Report> {
    let lost = |why: std::io::Error| format!("a server is gone: {why}");
    let mut both = Both { ours: resp3(ours).map_err(lost)?, theirs: resp3(theirs).map_err(lost)? };
    let mut report = Report::default();
    let names = both.names(&mut report).map_err(lost)?;
    let mut prng = Prng::new(seed);
    for name in &names {
        let docs = both.declarations(name, &mut report).map_err(lost)?;
        let source = Source::of(name, &docs);
        for _ in 0..requests {
            let request = source.draw(&mut prng);
            both.keys(&request, &mut report).map_err(lost)?;
        }
    }
    Ok(report)
}

fn resp3(port: u16) -> std::io::Result<Client> {
    let mut client = Client::connect(port)?;
    client.call(&["HELLO", "3"])?;
    Ok(client)
}

struct Both {
    ours: Client,
    theirs: Client,
}

impl Both {
    fn ask<A: AsRef<[u8]>>(&mut self, words: &[A]) -> std::io::Result<(Value, Value)> {
        Ok((self.ours.call(words)?, self.theirs.call(words)?))
    }

    /// The names that both have; the others are differences, unless they are named here.
    fn names(&mut self, report: &mut Report) -> std::io::Result<BTreeSet<String>> {
        let (ours, theirs) = self.ask(&["COMMAND", "LIST"])?;
        let (ours, theirs) = (texts(&ours), texts(&theirs));
        let is_known = |list: &[&str], name: &String| {
            list.iter().any(|known| name == known || name.starts_with(&format!("{known}|")))
        };
        report.compared += theirs.len() as u64;
        for name in theirs.difference(&ours) {
            report.differences.push(format!("{name}: not here"));
        }
        for name in ours.difference(&theirs).filter(|name| !is_known(NOT_THERE, name)) {
            report.differences.push(format!("{name}: not there"));
        }
        Ok(ours.intersection(&theirs).cloned().collect())
    }

    /// Compares INFO and DOCS; returns what Valkey documents.
    fn declarations(&mut self, name: &str, report: &mut Report) -> std::io::Result<Value> {
        let mut documented = Value::Null;
        for what in ["INFO", "DOCS"] {
            let (ours, theirs) = self.ask(&["COMMAND", what, name])?;
            report.compared += 1;
            let (ours, theirs) = (own(ours), own(theirs));
            let shown = |value: &Value| ordered(without_sentences(value.clone()));
            if !OTHERWISE.contains(&name) && shown(&ours) != shown(&theirs) {
                report.differences.push(format!("{what} {name}\n  ours:   {ours}\n  valkey: {theirs}"));
            }
            documented = theirs;
        }
        Ok(documented)
    }

    fn keys(&mut self, request: &[Vec<u8>], report: &mut Report) -> std::io::Result<()> {
        for what in ["GETKEYS", "GETKEYSANDFLAGS"] {
            let mut words = vec![b"COMMAND".to_vec(), what.into()];
            words.extend_from_slice(request);
            let (ours, theirs) = self.ask(&words)?;
            report.compared += 1;
            let is_newer = OTHERWISE.iter().any(|name| request[0].eq_ignore_ascii_case(name.as_bytes()));
            let arity_differs = is_newer && (is_error(&ours) || is_error(&theirs));
            // COMPAT.md: a second word STREAMS.
            let is_streams = |word: &&Vec<u8>| word.eq_ignore_ascii_case(b"STREAMS");
            let is_group = request[0].eq_ignore_ascii_case(b"XREADGROUP");
            let is_twice = (is_group || is_error(&ours)) && request.iter().filter(is_streams).count() > 1;
            // COMPAT.md: PFMERGE without sources.
            let is_alone = request.len() == 2 && request[0].eq_ignore_ascii_case(b"PFMERGE");
            let may_differ = arity_differs || is_twice || is_alone;
            if ordered(ours.clone()) != ordered(theirs.clone()) && !may_differ {
                let request = request.join(&b' ').escape_ascii().to_string();
                report.differences.push(format!("{what} {request}\n  ours:   {ours}\n  valkey: {theirs}"));
            }
        }
        Ok(())
    }
}

/// INFO without the subcommands, which are compared by their own names.
fn own(mut info: Value) -> Value {
    const SUBCOMMANDS_AT: usize = 9;
    if let Value::Array(commands) = &mut info
        && let [Value::Array(command)] = &mut commands[..]
    {
        command.truncate(SUBCOMMANDS_AT);
    }
    info
}

/// Replaces each sentence by its presence: one is as good as another.
pub fn without_sentences(value: Value) -> Value {
    // RESP2 lists names and values in turn.
    let list = |items: Vec<Value>| {
        let names: Vec<Option<String>> = std::iter::once(None).chain(items.iter().map(text)).collect();
        items.into_iter().zip(names).map(|(item, name)| without_sentence(name.as_deref(), item)).collect()
    };
    match value {
        Value::Array(items) => Value::Array(list(items)),
        Value::Set(items) => Value::Set(list(items)),
        Value::Map(pairs) => {
            let pair = |(name, value): (Value, Value)| {
                let value = without_sentence(text(&name).as_deref(), value);
                (name, value)
            };
            Value::Map(pairs.into_iter().map(pair).collect())
        }
        other => other,
    }
}

/// `value`, which stands after `name`.
fn without_sentence(name: Option<&str>, value: Value) -> Value {
    match (name, value) {
        (Some("summary" | "complexity" | "notes"), Value::Bulk(sentence)) => {
            Value::Boolean(!sentence.is_empty())
        }
        (Some("history"), Value::Set(changes) | Value::Array(changes)) => {
            Value::Array(changes.into_iter().map(version).collect())
        }
        (_, value) => without_sentences(value),
    }
}

/// A version, and the change in it.
fn version(change: Value) -> Value {
    match change {
        Value::Array(mut change) => {
            change.truncate(1);
            Value::Array(change)
        }
        other => other,
    }
}

fn is_error(value: &Value) -> bool {
    matches!(value, Value::Error(_))
}

fn texts(list: &Value) -> BTreeSet<String> {
    let Value::Array(items) = list else { return BTreeSet::new() };
    items.iter().filter_map(text).collect()
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::Bulk(bytes) | Value::Simple(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        _ => None,
    }
}

/// Returns the value with its sets sorted. The `subcommands` of a container are left out: they are compared
/// under their own names.
fn ordered(value: Value) -> Value {
    match value {
        Value::Array(items) => Value::Array(items.into_iter().map(ordered).collect()),
        Value::Set(items) => {
            let mut items: Vec<Value> = items.into_iter().map(ordered).collect();
            items.sort_by_key(|item| format!("{item:?}"));
            Value::Set(items)
        }
        Value::Map(pairs) => {
            let is_own = |(name, _): &(Value, Value)| text(name).as_deref() != Some("subcommands");
            Value::Map(pairs.into_iter().filter(is_own).map(|(name, value)| (name, ordered(value))).collect())
        }
        other => other,
    }
}

// ---- requests ----

/// Parts from which the requests of one command are drawn.
struct Source {
    name: Vec<Vec<u8>>,
    arguments: Vec<Argument>,
    tokens: Vec<Vec<u8>>,
}

struct Argument {
    kind: String,
    token: Option<Vec<u8>>,
    flags: BTreeSet<String>,
    parts: Vec<Argument>,
}

const WORDS: [&str; 12] = ["a", "b", "c", "d{x}", "", "0", "1", "2", "3", "-1", "x", "KEYS"];
const NUMBERS: [&str; 7] = ["0", "1", "1", "2", "3", "-1", "x"];
/// Maximum number of arguments beyond the fewest ones of a command.
const MORE_MAX: u64 = 8;

impl Source {
    fn of(name: &str, docs: &Value) -> Source {
        let docs = match docs {
            Value::Map(pairs) => pairs.first().map(|(_, docs)| docs),
            _ => None,
        };
        let arguments: Vec<Argument> =
            docs.map_or_else(Vec::new, |docs| arguments(fields(docs).get("arguments")));
        let mut tokens = Vec::new();
        arguments.iter().for_each(|argument| argument.collect_tokens(&mut tokens));
        let name = name.split('|').map(|word| word.as_bytes().to_vec()).collect();
        Source { name, arguments, tokens }
    }

    fn draw(&self, prng: &mut Prng) -> Vec<Vec<u8>> {
        let mut words = self.name.clone();
        if prng.one_in(3) {
            for _ in 0..prng.below(MORE_MAX) {
                let is_token = !self.tokens.is_empty() && prng.one_in(2);
                words.push(if is_token { prng.pick(&self.tokens).clone() } else { pick(prng, &WORDS) });
            }
        } else {
            self.arguments.iter().for_each(|argument| argument.draw(prng, &mut words));
        }
        if prng.one_in(10) {
            words.truncate(1 + prng.below(words.len() as u64) as usize);
        }
        words
    }
}

fn pick(prng: &mut Prng, words: &[&str]) -> Vec<u8> {
    prng.pick(words).as_bytes().to_vec()
}

fn fields(docs: &Value) -> BTreeMap<String, &Value> {
    let Value::Map(pairs) = docs else { return BTreeMap::new() };
    pairs.iter().filter_map(|(name, value)| Some((text(name)?, value))).collect()
}

fn arguments(list: Option<&&Value>) -> Vec<Argument> {
    let Some(Value::Array(items)) = list else { return Vec::new() };
    let one = |item: &Value| {
        let fields = fields(item);
        let flags = match fields.get("flags") {
            Some(Value::Set(flags)) => flags.iter().filter_map(text).collect(),
            _ => BTreeSet::new(),
        };
        Argument {
            kind: fields.get("type").and_then(|kind| text(kind)).unwrap_or_default(),
            token: fields.get("token").and_then(|token| text(token)).map(String::into_bytes),
            flags,
            parts: arguments(fields.get("arguments")),
        }
    };
    items.iter().map(one).collect()
}

impl Argument {
    fn collect_tokens(&self, tokens: &mut Vec<Vec<u8>>) {
        tokens.extend(self.token.clone());
        self.parts.iter().for_each(|part| part.collect_tokens(tokens));
    }

    fn draw(&self, prng: &mut Prng, words: &mut Vec<Vec<u8>>) {
        let is = |flag: &str| self.flags.contains(flag);
        if is("optional") && prng.one_in(2) {
            return;
        }
        let times = if is("multiple") { 1 + prng.below(3) } else { 1 };
        for at in 0..times {
            if at == 0 || is("multiple_token") {
                words.extend(self.token.clone());
            }
            match self.kind.as_str() {
                "pure-token" => {}
                "oneof" => prng.pick(&self.parts).draw(prng, words),
                "block" => self.parts.iter().for_each(|part| part.draw(prng, words)),
                "integer" | "double" | "unix-time" => words.push(pick(prng, &NUMBERS)),
                _ => words.push(pick(prng, &WORDS)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bulk(text: &str) -> Value {
        Value::Bulk(text.as_bytes().to_vec())
    }

    fn docs(summary: &str, version: &str, change: &str, since: &str) -> Value {
        let history = Value::Set(vec![Value::Array(vec![bulk(version), bulk(change)])]);
        let facts = [("summary", bulk(summary)), ("history", history), ("since", bulk(since))];
        Value::Map(facts.into_iter().map(|(name, fact)| (bulk(name), fact)).collect())
    }

    #[test]
    fn sentences_differ_and_facts_do_not() {
        let shown = |value| without_sentences(Value::Array(vec![bulk("get"), value]));
        let theirs = shown(docs("Returns a value.", "1.2.0", "Added X.", "1.0.0"));
        assert_eq!(shown(docs("Reads.", "1.2.0", "New: X.", "1.0.0")), theirs);
        assert_ne!(shown(docs("", "1.2.0", "New: X.", "1.0.0")), theirs, "a sentence is missing");
        assert_ne!(shown(docs("Reads.", "1.3.0", "New: X.", "1.0.0")), theirs);
        assert_ne!(shown(docs("Reads.", "1.2.0", "New: X.", "1.1.0")), theirs);
    }
}
