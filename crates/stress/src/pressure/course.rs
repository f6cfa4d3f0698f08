//! One cell from start to end.
//!
//! ```text
//!   start -> clients fill their keys -> the disk is in trouble, clients go on -> as before? -> keys there?
//!            |------ INFO, GET of a hot key, the machine's own way: all the time -------|
//!                                                                  (or: -> kill -9 -> start -> keys there?)
//! ```

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant, SystemTime};

use isotherm_probe::{Client as Wire, Fallible, info_field};
use isotherm_resp::reply_parse::Value;

use super::cell::{Cell, Disk, Workload};
use super::client::{CLIENTS, Client, Counts, Missing, PATIENCE};
use super::deployment::Deployment;
use super::verdict::{Figures, Seen};
use super::watch::{self, HotEnd, Longest, Machine, Sample};

/// Connections for the hot key: they are handed out in turn, so each is at another worker.
const HOT_CLIENTS_MAX: u64 = 2;
/// Beyond each bound: what is not back by then is not waited for.
const BACK_MAX: Duration = Duration::from_secs(22);
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// A batch of writes that takes as long is not written as before.
const WRITTEN_WITHIN: Duration = Duration::from_secs(1);
/// `everysec` may lose as much when the server is killed.
const SYNCED_WITHIN: Duration = Duration::from_millis(2500);
const REWRITE_EVERY: Duration = Duration::from_millis(200);

pub fn run(program: &Path, cell: &Cell, scratch: &Path) -> Fallible<Figures> {
    let mut deployment = Deployment::start(program, cell, scratch)?;
    watch::set_hot_key(deployment.control())?;
    let clients: Fallible<Vec<Client>> =
        (0..CLIENTS).map(|number| Client::connect(deployment.port(), cell, number)).collect();
    let mut course = Course { cell, clients: clients?, seen: Figures::default(), begun: Instant::now() };
    let result = course.watched(&mut deployment).and_then(|()| course.end(&mut deployment));
    let ended = &mut course.seen.ended;
    ended.extend(result.err());
    for server in &mut deployment.servers {
        if let Some(status) = server.ended() {
            ended.push(format!("a server has ended: {status}"));
        }
        if let Some(line) = server.log().lines().find(|line| line.contains("panicked at")) {
            ended.push(line.to_string());
        }
    }
    // Many clients meet the same end.
    ended.sort_unstable();
    ended.dedup();
    Ok(course.seen)
}

struct Course<'a> {
    cell: &'a Cell,
    clients: Vec<Client>,
    seen: Figures,
    begun: Instant,
}

impl Course<'_> {
    /// All up to the end, or the kill, while others look on.
    fn watched(&mut self, deployment: &mut Deployment) -> Fallible {
        let (begun, stop) = (self.begun, &AtomicBool::new(false));
        let port = deployment.port();
        let wires: Fallible<Vec<Wire>> =
            deployment.servers.iter().map(|server| Wire::connect_within(server.port, PATIENCE)).collect();
        let hot: Fallible<Vec<Wire>> = (0..self.cell.workers.min(HOT_CLIENTS_MAX))
            .map(|_| Wire::connect_within(port, PATIENCE))
            .collect();
        let (wires, hot, machine) = (wires?, hot?, Machine::start()?);
        let (result, samples, gets, own) = thread::scope(|scope| {
            let samples: Vec<_> =
                wires.into_iter().map(|wire| scope.spawn(move || watch::sample(wire, begun, stop))).collect();
            let gets: Vec<_> = hot
                .into_iter()
                .map(|wire| scope.spawn(move || watch::get_hot_key(wire, begun, stop)))
                .collect();
            let own = scope.spawn(move || machine.echo(begun, stop));
            let result = self.through(deployment);
            stop.store(true, Relaxed);
            (result, joined(samples), joined(gets), own.join().expect("an echo does not panic"))
        });
        self.seen.machine = own;
        let mut failed = Vec::new();
        self.seen.hot_get = gets.iter().fold(Longest::default(), |longest, (of_one, _)| longest.max(*of_one));
        for (_, end) in gets {
            match end {
                HotEnd::Stopped => {}
                HotEnd::Lost(what) => self.seen.missing.note(what),
                HotEnd::Silent(why) => failed.push(why),
            }
        }
        for ((samples, result), (server, base)) in
            samples.into_iter().zip(deployment.servers.iter().zip(&deployment.base_bytes))
        {
            let resident_max = server.resident_bytes_max().unwrap_or(0);
            self.seen.servers.push(Seen { samples, resident_max, base: *base });
            failed.extend(result.err());
        }
        self.seen.ended.extend(failed);
        result
    }

    fn through(&mut self, deployment: &mut Deployment) -> Fallible {
        let cell = self.cell;
        self.each_client(|client| client.prepare(cell))?;
        self.seen.prepared = self.take_counts();
        self.seen.shortage.0 = self.begun.elapsed();
        let result = self.shortage(deployment);
        self.seen.shortage.1 = self.begun.elapsed();
        self.seen.worked = self.take_counts();
        result?;
        if !deployment.end_trouble(cell.disk)? {
            self.each_client(Client::delete_half)?;
        }
        self.seen.back = Some(self.wait_until_back(deployment));
        if !cell.is_killed {
            self.look_for_keys()?;
        }
        Ok(())
    }

    /// Lets clients work while the disk is in trouble; their last requests are answered after it.
    fn shortage(&mut self, deployment: &mut Deployment) -> Fallible {
        let cell = self.cell;
        deployment.begin_trouble(cell.disk)?;
        let began = Instant::now();
        let due_ms = unix_ms() + cell.trouble.as_millis() as u64 * 2 / 3;
        let stop = &AtomicBool::new(false);
        thread::scope(|scope| {
            let clients: Vec<_> = self
                .clients
                .iter_mut()
                .map(|client| scope.spawn(move || client.work(cell, due_ms, stop)))
                .collect();
            let mut outcome = if cell.workload == Workload::Save { begin_save(deployment) } else { Ok(()) };
            while began.elapsed() < cell.trouble {
                if cell.workload == Workload::Rewrite {
                    // One is under way, or may not begin: both are answers.
                    _ = deployment.control().call(&["BGREWRITEAOF"]);
                }
                thread::sleep(REWRITE_EVERY.min(cell.trouble.saturating_sub(began.elapsed())));
            }
            // Clients may wait for the disk: it is there again before they are waited for.
            outcome = outcome.and(deployment.end_trouble(Disk::Fast).map(drop));
            stop.store(true, Relaxed);
            joined(clients).into_iter().collect::<Fallible>().and(outcome)
        })
    }

    /// Looks for the keys on the files of a server that was killed, if the cell is one of those.
    fn end(&mut self, deployment: &mut Deployment) -> Fallible {
        let before = Sample::take(deployment.control(), self.begun)?;
        let (mut last, killed) = (before, self.cell.is_killed);
        if killed {
            if self.cell.fsync == Some("everysec") {
                thread::sleep(SYNCED_WITHIN);
            }
            deployment.kill_and_restart()?;
            let port = deployment.port();
            self.clients.iter_mut().try_for_each(|client| client.connect_again(port))?;
            self.look_for_keys()?;
            let after = Sample::take(deployment.control(), self.begun)?;
            last.evicted += after.evicted;
        }
        if let Some(seen) = self.seen.servers.first_mut() {
            seen.samples.push(last);
        }
        Ok(())
    }

    fn look_for_keys(&mut self) -> Fallible {
        let cell = self.cell;
        let found = thread::scope(|scope| {
            let clients: Vec<_> = self
                .clients
                .iter_mut()
                .map(|client| scope.spawn(move || client.look_for_keys(cell)))
                .collect();
            joined(clients)
        });
        let mut all = Missing::default();
        for missing in found {
            all.add(&missing?);
        }
        self.seen.missing.add(&all);
        Ok(())
    }

    /// Returns how long it took until all was as before, or what was not.
    fn wait_until_back(&mut self, deployment: &mut Deployment) -> Result<Duration, String> {
        let began = Instant::now();
        let mut was_saved = false;
        loop {
            let why = match self.not_back(deployment, &mut was_saved) {
                Ok(None) => return Ok(began.elapsed()),
                Ok(Some(why)) => why,
                Err(why) => return Err(why),
            };
            if began.elapsed() > BACK_MAX {
                let Sample { state, used, droppable, .. } = Sample::take(deployment.control(), self.begun)?;
                let (seconds, used, droppable) = (BACK_MAX.as_secs(), used >> 20, droppable >> 20);
                return Err(format!(
                    "{why}, {seconds} s later (disk: {state}, {used} MB used, {droppable} MB of copies)"
                ));
            }
            thread::sleep(LOOK_EVERY);
        }
    }

    /// Returns the first thing that is not as before.
    fn not_back(&mut self, deployment: &mut Deployment, was_saved: &mut bool) -> Fallible<Option<String>> {
        let asked = Instant::now();
        if !self.clients[0].can_write()? {
            return Ok(Some("writes are refused".to_string()));
        }
        if asked.elapsed() > WRITTEN_WITHIN {
            return Ok(Some(format!("a batch of writes took {:.1} s", asked.elapsed().as_secs_f64())));
        }
        for server in &deployment.servers {
            let state = Sample::take(&mut server.client()?, self.begun)?.state;
            if state != "ok" && state != "nothing-to-move" {
                return Ok(Some(format!("the disk is {state}")));
            }
        }
        match self.cell.workload {
            Workload::Save => saved(deployment.control(), was_saved),
            Workload::Rewrite => rewritten(deployment.control(), was_saved),
            Workload::Replica => followed(deployment),
            Workload::Expiry => {
                let allowed = 1 + self.clients.iter().map(Client::keys).sum::<u64>();
                let keys = deployment.control().dbsize()?;
                Ok((keys > allowed)
                    .then(|| format!("{keys} keys are there, {allowed} without those that are due")))
            }
            _ => Ok(None),
        }
    }

    fn each_client(&mut self, work: impl Fn(&mut Client) -> Fallible + Sync) -> Fallible {
        let work = &work;
        thread::scope(|scope| {
            let clients: Vec<_> =
                self.clients.iter_mut().map(|client| scope.spawn(move || work(client))).collect();
            joined(clients).into_iter().collect()
        })
    }

    fn take_counts(&mut self) -> Counts {
        let mut all = Counts::default();
        self.clients.iter_mut().for_each(|client| all.add(&std::mem::take(&mut client.counts)));
        all
    }
}

fn joined<T>(threads: Vec<ScopedJoinHandle<'_, T>>) -> Vec<T> {
    threads.into_iter().map(|thread| thread.join().expect("a thread of a cell does not panic")).collect()
}

fn unix_ms() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

/// A rewrite may be under way by itself, and is waited for.
const SAVE: [&str; 2] = ["BGSAVE", "SCHEDULE"];

fn begin_save(deployment: &mut Deployment) -> Fallible {
    deployment.control().call(&SAVE).map(drop)
}

/// The save of the shortage has ended, and one after it was well.
fn saved(control: &mut Wire, was_asked: &mut bool) -> Fallible<Option<String>> {
    done(control, was_asked, &SAVE, "rdb_bgsave_in_progress", "rdb_last_bgsave_status")
}

fn rewritten(control: &mut Wire, was_asked: &mut bool) -> Fallible<Option<String>> {
    done(control, was_asked, &["BGREWRITEAOF"], "aof_rewrite_in_progress", "aof_last_bgrewrite_status")
}

fn done(
    control: &mut Wire,
    was_asked: &mut bool,
    command: &[&str],
    in_progress: &str,
    status: &str,
) -> Fallible<Option<String>> {
    let Value::Bulk(text) = control.call(&["INFO", "persistence"])? else {
        return Err("INFO is no text".to_string());
    };
    if info_field(&text, in_progress).as_deref() != Some("0") {
        return Ok(Some(format!("{} is under way", command[0])));
    }
    if !*was_asked {
        control.call(command)?;
        *was_asked = true;
        return Ok(Some(format!("{} has just begun", command[0])));
    }
    let status = info_field(&text, status).unwrap_or_default();
    Ok((status != "ok").then(|| format!("{} ended as '{status}'", command[0])))
}

fn followed(deployment: &mut Deployment) -> Fallible<Option<String>> {
    let number = |text: String| text.parse::<u64>().map_err(|_| format!("'{text}' is no offset"));
    let primary = number(deployment.control().info("master_repl_offset")?)?;
    let mut replica = deployment.servers[1].client()?;
    let link = replica.info("master_link_status")?;
    if link != "up" {
        return Ok(Some(format!("the link of the replica is {link}")));
    }
    let offset = number(replica.info("slave_repl_offset")?)?;
    Ok((offset < primary).then(|| format!("the replica is at {offset} of {primary}")))
}
