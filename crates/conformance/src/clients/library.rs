//! The libraries: what each needs on this machine, how it is installed, how its program is run.
//!
//! Every program takes the port as its argument and prints `ok <step>` for each of `STEPS`, in this order. It
//! ends at the first thing that is not as it should be, with a word about it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::{Clock, Places, Verdict, in_path, last_lines, sources};
use crate::bounded;

/// Steps of the program that uses a library as an application does.
const STEPS: [&str; 13] = [
    "connect",
    "resp2",
    "resp3",
    "pipeline",
    "transaction",
    "watch",
    "errors",
    "binary",
    "large",
    "expiry",
    "scan",
    "parallel",
    "auth",
];

const INSTALL_TIME: Duration = Duration::from_secs(120);
const RUN_TIME: Duration = Duration::from_secs(40);

pub struct Library {
    pub name: &'static str,
    /// Name of the library's folder, both under `clients/` and where the library is installed.
    folder: &'static str,
    programs: &'static [&'static str],
    /// A change of these files means installing again.
    pins: &'static [&'static str],
    install: fn(&Folders) -> Vec<Command>,
    run: fn(&Folders) -> Command,
    /// Builder of the command that runs the library's `writer`, for clusters whose slots move; `None` if it
    /// has no writer.
    writer: Option<fn(&Folders) -> Command>,
}

/// Folders of a library: one for its program, and one in which its dependencies are installed.
struct Folders {
    source: PathBuf,
    installed: PathBuf,
}

pub const LIBRARIES: [Library; 4] = [
    Library {
        name: "redis-py",
        folder: "python",
        programs: &["python3"],
        pins: &["requirements.txt"],
        install: |folders| {
            let venv = command("python3", &["-m", "venv"], &folders.installed);
            let mut pip = Command::new(folders.installed.join("bin/pip"));
            pip.args(["install", "--quiet", "--disable-pip-version-check", "--requirement"]);
            pip.arg(folders.source.join("requirements.txt"));
            vec![venv, pip]
        },
        run: |folders| {
            let mut python = Command::new(folders.installed.join("bin/python"));
            python.arg(folders.source.join("client.py"));
            python
        },
        writer: Some(|folders| {
            let mut python = Command::new(folders.installed.join("bin/python"));
            python.arg(folders.source.join("writer.py"));
            python
        }),
    },
    Library {
        name: "go-redis",
        folder: "go",
        programs: &["go"],
        pins: &["go.sum", "main.go", "writer/main.go"],
        install: |folders| {
            let build = |program: &str, package: &str| {
                let mut go =
                    command("go", &["build", "-mod=readonly", "-o"], &folders.installed.join(program));
                go.arg(package).current_dir(&folders.source);
                go
            };
            vec![build("client", "."), build("cluster-writer", "./writer")]
        },
        run: |folders| Command::new(folders.installed.join("client")),
        writer: Some(|folders| Command::new(folders.installed.join("cluster-writer"))),
    },
    Library {
        name: "ioredis",
        folder: "node",
        programs: &["node", "npm"],
        pins: &["package-lock.json"],
        install: |folders| {
            let copies = ["package.json", "package-lock.json"].map(|name| folders.source.join(name));
            let mut copy = Command::new("cp");
            copy.args(copies).arg(&folders.installed);
            let mut npm = Command::new("npm");
            npm.args(["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--silent"]);
            npm.current_dir(&folders.installed);
            vec![copy, npm]
        },
        run: |folders| {
            let mut node = command("node", &[], &folders.source.join("client.js"));
            node.env("NODE_PATH", folders.installed.join("node_modules"));
            node
        },
        writer: None,
    },
    Library {
        name: "Jedis",
        folder: "java",
        programs: &["java", "javac", "mvn"],
        pins: &["pom.xml"],
        install: |folders| {
            let mut maven =
                command("mvn", &["--quiet", "--batch-mode", "--file"], &folders.source.join("pom.xml"));
            maven.arg("dependency:copy-dependencies");
            maven.arg(format!("-DoutputDirectory={}", folders.installed.display()));
            vec![maven]
        },
        run: |folders| java(folders, "Client.java"),
        writer: Some(|folders| java(folders, "Writer.java")),
    },
];

fn java(folders: &Folders, program: &str) -> Command {
    let mut java = command("java", &["-XX:TieredStopAtLevel=1", "-cp"], &folders.installed.join("*"));
    java.arg(folders.source.join(program));
    java
}

fn command(program: &str, args: &[&str], file: &Path) -> Command {
    let mut command = Command::new(program);
    command.args(args).arg(file);
    command
}

impl Library {
    pub fn check(&self, places: &Places, clock: Clock) -> Verdict {
        let folders = match self.installed(places, clock) {
            Ok(folders) => folders,
            Err(why) => return Verdict::Skipped(why),
        };
        // Installing others may have taken all the time there is, which is no fault of this one.
        if clock.at_most(RUN_TIME) < RUN_TIME {
            return Verdict::Skipped("the time for all clients is over".to_string());
        }
        let server = match places.start() {
            Ok(server) => server,
            Err(why) => return Verdict::Failed(why),
        };
        let mut program = (self.run)(&folders);
        program.arg(server.port.to_string());
        match bounded::run(&mut program, b"", clock.at_most(RUN_TIME)) {
            Err(why) => Verdict::Skipped(why),
            Ok(ended) if !ended.well() => Verdict::Failed(format!("{}\n{}", ended.how(), last_lines(&ended))),
            Ok(ended) => verdict(&ended.output),
        }
    }

    /// Returns the command that runs the library's writer, if it has one. An error is a reason to skip the
    /// library.
    pub fn writer(&self, places: &Places, clock: Clock) -> Option<Result<Command, String>> {
        let writer = self.writer?;
        Some(self.installed(places, clock).map(|folders| writer(&folders)))
    }

    fn installed(&self, places: &Places, clock: Clock) -> Result<Folders, String> {
        if let Some(missing) = self.programs.iter().find(|program| in_path(program).is_none()) {
            return Err(format!("no `{missing}` on this machine"));
        }
        let folders =
            Folders { source: sources().join(self.folder), installed: places.folder.join(self.folder) };
        self.install(&folders, clock)?;
        Ok(folders)
    }

    /// Once for each version of what is pinned.
    fn install(&self, folders: &Folders, clock: Clock) -> Result<(), String> {
        let mut wanted = Vec::new();
        for file in self.pins.iter().map(|name| folders.source.join(name)) {
            let text =
                std::fs::read(&file).map_err(|why| format!("cannot read {}: {why}", file.display()))?;
            wanted.extend(text);
        }
        let mark = folders.installed.join("installed");
        if std::fs::read(&mark).is_ok_and(|installed| installed == wanted) {
            return Ok(());
        }
        std::fs::create_dir_all(&folders.installed)
            .map_err(|why| format!("cannot make {}: {why}", folders.installed.display()))?;
        for mut step in (self.install)(folders) {
            let ended = bounded::run(&mut step, b"", clock.at_most(INSTALL_TIME))?;
            if !ended.well() {
                let program = step.get_program().to_string_lossy().into_owned();
                let why = format!("{}{}", ended.errors, ended.output);
                return Err(format!("not installed ({program}: {}): {}", ended.how(), first_words(&why)));
            }
        }
        std::fs::write(&mark, wanted).map_err(|why| format!("cannot write {}: {why}", mark.display()))
    }
}

/// A skip is one line.
fn first_words(text: &str) -> String {
    const WORDS_MAX: usize = 40;
    text.split_whitespace().take(WORDS_MAX).collect::<Vec<_>>().join(" ")
}

/// Returns `Passed` if every step was done, in order, and `Failed` otherwise.
fn verdict(output: &str) -> Verdict {
    let done: Vec<&str> = output.lines().filter_map(|line| line.strip_prefix("ok ")).collect();
    match done == STEPS {
        true => Verdict::Passed { steps: STEPS.len() },
        false => Verdict::Failed(format!("it has done {done:?}\nof           {STEPS:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_that_was_not_done_is_a_failure() {
        let all: String = STEPS.iter().map(|step| format!("ok {step}\n")).collect();
        assert!(matches!(verdict(&all), Verdict::Passed { steps: 13 }));
        assert!(matches!(verdict(all.trim_end_matches("ok auth\n")), Verdict::Failed(_)));
        assert!(matches!(verdict(""), Verdict::Failed(_)));
    }

    #[test]
    fn every_program_does_every_step() {
        for (library, source) in LIBRARIES.iter().zip(["client.py", "main.go", "client.js", "Client.java"]) {
            let file = sources().join(library.folder).join(source);
            let text = std::fs::read_to_string(&file).unwrap();
            assert!(library.pins.iter().all(|name| sources().join(library.folder).join(name).is_file()));
            for step in STEPS {
                assert!(text.contains(step), "{} does not know {step}", file.display());
            }
        }
    }
}
