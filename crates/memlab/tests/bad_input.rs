//! The program as a user starts it: wrong words, what does not fit, and an end midway.
//!
//! Cases are run by this build of the program itself, put into a folder of its own under the name that
//! `--binaries` expects.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

const PROGRAM: &str = env!("CARGO_BIN_EXE_isotherm-memlab");

/// A folder that is gone when the test is over.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("isotherm-memlab-{name}-{}", std::process::id()));
        fs::create_dir_all(path.join("binaries")).unwrap();
        std::os::unix::fs::symlink(PROGRAM, path.join("binaries/isotherm-memlab-jemalloc")).unwrap();
        Folder(path)
    }

    fn out(&self) -> PathBuf {
        self.0.join("out")
    }

    /// `memlab LINE` with the programs and the output of this folder.
    fn command(&self, line: &str) -> Command {
        let mut command = Command::new(PROGRAM);
        command.args(line.split_whitespace()).args(["--allocators", "jemalloc", "--binaries"]);
        command.arg(self.0.join("binaries")).arg("--out").arg(self.out());
        command.arg("--kept").arg(self.0.join("kept"));
        command
    }

    fn files(&self, part: &str) -> Vec<String> {
        let Ok(list) = fs::read_dir(self.0.join(part)) else { return Vec::new() };
        let mut names: Vec<String> =
            list.map(|entry| entry.unwrap().file_name().to_string_lossy().into()).collect();
        names.sort();
        names
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).ok();
    }
}

fn said(output: &Output) -> (String, String) {
    (
        String::from_utf8_lossy(&output.stdout).into_owned(),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    )
}

#[test]
fn wrong_words_are_one_line_and_exit_2() {
    for line in ["slots", "arenas --scale 2/1", "keyspace --keys many", "churn --only x", "arenas --peers"] {
        let output = Command::new(PROGRAM).args(line.split_whitespace()).output().unwrap();
        let (out, err) = said(&output);
        assert_eq!(output.status.code(), Some(2), "{line}: {err}");
        assert_eq!((out.as_str(), err.lines().count()), ("", 1), "{line}: {err}");
    }
}

#[test]
fn what_does_not_fit_is_refused_before_anything_starts() {
    let folder = Folder::new("large");
    let output = folder.command("keyspace --keys 900000000000").output().unwrap();
    let (out, err) = said(&output);
    assert_eq!((output.status.code(), out.as_str()), (Some(1), ""), "{err}");
    // 900 x 10^9 keys of 80 B.
    assert!(err.contains("needs some 68664550 MB, and ") && err.contains(" MB are free"), "{err}");
    assert_eq!(err.lines().count(), 1, "{err}");
    assert!(folder.files("out").is_empty() && folder.files("kept").is_empty());
}

#[test]
fn a_table_is_written_whole_in_each_form() {
    let folder = Folder::new("whole");
    let output = folder.command("size-classes --scale 1/5000 --only size-classes-time").output().unwrap();
    let (out, err) = said(&output);
    assert!(output.status.success(), "{err}");
    assert_eq!(
        folder.files("out"),
        ["csv", "json", "md", "svg"].map(|end| format!("size-classes-time.{end}"))
    );
    let written = fs::read_to_string(folder.out().join("size-classes-time.md")).unwrap();
    assert_eq!(out, written + "\n");
}

/// Stopped after its first case, by a signal that can be heard and by one that cannot.
#[test]
fn a_stopped_run_leaves_no_table_and_goes_on_later() {
    for signal in ["TERM", "KILL"] {
        let folder = Folder::new(signal);
        let line = "size-classes --scale 1/4 --only size-classes-small";
        let program = folder.command(line).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        wait_for_a_case(&folder.0.join("kept"));
        let sent = Command::new("kill").args(["-s", signal, &program.id().to_string()]).status().unwrap();
        assert!(sent.success());
        let (out, err) = said(&program.wait_with_output().unwrap());
        let done = folder.files("kept").iter().filter(|name| name.ends_with(".figures")).count();
        assert!((1..4).contains(&done), "{signal}: {done} cases are done");
        assert_eq!((out.as_str(), folder.files("out").len()), ("", 0), "{signal}");
        if signal == "TERM" {
            assert!(err.contains("of 4 done, no table is made of them") && err.contains("stopped"), "{err}");
        }
        let output = folder.command(line).output().unwrap();
        assert!(output.status.success(), "{}", said(&output).1);
        assert_eq!(said(&output).0.matches("\n| ").count(), 6, "a head, a rule and four rows");
    }
}

fn wait_for_a_case(kept: &Path) {
    let start = Instant::now();
    let is_done = |entry: fs::DirEntry| entry.path().extension().is_some_and(|end| end == "figures");
    while !fs::read_dir(kept).is_ok_and(|mut list| list.any(|entry| entry.is_ok_and(is_done))) {
        assert!(start.elapsed() < Duration::from_secs(60), "no case is done");
        std::thread::sleep(Duration::from_millis(1));
    }
}
