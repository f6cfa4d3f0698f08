//! `isotherm-check-aof --swap-dir`: whether what a base refers to is on disk, as it was written.

use crate::common::{Server, encode, field, wait_until};
use crate::swap_checkpoint::{Folder, kill, rewrite};
use isotherm_check::Report;
use isotherm_check::aof::{Options, Repair, check};
use std::path::{Path, PathBuf};

const VALUES: usize = 3000;
const SMALL: usize = 3000;

/// Values of 900 B leave memory alone, small ones with their keys.
fn value(number: usize) -> String {
    format!("value {number:05} ").repeat(80)[..900].to_string()
}

/// All of them on disk, and a base that refers to them.
fn write_all(server: &Server) {
    let mut client = server.client();
    let mut requests: Vec<u8> =
        (0..VALUES).flat_map(|n| encode(&["SET", &format!("key:{n}"), &value(n)])).collect();
    requests.extend((0..SMALL).flat_map(|n| encode(&["SET", &format!("small:{n}"), &format!("v{n}")])));
    client.send(requests);
    (0..VALUES + SMALL).for_each(|_| client.expect("+OK\r\n"));
    client.check("DEBUG SWAP-CHAOS 1", "+OK\r\n");
    wait_until("all leaves memory", || {
        let info = client.ask("INFO swap");
        let away = field(&info, "swap_keys") + field(&info, "swap_frozen_keys");
        away == (VALUES + SMALL) as u64 && field(&info, "swap_bundles") > 0
    });
    client.check("DEBUG SWAP-CHAOS 0", "+OK\r\n");
    rewrite(&mut client);
}

fn checked(folder: &Folder, swap_dir: Option<PathBuf>) -> (bool, String) {
    let path = folder.base().with_file_name("appendonly.aof.manifest").into_os_string();
    let mut out = Vec::new();
    let options = Options { path, repair: Repair::None, swap_dir };
    let ended = check(&mut Report(&mut out), &options, &mut b"".as_slice());
    (ended.is_ok(), String::from_utf8_lossy(&out).into_owned())
}

fn segments(swap_dir: &Path) -> Vec<PathBuf> {
    let files = std::fs::read_dir(swap_dir).expect("a folder").map(|file| file.expect("a file").path());
    files.filter(|path| path.extension().is_some_and(|end| end == "cold")).collect()
}

#[test]
fn what_a_base_refers_to_is_verified() {
    let folder = Folder::new("check");
    let server = folder.start(&["--swap-freeze", "yes"]);
    write_all(&server);
    kill(server);
    let swap_dir = folder.owner().with_file_name("");
    let is_checked = || checked(&folder, Some(swap_dir.clone()));

    let (is_sound, text) = checked(&folder, None);
    let unchecked = format!("{} keys whose values are in a swap-dir, which is not checked", VALUES + SMALL);
    assert!(is_sound && text.contains(&unchecked), "{text}");
    let (is_sound, text) = is_checked();
    let all = format!("[info] {} keys whose values are in the swap-dir as they were written", VALUES + SMALL);
    assert!(is_sound && text.contains(&all) && !text.contains("[swap-dir]"), "{text}");

    // One byte of a value, then one of a record of several keys.
    for (wanted, shown) in [
        (value(1234), "The value of key 'key:1234'"),
        ("small:77".into(), "A record with keys and their values"),
    ] {
        let is_in = |path: &PathBuf| {
            let bytes = std::fs::read(path).expect("it can be read");
            let at = bytes.windows(wanted.len()).position(|window| window == wanted.as_bytes())?;
            Some((path.clone(), bytes, at))
        };
        let (path, mut bytes, at) = segments(&swap_dir).iter().find_map(is_in).expect("it is on disk");
        bytes[at] ^= 1;
        std::fs::write(&path, &bytes).expect("it can be written");
        let (is_sound, text) = is_checked();
        assert!(!is_sound && text.contains(shown) && text.contains("its checksum is wrong"), "{text}");
        bytes[at] ^= 1;
        std::fs::write(&path, &bytes).expect("it can be written");
        assert!(is_checked().0);
    }

    // A folder without its owner, or with another one.
    let owner = std::fs::read(folder.owner()).expect("it can be read");
    std::fs::write(folder.owner(), [&owner[..30], b"00", &owner[32..]].concat()).expect("it can be written");
    let (is_sound, text) = is_checked();
    assert!(!is_sound && text.contains("the folder has another log than the base refers to"), "{text}");
    std::fs::remove_file(folder.owner()).expect("it can be removed");
    let (is_sound, text) = is_checked();
    assert!(!is_sound && text.contains("owner: No such file"), "{text}");
    std::fs::write(folder.owner(), &owner).expect("it can be written");
    assert!(is_checked().0);

    // A segment that is short, of another log, not there.
    let path = segments(&swap_dir).into_iter().max_by_key(|path| path.metadata().expect("a file").len());
    let path = path.expect("there is one");
    let whole = std::fs::read(&path).expect("it can be read");
    std::fs::write(&path, &whole[..whole.len() / 2]).expect("it can be written");
    let (is_sound, text) = is_checked();
    assert!(!is_sound && text.contains("of the") && text.contains("that the base refers to"), "{text}");
    assert!(text.matches("[swap-dir]").count() <= 10, "some are named: {text}");
    std::fs::write(&path, [&[b'x'; 4096], &whole[4096..]].concat()).expect("it can be written");
    let (is_sound, text) = is_checked();
    assert!(!is_sound && text.contains("is of another time or another log"), "{text}");
    std::fs::remove_file(&path).expect("it can be removed");
    let (is_sound, text) = is_checked();
    assert!(!is_sound && text.contains("No such file"), "{text}");
    std::fs::write(&path, &whole).expect("it can be written");
    assert!(is_checked().0);
}
