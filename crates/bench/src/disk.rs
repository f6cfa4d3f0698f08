//! The performance of this machine's disk by itself, for ratios to it: reads of 4 KB at random places, one
//! after the other and many at once, and writes of 1 MB, past the page cache.
//!
//! Reads are done by a thread each, and by one thread through a ring (io_uring) that waits for events, as a
//! worker does; the file is as large as a few seconds of reads do not see twice.

use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use isotherm_disk::{BLOCK_BYTES, Disk, Ended, File, Mode, OsDisk, Ring, read_exact_at, write_all_at};
use isotherm_stdx::Prng;

use crate::options::Options;
use crate::report::Table;
use crate::threads::this_thread_cpu_ns;
use crate::{Fallible, progress};

pub const ROWS: [&str; 2] = ["disk-write", "disk-read"];

const FILE_BYTES: u64 = 1 << 30;
const WRITE_BYTES: usize = 1 << 20;
const READS: u64 = 40_000;
const DEPTHS: [usize; 3] = [1, 8, 32];

/// A file of random bytes on the disk of a folder, removed at the end.
pub struct Probe {
    file: Arc<dyn File>,
    path: std::path::PathBuf,
    bytes: u64,
    /// MB/s of its making, with the sync.
    pub written: f64,
}

/// Reads of one kind.
pub struct Reads {
    pub p50_us: f64,
    pub p99_us: f64,
    pub per_second: f64,
    /// CPU time of the reading threads, a read.
    pub cpu_us: f64,
}

impl Probe {
    pub fn new(folder: &Path, bytes: u64) -> Fallible<Probe> {
        let path = folder.join(format!("bench-disk-{}", std::process::id()));
        let why = |error: std::io::Error| format!("{}: {error}", path.display());
        let file = OsDisk.open_direct(&path, Mode::Truncate).map_err(why)?;
        let mut prng = Prng::new(1);
        let group: Vec<u8> = (0..WRITE_BYTES).map(|_| prng.below(256) as u8).collect();
        let begun = Instant::now();
        for at in (0..bytes).step_by(WRITE_BYTES) {
            write_all_at(&*file, &group, at).map_err(|error| why(error.error))?;
        }
        file.sync_all().map_err(why)?;
        let written = bytes as f64 / 1e6 / begun.elapsed().as_secs_f64();
        Ok(Probe { file, path, bytes, written })
    }

    /// Seconds in which one thread reads all of it, from end to end.
    pub fn read_through(&self) -> Fallible<f64> {
        let mut stretch = vec![0; WRITE_BYTES];
        let begun = Instant::now();
        for at in (0..self.bytes).step_by(WRITE_BYTES) {
            read_exact_at(&*self.file, &mut stretch, at).map_err(|error| error.to_string())?;
        }
        Ok(begun.elapsed().as_secs_f64())
    }

    /// `reads` reads of 4 KB by `threads` threads together.
    pub fn read(&self, threads: usize, reads: u64) -> Fallible<Reads> {
        let begun = Instant::now();
        let share = reads / threads as u64;
        let of_threads = std::thread::scope(|scope| {
            let handles: Vec<_> = (0..threads)
                .map(|thread| scope.spawn(move || self.read_alone(thread as u64, share)))
                .collect();
            handles.into_iter().map(|handle| handle.join().expect("it reads")).collect::<Fallible<Vec<_>>>()
        })?;
        let took = begun.elapsed().as_secs_f64();
        let cpu_ns: u64 = of_threads.iter().map(|(cpu_ns, _)| cpu_ns).sum();
        Ok(Reads::of(of_threads.into_iter().flat_map(|(_, times)| times).collect(), cpu_ns, took))
    }

    /// `reads` reads of 4 KB, `at_once` of them at once, by one thread that waits for events. `None`: the
    /// system has no such ring.
    pub fn read_by_ring(&self, at_once: usize, reads: u64) -> Fallible<Option<Reads>> {
        let Ok(mut ring) = Ring::new() else { return Ok(None) };
        let why = |error: std::io::Error| error.to_string();
        let mut poll = mio::Poll::new().map_err(why)?;
        let event = ring.event().as_raw_fd();
        let source = &mut mio::unix::SourceFd(&event);
        poll.registry().register(source, mio::Token(0), mio::Interest::READABLE).map_err(why)?;
        let (mut prng, mut events) = (Prng::new(2), mio::Events::with_capacity(8));
        let mut begun_at = vec![Instant::now(); isotherm_disk::RING_READS_MAX];
        let mut times = Vec::with_capacity(reads as usize);
        let (begun, before_ns, mut left) = (Instant::now(), this_thread_cpu_ns()?, reads);
        while (times.len() as u64) < reads {
            while left > 0 && ring.under_way() < at_once {
                let at = prng.below(self.bytes / BLOCK_BYTES as u64) * BLOCK_BYTES as u64;
                let room =
                    ring.begin(&self.file, at, BLOCK_BYTES).map_err(|refusal| format!("{refusal:?}"))?;
                begun_at[room] = Instant::now();
                left -= 1;
            }
            if !ring.submit().map_err(why)? {
                poll.poll(&mut events, None).map_err(why)?;
                ring.submit().map_err(why)?;
            }
            while let Some(Ended { room, bytes }) = ring.next_ended() {
                bytes.map_err(why)?;
                times.push(begun_at[room].elapsed().as_secs_f64() * 1e6);
            }
        }
        let (cpu_ns, took) = (this_thread_cpu_ns()? - before_ns, begun.elapsed().as_secs_f64());
        Ok(Some(Reads::of(times, cpu_ns, took)))
    }

    /// Reads `per_second` blocks a second with `threads` threads, until it is over.
    pub fn load(&self, threads: usize, per_second: f64, is_over: &AtomicBool) -> Fallible {
        let pause = Duration::from_secs_f64(threads as f64 / per_second.max(1.0));
        let read = |seed: u64| -> Fallible {
            let (mut prng, mut block) = (Prng::new(seed + 2), [0; BLOCK_BYTES]);
            let mut due = Instant::now() + pause.mul_f64(seed as f64 / threads as f64);
            while !is_over.load(Ordering::Relaxed) {
                std::thread::sleep(due.saturating_duration_since(Instant::now()));
                due += pause;
                let at = prng.below(self.bytes / BLOCK_BYTES as u64) * BLOCK_BYTES as u64;
                self.file.read_at(&mut block, at).map_err(|error| error.to_string())?;
            }
            Ok(())
        };
        std::thread::scope(|scope| {
            let handles: Vec<_> = (0..threads as u64).map(|seed| scope.spawn(move || read(seed))).collect();
            handles.into_iter().try_for_each(|handle| handle.join().expect("it reads"))
        })
    }

    /// CPU time, and microseconds of each read.
    fn read_alone(&self, seed: u64, reads: u64) -> Fallible<(u64, Vec<f64>)> {
        let (mut prng, mut block) = (Prng::new(seed + 2), [0; BLOCK_BYTES]);
        let before_ns = this_thread_cpu_ns()?;
        let mut times = Vec::with_capacity(reads as usize);
        for _ in 0..reads {
            let at = prng.below(self.bytes / BLOCK_BYTES as u64) * BLOCK_BYTES as u64;
            let begun = Instant::now();
            self.file.read_at(&mut block, at).map_err(|error| error.to_string())?;
            times.push(begun.elapsed().as_secs_f64() * 1e6);
        }
        Ok((this_thread_cpu_ns()? - before_ns, times))
    }
}

impl Reads {
    fn of(mut times: Vec<f64>, cpu_ns: u64, took: f64) -> Reads {
        times.sort_by(f64::total_cmp);
        let at = |percent: usize| times[(times.len() * percent / 100).min(times.len() - 1)];
        let count = times.len() as f64;
        Reads {
            p50_us: at(50),
            p99_us: at(99),
            per_second: count / took,
            cpu_us: cpu_ns as f64 / 1e3 / count,
        }
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

pub fn measure(options: &Options) -> Fallible<Vec<Table>> {
    let head = ["what", "p50", "p99", "a second", "CPU of a read"];
    let mut table = Table::new("disk", "This machine's disk, past the page cache", &head);
    table.note("The folder of the benchmark's servers; a file of 1 GB.");
    std::fs::create_dir_all(&options.scratch).map_err(|error| error.to_string())?;
    let probe =
        Probe::new(&options.scratch, options.scaled(FILE_BYTES).next_multiple_of(WRITE_BYTES as u64))?;
    let dash = || "-".to_string();
    if options.wants("disk-write") {
        let rate = format!("{:.0} MB", probe.written);
        table.row(["writes of 1 MB, one after the other, and a sync".into(), dash(), dash(), rate, dash()]);
    }
    for depth in DEPTHS.into_iter().filter(|_| options.wants("disk-read")) {
        let reads = probe.read(depth, options.scaled(READS))?;
        progress(&format!("{depth} readers: {:.0} reads a second", reads.per_second));
        let mut row = |who: &str, reads: &Reads| {
            table.row([
                format!("reads of 4 KB at random, {depth} at once, {who}"),
                format!("{:.0} us", reads.p50_us),
                format!("{:.0} us", reads.p99_us),
                format!("{:.1} k", reads.per_second / 1e3),
                format!("{:.1} us", reads.cpu_us),
            ]);
        };
        row("a thread each", &reads);
        if let Some(reads) = probe.read_by_ring(depth, options.scaled(READS))? {
            row("one thread, io_uring", &reads);
        }
    }
    Ok(vec![table])
}
