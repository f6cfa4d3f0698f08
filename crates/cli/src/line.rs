//! Lines from a person: edited at a terminal with history, completion and hints; read plainly from a pipe.
//!
//! The history is our own file, one line each, added to at once: several conversations may share it. Lines
//! with passwords are remembered within the conversation and never written.

use std::fs::{self, OpenOptions};
use std::io::{self, BufRead, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::rc::Rc;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::{History, MemHistory};
use rustyline::validate::Validator;
use rustyline::{CompletionType, Config, Context, Editor, Helper};

use crate::docs::Docs;
use crate::help::completions;
use crate::hint::hint_for;
use crate::terminal::in_is_terminal;

const HISTORY_LINES_MAX: usize = 1000;

pub enum Lines {
    Edited(Box<Edited>),
    Piped(Piped),
}

impl Lines {
    /// `docs` and `history` matter only at a terminal.
    pub fn new(docs: Rc<Docs>, history: Option<PathBuf>) -> Lines {
        match in_is_terminal().then(|| Edited::new(docs, history)).flatten() {
            Some(edited) => Lines::Edited(Box::new(edited)),
            None => Lines::Piped(Piped::default()),
        }
    }

    /// The next line; `None` at the end, or when Ctrl-C was pressed.
    pub fn next(&mut self, prompt: &str, hints: bool) -> Option<String> {
        match self {
            Lines::Edited(edited) => edited.next(prompt, hints),
            Lines::Piped(piped) => piped.next(),
        }
    }

    /// Replaces the commands that are completed and hinted.
    pub fn learn(&mut self, docs: Rc<Docs>) {
        if let Lines::Edited(edited) = self
            && let Some(helper) = edited.editor.helper_mut()
        {
            helper.docs = docs;
        }
    }

    pub fn remember(&mut self, line: &str, secret: bool) {
        if let Lines::Edited(edited) = self {
            edited.remember(line, secret);
        }
    }

    /// True if a line has arrived that the system no longer holds.
    pub fn holds_more(&self) -> bool {
        matches!(self, Lines::Piped(piped) if !piped.arrived.is_empty())
    }
}

/// Lines of a pipe. A buffer of our own, because a wait for messages and lines together must know what is in
/// it.
#[derive(Default)]
pub struct Piped {
    arrived: Vec<u8>,
}

impl Piped {
    fn next(&mut self) -> Option<String> {
        loop {
            if let Some(end) = self.arrived.iter().position(|&byte| byte == b'\n') {
                let line: Vec<u8> = self.arrived.drain(..=end).take(end).collect();
                return Some(String::from_utf8_lossy(&line).into_owned());
            }
            let mut chunk = [0; 4096];
            match io::stdin().lock().read(&mut chunk) {
                Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
                Ok(0) | Err(_) => break,
                Ok(count) => self.arrived.extend_from_slice(&chunk[..count]),
            }
        }
        let rest = std::mem::take(&mut self.arrived);
        (!rest.is_empty()).then(|| String::from_utf8_lossy(&rest).into_owned())
    }
}

/// Waits until there is something to read from the server or from the person. Returns which; neither, if time
/// passed.
pub fn wait_for_either(server: &impl AsFd) -> (bool, bool) {
    let (server, stdin) = (server.as_fd(), io::stdin());
    let person = stdin.as_fd();
    let mut fds = [PollFd::new(&server, PollFlags::IN), PollFd::new(&person, PollFlags::IN)];
    match poll(&mut fds, Some(&Timespec { tv_sec: 5, tv_nsec: 0 })) {
        Ok(_) => (!fds[0].revents().is_empty(), !fds[1].revents().is_empty()),
        Err(_) => (false, false),
    }
}

pub struct Edited {
    editor: Editor<Prompter, MemHistory>,
    history: Option<PathBuf>,
}

impl Edited {
    fn new(docs: Rc<Docs>, history: Option<PathBuf>) -> Option<Edited> {
        let config = Config::builder()
            .completion_type(CompletionType::Circular)
            .max_history_size(HISTORY_LINES_MAX)
            .ok()?
            .auto_add_history(false)
            .build();
        let memory = MemHistory::with_config(&config);
        let mut editor = Editor::with_history(config, memory).ok()?;
        editor.set_helper(Some(Prompter { docs, hints: true }));
        let mut edited = Edited { editor, history };
        edited.load();
        Some(edited)
    }

    /// Reads the last lines of the file, and shortens it when it has grown to twice of them.
    fn load(&mut self) {
        let Some(path) = &self.history else { return };
        let Ok(file) = fs::File::open(path) else { return };
        let lines: Vec<String> = io::BufReader::new(file).lines().map_while(Result::ok).collect();
        let last = &lines[lines.len().saturating_sub(HISTORY_LINES_MAX)..];
        for line in last {
            // A line more or less in the memory is not worth a word.
            self.editor.history_mut().add(line).ok();
        }
        if lines.len() > 2 * HISTORY_LINES_MAX {
            fs::write(path, last.join("\n") + "\n").ok();
        }
    }

    fn next(&mut self, prompt: &str, hints: bool) -> Option<String> {
        if let Some(helper) = self.editor.helper_mut() {
            helper.hints = hints;
        }
        match self.editor.readline(prompt) {
            Ok(line) => Some(line),
            Err(ReadlineError::Interrupted | ReadlineError::Eof) => None,
            Err(why) => {
                eprintln!("Error: {why}");
                None
            }
        }
    }

    fn remember(&mut self, line: &str, secret: bool) {
        let new = self.editor.history_mut().add(line).unwrap_or(false);
        let Some(path) = self.history.as_ref().filter(|_| new && !secret) else { return };
        let file = OpenOptions::new().create(true).append(true).mode(0o600).open(path);
        // A history that cannot be written is no reason to stop talking.
        file.and_then(|mut file| file.write_all(format!("{line}\n").as_bytes())).ok();
    }
}

/// Source of the editor's completions and hints while a line is typed.
struct Prompter {
    docs: Rc<Docs>,
    hints: bool,
}

impl Completer for Prompter {
    type Candidate = String;

    fn complete(
        &self,
        line: &str,
        _at: usize,
        _context: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<String>)> {
        Ok((0, completions(&self.docs, line)))
    }
}

impl Hinter for Prompter {
    type Hint = String;

    fn hint(&self, line: &str, at: usize, _context: &Context<'_>) -> Option<String> {
        if !self.hints || at < line.len() {
            return None;
        }
        let hint = hint_for(&self.docs, line).filter(|hint| !hint.is_empty())?;
        let gap = if line.ends_with(' ') { "" } else { " " };
        Some(format!("{gap}{hint}"))
    }
}

impl Highlighter for Prompter {
    fn highlight_hint<'h>(&self, hint: &'h str) -> std::borrow::Cow<'h, str> {
        format!("\x1b[90m{hint}\x1b[0m").into()
    }
}

impl Validator for Prompter {}

impl Helper for Prompter {}
