//! Document 2's table on the real server: the same writes under each allocator, small values and values of 1 KB; then
//! churn, where memory that was freed is to be used again by what does not fit into it.
//!
//! The document gives no counts; those here make Redis 2.4.4 under libc use what it published (869 MB, 772 MB).

use std::time::Duration;

use isotherm_stdx::Prng;

use crate::Fallible;
use crate::options::Options;
use crate::output::{Cell, Table};
use crate::probe;
use crate::server::{Link, Server};
use crate::variants::{Variants, build_server, progress};

struct Load {
    name: &'static str,
    writes: u64,
    keys: u64,
    value_bytes: usize,
    /// What the document has for tcmalloc, jemalloc, libc: RSS over used_memory.
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
const KEY_BYTES: usize = 16;
const SMALL: (u64, u64) = (16, 1024);
const LARGE: (u64, u64) = (1100, 2048);
const SETTLE: Duration = Duration::from_secs(30);

pub fn tables(options: &Options) -> Fallible<Vec<Table>> {
    // Refilled churn: 1 M values of 0.5 KB and 1 M of 1.6 KB.
    probe::check_memory(options.scaled(CHURN_KEYS) * 1400)?;
    let variants = Variants::build_by(options, build_server)?;
    let mut tables = vec![fill_table(&variants, options)?, churn_table(&variants, options)?];
    tables[0].notes.extend(variants.notes());
    Ok(tables)
}

fn fill_table(variants: &Variants, options: &Options) -> Fallible<Table> {
    let title = format!("Document 2's writes on Isotherm, by allocator{}", options.scale_note());
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
    for load in &LOADS {
        for (at, allocator) in variants.names().into_iter().enumerate() {
            progress(load.name, at, variants.names().len(), allocator);
            table.row(fill_row(variants, allocator, load, options)?);
        }
    }
    progress("fragmentation", 1, 1, "");
    Ok(table)
}

fn fill_row(variants: &Variants, allocator: &str, load: &Load, options: &Options) -> Fallible<Vec<Cell>> {
    let server = Server::start(variants.binary(allocator)?, &[])?;
    let mut link = server.connect()?;
    let (mut prng, value) = (Prng::new(42), vec![b'x'; load.value_bytes]);
    for _ in 0..options.scaled(load.writes) {
        link.send(&[b"SET", named(prng.below(options.scaled(load.keys))).as_bytes(), &value])?;
    }
    link.finish()?;
    let mb = |bytes: f64| Cell::Number(bytes / 1e6, 1);
    let (used, rss) = (server.memory("used_memory")?, server.rss_bytes()? as f64);
    let published = load.published.iter().find(|(name, _)| *name == allocator);
    Ok(vec![
        Cell::text(load.name),
        Cell::text(allocator),
        Cell::Number(server.keys()? as f64, 0),
        mb(used),
        mb(rss),
        mb(server.memory("used_memory_peak")?),
        Cell::Number(rss / used, 2),
        published.map_or(Cell::Empty, |(_, ratio)| Cell::Number(*ratio, 2)),
    ])
}

fn churn_table(variants: &Variants, options: &Options) -> Fallible<Table> {
    let keys = options.scaled(CHURN_KEYS);
    let title = format!("Churn on Isotherm, by allocator: RSS over payload{}", options.scale_note());
    let head = ["allocator", "filled", "half deleted", "refilled", "30 s later", "CPU of those 30 s, s"];
    let mut table = Table::new("churn", title, &head);
    table.unit = Some("RSS over payload");
    table.notes = vec![format!(
        "`{}`. {keys} keys with values of {} to {} B; a random half deleted; refilled with values of {} to {} B.",
        options.command(),
        SMALL.0,
        SMALL.1,
        LARGE.0,
        LARGE.1
    )];
    for (at, allocator) in variants.names().into_iter().enumerate() {
        progress("churn", at, variants.names().len(), allocator);
        table.row(churn_row(variants, allocator, keys)?);
    }
    progress("churn", 1, 1, "");
    Ok(table)
}

fn churn_row(variants: &Variants, allocator: &str, keys: u64) -> Fallible<Vec<Cell>> {
    let server = Server::start(variants.binary(allocator)?, &[])?;
    let mut link = server.connect()?;
    let goes = |number: &u64| Prng::new(*number).one_in(2);
    let mut payload = set_all(&mut link, 0..keys, SMALL)?;
    let over = |payload: u64| -> Fallible<f64> { Ok(server.rss_bytes()? as f64 / payload as f64) };
    let filled = over(payload)?;
    let mut gone = 0;
    for number in (0..keys).filter(goes) {
        gone += 1;
        payload -= (KEY_BYTES + size_of_value(number, SMALL)) as u64;
        link.send(&[b"DEL", named(number).as_bytes()])?;
    }
    link.finish()?;
    let half = over(payload)?;
    payload += set_all(&mut link, keys..keys + gone, LARGE)?;
    let (refilled, cpu) = (over(payload)?, server.cpu_ns());
    std::thread::sleep(SETTLE);
    let (later, cpu) = (over(payload)?, (server.cpu_ns() - cpu) as f64 / 1e9);
    let figures = [filled, half, refilled, later, cpu].map(|figure| Cell::Number(figure, 2));
    Ok([Cell::text(allocator)].into_iter().chain(figures).collect())
}

/// Sets these keys, and returns the bytes of keys and values.
fn set_all(link: &mut Link, numbers: std::ops::Range<u64>, sizes: (u64, u64)) -> Fallible<u64> {
    let mut payload = 0;
    for number in numbers {
        let value = vec![b'v'; size_of_value(number, sizes)];
        payload += (KEY_BYTES + value.len()) as u64;
        link.send(&[b"SET", named(number).as_bytes(), &value])?;
    }
    link.finish()?;
    Ok(payload)
}

fn named(number: u64) -> String {
    format!("key:{number:012}")
}

/// The same for a key whenever it is asked.
fn size_of_value(number: u64, (least, most): (u64, u64)) -> usize {
    (least + Prng::new(number ^ 0x5eed).below(most - least + 1)) as usize
}
