//! Counters: sums that several clients add to at once, alone, in transactions, by scripts (one in nine takes
//! long), and by reading, watching and writing back.

use std::sync::Mutex;

use isotherm_resp::reply_parse::Value;

use super::{Lane, line};
use crate::connection::{Connection, Lost};
use crate::ledger::Sum;
use crate::plan::Plan;
use crate::world::Member;

/// Number of counters of each kind: few, so that they are contended for.
const EACH: usize = 6;
/// Commands that add to a counter and that read it; `#` stands for its number, `@` for the amount.
const KINDS: [(&str, &str); 6] = [
    ("INCRBY n:# @", "GET n:#"),
    ("HINCRBY n:hash # @", "HGET n:hash #"),
    ("ZINCRBY n:zset @ #", "ZSCORE n:zset #"),
    ("INCRBYFLOAT n:float:# @", "GET n:float:#"),
    // A comment parts words where a blank would part arguments. The first names its key, the second meets it.
    (
        "EVAL if(ARGV[1]+0>8)then--[[]]for--[[]]i=1,300000--[[]]do--[[]]end--[[]]end--[[]]return(redis.call('INCRBY',KEYS[1],ARGV[1])) 1 n:script:# @",
        "GET n:script:#",
    ),
    (
        "EVAL redis.call('INCRBY','n:met:'..ARGV[2],ARGV[1])if(ARGV[1]+0>8)then--[[]]for--[[]]i=1,300000--[[]]do--[[]]end--[[]]end 0 @ #",
        "GET n:met:#",
    ),
];
/// The one that is read, watched and written back.
const WATCHED: &str = "n:watched";

pub struct Counters {
    sums: Mutex<Vec<Sum>>,
    watched: Mutex<Sum>,
    is_lossy: bool,
}

impl Counters {
    pub fn new(plan: &Plan) -> Counters {
        Counters {
            sums: Mutex::new(vec![Sum::default(); KINDS.len() * EACH]),
            watched: Mutex::default(),
            is_lossy: plan.is_lossy(),
        }
    }

    fn add(&self, member: &mut Member, connection: &mut Connection) -> Result<(), Lost> {
        let in_transaction = member.prng.one_in(3);
        let count = if member.prng.one_in(4) { 1 + member.below(30) } else { 1 };
        let adds: Vec<(usize, i64)> =
            (0..count).map(|_| (member.below(KINDS.len() * EACH), 1 + member.below(9) as i64)).collect();
        let mut requests: Vec<Vec<Vec<u8>>> =
            adds.iter().map(|(at, amount)| line(&filled(KINDS[at / EACH].0, at % EACH, *amount))).collect();
        if in_transaction {
            requests.insert(0, line("MULTI"));
            requests.push(line("EXEC"));
        }
        self.note(&adds, |sum, amount| sum.sent += amount);
        connection.send_all(&requests)?;
        let mut replies = connection.replies(requests.len())?;
        if in_transaction {
            let last = replies.pop().expect("there is one for each request");
            replies = if let Value::Array(replies) = last { replies } else { vec![last; adds.len()] };
        }
        for (add, reply) in adds.iter().zip(replies) {
            match reply {
                Value::Error(text) => {
                    self.note(&[*add], |sum, amount| sum.sent -= amount);
                    // Another client's SCRIPT KILL: it ends only what has written nothing.
                    let is_killed = text.starts_with(b"ERR Script killed by user");
                    if !is_killed && !super::queues::is_refusal(&text) {
                        member.fault(format!("an addition failed: {}", String::from_utf8_lossy(&text)));
                    }
                }
                _ => {
                    self.note(&[*add], |sum, amount| sum.acknowledged += amount);
                    member.note_done();
                }
            }
        }
        Ok(())
    }

    fn note(&self, adds: &[(usize, i64)], change: impl Fn(&mut Sum, i64)) {
        let mut sums = self.sums.lock().expect("no thread panics with it");
        adds.iter().for_each(|(at, amount)| change(&mut sums[*at], *amount));
    }

    /// Adds one, unless another client was quicker.
    fn watch(&self, connection: &mut Connection) -> Result<(), Lost> {
        connection.send_all(&[line(&format!("WATCH {WATCHED}")), line(&format!("GET {WATCHED}"))])?;
        let replies = connection.replies(2)?;
        let next = number(&replies[1]).unwrap_or(0) + 1;
        self.watched.lock().expect("no thread panics with it").sent += 1;
        connection.send_all(&[line("MULTI"), line(&format!("SET {WATCHED} {next}")), line("EXEC")])?;
        let replies = connection.replies(3)?;
        let mut sum = self.watched.lock().expect("no thread panics with it");
        match &replies[2] {
            Value::Array(done) if done.iter().all(|reply| !matches!(reply, Value::Error(_))) => {
                sum.acknowledged += 1;
            }
            _ => sum.sent -= 1,
        }
        Ok(())
    }

    fn verdict(&self, name: &str, sum: Sum, value: i64) -> Option<String> {
        let acknowledged = if self.is_lossy { 0 } else { sum.acknowledged };
        Sum { acknowledged, ..sum }.verdict(value).map(|wrong| format!("{name} {wrong}"))
    }
}

impl Lane for Counters {
    fn work(&self, member: &mut Member) -> Result<(), Lost> {
        let mut connection = member.connect()?;
        while member.is_busy() {
            if member.prng.one_in(4) {
                self.watch(&mut connection)?
            } else {
                self.add(member, &mut connection)?
            };
            member.rest();
        }
        Ok(())
    }

    fn audit(&self, connection: &mut Connection) -> Result<Vec<String>, Lost> {
        let mut findings = Vec::new();
        let sums = self.sums.lock().expect("no thread panics with it").clone();
        for (at, sum) in sums.into_iter().enumerate() {
            let request = filled(KINDS[at / EACH].1, at % EACH, 0);
            let value = number(&connection.call(&line(&request))?).unwrap_or(0);
            findings.extend(self.verdict(&request, sum, value));
        }
        let value = number(&connection.call(&["GET", WATCHED])?).unwrap_or(0);
        let sum = *self.watched.lock().expect("no thread panics with it");
        findings.extend(self.verdict(WATCHED, sum, value));
        Ok(findings)
    }

    fn summary(&self) -> String {
        let sums = self.sums.lock().expect("no thread panics with it");
        let added: i64 = sums.iter().map(|sum| sum.acknowledged).sum();
        let watched = self.watched.lock().expect("no thread panics with it").acknowledged;
        format!("{added} added, {watched} optimistically")
    }
}

fn filled(pattern: &str, number: usize, amount: i64) -> String {
    pattern.replace('#', &number.to_string()).replace('@', &amount.to_string())
}

fn number(reply: &Value) -> Option<i64> {
    let Value::Bulk(text) = reply else { return None };
    std::str::from_utf8(text).ok()?.parse::<f64>().ok().map(|value| value as i64)
}
