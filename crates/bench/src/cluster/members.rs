//! A cluster of thirty nodes that are there, all on this machine: how long its making takes, and what a node
//! costs while nothing happens.

use std::time::{Duration, Instant};

use isotherm_probe::info_field;
use isotherm_resp::reply_parse::Value;

use super::conf::SLOTS;
use crate::durability::{Best, Figures, seconds};
use crate::options::Options;
use crate::process::{SIDES, Server, Setting};
use crate::report::Table;
use crate::{Fallible, progress};

const MEMBERS: usize = 30;
const QUIET_S: u64 = 60;
/// Time limit for making the cluster, which takes a few seconds.
const PATIENCE: Duration = Duration::from_secs(120);

pub fn measure(options: &Options, table: &mut Table) -> Fallible {
    let (mut made, mut quiet) = (Figures::default(), Figures::default());
    for round in 1..=options.rounds {
        for side in SIDES {
            let setting = Setting { workers: 1, ..Setting::default() }.with("cluster-enabled", "yes");
            let members: Vec<Server> =
                (0..MEMBERS).map(|_| Server::start(side, &setting, options)).collect::<Fallible<_>>()?;
            let made_s = make(&members)?;
            // The after-effects of the creation are over.
            std::thread::sleep(Duration::from_secs(5));
            let (before, start) = (cpu_ns(&members)?, Instant::now());
            std::thread::sleep(Duration::from_secs(options.scaled(QUIET_S).max(5)));
            let ms = (cpu_ns(&members)? - before) as f64 / 1e6;
            let each = ms / start.elapsed().as_secs_f64() / MEMBERS as f64;
            progress(&format!(
                "members round {round} {}: made in {made_s:.2} s, {each:.3} ms/s",
                side.name()
            ));
            made.add(side, made_s);
            quiet.add(side, each);
        }
    }
    made.row(table, "30 nodes: from the first MEET to all ok", Best::Median, seconds, "<= 1 x");
    let show = |ms: f64| format!("{ms:.2} ms/s");
    quiet.row(
        table,
        "30 nodes: CPU of all threads of one in a quiet minute",
        Best::Median,
        show,
        "<= 1.6 ms/s",
    );
    Ok(())
}

/// Makes a cluster as `--cluster create` does, and waits until all nodes report that they know all others and
/// are ok. Returns the seconds since the first MEET.
fn make(members: &[Server]) -> Fallible<f64> {
    for (at, member) in members.iter().enumerate() {
        let mut client = member.client()?;
        let (from, to) = (at * SLOTS / MEMBERS, (at + 1) * SLOTS / MEMBERS - 1);
        client.call(&["CLUSTER", "ADDSLOTSRANGE", &from.to_string(), &to.to_string()])?;
        client.call(&["CLUSTER", "SET-CONFIG-EPOCH", &(at + 1).to_string()])?;
    }
    let start = Instant::now();
    let mut first = members[0].client()?;
    for member in &members[1..] {
        first.call(&["CLUSTER", "MEET", "127.0.0.1", &member.port.to_string()])?;
    }
    for member in members {
        let mut client = member.client()?;
        while !is_complete(&client.call(&["CLUSTER", "INFO"])?) {
            if start.elapsed() > PATIENCE {
                return Err(format!(
                    "{} nodes have not found each other within {PATIENCE:?}",
                    member.side.name()
                ));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    Ok(start.elapsed().as_secs_f64())
}

fn is_complete(info: &Value) -> bool {
    let Value::Bulk(text) = info else { return false };
    info_field(text, "cluster_state").is_some_and(|state| state == "ok")
        && info_field(text, "cluster_size").is_some_and(|size| size == MEMBERS.to_string())
}

fn cpu_ns(members: &[Server]) -> Fallible<u64> {
    members.iter().map(|member| member.cpu_ns()).sum()
}
