//! `swap-mode`: what is left in memory of a large collection whose parts are on disk, and what commands read
//! that name elements of it.

use std::time::{Duration, Instant};

use isotherm_probe::{Client, command};

use crate::durability::median;
use crate::options::Options;
use crate::process::{Server, Setting, Side};
use crate::report::Table;
use crate::swap::{PATIENCE, send_all, swap};
use crate::{Fallible, progress};

const ELEMENTS: u64 = 1_000_000;
const READS: u64 = 5000;
/// Elements of one command that fills.
const FILLED_AT_ONCE: u64 = 20;
/// Number of elements in a range that commands ask for.
const RANGE: u64 = 100;

/// A type, how it is filled, and what asks for an element or a range of it, with the aim for its reads.
struct Case {
    name: &'static str,
    fill: &'static str,
    has_value: bool,
    asks: &'static [(&'static str, &'static str)],
}

const CASES: [Case; 5] = [
    Case { name: "hash", fill: "HSET", has_value: true, asks: &[("HGET", "1")] },
    Case { name: "set", fill: "SADD", has_value: false, asks: &[("SISMEMBER", "1")] },
    Case { name: "zset", fill: "ZADD", has_value: true, asks: &[("ZSCORE", "2"), ("ZRANGE", "4")] },
    Case { name: "list", fill: "RPUSH", has_value: false, asks: &[("LINDEX", "1"), ("LRANGE", "2")] },
    Case { name: "stream", fill: "XADD", has_value: true, asks: &[("XRANGE", "2")] },
];

fn element(number: u64) -> String {
    format!("element:{number:08}")
}

/// All that may leave memory leaves it. How many parts are on disk.
fn sink(client: &mut Client) -> Fallible<u64> {
    client.call(&["DEBUG", "SWAP-CHAOS", "1"])?;
    let (begun, mut before) = (Instant::now(), 0);
    loop {
        std::thread::sleep(Duration::from_millis(500));
        let parts = swap(client, "swap_nodes")?;
        if parts > 0 && parts == before || begun.elapsed() > PATIENCE {
            break;
        }
        before = parts;
    }
    client.call(&["DEBUG", "SWAP-CHAOS", "0"])?;
    // Values that were read again leave, too, before the memory is measured.
    std::thread::sleep(Duration::from_secs(2));
    Ok(before)
}

pub fn nodes(options: &Options, table: &mut Table) -> Fallible {
    let count = options.scaled(ELEMENTS);
    for Case { name, fill, has_value, asks } in CASES {
        let setting = Setting { workers: 1, ..Setting::default() }
            .with("maxmemory", 4_u64 << 30)
            .with("swap-mode", "yes")
            .with("enable-debug-command", "yes");
        let server = Server::start(Side::Isotherm, &setting, options)?;
        let mut client = server.client()?;
        let empty = client.used_memory_bytes()?;
        let at_once = if fill == "XADD" { 1 } else { FILLED_AT_ONCE };
        send_all(&mut client, count / at_once, |batch_number, batch| {
            let mut words: Vec<Vec<u8>> = vec![fill.into(), name.into()];
            for number in batch_number * at_once..(batch_number + 1) * at_once {
                let element = element(number).into_bytes();
                match (has_value, fill) {
                    (_, "XADD") => {
                        words.extend([(number + 1).to_string().into_bytes(), b"field".into(), element]);
                    }
                    (true, "ZADD") => words.extend([(number * 7).to_string().into_bytes(), element]),
                    (true, _) => words.extend([element.clone(), element]),
                    (false, _) => words.push(element),
                }
            }
            command(batch, words.iter().map(Vec::as_slice));
        })?;
        let hot = client.used_memory_bytes()? - empty;
        let parts = sink(&mut client)?;
        let cold = client.used_memory_bytes()? - empty;
        progress(&format!("{name}: {parts} parts on disk, {hot} B in memory before and {cold} after"));
        table.row([
            format!("memory of a {name} of {count} elements of 16 B, all on disk, over all in memory"),
            format!("{:.2} x ({:.1} MB)", cold as f64 / hot as f64, cold as f64 / 1e6),
            "64 KB".into(),
        ]);
        for (ask, aim) in asks {
            sink(&mut client)?;
            let reads = swap(&mut client, "swap_reads")?;
            let (cpu, mut times) = (server.cpu_ns()?, Vec::new());
            for number in 0..READS {
                let number = number * 7919 % count;
                let (element, from, to) =
                    (element(number), number.to_string(), (number + RANGE - 1).to_string());
                let begun = Instant::now();
                match *ask {
                    "ZRANGE" | "LRANGE" => client.call(&[ask, name, &from, &to])?,
                    "LINDEX" => client.call(&[ask, name, &from])?,
                    "XRANGE" => client.call(&[ask, name, &from, "+", "COUNT", &RANGE.to_string()])?,
                    _ => client.call(&[ask, name, &element])?,
                };
                times.push(begun.elapsed().as_secs_f64() * 1e6);
            }
            let reads = (swap(&mut client, "swap_reads")? - reads) as f64 / READS as f64;
            let cpu_us = (server.cpu_ns()? - cpu) as f64 / READS as f64 / 1e3;
            let what = if ask.ends_with("RANGE") { format!("{ask} of {RANGE}") } else { ask.to_string() };
            table.row([
                format!("{what} of it, while most is on disk: reads; p50; CPU"),
                format!("{reads:.2}; {:.0} us; {cpu_us:.0} us", median(times).unwrap_or_default()),
                format!("{aim} reads"),
            ]);
        }
    }
    Ok(())
}
