//! `appendfsync always`: how many writes a disk lets through, and whether reads wait for it.
//!
//! C clients that each wait for their answer write at most C times in the time L of a sync, so C / L is what
//! group commit can reach: the share of it says how well commits are filled.

use std::thread;
use std::time::Duration;

use super::disk::Disk;
use super::folder::Folder;
use super::{Best, Figures, logged, thousands};
use crate::load::{Load, Until};
use crate::options::Options;
use crate::process::{SIDES, Server};
use crate::report::Table;
use crate::shape::{Order, Shape, Values, Verb};
use crate::{Fallible, progress};

const CLIENTS: usize = 50;
const READERS: usize = 45;
const KEYS: u64 = 100_000;
const VALUE_BYTES: usize = 100;
/// Until commits are frequent enough for the server to prepare files.
const WARM: Duration = Duration::from_secs(2);
const MEASURED: Duration = Duration::from_secs(8);

pub fn set(options: &Options, table: &mut Table) -> Fallible {
    writes(options, table, &Disk::Machine, ">= 1.2 where an fsync takes 0.2 ms")
}

pub fn get(options: &Options, table: &mut Table) -> Fallible {
    reads(options, table, &Disk::Machine, "-")
}

pub fn modelled(options: &Options, table: &mut Table) -> Fallible {
    let disk = Disk::modelled(options)?;
    writes(options, table, &disk, ">= 2.5")?;
    reads(options, table, &disk, ">= 4")
}

fn sets(keys: u64) -> Shape {
    Shape::new(Verb::Set, keys).order(Order::Uniform).values(Values::Fixed(VALUE_BYTES))
}

fn writes(options: &Options, table: &mut Table, disk: &Disk, aim: &str) -> Fallible {
    let (mut per_second, mut shares) = (Figures::default(), Figures::default());
    let mut syncs_ms = Vec::new();
    for round in 1..=options.rounds {
        for side in SIDES {
            let folder = Folder::new(options, "always")?;
            let setting = disk.under(logged(options, "always").with("dir", folder.text()));
            let server = Server::start(side, &setting, options)?;
            let load = Load { port: server.port, connections: CLIENTS, pipeline: 1 };
            load.run(&mut sets(KEYS), Until::Passed(WARM))?;
            let before_ms = disk.overwrite_ms(options)?;
            let ran = load.run(&mut sets(KEYS), Until::Passed(MEASURED))?;
            // Around it, since what a sync takes changes from minute to minute.
            let sync_ms = (before_ms + disk.overwrite_ms(options)?) / 2.0;
            let share = ran.per_second() * sync_ms / 1e3 / CLIENTS as f64;
            progress(&format!(
                "always round {round} {}, {}: {:.0} SET/s, L {sync_ms:.2} ms, share {share:.2}",
                side.name(),
                disk.name(),
                ran.per_second()
            ));
            per_second.add(side, ran.per_second());
            shares.add(side, share);
            syncs_ms.push(sync_ms);
        }
    }
    let name = disk.name();
    let what = format!("always, {name}, {CLIENTS} clients SET {VALUE_BYTES} B");
    per_second.row(table, &what, Best::Most, thousands, aim);
    let sync_ms = super::median(syncs_ms).unwrap_or_default();
    let what = format!("share of {CLIENTS} / L, L {sync_ms:.2} ms");
    shares.row(table, &what, Best::Most, |share| format!("{share:.2}"), ">= 0.7");
    Ok(())
}

fn reads(options: &Options, table: &mut Table, disk: &Disk, aim: &str) -> Fallible {
    let mut per_second = Figures::default();
    for round in 1..=options.rounds {
        for side in SIDES {
            let folder = Folder::new(options, "always-get")?;
            let setting = disk.under(logged(options, "always").with("dir", folder.text()));
            let server = Server::start(side, &setting, options)?;
            let all = Load { port: server.port, connections: CLIENTS, pipeline: 64 };
            all.run(&mut sets(KEYS).order(Order::Ascending), Until::Commands(KEYS))?;
            let readers = Load { port: server.port, connections: READERS, pipeline: 1 };
            let writers = Load { port: server.port, connections: CLIENTS - READERS, pipeline: 1 };
            let ran = thread::scope(|scope| {
                let wrote = scope.spawn(|| writers.run(&mut sets(KEYS), Until::Passed(MEASURED)));
                let mut gets = Shape::new(Verb::Get, KEYS).order(Order::Uniform);
                let read = readers.run(&mut gets, Until::Passed(MEASURED));
                wrote.join().expect("the writers do not panic")?;
                read
            })?;
            progress(&format!(
                "always-get round {round} {}, {}: {:.0} GET/s",
                side.name(),
                disk.name(),
                ran.per_second()
            ));
            per_second.add(side, ran.per_second());
        }
    }
    let what =
        format!("always, {}, {READERS} clients GET beside {} SET: GETs", disk.name(), CLIENTS - READERS);
    per_second.row(table, &what, Best::Most, thousands, aim);
    Ok(())
}
