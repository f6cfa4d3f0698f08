//! Any bytes as an RDB file that comes in pieces of any size: an error with its place, or keys that are
//! stored; and what is held meanwhile is no more than the bytes justify.
#![no_main]

use isotherm_allocator as allocator;
use isotherm_codec::{FileTerms, load_piece};
use isotherm_keyspace::{
    Conditions, Config, Db, ExpiryMode, Held, Keyspace, Limits as Layout, NoEffects, Txn, UnixMs, Want,
};
use isotherm_persist::Limits;
use isotherm_persist::rdb::file::{FileReader, FileVersion, Item, Options, Step};
use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;

const LIMITS: Limits = Limits { text_bytes_max: 1 << 20, unfolded_bytes_max: 1 << 22 };
const FACTOR: u64 = 64;
const SLACK_BYTES: u64 = (1 << 20) + LIMITS.unfolded_bytes_max;
const DATABASES: u16 = 16;

static KEYSPACE: LazyLock<Keyspace> = LazyLock::new(|| {
    let config = Config {
        partitions: 1,
        arenas: 1,
        databases: DATABASES,
        reserve_bytes: 256 << 20,
        hash_secret: [7; 16],
        class_bytes: |bytes| bytes,
    };
    Keyspace::new(config).expect("address space")
});

fn used_bytes() -> u64 {
    allocator::allocated_bytes() + KEYSPACE.arenas().iter().map(|arena| arena.live_bytes()).sum::<u64>()
}

fn load(bytes: &[u8], piece_bytes: usize, txn: &mut Txn<'_, '_>) {
    let options = Options { limits: LIMITS, strict_version: false, checksum: false, references: true };
    let mut reader = FileReader::new(options);
    let limits = Layout::default();
    let terms = FileTerms { limits: &limits, keeps_from: Some(UnixMs(1)), replaces: false };
    let mut pieces = bytes.chunks(piece_bytes);
    loop {
        match reader.step() {
            Err(error) => {
                assert!(error.offset <= bytes.len() as u64);
                return;
            }
            Ok(Step::End) => return,
            Ok(Step::NeedsMore) => match pieces.next() {
                Some(piece) => reader.feed(piece),
                None => reader.end(),
            },
            Ok(Step::Item(Item::Piece(piece))) => {
                if piece.key.db >= u64::from(DATABASES) {
                    return;
                }
                if load_piece(txn, Db(piece.key.db as u16), &piece, &terms).is_err() {
                    return;
                }
            }
            Ok(Step::Item(_)) => {}
        }
    }
}

fuzz_target!(|input: &[u8]| {
    let [size, which, rest @ ..] = input else { return };
    // Most inputs are to get past the first nine bytes.
    let magic = match which % 5 {
        0 => None,
        1 => Some(FileVersion::PLAIN),
        2 => Some(FileVersion::FIELD_EXPIRY),
        3 => Some(FileVersion::REFERRING),
        _ => Some(FileVersion { number: 12, ..FileVersion::PLAIN }),
    };
    let mut bytes = magic.map_or(Vec::new(), |version| version.magic().to_vec());
    bytes.extend_from_slice(rest);
    let mut held = Held::new(&KEYSPACE);
    held.acquire(Want::All);
    let conditions = Conditions { now: UnixMs(1), expiry_mode: ExpiryMode::Keep, no_touch: true };
    let mut effects = NoEffects;
    let mut txn = Txn::new(&mut held, conditions, &mut effects);
    let before = used_bytes();
    load(&bytes, 1 + usize::from(*size), &mut txn);
    let used = used_bytes().saturating_sub(before);
    assert!(used <= FACTOR * bytes.len() as u64 + SLACK_BYTES, "{used} B of {} B", bytes.len());
    txn.flush(None);
    txn.free_flushed_now();
    held.check_invariants();
});
