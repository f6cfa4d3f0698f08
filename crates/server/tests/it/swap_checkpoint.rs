//! `swap-checkpoint`: a base of the append-only file that refers to values on disk, and what belongs to it.

use crate::common::{Client, Server, command, encode, field, free_port, text_field, wait_until};
use std::path::{Path, PathBuf};

/// A folder that is removed at the end.
pub struct Folder(PathBuf);

const OWN: [&str; 15] = [
    "--appendonly",
    "yes",
    "--appendfsync",
    "always",
    "--swap-checkpoint",
    "yes",
    "--maxmemory",
    "24mb",
    "--log-memory-limit",
    "2mb",
    "--enable-debug-command",
    "yes",
    "--auto-aof-rewrite-percentage",
    "0",
    "--swap-mode",
];

impl Folder {
    pub fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("isotherm-checkpoint-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).expect("a folder");
        Folder(path)
    }

    fn arguments<'a>(&'a self, more: &[&'a str]) -> Vec<&'a str> {
        let dir = self.0.to_str().expect("a plain path");
        [&["--dir", dir], &OWN[..], &["yes"], more].concat()
    }

    pub fn start(&self, more: &[&str]) -> Server {
        let server = Server::with_workers(2, &self.arguments(more));
        wait_until_loaded(&mut server.client());
        server
    }

    /// The message of a server that does not start.
    pub fn refusal(&self, more: &[&str]) -> String {
        let port = free_port().to_string();
        let arguments = [&self.arguments(more)[..], &["--port", &port]].concat();
        let output = command(&arguments).output().expect("it ends");
        let text =
            [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
        assert!(!output.status.success(), "{text}");
        text
    }

    pub fn base(&self) -> PathBuf {
        let files = std::fs::read_dir(self.0.join("appendonlydir")).expect("a folder");
        let mut bases = files.filter_map(|file| Some(file.ok()?.path())).filter(|path| is_base(path));
        let base = bases.next().expect("a base");
        assert!(bases.next().is_none(), "one base");
        base
    }

    pub fn owner(&self) -> PathBuf {
        self.0.join("swap/owner")
    }
}

fn is_base(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().contains(".base."))
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

const KEYS: usize = 40_000;

fn value(number: usize, version: usize) -> String {
    format!("{number}/{version}.").repeat(300)[..1000].to_string()
}

fn set(client: &mut Client, numbers: impl Iterator<Item = usize>, version: usize) {
    let numbers: Vec<usize> = numbers.collect();
    for some in numbers.chunks(100) {
        let requests = some.iter().flat_map(|n| encode(&["SET", &format!("key:{n}"), &value(*n, version)]));
        client.send(requests.collect::<Vec<u8>>());
        some.iter().for_each(|_| client.expect("+OK\r\n"));
    }
}

fn wait_until_loaded(client: &mut Client) {
    wait_until("it is loaded", || !client.ask("DBSIZE").contains("LOADING"));
}

/// Begins a rewrite, after one that has begun by itself to free files of swap-dir.
pub fn begin_rewrite(client: &mut Client) {
    const STARTED: &str = "+Background append only file rewriting started\r\n";
    wait_until("a rewrite begins", || client.ask("BGREWRITEAOF") == STARTED);
}

pub fn rewrite(client: &mut Client) {
    begin_rewrite(client);
    wait_until("the rewrite", || client.ask("INFO persistence").contains("aof_rewrite_in_progress:0"));
    assert_eq!(text_field(&client.ask("INFO persistence"), "aof_last_bgrewrite_status"), "ok");
}

fn swap(client: &mut Client, name: &str) -> u64 {
    field(&client.ask("INFO swap"), name)
}

pub fn kill(mut server: Server) {
    server.signal("KILL");
    server.wait();
}

pub fn begins_with(path: &Path, magic: &[u8]) -> bool {
    std::fs::read(path).expect("it is readable").starts_with(magic)
}

#[test]
fn a_base_refers_and_is_loaded_without_its_values() {
    let folder = Folder::new("restart");
    let server = folder.start(&[]);
    let mut client = server.client();
    set(&mut client, 0..KEYS, 0);
    client.check("PEXPIRE key:5 100000000", ":1\r\n");
    client.check("SELECT 3", "+OK\r\n");
    set(&mut client, 0..100, 7);
    client.check("RPUSH list a b c", ":3\r\n");
    client.check("SELECT 0", "+OK\r\n");
    let reads = swap(&mut client, "swap_reads");
    rewrite(&mut client);
    assert_eq!(swap(&mut client, "swap_reads"), reads, "no value is read for it");
    let cold = swap(&mut client, "swap_keys");
    let base = std::fs::metadata(folder.base()).expect("it is there").len();
    assert!(
        cold > KEYS as u64 / 2 && base < (KEYS as u64 - cold) * 1000 + 4_000_000,
        "{base} B, {cold} cold"
    );
    assert!(begins_with(&folder.base(), b"ISOTHERM1") && folder.owner().exists());
    // After the base: written over, deleted, and moved by cleaning and reading.
    set(&mut client, (0..KEYS).step_by(9), 1);
    (0..100).for_each(|n| client.check(&format!("DEL key:{}", n * 7 + 1), ":1\r\n"));
    let digest = client.ask("DEBUG DIGEST");
    kill(server);

    let server = folder.start(&[]);
    let mut client = server.client();
    let info = client.ask("INFO swap");
    assert!(field(&info, "swap_keys") > KEYS as u64 / 2, "{info}");
    assert!(field(&info, "swap_reads") < 100, "{info}");
    client.check("DEBUG CHECK-INVARIANTS", "+OK\r\n");
    assert_eq!(client.ask("DEBUG DIGEST"), digest);
    assert!(client.ask("PTTL key:5").len() > 8);
    // Again, by a base of what was loaded, and in place.
    rewrite(&mut client);
    client.check("DEBUG LOADAOF", "+OK\r\n");
    assert_eq!(client.ask("DEBUG DIGEST"), digest);
    client.check("DEBUG CHECK-INVARIANTS", "+OK\r\n");
    // The file was loaded with everything held: nothing could leave memory.
    wait_until("memory is below its limit", || field(&client.ask("INFO memory"), "used_memory") < 24 << 20);
    set(&mut client, (0..KEYS).step_by(3), 2);
    rewrite(&mut client);
    // An RDB file has all values.
    client.check("SAVE", "+OK\r\n");
    let digest = client.ask("DEBUG DIGEST");
    kill(server);
    let server = folder.start(&[]);
    let mut client = server.client();
    assert_eq!(client.ask("DEBUG DIGEST"), digest);

    // Back to a base that has all values, which needs no swap-mode.
    client.check("CONFIG SET swap-checkpoint no", "+OK\r\n");
    rewrite(&mut client);
    assert!(begins_with(&folder.base(), b"REDIS0011"));
    wait_until("the folder is scratch", || !folder.owner().exists());
    kill(server);
    let server = folder.start(&["--swap-mode", "no", "--maxmemory", "0"]);
    assert_eq!(server.client().ask("DEBUG DIGEST"), digest);
    kill(server);
    let server = folder.start(&["--swap-checkpoint", "no"]);
    assert_eq!(server.client().ask("DEBUG DIGEST"), digest);
}

/// A value that a base refers to and that is not there, or is another's, ends the start; nothing is changed
/// by that.
#[test]
fn what_is_not_there_is_said_and_nothing_is_lost() {
    let folder = Folder::new("refused");
    let server = folder.start(&[]);
    let mut client = server.client();
    set(&mut client, 0..KEYS, 0);
    rewrite(&mut client);
    let digest = client.ask("DEBUG DIGEST");
    kill(server);
    let swap = folder.0.join("swap");

    let text = folder.refusal(&["--swap-mode", "no", "--maxmemory", "0"]);
    assert!(text.contains("it is loaded with swap-mode yes only"), "{text}");

    let first = swap.join("00000000.cold");
    let bytes = std::fs::read(&first).expect("it is there");
    std::fs::remove_file(&first).expect("it goes");
    let text = folder.refusal(&[]);
    assert!(text.contains("which are not there") && text.contains("00000000.cold is missing"), "{text}");
    std::fs::write(&first, &bytes[..bytes.len() / 2]).expect("it is written");
    assert!(folder.refusal(&[]).contains("that the base refers to"));
    let mut other = bytes.clone();
    other[3000] ^= 1;
    std::fs::write(&first, &other).expect("it is written");
    assert!(folder.refusal(&[]).contains("of another time or another log"));
    std::fs::write(&first, &bytes).expect("it is written");

    let owner = std::fs::read(folder.owner()).expect("it is there");
    std::fs::remove_file(folder.owner()).expect("it goes");
    assert!(folder.refusal(&[]).contains("no log that a base refers to"));
    std::fs::write(folder.owner(), b"isotherm swap log\nid 00\n").expect("it is written");
    assert!(folder.refusal(&[]).contains("the folder has another log"));
    std::fs::write(folder.owner(), owner).expect("it is written");

    // Another server, whose append-only file does not refer to it, and this one without its own.
    let other = Folder::new("refused-other");
    let path = swap.to_str().expect("a plain path");
    let text = other.refusal(&["--swap-dir", path]);
    assert!(text.contains("Choose another swap-dir") && text.contains("appendonly.aof.manifest"), "{text}");
    let (here, away) = (folder.0.join("appendonlydir"), folder.0.join("away"));
    std::fs::rename(&here, &away).expect("it is moved");
    assert!(folder.refusal(&[]).contains("put the append-only file back"));
    std::fs::rename(&away, &here).expect("it is moved");

    // Its base is missing, empty or no base.
    let base = folder.base();
    let whole = std::fs::read(&base).expect("it is there");
    std::fs::remove_file(&base).expect("it goes");
    for append in ["yes", "no"] {
        let text = folder.refusal(&["--appendonly", append]);
        assert!(text.contains("the base of that is missing or damaged"), "{text}");
    }
    for bytes in [&b""[..], b"ISO", &[0; 4096]] {
        std::fs::write(&base, bytes).expect("it is written");
        let text = folder.refusal(&[]);
        assert!(text.contains("the base of that is missing or damaged"), "{text}");
    }
    std::fs::write(&base, whole).expect("it is written");

    // A start that does not load it leaves it for one that does.
    let server = folder.start(&["--appendonly", "no"]);
    let mut client = server.client();
    client.check("DBSIZE", ":0\r\n");
    set(&mut client, 0..KEYS, 5);
    assert!(self::swap(&mut client, "swap_keys") > 0);
    kill(server);
    let server = folder.start(&[]);
    let mut client = server.client();
    assert_eq!(client.ask("DEBUG DIGEST"), digest);
    client.check("DEBUG CHECK-INVARIANTS", "+OK\r\n");
}

/// A value that is written over waits for the next base, and a new one is made before that takes much of the
/// disk.
#[test]
fn what_waits_is_freed_by_a_new_base() {
    let folder = Folder::new("waits");
    let server = folder.start(&["--swap-max-disk", "256mb"]);
    let mut client = server.client();
    set(&mut client, 0..KEYS, 0);
    rewrite(&mut client);
    for version in 1..4 {
        set(&mut client, (0..KEYS).filter(|n| n % 5 != 0), version);
        assert!(swap(&mut client, "swap_file_bytes") <= 256 << 20);
    }
    assert_eq!(text_field(&client.ask("INFO swap"), "swap_state"), "ok");
    wait_until("a base is made", || field(&client.ask("INFO persistence"), "aof_rewrites") > 1);
    wait_until("what waits is freed", || swap(&mut client, "swap_waiting_segments") == 0);
    let digest = client.ask("DEBUG DIGEST");
    kill(server);
    let server = folder.start(&["--swap-max-disk", "256mb"]);
    assert_eq!(server.client().ask("DEBUG DIGEST"), digest);
}

/// Without a manifest a folder that is said to be referred to would be refused: a crash before the first one
/// is listed leaves none.
#[test]
fn the_first_base_has_all_values() {
    let folder = Folder::new("first");
    let server = folder.start(&["--appendonly", "no"]);
    let mut client = server.client();
    set(&mut client, 0..KEYS, 0);
    assert!(swap(&mut client, "swap_keys") > 0);
    client.check("CONFIG SET appendonly yes", "+OK\r\n");
    wait_until("the rewrite", || client.ask("INFO persistence").contains("aof_rewrite_in_progress:0"));
    assert!(begins_with(&folder.base(), b"REDIS0011"));
    assert!(!folder.owner().exists());
    rewrite(&mut client);
    assert!(begins_with(&folder.base(), b"ISOTHERM1") && folder.owner().exists());
}

/// A failed sync is not repeated: the old base stands, the next one has all values, and when the segment is
/// gone bases refer again.
#[test]
fn a_sync_that_fails_leaves_the_old_base() {
    let folder = Folder::new("sync");
    let server = folder.start(&[]);
    let mut client = server.client();
    set(&mut client, 0..KEYS, 0);
    rewrite(&mut client);
    let old = folder.base();
    set(&mut client, (0..KEYS).step_by(2), 1);
    client.check("DEBUG SWAP-FAULT sync io 1", "+OK\r\n");
    client.check("BGREWRITEAOF", "+Background append only file rewriting started\r\n");
    wait_until("the rewrite", || client.ask("INFO persistence").contains("aof_rewrite_in_progress:0"));
    assert_eq!(text_field(&client.ask("INFO persistence"), "aof_last_bgrewrite_status"), "err");
    assert_eq!(folder.base(), old);
    let digest = client.ask("DEBUG DIGEST");
    kill(server);
    let server = folder.start(&[]);
    let mut client = server.client();
    assert_eq!(client.ask("DEBUG DIGEST"), digest);

    set(&mut client, (0..KEYS).step_by(3), 2);
    client.check("DEBUG SWAP-FAULT sync io 1", "+OK\r\n");
    client.check("BGREWRITEAOF", "+Background append only file rewriting started\r\n");
    wait_until("the rewrite", || client.ask("INFO persistence").contains("aof_rewrite_in_progress:0"));
    rewrite(&mut client);
    assert!(begins_with(&folder.base(), b"REDIS0011"), "all values");
    let digest = client.ask("DEBUG DIGEST");
    wait_until("bases refer again", || {
        rewrite(&mut client);
        begins_with(&folder.base(), b"ISOTHERM1")
    });
    client.check("DEBUG CHECK-INVARIANTS", "+OK\r\n");
    kill(server);
    let server = folder.start(&[]);
    assert_eq!(server.client().ask("DEBUG DIGEST"), digest);
}

/// The base has all values also if swap-mode is switched off while the first base that refers is being
/// synced: the folder has no owner before that is over.
#[test]
fn switched_off_while_the_first_base_is_written_the_base_has_all_values() {
    let folder = Folder::new("off-early");
    let server = folder.start(&["--maxmemory", "48mb"]);
    let mut client = server.client();
    client.check("DEBUG SWAP-CHAOS 1", "+OK\r\n");
    set(&mut client, 0..1000, 0);
    wait_until("all values leave memory", || swap(&mut client, "swap_keys") == 1000);
    client.check("DEBUG SWAP-CHAOS 0", "+OK\r\n");
    client.check("DEBUG SWAP-FAULT SYNC HANG 1", "+OK\r\n");
    client.check("BGREWRITEAOF", "+Background append only file rewriting started\r\n");
    let begins =
        |path: &Path| is_base(path) && std::fs::read(path).is_ok_and(|it| it.starts_with(b"ISOTHERM1"));
    wait_until("the base refers", || {
        let mut files = std::fs::read_dir(folder.0.join("appendonlydir")).expect("a folder");
        files.any(|file| file.is_ok_and(|file| begins(&file.path())))
    });
    assert!(!folder.owner().exists());
    client.check("CONFIG SET swap-mode no", "+OK\r\n");
    client.check("DEBUG SWAP-FAULT SYNC NONE", "+OK\r\n");
    wait_until("the base is synced", || folder.owner().exists());
    wait_until("the folder is scratch", || !folder.owner().exists());
    assert!(begins_with(&folder.base(), b"REDIS0011"));
}

/// Without swap-mode no base refers: the one that does is replaced at once.
#[test]
fn switched_off_the_base_has_all_values() {
    let folder = Folder::new("off");
    let server = folder.start(&["--maxmemory", "48mb"]);
    let mut client = server.client();
    client.check("DEBUG SWAP-CHAOS 1", "+OK\r\n");
    set(&mut client, 0..10_000, 0);
    wait_until("all values leave memory", || swap(&mut client, "swap_keys") == 10_000);
    client.check("DEBUG SWAP-CHAOS 0", "+OK\r\n");
    rewrite(&mut client);
    assert!(begins_with(&folder.base(), b"ISOTHERM1"));
    let digest = client.ask("DEBUG DIGEST");
    client.check("CONFIG SET swap-mode no", "+OK\r\n");
    wait_until("the folder is scratch", || !folder.owner().exists());
    assert!(begins_with(&folder.base(), b"REDIS0011"));
    kill(server);
    let server = folder.start(&["--swap-mode", "no", "--maxmemory", "0"]);
    assert_eq!(server.client().ask("DEBUG DIGEST"), digest);
}
