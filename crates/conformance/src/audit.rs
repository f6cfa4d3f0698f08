//! All that a server says of its data, to be compared with what another says.
//!
//! ```text
//! KEYS *  -->  TYPE of each  -->  its value, its encoding, its time, its digest  -->  the times of a hash's fields
//! ```
//! Each arrow is one pipelined round, so an audit costs four of them for a database, however many keys there
//! are.

use std::io;

use isotherm_resp::reply_parse::Value;

use crate::client::Client;
use crate::grammar::Command;
use crate::rules::agree;
use crate::runner::shown;

/// A question about the data, and the answer.
pub struct Fact {
    question: Command,
    answer: Value,
}

/// A difference: the question and both answers. A fact that one side lacks is about a key that the other does
/// not have.
pub fn first_difference(ours: &[Fact], theirs: &[Fact]) -> Option<(String, String, String)> {
    let answer = |fact: Option<&Fact>, question: &Command| match fact {
        Some(fact) if fact.question == *question => fact.answer.to_string(),
        _ => "<no such key>".to_string(),
    };
    (0..ours.len().max(theirs.len())).find_map(|i| {
        let (a, b) = (ours.get(i), theirs.get(i));
        if let (Some(a), Some(b)) = (a, b)
            && a.question == b.question
            && agree(&a.question, &[], &a.answer, &b.answer)
        {
            return None;
        }
        let questions = [a, b].into_iter().flatten().map(|fact| &fact.question);
        let question = questions.min().expect("one of them has a fact here");
        Some((shown(question), answer(a, question), answer(b, question)))
    })
}

/// Returns the contents of a database, in the order of its keys.
pub fn facts(control: &mut Client, db: u8) -> io::Result<Vec<Fact>> {
    control.call(&["SELECT", &db.to_string()])?;
    let mut keys = strings(control.call(&["KEYS", "*"])?);
    keys.sort();
    let types = control.call_all(&ask(&keys, &["TYPE"]))?;
    let mut questions = Vec::new();
    for (key, kind) in keys.iter().zip(&types) {
        questions.push(words(&["TYPE"], key, &[]));
        questions.extend(about_value(key, kind));
        questions.push(words(&["OBJECT", "ENCODING"], key, &[]));
        questions.push(words(&["PEXPIRETIME"], key, &[]));
        questions.push(words(&["DEBUG", "DIGEST-VALUE"], key, &[]));
    }
    let answers = control.call_all(&questions)?;
    let mut facts: Vec<Fact> =
        questions.into_iter().zip(answers).map(|(question, answer)| Fact { question, answer }).collect();
    let times: Vec<Command> = facts.iter().filter_map(about_fields).collect();
    let answers = control.call_all(&times)?;
    facts.extend(times.into_iter().zip(answers).map(|(question, answer)| Fact { question, answer }));
    Ok(facts)
}

fn ask(keys: &[Vec<u8>], before: &[&str]) -> Vec<Command> {
    keys.iter().map(|key| words(before, key, &[])).collect()
}

fn words(before: &[&str], key: &[u8], behind: &[&str]) -> Command {
    let bytes = |words: &[&str]| words.iter().map(|word| word.as_bytes().to_vec()).collect::<Vec<_>>();
    [bytes(before), vec![key.to_vec()], bytes(behind)].concat()
}

fn about_value(key: &[u8], kind: &Value) -> Option<Command> {
    let Value::Simple(kind) = kind else { return None };
    Some(match kind.as_slice() {
        b"string" => words(&["GET"], key, &[]),
        b"list" => words(&["LRANGE"], key, &["0", "-1"]),
        b"set" => words(&["SMEMBERS"], key, &[]),
        b"hash" => words(&["HGETALL"], key, &[]),
        b"zset" => words(&["ZRANGE"], key, &["0", "-1", "WITHSCORES"]),
        b"stream" => words(&["XINFO", "STREAM"], key, &["FULL", "COUNT", "0"]),
        _ => return None,
    })
}

/// The moments of a hash's fields, in one order on both sides.
fn about_fields(fact: &Fact) -> Option<Command> {
    if !fact.question[0].eq_ignore_ascii_case(b"HGETALL") {
        return None;
    }
    let mut fields: Vec<Vec<u8>> = strings(fact.answer.clone()).into_iter().step_by(2).collect();
    fields.sort();
    let mut command = words(&["HPEXPIRETIME"], &fact.question[1], &["FIELDS", &fields.len().to_string()]);
    command.extend(fields);
    Some(command)
}

fn strings(value: Value) -> Vec<Vec<u8>> {
    let Value::Array(items) = value else { return Vec::new() };
    items
        .into_iter()
        .filter_map(|item| if let Value::Bulk(bytes) = item { Some(bytes) } else { None })
        .collect()
}
