//! Starting this program again: in the background (`daemonize yes`), or in this process with other options.
//!
//! A process of several threads cannot be forked halfway, and one that has not started yet has nothing to
//! keep: so the program starts itself again, in a session of its own and without a terminal, and ends. The
//! allocator's options, which are read before `main`, take another start too, which is `exec`: the process
//! stays, with the same number.

use std::ffi::OsString;
use std::io::{self, Seek, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::process::start_options::Environment;

/// Marks the second process as the second.
const MARK: &str = "ISOTHERM_DETACHED";

/// Returns whether this is the process in the background.
pub fn is_detached() -> bool {
    std::env::var_os(MARK).is_some()
}

/// The process in the background leaves the session that started it.
pub fn leave_session() {
    // It fails only for the leader of a session, and that one has nothing to leave.
    let _ = rustix::process::setsid();
}

/// Starts this program again with the same arguments, from `folder`, with `stdin` to read if that was read
/// before.
pub fn start_again(
    arguments: &[OsString],
    folder: &Path,
    stdin: Option<&[u8]>,
    environment: Environment,
) -> io::Result<()> {
    let mut child = again(arguments, folder, environment)?
        .env(MARK, "1")
        .stdin(if stdin.is_some() { Stdio::piped() } else { Stdio::null() })
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    match (child.stdin.take(), stdin) {
        (Some(mut pipe), Some(text)) => pipe.write_all(text),
        _ => Ok(()),
    }
}

/// Runs the program again in this process. Returns only if that fails.
pub fn become_again(
    arguments: &[OsString],
    folder: &Path,
    stdin: Option<&[u8]>,
    environment: Environment,
) -> io::Error {
    let run = || {
        let mut command = again(arguments, folder, environment)?;
        if let Some(text) = stdin {
            command.stdin(file_of(text)?);
        }
        Ok(command.exec())
    };
    run().unwrap_or_else(|error: io::Error| error)
}

fn again(arguments: &[OsString], folder: &Path, environment: Environment) -> io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(arguments).envs(environment).current_dir(folder);
    Ok(command)
}

/// A file without a name that has this text.
fn file_of(text: &[u8]) -> io::Result<std::fs::File> {
    let mut file =
        std::fs::File::from(rustix::fs::memfd_create("configuration", rustix::fs::MemfdFlags::CLOEXEC)?);
    file.write_all(text)?;
    file.rewind()?;
    Ok(file)
}
