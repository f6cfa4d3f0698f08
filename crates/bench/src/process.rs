//! A server under measurement: started in a folder of its own, pinned to a core, watched through /proc, ended with us.
//!
//! Everything is read from outside, in the same way for both servers: resident bytes from `smaps_rollup` (exact, where
//! `status` is a sum of per-CPU drafts), CPU time from the `schedstat` of every thread (nanoseconds, where `stat` has ticks
//! of ten milliseconds).

use std::fs;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use isotherm_resp::reply_parse::Value;

use crate::Fallible;
use crate::client::Client;
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

/// How a server is started.
#[derive(Clone, Default)]
pub struct Setting {
    pub workers: usize,
    /// Valkey keeps one table a slot only as a member of a cluster; Isotherm always works by slots.
    pub cluster_layout: bool,
    pub arguments: Vec<(String, String)>,
    pub pinned: bool,
}

impl Setting {
    pub fn with(mut self, name: &str, value: impl ToString) -> Setting {
        self.arguments.push((name.to_string(), value.to_string()));
        self
    }

    /// One worker on a core of its own, as the figures of CPU are measured.
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
    pub port: u16,
    process: Child,
    folder: PathBuf,
}

impl Server {
    pub fn start(side: Side, setting: &Setting, options: &Options) -> Fallible<Server> {
        let port = free_port()?;
        let folder = options.scratch.join(format!("{}-{port}", side.name().to_lowercase()));
        fs::create_dir_all(&folder).map_err(|why| format!("cannot make {}: {why}", folder.display()))?;
        let log = fs::File::create(folder.join("log")).map_err(|why| format!("cannot write a log: {why}"))?;
        let errors = log.try_clone().map_err(|why| format!("cannot write a log: {why}"))?;
        let core = options.server_core.filter(|_| setting.pinned).map(|core| core.to_string());
        let mut command = on_cores(&core.unwrap_or_else(|| options.cores.clone()), options.program(side));
        let process = command
            .args(arguments(side, setting, port))
            .current_dir(&folder)
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(errors)
            .spawn()
            .map_err(|why| format!("cannot start {}: {why}", options.program(side).display()))?;
        let mut server = Server { side, port, process, folder };
        server.wait_until_it_answers()?;
        if setting.cluster_layout && side == Side::Valkey {
            server.own_all_slots()?;
        }
        Ok(server)
    }

    fn wait_until_it_answers(&mut self) -> Fallible {
        let start = Instant::now();
        loop {
            if Client::connect(self.port).and_then(|mut client| client.call(&["PING"])).is_ok() {
                return Ok(());
            }
            let ended = self.process.try_wait().map_err(|why| why.to_string())?;
            if ended.is_some() || start.elapsed() > Duration::from_secs(20) {
                let log = fs::read_to_string(self.folder.join("log")).unwrap_or_default();
                let tail: Vec<&str> = log.lines().rev().take(8).collect();
                let tail: Vec<&str> = tail.into_iter().rev().collect();
                return Err(format!(
                    "{} does not answer; its log ends with\n{}",
                    self.side.name(),
                    tail.join("\n")
                ));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Makes a cluster of one, and waits until it says that it works.
    fn own_all_slots(&self) -> Fallible {
        let mut client = self.client()?;
        client.call(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"])?;
        for _ in 0..200 {
            match client.call(&["CLUSTER", "INFO"])? {
                Value::Bulk(text) if text.starts_with(b"cluster_state:ok") => return Ok(()),
                _ => std::thread::sleep(Duration::from_millis(50)),
            }
        }
        Err("a cluster of one node with all slots is not ok after 10 s".to_string())
    }

    pub fn client(&self) -> Fallible<Client> {
        Client::connect(self.port)
    }

    pub fn resident_bytes(&self) -> Fallible<u64> {
        let file = format!("/proc/{}/smaps_rollup", self.process.id());
        let text = fs::read_to_string(&file).map_err(|why| format!("cannot read {file}: {why}"))?;
        let kilobytes = text
            .lines()
            .find_map(|line| line.strip_prefix("Rss:")?.split_whitespace().next()?.parse::<u64>().ok());
        kilobytes.map(|kb| kb * 1024).ok_or_else(|| format!("{file} has no Rss"))
    }

    /// The most that was resident at any time. Read once, afterwards: to look every so often while delays are measured would
    /// be to measure the looking, which walks all pages.
    pub fn resident_bytes_max(&self) -> Fallible<u64> {
        let file = format!("/proc/{}/status", self.process.id());
        let text = fs::read_to_string(&file).map_err(|why| format!("cannot read {file}: {why}"))?;
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
        kilobytes.map(|kb| kb * 1024).ok_or_else(|| format!("{file} has no VmHWM"))
    }

    /// The CPU time of all threads that run now, in the kernel and outside.
    pub fn cpu_ns(&self) -> Fallible<u64> {
        Ok(self.threads_cpu_ns()?.iter().map(|(_, ns)| ns).sum())
    }

    /// The CPU time of each thread.
    pub fn threads_cpu_ns(&self) -> Fallible<Vec<(u64, u64)>> {
        let folder = format!("/proc/{}/task", self.process.id());
        let tasks = fs::read_dir(&folder).map_err(|why| format!("cannot read {folder}: {why}"))?;
        let mut threads = Vec::new();
        for task in tasks.flatten() {
            let id = task.file_name().to_string_lossy().parse::<u64>().unwrap_or(0);
            let Ok(text) = fs::read_to_string(task.path().join("schedstat")) else { continue };
            let ns = text.split_whitespace().next().and_then(|word| word.parse().ok());
            threads.push((id, ns.ok_or("no CPU times: this kernel has no schedstat")?));
        }
        Ok(threads)
    }

    /// Where the CPU time of one thread can be read again and again.
    pub fn schedstat_of(&self, thread: u64) -> PathBuf {
        PathBuf::from(format!("/proc/{}/task/{thread}/schedstat", self.process.id()))
    }

    /// Waits until memory has not moved for two seconds, at most `longest`.
    pub fn settle(&self, longest: Duration) -> Fallible {
        let start = Instant::now();
        let (mut last, mut since) = (self.resident_bytes()?, Instant::now());
        while since.elapsed() < Duration::from_secs(2) && start.elapsed() < longest {
            std::thread::sleep(Duration::from_millis(200));
            let now = self.resident_bytes()?;
            // 64 KB: what cron jobs and the asking itself may touch.
            if now.abs_diff(last) > 64 * 1024 {
                (last, since) = (now, Instant::now());
            }
        }
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn arguments(side: Side, setting: &Setting, port: u16) -> Vec<String> {
    let mut pairs = vec![
        ("port".to_string(), port.to_string()),
        ("bind".to_string(), "127.0.0.1".to_string()),
        ("save".to_string(), String::new()),
        ("io-threads".to_string(), setting.workers.max(1).to_string()),
    ];
    if setting.cluster_layout && side == Side::Valkey {
        pairs.push(("cluster-enabled".to_string(), "yes".to_string()));
    }
    pairs.extend(setting.arguments.iter().cloned());
    pairs.into_iter().flat_map(|(name, value)| [format!("--{name}"), value]).collect()
}

/// A port that is free now, and so is the one 10000 above it, where Valkey's cluster bus listens.
fn free_port() -> Fallible<u16> {
    for _ in 0..100 {
        let listener = TcpListener::bind(("127.0.0.1", 0)).map_err(|why| format!("no free port: {why}"))?;
        let port = listener.local_addr().map_err(|why| why.to_string())?.port();
        if port < 55_000 && TcpListener::bind(("127.0.0.1", port + 10_000)).is_ok() {
            return Ok(port);
        }
    }
    Err("no pair of free ports".to_string())
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

/// Lets this process and its children open so many files.
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
