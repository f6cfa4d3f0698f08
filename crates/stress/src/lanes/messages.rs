//! Messages: publishers number what they send, readers hear each number once and in order; others read slowly or not at all.
//!
//! A reader that is slower than its publishers is closed by `client-output-buffer-limit`, which is as it should be: it comes
//! again, and its numbers begin anew. Whoever stays connected misses nothing. In some runs all publishers send megabytes at
//! the same moment, more than the server lets be on its way.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use isotherm_resp::reply_parse::Value;

use super::{Lane, words};
use crate::connection::{Connection, LOOK, Lost};
use crate::ledger::Sequence;
use crate::plan::Plan;
use crate::world::Member;

const ROLES: usize = 3;
const CHANNELS: usize = 8;
/// Half of the channels are sharded.
const SHARDED: usize = CHANNELS / 2;
const FLOOD_EVERY: Duration = Duration::from_secs(4);
const FLOOD_MESSAGE_BYTES: usize = 1 << 20;
const FLOOD_MESSAGES: usize = 5;
/// All publishers together; half more than the server lets be on its way before it makes writers wait.
const FLOOD_BYTES_MAX: usize = 100 << 20;

/// Who sends, on which channel.
type Source = (usize, usize);

pub struct Messages {
    /// The last number of each source that was acknowledged.
    published: Mutex<HashMap<Source, u64>>,
    /// What each reader has heard, while it is connected.
    heard: Vec<Mutex<HashMap<Source, Sequence>>>,
    messages: AtomicU64,
    closed: AtomicU64,
    flood_messages: usize,
    floods: bool,
    filler: Vec<u8>,
}

impl Messages {
    pub fn new(plan: &Plan, members: usize) -> Messages {
        let publishers = members.div_ceil(ROLES);
        let each = FLOOD_BYTES_MAX / FLOOD_MESSAGE_BYTES / publishers.max(1);
        Messages {
            published: Mutex::default(),
            heard: (0..members).map(|_| Mutex::default()).collect(),
            messages: AtomicU64::new(0),
            closed: AtomicU64::new(0),
            flood_messages: each.clamp(1, FLOOD_MESSAGES),
            floods: plan.floods,
            filler: vec![b'.'; plan.scale.of(FLOOD_MESSAGE_BYTES as u64) as usize],
        }
    }

    // ---- publishers ----

    fn publish(&self, member: &mut Member) -> Result<(), Lost> {
        let mut connection = member.connect()?;
        let mut counts = [0; CHANNELS];
        let mut flooded = 0;
        while member.is_busy() {
            let due = member.world.begun.elapsed().as_secs() / FLOOD_EVERY.as_secs();
            let (count, bytes) = if self.floods && due > flooded {
                flooded = due;
                (self.flood_messages, self.filler.len())
            } else {
                let bytes = *member.prng.pick(&[1, 1, 1, 100, 1000, 20_000]);
                (1 + member.below(3), bytes.min(self.filler.len()))
            };
            self.send(member, &mut connection, &mut counts, count, bytes)?;
            member.rest();
        }
        Ok(())
    }

    fn send(
        &self,
        member: &mut Member,
        connection: &mut Connection,
        counts: &mut [u64; CHANNELS],
        count: usize,
        bytes: usize,
    ) -> Result<(), Lost> {
        let channels: Vec<usize> = (0..count).map(|_| member.below(CHANNELS)).collect();
        let mut requests = Vec::new();
        for channel in &channels {
            counts[*channel] += 1;
            let mut message = format!("{} {} ", member.number, counts[*channel]).into_bytes();
            message.extend_from_slice(&self.filler[..bytes]);
            let word = if *channel < SHARDED { "SPUBLISH" } else { "PUBLISH" };
            requests.push(vec![word.as_bytes().to_vec(), name(*channel), message]);
        }
        connection.send_all(&requests)?;
        for reply in connection.replies(count)? {
            if let Value::Error(text) = reply {
                member.fault(format!("PUBLISH failed: {}", String::from_utf8_lossy(&text)));
            }
        }
        let mut published = self.published.lock().expect("no thread panics with it");
        for channel in channels {
            published.insert((member.number, channel), counts[channel]);
        }
        self.messages.fetch_add(count as u64, Ordering::Relaxed);
        Ok(())
    }

    // ---- readers ----

    fn read(&self, member: &mut Member) -> Result<(), Lost> {
        while member.is_staying() {
            let mut connection = member.connect()?;
            subscribe(&mut connection, member.prng.one_in(2))?;
            let result = self.hear_all(member, &mut connection);
            self.heard(member.number).clear();
            match result {
                // Too slow for what was published.
                Err(Lost::Closed(_)) => drop(self.closed.fetch_add(1, Ordering::Relaxed)),
                other => return other,
            }
        }
        Ok(())
    }

    fn hear_all(&self, member: &Member, connection: &mut Connection) -> Result<(), Lost> {
        while member.is_staying() {
            if let Some(value) = connection.next_within(LOOK)?
                && let Some((source, number)) = message_of(&value)
                && let Err(wrong) = self.heard(member.number).entry(source).or_default().hear(number)
            {
                member.fault(format!("of publisher {} on channel {}: {wrong}", source.0, source.1));
            }
        }
        Ok(())
    }

    fn heard(&self, number: usize) -> std::sync::MutexGuard<'_, HashMap<Source, Sequence>> {
        self.heard[number].lock().expect("no thread panics with it")
    }

    /// Reads a little, stops for some time, goes on or leaves.
    fn dawdle(&self, member: &mut Member) -> Result<(), Lost> {
        while member.is_busy() {
            let mut connection = member.connect()?;
            let id = connection.id()?;
            member.world.exposed().killable.insert(id, member.name.clone());
            let result = dawdle_with(member, &mut connection);
            member.world.exposed().killable.remove(&id);
            match result {
                Err(Lost::Closed(_)) | Ok(()) => {}
                Err(lost) => return Err(lost),
            }
        }
        Ok(())
    }
}

fn dawdle_with(member: &mut Member, connection: &mut Connection) -> Result<(), Lost> {
    subscribe(connection, false)?;
    for _ in 0..1 + member.below(4) {
        let until = Instant::now() + Duration::from_millis(member.prng.below(500));
        while member.is_busy() && Instant::now() < until {
            connection.next_within(LOOK / 10)?;
        }
        let silence_ms = *member.prng.pick(&[200, 1000, 5000]);
        member.sleep(Duration::from_millis(silence_ms));
    }
    Ok(())
}

fn subscribe(connection: &mut Connection, with_pushes: bool) -> Result<(), Lost> {
    if with_pushes {
        connection.call(&["HELLO", "3"])?;
    }
    let sharded: Vec<Vec<u8>> = (0..SHARDED).map(name).collect();
    // Sharded channels lie in slots, as keys do; on a server without a cluster any of them go together.
    connection.send(&[words(&["SSUBSCRIBE"]), sharded].concat())?;
    connection.send(&[words(&["SUBSCRIBE"]), (SHARDED..CHANNELS).map(name).collect()].concat())
}

impl Lane for Messages {
    fn work(&self, member: &mut Member) -> Result<(), Lost> {
        match member.number % ROLES {
            0 => self.publish(member),
            1 => self.read(member),
            _ => self.dawdle(member),
        }
    }

    fn waits(&self, number: usize) -> bool {
        number % ROLES == 1
    }

    fn look_quiet(&self, _: &mut Connection) -> Result<Vec<String>, Lost> {
        let published = self.published.lock().expect("no thread panics with it").clone();
        let mut findings = Vec::new();
        for reader in (0..self.heard.len()).filter(|number| self.waits(*number)) {
            for (source, sequence) in self.heard(reader).iter() {
                let (last, sent) = (sequence.last(), published.get(source).copied());
                if sent.is_some() && last < sent {
                    findings.push(format!(
                        "reader {reader} has heard {last:?} of {source:?}, {sent:?} was published"
                    ));
                }
            }
        }
        Ok(findings)
    }

    fn summary(&self) -> String {
        let (messages, closed) = (self.messages.load(Ordering::Relaxed), self.closed.load(Ordering::Relaxed));
        format!("{messages} published, {closed} readers were too slow")
    }
}

fn name(channel: usize) -> Vec<u8> {
    format!("m:{channel}").into_bytes()
}

/// Of a message: publisher, channel and number. Confirmations of subscriptions are none.
fn message_of(value: &Value) -> Option<(Source, u64)> {
    let (Value::Array(parts) | Value::Push(parts)) = value else { return None };
    let [Value::Bulk(kind), Value::Bulk(channel), Value::Bulk(text)] = parts.as_slice() else { return None };
    if !matches!(kind.as_slice(), b"message" | b"smessage") {
        return None;
    }
    let channel = std::str::from_utf8(channel).ok()?.strip_prefix("m:")?.parse().ok()?;
    let mut words = text.splitn(3, |byte| *byte == b' ');
    let mut number = || std::str::from_utf8(words.next()?).ok()?.parse::<u64>().ok();
    Some(((number()? as usize, channel), number()?))
}
