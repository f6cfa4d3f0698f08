//! A small format for the files, and what a start reads from them.
//!
//! ```text
//!   list    base N               or `-`
//!           FILE START LEN       LEN `-` for the last
//!   file    [length 4][sum 8][bytes of the log] ...       one record a write
//! ```

use isotherm_disk::{Disk, File, Mode, SimDisk, read_exact_at, write_all_at};
use isotherm_log::LogOffset;
use isotherm_log::writer::{FileId, List, Segment};
use isotherm_stdx::crc64::crc64;
use std::fmt::Write;
use std::io;
use std::path::{Path, PathBuf};

pub const HEADER_BYTES: usize = 12;
const LIST: &str = "aof/list";
const TEMP_LIST: &str = "aof/temp-list";

pub fn path(file: FileId) -> PathBuf {
    PathBuf::from(format!("aof/{}", file.0))
}

pub fn record(bytes: &[u8]) -> Vec<u8> {
    let mut record = (bytes.len() as u32).to_le_bytes().to_vec();
    record.extend_from_slice(&crc64(1, bytes).to_le_bytes());
    record.extend_from_slice(bytes);
    record
}

pub fn write_list(disk: &SimDisk, list: &List) -> io::Result<()> {
    let number = |number: Option<u64>| number.map_or("-".to_string(), |number| number.to_string());
    let mut text = format!("base {}\n", number(list.base));
    for segment in &list.segments {
        writeln!(text, "{} {} {}", segment.file.0, segment.start, number(segment.len)).expect("to a string");
    }
    let file = disk.open(Path::new(TEMP_LIST), Mode::Truncate)?;
    write_all_at(&*file, text.as_bytes(), 0).map_err(|short| short.error)?;
    file.sync_all()?;
    disk.sync_dir(Path::new("aof"))?;
    disk.rename(Path::new(TEMP_LIST), Path::new(LIST))?;
    disk.sync_dir(Path::new("aof"))
}

fn read(file: &dyn File) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; file.len()? as usize];
    read_exact_at(file, &mut bytes, 0)?;
    Ok(bytes)
}

fn read_list(disk: &SimDisk) -> io::Result<Option<List>> {
    let file = match disk.open(Path::new(LIST), Mode::Read) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    let text = String::from_utf8(read(&*file)?).expect("a list is whole");
    let mut lines = text.lines();
    let base = lines.next().and_then(|line| line.strip_prefix("base ")).expect("the first line");
    let segments = lines.map(|line| {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |at: usize| words[at].parse().expect("a number");
        let (file, start) = (FileId(number(0)), LogOffset(number(1)));
        Segment { file, start, len: words[2].parse().ok() }
    });
    Ok(Some(List { base: base.parse().ok(), segments: segments.collect() }))
}

/// What a start finds.
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

/// Reads all files; cuts a damaged tail off the last one, and off it alone. `InvalidData`: another one is damaged.
pub fn recover(disk: &SimDisk) -> io::Result<Option<Recovered>> {
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
        let valid = valid_bytes(&content, &mut bytes);
        if valid < content.len() && number < last {
            return Err(io::ErrorKind::InvalidData.into());
        }
        if number == last {
            file.set_len(valid as u64)?;
            file.sync_all()?;
            segment.len = Some(valid as u64);
        }
    }
    Ok(Some(Recovered { list, start, bytes }))
}

/// Appends the log's bytes of whole records, and returns where they end.
fn valid_bytes(content: &[u8], bytes: &mut Vec<u8>) -> usize {
    let mut at = 0;
    while let Some((header, rest)) = content[at..].split_first_chunk::<HEADER_BYTES>() {
        let (len, sum) = header.split_at(4);
        let len = u32::from_le_bytes(len.try_into().expect("4 of 12")) as usize;
        let Some(record) = rest.get(..len).filter(|_| len > 0) else { break };
        if crc64(1, record).to_le_bytes() != *sum {
            break;
        }
        bytes.extend_from_slice(record);
        at += HEADER_BYTES + len;
    }
    at
}
