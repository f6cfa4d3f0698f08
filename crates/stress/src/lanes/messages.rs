//! Messages: publishers number what they send, readers hear each number once and in order; others read slowly
//! or not at all.
//!
//! A reader that is slower than its publishers is closed by `client-output-buffer-limit`, which is as it
//! should be, and the server's log has to say so: the reader connects again, and its numbers begin anew. A
//! reader that stays connected misses nothing of what is sent after its subscription was confirmed. In some
//! runs all publishers send megabytes at the same moment, more than the server lets be on its way.

use std::collections::{BTreeSet, HashMap};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use isotherm_resp::reply_parse::Value;

use super::{Lane, words};
use crate::connection::{Connection, LOOK, Lost};
use crate::kinds::Kind;
use crate::ledger::{Broken, Sequence};
use crate::plan::Plan;
use crate::world::Member;

const ROLES: usize = 3;
const CHANNELS: usize = 8;
/// Half of the channels are sharded.
const SHARDED: usize = CHANNELS / 2;
const FLOOD_EVERY: Duration = Duration::from_secs(4);
const FLOOD_MESSAGE_BYTES: usize = 1 << 20;
const FLOOD_MESSAGES: usize = 5;
/// Lengths of the text of a message in bytes, without floods.
const SIZES: [usize; 6] = [1, 1, 1, 100, 1000, 20_000];
/// Times for which a slow reader reads nothing.
const SILENCES_MS: [u64; 3] = [200, 1000, 5000];
/// `client-output-buffer-limit` of subscribers, as the server is started: above it a reader is closed.
pub const OUTPUT_BYTES_MAX: u64 = 32 << 20;
/// Between workers, until writers wait.
const ON_THEIR_WAY: u64 = 64 << 20;
/// All publishers together; half more than the server lets be on its way before it makes writers wait.
const FLOOD_BYTES_MAX: usize = 100 << 20;

/// Publisher and channel of a message.
type Source = (usize, usize);

/// Numbers of one source.
#[derive(Clone, Default)]
struct Numbers {
    sent: u64,
    /// The last one that was acknowledged.
    acknowledged: u64,
    /// The publisher's connection ended before the replies to these: each may have been published or not.
    unknown: BTreeSet<u64>,
}

pub struct Messages {
    numbers: Mutex<HashMap<Source, Numbers>>,
    /// Messages that each reader has received, while it is connected.
    heard: Vec<Mutex<HashMap<Source, Sequence>>>,
    messages: AtomicU64,
    /// The ids of readers that the server has closed.
    closed: Mutex<Vec<u64>>,
    kills_all: bool,
    flood_messages: usize,
    floods: bool,
    filler: Vec<u8>,
}

/// Returns how many bytes the server may hold for this lane: messages in flight, requests of publishers, and
/// messages that readers leave unread.
pub fn resident_bytes_max(plan: &Plan) -> u64 {
    let members = plan.members(Kind::Messages) as u64;
    if members == 0 {
        return 0;
    }
    let publishers = members.div_ceil(ROLES as u64);
    let largest = if plan.floods { FLOOD_MESSAGE_BYTES * FLOOD_MESSAGES } else { SIZES[SIZES.len() - 1] * 3 };
    // The query buffer, and the message that is made of it.
    let requests = 2 * (publishers * largest as u64).min(FLOOD_BYTES_MAX.max(largest) as u64);
    // A quarter of the pauses is left out, so there are 4/3 requests in a mean pause; two, to be sure. Each
    // has two messages.
    let requests_per_second = publishers * 2 * 1_000_000 / plan.rest_us.max(1);
    let unread = 2 * mean_message_bytes() * requests_per_second * (SILENCES_MS[2] / 1000 + 1);
    let per_reader = if plan.floods { OUTPUT_BYTES_MAX } else { OUTPUT_BYTES_MAX.min(unread) };
    let readers = (members - publishers) * (per_reader + largest as u64);
    ON_THEIR_WAY + requests + readers
}

fn mean_message_bytes() -> u64 {
    SIZES.iter().sum::<usize>() as u64 / SIZES.len() as u64
}

impl Messages {
    pub fn new(plan: &Plan, members: usize) -> Messages {
        let publishers = members.div_ceil(ROLES);
        let each = FLOOD_BYTES_MAX / FLOOD_MESSAGE_BYTES / publishers.max(1);
        Messages {
            numbers: Mutex::default(),
            heard: (0..members).map(|_| Mutex::default()).collect(),
            messages: AtomicU64::new(0),
            closed: Mutex::default(),
            kills_all: plan.kills_all,
            flood_messages: each.clamp(1, FLOOD_MESSAGES),
            floods: plan.floods,
            filler: vec![b'.'; plan.scale.of(FLOOD_MESSAGE_BYTES as u64) as usize],
        }
    }

    // ---- publishers ----

    fn publish(&self, member: &mut Member) -> Result<(), Lost> {
        let mut connection = member.connect()?;
        let mut flooded = 0;
        while member.is_busy() {
            let due = member.world.begun.elapsed().as_secs() / FLOOD_EVERY.as_secs();
            let (count, bytes) = if self.floods && due > flooded {
                flooded = due;
                (self.flood_messages, self.filler.len())
            } else {
                let bytes = *member.prng.pick(&SIZES);
                (1 + member.below(3), bytes.min(self.filler.len()))
            };
            self.send(member, &mut connection, count, bytes)?;
            member.rest();
        }
        Ok(())
    }

    fn send(
        &self,
        member: &mut Member,
        connection: &mut Connection,
        count: usize,
        bytes: usize,
    ) -> Result<(), Lost> {
        let channels: Vec<usize> = (0..count).map(|_| member.below(CHANNELS)).collect();
        let (mut requests, mut sent) = (Vec::new(), Vec::new());
        for channel in &channels {
            let number = self.next_number((member.number, *channel));
            sent.push(((member.number, *channel), number));
            let mut message = format!("{} {number} ", member.number).into_bytes();
            message.extend_from_slice(&self.filler[..bytes]);
            let word = if *channel < SHARDED { "SPUBLISH" } else { "PUBLISH" };
            requests.push(vec![word.as_bytes().to_vec(), name(*channel), message]);
        }
        let replies = connection.send_all(&requests).and_then(|()| connection.replies(count));
        let mut numbers = self.numbers();
        for (source, number) in sent {
            let of_source = numbers.entry(source).or_default();
            match replies {
                Ok(_) => of_source.acknowledged = number,
                Err(_) => _ = of_source.unknown.insert(number),
            }
        }
        drop(numbers);
        for reply in replies? {
            if let Value::Error(text) = reply {
                member.fault(format!("PUBLISH failed: {}", String::from_utf8_lossy(&text)));
            }
        }
        member.note_done();
        self.messages.fetch_add(count as u64, Ordering::Relaxed);
        Ok(())
    }

    /// Counts on where an earlier connection of the same member has ended.
    fn next_number(&self, source: Source) -> u64 {
        let mut numbers = self.numbers();
        let of_source = numbers.entry(source).or_default();
        of_source.sent += 1;
        of_source.sent
    }

    fn numbers(&self) -> std::sync::MutexGuard<'_, HashMap<Source, Numbers>> {
        self.numbers.lock().expect("no thread panics with it")
    }

    // ---- readers ----

    fn read(&self, member: &mut Member) -> Result<(), Lost> {
        while member.is_staying() {
            let mut connection = member.connect()?;
            let id = connection.id()?;
            let with_pushes = member.prng.one_in(2);
            let subscribed = subscribe(&mut connection, with_pushes);
            let result = subscribed.and_then(|()| self.hear_all(member, &mut connection));
            self.heard(member.number).clear();
            match result {
                // Too slow for what was published: the audit asks the server's log.
                Err(Lost::Closed(_)) => self.closed.lock().expect("no thread panics with it").push(id),
                other => return other,
            }
        }
        Ok(())
    }

    fn hear_all(&self, member: &Member, connection: &mut Connection) -> Result<(), Lost> {
        while member.is_staying() {
            let Some(value) = connection.next_within(LOOK)? else { continue };
            member.note_done();
            if let Some(channel) = confirmation_of(&value) {
                self.begin(member.number, channel);
            } else if let Some((source, number)) = message_of(&value)
                && let Some(wrong) = self.hear(member.number, source, number)
            {
                member.fault(format!("of publisher {} on channel {}: {wrong}", source.0, source.1));
            }
        }
        Ok(())
    }

    /// Records that this reader gets every message sent to this channel from now on.
    fn begin(&self, reader: usize, channel: usize) {
        let numbers = self.numbers();
        let mut heard = self.heard(reader);
        for publisher in (0..self.heard.len()).filter(|member| member % ROLES == 0) {
            let source = (publisher, channel);
            heard.entry(source).or_default().begin(numbers.get(&source).map_or(0, |numbers| numbers.sent));
        }
    }

    /// Notes a number that a reader got. Returns a description of the fault if numbers are out of order or
    /// missing.
    fn hear(&self, reader: usize, source: Source, number: u64) -> Option<String> {
        match self.heard(reader).entry(source).or_default().hear(number).err()? {
            Broken::Order(last) => Some(format!("{number} came after {last}")),
            Broken::Missing(mut missing) => {
                let numbers = self.numbers().get(&source).cloned().unwrap_or_default();
                let is_lost = missing.any(|number| !numbers.unknown.contains(&number));
                is_lost.then(|| format!("{number} came, and numbers before it are missing"))
            }
        }
    }

    fn heard(&self, number: usize) -> std::sync::MutexGuard<'_, HashMap<Source, Sequence>> {
        self.heard[number].lock().expect("no thread panics with it")
    }

    /// Reads a little, stops for some time, continues or leaves.
    fn dawdle(&self, member: &mut Member) -> Result<(), Lost> {
        while member.is_busy() {
            let mut connection = member.connect()?;
            let id = connection.id()?;
            member.world.exposed().killable.insert(id);
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
        let silence_ms = *member.prng.pick(&SILENCES_MS);
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
        let published = self.numbers().clone();
        let mut findings = Vec::new();
        for reader in (0..self.heard.len()).filter(|number| self.waits(*number)) {
            for (source, sequence) in self.heard(reader).iter() {
                let Some(numbers) = published.get(source) else { continue };
                let Some(mut missing) = sequence.missing(numbers.acknowledged) else { continue };
                if let Some(first) = missing.find(|number| !numbers.unknown.contains(number)) {
                    let (publisher, channel) = source;
                    let last = numbers.acknowledged;
                    findings.push(format!(
                        "reader {reader} has not got {first} to {last} of publisher {publisher} on channel {channel}"
                    ));
                }
            }
        }
        Ok(findings)
    }

    /// A reader may be closed for what it has not read, and for nothing else.
    fn audit(&self, connection: &mut Connection) -> Result<Vec<String>, Lost> {
        if self.kills_all {
            return Ok(Vec::new());
        }
        let log = connection.server_log();
        let closed = self.closed.lock().expect("no thread panics with it");
        let unexplained = closed.iter().filter(|id| !is_closed_for_output(&log, **id));
        Ok(unexplained
            .map(|id| format!("reader with id {id} was closed, and not for its output buffer"))
            .collect())
    }

    fn summary(&self) -> String {
        let messages = self.messages.load(Ordering::Relaxed);
        let closed = self.closed.lock().expect("no thread panics with it").len();
        format!("{messages} published, {closed} readers were closed")
    }
}

fn name(channel: usize) -> Vec<u8> {
    format!("m:{channel}").into_bytes()
}

/// The server's log says it in one line, which begins with the client as CLIENT LIST shows it.
fn is_closed_for_output(log: &str, id: u64) -> bool {
    let (client, reason) = (format!("Client id={id} "), "closed for overcoming of output buffer limits");
    log.lines().any(|line| line.contains(&client) && line.contains(reason))
}

/// The channel whose subscription this confirms.
fn confirmation_of(value: &Value) -> Option<usize> {
    let (Value::Array(parts) | Value::Push(parts)) = value else { return None };
    let [Value::Bulk(kind), Value::Bulk(channel), Value::Integer(_)] = parts.as_slice() else { return None };
    let is_one = matches!(kind.as_slice(), b"subscribe" | b"ssubscribe");
    channel_of(channel).filter(|_| is_one)
}

fn channel_of(name: &[u8]) -> Option<usize> {
    std::str::from_utf8(name).ok()?.strip_prefix("m:")?.parse().ok()
}

/// Parses the publisher, channel and number of a message. Returns `None` for a confirmation of a
/// subscription.
fn message_of(value: &Value) -> Option<(Source, u64)> {
    let (Value::Array(parts) | Value::Push(parts)) = value else { return None };
    let [Value::Bulk(kind), Value::Bulk(channel), Value::Bulk(text)] = parts.as_slice() else { return None };
    if !matches!(kind.as_slice(), b"message" | b"smessage") {
        return None;
    }
    let channel = channel_of(channel)?;
    let mut words = text.splitn(3, |byte| *byte == b' ');
    let mut number = || std::str::from_utf8(words.next()?).ok()?.parse::<u64>().ok();
    Some(((number()? as usize, channel), number()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Options;

    fn lane() -> Messages {
        Messages::new(&Plan::draw(1, &Options::parse(&[]).unwrap()), 4)
    }

    #[test]
    fn a_gap_is_a_fault_unless_its_publisher_was_cut_off() {
        let lane = lane();
        let source = (0, 2);
        let first = lane.next_number(source);
        lane.begin(1, 2);
        let numbers: Vec<u64> = (0..4).map(|_| lane.next_number(source)).collect();
        assert_eq!((first, numbers.as_slice()), (1, &[2, 3, 4, 5][..]));
        assert_eq!(lane.hear(1, source, 2), None);
        assert!(lane.hear(1, source, 4).unwrap().contains("missing"));
        assert_eq!(lane.hear(1, source, 4).unwrap(), "4 came after 4");
        lane.numbers().get_mut(&source).unwrap().unknown.insert(5);
        lane.next_number(source);
        assert_eq!(lane.hear(1, source, 6), None, "nothing is known of 5");
    }

    #[test]
    fn a_reader_that_hears_nothing_is_seen() {
        let lane = lane();
        lane.begin(1, 2);
        let source = (0, 2);
        let number = lane.next_number(source);
        lane.numbers().get_mut(&source).unwrap().acknowledged = number;
        let missing = lane.heard(1)[&source].missing(number);
        assert_eq!(missing, Some(1..=1));
        let confirmation = |kind: &str| {
            let words = [kind, "m:2"].map(|word| Value::Bulk(word.into()));
            confirmation_of(&Value::Push([&words[..], &[Value::Integer(1)]].concat()))
        };
        assert_eq!([confirmation("ssubscribe"), confirmation("message")], [Some(2), None]);
    }

    #[test]
    fn the_log_says_who_was_closed_for_what_it_did_not_read() {
        let log =
            "1:M # Client id=31 addr=x name=messages-1 closed for overcoming of output buffer limits.\n";
        assert!(is_closed_for_output(log, 31) && !is_closed_for_output(log, 3));
    }
}
