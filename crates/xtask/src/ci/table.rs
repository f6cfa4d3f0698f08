//! The costs of a run, as a table.

use std::fmt::Write as _;
use std::time::Duration;

use super::lane::Outcome;

/// Seconds are wall time; stages on two lanes overlap, so the sum of a column is more than the run took.
pub fn text(outcomes: &[Outcome], took: Duration) -> String {
    let mut text = format!("{:<12} {:>8} {:>8}  {:<6}  compiled\n", "stage", "seconds", "CPU s", "");
    for outcome in outcomes {
        let verdict = if outcome.is_good { "ok" } else { "FAILED" };
        let _ = writeln!(
            text,
            "{:<12} {:>8.0} {:>8.0}  {verdict:<6}  {}",
            outcome.name,
            outcome.cost.wall_s,
            outcome.cost.cpu_s,
            compiled(outcome)
        );
    }
    let cpu_s: f64 = outcomes.iter().map(|outcome| outcome.cost.cpu_s).sum();
    let _ = writeln!(text, "{:<12} {:>8.0} {cpu_s:>8.0}", "all", took.as_secs_f64());
    for line in outcomes.iter().flat_map(|outcome| &outcome.skipped) {
        let _ = writeln!(text, "{line}");
    }
    text
}

/// "server 2, 26 of ours, 74 of others": the server is the crate that takes the time.
fn compiled(outcome: &Outcome) -> String {
    let ours = outcome.compiled_ours.len();
    if ours + outcome.compiled_others == 0 {
        return "-".to_string();
    }
    let server = outcome.compiled_ours.iter().filter(|name| *name == "isotherm").count();
    let server = if server > 0 { format!("the server {server} x, ") } else { String::new() };
    format!("{server}{ours} of ours, {} of others", outcome.compiled_others)
}
