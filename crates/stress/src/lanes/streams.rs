//! Streams: some add, some read on from where they are and wait, some take their share of a group, and some
//! change the streams in ways that bring no reader anything.
//!
//! A reader asks for everything after the last entry it has seen, so an entry that was acknowledged and does
//! not come is a wake-up that was lost: the reader sees it while it waits, or in an answer that says that
//! nothing came. An entry is given to one member of the group, once.
//!
//! The next entry would wake the reader as well and hide that, and so would any change of the same stream. So
//! most of the time writers add one entry each at about the same moment, and nothing for longer than a
//! delivery may take; and what is changed without bringing anything is streams of even numbers, while they
//! add to those of odd numbers.

use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use isotherm_resp::reply_parse::Value;

use super::{Lane, line, words};
use crate::allowance::Cover;
use crate::connection::{Connection, LOOK, Lost};
use crate::kinds::Disturbance;
use crate::ledger::{self, Elements};
use crate::plan::Plan;
use crate::record::brief;
use crate::world::Member;

/// An id: milliseconds and a count.
type Id = (u64, u64);

/// The last entry of a stream that was acknowledged, and when.
#[derive(Clone, Copy)]
struct Tail {
    last: Id,
    at: Instant,
}

/// Longest time until an acknowledged entry is delivered, beyond the allowances.
const DELIVERY_MAX: Duration = Duration::from_secs(1);
/// Writers add one entry in a round, in three of four rounds; in the fourth one after the other.
const ROUND_MS: u64 = 1300;
const ROUNDS: u64 = 4;
/// The entries of a round come within this.
const SPREAD_MS: u64 = 100;
const ROLES: usize = 4;
const GROUP: &str = "group";
/// No-op changes in one packet: that many chances to meet a reader that is looked at.
const TOUCHES: usize = 40;
const TOUCH_GAP: Duration = Duration::from_micros(500);

pub struct Streams {
    streams: usize,
    tails: Mutex<Vec<Option<Tail>>>,
    elements: Mutex<Elements>,
    /// Number of elements that each member has sent. A member's elements do not depend on other members.
    sent: Vec<AtomicU64>,
    read: AtomicU64,
    touched: AtomicU64,
    /// Longest delay of an answer, counted from the acknowledgement of the entry or from the reader's
    /// request, whichever is later.
    late_ms_max: AtomicU64,
    touch: &'static [&'static str],
    is_lossy: bool,
}

impl Streams {
    pub fn new(plan: &Plan, members: usize) -> Streams {
        let streams = [4, 8, 30][plan.seed as usize / 3 % 3];
        // A stream with a lifetime may be evicted.
        let touch: &[&str] = match plan.draws(Disturbance::Config) {
            true => {
                &["XGROUP CREATECONSUMER # group nobody", "XGROUP DELCONSUMER # group nobody", "XDEL # 0-1"]
            }
            false => &["EXPIRE # 100000", "EXPIRE # 100000", "EXPIRE # 100000", "PERSIST #"],
        };
        Streams {
            streams,
            tails: Mutex::new(vec![None; streams]),
            elements: Mutex::new(Elements::new(plan.is_lossy())),
            sent: (0..members).map(|_| AtomicU64::new(0)).collect(),
            read: AtomicU64::new(0),
            touched: AtomicU64::new(0),
            late_ms_max: AtomicU64::new(0),
            touch,
            is_lossy: plan.is_lossy(),
        }
    }

    fn elements(&self) -> std::sync::MutexGuard<'_, Elements> {
        self.elements.lock().expect("no thread panics with it")
    }

    fn tails(&self) -> Vec<Option<Tail>> {
        self.tails.lock().expect("no thread panics with it").clone()
    }

    // ---- writers ----

    fn write(&self, member: &mut Member) -> Result<(), Lost> {
        let mut connection = member.connect()?;
        let mut is_round = false;
        while member.is_busy() {
            // In a round each adds to a stream of its own, if there are enough.
            let own = (member.number / ROLES * 2 + 1) % self.streams;
            let stream = if is_round { own } else { member.below(self.streams) };
            let count = self.sent[member.number].fetch_add(1, Ordering::Relaxed);
            let element = ledger::element(member.number, count);
            self.elements().send(element);
            let text = ledger::text_of(element);
            match connection.call(&["XADD", &key(stream), "*", "e", &text])? {
                Value::Bulk(id) => {
                    self.elements().acknowledge(element);
                    member.note_done();
                    self.note_tail(stream, id_of(&id).unwrap_or_default());
                }
                Value::Error(text) => {
                    self.elements().refuse(element);
                    if !super::queues::is_refusal(&text) {
                        member.fault(format!("XADD failed: {}", String::from_utf8_lossy(&text)));
                    }
                }
                other => member.fault(format!("XADD was answered {}", brief(&other))),
            }
            let elapsed_ms = member.world.begun.elapsed().as_millis() as u64;
            is_round = !(elapsed_ms / ROUND_MS).is_multiple_of(ROUNDS);
            if !is_round {
                member.rest();
            } else {
                let left_ms = ROUND_MS - elapsed_ms % ROUND_MS;
                let spread_ms = member.prng.below(SPREAD_MS);
                member.sleep(Duration::from_millis(left_ms + spread_ms));
            }
        }
        Ok(())
    }

    fn note_tail(&self, stream: usize, id: Id) {
        let tail = &mut self.tails.lock().expect("no thread panics with it")[stream];
        // Two writers may be answered in another order.
        if tail.is_none_or(|tail| tail.last < id) {
            *tail = Some(Tail { last: id, at: Instant::now() });
        }
    }

    fn touch(&self, member: &mut Member) -> Result<(), Lost> {
        let mut connection = member.connect()?;
        while member.is_busy() {
            // These requests come again and again: the readers of this stream are looked at most of the time.
            let word = self.touch[member.below(self.touch.len())];
            let request = line(&word.replace('#', &key(member.below(self.streams) & !1)));
            let requests = vec![request; TOUCHES];
            connection.send_all(&requests)?;
            connection.replies(requests.len())?;
            self.touched.fetch_add(requests.len() as u64, Ordering::Relaxed);
            // Two of them leave hardly a gap.
            if member.number < 2 * ROLES { std::thread::sleep(TOUCH_GAP) } else { member.rest() }
        }
        Ok(())
    }

    // ---- readers ----

    fn read(&self, member: &mut Member) -> Result<(), Lost> {
        let mut connection = member.connect()?;
        let id = connection.id()?;
        member.world.exposed().unblockable.insert(id);
        let result = self.read_with(member, &mut connection);
        member.world.exposed().unblockable.remove(&id);
        result
    }

    fn read_with(&self, member: &mut Member, connection: &mut Connection) -> Result<(), Lost> {
        let mut seen: Vec<Id> = vec![(0, 0); self.streams];
        while member.is_staying() {
            let begun = Instant::now();
            let chosen = self.some_streams(member);
            let wait_ms = *member.prng.pick(&["0", "0", "1500", "150"]);
            let mut request = words(&["XREAD", "COUNT", "200", "BLOCK", wait_ms, "STREAMS"]);
            request.extend(chosen.iter().map(|stream| key(*stream).into_bytes()));
            let ids = chosen.iter().map(|stream| seen[*stream]);
            request.extend(ids.map(|(ms, count)| format!("{ms}-{count}").into_bytes()));
            connection.send(&request)?;
            // Up to this moment no reply had come; a pause of this program comes after it.
            let mut silent_until = begun;
            let reply = loop {
                let looked = Instant::now();
                if let Some(reply) = connection.next_within(LOOK)? {
                    break reply;
                }
                silent_until = looked;
                if !member.is_staying() {
                    return Ok(());
                }
                if let Some((waited, longest, what)) =
                    self.missed(member, &chosen, &seen, begun..silent_until, DELIVERY_MAX)
                {
                    member.overdue(waited, longest, what);
                }
            };
            match reply {
                Value::Array(streams) => self.note_read(member, begun, &streams, &mut seen),
                // Nothing came, says the server: then nothing may have been there for some time either.
                Value::NullArray => {
                    let waited = begun..silent_until;
                    if let Some((.., what)) = self.missed(member, &chosen, &seen, waited, DELIVERY_MAX / 2) {
                        member.fault(format!("{what}; the answer is that nothing came"));
                    }
                }
                Value::Error(text) => {
                    if !text.starts_with(b"UNBLOCKED") {
                        member.fault(format!("XREAD failed: {}", String::from_utf8_lossy(&text)));
                    }
                }
                other => member.fault(format!("XREAD was answered {}", brief(&other))),
            }
        }
        Ok(())
    }

    /// All of them, or one that is only touched and one that is only added to: then no other entry makes good
    /// for a lost one.
    fn some_streams(&self, member: &mut Member) -> Vec<usize> {
        if member.prng.one_in(3) {
            return (0..self.streams).collect();
        }
        let (touched, added) = (member.below(self.streams) & !1, member.below(self.streams) | 1);
        vec![touched, added]
    }

    /// Finds an entry that was acknowledged after those that this reader had seen, and did not come while it
    /// waited for longer than `longest` and the allowances. Returns how long it waited, how long it may, and
    /// the entry.
    fn missed(
        &self,
        member: &Member,
        chosen: &[usize],
        seen: &[Id],
        waiting: Range<Instant>,
        longest: Duration,
    ) -> Option<(Duration, Duration, String)> {
        if self.is_lossy {
            return None;
        }
        let tails = self.tails();
        chosen.iter().copied().find_map(|stream| {
            let seen = seen[stream];
            let tail = tails[stream].filter(|tail| tail.last > seen)?;
            let since = tail.at.max(waiting.start);
            let waited = waiting.end.saturating_duration_since(since);
            if waited <= longest {
                return None;
            }
            let covers = Cover::EVERYTHING.or(Cover::WRITES);
            let longest = longest + member.world.allowance.within(covers, since, waiting.end);
            let what = || {
                let (key, last, seconds) = (key(stream), tail.last, waited.as_secs_f64());
                format!("XREAD behind {seen:?} of {key} did not get {last:?} for {seconds:.1} s")
            };
            (waited > longest).then(|| (waited, longest, what()))
        })
    }

    fn note_read(&self, member: &Member, begun: Instant, streams: &[Value], seen: &mut [Id]) {
        let tails = self.tails();
        for (stream, entries) in parsed(streams) {
            for (id, _) in entries {
                if id <= seen[stream] && !self.is_lossy {
                    member.fault(format!("{id:?} of {} came after {:?}", key(stream), seen[stream]));
                }
                seen[stream] = id;
                if let Some(tail) = tails[stream].filter(|tail| tail.last == id) {
                    let late_ms = tail.at.max(begun).elapsed().as_millis() as u64;
                    self.late_ms_max.fetch_max(late_ms, Ordering::Relaxed);
                }
                member.note_done();
                self.read.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    // ---- the group ----

    fn share(&self, member: &mut Member) -> Result<(), Lost> {
        let mut connection = member.connect()?;
        let id = connection.id()?;
        member.world.exposed().unblockable.insert(id);
        let result = self.share_with(member, &mut connection);
        member.world.exposed().unblockable.remove(&id);
        result
    }

    fn share_with(&self, member: &mut Member, connection: &mut Connection) -> Result<(), Lost> {
        const COUNT: u64 = 5;
        while member.is_staying() {
            let wait_ms = *member.prng.pick(&["0", "1500", "50"]);
            // One of them always waits for all, and gets what the others do not ask for.
            let is_first = member.number < ROLES;
            let chosen = if is_first { (0..self.streams).collect() } else { self.some_streams(member) };
            let head = ["XREADGROUP", "GROUP", GROUP, &member.name, "COUNT", "5", "BLOCK", wait_ms];
            let mut request = words(&head);
            if member.prng.one_in(3) {
                request.extend(words(&["NOACK"]));
            }
            request.extend(words(&["STREAMS"]));
            request.extend(chosen.iter().map(|stream| key(*stream).into_bytes()));
            request.extend(chosen.iter().map(|_| b">".to_vec()));
            connection.send(&request)?;
            let reply = loop {
                match connection.next_within(LOOK) {
                    Ok(Some(reply)) => break reply,
                    Ok(None) if member.is_staying() => {}
                    Ok(None) => return Ok(()),
                    Err(lost) => {
                        // Of each stream that was asked for.
                        self.elements().may_miss(COUNT * chosen.len() as u64);
                        return Err(lost);
                    }
                }
            };
            match reply {
                Value::Array(streams) => self.take(member, connection, &streams)?,
                Value::Error(text) if text.starts_with(b"NOGROUP") && self.is_lossy => {
                    self.prepare(connection)?
                }
                Value::Error(text) if !text.starts_with(b"UNBLOCKED") => {
                    member.fault(format!("XREADGROUP failed: {}", String::from_utf8_lossy(&text)));
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn take(&self, member: &mut Member, connection: &mut Connection, streams: &[Value]) -> Result<(), Lost> {
        for (stream, entries) in parsed(streams) {
            entries.iter().for_each(|(_, element)| self.elements().find(*element));
            member.note_done();
            if !member.prng.one_in(3) {
                let mut request = words(&["XACK", &key(stream), GROUP]);
                request.extend(entries.iter().map(|((ms, count), _)| format!("{ms}-{count}").into_bytes()));
                connection.call(&request)?;
            }
        }
        Ok(())
    }
}

impl Lane for Streams {
    fn prepare(&self, connection: &mut Connection) -> Result<(), Lost> {
        for stream in 0..self.streams {
            connection.call(&["XGROUP", "CREATE", &key(stream), GROUP, "0", "MKSTREAM"])?;
        }
        Ok(())
    }

    fn work(&self, member: &mut Member) -> Result<(), Lost> {
        match member.number % ROLES {
            0 => self.write(member),
            1 => self.read(member),
            2 => self.share(member),
            _ => self.touch(member),
        }
    }

    fn waits(&self, number: usize) -> bool {
        matches!(number % ROLES, 1 | 2)
    }

    /// Returns the faults of the elements. One member of the group waits for all streams, so it gets every
    /// entry that no other member has got.
    fn look_quiet(&self, _: &mut Connection) -> Result<Vec<String>, Lost> {
        Ok(self.elements().verdict())
    }

    /// Reads the entries that were not delivered yet, and returns the faults of the elements. Entries that a
    /// consumer took before its connection ended may be missing.
    fn audit(&self, connection: &mut Connection) -> Result<Vec<String>, Lost> {
        loop {
            let mut request = words(&["XREADGROUP", "GROUP", GROUP, "audit", "COUNT", "1000", "STREAMS"]);
            request.extend((0..self.streams).map(|stream| key(stream).into_bytes()));
            request.extend((0..self.streams).map(|_| b">".to_vec()));
            let Value::Array(streams) = connection.call(&request)? else { break };
            for (_, entries) in parsed(&streams) {
                entries.iter().for_each(|(_, element)| self.elements().find(*element));
            }
        }
        Ok(self.elements().verdict())
    }

    fn summary(&self) -> String {
        let (sent, shared) = self.elements().counts();
        let [read, touched, late_ms] =
            [&self.read, &self.touched, &self.late_ms_max].map(|count| count.load(Ordering::Relaxed));
        format!(
            "{sent} entries, {shared} shared out, {read} read, at most {late_ms} ms late; {touched} no-ops"
        )
    }
}

fn key(stream: usize) -> String {
    format!("x:{stream}")
}

fn id_of(text: &[u8]) -> Option<Id> {
    let (ms, count) = std::str::from_utf8(text).ok()?.split_once('-')?;
    Some((ms.parse().ok()?, count.parse().ok()?))
}

/// Streams by their number, with entries and the elements in them.
fn parsed(streams: &[Value]) -> Vec<(usize, Vec<(Id, u64)>)> {
    let number = |name: &[u8]| std::str::from_utf8(name).ok()?.strip_prefix("x:")?.parse().ok();
    let pair = |value: &Value| match value {
        Value::Array(pair) if pair.len() == 2 => Some((pair[0].clone(), pair[1].clone())),
        _ => None,
    };
    let entry = |value: &Value| -> Option<(Id, u64)> {
        let (Value::Bulk(id), Value::Array(fields)) = pair(value)? else { return None };
        let Value::Bulk(text) = fields.get(1)? else { return None };
        Some((id_of(&id)?, ledger::element_of(text)?))
    };
    let stream = |value: &Value| -> Option<(usize, Vec<(Id, u64)>)> {
        let (Value::Bulk(name), Value::Array(entries)) = pair(value)? else { return None };
        Some((number(&name)?, entries.iter().filter_map(entry).collect()))
    };
    streams.iter().filter_map(stream).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Options;
    use crate::world::{Member, World};
    use std::sync::Arc;

    /// A lane without disturbances, one of its readers, and the run they are in.
    fn reader() -> (Streams, Member, Arc<World>) {
        let mut plan = Plan::draw(1, &Options::parse(&[]).unwrap());
        plan.disturbances.clear();
        let lane = Streams::new(&plan, 4);
        let world = Arc::new(World::new(0, 0, Default::default(), Default::default(), plan));
        (lane, Member::new(&world, "streams", 1), world)
    }

    #[test]
    fn a_wake_up_that_does_not_come_is_seen() {
        let (lane, member, world) = reader();
        let begun = Instant::now();
        let nothing_seen = vec![(0, 0); lane.streams];
        let both = [0, 1];
        let missed = |chosen: &[usize], seen: &[Id], until: Instant| {
            lane.missed(&member, chosen, seen, begun..until, DELIVERY_MAX).map(|(.., what)| what)
        };
        let later = begun + 2 * DELIVERY_MAX;
        assert_eq!(missed(&both, &nothing_seen, later), None, "nothing was added");
        lane.note_tail(1, (5, 0));
        assert_eq!(missed(&both, &nothing_seen, begun + DELIVERY_MAX), None, "it was added just now");
        let mut all_seen = nothing_seen.clone();
        all_seen[1] = (5, 0);
        assert_eq!(missed(&both, &all_seen, later), None, "it was read");
        assert_eq!(missed(&[0], &nothing_seen, later), None, "it was not asked for");
        let what = missed(&both, &nothing_seen, later).expect("it did not come");
        assert!(what.contains("did not get (5, 0)"), "{what}");
        world.allowance.begin(Cover::EVERYTHING, 2 * DELIVERY_MAX);
        assert_eq!(missed(&both, &nothing_seen, later), None, "the server was not to answer");
    }

    #[test]
    fn an_entry_that_comes_again_is_seen() {
        let (lane, member, world) = reader();
        let entry = |id: &str| {
            Value::Array(vec![
                Value::Bulk(id.into()),
                Value::Array(vec![Value::Bulk(b"e".to_vec()), Value::Bulk(b"0-7".to_vec())]),
            ])
        };
        let reply =
            |id: &str| vec![Value::Array(vec![Value::Bulk(b"x:1".to_vec()), Value::Array(vec![entry(id)])])];
        let mut seen = vec![(0, 0); lane.streams];
        lane.note_read(&member, Instant::now(), &reply("5-0"), &mut seen);
        assert_eq!((seen[1], world.has_faults()), ((5, 0), false));
        lane.note_read(&member, Instant::now(), &reply("5-0"), &mut seen);
        assert!(world.has_faults());
        assert_eq!(parsed(&reply("5-0")), [(1, vec![((5, 0), 7)])]);
    }
}
