//! `--hotkeys`: the keys with the highest use counts, which only an LFU policy keeps.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use isotherm_resp::reply_parse::Value;

use super::big_keys::{STEPS_PER_PAUSE, percent};
use super::scan::{Walk, ask_each, db_size, read_only};
use super::{error_text, stop_flag};
use crate::Fallible;
use crate::session::Session;
use crate::terminal::put;
use crate::text::quoted;

const KEYS_PER_WORD: u64 = 1_000_000;

/// The hottest keys so far, at most `room` of them. Of keys that are equally hot, those that came first stay.
struct Hottest {
    room: usize,
    came: u64,
    /// Coldest first; `u64::MAX - came`, so that of equals the latest is the coldest.
    keys: BTreeSet<(u64, u64, String)>,
}

impl Hottest {
    fn new(room: usize) -> Hottest {
        Hottest { room, came: 0, keys: BTreeSet::new() }
    }

    /// True if the key is among the hottest now.
    fn offer(&mut self, key: &[u8], uses: u64) -> bool {
        let coldest = self.keys.first().map_or(0, |(uses, ..)| *uses);
        if self.room == 0 || uses == 0 || self.keys.len() == self.room && uses <= coldest {
            return false;
        }
        if self.keys.len() == self.room {
            self.keys.pop_first();
        }
        self.came += 1;
        self.keys.insert((uses, u64::MAX - self.came, quoted(key)));
        true
    }
}

pub fn run(session: &mut Session, count: usize) -> Fallible<i32> {
    let stop = stop_flag()?;
    let expected = db_size(session)?;
    put("\n# Scanning the entire keyspace to find hot keys as well as\n\
         # average sizes per key type.  You can use -i 0.1 to sleep 0.1 sec\n\
         # per 100 SCAN commands (not usually needed).\n\n");
    read_only(session)?;
    let (mut walk, mut hottest, mut sampled, mut progress) = (Walk::default(), Hottest::new(count), 0, 0.0);
    while !walk.done && !stop.load(Ordering::Relaxed) {
        progress = percent(sampled, expected);
        let keys = walk.step(session)?;
        let uses = uses_of(session, &keys)?;
        for (key, uses) in keys.iter().zip(uses) {
            sampled += 1;
            if sampled % KEYS_PER_WORD == 0 {
                put(format!("[{progress:05.2}%] Sampled {sampled} keys so far\n"));
            }
            if hottest.offer(key, uses) {
                let key = quoted(key);
                put(format!("[{progress:05.2}%] Hot key '{key}' found so far with counter {uses}\n"));
            }
        }
        if walk.steps.is_multiple_of(STEPS_PER_PAUSE) {
            std::thread::sleep(session.options.interval);
        }
    }
    put("\n-------- Summary --------\n\n");
    if !walk.done {
        put(format!("[{progress:05.2}%] "));
    }
    put(format!("Sampled {sampled} keys in the keyspace!\n"));
    for (uses, _, key) in hottest.keys.iter().rev() {
        put(format!("hot key found with counter: {uses}\tkeyname: {key}\n"));
    }
    Ok(0)
}

fn uses_of(session: &mut Session, keys: &[Vec<u8>]) -> Fallible<Vec<u64>> {
    let replies =
        ask_each(session, keys, |_, key| Some(vec![b"OBJECT".to_vec(), b"FREQ".to_vec(), key.to_vec()]))?;
    replies
        .into_iter()
        .zip(keys)
        .map(|(reply, key)| match reply {
            Some(Value::Integer(uses)) => Ok(uses.unsigned_abs()),
            Some(reply) if reply.as_error().is_some() => {
                Err(format!("Error: {}", error_text(&reply).unwrap_or_default()))
            }
            _ => {
                eprintln!("Warning: OBJECT freq on '{}' failed (may have been deleted)", quoted(key));
                Ok(0)
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_hottest_stay() {
        let mut hottest = Hottest::new(2);
        let offers = [
            ("a", 1, true),
            ("b", 5, true),
            ("c", 0, false),
            ("d", 3, true),
            ("e", 3, false),
            ("f", 9, true),
        ];
        for (key, uses, expected) in offers {
            assert_eq!(hottest.offer(key.as_bytes(), uses), expected, "{key}");
        }
        let names: Vec<&str> = hottest.keys.iter().rev().map(|(_, _, key)| key.as_str()).collect();
        assert_eq!(names, ["\"f\"", "\"b\""]);
        assert!(!Hottest::new(0).offer(b"a", 1));
    }
}
