//! `import`: the keys of a server that is no cluster, each to the node of its slot.

use std::collections::BTreeMap;

use isotherm_resp::reply_parse::Value;
use isotherm_stdx::Slot;

use super::place;
use crate::Fallible;
use crate::address::Login;
use crate::cluster::checking::{How, check};
use crate::cluster::choices::Choices;
use crate::cluster::link::{Link, Trouble, Way, bytes_of, info_field};
use crate::cluster::moving::auth;
use crate::cluster::node::split_address;
use crate::cluster::roster::{Cluster, Whom};
use crate::cluster::say;
use crate::terminal::{ask_password, put};

const KEYS_PER_SCAN: &str = "1000";

pub fn import(choices: &Choices, way: &Way) -> Fallible<bool> {
    let known = place(&choices.args)?;
    let Some(from) = &choices.from else {
        eprintln!("[ERR] Option '--cluster-from' is required for subcommand 'import'.");
        return Ok(false);
    };
    let Some((host, port, _)) = split_address(from) else {
        eprintln!(
            "[ERR] Invalid --cluster-from host. You need to pass a valid address (ie. 120.0.0.1:7000)."
        );
        return Ok(false);
    };
    say::info(format!(">>> Importing data from {host}:{port} to cluster {}:{}", known.0, known.1));
    let mut cluster = Cluster::load(choices, way, &known, Whom::Reachable)?;
    if !check(&mut cluster, How::default())? {
        return Ok(false);
    }
    let mut login = Login { user: choices.from_user.clone(), password: choices.from_password.clone() };
    if choices.ask_from_password {
        login.password = Some(ask_password("Please input import source node password: ")?);
    }
    let mut source = Link::open(&host, port, &Way { login, ..way.clone() })?;
    let failed = |trouble: Trouble| match trouble {
        Trouble::Refused { node, text } => format!("Source {node} replied with error:\n{text}"),
        lost => lost.to_string(),
    };
    let info = source.text(&["INFO"]).map_err(failed)?;
    if info_field(&info, "cluster_enabled") == Some("1") {
        return Err("[ERR] The source node should not be a cluster node.".to_string());
    }
    let size = source.number(&["DBSIZE"]).map_err(failed)?;
    say::warn(format!("*** Importing {size} keys from DB 0"));
    let owners = owners(&cluster)?;
    let mut cursor = b"0".to_vec();
    loop {
        let scan: [&[u8]; 4] = [b"SCAN", &cursor, b"COUNT", KEYS_PER_SCAN.as_bytes()];
        let reply = source.ask(&scan).map_err(failed)?;
        let Some((next, keys)) = scanned(&reply) else { return Err(source.odd(&reply).into()) };
        send(&cluster, &mut source, &owners, keys).map_err(failed)?;
        if next == b"0" {
            return Ok(true);
        }
        cursor = next;
    }
}

/// The node of each slot.
fn owners(cluster: &Cluster) -> Fallible<Vec<usize>> {
    let primaries = cluster.primaries();
    let owner = |slot: Slot| primaries.iter().copied().find(|&at| cluster.node(at).slots.has(slot.get()));
    Slot::all().map(|slot| owner(slot).ok_or_else(|| "[ERR] A slot has no owner.".to_string())).collect()
}

fn scanned(reply: &Value) -> Option<(Vec<u8>, Vec<Vec<u8>>)> {
    let Value::Array(parts) = reply else { return None };
    let [cursor, Value::Array(keys)] = parts.as_slice() else { return None };
    Some((bytes_of(cursor).to_vec(), keys.iter().map(|key| bytes_of(key).to_vec()).collect()))
}

// COMPAT(tools): isotherm-cli --cluster import moves as many keys with one MIGRATE as --cluster-pipeline
// says; valkey-cli one. Why: it is several times as fast.
fn send(cluster: &Cluster, source: &mut Link, owners: &[usize], keys: Vec<Vec<u8>>) -> Result<(), Trouble> {
    let mut by_owner: BTreeMap<usize, Vec<Vec<u8>>> = BTreeMap::new();
    for key in keys {
        by_owner.entry(owners[Slot::of_key(&key).index()]).or_default().push(key);
    }
    for (at, keys) in by_owner {
        for keys in keys.chunks(cluster.choices.keys_per_migrate()) {
            let line =
                |key: &[u8]| format!("Migrating {} to {}: ", String::from_utf8_lossy(key), cluster.name(at));
            if let Err(trouble) = source.ask_once(&request(cluster, at, keys)) {
                put(line(&keys[0]));
                return Err(trouble);
            }
            keys.iter().for_each(|key| say::ok(format!("{}OK", line(key))));
        }
    }
    Ok(())
}

fn request(cluster: &Cluster, at: usize, keys: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let (node, choices) = (cluster.node(at), &cluster.choices);
    let port = node.port.to_string();
    let timeout = choices.timeout_ms.to_string();
    let mut request: Vec<Vec<u8>> = ["MIGRATE", &node.host, &port, "", "0", &timeout]
        .into_iter()
        .map(|word| word.as_bytes().to_vec())
        .collect();
    request.extend(auth(cluster));
    for (wanted, word) in [(choices.copy, "COPY"), (choices.replace, "REPLACE")] {
        if wanted {
            request.push(word.as_bytes().to_vec());
        }
    }
    request.push(b"KEYS".to_vec());
    request.extend(keys.iter().cloned());
    request
}
