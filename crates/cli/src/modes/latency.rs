//! `--latency` and `--latency-history`: how long a PING takes, a hundred times a second.

use std::time::{Duration, Instant};

use super::call_patiently;
use crate::Fallible;
use crate::render::Format;
use crate::session::Session;
use crate::terminal::put;

pub const PAUSE: Duration = Duration::from_millis(10);
const HISTORY_INTERVAL: Duration = Duration::from_secs(15);
/// Time after which the only line is printed where the output is not a terminal.
const ONCE_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Default)]
struct Samples {
    min: u128,
    max: u128,
    total: u128,
    count: u128,
}

impl Samples {
    fn add(&mut self, latency_ms: u128) {
        self.min = if self.count == 0 { latency_ms } else { self.min.min(latency_ms) };
        self.max = self.max.max(latency_ms);
        self.total += latency_ms;
        self.count += 1;
    }

    fn show(&self, format: Format) -> String {
        let Samples { min, max, total, count } = self;
        let average = *total as f64 / (*count).max(1) as f64;
        match format {
            Format::Standard => format!("min: {min}, max: {max}, avg: {average:.2} ({count} samples)"),
            Format::Csv => format!("{min},{max},{average:.2},{count}\n"),
            Format::Raw => format!("{min} {max} {average:.2} {count}\n"),
            Format::Json | Format::QuotedJson => {
                format!("{{\"min\": {min}, \"max\": {max}, \"avg\": {average:.2}, \"count\": {count}}}\n")
            }
        }
    }
}

pub fn run(session: &mut Session, history: bool) -> Fallible<i32> {
    let format = session.options.style.format;
    let given = session.options.interval;
    let interval = |default: Duration| if given.is_zero() { default } else { given };
    session.connection()?;
    let (mut samples, mut begun) = (Samples::default(), Instant::now());
    loop {
        let sent = Instant::now();
        call_patiently(session, &["PING"])?;
        samples.add(sent.elapsed().as_millis());
        if format == Format::Standard {
            put(format!("\x1b[0G\x1b[2K{}", samples.show(format)));
        } else if history {
            put(samples.show(format));
        } else if begun.elapsed() > interval(ONCE_INTERVAL) {
            put(samples.show(format));
            return Ok(0);
        }
        if history && begun.elapsed() > interval(HISTORY_INTERVAL) {
            put(format!(" -- {:.2} seconds range\n", begun.elapsed().as_secs_f64()));
            (samples, begun) = (Samples::default(), Instant::now());
        }
        std::thread::sleep(PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples() {
        let mut samples = Samples::default();
        for latency_ms in [3, 1, 4] {
            samples.add(latency_ms);
        }
        assert_eq!(samples.show(Format::Standard), "min: 1, max: 4, avg: 2.67 (3 samples)");
        assert_eq!(samples.show(Format::Raw), "1 4 2.67 3\n");
        assert_eq!(samples.show(Format::Csv), "1,4,2.67,3\n");
        assert_eq!(samples.show(Format::Json), "{\"min\": 1, \"max\": 4, \"avg\": 2.67, \"count\": 3}\n");
    }
}
