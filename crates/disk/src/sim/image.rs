//! Image of a file: the bytes that a reader sees, and those that would be left if power failed now.
//!
//! ```text
//! cached    [ sector ][ sector ][ sector ][ sec|     what reads return; its length is the file's
//! marks       clean     dirty     lost      dirty
//! platter   [ sector ][ older  ][ ?      ][ ?  ]     durable_len: the length that the disk knows
//! ```
//! * **dirty**: changed since the last sync; after a crash old, new, or torn.
//! * **lost**: a sync of it failed, the kernel forgot that, and the platter never got it. A new write makes
//!   it dirty again.
//! * **fresh**: the platter has no content for it yet, so in its place are zeros or what the block held
//!   before.
//!
//! Invariant: a sector that is neither dirty nor lost is the same in both images, up to `durable_len`.

use super::SECTOR_BYTES;
use super::plan::Damage;
use isotherm_stdx::Prng;
use std::collections::{BTreeMap, BTreeSet};

type Sector = [u8; SECTOR_BYTES];

#[derive(Default)]
pub struct Image {
    cached: Vec<u8>,
    platter: Vec<Sector>,
    durable_len: u64,
    /// The shortest that the file has been since its length was synced.
    len_low: u64,
    /// The sector, to when it was last changed.
    dirty: BTreeMap<u64, u64>,
    lost: BTreeSet<u64>,
    fresh: BTreeSet<u64>,
    /// The length differs from the durable one, and a sync would write it.
    is_len_dirty: bool,
    clock: u64,
}

impl Image {
    pub fn len(&self) -> u64 {
        self.cached.len() as u64
    }

    pub fn read(&self, bytes: &mut [u8], at: u64) -> usize {
        let rest = self.cached.get(at as usize..).unwrap_or_default();
        let count = rest.len().min(bytes.len());
        bytes[..count].copy_from_slice(&rest[..count]);
        count
    }

    pub fn write(&mut self, bytes: &[u8], at: u64) {
        if bytes.is_empty() {
            return;
        }
        let end = at + bytes.len() as u64;
        if end > self.len() {
            self.set_len(end);
        }
        // A sector that is written back beyond the length that the disk knows takes the length along.
        self.is_len_dirty |= end > self.durable_len;
        self.cached[at as usize..end as usize].copy_from_slice(bytes);
        self.touch(at, end);
    }

    pub fn set_len(&mut self, len: u64) {
        let old_len = self.len();
        self.cached.resize(len as usize, 0);
        self.is_len_dirty |= len != old_len;
        self.len_low = self.len_low.min(len);
        if len > old_len {
            self.fresh.extend(sectors(old_len).max(self.sectors_of_platter())..sectors(len));
            self.touch(old_len, len);
        } else {
            for marks in [&mut self.lost, &mut self.fresh] {
                marks.retain(|sector| *sector < sectors(len));
            }
            self.dirty.retain(|sector, _| *sector < sectors(len));
            if !len.is_multiple_of(SECTOR_BYTES as u64) && len < old_len {
                self.touch(len - 1, len);
            }
        }
    }

    fn sectors_of_platter(&self) -> u64 {
        sectors(self.durable_len)
    }

    /// The bytes `from..to` have changed.
    fn touch(&mut self, from: u64, to: u64) {
        self.clock += 1;
        for sector in from / SECTOR_BYTES as u64..sectors(to) {
            self.dirty.insert(sector, self.clock);
            self.lost.remove(&sector);
        }
    }

    pub fn sync(&mut self) {
        for sector in std::mem::take(&mut self.dirty).into_keys() {
            self.write_back(sector);
        }
        self.sync_len();
    }

    fn sync_len(&mut self) {
        if self.is_len_dirty {
            self.durable_len = self.len();
            self.forget_len_changes();
        }
    }

    fn forget_len_changes(&mut self) {
        self.is_len_dirty = false;
        self.len_low = self.len();
    }

    /// A sync that failed: nothing is dirty any more, and half of it has not been written.
    pub fn fail_sync(&mut self, prng: &mut Prng) {
        for sector in std::mem::take(&mut self.dirty).into_keys() {
            if prng.one_in(2) {
                self.lost.insert(sector);
            } else {
                self.write_back(sector);
            }
        }
        if prng.one_in(2) {
            self.sync_len();
        }
        self.forget_len_changes();
    }

    /// The kernel writes some sectors by itself. The length follows with the next sync.
    pub fn write_back_some(&mut self, prng: &mut Prng) {
        let sectors: Vec<u64> = self.dirty.keys().copied().filter(|_| prng.one_in(3)).collect();
        for sector in sectors {
            self.dirty.remove(&sector);
            self.write_back(sector);
        }
    }

    fn write_back(&mut self, sector: u64) {
        let content = cut(&self.cached, sector);
        self.fresh.remove(&sector);
        let place = sector as usize;
        if self.platter.len() <= place {
            self.platter.resize(place + 1, [0; SECTOR_BYTES]);
        }
        self.platter[place] = content;
    }

    /// Power fails: both images become one that the platter may hold.
    pub fn crash(&mut self, damage: Damage, prng: &mut Prng) {
        let len = self.len_after_crash(prng);
        // Without reordering, what was changed up to some moment is there and nothing else.
        let moment = prng.below(self.clock + 1);
        let mut bytes = Vec::with_capacity(len as usize);
        for sector in 0..sectors(len) {
            let old = self.platter_content(sector, damage, prng);
            let content = match self.dirty.get(&sector) {
                None => old,
                Some(_) if damage.reordered && prng.one_in(2) => old,
                Some(changed) if !damage.reordered && *changed > moment => old,
                Some(_) => {
                    let mut content = cut(&self.cached, sector);
                    if damage.torn && prng.one_in(4) {
                        let from = prng.below(SECTOR_BYTES as u64) as usize;
                        content[from..].copy_from_slice(&old[from..]);
                    }
                    content
                }
            };
            bytes.extend_from_slice(&content);
        }
        bytes.truncate(len as usize);
        *self = Image::default();
        self.write(&bytes, 0);
        self.sync();
    }

    /// Somewhere between the lengths that the file has had since its sync. After a failed one it is the
    /// length that the disk knows.
    fn len_after_crash(&self, prng: &mut Prng) -> u64 {
        if !self.is_len_dirty {
            return self.durable_len;
        }
        let (low, high) = (self.durable_len.min(self.len_low), self.durable_len.max(self.len()));
        match prng.below(4) {
            0 => low,
            1 => high,
            _ => low + prng.below(high - low + 1),
        }
    }

    /// Returns what the platter holds in the place of a sector.
    fn platter_content(&self, sector: u64, damage: Damage, prng: &mut Prng) -> Sector {
        // The bytes from before the file was cut are not its content, whatever length the disk knows since.
        let is_known = !self.fresh.contains(&sector);
        match self.platter.get(sector as usize) {
            Some(content) if is_known => *content,
            // A block that looks most like what is expected: a copy of another one of the same file, as an
            // earlier file that was written alike has left it. Only of synced sectors: no block can hold the
            // bytes that are only now being written, in another place. So in a file without synced bytes no
            // block of a log comes back, and none in the place that it had before the file was cut. File
            // systems that hand out blocks as they are (ext2, FAT, an ext4 with
            // `data=writeback,dioread_lock`) may do that too: docs/design/durability.md, "Old blocks".
            _ if damage.old_blocks && prng.one_in(2) => self.synced_sector(prng),
            _ => [0; SECTOR_BYTES],
        }
    }

    /// Zeros, if the one that is drawn was not.
    fn synced_sector(&self, prng: &mut Prng) -> Sector {
        let drawn = prng.below(self.sectors_of_platter().max(1));
        let is_synced = drawn < self.sectors_of_platter() && !self.fresh.contains(&drawn);
        let content = self.platter.get(drawn as usize).filter(|_| is_synced);
        content.copied().unwrap_or([0; SECTOR_BYTES])
    }

    pub fn check_invariants(&self) {
        let known = self.len().min(self.durable_len);
        for sector in 0..sectors(self.len()) {
            let is_marked = self.dirty.contains_key(&sector) || self.lost.contains(&sector);
            let is_cut = (sector + 1) * SECTOR_BYTES as u64 > known;
            assert!(
                is_marked || is_cut || self.platter[sector as usize] == cut(&self.cached, sector),
                "sector {sector} is clean and differs"
            );
        }
        let end = sectors(self.len());
        let marks = self.dirty.keys().chain(&self.lost).chain(&self.fresh);
        assert!(marks.copied().all(|sector| sector < end), "a mark behind the end");
        assert!(self.dirty.keys().all(|sector| !self.lost.contains(sector)), "dirty and lost");
    }
}

fn sectors(len: u64) -> u64 {
    len.div_ceil(SECTOR_BYTES as u64)
}

/// A sector of a file's bytes, with zeros after their end.
fn cut(bytes: &[u8], sector: u64) -> Sector {
    let mut content = [0; SECTOR_BYTES];
    let rest = bytes.get(sector as usize * SECTOR_BYTES..).unwrap_or_default();
    let count = rest.len().min(SECTOR_BYTES);
    content[..count].copy_from_slice(&rest[..count]);
    content
}
