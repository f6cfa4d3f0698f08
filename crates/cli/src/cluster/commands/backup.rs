//! `backup`: an RDB file of each primary, and the slots that each of them had.

use std::path::Path;

use super::place;
use crate::Fallible;
use crate::cluster::checking::{How, check};
use crate::cluster::choices::Choices;
use crate::cluster::link::Way;
use crate::cluster::node::Node;
use crate::cluster::roster::{Cluster, Whom};
use crate::cluster::say;
use crate::modes::transfer::{Part, save_from};

pub fn backup(choices: &Choices, way: &Way) -> Fallible<bool> {
    let mut cluster = Cluster::load(choices, way, &place(&choices.args[..1])?, Whom::Reachable)?;
    let is_well = check(&mut cluster, How::default())?;
    let folder = String::from_utf8_lossy(&choices.args[1]).into_owned();
    if !Path::new(&folder).is_dir() {
        return Err(format!("[ERR] {folder} is not a valid directory"));
    }
    let errors = if is_well { 0 } else { cluster.errors.len() };
    let nodes: Vec<String> = cluster.members.iter().map(|member| json(&member.node, errors)).collect();
    for member in cluster.members {
        let (node, Some(link)) = (member.node, member.link) else { continue };
        if node.primary.is_some() {
            continue;
        }
        say::info(format!(">>> Node {} -> Saving RDB...", node.address()));
        let name = format!("valkey-node-{}-{}-{}.rdb", node.host, node.port, node.id);
        let path = Path::new(&folder).join(name);
        save_from(&mut link.into_connection(), &path.to_string_lossy(), Part::All)?;
    }
    let path = Path::new(&folder).join("nodes.json");
    say::info(format!("Saving cluster configuration to: {}", path.display()));
    if std::fs::write(&path, format!("[\n{}\n]", nodes.join(",\n"))).is_err() {
        say::err(format!("Could not save nodes to: {}", path.display()));
        say::ok("[ERR] Failed to back cluster!");
        return Ok(false);
    }
    if !is_well {
        say::warn(
            "*** Cluster seems to have some problems, please be aware of it if you're going to restore this backup.",
        );
    }
    say::ok(format!("[OK] Backup created into: {folder}"));
    Ok(true)
}

fn json(node: &Node, errors: usize) -> String {
    let primary = node.primary.as_ref().map_or("null".to_string(), |id| format!("\"{id}\""));
    let slots = node.slots.in_brackets().replace('-', ",");
    let mut text = format!(
        "  {{\n    \"name\": \"{}\",\n    \"host\": \"{}\",\n    \"port\": {},\n    \"replicate\": {primary},\n    \
         \"slots\": [{slots}],\n    \"slots_count\": {},\n    \"flags\": \"{}\",\n    \"current_epoch\": {}",
        node.id,
        node.host,
        node.port,
        node.slots.len(),
        node.flag_text(),
        node.epoch
    );
    if errors > 0 {
        text += &format!(",\n    \"cluster_errors\": {errors}");
    }
    for (name, open) in [("migrating", &node.migrating), ("importing", &node.importing)] {
        if !open.is_empty() {
            let pairs: Vec<String> =
                open.iter().map(|(slot, other)| format!("\"{slot}\": \"{other}\"")).collect();
            text += &format!(",\n    \"{name}\": {{{}}}", pairs.join(","));
        }
    }
    text + "\n  }"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_valkey_cli_writes_it() {
        let mut node = Node::at("h", 7);
        node.id = "a".to_string();
        node.slots = [0, 1, 2, 9].into_iter().collect();
        node.flags = vec!["myself".to_string(), "master".to_string()];
        node.migrating = vec![(9, "b".to_string())];
        let expected = "  {\n    \"name\": \"a\",\n    \"host\": \"h\",\n    \"port\": 7,\n    \"replicate\": null,\n    \
                        \"slots\": [[0,2],[9]],\n    \"slots_count\": 4,\n    \"flags\": \"master\",\n    \
                        \"current_epoch\": 0,\n    \"cluster_errors\": 1,\n    \"migrating\": {\"9\": \"b\"}\n  }";
        assert_eq!(json(&node, 1), expected);
    }
}
