//! `--ldb` and `--ldb-sync-mode` with `--eval`: a script is run line by line, and its user says how.
//!
//! ```text
//!   SCRIPT DEBUG sync | EVAL --> lines --> lua debugger> step --> lines --> ... --> <endsession>, the reply to EVAL
//!                                                                                        |
//!                                            the usual prompt, until quit or restart <---'
//! ```

use std::path::Path;

use isotherm_resp::reply_parse::Value;
use isotherm_stdx::args_split::{Dialect, args_split};

use super::eval;
use crate::Fallible;
use crate::conversation::{split_repeat, talk_or_restart};
use crate::docs::Docs;
use crate::line::Lines;
use crate::options::Debug;
use crate::preferences::{Preferences, dotfile};
use crate::render::{Format, Style};
use crate::session::Session;
use crate::terminal::{has_color, out_is_terminal, put};

const BANNER: &str = "\
Lua debugging session started, please use:
quit    -- End the session.
restart -- Restart the script in debug mode again.
help    -- Show Lua script debugging commands.

";
const PROMPT: &str = "lua debugger> ";
const END: &[u8] = b"<endsession>";

/// Action that follows a session.
enum Next {
    /// The script has ended, and was answered.
    Talk,
    Restart,
    End(i32),
}

/// Debugs the script until its user ends the program; the exit code.
pub fn run(session: &mut Session, file: &Path, debug: Debug) -> Fallible<i32> {
    let mut lines = Lines::new(Docs::default().into(), dotfile("HISTFILE", ".isothermcli_history"));
    loop {
        put(BANNER);
        let command = eval::command(file, &session.options.command.clone())?;
        if let Some(code) = begin(session, &command, debug)? {
            return Ok(code);
        }
        match debug_script(session, debug, &mut lines)? {
            Next::End(code) => return Ok(code),
            Next::Restart => {}
            Next::Talk => {
                session.options.style = Style::new(Format::Standard);
                if let Some(code) = talk_or_restart(session, &mut lines)? {
                    return Ok(code);
                }
            }
        }
        session.connect(false);
        put("\n");
    }
}

/// The script stands at its first line; or else it was said why not, and the program ends with this code.
fn begin(session: &mut Session, command: &[Vec<u8>], debug: Debug) -> Fallible<Option<i32>> {
    let mode: &[u8] = if debug == Debug::Sync { b"sync" } else { b"yes" };
    let reply = call(session, &[b"SCRIPT", b"DEBUG", mode, engine(&command[1])])?;
    // COMPAT(tools): isotherm-cli ends where SCRIPT DEBUG is refused, as it is by Isotherm without
    // --ldb-sync-mode; valkey-cli goes on without a debugger. Why: the script would change the data, unseen.
    if let Some(error) = reply.as_error() {
        eprintln!("{}", String::from_utf8_lossy(error));
        if debug == Debug::Forked {
            eprintln!(
                "With --ldb-sync-mode instead of --ldb the script is debugged in the server itself: what it changes stays changed."
            );
        }
        return Ok(Some(1));
    }
    let words: Vec<&[u8]> = command.iter().map(Vec::as_slice).collect();
    let reply = call(session, &words)?;
    if show(&reply) {
        put("Eval debugging session can't start:\n");
        let reply = read(session)?;
        put(Style::new(Format::Standard).render(&reply));
        return Ok(Some(0));
    }
    Ok(reply.as_error().map(|_| 1))
}

/// The interpreter that the first line of the script names.
fn engine(script: &[u8]) -> &[u8] {
    let Some(named) = script.strip_prefix(b"#!") else { return b"lua" };
    named.split(|byte| b"\r\n ".contains(byte)).next().unwrap_or(named)
}

fn debug_script(session: &mut Session, debug: Debug, lines: &mut Lines) -> Fallible<Next> {
    loop {
        let Some(line) = lines.next(PROMPT, false) else { return Ok(Next::End(0)) };
        let Some(words) = split(line.as_bytes()) else {
            put("Invalid argument(s)\n");
            lines.remember(&line, false);
            continue;
        };
        let (repeat, words) = match split_repeat(&words) {
            Ok(split) => split,
            Err(why) => {
                put(why);
                continue;
            }
        };
        let Some(first) = words.first() else { continue };
        lines.remember(&line, false);
        match first.to_ascii_lowercase().as_slice() {
            b"quit" | b"exit" => return Ok(Next::End(0)),
            b"restart" => return Ok(Next::Restart),
            // They have no effect here, but are none of the debugger's.
            name if name.starts_with(b":") => {
                put(Preferences::default().apply(words, false, ""));
                continue;
            }
            b"clear" if words.len() == 1 => {
                put("\x1b[H\x1b[2J");
                continue;
            }
            _ => {}
        }
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        for _ in 0..repeat {
            if show(&call(session, &words)?) {
                let reply = read(session)?;
                put(Style::new(Format::Standard).render(&reply));
                let rolled_back = if debug == Debug::Sync { "" } else { " -- dataset changes rolled back" };
                put(format!("\n(Lua debugging session ended{rolled_back})\n\n"));
                return Ok(Next::Talk);
            }
        }
    }
}

/// The words of a line. Code to evaluate is one word, as it stands.
fn split(line: &[u8]) -> Option<Vec<Vec<u8>>> {
    for name in [&b"eval "[..], b"e "] {
        if let Some(code) = line.strip_prefix(name) {
            return Some(vec![name.trim_ascii_end().to_vec(), code.to_vec()]);
        }
    }
    args_split(line, Dialect::File).ok()
}

fn call(session: &mut Session, words: &[&[u8]]) -> Fallible<Value> {
    session.connection()?.call(words).map_err(|why| format!("Error: {why}"))
}

fn read(session: &mut Session) -> Fallible<Value> {
    session.connection()?.read().map_err(|why| format!("Error: {why}"))
}

/// Shows what the debugger says. Whether the session ends with that.
fn show(reply: &Value) -> bool {
    let Value::Array(lines) = reply else {
        put(Style::new(Format::Raw).render(reply));
        return false;
    };
    // COMPAT(tools): isotherm-cli colors the lines of the debugger at a terminal only; valkey-cli also where
    // another program reads them. Why: that program would have to take the colors out.
    let has_color = has_color() && out_is_terminal();
    let texts = lines.iter().map(|line| if let Value::Simple(text) = line { text.as_slice() } else { b"" });
    let shown: Vec<Vec<u8>> = texts
        .clone()
        .map(|text| match text {
            _ if text.starts_with(END) => Vec::new(),
            _ if has_color => colored(text),
            _ => text.to_vec(),
        })
        .collect();
    put([&shown.join(&b'\n')[..], b"\n"].concat());
    texts.clone().any(|text| text.starts_with(END))
}

/// Colors a line by its prefix, with Valkey's colors.
fn colored(text: &[u8]) -> Vec<u8> {
    const KINDS: [(&str, &str); 8] = [
        ("<debug>", "1;37"),
        ("<command>", "0;32"),
        ("<redis>", "0;32"),
        ("<reply>", "0;36"),
        ("<error>", "0;31"),
        ("<hint>", "1;37"),
        ("<value>", "0;35"),
        ("<retval>", "0;35"),
    ];
    let line = String::from_utf8_lossy(text);
    let mut code = "0;37";
    if let Some((_, of_kind)) = KINDS.iter().rev().find(|(kind, _)| line.contains(kind)) {
        code = of_kind;
    }
    if text.len() > 4 && text[3].is_ascii_digit() {
        match (text[1], text[2]) {
            (b'>', _) => code = "0;33",
            (_, b'#') => code = "1;37",
            _ => {}
        }
    }
    [format!("\x1b[{code};49m").as_bytes(), text, b"\x1b[0m"].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_one_word() {
        let check = |line: &str, expected: &str| {
            let words = split(line.as_bytes()).map(|words| String::from_utf8(words.join(&b'|')).unwrap());
            assert_eq!(words.as_deref(), Some(expected), "{line}");
        };
        check("e redis.call('get', \"a b\")", "e|redis.call('get', \"a b\")");
        check("eval  1 + 1", "eval| 1 + 1");
        check("redis get \"a b\"", "redis|get|a b");
        check("evalx 1", "evalx|1");
        assert_eq!(split(b"redis get \"a"), None);
    }

    #[test]
    fn lines_have_colors() {
        let check = |text: &str, code: &str| {
            assert_eq!(
                colored(text.as_bytes()),
                format!("\x1b[{code};49m{text}\x1b[0m").into_bytes(),
                "{text}"
            );
        };
        check("* Stopped at 1, stop reason = step over", "0;37");
        check("-> 1   local a", "0;33");
        check("  #2   local a", "1;37");
        check("   3   local a", "0;37");
        check("<reply> \"<error>\"", "0;31");
        check("<retval> 1", "0;35");
    }

    #[test]
    fn the_first_line_names_the_engine() {
        for (script, name) in [("return 1", "lua"), ("#!lua flags=no-writes\n", "lua"), ("#!hello", "hello")]
        {
            assert_eq!(engine(script.as_bytes()), name.as_bytes(), "{script}");
        }
    }
}
