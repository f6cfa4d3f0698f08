//! Looks on while the lanes are at work: which request is not answered in time, and what grows.
//!
//! ```text
//!   worker 0, 1, ...   PING on a connection of each, opened before all others: they are handed out in turn
//!   gate               DBSIZE, SCAN, RANDOMKEY: all partitions at once
//!   tick               a key of 30 ms in a database of its own: gone without being asked for
//!   accept             a connection that is new every time
//!   process            alive, its RSS, how long its threads wait for a core
//! ```
//! A probe asks five times a second and looks up twenty times a second while it waits. A reply that is late
//! by more than `LATE_MAX`, beyond the allowances, is a fault while it is late, so a server that never
//! answers is found as soon as a slow one.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use isotherm_probe::Server;
use isotherm_resp::reply_parse::Value;

use crate::Fallible;
use crate::allowance::Cover;
use crate::connection::{Connection, Lost};
use crate::kinds::Disturbance;
use crate::plan::DB_TICK;
use crate::world::{Member, Phase, World};

const LATE_MAX: Duration = Duration::from_secs(1);
const ASK_EVERY: Duration = Duration::from_millis(200);
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// The cron's rounds are as far apart as the slowest `hz` of the mix says (1), and one may have just begun.
const TICK_MAX: Duration = Duration::from_secs(3);
const SAMPLE_EVERY: Duration = Duration::from_millis(100);

/// The connections of the watchdog, one a worker.
pub struct Watch {
    pings: Vec<(Member, Connection)>,
}

impl Watch {
    /// Before any other connection is opened.
    pub fn connect(world: &Arc<World>) -> Fallible<Watch> {
        let open = |number| -> Result<(Member, Connection), Lost> {
            let member = Member::new(world, "watch-ping", number);
            let connection = member.connect()?;
            Ok((member, connection))
        };
        let pings: Result<Vec<_>, Lost> = (0..world.plan.workers).map(open).collect();
        Ok(Watch { pings: pings.map_err(|lost| format!("the watchdog cannot connect: {lost:?}"))? })
    }

    /// Starts the probes; they end with the run.
    pub fn start(self, world: &Arc<World>) -> Vec<thread::JoinHandle<()>> {
        let mut threads = Vec::new();
        let mut spawn = |member: Member, probe: Box<dyn FnOnce(Member) -> Result<(), Lost> + Send>| {
            threads.push(spawn_small(member.name.clone(), move || {
                let (world, name) = (Arc::clone(&member.world), member.name.clone());
                note_end(&world, &name, catch_unwind(AssertUnwindSafe(|| probe(member))));
            }));
        };
        for (member, connection) in self.pings {
            spawn(member, Box::new(move |mut member| again(&mut member, Some(connection), ping)));
        }
        spawn(Member::new(world, "watch-gate", 0), Box::new(|mut member| again(&mut member, None, gate)));
        spawn(Member::new(world, "watch-tick", 0), Box::new(|mut member| again(&mut member, None, tick)));
        spawn(Member::new(world, "watch-accept", 0), Box::new(|mut member| accept(&mut member)));
        threads
    }
}

/// A probe ends with the run and not before: what ends it sooner is a fault, so that no run is looked at by
/// fewer probes.
fn note_end(world: &World, name: &str, end: thread::Result<Result<(), Lost>>) {
    match end {
        Err(_) => world.fault(name, "the probe has panicked"),
        Ok(Err(Lost::Closed(why) | Lost::Unreachable(why))) => world.closed(name, &why),
        // Its fault has been noted, or the run is over.
        Ok(Err(Lost::Noted | Lost::Over)) => {}
        Ok(Ok(())) if world.phase() < Phase::Leaving => {
            world.fault(name, "the probe has ended before the run")
        }
        Ok(Ok(())) => {}
    }
}

/// Threads with little on their stacks: there may be hundreds.
pub fn spawn_small(name: String, body: impl FnOnce() + Send + 'static) -> thread::JoinHandle<()> {
    const STACK_BYTES: usize = 256 << 10;
    thread::Builder::new().name(name).stack_size(STACK_BYTES).spawn(body).expect("a thread can be started")
}

/// Runs a probe until the run ends. Where every client may be killed, it connects again.
fn again(
    member: &mut Member,
    first: Option<Connection>,
    probe: fn(&mut Member, &mut Connection) -> Result<(), Lost>,
) -> Result<(), Lost> {
    let mut connection = first;
    while member.is_staying() {
        let current = connection.take().map_or_else(|| member.connect(), Ok);
        match current.and_then(|mut current| probe(member, &mut current)) {
            Err(Lost::Closed(_)) if member.world.plan.kills_all => thread::sleep(LOOK_EVERY),
            result => return result,
        }
    }
    Ok(())
}

fn ping(member: &mut Member, connection: &mut Connection) -> Result<(), Lost> {
    while member.is_staying() {
        ask(member, connection, &["PING"], Cover::EVERYTHING)?;
        member.note_done();
        thread::sleep(ASK_EVERY);
    }
    Ok(())
}

fn gate(member: &mut Member, connection: &mut Connection) -> Result<(), Lost> {
    while member.is_staying() {
        const REQUESTS: [&[&str]; 3] = [&["DBSIZE"], &["RANDOMKEY"], &["SCAN", "0", "COUNT", "1"]];
        let request = *member.prng.pick(&REQUESTS);
        ask(member, connection, request, Cover::EVERYTHING)?;
        member.note_done();
        thread::sleep(ASK_EVERY);
    }
    Ok(())
}

fn tick(member: &mut Member, connection: &mut Connection) -> Result<(), Lost> {
    ask(member, connection, &["SELECT", &DB_TICK.to_string()], Cover::EVERYTHING)?;
    let covers = Cover::EVERYTHING.or(Cover::WRITES).or(Cover::EXPIRY);
    while member.is_staying() {
        // Whatever makes writers wait makes this wait as well, and is no fault of the cron.
        let set = connection.call(&["SET", "tick", "x", "PX", "30"])?;
        let begun = Instant::now();
        while set == Value::Simple(b"OK".to_vec()) && member.is_staying() {
            let asked = Instant::now();
            if ask(member, connection, &["DBSIZE"], Cover::EVERYTHING)? == Value::Integer(0) {
                member.note_done();
                break;
            }
            // When it was asked for the key was there; the answer may have been read late.
            let waited = asked - begun;
            if waited > TICK_MAX + member.world.allowance.within(covers, begun, asked) {
                member.late(format!("a key of 30 ms is there after {:.1} s", waited.as_secs_f64()));
                return Err(Lost::Noted);
            }
            thread::sleep(LOOK_EVERY);
        }
        thread::sleep(ASK_EVERY);
    }
    Ok(())
}

fn accept(member: &mut Member) -> Result<(), Lost> {
    let may_be_closed = member.world.plan.kills_all || member.world.plan.draws(Disturbance::Config);
    while member.is_staying() {
        let mut connection = Connection::open(&member.world, &member.record)?;
        match ask(member, &mut connection, &["PING"], Cover::EVERYTHING) {
            // It has not said that it is not to be evicted.
            Err(Lost::Closed(_)) if may_be_closed => {}
            result => _ = result?,
        }
        member.note_done();
        drop(connection);
        thread::sleep(3 * ASK_EVERY);
    }
    Ok(())
}

/// Sends a request and returns its reply. Reports a fault as soon as the reply is late.
fn ask(member: &Member, connection: &mut Connection, request: &[&str], cover: Cover) -> Result<Value, Lost> {
    connection.send(request)?;
    let begun = Instant::now();
    loop {
        // Up to here nothing had come, if the look finds nothing. A pause of this thread after it is none of
        // the server's.
        let looked = Instant::now();
        if let Some(reply) = connection.next_within(LOOK_EVERY)? {
            return Ok(reply);
        }
        let waited = looked - begun;
        if let Some(allowed) = lateness(waited, member.world.allowance.within(cover, begun, looked)) {
            member.late(format!(
                "{} is not answered after {:.2} s, of which {:.2} s are allowed for",
                request.join(" "),
                waited.as_secs_f64(),
                allowed.as_secs_f64()
            ));
            return Err(Lost::Noted);
        }
    }
}

/// Returns the allowed time if the wait is longer than that and `LATE_MAX`.
fn lateness(waited: Duration, allowed: Duration) -> Option<Duration> {
    (waited > LATE_MAX + allowed).then_some(allowed)
}

/// The process itself: runs in the thread of the run, between other things.
pub struct Sampler {
    sampled_at: Instant,
    /// Time that each thread of the server has waited for a core since the thread began.
    waited_ns: BTreeMap<u64, u64>,
    pub resident_bytes_max: u64,
}

impl Sampler {
    pub fn new() -> Sampler {
        Sampler { sampled_at: Instant::now(), waited_ns: BTreeMap::new(), resident_bytes_max: 0 }
    }

    pub fn sample(&mut self, world: &World, server: &mut Server) {
        if let Some(status) = server.ended() {
            return world.note_end(&status);
        }
        if self.sampled_at.elapsed() < SAMPLE_EVERY {
            return;
        }
        let time = self.sampled_at.elapsed();
        self.sampled_at = Instant::now();
        self.sample_waits(world, server, time);
        let bound = world.plan.resident_bytes_max();
        // The peak, so that nothing between two samples is missed.
        let Ok(resident) = server.resident_bytes_max() else { return };
        self.resident_bytes_max = resident;
        if resident > bound {
            let mb = |bytes: u64| bytes >> 20;
            let what = format!("{} MB were resident, the mix implies {}", mb(resident), mb(bound));
            world.fault("process", what);
        }
    }

    fn sample_waits(&mut self, world: &World, server: &Server, time: Duration) {
        let Ok(threads) = server.threads() else { return };
        let since = threads.iter().filter_map(|thread| {
            let before = self.waited_ns.get(&thread.id)?;
            Some((thread.id, Duration::from_nanos(thread.waited_ns.saturating_sub(*before))))
        });
        world.allowance.note_starved(time, since.collect());
        self.waited_ns = threads.into_iter().map(|thread| (thread.id, thread.waited_ns)).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Options;
    use crate::plan::Plan;
    use std::io::{Read, Write};
    use std::net::TcpListener;

    /// A server that answers so late, or never.
    fn slow_server(late: Option<Duration>) -> u16 {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut buffer = [0; 100];
            assert!(stream.read(&mut buffer).unwrap() > 0);
            match late {
                Some(late) => thread::sleep(late),
                None => thread::park(),
            }
            stream.write_all(b"+PONG\r\n").unwrap();
            // Until the other side has left.
            while stream.read(&mut buffer).is_ok_and(|bytes| bytes > 0) {}
        });
        port
    }

    fn asked(port: u16, allowed: Option<Duration>) -> (Result<Value, Lost>, bool) {
        let plan = Plan::draw(1, &Options::parse(&[]).unwrap());
        let world = Arc::new(World::new(port, 0, Default::default(), Default::default(), plan));
        let member = Member::new(&world, "watch", 0);
        let mut connection = Connection::open(&world, &member.record).unwrap();
        if let Some(allowed) = allowed {
            world.allowance.begin(Cover::EVERYTHING, allowed);
        }
        let result = ask(&member, &mut connection, &["PING"], Cover::EVERYTHING);
        (result, world.has_faults())
    }

    #[test]
    fn a_stall_is_a_fault_while_it_lasts_unless_it_is_allowed_for() {
        let (result, faulty) = asked(slow_server(None), None);
        assert_eq!((result, faulty), (Err(Lost::Noted), true));
        let late = Some(LATE_MAX + Duration::from_millis(300));
        let (result, faulty) = asked(slow_server(late), Some(2 * LATE_MAX));
        assert_eq!((result, faulty), (Ok(Value::Simple(b"PONG".to_vec())), false));
        let (_, faulty) = asked(slow_server(Some(Duration::ZERO)), None);
        assert!(!faulty);
    }

    #[test]
    fn a_probe_that_ends_before_the_run_is_a_fault() {
        let faulty = |phase: Phase, end: thread::Result<Result<(), Lost>>| {
            let plan = Plan::draw(1, &Options::parse(&[]).unwrap());
            let world = World::new(0, 0, Default::default(), Default::default(), plan);
            world.enter(phase);
            note_end(&world, "watch-gate-0", end);
            world.has_faults()
        };
        let closed = || Ok(Err(Lost::Closed("by the server".to_string())));
        assert!(faulty(Phase::Busy, Ok(Ok(()))) && faulty(Phase::Quiet, Ok(Ok(()))));
        assert!(faulty(Phase::Busy, Err(Box::new("panic"))) && faulty(Phase::Busy, closed()));
        assert!(!faulty(Phase::Leaving, Ok(Ok(()))) && !faulty(Phase::GivenUp, closed()));
    }

    #[test]
    fn lateness_is_what_is_left_after_the_allowance() {
        let ms = Duration::from_millis;
        assert_eq!(lateness(ms(900), ms(0)), None);
        assert_eq!(lateness(ms(1100), ms(0)), Some(ms(0)));
        assert_eq!(lateness(ms(1100), ms(200)), None);
    }
}
