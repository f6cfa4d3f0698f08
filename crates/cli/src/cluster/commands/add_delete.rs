//! `add-node` and `del-node`.

use isotherm_resp::reply_parse::Value;

use super::create::expect_empty;
use super::place;
use crate::Fallible;
use crate::cluster::checking::{How, check};
use crate::cluster::choices::Choices;
use crate::cluster::joining::{meet_request, wait};
use crate::cluster::link::{Link, Trouble, Way};
use crate::cluster::roster::{Cluster, Member, Whom, myself, open_node};
use crate::cluster::say;

pub fn add(choices: &Choices, way: &Way) -> Fallible<bool> {
    let known = place(&choices.args[1..])?;
    let (host, port) = place(&choices.args[..1])?;
    let name = format!("{host}:{port}");
    say::info(format!(">>> Adding node {name} to cluster {}:{}", known.0, known.1));
    let mut cluster = Cluster::load(choices, way, &known, Whom::Reachable)?;
    if !check(&mut cluster, How::default())? {
        return Ok(false);
    }
    let primary = if choices.as_replica { Some(primary_for(&cluster, choices)?) } else { None };
    let (mut link, view) = open_node(&host, port, way).inspect_err(|why| {
        if why.is_empty() {
            say::err(format!("[ERR] Sorry, can't connect to node {name}"));
        }
    })?;
    expect_empty(&mut link, &name)?;
    if primary.is_none() {
        copy_functions(&mut cluster, &mut link, &name)?;
    }
    say::info(format!(">>> Send CLUSTER MEET to node {name} to make it join the cluster."));
    let meet = meet_request(&cluster, 0)?;
    cluster.members.push(Member::new(myself(&view, &host, port)?, Some(link)));
    let new = cluster.members.len() - 1;
    cluster.ask(new, &meet)?;
    wait(&mut cluster)?;
    if let Some(primary) = primary {
        say::info(format!(">>> Configure node as replica of {}.", cluster.name(primary)));
        let id = cluster.node(primary).id.clone();
        cluster.ask(new, &format!("CLUSTER REPLICATE {id}"))?;
    }
    say::ok("[OK] New node added correctly.");
    Ok(true)
}

fn primary_for(cluster: &Cluster, choices: &Choices) -> Fallible<usize> {
    if let Some(id) = &choices.primary_id {
        return cluster.find(id).ok_or_else(|| format!("[ERR] No such primary ID {id}"));
    }
    let found = cluster.least_followed(None);
    let primary = found.ok_or_else(|| "[ERR] Could not find a reachable primary node.".to_string())?;
    say::line(format!("Automatically selected primary {}", cluster.name(primary)));
    Ok(primary)
}

/// A replica gets them from its primary.
fn copy_functions(cluster: &mut Cluster, new: &mut Link, name: &str) -> Fallible {
    say::info(">>> Getting functions from cluster");
    let dump = match cluster.ask(0, "FUNCTION DUMP") {
        Ok(Value::Bulk(dump)) => dump,
        Ok(other) => return Err(cluster.link(0)?.odd(&other).into()),
        Err(trouble) => {
            say::info(format!(
                ">>> Failed retrieving Functions from the cluster, skip this step as Isotherm version do not support \
                 function command (error = '{}')",
                trouble.text()
            ));
            return Ok(());
        }
    };
    say::info(format!(">>> Send FUNCTION LIST to {name} to verify there is no functions in it"));
    let failed = |what: &str| {
        let what = what.to_string();
        move |trouble: Trouble| format!(">>> {what} (error = '{}')", trouble.text())
    };
    let list = new.ask(&["FUNCTION", "LIST"]).map_err(failed("Failed on FUNCTION LIST"))?;
    if matches!(&list, Value::Array(libraries) if !libraries.is_empty()) {
        return Err(">>> New node already contains functions and can not be added to the cluster. Use FUNCTION FLUSH \
                    and try again."
            .to_string());
    }
    say::info(format!(">>> Send FUNCTION RESTORE to {name}"));
    let restore: [&[u8]; 3] = [b"FUNCTION", b"RESTORE", &dump];
    new.ask(&restore).map_err(failed("Failed loading functions to the new node"))?;
    Ok(())
}

pub fn delete(choices: &Choices, way: &Way) -> Fallible<bool> {
    let known = place(&choices.args[..1])?;
    let id = String::from_utf8_lossy(&choices.args[1]).into_owned();
    say::info(format!(">>> Removing node {id} from cluster {}:{}", known.0, known.1));
    let mut cluster = Cluster::load(choices, way, &known, Whom::All)?;
    let gone = cluster.find(&id).ok_or_else(|| format!("[ERR] No such node ID {id}"))?;
    if !cluster.node(gone).slots.is_empty() {
        let name = cluster.name(gone);
        return Err(format!("[ERR] Node {name} is not empty! Reshard data away and try again."));
    }
    say::info(">>> Sending CLUSTER FORGET messages to the cluster...");
    for at in cluster.all().filter(|&at| at != gone) {
        if cluster.members[at].link.is_none() {
            say::warn(format!(
                ">>> Skipping unreachable node {}. It may need manual reconfiguration when it comes back online.",
                cluster.name(at)
            ));
            continue;
        }
        if cluster.node(at).primary.as_deref().is_some_and(|primary| primary.eq_ignore_ascii_case(&id)) {
            follow_another(&mut cluster, at, gone)?;
        }
        // COMPAT(tools): isotherm-cli --cluster del-node goes on where a node has forgotten the other
        // already; valkey-cli ends with an error. Why: CLUSTER FORGET spreads by the bus, and is sometimes
        // faster than the tool.
        match cluster.ask(at, &format!("CLUSTER FORGET {id}")) {
            Err(trouble) if trouble.text().starts_with("ERR Unknown node") => {}
            outcome => drop(outcome?),
        }
    }
    if cluster.members[gone].link.is_some() {
        say::info(">>> Sending CLUSTER RESET SOFT to the deleted node.");
        cluster.ask(gone, "CLUSTER RESET SOFT")?;
    } else {
        say::warn(format!(
            ">>> WARNING: Could not connect to node {}, unable to send CLUSTER RESET.",
            cluster.name(gone)
        ));
    }
    say::ok(format!("[OK] Node {id} removed from the cluster."));
    Ok(true)
}

/// A replica of the node that goes gets another primary.
fn follow_another(cluster: &mut Cluster, replica: usize, gone: usize) -> Fallible {
    let Some(primary) = cluster.least_followed(Some(gone)) else {
        let name = cluster.name(replica);
        return Err(format!("[ERR] Could not find a reachable primary node to reassign replica {name}."));
    };
    say::info(format!(">>> {} as replica of {}", cluster.name(replica), cluster.name(primary)));
    let id = cluster.node(primary).id.clone();
    cluster.ask(replica, &format!("CLUSTER REPLICATE {id}"))?;
    cluster.members[primary].node.replicas += 1;
    Ok(())
}
