//! `daemonize yes`: the server goes on in the background.
//!
//! A process of several threads cannot be forked halfway, and one that has not started yet has nothing to keep: so the
//! program starts itself again, in a session of its own and without a terminal, and ends.

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::Path;
use std::process::{Command, Stdio};

/// Tells the second process that it is the second.
const MARK: &str = "ISOTHERM_DETACHED";

/// Whether this is the process in the background.
pub fn is_detached() -> bool {
    std::env::var_os(MARK).is_some()
}

/// The process in the background leaves the session of whoever started it.
pub fn leave_session() {
    // It fails only for the leader of a session, and that one has nothing to leave.
    let _ = rustix::process::setsid();
}

/// Starts this program again with the same arguments, from `folder`, with `stdin` to read if that was read before.
pub fn start_again(arguments: &[OsString], folder: &Path, stdin: Option<&[u8]>) -> io::Result<()> {
    let mut child = Command::new(std::env::current_exe()?)
        .args(arguments)
        .env(MARK, "1")
        .current_dir(folder)
        .stdin(if stdin.is_some() { Stdio::piped() } else { Stdio::null() })
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    match (child.stdin.take(), stdin) {
        (Some(mut pipe), Some(text)) => pipe.write_all(text),
        _ => Ok(()),
    }
}
