//! Comparison of the bytes that arrived on one connection of both servers: in their order, byte for byte,
//! except where no server promises either.
//!
//! | not compared | because |
//! |---|---|
//! | the order of names in KEYS, PUBSUB, HGETALL and UNSUBSCRIBE of all | they come from a hash table |
//! | the order of PSUBSCRIBE's patterns that one message meets | as well |
//! | how keys are spread over neighbouring invalidations | BCAST collects them, by turns of a loop |
//! | how replies, messages and invalidations of a pipeline are mixed | COMPAT.md: batches |
//! | times and other clients in MONITOR | they are of the clock and of this tool |
//! | CLIENT REPLY in the lines of its own client | messages follow replies, which are off by then |

use isotherm_resp::reply_parse::Value;

use super::side::Event;
use crate::grammar::Command;
use crate::rules::sorted;

/// Commands whose reply has a part without an order.
const UNORDERED: [&[u8]; 4] = [b"KEYS", b"HGETALL", b"PUBSUB", b"ACL"];

pub fn is_unordered(command: &Command) -> bool {
    UNORDERED.iter().any(|name| command[0].eq_ignore_ascii_case(name))
}

/// Commands that run others.
pub fn is_batch(command: &Command) -> bool {
    [&b"EXEC"[..], b"EVAL"].iter().any(|name| command[0].eq_ignore_ascii_case(name))
}

/// Freedom that a step gives, beside what is free always.
#[derive(Clone, Copy, Default)]
pub struct Freedom {
    /// A reply has a part without an order.
    pub is_loose: bool,
    /// More than one command ran.
    pub is_batch: bool,
}

/// Returns what arrived as lines, equal where both servers say the same. `index_of` names a connection by its
/// address.
pub fn comparable(
    events: &[Event],
    freedom: Freedom,
    index_of: impl Fn(&str) -> Option<usize>,
) -> Vec<String> {
    let is_loose = freedom.is_loose;
    let mut ordered: Vec<Event> = events.iter().filter_map(|event| monitored(event, &index_of)).collect();
    if freedom.is_batch {
        // Stable: each class in its order.
        ordered.sort_by_key(|event| (is_message(event), kind(event) == Kind::Invalidation));
    }
    let mut lines: Vec<String> = Vec::new();
    let mut at = 0;
    while at < ordered.len() {
        let is_of_run = |event: &&Event| is_of_one_run(event, &ordered[at]);
        let run = ordered[at..].iter().take_while(is_of_run).count().max(1);
        lines.extend(shown(kind(&ordered[at]), &ordered[at..at + run], is_loose));
        at += run;
    }
    lines
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Invalidation,
    Unsubscription,
    /// A message that came by one of several patterns.
    Matched,
    Other,
}

fn items(event: &Event) -> Option<&[Value]> {
    match event {
        Event::Value(Value::Array(items) | Value::Push(items)) => Some(items),
        _ => None,
    }
}

fn first_word(event: &Event) -> &[u8] {
    match items(event) {
        Some([Value::Bulk(word), ..]) => word,
        _ => b"",
    }
}

/// Returns whether it arrives without being asked for, in either protocol.
fn is_message(event: &Event) -> bool {
    let is_line = matches!(event, Event::Value(Value::Simple(line)) if line.starts_with(b"monitor "));
    is_line
        || matches!(
            first_word(event),
            b"message" | b"pmessage" | b"smessage" | b"invalidate" | b"tracking-redir-broken"
        )
}

fn kind(event: &Event) -> Kind {
    match (first_word(event), items(event)) {
        (b"invalidate", _) => Kind::Invalidation,
        (b"message", Some([_, Value::Bulk(channel), _])) if channel == b"__redis__:invalidate" => {
            Kind::Invalidation
        }
        (b"pmessage", Some([_, _, _, _])) => Kind::Matched,
        (b"unsubscribe" | b"punsubscribe" | b"sunsubscribe", _) => Kind::Unsubscription,
        _ => Kind::Other,
    }
}

fn is_of_one_run(event: &Event, first: &Event) -> bool {
    let said = |event: &Event| items(event).map(|items| items[2..].to_vec());
    match kind(first) {
        Kind::Other => false,
        Kind::Matched => kind(event) == Kind::Matched && said(event) == said(first),
        of_first => kind(event) == of_first,
    }
}

fn shown(kind: Kind, run: &[Event], is_loose: bool) -> Vec<String> {
    match kind {
        Kind::Invalidation => {
            let mut keys: Vec<String> = run.iter().flat_map(invalidated).collect();
            keys.sort_unstable();
            keys.dedup();
            let is_push = matches!(run[0], Event::Value(Value::Push(_)));
            vec![format!(
                "{} {}",
                if is_push { "invalidate" } else { "message of invalidations" },
                keys.join(" ")
            )]
        }
        Kind::Unsubscription => {
            let mut names: Vec<String> =
                run.iter().filter_map(|event| Some(items(event)?.get(1)?.to_string())).collect();
            names.sort_unstable();
            let counts: Vec<String> =
                run.iter().filter_map(|event| Some(items(event)?.get(2)?.to_string())).collect();
            let word = first_word(&run[0]).escape_ascii().to_string();
            vec![format!("{word} {} leaving {}", names.join(" "), counts.join(" "))]
        }
        Kind::Matched => {
            let mut lines: Vec<String> = run.iter().map(|event| one(event, is_loose)).collect();
            lines.sort_unstable();
            lines
        }
        Kind::Other => run.iter().map(|event| one(event, is_loose)).collect(),
    }
}

/// The keys of an invalidation; a flush invalidates all.
fn invalidated(event: &Event) -> Vec<String> {
    match items(event).and_then(|items| items.last()) {
        Some(Value::Array(keys)) => keys.iter().map(Value::to_string).collect(),
        Some(other) => vec![other.to_string()],
        None => Vec::new(),
    }
}

fn one(event: &Event, is_loose: bool) -> String {
    match event {
        Event::Closed => "<closed>".to_string(),
        Event::Value(value) => {
            let value = without_modules(value);
            let value = if is_loose { sorted(&value) } else { value };
            let kind = if matches!(value, Value::Push(_)) { "push " } else { "" };
            format!("{kind}{value}")
        }
    }
}

/// Returns a line of MONITOR without its time; nothing if it is about a client of this tool.
fn monitored(event: &Event, index_of: &impl Fn(&str) -> Option<usize>) -> Option<Event> {
    let Event::Value(Value::Simple(line)) = event else { return Some(event.clone()) };
    let line = String::from_utf8_lossy(line);
    let Some((time, rest)) = line.split_once(" [") else { return Some(event.clone()) };
    if !time.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
        return Some(event.clone());
    }
    let (client, rest) = rest.split_once("] ")?;
    let (db, address) = client.split_once(' ')?;
    let client = match index_of(address) {
        Some(index) => format!("#{index}"),
        None if address == "lua" => address.to_string(),
        None => return None,
    };
    if rest.to_ascii_lowercase().starts_with("\"client\" \"reply\"") {
        return None;
    }
    // `CLIENT KILL addr` of a connection.
    let words: Vec<String> = rest
        .split(' ')
        .map(|word| match index_of(word.trim_matches('"')) {
            Some(index) => format!("#{index}"),
            None => word.to_string(),
        })
        .collect();
    Some(Event::Value(Value::Simple(format!("monitor {db} {client} {}", words.join(" ")).into_bytes())))
}

/// The reply to HELLO: Valkey lists its Lua engine as a module.
fn without_modules(value: &Value) -> Value {
    let is_hello = |name: &Value| *name == Value::Bulk(b"server".to_vec());
    match value {
        Value::Map(pairs) if pairs.first().is_some_and(|(name, _)| is_hello(name)) => {
            Value::Map(pairs[..pairs.len() - 1].to_vec())
        }
        Value::Array(items) if items.first().is_some_and(is_hello) => {
            Value::Array(items[..items.len() - 1].to_vec())
        }
        Value::Array(items) => Value::Array(items.iter().map(without_modules).collect()),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bulk(text: &str) -> Value {
        Value::Bulk(text.as_bytes().to_vec())
    }

    fn push(words: &[&str]) -> Event {
        Event::Value(Value::Push(words.iter().map(|word| bulk(word)).collect()))
    }

    fn invalidate(keys: &[&str]) -> Event {
        let keys = Value::Array(keys.iter().map(|key| bulk(key)).collect());
        Event::Value(Value::Push(vec![bulk("invalidate"), keys]))
    }

    #[track_caller]
    fn check(ours: &[Event], theirs: &[Event], expected: bool) {
        check_with(Freedom::default(), ours, theirs, expected);
    }

    #[track_caller]
    fn check_with(freedom: Freedom, ours: &[Event], theirs: &[Event], expected: bool) {
        let [ours, theirs] = [ours, theirs].map(|events| comparable(events, freedom, |_| None));
        assert_eq!(ours == theirs, expected, "{ours:?} and {theirs:?}");
    }

    #[test]
    fn the_order_counts_where_it_is_promised() {
        let (a, b) = (push(&["message", "c", "1"]), push(&["message", "c", "2"]));
        check(&[a.clone(), b.clone()], &[b.clone(), a.clone()], false);
        let reply = Event::Value(Value::Integer(1));
        check(&[reply.clone(), a.clone()], &[a.clone(), reply.clone()], false);
        let batch = Freedom { is_batch: true, ..Freedom::default() };
        check_with(batch, &[reply.clone(), a.clone()], &[a.clone(), reply.clone()], true);
        check_with(batch, &[reply.clone(), a.clone(), b.clone()], &[b, reply, a], false);
    }

    #[test]
    fn invalidations_are_one_set_and_other_messages_are_not() {
        check(&[invalidate(&["a", "b"])], &[invalidate(&["b"]), invalidate(&["a"])], true);
        check(&[invalidate(&["a", "b"])], &[invalidate(&["b"])], false);
        check(&[Event::Closed], &[], false);
        let names = |names: [&str; 2]| {
            names
                .iter()
                .enumerate()
                .map(|(at, name)| {
                    Event::Value(Value::Array(vec![
                        bulk("unsubscribe"),
                        bulk(name),
                        Value::Integer(1 - at as i64),
                    ]))
                })
                .collect::<Vec<_>>()
        };
        check(&names(["a", "b"]), &names(["b", "a"]), true);
        check(&names(["a", "b"]), &names(["a", "c"]), false);
    }

    #[test]
    fn lines_of_monitor_name_connections() {
        let line = |text: &str| Event::Value(Value::Simple(text.as_bytes().to_vec()));
        let index_of = |address: &str| (address == "127.0.0.1:7").then_some(3);
        let events = [
            line("1700000000.123456 [0 127.0.0.1:7] \"GET\" \"k\""),
            line("1700000000.123456 [0 127.0.0.1:8] \"PING\""),
            line("OK"),
        ];
        let lines = comparable(&events, Freedom::default(), index_of);
        assert_eq!(lines, ["+monitor 0 #3 \\\"GET\\\" \\\"k\\\"", "+OK"]);
    }
}
