//! Queues: lists and sorted sets into which some push and from which others pop, mostly waiting for many keys
//! at once.
//!
//! Every element is delivered to one consumer or still lies in one of the keys. A consumer that waits for a
//! key in which something lies has missed its wake-up, which shows when the producers have ended and it still
//! waits.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use isotherm_resp::reply_parse::Value;

use super::Lane;
use crate::connection::{Connection, LOOK, Lost};
use crate::ledger::{self, Elements};
use crate::plan::Plan;
use crate::world::Member;

const LISTS: usize = 0;
const SETS: usize = 1;
const NAMES: [&str; 2] = ["q:list", "q:zset"];
/// Elements that lie about; above it producers wait for the consumers.
const BACKLOG_MAX: i64 = 20_000;
const KEYS_PER_WAIT_MAX: usize = 100;

/// Wait of a consumer.
#[derive(Clone, PartialEq, Eq)]
struct Wait {
    /// A new one for every request.
    generation: u64,
    kind: usize,
    keys: std::ops::Range<usize>,
}

pub struct Queues {
    keys: usize,
    elements: Mutex<Elements>,
    backlog: AtomicI64,
    /// Number of elements that each member has sent. A member's elements do not depend on other members.
    sent: Vec<AtomicU64>,
    generation: AtomicU64,
    waits: Vec<Mutex<Option<Wait>>>,
    is_lossy: bool,
}

impl Queues {
    pub fn new(plan: &Plan, members: usize) -> Queues {
        Queues {
            // From few that all meet in to many in every partition.
            keys: [3, 20, 150][plan.seed as usize % 3],
            elements: Mutex::new(Elements::new(plan.is_lossy())),
            backlog: AtomicI64::new(0),
            sent: (0..members).map(|_| AtomicU64::new(0)).collect(),
            generation: AtomicU64::new(0),
            waits: (0..members).map(|_| Mutex::default()).collect(),
            is_lossy: plan.is_lossy(),
        }
    }

    fn elements(&self) -> std::sync::MutexGuard<'_, Elements> {
        self.elements.lock().expect("no thread panics with it")
    }

    // ---- producers ----

    fn produce(&self, member: &mut Member) -> Result<(), Lost> {
        let mut connection = member.connect()?;
        while member.is_busy() {
            if self.backlog.load(Ordering::Relaxed) > BACKLOG_MAX {
                member.sleep(LOOK);
                continue;
            }
            let pushes = if member.prng.one_in(3) { 1 + member.below(3) } else { 1 };
            let pushes: Vec<(Vec<Vec<u8>>, Vec<u64>)> = (0..pushes).map(|_| self.push(member)).collect();
            self.send(member, &mut connection, &pushes)?;
            member.rest();
        }
        Ok(())
    }

    /// Builds one request and returns it with its elements.
    fn push(&self, member: &mut Member) -> (Vec<Vec<u8>>, Vec<u64>) {
        let (kind, key) = (member.below(2), member.below(self.keys));
        let count = if member.prng.one_in(20) { 50 } else { 1 + member.below(3) };
        let first = self.sent[member.number].fetch_add(count as u64, Ordering::Relaxed);
        let elements: Vec<u64> =
            (first..first + count as u64).map(|number| ledger::element(member.number, number)).collect();
        let word = if kind == SETS { "ZADD" } else { ["RPUSH", "LPUSH"][member.below(2)] };
        let mut request = vec![word.as_bytes().to_vec(), key_name(kind, key)];
        for element in &elements {
            if kind == SETS {
                request.push(member.below(1000).to_string().into_bytes());
            }
            request.push(ledger::text_of(*element).into_bytes());
        }
        elements.iter().for_each(|element| self.elements().send(*element));
        (request, elements)
    }

    /// Several pushes are a pipeline or a transaction.
    fn send(
        &self,
        member: &mut Member,
        connection: &mut Connection,
        pushes: &[(Vec<Vec<u8>>, Vec<u64>)],
    ) -> Result<(), Lost> {
        let mut requests: Vec<Vec<Vec<u8>>> = pushes.iter().map(|(request, _)| request.clone()).collect();
        let is_transaction = member.prng.one_in(3);
        if is_transaction {
            requests.insert(0, super::words(&["MULTI"]));
            requests.push(super::words(&["EXEC"]));
        }
        connection.send_all(&requests)?;
        let mut replies = connection.replies(requests.len())?;
        if is_transaction {
            replies = match replies.pop() {
                Some(Value::Array(replies)) => replies,
                // Refused as a whole.
                other => vec![other.expect("there is one for each request"); pushes.len()],
            };
        }
        for ((_, elements), reply) in pushes.iter().zip(replies) {
            let mut ledger = self.elements();
            match reply {
                Value::Integer(_) => {
                    elements.iter().for_each(|element| ledger.acknowledge(*element));
                    self.backlog.fetch_add(elements.len() as i64, Ordering::Relaxed);
                    member.note_done();
                }
                Value::Error(text) => {
                    elements.iter().for_each(|element| ledger.refuse(*element));
                    if !is_refusal(&text) {
                        member.fault(format!("a push failed: {}", String::from_utf8_lossy(&text)));
                    }
                }
                other => member.fault(format!("a push was answered {}", crate::record::brief(&other))),
            }
        }
        Ok(())
    }

    // ---- consumers ----

    fn consume(&self, member: &mut Member) -> Result<(), Lost> {
        let mut connection = member.connect()?;
        let id = connection.id()?;
        member.world.exposed().unblockable.insert(id);
        let result = self.consume_with(member, &mut connection);
        member.world.exposed().unblockable.remove(&id);
        *self.waits[member.number].lock().expect("no thread panics with it") = None;
        result
    }

    fn consume_with(&self, member: &mut Member, connection: &mut Connection) -> Result<(), Lost> {
        while member.is_staying() {
            let (request, wait, count) = self.wait(member);
            *self.waits[member.number].lock().expect("no thread panics with it") = Some(wait);
            connection.send(&request)?;
            match self.await_reply(member, connection) {
                Ok(Some(reply)) => self.take(member, &request, &reply),
                Ok(None) => return Ok(()),
                Err(lost) => {
                    self.elements().may_miss(count);
                    return Err(lost);
                }
            }
            if member.is_busy() {
                member.rest();
            }
        }
        Ok(())
    }

    /// A request, what it waits for, and how many elements it takes at most.
    fn wait(&self, member: &mut Member) -> (Vec<Vec<u8>>, Wait, u64) {
        let kind = member.below(2);
        let first = member.below(self.keys);
        let most = (self.keys - first).min(KEYS_PER_WAIT_MAX);
        let count = if member.prng.one_in(2) { most } else { 1 + member.below(most) };
        let mut keys = first..first + count;
        let seconds = if member.prng.one_in(2) { "0" } else { *member.prng.pick(&["0.02", "0.3", "1.5"]) };
        let names = |keys: std::ops::Range<usize>| keys.map(move |key| key_name(kind, key));
        let many = ["1", "3", "20"][member.below(3)];
        let mut taken = 1;
        let request: Vec<Vec<u8>> = match (kind, member.below(4)) {
            (LISTS, 0) => {
                keys = first..first + 1;
                let to = key_name(LISTS, member.below(self.keys));
                let sides = *member.prng.pick(&["LEFT RIGHT", "RIGHT LEFT", "LEFT LEFT"]);
                let head = [b"BLMOVE".to_vec(), key_name(LISTS, first), to];
                taken = 0;
                head.into_iter().chain(super::line(sides)).chain(super::line(seconds)).collect()
            }
            (_, 1) => {
                taken = many.parse().expect("a number");
                let word = ["BLMPOP", "BZMPOP"][kind];
                let end = [["LEFT", "RIGHT"], ["MIN", "MAX"]][kind][member.below(2)];
                let head = super::words(&[word, seconds, &keys.len().to_string()]);
                let tail = super::words(&[end, "COUNT", many]);
                head.into_iter().chain(names(keys.clone())).chain(tail).collect()
            }
            (_, which) => {
                let word = [["BLPOP", "BRPOP"], ["BZPOPMIN", "BZPOPMAX"]][kind][which % 2];
                let head = super::words(&[word]);
                head.into_iter().chain(names(keys.clone())).chain(super::words(&[seconds])).collect()
            }
        };
        let generation = self.generation.fetch_add(1, Ordering::Relaxed);
        (request, Wait { generation, kind, keys }, taken)
    }

    /// Waits for a reply. Returns `None` if the run is over and none has come.
    fn await_reply(&self, member: &Member, connection: &mut Connection) -> Result<Option<Value>, Lost> {
        loop {
            if let Some(reply) = connection.next_within(LOOK)? {
                return Ok(Some(reply));
            }
            if !member.is_staying() {
                // No producer has sent anything for some time: what was taken for it would be here.
                return connection.next_within(2 * LOOK);
            }
        }
    }

    fn take(&self, member: &Member, request: &[Vec<u8>], reply: &Value) {
        if let Value::Error(text) = reply {
            if !text.starts_with(b"UNBLOCKED") && !is_refusal(text) {
                member.fault(format!("a wait failed: {}", String::from_utf8_lossy(text)));
            }
            return;
        }
        // Elements that were moved lie in another queue.
        if request[0] == b"BLMOVE" {
            return;
        }
        let mut taken = Vec::new();
        collect(reply, &mut taken);
        if !taken.is_empty() {
            member.note_done();
        }
        let mut ledger = self.elements();
        taken.iter().for_each(|element| ledger.find(*element));
        self.backlog.fetch_sub(taken.len() as i64, Ordering::Relaxed);
    }

    fn lengths(&self, connection: &mut Connection, kind: usize) -> Result<Vec<i64>, Lost> {
        let word = ["LLEN", "ZCARD"][kind];
        let requests: Vec<_> =
            (0..self.keys).map(|key| [word.as_bytes().to_vec(), key_name(kind, key)]).collect();
        connection.send_all(&requests)?;
        let replies = connection.replies(requests.len())?;
        Ok(replies.iter().map(|reply| if let Value::Integer(length) = reply { *length } else { 0 }).collect())
    }

    fn waits_now(&self) -> Vec<Wait> {
        self.waits.iter().filter_map(|wait| wait.lock().expect("no thread panics with it").clone()).collect()
    }
}

impl Lane for Queues {
    fn work(&self, member: &mut Member) -> Result<(), Lost> {
        if self.waits(member.number) { self.consume(member) } else { self.produce(member) }
    }

    fn waits(&self, number: usize) -> bool {
        number % 2 == 1
    }

    fn look_quiet(&self, connection: &mut Connection) -> Result<Vec<String>, Lost> {
        let before: BTreeSet<u64> = self.waits_now().iter().map(|wait| wait.generation).collect();
        let mut findings = Vec::new();
        for kind in [LISTS, SETS] {
            let lengths = self.lengths(connection, kind)?;
            for wait in self.waits_now().iter().filter(|wait| wait.kind == kind) {
                // One that has just begun to wait may not have been heard yet.
                if !before.contains(&wait.generation) {
                    continue;
                }
                if let Some(key) = wait.keys.clone().find(|key| lengths[*key] > 0) {
                    let name = String::from_utf8_lossy(&key_name(kind, key)).into_owned();
                    findings.push(format!("a consumer waits for {name}, in which {} lie", lengths[key]));
                }
            }
        }
        Ok(findings)
    }

    fn audit(&self, connection: &mut Connection) -> Result<Vec<String>, Lost> {
        for kind in [LISTS, SETS] {
            let word = ["LRANGE", "ZRANGE"][kind];
            for key in 0..self.keys {
                let left = connection.call(&[word.as_bytes(), &key_name(kind, key), b"0", b"-1"])?;
                let mut found = Vec::new();
                collect(&left, &mut found);
                let mut ledger = self.elements();
                found.into_iter().for_each(|element| ledger.find(element));
            }
        }
        Ok(self.elements().verdict())
    }

    fn summary(&self) -> String {
        let (sent, found) = self.elements().counts();
        let note = if self.is_lossy { " (data is thrown away)" } else { "" };
        format!("{sent} elements sent, {found} found{note}")
    }
}

fn key_name(kind: usize, key: usize) -> Vec<u8> {
    format!("{}:{key}", NAMES[kind]).into_bytes()
}

/// Errors that a limit of the server may give at any time.
pub fn is_refusal(text: &[u8]) -> bool {
    [&b"OOM"[..], b"EXECABORT"].iter().any(|start| text.starts_with(start))
}

/// All elements in a reply, wherever they stand; names of keys and scores are none.
fn collect(reply: &Value, into: &mut Vec<u64>) {
    match reply {
        Value::Bulk(text) if !text.starts_with(b"q:") => into.extend(ledger::element_of(text)),
        Value::Array(items) => items.iter().for_each(|item| collect(item, into)),
        _ => {}
    }
}
