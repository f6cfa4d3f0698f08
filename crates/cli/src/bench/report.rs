//! The results of a test, for eyes and for spreadsheets, and the line that shows how far it is.

use std::io::IsTerminal;
use std::time::Duration;

use super::engine::{Outcome, Progress, Test};
use super::histogram::Histogram;
use super::nodes::Nodes;
use super::options::{Options, ReadFrom};
use crate::terminal::{self, put};

pub const CSV_HEAD: &str = "\"test\",\"rps\",\"avg_latency_ms\",\"min_latency_ms\",\"p50_latency_ms\",\
    \"p95_latency_ms\",\"p99_latency_ms\",\"max_latency_ms\"\n";

/// Persistence settings of a server.
#[derive(Clone, Debug)]
pub struct Saving {
    pub save: String,
    pub appendonly: String,
}

/// The line that is written over itself.
pub struct ProgressLine {
    title: String,
    for_eyes: bool,
    shown: usize,
    last: Option<Progress>,
}

const BAR_CELLS: usize = 20;
const BAR_CELLS_MIN: usize = 5;

impl ProgressLine {
    pub fn new(title: &str) -> ProgressLine {
        ProgressLine {
            title: title.to_string(),
            for_eyes: std::io::stdout().is_terminal(),
            shown: 0,
            last: None,
        }
    }

    pub fn show(&mut self, test: &Test, now: Progress) {
        let mut line = self.line(&test.options, now);
        if self.for_eyes {
            line = fitted(share(&test.options, now), line, terminal::columns());
        }
        self.clear();
        put(format!("{line}\r"));
        self.shown = line.chars().count();
    }

    pub fn clear(&mut self) {
        if self.shown > 0 {
            put(format!("{:1$}\r", "", self.shown));
        }
        self.shown = 0;
    }

    fn line(&mut self, options: &Options, now: Progress) -> String {
        // After the warm-up everything is counted anew.
        let before = self.last.replace(now).filter(|last| last.warming_up == now.warming_up);
        let since = |value: u64, before: Option<u64>| value.saturating_sub(before.unwrap_or(0));
        let more = since(now.finished, before.map(|last| last.finished));
        let more_us = since(now.latency_sum_us, before.map(|last| last.latency_sum_us));
        let seconds =
            now.elapsed.saturating_sub(before.map_or(Duration::ZERO, |last| last.elapsed)).as_secs_f64();
        let rate = |count: u64, seconds: f64| count as f64 / seconds.max(1e-3);
        let average_ms = |sum_us: u64, count: u64| sum_us as f64 / 1000.0 / count.max(1) as f64;
        let elapsed = now.elapsed.as_secs_f64();
        let mut line = if now.warming_up { "Warming up ".to_string() } else { String::new() };
        line += &format!(
            "{}: rps={:.1} (overall: {:.1}) avg_msec={:.3} (overall: {:.3})",
            self.title,
            rate(more, seconds),
            rate(now.finished, elapsed),
            average_ms(more_us, more),
            average_ms(now.latency_sum_us, now.finished)
        );
        if now.warming_up || options.duration.is_some() {
            line + &format!(" {elapsed:.1} seconds")
        } else {
            line + &format!(" {} requests", now.finished)
        }
    }
}

/// Returns the part of the test that is done, from 0 to 1.
fn share(options: &Options, now: Progress) -> f64 {
    let share = match (now.warming_up, options.warmup, options.duration) {
        (true, Some(all), _) | (false, _, Some(all)) => now.elapsed.as_secs_f64() / all.as_secs_f64(),
        _ => now.finished as f64 / options.requests.max(1) as f64,
    };
    share.clamp(0.0, 1.0)
}

/// The line after a bar, `[########            ]  40% `, on one row of the terminal: a row more could not be
/// written over. Where there is little room the bar is shorter, then there is none, then the line is cut.
fn fitted(share: f64, line: String, columns: usize) -> String {
    const BESIDE_CELLS: usize = "[] 100% ".len();
    // A terminal moves to the next row when the last column has been written.
    let columns = columns.saturating_sub(1);
    let cells = columns.saturating_sub(line.chars().count() + BESIDE_CELLS).min(BAR_CELLS);
    if cells < BAR_CELLS_MIN {
        return line.chars().take(columns).collect();
    }
    let full = (share * cells as f64) as usize;
    format!("[{:<cells$}] {:>3.0}% {line}", "#".repeat(full), share * 100.0)
}

pub fn report(
    title: &str,
    options: &Options,
    saving: Option<&Saving>,
    nodes: Option<&Nodes>,
    outcome: &Outcome,
) {
    let rps = outcome.finished as f64 / outcome.elapsed.as_secs_f64().max(1e-3);
    let figures = Figures::of(&outcome.histogram);
    if options.csv {
        let Figures { average, min, p50, p95, p99, max } = figures;
        put(format!(
            "\"{title}\",\"{rps:.2}\",\"{average:.3}\",\"{min:.3}\",\"{p50:.3}\",\"{p95:.3}\",\"{p99:.3}\",\"{max:.3}\"\n"
        ));
    } else if options.quiet {
        put(format!("{title}: {rps:.2} requests per second, p50={:.3} msec\n", figures.p50));
    } else {
        put(head(title, options, saving, nodes, outcome)
            + &distribution(&outcome.histogram)
            + &summary(rps, &figures));
    }
}

struct Figures {
    average: f64,
    min: f64,
    p50: f64,
    p95: f64,
    p99: f64,
    max: f64,
}

impl Figures {
    fn of(histogram: &Histogram) -> Figures {
        let ms = |us: u64| us as f64 / 1000.0;
        let at = |percent: f64| ms(histogram.at_percentile(percent).0);
        Figures {
            average: histogram.mean_us() / 1000.0,
            min: ms(histogram.min_us()),
            p50: at(50.0),
            p95: at(95.0),
            p99: at(99.0),
            max: ms(histogram.max_us()),
        }
    }
}

fn head(
    title: &str,
    options: &Options,
    saving: Option<&Saving>,
    nodes: Option<&Nodes>,
    outcome: &Outcome,
) -> String {
    let mut out = format!("====== {title} ======\n");
    let seconds = outcome.elapsed.as_secs_f64();
    out += &format!("  {} requests completed in {seconds:.2} seconds\n", outcome.finished);
    out += &format!("  {} parallel clients\n", options.clients);
    out += &format!("  {} bytes payload\n", options.data_bytes);
    out += &format!("  keep alive: {}\n", u8::from(options.keepalive));
    if let Some(nodes) = nodes {
        out += &format!("  cluster mode: yes ({} {})\n", nodes.list.len(), roles(options.read_from));
    } else if let Some(Saving { save, appendonly }) = saving {
        out += &format!("  host configuration \"save\": {save}\n");
        out += &format!("  host configuration \"appendonly\": {appendonly}\n");
    }
    out += &format!("  multi-thread: {}\n", if options.threads > 0 { "yes" } else { "no" });
    if options.threads > 0 {
        out += &format!("  threads: {}\n", options.threads);
    }
    if options.rps > 0 {
        let reached = outcome.finished as f64 / seconds.max(1e-3);
        out += &format!("\nRPS Summary:\n  target RPS: {}.00\n  reached RPS: {reached:.2}\n", options.rps);
    }
    out + "\n"
}

pub fn roles(read_from: ReadFrom) -> &'static str {
    match read_from {
        ReadFrom::All => "cluster",
        ReadFrom::Replicas => "replica",
        ReadFrom::Primaries => "primary",
    }
}

fn row(percent: f64, latency_us: u64, count: u64) -> String {
    format!("{percent:.3}% <= {:.3} milliseconds (cumulative count {count})\n", latency_us as f64 / 1000.0)
}

/// Two tables: the latency at 0, 50, 75, 87.5, ... percent, and the share at 0.1, 0.2, ... 2, 3, 4, ... ms.
fn distribution(histogram: &Histogram) -> String {
    let total = histogram.total();
    let mut out = "Latency by percentile distribution:\n".to_string();
    let (mut percent, mut shown) = (0.0, 0);
    while shown < total {
        let (latency_us, count) = histogram.at_percentile(percent);
        if count != shown {
            out += &row(percent, latency_us, count);
            shown = count;
        }
        percent = if percent == 0.0 { 50.0 } else { percent + (100.0 - percent) / 2.0 };
    }
    if total > 0 {
        out += &row(100.0, histogram.max_us(), total);
    }
    out += "\nCumulative distribution of latencies:\n";
    let (mut latency_us, mut shown) = (100, u64::MAX);
    while shown != total {
        let count = histogram.count_to(latency_us);
        if count != shown {
            out += &row(count as f64 / total.max(1) as f64 * 100.0, latency_us, count);
            shown = count;
        }
        latency_us += if latency_us < 2000 { 100 } else { 1000 };
    }
    out + "\n"
}

fn summary(rps: f64, figures: &Figures) -> String {
    let Figures { average, min, p50, p95, p99, max } = figures;
    format!(
        "Summary:\n  throughput summary: {rps:.2} requests per second\n  latency summary (msec):\n    \
         {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}\n    {average:9.3} {min:9.3} {p50:9.3} {p95:9.3} {p99:9.3} {max:9.3}\n",
        "avg", "min", "p50", "p95", "p99", "max"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_end_with_the_last_request() {
        let mut histogram = Histogram::new(3);
        for (latency_us, times) in [(50, 60), (250, 30), (4500, 10)] {
            histogram.record(latency_us, times);
        }
        assert_eq!(
            distribution(&histogram),
            "Latency by percentile distribution:\n\
             0.000% <= 0.050 milliseconds (cumulative count 60)\n\
             75.000% <= 0.250 milliseconds (cumulative count 90)\n\
             93.750% <= 4.500 milliseconds (cumulative count 100)\n\
             100.000% <= 4.500 milliseconds (cumulative count 100)\n\
             \nCumulative distribution of latencies:\n\
             60.000% <= 0.100 milliseconds (cumulative count 60)\n\
             90.000% <= 0.300 milliseconds (cumulative count 90)\n\
             100.000% <= 5.000 milliseconds (cumulative count 100)\n\n"
        );
        assert!(
            distribution(&Histogram::new(3))
                .ends_with("latencies:\n0.000% <= 0.100 milliseconds (cumulative count 0)\n\n")
        );
    }

    #[test]
    fn the_line_shows_the_last_moment_and_the_whole() {
        let mut line = ProgressLine::new("SET");
        let options = Options { requests: 1000, ..Options::default() };
        let at = |finished, ms| Progress {
            finished,
            latency_sum_us: finished * 200,
            elapsed: Duration::from_millis(ms),
            warming_up: false,
        };
        line.line(&options, at(100, 1000));
        let shown = line.line(&options, at(400, 2000));
        assert_eq!(shown, "SET: rps=300.0 (overall: 200.0) avg_msec=0.200 (overall: 0.200) 400 requests");
        let fitted = |columns| fitted(share(&options, at(400, 2000)), "SET: 1".to_string(), columns);
        assert_eq!(fitted(80), "[########            ]  40% SET: 1");
        assert_eq!(fitted(25), "[####      ]  40% SET: 1");
        assert_eq!((fitted(19), fitted(4)), ("SET: 1".to_string(), "SET".to_string()));
        assert_eq!(share(&Options { duration: Some(Duration::from_secs(8)), ..options }, at(5, 2000)), 0.25);
    }
}
