//! The costs of durability: saving, loading, logging, and waiting for the disk. A row of the table is one
//! question.
//!
//! Both servers get equal settings and folders on the same disk, in turns; Isotherm has two workers. Valkey
//! has its default, `io-threads 1`: a second one spins for work, which costs it CPU in every row and, where
//! two cores are shared with the load, throughput as well. Where a figure depends on what an fsync takes, it
//! is measured on the machine's disk and on a modelled one (`disk`), on which appending is dearer than
//! overwriting, as it is on a journaling file system.

use crate::Fallible;
use crate::options::Options;
use crate::process::{Setting, Side};
use crate::report::Table;

mod always;
mod cost;
mod disk;
mod folder;
mod large;
mod noise;
mod save;
pub mod save_load;
mod start;

pub use disk::Disk;

pub const ROWS: [&str; 10] = [
    "save-idle",
    "save-cut",
    "save-load",
    "start",
    "log-cpu",
    "always-set",
    "always-get",
    "always-modelled",
    "everysec-noise",
    "large",
];

/// The data of most rows: keys and values of 16 B.
pub const KEYS: u64 = 6_320_000;

pub fn measure(options: &Options) -> Fallible<Vec<Table>> {
    let head = ["what", "Valkey", "Isotherm", "Isotherm / Valkey", "aim"];
    let mut table = Table::new("durability", format!("Durability{}", options.scale_note()), &head);
    table.note(format!(
        "Isotherm with two workers, Valkey with io-threads {}; keys and values of 16 B unless it says otherwise; {} rounds A B, \
         best of each server, the ratio is the median of the rounds' ratios. The modelled disk takes 4 ms for an fsync after a change of size and \
         1.1 ms for any other (LD_PRELOAD, both servers).",
        options.valkey_threads, options.rounds
    ));
    type Measure = fn(&Options, &mut Table) -> Fallible;
    let rows: [(&str, Measure); 10] = [
        ("save-idle", save::idle),
        ("save-cut", save::cut),
        ("save-load", save_load::measure),
        ("start", start::measure),
        ("log-cpu", cost::measure),
        ("always-set", always::set),
        ("always-get", always::get),
        ("always-modelled", always::modelled),
        ("everysec-noise", noise::measure),
        ("large", large::measure),
    ];
    for (row, measure) in rows.into_iter().filter(|(row, _)| options.wants(row)) {
        measure(options, &mut table).map_err(|why| format!("{row}: {why}"))?;
    }
    Ok(vec![table])
}

fn two_workers(options: &Options) -> Setting {
    Setting { workers: 2, valkey_workers: Some(options.valkey_threads), ..Setting::default() }
}

/// A log that no rewrite gets in the way of.
fn logged(options: &Options, policy: &str) -> Setting {
    two_workers(options)
        .with("appendonly", "yes")
        .with("appendfsync", policy)
        .with("auto-aof-rewrite-percentage", 0)
}

/// Figures of both servers, one from each round.
#[derive(Default)]
pub struct Figures {
    valkey: Vec<f64>,
    isotherm: Vec<f64>,
}

/// Rule that chooses the best of several figures.
#[derive(Clone, Copy)]
pub enum Best {
    Least,
    Most,
    /// Middle figure, where neither the least nor the most is better.
    Median,
}

impl Figures {
    pub fn add(&mut self, side: Side, figure: f64) {
        match side {
            Side::Valkey => self.valkey.push(figure),
            Side::Isotherm => self.isotherm.push(figure),
        }
    }

    /// The best of each, and the median of the ratios.
    pub fn row(&self, table: &mut Table, what: &str, best: Best, show: impl Fn(f64) -> String, aim: &str) {
        let pick = |figures: &[f64]| {
            let best = match best {
                Best::Least => figures.iter().copied().min_by(f64::total_cmp),
                Best::Most => figures.iter().copied().max_by(f64::total_cmp),
                Best::Median => median(figures.to_vec()),
            };
            best.map_or("-".to_string(), &show)
        };
        let ratios = self.isotherm.iter().zip(&self.valkey).map(|(ours, theirs)| ours / theirs);
        let ratio = median(ratios.collect());
        let ratio = ratio.map_or("-".to_string(), |ratio| format!("{ratio:.2}"));
        table.row([what.to_string(), pick(&self.valkey), pick(&self.isotherm), ratio, aim.to_string()]);
    }
}

pub fn median(mut figures: Vec<f64>) -> Option<f64> {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied()
}

pub fn seconds(figure: f64) -> String {
    format!("{figure:.3} s")
}

fn milliseconds(figure: f64) -> String {
    format!("{figure:.2} ms")
}

pub fn thousands(figure: f64) -> String {
    format!("{:.1} k/s", figure / 1e3)
}

pub fn ratio(figure: f64) -> String {
    format!("{figure:.2} x")
}
