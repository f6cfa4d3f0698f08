//! Facts that `check` reports beyond valkey-cli, and by which a rebalance weighs slots: hosts, zones, CLUSTER
//! SLOT-STATS.

use isotherm_resp::reply_parse::Value;

use super::link::{Trouble, bytes_of, info_field};
use super::plan::risk::{Copy, SlotLoad, dangers, heavy};
use super::roster::Cluster;
use super::say;
use crate::Fallible;

// COMPAT(tools): isotherm-cli --cluster check also names the host or availability zone whose loss stops the
// cluster, and slots that are too large or hot; none of it changes the exit code. Why: both are found late
// otherwise.
pub fn say_dangers(cluster: &mut Cluster) -> Fallible {
    say::info(">>> Check hosts, availability zones and slots...");
    let zones = zones(cluster)?;
    let with_slots: Vec<&str> = cluster
        .members
        .iter()
        .filter(|member| !member.node.slots.is_empty())
        .map(|member| member.node.id.as_str())
        .collect();
    let copies = cluster.members.iter().zip(&zones).filter_map(|(member, zone)| {
        let node = &member.node;
        let shard = node.primary.as_deref().unwrap_or(&node.id);
        let host = node.host.as_str();
        with_slots.contains(&shard).then_some(Copy { shard, is_primary: node.is_primary(), host, zone })
    });
    let copies: Vec<Copy<'_>> = copies.collect();
    let dangers = dangers(&copies);
    dangers.iter().for_each(|danger| say::warn(format!("[WARNING] {}", danger.text())));
    if dangers.is_empty() && !copies.is_empty() {
        say::ok(
            "[OK] The loss of any one host or availability zone leaves a majority and a copy of each slot.",
        );
    }
    say_heavy(cluster)
}

fn say_heavy(cluster: &mut Cluster) -> Fallible {
    let primaries = cluster.primaries();
    let mut loads = Vec::new();
    for &at in &primaries {
        match slot_loads(cluster, at) {
            Ok(found) => loads.push(found),
            Err(trouble) if trouble.is_refusal() => {
                say::line(format!("{} has no CLUSTER SLOT-STATS; slots are not compared.", cluster.name(at)));
                return Ok(());
            }
            Err(trouble) => return Err(trouble.into()),
        }
    }
    let heavy = heavy(&loads);
    for slot in &heavy {
        let node = cluster.name(primaries[slot.node]);
        say::warn(format!("[WARNING] Slot {} of {node} {}. A slot is never divided.", slot.slot, slot.text));
    }
    if heavy.is_empty() {
        say::ok("[OK] No slot is much larger or hotter than the others.");
    }
    Ok(())
}

fn zones(cluster: &mut Cluster) -> Fallible<Vec<String>> {
    let mut zones = Vec::new();
    for at in cluster.all() {
        let info = cluster.link(at)?.text(&["INFO", "server"])?;
        zones.push(info_field(&info, "availability_zone").unwrap_or_default().to_string());
    }
    Ok(zones)
}

/// All slots of a node.
pub fn slot_loads(cluster: &mut Cluster, at: usize) -> Result<Vec<SlotLoad>, Trouble> {
    let reply = cluster.ask(at, "CLUSTER SLOT-STATS SLOTSRANGE 0 16383")?;
    let odd = || Trouble::Lost { node: cluster.name(at), why: "unexpected reply to SLOT-STATS".to_string() };
    let Value::Array(rows) = &reply else { return Err(odd()) };
    rows.iter().map(|row| slot_load(row).ok_or_else(odd)).collect()
}

fn slot_load(row: &Value) -> Option<SlotLoad> {
    let Value::Array(parts) = row else { return None };
    let [Value::Integer(slot), fields] = parts.as_slice() else { return None };
    let mut load = SlotLoad { slot: u16::try_from(*slot).ok()?, ..SlotLoad::default() };
    let mut take = |name: &Value, value: &Value| {
        let Value::Integer(value) = value else { return };
        let value = value.max(&0).unsigned_abs();
        match bytes_of(name) {
            b"key-count" => load.keys = value,
            b"memory-bytes" => load.bytes = Some(value),
            b"cpu-usec" => load.cpu_usec = Some(value),
            _ => {}
        }
    };
    match fields {
        Value::Map(pairs) => pairs.iter().for_each(|(name, value)| take(name, value)),
        Value::Array(items) => items.chunks_exact(2).for_each(|pair| take(&pair[0], &pair[1])),
        _ => return None,
    }
    Some(load)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_both_protocols() {
        let name = |text: &str| Value::Bulk(text.as_bytes().to_vec());
        let fields = [("key-count", 7), ("cpu-usec", 9), ("network-bytes-in", 1)];
        let flat = fields.iter().flat_map(|(text, value)| [name(text), Value::Integer(*value)]).collect();
        let pairs = fields.iter().map(|(text, value)| (name(text), Value::Integer(*value))).collect();
        let expected = SlotLoad { slot: 5, keys: 7, bytes: None, cpu_usec: Some(9) };
        for fields in [Value::Array(flat), Value::Map(pairs)] {
            assert_eq!(slot_load(&Value::Array(vec![Value::Integer(5), fields])), Some(expected.clone()));
        }
        assert_eq!(slot_load(&Value::Integer(5)), None);
        assert_eq!(slot_load(&Value::Array(vec![Value::Integer(-5), Value::Array(Vec::new())])), None);
    }
}
