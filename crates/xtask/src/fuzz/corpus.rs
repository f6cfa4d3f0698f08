//! The inputs that a fuzz target starts from, packed: one file a target in the tree instead of thousands.
//!
//! ```text
//!   fuzz/corpus/NAME.bin      [length: u32, little-endian][bytes]   repeated, the shortest input first; no input is empty
//! ```

use std::fs;
use std::path::{Path, PathBuf};

use super::make_folder;
use crate::{Fallible, place};

/// Bytes of one file. Of a corpus that needs more, the largest inputs stay out.
const PACKED_BYTES_MAX: usize = 90 << 10;
/// Bytes of all files: they are cloned with the sources.
const ALL_BYTES_MAX: u64 = 2 << 20;
const LENGTH_BYTES: usize = size_of::<u32>();

/// Adds the packed inputs of a target, if it has some, to a folder.
pub fn unpack_into(target: &str, folder: &Path) -> Fallible {
    make_folder(folder)?;
    let file = packed_file(target);
    if !file.is_file() {
        return Ok(());
    }
    let packed = fs::read(&file).map_err(|why| format!("cannot read {}: {why}", file.display()))?;
    let inputs = unpack(&packed).map_err(|why| format!("{}: {why}", file.display()))?;
    for (number, input) in inputs.iter().enumerate() {
        let path = folder.join(format!("packed-{number}"));
        fs::write(&path, input).map_err(|why| format!("cannot write {}: {why}", path.display()))?;
    }
    Ok(())
}

/// Packs the files of a folder, and returns a line about it.
pub fn pack_folder(target: &str, folder: &Path) -> Fallible<String> {
    let entries = fs::read_dir(folder).map_err(|why| format!("cannot read {}: {why}", folder.display()))?;
    let inputs: Result<Vec<_>, _> =
        entries.map(|entry| entry.and_then(|entry| fs::read(entry.path()))).collect();
    let inputs = inputs.map_err(|why| format!("cannot read {}: {why}", folder.display()))?;
    let count = inputs.len();
    let (packed, left_out) = pack(inputs);
    let file = packed_file(target);
    make_folder(&packed_folder())?;
    fs::write(&file, &packed).map_err(|why| format!("cannot write {}: {why}", file.display()))?;
    Ok(format!("packed {} inputs in {} B, left out {left_out}", count - left_out, packed.len()))
}

/// Refuses packed corpora that are too large together.
pub fn check_sizes() -> Fallible {
    let folder = packed_folder();
    let entries = fs::read_dir(&folder).map_err(|why| format!("cannot read {}: {why}", folder.display()))?;
    let bytes: u64 = entries.flatten().filter_map(|entry| entry.metadata().ok()).map(|data| data.len()).sum();
    if bytes <= ALL_BYTES_MAX { Ok(()) } else { Err(format!("{} has {bytes} B", folder.display())) }
}

fn packed_folder() -> PathBuf {
    place::root().join("fuzz/corpus")
}

fn packed_file(target: &str) -> PathBuf {
    packed_folder().join(format!("{target}.bin"))
}

/// The shortest inputs that fit into a file, and how many do not.
fn pack(mut inputs: Vec<Vec<u8>>) -> (Vec<u8>, usize) {
    inputs.retain(|input| !input.is_empty());
    inputs.sort_by(|a, b| (a.len(), a).cmp(&(b.len(), b)));
    let (mut packed, mut left_out) = (Vec::new(), 0);
    for input in &inputs {
        if packed.len() + LENGTH_BYTES + input.len() > PACKED_BYTES_MAX {
            left_out += 1;
            continue;
        }
        let length = u32::try_from(input.len()).expect("it fits into a file");
        packed.extend_from_slice(&length.to_le_bytes());
        packed.extend_from_slice(input);
    }
    (packed, left_out)
}

fn unpack(packed: &[u8]) -> Fallible<Vec<&[u8]>> {
    if packed.len() > PACKED_BYTES_MAX {
        return Err(format!("{} B are too many", packed.len()));
    }
    let (mut inputs, mut rest) = (Vec::new(), packed);
    while !rest.is_empty() {
        let at = packed.len() - rest.len();
        let (length, after) = rest.split_first_chunk().ok_or_else(|| format!("no length at byte {at}"))?;
        let length = u32::from_le_bytes(*length) as usize;
        let input = after.split_at_checked(length).filter(|_| length > 0);
        let (input, after) = input.ok_or_else(|| format!("a wrong length at byte {at}"))?;
        inputs.push(input);
        rest = after;
    }
    Ok(inputs)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packed(inputs: &[&[u8]]) -> (Vec<u8>, usize) {
        pack(inputs.iter().map(|input| input.to_vec()).collect())
    }

    #[test]
    fn inputs_come_back_by_length() {
        let (bytes, left_out) = packed(&[b"ccc", b"b", b"", &[7; 300], b"aa"]);
        let inputs: [&[u8]; 4] = [b"b", b"aa", b"ccc", &[7; 300]];
        assert_eq!((unpack(&bytes), left_out), (Ok(inputs.to_vec()), 0));
        assert_eq!(unpack(&[]), Ok(Vec::new()));
    }

    #[test]
    fn what_is_too_large_stays_out() {
        let (bytes, left_out) =
            packed(&[&[1; PACKED_BYTES_MAX], &[2; PACKED_BYTES_MAX - 20], b"x", &[3; 20]]);
        assert_eq!(unpack(&bytes).map(|inputs| inputs.len()), Ok(2));
        assert_eq!(left_out, 2);
    }

    #[test]
    fn damage_is_refused() {
        let (bytes, _) = packed(&[b"ab", b"cde"]);
        for end in 1..bytes.len() {
            assert_eq!(unpack(&bytes[..end]).is_ok(), end == LENGTH_BYTES + 2, "{end} B");
        }
        for wrong in [0, 4, u32::MAX] {
            let mut damaged = bytes.clone();
            damaged[LENGTH_BYTES + 2..][..LENGTH_BYTES].copy_from_slice(&wrong.to_le_bytes());
            assert_eq!(unpack(&damaged), Err("a wrong length at byte 6".to_string()));
        }
        assert!(unpack(&vec![1; PACKED_BYTES_MAX + 1]).is_err());
    }

    #[test]
    fn every_target_has_a_corpus_in_the_tree() {
        check_sizes().expect("they fit");
        let targets = super::super::targets().expect("there are targets");
        for target in &targets {
            let bytes = fs::read(packed_file(target)).unwrap_or_else(|why| panic!("{target}: {why}"));
            assert!(!unpack(&bytes).unwrap_or_else(|why| panic!("{target}: {why}")).is_empty(), "{target}");
        }
        let files = fs::read_dir(packed_folder()).expect("just read").count();
        assert_eq!(files, targets.len(), "a corpus of no target");
    }
}
