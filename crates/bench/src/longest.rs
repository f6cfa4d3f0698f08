//! The longest single command while keys are inserted one at a time.
//!
//! Wall time on a shared machine shows the machine. So after every reply the CPU clock of the server's thread
//! is read from the kernel (`schedstat`): what it has grown by is this command, the socket calls around it,
//! and whatever the thread did for itself meanwhile. Page splits, arena growth and the kernel's zeroing of
//! fresh memory are in it.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use crate::histogram::Histogram;
use crate::options::Options;
use crate::process::{SIDES, Server, Setting, Side};
use crate::report::Table;
use crate::shape::{Commands, Shape, Verb};
use crate::{Fallible, progress};

pub const ROWS: [&str; 1] = ["longest"];

const KEYS: u64 = 10_000_000;

pub fn measure(options: &Options) -> Fallible<Vec<Table>> {
    let keys = options.scaled(KEYS);
    let head = [
        "",
        "CPU us: median",
        "99.99 %",
        "longest",
        "commands over 200 us CPU",
        "wall us: median",
        "99 %",
        "99.99 %",
        "longest",
    ];
    let mut table = Table::new("longest", format!("Longest command while {keys} keys are inserted"), &head);
    table.note("SET of new keys, one at a time over one connection, one worker on one core; CPU time of the worker's thread per command, system calls included. The PINGs show what the machine adds to a command that does nothing.");
    if !options.wants(ROWS[0]) {
        return Ok(vec![table]);
    }
    for side in SIDES {
        let server = Server::start(side, &Setting::one_core(), options)?;
        let mut inserts = Shape::new(Verb::Set, keys);
        let times = one_at_a_time(&server, keys, |request| inserts.write(request))?;
        table.row(times.cells(side.name()));
        if side == Side::Isotherm {
            let times = one_at_a_time(&server, keys, |request| request.extend_from_slice(b"PING\r\n"))?;
            table.row(times.cells("as many PINGs: the machine"));
        }
    }
    Ok(vec![table])
}

#[derive(Default)]
struct Times {
    cpu: Histogram,
    wall: Histogram,
}

impl Times {
    fn cells(&self, name: &str) -> [String; 9] {
        let Times { cpu, wall } = self;
        progress(&format!(
            "longest {name}: {:.0} us CPU, {:.0} us wall",
            cpu.longest_us(),
            wall.longest_us()
        ));
        [
            name.to_string(),
            format!("{:.1}", cpu.quantile_us(0.5)),
            format!("{:.1}", cpu.quantile_us(0.9999)),
            format!("{:.0}", cpu.longest_us()),
            cpu.above(Duration::from_micros(200)).to_string(),
            format!("{:.1}", wall.quantile_us(0.5)),
            format!("{:.1}", wall.quantile_us(0.99)),
            format!("{:.1}", wall.quantile_us(0.9999)),
            format!("{:.0}", wall.longest_us()),
        ]
    }
}

fn one_at_a_time(server: &Server, count: u64, mut write: impl FnMut(&mut Vec<u8>)) -> Fallible<Times> {
    let mut times = Times::default();
    let mut client = server.client()?;
    let mut request = Vec::new();
    let mut clock = Clock::of_busiest(server, &mut client)?;
    let mut before_ns = clock.read_ns()?;
    for done in 1..=count {
        request.clear();
        write(&mut request);
        let sent = Instant::now();
        client.send(&request)?;
        client.read()?;
        times.wall.add(sent.elapsed());
        let after_ns = clock.read_ns()?;
        times.cpu.add(Duration::from_nanos(after_ns - before_ns));
        before_ns = after_ns;
        if done.is_multiple_of(1_000_000) {
            progress(&format!("longest {}: {done} of {count}", server.side.name()));
        }
    }
    Ok(times)
}

/// The CPU clock of one thread of the server.
pub struct Clock {
    schedstat: File,
}

impl Clock {
    /// Opens the clock of the thread that answers `client`, which is the one whose CPU time grows most while
    /// the client asks.
    pub fn of_busiest(server: &Server, client: &mut isotherm_probe::Client) -> Fallible<Clock> {
        let before = server.threads_cpu_ns()?;
        for _ in 0..2000 {
            client.call(&["PING"])?;
        }
        let grown = |(id, after): &(u64, u64)| {
            let before = before.iter().find(|(thread, _)| thread == id).map_or(0, |(_, ns)| *ns);
            (after - before, *id)
        };
        let (_, thread) =
            server.threads_cpu_ns()?.iter().map(grown).max().ok_or("a server without threads")?;
        let file = server.schedstat_of(thread);
        let schedstat = File::open(&file).map_err(|why| format!("cannot open {}: {why}", file.display()))?;
        Ok(Clock { schedstat })
    }

    pub fn read_ns(&mut self) -> Fallible<u64> {
        let mut text = [0; 64];
        let bytes =
            self.schedstat.read_at(&mut text, 0).map_err(|why| format!("cannot read schedstat: {why}"))?;
        let digits = text[..bytes].split(|byte| *byte == b' ').next().unwrap_or_default();
        std::str::from_utf8(digits)
            .ok()
            .and_then(|digits| digits.parse().ok())
            .ok_or("schedstat is no number".to_string())
    }
}
