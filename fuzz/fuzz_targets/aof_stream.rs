//! Any bytes as a file of an AOF, in pieces: the same items as at once, and an end after which nothing is
//! kept.
#![no_main]

use isotherm_persist::aof::stream::{End, Item, StreamError, StreamParser};
use libfuzzer_sys::fuzz_target;

const BULK_BYTES_MAX: usize = 1 << 16;

/// The ends of the items, and how the file ends, if it comes in pieces of `piece_bytes` bytes.
fn read(file: &[u8], piece_bytes: usize) -> (Vec<usize>, Result<End, StreamError>) {
    let mut parser = StreamParser::new(0, BULK_BYTES_MAX);
    let (mut ends, mut from, mut to) = (Vec::new(), 0, 0);
    loop {
        let (item, taken) = match parser.next(&file[from..to]) {
            Ok(found) => found,
            Err(error) => return (ends, Err(error)),
        };
        parser.check_invariants();
        from += taken;
        match item {
            Item::NeedMore if to == file.len() => return (ends, Ok(parser.end(to - from))),
            Item::NeedMore => to = file.len().min(to + piece_bytes),
            Item::Command(_) | Item::Comment { .. } => ends.push(from),
        }
    }
}

fuzz_target!(|input: &[u8]| {
    let [piece, file @ ..] = input else { return };
    let at_once = read(file, usize::MAX >> 1);
    assert_eq!(at_once, read(file, usize::from(*piece) + 1));
    if let Ok(End::Truncated { valid_bytes, .. }) = at_once.1 {
        let (ends, end) = read(&file[..valid_bytes as usize], usize::MAX >> 1);
        assert_eq!(end, Ok(End::Complete));
        assert!(at_once.0.starts_with(&ends));
    }
});
