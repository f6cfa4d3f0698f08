//! The two ends of this program: a person at a terminal, or a pipe.

use std::io::{self, IsTerminal, Read, Write};

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

use crate::text::reason;

/// True if replies are for eyes. `FAKETTY` says so for tests, which have only pipes.
pub fn out_is_terminal() -> bool {
    io::stdout().is_terminal() || std::env::var_os("FAKETTY").is_some()
}

pub fn in_is_terminal() -> bool {
    io::stdin().is_terminal()
}

/// Returns the width of the terminal that replies go to.
pub fn columns() -> usize {
    const USUAL: usize = 80;
    tcgetwinsize(io::stdout()).map_or(USUAL, |size| match size.ws_col {
        0 => USUAL,
        columns => usize::from(columns),
    })
}

pub fn has_color() -> bool {
    std::env::var("TERM").is_ok_and(|term| term.contains("xterm"))
}

/// Writes to standard output, at once. A reader that has gone (`| head`) ends the program, without a word.
pub fn put(bytes: impl AsRef<[u8]>) {
    let mut out = io::stdout().lock();
    if out.write_all(bytes.as_ref()).and_then(|()| out.flush()).is_err() {
        std::process::exit(1);
    }
}

/// Everything that standard input holds.
pub fn read_stdin() -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    io::stdin()
        .read_to_end(&mut bytes)
        .map_err(|why| format!("Reading from standard input: {}", reason(&why)))?;
    Ok(bytes)
}

/// While it lives, keys reach us one by one and are not shown.
pub struct KeyByKey(Termios);

impl KeyByKey {
    /// Turns line input and echo off. Returns `None` if standard input is not a terminal.
    pub fn begin() -> Option<KeyByKey> {
        let before = tcgetattr(io::stdin()).ok()?;
        let mut mode = before.clone();
        mode.local_modes -= LocalModes::ECHO | LocalModes::ICANON;
        tcsetattr(io::stdin(), OptionalActions::Now, &mode).ok()?;
        Some(KeyByKey(before))
    }
}

impl Drop for KeyByKey {
    fn drop(&mut self) {
        // A terminal that went away cannot be put right.
        tcsetattr(io::stdin(), OptionalActions::Now, &self.0).ok();
    }
}

/// Asks for a password; each of its characters is shown as a star.
pub fn ask_password(question: &str) -> Result<String, String> {
    let masked = KeyByKey::begin();
    if masked.is_some() {
        put(question);
    }
    let mut password = Vec::new();
    loop {
        let mut byte = [0];
        let count =
            io::stdin().read(&mut byte).map_err(|why| format!("Reading a password: {}", reason(&why)))?;
        match byte[0] {
            _ if count == 0 => break,
            b'\n' | b'\r' => break,
            0x7f | 0x08 => {
                if password.pop().is_some() && masked.is_some() {
                    put(b"\x08 \x08");
                }
            }
            other => {
                password.push(other);
                if masked.is_some() {
                    put(b"*");
                }
            }
        }
    }
    if masked.is_some() {
        put(b"\n");
    }
    String::from_utf8(password).map_err(|_| "The password is not UTF-8".to_string())
}
