//! Faults that only our checkers report: torn and damaged commits, elements that are there twice, bases of
//! version 80.

mod files;

use files::{Folder, aof, rdb};
use isotherm_check::aof::{Options, Repair, check};
use isotherm_check::progress::Progress;
use isotherm_check::{Report, rdb as check_rdb};
use isotherm_persist::aof::commit::header;
use isotherm_persist::rdb::file::{FileHead, FileVersion, end, head};
use isotherm_persist::rdb::{Writer, record};
use isotherm_stdx::Prng;
use isotherm_stdx::crc64::crc64;

const SMALL: &[u8] = b"*1\r\n$4\r\nPING\r\n";

fn checked(folder: &Folder, name: &str, repair: Repair) -> (bool, String) {
    let options = Options { path: folder.path().join(name).into_os_string(), repair, swap_dir: None };
    let mut out = Vec::new();
    let ended = check(&mut Report(&mut out), &options, &mut b"yes\n".as_slice());
    (ended.is_ok(), String::from_utf8_lossy(&out).into_owned())
}

/// Two commits. The second one says that the first was durable, or not.
fn two_commits(is_durable: bool) -> (Vec<u8>, usize) {
    let frames = aof();
    let mut bytes = header(0, 0, std::iter::once(frames.as_slice()));
    bytes.extend_from_slice(&frames);
    let second = bytes.len();
    let synced = if is_durable { second as u64 } else { 0 };
    bytes.extend(header(second as u64, synced, std::iter::once(frames.as_slice())));
    bytes.extend_from_slice(&frames);
    (bytes, second)
}

#[test]
fn a_torn_commit_is_cut_off() {
    let (whole, second) = two_commits(false);
    for cut in second + 1..whole.len() {
        let folder = Folder::new();
        folder.write("a.aof", &whole[..cut]);
        let (is_sound, text) = checked(&folder, "a.aof", Repair::None);
        assert!(!is_sound && text.contains(&format!("ok_up_to={second},")), "cut at {cut}: {text}");
        assert!(!text.contains("damaged"), "{text}");
        let (is_sound, text) = checked(&folder, "a.aof", Repair::Fix);
        assert!(is_sound && text.contains("Successfully truncated AOF"), "{text}");
        assert_eq!(folder.read("a.aof"), whole[..second]);
        assert!(checked(&folder, "a.aof", Repair::None).0);
    }
}

#[test]
fn a_value_that_was_changed_is_found() {
    let (whole, second) = two_commits(false);
    let at = second + whole[second..].windows(5).position(|bytes| bytes == b"value").expect("a value");
    let mut changed = whole.clone();
    changed[at] ^= 1;
    changed.extend_from_slice(SMALL);
    let folder = Folder::new();
    folder.write("a.aof", &changed);
    let (is_sound, text) = checked(&folder, "a.aof", Repair::None);
    let expected = format!("0x{second:16x}: Expected a whole commit, got other bytes than were written\n");
    assert!(!is_sound && text.contains(&expected), "{text}");
}

#[test]
fn damage_of_what_was_durable_is_named() {
    let (whole, _) = two_commits(true);
    let at = whole.windows(5).position(|bytes| bytes == b"value").expect("a value");
    let mut changed = whole.clone();
    changed[at] ^= 1;
    let folder = Folder::new();
    folder.write("a.aof", &changed);
    let (is_sound, text) = checked(&folder, "a.aof", Repair::None);
    assert!(!is_sound && text.contains("ok_up_to=0,") && text.contains("damaged afterwards"), "{text}");
    folder.write("a.aof", &whole);
    assert!(checked(&folder, "a.aof", Repair::None).0);
}

#[test]
fn a_manifest_says_how_long_a_file_is() {
    let folder = Folder::new();
    folder.write("a.aof.1.base.rdb", &rdb(80, true));
    folder.write("a.aof.1.incr.aof", &[SMALL, b"what a block held before"].concat());
    let manifest = |len: usize| {
        format!(
            "#isotherm incr 1 start 0 len {len}\nfile a.aof.1.base.rdb seq 1 type b\nfile a.aof.1.incr.aof seq 1 type i\n"
        )
    };
    folder.write("a.aof.manifest", manifest(SMALL.len()).as_bytes());
    let (is_sound, text) = checked(&folder, "a.aof.manifest", Repair::None);
    assert!(is_sound && text.ends_with("All AOF files and manifest are valid\n"), "{text}");
    assert!(text.contains("Start to check BASE AOF (RDB format)."), "{text}");
    folder.write("a.aof.manifest", manifest(1000).as_bytes());
    let (is_sound, text) = checked(&folder, "a.aof.manifest", Repair::None);
    assert!(!is_sound && text.contains("bytes of the 1000 that its manifest lists"), "{text}");
    folder.write("a.aof.manifest", b"file nothing\n!!!\n");
    let (is_sound, text) = checked(&folder, "a.aof.manifest", Repair::None);
    let expected = "\n*** FATAL AOF MANIFEST FILE ERROR ***\nReading the manifest file, at line 1\n\
                    >>> 'file nothing'\nInvalid AOF manifest file format\n";
    assert!(!is_sound && text.ends_with(expected), "{text}");
}

/// Valkey's program skips comments, and looks for no file that is not listed.
#[test]
fn a_manifest_of_comments_alone_is_valid() {
    let texts = [
        "#isotherm ended 1764316800 rdb none",
        "#isotherm replid 8371445ee47ffb2b7dc8ed0b3c2b8c1e5e1a5c38 incr 1 start 0",
        "# Nothing is listed yet.\n",
    ];
    for text in texts {
        let folder = Folder::new();
        folder.write("a.aof.manifest", text.as_bytes());
        let (is_sound, seen) = checked(&folder, "a.aof.manifest", Repair::None);
        assert!(is_sound && seen.ends_with("a.aof.manifest is valid\n"), "{seen}");
    }
    // A comment that is torn off between commands is no comment: the file is not sound.
    let folder = Folder::new();
    folder.write("a.aof", b"#isotherm commit 0 1");
    assert!(!checked(&folder, "a.aof", Repair::None).0);
}

/// A base that refers to values in a swap-dir: one key that does, one that does not, and as many that lie
/// there as a bundle has.
fn referring(bundle_keys: u16) -> Vec<u8> {
    let mut writer = Writer::new(true);
    head(
        &mut writer,
        &FileHead {
            version: if bundle_keys > 0 { FileVersion::REFERRING_TO_BUNDLES } else { FileVersion::REFERRING },
            valkey_version: "9.1.2",
            created_seconds: 1_700_000_000,
            used_memory_bytes: 1_000_000,
            replication: None,
            log: None,
            is_aof_base: true,
            swap_log: Some(b"which log"),
            key_secret: (bundle_keys > 0).then_some(*b"a secret of keys"),
            functions: &[],
        },
    );
    writer.raw(&[record::SELECT_DB, 0, record::COLD]);
    writer.text(b"cold");
    writer.byte(0);
    writer.raw(&(400_u64 << 40).to_le_bytes());
    writer.byte(0);
    writer.text(b"hot");
    writer.text(b"value");
    if bundle_keys > 0 {
        writer.byte(record::BUNDLE);
        writer.raw(&[0; 15]);
        writer.raw(&(bundle_keys + 1).to_le_bytes());
        writer.raw(&[0; 4]);
        (0..bundle_keys).for_each(|_| writer.raw(&[7; 2]));
    }
    writer.byte(record::EOF);
    let mut bytes = writer.into_bytes();
    let sum = crc64(0, &bytes);
    bytes.extend_from_slice(&end(sum));
    bytes
}

/// A base that refers is checked as far as it goes; by itself it is no RDB file.
#[test]
fn a_base_that_refers() {
    let folder = Folder::new();
    let bytes = referring(0);
    folder.write("a.base.rdb", &bytes);
    folder.write("a.manifest", b"file a.base.rdb seq 1 type b\n");
    let (is_sound, text) = checked(&folder, "a.manifest", Repair::Fix);
    assert!(is_sound && text.contains("1 keys whose values are in a swap-dir"), "{text}");
    assert!(text.contains("2 keys read") && text.contains("It refers to a swap-dir"), "{text}");
    folder.write("a.base.rdb", &referring(5));
    let (is_sound, text) = checked(&folder, "a.manifest", Repair::Fix);
    assert!(is_sound && text.contains("7 keys read"), "{text}");
    assert!(text.contains("6 keys whose values are in a swap-dir") && !text.contains("a secret"), "{text}");
    folder.write("a.base.rdb", &bytes);
    for at in [bytes.len() / 2, bytes.len() - 20] {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1;
        folder.write("a.base.rdb", &damaged);
        assert!(!checked(&folder, "a.manifest", Repair::Fix).0, "{at}");
        assert_eq!(folder.read("a.base.rdb"), damaged, "nothing is cut off a base");
    }
    let (mut out, mut progress) = (Vec::new(), Progress::new(b"a", bytes.len() as u64));
    let _ = check_rdb::check(&mut Report(&mut out), b"a", &mut bytes.as_slice(), &mut progress, false);
    assert!(String::from_utf8_lossy(&out).contains("is no complete RDB file"), "{}", out.escape_ascii());
}

#[test]
fn an_element_that_is_there_twice() {
    // A set of 300 members. The last one is equal to the first.
    let mut bytes = b"REDIS0011\xfe\x00\x02\x03key\x41\x2c".to_vec();
    for number in 0..300 {
        let text = format!("member {}", number % 299);
        bytes.push(text.len() as u8);
        bytes.extend_from_slice(text.as_bytes());
    }
    bytes.push(0xff);
    let sum = crc64(0, &bytes);
    bytes.extend_from_slice(&sum.to_le_bytes());
    let mut out = Vec::new();
    let mut progress = Progress::new(b"dump.rdb", 0);
    let outcome =
        check_rdb::check(&mut Report(&mut out), b"dump.rdb", &mut bytes.as_slice(), &mut progress, false);
    let text = String::from_utf8(out).expect("the report is text");
    assert!(!outcome.expect("it is reported").is_sound);
    let expected = "Duplicate set members detected\n[additional info] While doing: read-object-value\n\
                    [additional info] Reading key 'key'\n[additional info] Reading type 2 (set-hashtable)\n\
                    [info] 1 keys read\n";
    assert!(text.contains(expected), "{text}");
}

#[test]
fn what_was_mended_is_sound() {
    let (whole, _) = two_commits(false);
    let mut prng = Prng::new(7);
    for _ in 0..400 {
        let mut bytes = whole.clone();
        for _ in 0..=prng.below(3) {
            let at = prng.below(bytes.len() as u64) as usize;
            match prng.below(4) {
                0 => bytes[at] = b"*$#\r\n019\0"[prng.below(9) as usize],
                1 => bytes[at] = prng.below(256) as u8,
                2 => drop(bytes.drain(at..(at + 20).min(bytes.len()))),
                _ => bytes.splice(at..at, b"99999999999999999999".iter().copied()).for_each(drop),
            }
        }
        let folder = Folder::new();
        folder.write("a.aof", &bytes);
        let (is_sound, _) = checked(&folder, "a.aof", Repair::None);
        let (is_mended, text) = checked(&folder, "a.aof", Repair::Fix);
        assert!(is_mended, "{text}{}", bytes.escape_ascii());
        let left = folder.read("a.aof");
        assert!(bytes.starts_with(&left) && (left.len() == bytes.len()) == is_sound, "{text}");
        assert!(checked(&folder, "a.aof", Repair::None).0, "{text}{}", bytes.escape_ascii());
    }
}

/// The words of the program, and what it ends with.
#[test]
fn the_swap_dir_stands_in_front() {
    let folder = Folder::new();
    folder.write("a.aof", &aof());
    let path = folder.path().join("a.aof");
    let ends = |words: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_isotherm-check-aof"));
        let output = command.args(words).arg(&path).output().expect("it runs");
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    for words in [&[][..], &["--swap-dir", "swap"], &["--swap-dir", "swap", "--fix"]] {
        let (code, text) = ends(words);
        assert!(code == Some(0) && text.contains("AOF"), "{words:?}: {text}");
    }
    for words in [&["--swap-dir"][..], &["--fix", "--swap-dir", "swap"], &["--swap", "swap"]] {
        let (code, text) = ends(words);
        assert!(code == Some(1) && text.starts_with("Usage: "), "{words:?}: {text}");
    }
}
