//! What all threads of a run share: the plan, the phase, the faults, the excuses, and who may be disturbed.
//!
//! ```text
//!   Busy ------> Quiet ---------> Leaving
//!   all send     who sends ends;  who waits ends as well;
//!                who waits waits  what is left is counted
//! ```
//! After the first fault a run has nothing more to learn: it is given up, and every thread ends at its next look.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use isotherm_stdx::Prng;

use crate::allowance::{Allowance, Cover};
use crate::connection::{Connection, Lost};
use crate::plan::Plan;
use crate::record::Record;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Phase {
    Busy,
    Quiet,
    Leaving,
    GivenUp,
}

const PHASES: [Phase; 4] = [Phase::Busy, Phase::Quiet, Phase::Leaving, Phase::GivenUp];

#[derive(Clone, Debug)]
pub struct Fault {
    pub at: Duration,
    pub whose: String,
    pub what: String,
}

/// Clients by their id at the server, and what may be done to them.
#[derive(Default)]
pub struct Exposed {
    /// Connections whose end loses nothing that is counted.
    pub killable: BTreeMap<u64, String>,
    /// Waiting ones that lose nothing by CLIENT UNBLOCK.
    pub unblockable: BTreeMap<u64, String>,
}

pub struct World {
    pub port: u16,
    pub process: u32,
    pub plan: Plan,
    pub begun: Instant,
    pub allowance: Allowance,
    phase: AtomicU8,
    faults: Mutex<Vec<Fault>>,
    exposed: Mutex<Exposed>,
    records: Mutex<Vec<Arc<Record>>>,
    /// Long answers of the server that explain a fault, by name.
    evidence: Mutex<Vec<(String, String)>>,
    /// Requests sent, all together.
    pub requests: AtomicU64,
}

/// Of one kind a fault is told so often: the rest says nothing new.
const FAULTS_MAX: usize = 40;

impl World {
    pub fn new(port: u16, process: u32, plan: Plan) -> World {
        World {
            port,
            process,
            plan,
            begun: Instant::now(),
            allowance: Allowance::default(),
            phase: AtomicU8::new(0),
            faults: Mutex::default(),
            exposed: Mutex::default(),
            records: Mutex::default(),
            evidence: Mutex::default(),
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
        let fault = Fault { at: self.begun.elapsed(), whose: whose.to_string(), what: what.into() };
        let mut faults = guard(&self.faults);
        // What follows from giving up is none.
        if faults.len() < FAULTS_MAX && self.phase() != Phase::GivenUp {
            faults.push(fault);
        }
    }

    /// The process is gone: what its clients say of that is no news.
    pub fn note_end(&self, status: &str) {
        let at = self.begun.elapsed();
        let mut faults = guard(&self.faults);
        faults.retain(|fault| !fault.what.contains("connection was closed") && fault.whose != "process");
        faults.insert(
            0,
            Fault { at, whose: "process".to_string(), what: format!("the server has ended: {status}") },
        );
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

    /// How much of the time since `from` is excused for `cover`.
    pub fn excused(&self, cover: Cover, from: Instant) -> Duration {
        self.allowance.within(cover, from, Instant::now())
    }
}

fn guard<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One thread of a lane: a client, or one that connects again and again.
pub struct Member {
    pub world: Arc<World>,
    pub name: String,
    /// Which of its lane it is.
    pub number: usize,
    pub prng: Prng,
    pub record: Arc<Record>,
}

impl Member {
    pub fn new(world: &Arc<World>, lane: &str, number: usize) -> Member {
        let name = format!("{lane}-{number}");
        // What a client draws depends on the seed and its name alone, not on who else is there.
        let mixed = name.bytes().fold(world.plan.seed, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(5)
        });
        let record = world.record(&name);
        Member { world: Arc::clone(world), name, number, prng: Prng::new(mixed), record }
    }

    /// A connection with this member's name, which the server does not evict.
    pub fn connect(&self) -> Result<Connection, Lost> {
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

    pub fn below(&mut self, n: usize) -> usize {
        self.prng.below(n as u64) as usize
    }

    pub fn fault(&self, what: impl Into<String>) {
        self.world.fault(&self.name, what);
    }

    /// A connection that ends although nobody was to end it is a fault.
    pub fn note_lost(&self, lost: &Lost) {
        if let Lost::Closed(why) = lost
            && !self.world.plan.kills_all
        {
            self.fault(format!("the connection was closed: {why}"));
        }
    }
}
