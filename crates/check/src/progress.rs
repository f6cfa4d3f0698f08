//! Progress of a check: a line on standard error, at a terminal only.
//!
//! ```text
//! dump.rdb  [############################            ]  71%  4.2 GB of 5.9 GB  830 MB/s  2 s left
//! ```

use std::io::{IsTerminal, Write, stderr};
use std::time::{Duration, Instant};

const CELLS: u64 = 40;
/// Between two drawings.
const PAUSE: Duration = Duration::from_millis(100);
/// A check that is over sooner shows no bar.
const SILENT: Duration = Duration::from_millis(500);

pub struct Progress {
    name: String,
    total_bytes: u64,
    begun: Instant,
    drawn: Option<Instant>,
    is_shown: bool,
}

impl Progress {
    pub fn new(name: &[u8], total_bytes: u64) -> Progress {
        Progress {
            name: name.escape_ascii().to_string(),
            total_bytes,
            begun: Instant::now(),
            drawn: None,
            is_shown: stderr().is_terminal() && total_bytes > 0,
        }
    }

    /// Records that `bytes` bytes of the file are checked. To be called once for each portion.
    pub fn note(&mut self, bytes: u64) {
        if !self.is_shown {
            return;
        }
        let now = Instant::now();
        let is_due = self.drawn.map_or(now - self.begun >= SILENT, |drawn| now - drawn >= PAUSE);
        if is_due {
            self.drawn = Some(now);
            let text = line(&self.name, bytes, self.total_bytes, now - self.begun);
            // A bar that cannot be drawn is no reason to end the check.
            let _ = write!(stderr(), "\r\x1b[K{text}");
        }
    }

    /// Removes the bar: the report continues.
    pub fn clear(&mut self) {
        if self.drawn.take().is_some() {
            let _ = write!(stderr(), "\r\x1b[K");
        }
    }
}

fn line(name: &str, bytes: u64, total_bytes: u64, passed: Duration) -> String {
    let cells = |bytes: u64| (bytes.min(total_bytes) as f64 / total_bytes as f64 * CELLS as f64) as usize;
    let full = cells(bytes);
    let per_second = bytes as f64 / passed.as_secs_f64().max(0.001);
    let left_seconds = total_bytes.saturating_sub(bytes) as f64 / per_second.max(1.0);
    format!(
        "{name}  [{}{}] {:3}%  {} of {}  {}/s  {left_seconds:.0} s left",
        "#".repeat(full),
        " ".repeat(CELLS as usize - full),
        bytes.min(total_bytes) as u128 * 100 / u128::from(total_bytes),
        size(bytes as f64),
        size(total_bytes as f64),
        size(per_second),
    )
}

fn size(bytes: f64) -> String {
    let (unit, name) = match bytes {
        bytes if bytes >= 1e9 => (1e9, "GB"),
        bytes if bytes >= 1e6 => (1e6, "MB"),
        _ => (1e3, "kB"),
    };
    format!("{:.1} {name}", bytes / unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_shows_what_is_left() {
        let shown = line("dump.rdb", 500_000_000, 2_000_000_000, Duration::from_secs(1));
        let bar = format!("[{}{}]", "#".repeat(10), " ".repeat(30));
        assert_eq!(shown, format!("dump.rdb  {bar}  25%  500.0 MB of 2.0 GB  500.0 MB/s  3 s left"));
    }

    #[test]
    fn a_file_that_grows_fills_the_bar_once() {
        assert!(line("a", 300, 100, Duration::from_secs(1)).contains("100%"));
    }
}
