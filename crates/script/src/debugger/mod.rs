//! The debugger of scripts: where a run stops, and what its user asks for there.
//!
//! ```text
//!   client --feed--> input --words--> command: answered here            list, break, maxlen, help
//!                                              an Action for C          print, trace, eval, redis, abort
//!   client <--take_output-- out <-- one array of lines for each stop and each command
//! ```
//! The lines are Valkey's, to the byte. A debugger belongs to the run that it was given to, and has no view
//! of the world: the run is suspended while there is no command (`Debugger::is_waiting`), and continues when
//! one has come, or when the client has left.

mod commands;
mod human;
mod input;

#[cfg(test)]
mod tests;

use human::push_reply;
use input::{Input, Words};

// COMPAT(scripts): What the debugger shows of a value ends behind 1 MB, and what a script logs between two
// stops behind 4 MB; Valkey goes on. Why: tables within tables, and a loop with redis.debug(), would take all
// memory.
//
// COMPAT(scripts): Within a coroutine the debugger's print and trace look at the coroutine; Valkey looks at
// what has resumed it. Why: that is where the script stands.
/// Maximum length of the log between two answers; the rest is cut off.
const LOG_BYTES_MAX: usize = 4 << 20;
/// Output at which the run waits until its client has read some of it.
const OUT_BYTES_MAX: usize = 64 << 10;
const BREAKPOINTS_MAX: usize = 64;
/// `maxlen` of a new session.
const REPLY_BYTES_MAX: usize = 256;

/// Action for C while a run is stopped.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action {
    GoOn,
    /// The script fails with this text.
    Fail(&'static str),
    PrintAll,
    Print,
    Trace,
    Eval,
    /// A command of the server.
    Call,
}

pub struct Debugger {
    lines: Vec<Vec<u8>>,
    breakpoints: Vec<i64>,
    /// The run stops at the next line, and commands and their replies are shown until then.
    steps: bool,
    /// The script has called redis.breakpoint().
    breaks: bool,
    /// Line at which the script is.
    line: i64,
    log: Log,
    out: Vec<u8>,
    input: Input,
    /// Words of the command that C carries out; its text lies here.
    words: Words,
    text: Vec<u8>,
    /// C carries out a command, whose answer is not sent yet.
    is_asked: bool,
    is_waiting: bool,
    is_held: bool,
    /// The command was refused, and its error comes next.
    is_refused: bool,
    is_ended: bool,
    reply_bytes_max: usize,
    knows_maxlen: bool,
}

/// Lines that are not sent yet.
#[derive(Default)]
struct Log {
    lines: Vec<u8>,
    count: usize,
    is_cut: bool,
}

impl Log {
    fn add(&mut self, line: &[u8]) {
        if self.is_cut {
            return;
        }
        self.is_cut = self.lines.len() + line.len() > LOG_BYTES_MAX;
        match self.is_cut {
            true => self.push(b"<hint> What follows was left out: it is too much."),
            false => self.push(line),
        }
    }

    fn push(&mut self, line: &[u8]) {
        self.lines.push(b'+');
        self.lines.extend(line.iter().map(|&byte| if b"\r\n".contains(&byte) { b' ' } else { byte }));
        self.lines.extend(b"\r\n");
        self.count += 1;
    }
}

impl Debugger {
    /// `script`: all of its text, which has its `#!` line still.
    pub fn new(script: &[u8]) -> Debugger {
        let end = script.iter().rposition(|byte| !b"\r\n".contains(byte)).map_or(0, |last| last + 1);
        Debugger {
            lines: script[..end].split(|&byte| byte == b'\n').map(|line| until_nul(line).to_vec()).collect(),
            breakpoints: Vec::new(),
            steps: true,
            breaks: false,
            line: -1,
            log: Log::default(),
            out: Vec::new(),
            input: Input::default(),
            words: Words::default(),
            text: Vec::new(),
            is_asked: false,
            is_waiting: false,
            is_held: false,
            is_refused: false,
            is_ended: false,
            reply_bytes_max: REPLY_BYTES_MAX,
            knows_maxlen: false,
        }
    }

    // ---- its client ----

    /// Takes bytes that the client has sent.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.input.feed(bytes);
    }

    /// Returns the bytes to send to the client.
    pub fn take_output(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.out)
    }

    /// The client reads too little: nothing more is done for it until `false`.
    pub fn hold(&mut self, is_held: bool) {
        self.is_held = is_held;
    }

    /// The client sends no more: after the commands that it has sent the script continues to its end.
    pub fn end_input(&mut self) {
        self.is_ended = true;
    }

    /// The client is gone: the script continues to its end, and says nothing more.
    pub fn leave(&mut self) {
        self.is_ended = true;
        self.is_held = false;
        self.input = Input::default();
        self.out = Vec::new();
        self.go_on_to_the_end();
    }

    fn go_on_to_the_end(&mut self) {
        self.steps = false;
        self.breakpoints.clear();
    }

    /// Returns whether the client has sent bytes that were not looked at or are not complete.
    pub fn has_input(&self) -> bool {
        !self.input.is_empty()
    }

    /// Returns whether the run is suspended because no command is available.
    pub fn is_waiting(&self) -> bool {
        self.is_waiting
    }

    /// The session is over; what is left of its output.
    pub fn end(&mut self) -> Vec<u8> {
        self.log.push(b"<endsession>");
        self.flush();
        self.take_output()
    }

    pub fn memory_bytes(&self) -> usize {
        let lines: usize = self.lines.iter().map(|line| size_of::<Vec<u8>>() + line.capacity()).sum();
        lines + self.log.lines.capacity() + self.out.capacity() + self.input.memory_bytes()
    }

    // ---- the run ----

    /// The script has come to a line. `is_its_own`: and not to one of a text that it has loaded. Whether it
    /// stops there.
    pub(crate) fn reach(&mut self, line: i64, is_its_own: bool) -> bool {
        self.line = line;
        let is_breakpoint = self.breaks || self.breakpoints.contains(&line);
        let is_alone = self.is_ended && self.input.is_empty();
        if !is_its_own || is_alone || !(self.steps || is_breakpoint) {
            return false;
        }
        let reason = match (self.breaks, is_breakpoint) {
            (true, _) => "server.breakpoint() called",
            (false, true) => "break point",
            (false, false) => "step over",
        };
        (self.steps, self.breaks) = (false, false);
        self.say(format!("* Stopped at {line}, stop reason = {reason}"));
        self.show_line(line);
        self.flush();
        true
    }

    /// Returns the next action for C at the current line; `None` if there is no command yet.
    pub(crate) fn next(&mut self) -> Option<Action> {
        if std::mem::take(&mut self.is_asked) {
            self.steps = false;
            self.flush();
        }
        self.is_waiting = false;
        loop {
            if self.is_held || self.out.len() > OUT_BYTES_MAX {
                break;
            }
            match self.input.take() {
                Ok(Some(words)) => {
                    if let Some(action) = self.carry_out(words) {
                        return Some(action);
                    }
                }
                Ok(None) if self.is_ended => {
                    self.go_on_to_the_end();
                    return Some(Action::GoOn);
                }
                Ok(None) => break,
                Err(text) => return Some(Action::Fail(text)),
            }
        }
        self.is_waiting = true;
        None
    }

    /// The run is suspended for another reason: others have their turn.
    pub(crate) fn pause(&mut self) -> Option<Action> {
        self.is_waiting = false;
        None
    }

    /// The variable or the code of the action under way.
    pub(crate) fn text(&self) -> &[u8] {
        &self.text
    }

    /// The words of the command of the server under way.
    pub(crate) fn word(&self, at: usize) -> Option<&[u8]> {
        self.words.get(at + 1).map(Vec::as_slice)
    }

    /// redis.breakpoint().
    pub(crate) fn break_next(&mut self) {
        self.breaks = true;
    }

    pub(crate) fn line(&self) -> i64 {
        self.line
    }

    pub(crate) fn log(&mut self, line: &[u8]) {
        self.log.add(line);
    }

    /// A line of `trace`: a function, and where it stands.
    pub(crate) fn log_frame(&mut self, what: &[u8], line: i64) {
        self.log.add(what);
        self.show_line(line);
    }

    /// An error that a function of the server raises or returns.
    pub(crate) fn log_error(&mut self, text: &[u8]) {
        if !self.steps {
            return;
        }
        let mut text = until_nul(text);
        // Valkey has a text of its own for these.
        if std::mem::take(&mut self.is_refused) {
            text = text.strip_prefix(b"-ERR ").unwrap_or(text).trim_ascii_end();
        }
        self.log.add(&[b"<error> ", text].concat());
    }

    /// Returns whether commands are shown.
    pub(crate) fn steps(&self) -> bool {
        self.steps
    }

    /// A command of the script is about to run.
    pub(crate) fn log_command<'a>(&mut self, words: impl ExactSizeIterator<Item = &'a [u8]>) {
        const SHOWN_MAX: usize = 10;
        if !self.steps {
            return;
        }
        let mut line = b"<command>".to_vec();
        let count = words.len();
        for word in words.take(SHOWN_MAX) {
            line.push(b' ');
            line.extend_from_slice(until_nul(word));
        }
        if count > SHOWN_MAX {
            line.extend(format!(" ... ({} more)", count - SHOWN_MAX - 1).bytes());
        }
        self.log.add(&line);
    }

    /// Logs the reply to the command. `refusal`: the text that is shown instead.
    pub(crate) fn log_reply(&mut self, reply: &[u8], refusal: Option<Vec<u8>>) {
        self.is_refused = refusal.is_some();
        let mut line = b"<reply> ".to_vec();
        match refusal {
            Some(text) => push_reply(&mut line, &[b"-", &text[..], b"\r\n"].concat()),
            None => push_reply(&mut line, reply),
        }
        let is_trimmed = self.reply_bytes_max > 0 && line.len() > self.reply_bytes_max;
        if is_trimmed {
            line.truncate(self.reply_bytes_max);
            line.extend(b" ...");
        }
        self.log.add(&line);
        if is_trimmed && !std::mem::replace(&mut self.knows_maxlen, true) {
            self.say("<hint> The above reply was trimmed. Use 'maxlen 0' to disable trimming.");
        }
    }

    // ---- lines ----

    fn say(&mut self, line: impl AsRef<[u8]>) {
        self.log.add(line.as_ref());
    }

    /// Makes one answer of the logged lines.
    fn flush(&mut self) {
        let Log { lines, count, .. } = std::mem::take(&mut self.log);
        self.out.extend(format!("*{count}\r\n").bytes());
        self.out.extend(lines);
    }

    fn show_line(&mut self, number: i64) {
        let (is_breakpoint, is_here) = (self.breakpoints.contains(&number), self.line == number);
        let mark = match (is_here, is_breakpoint) {
            (true, true) => "->#",
            (true, false) => "-> ",
            (false, true) => "  #",
            (false, false) => "   ",
        };
        let at = usize::try_from(number - 1).ok();
        let text = at.and_then(|at| self.lines.get(at)).map(Vec::as_slice);
        let mut line = format!("{mark}{number:<3} ").into_bytes();
        line.extend_from_slice(text.unwrap_or(b"<out of range source code line>"));
        self.log.add(&line);
    }
}

/// Returns the text up to the first NUL, as C reads it.
fn until_nul(text: &[u8]) -> &[u8] {
    text.split(|&byte| byte == 0).next().unwrap_or_default()
}
