//! A node that starts with the file of its former life.

use super::*;

/// The file that was written last, read as a start reads it.
fn started(bench: &Bench) -> Bench {
    let conf = bench.said.iter().rev().find_map(|output| match output {
        Output::Save { conf, .. } => Some(crate::conf::write(conf)),
        _ => None,
    });
    let conf = crate::conf::read(conf.expect("it is saved").as_bytes(), false).expect("what was written");
    let now = Now { ms: Ms(0), unix_ms: 1_000_000 };
    Bench { machine: Machine::from_conf(settings(), 2, &conf, now), now_ms: 0, said: Vec::new() }
}

/// Commands are routed by the file at once: each slot that is served is on disk.
fn applies_nothing(bench: &mut Bench) {
    bench.step(Input::Tick { offset: 0 });
    bench.now_ms += 5000;
    bench.step(Input::Tick { offset: 0 });
    assert!(!bench.said.iter().any(|output| matches!(output, Output::Apply { .. })));
}

#[test]
fn a_replica_serves_from_its_start() {
    let mut bench = Bench::new();
    let mut peer = other(Flags::PRIMARY);
    peer.config_epoch = 1;
    (0..100).for_each(|slot| _ = peer.slots.insert(Slot::new(slot)));
    bench.meet(&peer);
    bench.send(LINK, &peer, Body::Ping { kind: PingKind::Ping, gossip: Vec::new(), extensions: None });
    bench.obey_all();
    bench.ask(Request::Replicate { node: peer.sender, has_keys: false });
    while bench.apply() {}
    bench.now_ms += 2000;
    bench.step(Input::Tick { offset: 0 });
    let mut bench = started(&bench);
    let view = bench.machine.view(Now { ms: Ms(0), unix_ms: 1_000_000 });
    assert_eq!(view.state, State::Ok);
    assert_eq!(view.me().primary, view.owners[0]);
    applies_nothing(&mut bench);
}

#[test]
fn a_primary_serves_when_others_had_time_to_object() {
    let mut bench = Bench::new();
    bench.ask(Request::AddSlots(range(0, 99)));
    let mut bench = started(&bench);
    let view = bench.machine.view(Now { ms: Ms(0), unix_ms: 1_000_000 });
    assert_eq!((view.state, view.owners[99]), (State::Waiting, Some(view.myself)));
    applies_nothing(&mut bench);
    assert!(bench.machine.is_ok());
}
