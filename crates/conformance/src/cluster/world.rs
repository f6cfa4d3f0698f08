//! The nodes of a cluster, and the tool that moves its slots.

use std::process::Command;
use std::time::{Duration, Instant};

use isotherm_probe::free_port;
use isotherm_resp::reply_parse::Value;

use super::Places;
use crate::Fallible;
use crate::bounded;
use crate::client::Client;
use crate::process::Server;

/// A command of the tool ends within this time.
const TOOL_TIME: Duration = Duration::from_secs(120);
/// Nodes hear of each other's changes within this time.
const AGREE_TIME: Duration = Duration::from_secs(20);
const NODE_TIMEOUT_MS: &str = "15000";

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Make {
    Isotherm,
    Valkey,
}

pub struct Node {
    server: Server,
    pub id: String,
    pub make: Make,
}

impl Node {
    pub fn port(&self) -> u16 {
        self.server.port
    }

    fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port())
    }

    pub fn client(&self) -> Fallible<Client> {
        Client::connect(self.port()).map_err(|why| format!("{}: {why}", self.address()))
    }

    pub fn call(&self, words: &[&str]) -> Fallible<Value> {
        self.client()?.call(words).map_err(|why| format!("{}: {}: {why}", self.address(), words.join(" ")))
    }
}

impl Node {
    /// A node that has lost its last slot becomes a replica of the one that has it, and takes no CLUSTER
    /// RESET while it loads.
    fn wait_until_in_sync(&self) -> Fallible {
        let begun = Instant::now();
        loop {
            let info = text(self.call(&["INFO", "replication"])?);
            if info.contains("role:master") || info.contains("master_link_status:up") {
                return Ok(());
            }
            if begun.elapsed() > AGREE_TIME {
                return Err(format!("{} does not come in sync with its primary", self.address()));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// A cluster that the nodes have formed. The first ones stay.
pub struct World<'p> {
    places: &'p Places,
    /// Arguments for Isotherm nodes.
    more: &'p [&'p str],
    pub nodes: Vec<Node>,
}

impl<'p> World<'p> {
    /// `more`: arguments for Isotherm nodes.
    pub fn create(places: &'p Places, makes: &[Make], more: &'p [&'p str]) -> Fallible<World<'p>> {
        let mut world = World { places, more, nodes: Vec::new() };
        makes.iter().try_for_each(|make| world.start(*make))?;
        let addresses: Vec<String> = world.nodes.iter().map(Node::address).collect();
        let mut words = vec!["create"];
        words.extend(addresses.iter().map(String::as_str));
        words.push("--cluster-yes");
        world.tool(&words)?;
        world.agree()?;
        Ok(world)
    }

    fn start(&mut self, make: Make) -> Fallible {
        let bus_port = free_port()?.to_string();
        let common = ["--cluster-enabled", "yes", "--cluster-port", &bus_port];
        let timeout = ["--cluster-node-timeout", NODE_TIMEOUT_MS];
        let (binary, more) = match make {
            Make::Isotherm => (self.places.server.clone(), self.more),
            Make::Valkey => (self.places.bin.join("valkey-server"), &[][..]),
        };
        let arguments: Vec<String> =
            [&common[..], &timeout, more].concat().iter().map(|word| word.to_string()).collect();
        let server = Server::start(&binary, &arguments)?;
        let mut node = Node { server, id: String::new(), make };
        node.id = text(node.call(&["CLUSTER", "MYID"])?);
        self.nodes.push(node);
        Ok(())
    }

    /// Runs `valkey-cli --cluster`. Returns its output, unless it fails.
    fn tool(&self, words: &[&str]) -> Fallible<String> {
        let mut command = Command::new(self.places.bin.join("valkey-cli"));
        command.arg("--cluster").args(words);
        let ended = bounded::run(&mut command, b"", TOOL_TIME)?;
        if ended.well() && !ended.output.contains("[ERR]") {
            return Ok(ended.output);
        }
        let said = format!("{}{}", ended.output, ended.errors);
        let lines: Vec<&str> = said.lines().rev().take(8).collect();
        let said: Vec<&str> = lines.into_iter().rev().collect();
        Err(format!("valkey-cli --cluster {}: {}\n{}", words.join(" "), ended.how(), said.join("\n")))
    }

    pub fn reshard(&self, from: usize, to: usize, slots: usize) -> Fallible {
        let (first, slots) = (self.nodes[0].address(), slots.to_string());
        let (from, to) = (&self.nodes[from].id, &self.nodes[to].id);
        let ends = ["--cluster-from", from, "--cluster-to", to, "--cluster-slots", &slots, "--cluster-yes"];
        self.tool(&[&["reshard", &first], &ends[..]].concat())?;
        self.agree()
    }

    pub fn rebalance(&self) -> Fallible {
        self.tool(&["rebalance", &self.nodes[0].address(), "--cluster-threshold", "0"])?;
        self.agree()
    }

    pub fn add_node(&mut self, make: Make) -> Fallible {
        self.start(make)?;
        let (new, old) = (self.nodes[self.nodes.len() - 1].address(), self.nodes[0].address());
        self.tool(&["add-node", &new, &old])?;
        self.agree()
    }

    /// The last one, which has no slots any more.
    pub fn del_node(&mut self) -> Fallible {
        let last = self.nodes.pop().ok_or("there are nodes")?;
        last.wait_until_in_sync()?;
        self.tool(&["del-node", &self.nodes[0].address(), &last.id])?;
        self.agree()
    }

    /// All nodes have one view, in which nothing is amiss.
    fn agree(&self) -> Fallible {
        let begun = Instant::now();
        loop {
            let said = self.tool(&["check", &self.nodes[0].address()]);
            let is_clean = |said: &String| {
                said.contains("[OK] All nodes agree")
                    && said.contains("[OK] All 16384 slots covered")
                    && !said.contains("[WARNING]")
            };
            match said {
                Ok(said) if is_clean(&said) && self.all_know_all()? => return Ok(()),
                said if begun.elapsed() > AGREE_TIME => {
                    return Err(format!(
                        "the cluster does not come to one view: {}",
                        said.unwrap_or_else(|why| why)
                    ));
                }
                _ => std::thread::sleep(Duration::from_millis(200)),
            }
        }
    }

    fn all_know_all(&self) -> Fallible<bool> {
        for node in &self.nodes {
            let info = text(node.call(&["CLUSTER", "INFO"])?);
            let known = format!("cluster_known_nodes:{}\r\n", self.nodes.len());
            if !info.contains("cluster_state:ok") || !info.contains(&known) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns the number of keys on all nodes.
    pub fn keys(&self) -> Fallible<i64> {
        let mut keys = 0;
        for node in &self.nodes {
            match node.call(&["DBSIZE"])? {
                Value::Integer(count) => keys += count,
                other => return Err(format!("DBSIZE is {other:?}")),
            }
        }
        Ok(keys)
    }

    pub fn slots_of(&self, at: usize) -> Fallible<usize> {
        let nodes = text(self.nodes[0].call(&["CLUSTER", "NODES"])?);
        let line = nodes.lines().find(|line| line.starts_with(&self.nodes[at].id)).unwrap_or_default();
        let range = |word: &str| {
            let (first, last) = word.split_once('-').unwrap_or((word, word));
            Some(last.parse::<usize>().ok()? + 1 - first.parse::<usize>().ok()?)
        };
        Ok(line.split(' ').skip(8).filter_map(range).sum())
    }
}

pub fn text(value: Value) -> String {
    match value {
        Value::Bulk(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Value::Verbatim { text, .. } => String::from_utf8_lossy(&text).into_owned(),
        other => format!("{other:?}"),
    }
}
