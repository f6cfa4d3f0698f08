//! One client of a cell: fills its keys, continues the workload while the disk is in trouble, and looks for
//! them at the end.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use isotherm_probe::{Client as Wire, Fallible, command};
use isotherm_resp::reply_parse::Value;
use isotherm_stdx::Prng;

use super::cell::{Cell, Disk, Policy, Workload};
use super::data::{Data, Found, Shape};

pub const CLIENTS: usize = 4;
/// Time that a reply may take before the cell ends: the trouble ends long before.
pub const PATIENCE: Duration = Duration::from_secs(25);
/// Payload of the requests that are on their way at a time.
const BATCH_BYTES: usize = 48 << 10;
/// Members of sorted sets that a client fills: each is small, and takes as long as a large one.
const MEMBERS_MAX: u64 = 40_000;
/// A client that was refused tries again a moment later.
const REFUSED_PAUSE: Duration = Duration::from_millis(5);
/// Writes of a client that mostly reads, in each step.
const FEW: usize = 5;
/// Reads in a step.
const READS: usize = 20;
/// Items that a client looks for at the end, spread over all of its own.
const LOOKED_FOR_MAX: u32 = 2500;
/// Faults of a list that are reported.
const REPORTED_MAX: usize = 3;
/// Bytes that the least disk holds in addition to memory: two segments, two are in reserve.
const SMALL_DISK_BYTES: u64 = 128 << 20;

/// Replies of the workload that were not as wished.
#[derive(Clone, Default)]
pub struct Counts {
    pub acknowledged: u64,
    /// Writes that were answered with -OOM.
    pub refused: u64,
    /// -SWAPERR: a value could not be read.
    pub unread: u64,
    /// Other errors, the first of them.
    pub errors: Vec<String>,
}

impl Counts {
    pub fn add(&mut self, other: &Counts) {
        self.acknowledged += other.acknowledged;
        self.refused += other.refused;
        self.unread += other.unread;
        self.errors.extend(other.errors.iter().cloned());
        self.errors.truncate(REPORTED_MAX);
    }

    fn note_error(&mut self, why: &str) {
        match why.split(' ').next() {
            Some("OOM") => self.refused += 1,
            Some("SWAPERR") => self.unread += 1,
            _ if self.errors.len() < REPORTED_MAX => self.errors.push(why.to_string()),
            _ => {}
        }
    }
}

/// Faults that the last look at the keys found.
#[derive(Clone, Default)]
pub struct Missing {
    /// Keys that a policy may have dropped; items of one collection are one key.
    pub droppable: u64,
    /// Items that are absent, or another's, where nothing may be.
    pub lost: u64,
    pub looked_for: u64,
    pub reported: Vec<String>,
}

impl Missing {
    pub fn add(&mut self, other: &Missing) {
        self.droppable += other.droppable;
        self.lost += other.lost;
        self.looked_for += other.looked_for;
        self.reported.extend(other.reported.iter().cloned());
        self.reported.truncate(REPORTED_MAX);
    }

    pub fn note(&mut self, what: String) {
        self.lost += 1;
        if self.reported.len() < REPORTED_MAX {
            self.reported.push(what);
        }
    }
}

pub struct Client {
    wire: Wire,
    lasting: Data,
    /// Keys that are all due in the same moment.
    burst: Option<Data>,
    prng: Prng,
    cursor: String,
    steps: u64,
    pub counts: Counts,
}

impl Client {
    pub fn connect(port: u16, cell: &Cell, number: usize) -> Fallible<Client> {
        let text = Shape::Text { bytes: cell.value_bytes, has_times: cell.policy == Policy::VolatileTtl };
        let shape = match cell.workload {
            Workload::Read if number % 2 == 1 => Shape::Image,
            Workload::Collections if number == CLIENTS - 1 => Shape::Member,
            Workload::Collections => Shape::Field,
            _ => text,
        };
        Ok(Client {
            wire: Wire::connect_within(port, PATIENCE)?,
            lasting: Data::new(number, shape),
            burst: None,
            prng: Prng::new(cell.seed ^ ((number as u64 + 1) << 32)),
            cursor: "0".to_string(),
            steps: 0,
            counts: Counts::default(),
        })
    }

    /// Connects again, with the same keys.
    pub fn connect_again(&mut self, port: u16) -> Fallible {
        self.wire = Wire::connect_within(port, PATIENCE)?;
        Ok(())
    }

    // ---- what a cell asks for ----

    /// Writes its part of the keys that are there before the shortage.
    pub fn prepare(&mut self, cell: &Cell) -> Fallible {
        let items = prepared_bytes(cell) / CLIENTS as u64 / self.lasting.shape.bytes() as u64;
        let items = if self.lasting.shape == Shape::Member { items.min(MEMBERS_MAX) } else { items };
        while u64::from(self.lasting.len()) < items {
            self.write_new(self.batch())?;
        }
        Ok(())
    }

    /// Continues the workload until `stop` is set. `due_ms`: when the keys of a burst are due.
    pub fn work(&mut self, cell: &Cell, due_ms: u64, stop: &AtomicBool) -> Fallible {
        if cell.workload == Workload::Expiry {
            let mut burst = Data::new(self.lasting_client(), Shape::Text { bytes: 200, has_times: false });
            burst.due_ms = Some(due_ms);
            self.burst = Some(burst);
        }
        while !stop.load(Relaxed) {
            self.steps += 1;
            let refused = self.counts.refused;
            self.step(cell)?;
            if self.counts.refused > refused {
                thread::sleep(REFUSED_PAUSE);
            }
        }
        Ok(())
    }

    fn step(&mut self, cell: &Cell) -> Fallible {
        match cell.workload {
            Workload::Fill if u64::from(self.lasting.len()) < self.filled_max(cell) => {
                self.write_new(self.batch())
            }
            Workload::Replica if self.steps.is_multiple_of(2) => self.write_new(FEW),
            Workload::Fill | Workload::Overwrite | Workload::Replica | Workload::Save | Workload::Rewrite => {
                self.write_old(self.batch())
            }
            Workload::Read => {
                (0..10).try_for_each(|_| self.read_some())?;
                self.write_old(FEW)
            }
            Workload::Scan => {
                self.walk()?;
                self.write_old(FEW)
            }
            Workload::Collections => {
                self.write_new(FEW)?;
                self.write_old(self.batch() / 4)?;
                self.read_some()
            }
            Workload::Expiry => {
                let half = self.burst.as_ref().is_some_and(|burst| {
                    (burst.len() as usize * burst.shape.bytes() * CLIENTS) as u64 > cell.maxmemory_bytes()
                });
                if half { self.write_old(self.batch()) } else { self.write_burst(self.batch()) }
            }
        }
    }

    /// Looks for the keys: each of a sample that was acknowledged has to be there, unless the policy may drop
    /// it.
    pub fn look_for_keys(&mut self, cell: &Cell) -> Fallible<Missing> {
        let mut missing = Missing::default();
        let step = self.lasting.len() / LOOKED_FOR_MAX + 1;
        let numbers: Vec<u32> = (0..self.lasting.len())
            .step_by(step as usize)
            .filter(|n| self.lasting.is_acknowledged(*n))
            .collect();
        let mut absent: Vec<String> = Vec::new();
        for some in numbers.chunks(200) {
            let replies = self.read(some)?;
            for (&number, reply) in some.iter().zip(&replies) {
                missing.looked_for += 1;
                let droppable = cell.policy.drops_all()
                    || cell.policy == Policy::VolatileTtl && self.lasting.shape.has_time(number);
                match self.lasting.judge(number, reply) {
                    Found::Right => {}
                    Found::Absent if droppable => absent.push(self.lasting.key(number)),
                    Found::Absent => {
                        missing.note(format!("{} number {number} is gone", self.lasting.key(number)))
                    }
                    Found::Wrong(what) => {
                        missing.note(format!("{} number {number}: {what}", self.lasting.key(number)));
                    }
                }
            }
        }
        absent.sort_unstable();
        absent.dedup();
        missing.droppable = absent.len() as u64;
        Ok(missing)
    }

    /// Returns whether a batch of writes is answered well by now.
    pub fn can_write(&mut self) -> Fallible<bool> {
        let before = self.counts.clone();
        self.write_old(self.batch())?;
        let is_well = self.counts.refused == before.refused && self.counts.unread == before.unread;
        // Asking is no part of the workload.
        self.counts = Counts { errors: self.counts.errors.clone(), ..before };
        Ok(is_well)
    }

    /// Deletes every other key, so that there is room. They are not looked for any more.
    pub fn delete_half(&mut self) -> Fallible {
        let numbers: Vec<u32> = (0..self.lasting.len()).step_by(2).collect();
        for some in numbers.chunks(200) {
            let mut out = Vec::new();
            for &number in some {
                command(&mut out, [b"DEL", self.lasting.key(number).as_bytes()].into_iter());
            }
            self.ask(&out, some.len())?;
        }
        self.lasting.forget_even();
        Ok(())
    }

    /// Keys that are to be there in the end, if nothing was dropped.
    pub fn keys(&self) -> u64 {
        match self.lasting.shape {
            Shape::Field | Shape::Member => 2,
            _ => u64::from(self.lasting.len()),
        }
    }

    // ---- steps ----

    fn lasting_client(&self) -> usize {
        self.lasting.client
    }

    fn batch(&self) -> usize {
        (BATCH_BYTES / self.lasting.shape.bytes()).clamp(4, 100)
    }

    fn filled_max(&self, cell: &Cell) -> u64 {
        let bytes = prepared_bytes(cell) + 3 * cell.maxmemory_bytes();
        bytes / CLIENTS as u64 / self.lasting.shape.bytes() as u64
    }

    fn write_new(&mut self, count: usize) -> Fallible {
        let numbers: Vec<u32> = (0..count).map(|_| self.lasting.add()).collect();
        let (wire, data, counts) = (&mut self.wire, &mut self.lasting, &mut self.counts);
        write(wire, data, counts, &numbers)
    }

    fn write_old(&mut self, count: usize) -> Fallible {
        if self.lasting.len() == 0 {
            return Ok(());
        }
        let numbers = self.some_numbers(count);
        let (wire, data, counts) = (&mut self.wire, &mut self.lasting, &mut self.counts);
        write(wire, data, counts, &numbers)
    }

    fn write_burst(&mut self, count: usize) -> Fallible {
        let Some(data) = &mut self.burst else { return Ok(()) };
        let numbers: Vec<u32> = (0..count).map(|_| data.add()).collect();
        write(&mut self.wire, data, &mut self.counts, &numbers)
    }

    fn read_some(&mut self) -> Fallible {
        let numbers = self.some_numbers(READS);
        for reply in self.read(&numbers)? {
            if let Err(why) = reply {
                self.counts.note_error(&why);
            }
        }
        Ok(())
    }

    fn walk(&mut self) -> Fallible {
        let mut out = Vec::new();
        command(&mut out, [b"SCAN", self.cursor.as_bytes(), b"COUNT", b"1000"].into_iter());
        command(&mut out, [b"RANDOMKEY".as_slice()].into_iter());
        if self.steps.is_multiple_of(64) {
            command(&mut out, [b"KEYS".as_slice(), b"nothing:*"].into_iter());
        }
        let count = if self.steps.is_multiple_of(64) { 3 } else { 2 };
        let replies = self.ask(&out, count)?;
        if let Ok(Value::Array(parts)) = &replies[0]
            && let Some(Value::Bulk(cursor)) = parts.first()
        {
            self.cursor = String::from_utf8_lossy(cursor).into_owned();
        }
        replies.iter().filter_map(|reply| reply.as_ref().err()).for_each(|why| self.counts.note_error(why));
        Ok(())
    }

    /// Numbers that differ, at random.
    fn some_numbers(&mut self, count: usize) -> Vec<u32> {
        let mut numbers: Vec<u32> =
            (0..count).map(|_| self.prng.below(u64::from(self.lasting.len())) as u32).collect();
        numbers.sort_unstable();
        numbers.dedup();
        numbers
    }

    fn read(&mut self, numbers: &[u32]) -> Fallible<Vec<Result<Value, String>>> {
        let mut out = Vec::new();
        numbers.iter().for_each(|number| self.lasting.read(*number, &mut out));
        self.ask(&out, numbers.len())
    }

    fn ask(&mut self, requests: &[u8], count: usize) -> Fallible<Vec<Result<Value, String>>> {
        ask(&mut self.wire, requests, count)
    }
}

/// Bytes of payload that are written before the shortage.
fn prepared_bytes(cell: &Cell) -> u64 {
    let (tenths, is_text) = match cell.workload {
        Workload::Fill | Workload::Replica => (12, true),
        Workload::Expiry => (10, true),
        Workload::Overwrite | Workload::Save | Workload::Rewrite => (15, true),
        Workload::Collections => (15, false),
        Workload::Scan => (20, false),
        Workload::Read => (25, false),
    };
    let bytes = cell.maxmemory_bytes() * tenths / 10;
    // Of the least disk most is in use when the shortage begins.
    let fills =
        if cell.disk == Disk::Small && is_text { SMALL_DISK_BYTES + cell.maxmemory_bytes() } else { 0 };
    bytes.max(fills / 20 * 17)
}

fn write(wire: &mut Wire, data: &mut Data, counts: &mut Counts, numbers: &[u32]) -> Fallible {
    let mut out = Vec::new();
    numbers.iter().for_each(|number| data.write(*number, &mut out));
    for (&number, reply) in numbers.iter().zip(ask(wire, &out, numbers.len())?) {
        data.note(number, reply.is_ok());
        match reply {
            Ok(_) => counts.acknowledged += 1,
            Err(why) => counts.note_error(&why),
        }
    }
    Ok(())
}

/// Sends requests and returns their replies. An error reply begins with its code; any other failure is the
/// connection's.
fn ask(wire: &mut Wire, requests: &[u8], count: usize) -> Fallible<Vec<Result<Value, String>>> {
    wire.send(requests)?;
    let mut replies = Vec::with_capacity(count);
    for _ in 0..count {
        match wire.read() {
            Err(why) if !why.starts_with(|first: char| first.is_ascii_uppercase()) => {
                return Err(format!("no reply within {PATIENCE:?}: {why}"));
            }
            reply => replies.push(reply),
        }
    }
    Ok(replies)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pressure::cell::Chosen;

    #[test]
    fn errors_are_counted_by_their_kind() {
        let mut counts = Counts::default();
        for why in ["OOM command not allowed", "SWAPERR A value", "MISCONF a", "ERR b", "ERR c", "ERR d"] {
            counts.note_error(why);
        }
        assert_eq!((counts.refused, counts.unread, counts.errors.len()), (1, 1, REPORTED_MAX));
    }

    #[test]
    fn the_least_disk_is_nearly_full_when_the_shortage_begins() {
        let mut cell = Cell::draw(1, Chosen { workload: Some(Workload::Fill), ..Chosen::default() });
        (cell.maxmemory_mb, cell.disk) = (20, Disk::Fast);
        assert_eq!(prepared_bytes(&cell), 24 << 20);
        cell.disk = Disk::Small;
        assert!((115 << 20..128 << 20).contains(&prepared_bytes(&cell)));
    }
}
