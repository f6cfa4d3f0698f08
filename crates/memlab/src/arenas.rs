//! Many more threads than arenas: document 4's experiment, and its ways of tuning.
//!
//! ```text
//!   a thread    [burst] [burst] ... x 8      a burst: 1 to 400 blocks of one size, as a request takes for what it builds
//!                                            the oldest is freed, a new one taken: more blocks than a cache has room for
//! ```
//!
//! Threads meet in the arenas when caches are filled and flushed: a thread that finds a lock taken spins or
//! waits, and both that and the CPU that it costs are reported. The number of threads that *run* at a time in
//! one arena decides. The document's 256 arenas are the default of 64 CPUs: a thread that runs meets another
//! one of 63 in its arena with 63/256, one in four. Here two run, so four arenas make it one in four.

use std::collections::VecDeque;
use std::sync::Barrier;

use isotherm_probe::Fallible;
use isotherm_stdx::Prng;

use crate::Subject;
use crate::course::Course;
use crate::figures::Figures;
use crate::meter;
use crate::options::Options;
use crate::output::{Cell, Table};
use crate::variants::Variants;

const THREADS: u64 = 128;
/// Number of the threads that are bound to arenas of their own in the last row: in the document 80 of 1,776.
const BUSY: u64 = 6;
const OPERATIONS: u64 = 120_000_000;
const BURSTS: usize = 8;
const BURST_BLOCKS_MAX: u64 = 400;
/// 16, 32, 64, ... 1024 B.
const SIZES: u64 = 7;

struct Setting {
    name: &'static str,
    malloc_conf: &'static str,
    bound: u64,
    published: &'static str,
}

const fn setting(
    name: &'static str,
    malloc_conf: &'static str,
    bound: u64,
    published: &'static str,
) -> Setting {
    Setting { name, malloc_conf, bound, published }
}

/// A run lasts seconds where a service runs for days: what decays does so in half a second, and not in ten.
const SETTINGS: [Setting; 6] = [
    setting("4 arenas", "narenas:4,dirty_decay_ms:500,muzzy_decay_ms:500", 0, "-"),
    setting("the same again", "narenas:4,dirty_decay_ms:500,muzzy_decay_ms:500", 0, "-"),
    setting("16 arenas", "narenas:16,dirty_decay_ms:500,muzzy_decay_ms:500", 0, "CPU -4.5 %, memory +10 %"),
    setting("dirty pages kept 20 times as long", "narenas:4,dirty_decay_ms:10000,muzzy_decay_ms:500", 0, "-"),
    setting(
        "caches 8 times as large",
        "narenas:4,dirty_decay_ms:500,muzzy_decay_ms:500,tcache_nslots_small_max:1600,lg_tcache_nslots_mul:4",
        0,
        "-",
    ),
    setting(
        "busy threads with their own, muzzy pages kept a tenth as long",
        "narenas:4,dirty_decay_ms:500,muzzy_decay_ms:50",
        BUSY,
        "CPU -4 %, memory equal",
    ),
];

pub const SUBJECT: Subject = Subject { name: "arenas", tables: &["arenas"], need_bytes, make: table };

/// Returns the most that the threads hold, and as much again for their caches and for arenas that have not
/// given memory back yet.
fn need_bytes(_: &Options) -> u64 {
    THREADS * BURSTS as u64 * BURST_BLOCKS_MAX * (16 << (SIZES - 1)) * 2
}

fn table(options: &Options) -> Fallible<Vec<Table>> {
    if !options.allocators.contains(&"jemalloc") {
        return Err("this table is about jemalloc's arenas".to_string());
    }
    let variants = Variants::of_cases(options)?;
    let title = format!("{THREADS} threads on few arenas, jemalloc{}", options.scale.note());
    let head = [
        "setting",
        "published",
        "CPU ns an operation",
        "of the quickest quarter",
        "that over the first's",
        "waits for locks, a million operations",
        "RSS MB",
    ];
    let mut table = Table::new("arenas", title, &head);
    let operations = options.scale.of(OPERATIONS);
    table.notes = vec![
        format!(
            "`{}`. {operations} operations a round, a malloc or a free each; {BUSY} of the threads make half of them. {} \
             rounds of all settings, one after the other; medians, and what the quickest quarter of the rounds stayed below: \
             whatever else runs only adds. What the same setting differs by is noise.",
            options.command(),
            options.rounds
        ),
        "Document 4: 1,776 threads, 256 to 1024 arenas; then arenas and caches of their own for the 80 busiest, and shorter \
         muzzy decay for the rest. Its CPU is that of whole services, of which jemalloc takes 10 to 15 %; here it takes all."
            .into(),
    ];
    let mut reported: Vec<Vec<Figures>> = SETTINGS.iter().map(|_| Vec::new()).collect();
    let mut course = Course::new("arenas", options.rounds * SETTINGS.len());
    for round in 0..options.rounds {
        for (setting, reported) in SETTINGS.iter().zip(&mut reported) {
            course.step(setting.name)?;
            let case = ["arenas".to_string(), operations.to_string(), setting.bound.to_string()];
            // A setting that comes twice makes two cases.
            let run = round * 2 + usize::from(setting.name == "the same again");
            reported.push(variants.run_round("jemalloc", &case, setting.malloc_conf, run)?);
        }
    }
    course.end();
    for (setting, figures) in SETTINGS.iter().zip(&reported) {
        table.row(row(setting, figures, &reported[0])?);
    }
    Ok(vec![table])
}

fn row(setting: &Setting, figures: &[Figures], first: &[Figures]) -> Fallible<Vec<Cell>> {
    let all = |figures: &[Figures], name: &str| {
        figures.iter().map(|figures| figures.get(name)).collect::<Fallible<Vec<f64>>>()
    };
    let cpu = all(figures, "cpu_ns")?;
    Ok(vec![
        Cell::text(setting.name),
        Cell::text(setting.published),
        Cell::Number(quantile(&cpu, 2), 1),
        Cell::Number(quantile(&cpu, 1), 1),
        Cell::Number(quantile(&cpu, 1) / quantile(&all(first, "cpu_ns")?, 1), 3),
        Cell::Number(quantile(&all(figures, "waits")?, 2), 1),
        Cell::Number(quantile(&all(figures, "rss_mb")?, 2), 0),
    ])
}

/// The value that is above `quarters` quarters of the others.
fn quantile(values: &[f64], quarters: usize) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values[((values.len() - 1) * quarters + 2) / 4]
}

/// `arenas OPERATIONS BOUND`
pub fn work(args: &[String]) -> Fallible<Figures> {
    let read: Option<Vec<u64>> = args.iter().map(|arg| arg.parse().ok()).collect();
    let Some([operations, bound]) = read.as_deref() else {
        return Err("operations and bound threads, please".into());
    };
    let (operations, bound) = (*operations, *bound);
    let full = Barrier::new(THREADS as usize + 1);
    let over = Barrier::new(THREADS as usize + 1);
    let mut figures = Figures::default();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let busy = thread < BUSY;
            let share = operations / 2 / if busy { BUSY } else { THREADS - BUSY };
            let (full, over) = (&full, &over);
            scope.spawn(move || {
                if thread < bound {
                    isotherm_allocator::own_arena().expect("an arena of its own");
                }
                let bursts = churn(thread, share);
                full.wait();
                // Everything that the threads hold is held still.
                over.wait();
                drop(bursts);
            });
        }
        full.wait();
        figures.add("cpu_ns", meter::process_cpu_ns() as f64 / operations as f64);
        figures.add("rss_mb", meter::held().rss_bytes as f64 / f64::from(1 << 20));
        let waits = isotherm_allocator::lock_waits().unwrap_or_default() as f64;
        figures.add("waits", waits * 1e6 / operations as f64);
        over.wait();
    });
    Ok(figures)
}

/// Takes and frees until `operations` operations are made. Returns the blocks that it holds then.
fn churn(seed: u64, operations: u64) -> VecDeque<Vec<Vec<u8>>> {
    let mut prng = Prng::new(seed);
    let mut bursts = VecDeque::with_capacity(BURSTS);
    let mut taken = 0;
    while taken < operations / 2 {
        if bursts.len() == BURSTS {
            bursts.pop_front();
        }
        let (blocks, size) = (1 + prng.below(BURST_BLOCKS_MAX), 16 << prng.below(SIZES));
        bursts.push_back((0..blocks).map(|_| block(size)).collect());
        taken += blocks;
    }
    bursts
}

fn block(size: usize) -> Vec<u8> {
    let mut block = Vec::with_capacity(size);
    block.push(1);
    block
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quarters_of_values() {
        let values = [5.0, 1.0, 4.0, 2.0, 3.0];
        assert_eq!([1, 2, 3].map(|quarters| quantile(&values, quarters)), [2.0, 3.0, 4.0]);
        assert_eq!(quantile(&[7.0], 1), 7.0);
    }

    #[test]
    fn a_case_reports_what_the_table_asks_for() {
        let figures = work(&["20000".into(), "0".into()]).unwrap();
        for name in ["cpu_ns", "rss_mb", "waits"] {
            figures.get(name).unwrap();
        }
        assert!(work(&["20000".into()]).is_err());
    }
}
