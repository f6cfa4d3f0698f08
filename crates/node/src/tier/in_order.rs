//! Reads of many records, about in the order in which they were written: what a snapshot asks for.
//!
//! ```text
//!   the values of a slot left memory at several times, so a walk by slots follows several places of the log at once
//!
//!   segment 3   ...[r1][r4][r5]...      stretch A: r1, r4, r5 ...
//!   segment 9   ...[r2][r3][r6]...      stretch B: r2, r3, r6 ...
//! ```
//! A stretch is the result of one read. The one after it is twice as long, up to 128 KB, so some hundred
//! values share a call; a place that no stretch leads to is read to the end of its block, as nothing says
//! that more is wanted.
//!
//! A thread of the tier reads (`reads`): a snapshot whose disk hangs can be ended, and leaves that thread
//! behind.
//!
//! Once written, the bytes of a segment's file do not change, and a segment that is written anew has another
//! file. But a stretch may end in bytes that were not written yet: a record that does not verify in a stretch
//! is read again, alone.

use isotherm_disk::File;
use isotherm_keyspace::ColdRef;
use isotherm_tier::{BLOCK_BYTES, Place, Record, record_bytes};
use std::borrow::Cow;
use std::io;
use std::ops::Range;
use std::sync::{Arc, Weak};
use std::time::Instant;

use super::reads::GivesUp;
use super::{ReadError, Tier};

/// Places that are followed at most. With the longest stretches they take 1 MB.
const STRETCHES_MAX: usize = 8;
const STRETCH_BYTES_MAX: usize = 128 << 10;
/// A longer record is read alone: it gains nothing.
const RECORD_BYTES_MAX: usize = STRETCH_BYTES_MAX / 2;

/// Range of a payload in the first stretch.
type Found = Range<usize>;

#[derive(Default)]
pub struct InOrder {
    /// The one that was used last is the first.
    stretches: Vec<Stretch>,
}

struct Stretch {
    /// Name of the file, which does not keep it open.
    file: Weak<dyn File>,
    start: u64,
    bytes: Vec<u8>,
}

/// Bytes that are to be read: their file, their place in it, and the buffer. They may be fewer.
struct Wanted {
    file: Arc<dyn File>,
    at: u64,
    bytes: Vec<u8>,
}

impl Wanted {
    fn read(self) -> Result<Vec<u8>, ReadError> {
        let Wanted { file, at, mut bytes } = self;
        let mut read = 0;
        while read < bytes.len() {
            match file.read_at(&mut bytes[read..], at + read as u64) {
                Ok(0) => break,
                Ok(count) => read += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(ReadError::Io(error)),
            }
        }
        bytes.truncate(read);
        Ok(bytes)
    }
}

impl InOrder {
    /// The payload of a record, as `Tier::call` reads it.
    pub fn read(
        &mut self,
        tier: &Tier,
        reference: ColdRef,
        key: &[u8],
        gives_up: Option<&GivesUp<'_>>,
    ) -> Result<Cow<'_, [u8]>, ReadError> {
        let place = Place::from_raw(reference.raw());
        let segment = place.segment();
        let file = match tier.files.opened_in_order(segment) {
            Some(file) => Ok(file),
            None => tier.call(move |tier| tier.files.file_in_order(segment), gives_up)?,
        };
        let found = match file {
            Ok(file) => self.look(&file, place, key, |wanted| {
                let from = Instant::now();
                let read = tier.call(move |_| wanted.read(), gives_up)?;
                read.inspect(|bytes| tier.note_read_bytes(from, bytes.len()))
            })?,
            Err(_) => None,
        };
        if let Some(found) = found {
            return Ok(Cow::Borrowed(&self.stretches[0].bytes[found]));
        }
        // It is long, or what fails is noted and repeated.
        let key: Box<[u8]> = key.into();
        tier.call(move |tier| tier.read_in_order(reference, &key), gives_up)?.map(Cow::Owned)
    }

    /// Looks for the payload of a record, and reads if it has to. `None`: it is too long for a stretch,
    /// cannot be read, or is not that of the key.
    fn look(
        &mut self,
        file: &Arc<dyn File>,
        place: Place,
        key: &[u8],
        read: impl FnOnce(Wanted) -> Result<Vec<u8>, ReadError>,
    ) -> Result<Option<Found>, ReadError> {
        let len = record_bytes(key.len(), place.payload_bytes());
        if len > RECORD_BYTES_MAX {
            return Ok(None);
        }
        let at = place.offset();
        let has = |stretch: &Stretch| stretch.is_of(file) && stretch.has(at, len);
        match self.stretches.iter().position(has) {
            Some(number) => self.bring_forward(number),
            None => match self.bring(file, at, len, read) {
                Ok(()) => {}
                Err(ReadError::NoAnswer) => return Err(ReadError::NoAnswer),
                Err(_) => return Ok(None),
            },
        }
        let stretch = &self.stretches[0];
        let begin = (at - stretch.start) as usize;
        let bytes = &stretch.bytes[begin..begin + len];
        let Some(record) = Record::read(place, bytes).ok().filter(|record| record.key == key) else {
            // Others that were written since are in it too.
            self.stretches.remove(0);
            return Ok(None);
        };
        let payload = begin + (record.payload.as_ptr() as usize - bytes.as_ptr() as usize);
        Ok(Some(payload..payload + record.payload.len()))
    }

    fn bring_forward(&mut self, number: usize) {
        self.stretches[..=number].rotate_right(1);
    }

    /// The stretch that has these bytes becomes the first.
    fn bring(
        &mut self,
        file: &Arc<dyn File>,
        at: u64,
        len: usize,
        read: impl FnOnce(Wanted) -> Result<Vec<u8>, ReadError>,
    ) -> Result<(), ReadError> {
        let leads = |stretch: &Stretch| stretch.is_of(file) && stretch.leads_to(at);
        let wanted = match self.stretches.iter().position(leads) {
            Some(number) => {
                self.bring_forward(number);
                (self.stretches[0].bytes.len() * 2).min(STRETCH_BYTES_MAX).max(len)
            }
            None => {
                if self.stretches.len() < STRETCHES_MAX {
                    self.stretches.push(Stretch { file: Arc::downgrade(file), start: at, bytes: Vec::new() });
                }
                self.bring_forward(self.stretches.len() - 1);
                (at + len as u64).next_multiple_of(BLOCK_BYTES as u64) as usize - at as usize
            }
        };
        let filled = self.stretches[0].fill(file, at, (wanted, len), read);
        if filled.is_err() {
            self.stretches.remove(0);
        }
        filled
    }
}

impl Stretch {
    fn is_of(&self, file: &Arc<dyn File>) -> bool {
        std::ptr::addr_eq(self.file.as_ptr(), Arc::as_ptr(file))
    }

    fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }

    fn has(&self, at: u64, len: usize) -> bool {
        self.start <= at && at + len as u64 <= self.end()
    }

    /// Returns whether a place lies in the stretch, or after it by no more than its length.
    fn leads_to(&self, at: u64) -> bool {
        self.start <= at && at <= self.end() + self.bytes.len() as u64
    }

    /// Reads `wanted` bytes. The file may have fewer, but not fewer than `len`.
    fn fill(
        &mut self,
        file: &Arc<dyn File>,
        at: u64,
        (wanted, len): (usize, usize),
        read: impl FnOnce(Wanted) -> Result<Vec<u8>, ReadError>,
    ) -> Result<(), ReadError> {
        self.file = Arc::downgrade(file);
        self.start = at;
        let mut bytes = std::mem::take(&mut self.bytes);
        bytes.resize(wanted, 0);
        self.bytes = read(Wanted { file: Arc::clone(file), at, bytes })?;
        match self.bytes.len() < len {
            true => Err(ReadError::Io(io::ErrorKind::UnexpectedEof.into())),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_disk::{Disk, Mode, Plan, SimDisk, write_all_at};
    use isotherm_keyspace::Slot;
    use isotherm_stdx::Prng;
    use isotherm_tier::{Log, LogConfig, Stream};
    use std::path::Path;

    struct Records {
        file: Arc<dyn File>,
        all: Vec<(Place, Vec<u8>, Vec<u8>)>,
    }

    /// Records of one segment, one after the other.
    fn records(disk: &dyn Disk, name: &str, count: usize, prng: &mut Prng) -> Records {
        let file = disk.open(Path::new(name), Mode::Truncate).unwrap();
        let mut log = Log::new(LogConfig::of_bytes(1 << 30));
        let mut all = Vec::new();
        for number in 0..count {
            let (key, value) =
                (format!("key:{number}").into_bytes(), vec![number as u8; prng.below(900) as usize]);
            let record = Record {
                form: 0,
                expiry: None,
                database: 0,
                slot: Slot::of_key(&key),
                key: &key,
                payload: &value,
            };
            let place = log.append(Stream::Fresh, &record, None).unwrap();
            all.push((place, key, value));
        }
        log.seal(Stream::Fresh);
        let write = log.next_write().unwrap();
        write_all_at(&*file, write.bytes, write.offset).unwrap();
        Records { file, all }
    }

    fn read(reading: &mut InOrder, records: &Records, number: usize, reads: &mut usize) -> Vec<u8> {
        let (place, key, _) = &records.all[number];
        let found = reading.look(&records.file, *place, key, |wanted| {
            *reads += 1;
            wanted.read()
        });
        reading.stretches[0].bytes[found.unwrap().expect("it is there")].to_vec()
    }

    #[test]
    fn places_that_are_followed_share_reads() {
        let disk = SimDisk::new(7, Plan::default());
        let mut prng = Prng::new(3);
        let logs: Vec<Records> =
            ["a", "b", "c"].iter().map(|name| records(&disk, name, 1000, &mut prng)).collect();
        let (mut reading, mut reads) = (InOrder::default(), 0);
        let mut next = [0; 3];
        while let Some(log) = Some(prng.below(3) as usize).filter(|_| next.iter().any(|next| *next < 1000)) {
            if next[log] < 1000 {
                assert_eq!(read(&mut reading, &logs[log], next[log], &mut reads), logs[log].all[next[log]].2);
                // Some are in memory.
                next[log] += 1 + prng.below(2) as usize;
            }
        }
        assert!(reads < 3 * 16, "{reads} reads of some 2,000 records");
    }

    #[test]
    fn any_order_is_right() {
        let disk = SimDisk::new(7, Plan::default());
        let mut prng = Prng::new(5);
        let logs: Vec<Records> = (0..12).map(|n| records(&disk, &n.to_string(), 300, &mut prng)).collect();
        let (mut reading, mut reads) = (InOrder::default(), 0);
        for _ in 0..5000 {
            let (log, number) = (&logs[prng.below(12) as usize], prng.below(300) as usize);
            assert_eq!(read(&mut reading, log, number, &mut reads), log.all[number].2);
            assert!(reading.stretches.len() <= STRETCHES_MAX);
            assert!(reading.stretches.iter().all(|stretch| stretch.bytes.len() <= STRETCH_BYTES_MAX));
        }
    }

    #[test]
    fn what_was_written_behind_a_stretch_is_not_taken_from_it() {
        let disk = SimDisk::new(7, Plan::default());
        let written = records(&disk, "a", 100, &mut Prng::new(5));
        let bytes = {
            let mut bytes = vec![0; written.file.len().unwrap() as usize];
            isotherm_disk::read_exact_at(&*written.file, &mut bytes, 0).unwrap();
            bytes
        };
        // The second half is not there yet.
        let half = written.all[50].0.offset();
        write_all_at(&*written.file, &vec![0; bytes.len() - half as usize], half).unwrap();
        let (mut reading, mut reads) = (InOrder::default(), 0);
        (0..50).for_each(|number| _ = read(&mut reading, &written, number, &mut reads));
        write_all_at(&*written.file, &bytes, 0).unwrap();
        let mut fails = 0;
        for (place, key, value) in &written.all[50..] {
            match reading.look(&written.file, *place, key, Wanted::read).unwrap() {
                Some(found) => assert_eq!(reading.stretches[0].bytes[found], **value),
                None => fails += 1,
            }
        }
        assert_eq!(fails, 1, "the stretch goes with the first that is zeros in it");
        // Another file has other bytes, at the same places too.
        let other = records(&disk, "b", 100, &mut Prng::new(6));
        assert_eq!(read(&mut reading, &other, 3, &mut reads), other.all[3].2);
    }
}
