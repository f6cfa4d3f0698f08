//! A node that has moved, and announces a host name.

use super::*;
use crate::machine::names::QUESTIONS_MAX;
use crate::wire::Extensions;
use std::net::IpAddr;

const NAME: &str = "b.example";

fn ping(kind: PingKind) -> Body<'static> {
    Body::Ping { kind, gossip: Vec::new(), extensions: None }
}

/// A node that has announced a name, and is not reached any more.
fn lost() -> (Bench, Header) {
    let mut bench = Bench::new();
    let peer = other(Flags::PRIMARY);
    bench.meet(&peer);
    let extensions = Some(Box::new(Extensions { hostname: NAME.into(), ..Extensions::default() }));
    bench.send(LINK, &peer, Body::Ping { kind: PingKind::Ping, gossip: Vec::new(), extensions });
    bench.machine.settings.no_reconnection = false;
    let outbound = bench.machine.nodes.find(&peer.sender).and_then(|node| bench.machine.nodes[node].outbound);
    for link in [LINK, outbound.expect("it was met")] {
        bench.step(Input::Closed { link });
    }
    (bench, peer)
}

/// A tenth of a second passes, and no connection comes to be.
fn wait(bench: &mut Bench, ms: u64) {
    for _ in 0..ms / 100 {
        bench.now_ms += 100;
        bench.step(Input::Tick { offset: 0 });
        let begun = connects(bench);
        bench.said.retain(|output| !matches!(output, Output::Connect { ip, .. } if ip == "10.0.0.2"));
        for (link, _) in begun.into_iter().filter(|(_, ip)| ip == "10.0.0.2") {
            bench.step(Input::Closed { link });
        }
    }
}

fn connects(bench: &Bench) -> Vec<(LinkId, String)> {
    let connect = |output: &Output| match output {
        Output::Connect { link, ip, port: 17001 } => Some((*link, ip.clone())),
        _ => None,
    };
    bench.said.iter().filter_map(connect).collect()
}

fn questions(bench: &Bench) -> usize {
    let is_it = |output: &&Output| matches!(output, Output::Resolve { name, .. } if name == NAME);
    bench.said.iter().filter(is_it).count()
}

fn answer(bench: &mut Bench, peer: &Header, ips: &[&str]) {
    let ips: Vec<IpAddr> = ips.iter().map(|ip| ip.parse().expect("an address")).collect();
    bench.step(Input::Resolved { node: peer.sender, ips: &ips });
}

#[test]
fn a_node_is_found_where_its_name_leads() {
    let (mut bench, peer) = lost();
    wait(&mut bench, 900);
    assert_eq!(questions(&bench), 0, "it may come back");
    wait(&mut bench, 400);
    assert_eq!(questions(&bench), 1);
    bench.said.clear();
    answer(&mut bench, &peer, &["10.0.0.2", "10.0.0.8", "10.0.0.9"]);
    answer(&mut bench, &peer, &["10.0.0.9"]);
    wait(&mut bench, 100);
    let tried = connects(&bench);
    let link = |ip: &str| tried.iter().find(|(_, tried)| tried == ip).map(|(link, _)| *link).expect(ip);
    let (wrong, found) = (link("10.0.0.8"), link("10.0.0.9"));
    assert_eq!(tried.iter().filter(|(_, ip)| ip == "10.0.0.9").count(), 1, "once");
    for link in [wrong, found] {
        bench.step(Input::Connected { link, local_ip: "10.0.0.1" });
    }
    // Whatever else answers is no member by that.
    let mut else_there = other(Flags::PRIMARY);
    else_there.sender = NodeId::new([9; 20]);
    bench.send(wrong, &else_there, ping(PingKind::Pong));
    assert!(bench.machine.nodes.find(&else_there.sender).is_none());
    bench.send(found, &peer, ping(PingKind::Pong));
    assert_eq!(bench.machine.known_nodes(), 2);
    let node = bench.machine.nodes.find(&peer.sender).expect("it is known");
    assert_eq!(bench.machine.nodes[node].address.ip, "10.0.0.9");
    bench.said.clear();
    wait(&mut bench, 100);
    let (link, ip) = connects(&bench).pop().expect("it connects");
    assert_eq!(ip, "10.0.0.9");
    bench.step(Input::Connected { link, local_ip: "10.0.0.1" });
    bench.send(link, &peer, ping(PingKind::Pong));
    assert!(!bench.machine.nodes[node].flags.has(Flags::PFAIL | Flags::FAIL), "it is back");
    bench.said.clear();
    wait(&mut bench, 100);
    assert_eq!(questions(&bench), 0);
}

/// A name is asked for once in a node timeout at most, and not at all while the resolver answers nothing.
#[test]
fn names_that_lead_nowhere_are_asked_for_seldom() {
    let (mut bench, peer) = lost();
    wait(&mut bench, 1300);
    assert_eq!(questions(&bench), 1);
    wait(&mut bench, 1000);
    answer(&mut bench, &peer, &[]);
    let before = questions(&bench);
    assert!((1..=2).contains(&before), "{before}");
    wait(&mut bench, 60_000);
    assert!(questions(&bench) <= QUESTIONS_MAX + 1, "{}", questions(&bench));
    assert_eq!(bench.machine.known_nodes(), 2);
    answer(&mut bench, &peer, &["10.0.0.9"]);
    wait(&mut bench, 100);
    assert!(connects(&bench).iter().any(|(_, ip)| ip == "10.0.0.9"));
    assert_eq!(bench.machine.known_nodes(), 3, "a handshake is under way");
    // Nothing answers there either.
    wait(&mut bench, 1500);
    assert_eq!(bench.machine.known_nodes(), 2);
}
