//! Valkey's checkers and ours get equal files: sound, cut at every byte, with bytes changed.
//!
//! Reports of AOFs are compared to the byte. Reports of RDB files are compared to the byte where the file is
//! sound, and by their verdict elsewhere. Needs `ISOTHERM_PEER_BIN`; a reported skip without.

mod files;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use files::{Folder, aof, rdb};

const OUR_RDB: &str = env!("CARGO_BIN_EXE_isotherm-check-rdb");
const OUR_AOF: &str = env!("CARGO_BIN_EXE_isotherm-check-aof");

fn peer(program: &str) -> Option<PathBuf> {
    match std::env::var_os("ISOTHERM_PEER_BIN") {
        Some(folder) => Some(PathBuf::from(folder).join(program)),
        None => {
            eprintln!("skipped: ISOTHERM_PEER_BIN does not say where Valkey's programs are");
            None
        }
    }
}

#[derive(PartialEq, Eq)]
struct Seen {
    code: Option<i32>,
    text: String,
}

impl std::fmt::Debug for Seen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "exit code {:?}\n{}", self.code, self.text)
    }
}

fn run(program: &Path, folder: &Path, words: &[&str], answer: &str) -> Seen {
    let mut child = Command::new(program)
        .args(words)
        .current_dir(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the program runs");
    // A program that asks nothing may have ended.
    let _ = child.stdin.take().expect("it is piped").write_all(answer.as_bytes());
    let output = child.wait_with_output().expect("it ends");
    let text = output.stdout.escape_ascii().to_string().replace("\\n", "\n");
    // A line of the log, which Valkey's checker writes for want of a server.
    let kept = text.lines().filter(|line| !line.contains("Cleaning slot migration log"));
    // After the end of a line Valkey shows what its buffer held before.
    let kept = kept.map(|line| line.find("got: 00").map_or(line, |at| &line[..at]));
    Seen { code: output.status.code(), text: kept.map(|line| format!("{line}\n")).collect() }
}

/// Runs both on a copy of the file each, and compares what they say and leave.
fn compare_aof(peer: &Path, bytes: &[u8], words: &[&str], what: &str) {
    let run_one = |program: &Path| {
        let folder = Folder::new();
        folder.write("appendonly.aof", bytes);
        let seen = run(program, folder.path(), &[words, &["appendonly.aof"]].concat(), "y\n");
        (seen, folder.read("appendonly.aof"))
    };
    let (theirs, left_by_them) = run_one(peer);
    let (ours, left_by_us) = run_one(Path::new(OUR_AOF));
    assert_eq!(theirs, ours, "{what}: {}", bytes.escape_ascii());
    assert!(left_by_them == left_by_us, "{what}: the files differ: {}", bytes.escape_ascii());
}

#[test]
fn appendonly_files() {
    let Some(peer) = peer("valkey-check-aof") else { return };
    let whole = aof();
    for cut in 0..=whole.len() {
        compare_aof(&peer, &whole[..cut], &[], "cut");
        compare_aof(&peer, &whole[..cut], &["--fix"], "cut and mended");
    }
    for at in 0..whole.len() {
        for byte in [b'\n', b'9', b'\xff', whole[at] ^ 1] {
            let mut changed = whole.clone();
            changed[at] = byte;
            // Half a gigabyte for a length that is not there is not ours to compare.
            if longest_length(&changed) < 1 << 20 {
                compare_aof(&peer, &changed, &[], "changed");
            }
        }
    }
    for seconds in ["1699999999", "1700000000", "1700000004", "1700000005", "1700000009", "0", "x", "7x"] {
        compare_aof(&peer, &whole, &["--truncate-to-timestamp", seconds], seconds);
    }
    let odd: [&[u8]; 8] = [
        b"*0\r\n",
        b"*-1\r\n",
        b"*1\r\n$-1\r\n",
        b"*1\r\n$4\r\nexec\r\n",
        b"*1\r\n$5\r\nmulti\r\n*1\r\n$5\r\nMULTI\r\n",
        b"* 1\r\n$+1\r\na\r\n",
        b"*1\n$1\na\n",
        b"#TS:1700000009\r\n*1\r\n$1\r\na\r\n",
    ];
    for bytes in odd {
        compare_aof(&peer, bytes, &[], "odd");
        compare_aof(&peer, bytes, &["--truncate-to-timestamp", "1700000001"], "odd");
    }
    let long = [b"#".as_slice(), &b"x".repeat(1100), b"\r\n"].concat();
    compare_aof(&peer, &long, &[], "a long comment");
    compare_aof(&peer, b"#isotherm ended 1764316800 rdb none", &[], "a manifest that lists nothing");
}

/// The largest of the numbers after `$`.
fn longest_length(bytes: &[u8]) -> u64 {
    let lengths = bytes.split(|byte| *byte == b'$').skip(1).map(|rest| {
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit());
        digits.fold(0_u64, |sum, digit| sum.saturating_mul(10).saturating_add(u64::from(digit - b'0')))
    });
    lengths.max().unwrap_or(0)
}

#[test]
fn files_of_a_manifest() {
    let Some(peer) = peer("valkey-check-aof") else { return };
    let whole = aof();
    let preamble = [rdb(11, true), whole.clone()].concat();
    let cut = &whole[..whole.len() - 3];
    let bases: [&[u8]; 4] = [&whole, &preamble, cut, b""];
    for base in bases {
        for incr in [whole.as_slice(), cut, b""] {
            for words in [&["--fix"][..], &[], &["--truncate-to-timestamp", "1700000002"]] {
                let run_one = |program: &Path| {
                    let folder = Folder::new();
                    folder.write("a.aof.1.base.rdb", base);
                    folder.write("a.aof.1.incr.aof", incr);
                    let manifest =
                        "#hello\nfile a.aof.1.base.rdb seq 1 type b\nfile a.aof.1.incr.aof seq 1 type i\n";
                    folder.write("a.aof.manifest", manifest.as_bytes());
                    let seen = run(program, folder.path(), &[words, &["a.aof.manifest"]].concat(), "n\n");
                    (seen, folder.read("a.aof.1.base.rdb"), folder.read("a.aof.1.incr.aof"))
                };
                let (theirs, ours) = (run_one(&peer), run_one(Path::new(OUR_AOF)));
                let named = |seen: Seen| {
                    let text = seen.text.replace("valkey-check", "isotherm-check");
                    let lines = text.lines().map(|line| line.split(", ok_up_to_line").next().unwrap_or(line));
                    Seen { text: lines.map(|line| format!("{line}\n")).collect(), ..seen }
                };
                assert_eq!(named(theirs.0), named(ours.0));
                assert!(theirs.1 == ours.1 && theirs.2 == ours.2, "the files differ");
            }
        }
    }
}

#[test]
fn rdb_files() {
    let Some(peer) = peer("valkey-check-rdb") else { return };
    let check = |bytes: &[u8], words: &[&str]| {
        let folder = Folder::new();
        folder.write("dump.rdb", bytes);
        let words = [&["dump.rdb"], words].concat();
        [&peer, Path::new(OUR_RDB)].map(|program| run(program, folder.path(), &words, ""))
    };
    for (version, has_sum) in [(11, true), (11, false), (80, true), (12, true), (987, true)] {
        let whole = rdb(version, has_sum);
        for words in
            [&[][..], &["--stats"], &["--stats", "--format", "info"], &["--stats", "--format", "csv"]]
        {
            let [theirs, ours] = check(&whole, words);
            let ours = Seen {
                text: ours.text.replace("[info] isotherm-server loads this version without it\n", ""),
                ..ours
            };
            assert_eq!(theirs.code, Some(0), "{theirs:?}");
            assert_eq!(theirs, ours);
        }
    }
    let whole = rdb(11, true);
    for cut in (0..whole.len()).step_by(5) {
        let [theirs, ours] = check(&whole[..cut], &[]);
        assert_eq!((theirs.code, ours.code), (Some(1), Some(1)), "cut at {cut}: {theirs:?}\n{ours:?}");
        let said = "--- RDB ERROR DETECTED ---";
        assert_eq!(theirs.text.contains(said), ours.text.contains(said), "cut at {cut}");
    }
    for at in (0..whole.len() - 8).step_by(5) {
        let mut changed = whole.clone();
        changed[at] ^= 1 << (at % 8);
        let [theirs, ours] = check(&changed, &[]);
        assert_ne!((theirs.code, ours.code), (Some(0), Some(0)), "byte {at}");
        assert_eq!(theirs.code == Some(0), ours.code == Some(0), "byte {at}: {theirs:?}\n{ours:?}");
    }
}

#[test]
fn no_file_at_all() {
    let Some(peer) = peer("valkey-check-aof") else { return };
    let folder = Folder::new();
    let both = [peer.as_path(), Path::new(OUR_AOF)].map(|program| run(program, folder.path(), &["none"], ""));
    assert_eq!(both[0], both[1]);
    let rdb = peer.with_file_name("valkey-check-rdb");
    let both = [rdb.as_path(), Path::new(OUR_RDB)].map(|program| run(program, folder.path(), &["none"], ""));
    assert_eq!(both[0], both[1]);
    assert!(fs::read_dir(folder.path()).expect("the folder is there").next().is_none());
}
