//! Size to which an allocator rounds a request, and cost of a malloc and a free by size: documents 1 and 4.

use isotherm_probe::Fallible;
use isotherm_stdx::Prng;

use crate::Subject;
use crate::course::Course;
use crate::figures::Figures;
use crate::meter;
use crate::options::Options;
use crate::output::{Cell, Chart, Table};
use crate::variants::Variants;

/// Document 1 asked what 4 bytes cost.
const BLOCK_SIZES: [usize; 4] = [4, 8, 10, 16];
const BLOCKS: u64 = 10_000_000;
/// The sizes of its nodes, and those where document 4's curve has bumps.
const CLASS_SIZES: [usize; 12] = [4, 10, 24, 52, 64, 100, 129, 257, 513, 1025, 2049, 4096];
const TIMED_SIZES: [usize; 15] = [8, 16, 32, 64, 96, 128, 192, 256, 320, 512, 640, 1024, 1280, 2048, 4096];
const TIMED_BLOCKS: u64 = 200_000;
const TIMED_ROUNDS: u64 = 20;
/// 4 KB slabs hold 32, 16, 8 and 4 of these; here 16 pages do. In MALLOC_CONF: from-to:pages.
const TUNED: &str = "slab_sizes:128-128:16|256-256:16|512-512:16|1024-1024:16";

pub const SUBJECT: Subject = Subject {
    name: "size-classes",
    tables: &["size-classes-small", "size-classes", "size-classes-time"],
    need_bytes,
    make: tables,
};

/// A block, at most 32 B of it, and the 16 B that point to it; the timed blocks of 4 KB are fewer.
fn need_bytes(options: &Options) -> u64 {
    let timed = options.scale.of(TIMED_BLOCKS) * (4096 + 24);
    (options.scale.of(BLOCKS) * (32 + 16)).max(timed)
}

fn tables(options: &Options) -> Fallible<Vec<Table>> {
    let variants = Variants::of_cases(options)?;
    let mut tables = Vec::new();
    if options.wants("size-classes-small") {
        tables.push(block_table(&variants, options, options.scale.of(BLOCKS))?);
    }
    if options.wants("size-classes") {
        tables.push(class_table(&variants, options)?);
    }
    if options.wants("size-classes-time") {
        tables.push(time_table(&variants, options)?);
    }
    tables[0].notes.extend(variants.notes());
    Ok(tables)
}

fn case(name: &str, args: &[u64]) -> Vec<String> {
    [name.to_string()].into_iter().chain(args.iter().map(u64::to_string)).collect()
}

fn block_table(variants: &Variants, options: &Options, blocks: u64) -> Fallible<Table> {
    let mut head = vec!["malloc of".to_string()];
    variants.names().iter().for_each(|name| head.extend([format!("{name} used"), format!("{name} RSS")]));
    let head: Vec<&str> = head.iter().map(String::as_str).collect();
    let title = format!("Small blocks: bytes each, {blocks} blocks{}", options.scale.note());
    let mut table = Table::new("size-classes-small", title, &head);
    table.chart = Some(Chart::Bars("bytes a block"));
    table.notes = vec![
        format!("`{}`. The pointers to the blocks are not counted.", options.command()),
        "Document 1, jemalloc: 4 and 8 B cost the same, 10 and 16 too; 4 B lost on each of 35 M nodes were 133.8 MB.".into(),
    ];
    let mut course = Course::new("size-classes-small", BLOCK_SIZES.len());
    for size in BLOCK_SIZES {
        course.step(&format!("{size} B"))?;
        let mut row = vec![Cell::text(format!("{size} B"))];
        for allocator in variants.names() {
            let held = variants.run(allocator, &case("blocks", &[size as u64, blocks]), "")?;
            row.extend([Cell::Number(held.get("allocated")?, 1), Cell::Number(held.get("rss")?, 1)]);
        }
        table.row(row);
    }
    course.end();
    Ok(table)
}

/// `blocks SIZE COUNT`
pub fn work_blocks(args: &[String]) -> Fallible<Figures> {
    let [size, count] = numbers(args)?;
    let mut kept: Vec<Box<[u8]>> = vec![Box::default(); count as usize];
    let before = meter::held();
    for block in &mut kept {
        *block = vec![1; size as usize].into_boxed_slice();
    }
    let mut figures = Figures::default();
    meter::held().add_since(before, count, &mut figures);
    std::hint::black_box(&kept);
    Ok(figures)
}

fn class_table(variants: &Variants, options: &Options) -> Fallible<Table> {
    let mut head = vec!["request".to_string()];
    head.extend(variants.names().iter().map(|name| name.to_string()));
    if variants.has("jemalloc") {
        head.extend(["jemalloc's slab".to_string(), "blocks in it".to_string()]);
    }
    let head: Vec<&str> = head.iter().map(String::as_str).collect();
    let mut table = Table::new("size-classes", "Size classes: bytes that a request takes", &head);
    table.notes.push(format!("`{}`.", options.command()));
    let reported =
        variants.names().into_iter().map(|name| Ok((name, variants.run(name, &case("classes", &[]), "")?)));
    let reported: Vec<(&str, Figures)> = reported.collect::<Fallible<_>>()?;
    for (name, figures) in &reported {
        let mean = figures.get("waste")?;
        let classes = figures.get("count")?;
        table.notes.push(format!(
            "{name}: {classes} classes to 4 KB; requests of 1 to 4096 B waste {mean:.1} % on average."
        ));
    }
    if variants.has("jemalloc") {
        table.notes.push(
            "Document 4: a slab is the least common multiple of the class and the page, four classes a doubling; the \
             table shows where that makes slabs of few blocks."
                .into(),
        );
    }
    for size in CLASS_SIZES {
        let mut row = vec![Cell::text(format!("{size} B"))];
        for (_, figures) in &reported {
            row.push(Cell::Number(figures.get(&format!("class {size}"))?, 0));
        }
        if let Some((_, jemalloc)) = reported.iter().find(|(name, _)| *name == "jemalloc") {
            let (class, slab) =
                (jemalloc.get(&format!("class {size}"))?, jemalloc.get(&format!("slab {size}"))?);
            row.extend([Cell::Number(slab, 0), Cell::Number(slab / class, 0)]);
        }
        table.row(row);
    }
    Ok(table)
}

/// `classes`
pub fn work_classes(args: &[String]) -> Fallible<Figures> {
    const REQUEST_BYTES_MAX: usize = 4096;
    let [] = numbers(args)?;
    let classes = isotherm_allocator::classes();
    let mut figures = Figures::default();
    for size in CLASS_SIZES {
        let bytes = isotherm_allocator::class_bytes(size);
        let slab = classes.iter().find(|class| class.size_bytes == bytes).map_or(0, |class| class.slab_bytes);
        figures.add(format!("class {size}"), bytes as f64);
        figures.add(format!("slab {size}"), slab as f64);
    }
    let taken: Vec<usize> = (1..=REQUEST_BYTES_MAX).map(isotherm_allocator::class_bytes).collect();
    let waste =
        taken.iter().enumerate().map(|(at, taken)| 1.0 - (at + 1) as f64 / *taken as f64).sum::<f64>();
    let mut distinct = taken;
    distinct.dedup();
    figures.add("waste", waste * 100.0 / REQUEST_BYTES_MAX as f64);
    figures.add("count", distinct.len() as f64);
    Ok(figures)
}

fn time_table(variants: &Variants, options: &Options) -> Fallible<Table> {
    let mut head = vec!["size".to_string()];
    let tuned = |name: &&str| *name == "jemalloc";
    let cases: Vec<(&str, &str)> = variants.names().iter().map(|name| (*name, "")).collect();
    let cases: Vec<(&str, &str)> = cases
        .into_iter()
        .chain(variants.names().iter().filter(|name| tuned(name)).map(|name| (*name, TUNED)))
        .collect();
    for (name, conf) in &cases {
        head.push(if conf.is_empty() { name.to_string() } else { format!("{name} tuned") });
    }
    let head: Vec<&str> = head.iter().map(String::as_str).collect();
    let title = format!("A malloc and its free: ns of CPU, by size{}", options.scale.note());
    let mut table = Table::new("size-classes-time", title, &head);
    table.chart = Some(Chart::Bars("ns a malloc and free"));
    table.notes = vec![
        format!(
            "`{}`. {} blocks are taken and freed in a random order, {TIMED_ROUNDS} times; the median round.",
            options.command(),
            options.scale.of(TIMED_BLOCKS)
        ),
        format!(
            "Tuned: MALLOC_CONF={TUNED}. Document 4 saw bumps at 128, 256, 512 and 1024 B, where a slab holds few blocks."
        ),
    ];
    let mut reported = Vec::new();
    let mut course = Course::new("size-classes-time", cases.len());
    for (name, conf) in &cases {
        course.step(name)?;
        reported.push(variants.run(name, &case("times", &[options.scale.of(TIMED_BLOCKS)]), conf)?);
    }
    course.end();
    for size in TIMED_SIZES {
        let mut row = vec![Cell::text(format!("{size} B"))];
        for figures in &reported {
            row.push(Cell::Number(figures.get(&size.to_string())?, 1));
        }
        table.row(row);
    }
    Ok(table)
}

/// `times COUNT`
pub fn work_times(args: &[String]) -> Fallible<Figures> {
    let [count] = numbers(args)?;
    let mut prng = Prng::new(4);
    // The order in which blocks are freed: any, the same for all sizes.
    let mut order: Vec<u32> = (0..count as u32).collect();
    for at in (1..order.len()).rev() {
        order.swap(at, prng.below(at as u64 + 1) as usize);
    }
    let mut blocks: Vec<Vec<u8>> = vec![Vec::new(); count as usize];
    let mut figures = Figures::default();
    for size in TIMED_SIZES {
        let mut rounds: Vec<u64> = (0..TIMED_ROUNDS).map(|_| round(size, &order, &mut blocks)).collect();
        rounds.sort_unstable();
        figures.add(size.to_string(), rounds[rounds.len() / 2] as f64 / count as f64);
    }
    Ok(figures)
}

/// Takes a block for each place and frees them in `order`; nanoseconds of this thread's CPU.
fn round(size: usize, order: &[u32], blocks: &mut [Vec<u8>]) -> u64 {
    let start = meter::thread_cpu_ns();
    for block in blocks.iter_mut() {
        *block = Vec::with_capacity(size);
    }
    std::hint::black_box(&mut *blocks);
    for &at in order {
        blocks[at as usize] = Vec::new();
    }
    std::hint::black_box(&mut *blocks);
    meter::thread_cpu_ns() - start
}

fn numbers<const N: usize>(args: &[String]) -> Fallible<[u64; N]> {
    let read: Option<Vec<u64>> = args.iter().map(|arg| arg.parse().ok()).collect();
    read.and_then(|numbers| numbers.try_into().ok())
        .ok_or_else(|| format!("{N} numbers, please, not {args:?}"))
}
