//! A replica that is stopped and started again under load, fifty times: does it go on where it was, or start
//! over?

use std::thread;
use std::time::{Duration, Instant};

use super::counters;
use super::cut::equal;
use super::pair::{Syncs, check, count, digest, limits, link_is_up, reach};
use crate::options::Options;
use crate::process::{SIDES, Server, Setting, Side};
use crate::report::Table;
use crate::{Fallible, progress};

const RESTARTS: u64 = 50;
/// Until an open rewrite lets a server go.
const BETWEEN_SHUTDOWNS: Duration = Duration::from_millis(100);

#[derive(Clone, Copy)]
enum Way {
    ShutdownWithRdb,
    ShutdownWithAof,
    KillWithAof,
}

const WAYS: [Way; 3] = [Way::ShutdownWithRdb, Way::ShutdownWithAof, Way::KillWithAof];

impl Way {
    fn name(self) -> &'static str {
        match self {
            Way::ShutdownWithRdb => "SHUTDOWN, save on",
            Way::ShutdownWithAof => "SHUTDOWN, AOF",
            Way::KillWithAof => "kill -9, AOF",
        }
    }

    fn setting(self, setting: Setting) -> Setting {
        match self {
            Way::ShutdownWithRdb => setting.with("save", "3600 1"),
            Way::ShutdownWithAof | Way::KillWithAof => setting.with("appendonly", "yes"),
        }
    }

    fn stop(self, replica: &mut Server) -> Fallible {
        if let Way::KillWithAof = self {
            return replica.kill();
        }
        let begun = Instant::now();
        while replica.ended().is_none() {
            // The reply is the end of the connection, or why it cannot end yet.
            let _ = replica.client().and_then(|mut client| client.call(&["SHUTDOWN"]));
            check(begun, "the replica does not end")?;
            if replica.ended().is_none() {
                thread::sleep(BETWEEN_SHUTDOWNS);
            }
        }
        Ok(())
    }
}

struct Outcome {
    syncs: Syncs,
    /// Median of the times from the start of the process until its link is up.
    back_ms: f64,
    are_equal: bool,
}

pub fn measure(options: &Options, table: &mut Table) -> Fallible {
    let times = options.scaled(RESTARTS).max(5);
    for way in WAYS {
        let mut cells = Vec::new();
        for side in SIDES {
            let outcome = restart_again(side, way, times, options)?;
            let Outcome { syncs, back_ms, are_equal } = outcome;
            progress(&format!(
                "restart {} ({}): {} partial, {} full; start to link up {back_ms:.0} ms; data {}",
                side.name(),
                way.name(),
                syncs.partial,
                syncs.full,
                equal(are_equal)
            ));
            cells.push(format!(
                "{} partial, {} full; {back_ms:.0} ms; {}",
                syncs.partial,
                syncs.full,
                equal(are_equal)
            ));
        }
        let what = format!(
            "{times} restarts of a replica at {:.0} k INCRs/s ({}): syncs; start to link up, p50; data",
            counters::PER_SECOND / 1e3,
            way.name()
        );
        let [theirs, ours] = <[String; 2]>::try_from(cells).expect("one of each side");
        table.row([what, theirs, ours, "-".into(), "partial, equal".into()]);
    }
    Ok(())
}

fn restart_again(side: Side, way: Way, times: u64, options: &Options) -> Fallible<Outcome> {
    let setting = limits(options).with("enable-debug-command", "yes");
    let primary = Server::start(side, &setting, options)?;
    let mut follows = way.setting(setting);
    follows.words = vec!["--replicaof".into(), "127.0.0.1".into(), primary.port.to_string()];
    let mut replica = Server::start(side, &follows, options)?;
    wait_for_link(&replica)?;
    wait_for_files(&replica)?;
    let before = Syncs::of(&primary)?;
    let mut times_ms = counters::meanwhile(primary.port, || {
        let mut times_ms = Vec::new();
        for number in 1..=times {
            reach(&replica, &primary)?;
            way.stop(&mut replica)?;
            let (begun, full) = (Instant::now(), Syncs::of(&primary)?.full);
            replica.restart()?;
            wait_for_link(&replica)?;
            times_ms.push(begun.elapsed().as_secs_f64() * 1e3);
            if side == Side::Isotherm && Syncs::of(&primary)?.full > full {
                progress(&format!(
                    "restart {} ({}): number {number} is a full sync",
                    side.name(),
                    way.name()
                ));
            }
        }
        Ok(times_ms)
    })?;
    reach(&replica, &primary)?;
    times_ms.sort_by(f64::total_cmp);
    Ok(Outcome {
        syncs: Syncs::of(&primary)?.since(before),
        back_ms: times_ms[times_ms.len() / 2],
        are_equal: digest(&replica)? == digest(&primary)?,
    })
}

/// Until the file of commands has what the first sync has brought. A replica that is killed before has lost
/// it.
fn wait_for_files(replica: &Server) -> Fallible {
    let begun = Instant::now();
    while count(replica, "aof_rewrite_in_progress")? + count(replica, "aof_rewrite_scheduled")? > 0 {
        check(begun, "the append-only file is not written")?;
    }
    Ok(())
}

fn wait_for_link(replica: &Server) -> Fallible {
    let begun = Instant::now();
    let mut client = replica.client()?;
    while !link_is_up(&mut client)? {
        check(begun, "the link is not up")?;
    }
    Ok(())
}
