//! Floors of `server`: each of its files stands on one, and an import that leads to a higher floor is an
//! arrow up.
//!
//! The order is the one in which the crate is cut into crates, after which Cargo keeps it: those behind the
//! line are. Until then each arrow up is counted; there are none, and the ceiling keeps it so.
//!
//! ```text
//! sim server membership replicas durability swap engine node | config runtime     imports lead to the right
//! ```
//!
//! Count: a file's floor is that of its folder, unless the table names a file or a folder inside. An
//! arrow is a pair of files, whatever number of names is imported, and leads through every re-export to the
//! definition, as in `circles`. Files that only tests have are on a floor too, but their arrows do not count.

use super::circles::Graph;
use super::{File, Finding, Measure, whole};

const SOURCES: &str = "crates/server/src/";

/// The floors, the lowest first, with their folders and files below the sources; the longest path that fits
/// counts.
const FLOORS: [(&str, &[&str]); 8] = [
    // State that all threads share: starts no thread, runs no command.
    (
        "node",
        &[
            "aof/files.rs",
            "aof/request.rs",
            "aof/rewrites.rs",
            "aof/state.rs",
            "cluster/herald.rs",
            "cluster/requests.rs",
            "cluster/shown.rs",
            "cluster/state.rs",
            "cluster/words.rs",
            "effects",
            "mail",
            "migration/flights.rs",
            "migration/job.rs",
            "migration/request.rs",
            "migration/sockets.rs",
            "migration/state.rs",
            "node.rs",
            "observe",
            "observe/memory_map/mark.rs",
            "persistence/delay.rs",
            "persistence/mod.rs",
            "persistence/state.rs",
            "process/asked_end.rs",
            "process/debug_switches.rs",
            "process/ending.rs",
            "process/hold_all.rs",
            "process/listeners.rs",
            "process/state.rs",
            "process/system.rs",
            "process/version.rs",
            "process/wish.rs",
            "replication/failover.rs",
            "replication/link_view.rs",
            "replication/own_expiry.rs",
            "replication/own_keys.rs",
            "replication/primary.rs",
            "replication/state.rs",
            "replication/waits.rs",
            "request/caller.rs",
            "request/entry.rs",
            "request/gate_bits.rs",
            "request/name_word.rs",
            "request/next.rs",
            "request/pause.rs",
            "request/registry.rs",
            "request/reply_gate.rs",
            "room",
            "scripting/bound.rs",
            "scripting/cache.rs",
            "scripting/function_engine.rs",
            "scripting/libraries.rs",
            "scripting/library_head.rs",
            "scripting/registry.rs",
            "scripting/shebang.rs",
            "session",
            "tier/asked.rs",
            "tier/checkpoint.rs",
            "tier/copies.rs",
            "tier/damaged.rs",
            "tier/errands.rs",
            "tier/fetches.rs",
            "tier/files.rs",
            "tier/handing.rs",
            "tier/health.rs",
            "tier/homes.rs",
            "tier/in_order.rs",
            "tier/keeper.rs",
            "tier/kept_segments.rs",
            "tier/lent.rs",
            "tier/read_warnings.rs",
            "tier/open_files.rs",
            "tier/owner.rs",
            "tier/pace.rs",
            "tier/reading.rs",
            "tier/reads.rs",
            "tier/rings.rs",
            "tier/state.rs",
            "tier/target.rs",
            "tier/times.rs",
            "tier/verify.rs",
            "tls",
            "users",
        ],
    ),
    // From the name of a command to its outcome: knows no socket and no event loop.
    ("engine", &["request", "scripting"]),
    // Threads of values on disk: know no command and no session.
    ("swap", &["tier"]),
    // Append-only file and snapshots: know no session.
    ("durability", &["aof", "persistence"]),
    // Replication links and slot migration: know no client but by its id.
    ("replicas", &["migration", "replication"]),
    // The thread of the cluster bus: knows no client.
    ("membership", &["cluster"]),
    // Event loops, commands about the server, start and end: knows all the others.
    (
        "server",
        &[
            "admin",
            "main.rs",
            "observe/info",
            "observe/memory_map",
            "observe/metrics",
            "process",
            "upkeep",
            "worker",
        ],
    ),
    // The whole server on a simulated disk: not in the product.
    ("sim", &["sim"]),
];

/// Files of `server` that are on no floor, and paths of the table that lead to no file.
pub fn check(files: &[File]) -> Vec<Finding> {
    let ours: Vec<&str> = files
        .iter()
        .filter(|file| file.path.ends_with(".rs"))
        .filter_map(|file| file.path.strip_prefix(SOURCES))
        .collect();
    if ours.is_empty() {
        return Vec::new();
    }
    let homeless = ours.iter().filter(|path| floor_of(path).is_none());
    let unknown = homeless.map(|path| whole(&format!("{SOURCES}{path}"), "on no floor (tidy/floors.rs)"));
    let named = FLOORS.iter().flat_map(|(_, paths)| *paths);
    let stale = named.filter(|named| !ours.iter().any(|path| is_below(path, named)));
    let stale = stale.map(|path| whole(&format!("{SOURCES}{path}"), "named by tidy/floors.rs, not there"));
    unknown.chain(stale).collect()
}

/// The arrows up, if the crate is `server`.
pub fn measure(name: &str, graph: &Graph) -> Option<Measure> {
    let mut places = Vec::new();
    for ((from, to), (line, _)) in &graph.arrows {
        let [from, to] = [from, to].map(|file| graph.files[*file].strip_prefix(SOURCES));
        let (Some(from), Some(to)) = (from, to) else { continue };
        if let (Some(low), Some(high)) = (floor_of(from), floor_of(to))
            && low < high
        {
            let floors = format!("{} up to {}", FLOORS[low].0, FLOORS[high].0);
            places.push(format!("{SOURCES}{from}:{line} names {to} ({floors})"));
        }
    }
    (name == "server")
        .then(|| Measure::of_places("imports up between the floors of server".to_string(), places))
}

/// The index of the floor of a file, by its path below the sources.
fn floor_of(path: &str) -> Option<usize> {
    let fitting = FLOORS.iter().enumerate().flat_map(|(floor, (_, named))| {
        let named = named.iter().filter(|named| is_below(path, named));
        named.map(move |named| (named.len(), floor))
    });
    fitting.max().map(|(_, floor)| floor)
}

fn is_below(path: &str, named: &str) -> bool {
    path.strip_prefix(named).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn floor(path: &str) -> Option<&'static str> {
        floor_of(path).map(|floor| FLOORS[floor].0)
    }

    #[test]
    fn the_longest_path_counts() {
        assert_eq!(floor("process/start.rs"), Some("server"));
        assert_eq!(floor("process/state.rs"), Some("node"));
        assert_eq!(floor("processes/start.rs"), None);
    }

    #[test]
    fn an_import_of_a_higher_floor_counts() {
        let files = ["node.rs", "request/gates.rs", "users/mod.rs"].map(|path| format!("{SOURCES}{path}"));
        let arrow = |from: usize, to: usize, line: usize| ((from, to), (line, Default::default()));
        let arrows = BTreeMap::from([arrow(0, 1, 7), arrow(0, 2, 8), arrow(1, 0, 9)]);
        let graph = Graph { files: files.to_vec(), arrows };
        let measure = measure("server", &graph).expect("that of server");
        let place = "crates/server/src/node.rs:7 names request/gates.rs (node up to engine)";
        assert_eq!(measure.places, [place]);
    }

    #[test]
    fn each_file_has_a_floor_and_each_path_a_file() {
        let mut paths: Vec<&str> = FLOORS.iter().flat_map(|(_, paths)| *paths).copied().collect();
        let file = |path: &&str| File { path: format!("{SOURCES}{path}/x.rs"), text: String::new() };
        let found = |paths: &[&str]| -> Vec<Finding> { check(&paths.iter().map(file).collect::<Vec<_>>()) };
        assert_eq!(found(&paths), []);
        let gone = format!("{SOURCES}{}", paths.pop().expect("a path"));
        assert_eq!(found(&paths), [whole(&gone, "named by tidy/floors.rs, not there")]);
        paths.extend([gone.strip_prefix(SOURCES).expect("ours"), "other"]);
        let other = format!("{SOURCES}other/x.rs");
        assert_eq!(found(&paths), [whole(&other, "on no floor (tidy/floors.rs)")]);
    }
}
