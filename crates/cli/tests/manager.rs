//! `--cluster` on real clusters of Valkey, compared with valkey-cli on equal ones: the same slots, keys, exit
//! codes and lines.
//!
//! Needs `ISOTHERM_PEER_BIN`; a reported skip without. Everything listens on 127.0.0.1.

mod valkeys;

use std::collections::BTreeMap;
use std::io::{BufReader, Read};
use std::path::Path;
use std::process::Child;
use std::time::Duration;

use isotherm_stdx::{Prng, Slot};
use valkeys::{Node, Tool, alone, peers, wait_until};

const KEYS: usize = 1000;

struct Cluster {
    tool: Tool,
    nodes: Vec<Node>,
    keys: Vec<String>,
}

impl Cluster {
    fn start(bin: &Path, tool: Tool, count: usize, more: &[&str]) -> Cluster {
        let nodes = (0..count).map(|_| Node::start(bin, true, more)).collect();
        Cluster { tool, nodes, keys: (0..KEYS).map(|i| format!("key:{i}")).collect() }
    }

    fn create(bin: &Path, tool: Tool, primaries: usize, replicas: usize) -> Cluster {
        let cluster = Cluster::start(bin, tool, primaries * (replicas + 1), &[]);
        let all: Vec<String> = cluster.nodes.iter().map(Node::address).collect();
        let line = format!("create {} --cluster-replicas {replicas} --cluster-yes", all.join(" "));
        let said = cluster.tool.good(&line);
        assert!(said.contains("[OK] All 16384 slots covered."), "{said}");
        cluster.settle();
        cluster
    }

    /// Any tool leaves some news to the bus.
    fn settle(&self) {
        let count = self.nodes.len();
        wait_until("all nodes agree", || {
            self.nodes.iter().all(|node| {
                let info = node.text("CLUSTER INFO");
                info.contains("cluster_state:ok") && info.contains(&format!("cluster_known_nodes:{count}\r"))
            })
        });
    }

    fn first(&self) -> String {
        self.nodes[0].address()
    }

    fn owner(&self, slot: u16) -> &Node {
        self.nodes.iter().find(|node| node.line().node.slots.has(slot)).unwrap()
    }

    fn fill(&self) {
        let owners: Vec<_> = self.nodes.iter().map(|node| node.line().node.slots).collect();
        for key in &self.keys {
            let slot = Slot::of_key(key.as_bytes()).get();
            let owner = owners.iter().position(|slots| slots.has(slot)).unwrap();
            self.nodes[owner].do_it(&format!("SET {key} value:{key}"));
        }
    }

    /// Each slot has one owner in the eyes of all nodes, nothing is open, and each key is where it belongs.
    fn expect_whole(&self) {
        let mut owners = BTreeMap::new();
        for (at, node) in self.nodes.iter().enumerate() {
            let own = node.line().node;
            assert!(own.migrating.is_empty() && own.importing.is_empty(), "{own:?}");
            for slot in own.slots.iter() {
                assert_eq!(owners.insert(slot, at), None, "two nodes own slot {slot}");
            }
        }
        assert_eq!(owners.len(), Slot::COUNT);
        for key in &self.keys {
            let owner = owners[&Slot::of_key(key.as_bytes()).get()];
            assert_eq!(self.nodes[owner].text(&format!("GET {key}")), format!("value:{key}"));
        }
        let sizes = |node: &Node| if node.line().node.is_primary() { node.number("DBSIZE") } else { 0 };
        assert_eq!(self.nodes.iter().map(sizes).sum::<i64>(), self.keys.len() as i64);
    }

    /// Slots of each node, ids and ports as the number of the node.
    fn slots(&self) -> Vec<String> {
        self.nodes.iter().map(|node| node.line().node.slots.in_brackets()).collect()
    }

    fn counts(&self) -> Vec<usize> {
        self.nodes.iter().map(|node| node.line().node.slots.len()).collect()
    }

    /// Names as numbers, nodes in any order, the tools' own names away; lines that only one of the tools has,
    /// too.
    fn neutral(&self, said: &str) -> Vec<String> {
        let mut said = said.to_string();
        for (number, node) in self.nodes.iter().enumerate() {
            let id = node.id();
            said = said.replace(&id, &format!("id{number}")).replace(&id[..8], &format!("id{number}"));
            said = said.replace(&node.address(), &format!("node{number}"));
        }
        let mut lines: Vec<String> = said.lines().map(str::trim).map(str::to_string).collect();
        lines.retain(|line| {
            let only_ours = [">>> Check hosts", "[WARNING] All nodes are on", "[OK] No slot is"];
            let waits = line.chars().all(|c| c == '.') || line.starts_with("Waiting for the cluster");
            !waits && !only_ours.iter().any(|start| line.starts_with(start))
        });
        lines.sort();
        lines
    }
}

/// Runs through these steps with one of the tools; the results of both are compared.
fn life(bin: &Path, tool: Tool) -> Vec<(&'static str, Vec<String>)> {
    let mut seen = Vec::new();
    let mut cluster = Cluster::create(bin, tool.clone(), 3, 1);
    cluster.fill();
    let first = cluster.first();
    let text = |numbers: Vec<usize>| numbers.iter().map(usize::to_string).collect::<Vec<_>>();

    let mut followed: Vec<String> =
        cluster.nodes.iter().filter_map(|node| node.line().node.primary).collect();
    followed.sort();
    followed.dedup();
    assert_eq!(followed.len(), 3, "each primary has a replica");
    seen.push(("slots of create", cluster.slots()));
    seen.push(("info", cluster.neutral(&tool.good(&format!("info {first}")))));
    seen.push(("check", neutral_check(&cluster, &tool)));

    cluster.nodes.push(Node::start(bin, true, &[]));
    let new = cluster.nodes.last().unwrap().address();
    let said = tool.good(&format!("add-node {new} {first}"));
    assert!(said.contains("[OK] New node added correctly."), "{said}");
    cluster.settle();
    let id = cluster.nodes[6].id();
    let moves =
        format!("reshard {first} --cluster-from all --cluster-to {id} --cluster-slots 40 --cluster-yes");
    let said = tool.good(&moves);
    for line in ["Ready to move 40 slots.", "  Resharding plan:", "    Moving slot range 5461-5474 from "] {
        assert!(said.contains(line), "{line}: {said}");
    }
    seen.push(("slots of reshard", cluster.slots()));
    cluster.expect_whole();
    let said = tool.good(&format!("rebalance {first} --cluster-weight {id}=0.02 --cluster-threshold 1"));
    assert!(said.contains(">>> Rebalancing across 4 nodes. Total weight = 3.02"), "{said}");
    seen.push(("slots of rebalance", text(cluster.counts())));
    cluster.expect_whole();
    let said = tool.good(&format!("rebalance {first} --cluster-weight {id}=0.02"));
    assert!(said.contains("*** No rebalancing needed! All nodes are within the 2.00% threshold."), "{said}");

    let said = tool.run(&format!("del-node {first} {id}"), "").badly();
    assert!(said.contains("is not empty! Reshard data away and try again."), "{said}");
    tool.good(&format!("rebalance {first} --cluster-weight {id}=0"));
    delete(&tool, &first, &id);
    cluster.nodes.pop();
    cluster.settle();
    seen.push(("slots of del-node", text(cluster.counts())));
    cluster.expect_whole();

    // A replica to each primary but one, then a second one for that.
    cluster.nodes.push(Node::start(bin, true, &[]));
    let new = cluster.nodes.last().unwrap().address();
    let said = tool.good(&format!("add-node {new} {first} --cluster-replica"));
    assert!(said.contains("Automatically selected primary "), "{said}");
    wait_until("the new node is a replica", || cluster.nodes[6].line().node.is_replica());
    let id = cluster.nodes[6].id();
    delete(&tool, &first, &id);
    cluster.nodes.pop();
    cluster.settle();

    let said = tool.good(&format!("call {first} get key:1 --cluster-only-primaries"));
    assert_eq!(said.matches(": MOVED").count() + said.matches(": value:key:1\n").count(), 3, "{said}");
    let said = tool.good(&format!("call {first} ping --cluster-only-replicas"));
    seen.push((
        "call",
        cluster
            .neutral(&said)
            .into_iter()
            .filter(|line| line.contains("PONG"))
            .collect::<Vec<_>>()
            .len()
            .to_string()
            .lines()
            .map(str::to_string)
            .collect(),
    ));
    seen.push(("set-timeout", cluster.neutral(&tool.good(&format!("set-timeout {first} 4000")))));
    for node in &cluster.nodes {
        let reply = node.ask("CONFIG GET cluster-node-timeout");
        assert!(reply.to_string().contains("4000"), "{reply}");
    }

    import(bin, &cluster);
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("backup-{}", cluster.nodes[0].port));
    std::fs::create_dir_all(&folder).unwrap();
    let said = tool.good(&format!("backup {first} {}", folder.display()));
    assert!(said.contains("[OK] Backup created into: "), "{said}");
    let mut files: Vec<String> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    files.sort();
    let json = std::fs::read_to_string(folder.join("nodes.json")).unwrap();
    // Each tool has moved other slots of equal number.
    let shape = |line: &String| line.starts_with("\"slots_count\"") || line.starts_with("\"port\"");
    seen.push((
        "backup",
        cluster
            .neutral(&json)
            .into_iter()
            .filter(|line| !line.starts_with("\"port\"") && shape(line))
            .collect(),
    ));
    assert_eq!(
        files.iter().filter(|file| file.starts_with("valkey-node-127.0.0.1-")).count(),
        3,
        "{files:?}"
    );
    std::fs::remove_dir_all(&folder).unwrap();
    seen
}

/// valkey-cli fails where the news has spread before it comes to the node.
fn delete(tool: &Tool, first: &str, id: &str) {
    let said = tool.run(&format!("del-node {first} {id}"), "");
    let is_theirs = tool.0.ends_with("valkey-cli");
    if is_theirs && said.text.contains("ERR Unknown node") {
        return;
    }
    let said = said.well();
    assert!(said.contains(&format!("[OK] Node {id} removed from the cluster.")), "{said}");
}

fn neutral_check(cluster: &Cluster, tool: &Tool) -> Vec<String> {
    // Whom a replica follows is drawn at random where all nodes are on one host.
    let said = tool.good(&format!("check {}", cluster.first()));
    let lines = cluster.neutral(&said).into_iter();
    lines.filter(|line| !line.starts_with("replicates ")).collect()
}

fn import(bin: &Path, cluster: &Cluster) {
    let source = Node::start(bin, false, &[]);
    for i in 0..50 {
        source.do_it(&format!("SET other:{i} x"));
    }
    let line = format!("import {} --cluster-from {}", cluster.first(), source.address());
    let said = cluster.tool.good(&format!("{line} --cluster-copy"));
    assert!(said.contains("*** Importing 50 keys from DB 0"), "{said}");
    assert_eq!(said.matches("Migrating other:").count(), 50);
    assert_eq!(source.number("DBSIZE"), 50);
    let said = cluster.tool.run(&line, "").badly();
    assert!(said.contains("BUSYKEY"), "{said}");
    cluster.tool.good(&format!("{line} --cluster-replace"));
    assert_eq!(source.number("DBSIZE"), 0);
    for i in 0..50 {
        let key = format!("other:{i}");
        let owner = cluster.owner(Slot::of_key(key.as_bytes()).get());
        assert_eq!(owner.number(&format!("DEL {key}")), 1);
    }
}

#[test]
fn the_life_of_a_cluster_as_with_valkey_cli() {
    let Some(bin) = peers() else { return };
    let _one = alone();
    let theirs = life(&bin, Tool(bin.join("valkey-cli")));
    let ours = life(&bin, Tool::ours());
    for (theirs, ours) in theirs.iter().zip(&ours) {
        assert_eq!(ours, theirs);
    }
}

/// A tag whose keys are in this slot.
fn tag(slot: u16) -> String {
    (0..).map(|i| format!("{{{i}}}")).find(|tag| Slot::of_key(tag.as_bytes()).get() == slot).unwrap()
}

/// Waits until the tool has shown about `keys` keys that were moved. There is a dot for each key, and
/// addresses have no two dots in a row.
fn wait_for_keys(child: &mut Child, keys: u64) {
    let (mut dots, mut before) = (0, 0);
    for byte in BufReader::new(child.stdout.as_mut().unwrap()).bytes() {
        let byte = byte.unwrap();
        dots += u64::from(byte == b'.' && before == b'.');
        before = byte;
        if dots > keys {
            break;
        }
    }
}

#[test]
fn a_tool_that_is_killed_in_the_middle_leaves_what_fix_repairs() {
    let Some(bin) = peers() else { return };
    let _one = alone();
    let mut cluster = Cluster::create(&bin, Tool::ours(), 3, 1);
    // The first slots of each node leave first: these have most keys.
    let full = [0, 1, 5461, 5462, 10923, 10924].map(tag);
    cluster.keys.extend(full.iter().flat_map(|tag| (0..200).map(move |i| format!("{tag}{i}"))));
    cluster.fill();
    let first = cluster.first();
    let mut prng = Prng::new(17);
    let (mut open, mut halves, mut whole) = (0, 0, 0);
    for round in 0..12 {
        let (from, to) = (cluster.nodes[round % 3].id(), cluster.nodes[(round + 1) % 3].id());
        let line = format!(
            "--cluster reshard {first} --cluster-from {from} --cluster-to {to} --cluster-slots 2000 \
             --cluster-yes --cluster-pipeline 1"
        );
        let mut child = cluster.tool.command(&line).spawn().unwrap();
        match prng.below(3) {
            0 => std::thread::sleep(Duration::from_millis(30 + prng.below(300))),
            _ => wait_for_keys(&mut child, prng.below(300)),
        }
        child.kill().unwrap();
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        // A busy machine may let the tool end before this test is awake again.
        if let Some(code) = output.status.code() {
            assert_eq!(code, 0, "{said}");
            whole += 1;
        }
        let said = cluster.tool.run(&format!("check {first}"), "");
        open += usize::from(said.code == Some(1) && said.text.contains("The following slots are open"));
        // Replies to what was sent last may still be under way, and the bus has its own pace.
        let said = cluster.tool.run(&format!("fix {first}"), "").text;
        halves += usize::from(said.contains("*** Found keys about slot"));
        wait_until("all is well", || cluster.tool.run(&format!("check {first}"), "").code == Some(0));
        cluster.expect_whole();
    }
    assert!(open > 0 && halves > 0, "no cut was in the middle of a slot; {whole} rounds were not cut");
    println!("{open} slots were open, {halves} with keys at both nodes; {whole} rounds were not cut");
    let theirs = Tool(bin.join("valkey-cli")).good(&format!("check {first}"));
    assert!(theirs.contains("[OK] All 16384 slots covered."), "{theirs}");
}

#[test]
fn open_uncovered_and_doubled_slots_are_fixed() {
    let Some(bin) = peers() else { return };
    let _one = alone();
    let cluster = Cluster::create(&bin, Tool::ours(), 3, 0);
    cluster.fill();
    let (tool, first) = (&cluster.tool, cluster.first());
    let key = "key:7";
    let slot = Slot::of_key(key.as_bytes()).get();
    let from = cluster.nodes.iter().position(|node| node.line().node.slots.has(slot)).unwrap();
    let (from, to, third) =
        (&cluster.nodes[from], &cluster.nodes[(from + 1) % 3], &cluster.nodes[(from + 2) % 3]);

    // A key is at both nodes, as after a MIGRATE whose answer was lost, and DEBUG is not allowed.
    to.do_it(&format!("CLUSTER SETSLOT {slot} IMPORTING {}", from.id()));
    from.do_it(&format!("CLUSTER SETSLOT {slot} MIGRATING {}", to.id()));
    from.do_it(&format!("MIGRATE 127.0.0.1 {} {key} 0 5000 COPY", to.port));
    let said = tool.run(&format!("check {first}"), "").badly();
    for line in ["has slots in migrating state", "has slots in importing state"] {
        assert!(said.contains(line), "{said}");
    }
    let said = tool.run(&format!("reshard {first} --cluster-yes"), "").badly();
    assert!(said.contains("*** Please fix your cluster problems before resharding"), "{said}");
    let said = tool.good(&format!("fix {first}"));
    assert!(said.contains(&format!(">>> Fixing open slot {slot}")) && said.contains("Case 1"), "{said}");
    assert!(said.contains("*** Target key exists"), "{said}");
    cluster.expect_whole();
    assert!(to.line().node.slots.has(slot));

    // By hand, at a terminal, and stopped after a slot.
    let answers = format!("20\n{}\nall\nyes\n", to.id());
    let said = tool.run(&format!("reshard {first}"), &answers).well();
    assert!(said.contains("How many slots do you want to move (from 1 to 16384)? "), "{said}");
    cluster.expect_whole();
    let said = tool.run(&format!("reshard {first}"), "0\n").badly();
    assert!(said.contains("*** No answer, operation aborted."), "{said}");
    stop_at_a_terminal(&cluster, to, third);

    // Only the target knows of a move.
    third.do_it(&format!("CLUSTER SETSLOT {slot} IMPORTING {}", to.id()));
    tool.good(&format!("fix {first}"));
    cluster.expect_whole();

    // No node has the slot, one has its keys.
    for node in &cluster.nodes {
        node.ask(&format!("CLUSTER DELSLOTS {slot}"));
    }
    let said = tool.run(&format!("check {first}"), "").badly();
    assert!(said.contains("[ERR] Not all 16384 slots are covered by nodes."), "{said}");
    let said = tool.run(&format!("fix {first}"), "yes\n").well();
    assert!(said.contains(&format!(">>> Covering slot {slot} with {}", to.address())), "{said}");
    wait_until("all is well", || tool.run(&format!("check {first}"), "").code == Some(0));
    cluster.expect_whole();

    // A node has a key of a slot that it does not own.
    third.do_it(&format!("CLUSTER SETSLOT {slot} IMPORTING {}", to.id()));
    to.do_it(&format!("CLUSTER SETSLOT {slot} MIGRATING {}", third.id()));
    to.do_it(&format!("MIGRATE 127.0.0.1 {} {key} 0 5000", third.port));
    [to, third].iter().for_each(|node| node.do_it(&format!("CLUSTER SETSLOT {slot} STABLE")));
    assert!(tool.good(&format!("check {first}")).contains("[OK] All 16384 slots covered."));
    let said = tool.run(&format!("check {first} --cluster-search-multiple-owners"), "").badly();
    assert!(said.contains(&format!("[WARNING] Slot {slot} has 2 owners:")), "{said}");
    let said = tool.good(&format!("fix {first} --cluster-search-multiple-owners"));
    assert!(said.contains("[OK] No multiple owners found."), "{said}");
    cluster.expect_whole();
}

fn stop_at_a_terminal(cluster: &Cluster, to: &Node, from: &Node) {
    let line = format!(
        "--cluster reshard {} --cluster-from {} --cluster-to {} --cluster-slots 4000 --cluster-yes",
        cluster.first(),
        from.id(),
        to.id()
    );
    let child = cluster.tool.command(&line).env("FAKETTY", "1").spawn().unwrap();
    std::thread::sleep(Duration::from_millis(400));
    let id = child.id().to_string();
    assert!(std::process::Command::new("kill").args(["-INT", &id]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("/4000 slots, ") && said.contains("*** Stopped."), "{said}");
    cluster.tool.good(&format!("check {}", cluster.first()));
    cluster.expect_whole();
}

#[test]
fn slots_are_weighed_by_cpu_time_and_moved_atomically() {
    let Some(bin) = peers() else { return };
    let _one = alone();
    let cluster = Cluster::start(&bin, Tool::ours(), 3, &["cluster-slot-stats-enabled yes"]);
    let all: Vec<String> = cluster.nodes.iter().map(Node::address).collect();
    cluster.tool.good(&format!("create {} --cluster-yes", all.join(" ")));
    cluster.settle();
    cluster.fill();
    let (tool, first) = (&cluster.tool, cluster.first());
    // Two keys of the first node, each in a slot of its own, that cost more than all others together.
    let own = cluster.nodes[0].line().node.slots;
    let hot: Vec<u16> = (0..KEYS)
        .map(|i| format!("key:{i}"))
        .filter(|key| own.has(Slot::of_key(key.as_bytes()).get()))
        .take(2)
        .map(|key| {
            for _ in 0..20 {
                cluster.nodes[0].do_it(&format!("EVAL for\ti=1,2e5\tdo\tend 1 {key}"));
            }
            Slot::of_key(key.as_bytes()).get()
        })
        .collect();
    let said = tool.good(&format!("rebalance {first} --by-cpu --cluster-simulate"));
    assert!(said.contains("by CPU time. Total weight = 3.00"), "{said}");
    assert!(said.contains(&format!(" from {first} to ")), "{said}");
    tool.good(&format!("rebalance {first} --by-cpu"));
    let left = cluster.nodes[0].line().node.slots;
    assert!(hot.iter().filter(|&&slot| left.has(slot)).count() <= 1, "{hot:?}");
    cluster.expect_whole();
    let said = tool.run(&format!("rebalance {first} --by-bytes"), "");
    assert!(said.code == Some(0) || said.text.contains("does not report memory-bytes"), "{}", said.text);

    let (from, to) = (cluster.nodes[1].id(), cluster.nodes[2].id());
    let atomic = format!(
        "reshard {first} --cluster-from {from} --cluster-to {to} --cluster-slots 500 --cluster-yes \
         --cluster-use-atomic-slot-migration"
    );
    let before = cluster.counts();
    let said = tool.good(&atomic);
    assert!(said.contains("via atomic slot migration"), "{said}");
    wait_until("the slots are there", || cluster.counts()[2] == before[2] + 500);
    wait_until("all is well", || tool.run(&format!("check {first}"), "").code == Some(0));
    cluster.expect_whole();
}

#[test]
fn what_cannot_be_done_is_said() {
    let tool = Tool::ours();
    let said = |line: &str| tool.run(line, "");
    assert!(said("help").well().starts_with("Cluster Manager Commands:\n"));
    assert!(said("nonsense").badly().contains("Unknown --cluster subcommand"));
    assert!(said("add-node a:1").badly().contains("[ERR] Wrong number of arguments"));
    assert!(said("check nowhere").badly().contains("[ERR] Invalid arguments: you need to pass either"));
    assert!(said("create nowhere").badly().contains("Invalid address format: nowhere"));
    assert!(said("set-timeout a:1 99").badly().contains("is a bad idea"));
    assert!(said("import a:1").badly().contains("Option '--cluster-from' is required"));
    assert!(said("info 127.0.0.1:1").badly().contains("Could not connect to Isotherm at 127.0.0.1:1"));
    let Some(bin) = peers() else { return };
    let plain = Node::start(&bin, false, &[]);
    let text = said(&format!("check {}", plain.address())).badly();
    assert!(text.contains("is not configured as a cluster node."), "{text}");
    let lone = Node::start(&bin, true, &[]);
    let text = said(&format!("create {} {}", lone.address(), plain.address())).badly();
    assert!(text.contains("is not configured as a cluster node."), "{text}");
    let text = tool.run(&format!("create {}", lone.address()), "no\n").badly();
    assert!(text.contains("Requested to create a cluster with 1 primaries"), "{text}");
    let text = said(&format!("check {}", lone.address())).badly();
    assert!(text.contains("[ERR] Not all 16384 slots are covered by nodes."), "{text}");
}
