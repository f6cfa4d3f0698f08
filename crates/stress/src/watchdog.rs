//! Looks on while the lanes are at work: who is not answered in time, and what grows.
//!
//! ```text
//!   worker 0, 1, ...   PING on a connection of each, opened before all others: they are handed out in turn
//!   gate               DBSIZE, SCAN, RANDOMKEY: all partitions at once
//!   tick               a key of 30 ms in a database of its own: gone without being asked for
//!   accept             a connection that is new every time
//!   process            alive, its RSS, how long its threads wait for a core
//! ```
//! A probe asks five times a second and looks up twenty times a second while it waits. What is late by more than `LATE_MAX`,
//! beyond what is excused, is a fault while it is late, so a server that never answers is found as soon as a slow one.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use isotherm_probe::Server;
use isotherm_resp::reply_parse::Value;

use crate::Fallible;
use crate::allowance::Cover;
use crate::connection::{Connection, Lost};
use crate::plan::{DB_TICK, Disturbance};
use crate::world::{Member, World};

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
                let result = probe(member);
                match result {
                    Err(Lost::Closed(why)) if !world.plan.kills_all => world.closed(&name, &why),
                    Err(Lost::Unreachable(why)) => world.closed(&name, &why),
                    _ => {}
                }
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

/// Threads with little on their stacks: there may be hundreds.
pub fn spawn_small(name: String, body: impl FnOnce() + Send + 'static) -> thread::JoinHandle<()> {
    const STACK_BYTES: usize = 256 << 10;
    thread::Builder::new().name(name).stack_size(STACK_BYTES).spawn(body).expect("a thread can be started")
}

/// Runs a probe until the run ends. Where everybody is killed, it comes again.
fn again(
    member: &mut Member,
    first: Option<Connection>,
    probe: fn(&mut Member, &mut Connection) -> Result<(), Lost>,
) -> Result<(), Lost> {
    let mut connection = first;
    while member.is_staying() {
        let mut current = match connection.take() {
            Some(connection) => connection,
            None => member.connect()?,
        };
        match probe(member, &mut current) {
            Err(Lost::Closed(_)) if member.world.plan.kills_all => {}
            result => return result,
        }
    }
    Ok(())
}

fn ping(member: &mut Member, connection: &mut Connection) -> Result<(), Lost> {
    while member.is_staying() {
        ask(member, connection, &["PING"], Cover::EVERYTHING)?;
        thread::sleep(ASK_EVERY);
    }
    Ok(())
}

fn gate(member: &mut Member, connection: &mut Connection) -> Result<(), Lost> {
    while member.is_staying() {
        const REQUESTS: [&[&str]; 3] = [&["DBSIZE"], &["RANDOMKEY"], &["SCAN", "0", "COUNT", "1"]];
        let request = *member.prng.pick(&REQUESTS);
        ask(member, connection, request, Cover::EVERYTHING)?;
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
            if ask(member, connection, &["DBSIZE"], Cover::EVERYTHING)? == Value::Integer(0) {
                break;
            }
            let excused = member.world.excused(covers, begun);
            if begun.elapsed() > TICK_MAX + excused {
                member.late(format!("a key of 30 ms is there after {:.1} s", begun.elapsed().as_secs_f64()));
                return Ok(());
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
            result => drop(result?),
        }
        drop(connection);
        thread::sleep(3 * ASK_EVERY);
    }
    Ok(())
}

/// One request, and a fault as soon as its reply is late.
fn ask(member: &Member, connection: &mut Connection, request: &[&str], cover: Cover) -> Result<Value, Lost> {
    let begun = Instant::now();
    connection.send(request)?;
    loop {
        if let Some(reply) = connection.next_within(LOOK_EVERY)? {
            return Ok(reply);
        }
        let waited = begun.elapsed();
        if let Some(excused) = lateness(waited, member.world.excused(cover, begun)) {
            member.late(format!(
                "{} is not answered after {:.2} s, of which {:.2} s are excused",
                request.join(" "),
                waited.as_secs_f64(),
                excused.as_secs_f64()
            ));
            return Err(Lost::Noted);
        }
    }
}

/// What is excused, if the wait is longer than that allows.
fn lateness(waited: Duration, excused: Duration) -> Option<Duration> {
    (waited > LATE_MAX + excused).then_some(excused)
}

/// The process itself: runs in the thread of the run, between other things.
pub struct Sampler {
    sampled_at: Instant,
    /// Of each thread of the server, how long it has waited for a core since it began.
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
        self.sample_waits(world, time);
        let bound = world.plan.resident_bytes_max();
        // Peak and present from one small file; `smaps` would walk all pages.
        if let Some(resident) = resident_bytes(world.process) {
            self.resident_bytes_max = self.resident_bytes_max.max(resident);
            if resident > bound {
                let mb = |bytes: u64| bytes >> 20;
                world.fault(
                    "process",
                    format!("{} MB are resident, the mix implies {}", mb(resident), mb(bound)),
                );
            }
        }
    }

    fn sample_waits(&mut self, world: &World, time: Duration) {
        let Ok(tasks) = std::fs::read_dir(format!("/proc/{}/task", world.process)) else { return };
        let (mut totals, mut since) = (BTreeMap::new(), Vec::new());
        for task in tasks.flatten() {
            let number = |text: &str| text.parse::<u64>().ok();
            let Some(thread) = number(&task.file_name().to_string_lossy()) else { continue };
            let Ok(text) = std::fs::read_to_string(task.path().join("schedstat")) else { continue };
            let Some(total) = text.split_whitespace().nth(1).and_then(number) else { continue };
            if let Some(before) = self.waited_ns.get(&thread) {
                since.push((thread, Duration::from_nanos(total.saturating_sub(*before))));
            }
            totals.insert(thread, total);
        }
        self.waited_ns = totals;
        world.allowance.note_starved(time, since);
    }
}

fn resident_bytes(process: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()? << 10)
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

    fn asked(port: u16, excuse: Option<Duration>) -> (Result<Value, Lost>, bool) {
        let plan = Plan::draw(1, &Options::parse(&[]).unwrap());
        let world = Arc::new(World::new(port, 0, Default::default(), plan));
        let member = Member::new(&world, "watch", 0);
        let mut connection = Connection::open(&world, &member.record).unwrap();
        if let Some(excuse) = excuse {
            world.allowance.begin(Cover::EVERYTHING, excuse);
        }
        let result = ask(&member, &mut connection, &["PING"], Cover::EVERYTHING);
        (result, world.has_faults())
    }

    #[test]
    fn a_stall_is_a_fault_while_it_lasts_and_an_excused_one_is_none() {
        let (result, faulty) = asked(slow_server(None), None);
        assert_eq!((result, faulty), (Err(Lost::Noted), true));
        let late = Some(LATE_MAX + Duration::from_millis(300));
        let (result, faulty) = asked(slow_server(late), Some(2 * LATE_MAX));
        assert_eq!((result, faulty), (Ok(Value::Simple(b"PONG".to_vec())), false));
        let (_, faulty) = asked(slow_server(Some(Duration::ZERO)), None);
        assert!(!faulty);
    }

    #[test]
    fn lateness_is_what_is_left_after_excuses() {
        let ms = Duration::from_millis;
        assert_eq!(lateness(ms(900), ms(0)), None);
        assert_eq!(lateness(ms(1100), ms(0)), Some(ms(0)));
        assert_eq!(lateness(ms(1100), ms(200)), None);
    }
}
