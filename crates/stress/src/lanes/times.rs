//! Times: keys and fields whose lifetimes end together, among others that stay, are prolonged, or lose their
//! lifetime.
//!
//! One round fills a hash of tens of thousands of fields and as many keys, gives half of them a lifetime that
//! ends at one moment, changes its mind about some, lets the moment come, and counts what is left by asking
//! for it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use isotherm_resp::reply_parse::Value;

use super::{Lane, line, words};
use crate::connection::{Connection, Lost};
use crate::plan::{DB_TIMES, Plan};
use crate::world::Member;

/// Beyond 40,000 a hash has directories of two levels.
const FIELDS: [u64; 4] = [3_000, 20_000, 45_000, 45_000];
const KEYS: u64 = 10_000;
const PER_REQUEST: usize = 500;
/// Requests that are under way at a time.
const AHEAD: usize = 8;

pub struct Times {
    rounds: AtomicU64,
    scale: isotherm_probe::Scale,
}

impl Times {
    pub fn new(plan: &Plan) -> Times {
        Times { rounds: AtomicU64::new(0), scale: plan.scale }
    }

    fn fields(&self, member: &mut Member, connection: &mut Connection) -> Result<(), Lost> {
        let hash = format!("times:hash:{}:{}", member.number, member.prng.below(1000));
        let fields = self.scale.of(FIELDS[member.below(FIELDS.len())]);
        let names: Vec<String> =
            (0..fields).map(|field| format!("field-of-some-length-{field:08}")).collect();
        let batches: Vec<&[String]> = names.chunks(PER_REQUEST).collect();
        let fill = batches.iter().map(|batch| {
            let pairs = batch.iter().flat_map(|name| [name.as_str(), "a value of some bytes"]);
            ["HSET", &hash].into_iter().chain(pairs).map(|word| word.as_bytes().to_vec()).collect()
        });
        send_ahead(member, connection, fill)?;
        let due_ms = now_ms() + 300 + member.prng.below(1200);
        let (soon, late) = (due_ms.to_string(), (due_ms + 10_000_000).to_string());
        // In halves, in every second field, or all of them.
        let pattern = member.below(3);
        let times = batches.iter().enumerate().flat_map(|(at, batch)| {
            let (first, second): (Vec<&String>, Vec<&String>) = match pattern {
                0 if at < batches.len() / 2 => (batch.iter().collect(), Vec::new()),
                0 => (Vec::new(), batch.iter().collect()),
                1 => (batch.iter().step_by(2).collect(), batch.iter().skip(1).step_by(2).collect()),
                _ => (batch.iter().collect(), Vec::new()),
            };
            [(&soon, first), (&late, second)]
                .into_iter()
                .filter(|(_, fields)| !fields.is_empty())
                .map(|(moment, fields)| with_fields(&["HPEXPIREAT", &hash, moment], &fields))
                .collect::<Vec<_>>()
        });
        send_ahead(member, connection, times)?;
        self.change_minds(member, connection, &hash, &names, &late)?;
        self.wait_until(member, due_ms);
        for _ in 0..5 {
            connection.send_all(&[line(&format!("HLEN {hash}")), line(&format!("HRANDFIELD {hash} 3"))])?;
            connection.replies(2)?;
            member.sleep(Duration::from_millis(100));
        }
        connection.call(&[*member.prng.pick(&["DEL", "UNLINK"]), &hash])?;
        Ok(())
    }

    /// Some fields lose their lifetime, some live longer, some leave before it.
    fn change_minds(
        &self,
        member: &mut Member,
        connection: &mut Connection,
        hash: &str,
        names: &[String],
        late: &str,
    ) -> Result<(), Lost> {
        let word = match member.below(4) {
            0 => words(&["HPERSIST", hash]),
            1 => words(&["HPEXPIREAT", hash, late]),
            2 => words(&["HGETDEL", hash]),
            _ => return Ok(()),
        };
        let step = 2 + member.below(20);
        let chosen: Vec<&String> = names.iter().step_by(step).collect();
        let requests = chosen.chunks(PER_REQUEST).map(|batch| {
            let head: Vec<&str> = word.iter().map(|word| std::str::from_utf8(word).expect("ours")).collect();
            with_fields(&head, batch)
        });
        send_ahead(member, connection, requests)
    }

    /// Keys of one or of all slots, due at once; half of them are prolonged, persisted or written anew.
    fn keys(&self, member: &mut Member, connection: &mut Connection) -> Result<(), Lost> {
        let keys = self.scale.of(KEYS);
        let tag = if member.prng.one_in(3) { "{one}" } else { "" };
        let prefix = format!("times:{tag}{}:", member.number);
        let due_ms = now_ms() + 300 + member.prng.below(900);
        let sets = (0..keys)
            .map(|key| line(&format!("SET {prefix}{key} some-value-of-a-key-that-expires PXAT {due_ms}")));
        send_ahead(member, connection, sets)?;
        let change = ["PEXPIRE # 3600000", "PERSIST #", "SET # other", "SET # other KEEPTTL", "DEL #"]
            [member.below(5)];
        let changes = (0..keys).step_by(2).map(|key| line(&change.replace('#', &format!("{prefix}{key}"))));
        send_ahead(member, connection, changes)?;
        self.wait_until(member, due_ms);
        member.sleep(Duration::from_millis(300));
        let names: Vec<String> = (0..keys).map(|key| format!("{prefix}{key}")).collect();
        let removals = names.chunks(PER_REQUEST).map(|batch| {
            let names = batch.iter().map(|name| name.clone().into_bytes());
            words(&["UNLINK"]).into_iter().chain(names).collect()
        });
        send_ahead(member, connection, removals)
    }

    fn wait_until(&self, member: &Member, due_ms: u64) {
        member.sleep(Duration::from_millis(due_ms.saturating_sub(now_ms())));
    }
}

impl Lane for Times {
    fn work(&self, member: &mut Member) -> Result<(), Lost> {
        let mut connection = member.connect()?;
        connection.call(&line(&format!("SELECT {DB_TIMES}")))?;
        while member.is_busy() {
            if member.prng.one_in(3) {
                self.keys(member, &mut connection)?;
            } else {
                self.fields(member, &mut connection)?;
            }
            self.rounds.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    fn summary(&self) -> String {
        format!("{} bursts", self.rounds.load(Ordering::Relaxed))
    }
}

/// `head FIELDS n field ...`
fn with_fields(head: &[&str], fields: &[&String]) -> Vec<Vec<u8>> {
    let count = fields.len().to_string();
    let all = head.iter().copied().chain(["FIELDS", &count]).chain(fields.iter().map(|field| field.as_str()));
    all.map(|word| word.as_bytes().to_vec()).collect()
}

/// Sends requests some at a time; errors that a limit gives are nothing to this lane.
fn send_ahead(
    member: &Member,
    connection: &mut Connection,
    requests: impl Iterator<Item = Vec<Vec<u8>>>,
) -> Result<(), Lost> {
    let requests: Vec<Vec<Vec<u8>>> = requests.collect();
    for some in requests.chunks(AHEAD) {
        connection.send_all(some)?;
        for reply in connection.replies(some.len())? {
            if let Value::Error(text) = reply
                && !super::queues::is_refusal(&text)
            {
                member.fault(format!("{}", String::from_utf8_lossy(&text)));
            }
        }
        member.note_done();
        if !member.is_busy() {
            break;
        }
    }
    Ok(())
}

pub fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_millis() as u64
}
