//! The values of a base that lie in a swap-dir (`swap-checkpoint`): whether each is there, and is that of its
//! key.
//!
//! ```text
//!   [fa]["swap-log"][segments, lengths, sums]    begin   the file of each is there, is long enough, and begins as it did
//!   [e0][key][place], [e1][bundle][place] ...    check   one read a record: its sum covers its place, its key is compared
//! ```
//! Only a server knows the meaning of a value's bytes; their sum says that they are the bytes that it wrote.
//! Parts of collections and values in memory are in the base itself. Nothing is written.

use isotherm_persist::rdb::file::Bundle;
use isotherm_tier::{
    Checkpoint, Damage, LogId, Named, NamedSegment, OWNER_BYTES_MAX, OWNER_FILE_NAME, Place, Record,
    SegmentNumber, block_sum, record_bytes,
};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use crate::{Checked, Report, c_string, reason};

/// Number of faults that are named; all are counted.
const NAMED_MAX: u64 = 10;
/// Number of files that are open at once: a folder may have thousands of files, a process cannot open that
/// many.
const OPEN_MAX: usize = 32;

/// A folder in which values are looked for.
pub struct SwapDir {
    folder: PathBuf,
    has_begun: bool,
    /// Number of bytes that count in each segment that the base refers to.
    segments: BTreeMap<SegmentNumber, u64>,
    /// Open segments, the one that was read last first.
    open: Vec<(SegmentNumber, File)>,
    /// Keys whose records are as they were written.
    pub sound_keys: u64,
    /// Keys whose records are not, files that are not, and heads that cannot be read.
    pub faults: u64,
    named: u64,
    room: Vec<u8>,
}

impl SwapDir {
    pub fn new(folder: PathBuf) -> SwapDir {
        SwapDir {
            folder,
            has_begun: false,
            segments: BTreeMap::new(),
            open: Vec::new(),
            sound_keys: 0,
            faults: 0,
            named: 0,
            room: Vec::new(),
        }
    }

    /// Reads the head of the base, and checks the log and the segments that it refers to.
    pub fn begin(&mut self, report: &mut Report<'_>, head: &[u8]) -> Checked<()> {
        if std::mem::replace(&mut self.has_begun, true) {
            return self.note(report, 1, "the base refers to a second log".to_string());
        }
        let checkpoint = match Checkpoint::parse(head) {
            Ok(checkpoint) => checkpoint,
            Err(error) => return self.note(report, 1, error.to_string()),
        };
        if let Err(why) = self.check_owner(checkpoint.log) {
            self.note(report, 1, why)?;
        }
        for segment in &checkpoint.segments {
            match self.check_segment(segment) {
                Ok(()) => _ = self.segments.insert(segment.named.segment, segment.named.bytes),
                Err(why) => self.note(report, 1, why)?,
            }
        }
        Ok(())
    }

    /// Without it, or with that of another log, no server starts.
    fn check_owner(&self, log: LogId) -> Result<(), String> {
        let why = |error: io::Error| format!("{OWNER_FILE_NAME}: {}", reason(&error));
        let mut text = String::new();
        let file = File::open(self.folder.join(OWNER_FILE_NAME)).map_err(why)?;
        file.take(OWNER_BYTES_MAX).read_to_string(&mut text).map_err(why)?;
        let is_meant = text.lines().any(|line| line == log.owner_line());
        if is_meant { Ok(()) } else { Err("the folder has another log than the base refers to".to_string()) }
    }

    fn check_segment(&self, segment: &NamedSegment) -> Result<(), String> {
        let NamedSegment { named: Named { segment: number, bytes }, first_block } = *segment;
        let name = number.file_name();
        let why = |error: io::Error| format!("{name}: {}", reason(&error));
        let file = File::open(self.folder.join(&name)).map_err(why)?;
        let len = file.metadata().map_err(why)?.len();
        if len < bytes {
            return Err(format!("{name} has {len} bytes of the {bytes} that the base refers to"));
        }
        if let Some(sum) = first_block {
            let mut block = [0; isotherm_tier::BLOCK_BYTES];
            file.read_exact_at(&mut block, 0).map_err(why)?;
            if block_sum(&block) != sum {
                return Err(format!("{name} is of another time or another log than the base"));
            }
        }
        Ok(())
    }

    pub fn check_value(&mut self, report: &mut Report<'_>, key: &[u8], reference: u64) -> Checked<()> {
        self.check(report, key, reference, 1, |key| {
            format!("The value of key '{}'", String::from_utf8_lossy(c_string(key)))
        })
    }

    pub fn check_bundle(&mut self, report: &mut Report<'_>, bundle: &Bundle<'_>) -> Checked<()> {
        let keys = bundle.keys();
        self.check(report, &bundle.name, bundle.reference, keys, |_| {
            format!("A record with keys and their values ({keys})")
        })
    }

    /// `name` is what the record has as its key.
    fn check(
        &mut self,
        report: &mut Report<'_>,
        name: &[u8],
        reference: u64,
        keys: u64,
        show: impl Fn(&[u8]) -> String,
    ) -> Checked<()> {
        let place = Place::from_raw(reference);
        match self.read(place, name) {
            Ok(()) => {
                self.sound_keys += keys;
                Ok(())
            }
            Err(why) => {
                let (file, offset) = (place.segment().file_name(), place.offset());
                self.note(report, keys, format!("{}, in {file} at {offset}: {why}", show(name)))
            }
        }
    }

    fn read(&mut self, place: Place, name: &[u8]) -> Result<(), String> {
        let bytes =
            *self.segments.get(&place.segment()).ok_or("its file is not one that the base refers to")?;
        let len = record_bytes(name.len(), place.payload_bytes());
        if place.offset() + len as u64 > bytes {
            return Err("it lies behind what the base refers to".to_string());
        }
        // Within the file, whose length was looked at: a length in the base takes no more memory than that.
        self.room.resize(len, 0);
        self.bring_forward(place.segment()).map_err(|error| reason(&error))?;
        self.open[0].1.read_exact_at(&mut self.room, place.offset()).map_err(|error| reason(&error))?;
        match Record::read(place, &self.room) {
            Ok(record) if record.key == name => Ok(()),
            Ok(_) => Err("it is that of another key".to_string()),
            Err(Damage::Checksum) => Err("its checksum is wrong".to_string()),
            Err(Damage::Short | Damage::Lengths) => Err("its lengths are wrong".to_string()),
        }
    }

    fn bring_forward(&mut self, number: SegmentNumber) -> io::Result<()> {
        match self.open.iter().position(|(open, _)| *open == number) {
            Some(at) => self.open[..=at].rotate_right(1),
            None => {
                self.open.truncate(OPEN_MAX - 1);
                self.open.insert(0, (number, File::open(self.folder.join(number.file_name()))?));
            }
        }
        Ok(())
    }

    fn note(&mut self, report: &mut Report<'_>, faults: u64, text: String) -> Checked<()> {
        self.faults += faults;
        if self.named == NAMED_MAX {
            return Ok(());
        }
        self.named += 1;
        report.line(format!("[swap-dir] {text}"))
    }

    pub fn show(&self, report: &mut Report<'_>) -> Checked<()> {
        report.line(format!(
            "[info] {} keys whose values are in the swap-dir as they were written",
            self.sound_keys
        ))?;
        match self.faults {
            0 => Ok(()),
            faults => report.line(format!("[info] faults in the swap-dir: {faults}")),
        }
    }
}
