//! `isotherm-check-rdb` and `isotherm-check-aof`: whether files that a server has written can be read, and
//! where they cannot.
//!
//! ```text
//! isotherm-check-rdb  --> rdb::check  --> persist::rdb::file       what a server that loads the file would find
//! isotherm-check-aof  --> aof::check  --> persist::aof::{manifest, commit}
//!                             |
//!                             base with an RDB head --> rdb::check --> swap      what it refers to, if it is named (--swap-dir)
//! ```
//! The reports are Valkey's, so that scripts which read them go on working. Files are read in portions:
//! memory follows the longest string of an RDB file, and does not follow an AOF at all. No length from a file
//! takes memory before its bytes are there. Nothing is changed without `--fix` or `--truncate-to-timestamp`.

pub mod aof;
pub mod progress;
pub mod rdb;
pub mod swap;

use std::ffi::OsStr;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;

pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The program ends with this code; what there is to say was said.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ended(pub u8);

pub type Checked<T> = Result<T, Ended>;

/// Output of the report. If its reader is gone, the program ends silently, with an error's exit code.
pub struct Report<'o>(pub &'o mut dyn Write);

impl Report<'_> {
    /// Writes a line; `text` may hold bytes of the file.
    pub fn line(&mut self, text: impl AsRef<[u8]>) -> Checked<()> {
        self.put(text)?;
        self.put("\n")
    }

    pub fn put(&mut self, text: impl AsRef<[u8]>) -> Checked<()> {
        self.0.write_all(text.as_ref()).map_err(|_| Ended(1))
    }

    pub fn flush(&mut self) -> Checked<()> {
        self.0.flush().map_err(|_| Ended(1))
    }

    /// The last line of a program that failed.
    pub fn fail<T>(&mut self, text: impl AsRef<[u8]>) -> Checked<T> {
        self.line(text)?;
        Err(Ended(1))
    }
}

/// Returns the text of C's `strerror`, without the number that Rust adds.
pub fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_string()
}

/// A name as it was given.
pub fn bytes_of(name: &OsStr) -> &[u8] {
    name.as_bytes()
}

/// Returns the text as C prints it: a string ends at its first NUL.
fn c_string(text: &[u8]) -> &[u8] {
    text.split(|byte| *byte == 0).next().unwrap_or_default()
}
