//! Lines that a reader sees: one a cell, and below a cell that failed what did not hold and how to repeat it.

use std::time::Duration;

use super::cell::Cell;
use super::verdict::{Fault, Figures};

pub fn head() -> String {
    format!(
        "{:>5}  {:<12}{:<14}{:<12}{:>6}{:>9}{:>8}{:>9}{:>9}{:>11}{:>9}  verdict",
        "seed",
        "workload",
        "policy",
        "disk",
        "MB",
        "used/max",
        "rss/max",
        "evicted",
        "refused",
        "GET max",
        "back"
    )
}

fn names(cell: &Cell) -> String {
    let Cell { seed, workload, policy, disk, maxmemory_mb, .. } = cell;
    let (workload, policy, disk) = (workload.name(), policy.name(), disk.name());
    format!("{seed:>5}  {workload:<12}{policy:<14}{disk:<12}{maxmemory_mb:>6}")
}

pub fn line(cell: &Cell, seen: &Figures, verdict: &str) -> String {
    let back = match &seen.back {
        Some(Ok(took)) => format!("{:.1} s", took.as_secs_f64()),
        Some(Err(_)) => "never".to_string(),
        None => "-".to_string(),
    };
    let ms = |time: Duration| format!("{:.1} ms", time.as_secs_f64() * 1e3);
    format!(
        "{}{:>9.2}{:>8.2}{:>9}{:>9}{:>11}{back:>9}  {verdict}",
        names(cell),
        seen.used_ratio(cell),
        seen.resident_ratio(cell),
        seen.evicted(),
        seen.refused(),
        ms(seen.hot_get.took),
    )
}

/// Returns what did not hold, a line each, and the command that repeats the cell.
pub fn faults(cell: &Cell, seen: &Figures, faults: &[Fault], options: &str) -> String {
    let mut text = format!("       {cell}\n");
    for fault in faults {
        text += &format!("       * {fault}\n");
    }
    let (worked, prepared) = (&seen.worked, &seen.prepared);
    let wrote = worked.acknowledged + prepared.acknowledged;
    let (from, to) = (seen.shortage.0.as_secs_f64(), seen.shortage.1.as_secs_f64());
    text += &format!(
        "       {wrote} writes acknowledged, {} in the shortage, from {from:.1} to {to:.1} s\n",
        worked.acknowledged
    );
    text + &format!("       to repeat it: cargo xtask stress pressure {}{options}", cell.options())
}
