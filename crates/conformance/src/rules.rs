//! Comparison of two replies to one command: byte for byte, except where a reply is random or depends on
//! the time.

use isotherm_resp::reply_parse::Value;

use crate::declared::without_sentences;
use crate::grammar::Command;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rule {
    Exact,
    /// The elements may come in any order, at every depth.
    Unordered,
    /// Seconds, or milliseconds: the servers ran the command at different moments.
    Seconds,
    Milliseconds,
    /// Only what kind of reply it is: RANDOMKEY, TIME, ids, sizes.
    Kind,
    /// Names of encodings: where a list that shrinks becomes a listpack again differs on purpose, and a
    /// string that had a time may be raw there and embstr here.
    Encoding,
    /// SORT: Valkey's ALPHA ends at a NUL, and what is equal before it comes in any order.
    Sorted,
    /// OBJECT REFCOUNT: Valkey's own transaction may hold a value too, for the log.
    References,
    /// HSCAN, SSCAN, ZSCAN: how much comes in one call follows the layout; the sum of whole scans is compared
    /// elsewhere.
    Part,
    /// Only how many there are: a choice of chance.
    Count,
    /// XPENDING: the third of each four is a time since.
    Pending,
    /// XINFO: moments and times since, by their names, and the moments of deliveries.
    StreamInfo,
    /// A map of facts about the server. Some of them must agree.
    Hello,
    /// HELP of a container: the lines of its subcommands, without the sentences about them, which are
    /// indented.
    Help,
    /// COMMAND INFO and DOCS: in any order, without sentences.
    Declared,
}

/// Both servers work through a command within this time even on a busy machine.
const TOLERANCE_MS: i64 = 3000;

pub fn rule_of(command: &Command) -> Rule {
    let word = |i: usize| command.get(i).map(|arg| arg.to_ascii_uppercase()).unwrap_or_default();
    match (word(0).as_slice(), word(1).as_slice()) {
        (b"TTL" | b"EXPIRETIME" | b"HTTL" | b"HEXPIRETIME", _) => Rule::Seconds,
        (b"PTTL" | b"PEXPIRETIME" | b"HPTTL" | b"HPEXPIRETIME", _) => Rule::Milliseconds,
        (b"KEYS", _) => Rule::Unordered,
        (b"DUMP", _) => Rule::Kind,
        (b"SPOP" | b"SRANDMEMBER" | b"HRANDFIELD" | b"ZRANDMEMBER", _) if word(2) == b"1000" => {
            Rule::Unordered
        }
        (b"SPOP" | b"SRANDMEMBER" | b"HRANDFIELD" | b"ZRANDMEMBER", _) => Rule::Count,
        (b"SORT" | b"SORT_RO", _) => Rule::Sorted,
        (b"XPENDING", _) => Rule::Pending,
        (b"CLIENT" | b"COMMAND" | b"CONFIG" | b"OBJECT" | b"XGROUP" | b"XINFO", b"HELP") => Rule::Help,
        (b"XINFO", _) => Rule::StreamInfo,
        (b"RANDOMKEY" | b"TIME" | b"SCAN", _) => Rule::Kind,
        (b"OBJECT", b"REFCOUNT") => Rule::References,
        (b"OBJECT", b"ENCODING") => Rule::Encoding,
        (b"OBJECT", b"IDLETIME" | b"FREQ") => Rule::Kind,
        (b"MEMORY", b"USAGE") => Rule::Kind,
        (b"CLIENT", b"ID" | b"INFO" | b"LIST") => Rule::Kind,
        (b"COMMAND", b"") | (b"COMMAND", b"COUNT" | b"LIST") => Rule::Kind,
        (b"COMMAND", b"INFO" | b"DOCS") if command.len() == 2 => Rule::Kind,
        (b"COMMAND", b"INFO" | b"DOCS") => Rule::Declared,
        (b"HGETALL" | b"HKEYS" | b"HVALS", _) => Rule::Unordered,
        (b"SMEMBERS" | b"SINTER" | b"SUNION" | b"SDIFF", _) => Rule::Unordered,
        (b"HSCAN" | b"SSCAN" | b"ZSCAN", _) => Rule::Part,
        (b"CONFIG", b"GET") => Rule::Unordered,
        (b"MEMORY", b"HELP") | (b"INFO", _) => Rule::Kind,
        (b"HELLO", _) => Rule::Hello,
        _ => Rule::Exact,
    }
}

/// Returns whether both replies have the same meaning. `queued` are the commands that an EXEC ran.
pub fn agree(command: &Command, queued: &[Command], ours: &Value, theirs: &Value) -> bool {
    if command[0].eq_ignore_ascii_case(b"EXEC")
        && let (Value::Array(ours), Value::Array(theirs)) = (ours, theirs)
        && ours.len() == queued.len()
        && theirs.len() == queued.len()
    {
        let replies = ours.iter().zip(theirs);
        return queued.iter().zip(replies).all(|(command, (ours, theirs))| {
            is_refused_look(command, ours) || by_rule(rule_of(command), ours, theirs)
        });
    }
    by_rule(rule_of(command), ours, theirs)
}

/// Returns whether this is a look at values on disk, which a transaction refuses (COMPAT, debug).
fn is_refused_look(command: &Command, ours: &Value) -> bool {
    command[0].eq_ignore_ascii_case(b"DEBUG")
        && ours.as_error().is_some_and(|text| text.starts_with(NOT_READ.as_bytes()))
}

const NOT_READ: &str = "SWAPERR This command needs more keys on disk than are read before a transaction";

fn by_rule(rule: Rule, ours: &Value, theirs: &Value) -> bool {
    // An error must be the same error, whatever the rule.
    if ours.as_error().is_some() || theirs.as_error().is_some() {
        return ours == theirs;
    }
    match rule {
        Rule::Exact => ours == theirs,
        Rule::Unordered => sorted(ours) == sorted(theirs),
        Rule::Seconds => near(ours, theirs, TOLERANCE_MS / 1000),
        Rule::Milliseconds => near(ours, theirs, TOLERANCE_MS),
        Rule::Kind => same_kind(ours, theirs),
        Rule::Encoding => as_list(ours) == as_list(theirs) || is_roomier(ours, theirs),
        Rule::References => ours == theirs || *ours == Value::Integer(1) && *theirs == Value::Integer(2),
        Rule::Part => sorted(ours) == sorted(theirs) || is_part(ours) || is_part(theirs),
        Rule::Sorted => ours == theirs || has_nul(ours) && sorted(ours) == sorted(theirs),
        Rule::Count => same_kind(ours, theirs) && count(ours) == count(theirs),
        Rule::Pending => pending(ours, theirs),
        Rule::StreamInfo => stream_info(ours, theirs),
        Rule::Hello => hello(ours) == hello(theirs),
        Rule::Help => syntax(ours) == syntax(theirs),
        Rule::Declared => {
            let [ours, theirs] = [ours, theirs].map(|value| sorted(&without_sentences(value.clone())));
            ours == theirs
        }
    }
}

fn near(ours: &Value, theirs: &Value, tolerance: i64) -> bool {
    match (ours, theirs) {
        // -1 and -2 are answers, not times.
        (Value::Integer(ours), Value::Integer(theirs)) if *ours >= 0 && *theirs >= 0 => {
            ours.abs_diff(*theirs) <= tolerance as u64
        }
        (Value::Array(ours), Value::Array(theirs)) => alike(ours, theirs, |a, b| near(a, b, tolerance)),
        _ => ours == theirs,
    }
}

fn alike(ours: &[Value], theirs: &[Value], agree: impl Fn(&Value, &Value) -> bool) -> bool {
    ours.len() == theirs.len() && ours.iter().zip(theirs).all(|(ours, theirs)| agree(ours, theirs))
}

fn as_list(value: &Value) -> Value {
    let is_list = *value == Value::Bulk(b"quicklist".to_vec());
    if is_list { Value::Bulk(b"listpack".to_vec()) } else { value.clone() }
}

/// A string that Valkey has kept room for: that of a time which is gone.
fn is_roomier(ours: &Value, theirs: &Value) -> bool {
    *ours == Value::Bulk(b"embstr".to_vec()) && *theirs == Value::Bulk(b"raw".to_vec())
}

/// A cursor that is not at the end, and what came before it.
fn is_part(value: &Value) -> bool {
    matches!(value, Value::Array(reply) if matches!(&reply[..], [Value::Bulk(cursor), Value::Array(_)] if cursor != b"0"))
}

fn has_nul(value: &Value) -> bool {
    match value {
        Value::Array(items) => items.iter().any(has_nul),
        Value::Bulk(bytes) => bytes.contains(&0),
        _ => false,
    }
}

fn count(value: &Value) -> usize {
    match value {
        Value::Array(items) | Value::Set(items) => items.len(),
        Value::Map(pairs) => pairs.len(),
        _ => 1,
    }
}

/// `[id, consumer, idle, deliveries]` of XPENDING, alone or in a list.
fn pending(ours: &Value, theirs: &Value) -> bool {
    match (ours, theirs) {
        (Value::Array(a), Value::Array(b)) => match (&a[..], &b[..]) {
            ([a_id, a_name, a_idle @ Value::Integer(_), a_count], [b_id, b_name, b_idle, b_count]) => {
                [a_id, a_name, a_count] == [b_id, b_name, b_count] && near(a_idle, b_idle, TOLERANCE_MS)
            }
            _ => alike(a, b, pending),
        },
        _ => ours == theirs,
    }
}

/// Names and values alternate in RESP2. A delivery is `[id, consumer, moment, count]` of a group's, without
/// the consumer in a consumer's own list.
fn stream_info(ours: &Value, theirs: &Value) -> bool {
    const TIMES: [&[u8]; 4] = [b"idle", b"inactive", b"seen-time", b"active-time"];
    let pair = |name: &Value, a: &Value, b: &Value| match name {
        Value::Bulk(name) if TIMES.contains(&name.as_slice()) => near(a, b, TOLERANCE_MS),
        // Valkey counts entries that are gone (COMPAT).
        Value::Bulk(name) if name == b"lag" => true,
        _ => stream_info(a, b),
    };
    match (ours, theirs) {
        (Value::Map(a), Value::Map(b)) => {
            a.len() == b.len()
                && a.iter().zip(b).all(|((a_name, a), (b_name, b))| a_name == b_name && pair(a_name, a, b))
        }
        (Value::Array(a), Value::Array(b)) => match (&a[..], &b[..]) {
            (
                [before_a @ .., Value::Integer(a_at), a_count],
                [before_b @ .., Value::Integer(b_at), b_count],
            ) if matches!(a_count, Value::Integer(_)) && (1..=2).contains(&before_a.len()) => {
                before_a == before_b && a_count == b_count && a_at.abs_diff(*b_at) <= TOLERANCE_MS as u64
            }
            _ if a.len() == b.len() => (0..a.len()).all(|i| match i.checked_sub(1) {
                Some(before) => pair(&a[before], &a[i], &b[i]),
                None => stream_info(&a[0], &b[0]),
            }),
            _ => false,
        },
        _ => ours == theirs,
    }
}

/// The lines of HELP that are not indented.
fn syntax(help: &Value) -> Value {
    let is_sentence = |line: &Value| matches!(line, Value::Simple(text) if text.starts_with(b" "));
    match help {
        Value::Array(lines) => {
            Value::Array(lines.iter().filter(|line| !is_sentence(line)).cloned().collect())
        }
        other => other.clone(),
    }
}

fn same_kind(ours: &Value, theirs: &Value) -> bool {
    match (ours, theirs) {
        (Value::Integer(ours), Value::Integer(theirs)) => (*ours < 0) == (*theirs < 0),
        _ => std::mem::discriminant(ours) == std::mem::discriminant(theirs),
    }
}

/// Returns the value with the elements of every aggregate in one order.
pub fn sorted(value: &Value) -> Value {
    let list = |items: &[Value]| {
        let mut items: Vec<Value> = items.iter().map(sorted).collect();
        items.sort_by_cached_key(Value::to_string);
        items
    };
    match value {
        Value::Array(items) => Value::Array(list(items)),
        Value::Set(items) => Value::Set(list(items)),
        Value::Map(pairs) => {
            let mut pairs: Vec<_> = pairs.iter().map(|(key, value)| (sorted(key), sorted(value))).collect();
            pairs.sort_by_cached_key(|(key, _)| key.to_string());
            Value::Map(pairs)
        }
        other => other.clone(),
    }
}

/// The facts of HELLO that do not depend on the server's name, version, modules and number of connections.
fn hello(value: &Value) -> Vec<(String, String)> {
    let pairs: Vec<(&Value, &Value)> = match value {
        Value::Map(pairs) => pairs.iter().map(|(key, value)| (key, value)).collect(),
        Value::Array(items) => items.chunks_exact(2).map(|pair| (&pair[0], &pair[1])).collect(),
        other => return vec![(String::new(), other.to_string())],
    };
    let of_the_server = ["\"server\"", "\"version\"", "\"id\"", "\"modules\""];
    pairs
        .into_iter()
        .map(|(key, value)| (key.to_string(), value.to_string()))
        .map(
            |(key, value)| {
                if of_the_server.contains(&key.as_str()) { (key, String::new()) } else { (key, value) }
            },
        )
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(text: &str) -> Command {
        text.split(' ').map(|word| word.as_bytes().to_vec()).collect()
    }

    #[track_caller]
    fn check(text: &str, ours: Value, theirs: Value, expected: bool) {
        assert_eq!(agree(&command(text), &[], &ours, &theirs), expected, "{text}: {ours} and {theirs}");
    }

    fn bulk(text: &str) -> Value {
        Value::Bulk(text.as_bytes().to_vec())
    }

    #[test]
    fn help_is_compared_by_its_syntax() {
        let lines = |lines: &[&str]| {
            Value::Array(lines.iter().map(|line| Value::Simple(line.as_bytes().to_vec())).collect())
        };
        let theirs = lines(&["GROUPS <key>", "    Show groups.", "HELP", "    Print this help."]);
        check("XINFO HELP", lines(&["GROUPS <key>", "    Its groups.", "HELP"]), theirs.clone(), true);
        check("XINFO HELP", lines(&["GROUPS", "    Show groups.", "HELP"]), theirs.clone(), false);
        check("XINFO HELP", lines(&["    Show groups."]), theirs, false);
    }

    #[test]
    fn times_have_tolerance_and_answers_do_not() {
        check("TTL k", Value::Integer(100), Value::Integer(99), true);
        check("TTL k", Value::Integer(100), Value::Integer(1000), false);
        check("TTL k", Value::Integer(-1), Value::Integer(0), false);
        check("pttl k", Value::Integer(100_000), Value::Integer(99_000), true);
        check("PTTL k", Value::Integer(100_000), Value::Integer(100), false);
        check("GET k", Value::Integer(1), Value::Integer(2), false);
    }

    #[test]
    fn orders_and_kinds() {
        let list = |words: [&str; 2]| Value::Array(words.map(bulk).to_vec());
        check("KEYS *", list(["a", "b"]), list(["b", "a"]), true);
        check("KEYS *", list(["a", "b"]), list(["b", "b"]), false);
        check("MGET a b", list(["a", "b"]), list(["b", "a"]), false);
        let scanned = |cursor, members: &[&str]| {
            Value::Array(vec![bulk(cursor), Value::Array(members.iter().copied().map(bulk).collect())])
        };
        check("SSCAN s 0", scanned("0", &["a", "b"]), scanned("0", &["b", "a"]), true);
        check("SSCAN s 0", scanned("0", &["a", "b"]), scanned("0", &["a"]), false);
        check("SSCAN s 0", scanned("0", &["a", "b"]), scanned("3", &["a"]), true);
        check("OBJECT REFCOUNT k", Value::Integer(1), Value::Integer(2), true);
        check("OBJECT REFCOUNT k", Value::Integer(2), Value::Integer(1), false);
        check("SORT l ALPHA", list(["a", "b"]), list(["b", "a"]), false);
        check("SORT l ALPHA", list(["\0", ""]), list(["", "\0"]), true);
        check("RANDOMKEY", bulk("a"), bulk("b"), true);
        check("RANDOMKEY", bulk("a"), Value::NullBulk, false);
        check("RANDOMKEY", Value::Error(b"ERR a".to_vec()), Value::Error(b"ERR b".to_vec()), false);
        check("GET k", Value::Null, Value::NullBulk, false);
        check("GET k", Value::Simple(b"x".to_vec()), bulk("x"), false);
    }

    #[test]
    fn replies_of_a_transaction_follow_their_commands() {
        let queued = [command("TTL k"), command("GET k")];
        let reply = |ttl, value| Value::Array(vec![Value::Integer(ttl), bulk(value)]);
        assert!(agree(&command("exec"), &queued, &reply(100, "x"), &reply(101, "x")));
        assert!(!agree(&command("exec"), &queued, &reply(100, "x"), &reply(100, "y")));
        assert!(!agree(&command("exec"), &queued, &reply(100, "x"), &Value::NullArray));
    }

    #[test]
    fn hello_differs_in_name_and_number_only() {
        let reply = |server: &str, proto| {
            Value::Map(vec![(bulk("server"), bulk(server)), (bulk("proto"), Value::Integer(proto))])
        };
        check("HELLO 3", reply("valkey", 3), reply("isotherm", 3), true);
        check("HELLO 3", reply("valkey", 3), reply("isotherm", 2), false);
    }
}
