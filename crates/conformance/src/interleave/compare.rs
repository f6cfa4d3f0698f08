//! Comparison of the bytes that arrived on one connection of both servers: in their order, byte for byte,
//! except where no server promises either.
//!
//! | not compared | because |
//! |---|---|
//! | the order of names in KEYS, PUBSUB, HGETALL and UNSUBSCRIBE of all | they come from a hash table |
//! | the order of PSUBSCRIBE's patterns that one message meets | as well |
//! | how keys are spread over neighbouring invalidations | BCAST collects them, by turns of a loop |
//! | how invalidations are mixed with neighbouring messages | they are streams of their own |
//! | how replies, messages and invalidations of a pipeline are mixed | COMPAT.md: batches |
//! | how they are mixed where another connection wakes a command | as well |
//! | how lines of MONITOR are mixed with all else | as well |
//! | what a connection gets of a pipeline that closes it | Valkey drops what it has not sent |
//! | how often, and when among these, a redirection is said to be broken | as well |
//! | invalidations of a script or EXEC | COMPAT.md: NOLOOP; tracking may begin in EXEC |
//! | names and counts of UNSUBSCRIBE within EXEC | as with UNSUBSCRIBE of all |
//! | times, own commands and other clients in MONITOR | of the clock, of CLIENT REPLY, of this tool |

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

/// Freedom that a step gives a connection, in addition to what is free always.
#[derive(Clone, Copy, Default)]
pub struct Freedom {
    /// Number of the connection.
    pub own: usize,
    /// A reply has a part without an order.
    pub is_loose: bool,
    /// More than one command ran.
    pub is_batch: bool,
    /// A script or EXEC ran.
    pub is_nested: bool,
}

/// Returns what arrived as lines, equal where both servers say the same. `index_of` names a connection by its
/// address.
pub fn comparable(
    events: &[Event],
    freedom: Freedom,
    index_of: impl Fn(&str) -> Option<usize>,
) -> Vec<String> {
    let is_loose = freedom.is_loose;
    let seen = events.iter().filter_map(|event| monitored(event, freedom.own, &index_of));
    let mut ordered: Vec<Event> = seen.collect();
    if freedom.is_batch {
        if ordered.iter().any(|event| matches!(event, Event::Closed)) {
            return vec!["<closed>".to_string()];
        }
        // Stable: each class in its order.
        ordered.sort_by_key(|event| (is_message(event), kind(event).is_collected()));
    }
    let is_run = |one: &Event, next: &Event| is_message(one) && is_message(next);
    for run in ordered.chunk_by_mut(is_run) {
        run.sort_by_key(|event| kind(event).is_collected());
    }
    if freedom.is_nested {
        ordered.retain(|event| !kind(event).is_collected());
    }
    ordered.sort_by_key(is_monitored);
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
    /// An invalidation whose receiver is gone.
    Broken,
    Unsubscription,
    /// A message that came by one of several patterns.
    Matched,
    Other,
}

impl Kind {
    /// Returns whether Valkey sends one for several commands.
    fn is_collected(self) -> bool {
        matches!(self, Kind::Invalidation | Kind::Broken)
    }
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

/// Returns whether it is a line of MONITOR, as `monitored` writes it.
fn is_monitored(event: &Event) -> bool {
    matches!(event, Event::Value(Value::Simple(line)) if line.starts_with(b"monitor "))
}

/// Returns whether it arrives without being asked for, in either protocol.
fn is_message(event: &Event) -> bool {
    is_monitored(event)
        || matches!(
            first_word(event),
            b"message" | b"pmessage" | b"smessage" | b"invalidate" | b"tracking-redir-broken"
        )
}

fn kind(event: &Event) -> Kind {
    match (first_word(event), items(event)) {
        (b"invalidate", _) => Kind::Invalidation,
        (b"tracking-redir-broken", _) => Kind::Broken,
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
        of_first if of_first.is_collected() => kind(event).is_collected(),
        of_first => kind(event) == of_first,
    }
}

fn shown(kind: Kind, run: &[Event], is_loose: bool) -> Vec<String> {
    match kind {
        Kind::Invalidation | Kind::Broken => collected(run),
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

/// Neighbouring invalidations as one, then that their receiver is gone.
fn collected(run: &[Event]) -> Vec<String> {
    let (invalidations, broken): (Vec<&Event>, Vec<&Event>) =
        run.iter().partition(|event| kind(event) == Kind::Invalidation);
    let mut lines = Vec::new();
    if let Some(first) = invalidations.first() {
        let mut keys: Vec<String> = invalidations.iter().flat_map(|event| invalidated(event)).collect();
        keys.sort_unstable();
        keys.dedup();
        let is_push = matches!(first, Event::Value(Value::Push(_)));
        let word = if is_push { "invalidate" } else { "message of invalidations" };
        lines.push(format!("{word} {}", keys.join(" ")));
    }
    lines.extend(broken.first().map(|event| one(event, false)));
    lines
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
            let value = without_unsubscribed(&without_modules(value), false);
            let value = if is_loose { sorted(&value) } else { value };
            let kind = if matches!(value, Value::Push(_)) { "push " } else { "" };
            format!("{kind}{value}")
        }
    }
}

/// Returns a line of MONITOR without its time; nothing if it is about a client of this tool, or
/// a command of the connection that reads it.
fn monitored(event: &Event, own: usize, index_of: &impl Fn(&str) -> Option<usize>) -> Option<Event> {
    let Event::Value(Value::Simple(line)) = event else { return Some(event.clone()) };
    let line = String::from_utf8_lossy(line);
    let Some((time, rest)) = line.split_once(" [") else { return Some(event.clone()) };
    if !time.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
        return Some(event.clone());
    }
    let (client, rest) = rest.split_once("] ")?;
    let (db, address) = client.split_once(' ')?;
    let client = match index_of(address) {
        Some(index) if index == own => return None,
        Some(index) => format!("#{index}"),
        None if address == "lua" => address.to_string(),
        None => return None,
    };
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

/// Returns a reply to EXEC with the first words alone of the unsubscriptions in it.
fn without_unsubscribed(value: &Value, is_nested: bool) -> Value {
    const WORDS: [&[u8]; 3] = [b"unsubscribe", b"punsubscribe", b"sunsubscribe"];
    match value {
        Value::Array(items) | Value::Push(items) => match items.first() {
            Some(Value::Bulk(word)) if is_nested && WORDS.contains(&&word[..]) => Value::Bulk(word.clone()),
            _ if matches!(value, Value::Push(_)) => value.clone(),
            _ => Value::Array(items.iter().map(|item| without_unsubscribed(item, true)).collect()),
        },
        other => other.clone(),
    }
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
        check_with(batch, &[reply.clone(), a.clone(), b.clone()], &[b, reply.clone(), a], false);
        check_with(batch, &[reply, Event::Closed], &[Event::Closed], true);
    }

    #[test]
    fn invalidations_are_one_set_and_other_messages_are_not() {
        check(&[invalidate(&["a", "b"])], &[invalidate(&["b"]), invalidate(&["a"])], true);
        check(&[invalidate(&["a", "b"])], &[invalidate(&["b"])], false);
        check(&[Event::Closed], &[], false);
        let broken = push(&["tracking-redir-broken", "7"]);
        check(&[broken.clone(), broken.clone()], std::slice::from_ref(&broken), true);
        let gone = invalidate(&["a"]);
        check(&[broken.clone(), gone.clone()], &[gone.clone(), broken.clone()], true);
        check(&[broken.clone(), gone.clone()], &[gone], false);
        let nested = Freedom { is_nested: true, ..Freedom::default() };
        check_with(nested, &[invalidate(&["a"])], &[], true);
        check_with(nested, &[broken], &[], true);
        check_with(nested, &[push(&["message", "c", "1"])], &[], false);
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
        assert_eq!(lines, ["+OK", "+monitor 0 #3 \\\"GET\\\" \\\"k\\\""]);
    }
}
