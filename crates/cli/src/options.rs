//! The command line of `isotherm-cli`.
//!
//! Read by hand, as valkey-cli reads its own: options end at the first word without a dash, and what follows
//! is the command, dashes and all. Words are bytes: a command's argument may be anything.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::time::Duration;

use isotherm_stdx::args_split::{Dialect, args_split};

use crate::address::{Address, Login, parse_uri};
use crate::cluster::choices::Choices;
use crate::connection::{Dial, Family};
use crate::modes::transfer::Part;
use crate::render::{Format, Style};
use crate::text::{leading_f64, leading_i64};
use crate::tls::TlsOptions;
use crate::usage::USAGE;

/// Mode in which the program runs.
#[derive(Clone, PartialEq, Debug)]
pub enum Mode {
    /// Runs the command, or talks to a person if there is none.
    Commands,
    Pipe,
    Stat,
    Latency {
        history: bool,
    },
    LatencySpectrum,
    IntrinsicLatency {
        seconds: i64,
    },
    BigKeys,
    MemoryKeys {
        samples: i64,
    },
    HotKeys {
        count: usize,
    },
    Scan,
    LruTest {
        keys: i64,
    },
    Eval {
        file: PathBuf,
    },
    /// The data, or a part of it, into a file.
    Rdb {
        path: String,
        part: Part,
    },
    /// Each command that a replica gets.
    Replica,
    /// Hint to be printed for this input.
    HintOf(String),
    HintSuite(PathBuf),
    /// The cluster manager.
    Cluster,
}

/// Place where a script is debugged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Debug {
    /// Copy of the server, whose changes are dropped.
    Forked,
    /// Server itself.
    Sync,
}

/// Part of the command that is read from standard input.
#[derive(Clone, PartialEq, Debug)]
pub enum FromStdin {
    No,
    LastArgument,
    Tag(Vec<u8>),
}

/// Protocol to begin with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WantedProtocol {
    AsServer,
    Resp2,
    Resp3,
    /// RESP3, but RESP2 will do: JSON output looks better with maps.
    PreferResp3,
}

#[derive(Clone, Debug)]
pub struct Options {
    pub mode: Mode,
    pub address: Address,
    pub login: Login,
    pub db: i64,
    pub dial: Dial,
    pub protocol: WantedProtocol,
    pub style: Style,
    /// True if unexpected pushes are shown.
    pub show_pushes: bool,
    /// Number of times to run the command; a negative number means forever.
    pub repeat: i64,
    pub interval: Duration,
    pub stdin: FromStdin,
    pub quoted_input: bool,
    /// Follow MOVED and ASK.
    pub cluster: bool,
    /// An error reply ends the program with 1.
    pub fail_on_error: bool,
    pub verbose: bool,
    pub ask_password: bool,
    pub pattern: Option<Vec<u8>>,
    pub count: i64,
    pub type_name: Option<Vec<u8>>,
    pub pipe_timeout: Duration,
    /// The script of `Mode::Eval` is debugged.
    pub debug: Option<Debug>,
    /// The spectrum in grey.
    pub mono: bool,
    /// `--cluster`.
    pub manager: Choices,
    pub command: Vec<Vec<u8>>,
}

/// Result of reading the command line, if it is not options.
#[derive(PartialEq, Debug)]
pub enum Ending {
    Usage,
    Version,
    Wrong(String),
}

const HOT_KEYS_COUNT: usize = 16;
const PIPE_TIMEOUT: Duration = Duration::from_secs(30);
const HOT_KEYS_MAX: i64 = 1 << 20;

impl Options {
    pub fn new(for_eyes: bool) -> Options {
        Options {
            mode: Mode::Commands,
            address: Address::tcp("127.0.0.1", 6379),
            login: Login::default(),
            db: 0,
            dial: Dial::default(),
            protocol: WantedProtocol::AsServer,
            style: Style::new(if for_eyes { Format::Standard } else { Format::Raw }),
            show_pushes: for_eyes,
            repeat: 1,
            interval: Duration::ZERO,
            stdin: FromStdin::No,
            quoted_input: false,
            cluster: false,
            fail_on_error: false,
            verbose: false,
            ask_password: false,
            pattern: None,
            count: 10,
            type_name: None,
            pipe_timeout: PIPE_TIMEOUT,
            debug: None,
            mono: false,
            manager: Choices::default(),
            command: Vec::new(),
        }
    }

    pub fn parse(args: impl IntoIterator<Item = OsString>, for_eyes: bool) -> Result<Options, Ending> {
        let mut reading = Reading {
            words: args.into_iter().map(OsString::into_vec).collect(),
            at: 0,
            options: Options::new(for_eyes),
            two: false,
            three: false,
            prefer_three: false,
            no_auth_warning: false,
            tls: TlsOptions::default(),
        };
        while reading.at < reading.words.len() && reading.option()? {}
        reading.finish()
    }
}

struct Reading {
    words: Vec<Vec<u8>>,
    at: usize,
    options: Options,
    two: bool,
    three: bool,
    prefer_three: bool,
    no_auth_warning: bool,
    tls: TlsOptions,
}

fn wrong<T>(why: impl Into<String>) -> Result<T, Ending> {
    Err(Ending::Wrong(why.into()))
}

impl Reading {
    /// Takes one option with its value; false at the first word of the command.
    fn option(&mut self) -> Result<bool, Ending> {
        let word = String::from_utf8_lossy(&self.words[self.at]).into_owned();
        if !word.starts_with('-') {
            let args =
                if self.is_manager() { self.options.manager.take_args(&self.words[self.at..]) } else { 0 };
            self.at += args;
            return Ok(args > 0);
        }
        self.at += 1;
        let known = self.switch(&word)?
            || self.connection_value(&word)?
            || self.mode_value(&word)?
            || self.manager_option(&word)?;
        if !known {
            return wrong(format!("Unrecognized option or bad number of args for: '{word}'"));
        }
        Ok(true)
    }

    fn is_manager(&self) -> bool {
        !self.options.manager.command.is_empty()
    }

    fn manager_option(&mut self, word: &str) -> Result<bool, Ending> {
        let rest = &self.words[self.at..];
        if word == "--cluster" && (rest.is_empty() || self.is_manager()) {
            return wrong(USAGE);
        }
        let taken = self.options.manager.take(word, rest).map_err(Ending::Wrong)?;
        self.at += taken.unwrap_or(0);
        Ok(taken.is_some())
    }

    /// Returns whether a word follows an option.
    fn has_value(&self) -> bool {
        self.at < self.words.len()
    }

    fn bytes(&mut self) -> Vec<u8> {
        self.at += 1;
        self.words[self.at - 1].clone()
    }

    fn text(&mut self) -> String {
        String::from_utf8_lossy(&self.bytes()).into_owned()
    }

    fn number(&mut self) -> i64 {
        leading_i64(&self.text())
    }

    fn path(&mut self) -> PathBuf {
        OsString::from_vec(self.bytes()).into()
    }

    /// Options without a value.
    fn switch(&mut self, word: &str) -> Result<bool, Ending> {
        let last = !self.has_value();
        let options = &mut self.options;
        match word {
            "-h" if last => return Err(Ending::Usage),
            "--help" => return Err(Ending::Usage),
            "-v" | "--version" => return Err(Ending::Version),
            "-x" => match options.stdin {
                FromStdin::Tag(_) => return wrong("Options -x and -X are mutually exclusive."),
                _ => options.stdin = FromStdin::LastArgument,
            },
            "--no-auth-warning" => self.no_auth_warning = true,
            "--askpass" => options.ask_password = true,
            "--raw" => options.style.format = Format::Raw,
            "--no-raw" => options.style.format = Format::Standard,
            "--csv" => options.style.format = Format::Csv,
            "--json" => {
                options.style.format = Format::Json;
                self.prefer_three = true;
            }
            "--quoted-json" => {
                options.style.format = Format::QuotedJson;
                self.prefer_three = true;
            }
            "--quoted-input" => options.quoted_input = true,
            "--latency" => {
                let history = matches!(options.mode, Mode::Latency { history: true });
                options.mode = Mode::Latency { history };
            }
            "--latency-history" => options.mode = Mode::Latency { history: true },
            "--latency-dist" => options.mode = Mode::LatencySpectrum,
            "--mono" => options.mono = true,
            "--ldb" => options.debug = options.debug.or(Some(Debug::Forked)),
            "--ldb-sync-mode" => options.debug = Some(Debug::Sync),
            "--stat" => options.mode = Mode::Stat,
            "--scan" => options.mode = Mode::Scan,
            "--pipe" => options.mode = Mode::Pipe,
            "--replica" | "--slave" => options.mode = Mode::Replica,
            "--bigkeys" => options.mode = Mode::BigKeys,
            "--memkeys" => options.mode = Mode::MemoryKeys { samples: 0 },
            "--hotkeys" => options.mode = Mode::HotKeys { count: HOT_KEYS_COUNT },
            "-c" => options.cluster = true,
            "-e" => options.fail_on_error = true,
            "--verbose" => options.verbose = true,
            "-2" => self.two = true,
            "-3" => self.three = true,
            "-4" => match options.dial.family {
                Family::V6 => return wrong("Options -4 and -6 are mutually exclusive."),
                _ => options.dial.family = Family::V4,
            },
            "-6" => match options.dial.family {
                Family::V4 => return wrong("Options -4 and -6 are mutually exclusive."),
                _ => options.dial.family = Family::V6,
            },
            _ => return Ok(self.tls.switch(word)),
        }
        Ok(true)
    }

    /// Options with a value that say where and how to connect.
    fn connection_value(&mut self, word: &str) -> Result<bool, Ending> {
        if !self.has_value() {
            return Ok(false);
        }
        match word {
            "-h" => {
                let host = self.text();
                let port = self.port();
                self.options.address = Address::Tcp { host, port };
            }
            "-p" => {
                let text = self.text();
                let port = leading_i64(&text);
                match u16::try_from(port) {
                    Ok(port) if port > 0 || text == "0" => self.set_port(port),
                    _ => return wrong("Invalid server port."),
                }
            }
            "-s" => self.options.address = Address::Unix(self.path()),
            "-t" => {
                let seconds: f64 = self.text().parse().unwrap_or(-1.0);
                match Duration::try_from_secs_f64(seconds) {
                    Ok(timeout) => self.options.dial.timeout = (!timeout.is_zero()).then_some(timeout),
                    Err(_) => return wrong("Invalid connection timeout for -t."),
                }
            }
            "-n" => self.options.db = self.number(),
            _ if TlsOptions::takes_value(word) => {
                let value = self.text();
                self.tls.value(word, &value);
            }
            "-a" | "--pass" => self.options.login.password = Some(self.text()),
            "--user" => self.options.login.user = Some(self.text()),
            "-u" => {
                let uri = self.text();
                self.apply_uri(&uri)?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn port(&self) -> u16 {
        match self.options.address {
            Address::Tcp { port, .. } => port,
            Address::Unix(_) => 6379,
        }
    }

    fn set_port(&mut self, new: u16) {
        if let Address::Tcp { port, .. } = &mut self.options.address {
            *port = new;
        }
    }

    fn apply_uri(&mut self, uri: &str) -> Result<(), Ending> {
        let uri = parse_uri(uri).map_err(Ending::Wrong)?;
        if let Some(host) = uri.host {
            let port = self.port();
            self.options.address = Address::Tcp { host, port };
        }
        if let Some(port) = uri.port {
            match u16::try_from(port) {
                Ok(port) => self.set_port(port),
                Err(_) => return wrong("Invalid server port."),
            }
        }
        self.tls.is_on |= uri.is_tls;
        let login = &mut self.options.login;
        login.user = uri.user.or(login.user.take());
        login.password = uri.password.or(login.password.take());
        self.options.db = uri.db.unwrap_or(self.options.db);
        Ok(())
    }

    /// Options with a value that say what to do.
    fn mode_value(&mut self, word: &str) -> Result<bool, Ending> {
        if !self.has_value() {
            return Ok(false);
        }
        match word {
            "-X" => {
                let tag = self.bytes();
                if self.options.stdin == FromStdin::LastArgument {
                    return wrong("Options -x and -X are mutually exclusive.");
                }
                self.options.stdin = FromStdin::Tag(tag);
            }
            "-r" => self.options.repeat = self.number(),
            "-i" => {
                let seconds = leading_f64(&self.text());
                self.options.interval = Duration::try_from_secs_f64(seconds).unwrap_or_default();
            }
            "-d" => self.options.style.part_end = self.bytes(),
            "-D" => self.options.style.reply_end = self.bytes(),
            "--show-pushes" => {
                let value = self.text();
                match value.chars().next().map(|character| character.to_ascii_lowercase()) {
                    Some('n') => self.options.show_pushes = false,
                    Some('y') => self.options.show_pushes = true,
                    _ => eprintln!("Unknown --show-pushes value '{value}' (valid: '[y]es', '[n]o')"),
                }
            }
            "--pattern" => self.options.pattern = Some(self.bytes()),
            "--quoted-pattern" => {
                let Some(pattern) = unquote(&self.bytes()) else {
                    return wrong("Invalid quoted string specified for --quoted-pattern.");
                };
                self.options.pattern = Some(pattern);
            }
            "--count" => self.options.count = self.number(),
            // COMPAT(tools): isotherm-cli --scan takes --type. Why: SCAN does.
            "--type" => self.options.type_name = Some(self.bytes()),
            "--memkeys-samples" => self.options.mode = Mode::MemoryKeys { samples: self.number() },
            "--hotkeys-count" => {
                let count = self.number().clamp(0, HOT_KEYS_MAX) as usize;
                self.options.mode = Mode::HotKeys { count };
            }
            "--lru-test" => self.options.mode = Mode::LruTest { keys: self.number() },
            "--intrinsic-latency" => self.options.mode = Mode::IntrinsicLatency { seconds: self.number() },
            "--pipe-timeout" => {
                self.options.pipe_timeout = Duration::from_secs(self.number().max(0).unsigned_abs());
            }
            "--eval" => self.options.mode = Mode::Eval { file: self.path() },
            "--rdb" | "--functions-rdb" => {
                let part = if word == "--rdb" { Part::All } else { Part::Functions };
                if matches!(&self.options.mode, Mode::Rdb { part: before, .. } if *before != part) {
                    return wrong("Option --functions-rdb and --rdb are mutually exclusive.");
                }
                self.options.mode = Mode::Rdb { path: self.text(), part };
            }
            "--test_hint" => self.options.mode = Mode::HintOf(self.text()),
            "--test_hint_file" => self.options.mode = Mode::HintSuite(self.path()),
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn finish(mut self) -> Result<Options, Ending> {
        let mut options = self.options;
        options.command = self.words.split_off(self.at);
        if !options.manager.command.is_empty() {
            options.mode = Mode::Cluster;
            options.cluster = true;
        }
        options.manager.finish();
        if options.cluster && matches!(options.address, Address::Unix(_)) {
            return wrong("Options -c and -s are mutually exclusive.");
        }
        if self.two && self.three {
            return wrong("Options -2 and -3 are mutually exclusive.");
        }
        if options.debug.is_some() && !matches!(options.mode, Mode::Eval { .. }) {
            return wrong("Options --ldb and --ldb-sync-mode require --eval.");
        }
        options.protocol = match (self.two, self.three, self.prefer_three) {
            (true, _, _) => WantedProtocol::Resp2,
            (_, true, _) => WantedProtocol::Resp3,
            (_, _, true) => WantedProtocol::PreferResp3,
            _ => WantedProtocol::AsServer,
        };
        options.dial.shuffle = options.cluster;
        options.dial.tls = self.tls.finish().map_err(Ending::Wrong)?;
        if options.login.password.is_some() && !self.no_auth_warning {
            eprintln!(
                "Warning: Using a password with '-a' or '-u' option on the command line interface may not be safe."
            );
        }
        options.login.password = options.login.password.or_else(|| ours_or_theirs("AUTH"));
        Ok(options)
    }
}

/// The environment's word for us: `ISOTHERMCLI_AUTH`, or under the names that machines with Valkey or Redis
/// have set already.
pub fn ours_or_theirs(name: &str) -> Option<String> {
    // COMPAT(tools): Environment variables and files of isotherm-cli have names of their own
    // (`ISOTHERMCLI_AUTH`, `~/.isothermcli_history`, `~/.isothermclirc`); `VALKEYCLI_*` and `REDISCLI_*` are
    // read too. Messages name isotherm-cli and Isotherm. Why: both tools can be used on one machine.
    ["ISOTHERMCLI", "VALKEYCLI", "REDISCLI"]
        .iter()
        .find_map(|tool| std::env::var_os(format!("{tool}_{name}")))
        .map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
}

/// The one argument that a quoted text stands for.
pub fn unquote(text: &[u8]) -> Option<Vec<u8>> {
    let mut args = args_split(text, Dialect::File).ok()?;
    if args.len() == 1 { args.pop() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Options, Ending> {
        Options::parse(line.split_whitespace().map(OsString::from), true)
    }

    #[test]
    fn options_end_at_the_command() {
        let options = parse("-h there -p 7 -n 3 -r -1 -i 0.5 -3 --csv set -x --raw").unwrap();
        assert_eq!(options.address, Address::tcp("there", 7));
        assert_eq!((options.db, options.repeat, options.interval), (3, -1, Duration::from_millis(500)));
        assert_eq!((options.protocol, options.style.format), (WantedProtocol::Resp3, Format::Csv));
        assert_eq!(options.command, [b"set".to_vec(), b"-x".to_vec(), b"--raw".to_vec()]);
        for odd in ["-1", "nan", "inf", "x"] {
            assert_eq!(parse(&format!("-i {odd} get k")).unwrap().interval, Duration::ZERO, "{odd}");
        }
        assert_eq!(parse("--json get k").unwrap().protocol, WantedProtocol::PreferResp3);
        assert_eq!(parse("--json -2 get k").unwrap().protocol, WantedProtocol::Resp2);
    }

    #[test]
    fn a_uri_leaves_alone_what_it_does_not_say() {
        let options = parse("-p 7 -n 4 -u redis://h").unwrap();
        assert_eq!((options.address, options.db), (Address::tcp("h", 7), 4));
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (line, why) in [
            ("-X", "Unrecognized option or bad number of args for: '-X'"),
            ("--nonsense 1", "Unrecognized option or bad number of args for: '--nonsense'"),
            ("-x -X tag", "Options -x and -X are mutually exclusive."),
            ("-X tag -x", "Options -x and -X are mutually exclusive."),
            ("-p 65536", "Invalid server port."),
            ("-p x", "Invalid server port."),
            ("-t x", "Invalid connection timeout for -t."),
            ("-2 -3", "Options -2 and -3 are mutually exclusive."),
            ("-4 -6", "Options -4 and -6 are mutually exclusive."),
            ("--ldb", "Options --ldb and --ldb-sync-mode require --eval."),
            ("-c -s x", "Options -c and -s are mutually exclusive."),
            ("--quoted-pattern \"a", "Invalid quoted string specified for --quoted-pattern."),
        ] {
            assert_eq!(parse(line).err(), Some(Ending::Wrong(why.to_string())), "{line}");
        }
        assert_eq!(parse("-h").err(), Some(Ending::Usage));
        assert_eq!(parse("-x -v").err(), Some(Ending::Version));
    }

    #[test]
    fn quoted_words() {
        assert_eq!(unquote(b"\"a\\x00\""), Some(b"a\0".to_vec()));
        assert_eq!(unquote(b"\"a\" \"b\""), None);
        assert_eq!(unquote(b"\"a"), None);
    }
}
