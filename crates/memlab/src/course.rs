//! Progress of a table, and whether it shall go on.
//!
//! ```text
//!   keyspace [########................] 3/9 Isotherm, mimalloc       one line, written over, where that is a terminal
//! ```
//!
//! SIGINT and SIGTERM are noted and checked between two steps, so that a stopped run ends its servers and
//! reports how far it was. A second signal ends the process at once.

use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use isotherm_probe::Fallible;
use signal_hook::consts::{SIGINT, SIGTERM};

static END: OnceLock<Arc<AtomicBool>> = OnceLock::new();

pub fn listen_for_the_end() -> Fallible {
    let end = END.get_or_init(Arc::default);
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(end))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(end)))
            .map_err(|why| format!("cannot listen for signals: {why}"))?;
    }
    Ok(())
}

/// A failure once a signal has asked for the end.
pub fn check() -> Fallible {
    match END.get() {
        Some(end) if end.load(Ordering::Relaxed) => Err("stopped".to_string()),
        _ => Ok(()),
    }
}

pub struct Course {
    what: &'static str,
    steps: usize,
    begun: usize,
    ended: bool,
}

impl Course {
    pub fn new(what: &'static str, steps: usize) -> Course {
        Course { what, steps, begun: 0, ended: false }
    }

    /// Begins the next step.
    pub fn step(&mut self, now: &str) -> Fallible {
        check()?;
        self.show(now);
        self.begun += 1;
        assert!(self.begun <= self.steps, "{} has {} steps", self.what, self.steps);
        Ok(())
    }

    pub fn end(mut self) {
        assert_eq!(self.begun, self.steps, "all steps of {} were made", self.what);
        self.ended = true;
        self.show("");
        if std::io::stderr().is_terminal() {
            eprintln!();
        }
    }

    fn show(&self, now: &str) {
        let mut out = std::io::stderr();
        if out.is_terminal() {
            let _ = write!(out, "\r\x1b[K{}", line(self.what, self.begun, self.steps, now));
            let _ = out.flush();
        }
    }
}

/// An early stop is reported: what there is of a table is not shown.
impl Drop for Course {
    fn drop(&mut self) {
        if !self.ended {
            let done = self.begun.saturating_sub(1);
            let newline = if std::io::stderr().is_terminal() { "\n" } else { "" };
            eprintln!("{newline}{}: {done} of {} done, no table is made of them", self.what, self.steps);
        }
    }
}

fn line(what: &str, done: usize, all: usize, now: &str) -> String {
    const CELLS: usize = 24;
    let full = done * CELLS / all.max(1);
    let (bar, rest) = ("#".repeat(full), ".".repeat(CELLS - full));
    format!("{what} [{bar}{rest}] {done}/{all} {now}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_is_full_at_the_end() {
        assert_eq!(line("t", 0, 3, "a"), "t [........................] 0/3 a");
        assert_eq!(line("t", 1, 3, "b"), "t [########................] 1/3 b");
        assert_eq!(line("t", 3, 3, ""), "t [########################] 3/3 ");
    }

    #[test]
    #[should_panic(expected = "all steps of t were made")]
    fn a_course_with_a_step_left_does_not_end() {
        let mut course = Course::new("t", 2);
        course.step("a").unwrap();
        course.end();
    }
}
