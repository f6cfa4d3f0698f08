//! LATENCY GRAPH: the samples as columns of characters, their age written downwards below.
//!
//! ```text
//! command - high 500 ms, low 300 ms (all time high 500 ms)
//! --------------------------------------------------------------------------------
//!   #        a column has 4 rows of 3 characters: `_`, `o`, `#`; below its top it is filled with `|`
//!  _|
//!  ||
//! _||
//!
//! 321
//! sss
//! ```

use std::fmt::Write;

use isotherm_node::observe::latency::monitor::Series;

const COLUMNS: usize = 80;
const ROWS: usize = 4;
const STEPS: [char; 3] = ['_', 'o', '#'];

pub fn draw(name: &str, series: &Series, now_seconds: i64) -> String {
    let latencies = || series.samples.iter().map(|sample| sample.latency_ms);
    let (low, high) = (latencies().min().unwrap_or(0), latencies().max().unwrap_or(0));
    let mut out = format!("{name} - high {high} ms, low {low} ms (all time high {} ms)\n", series.max_ms);
    writeln!(out, "{}", "-".repeat(COLUMNS)).expect("a String takes anything");
    let columns: Vec<(u64, Vec<char>)> = series
        .samples
        .iter()
        .map(|sample| (sample.latency_ms, age(now_seconds - sample.unix_seconds).chars().collect()))
        .collect();
    for (at, part) in columns.chunks(COLUMNS).enumerate() {
        if at > 0 {
            out.push('\n');
        }
        draw_part(&mut out, part, low, high);
    }
    out
}

fn draw_part(out: &mut String, columns: &[(u64, Vec<char>)], low: u64, high: u64) {
    let steps = ROWS * STEPS.len();
    let step_of =
        |latency: u64| ((latency - low) as usize * steps / (high - low).max(1) as usize).min(steps - 1);
    for row in (0..ROWS).rev() {
        let character =
            |(latency, _): &(u64, Vec<char>)| match step_of(*latency).checked_sub(row * STEPS.len()) {
                Some(above) => STEPS.get(above).copied().unwrap_or('|'),
                None => ' ',
            };
        out.extend(columns.iter().map(character));
        out.push('\n');
    }
    out.extend(columns.iter().map(|_| ' '));
    out.push('\n');
    let longest = columns.iter().map(|(_, label)| label.len()).max().unwrap_or(0);
    for line in 0..longest {
        out.extend(columns.iter().map(|(_, label)| label.get(line).copied().unwrap_or(' ')));
        out.push('\n');
    }
}

fn age(seconds: i64) -> String {
    match seconds {
        ..60 => format!("{seconds}s"),
        60..3600 => format!("{}m", seconds / 60),
        3600..86_400 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_node::observe::latency::monitor::Sample;

    #[test]
    fn three_samples() {
        let sample = |unix_seconds, latency_ms| Sample { unix_seconds, latency_ms };
        let samples = vec![sample(70, 300), sample(128, 400), sample(129, 500)];
        let series = Series { samples, max_ms: 900, sum_ms: 1200, count: 3 };
        let lines = [
            "command - high 500 ms, low 300 ms (all time high 900 ms)",
            &"-".repeat(80),
            "  #",
            "  |",
            " _|",
            " ||",
            "_||",
            "   ",
            "121",
            "mss",
            "",
        ];
        // 400 of 300..500 is half: step 6 of 12, the first of the third row.
        let expected = [&lines[..2], &["  #", " _|", " ||", "_||"], &lines[7..]].concat().join("\n");
        assert_eq!(draw("command", &series, 130), expected);
    }
}
