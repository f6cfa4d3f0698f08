//! Progress of a reshard or a rebalance: valkey-cli's lines and marks in a pipe, a bar at a terminal.
//!
//! ```text
//! reshard      Moving slot 93 from a:1 to b:1: ...     a dot for each key, `#` for each slot
//! rebalance    ####
//! terminal     [#########           ]  412/1000 slots, 51234 keys, 1710 keys/s, 0:21 left
//! ```
//! Ctrl-C ends the work after the slot that is being moved; a second one at once, and then `fix` has
//! something to do.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use signal_hook::consts::SIGINT;

use crate::Fallible;
use crate::terminal::{columns, out_is_terminal, put};
use crate::text::reason;

const REDRAW: Duration = Duration::from_millis(100);
const BAR_COLUMNS_MAX: usize = 40;

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// A line for each slot.
    Lines,
    /// A mark for each slot.
    Marks,
    Bar,
}

pub struct Progress {
    style: Style,
    total: usize,
    slots: usize,
    keys: u64,
    begun: Instant,
    drawn: Option<Instant>,
    stop: Arc<AtomicBool>,
}

// COMPAT(tools): isotherm-cli --cluster reshard and rebalance show a bar at a terminal, unless --verbose is
// given, and end behind a slot at Ctrl-C. Why: the lines of valkey-cli say little about the time that is
// left.
impl Progress {
    pub fn new(total: usize, in_pipe: Style, verbose: bool) -> Progress {
        let style = if out_is_terminal() && !verbose { Style::Bar } else { in_pipe };
        Progress::of(total, style)
    }

    pub fn of(total: usize, style: Style) -> Progress {
        let (begun, stop) = (Instant::now(), Arc::new(AtomicBool::new(false)));
        Progress { style, total, slots: 0, keys: 0, begun, drawn: None, stop }
    }

    pub fn listen(&self) -> Fallible {
        let heard = signal_hook::flag::register_conditional_shutdown(SIGINT, 1, self.stop.clone())
            .and_then(|_| signal_hook::flag::register(SIGINT, self.stop.clone()));
        heard.map(drop).map_err(|why| format!("Cannot hear Ctrl-C: {}", reason(&why)))
    }

    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    pub fn begin_slot(&mut self, slot: u16, from: &str, to: &str) {
        match self.style {
            Style::Lines => put(format!("Moving slot {slot} from {from} to {to}")),
            Style::Marks => {}
            Style::Bar => self.draw(false),
        }
    }

    pub fn keys(&mut self, count: usize) {
        self.keys += count as u64;
        match self.style {
            Style::Lines => put(".".repeat(count)),
            Style::Marks => {}
            Style::Bar => self.draw(false),
        }
    }

    /// The keys are there; what follows are settings.
    pub fn end_keys(&self) {
        if self.style == Style::Lines {
            put("\n");
        }
    }

    pub fn end_slots(&mut self, count: usize) {
        self.slots += count;
        match self.style {
            Style::Bar => self.draw(self.slots == self.total),
            Style::Lines | Style::Marks => put("#".repeat(count)),
        }
    }

    /// Whatever comes next begins a line.
    pub fn end(&mut self) {
        match self.style {
            Style::Bar if self.drawn.is_some() => {
                self.draw(true);
                put("\n");
                self.drawn = None;
            }
            Style::Bar => {}
            Style::Lines | Style::Marks => put("\n"),
        }
    }

    fn draw(&mut self, now: bool) {
        if now || self.drawn.is_none_or(|drawn| drawn.elapsed() >= REDRAW) {
            self.drawn = Some(Instant::now());
            let line = bar(self.slots, self.total, self.keys, self.begun.elapsed(), columns());
            put(format!("\r{line}\x1b[K"));
        }
    }
}

fn bar(slots: usize, total: usize, keys: u64, elapsed: Duration, columns: usize) -> String {
    let seconds = elapsed.as_secs_f64();
    let rate = if seconds > 0.0 { keys as f64 / seconds } else { 0.0 };
    let mut text = format!(" {slots}/{total} slots, {keys} keys, {rate:.0} keys/s");
    if slots > 0 && slots < total {
        let left = (seconds / slots as f64 * (total - slots) as f64) as u64;
        text += &format!(", {}:{:02} left", left / 60, left % 60);
    }
    let width = columns.saturating_sub(text.len() + 3).min(BAR_COLUMNS_MAX);
    let full = (width * slots).checked_div(total).unwrap_or(width);
    format!("[{}{}]{text}", "#".repeat(full), " ".repeat(width - full))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars() {
        let seconds = Duration::from_secs;
        assert_eq!(
            bar(50, 100, 400, seconds(40), 70),
            "[###########           ] 50/100 slots, 400 keys, 10 keys/s, 0:40 left"
        );
        assert_eq!(bar(0, 3, 0, seconds(0), 30), "[] 0/3 slots, 0 keys, 0 keys/s");
        assert_eq!(bar(3, 3, 9, seconds(1), 34), "[###] 3/3 slots, 9 keys, 9 keys/s");
        assert!(bar(3, 3, 9, seconds(1), 0).starts_with("[]"));
        assert_eq!(bar(0, 0, 0, seconds(1), 30), "[] 0/0 slots, 0 keys, 0 keys/s");
    }
}
