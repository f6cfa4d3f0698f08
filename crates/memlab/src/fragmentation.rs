//! Document 2's table on the real server: the same writes under each allocator, small values and values of 1
//! KB; then churn, where memory that was freed is to be used again by what does not fit into it.
//!
//! The document gives no counts; those here make Redis 2.4.4 under libc use what it published (869 MB, 772
//! MB).

use std::time::{Duration, Instant};

use isotherm_probe::{Ahead, Fallible, Server};
use isotherm_stdx::Prng;

use crate::Subject;
use crate::course::{self, Course};
use crate::figures::Figures;
use crate::options::Options;
use crate::output::{Cell, Chart, Table};
use crate::servers::{Contender, KEY_BYTES, VALUE_BYTES_MAX, Weight, ahead, key, set_all};
use crate::variants::Variants;

struct Load {
    name: &'static str,
    writes: u64,
    keys: u64,
    value_bytes: usize,
    /// RSS over used_memory in the document, for tcmalloc, jemalloc, libc.
    published: [(&'static str, f64); 3],
}

const LOADS: [Load; 2] = [
    Load {
        name: "small values (3 B)",
        writes: 11_000_000,
        keys: 10_000_000,
        value_bytes: 3,
        published: [("tcmalloc", 1.01), ("jemalloc", 1.02), ("system", 1.31)],
    },
    Load {
        name: "values of 1 KB",
        writes: 1_100_000,
        keys: 1_000_000,
        value_bytes: 1024,
        published: [("tcmalloc", 1.02), ("jemalloc", 1.01), ("system", 1.04)],
    },
];

const CHURN_KEYS: u64 = 2_000_000;
const SMALL: (u64, u64) = (16, 1024);
const LARGE: (u64, u64) = (1100, 2048);
const _: () = assert!(LARGE.1 as usize <= VALUE_BYTES_MAX);
/// The first issue's goal: RSS over payload, and how long it may take.
const GOAL: f64 = 1.10;
const PATIENCE: Duration = Duration::from_secs(30);
/// Between two looks at the RSS.
const GLANCE: Duration = Duration::from_secs(1);

pub const SUBJECT: Subject =
    Subject { name: "fragmentation", tables: &["fragmentation", "churn"], need_bytes, make: tables };

/// The larger of the two: document 2's small keys at 130 B as libc has them; churn refilled, with 1 M values
/// of 0.5 KB and 1 M of 1.6 KB, and some more while both are there.
fn need_bytes(options: &Options) -> u64 {
    let fill = LOADS.iter().map(|load| options.scale.of(load.keys) * (load.value_bytes as u64 + 130)).max();
    fill.unwrap_or_default().max(options.scale.of(CHURN_KEYS) * 1400)
}

fn tables(options: &Options) -> Fallible<Vec<Table>> {
    let variants = Variants::of_server(options)?;
    let contenders = Contender::ours(&variants)?;
    let mut tables = Vec::new();
    if options.wants("fragmentation") {
        tables.push(fill_table(&variants, &contenders, options)?);
    }
    if options.wants("churn") {
        tables.push(churn_table(&variants, &contenders, options)?);
    }
    tables[0].notes.extend(variants.notes());
    Ok(tables)
}

fn fill_table(variants: &Variants, contenders: &[Contender], options: &Options) -> Fallible<Table> {
    let title = format!("Document 2's writes on Isotherm, by allocator{}", options.scale.note());
    let head = [
        "values",
        "allocator",
        "keys",
        "used MB",
        "RSS MB",
        "peak MB",
        "RSS over used",
        "published, Redis 2.4.4",
    ];
    let mut table = Table::new("fragmentation", title, &head);
    table.notes = vec![
        format!("`{}`. Random keys of 16 B, written over and over as by a benchmark with a seed.", options.command()),
        "Published MB: small values tcmalloc 708 used / 715 RSS, jemalloc 708 / 724, libc 869 / 1137; 1 KB values tcmalloc \
         831 / 849, jemalloc 916 / 927, libc 772 / 801. There the allocator has every key and value; here the arenas have \
         what is below 4 KB, whatever the allocator."
            .into(),
    ];
    let mut course = Course::new("fragmentation", LOADS.len() * contenders.len());
    for load in &LOADS {
        for contender in contenders {
            course.step(&format!("{}, {}", load.name, contender.allocator))?;
            let (writes, keys) = (options.scale.of(load.writes), options.scale.of(load.keys));
            let words = format!("fragmentation {} {writes} {keys} {}", contender.allocator, load.name);
            let reported =
                variants.kept.figures(&contender.program, &words, || fill(contender, load, writes, keys))?;
            let (used, rss) = (reported.get("used")?, reported.get("rss")?);
            let mb = |bytes: f64| Cell::Number(bytes / 1e6, 1);
            let published = load.published.iter().find(|(name, _)| *name == contender.allocator);
            table.row(vec![
                Cell::text(load.name),
                Cell::text(contender.allocator),
                Cell::Number(reported.get("keys")?, 0),
                mb(used),
                mb(rss),
                mb(reported.get("peak")?),
                Cell::Number(rss / used, 2),
                published.map_or(Cell::Empty, |(_, ratio)| Cell::Number(*ratio, 2)),
            ]);
        }
    }
    course.end();
    Ok(table)
}

fn fill(contender: &Contender, load: &Load, writes: u64, keys: u64) -> Fallible<Figures> {
    let server = contender.start()?;
    let mut prng = Prng::new(42);
    set_all(&mut ahead(&server)?, (0..writes).map(|_| prng.below(keys)), |_| load.value_bytes)?;
    let weight = Weight::at_rest(&server)?;
    let mut client = server.client()?;
    let peak = client.info("used_memory_peak")?;
    let mut figures = Figures::default();
    figures.add("keys", client.dbsize()? as f64);
    figures.add("used", weight.used_bytes as f64);
    figures.add("rss", weight.rss_bytes as f64);
    figures.add("peak", peak.parse().map_err(|_| format!("used_memory_peak:{peak} is no number"))?);
    Ok(figures)
}

fn churn_table(variants: &Variants, contenders: &[Contender], options: &Options) -> Fallible<Table> {
    let keys = options.scale.of(CHURN_KEYS);
    let title = format!("Churn on Isotherm, by allocator: RSS over payload{}", options.scale.note());
    let head = [
        "allocator",
        "filled",
        "half deleted",
        "refilled",
        "30 s later",
        "s until at most 1.10",
        "CPU s of those 30",
    ];
    let mut table = Table::new("churn", title, &head);
    table.chart = Some(Chart::Bars("RSS over payload, and seconds"));
    table.notes = vec![format!(
        "`{}`. {keys} keys with values of {} to {} B; a random half deleted; refilled with values of {} to {} B. Payload: \
         the bytes of keys and values. CPU: all threads of the server, idle but for what it does of itself.",
        options.command(),
        SMALL.0,
        SMALL.1,
        LARGE.0,
        LARGE.1
    )];
    let mut course = Course::new("churn", contenders.len());
    for contender in contenders {
        course.step(contender.allocator)?;
        let words = format!("churn {} {keys}", contender.allocator);
        let reported = variants.kept.figures(&contender.program, &words, || churn(contender, keys))?;
        let mut row = vec![Cell::text(contender.allocator)];
        for name in ["filled", "half", "refilled", "later"] {
            row.push(Cell::Number(reported.get(name)?, 2));
        }
        row.push(reported.get("seconds").map_or(Cell::Empty, |seconds| Cell::Number(seconds, 0)));
        row.push(Cell::Number(reported.get("cpu_s")?, 2));
        table.row(row);
    }
    course.end();
    Ok(table)
}

fn churn(contender: &Contender, keys: u64) -> Fallible<Figures> {
    let server = contender.start()?;
    let mut ahead = ahead(&server)?;
    let over = |payload: u64| -> Fallible<f64> { Ok(server.resident_bytes()? as f64 / payload as f64) };
    let mut figures = Figures::default();
    let mut payload = set_all(&mut ahead, 0..keys, |number| size_of_value(number, SMALL))?;
    figures.add("filled", over(payload)?);
    let (gone, gone_bytes) = delete_half(&mut ahead, keys)?;
    payload -= gone_bytes;
    figures.add("half", over(payload)?);
    payload += set_all(&mut ahead, keys..keys + gone, |number| size_of_value(number, LARGE))?;
    figures.add("refilled", over(payload)?);
    watch(&server, payload, &mut figures)?;
    Ok(figures)
}

/// Deletes a random half; how many went, and their bytes.
fn delete_half(ahead: &mut Ahead, keys: u64) -> Fallible<(u64, u64)> {
    let (mut gone, mut bytes) = (0, 0);
    for number in (0..keys).filter(|number| Prng::new(*number).one_in(2)) {
        gone += 1;
        bytes += (KEY_BYTES + size_of_value(number, SMALL)) as u64;
        ahead.send(&[b"DEL", &key(number)])?;
    }
    ahead.finish()?;
    Ok((gone, bytes))
}

/// Leaves the server alone, and sees when the goal is met, where it is.
fn watch(server: &Server, payload: u64, figures: &mut Figures) -> Fallible {
    let (start, cpu_ns) = (Instant::now(), server.cpu_ns()?);
    let mut met = None;
    loop {
        let over = server.resident_bytes()? as f64 / payload as f64;
        if over <= GOAL && met.is_none() {
            met = Some(start.elapsed().as_secs_f64());
        }
        if start.elapsed() >= PATIENCE {
            figures.add("later", over);
            figures.add("cpu_s", (server.cpu_ns()? - cpu_ns) as f64 / 1e9);
            met.into_iter().for_each(|seconds| figures.add("seconds", seconds));
            return Ok(());
        }
        course::check()?;
        std::thread::sleep(GLANCE);
    }
}

/// Returns the size of a key's value, equal in each call with the same key.
fn size_of_value(number: u64, (least, most): (u64, u64)) -> usize {
    (least + Prng::new(number ^ 0x5eed).below(most - least + 1)) as usize
}
