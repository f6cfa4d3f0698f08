//! A server that is looked at from outside: started in a folder of its own, watched through /proc, ended with
//! us.
//!
//! Everything is read in the same way for every program: resident bytes from `smaps_rollup` (exact, where
//! `status` is a sum of per-CPU drafts), CPU time from the `schedstat` of every thread (nanoseconds, where
//! `stat` has ticks of ten milliseconds).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use isotherm_resp::reply_parse::Value;

use crate::Fallible;
use crate::client::Client;
use crate::port::free_port;

pub struct Server {
    /// Name of the server in the lines that a user reads.
    pub name: &'static str,
    pub port: u16,
    process: Child,
    /// Command that has started the server, and starts it again.
    command: Command,
    folder: PathBuf,
}

/// Maximum time from the start to the first answer: the server may have files to load.
const LOADED_WITHIN: Duration = Duration::from_secs(120);
/// The time of a start is exact to this.
const BETWEEN_PINGS: Duration = Duration::from_millis(2);

/// A thread of a server, and its times since it began.
#[derive(Clone, Debug)]
pub struct Thread {
    pub id: u64,
    pub name: String,
    pub cpu_ns: u64,
    /// Ready, and without a core.
    pub waited_ns: u64,
}

/// Ticks of a second in /proc, on all machines that Linux runs on today.
const USER_HZ: u64 = 100;

impl Server {
    /// Runs `command` with a free port, no persistence and `arguments`, in a new folder under `scratch`.
    pub fn start(
        name: &'static str,
        mut command: Command,
        arguments: &[String],
        scratch: &Path,
    ) -> Fallible<Server> {
        let port = free_port()?;
        let folder = scratch.join(format!("{}-{port}", name.to_lowercase().replace(' ', "-")));
        fs::create_dir_all(&folder).map_err(|why| format!("cannot make {}: {why}", folder.display()))?;
        let log = fs::File::create(folder.join("log")).map_err(|why| format!("cannot write a log: {why}"))?;
        let errors = log.try_clone().map_err(|why| format!("cannot write a log: {why}"))?;
        command
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", ""])
            .args(arguments)
            .current_dir(&folder)
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(errors);
        let process = spawn(&mut command)?;
        let mut server = Server { name, port, process, command, folder };
        server.wait_until_it_answers()?;
        Ok(server)
    }

    /// Ends its process at once (SIGKILL). Its folder stays.
    pub fn kill(&mut self) -> Fallible {
        self.process.kill().map_err(|why| format!("cannot kill {}: {why}", self.name))?;
        self.process.wait().map(drop).map_err(|why| format!("{} does not end: {why}", self.name))
    }

    /// Starts it again after its end, in the same folder, on the same port.
    pub fn restart(&mut self) -> Fallible {
        assert!(self.ended().is_some(), "it is running");
        self.process = spawn(&mut self.command)?;
        self.wait_until_it_answers()
    }

    fn wait_until_it_answers(&mut self) -> Fallible {
        let start = Instant::now();
        loop {
            if Client::connect(self.port).and_then(|mut client| client.call(&["PING"])).is_ok() {
                return Ok(());
            }
            let ended = self.process.try_wait().map_err(|why| why.to_string())?;
            if ended.is_some() || start.elapsed() > LOADED_WITHIN {
                let log = self.log();
                let tail: Vec<&str> = log.lines().rev().take(8).collect();
                let tail: Vec<&str> = tail.into_iter().rev().collect();
                return Err(format!("{} does not answer; its log ends with\n{}", self.name, tail.join("\n")));
            }
            std::thread::sleep(BETWEEN_PINGS);
        }
    }

    /// Makes a cluster of one of a server that was started with `cluster-enabled`, and waits until it says
    /// that it works.
    pub fn own_all_slots(&self) -> Fallible {
        self.client()?.call(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"])?;
        self.wait_until_cluster_is_ok()
    }

    /// A member of a cluster serves its slots only some time after its start.
    pub fn wait_until_cluster_is_ok(&self) -> Fallible {
        let mut client = self.client()?;
        for _ in 0..200 {
            match client.call(&["CLUSTER", "INFO"])? {
                Value::Bulk(text) if text.starts_with(b"cluster_state:ok") => return Ok(()),
                _ => std::thread::sleep(Duration::from_millis(50)),
            }
        }
        Err("a member of a cluster says after 10 s that it is not ok".to_string())
    }

    pub fn client(&self) -> Fallible<Client> {
        Client::connect(self.port)
    }

    /// The number of its process.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Returns how the server has ended, if it has.
    pub fn ended(&mut self) -> Option<String> {
        self.process.try_wait().ok().flatten().map(|status| status.to_string())
    }

    /// Returns the output of the server.
    pub fn log(&self) -> String {
        fs::read_to_string(self.log_path()).unwrap_or_default()
    }

    pub fn log_path(&self) -> PathBuf {
        self.folder.join("log")
    }

    pub fn resident_bytes(&self) -> Fallible<u64> {
        let file = format!("/proc/{}/smaps_rollup", self.process.id());
        let text = fs::read_to_string(&file).map_err(|why| format!("cannot read {file}: {why}"))?;
        let kilobytes = text
            .lines()
            .find_map(|line| line.strip_prefix("Rss:")?.split_whitespace().next()?.parse::<u64>().ok());
        kilobytes.map(|kb| kb * 1024).ok_or_else(|| format!("{file} has no Rss"))
    }

    /// The memory of the process and of what it has forked, pages that are shared counted once (PSS).
    pub fn proportional_bytes(&self) -> Fallible<u64> {
        let own = self.process.id();
        let mut bytes = proportional_bytes_of(own).ok_or("a server without smaps_rollup")?;
        let processes = fs::read_dir("/proc").map_err(|why| why.to_string())?.flatten();
        let numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        // A child that is gone by now has nothing.
        bytes +=
            numbers.filter(|id| parent_of(*id) == Some(own)).filter_map(proportional_bytes_of).sum::<u64>();
        Ok(bytes)
    }

    /// The most that was resident at any time. Read once, afterwards: to look again and again while delays
    /// are measured would be to measure the looking, which walks all pages.
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

    /// The CPU time of all threads, those that have ended too, to 10 ms.
    pub fn whole_cpu_ns(&self) -> Fallible<u64> {
        let path = format!("/proc/{}/stat", self.process.id());
        let text = fs::read_to_string(&path).map_err(|why| format!("cannot read {path}: {why}"))?;
        // After the name, which may have spaces: the state is field 3, user and system time are 14 and 15.
        let behind_name = text.rsplit_once(')').map_or("", |(_, rest)| rest);
        let ticks = behind_name.split_whitespace().skip(11).take(2).map(str::parse::<u64>);
        let ticks = ticks.sum::<Result<u64, _>>().map_err(|why| format!("{path}: {why}"))?;
        Ok(ticks * (1_000_000_000 / USER_HZ))
    }

    /// The CPU time of each thread.
    pub fn threads_cpu_ns(&self) -> Fallible<Vec<(u64, u64)>> {
        Ok(self.threads()?.into_iter().map(|thread| (thread.id, thread.cpu_ns)).collect())
    }

    pub fn threads(&self) -> Fallible<Vec<Thread>> {
        let folder = format!("/proc/{}/task", self.process.id());
        let tasks = fs::read_dir(&folder).map_err(|why| format!("cannot read {folder}: {why}"))?;
        let mut threads = Vec::new();
        for task in tasks.flatten() {
            let id = task.file_name().to_string_lossy().parse::<u64>().unwrap_or(0);
            let Ok(text) = fs::read_to_string(task.path().join("schedstat")) else { continue };
            let mut numbers = text.split_whitespace().map(|word| word.parse::<u64>().ok());
            let mut ns = || numbers.next().flatten().ok_or("no CPU times: this kernel has no schedstat");
            let (cpu_ns, waited_ns) = (ns()?, ns()?);
            let name = fs::read_to_string(task.path().join("comm")).unwrap_or_default().trim().to_string();
            threads.push(Thread { id, name, cpu_ns, waited_ns });
        }
        Ok(threads)
    }

    /// Returns the path at which the CPU time of a thread can be read again and again.
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

fn spawn(command: &mut Command) -> Fallible<Child> {
    command.spawn().map_err(|why| format!("cannot start {}: {why}", command.get_program().display()))
}

fn parent_of(process: u32) -> Option<u32> {
    let text = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name in parentheses may hold anything.
    let (_, rest) = text.rsplit_once(')')?;
    rest.split_whitespace().nth(1)?.parse().ok()
}

fn proportional_bytes_of(process: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{process}/smaps_rollup")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok().map(|kb| kb * 1024)
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}
