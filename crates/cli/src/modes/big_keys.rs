//! `--bigkeys` and `--memkeys`: the largest keys of each type, by elements or by bytes, found by looking at
//! every key.

use std::sync::atomic::Ordering;

use isotherm_resp::reply_parse::Value;

use super::scan::{Walk, ask_each, db_size, read_only};
use super::{error_text, stop_flag};
use crate::Fallible;
use crate::session::Session;
use crate::terminal::put;
use crate::text::quoted;

/// Steps of the walk between two pauses, if pauses are asked for.
pub const STEPS_PER_PAUSE: u64 = 100;
/// Keys between two words about how far we are.
const KEYS_PER_WORD: u64 = 1_000_000;

/// Statistics of the keys of one type.
struct TypeStats {
    name: String,
    size_command: Option<&'static str>,
    unit: &'static str,
    biggest: u64,
    biggest_key: Option<String>,
    count: u64,
    total: u64,
}

impl TypeStats {
    fn new(name: &str, size_command: Option<&'static str>, unit: &'static str) -> TypeStats {
        TypeStats {
            name: name.to_string(),
            size_command,
            unit,
            biggest: 0,
            biggest_key: None,
            count: 0,
            total: 0,
        }
    }

    fn all() -> Vec<TypeStats> {
        vec![
            TypeStats::new("string", Some("STRLEN"), "bytes"),
            TypeStats::new("list", Some("LLEN"), "items"),
            TypeStats::new("set", Some("SCARD"), "members"),
            TypeStats::new("hash", Some("HLEN"), "fields"),
            TypeStats::new("zset", Some("ZCARD"), "members"),
            TypeStats::new("stream", Some("XLEN"), "entries"),
        ]
    }
}

struct Survey {
    types: Vec<TypeStats>,
    /// Number of elements that MEMORY USAGE samples if sizes are in bytes; `None` if sizes are in elements.
    memory_samples: Option<i64>,
    sampled: u64,
    key_bytes: u64,
    expected: u64,
}

pub fn run(session: &mut Session, memory_samples: Option<i64>) -> Fallible<i32> {
    let stop = stop_flag()?;
    let expected = db_size(session)?;
    let mut survey = Survey { types: TypeStats::all(), memory_samples, sampled: 0, key_bytes: 0, expected };
    put("\n# Scanning the entire keyspace to find biggest keys as well as\n\
         # average sizes per key type.  You can use -i 0.1 to sleep 0.1 sec\n\
         # per 100 SCAN commands (not usually needed).\n\n");
    read_only(session)?;
    let mut walk = Walk::default();
    let mut progress = 0.0;
    while !walk.done && !stop.load(Ordering::Relaxed) {
        progress = percent(survey.sampled, survey.expected);
        let keys = walk.step(session)?;
        survey.look_at(session, &keys, progress)?;
        if walk.steps.is_multiple_of(STEPS_PER_PAUSE) {
            std::thread::sleep(session.options.interval);
        }
    }
    put(survey.summary((!walk.done).then_some(progress)));
    Ok(0)
}

pub fn percent(part: u64, whole: u64) -> f64 {
    100.0 * part as f64 / whole.max(1) as f64
}

impl Survey {
    fn look_at(&mut self, session: &mut Session, keys: &[Vec<u8>], progress: f64) -> Fallible {
        let types = self.types_of(session, keys)?;
        let sizes = self.sizes_of(session, keys, &types)?;
        for ((key, kind), size) in keys.iter().zip(types).zip(sizes) {
            // A key that went between SCAN and TYPE is none.
            let Some(kind) = kind else { continue };
            self.sampled += 1;
            self.key_bytes += key.len() as u64;
            let unit = self.unit(&self.types[kind]);
            let stats = &mut self.types[kind];
            stats.count += 1;
            stats.total += size;
            if size > stats.biggest {
                let name = quoted(key);
                put(format!(
                    "[{progress:05.2}%] Biggest {:<6} found so far '{name}' with {size} {unit}\n",
                    stats.name
                ));
                stats.biggest = size;
                stats.biggest_key = Some(name);
            }
            if self.sampled.is_multiple_of(KEYS_PER_WORD) {
                put(format!("[{progress:05.2}%] Sampled {} keys so far\n", self.sampled));
            }
        }
        Ok(())
    }

    fn unit(&self, stats: &TypeStats) -> &'static str {
        if self.memory_samples.is_some() { "bytes" } else { stats.unit }
    }

    /// The place of each key's type in our list; a type that is not ours is added.
    fn types_of(&mut self, session: &mut Session, keys: &[Vec<u8>]) -> Fallible<Vec<Option<usize>>> {
        let replies = ask_each(session, keys, |_, key| Some(vec![b"TYPE".to_vec(), key.to_vec()]))?;
        replies
            .into_iter()
            .zip(keys)
            .map(|(reply, key)| match reply {
                Some(Value::Simple(name)) => Ok(self.place_of(&String::from_utf8_lossy(&name))),
                Some(reply) => Err(match error_text(&reply) {
                    Some(error) => format!("TYPE returned an error: {error}"),
                    None => format!("Invalid reply type for TYPE on key '{}'!", quoted(key)),
                }),
                None => Ok(None),
            })
            .collect()
    }

    fn place_of(&mut self, name: &str) -> Option<usize> {
        if name == "none" {
            return None;
        }
        let known = self.types.iter().position(|stats| stats.name == name);
        known.or_else(|| {
            self.types.push(TypeStats::new(name, None, "?"));
            Some(self.types.len() - 1)
        })
    }

    fn sizes_of(
        &self,
        session: &mut Session,
        keys: &[Vec<u8>],
        types: &[Option<usize>],
    ) -> Fallible<Vec<u64>> {
        let command = |at: usize| types[at].and_then(|kind| self.types[kind].size_command);
        let replies = ask_each(session, keys, |at, key| match self.memory_samples {
            Some(_) if types[at].is_none() => None,
            None => Some(vec![command(at)?.as_bytes().to_vec(), key.to_vec()]),
            Some(samples) => {
                let mut args = vec![b"MEMORY".to_vec(), b"USAGE".to_vec(), key.to_vec()];
                if samples != 0 {
                    args.extend([b"SAMPLES".to_vec(), samples.to_string().into_bytes()]);
                }
                Some(args)
            }
        })?;
        let size = |(at, reply): (usize, Option<Value>)| match reply {
            Some(Value::Integer(size)) => size.unsigned_abs(),
            None => 0,
            Some(_) => {
                let command =
                    if self.memory_samples.is_some() { "MEMORY USAGE" } else { command(at).unwrap_or("?") };
                let key = String::from_utf8_lossy(&keys[at]);
                eprintln!("Warning:  {command} on '{key}' failed (may have changed type)");
                0
            }
        };
        Ok(replies.into_iter().enumerate().map(size).collect())
    }

    fn summary(&self, stopped_at: Option<f64>) -> String {
        let mut out = "\n-------- Summary --------\n\n".to_string();
        if let Some(progress) = stopped_at {
            out += &format!("[{progress:05.2}%] ");
        }
        let average = |total: u64, count: u64| if count == 0 { 0.0 } else { total as f64 / count as f64 };
        out += &format!("Sampled {} keys in the keyspace!\n", self.sampled);
        out += &format!(
            "Total key length in bytes is {} (avg len {:.2})\n\n",
            self.key_bytes,
            average(self.key_bytes, self.sampled)
        );
        for stats in &self.types {
            if let Some(key) = &stats.biggest_key {
                let unit = self.unit(stats);
                out += &format!("Biggest {:>6} found '{key}' has {} {unit}\n", stats.name, stats.biggest);
            }
        }
        out.push('\n');
        for stats in &self.types {
            out += &format!(
                "{} {}s with {} {} ({:05.2}% of keys, avg size {:.2})\n",
                stats.count,
                stats.name,
                stats.total,
                self.unit(stats),
                percent(stats.count, self.sampled),
                average(stats.total, stats.count)
            );
        }
        out
    }
}
