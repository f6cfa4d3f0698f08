//! Victims: connections that wait for a key, and are killed or unblocked right before something is pushed to
//! it.
//!
//! CLIENT KILL and CLIENT UNBLOCK have happened when they are answered. So elements that are pushed after
//! them, even in the same packet, are not for the victim: they have to be there afterwards. No other client
//! has these keys.

use std::sync::atomic::{AtomicU64, Ordering};

use isotherm_resp::reply_parse::Value;

use super::{Lane, line, words};
use crate::connection::{Connection, LOOK, Lost};
use crate::plan::Plan;
use crate::record::brief;
use crate::world::Member;

const KEYS: usize = 40;

/// A command that waits for one of many keys, one that pushes, and one that shows what is there.
struct Way {
    wait: fn(&[String]) -> String,
    push: &'static str,
    left: &'static str,
}

const WAYS: [Way; 6] = [
    Way { wait: |keys| format!("BLPOP {} 0", keys.join(" ")), push: "RPUSH # x", left: "LRANGE # 0 -1" },
    Way { wait: |keys| format!("BRPOP {} 0", keys.join(" ")), push: "LPUSH # x", left: "LRANGE # 0 -1" },
    Way {
        wait: |keys| format!("BLMPOP 0 {} {} LEFT COUNT 3", keys.len(), keys.join(" ")),
        push: "RPUSH # x",
        left: "LRANGE # 0 -1",
    },
    Way { wait: |keys| format!("BZPOPMIN {} 0", keys.join(" ")), push: "ZADD # 1 x", left: "ZRANGE # 0 -1" },
    Way {
        wait: |keys| format!("BZMPOP 0 {} {} MAX", keys.len(), keys.join(" ")),
        push: "ZADD # 1 x",
        left: "ZRANGE # 0 -1",
    },
    Way {
        wait: |keys| format!("BLMOVE {} {} LEFT RIGHT 0", keys[0], keys[1]),
        push: "RPUSH # x",
        left: "LRANGE # 0 -1",
    },
];

pub struct Victims {
    rounds: AtomicU64,
    is_lossy: bool,
    kills_all: bool,
}

impl Victims {
    pub fn new(plan: &Plan) -> Victims {
        Victims { rounds: AtomicU64::new(0), is_lossy: plan.is_lossy(), kills_all: plan.kills_all }
    }

    fn round(
        &self,
        member: &mut Member,
        killer: &mut Connection,
        pusher: &mut Connection,
    ) -> Result<(), Lost> {
        let keys: Vec<String> = (0..KEYS).map(|key| format!("v:{}:{key}", member.number)).collect();
        let way = &WAYS[member.below(WAYS.len())];
        let kills = !member.prng.one_in(3);
        let mut victim = member.connect()?;
        let id = victim.id()?;
        let few = 2 + member.below(KEYS - 2);
        victim.send(&line(&(way.wait)(&keys[..few])))?;
        if !is_waiting(member, killer, id)? {
            // A server that is late may run its command yet, and would serve it in the next round.
            killer.call(&line(&format!("CLIENT KILL ID {id}")))?;
            return Ok(());
        }
        // BLMOVE waits for the first alone.
        let key = if way.push.starts_with("RPUSH") && member.prng.one_in(2) { 0 } else { member.below(few) };
        let end = if kills { format!("CLIENT KILL ID {id}") } else { format!("CLIENT UNBLOCK {id}") };
        let push = line(&way.push.replace('#', &keys[key]));
        let (ended, pushed) = if member.prng.one_in(2) {
            // In one packet: the push runs on the heels of the other.
            killer.send_all(&[line(&end), push])?;
            (killer.reply()?, killer.reply()?)
        } else {
            (killer.call(&line(&end))?, pusher.call(&push)?)
        };
        let left = killer.call(&line(&way.left.replace('#', &keys[key])))?;
        let is_there = left == Value::Array(words(&["x"]).into_iter().map(Value::Bulk).collect());
        let was_pushed = matches!(pushed, Value::Integer(1));
        // Another client may have ended it first; then it was not waiting, and nothing follows.
        if ended == Value::Integer(1) && was_pushed && !is_there && !self.is_lossy {
            member.fault(format!(
                "{end}, then {} {}: afterwards there is {}",
                way.push,
                keys[key],
                brief(&left)
            ));
        }
        if !kills && ended == Value::Integer(1) {
            self.look_at_unblocked(member, &mut victim)?;
        }
        killer.call(&[words(&["DEL"]), keys.into_iter().map(String::into_bytes).collect()].concat())?;
        member.note_done();
        self.rounds.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Checks that the unblocked client gets an answer, and that the answer is not one of the elements.
    fn look_at_unblocked(&self, member: &Member, victim: &mut Connection) -> Result<(), Lost> {
        match victim.reply() {
            Ok(Value::NullArray | Value::NullBulk | Value::Null) => Ok(()),
            Ok(other) => {
                member.fault(format!("a wait that was unblocked is answered {}", brief(&other)));
                Ok(())
            }
            Err(Lost::Closed(_)) if self.kills_all => Ok(()),
            Err(lost) => Err(lost),
        }
    }
}

/// Returns whether the server reports within a second that this client waits.
fn is_waiting(member: &Member, asker: &mut Connection, id: u64) -> Result<bool, Lost> {
    for _ in 0..20 {
        let reply = asker.call(&line(&format!("CLIENT LIST ID {id}")))?;
        let Value::Bulk(text) = reply else { return Ok(false) };
        let text = String::from_utf8_lossy(&text).into_owned();
        let flags = text.split_ascii_whitespace().find_map(|word| word.strip_prefix("flags="));
        match flags {
            Some(flags) if flags.contains('b') => return Ok(true),
            Some(_) if member.is_busy() => std::thread::sleep(LOOK / 20),
            _ => return Ok(false),
        }
    }
    Ok(false)
}

impl Lane for Victims {
    fn work(&self, member: &mut Member) -> Result<(), Lost> {
        let mut killer = member.connect()?;
        let mut pusher = member.connect()?;
        while member.is_busy() {
            self.round(member, &mut killer, &mut pusher)?;
            member.rest();
        }
        Ok(())
    }

    fn summary(&self) -> String {
        format!("{} rounds", self.rounds.load(Ordering::Relaxed))
    }
}
