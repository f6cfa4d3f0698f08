//! The commands of the debugger, and its help.

use isotherm_stdx::parse_i64;

use super::input::{Words, leading_number};
use super::{Action, BREAKPOINTS_MAX, Debugger};

struct Command {
    name: &'static str,
    /// Number of bytes of the short form of the name.
    short: usize,
    /// Parameters as the help shows them.
    params: &'static [&'static str],
    /// Number of words that may follow.
    words: std::ops::RangeInclusive<usize>,
    /// The empty ones are not shown.
    help: &'static str,
    run: fn(&mut Debugger) -> Option<Action>,
}

const ANY: usize = usize::MAX;

static COMMANDS: [Command; 15] = [
    Command {
        name: "help",
        short: 1,
        params: &[],
        words: 0..=0,
        help: "List these commands.",
        run: show_help,
    },
    Command {
        name: "maxlen",
        short: 3,
        params: &["[len]"],
        words: 0..=1,
        help: "Cut shown values after [len] bytes; 0 shows them whole. Without [len] it says what is set.",
        run: maxlen,
    },
    Command {
        name: "step",
        short: 1,
        params: &[],
        words: 0..=0,
        help: "Run this line and stop at the next.",
        run: step,
    },
    Command { name: "next", short: 1, params: &[], words: 0..=0, help: "The same as step.", run: step },
    Command {
        name: "continue",
        short: 1,
        params: &[],
        words: 0..=0,
        help: "Run to the next breakpoint, or to the end.",
        run: |_| Some(Action::GoOn),
    },
    Command {
        name: "list",
        short: 1,
        params: &["[line]", "[ctx]"],
        words: 0..=2,
        help: "Show the source around [line], by default around the line that is next: [ctx] lines before it and after it.",
        run: list,
    },
    Command {
        name: "whole",
        short: 1,
        params: &[],
        words: 0..=0,
        help: "Show the whole source.",
        run: |debugger| debugger.list(1, 1_000_000),
    },
    Command {
        name: "print",
        short: 1,
        params: &["[var]"],
        words: 0..=1,
        help: "Show the local variable [var], or KEYS or ARGV; without [var] all local variables.",
        run: print,
    },
    Command {
        name: "break",
        short: 1,
        params: &["[line|-line]"],
        words: 0..=1,
        help: "Set a breakpoint at [line], or remove it from there by [-line]; 0 removes all. Without [line] they are listed.",
        run: break_at,
    },
    Command {
        name: "trace",
        short: 1,
        params: &[],
        words: 0..=0,
        help: "Show the calls that led here.",
        run: |debugger| debugger.ask(Action::Trace),
    },
    Command {
        name: "eval",
        short: 1,
        params: &["<code>"],
        words: 1..=ANY,
        help: "Run Lua code, which does not see local variables.",
        run: eval,
    },
    Command {
        name: "valkey",
        short: 1,
        params: &["<cmd>"],
        words: 1..=ANY,
        help: "Run a command of the server.",
        run: call,
    },
    Command { name: "redis", short: 1, params: &[], words: 1..=ANY, help: "", run: call },
    Command { name: "server", short: 0, params: &[], words: 1..=ANY, help: "", run: call },
    Command {
        name: "abort",
        short: 1,
        params: &[],
        words: 0..=0,
        help: "End the script. What it has written stays.",
        run: |_| Some(Action::Fail("script aborted for user request")),
    },
];

impl Command {
    fn is_called(&self, word: &[u8]) -> bool {
        let name = self.name.as_bytes();
        word.eq_ignore_ascii_case(name) || word.eq_ignore_ascii_case(&name[..self.short])
    }
}

impl Debugger {
    /// Carries out a command. Returns the action that is left for C, if any.
    pub(super) fn carry_out(&mut self, words: Words) -> Option<Action> {
        self.words = words;
        let (name, rest) = self.words.split_first().expect("a command has a word");
        let count = rest.len();
        let command =
            COMMANDS.iter().find(|command| command.is_called(name) && command.words.contains(&count));
        let Some(command) = command else {
            return self.answer("<error> Unknown debugger command or wrong number of arguments.");
        };
        (command.run)(self)
    }

    fn answer(&mut self, line: impl AsRef<[u8]>) -> Option<Action> {
        self.say(line);
        self.flush();
        None
    }

    /// C carries out the command; what it logs meanwhile is the answer.
    fn ask(&mut self, action: Action) -> Option<Action> {
        self.is_asked = true;
        Some(action)
    }

    fn list(&mut self, around: i64, context: i64) -> Option<Action> {
        self.show_lines(around, context);
        self.flush();
        None
    }

    fn show_lines(&mut self, around: i64, context: i64) {
        for number in 1..=self.lines.len() as i64 {
            if around == 0 || (around - number).abs() <= context {
                self.show_line(number);
            }
        }
    }

    fn set_breakpoint(&mut self, line: i64) {
        if self.breakpoints.len() == BREAKPOINTS_MAX {
            self.say("Too many breakpoints set.");
        } else if line > self.lines.len() as i64 || self.breakpoints.contains(&line) {
            self.say("Wrong line number.");
        } else {
            self.breakpoints.push(line);
            self.show_lines(line, 1);
        }
    }
}

fn step(debugger: &mut Debugger) -> Option<Action> {
    debugger.steps = true;
    Some(Action::GoOn)
}

fn list(debugger: &mut Debugger) -> Option<Action> {
    let number = |at: usize| debugger.words.get(at).map(|word| leading_number(word));
    let around = number(1).filter(|&line| line > 0).unwrap_or(debugger.line);
    let context = number(2).unwrap_or(5);
    debugger.list(around, context)
}

fn print(debugger: &mut Debugger) -> Option<Action> {
    match debugger.words.get(1).cloned() {
        Some(name) => {
            debugger.text = name;
            debugger.ask(Action::Print)
        }
        None => debugger.ask(Action::PrintAll),
    }
}

fn break_at(debugger: &mut Debugger) -> Option<Action> {
    let Some(word) = debugger.words.get(1) else {
        return match debugger.breakpoints.clone() {
            lines if lines.is_empty() => debugger.answer("No breakpoints set. Use 'b <line>' to add one."),
            lines => {
                debugger.say(format!("{} breakpoints set:", lines.len()));
                lines.into_iter().for_each(|line| debugger.show_line(line));
                debugger.flush();
                None
            }
        };
    };
    match parse_i64(word) {
        None => {
            let text = [b"Invalid argument:'", super::until_nul(word), b"'"].concat();
            debugger.say(text);
        }
        Some(0) => {
            debugger.breakpoints.clear();
            debugger.say("All breakpoints removed.");
        }
        Some(line) if line > 0 => debugger.set_breakpoint(line),
        Some(line) => {
            match debugger.breakpoints.iter().position(|&other| Some(other) == line.checked_neg()) {
                Some(at) => {
                    debugger.breakpoints.remove(at);
                    debugger.say("Breakpoint removed.");
                }
                None => debugger.say("No breakpoint in the specified line."),
            }
        }
    }
    debugger.flush();
    None
}

fn eval(debugger: &mut Debugger) -> Option<Action> {
    debugger.text = debugger.words[1..].join(&b' ');
    debugger.ask(Action::Eval)
}

/// The command and its reply are logged as those of the script are while it steps.
fn call(debugger: &mut Debugger) -> Option<Action> {
    debugger.steps = true;
    debugger.ask(Action::Call)
}

fn maxlen(debugger: &mut Debugger) -> Option<Action> {
    const BYTES_MIN: usize = 60;
    let Some(word) = debugger.words.get(1) else {
        return debugger.answer(format!("Current maxlen is {}", debugger.reply_bytes_max));
    };
    let Some(bytes) = parse_i64(word).and_then(|bytes| usize::try_from(bytes).ok()) else {
        return debugger.answer("<error> Invalid maxlen value.");
    };
    debugger.knows_maxlen = true;
    debugger.reply_bytes_max = if bytes == 0 { 0 } else { bytes.max(BYTES_MIN) };
    match debugger.reply_bytes_max {
        0 => debugger.answer("<value> replies are not truncated."),
        bytes => debugger.answer(format!("<value> replies are truncated at {bytes} bytes.")),
    }
}

// ---- help ----

const NAME_WIDTH: usize = 21;
const LINE_WIDTH: usize = 70;

fn show_help(debugger: &mut Debugger) -> Option<Action> {
    debugger.say("LUA debugger help:");
    COMMANDS.iter().filter(|command| !command.help.is_empty()).for_each(|command| explain(debugger, command));
    debugger.flush();
    None
}

fn explain(debugger: &mut Debugger, command: &Command) {
    let (short, rest) = command.name.split_at(command.short);
    let params: String = command.params.iter().map(|param| format!(" {param}")).collect();
    let mut head = format!("[{short}]{rest}{params}");
    let width = (NAME_WIDTH - 1).abs_diff(head.len());
    head.push_str(&format!("{:width$} ", ""));
    let is_long = head.len() > NAME_WIDTH;
    if is_long {
        debugger.say(&head);
        head = format!("{:NAME_WIDTH$}", "");
    }
    for text in wrapped(command.help, LINE_WIDTH - NAME_WIDTH) {
        debugger.say(format!("{head}{text}"));
        head = format!("{:NAME_WIDTH$}", "");
    }
}

/// Lines of at most `width` bytes, broken at blanks.
fn wrapped(mut text: &'static str, width: usize) -> Vec<&'static str> {
    let mut lines = Vec::new();
    while text.len() > width {
        let end = text[..width].rfind(' ').unwrap_or(width);
        lines.push(&text[..end]);
        text = &text[end + 1..];
    }
    lines.push(text);
    lines
}
