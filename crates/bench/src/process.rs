//! The two servers under measurement, and how they are started: their workers, the layout of their tables,
//! their cores.

use std::fs;
use std::ops::{Deref, DerefMut};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::Fallible;
use crate::options::Options;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    Isotherm,
    Valkey,
}

pub const SIDES: [Side; 2] = [Side::Valkey, Side::Isotherm];

impl Side {
    pub fn name(self) -> &'static str {
        match self {
            Side::Isotherm => "Isotherm",
            Side::Valkey => "Valkey",
        }
    }
}

/// Settings with which a server is started.
#[derive(Clone, Default)]
pub struct Setting {
    pub workers: usize,
    /// Number of Valkey's threads, if it differs from `workers`.
    pub valkey_workers: Option<usize>,
    /// Valkey keeps one table a slot only as a member of a cluster; Isotherm always works by slots.
    pub cluster_layout: bool,
    pub arguments: Vec<(String, String)>,
    /// Words after them that are more than a name and one value.
    pub words: Vec<String>,
    pub pinned: bool,
    /// Variables besides ours.
    pub environment: Vec<(String, PathBuf)>,
    /// Another build than the one under measurement.
    pub program: Option<PathBuf>,
}

impl Setting {
    pub fn with(mut self, name: &str, value: impl ToString) -> Setting {
        self.arguments.push((name.to_string(), value.to_string()));
        self
    }

    /// Returns settings for one worker on a core of its own, as the figures of CPU are measured.
    pub fn one_core() -> Setting {
        Setting { workers: 1, pinned: true, ..Setting::default() }
    }

    /// The layout that memory is compared in.
    pub fn slots(workers: usize) -> Setting {
        Setting { workers, cluster_layout: true, ..Setting::default() }
    }
}

pub struct Server {
    pub side: Side,
    probed: isotherm_probe::Server,
}

impl Server {
    pub fn start(side: Side, setting: &Setting, options: &Options) -> Fallible<Server> {
        let core = options.server_core.filter(|_| setting.pinned).map(|core| core.to_string());
        let program = setting.program.clone().unwrap_or_else(|| options.program(side));
        let mut command = on_cores(&core.unwrap_or_else(|| options.cores.clone()), program);
        command.envs(setting.environment.iter().map(|(name, value)| (name, value)));
        let arguments = arguments(side, setting);
        let probed = isotherm_probe::Server::start(side.name(), command, &arguments, &options.scratch)?;
        if setting.cluster_layout && side == Side::Valkey {
            probed.own_all_slots()?;
        }
        Ok(Server { side, probed })
    }
}

/// Access to the requests that any server can be sent.
impl Deref for Server {
    type Target = isotherm_probe::Server;

    fn deref(&self) -> &isotherm_probe::Server {
        &self.probed
    }
}

impl DerefMut for Server {
    fn deref_mut(&mut self) -> &mut isotherm_probe::Server {
        &mut self.probed
    }
}

fn arguments(side: Side, setting: &Setting) -> Vec<String> {
    let workers = setting.valkey_workers.filter(|_| side == Side::Valkey).unwrap_or(setting.workers);
    let mut pairs = vec![("io-threads".to_string(), workers.max(1).to_string())];
    if setting.cluster_layout && side == Side::Valkey {
        pairs.push(("cluster-enabled".to_string(), "yes".to_string()));
    }
    pairs.extend(setting.arguments.iter().cloned());
    let named = pairs.into_iter().flat_map(|(name, value)| [format!("--{name}"), value]);
    named.chain(setting.words.iter().cloned()).collect()
}

/// A program on these cores. Without taskset it gets ours, which then are all.
fn on_cores(cores: &str, program: PathBuf) -> Command {
    if !has_taskset() {
        return Command::new(program);
    }
    let mut command = Command::new("taskset");
    command.args(["-c", cores]).arg(program);
    command
}

fn has_taskset() -> bool {
    Command::new("taskset").arg("--version").stdout(Stdio::null()).status().is_ok()
}

/// Moves the calling thread to a core. Returns false where `taskset` is missing.
pub fn pin_this_thread(core: usize) -> bool {
    let Ok(thread) = fs::read_link("/proc/thread-self") else { return false };
    let id = thread.file_name().unwrap_or_default().to_owned();
    let pinned =
        Command::new("taskset").args(["-cp", &core.to_string()]).arg(id).stdout(Stdio::null()).status();
    pinned.is_ok_and(|status| status.success())
}

/// Lets this process and its children open `count` files.
pub fn allow_open_files(count: u64) -> Fallible {
    let limit = format!("--nofile={count}:{count}");
    let pid = std::process::id().to_string();
    let status = Command::new("prlimit").args(["--pid", &pid, &limit]).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(_) => Err(format!("not allowed to open {count} files: raise `ulimit -n`")),
        Err(why) => Err(format!("cannot run prlimit: {why}")),
    }
}
