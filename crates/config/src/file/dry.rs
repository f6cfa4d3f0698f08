//! Reading a configuration file without a trace: what its included files say, and whether a start could read
//! it.
//!
//! ```text
//! the file, beside a configuration of its own
//!   port 7000          passed over, or read           no log file is opened
//!   dir data           relative paths begin there     the process stays where it is
//!   include b.conf     read: its parameters and users are noted, with this line
//! ```
//! Choosing the line for each parameter is up to `rewrite`. This module knows nothing of it.

use super::{CheckUser, DIR, Given, Origin, Reader, Rename, StartError, UserWords, begun_lines};
use crate::Config;
use crate::params::{Id, Value};
use crate::value::os_error_text;
use isotherm_stdx::args_split::{Dialect, args_split};
use std::collections::BTreeMap;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Lines of the file itself, counted from 0, that include the last line about each.
#[derive(Default)]
pub struct Places {
    pub params: BTreeMap<Id, usize>,
    pub users: BTreeMap<Vec<u8>, usize>,
}

/// The words of included files.
pub struct Included {
    pub places: Places,
    /// Values that the parameters have by them alone.
    pub config: Config,
    pub users: Vec<UserWords>,
}

/// A text as a start would read it.
pub struct Tried {
    pub config: Config,
    pub users: Vec<UserWords>,
}

/// State of a reading that leaves no trace.
pub struct Dry {
    /// Working directory that a start would have by now.
    folder: PathBuf,
    /// Set where no line counts but those of included files, and `dir`, by which they are found.
    only_included: bool,
    /// Number of the line of the file itself.
    line: usize,
    places: Places,
}

impl Dry {
    fn new(folder: &Path, only_included: bool) -> Dry {
        Dry { folder: folder.to_owned(), only_included, line: 0, places: Places::default() }
    }
}

/// Reads the files that `text` includes. `folder`: working directory of a start.
pub fn read_included(text: &[u8], folder: &Path, check_user: CheckUser) -> Result<Included, StartError> {
    let config = Config::default();
    let mut no_rename = |_: &[u8], _: &[u8]| Ok(());
    let mut reader = Reader::new(&config, &mut no_rename, check_user, Some(Dry::new(folder, true)));
    reader.read(text)?;
    let places = reader.dry.take().map(|dry| dry.places).unwrap_or_default();
    let users = reader.into_users();
    Ok(Included { places, config, users })
}

/// Reads `text`, which is to replace `file`, as the next start would: with all that it includes, and then
/// standard input and the command line.
pub fn try_out(
    text: &[u8],
    file: &Origin,
    rename: &mut Rename<'_>,
    check_user: CheckUser,
) -> Result<Tried, StartError> {
    let config = Config::default();
    let mut reader = Reader::new(&config, rename, check_user, Some(Dry::new(&file.folder, false)));
    reader.given = Some(Given { from_line: begun_lines(text), folder: file.folder.clone() });
    reader.read(&[text, &file.given].concat())?;
    let users = reader.into_users();
    Ok(Tried { config, users })
}

impl Reader<'_> {
    /// Returns whether a line does not count; one of the file itself is noted as the one that is read.
    pub(super) fn passes_over(&mut self, at: usize, line: &[u8]) -> bool {
        let Some(dry) = self.dry.as_mut().filter(|_| self.depth == 0) else { return false };
        dry.line = at;
        let counts = |words: Vec<Vec<u8>>| {
            let name = words.first().map(Vec::as_slice).unwrap_or_default();
            [&b"include"[..], b"dir"].iter().any(|counts| name.eq_ignore_ascii_case(counts))
        };
        dry.only_included && !args_split(line, Dialect::File).is_ok_and(counts)
    }

    /// Returns where relative paths begin; empty for the working directory.
    pub(super) fn folder(&self) -> &Path {
        self.dry.as_ref().map_or(Path::new(""), |dry| &dry.folder)
    }

    /// Notes a parameter of an included file. Returns whether it was the working directory, which nothing but
    /// paths follows.
    pub(super) fn enters(&mut self, id: Id, arguments: &[&[u8]]) -> Result<bool, String> {
        let Some(dry) = &mut self.dry else { return Ok(false) };
        if self.depth > 0 {
            dry.places.params.insert(id, dry.line);
        }
        if id != DIR {
            return Ok(false);
        }
        let path = dry.folder.join(std::ffi::OsStr::from_bytes(arguments[0]));
        let folder = std::fs::canonicalize(&path)
            .map_err(|error| format!("dir '{}': {}", path.display(), os_error_text(&error)))?;
        if arguments[0].is_empty() || !folder.is_dir() {
            return Err(format!("dir '{}' is no folder", path.display()));
        }
        dry.folder.clone_from(&folder);
        self.config.store(id, Value::Text(folder.into_os_string().into_vec()));
        Ok(true)
    }

    pub(super) fn note_user(&mut self, name: &[u8]) {
        if let Some(dry) = self.dry.as_mut().filter(|_| self.depth > 0) {
            dry.places.users.insert(name.to_vec(), dry.line);
        }
    }
}

impl StartError {
    /// Returns the reason alone: no line of the file, which may hold a password.
    pub fn reason(&self) -> String {
        let text = match self {
            StartError::Config(text) => String::from_utf8_lossy(text).into_owned(),
            StartError::Log(line) => line.clone(),
        };
        text.trim_end().lines().next_back().unwrap_or_default().to_owned()
    }
}
