//! Replies of a real Valkey to CLUSTER SLOTS, SHARDS, NODES and INFO: the same topology gives the same bytes.
//!
//! The topology is made from the nodes.conf that was saved at that moment. Offsets are those of the reply,
//! and the order of shards and of lines is not compared: in Valkey it is that of a hash table.

use isotherm_cluster::conf::{self, ConfNode};
use isotherm_cluster::topology::info::{self, Counts, Traffic};
use isotherm_cluster::topology::replies::{self, Asker, Endpoint};
use isotherm_cluster::topology::{Node, NodeIndex, State, Topology};
use isotherm_cluster::wire::Type;
use isotherm_cluster::{Flags, Slot};
use isotherm_resp::reply_parse::{Value, parse_value};
use isotherm_resp::{Protocol, Reply};
use std::collections::HashMap;
use std::sync::Arc;

const GOLDENS: &str = include_str!("goldens/conf-valkey-9.1.2.txt");
const STAGES: [&str; 5] = ["created", "handed over", "failed", "another at its address", "forgotten"];

fn golden(name: &str) -> Option<&'static str> {
    let mut entries = GOLDENS.split("\n# ").skip(1).map(|entry| entry.split_once('\n').expect("a name"));
    entries.find(|(this, _)| this.starts_with(name)).map(|(_, text)| text)
}

/// A reply, which is kept as Python writes bytes.
fn reply(name: &str) -> Vec<u8> {
    let text = golden(name).unwrap_or_else(|| panic!("no golden {name}"));
    let text =
        text.trim_end().strip_prefix("b'").and_then(|text| text.strip_suffix('\'')).expect("Python's quotes");
    text.replace("\\r", "\r").replace("\\n", "\n").into_bytes()
}

fn node_of(at: &str) -> u8 {
    let name = ["1", "4"].into_iter().find(|node| golden(&format!("{at}: NODES of {node}")).is_some());
    name.expect("a reply of it").parse().expect("a number")
}

/// Of the node that was asked at a stage.
fn topology(stage: &str, offsets: &HashMap<String, u64>) -> Topology {
    let text = golden(&format!("{stage}: nodes.conf of {}", node_of(stage))).expect("a file");
    let conf = conf::read(text.as_bytes(), false).expect("a file of Valkey");
    let mut nodes: Vec<&ConfNode> = conf.nodes.iter().collect();
    nodes.sort_by_key(|node| node.id);
    let index = |id| NodeIndex(nodes.iter().position(|node| node.id == id).expect("a node") as u16);
    let mut owners = [None; Slot::COUNT];
    nodes
        .iter()
        .for_each(|node| node.slots.iter().for_each(|slot| owners[slot.index()] = Some(index(node.id))));
    let me = *nodes.iter().find(|node| node.flags.has(Flags::MYSELF)).expect("this node");
    Topology {
        generation: 1,
        nodes: nodes
            .iter()
            .map(|node| Node {
                id: node.id,
                shard: node.shard.expect("a new file"),
                flags: node.flags,
                primary: node.primary.map(index),
                address: Arc::new(node.address.clone()),
                config_epoch: if node.primary.is_some() { 0 } else { node.config_epoch },
                ping_sent_ms: node.ping_sent_ms,
                pong_received_ms: node.pong_received_ms,
                is_connected: node.is_connected,
                offset: offsets.get(node.id.as_str()).copied().unwrap_or(1),
                slots: node.slots.clone(),
            })
            .collect(),
        myself: index(me.id),
        owners: Arc::new(owners),
        migrating: me.migrating.clone(),
        importing: me.importing.clone(),
        state: State::Ok,
        current_epoch: conf.current_epoch,
        last_vote_epoch: conf.last_vote_epoch,
        size: nodes.iter().filter(|node| !node.slots.is_empty()).count(),
    }
}

fn written(protocol: Protocol, write: impl FnOnce(&mut Reply)) -> Vec<u8> {
    let mut reply = Reply::new(protocol);
    write(&mut reply);
    reply.out
}

const ASKERS: [(&str, Asker); 4] = [
    ("", Asker { is_ipv6: false, is_tls: false, endpoint: Endpoint::Ip }),
    (", asked by IPv6", Asker { is_ipv6: true, is_tls: false, endpoint: Endpoint::Ip }),
    (", hostname", Asker { is_ipv6: false, is_tls: false, endpoint: Endpoint::Hostname }),
    (", unknown-endpoint", Asker { is_ipv6: false, is_tls: false, endpoint: Endpoint::Unknown }),
];

/// Checks each reply of a kind, with the stage and the asker.
fn each(what: &str, check: impl Fn(&str, Asker, Protocol, &[u8])) {
    let mut count = 0;
    for stage in STAGES {
        for (by, asker) in ASKERS {
            for (number, protocol) in [(2, Protocol::Resp2), (3, Protocol::Resp3)] {
                let name = format!("{stage}{by}: {what} of {}, RESP{number}", node_of(stage));
                if golden(&name).is_some() {
                    println!("{name}");
                    check(stage, asker, protocol, &reply(&name));
                    count += 1;
                }
            }
        }
    }
    assert!(count >= STAGES.len());
}

/// The text of a key in a list or map of pairs.
fn find<'v>(value: &'v Value, key: &str) -> &'v Value {
    let is_key = |value: &Value| *value == Value::Bulk(key.as_bytes().to_vec());
    match value {
        Value::Map(pairs) => pairs.iter().find(|(name, _)| is_key(name)).map(|(_, value)| value),
        Value::Array(values) => values.chunks(2).find(|pair| is_key(&pair[0])).map(|pair| &pair[1]),
        _ => None,
    }
    .unwrap_or_else(|| panic!("no {key} in {value:?}"))
}

fn elements(value: &Value) -> &[Value] {
    if let Value::Array(values) = value { values } else { panic!("{value:?}") }
}

fn text(value: &Value) -> String {
    if let Value::Bulk(bytes) = value {
        String::from_utf8_lossy(bytes).into_owned()
    } else {
        panic!("{value:?}")
    }
}

/// Shards and their nodes in the order of their texts.
fn sorted_shards(bytes: &[u8]) -> Vec<(String, Vec<Value>, Vec<String>)> {
    let (value, _) = parse_value(bytes).expect("RESP").expect("a whole reply");
    let mut shards: Vec<_> = elements(&value)
        .iter()
        .map(|shard| {
            let nodes = elements(find(shard, "nodes"));
            let mut nodes: Vec<String> = nodes.iter().map(|node| format!("{node:?}")).collect();
            nodes.sort();
            (text(find(shard, "id")), elements(find(shard, "slots")).to_vec(), nodes)
        })
        .collect();
    shards.sort_by(|left, right| left.0.cmp(&right.0));
    shards
}

fn offsets(bytes: &[u8]) -> HashMap<String, u64> {
    let (value, _) = parse_value(bytes).expect("RESP").expect("a whole reply");
    let nodes = elements(&value).iter().flat_map(|shard| elements(find(shard, "nodes")));
    let offset = |node: &Value| {
        let Value::Integer(offset) = find(node, "replication-offset") else { panic!("{node:?}") };
        (text(find(node, "id")), *offset as u64)
    };
    nodes.map(offset).collect()
}

#[test]
fn slots() {
    each("SLOTS", |stage, asker, protocol, golden| {
        let shards = reply(&format!("{stage}: SHARDS of {}, RESP2", node_of(stage)));
        let topology = topology(stage, &offsets(&shards));
        let written = written(protocol, |reply| replies::slots(&topology, asker, reply));
        assert_eq!(String::from_utf8_lossy(&written), String::from_utf8_lossy(golden));
    });
}

#[test]
fn shards() {
    each("SHARDS", |stage, asker, protocol, golden| {
        let topology = topology(stage, &offsets(golden));
        let written = written(protocol, |reply| replies::shards(&topology, asker, reply));
        assert_eq!(sorted_shards(&written), sorted_shards(golden));
        assert_eq!(written.len(), golden.len());
    });
}

/// Lines in their order, without the times of pings, which have moved on since the file was saved.
fn sorted_lines(text: &str) -> Vec<String> {
    let without_times = |line: &str| {
        let words = line.split(' ').enumerate().filter(|(at, _)| !matches!(at, 4 | 5));
        words.map(|(_, word)| word).collect::<Vec<&str>>().join(" ")
    };
    let mut lines: Vec<String> = text.lines().map(without_times).collect();
    lines.sort();
    lines
}

fn verbatim(bytes: &[u8]) -> String {
    text(&parse_value(bytes).expect("RESP").expect("a whole reply").0)
}

#[test]
fn nodes() {
    each("NODES", |stage, asker, _, golden| {
        let topology = topology(stage, &HashMap::new());
        assert_eq!(sorted_lines(&replies::nodes(&topology, asker)), sorted_lines(&verbatim(golden)));
    });
}

/// The counted traffic, from the figures of a reply.
fn traffic(figures: &HashMap<&str, u64>, direction: &str) -> Traffic {
    let figure = |name: String| figures.get(name.as_str()).copied().unwrap_or(0);
    let mut traffic = Traffic::default();
    for kind in Type::ALL {
        let messages = figure(format!("cluster_stats_messages_{}_{direction}", kind.name()));
        (1..messages).for_each(|_| traffic.count(kind, 0));
        let all = figure(format!("cluster_stats_bytes_{direction}"));
        let published = figure(format!("cluster_stats_pubsub_bytes_{direction}"));
        let bytes = match kind {
            Type::Ping => all - published,
            Type::Publish => published,
            _ => 0,
        };
        (0..messages.min(1)).for_each(|_| traffic.count(kind, bytes as usize));
    }
    traffic
}

#[test]
fn figures() {
    each("INFO", |stage, _, _, golden| {
        let golden = verbatim(golden);
        let pairs = golden.lines().filter_map(|line| line.split_once(':'));
        let figures: HashMap<&str, u64> =
            pairs.filter_map(|(name, value)| Some((name, value.parse().ok()?))).collect();
        let mut topology = topology(stage, &HashMap::new());
        if golden.contains("cluster_state:fail") {
            topology.state = State::Uncovered;
        }
        let counts = Counts {
            sent: traffic(&figures, "sent"),
            received: traffic(&figures, "received"),
            links_over_limit: 0,
        };
        let lines = info::lines(&topology, &counts).into_iter();
        assert_eq!(lines.map(|(name, value)| format!("{name}:{value}\r\n")).collect::<String>(), golden);
    });
}
