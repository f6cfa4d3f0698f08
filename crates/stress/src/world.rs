//! The state that all threads of a run share: the plan, the phase, the faults, the allowances, and which
//! connections may be disturbed.
//!
//! ```text
//!   Busy ------> Quiet --------------> Leaving
//!   all send     senders end;          receivers end as well;
//!                receivers still wait  what is left is counted
//! ```
//! After the first fault a run has nothing more to learn: it is given up, and every thread ends at its next
//! look.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use isotherm_stdx::Prng;

use crate::allowance::{Allowance, Cover};
use crate::connection::{Connection, Lost};
use crate::kinds::Disturbance;
use crate::plan::Plan;
use crate::record::Record;
use crate::threads;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Phase {
    Busy,
    Quiet,
    Leaving,
    GivenUp,
}

const PHASES: [Phase; 4] = [Phase::Busy, Phase::Quiet, Phase::Leaving, Phase::GivenUp];

/// Severity of a fault. Ordered: the worst of several decides.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Severity {
    /// Something took too long: a stall of the server, or one of the machine.
    Late,
    /// Lost, delivered twice, malformed, ended, an invariant that does not hold: no machine is slow enough
    /// for it.
    Wrong,
}

#[derive(Clone, Debug)]
pub struct Fault {
    pub at: Duration,
    pub whose: String,
    pub what: String,
    pub severity: Severity,
    /// A connection that ended: it says nothing more once the process is known to have ended.
    is_closing: bool,
}

/// Clients by their id at the server, after what may be done to them.
#[derive(Default)]
pub struct Exposed {
    /// Connections whose end loses nothing that is counted.
    pub killable: BTreeSet<u64>,
    /// Waiting ones that lose nothing by CLIENT UNBLOCK.
    pub unblockable: BTreeSet<u64>,
}

pub struct World {
    pub port: u16,
    pub process: u32,
    pub server_log: PathBuf,
    /// Folder in which a failed run leaves all its files.
    pub folder: PathBuf,
    pub plan: Plan,
    pub begun: Instant,
    pub allowance: Allowance,
    phase: AtomicU8,
    faults: Mutex<Vec<Fault>>,
    exposed: Mutex<Exposed>,
    records: Mutex<Vec<Arc<Record>>>,
    /// Long answers of the server that explain a fault, by name.
    evidence: Mutex<Vec<(String, String)>>,
    /// Held while they are written.
    threads_written: Mutex<bool>,
    /// Requests sent, all together.
    pub requests: AtomicU64,
}

/// Faults that are kept: more say nothing new.
const FAULTS_MAX: usize = 40;
/// Time after which a late item counts as lost. It is less than a run lasts after its first fault, so that
/// this can still be seen.
const LOST_AFTER: Duration = Duration::from_millis(1500);

impl World {
    pub fn new(port: u16, process: u32, server_log: PathBuf, folder: PathBuf, plan: Plan) -> World {
        World {
            port,
            process,
            server_log,
            folder,
            plan,
            begun: Instant::now(),
            allowance: Allowance::default(),
            phase: AtomicU8::new(0),
            faults: Mutex::default(),
            exposed: Mutex::default(),
            records: Mutex::default(),
            evidence: Mutex::default(),
            threads_written: Mutex::default(),
            requests: AtomicU64::new(0),
        }
    }

    pub fn phase(&self) -> Phase {
        PHASES[usize::from(self.phase.load(Ordering::Acquire))]
    }

    /// Phases only follow each other.
    pub fn enter(&self, phase: Phase) {
        self.phase.fetch_max(phase as u8, Ordering::AcqRel);
    }

    pub fn fault(&self, whose: &str, what: impl Into<String>) {
        self.push(self.new_fault(Severity::Wrong, whose, what.into()));
    }

    /// Something took longer than it may, beyond what the allowances cover.
    pub fn late(&self, whose: &str, what: impl Into<String>) {
        let is_noted = self.push(self.new_fault(Severity::Late, whose, what.into()));
        if is_noted {
            self.write_threads();
        }
    }

    /// A connection ended that was not to end.
    pub fn closed(&self, whose: &str, why: &str) {
        let fault = self.new_fault(Severity::Wrong, whose, format!("the connection was closed: {why}"));
        self.push(Fault { is_closing: true, ..fault });
    }

    fn new_fault(&self, severity: Severity, whose: &str, what: String) -> Fault {
        Fault { at: self.begun.elapsed(), whose: whose.to_string(), what, severity, is_closing: false }
    }

    /// Adds a fault. Returns whether it counts.
    fn push(&self, fault: Fault) -> bool {
        let mut faults = guard(&self.faults);
        // A consequence of giving up is no fault.
        if self.phase() == Phase::GivenUp {
            return false;
        }
        // A fault that decides the outcome displaces one that does not.
        let is_full = faults.len() >= FAULTS_MAX;
        match faults.iter().rposition(|other| is_full && other.severity < fault.severity) {
            Some(at) => faults[at] = fault,
            None if is_full => {}
            None => faults.push(fault),
        }
        true
    }

    /// The process has ended: that its connections ended with it says nothing more.
    pub fn note_end(&self, status: &str) {
        let fault = self.new_fault(Severity::Wrong, "process", format!("the server has ended: {status}"));
        let mut faults = guard(&self.faults);
        faults.retain(|fault| !fault.is_closing && fault.whose != "process");
        faults.insert(0, fault);
        drop(faults);
        self.enter(Phase::GivenUp);
    }

    pub fn faults(&self) -> Vec<Fault> {
        guard(&self.faults).clone()
    }

    pub fn has_faults(&self) -> bool {
        !guard(&self.faults).is_empty()
    }

    pub fn exposed(&self) -> MutexGuard<'_, Exposed> {
        guard(&self.exposed)
    }

    pub fn record(&self, name: &str) -> Arc<Record> {
        let record = Arc::new(Record::new(name.to_string()));
        guard(&self.records).push(Arc::clone(&record));
        record
    }

    pub fn records(&self) -> Vec<Arc<Record>> {
        guard(&self.records).clone()
    }

    pub fn keep(&self, name: &str, text: String) {
        guard(&self.evidence).push((name.to_string(), text));
    }

    pub fn evidence(&self) -> Vec<(String, String)> {
        guard(&self.evidence).clone()
    }

    /// Writes what the server's threads are at, once: while the first stall lasts, and not when the run is
    /// over. The time in which a debugger holds the server is allowed for.
    fn write_threads(&self) {
        let mut is_written = guard(&self.threads_written);
        if self.process == 0 || std::mem::replace(&mut *is_written, true) {
            return;
        }
        let allowance = self.allowance.begin(Cover::EVERYTHING, threads::DEBUGGER_MAX);
        if let Err(why) = threads::write(self.process, &self.folder) {
            println!("  threads.txt is incomplete: {why}");
        }
        self.allowance.end(&allowance, Duration::ZERO);
    }

    /// Returns when no thread writes what the server is at.
    pub fn wait_for_threads(&self) {
        drop(guard(&self.threads_written));
    }
}

fn guard<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Thread of a lane: a client, or one that connects again and again.
pub struct Member {
    pub world: Arc<World>,
    pub name: String,
    /// Number of the member in its lane.
    pub number: usize,
    pub prng: Prng,
    pub record: Arc<Record>,
}

impl Member {
    pub fn new(world: &Arc<World>, lane: &str, number: usize) -> Member {
        let name = format!("{lane}-{number}");
        // The draws of a client depend on the seed and its name alone, not on the other clients.
        let mixed = name.bytes().fold(world.plan.seed, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(5)
        });
        let record = world.record(&name);
        Member { world: Arc::clone(world), name, number, prng: Prng::new(mixed), record }
    }

    /// A connection with this member's name, which the server does not evict. Before it has said so, the
    /// server may: where `maxmemory-clients` is lowered, it tries again.
    pub fn connect(&self) -> Result<Connection, Lost> {
        const PATIENCE: Duration = Duration::from_secs(5);
        const PAUSE: Duration = Duration::from_millis(20);
        let is_evicted = self.world.plan.disturbances.contains(&Disturbance::Config);
        let until = Instant::now() + PATIENCE;
        loop {
            match self.connect_once() {
                Err(Lost::Closed(_)) if is_evicted && Instant::now() < until => std::thread::sleep(PAUSE),
                connected => return connected,
            }
        }
    }

    fn connect_once(&self) -> Result<Connection, Lost> {
        let mut connection = Connection::open(&self.world, &self.record)?;
        connection.send_all(&[&["CLIENT", "SETNAME", &self.name], &["CLIENT", "NO-EVICT", "ON"]])?;
        connection.replies(2)?;
        Ok(connection)
    }

    pub fn is_busy(&self) -> bool {
        self.world.phase() == Phase::Busy
    }

    /// Still to be waited for things.
    pub fn is_staying(&self) -> bool {
        self.world.phase() < Phase::Leaving
    }

    /// Between two requests: mostly the mean pause of the plan, now and then none at all.
    pub fn rest(&mut self) {
        if !self.prng.one_in(4) {
            let micros = self.world.plan.rest_us;
            std::thread::sleep(Duration::from_micros(self.prng.below(2 * micros + 1)));
        }
    }

    /// Sleeps, but not past the end of the run.
    pub fn sleep(&self, time: Duration) {
        const LOOK: Duration = Duration::from_millis(50);
        let until = Instant::now() + time;
        while self.is_busy() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            std::thread::sleep(left.min(LOOK));
        }
    }

    /// Records that the member has done its work once more. A lane none of whose members records this is
    /// idle.
    pub fn note_done(&self) {
        self.record.note_done();
    }

    pub fn below(&mut self, n: usize) -> usize {
        self.prng.below(n as u64) as usize
    }

    pub fn fault(&self, what: impl Into<String>) {
        self.world.fault(&self.name, what);
    }

    pub fn late(&self, what: impl Into<String>) {
        self.world.late(&self.name, what);
    }

    /// Something has not come for `waited`, where `longest` is the most. It is late, and as good as lost if
    /// it has not come `LOST_AFTER` later either.
    pub fn overdue(&self, waited: Duration, longest: Duration, what: impl Into<String>) {
        if waited > longest + LOST_AFTER { self.fault(what) } else { self.late(what) }
    }

    /// A connection that ends although nothing was to end it is a fault.
    pub fn note_lost(&self, lost: &Lost) {
        match lost {
            Lost::Closed(why) if !self.world.plan.kills_all => self.world.closed(&self.name, why),
            Lost::Unreachable(why) => self.world.closed(&self.name, why),
            Lost::Closed(_) | Lost::Noted | Lost::Over => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Options;

    fn world() -> World {
        World::new(0, 0, Default::default(), Default::default(), Plan::draw(1, &Options::parse(&[]).unwrap()))
    }

    #[test]
    fn a_wrong_fault_is_kept_however_many_are_late() {
        let world = world();
        (0..2 * FAULTS_MAX).for_each(|_| world.late("a", "stall"));
        world.fault("b", "lost");
        let faults = world.faults();
        assert_eq!(faults.len(), FAULTS_MAX);
        assert_eq!(faults.iter().map(|fault| fault.severity).max(), Some(Severity::Wrong));
    }

    #[test]
    fn connections_that_end_with_the_process_say_nothing_more() {
        let world = world();
        world.closed("queues-1", "by the server");
        world.fault("queues-2", "lost");
        world.note_end("signal 6");
        world.note_end("signal 6");
        let texts: Vec<String> = world.faults().into_iter().map(|fault| fault.what).collect();
        assert_eq!(texts, ["the server has ended: signal 6", "lost"]);
        world.late("queues-3", "after the end");
        assert_eq!(world.faults().len(), 2);
    }

    #[test]
    fn what_is_overdue_is_late_first_and_lost_then() {
        let world = Arc::new(world());
        let member = Member::new(&world, "streams", 1);
        let second = Duration::from_secs(1);
        member.overdue(second + second / 10, second, "an entry");
        member.overdue(second + LOST_AFTER + second / 10, second, "an entry");
        let kinds: Vec<Severity> = world.faults().iter().map(|fault| fault.severity).collect();
        assert_eq!(kinds, [Severity::Late, Severity::Wrong]);
    }
}
