//! The files as the server writes them, and what a start reads: manifest, commits and commands of
//! `isotherm-persist`.

use isotherm_disk::{Disk, File, Mode, SimDisk, read_exact_at, write_all_at};
use isotherm_log::LogOffset;
use isotherm_log::writer::{FileId, List, Segment};
use isotherm_persist::aof::commit::{self, CommitCheck, Lines};
use isotherm_persist::aof::manifest::{AofFile, Manifest, Names, Place};
use isotherm_persist::aof::stream::{Item, StreamParser};
use std::io;
use std::path::{Path, PathBuf};

fn names() -> Names {
    Names::new(b"appendonly.aof")
}

fn in_folder(name: &[u8]) -> PathBuf {
    Path::new("aof").join(str::from_utf8(name).expect("ASCII"))
}

pub fn path(file: FileId) -> PathBuf {
    in_folder(&names().incr(file.0 as i64))
}

/// Returns the bytes that a write adds to a file at `at`: the frames, and a line before them if it is needed.
pub fn record(lines: Lines, at: u64, synced: u64, bytes: &[u8]) -> Vec<u8> {
    if lines == Lines::WhereNeeded && !commit::needs_header(at, bytes.len() as u64) {
        return bytes.to_vec();
    }
    let filler = commit::filler(at, synced, bytes.len() as u64);
    let mut record = commit::header(at, synced, [filler, bytes].into_iter());
    record.extend_from_slice(filler);
    record.extend_from_slice(bytes);
    record
}

pub fn write_list(disk: &SimDisk, list: &List) -> io::Result<()> {
    let names = names();
    let mut manifest = Manifest::default();
    if let Some(base) = list.base {
        manifest.replace_base(&names, base as i64 + 1, true);
    }
    for segment in &list.segments {
        let place = Place { start: segment.start.0, len: segment.len };
        manifest.add_incr(&names, segment.file.0 as i64, Some(place));
    }
    let temp = in_folder(&names.temp_manifest());
    let file = disk.open(&temp, Mode::Truncate)?;
    write_all_at(&*file, &manifest.write(), 0).map_err(|short| short.error)?;
    file.sync_all()?;
    disk.sync_dir(Path::new("aof"))?;
    disk.rename(&temp, &in_folder(&names.manifest()))?;
    disk.sync_dir(Path::new("aof"))
}

fn read(file: &dyn File) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; file.len()? as usize];
    read_exact_at(file, &mut bytes, 0)?;
    Ok(bytes)
}

fn read_list(disk: &SimDisk) -> io::Result<Option<List>> {
    let file = match disk.open(&in_folder(&names().manifest()), Mode::Read) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    let manifest = Manifest::parse(&read(&*file)?).expect("a manifest is whole");
    let segment = |file: &AofFile| {
        let Place { start, len } = file.place.expect("each file has its place");
        Segment { file: FileId(file.seq as u64), start: LogOffset(start), len }
    };
    let base = manifest.base.as_ref().map(|base| base.seq as u64 - 1);
    Ok(Some(List { base, segments: manifest.incr.iter().map(segment).collect() }))
}

/// State that a start finds.
pub struct Recovered {
    pub list: List,
    /// The place in the log of the first byte, and the bytes.
    pub start: LogOffset,
    pub bytes: Vec<u8>,
}

impl Recovered {
    pub fn end(&self) -> LogOffset {
        self.start + self.bytes.len() as u64
    }
}

/// Reads all files; cuts a damaged tail off the last one, and off it alone. `InvalidData`: another one is
/// damaged.
pub fn recover(disk: &SimDisk, lines: Lines) -> io::Result<Option<Recovered>> {
    let Some(mut list) = read_list(disk)? else { return Ok(None) };
    let (mut bytes, start) = (Vec::new(), list.segments[0].start);
    let last = list.segments.len() - 1;
    for (number, segment) in list.segments.iter_mut().enumerate() {
        assert_eq!(start + bytes.len() as u64, segment.start, "files follow each other: {segment:?}");
        let file = disk.open(&path(segment.file), Mode::Update)?;
        let mut content = read(&*file)?;
        if let Some(len) = segment.len {
            if (content.len() as u64) < len {
                return Err(io::ErrorKind::InvalidData.into());
            }
            content.truncate(len as usize);
        }
        let valid = valid_bytes(&content, lines, &mut bytes);
        if valid < content.len() && number < last {
            return Err(io::ErrorKind::InvalidData.into());
        }
        if number == last {
            let rest = &content[valid..];
            assert!(!commit::proves_durable(rest, valid as u64, valid as u64), "torn, and taken for damaged");
            file.set_len(valid as u64)?;
            file.sync_all()?;
            segment.len = Some(valid as u64);
        }
    }
    Ok(Some(Recovered { list, start, bytes }))
}

/// Appends the log's bytes of what is sound, and returns where that ends.
fn valid_bytes(content: &[u8], lines: Lines, bytes: &mut Vec<u8>) -> usize {
    let (mut parser, mut check) = (StreamParser::new(0, 1 << 20), CommitCheck::new(lines));
    check.expect_lines();
    let (mut at, mut sound, mut sound_bytes) = (0, 0, bytes.len());
    loop {
        let rest = &content[at..];
        let Ok((item, taken)) = parser.next(rest) else { break };
        if item == Item::NeedMore || check.item(at as u64, &rest[..taken], item).is_err() {
            break;
        }
        if let Item::Command(_) = item {
            bytes.extend_from_slice(&rest[..taken]);
        }
        at += taken;
        if check.is_between_commits() && parser.end_of_valid() == at as u64 {
            (sound, sound_bytes) = (at, bytes.len());
        }
    }
    bytes.truncate(sound_bytes);
    sound
}
