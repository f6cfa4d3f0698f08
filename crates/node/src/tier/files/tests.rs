//! Files of segments on a simulated disk: which are open, how far they are named, what becomes of lost ones.

use crate::tier::files::*;
use isotherm_disk::{FaultyDisk, Plan, SimDisk, Trouble, Troubles};
use isotherm_keyspace::Slot;
use isotherm_tier::{Log, LogConfig, Stream};

const ACCESS: Access = Access { wants_direct: true, open_max: 2, is_synced_later: true, is_shared: true };

fn open(disk: &Arc<dyn Disk>, segments: u32, claim: &Claim, access: Access) -> Result<Files, String> {
    Files::open(Arc::clone(disk), Path::new("cold"), segments, claim, access)
}

/// More segments than may be open: all are read, named, synced, found by the next start, cut and removed.
#[test]
fn segments_need_no_descriptor_each() {
    for wants_direct in [true, false] {
        let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(7, Plan::default()));
        let access = Access { wants_direct, ..ACCESS };
        let mut claim = Claim::of_nothing();
        let files = open(&disk, 20, &claim, access).expect("it is free");
        let block = |segment: u32| [segment as u8; BLOCK_BYTES];
        for (segment, at) in (0..2).flat_map(|at| (0..20).map(move |segment| (segment, at))) {
            let written = files.write(SegmentNumber(segment), at * BLOCK_BYTES as u64, &block(segment));
            written.expect("it is written");
            assert!(files.open_files().0 <= 2);
        }
        let bytes = BLOCK_BYTES as u64;
        let named: Vec<_> = (0..20).map(|n| Named { segment: SegmentNumber(n), bytes }).collect();
        let checkpoint = files.checkpoint(&named);
        assert_eq!(checkpoint.named(), named);
        files.sync(&checkpoint).expect("it is durable");
        claim.checkpoint = Some(checkpoint);
        drop(files);
        let files = open(&disk, 20, &claim, access).expect("all is there");
        for segment in (0..20).rev() {
            let mut read = [0; 2 * BLOCK_BYTES];
            let number = SegmentNumber(segment);
            files.read_stretch(number, 0, &mut read[..BLOCK_BYTES]).expect("it is there");
            assert_eq!(read[..BLOCK_BYTES], block(segment));
            assert!(files.read_stretch(number, 0, &mut read).is_err(), "it was cut");
            files.file_in_order(number).expect("it is there");
            assert!(files.open_files().0 <= 2);
        }
        (0..20).for_each(|segment| files.remove(SegmentNumber(segment)).expect("it is there"));
        assert_eq!(files.open_files().0, 0);
    }
}

/// Folders that were moved: the owner's file names the manifest where it is, at once or with the next base.
#[test]
fn an_owner_that_has_moved_is_named_anew() {
    for is_full in [false, true] {
        let troubles = Arc::<Troubles>::default();
        let disk = FaultyDisk::new(Arc::new(SimDisk::new(7, Plan::default())), Arc::clone(&troubles));
        let disk: Arc<dyn Disk> = Arc::new(disk);
        let access = Access { wants_direct: false, ..ACCESS };
        let mut claim = Claim { has_manifest: true, ..Claim::of_nothing() };
        let files = open(&disk, 4, &claim, access).expect("it is free");
        files.write(SegmentNumber(0), 0, &[7; BLOCK_BYTES]).expect("no fault is set");
        let checkpoint = files.checkpoint(&[Named { segment: SegmentNumber(0), bytes: 1 << 20 }]);
        files.sync(&checkpoint).expect("it is durable");
        drop(files);
        claim = Claim { checkpoint: Some(checkpoint), manifest: PathBuf::from("elsewhere"), ..claim };
        troubles.writes.set(is_full.then_some((Trouble::NoSpace, u64::MAX)));
        let files = open(&disk, 4, &claim, access).expect("it is its own");
        if is_full {
            troubles.writes.set(None);
            files.sync(&files.checkpoint(&[])).expect("there is room");
        }
        drop(files);
        // The process ended after a base that refers to nothing was in force, and before the folder said so.
        claim.checkpoint = None;
        let files = open(&disk, 4, &claim, access).expect("it is still its own");
        assert!(!files.has_owner());
    }
}

/// A base has what is there of a file that is shorter than what was named, as its last group failed.
#[test]
fn a_segment_is_named_as_far_as_it_was_written() {
    let troubles = Arc::<Troubles>::default();
    let disk = FaultyDisk::new(Arc::new(SimDisk::new(7, Plan::default())), Arc::clone(&troubles));
    let files =
        open(&(Arc::new(disk) as Arc<dyn Disk>), 4, &Claim::of_nothing(), ACCESS).expect("it is free");
    let named = [0, 1, 2].map(|number| Named { segment: SegmentNumber(number), bytes: 1 << 20 });
    for segment in [0, 2] {
        files.write(SegmentNumber(segment), 0, &[7; BLOCK_BYTES]).expect("no fault is set");
    }
    troubles.writes.set(Some((Trouble::Short, 1)));
    assert!(files.write(SegmentNumber(2), BLOCK_BYTES as u64, &[7; BLOCK_BYTES]).is_err());
    assert_eq!(
        files.checkpoint(&named).named(),
        [0, 2].map(|number| Named { segment: SegmentNumber(number), bytes: BLOCK_BYTES as u64 })
    );
}

/// A name that another process removed is an error of the disk; one that went with its segment is none.
#[test]
fn a_file_that_is_lost_is_an_error() {
    let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(7, Plan::default()));
    let files = open(&disk, 4, &Claim::of_nothing(), Access { open_max: 1, ..ACCESS }).expect("it is free");
    (0..2).for_each(|n| files.write(SegmentNumber(n), 0, &[7; BLOCK_BYTES]).expect("it is written"));
    disk.remove(&files.path(SegmentNumber(0))).expect("it is there");
    let read = |segment| files.read(Place::new(SegmentNumber(segment), 0, 10), b"key");
    assert!(matches!(read(0), Err(ReadError::Io(_))));
    assert!(matches!(read(1), Err(ReadError::Damaged(_))));
    files.remove(SegmentNumber(1)).expect("it is there");
    assert!(matches!(read(1), Err(ReadError::NoFile)));
}

#[test]
fn a_value_is_read_by_its_key_alone_and_a_freed_one_is_not() {
    let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(7, Plan::default()));
    let config = LogConfig::of_bytes(1 << 30);
    let files = open(&disk, config.segments_max(), &Claim::of_nothing(), ACCESS).unwrap();
    let mut log = Log::new(config);
    let record = |key: &'static [u8], payload: &'static [u8]| Record {
        form: 0,
        expiry: None,
        database: 0,
        slot: Slot::of_key(key),
        key,
        payload,
    };
    let place = log.append(Stream::Fresh, &record(b"key", b"a value"), None).unwrap();
    log.seal(Stream::Fresh);
    let write = log.next_write().unwrap();
    files.write(write.segment, write.offset, write.bytes).unwrap();
    assert_eq!(files.read(place, b"key").unwrap(), b"a value");
    assert_eq!(files.read_in_order(place, b"key").unwrap(), b"a value");
    assert!(matches!(files.read(place, b"kex"), Err(ReadError::OtherKey | ReadError::Damaged(_))));
    let beside = Place::new(place.segment(), place.offset() + 16, 7);
    assert!(files.read(beside, b"key").is_err());
    files.remove(place.segment()).unwrap();
    assert!(matches!(files.read(place, b"key"), Err(ReadError::NoFile)));
    // The folder is this one's.
    assert!(open(&disk, 4, &Claim::of_nothing(), ACCESS).is_err_and(|why| why.contains("in use")));
}
