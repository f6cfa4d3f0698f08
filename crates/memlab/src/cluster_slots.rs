//! Document 3's table: the reply to CLUSTER SLOTS of a cluster of 100 primaries without replicas, made in
//! three ways.
//!
//! ```text
//!   bits    each primary has 16384 bits; every one of every primary is tested      100 x 16384 tests, to Redis 6.2.1
//!   array   one array says whose each slot is; neighbours of the same are one range     16384 steps, from 6.2.2
//!   ready   the reply is kept and copied; made again, by the array, when a slot moves      one copy, ours
//! ```
//!
//! All three write the same bytes into a buffer that is there already. A server adds what it takes to get the
//! request in and the reply out; the document's figures have that, and the processor of its day.

use isotherm_probe::Fallible;
use isotherm_stdx::{Prng, Slot};

use crate::Subject;
use crate::course::Course;
use crate::figures::Figures;
use crate::meter;
use crate::options::Options;
use crate::output::{Cell, Chart, Table};
use crate::variants::Variants;

const PRIMARIES: usize = 100;
const ROUNDS: usize = 201;
const LAYOUTS: [Layout; 2] = [
    Layout { name: "contiguous", words: "a primary has one range", published: [Some(2061.0), Some(168.0)] },
    Layout { name: "scattered", words: "every slot is a range", published: [None, None] },
];

struct Layout {
    name: &'static str,
    words: &'static str,
    /// Bits and array, in microseconds.
    published: [Option<f64>; 2],
}

pub const SUBJECT: Subject =
    Subject { name: "cluster-slots", tables: &["cluster-slots"], need_bytes, make: table };

/// Three replies of at most 1.6 MB, and the nodes: `--scale` leaves them as they are.
fn need_bytes(_: &Options) -> u64 {
    16 << 20
}

fn table(options: &Options) -> Fallible<Vec<Table>> {
    let variants = Variants::of_cases(options)?;
    let head = [
        "slots",
        "ranges",
        "reply KB",
        "way",
        "published us",
        "us a reply",
        "part of the first",
        "us to get ready",
    ];
    let title = format!("CLUSTER SLOTS of {PRIMARIES} primaries without replicas: microseconds of CPU");
    let mut table = Table::new("cluster-slots", title, &head);
    table.chart = Some(Chart::Bars("microseconds a reply"));
    table.notes = vec![
        format!(
            "`{}`. Medians of {ROUNDS} replies in one thread, written into memory; no socket.",
            options.command()
        ),
        "Published: document 3, a whole CLUSTER SLOTS in a server, 100 primaries; which processor, it does not say.".into(),
    ];
    let mut course = Course::new("cluster-slots", LAYOUTS.len());
    for layout in &LAYOUTS {
        course.step(layout.name)?;
        let reported =
            variants.run(variants.names()[0], &["cluster-slots".into(), layout.name.into()], "")?;
        rows(layout, &reported, &mut table)?;
    }
    course.end();
    Ok(vec![table])
}

fn rows(layout: &Layout, reported: &Figures, table: &mut Table) -> Fallible {
    let first = reported.get("bits")?;
    let published = |at: usize| layout.published[at].map_or(Cell::Empty, |us| Cell::Number(us, 0));
    for (way, case, published, prepare) in [
        ("primaries x bits (before)", "bits", published(0), Cell::Empty),
        ("the slots' array (after)", "array", published(1), Cell::Empty),
        ("a ready reply (Isotherm's plan)", "ready", Cell::Empty, Cell::Number(reported.get("array")?, 1)),
    ] {
        table.row(vec![
            Cell::text(layout.words),
            Cell::text(format!("{:.0}", reported.get("ranges")?)),
            Cell::text(format!("{:.1}", reported.get("reply_bytes")? / 1e3)),
            Cell::text(way),
            published,
            Cell::Number(reported.get(case)?, 1),
            Cell::Number(reported.get(case)? / first, 4),
            prepare,
        ]);
    }
    Ok(())
}

/// `cluster-slots LAYOUT`: the median of each way, in microseconds.
pub fn work(args: &[String]) -> Fallible<Figures> {
    let [layout] = args else { return Err("a layout, please".to_string()) };
    let cluster = match layout.as_str() {
        "contiguous" => Cluster::new(|slot| slot * PRIMARIES / Slot::COUNT),
        "scattered" => Cluster::new(|slot| slot % PRIMARIES),
        other => return Err(format!("no layout called '{other}'")),
    };
    let mut ready = Reply::default();
    cluster.by_array(&mut ready);
    let mut figures = Figures::default();
    figures.add("ranges", ready.ranges as f64);
    figures.add("reply_bytes", ready.bytes.len() as f64);
    let mut out = Reply::default();
    figures.add("bits", median_us(&mut out, |out| cluster.by_bits(out)));
    figures.add("array", median_us(&mut out, |out| cluster.by_array(out)));
    figures.add("ready", median_us(&mut out, |out| out.bytes.extend_from_slice(&ready.bytes)));
    Ok(figures)
}

fn median_us(out: &mut Reply, way: impl Fn(&mut Reply)) -> f64 {
    let mut rounds: Vec<u64> = (0..ROUNDS)
        .map(|_| {
            out.clear();
            let start = meter::thread_cpu_ns();
            way(out);
            std::hint::black_box(&out.bytes);
            meter::thread_cpu_ns() - start
        })
        .collect();
    rounds.sort_unstable();
    rounds[ROUNDS / 2] as f64 / 1e3
}

// ------------------------------------------------------------------------------------------------------ the model

struct Cluster {
    nodes: Vec<Node>,
    /// Node of each slot.
    owners: Vec<u16>,
}

/// Knowledge of a cluster member about another one.
struct Node {
    id: String,
    ip: String,
    port: u16,
    slots: [u8; Slot::COUNT / 8],
}

impl Node {
    fn has(&self, slot: usize) -> bool {
        self.slots[slot / 8] & (1 << (slot % 8)) != 0
    }
}

impl Cluster {
    fn new(owner: impl Fn(usize) -> usize) -> Cluster {
        let mut prng = Prng::new(3);
        let nodes = (0..PRIMARIES).map(|number| node(number, &mut prng));
        let mut cluster = Cluster { nodes: nodes.collect(), owners: Vec::with_capacity(Slot::COUNT) };
        for slot in 0..Slot::COUNT {
            cluster.nodes[owner(slot)].slots[slot / 8] |= 1 << (slot % 8);
            cluster.owners.push(owner(slot) as u16);
        }
        cluster
    }

    /// Bit by bit, primary by primary.
    fn by_bits(&self, out: &mut Reply) {
        for node in &self.nodes {
            let mut first = None;
            for slot in 0..Slot::COUNT {
                let has = node.has(slot);
                if has && first.is_none() {
                    first = Some(slot);
                }
                if let Some(begun) = first.filter(|_| !has || slot == Slot::COUNT - 1) {
                    out.range(begun, if has { slot } else { slot - 1 }, node);
                    first = None;
                }
            }
        }
        out.end();
    }

    /// Slot by slot.
    fn by_array(&self, out: &mut Reply) {
        let mut first = 0;
        for slot in 1..=Slot::COUNT {
            if self.owners.get(slot) != Some(&self.owners[first]) {
                out.range(first, slot - 1, &self.nodes[usize::from(self.owners[first])]);
                first = slot;
            }
        }
        out.end();
    }
}

fn node(number: usize, prng: &mut Prng) -> Node {
    let id: String = (0..40).map(|_| char::from(b"0123456789abcdef"[prng.below(16) as usize])).collect();
    let ip = format!("10.20.{}.{}", 30 + number / 50, 100 + number % 50);
    Node { id, ip, port: 6379, slots: [0; Slot::COUNT / 8] }
}

/// A reply that is written: its length comes first and is known last.
#[derive(Default)]
struct Reply {
    bytes: Vec<u8>,
    ranges: usize,
}

impl Reply {
    /// "*16384\r\n"
    const HEAD_BYTES: usize = 8;

    fn clear(&mut self) {
        self.bytes.clear();
        self.ranges = 0;
    }

    /// `[first, last, [ip, port, id, []]]`
    fn range(&mut self, first: usize, last: usize, node: &Node) {
        if self.ranges == 0 {
            self.bytes.resize(Reply::HEAD_BYTES, 0);
        }
        self.ranges += 1;
        self.line(b'*', 3);
        self.line(b':', first);
        self.line(b':', last);
        self.line(b'*', 4);
        self.bulk(&node.ip);
        self.line(b':', usize::from(node.port));
        self.bulk(&node.id);
        self.line(b'*', 0);
    }

    fn line(&mut self, kind: u8, number: usize) {
        self.bytes.push(kind);
        isotherm_stdx::push_u64(&mut self.bytes, number as u64);
        self.bytes.extend_from_slice(b"\r\n");
    }

    fn bulk(&mut self, text: &str) {
        self.line(b'$', text.len());
        self.bytes.extend_from_slice(text.as_bytes());
        self.bytes.extend_from_slice(b"\r\n");
    }

    fn end(&mut self) {
        let head = format!("*{}\r\n", self.ranges);
        self.bytes.drain(..Reply::HEAD_BYTES - head.len());
        self.bytes[..head.len()].copy_from_slice(head.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(text: &str) -> Vec<&str> {
        text.split("*3\r\n").skip(1).collect()
    }

    #[test]
    fn both_ways_say_the_same() {
        for (owner, count) in [
            ((|slot| slot * PRIMARIES / Slot::COUNT) as fn(usize) -> usize, PRIMARIES),
            (|slot| slot % PRIMARIES, Slot::COUNT),
        ] {
            let cluster = Cluster::new(owner);
            let (mut bits, mut array) = (Reply::default(), Reply::default());
            cluster.by_bits(&mut bits);
            cluster.by_array(&mut array);
            let [bits, array] = [bits, array].map(|reply| String::from_utf8(reply.bytes).unwrap());
            assert!(array.starts_with(&format!("*{count}\r\n*3\r\n:0\r\n")), "{}", &array[..40]);
            // One is sorted by primaries and the other by slots.
            let (mut bits, mut array) = (ranges(&bits), ranges(&array));
            assert_eq!(array.len(), count);
            bits.sort_unstable();
            array.sort_unstable();
            assert_eq!(bits, array);
        }
    }

    #[test]
    fn a_range_is_written_as_resp() {
        let cluster = Cluster::new(|slot| slot * PRIMARIES / Slot::COUNT);
        let mut reply = Reply::default();
        cluster.by_array(&mut reply);
        let text = String::from_utf8(reply.bytes).unwrap();
        let first = format!(
            "*100\r\n*3\r\n:0\r\n:163\r\n*4\r\n$12\r\n10.20.30.100\r\n:6379\r\n$40\r\n{}\r\n*0\r\n*3\r\n:164\r\n",
            cluster.nodes[0].id
        );
        assert!(text.starts_with(&first), "{}", &text[..200]);
    }
}
