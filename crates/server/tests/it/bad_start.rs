//! Starts that fail: each ends with exit code 1 and with Valkey's words.
//!
//! ```text
//! file port x\n       starts with a configuration file of this text
//! ours port x\n       the same, but what Valkey does with it is no model (COMPAT.md)
//! args "--port" "x"   starts with these arguments; standard input says "nonsense x"
//! = ...               what is said, behind the line of asterisks of a wrong configuration; or "# " and the log's last line
//! ```
//! Where `ISOTHERM_PEER_BIN` says where Valkey's programs are, the same is tried with Valkey.

use crate::common;
use crate::common::PATIENCE;
use isotherm_stdx::args_split::{Dialect, args_split};
use std::ffi::OsString;
use std::io::Write;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Instant;

const STARTS: &str = include_str!("bad_start/starts.txt");

#[test]
fn wrong_starts() {
    try_all(common::binary(), "isotherm", env!("CARGO_PKG_VERSION"));
    match std::env::var_os("ISOTHERM_PEER_BIN") {
        Some(folder) => try_all(&Path::new(&folder).join("valkey-server"), "valkey", "9.1.2"),
        None => {
            println!("skipped: wrong starts of Valkey: ISOTHERM_PEER_BIN does not say where its programs are")
        }
    }
}

fn try_all(program: &Path, name: &str, version: &str) {
    let folder = std::env::temp_dir().join(format!("isotherm-start-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let real_folder = std::fs::canonicalize(&folder).unwrap();
    let (mut wrong, mut tried) = (Vec::new(), 0);
    let mut lines = STARTS.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    while let Some(line) = lines.next() {
        let expected =
            lines.next().and_then(|line| line.strip_prefix("= ")).expect("what is said").to_string();
        let arguments = match line.split_once(' ') {
            Some(("ours", _)) if name != "isotherm" => continue,
            Some(("file" | "ours", text)) => {
                std::fs::write(folder.join("start.conf"), unescape(text)).unwrap();
                vec![OsString::from("start.conf")]
            }
            Some(("args", words)) => {
                let words = args_split(words.as_bytes(), Dialect::Request).expect("balanced quotes");
                words.into_iter().map(OsString::from_vec).collect()
            }
            _ => panic!("neither file nor args: {line}"),
        };
        let output = run(program, &arguments, &folder);
        tried += 1;
        let said = said(&output, name, version, &real_folder.display().to_string());
        if output.status.code() != Some(1) || said != unescape(&expected) {
            wrong.push(format!("{line}\n  expected {expected}\n  got      {}, {said:?}", output.status));
        }
    }
    std::fs::remove_dir_all(folder).unwrap();
    assert!(tried > 80, "only {tried}");
    assert!(wrong.is_empty(), "{name}, {} of {tried}:\n{}", wrong.len(), wrong.join("\n"));
}

fn run(program: &Path, arguments: &[OsString], folder: &Path) -> Output {
    let mut command = Command::new(program);
    command.args(arguments).current_dir(folder);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // Most end without listening.
    let _ = child.stdin.take().expect("it is piped").write_all(b"nonsense x\n");
    let begun = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if begun.elapsed() > PATIENCE / 4 {
            child.kill().unwrap();
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    child.wait_with_output().unwrap()
}

/// The output, without the parts that differ from run to run and from server to server.
fn said(output: &Output, name: &str, version: &str, folder: &str) -> String {
    let errors = String::from_utf8_lossy(&output.stderr);
    let text = match errors.split_once("***\n") {
        Some((_, text)) => text.trim_end_matches('\n').to_string(),
        None => {
            // `<pid>:<role> <day> <month> <year> <time> <level> <text>`
            let log = String::from_utf8_lossy(&output.stdout);
            let last = log.lines().last().unwrap_or_default();
            last.splitn(6, ' ').nth(5).unwrap_or_default().to_string()
        }
    };
    let mut text = text.replace(folder, "<folder>").replace(version, "<version>");
    for spelling in [name.to_string(), name[..1].to_uppercase() + &name[1..]] {
        text = text.replace(&spelling, "<name>");
    }
    text
}

fn unescape(text: &str) -> String {
    let mut out = String::new();
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        if character != '\\' {
            out.push(character);
            continue;
        }
        out.push(match characters.next().expect("something behind a backslash") {
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'x' => {
                let digits: String = characters.by_ref().take(2).collect();
                char::from(u8::from_str_radix(&digits, 16).expect("two digits"))
            }
            other => other,
        });
    }
    out
}
