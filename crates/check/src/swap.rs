//! The values of a base that lie in a swap-dir (`swap-checkpoint`): whether each is there, and is that of its key.
//!
//! ```text
//!   [fa]["swap-log"][segments, lengths, sums]    begin   the file of each is there, is long enough, and begins as it did
//!   [e0][key][place], [e1][bundle][place] ...    check   one read a record: its sum covers its place, its key is compared
//! ```
//! What the bytes of a value mean only a server knows; that they are those that it wrote is what their sum says. Parts of collections and
//! values in memory are in the base itself. Nothing is written.

use isotherm_persist::rdb::file::Bundle;
use isotherm_tier::{
    Checkpoint, Damage, Named, NamedSegment, Place, Record, SegmentNumber, block_sum, record_bytes,
};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use crate::{Checked, Report, c_string, reason};

/// So many faults are named; all are counted.
const NAMED_MAX: u64 = 10;

/// A folder in which values are looked for.
pub struct SwapDir {
    folder: PathBuf,
    segments: BTreeMap<SegmentNumber, Segment>,
    /// Keys whose records are as they were written.
    pub sound_keys: u64,
    /// Keys whose records are not, files that are not, and heads that cannot be read.
    pub faults: u64,
    named: u64,
    room: Vec<u8>,
}

struct Segment {
    file: File,
    /// What lies behind is none of the base's values.
    bytes: u64,
}

impl SwapDir {
    pub fn new(folder: PathBuf) -> SwapDir {
        SwapDir { folder, segments: BTreeMap::new(), sound_keys: 0, faults: 0, named: 0, room: Vec::new() }
    }

    /// What the base says of the log that it refers to.
    pub fn begin(&mut self, report: &mut Report<'_>, head: &[u8]) -> Checked<()> {
        let checkpoint = match Checkpoint::parse(head) {
            Ok(checkpoint) => checkpoint,
            Err(error) => return self.note(report, 1, error.to_string()),
        };
        for segment in &checkpoint.segments {
            match self.open(segment) {
                Ok(found) => _ = self.segments.insert(segment.named.segment, found),
                Err(why) => self.note(report, 1, why)?,
            }
        }
        Ok(())
    }

    fn open(&self, segment: &NamedSegment) -> Result<Segment, String> {
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
        Ok(Segment { file, bytes })
    }

    pub fn check_value(&mut self, report: &mut Report<'_>, key: &[u8], reference: u64) -> Checked<()> {
        self.check(report, key, reference, 1, |key| {
            format!("The value of key '{}'", String::from_utf8_lossy(c_string(key)))
        })
    }

    pub fn check_bundle(&mut self, report: &mut Report<'_>, bundle: &Bundle<'_>) -> Checked<()> {
        let keys = bundle.keys();
        self.check(report, &bundle.name, bundle.reference, keys, |_| {
            format!("A record of several keys ({keys})")
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
        let segment = self.segments.get(&place.segment()).ok_or("there is no such file")?;
        let len = record_bytes(name.len(), place.payload_bytes());
        if place.offset() + len as u64 > segment.bytes {
            return Err("it lies behind what the base refers to".to_string());
        }
        // Within the file, whose length was looked at: a length in the base takes no more memory than that.
        self.room.resize(len, 0);
        segment.file.read_exact_at(&mut self.room, place.offset()).map_err(|error| reason(&error))?;
        match Record::read(place, &self.room) {
            Ok(record) if record.key == name => Ok(()),
            Ok(_) => Err("it is that of another key".to_string()),
            Err(Damage::Checksum) => Err("its checksum is wrong".to_string()),
            Err(Damage::Short | Damage::Lengths) => Err("its lengths are wrong".to_string()),
        }
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
