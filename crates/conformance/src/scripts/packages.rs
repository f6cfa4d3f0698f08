//! The packages: where each comes from, what it needs on this machine, how its tests or our driver are run.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::score::Kind;
use crate::Fallible;
use crate::bounded::{self, Ended};
use crate::clients::{in_path, sources};

pub struct Package {
    pub name: &'static str,
    pub kind: Kind,
    /// Go: the module with its version. Python: the source package. A driver: nothing, its version is in
    /// package.json.
    of: &'static str,
    /// True if a run takes only seconds.
    pub is_quick: bool,
    /// The time of one run.
    pub seconds: u64,
}

const fn go(name: &'static str, of: &'static str, is_quick: bool) -> Package {
    Package { name, kind: Kind::Go, of, is_quick, seconds: 900 }
}

const fn python(name: &'static str, of: &'static str) -> Package {
    Package { name, kind: Kind::Python, of, is_quick: false, seconds: 1800 }
}

const fn driver(name: &'static str) -> Package {
    Package { name, kind: Kind::Driver, of: "", is_quick: true, seconds: 90 }
}

pub const PACKAGES: [Package; 12] = [
    driver("bullmq"),
    driver("bull"),
    driver("bee-queue"),
    driver("rate-limiter-flexible"),
    driver("redis-semaphore"),
    driver("redlock"),
    go("redislock", "github.com/bsm/redislock@v0.9.4", true),
    go("redis_rate", "github.com/go-redis/redis_rate/v10@v10.0.1", true),
    go("redsync", "github.com/go-redsync/redsync/v4@v4.18.1", false),
    go("asynq", "github.com/hibiken/asynq@v0.26.0", false),
    python("rq", "rq-3.0.0"),
    python("huey", "huey-3.5.4"),
];

const INSTALL_TIME: Duration = Duration::from_secs(600);

/// The port of the servers in `alone`.
const PORT: &str = "6379";

impl Package {
    /// Once; what is there is taken as it is.
    pub fn install(&self, folder: &Path) -> Fallible {
        match self.kind {
            Kind::Go => self.install_go(&folder.join("go")),
            Kind::Python => self.install_python(&folder.join("python")),
            Kind::Driver => install_node(&folder.join("node")),
        }
    }

    /// Builds the command that runs the package's tests with a server on `PORT`.
    pub fn command(&self, folder: &Path, server: &Path) -> Fallible<Command> {
        match self.kind {
            Kind::Go => self.go_command(&folder.join("go"), server),
            Kind::Python => Ok(self.python_command(&folder.join("python"))),
            Kind::Driver => {
                let mut node = Command::new("node");
                node.arg(scripts().join(format!("{}.js", self.name))).arg(PORT);
                node.env("NODE_PATH", folder.join("node/node_modules"));
                Ok(node)
            }
        }
    }

    /// A copy of the module, for its tests are built where they lie; and all that they import.
    fn install_go(&self, folder: &Path) -> Fallible {
        needs(&["go"])?;
        let copy = folder.join(self.name);
        once(&copy, self.of, || {
            let found = step(Command::new("go").args(["mod", "download", "-json", self.of]))?;
            let module = found.output.lines().find_map(|line| line.trim().strip_prefix("\"Dir\": \""));
            let module = module.and_then(|dir| dir.split('"').next()).ok_or("go names no folder")?;
            std::fs::remove_dir_all(&copy).ok();
            step(Command::new("cp").args(["-r", "--no-preserve=mode", module]).arg(&copy))?;
            // Their tests may want a server to be listed, and there is none: so this may fail, and has built
            // them then.
            let mut build = Command::new("go");
            build.args(["test", "-run", "^$", "./..."]).current_dir(&copy);
            bounded::run(&mut build, b"", INSTALL_TIME).map(drop)
        })
    }

    fn go_command(&self, folder: &Path, server: &Path) -> Fallible<Command> {
        let mut go = Command::new("go");
        go.args(["test", "-json", "-count=1", "./..."])
            .current_dir(folder.join(self.name))
            .env("GOPROXY", "off");
        // It starts servers by itself, as `redis-server`. When they end they save what is in them where they
        // were started, and the next would begin with its locks.
        if self.name == "redsync" {
            std::fs::remove_file(folder.join("redsync/dump.rdb")).ok();
            go.env("PATH", path_with_server(folder, server)?);
        }
        Ok(go)
    }

    fn install_python(&self, folder: &Path) -> Fallible {
        needs(&["python3", "tar"])?;
        let requirements = scripts().join("requirements.txt");
        let pins = std::fs::read_to_string(&requirements).map_err(|why| why.to_string())?;
        let pip = || Command::new(folder.join("bin/pip"));
        once(folder, &pins, || {
            step(Command::new("python3").args(["-m", "venv"]).arg(folder))?;
            step(pip().args(["install", "--quiet", "--requirement"]).arg(&requirements)).map(drop)
        })?;
        let unpacked = folder.join(self.of);
        once(&unpacked, self.of, || {
            let pinned = self.of.replacen('-', "==", 1);
            let options = ["download", "--quiet", "--no-deps", "--no-binary", ":all:", &pinned];
            step(pip().args(options).arg("--dest").arg(folder))?;
            let archive = folder.join(format!("{}.tar.gz", self.of));
            step(Command::new("tar").arg("xf").arg(archive).arg("-C").arg(folder))?;
            step(pip().args(["install", "--quiet"]).arg(&unpacked)).map(drop)
        })
    }

    fn python_command(&self, folder: &Path) -> Command {
        let tests = if self.name == "huey" { "huey/tests" } else { "tests" };
        let mut pytest = Command::new(folder.join("bin/python"));
        pytest.args(["-m", "pytest", "-q", "-rA", "-p", "no:cacheprovider", "-o", "python_files=test_*.py"]);
        pytest.arg(tests).current_dir(folder.join(self.of));
        pytest.env("PATH", path_behind(&folder.join("bin")));
        pytest
    }
}

/// The packages of all drivers.
pub fn install_node(folder: &Path) -> Fallible {
    needs(&["node", "npm"])?;
    let lock = scripts().join("package-lock.json");
    let pins = std::fs::read_to_string(&lock).map_err(|why| format!("{}: {why}", lock.display()))?;
    once(folder, &pins, || {
        step(Command::new("cp").arg(scripts().join("package.json")).arg(lock).arg(folder))?;
        let npm = ["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--silent"];
        step(Command::new("npm").args(npm).current_dir(folder)).map(drop)
    })
}

/// Returns the folder of our drivers.
pub fn scripts() -> PathBuf {
    sources().join("scripts")
}

fn needs(programs: &[&str]) -> Fallible {
    match programs.iter().find(|program| in_path(program).is_none()) {
        Some(missing) => Err(format!("no `{missing}` on this machine")),
        None => Ok(()),
    }
}

/// Fills a folder, unless that has been done with these pins; a file in it says so.
fn once(folder: &Path, pins: &str, fill: impl FnOnce() -> Fallible) -> Fallible {
    let mark = folder.join("isotherm-installed");
    if std::fs::read_to_string(&mark).is_ok_and(|installed| installed == pins) {
        return Ok(());
    }
    std::fs::create_dir_all(folder).map_err(|why| format!("cannot make {}: {why}", folder.display()))?;
    fill()?;
    std::fs::write(&mark, pins).map_err(|why| format!("cannot write {}: {why}", mark.display()))
}

fn step(command: &mut Command) -> Fallible<Ended> {
    let ended = bounded::run(command, b"", INSTALL_TIME)?;
    if ended.well() {
        return Ok(ended);
    }
    let said: Vec<&str> = ended.errors.split_whitespace().take(40).collect();
    let program = command.get_program().to_string_lossy();
    Err(format!("not installed ({program}: {}): {}", ended.how(), said.join(" ")))
}

/// PATH with a folder in front in which `redis-server` is this server.
fn path_with_server(folder: &Path, server: &Path) -> Fallible<String> {
    let maker = server.file_name().unwrap_or_default().to_string_lossy();
    let bin = folder.join(format!("path-{maker}"));
    let link = bin.join("redis-server");
    std::fs::create_dir_all(&bin).map_err(|why| format!("cannot make {}: {why}", bin.display()))?;
    std::fs::remove_file(&link).ok();
    std::os::unix::fs::symlink(server, &link).map_err(|why| format!("{}: {why}", link.display()))?;
    Ok(path_behind(&bin))
}

fn path_behind(folder: &Path) -> String {
    format!("{}:{}", folder.display(), std::env::var("PATH").unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_driver_has_a_program_and_a_pinned_package() {
        let read = |name: &str| std::fs::read_to_string(scripts().join(name)).expect("a file of ours");
        let (pins, lock) = (read("package.json"), read("package-lock.json"));
        for package in PACKAGES.iter().filter(|package| package.kind == Kind::Driver) {
            let text = read(&format!("{}.js", package.name));
            assert!(text.contains(&format!("require(\"{}\")", package.name)), "{}", package.name);
            assert!(pins.contains(&format!("\"{}\": ", package.name)));
            assert!(lock.contains(&format!("node_modules/{}\"", package.name)));
        }
    }
}
