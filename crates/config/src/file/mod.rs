//! The way to a configuration at start: the file, standard input and the command line, which are one text to
//! the parser, read line by line; the last word about a parameter counts.
//!
//! ```text
//! isotherm-server a.conf --port 7000 --bind 127.0.0.1 ::1 -
//!                 ^file  ^-------- lines "port 7000", "bind ..." ------^  ^ and standard input, before them
//! ```
//! `dry` reads a text without a trace, for CONFIG REWRITE.

pub mod dry;

use super::table::WORKERS_BY_CPUS;
use super::value::os_error_text;
use super::{Config, Id, PARAMS, find, id};
use dry::Dry;
use isotherm_acl::RuleError;
use isotherm_runtime::log;
use isotherm_stdx::args_split::{Dialect, args_split};
use std::ffi::OsString;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

pub const VERSION: &str = env!("CARGO_PKG_VERSION");

const DIR: Id = id("dir");
const WORKERS: Id = id("io-threads");
/// A file that includes itself ends here.
const INCLUDE_DEPTH_MAX: usize = 16;
const FILE_BYTES_MAX: u64 = 64 << 20;

/// Action that the arguments ask for.
pub enum Start {
    Run(Box<Loaded>),
    /// `--help`: print this and end.
    Say(&'static str),
    /// `--layout`: print the formats on disk and on the wire, and end.
    Layout,
    /// `--version`: print which this is, and end.
    Version,
}

pub struct Loaded {
    pub config: Config,
    /// Configuration file; `None` if none was named.
    pub file: Option<Origin>,
    /// Text from standard input, if that was to be read.
    pub stdin: Option<Vec<u8>>,
    pub users: Vec<UserWords>,
    /// True if nothing at all was configured, which deserves a line in the log.
    pub nothing_given: bool,
}

/// The file that a start read first.
#[derive(Clone)]
pub struct Origin {
    /// Absolute.
    pub path: PathBuf,
    /// Working directory at that start: relative paths of files that are included begin there.
    pub folder: PathBuf,
    /// Lines that follow it: standard input and the command line, which the next start is given too.
    pub given: Vec<u8>,
}

/// Words of a `user` line, after `user`.
pub type UserWords = Vec<Vec<u8>>;

/// Why the server does not start.
#[derive(PartialEq, Eq, Debug)]
pub enum StartError {
    /// Text for standard error.
    Config(Vec<u8>),
    /// A line of the log (level warning).
    Log(String),
}

/// Check of the words of a `user` line; an error says why they are refused. The caller supplies it, as the
/// configuration knows no commands.
pub type CheckUser = fn(&[&[u8]], &Config) -> Result<(), String>;

/// Gives a command another name, or none (`rename-command`); or says why not.
pub type Rename<'a> = dyn FnMut(&[u8], &[u8]) -> Result<(), &'static str> + 'a;

/// Reads everything. `arguments` without the program's own name. The commands' names are not the
/// configuration's: their owner changes them.
pub fn load(
    arguments: &[OsString],
    rename: &mut Rename<'_>,
    check_user: CheckUser,
) -> Result<Start, StartError> {
    let arguments: Vec<&[u8]> = arguments.iter().map(|argument| argument.as_bytes()).collect();
    match arguments.first() {
        Some(&b"-v" | &b"--version") => return Ok(Start::Version),
        Some(&b"--layout") => return Ok(Start::Layout),
        Some(&b"-h" | &b"--help") => return Ok(Start::Say(USAGE)),
        _ => {}
    }
    let (path, options) = match arguments.split_first() {
        Some((name, rest)) if !name.starts_with(b"-") => (Some(absolute(name)), rest),
        _ => (None, &arguments[..]),
    };
    let options = command_line(options, path.is_none());
    let folder = std::env::current_dir().unwrap_or_default();
    let config = Config::default();
    let mut text = Vec::new();
    if let Some(path) = &path {
        text = read_files(Path::new(""), path.as_os_str().as_bytes())?;
    }
    let file_len = text.len();
    let given = Given { from_line: begun_lines(&text), folder: folder.clone() };
    let mut stdin = options.stdin.then(Vec::new);
    if let Some(stdin) = &mut stdin {
        log::notice("Reading config from stdin");
        read_capped(std::io::stdin().lock(), Path::new("-"), stdin)?;
        if text.last().is_some_and(|last| *last != b'\n') {
            text.push(b'\n');
        }
        text.extend_from_slice(stdin);
    }
    text.push(b'\n');
    text.extend_from_slice(&options.lines);
    let mut reader = Reader::new(&config, rename, check_user, None);
    reader.given = path.is_some().then_some(given);
    reader.read(&text)?;
    let users = reader.into_users();
    let file = path.map(|path| Origin { path, folder, given: text.split_off(file_len) });
    if config.number(WORKERS) == WORKERS_BY_CPUS {
        config.set_number(WORKERS, std::thread::available_parallelism().map_or(1, |cpus| cpus.get() as i64));
    }
    Ok(Start::Run(Box::new(Loaded { config, file, stdin, users, nothing_given: arguments.is_empty() })))
}

const USAGE: &str = "\
Usage: ./isotherm-server [/path/to/isotherm.conf] [options] [-]
       ./isotherm-server - (read config from stdin)
       ./isotherm-server -v or --version
       ./isotherm-server -h or --help
       ./isotherm-server --layout     prints the formats on disk and on the wire

Examples:
       ./isotherm-server (run the server with default conf)
       echo 'maxmemory 128mb' | ./isotherm-server -
       ./isotherm-server /etc/isotherm/6379.conf
       ./isotherm-server --port 7777
       ./isotherm-server /etc/myisotherm.conf --loglevel verbose -
       ./isotherm-server /etc/myisotherm.conf --loglevel verbose
";

fn absolute(name: &[u8]) -> PathBuf {
    let path = Path::new(std::ffi::OsStr::from_bytes(name));
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

// ---- the command line ----

#[derive(Default, PartialEq, Eq, Debug)]
struct Options {
    /// Options as lines of a configuration file.
    lines: Vec<u8>,
    stdin: bool,
}

/// `--name` begins a line, everything else belongs to the line begun. A word right after a name is its value
/// even if it begins with dashes; so `--save --port 7000` would set `save` to "--port", and is an exception.
fn command_line(arguments: &[&[u8]], first_counts: bool) -> Options {
    let mut options = Options::default();
    let mut has_value = true;
    for (at, argument) in arguments.iter().enumerate() {
        let is_last = at + 1 == arguments.len();
        if *argument == b"-" && (is_last || (at == 0 && first_counts)) {
            options.stdin = true;
        } else if has_value && argument.starts_with(b"--") {
            if !options.lines.is_empty() {
                options.lines.push(b'\n');
            }
            options.lines.extend_from_slice(&argument[2..]);
            options.lines.push(b' ');
            let is_name_only = args_split(argument, Dialect::File).is_ok_and(|words| words.len() == 1);
            has_value = !is_name_only;
            if is_name_only && argument.eq_ignore_ascii_case(b"--save") {
                let name_follows = arguments.get(at + 1).is_some_and(|next| next.starts_with(b"--"));
                if is_last || name_follows {
                    options.lines.extend_from_slice(b"\"\"");
                    has_value = true;
                }
            }
        } else {
            quote(argument, &mut options.lines);
            options.lines.push(b' ');
            has_value = true;
        }
    }
    options
}

/// Any bytes as one word of a line.
pub(super) fn quote(word: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    for &byte in word {
        match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
            b' '..=b'~' => out.push(byte),
            // COMPAT(server): CONFIG REWRITE writes `\x0a` where Valkey writes `\n` in quoted values. Why:
            // both forms mean the same.
            _ => out.extend_from_slice(format!("\\x{byte:02x}").as_bytes()),
        }
    }
    out.push(b'"');
}

// ---- the file ----

/// Lines of a text that are read after a file: standard input and the command line, which win over it.
struct Given {
    /// Number of the first of them, counted from 0.
    from_line: usize,
    /// Working directory of the start.
    folder: PathBuf,
}

/// Place of a line among those about one user.
#[derive(Clone, Copy)]
struct Rank {
    is_given: bool,
    /// Files that include each other around it.
    depth: usize,
}

impl Rank {
    /// Returns whether a line after this one takes its place.
    fn gives_way_to(self, next: Rank) -> bool {
        match self.is_given == next.is_given {
            true => self.depth > next.depth,
            false => next.is_given,
        }
    }
}

/// Counts the lines of a text to which nothing can be added.
fn begun_lines(text: &[u8]) -> usize {
    let ended = text.iter().filter(|byte| **byte == b'\n').count();
    ended + usize::from(text.last().is_some_and(|last| *last != b'\n'))
}

/// Directives that once were and say nothing any more, with one value.
const DEPRECATED: [&[u8]; 7] = [
    b"list-max-ziplist-entries",
    b"list-max-ziplist-value",
    b"lua-replicate-commands",
    b"io-threads-do-reads",
    b"dynamic-hz",
    b"events-per-io-thread",
    b"sanitize-dump-payload",
];

struct Reader<'a> {
    config: &'a Config,
    rename: &'a mut Rename<'a>,
    depth: usize,
    /// Parameters of pairs that a line has named: the next one adds to its pairs, where the first replaces
    /// the default.
    named: Vec<Id>,
    users: Vec<(Rank, UserWords)>,
    check_user: CheckUser,
    /// Set where a file was read before them.
    given: Option<Given>,
    /// True while a line of the command line, or of a file that such a line includes, is read.
    is_given: bool,
    /// Without it this is a start.
    dry: Option<Dry>,
}

/// Error in the text of a configuration.
struct Wrong {
    /// Counted from 1, with its text; `None` if it is no line in particular.
    line: Option<(usize, Vec<u8>)>,
    reason: String,
}

impl Wrong {
    fn into_error(self) -> StartError {
        let mut text = format!("\n*** FATAL CONFIG FILE ERROR (Version {VERSION}) ***\n").into_bytes();
        if let Some((number, line)) = self.line {
            text.extend_from_slice(
                format!("Reading the configuration file, at line {number}\n>>> '").as_bytes(),
            );
            text.extend_from_slice(&line);
            text.extend_from_slice(b"'\n");
        }
        text.extend_from_slice(self.reason.as_bytes());
        text.push(b'\n');
        StartError::Config(text)
    }
}

impl<'a> Reader<'a> {
    fn new(
        config: &'a Config,
        rename: &'a mut Rename<'a>,
        check_user: CheckUser,
        dry: Option<Dry>,
    ) -> Reader<'a> {
        let (named, users) = (Vec::new(), Vec::new());
        Reader { config, rename, depth: 0, named, users, check_user, given: None, is_given: false, dry }
    }

    fn into_users(self) -> Vec<UserWords> {
        self.users.into_iter().map(|(_, words)| words).collect()
    }

    fn read(&mut self, text: &[u8]) -> Result<(), StartError> {
        for (at, line) in text.split(|&byte| byte == b'\n').enumerate() {
            if self.depth == 0 {
                self.is_given = self.given.as_ref().is_some_and(|given| at >= given.from_line);
            }
            let line = trim(line);
            if line.is_empty() || line.starts_with(b"#") || self.passes_over(at, line) {
                continue;
            }
            let wrong = |reason: String| Wrong { line: Some((at + 1, line.to_vec())), reason }.into_error();
            let words = args_split(line, Dialect::File)
                .map_err(|_| wrong("Unbalanced quotes in configuration line".into()))?;
            let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
            let Some((name, arguments)) = words.split_first() else { continue };
            if name.eq_ignore_ascii_case(b"include") && arguments.len() == 1 {
                self.include(arguments[0]).map_err(|error| match error {
                    IncludeError::TooDeep => wrong("Too many files include each other".into()),
                    IncludeError::Fatal(error) => error,
                })?;
                continue;
            }
            self.directive(name, arguments).map_err(wrong)?;
        }
        let wrong = |reason: String| Wrong { line: None, reason }.into_error();
        if self.dry.is_none() {
            check_log_file(self.config).map_err(wrong)?;
        }
        check_together(self.config).map_err(|reason| wrong(reason.into()))
    }

    fn directive(&mut self, name: &[u8], arguments: &[&[u8]]) -> Result<(), String> {
        if let Some((id, _)) = find(name) {
            let multi_arg = PARAMS[id.index()].flags.multi_arg;
            let split;
            let arguments = match arguments {
                [single] if multi_arg && !single.is_empty() => {
                    split = args_split(single, Dialect::File).unwrap_or_default();
                    split.iter().map(Vec::as_slice).collect()
                }
                _ => arguments.to_vec(),
            };
            let before = self.config.text(id);
            let arguments = match PARAMS[id.index()].name {
                "save" | "swap-load-rule" => self.with_pairs(id, &before, arguments),
                _ => arguments,
            };
            if !multi_arg && arguments.len() != 1 {
                return Err("wrong number of arguments".into());
            }
            let from_start = self.folder_at_start(id, &arguments);
            let arguments = from_start.as_ref().map_or(arguments, |path| vec![path.as_os_str().as_bytes()]);
            if self.enters(id, &arguments)? {
                return Ok(());
            }
            self.config.set_arguments(id, &arguments).map_err(|reason| reason.into_owned())?;
            return Ok(());
        }
        let name = name.to_ascii_lowercase();
        if arguments.len() == 1 && DEPRECATED.contains(&name.as_slice()) {
            return Ok(());
        }
        if name == b"user" && !arguments.is_empty() {
            return self.add_user(arguments);
        }
        if name == b"rename-command" && arguments.len() == 2 {
            return (self.rename)(arguments[0], arguments[1]).map_err(String::from);
        }
        let reason = match (name.as_slice(), arguments.len()) {
            // COMPAT(server): The directive `loadmodule` stops the start with an error. Why: what it asks for
            // does not exist here, and to ignore it could open what was meant to be closed.
            (b"loadmodule", 1..) => "there are no modules",
            // Valkey would become another program; to become a store instead would be a surprise.
            (b"sentinel", 0) => "there is no sentinel mode",
            (b"sentinel", _) => "sentinel directive while not in sentinel mode",
            (name, 0) if name.contains(&b'.') => "Module config specified without value",
            (name, _) if name.contains(&b'.') => "there are no modules",
            _ => "Bad directive or wrong number of arguments",
        };
        Err(reason.into())
    }

    // COMPAT(server): A relative `dir` of the command line begins where the server was started, whatever
    // `dir` the configuration file names, and so do names of files that it includes, if they are there; in
    // Valkey both begin in that `dir`. Why: CONFIG REWRITE writes the folder into the file, and the next
    // start, with the same command line, would look below it.
    /// Returns the folder that a line of the command line names.
    fn folder_at_start(&self, id: Id, arguments: &[&[u8]]) -> Option<PathBuf> {
        let given = self.given.as_ref().filter(|_| self.is_given && self.depth == 0 && id == DIR)?;
        let path = arguments.first().filter(|path| !path.is_empty())?;
        Some(given.folder.join(std::ffi::OsStr::from_bytes(path)))
    }

    // COMPAT(server): A `user` line takes the place of that of a file included before it, and one of the
    // command line, or of a file included there, that of the configuration file; else the second of two ends
    // the start, as any does in Valkey. Why: CONFIG REWRITE writes all users that have changed, or that came
    // by the command line, and the file is for the next start.
    /// Adds the words of a `user` line. The user is made from them once the commands are known.
    fn add_user(&mut self, words: &[&[u8]]) -> Result<(), String> {
        let rank = Rank { is_given: self.is_given, depth: self.depth };
        let before = self.users.iter().position(|(_, user)| user[0] == words[0]);
        if before.is_some_and(|at| !self.users[at].0.gives_way_to(rank)) {
            return Err(user_error(words[0], RuleError::DuplicateUser.text()));
        }
        (self.check_user)(words, self.config)?;
        let user = (rank, words.iter().map(|word| word.to_vec()).collect());
        match before {
            Some(at) => self.users[at] = user,
            None => self.users.push(user),
        }
        self.note_user(words[0]);
        Ok(())
    }

    /// The arguments of a line `save`, after those of the lines before it. `save ""` forgets these.
    fn with_pairs<'t>(&mut self, id: Id, before: &'t [u8], arguments: Vec<&'t [u8]>) -> Vec<&'t [u8]> {
        let adds = self.named.contains(&id) && !before.is_empty();
        self.named.push(id);
        if !adds || matches!(&arguments[..], [only] if only.is_empty()) {
            return arguments;
        }
        before.split(|&byte| byte == b' ').chain(arguments).collect()
    }

    /// Returns the folder in which the files of an `include` are: for the command line that in which the
    /// server was started, if it has one of them.
    fn folder_with(&self, pattern: &[u8]) -> &Path {
        let is_there = |path: &PathBuf| !matches!(path.try_exists(), Ok(false));
        let given = self.given.as_ref().filter(|_| self.is_given).map(|given| given.folder.as_path());
        given.filter(|folder| paths_of(folder, pattern).iter().any(is_there)).unwrap_or_else(|| self.folder())
    }

    fn include(&mut self, pattern: &[u8]) -> Result<(), IncludeError> {
        if self.depth == INCLUDE_DEPTH_MAX {
            return Err(IncludeError::TooDeep);
        }
        let text = read_files(self.folder_with(pattern), pattern).map_err(IncludeError::Fatal)?;
        self.depth += 1;
        let result = self.read(&text).map_err(IncludeError::Fatal);
        self.depth -= 1;
        result
    }
}

fn user_error(word: &[u8], why: &str) -> String {
    format!("Error in user declaration '{}': {why}", String::from_utf8_lossy(word))
}

enum IncludeError {
    TooDeep,
    Fatal(StartError),
}

/// Says which parameters do not go together though each alone is fine.
fn check_together(config: &Config) -> Result<(), &'static str> {
    const REPLICA_OF: Id = id("replicaof");
    match config.is_clustered() && !config.text(REPLICA_OF).is_empty() {
        true => Err("replicaof directive not allowed in cluster mode"),
        false => Ok(()),
    }
}

/// Opens the log file once, so that a file that cannot be written is reported while the start still has a way
/// to report it.
fn check_log_file(config: &Config) -> Result<(), String> {
    let Some(path) = config.log_file() else { return Ok(()) };
    let opened = std::fs::OpenOptions::new().append(true).create(true).open(path);
    opened.map(drop).map_err(|error| format!("Can't open the log file: {}", os_error_text(&error)))
}

fn trim(line: &[u8]) -> &[u8] {
    let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\r' | b'\n');
    let start = line.iter().take_while(|byte| is_blank(byte)).count();
    let end = line.len() - line[start..].iter().rev().take_while(|byte| is_blank(byte)).count();
    &line[start..end]
}

// ---- reading files ----

/// Reads one file, or all files that match a pattern. A pattern may match none: an empty conf.d is no error.
/// `folder`: where a relative path begins; empty for the working directory.
fn read_files(folder: &Path, pattern: &[u8]) -> Result<Vec<u8>, StartError> {
    let mut text = Vec::new();
    for path in paths_of(folder, pattern) {
        if !text.is_empty() && !text.ends_with(b"\n") {
            text.push(b'\n');
        }
        let file = std::fs::File::open(&path).map_err(|error| cannot_open(&path, &error))?;
        read_capped(file, &path, &mut text)?;
    }
    Ok(text)
}

/// Returns the paths that an `include` names; they need not exist.
fn paths_of(folder: &Path, pattern: &[u8]) -> Vec<PathBuf> {
    match pattern.iter().any(|byte| b"*?[".contains(byte)) {
        true => matching_paths(folder, pattern),
        false => vec![folder.join(std::ffi::OsStr::from_bytes(pattern))],
    }
}

fn read_capped(source: impl Read, path: &Path, text: &mut Vec<u8>) -> Result<(), StartError> {
    let before = text.len();
    source.take(FILE_BYTES_MAX + 1).read_to_end(text).map_err(|error| cannot_open(path, &error))?;
    if (text.len() - before) as u64 > FILE_BYTES_MAX {
        return Err(StartError::Log(format!("Fatal error, config file '{}' is too large", path.display())));
    }
    Ok(())
}

fn cannot_open(path: &Path, error: &std::io::Error) -> StartError {
    StartError::Log(format!(
        "Fatal error, can't open config file '{}': {}",
        path.display(),
        os_error_text(error)
    ))
}

/// Existing paths that fit a pattern, sorted. Hidden files need a pattern that begins with a dot.
fn matching_paths(folder: &Path, pattern: &[u8]) -> Vec<PathBuf> {
    let root = if pattern.starts_with(b"/") { PathBuf::from("/") } else { folder.to_owned() };
    let mut found = vec![root];
    for part in pattern.split(|&byte| byte == b'/').filter(|part| !part.is_empty()) {
        found = found.iter().flat_map(|folder| matching_entries(folder, part)).collect();
    }
    found.sort();
    found
}

fn matching_entries(folder: &Path, part: &[u8]) -> Vec<PathBuf> {
    if !part.iter().any(|byte| b"*?[".contains(byte)) {
        let path = folder.join(std::ffi::OsStr::from_bytes(part));
        return if path.exists() { vec![path] } else { Vec::new() };
    }
    let listed = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let Ok(entries) = std::fs::read_dir(listed) else { return Vec::new() };
    let names = entries.filter_map(|entry| entry.ok().map(|entry| entry.file_name()));
    let fits = |name: &OsString| {
        let name = name.as_bytes();
        (part.starts_with(b".") || !name.starts_with(b".")) && isotherm_stdx::glob_match(part, name, false)
    };
    names.filter(fits).map(|name| folder.join(name)).collect()
}

#[cfg(test)]
mod tests;
