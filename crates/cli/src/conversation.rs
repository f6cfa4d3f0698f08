//! The conversation with a person: prompt, line, reply.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use isotherm_stdx::args_split::{Dialect, args_split};

use crate::Fallible;
use crate::address::Address;
use crate::docs::Docs;
use crate::help::help;
use crate::line::{Lines, wait_for_either};
use crate::preferences::{Preferences, dotfile, is_secret};
use crate::render::Format;
use crate::session::{Ran, Session};
use crate::terminal::{KeyByKey, has_color, in_is_terminal, out_is_terminal, put};
use crate::text::{leading_i64, reason};

/// Duration of a command above which its time is shown.
const WORTH_TELLING: Duration = Duration::from_millis(500);
const READING: &str = "Reading messages... (press Ctrl-C to quit or any key to type command)\r";

/// Talks until the person ends it; the program's exit code.
pub fn talk(session: &mut Session) -> Fallible<i32> {
    converse(session, None).map(|code| code.expect("nothing restarts"))
}

/// Talks to the user after a debugged script has ended. Returns the program's exit code, or `None` if the
/// script is to be debugged again.
pub fn talk_or_restart(session: &mut Session, lines: &mut Lines) -> Fallible<Option<i32>> {
    converse(session, Some(lines))
}

/// `lines`: those of a script that was debugged before.
fn converse(session: &mut Session, lines: Option<&mut Lines>) -> Fallible<Option<i32>> {
    let interrupted = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(signal_hook::consts::SIGINT, interrupted.clone())
        .map_err(|why| format!("Cannot hear Ctrl-C: {}", reason(&why)))?;
    session.interrupt_by(interrupted.clone());
    // Not to reach the server is no end: every command tries again.
    session.connect(false);
    let docs =
        std::rc::Rc::new(if in_is_terminal() { Docs::fetch(&session.options) } else { Docs::default() });
    let mut preferences = Preferences::default();
    if in_is_terminal() {
        put(preferences.load());
    }
    session.interactive = true;
    let (restarts, mut new) = (lines.is_some(), None);
    let lines = match lines {
        Some(lines) => {
            lines.learn(docs.clone());
            lines
        }
        None => new.insert(Lines::new(docs.clone(), dotfile("HISTFILE", ".isothermcli_history"))),
    };
    let mut talk = Talk { session, docs, preferences, interrupted, restarts };
    loop {
        let prompt =
            if talk.session.is_connected() { talk.session.prompt() } else { "not connected> ".to_string() };
        let Some(line) = lines.next(&prompt, talk.preferences.hints) else {
            // Ctrl-C while messages come leaves them, and continues with a new connection.
            if talk.session.subscribed && talk.session.connect(false) {
                continue;
            }
            return Ok(Some(0));
        };
        let next = if line.is_empty() { Next::Messages } else { talk.line(&line, lines) };
        match next {
            Next::End(code) => return Ok(Some(code)),
            Next::Restart => return Ok(None),
            Next::Prompt => {}
            Next::Messages if talk.session.subscribed && !talk.wait_for_messages(lines)? => {
                return Ok(Some(1));
            }
            Next::Messages => {}
        }
    }
}

/// Action that follows a line.
enum Next {
    End(i32),
    Restart,
    /// The line was not for the server: there may be another one at once.
    Prompt,
    /// Messages, if the connection has subscribed to some; then the prompt.
    Messages,
}

struct Talk<'a> {
    session: &'a mut Session,
    docs: std::rc::Rc<Docs>,
    preferences: Preferences,
    interrupted: Arc<AtomicBool>,
    /// True if there is a script that "restart" debugs again.
    restarts: bool,
}

impl Talk<'_> {
    fn line(&mut self, line: &str, lines: &mut Lines) -> Next {
        let Ok(words) = args_split(line.as_bytes(), Dialect::File) else {
            put("Invalid argument(s)\n");
            lines.remember(line, false);
            return Next::Prompt;
        };
        let (repeat, words) = match split_repeat(&words) {
            Ok(split) => split,
            Err(why) => {
                put(why);
                return Next::Prompt;
            }
        };
        let Some(first) = words.first() else { return Next::Prompt };
        let first = String::from_utf8_lossy(first).to_ascii_lowercase();
        lines.remember(line, is_secret(words));
        match first.as_str() {
            "quit" | "exit" => return Next::End(0),
            _ if first.starts_with(':') => {
                put(self.preferences.apply(words, self.session.subscribed, ""));
                return Next::Prompt;
            }
            "restart" if self.restarts => return Next::Restart,
            "restart" => put("Use 'restart' only in Lua debugging mode.\n"),
            "connect" if words.len() == 3 => self.connect_to(&words[1], &words[2]),
            "clear" if words.len() == 1 => put("\x1b[H\x1b[2J"),
            "help" | "?" => self.help(&words[1..]),
            _ => return self.command(words, repeat).map_or(Next::Messages, Next::End),
        }
        Next::Messages
    }

    fn connect_to(&mut self, host: &[u8], port: &[u8]) {
        let host = String::from_utf8_lossy(host).into_owned();
        let port = u16::try_from(leading_i64(&String::from_utf8_lossy(port))).unwrap_or(0);
        self.session.address = Address::Tcp { host, port };
        self.session.connect(false);
    }

    fn help(&mut self, words: &[Vec<u8>]) {
        if self.docs.entries.is_empty() && !words.is_empty() {
            self.docs = Docs::fetch(&self.session.options).into();
        }
        put(help(&self.docs, words));
    }

    /// Runs a command of the server; the exit code if that is to end the program.
    fn command(&mut self, words: &[Vec<u8>], repeat: i64) -> Option<i32> {
        let begun = Instant::now();
        self.interrupted.store(false, Ordering::Relaxed);
        if let Ran::End(code) = self.session.run(words, repeat) {
            return Some(code);
        }
        let elapsed = begun.elapsed();
        if elapsed >= WORTH_TELLING && self.session.options.style.format == Format::Standard {
            put(format!("({:.2}s)\n", elapsed.as_secs_f64()));
        }
        None
    }

    /// Shows messages until the person wants to type; false if the connection broke.
    fn wait_for_messages(&mut self, lines: &Lines) -> Fallible<bool> {
        let shows_time = self.session.options.style.format != Format::Raw && out_is_terminal();
        let _keys = KeyByKey::begin();
        while self.session.subscribed {
            if let Err(why) = self.session.show_arrived() {
                eprintln!("Error: {why}");
                return Ok(false);
            }
            if !self.session.subscribed {
                break;
            }
            if shows_time {
                put(if has_color() { format!("\x1b[1;90m{READING}\x1b[0m") } else { READING.to_string() });
            }
            let (server, person) =
                if lines.holds_more() { (false, true) } else { wait_for_either(self.session.connection()?) };
            if shows_time {
                put("\x1b[K");
            }
            if self.interrupted.swap(false, Ordering::Relaxed) {
                put("Closing current connection. Ready to reconnect to the server... \n");
                return Ok(self.session.connect(false));
            }
            if server {
                if let Ran::End(_) = self.session.show_message() {
                    return Ok(false);
                }
            } else if person {
                break;
            }
        }
        Ok(true)
    }
}

/// `5 ping` is `ping`, five times.
pub fn split_repeat(words: &[Vec<u8>]) -> Result<(i64, &[Vec<u8>]), &'static str> {
    let [first, rest @ ..] = words else { return Ok((1, words)) };
    let text = String::from_utf8_lossy(first);
    let digits = text.strip_prefix(['-', '+']).unwrap_or(&text);
    if rest.is_empty() || digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Ok((1, words));
    }
    match text.parse() {
        Ok(repeat) if repeat > 0 => Ok((repeat, rest)),
        _ => Err("Invalid isotherm-cli repeat command option value.\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_in_front_repeats() {
        let words = |line: &str| line.split(' ').map(|word| word.as_bytes().to_vec()).collect::<Vec<_>>();
        let check = |line: &str, expected: Option<(i64, usize)>| {
            let words = words(line);
            let split = split_repeat(&words).ok().map(|(repeat, rest)| (repeat, rest.len()));
            assert_eq!(split, expected, "{line}");
        };
        check("5 ping", Some((5, 1)));
        check("5", Some((1, 1)));
        check("ping 5", Some((1, 2)));
        check("5x ping", Some((1, 2)));
        check("0 ping", None);
        check("-1 ping", None);
        check("99999999999999999999 ping", None);
    }
}
