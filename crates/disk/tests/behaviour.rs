//! Equal behaviour of the machine's disk and of the simulated one without faults.

use isotherm_disk::{Disk, File, Mode, OsDisk, Plan, SimDisk, read_exact_at, write_all_at};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// A folder that is removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("isotherm-disk-{}-{name}", std::process::id()));
        std::fs::create_dir(&path).expect("a fresh folder");
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Runs one case over both.
fn check(name: &str, case: impl Fn(&dyn Disk, &Path)) {
    let folder = Folder::new(name);
    case(&OsDisk, &folder.0);
    let sim = SimDisk::new(1, Plan::default());
    sim.create_dir(Path::new("d")).expect("no fault");
    case(&sim, Path::new("d"));
    sim.check_invariants();
}

#[track_caller]
fn fails<T>(result: std::io::Result<T>, kind: ErrorKind) {
    assert_eq!(result.err().map(|error| error.kind()), Some(kind));
}

fn content(file: &dyn File) -> Vec<u8> {
    let mut bytes = vec![0; file.len().expect("its length") as usize];
    read_exact_at(file, &mut bytes, 0).expect("as long as it said");
    bytes
}

#[test]
fn bytes_come_back() {
    check("bytes", |disk, folder| {
        let file = disk.open(&folder.join("a"), Mode::Create).expect("created");
        assert!(file.is_empty().expect("its length"));
        write_all_at(&*file, b"hello world", 0).expect("room");
        write_all_at(&*file, b"W", 6).expect("room");
        assert_eq!(file.append(b"!").expect("room"), 1);
        assert_eq!(content(&*file), b"hello World!");
        write_all_at(&*file, b"x", 14).expect("room");
        assert_eq!(content(&*file), b"hello World!\0\0x");
        file.set_len(5).expect("shorter");
        file.set_len(7).expect("longer");
        assert_eq!(content(&*file), b"hello\0\0");
        let mut room = [9; 4];
        assert_eq!(file.read_at(&mut room, 5).expect("two bytes"), 2);
        assert_eq!(file.read_at(&mut room, 100).expect("the end"), 0);
        fails(read_exact_at(&*file, &mut room, 5), ErrorKind::UnexpectedEof);
        file.sync_data().expect("a sync");
        file.sync_all().expect("a sync");
        assert_eq!(content(&*disk.open(&folder.join("a"), Mode::Read).expect("it exists")), b"hello\0\0");
    });
}

#[test]
fn modes_say_what_has_to_exist() {
    check("modes", |disk, folder| {
        let path = folder.join("a");
        fails(disk.open(&path, Mode::Read), ErrorKind::NotFound);
        fails(disk.open(&path, Mode::Update), ErrorKind::NotFound);
        write_all_at(&*disk.open(&path, Mode::CreateNew).expect("new"), b"abc", 0).expect("room");
        fails(disk.open(&path, Mode::CreateNew), ErrorKind::AlreadyExists);
        assert_eq!(content(&*disk.open(&path, Mode::Create).expect("there")), b"abc");
        assert_eq!(content(&*disk.open(&path, Mode::Update).expect("there")), b"abc");
        let read_only = disk.open(&path, Mode::Read).expect("there");
        assert!(read_only.write_at(b"x", 0).is_err());
        assert!(read_only.set_len(0).is_err());
        assert_eq!(content(&*disk.open(&path, Mode::Truncate).expect("emptied")), b"");
        fails(disk.open(&folder.join("none/a"), Mode::Create), ErrorKind::NotFound);
        fails(disk.open(&folder.join("a/b"), Mode::Create), ErrorKind::NotADirectory);
        fails(disk.open(folder, Mode::Update), ErrorKind::IsADirectory);
    });
}

#[test]
fn names_change() {
    check("names", |disk, folder| {
        let [a, b, sub] = ["a", "b", "sub"].map(|name| folder.join(name));
        write_all_at(&*disk.open(&a, Mode::Create).expect("a"), b"a", 0).expect("room");
        write_all_at(&*disk.open(&b, Mode::Create).expect("b"), b"b", 0).expect("room");
        let old = disk.open(&b, Mode::Update).expect("b");
        disk.rename(&a, &b).expect("over b");
        assert_eq!(content(&*disk.open(&b, Mode::Read).expect("a's bytes")), b"a");
        assert_eq!(content(&*old), b"b", "an open file outlives its name");
        fails(disk.rename(&a, &b), ErrorKind::NotFound);
        disk.create_dir(&sub).expect("sub");
        fails(disk.create_dir(&sub), ErrorKind::AlreadyExists);
        disk.rename(&b, &sub.join("c")).expect("into another folder");
        fails(disk.rename(&sub.join("c"), &folder.join("none/c")), ErrorKind::NotFound);
        _ = disk.open(&folder.join("z"), Mode::Create).expect("z");
        assert_eq!(disk.list(folder).expect("a folder"), ["sub", "z"]);
        assert_eq!(disk.list(&sub).expect("a folder"), ["c"]);
        disk.sync_dir(&sub).expect("a sync");
        disk.sync_dir(folder).expect("a sync");
        disk.remove(&sub.join("c")).expect("there");
        fails(disk.remove(&sub.join("c")), ErrorKind::NotFound);
        fails(disk.list(&folder.join("none")), ErrorKind::NotFound);
        assert!(disk.free_bytes(folder).expect("a figure") > 0);
    });
}

#[test]
fn reserved_blocks_read_as_zeros() {
    check("allocate", |disk, folder| {
        let file = disk.open(&folder.join("a"), Mode::Create).expect("a");
        write_all_at(&*file, b"ab", 0).expect("room");
        file.allocate(0, 4).expect("room");
        assert_eq!(content(&*file), b"ab\0\0");
        file.allocate(0, 1).expect("it has that");
        assert_eq!(file.len().expect("its length"), 4);
    });
}
