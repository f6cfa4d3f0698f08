//! `--intrinsic-latency`: how long this machine leaves a process waiting that only computes. No server can be
//! quicker.

use std::hint::black_box;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::stop_flag;
use crate::Fallible;
use crate::terminal::put;

pub fn run(seconds: i64) -> Fallible<i32> {
    let stop = stop_flag()?;
    let time = Duration::from_secs(seconds.max(0).unsigned_abs());
    let begun = Instant::now();
    let (mut worst, mut runs) = (Duration::ZERO, 0u64);
    loop {
        let before = Instant::now();
        black_box(compute());
        let took = before.elapsed();
        runs += 1;
        if took.as_micros() > worst.as_micros() {
            worst = took;
            put(format!("Max latency so far: {} microseconds.\n", worst.as_micros()));
        }
        if stop.load(Ordering::Relaxed) || begun.elapsed() > time {
            break;
        }
    }
    let average_us = begun.elapsed().as_secs_f64() * 1e6 / runs as f64;
    put(format!(
        "\n{runs} total runs (avg latency: {average_us:.4} microseconds / {:.2} nanoseconds per run).\n\
         Worst run took {:.0}x longer than the average latency.\n",
        average_us * 1e3,
        worst.as_secs_f64() * 1e6 / average_us
    ));
    Ok(0)
}

/// Some microseconds of work that a compiler cannot foresee: 1,000 steps of a shuffle that depends on itself.
fn compute() -> u64 {
    let mut table: [u8; 256] = std::array::from_fn(|i| i as u8);
    let (mut at, mut other, mut sum) = (0u8, 0u8, 0u64);
    for _ in 0..1000 {
        at = at.wrapping_add(1);
        other = other.wrapping_add(table[usize::from(at)]);
        table.swap(usize::from(at), usize::from(other));
        sum += u64::from(table[usize::from(table[usize::from(at)].wrapping_add(table[usize::from(other)]))]);
    }
    sum
}
