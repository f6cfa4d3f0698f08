//! BGSAVE: how long until the file is there while nothing else happens, and how long it stops everything.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use isotherm_probe::Client;

use super::folder::Folder;
use super::{Best, Figures, KEYS, median, milliseconds, seconds, two_workers};
use crate::load::fill;
use crate::open_loop::OpenLoop;
use crate::options::Options;
use crate::process::{SIDES, Server};
use crate::report::Table;
use crate::shape::{Order, Shape, Verb};
use crate::{Fallible, progress};

const PATIENCE: Duration = Duration::from_secs(120);

/// Measures the time from the command until the file has its name, which is the moment after its last fsync.
pub fn idle(options: &Options, table: &mut Table) -> Fallible {
    let keys = options.scaled(KEYS);
    let (mut times, mut sizes) = (Figures::default(), Figures::default());
    for round in 1..=options.rounds {
        for side in SIDES {
            let folder = Folder::new(options, "save")?;
            let server = Server::start(side, &two_workers(options).with("dir", folder.text()), options)?;
            fill(&server, &mut Shape::new(Verb::Set, keys), keys, "keys")?;
            let file = folder.path().join("dump.rdb");
            let start = Instant::now();
            server.client()?.call(&["BGSAVE"])?;
            while !file.exists() {
                if start.elapsed() > PATIENCE {
                    return Err(format!("{} has no file after {PATIENCE:?}", side.name()));
                }
                thread::sleep(Duration::from_millis(1));
            }
            let took = start.elapsed().as_secs_f64();
            let bytes = size_of_file(&file)?;
            progress(&format!("save-idle round {round} {}: {took:.3} s, {bytes} B", side.name()));
            times.add(side, took);
            sizes.add(side, bytes as f64);
        }
    }
    let what = format!("BGSAVE of {keys} keys, idle, to its last fsync");
    times.row(table, &what, Best::Least, seconds, "<= 0.5");
    sizes.row(table, "its file", Best::Least, |bytes| format!("{:.1} MB", bytes / 1e6), "<= 1.0");
    Ok(())
}

fn size_of_file(file: &Path) -> Fallible<u64> {
    fs::metadata(file).map(|about| about.len()).map_err(|why| format!("{}: {why}", file.display()))
}

const SAVES: u64 = 100;
/// Under which the cuts are made.
const SETS_PER_SECOND: f64 = 20_000.0;

/// Measures the cuts of saves as each server reports them: `latest_fork_usec`.
pub fn cut(options: &Options, table: &mut Table) -> Fallible {
    let (keys, saves) = (options.scaled(KEYS), options.scaled(SAVES).max(20));
    let (mut middle, mut late) = (Figures::default(), Figures::default());
    for side in SIDES {
        let folder = Folder::new(options, "cut")?;
        let server = Server::start(side, &two_workers(options).with("dir", folder.text()), options)?;
        fill(&server, &mut Shape::new(Verb::Set, keys), keys, "keys")?;
        let is_over = AtomicBool::new(false);
        let cuts = thread::scope(|scope| {
            let load = OpenLoop { port: server.port, connections: 50, per_second: SETS_PER_SECOND };
            let mut sets = Shape::new(Verb::Set, keys).order(Order::Uniform);
            let loaded = scope.spawn({
                let is_over = &is_over;
                move || load.run(&mut sets, || is_over.load(Ordering::Relaxed))
            });
            let cuts =
                (0..saves).map(|_| cut_of_a_save(&mut server.client()?)).collect::<Fallible<Vec<f64>>>();
            is_over.store(true, Ordering::Relaxed);
            loaded.join().expect("the load does not panic")?;
            cuts
        })?;
        let p95 = quantile(cuts.clone(), 0.95);
        let p50 = median(cuts).expect("there were saves");
        progress(&format!("save-cut {}: p50 {p50:.3} ms, p95 {p95:.3} ms", side.name()));
        middle.add(side, p50);
        late.add(side, p95);
    }
    let show = |ms: f64| format!("{ms:.3} ms");
    let what = format!("the cut of {saves} saves under {SETS_PER_SECOND} SET/s (latest_fork_usec): p50");
    middle.row(table, &what, Best::Least, show, "<= 0.1 ms");
    late.row(table, "p95", Best::Least, milliseconds, "<= 1 ms");
    Ok(())
}

/// Saves, waits for the end, and returns the cut in milliseconds.
fn cut_of_a_save(client: &mut Client) -> Fallible<f64> {
    client.call(&["BGSAVE"])?;
    wait_for_save(client)?;
    let text = client.info("latest_fork_usec")?;
    text.parse::<f64>().map(|us| us / 1e3).map_err(|_| format!("latest_fork_usec:{text}"))
}

pub fn wait_for_save(client: &mut Client) -> Fallible {
    let start = Instant::now();
    while client.info("rdb_bgsave_in_progress")? != "0" {
        if start.elapsed() > PATIENCE {
            return Err(format!("a save has not ended after {PATIENCE:?}"));
        }
        thread::sleep(Duration::from_millis(2));
    }
    match client.info("rdb_last_bgsave_status")?.as_str() {
        "ok" => Ok(()),
        status => Err(format!("rdb_last_bgsave_status:{status}")),
    }
}

fn quantile(mut figures: Vec<f64>, part: f64) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[((figures.len() as f64 * part) as usize).min(figures.len() - 1)]
}
