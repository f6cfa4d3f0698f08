//! Three nodes and three sentinels of Valkey: their files, their processes, and what the sentinels say.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use isotherm_probe::{Client, free_port};
use isotherm_resp::reply_parse::Value;

use crate::Fallible;

pub const NODES: usize = 3;
/// Name of the deployment at the sentinels.
const NAME: &str = "main";
/// Silence after which a node counts as down.
pub const DOWN_AFTER_MS: u32 = 1000;
/// Twice this passes between two failovers.
const FAILOVER_TIMEOUT_MS: u32 = 2000;
/// Interval at which sentinels speak to one another. Four times this passes until one makes a replica of a
/// primary that came back; their own 2 s would make most of a round.
const PUBLISH_PERIOD_MS: u32 = 500;
/// Interval at which sentinels ping nodes and try to connect. It is below `DOWN_AFTER_MS`, or each new
/// connection would be an outage. The INFO of a replica that is promoted may be five times this old, and
/// sentinels ask for INFO each second.
const PING_PERIOD_MS: u32 = 500;
const _: () = assert!(PING_PERIOD_MS < DOWN_AFTER_MS && 5 * PING_PERIOD_MS > 2 * 1000);
const PATIENCE: Duration = Duration::from_secs(60);
const BETWEEN_LOOKS: Duration = Duration::from_millis(10);
/// Number of lines of a log that are shown where an operation fails.
const SHOWN_LINES: usize = 12;

/// A process with a configuration file that it rewrites: both are there again after a restart.
struct Node {
    port: u16,
    file: PathBuf,
    process: Option<Child>,
}

impl Node {
    fn new(folder: &Path, name: &str, text: &str) -> Fallible<Node> {
        let folder = folder.join(name);
        fs::create_dir_all(&folder).map_err(|why| format!("cannot make {}: {why}", folder.display()))?;
        let (port, file) = (free_port()?, folder.join("server.conf"));
        let text = format!("port {port}\nbind 127.0.0.1\ndir {}\n{text}", folder.display());
        fs::write(&file, text).map_err(|why| format!("cannot write {}: {why}", file.display()))?;
        Ok(Node { port, file, process: None })
    }

    fn start(&mut self, program: &Path, arguments: &[&str]) -> Fallible {
        let log = fs::File::options().create(true).append(true).open(self.log_path());
        let log = log.map_err(|why| format!("cannot write a log: {why}"))?;
        let errors = log.try_clone().map_err(|why| format!("cannot write a log: {why}"))?;
        let mut command = Command::new(program);
        command.arg(&self.file).args(arguments).stdin(Stdio::null()).stdout(log).stderr(errors);
        self.process =
            Some(command.spawn().map_err(|why| format!("cannot start {}: {why}", program.display()))?);
        let port = self.port;
        wait("a started server does not answer", || {
            Ok(Client::connect(port).and_then(|mut client| client.call(&["PING"])).is_ok())
        })
        .map_err(|why| format!("{why}\n{}", self.log_end()))
    }

    fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().ok();
            process.wait().ok();
        }
    }

    fn log_path(&self) -> PathBuf {
        self.file.with_file_name("log")
    }

    fn log_end(&self) -> String {
        let log = fs::read_to_string(self.log_path()).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(SHOWN_LINES)..].join("\n")
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.kill();
    }
}

pub struct Deployment {
    nodes: Vec<Node>,
    sentinels: Vec<Node>,
    server: PathBuf,
}

impl Deployment {
    /// All started: the first node is the primary, and each sentinel sees all others.
    pub fn start(
        server: &Path,
        valkey: &Path,
        folder: &Path,
        quorum: u64,
        info_period_ms: u64,
    ) -> Fallible<Deployment> {
        let mut deployment =
            Deployment { nodes: Vec::new(), sentinels: Vec::new(), server: server.to_path_buf() };
        for number in 0..NODES {
            let mut text =
                format!("save \"\"\nio-threads 2\nrepl-ack-quorum {quorum}\nrepl-diskless-sync-delay 0\n");
            if let Some(primary) = deployment.nodes.first() {
                text += &format!("replicaof 127.0.0.1 {}\n", primary.port);
            }
            let mut node = Node::new(folder, &format!("node-{number}"), &text)?;
            node.start(server, &[])?;
            deployment.nodes.push(node);
        }
        let primary = deployment.nodes[0].port;
        let text = format!(
            "sentinel monitor {NAME} 127.0.0.1 {primary} 2\n\
             sentinel down-after-milliseconds {NAME} {DOWN_AFTER_MS}\n\
             sentinel failover-timeout {NAME} {FAILOVER_TIMEOUT_MS}\n"
        );
        for number in 0..NODES {
            let mut sentinel = Node::new(folder, &format!("sentinel-{number}"), &text)?;
            sentinel.start(valkey, &["--sentinel"])?;
            let periods = format!(
                "SENTINEL DEBUG info-period {info_period_ms} publish-period {PUBLISH_PERIOD_MS} ping-period {PING_PERIOD_MS}"
            );
            Client::connect(sentinel.port)?.call(&periods.split(' ').collect::<Vec<_>>())?;
            deployment.sentinels.push(sentinel);
        }
        deployment.settle()?;
        Ok(deployment)
    }

    pub fn sentinel_ports(&self) -> Vec<u16> {
        self.sentinels.iter().map(|sentinel| sentinel.port).collect()
    }

    pub fn ports(&self) -> Vec<u16> {
        self.nodes.iter().map(|node| node.port).collect()
    }

    pub fn kill(&mut self, port: u16) {
        self.nodes.iter_mut().filter(|node| node.port == port).for_each(Node::kill);
    }

    /// Starts it on its file, as it was left by its last role.
    pub fn start_again(&mut self, port: u16) -> Fallible {
        let server = self.server.clone();
        self.nodes.iter_mut().filter(|node| node.port == port).try_for_each(|node| node.start(&server, &[]))
    }

    /// Waits until all sentinels name another primary than `old`, and that one knows it. Returns its port.
    pub fn wait_for_other_than(&self, old: u16) -> Fallible<u16> {
        let mut new = old;
        self.explained(wait("no other primary is named by all sentinels", || {
            new = self.named_by_all()?.unwrap_or(old);
            Ok(new != old && Client::connect(new)?.info("role")? == "master")
        }))?;
        Ok(new)
    }

    /// Returns the primary that all sentinels name, or `None` while they differ.
    fn named_by_all(&self) -> Fallible<Option<u16>> {
        let mut named = Vec::new();
        for port in self.sentinel_ports() {
            named.push(named_by(&mut Client::connect(port)?)?);
        }
        Ok(named.iter().all(|one| *one == named[0]).then_some(named[0]))
    }

    /// Waits until all sentinels name one primary, all other nodes follow it, and the sentinels see that.
    /// Returns its port.
    pub fn settle(&self) -> Fallible<u16> {
        let mut settled = 0;
        self.explained(wait("not all is as before", || {
            let Some(primary) = self.named_by_all()? else { return Ok(false) };
            let replicas = (NODES - 1).to_string();
            for port in self.ports().into_iter().filter(|port| *port != primary) {
                let mut client = Client::connect(port)?;
                if client.info("role")? != "slave"
                    || client.info("master_port")? != primary.to_string()
                    || client.info("master_link_status")? != "up"
                {
                    return Ok(false);
                }
            }
            for port in self.sentinel_ports() {
                let mut client = Client::connect(port)?;
                let seen = fields(&client.call(&["SENTINEL", "MASTER", NAME])?);
                let is = |name: &str, value: &str| seen.iter().any(|one| one.0 == name && one.1 == value);
                let Value::Array(listed) = client.call(&["SENTINEL", "REPLICAS", NAME])? else {
                    return Ok(false);
                };
                let follows = |replica: &Value| {
                    let seen = fields(replica);
                    let is = |name: &str, value: &str| seen.iter().any(|one| one.0 == name && one.1 == value);
                    is("flags", "slave")
                        && is("master-link-status", "ok")
                        && is("master-port", &primary.to_string())
                };
                if !is("flags", "master")
                    || !is("num-slaves", &replicas)
                    || !is("num-other-sentinels", &replicas)
                    || !listed.iter().all(follows)
                {
                    return Ok(false);
                }
            }
            settled = primary;
            Ok(true)
        }))?;
        Ok(settled)
    }

    fn explained(&self, result: Fallible) -> Fallible {
        result.map_err(|why| {
            let all = self.nodes.iter().chain(&self.sentinels);
            let ends = all.map(|node| format!("{}:\n{}", node.log_path().display(), node.log_end()));
            ends.fold(why, |text, end| format!("{text}\n{end}"))
        })
    }
}

/// The port of the primary, as a sentinel names it.
pub fn named_by(sentinel: &mut Client) -> Fallible<u16> {
    let reply = sentinel.call(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME])?;
    let Value::Array(parts) = &reply else { return Err("the sentinel knows no primary".to_string()) };
    let port = parts.get(1).map(text).unwrap_or_default();
    port.parse().map_err(|_| format!("the sentinel names '{port}' as a port"))
}

/// Names and values by turns.
fn fields(value: &Value) -> Vec<(String, String)> {
    match value {
        Value::Array(all) => all.chunks_exact(2).map(|pair| (text(&pair[0]), text(&pair[1]))).collect(),
        Value::Map(all) => all.iter().map(|(name, value)| (text(name), text(value))).collect(),
        _ => Vec::new(),
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::Bulk(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        _ => String::new(),
    }
}

/// Looks again and again until `is_so`. An error means that it is not so yet.
fn wait(what: &str, mut is_so: impl FnMut() -> Fallible<bool>) -> Fallible {
    let begun = Instant::now();
    while !is_so().unwrap_or(false) {
        if begun.elapsed() > PATIENCE {
            return Err(format!("{what} after {PATIENCE:?}"));
        }
        thread::sleep(BETWEEN_LOOKS);
    }
    Ok(())
}
