//! One seed from start to end, and one seed after the other.
//!
//! ```text
//!   start server -> watchdog connects -> lanes start -> ... busy ... -> Quiet: receivers are served -> Leaving -> audit -> settle
//!                                                         |
//!                                                     a fault: given up, everything kept
//! ```

use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use isotherm_probe::Server;
use isotherm_resp::reply_parse::Value;

use crate::allowance::Cover;
use crate::connection::{Connection, Lost};
use crate::kinds::name_of;
use crate::lanes::messages::OUTPUT_BYTES_MAX;
use crate::lanes::{Control, Lane, lane};
use crate::options::{Options, SEEDS};
use crate::plan::{DATA_BYTES_MAX, Plan};
use crate::record::Record;
use crate::watchdog::{Sampler, Watch, spawn_small};
use crate::world::{Member, Phase, Severity, World};
use crate::{Fallible, report, settle};

const LOOK: Duration = Duration::from_millis(50);
/// After a fault, others may show that belong to it.
const AFTERMATH: Duration = Duration::from_secs(2);
/// Time after a seen stall at which a request without a reply counts as never answered.
const HANG_MIN: Duration = Duration::from_secs(10);
/// Threads look up several times a second; one that does not end within this hangs itself.
const END_MAX: Duration = Duration::from_secs(20);
/// Time within which all deliveries are made while no requests are sent. Floods of messages take the longest.
const QUIET_MAX: Duration = Duration::from_secs(8);
/// Length of a run in which every lane has done some of its work, on any machine.
const BUSY_MIN: Duration = Duration::from_secs(10);
/// And nothing is looked at before whatever is under way has arrived.
const QUIET_MIN: Duration = Duration::from_millis(300);

/// Runs seeds until the time is over. The worst fault of all of them.
pub fn all(options: &Options) -> Fallible<Option<Severity>> {
    options.check_server()?;
    let begun = Instant::now();
    let mut seeds: Box<dyn Iterator<Item = u64>> = match options.seed {
        Some(seed) => Box::new(std::iter::once(seed)),
        None => Box::new(SEEDS.into_iter().chain((1..).filter(|seed| !SEEDS.contains(seed)))),
    };
    let (mut runs, mut failed, mut worst) = (0, Vec::new(), None);
    loop {
        let left = options.total.saturating_sub(begun.elapsed());
        if !begins(options, runs, left) {
            break;
        }
        let Some(seed) = seeds.next() else { break };
        runs += 1;
        if let Some(severity) = one(seed, options)? {
            failed.push(seed);
            worst = worst.max(Some(severity));
        }
    }
    // Nothing is in it any more.
    std::fs::remove_dir(scratch()).ok();
    let seconds = begun.elapsed().as_secs();
    match failed.as_slice() {
        [] => println!("stress: {runs} seeds in {seconds} s, no fault"),
        failed => println!("stress: {runs} seeds in {seconds} s, faults with seeds {failed:?}"),
    }
    if let Some(wanted) = options.seeds.filter(|wanted| runs < *wanted) {
        println!("stress: (late) {runs} of {wanted} seeds have run when the time was over");
        worst = worst.max(Some(Severity::Late));
    }
    Ok(worst)
}

/// Returns whether another seed begins after `runs`, with `left` of the time left. If the number of seeds is
/// given, the time is only a bound.
fn begins(options: &Options, runs: usize, left: Duration) -> bool {
    match options.seeds {
        Some(wanted) => runs < wanted && !left.is_zero(),
        None => runs == 0 || left > options.per_seed() / 2,
    }
}

/// Runs one seed: its worst fault.
fn one(seed: u64, options: &Options) -> Fallible<Option<Severity>> {
    let plan = Plan::draw(seed, options);
    println!("{plan}");
    let mut server = start(&plan, options)?;
    let used_at_start = used_memory(&server)?;
    let folder = report::folder(&options.keep, seed);
    let world = Arc::new(World::new(server.port, server.id(), server.log_path(), folder, plan));
    // Connections are handed out in turn, so the first ones are one at each worker.
    let watch = Watch::connect(&world)?;
    let mut run =
        Run { world: Arc::clone(&world), sampler: Sampler::new(), lanes: Vec::new(), threads: Vec::new() };
    let outcome = run.through(&mut server, watch, options.per_seed(), used_at_start);
    let is_closed = matches!(outcome, Err(Lost::Closed(_) | Lost::Unreachable(_)));
    note_outcome(&world, &outcome);
    if let Some(status) = end_of(&mut server, is_closed) {
        world.note_end(&status);
    } else if server.log().contains("panicked at") {
        world.fault("process", "a thread of the server has panicked; the server goes on");
    }
    world.wait_for_threads();
    let faults = world.faults();
    world.enter(Phase::GivenUp);
    run.summary();
    report::print_faults(&faults);
    if !faults.is_empty() {
        report::keep(&world, &server, &options.command(seed))?;
        println!("  what was sent is in {}", world.folder.display());
        println!("  to repeat it: {}", options.command(seed));
    }
    drop(server);
    run.join(END_MAX);
    Ok(faults.iter().map(|fault| fault.severity).max())
}

/// A stall ends; a server that hangs does not. Each worker is asked once more, on connections that are handed
/// out in turn.
fn look_for_hang(world: &Arc<World>) {
    let record = world.record("hang");
    for number in 0..world.plan.workers {
        let Ok(mut connection) = Connection::open(world, &record) else { return };
        let begun = Instant::now();
        if connection.send_all(&[["PING"], ["DBSIZE"]]).is_err() {
            return;
        }
        for _ in 0..2 {
            let mut reply = connection.next_within(HANG_MIN);
            if reply == Ok(None) {
                // A machine that is so busy gets as much again.
                reply =
                    connection.next_within(world.allowance.within(Cover::EVERYTHING, begun, Instant::now()));
            }
            match reply {
                Ok(Some(_)) => {}
                Ok(None) => {
                    let seconds = begun.elapsed().as_secs();
                    let what =
                        format!("new connection {number} is not answered for {seconds} s after the stall");
                    return world.fault("hang", what);
                }
                // It ends for a reason of its own, which is noted elsewhere.
                Err(_) => return,
            }
        }
    }
}

/// A run that ended before its time has a fault, whichever thread has seen it; the connection that audits
/// counts as well.
fn note_outcome(world: &World, outcome: &Result<(), Lost>) {
    match outcome {
        Err(Lost::Closed(why) | Lost::Unreachable(why)) => world.closed("audit", why),
        Err(lost) if !world.has_faults() => world.fault("audit", format!("ended early: {lost:?}")),
        _ => {}
    }
}

/// Returns how the server has ended, if it has. The end of a connection can be visible some time before the
/// end of its process.
fn end_of(server: &mut Server, is_closed: bool) -> Option<String> {
    const REAPED_WITHIN: Duration = Duration::from_secs(2);
    let begun = Instant::now();
    loop {
        let status = server.ended();
        if status.is_some() || !is_closed || begun.elapsed() > REAPED_WITHIN {
            return status;
        }
        thread::sleep(LOOK);
    }
}

fn start(plan: &Plan, options: &Options) -> Fallible<Server> {
    let pairs = [
        ("io-threads", plan.workers.to_string()),
        ("maxmemory", DATA_BYTES_MAX.to_string()),
        ("maxclients", "5000".to_string()),
        ("enable-debug-command", "yes".to_string()),
    ];
    let mut arguments: Vec<String> =
        pairs.into_iter().flat_map(|(name, value)| [format!("--{name}"), value]).collect();
    let limit = format!("pubsub {OUTPUT_BYTES_MAX} 8mb 10");
    arguments.extend(["--client-output-buffer-limit".to_string(), limit]);
    let server = std::path::absolute(&options.server).map_err(|why| why.to_string())?;
    Server::start("Isotherm", Command::new(server), &arguments, &scratch())
}

/// Folders of the servers; each goes with its server, and this one at the end.
fn scratch() -> PathBuf {
    std::env::temp_dir().join(format!("isotherm-stress-{}", std::process::id()))
}

fn used_memory(server: &Server) -> Fallible<u64> {
    let mut client = server.client()?;
    client.call(&["FLUSHALL"])?;
    client.used_memory_bytes()
}

struct Run {
    world: Arc<World>,
    sampler: Sampler,
    lanes: Vec<(&'static str, Arc<dyn Lane>)>,
    /// Threads, and the last phase in which they still run.
    threads: Vec<(JoinHandle<()>, Phase)>,
}

impl Run {
    /// Idle while the lanes run, so the first that `maxmemory-clients` would evict.
    fn connect_audit(&self, record: &Arc<Record>) -> Result<Connection, Lost> {
        let mut audit = Connection::open(&self.world, record)?;
        audit.call(&["CLIENT", "NO-EVICT", "ON"])?;
        Ok(audit)
    }

    fn through(
        &mut self,
        server: &mut Server,
        watch: Watch,
        time: Duration,
        used_at_start: u64,
    ) -> Result<(), Lost> {
        let world = Arc::clone(&self.world);
        let record = world.record("audit");
        let mut audit = self.connect_audit(&record)?;
        self.start_lanes(&mut audit)?;
        // The probes stay until all have left.
        self.threads.extend(watch.start(&world).into_iter().map(|thread| (thread, Phase::Leaving)));
        self.watch_until(server, |world| world.begun.elapsed() >= time)?;
        world.enter(Phase::Quiet);
        self.wait_for_threads(server, Phase::Busy)?;
        if world.plan.kills_all {
            audit = self.connect_audit(&record)?;
        }
        self.look_quiet(server, &mut audit)?;
        world.enter(Phase::Leaving);
        self.wait_for_threads(server, Phase::Leaving)?;
        self.look_for_idle(time);
        for (name, lane) in &self.lanes {
            lane.audit(&mut audit)?.into_iter().for_each(|wrong| world.fault(name, wrong));
        }
        // Before the counters are reset.
        self.print_locks(&mut audit)?;
        settle::look(&world, server, &mut audit, used_at_start)
    }

    fn start_lanes(&mut self, connection: &mut Connection) -> Result<(), Lost> {
        let plan = &self.world.plan;
        self.lanes.push(("control", Arc::new(Control::new())));
        for (kind, members) in &plan.lanes {
            self.lanes.push((name_of(*kind), lane(*kind, plan, *members)));
        }
        for (_, lane) in &self.lanes {
            lane.prepare(connection)?;
        }
        let members: Vec<usize> =
            std::iter::once(1).chain(plan.lanes.iter().map(|(_, members)| *members)).collect();
        for ((name, lane), members) in self.lanes.iter().zip(members) {
            for number in 0..members {
                let last = if lane.waits(number) { Phase::Quiet } else { Phase::Busy };
                let (member, lane) = (Member::new(&self.world, name, number), Arc::clone(lane));
                self.threads
                    .push((spawn_small(member.name.clone(), move || live(lane.as_ref(), member)), last));
            }
        }
        Ok(())
    }

    /// Looks on until something is so. With a fault the run is given up.
    fn watch_until(&mut self, server: &mut Server, is_over: impl Fn(&World) -> bool) -> Result<(), Lost> {
        while !is_over(&self.world) {
            self.sampler.sample(&self.world, server);
            if self.world.has_faults() {
                return Err(self.give_up(server));
            }
            thread::sleep(LOOK);
        }
        Ok(())
    }

    fn give_up(&mut self, server: &mut Server) -> Lost {
        self.world.wait_for_threads();
        thread::sleep(AFTERMATH);
        self.sampler.sample(&self.world, server);
        look_for_hang(&self.world);
        Lost::Over
    }

    /// Threads that end with this phase have ended.
    fn wait_for_threads(&mut self, server: &mut Server, phase: Phase) -> Result<(), Lost> {
        let begun = Instant::now();
        loop {
            let mut left = Vec::new();
            for (thread, last) in self.threads.drain(..) {
                if last > phase || !thread.is_finished() {
                    left.push((thread, last));
                } else if thread.join().is_err() {
                    self.world.fault("stress", "a thread of this program has panicked");
                }
            }
            self.threads = left;
            let Some((late, _)) = self.threads.iter().find(|(_, last)| *last <= phase) else { return Ok(()) };
            if begun.elapsed() > END_MAX {
                let name = late.thread().name().unwrap_or_default().to_string();
                self.world.late(&name, "is not answered, or does not end");
            }
            self.sampler.sample(&self.world, server);
            if self.world.has_faults() {
                return Err(self.give_up(server));
            }
            thread::sleep(LOOK);
        }
    }

    /// Checks, once no more requests are sent, that all deliveries are made within some time.
    fn look_quiet(&mut self, server: &mut Server, connection: &mut Connection) -> Result<(), Lost> {
        let begun = Instant::now();
        while begun.elapsed() < QUIET_MIN {
            self.watch_until(server, |_| begun.elapsed() >= QUIET_MIN)?;
        }
        loop {
            let looked = Instant::now();
            let mut findings = Vec::new();
            for (name, lane) in &self.lanes {
                let found = lane.look_quiet(connection)?;
                findings.extend(found.into_iter().map(|finding| (*name, finding)));
            }
            if findings.is_empty() {
                return Ok(());
            }
            let allowed = self.world.allowance.within(Cover::EVERYTHING, begun, looked);
            if looked - begun > QUIET_MAX + allowed {
                findings.into_iter().for_each(|(name, finding)| self.world.fault(name, finding));
                return Err(Lost::Over);
            }
            thread::sleep(2 * LOOK);
            self.sampler.sample(&self.world, server);
        }
    }

    /// Checks that the senders and the receivers of every lane have done something, and that every probe has.
    fn look_for_idle(&self, time: Duration) {
        let records: Vec<_> = self.world.records();
        let done =
            |name: &str| records.iter().find(|record| record.name == name).map_or(0, |record| record.done());
        let mut idle: Vec<String> = Vec::new();
        let members = |name: &str| self.world.plan.lanes.iter().find(|(kind, _)| name_of(*kind) == name);
        for (name, lane) in &self.lanes {
            let is_wanted = *name != "control" || !self.world.plan.disturbances.is_empty();
            let members = members(name).map_or(usize::from(is_wanted), |(_, members)| *members);
            let done: Vec<(bool, u64)> =
                (0..members).map(|number| (lane.waits(number), done(&format!("{name}-{number}")))).collect();
            idle.extend(idle_parts(&done).into_iter().map(|part| format!("{name}: {part}")));
        }
        let probes = records.iter().filter(|record| record.name.starts_with("watch-") && record.done() == 0);
        idle.extend(probes.map(|record| format!("{}: no probe was answered", record.name)));
        for line in idle {
            if time < BUSY_MIN { println!("  note: {line}") } else { self.world.fault("stress", line) }
        }
    }

    /// Prints how long the server reports to have held its locks, if it reports that.
    fn print_locks(&self, connection: &mut Connection) -> Result<(), Lost> {
        if let Value::Bulk(info) = connection.call(&["INFO", "locks"])? {
            let text = String::from_utf8_lossy(&info);
            text.lines()
                .filter(|line| line.starts_with("locks_longest"))
                .for_each(|line| println!("  {line}"));
        }
        Ok(())
    }

    fn summary(&self) {
        let requests = self.world.requests.load(std::sync::atomic::Ordering::Relaxed);
        let (seconds, mb) = (self.world.begun.elapsed().as_secs_f64(), self.sampler.resident_bytes_max >> 20);
        let implied = self.world.plan.resident_bytes_max() >> 20;
        println!(
            "  {requests} requests in {seconds:.1} s, at most {mb} MB resident of {implied} that the mix implies"
        );
        let lines = self.lanes.iter().map(|(name, lane)| (name, lane.summary()));
        lines.filter(|(_, line)| !line.is_empty()).for_each(|(name, line)| println!("  {name}: {line}"));
    }

    /// The server is gone: every thread finds out.
    fn join(&mut self, longest: Duration) {
        let begun = Instant::now();
        while self.threads.iter().any(|(thread, _)| !thread.is_finished()) && begun.elapsed() < longest {
            thread::sleep(LOOK);
        }
    }
}

/// Returns the parts of a lane that have done nothing at all. Each member is given as whether it waits, and
/// how much it has done.
fn idle_parts(members: &[(bool, u64)]) -> Vec<&'static str> {
    [(false, "no sender has done anything"), (true, "no receiver has got anything")]
        .into_iter()
        .filter(|(waits, _)| {
            let mut part = members.iter().filter(|(other, _)| other == waits).peekable();
            part.peek().is_some() && part.all(|(_, done)| *done == 0)
        })
        .map(|(_, what)| what)
        .collect()
}

/// A member from its start to its end. Where every client may be killed it connects again.
fn live(lane: &dyn Lane, mut member: Member) {
    loop {
        let Err(lost) = lane.work(&mut member) else { return };
        member.note_lost(&lost);
        let comes_again = matches!(lost, Lost::Closed(_)) && member.world.plan.kills_all;
        let phase = member.world.phase();
        if !comes_again || phase >= Phase::Leaving || phase == Phase::Quiet && !lane.waits(member.number) {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn world() -> World {
        World::new(0, 0, Default::default(), Default::default(), Plan::draw(1, &Options::parse(&[]).unwrap()))
    }

    #[test]
    fn a_lane_of_which_a_part_did_nothing_is_idle() {
        assert_eq!(idle_parts(&[(false, 3), (true, 0), (true, 1)]), [""; 0]);
        assert_eq!(idle_parts(&[(false, 3), (true, 0), (true, 0)]), ["no receiver has got anything"]);
        assert_eq!(idle_parts(&[(false, 0)]), ["no sender has done anything"]);
    }

    #[test]
    fn a_number_of_seeds_is_run_whatever_time_each_takes() {
        let options =
            |line: &str| Options::parse(&line.split(' ').map(str::to_string).collect::<Vec<_>>()).unwrap();
        let (second, counted) = (Duration::from_secs(1), options("--seeds 6 --seconds 300"));
        assert!(begins(&counted, 5, second) && !begins(&counted, 6, 100 * second));
        assert!(!begins(&counted, 3, Duration::ZERO), "the time is a bound");
        let timed = options("--seconds 90");
        assert!(begins(&timed, 0, Duration::ZERO) && begins(&timed, 5, 8 * second));
        assert!(!begins(&timed, 5, 7 * second));
    }

    #[test]
    fn an_audit_that_loses_its_connection_is_a_fault() {
        for lost in [Lost::Closed("by the server".into()), Lost::Unreachable("refused".into()), Lost::Over] {
            let world = world();
            note_outcome(&world, &Err(lost.clone()));
            let severities: Vec<Severity> = world.faults().iter().map(|fault| fault.severity).collect();
            assert_eq!(severities, [Severity::Wrong], "{lost:?}");
        }
        let world = world();
        note_outcome(&world, &Ok(()));
        assert!(!world.has_faults());
        world.late("watch-ping-0", "PING");
        note_outcome(&world, &Err(Lost::Over));
        assert_eq!(world.faults().len(), 1, "the fault that ended it is known");
    }
}
