//! A node that an administrator takes out, and that still runs.

use super::*;

fn ping(kind: PingKind) -> Body<'static> {
    Body::Ping { kind, gossip: Vec::new(), extensions: None }
}

fn accept(bench: &mut Bench, link: LinkId) {
    bench.step(Input::Accepted { link, peer_ip: "10.0.0.2", local_ip: "10.0.0.1" });
}

/// Lets a node connect, and try both ways to become a member. Returns how many nodes are known then.
fn call(bench: &mut Bench, link: LinkId, peer: &Header) -> usize {
    accept(bench, link);
    bench.send(link, peer, ping(PingKind::Ping));
    bench.send(link, peer, ping(PingKind::Meet));
    bench.machine.known_nodes()
}

/// A node that has forgotten another, which has connected anew.
fn forgotten() -> (Bench, Header, LinkId) {
    let mut bench = Bench::new();
    let peer = other(Flags::PRIMARY);
    bench.meet(&peer);
    bench.ask(Request::Forget(peer.sender));
    bench.obey_all();
    assert_eq!(bench.answer(), Some(Answer::Ok));
    let link = LinkId(7);
    accept(&mut bench, link);
    bench.send(link, &peer, ping(PingKind::Ping));
    assert_eq!(bench.machine.known_nodes(), 1);
    (bench, peer, link)
}

fn wait_an_hour(bench: &mut Bench) {
    bench.now_ms += 3_600_000;
    bench.step(Input::Tick { offset: 0 });
}

#[test]
fn a_node_that_was_forgotten_does_not_come_back_by_itself() {
    let (mut bench, peer, link) = forgotten();
    bench.send(link, &peer, ping(PingKind::Meet));
    assert_eq!(bench.machine.known_nodes(), 1);
    assert_eq!(
        bench.sent(|body| matches!(body, Body::Ping { kind: PingKind::Pong, .. })),
        2,
        "it is answered"
    );
    wait_an_hour(&mut bench);
    assert_eq!(call(&mut bench, LinkId(9), &peer), 1);
}

/// MEET that an administrator has sent to the other node comes over a connection of its own.
#[test]
fn a_node_that_was_forgotten_meets_its_cluster() {
    let (mut bench, peer, link) = forgotten();
    let members = |bench: &Bench| Gossip { id: bench.machine.my_id(), ..about(&peer, "10.0.0.9") };
    let meet = |bench: &mut Bench, link: LinkId, gossip: Vec<Gossip>| {
        accept(bench, link);
        bench.send(link, &peer, Body::Ping { kind: PingKind::Meet, gossip, extensions: None });
        bench.machine.known_nodes()
    };
    // Its connection is gone, so this is the next one, over which it still tries.
    bench.step(Input::Closed { link });
    let gossip = vec![members(&bench)];
    assert_eq!(meet(&mut bench, LinkId(9), gossip.clone()), 1);
    bench.send(LinkId(9), &peer, ping(PingKind::Ping));
    assert_eq!(meet(&mut bench, LinkId(11), gossip.clone()), 2, "beside another");
    let (mut bench, _, link) = forgotten();
    bench.step(Input::Closed { link });
    assert_eq!(meet(&mut bench, LinkId(9), Vec::new()), 2, "it was reset");
}

#[test]
fn a_node_that_was_never_forgotten_is_met_by_its_own_idea() {
    assert_eq!(call(&mut Bench::new(), LinkId(7), &other(Flags::PRIMARY)), 2);
}

#[test]
fn what_was_forgotten_is_still_out_after_a_restart() {
    let (mut bench, peer, _) = forgotten();
    bench.now_ms += 2000;
    bench.step(Input::Tick { offset: 0 });
    let conf = bench.said.iter().rev().find_map(|output| match output {
        Output::Save { conf, .. } => Some(crate::conf::write(conf)),
        _ => None,
    });
    let conf = crate::conf::read(conf.expect("it is saved").as_bytes(), false).expect("what was written");
    assert_eq!(conf.forgotten, [peer.sender]);
    let now = Now { ms: Ms(0), unix_ms: 1_000_000 };
    let mut bench =
        Bench { machine: Machine::from_conf(settings(), 2, &conf, now), now_ms: 0, said: Vec::new() };
    assert_eq!(call(&mut bench, LinkId(7), &peer), 1);
}

/// MEET holds although others still spread that the node was forgotten, until it is forgotten anew.
#[test]
fn a_node_that_is_met_again_is_not_forgotten_by_old_news() {
    let (mut bench, peer, _) = forgotten();
    let mut member = other(Flags::PRIMARY);
    member.sender = NodeId::new([4; 20]);
    let link = LinkId(21);
    bench.meet_over(link, &member);
    bench.machine.settings.no_reconnection = false;
    bench.ask(Request::Meet { ip: "10.0.0.2".to_string(), port: 7001, bus_port: 17001 });
    bench.said.clear();
    bench.step(Input::Tick { offset: 0 });
    let connect = bench.said.iter().find_map(|output| match output {
        Output::Connect { link, .. } => Some(*link),
        _ => None,
    });
    let outbound = connect.expect("it connects to what it is to meet");
    bench.step(Input::Connected { link: outbound, local_ip: "10.0.0.1" });
    bench.send(outbound, &peer, ping(PingKind::Pong));
    assert_eq!(bench.machine.known_nodes(), 3);
    let spread = |bench: &mut Bench, ttl_s: u64| {
        let forgotten = vec![(peer.sender, ttl_s)];
        let extensions = Some(Box::new(crate::wire::Extensions { forgotten, ..Default::default() }));
        let body = Body::Ping { kind: PingKind::Ping, gossip: Vec::new(), extensions };
        bench.send(link, &member, body);
        bench.machine.known_nodes()
    };
    bench.now_ms += 10_000;
    assert_eq!(spread(&mut bench, 50), 3, "of the FORGET before");
    assert_eq!(spread(&mut bench, 60), 2, "of one that came later");
}

#[test]
fn a_member_that_still_knows_it_has_the_last_word() {
    let (mut bench, peer, _) = forgotten();
    let mut member = other(Flags::PRIMARY);
    member.sender = NodeId::new([4; 20]);
    bench.meet_over(LinkId(21), &member);
    let gossip = |bench: &mut Bench| {
        let gossip = vec![about(&peer, "10.0.0.2")];
        bench.send(LinkId(21), &member, Body::Ping { kind: PingKind::Ping, gossip, extensions: None });
        bench.machine.known_nodes()
    };
    assert_eq!(gossip(&mut bench), 2, "within cluster-blacklist-ttl");
    bench.now_ms += 61_000;
    assert_eq!(gossip(&mut bench), 3);
}
