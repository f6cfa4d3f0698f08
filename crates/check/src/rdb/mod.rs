//! Checking an RDB file: each of its items is parsed as a server would, and nothing of it is kept.
//!
//! ```text
//! [offset 0] Checking RDB file dump.rdb
//! [offset 27] AUX FIELD valkey-ver = '9.1.2'         behind the item
//! [offset 74] Selecting DB ID 0
//! [offset 1042] Checksum OK
//! [offset 1042] \o/ RDB looks OK! \o/
//! [info] 13 keys read
//! ```
//! Checks beyond the sum: versions, types, lengths, the insides of packed values, elements that come twice,
//! the ids and groups of streams. So a file that was written without a sum is not believed either.

pub mod histogram;
mod repeats;
pub mod stats;

use isotherm_persist::Limits;
use isotherm_persist::rdb::file::{
    FileCause, FileError, FileReader, FileVersion, Item, Options, Piece, SWAP_KEY_SECRET, SWAP_LOG, Step,
};
use isotherm_persist::rdb::is_foreign;
use std::io::{self, Read};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::progress::Progress;
use crate::swap::SwapDir;
use crate::{Checked, Report, c_string};
use repeats::Repeats;
use stats::Stats;

/// Read at once.
const PORTION_BYTES: usize = 128 << 10;
/// The latest version of Valkey 9.
const VERSION_MAX: u16 = 80;
const MAGIC_BYTES: u64 = 9;
const SUM_BYTES: u64 = 8;

/// Result of a check, and the end of the file.
pub struct Outcome {
    pub is_sound: bool,
    /// Bytes of the input that are the RDB file's.
    pub bytes: u64,
    pub stats: Stats,
}

/// Counts of the file's contents.
#[derive(Default)]
struct Counts {
    keys: u64,
    expires: u64,
    already_expired: u64,
    functions: u64,
    lua_scripts: u64,
    /// Their values are in a swap-dir.
    cold: u64,
}

/// A fault as it is reported.
struct Fault {
    offset: u64,
    text: String,
    doing: &'static str,
    key: Option<Vec<u8>>,
    type_code: Option<u8>,
}

/// Checks the base of an append-only file, which may refer to values in a swap-dir. These values are checked
/// if `swap` is given.
pub fn check_base(
    report: &mut Report<'_>,
    name: &[u8],
    input: &mut dyn Read,
    progress: &mut Progress,
    swap: Option<&mut SwapDir>,
) -> Checked<Outcome> {
    let options = options(true);
    check_with(report, name, input, progress, Check { swap, ..Check::new(options, false) })
}

/// Checks `input` to the end of its RDB part. `wants_stats`: of each database and type, for `--stats`.
pub fn check(
    report: &mut Report<'_>,
    name: &[u8],
    input: &mut dyn Read,
    progress: &mut Progress,
    wants_stats: bool,
) -> Checked<Outcome> {
    check_with(report, name, input, progress, Check::new(options(false), wants_stats))
}

fn options(references: bool) -> Options {
    let limits = Limits { text_bytes_max: u64::from(u32::MAX), unfolded_bytes_max: u64::MAX };
    Options { limits, strict_version: false, checksum: true, references }
}

fn check_with(
    report: &mut Report<'_>,
    name: &[u8],
    input: &mut dyn Read,
    progress: &mut Progress,
    mut check: Check<'_>,
) -> Checked<Outcome> {
    report.line([b"[offset 0] Checking RDB file ".as_slice(), c_string(name)].concat())?;
    let fault = check.run(report, input, progress)?;
    progress.clear();
    if let Some(fault) = &fault {
        check.show_fault(report, fault)?;
    }
    check.conclude(report, fault.as_ref())
}

struct Check<'s> {
    reader: FileReader,
    counts: Counts,
    repeats: Repeats,
    stats: Stats,
    is_version_shown: bool,
    has_sum: bool,
    /// The key that more pieces belong to was counted.
    is_within_key: bool,
    now_ms: i64,
    swap: Option<&'s mut SwapDir>,
}

impl<'s> Check<'s> {
    fn new(options: Options, wants_stats: bool) -> Check<'s> {
        Check {
            reader: FileReader::new(options),
            counts: Counts::default(),
            repeats: Repeats::default(),
            stats: Stats::new(wants_stats),
            is_version_shown: false,
            has_sum: true,
            is_within_key: false,
            now_ms: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as i64),
            swap: None,
        }
    }

    fn run(
        &mut self,
        report: &mut Report<'_>,
        input: &mut dyn Read,
        progress: &mut Progress,
    ) -> Checked<Option<Fault>> {
        let mut portion = vec![0; PORTION_BYTES];
        let mut read_bytes = 0;
        loop {
            match self.step(report)? {
                Next::Item => {}
                Next::NeedsMore => {
                    let count = loop {
                        match input.read(&mut portion) {
                            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                            Err(error) => return Ok(Some(self.unreadable(&error))),
                            Ok(count) => break count,
                        }
                    };
                    match count {
                        0 => self.reader.end(),
                        count => self.reader.feed(&portion[..count]),
                    }
                    read_bytes += count as u64;
                    progress.note(read_bytes);
                }
                Next::End => {
                    self.show_version(report)?;
                    if self.has_sum && self.reader.version().has_checksum() {
                        self.info(report, "Checksum OK")?;
                    }
                    return Ok(None);
                }
                Next::Fault(fault) => return Ok(Some(fault)),
            }
        }
    }

    fn step(&mut self, report: &mut Report<'_>) -> Checked<Next> {
        let line = match self.reader.step() {
            Ok(Step::NeedsMore) => return Ok(Next::NeedsMore),
            Ok(Step::End) => return Ok(Next::End),
            Ok(Step::Item(Item::Piece(piece))) => {
                self.counts.note_key(&piece, self.now_ms);
                self.is_within_key = !piece.is_last;
                self.stats.note(&piece, self.now_ms);
                let Some(what) = self.repeats.find(&piece) else { return Ok(Next::Item) };
                let (key, code) = (piece.key.name.to_vec(), piece.code);
                return Ok(Next::Fault(Fault {
                    offset: self.reader.offset(),
                    text: what.to_string(),
                    doing: "read-object-value",
                    key: Some(key),
                    type_code: Some(code),
                }));
            }
            // COMPAT(tools): isotherm-check-rdb counts a collection without elements as a key;
            // valkey-check-rdb reports an unexpected end of the file. Why: both servers skip such keys when
            // they load the file.
            Ok(Step::Item(Item::Empty(key))) => {
                self.counts.keys += 1;
                self.counts.note_expiry(key.expiry_ms, self.now_ms);
                return Ok(Next::Item);
            }
            Ok(Step::Item(Item::Aux { name, value })) if name == SWAP_LOG.as_bytes() => {
                if let Some(swap) = &mut self.swap {
                    swap.begin(report, value)?;
                }
                format!("It refers to a swap-dir, of which its head has {} B", value.len()).into_bytes()
            }
            // No secret is shown.
            Ok(Step::Item(Item::Aux { name, .. })) if name == SWAP_KEY_SECRET.as_bytes() => {
                b"It refers to keys in the swap-dir".to_vec()
            }
            Ok(Step::Item(Item::Aux { name, value })) => {
                self.counts.lua_scripts += u64::from(name.eq_ignore_ascii_case(b"lua"));
                [b"AUX FIELD ", c_string(name), b" = '", c_string(value), b"'"].concat()
            }
            // COMPAT(tools): isotherm-check-rdb does not compile libraries of functions; it counts them. Why:
            // it knows formats, and no Lua.
            Ok(Step::Item(Item::Function(_))) => {
                self.counts.functions += 1;
                return Ok(Next::Item);
            }
            Ok(Step::Item(Item::Cold { key, reference, .. })) => {
                if let Some(swap) = &mut self.swap {
                    swap.check_value(report, key.name, reference)?;
                }
                self.counts.keys += 1;
                self.counts.cold += 1;
                self.counts.note_expiry(key.expiry_ms, self.now_ms);
                return Ok(Next::Item);
            }
            Ok(Step::Item(Item::Bundle(bundle))) => {
                if let Some(swap) = &mut self.swap {
                    swap.check_bundle(report, &bundle)?;
                }
                self.counts.keys += bundle.keys();
                self.counts.cold += bundle.keys();
                self.counts.expires += u64::from(bundle.volatile);
                return Ok(Next::Item);
            }
            Ok(Step::Item(Item::Database(db))) => format!("Selecting DB ID {db}").into_bytes(),
            Ok(Step::Item(Item::Sizes { .. })) => return Ok(Next::Item),
            Ok(Step::Item(Item::NoChecksum)) => {
                self.has_sum = false;
                b"RDB file was saved with checksum disabled: no check performed.".to_vec()
            }
            Err(error) => {
                self.show_version(report)?;
                return Ok(Next::Fault(self.fault(error)));
            }
        };
        self.show_version(report)?;
        self.info(report, line)?;
        Ok(Next::Item)
    }

    fn info(&self, report: &mut Report<'_>, text: impl AsRef<[u8]>) -> Checked<()> {
        report.put(format!("[offset {}] ", self.reader.offset()))?;
        report.line(text)
    }

    /// Shows the version once, before the first report after the head.
    fn show_version(&mut self, report: &mut Report<'_>) -> Checked<()> {
        if std::mem::replace(&mut self.is_version_shown, true) || self.reader.offset() < MAGIC_BYTES {
            return Ok(());
        }
        let FileVersion { number, .. } = self.reader.version();
        match () {
            () if number > VERSION_MAX => {
                report.line(format!("[offset {MAGIC_BYTES}] Future RDB version {number} detected"))
            }
            () if is_foreign(number) => {
                report.line(format!("[offset {MAGIC_BYTES}] Foreign RDB version {number} detected"))
            }
            () => Ok(()),
        }
    }

    fn unreadable(&self, error: &io::Error) -> Fault {
        Fault {
            offset: self.reader.offset(),
            text: format!("Error reading the RDB file: {}", crate::reason(error)),
            doing: "start",
            key: None,
            type_code: None,
        }
    }

    fn fault(&mut self, error: FileError) -> Fault {
        let version = self.reader.version().number;
        // Valkey counts a key that it has read, whatever becomes of its value.
        self.counts.keys += u64::from(error.key.is_some() && !self.is_within_key);
        let type_code = error.key.is_some().then(|| self.reader.type_code());
        let doing = if error.key.is_some() { "read-object-value" } else { "read-type" };
        let (offset, text, doing) = match error.cause {
            FileCause::Signature(_) => {
                (MAGIC_BYTES, "Wrong signature trying to load DB from file".to_string(), "start")
            }
            FileCause::Version(_) => (MAGIC_BYTES, error.cause.to_string(), "start"),
            FileCause::Checksum { .. } => {
                (error.offset + SUM_BYTES, "RDB CRC error".to_string(), "check-sum")
            }
            FileCause::UnreadType { code, .. } => {
                let text = match () {
                    () if version > VERSION_MAX => {
                        format!("Unknown object type {code} in RDB file with future version {version}")
                    }
                    () if is_foreign(version) && code >= 22 => {
                        format!("Unknown object type {code} in RDB file with foreign version {version}")
                    }
                    () => format!("Invalid object type: {code}"),
                };
                (error.offset + 1, text, "read-type")
            }
            cause => (error.offset, cause.to_string(), doing),
        };
        Fault { offset, text, doing, key: error.key, type_code }
    }

    // COMPAT(tools): isotherm-check-rdb names the offset where the value or field begins that cannot be read;
    // valkey-check-rdb names where in it reading ended, and a line of its source. Why: the beginning is what
    // a repair needs.
    fn show_fault(&self, report: &mut Report<'_>, fault: &Fault) -> Checked<()> {
        report.line("--- RDB ERROR DETECTED ---")?;
        report.line(format!("[offset {}] {}", fault.offset, fault.text))?;
        report.line(format!("[additional info] While doing: {}", fault.doing))?;
        if let Some(key) = &fault.key {
            report.line([b"[additional info] Reading key '", c_string(key), b"'"].concat())?;
        }
        if let Some(code) = fault.type_code {
            report.line(format!("[additional info] Reading type {code} ({})", type_name(code)))?;
        }
        self.show_counts(report)
    }

    fn show_counts(&self, report: &mut Report<'_>) -> Checked<()> {
        let Counts { keys, expires, already_expired, functions, lua_scripts, cold } = self.counts;
        report.line(format!("[info] {keys} keys read"))?;
        report.line(format!("[info] {expires} expires"))?;
        report.line(format!("[info] {already_expired} already expired"))?;
        report.line(format!("[info] {functions} functions"))?;
        match &self.swap {
            Some(swap) => swap.show(report)?,
            None if cold == 0 => {}
            None => {
                let what = "keys whose values are in a swap-dir, which is not checked without --swap-dir";
                report.line(format!("[info] {cold} {what}"))?;
            }
        }
        if lua_scripts > 0 {
            report.line(format!("[info] {lua_scripts} lua scripts read"))?;
        }
        Ok(())
    }

    fn conclude(self, report: &mut Report<'_>, fault: Option<&Fault>) -> Checked<Outcome> {
        let is_sound = fault.is_none();
        let bytes = self.reader.offset();
        let offset = fault.map_or(bytes, |fault| fault.offset);
        let code = u8::from(!is_sound);
        report.line(format!("[offset {offset}] Check RDB returned error code {code} (0 means success)"))?;
        if is_sound {
            let version = self.reader.version();
            let number = version.number;
            if is_foreign(number) || number > VERSION_MAX {
                self.info(
                    report,
                    "\\o/ RDB looks OK, but loading requires config 'rdb-version-check relaxed'",
                )?;
                if version.is_readable(true) {
                    report.line("[info] isotherm-server loads this version without it")?;
                }
            } else {
                self.info(report, "\\o/ RDB looks OK! \\o/")?;
            }
            self.show_counts(report)?;
        }
        Ok(Outcome { is_sound, bytes, stats: self.stats })
    }
}

enum Next {
    Item,
    NeedsMore,
    End,
    Fault(Fault),
}

impl Counts {
    fn note_key(&mut self, piece: &Piece<'_>, now_ms: i64) {
        self.keys += u64::from(piece.is_first);
        if piece.is_last {
            self.note_expiry(piece.key.expiry_ms, now_ms);
        }
    }

    fn note_expiry(&mut self, expiry_ms: Option<i64>, now_ms: i64) {
        self.expires += u64::from(expiry_ms.is_some());
        self.already_expired += u64::from(expiry_ms.is_some_and(|expiry_ms| expiry_ms < now_ms));
    }
}

/// Valkey's names of the encodings.
fn type_name(code: u8) -> &'static str {
    const NAMES: [&str; 23] = [
        "string",
        "list-linked",
        "set-hashtable",
        "zset-v1",
        "hash-hashtable",
        "zset-v2",
        "module-pre-release",
        "module-value",
        "",
        "hash-zipmap",
        "list-ziplist",
        "set-intset",
        "zset-ziplist",
        "hash-ziplist",
        "quicklist",
        "stream",
        "hash-listpack",
        "zset-listpack",
        "quicklist-v2",
        "stream-v2",
        "set-listpack",
        "stream-v3",
        "hash-volatile-items",
    ];
    NAMES.get(usize::from(code)).copied().unwrap_or("unknown")
}
