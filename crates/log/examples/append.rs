//! Cost of an append to the log: `cargo run --profile fast -p isotherm-log --example append`.
//!
//! Threads append frames of a SET (16 B key, 16 B value), and a log thread collects them. `work`: nanoseconds
//! of arithmetic between two appends, as a command has them. CPU is that of the whole process, the log thread
//! included.

use isotherm_log::{Block, Frame, LogOffset, Tail};
use std::hint::black_box;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const WIRE: &[u8] = b"*3\r\n$3\r\nSET\r\n$16\r\nkey:000000000001\r\n$16\r\nvalue:0000000001\r\n";
const ROUNDS: usize = 5;

fn cpu_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn spin(rounds: u64, seed: &mut u64) {
    for _ in 0..rounds {
        *seed = black_box(seed.wrapping_mul(6364136223846793005).wrapping_add(1));
    }
}

/// Wall and CPU time of one run, in nanoseconds an append.
fn run(has_log: bool, threads: u64, appends: u64, work: u64) -> (f64, f64) {
    let tail = Tail::new(LogOffset(0));
    let (is_over, barrier) = (AtomicBool::new(false), Barrier::new(threads as usize + 1));
    let mut times = (0, Duration::ZERO);
    let worker = |mut seed: u64| {
        let mut frame = Frame::default();
        barrier.wait();
        for _ in 0..appends {
            spin(work, &mut seed);
            if has_log {
                frame.push_wire(0, WIRE);
                black_box(tail.append(&mut frame));
            }
        }
    };
    let worker = &worker;
    std::thread::scope(|scope| {
        let log = scope.spawn(|| {
            let (mut blocks, mut bytes): (Vec<Block>, u64) = (Vec::new(), 0);
            loop {
                let was_over = is_over.load(Ordering::Acquire);
                tail.collect(&mut blocks);
                for block in blocks.drain(..) {
                    bytes += block.len() as u64;
                    tail.recycle(block.bytes);
                }
                if was_over {
                    return bytes;
                }
                std::thread::sleep(Duration::from_micros(200));
            }
        });
        let workers: Vec<_> = (0..threads).map(|number| scope.spawn(move || worker(number))).collect();
        let (cpu, wall) = (cpu_ns(), Instant::now());
        barrier.wait();
        workers.into_iter().for_each(|worker| worker.join().expect("no panic"));
        is_over.store(true, Ordering::Release);
        let bytes = log.join().expect("no panic");
        times = (cpu_ns() - cpu, wall.elapsed());
        assert_eq!(bytes, tail.end().0, "all bytes were collected");
    });
    let all = (threads * appends) as f64;
    (times.1.as_nanos() as f64 / all, times.0 as f64 / all)
}

fn main() {
    println!("ns per append, best and median of {ROUNDS}");
    println!("threads  work  log   wall best  median   cpu best  median");
    for (threads, work) in [(1, 0), (2, 0), (16, 0), (1, 400), (2, 400), (16, 400)] {
        let appends = 4_000_000 / threads / if work > 0 { 4 } else { 1 };
        let mut results = [Vec::new(), Vec::new()];
        for _ in 0..ROUNDS {
            for (results, has_log) in results.iter_mut().zip([false, true]) {
                results.push(run(has_log, threads, appends, work));
            }
        }
        for (name, mut results) in ["no", "yes"].iter().zip(results) {
            let mut column = |pick: fn(&(f64, f64)) -> f64| {
                results.sort_by(|a, b| pick(a).total_cmp(&pick(b)));
                (pick(&results[0]), pick(&results[ROUNDS / 2]))
            };
            let (wall, cpu) = (column(|run| run.0), column(|run| run.1));
            println!(
                "{threads:7} {work:5}  {name:4} {:10.1} {:7.1} {:10.1} {:7.1}",
                wall.0, wall.1, cpu.0, cpu.1
            );
        }
    }
}
