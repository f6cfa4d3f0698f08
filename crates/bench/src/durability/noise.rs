//! `appendfsync everysec` while a process keeps the disk busy: does a SET wait for a disk that it has no need
//! of?

use std::fs::{self, File};
use std::io::{Seek, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::folder::Folder;
use super::{Best, Figures, logged, ratio};
use crate::open_loop::OpenLoop;
use crate::options::Options;
use crate::process::{SIDES, Server};
use crate::report::Table;
use crate::shape::{Order, Shape, Values, Verb};
use crate::{Fallible, progress};

const KEYS: u64 = 100_000;
const SETS_PER_SECOND: f64 = 20_000.0;
const MEASURED: Duration = Duration::from_secs(10);
/// 200 MB/s.
const NOISE_BYTES: usize = 20 << 20;
const NOISE_EVERY: Duration = Duration::from_millis(100);
/// The file begins anew.
const NOISE_FILE_BYTES: u64 = 1 << 30;

pub fn measure(options: &Options, table: &mut Table) -> Fallible {
    let mut over = Figures::default();
    for round in 1..=options.rounds {
        for side in SIDES {
            let folder = Folder::new(options, "noise")?;
            let server =
                Server::start(side, &logged(options, "everysec").with("dir", folder.text()), options)?;
            let load = OpenLoop { port: server.port, connections: 50, per_second: SETS_PER_SECOND };
            let mut sets = Shape::new(Verb::Set, KEYS).order(Order::Uniform).values(Values::Fixed(100));
            let quiet = load.run_for(&mut sets, MEASURED)?;
            let noisy = beside_noise(options, || load.run_for(&mut sets, MEASURED))?;
            let (quiet_us, noisy_us) = (quiet.quantile_us(0.99), noisy.quantile_us(0.99));
            progress(&format!(
                "everysec-noise round {round} {}: p99 {quiet_us:.0} us quiet, {noisy_us:.0} us beside",
                side.name()
            ));
            over.add(side, noisy_us / quiet_us);
        }
    }
    let what = "everysec, 20 k SET/s of 100 B beside 200 MB/s written and fsynced: p99 over quiet";
    over.row(table, what, Best::Least, ratio, "<= 1.2 x");
    Ok(())
}

fn beside_noise<T: Send>(options: &Options, work: impl FnOnce() -> Fallible<T> + Send) -> Fallible<T> {
    let path = options.scratch.join("noise");
    let is_over = AtomicBool::new(false);
    let worked = thread::scope(|scope| {
        let noise = scope.spawn(|| File::create(&path).and_then(|file| make_noise(file, &is_over)));
        let worked = work();
        is_over.store(true, Ordering::Relaxed);
        let made = noise.join().expect("the noise does not panic");
        made.map_err(|why| format!("cannot write {}: {why}", path.display()))?;
        worked
    });
    let _ = fs::remove_file(&path);
    worked
}

fn make_noise(mut file: File, is_over: &AtomicBool) -> std::io::Result<()> {
    let bytes = vec![7; NOISE_BYTES];
    let mut written = 0;
    while !is_over.load(Ordering::Relaxed) {
        let start = Instant::now();
        file.write_all(&bytes)?;
        file.sync_data()?;
        written += NOISE_BYTES as u64;
        if written >= NOISE_FILE_BYTES {
            file.rewind()?;
            written = 0;
        }
        thread::sleep(NOISE_EVERY.saturating_sub(start.elapsed()));
    }
    Ok(())
}
