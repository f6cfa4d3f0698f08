//! Wide: requests with very many keys, channels or ids, and what meets the clients that wait for them.
//!
//! Each is linear in what it names, which is some milliseconds here. If it is more than linear, other clients
//! wait, and the watchdog sees it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::{Lane, line, words};
use crate::connection::{Connection, Lost};
use crate::kinds::Disturbance;
use crate::plan::{DB_WIDE, DBS_ANY, Plan};
use crate::world::Member;

const KEYS: u64 = 30_000;
/// Number of keys in requests that have two words for each key.
const PAIRS: u64 = 10_000;

pub struct Wide {
    rounds: AtomicU64,
    keys: u64,
    pairs: u64,
    swaps: bool,
}

impl Wide {
    pub fn new(plan: &Plan) -> Wide {
        Wide {
            rounds: AtomicU64::new(0),
            keys: plan.scale.of(KEYS),
            pairs: plan.scale.of(PAIRS),
            swaps: plan.draws(Disturbance::Swap),
        }
    }

    fn named(&self, head: &str, count: u64, tail: &str) -> Vec<Vec<u8>> {
        let names = (0..count).map(|key| format!("wide:{key}").into_bytes());
        line(head).into_iter().chain(names).chain(line(tail)).collect()
    }

    fn round(
        &self,
        member: &mut Member,
        connection: &mut Connection,
        other: &mut Connection,
    ) -> Result<(), Lost> {
        let near = member.below(self.keys as usize);
        match member.below(9) {
            0 => {
                connection.call(&self.named("WATCH", self.keys, ""))?;
                other.call(&words(&["SET", &format!("wide:{near}"), "x"]))?;
                connection.send_all(&["MULTI", "PING", "EXEC"].map(line))?;
                connection.replies(3)?;
            }
            1 => {
                connection.send(&self.named("BLPOP", self.keys, "0.4"))?;
                self.disturb(member, other)?;
                connection.reply()?;
            }
            2 => {
                let head = format!("BZMPOP 0.4 {}", self.pairs);
                connection.send(&self.named(&head, self.pairs, "MIN"))?;
                self.disturb(member, other)?;
                connection.reply()?;
            }
            3 => {
                let request = self.named("XREAD BLOCK 300 STREAMS", self.pairs, "");
                let ids = (0..self.pairs).map(|_| b"$".to_vec());
                connection.send(&request.into_iter().chain(ids).collect::<Vec<_>>())?;
                self.disturb(member, other)?;
                connection.reply()?;
            }
            4 => {
                let pairs = (0..self.pairs).flat_map(|key| line(&format!("wide:{key} some-value")));
                connection.call(&line("MSET").into_iter().chain(pairs).collect::<Vec<_>>())?;
                connection.call(&self.named("MGET", self.keys, ""))?;
                connection.call(&self.named("UNLINK", self.keys, ""))?;
            }
            5 => {
                let mut third = member.connect()?;
                third.send(&self.named("SUBSCRIBE", self.pairs, ""))?;
                third.send(&words(&["UNSUBSCRIBE"]))?;
                let patterns = (0..self.pairs / 20).map(|key| format!("wide:{key}:*").into_bytes());
                third.send(&words(&["PSUBSCRIBE"]).into_iter().chain(patterns).collect::<Vec<_>>())?;
                other.call(&["PUBLISH", "wide:7:x", "message"])?;
                while third.next_within(Duration::from_millis(50))?.is_some() {}
            }
            6 => {
                let ids = (0..self.pairs).map(|id| (u32::MAX as u64 + id).to_string().into_bytes());
                connection.call(&line("CLIENT KILL ID").into_iter().chain(ids).collect::<Vec<_>>())?;
                let ids = (0..self.pairs).map(|id| (u32::MAX as u64 + id).to_string().into_bytes());
                connection.call(&line("CLIENT LIST ID").into_iter().chain(ids).collect::<Vec<_>>())?;
            }
            7 => {
                let members = (0..self.pairs).flat_map(|at| line(&format!("{at} member-{at}")));
                connection.call(&line("ZADD wide:zset").into_iter().chain(members).collect::<Vec<_>>())?;
                connection.call(&line("COPY wide:zset wide:copy REPLACE"))?;
                connection.call(&line("ZRANGESTORE wide:part wide:zset 0 5000"))?;
                connection.call(&line("DEL wide:zset wide:copy wide:part"))?;
            }
            _ => {
                let request = self.named("SINTER", self.pairs, "");
                connection.call(&request)?;
                connection.call(&self.named("EXISTS", self.keys, ""))?;
                connection.call(&self.named("PFCOUNT", self.pairs, ""))?;
            }
        }
        member.note_done();
        self.rounds.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Sends a command that affects all keys that are waited for, or one of them.
    fn disturb(&self, member: &mut Member, other: &mut Connection) -> Result<(), Lost> {
        std::thread::sleep(Duration::from_millis(member.prng.below(60)));
        let near = member.below(self.pairs as usize);
        let to = DBS_ANY.start + member.below(DBS_ANY.len());
        let requests = match member.below(4) {
            0 if self.swaps => vec![format!("SWAPDB {DB_WIDE} {to}")],
            1 if self.swaps => vec!["FLUSHDB".to_string()],
            2 => vec![format!("RPUSH wide:{near} x"), format!("DEL wide:{near}")],
            _ => vec![format!("ZADD wide:{near} 1 x"), format!("XADD wide:{near}x * a b")],
        };
        for request in requests {
            other.call(&line(&request))?;
        }
        Ok(())
    }
}

impl Lane for Wide {
    fn work(&self, member: &mut Member) -> Result<(), Lost> {
        let mut connection = member.connect()?;
        let mut other = member.connect()?;
        connection.call(&line(&format!("SELECT {DB_WIDE}")))?;
        other.call(&line(&format!("SELECT {DB_WIDE}")))?;
        while member.is_busy() {
            self.round(member, &mut connection, &mut other)?;
            member.sleep(Duration::from_millis(100));
        }
        Ok(())
    }

    fn summary(&self) -> String {
        format!("{} rounds", self.rounds.load(Ordering::Relaxed))
    }
}
