//! `call` and `set-timeout`: the same to every node.

use super::place;
use crate::Fallible;
use crate::cluster::choices::Choices;
use crate::cluster::link::Way;
use crate::cluster::roster::{Cluster, Whom};
use crate::cluster::say;
use crate::render::{Format, Style};
use crate::terminal::put;
use crate::text::leading_i64;

const NODE_TIMEOUT_MS_MIN: i64 = 100;

pub fn call(choices: &Choices, way: &Way) -> Fallible<bool> {
    let mut cluster = Cluster::load(choices, way, &place(&choices.args[..1])?, Whom::Reachable)?;
    let command = &choices.args[1..];
    let shown: Vec<String> = command.iter().map(|word| String::from_utf8_lossy(word).into_owned()).collect();
    say::info(format!(">>> Calling {}", shown.join(" ")));
    let style = Style::new(Format::Raw);
    for at in cluster.all() {
        let is_replica = cluster.node(at).primary.is_some();
        if (choices.only_primaries && is_replica) || (choices.only_replicas && !is_replica) {
            continue;
        }
        let mut out = format!("{}: ", cluster.name(at)).into_bytes();
        match cluster.link(at)?.call(command) {
            Ok(reply) => out.extend(style.verbatim(&reply)),
            Err(_) => out.extend(b"Failed!"),
        }
        out.push(b'\n');
        put(out);
    }
    Ok(true)
}

pub fn set_timeout(choices: &Choices, way: &Way) -> Fallible<bool> {
    let known = place(&choices.args[..1])?;
    let timeout_ms = leading_i64(&String::from_utf8_lossy(&choices.args[1]));
    if timeout_ms < NODE_TIMEOUT_MS_MIN {
        eprintln!("Setting a node timeout of less than {NODE_TIMEOUT_MS_MIN} milliseconds is a bad idea.");
        return Ok(false);
    }
    let mut cluster = Cluster::load(choices, way, &known, Whom::Reachable)?;
    say::info(">>> Reconfiguring node timeout in every cluster node...");
    let (mut done, mut failed) = (0, 0);
    for at in cluster.all() {
        let set = cluster
            .ask(at, &format!("CONFIG SET cluster-node-timeout {timeout_ms}"))
            .and_then(|_| cluster.ask(at, "CONFIG REWRITE"));
        match set {
            Ok(_) => {
                say::warn(format!("*** New timeout set for {}", cluster.name(at)));
                done += 1;
            }
            Err(trouble) => {
                say::err(format!("ERR setting node-timeout for {}: {}", cluster.name(at), trouble.text()));
                failed += 1;
            }
        }
    }
    say::info(format!(">>> New node timeout set. {done} OK, {failed} ERR."));
    Ok(true)
}
