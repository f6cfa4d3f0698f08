//! `create`: empty nodes become a cluster.

use isotherm_stdx::Prng;

use crate::Fallible;
use crate::cluster::checking::{How, check};
use crate::cluster::choices::Choices;
use crate::cluster::joining::{meet_request, wait};
use crate::cluster::link::{Link, Way, info_field};
use crate::cluster::moving::wait_until_ready;
use crate::cluster::node::split_address;
use crate::cluster::plan::create::{Plan, is_beside_primary, plan, primaries_count};
use crate::cluster::roster::{Cluster, Member, Whom, myself, open_node};
use crate::cluster::say;

/// Below, no majority is left when one primary fails.
const PRIMARIES_MIN: usize = 3;

pub fn create(choices: &Choices, way: &Way) -> Fallible<bool> {
    let mut cluster = Cluster::empty(choices, way);
    for arg in &choices.args {
        let member = empty_node(arg, way)?;
        cluster.members.push(member);
    }
    let (nodes, replicas) = (cluster.members.len(), choices.replicas);
    let primaries = primaries_count(nodes, replicas);
    if primaries < PRIMARIES_MIN {
        say::info(format!(
            "Requested to create a cluster with {primaries} primaries and {replicas} replicas per primary."
        ));
        let question = "The cluster requires at least 3 primary nodes for automatic failover. Are you sure?";
        if primaries == 0 || !(choices.yes || say::confirmed(question)) {
            return Ok(false);
        }
    }
    say::info(format!(">>> Performing hash slots allocation on {nodes} node(s)..."));
    let hosts: Vec<String> = cluster.members.iter().map(|member| member.node.host.clone()).collect();
    let hosts: Vec<&str> = hosts.iter().map(String::as_str).collect();
    let plan = plan(&hosts, replicas, &mut Prng::new(crate::seed()));
    take_plan(&mut cluster, &plan);
    if !(choices.yes || say::confirmed("Can I set the above configuration?")) {
        return Ok(true);
    }
    configure(&mut cluster, &plan)?;
    let place = (cluster.node(0).host.clone(), cluster.node(0).port);
    let mut cluster = Cluster::load(choices, way, &place, Whom::Reachable)?;
    check(&mut cluster, How::default())?;
    Ok(true)
}

/// A node that has no keys and knows no other.
fn empty_node(arg: &[u8], way: &Way) -> Fallible<Member> {
    let text = String::from_utf8_lossy(arg);
    let Some((host, port, _)) = split_address(&text) else {
        eprintln!("Invalid address format: {text}");
        return Err(String::new());
    };
    let (mut link, view) = open_node(&host, port, way)?;
    expect_empty(&mut link, &format!("{host}:{port}"))?;
    Ok(Member::new(myself(&view, &host, port)?, Some(link)))
}

pub fn expect_empty(link: &mut Link, name: &str) -> Fallible {
    let failed = |why: String| format!("[ERR] Node {name} {why}");
    let info = link.text(&["INFO", "keyspace"]).map_err(|trouble| failed(trouble.text().to_string()))?;
    let known = link.text(&["CLUSTER", "INFO"]).map_err(|trouble| failed(trouble.text().to_string()))?;
    if info_field(&info, "db0").is_none() && info_field(&known, "cluster_known_nodes") == Some("1") {
        return Ok(());
    }
    Err(failed(
        "is not empty. Either the node already knows other nodes (check with CLUSTER NODES) or contains some key in \
         database 0."
            .to_string(),
    ))
}

/// Shows what is to be, and notes it in the nodes.
fn take_plan(cluster: &mut Cluster, plan: &Plan) {
    for (number, &(at, first, last)) in plan.primaries.iter().enumerate() {
        say::line(format!("Primary[{number}] -> Slots {first} - {last}"));
        cluster.members[at].node.slots = (first..=last).collect();
    }
    for (number, &(replica, primary)) in plan.replicas.iter().enumerate() {
        if number == plan.asked_for {
            say::line("Adding extra replicas...");
        }
        say::line(format!("Adding replica {} to {}", cluster.name(replica), cluster.name(primary)));
    }
    if plan.score_before > 0 {
        say::info(">>> Trying to optimize replicas allocation for anti-affinity");
        match plan.score {
            0 => say::ok("[OK] Perfect anti-affinity obtained!"),
            score if is_beside_primary(score) => {
                say::warn("[WARNING] Some replicas are in the same host as their primary");
            }
            _ => say::warn("[WARNING] Some replicas of the same primary are in the same host"),
        }
    }
    for (at, primary) in plan.follows.iter().enumerate() {
        let Some(primary) = primary else {
            say::line(cluster.node(at).describe(0));
            continue;
        };
        let (node, primary) = (cluster.node(at), cluster.node(*primary));
        say::line(format!("S: {} {}\n   replicates {}", node.id, node.address(), primary.id));
    }
}

fn configure(cluster: &mut Cluster, plan: &Plan) -> Fallible {
    for &(at, first, last) in &plan.primaries {
        let slots: Vec<String> = (first..=last).map(|slot| slot.to_string()).collect();
        cluster.ask(at, &format!("CLUSTER ADDSLOTS {}", slots.join(" ")))?;
    }
    say::info(">>> Nodes configuration updated");
    say::info(">>> Assign a different config epoch to each node");
    for at in cluster.all() {
        // A node that has one already keeps it.
        let set = cluster.ask(at, &format!("CLUSTER SET-CONFIG-EPOCH {}", at + 1));
        set.map(drop).or_else(|trouble| if trouble.is_refusal() { Ok(()) } else { Err(trouble) })?;
    }
    say::info(">>> Sending CLUSTER MEET messages to join the cluster");
    let meet = meet_request(cluster, 0)?;
    for at in cluster.all().skip(1) {
        cluster.ask(at, &meet)?;
    }
    wait(cluster)?;
    for (at, primary) in plan.follows.iter().enumerate() {
        if let Some(primary) = primary {
            let id = cluster.node(*primary).id.clone();
            cluster.ask(at, &format!("CLUSTER REPLICATE {id}"))?;
        }
    }
    // A script writes as soon as we are done.
    for at in cluster.all() {
        wait_until_ready(cluster, at)?;
    }
    Ok(())
}
