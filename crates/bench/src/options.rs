//! The options of the command line, and the places of the servers.

use std::path::PathBuf;

use isotherm_probe::Scale;

use crate::Fallible;
use crate::instructions;
use crate::process::Side;

pub const HELP: &str = "\
isotherm-bench KIND [options]     (cargo xtask bench KIND [options] builds and installs what it needs)

kinds
  memory    bytes per key, by keys, values and workers; sawtooth; churn; idle connections
  speed     CPU per operation on one core, A B A B
  collections        bytes per element of lists, hashes, sets, sorted sets, streams
  collections-speed  CPU per operation on them, one core, A B A B
  threads   two threads over one, the keyspace without sockets
  hits      hit ratio under maxmemory
  expiry    a million keys that expire in the same second
  maxmemory how well the limit is kept, and the cost of finding a volatile key
  longest   the longest single command while keys are inserted
  pubsub    10,000 connections, a tenth of them subscribers: delivery, order, delay; a subscriber that never reads
  replication full syncs, the feed of a replica, applying a backlog, waiting for ACKs, handing over, a slow replica, restarts, cuts
  cluster     CLUSTER SLOTS, SHARDS, NODES, MOVED; CPU and memory of a member over a lone server
  durability  saving, loading, the append-only file, each fsync policy; on this disk and a modelled one
  scripts   CPU of calls of scripts; who waits beside one that takes long
  script-libraries  cjson and cmsgpack there and back, CPU per round, A B A B
  tls       CPU of commands and of handshakes over TLS, memory of its connections that wait (needs openssl)
  swap      memory of keys whose values are on disk, how the limit is kept, what swap-mode costs
  disk      what this machine's disk can do by itself
  instructions  instructions per operation, of each command (needs valgrind; beside another build: --peer-server)
  all       all of these, one after the other

options
  --only A,B        these rows only (--list names them)
  --list            the names of the rows
  --scale 1/10      a tenth of the keys and commands
  --rounds N        rounds A B of the speed rows (3)
  --workers A,B     workers of Isotherm where a row varies them (1,2,16)
  --seeds N         seeds of the hit ratio (8)
  --server-core N   core of a pinned server (0); --load-core N core of the load (1)
  --isotherm FILE   the server; --valkey-bin FOLDER the peer's programs
  --peer-server FILE  another build of the server, whose instructions or CPU (durability) are measured beside
  --maxmemory N     limit of the server whose instructions are counted, not of the peer
  --valkey-threads N  io-threads of Valkey in the rows of durability (1)
  --write           put the tables into docs/benchmarks.md
";

pub struct Options {
    pub kind: String,
    pub only: Vec<String>,
    pub list: bool,
    scale: Scale,
    pub rounds: usize,
    pub workers: Vec<usize>,
    pub seeds: u64,
    pub server_core: Option<usize>,
    pub load_core: Option<usize>,
    /// The cores that this process may use, as taskset writes them: "0-1".
    pub cores: String,
    isotherm: PathBuf,
    valkey_bin: PathBuf,
    /// Another build of Isotherm.
    pub peer_server: Option<PathBuf>,
    pub maxmemory: Option<String>,
    /// Number of Valkey's threads in the rows of durability.
    pub valkey_threads: usize,
    pub write: bool,
    /// Folders of the servers; each goes with its server.
    pub scratch: PathBuf,
}

impl Options {
    pub fn parse(args: &[String]) -> Fallible<Options> {
        let from_env = |name: &str| std::env::var_os(name).map(PathBuf::from).unwrap_or_default();
        let two_cores = std::thread::available_parallelism().is_ok_and(|cores| cores.get() >= 2);
        let mut options = Options {
            kind: args.first().cloned().ok_or(HELP)?,
            only: Vec::new(),
            list: false,
            scale: Scale::FULL,
            rounds: 3,
            workers: vec![1, 2, 16],
            seeds: 8,
            server_core: two_cores.then_some(0),
            load_core: two_cores.then_some(1),
            cores: cores_allowed()?,
            isotherm: from_env("ISOTHERM_SERVER"),
            valkey_bin: from_env("ISOTHERM_PEER_BIN"),
            peer_server: None,
            maxmemory: None,
            valkey_threads: 1,
            write: false,
            scratch: std::env::temp_dir().join(format!("isotherm-bench-{}", std::process::id())),
        };
        let mut args = args[1..].iter();
        while let Some(flag) = args.next() {
            let mut value = || args.next().ok_or_else(|| format!("{flag} wants a value"));
            match flag.as_str() {
                "--only" => options.only = value()?.split(',').map(str::to_string).collect(),
                "--list" => options.list = true,
                "--scale" => options.scale = Scale::parse(value()?)?,
                "--rounds" => options.rounds = number(value()?)? as usize,
                "--workers" => options.workers = numbers(value()?)?,
                "--seeds" => options.seeds = number(value()?)?,
                "--server-core" => options.server_core = Some(number(value()?)? as usize),
                "--load-core" => options.load_core = Some(number(value()?)? as usize),
                "--isotherm" => options.isotherm = PathBuf::from(value()?),
                "--valkey-bin" => options.valkey_bin = PathBuf::from(value()?),
                "--peer-server" => options.peer_server = Some(PathBuf::from(value()?)),
                "--maxmemory" => options.maxmemory = Some(value()?.clone()),
                "--valkey-threads" => options.valkey_threads = number(value()?)? as usize,
                "--write" => options.write = true,
                other => return Err(format!("no option called '{other}'\n\n{HELP}")),
            }
        }
        Ok(options)
    }

    /// Keys or commands of a row, at the scale asked for.
    pub fn scaled(&self, count: u64) -> u64 {
        self.scale.of(count)
    }

    /// "at 1/10 of the size", or nothing.
    pub fn scale_note(&self) -> String {
        self.scale.note()
    }

    pub fn wants(&self, row: &str) -> bool {
        self.only.is_empty()
            || self.only.iter().any(|only| row == only || row.starts_with(&format!("{only}-")))
    }

    pub fn program(&self, side: Side) -> PathBuf {
        match side {
            Side::Isotherm => self.isotherm.clone(),
            Side::Valkey => self.valkey_bin.join("valkey-server"),
        }
    }

    pub fn valkey_benchmark(&self) -> PathBuf {
        self.valkey_bin.join("valkey-benchmark")
    }

    pub fn check_programs(&self) -> Fallible {
        let programs = [
            (self.program(Side::Isotherm), "--isotherm or ISOTHERM_SERVER"),
            (self.program(Side::Valkey), "--valkey-bin or ISOTHERM_PEER_BIN"),
        ];
        let wanted = if self.kind == instructions::KIND { 1 } else { 2 };
        for (program, how) in &programs[..wanted] {
            if !program.is_file() {
                return Err(format!(
                    "no program '{}': name it with {how}, or use `cargo xtask bench`",
                    program.display()
                ));
            }
        }
        Ok(())
    }
}

fn cores_allowed() -> Fallible<String> {
    let status =
        std::fs::read_to_string("/proc/self/status").map_err(|why| format!("cannot read /proc: {why}"))?;
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    list.map(|list| list.trim().to_string()).ok_or("/proc/self/status has no Cpus_allowed_list".to_string())
}

fn number(text: &str) -> Fallible<u64> {
    text.parse().map_err(|_| format!("'{text}' is no number"))
}

fn numbers(text: &str) -> Fallible<Vec<usize>> {
    text.split(',').map(|part| number(part).map(|number| number as usize)).collect()
}
