//! The nodes of a cluster with a connection to each, as the cluster manager works with them.

use isotherm_resp::reply_parse::Value;

use super::choices::Choices;
use super::link::{Link, Trouble, Way, info_field, words};
use super::node::{self, Line, Node};
use super::say;
use crate::Fallible;

pub struct Member {
    pub node: Node,
    /// Connection to the node; `None` if the node cannot be reached, or is not to be.
    pub link: Option<Link>,
    /// Number of databases of the node, asked for once.
    databases: Option<u64>,
}

impl Member {
    pub fn new(node: Node, link: Option<Link>) -> Member {
        Member { node, link, databases: None }
    }
}

pub struct Cluster {
    pub members: Vec<Member>,
    /// Errors that a check has found, as they were printed.
    pub errors: Vec<String>,
    pub unreachable_primaries: usize,
    pub choices: Choices,
    pub way: Way,
}

/// Selection of the nodes to be listed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Whom {
    Reachable,
    All,
}

/// A node that is asked for the first time: it has to be one of a cluster.
pub fn open_node(host: &str, port: u16, way: &Way) -> Fallible<(Link, Vec<Line>)> {
    let mut link = Link::open(host, port, way)?;
    let name = format!("{host}:{port}");
    let enabled = link.text(&["INFO"]).map(|info| info_field(&info, "cluster_enabled") == Some("1"));
    match enabled {
        Ok(true) => {}
        Ok(false) => return Err(format!("[ERR] Node {name} is not configured as a cluster node.")),
        Err(trouble) => return Err(format!("[ERR] Node {name} {}", trouble.text())),
    }
    let view = view(&mut link)?;
    Ok((link, view))
}

pub fn view(link: &mut Link) -> Fallible<Vec<Line>> {
    let text = link.text(&["CLUSTER", "NODES"])?;
    node::parse(&text)
}

/// The line that a node writes of itself, under the address by which we reach it.
pub fn myself(view: &[Line], host: &str, port: u16) -> Fallible<Node> {
    let line = view.iter().find(|line| line.is_myself());
    let line = line.ok_or_else(|| "Error: invalid CLUSTER NODES reply".to_string())?;
    Ok(Node { host: host.to_string(), port, ..line.node.clone() })
}

impl Cluster {
    pub fn empty(choices: &Choices, way: &Way) -> Cluster {
        Cluster {
            members: Vec::new(),
            errors: Vec::new(),
            unreachable_primaries: 0,
            choices: choices.clone(),
            way: way.clone(),
        }
    }

    /// All nodes that the given one knows.
    pub fn load(choices: &Choices, way: &Way, place: &(String, u16), whom: Whom) -> Fallible<Cluster> {
        let mut cluster = Cluster::empty(choices, way);
        let (host, port) = place;
        let (link, view) = open_node(host, *port, way)?;
        cluster.members.push(Member::new(myself(&view, host, *port)?, Some(link)));
        for line in view.into_iter().filter(|line| !line.is_myself()) {
            cluster.add_known(line.node, whom);
        }
        cluster.count_replicas();
        Ok(cluster)
    }

    /// A node that another one knows. Its own words are asked for; the other's stand if it cannot be reached.
    fn add_known(&mut self, known: Node, whom: Whom) {
        let is_gone = known.port == 0 || known.has_flag("noaddr");
        let link = if is_gone { None } else { Link::open(&known.host, known.port, &self.way).ok() };
        let Some(mut link) = link else { return self.add_unreachable(known, whom, None) };
        let own = view(&mut link).and_then(|view| myself(&view, &known.host, known.port));
        match own {
            Ok(own) if !known.has_flag("fail") => self.members.push(Member::new(own, Some(link))),
            Ok(own) => self.add_unreachable(own, whom, Some(link)),
            Err(_) => {
                say::err(format!("[ERR] Unable to load info for node {}", known.address()));
                self.add_unreachable(known, whom, None);
            }
        }
    }

    fn add_unreachable(&mut self, node: Node, whom: Whom, link: Option<Link>) {
        self.unreachable_primaries += usize::from(!node.is_replica());
        if whom == Whom::All {
            self.members.push(Member::new(node, link));
        }
    }

    pub fn count_replicas(&mut self) {
        self.members.iter_mut().for_each(|member| member.node.replicas = 0);
        for at in 0..self.members.len() {
            let Some(primary) = self.members[at].node.primary.clone() else { continue };
            match self.find(&primary) {
                Some(primary) => self.members[primary].node.replicas += 1,
                None => say::warn(format!(
                    "*** WARNING: {} claims to be replica of unknown node ID {primary}.",
                    self.name(at)
                )),
            }
        }
    }

    pub fn name(&self, at: usize) -> String {
        self.members[at].node.address()
    }

    pub fn node(&self, at: usize) -> &Node {
        &self.members[at].node
    }

    pub fn find(&self, id: &str) -> Option<usize> {
        self.members.iter().position(|member| member.node.id.eq_ignore_ascii_case(id))
    }

    /// Finds a node by the beginning of its id.
    pub fn find_short(&self, id: &str) -> Option<usize> {
        let id = id.to_ascii_lowercase();
        self.members.iter().position(|member| member.node.id.starts_with(&id))
    }

    pub fn all(&self) -> std::ops::Range<usize> {
        0..self.members.len()
    }

    /// Nodes that are no replicas, with slots or without.
    pub fn primaries(&self) -> Vec<usize> {
        self.all().filter(|&at| self.node(at).is_primary()).collect()
    }

    /// The reachable primary that fewest nodes follow.
    pub fn least_followed(&self, but: Option<usize>) -> Option<usize> {
        let primaries = self.primaries().into_iter();
        let reachable = primaries.filter(|&at| Some(at) != but && self.members[at].link.is_some());
        reachable.min_by_key(|&at| (self.node(at).replicas, at))
    }

    pub fn link(&mut self, at: usize) -> Result<&mut Link, Trouble> {
        let member = &mut self.members[at];
        let lost = || Trouble::Lost { node: member.node.address(), why: "not connected".to_string() };
        member.link.as_mut().ok_or_else(lost)
    }

    /// A command of words without blanks.
    pub fn ask(&mut self, at: usize, line: &str) -> Result<Value, Trouble> {
        self.link(at)?.ask(&words(line))
    }

    pub fn number(&mut self, at: usize, line: &str) -> Result<u64, Trouble> {
        self.link(at)?.number(&words(line))
    }

    pub fn set_slot(&mut self, at: usize, slot: u16, state: &str, other: usize) -> Result<(), Trouble> {
        let id = self.node(other).id.clone();
        self.ask(at, &format!("CLUSTER SETSLOT {slot} {state} {id}")).map(drop)
    }

    /// The slot's owner is `owner`, at many nodes at once: each of them writes a file for it. One outcome for
    /// each node.
    pub fn assign(&mut self, nodes: &[usize], slot: u16, owner: usize) -> Vec<Result<(), Trouble>> {
        let request = words(&format!("CLUSTER SETSLOT {slot} NODE {}", self.node(owner).id));
        let sent: Vec<Result<(), Trouble>> =
            nodes.iter().map(|&at| self.link(at).and_then(|link| link.send(&request))).collect();
        let outcome = |(&at, sent): (&usize, Result<(), Trouble>)| {
            sent.and_then(|()| self.link(at)?.receive().map(drop))
        };
        nodes.iter().zip(sent).map(outcome).collect()
    }

    pub fn stable(&mut self, at: usize, slot: u16) -> Result<(), Trouble> {
        self.ask(at, &format!("CLUSTER SETSLOT {slot} STABLE")).map(drop)
    }

    /// The views that all reachable nodes have.
    pub fn views(&mut self) -> Fallible<Vec<Vec<Line>>> {
        self.members.iter_mut().filter_map(|member| member.link.as_mut()).map(view).collect()
    }

    /// Databases of a node in cluster mode; older servers know of one only.
    pub fn databases(&mut self, at: usize) -> Result<u64, Trouble> {
        if let Some(known) = self.members[at].databases {
            return Ok(known);
        }
        let reply = self.link(at)?.call(&["CONFIG", "GET", "cluster-databases"])?;
        let pair = match &reply {
            Value::Array(items) => items.get(1),
            Value::Map(pairs) => pairs.first().map(|(_, value)| value),
            _ => None,
        };
        let text = pair.map(super::link::bytes_of).unwrap_or_default();
        let databases = isotherm_stdx::parse_u64(text).unwrap_or(1).max(1);
        self.members[at].databases = Some(databases);
        Ok(databases)
    }
}
