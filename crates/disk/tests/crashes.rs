//! Properties of the simulated disk: what a crash may take and what it must leave, by seed.

use isotherm_disk::{
    Call, Damage, Disk, Fault, File, FullDisk, Mode, Plan, RandomFault, SECTOR_BYTES, SimDisk, read_exact_at,
    write_all_at,
};
use isotherm_stdx::Prng;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

const FILES: [&str; 4] = ["a", "b", "c", "d"];

/// Knowledge about a file: the bytes at its last sync, and whether it was changed since.
#[derive(Clone, Default)]
struct Known {
    bytes: Vec<u8>,
    durable: Option<Vec<u8>>,
}

fn try_content(file: &dyn File) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; file.len()? as usize];
    read_exact_at(file, &mut bytes, 0)?;
    Ok(bytes)
}

fn content(file: &dyn File) -> Vec<u8> {
    try_content(file).expect("no fault")
}

fn damage(prng: &mut Prng) -> Damage {
    Damage { torn: prng.one_in(2), reordered: prng.one_in(2), old_blocks: prng.one_in(2) }
}

fn random_bytes(prng: &mut Prng) -> Vec<u8> {
    let len = prng.below(3 * SECTOR_BYTES as u64) + 1;
    let byte = prng.below(255) as u8 + 1;
    vec![byte; len as usize]
}

/// Makes a random change of a file and of what is known of it.
fn step(file: &dyn File, known: &mut Known, prng: &mut Prng) -> io::Result<()> {
    let len = known.bytes.len() as u64;
    match prng.below(8) {
        0..4 => {
            known.durable = None;
            let (bytes, at) = (random_bytes(prng), prng.below(len + 600));
            write_all_at(file, &bytes, at).map_err(|short| short.error)?;
            let end = at as usize + bytes.len();
            known.bytes.resize(known.bytes.len().max(end), 0);
            known.bytes[at as usize..end].copy_from_slice(&bytes);
        }
        4 => {
            known.durable = None;
            let len = prng.below(len + 1000);
            file.set_len(len)?;
            known.bytes.resize(len as usize, 0);
        }
        5 => {
            assert_eq!(try_content(file)?, known.bytes);
        }
        _ => {
            file.sync_data()?;
            known.durable = Some(known.bytes.clone());
        }
    }
    Ok(())
}

/// Random work until the crash; afterwards files that were not touched since their sync are as they were.
fn run(seed: u64) -> Vec<Vec<u8>> {
    let mut prng = Prng::new(seed);
    let disk = SimDisk::new(seed, Plan { damage: damage(&mut prng), ..Plan::default() });
    let mut known: BTreeMap<&str, Known> = BTreeMap::new();
    for _ in 0..3 {
        let mut files: BTreeMap<&str, Arc<dyn File>> = BTreeMap::new();
        for name in FILES {
            files.insert(name, disk.open(Path::new(name), Mode::Create).expect("no fault"));
            known.entry(name).or_default();
        }
        disk.sync_dir(Path::new("")).expect("no fault");
        disk.set_plan(Plan {
            crash_at: Some(prng.below(80)),
            damage: damage(&mut prng),
            writeback_one_in: prng.below(4),
            ..Plan::default()
        });
        loop {
            let name = *prng.pick(&FILES);
            if step(&*files[name], known.get_mut(name).expect("all are known"), &mut prng).is_err() {
                break;
            }
            disk.check_invariants();
        }
        assert!(disk.is_stopped());
        disk.restart(Plan::default());
        disk.check_invariants();
        for name in FILES {
            let bytes = content(&*disk.open(Path::new(name), Mode::Read).expect("its name is durable"));
            let known = known.get_mut(name).expect("all are known");
            if let Some(durable) = &known.durable {
                assert_eq!(bytes, *durable, "seed {seed}, file {name}");
            }
            *known = Known { durable: Some(bytes.clone()), bytes };
        }
    }
    known.into_values().map(|known| known.bytes).collect()
}

#[test]
fn what_was_synced_survives_each_crash() {
    for seed in 0..2_000 {
        run(seed);
    }
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    for seed in 0..50 {
        assert_eq!(run(seed), run(seed));
    }
    assert_ne!(run(1), run(2));
}

/// Any part of appended bytes may be missing or torn. Each kind of damage does happen, and none that the plan
/// excludes.
#[test]
fn damage_is_what_the_plan_says() {
    let run = |seed: u64, damage: Damage| {
        let disk = SimDisk::new(seed, Plan { damage, ..Plan::default() });
        let file = disk.open(Path::new("a"), Mode::Create).expect("no fault");
        disk.sync_dir(Path::new("")).expect("no fault");
        write_all_at(&*file, &[1; 8 * SECTOR_BYTES], 0).expect("no fault");
        file.sync_data().expect("no fault");
        for sector in 0..8 {
            let at = sector * SECTOR_BYTES as u64;
            write_all_at(&*file, &[2; SECTOR_BYTES], at).expect("no fault");
        }
        disk.restart(Plan::default());
        content(&*disk.open(Path::new("a"), Mode::Read).expect("it is durable"))
    };
    let is_torn =
        |bytes: &[u8]| bytes.chunks(SECTOR_BYTES).any(|sector| sector.contains(&1) && sector.contains(&2));
    let is_reordered = |bytes: &[u8]| bytes.windows(2).any(|pair| pair == [1, 2]);
    let (mut torn, mut reordered) = (0, 0);
    for seed in 0..200 {
        let whole = run(seed, Damage::default());
        assert!(!is_torn(&whole) && !is_reordered(&whole), "seed {seed}");
        torn += u32::from(is_torn(&run(seed, Damage { torn: true, ..Damage::default() })));
        reordered += u32::from(is_reordered(&run(seed, Damage { reordered: true, ..Damage::default() })));
    }
    assert!(torn > 20 && reordered > 20, "{torn} {reordered}");
}

#[test]
fn what_lies_behind_the_synced_length_is_zeros_or_an_old_block() {
    let (mut zeros, mut old) = (0, 0);
    for seed in 0..300 {
        let disk = SimDisk::new(seed, Plan { damage: Damage::ALL, ..Plan::default() });
        let file = disk.open(Path::new("a"), Mode::Create).expect("no fault");
        disk.sync_dir(Path::new("")).expect("no fault");
        let sector = |number: u8| [number; SECTOR_BYTES];
        let is_synced = seed % 2 == 0;
        for number in 1..=6 {
            file.append(&sector(number)).expect("no fault");
            if number == 2 && is_synced {
                file.sync_data().expect("no fault");
            }
        }
        disk.restart(Plan::default());
        let bytes = content(&*disk.open(Path::new("a"), Mode::Read).expect("it is durable"));
        for (number, found) in bytes.as_chunks::<SECTOR_BYTES>().0.iter().enumerate() {
            zeros += u32::from(found[0] == 0);
            let is_old = found[0] != 0 && found[0] != number as u8 + 1;
            assert!(!is_old || is_synced && found[0] <= 2, "what no block held before: {found:?}");
            old += u32::from(is_old);
        }
    }
    assert!(zeros > 20 && old > 20, "{zeros} {old}");
}

#[test]
fn a_rename_is_whole_or_did_not_happen() {
    let mut kept = [0; 2];
    for seed in 0..400 {
        let plan = |crash_at| Plan { crash_at, damage: Damage::ALL, ..Plan::default() };
        let disk = SimDisk::new(seed, plan(None));
        let path = Path::new("a");
        write_all_at(&*disk.open(path, Mode::Create).expect("no fault"), b"old", 0).expect("no fault");
        disk.open(path, Mode::Update).and_then(|file| file.sync_all()).expect("no fault");
        disk.sync_dir(Path::new("")).expect("no fault");
        disk.set_plan(plan(Some(seed % 6)));
        let replace = || {
            let file = disk.open(Path::new("temp"), Mode::Truncate)?;
            write_all_at(&*file, b"new", 0).map_err(|short| short.error)?;
            file.sync_all()?;
            disk.rename(Path::new("temp"), path)?;
            disk.sync_dir(Path::new(""))
        };
        let replaced = replace();
        disk.restart(Plan::default());
        disk.check_invariants();
        let bytes = content(&*disk.open(path, Mode::Read).expect("one of both"));
        assert!(bytes == b"new" || bytes == b"old" && replaced.is_err(), "seed {seed}: {bytes:?}");
        kept[usize::from(bytes == b"new")] += 1;
    }
    assert!(kept.iter().all(|count| *count > 50), "{kept:?}");
}

/// Without a sync of the folder each name may be missing, and a folder takes its files along.
#[test]
fn names_are_durable_with_their_folder() {
    let mut seen = [0; 3];
    for seed in 0..200 {
        let disk = SimDisk::new(seed, Plan { damage: Damage::ALL, ..Plan::default() });
        disk.create_dir(Path::new("d")).expect("no fault");
        if seed % 2 == 0 {
            disk.sync_dir(Path::new("")).expect("no fault");
        }
        disk.open(Path::new("d/a"), Mode::Create).expect("no fault").sync_all().expect("no fault");
        disk.sync_dir(Path::new("d")).expect("no fault");
        _ = disk.open(Path::new("d/b"), Mode::Create).expect("no fault");
        disk.restart(Plan::default());
        disk.check_invariants();
        let names = disk.list(Path::new("d"));
        assert!(seed % 2 == 1 || names.is_ok(), "the folder was synced");
        match names {
            Err(_) => seen[0] += 1,
            Ok(names) if names == ["a"] => seen[1] += 1,
            Ok(names) => {
                assert_eq!(
                    names,
                    ["a", "b"],
                    "what was synced in a folder is there as long as the folder is"
                );
                seen[2] += 1;
            }
        }
    }
    assert!(seen.iter().all(|count| *count > 20), "{seen:?}");
}

/// Returns whether the bytes survive a crash after a sync that failed and one that said OK.
fn failed_sync(seed: u64) -> bool {
    let disk = SimDisk::new(seed, Plan::default());
    let file = disk.open(Path::new("a"), Mode::Create).expect("no fault");
    disk.sync_dir(Path::new("")).expect("no fault");
    write_all_at(&*file, b"abc", 0).expect("no fault");
    file.sync_data().expect("no fault");
    write_all_at(&*file, b"xyz", 0).expect("no fault");
    disk.set_plan(Plan { faults: vec![(0, Fault::Io)], ..Plan::default() });
    file.sync_data().expect_err("the plan says so");
    file.sync_data().expect("the pages are clean");
    assert_eq!(content(&*file), b"xyz", "the cache shows them");
    disk.check_invariants();
    disk.restart(Plan::default());
    content(&*disk.open(Path::new("a"), Mode::Read).expect("it is durable")) == b"xyz"
}

#[test]
fn a_sync_after_a_failed_one_promises_nothing() {
    let survived = (0..200).filter(|seed| failed_sync(*seed)).count();
    assert!((60..140).contains(&survived), "{survived}");
}

#[test]
fn a_full_disk_says_so_where_the_plan_wants_it() {
    let plan = Plan { quota_bytes: Some(1000), ..Plan::default() };
    let disk = SimDisk::new(1, plan.clone());
    let file = disk.open(Path::new("a"), Mode::Create).expect("no fault");
    let short = write_all_at(&*file, &[1; 1500], 0).expect_err("500 too many");
    assert_eq!((short.written, short.error.kind()), (1000, io::ErrorKind::StorageFull));
    assert!(file.allocate(0, 1001).is_err());
    write_all_at(&*file, &[2; 1000], 0).expect("it has those blocks");
    assert_eq!(disk.free_bytes(Path::new("")).expect("a figure"), 0);
    file.set_len(10).expect("shorter");
    assert_eq!(disk.free_bytes(Path::new("")).expect("a figure"), 990);

    let disk = SimDisk::new(1, Plan { full_disk: FullDisk::AtSync, ..plan });
    let file = disk.open(Path::new("a"), Mode::Create).expect("no fault");
    write_all_at(&*file, &[1; 1500], 0).expect("blocks are allocated late");
    assert_eq!(file.sync_data().expect_err("now").kind(), io::ErrorKind::StorageFull);
}

#[test]
fn writes_go_on_after_short_ones_and_interruptions() {
    let random = |fault| RandomFault { call: Call::Write, fault, one_in: 3 };
    let random_faults = vec![random(Fault::Short), random(Fault::Interrupted)];
    let disk = SimDisk::new(3, Plan { random_faults, ..Plan::default() });
    let file = disk.open(Path::new("a"), Mode::Create).expect("no fault");
    for number in 0..100_u8 {
        write_all_at(&*file, &[number; 100], u64::from(number) * 100).expect("only interruptions");
    }
    let bytes = content(&*file);
    assert!(bytes.chunks(100).enumerate().all(|(number, chunk)| chunk == [number as u8; 100]));
}

#[test]
fn a_read_only_disk_is_read() {
    let disk = SimDisk::new(1, Plan::default());
    write_all_at(&*disk.open(Path::new("a"), Mode::Create).expect("no fault"), b"abc", 0).expect("no fault");
    let file = disk.open(Path::new("a"), Mode::Update).expect("no fault");
    disk.set_plan(Plan { is_read_only: true, ..Plan::default() });
    let refused = |result: io::Result<()>| {
        assert_eq!(result.expect_err("read-only").kind(), io::ErrorKind::ReadOnlyFilesystem);
    };
    refused(file.write_at(b"x", 0).map(drop));
    refused(file.set_len(0));
    refused(disk.open(Path::new("b"), Mode::Create).map(drop));
    refused(disk.rename(Path::new("a"), Path::new("b")));
    refused(disk.remove(Path::new("a")));
    assert_eq!(content(&*disk.open(Path::new("a"), Mode::Read).expect("reads go on")), b"abc");
}

#[test]
fn a_killed_process_leaves_what_it_wrote() {
    let disk = SimDisk::new(1, Plan::default());
    let file = disk.open(Path::new("a"), Mode::Create).expect("no fault");
    write_all_at(&*file, b"abc", 0).expect("no fault");
    disk.kill(Plan::default());
    assert!(file.write_at(b"x", 0).is_err(), "a handle of the process before");
    assert_eq!(content(&*disk.open(Path::new("a"), Mode::Read).expect("it was created")), b"abc");
}
