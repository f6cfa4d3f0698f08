//! Many more threads than arenas: document 4's experiment, and its three ways of tuning.
//!
//! Threads take and free blocks of 16 B to 2 KB from sets of their own. They meet in the arenas: whoever finds an arena's
//! lock taken waits, and both that and the CPU that it costs are told.

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
/// Of these, the ones that are bound to arenas of their own in the last row.
const BUSY: u64 = 16;
const OPERATIONS: u64 = 32_000_000;
/// Blocks that a thread holds: more than its cache has room for.
const LIVE: usize = 4000;
const BLOCK_BYTES_MAX: u64 = 2048;
const ROUNDS: usize = 3;

struct Setting {
    name: &'static str,
    malloc_conf: &'static str,
    bound: u64,
}

const SETTINGS: [Setting; 5] = [
    Setting { name: "2 arenas", malloc_conf: "narenas:2", bound: 0 },
    Setting { name: "8 arenas", malloc_conf: "narenas:8", bound: 0 },
    Setting {
        name: "2 arenas, dirty pages kept 60 s",
        malloc_conf: "narenas:2,dirty_decay_ms:60000",
        bound: 0,
    },
    Setting {
        name: "2 arenas, caches 8 times as large",
        malloc_conf: "narenas:2,tcache_nslots_small_max:1600,lg_tcache_nslots_mul:4",
        bound: 0,
    },
    Setting {
        name: "2 arenas, busy threads with their own, muzzy pages kept 1 s",
        malloc_conf: "narenas:2,muzzy_decay_ms:1000",
        bound: BUSY,
    },
];

pub const SUBJECT: Subject = Subject { name: "arenas", tables: &["arenas"], need_bytes, make: table };

/// What the threads hold, and half as much in their caches and in arenas that have not given back yet.
fn need_bytes(_: &Options) -> u64 {
    THREADS * LIVE as u64 * BLOCK_BYTES_MAX * 3 / 2
}

fn table(options: &Options) -> Fallible<Vec<Table>> {
    if !options.allocators.contains(&"jemalloc") {
        return Err("this table is about jemalloc's arenas".to_string());
    }
    let variants = Variants::of_cases(options)?;
    let title = format!("{THREADS} threads on few arenas, jemalloc{}", options.scale.note());
    let head = ["setting", "CPU ns an operation", "over the first", "waits for locks", "RSS MB"];
    let mut table = Table::new("arenas", title, &head);
    let operations = options.scale.of(OPERATIONS);
    table.notes = vec![
        format!("`{}`. {operations} operations in all, a malloc or a free each; {BUSY} of the threads make half of them. Medians of {ROUNDS} rounds.", options.command()),
        "Document 4: 1,776 threads, 256 to 1024 arenas: CPU -4.5 %, memory +10 %; arenas and caches of their own for the 80 \
         busiest threads, shorter muzzy decay for the rest: CPU -4 %, memory the same."
            .into(),
        "A thread's own arena brings no cache of its own here: each thread has one anyway.".into(),
    ];
    let mut told: Vec<Vec<Figures>> = SETTINGS.iter().map(|_| Vec::new()).collect();
    let mut course = Course::new("arenas", ROUNDS * SETTINGS.len());
    for round in 0..ROUNDS {
        for (at, setting) in SETTINGS.iter().enumerate() {
            course.step(setting.name)?;
            let case = ["arenas".to_string(), operations.to_string(), setting.bound.to_string()];
            told[at].push(variants.run_round("jemalloc", &case, setting.malloc_conf, round)?);
        }
    }
    course.end();
    let first = median(&told[0], "cpu_ns")?;
    for (setting, figures) in SETTINGS.iter().zip(&told) {
        let cpu = median(figures, "cpu_ns")?;
        table.row(vec![
            Cell::text(setting.name),
            Cell::Number(cpu, 1),
            Cell::Number(cpu / first, 3),
            Cell::Number(median(figures, "waits")?, 0),
            Cell::Number(median(figures, "rss_mb")?, 1),
        ]);
    }
    Ok(vec![table])
}

fn median(told: &[Figures], name: &str) -> Fallible<f64> {
    let mut values = told.iter().map(|figures| figures.get(name)).collect::<Fallible<Vec<f64>>>()?;
    values.sort_by(f64::total_cmp);
    Ok(values[values.len() / 2])
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
            // Half of all operations are made by the busy threads.
            let busy = thread < BUSY;
            let share = operations / 2 / if busy { BUSY } else { THREADS - BUSY };
            let (full, over) = (&full, &over);
            scope.spawn(move || {
                if thread < bound {
                    isotherm_allocator::own_arena().expect("an arena of its own");
                }
                churn(thread, share);
                full.wait();
                over.wait();
            });
        }
        let before = meter::process_cpu_ns();
        full.wait();
        // Everything that the threads hold is held still.
        let held = meter::held();
        figures.add("cpu_ns", (meter::process_cpu_ns() - before) as f64 / operations as f64);
        figures.add("rss_mb", held.rss_bytes as f64 / f64::from(1 << 20));
        figures.add("waits", isotherm_allocator::lock_waits().unwrap_or_default() as f64);
        over.wait();
    });
    Ok(figures)
}

fn churn(seed: u64, operations: u64) {
    let mut prng = Prng::new(seed);
    let mut blocks: Vec<Vec<u8>> = vec![Vec::new(); LIVE];
    for _ in 0..operations / 2 {
        let place = prng.below(LIVE as u64) as usize;
        let size = 16 + prng.below(BLOCK_BYTES_MAX - 16) as usize;
        let mut block = Vec::with_capacity(size);
        block.push(1);
        blocks[place] = block;
    }
    std::hint::black_box(&blocks);
}
