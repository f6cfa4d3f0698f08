//! Moving a slot from one primary to another, key by key with MIGRATE, or at once where the servers can
//! (atomic migration).
//!
//! The order is that of valkey-cli, so that a cut leaves one of the states that `plan::fix` knows: first the
//! target opens the slot, then the source; the target becomes the owner first, since it makes that known to
//! the others.

use std::time::{Duration, Instant};

use isotherm_resp::reply_parse::Value;

use super::link::{Trouble, bytes_of, info_field};
use super::progress::Progress;
use super::roster::Cluster;
use super::say;
use super::slots::{ranges, spaced};
use crate::Fallible;

/// Errors of the source when it is given the news that it has lost the slot: the news was faster.
const SOURCE_KNOWS_ALREADY: [&str; 4] = [
    "ERR Please use SETSLOT only with masters.",
    "ERR Please use SETSLOT only with primaries.",
    "UNBLOCKED",
    "NOREPLICAS",
];
/// A node that has just joined refuses keys for a moment.
const READY_MAX: Duration = Duration::from_secs(10);
const READY_POLL: Duration = Duration::from_millis(100);
const ATOMIC_POLL: Duration = Duration::from_millis(100);
/// Bytes after the value in a DUMP: two of the version, and a checksum.
const DUMP_TRAILER_BYTES: usize = 10;
const ABSENT_DIGEST: &[u8] = b"0000000000000000000000000000000000000000";

#[derive(Clone, Copy)]
pub struct Path {
    pub from: usize,
    pub to: usize,
    pub slot: u16,
}

/// Waits until a node takes keys, or for a time after which its first key shows why it does not.
pub fn wait_until_ready(cluster: &mut Cluster, at: usize) -> Result<(), Trouble> {
    let begun = Instant::now();
    loop {
        let info = cluster.link(at)?.text(&["CLUSTER", "INFO"])?;
        if info_field(&info, "cluster_state") == Some("ok") || begun.elapsed() > READY_MAX {
            return Ok(());
        }
        std::thread::sleep(READY_POLL);
    }
}

/// Keys and slot.
pub fn move_slot(cluster: &mut Cluster, path: Path, progress: &mut Progress) -> Result<(), Trouble> {
    let Path { from, to, slot } = path;
    progress.begin_slot(slot, &cluster.name(from), &cluster.name(to));
    cluster.set_slot(to, slot, "IMPORTING", from)?;
    cluster.set_slot(from, slot, "MIGRATING", to)?;
    let moved = move_keys(cluster, path, progress);
    progress.end_keys();
    moved?;
    cluster.set_slot(to, slot, "NODE", to)?;
    let mut informed = vec![from];
    informed.extend(cluster.primaries().into_iter().filter(|&at| at != from && at != to));
    for (at, outcome) in informed.iter().zip(cluster.assign(&informed, slot, to)) {
        let knows =
            |trouble: &Trouble| SOURCE_KNOWS_ALREADY.iter().any(|known| trouble.text().starts_with(known));
        match outcome {
            Err(trouble) if *at == from && knows(&trouble) => {}
            outcome => outcome?,
        }
    }
    cluster.members[from].node.slots.remove(slot);
    cluster.members[to].node.slots.insert(slot);
    Ok(())
}

/// Moves the keys only: the owner of the slot stays as it is.
pub fn move_keys_shown(cluster: &mut Cluster, path: Path, progress: &mut Progress) -> Result<(), Trouble> {
    progress.begin_slot(path.slot, &cluster.name(path.from), &cluster.name(path.to));
    let moved = move_keys(cluster, path, progress);
    progress.end_keys();
    moved
}

fn move_keys(cluster: &mut Cluster, path: Path, progress: &mut Progress) -> Result<(), Trouble> {
    let mut outcome = Ok(());
    for db in 0..cluster.databases(path.from)? {
        outcome = move_database(cluster, path, db, progress);
        if outcome.is_err() {
            break;
        }
    }
    cluster.link(path.from)?.select(0)?;
    outcome
}

fn move_database(cluster: &mut Cluster, path: Path, db: u64, progress: &mut Progress) -> Result<(), Trouble> {
    let (slot, count) = (path.slot.to_string(), cluster.choices.keys_per_migrate().to_string());
    cluster.link(path.from)?.select(db)?;
    loop {
        let keys = cluster.link(path.from)?.ask(&["CLUSTER", "GETKEYSINSLOT", &slot, &count])?;
        let Value::Array(keys) = keys else { return Ok(()) };
        let keys: Vec<Vec<u8>> = keys.iter().map(|key| bytes_of(key).to_vec()).collect();
        if keys.is_empty() {
            return Ok(());
        }
        migrate(cluster, path, db, &keys)?;
        progress.keys(keys.len());
    }
}

fn migrate(cluster: &mut Cluster, path: Path, db: u64, keys: &[Vec<u8>]) -> Result<(), Trouble> {
    let plain = migrate_request(cluster, path, db, keys, false);
    let trouble = match cluster.link(path.from)?.ask_once(&plain) {
        Ok(_) => return Ok(()),
        Err(trouble) if trouble.is_refusal() && trouble.text().contains("BUSYKEY") => trouble,
        Err(trouble) => return Err(trouble),
    };
    say::warn("\n*** Target key exists");
    if !cluster.choices.replace {
        say::warn("*** Checking key values on both nodes...");
        let different = different_keys(cluster, path, db, keys)?;
        if !different.is_empty() {
            say_different(cluster, path, &different);
            return Err(trouble);
        }
    }
    say::warn("*** Replacing target keys...");
    let replacing = migrate_request(cluster, path, db, keys, true);
    cluster.link(path.from)?.ask_once(&replacing).map(drop)
}

fn say_different(cluster: &Cluster, path: Path, keys: &[&[u8]]) {
    say::err(format!(
        "*** Found {} key(s) in both source node and target node having different values.\n    \
         Source node: {}\n    Target node: {}\n    Keys(s):",
        keys.len(),
        cluster.name(path.from),
        cluster.name(path.to)
    ));
    for key in keys {
        say::err(format!("    - {}", String::from_utf8_lossy(key)));
    }
    say::err(
        "Please fix the above key(s) manually and try again or relaunch the command \n\
         with --cluster-replace option to force key overriding.",
    );
}

fn migrate_request(cluster: &Cluster, path: Path, db: u64, keys: &[Vec<u8>], replace: bool) -> Vec<Vec<u8>> {
    let target = cluster.node(path.to);
    let mut request: Vec<Vec<u8>> = vec![
        b"MIGRATE".to_vec(),
        target.host.clone().into_bytes(),
        target.port.to_string().into_bytes(),
        Vec::new(),
        db.to_string().into_bytes(),
        cluster.choices.timeout_ms.to_string().into_bytes(),
    ];
    if replace {
        request.push(b"REPLACE".to_vec());
    }
    request.extend(auth(cluster));
    request.push(b"KEYS".to_vec());
    request.extend(keys.iter().cloned());
    request
}

/// Returns the arguments with which MIGRATE logs in at the target.
pub fn auth(cluster: &Cluster) -> Vec<Vec<u8>> {
    let login = &cluster.way.login;
    match (&login.user, &login.password) {
        (Some(user), Some(password)) => {
            vec![b"AUTH2".to_vec(), user.clone().into_bytes(), password.clone().into_bytes()]
        }
        (None, Some(password)) => vec![b"AUTH".to_vec(), password.clone().into_bytes()],
        (_, None) => Vec::new(),
    }
}

// COMPAT(tools): isotherm-cli --cluster compares keys that both nodes have by DUMP where DEBUG is not
// allowed; valkey-cli then asks for --cluster-replace. Why: DEBUG is not allowed by default.
/// Returns those of the keys that both nodes have with different values.
fn different_keys<'a>(
    cluster: &mut Cluster,
    path: Path,
    db: u64,
    keys: &'a [Vec<u8>],
) -> Result<Vec<&'a [u8]>, Trouble> {
    cluster.link(path.to)?.select(db)?;
    let values = match (digests(cluster, path.from, keys)?, digests(cluster, path.to, keys)?) {
        (Some(from), Some(to)) => (from, to),
        _ => (dumps(cluster, path.from, keys)?, dumps(cluster, path.to, keys)?),
    };
    cluster.link(path.to)?.select(0)?;
    let differs = |(from, to): (&Option<Vec<u8>>, &Option<Vec<u8>>)| match (from, to) {
        (Some(from), Some(to)) => from != to,
        _ => false,
    };
    let both = values.0.iter().zip(&values.1).map(differs);
    Ok(keys.iter().zip(both).filter(|(_, differs)| *differs).map(|(key, _)| key.as_slice()).collect())
}

type Values = Vec<Option<Vec<u8>>>;

/// Reads the digests of the keys' values. Returns `None` if the node does not allow DEBUG.
fn digests(cluster: &mut Cluster, at: usize, keys: &[Vec<u8>]) -> Result<Option<Values>, Trouble> {
    let mut request: Vec<Vec<u8>> = vec![b"DEBUG".to_vec(), b"DIGEST-VALUE".to_vec()];
    request.extend(keys.iter().cloned());
    let value = |reply: &Value| Some(bytes_of(reply).to_vec()).filter(|digest| digest != ABSENT_DIGEST);
    Ok(match cluster.link(at)?.call(&request)? {
        Value::Array(digests) if digests.len() == keys.len() => Some(digests.iter().map(value).collect()),
        _ => None,
    })
}

/// ASKING: one of the two nodes does not own the slot.
fn dumps(cluster: &mut Cluster, at: usize, keys: &[Vec<u8>]) -> Result<Values, Trouble> {
    let of_key = |key: &Vec<u8>| [vec![b"ASKING".to_vec()], vec![b"DUMP".to_vec(), key.clone()]];
    let requests: Vec<Vec<Vec<u8>>> = keys.iter().flat_map(of_key).collect();
    let link = cluster.link(at)?;
    let replies = link.many(&requests)?;
    let mut values = Vec::with_capacity(keys.len());
    for reply in replies.into_iter().skip(1).step_by(2) {
        values.push(match link.accept(reply)? {
            Value::Bulk(dump) => Some(dump[..dump.len().saturating_sub(DUMP_TRAILER_BYTES)].to_vec()),
            _ => None,
        });
    }
    Ok(values)
}

/// Slots of one node to another in one migration that the servers carry out.
pub fn move_atomically(
    cluster: &mut Cluster,
    from: usize,
    to: usize,
    slots: &[u16],
    progress: &mut Progress,
) -> Fallible {
    let ranges = ranges(slots.iter().copied());
    let shown = spaced(&ranges);
    say::line(format!(
        "Moving slot range {shown} from {} to {} via atomic slot migration",
        cluster.name(from),
        cluster.name(to)
    ));
    let request =
        format!("CLUSTER MIGRATESLOTS SLOTSRANGE {} NODE {}", shown.replace('-', " "), cluster.node(to).id);
    let failed = |trouble: Trouble| format!("Atomic slot migration failed: {}", trouble.text());
    cluster.ask(from, &request).map_err(failed)?;
    loop {
        let jobs = cluster.ask(from, "CLUSTER GETSLOTMIGRATIONS").map_err(failed)?;
        match state_of(&jobs, &shown) {
            Some((state, _)) if state == "success" => break,
            Some((state, _)) if state == "cancelled" => {
                return Err("Atomic slot migration failed: Slot migration was cancelled".to_string());
            }
            Some((state, why)) if state == "failed" => {
                return Err(format!("Atomic slot migration failed: {why}"));
            }
            Some(_) => std::thread::sleep(ATOMIC_POLL),
            None => {
                return Err(
                    "Atomic slot migration failed: Slot migration not found in GETSLOTMIGRATIONS".to_string()
                );
            }
        }
    }
    for &slot in slots {
        cluster.members[from].node.slots.remove(slot);
        cluster.members[to].node.slots.insert(slot);
    }
    progress.end_slots(slots.len());
    Ok(())
}

/// State and message of the newest migration of these slots.
fn state_of(jobs: &Value, slots: &str) -> Option<(String, String)> {
    let Value::Array(jobs) = jobs else { return None };
    let job = jobs.iter().find(|job| field(job, "slot_ranges").as_deref() == Some(slots))?;
    Some((field(job, "state")?, field(job, "message").unwrap_or_default()))
}

/// A field of a map, or of an array of names and values.
fn field(entry: &Value, name: &str) -> Option<String> {
    let text = |value: &Value| String::from_utf8_lossy(bytes_of(value)).into_owned();
    match entry {
        Value::Map(pairs) => pairs.iter().find(|(key, _)| text(key) == name).map(|(_, value)| text(value)),
        Value::Array(items) => {
            items.chunks_exact(2).find(|pair| text(&pair[0]) == name).map(|pair| text(&pair[1]))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_of_a_migration() {
        let bulk = |text: &str| Value::Bulk(text.as_bytes().to_vec());
        let job = |ranges: &str, state: &str| {
            Value::Array(["slot_ranges", ranges, "state", state, "message", "why"].map(bulk).to_vec())
        };
        let jobs = Value::Array(vec![job("0-5", "failed"), job("6-6", "success"), job("0-5", "success")]);
        assert_eq!(state_of(&jobs, "0-5"), Some(("failed".to_string(), "why".to_string())));
        assert_eq!(state_of(&jobs, "6-6").unwrap().0, "success");
        assert_eq!(state_of(&jobs, "7-7"), None);
    }
}
