//! Slots that another node takes: what stops at once, in which order, and what is still claimed meanwhile.

use super::*;

/// A primary with slots, as the other one saw it before it took them.
fn primary(slots: u16) -> (Bench, Header) {
    let mut bench = Bench::new();
    bench.machine.settings.allows_replica_migration = true;
    bench.ask(Request::AddSlots(range(0, slots - 1)));
    bench.obey_all();
    bench.answer();
    let mut peer = other(Flags::PRIMARY);
    bench.meet(&peer);
    peer.config_epoch = 9;
    peer.current_epoch = 9;
    (bench, peer)
}

fn claim(bench: &mut Bench, peer: &mut Header, slots: impl IntoIterator<Item = u16>) {
    slots.into_iter().for_each(|slot| {
        peer.slots.insert(Slot::new(slot));
    });
    bench.send(LINK, peer, Body::Ping { kind: PingKind::Ping, gossip: Vec::new(), extensions: None });
}

/// Counts the slots that are lost by what is to be applied before `Follow`.
fn lost_before_follow(bench: &Bench) -> usize {
    let follow = bench.said.iter().position(|output| matches!(output, Output::Follow { .. }));
    let before = &bench.said[..follow.expect("it follows the one that has its slots")];
    let lost = |output: &Output| match output {
        Output::Apply { others, .. } => others.len(),
        _ => 0,
    };
    before.iter().map(lost).sum()
}

/// A replica refuses writes with READONLY, which libraries raise; MOVED sends them on.
#[test]
fn the_words_say_so_before_the_role_does() {
    // All that it has, and some that were no one's: those are gained, and wait for the file.
    let (mut bench, mut peer) = primary(100);
    claim(&mut bench, &mut peer, (0..100).chain(200..210));
    assert_eq!(lost_before_follow(&bench), 100, "at rest");
    // A file that is written for ever.
    let (mut bench, mut peer) = primary(100);
    bench.ask(Request::SaveConfig);
    claim(&mut bench, &mut peer, 0..100);
    assert_eq!(lost_before_follow(&bench), 100, "beside a save");
    // Words that are being written.
    let (mut bench, mut peer) = primary(100);
    bench.ask(Request::DelSlots(range(7, 7)));
    claim(&mut bench, &mut peer, (0..7).chain(8..100));
    assert_eq!(lost_before_follow(&bench), 100, "beside what is applied");
}

/// A node that gives up the move of a slot to this one, and takes another from it, in one message.
#[test]
fn a_commit_that_gains_and_loses_slots_stops_at_once_and_gains_when_it_is_saved() {
    let (mut bench, mut peer) = primary(100);
    claim(&mut bench, &mut peer, [200]);
    let (node, slot) = (peer.sender, Slot::new(200));
    bench.ask(Request::SetSlot { slot, action: SlotAction::Importing(node), is_replicated: false });
    bench.obey_all();
    bench.said.clear();
    peer.slots.remove(slot);
    claim(&mut bench, &mut peer, [5]);
    let applied = |bench: &Bench| {
        let applied = bench.said.iter().filter_map(|output| match output {
            Output::Apply { gained, others, .. } => Some((gained.clone(), others.clone())),
            _ => None,
        });
        applied.collect::<Vec<_>>()
    };
    assert_eq!(applied(&bench), [(vec![], vec![Slot::new(5)])], "the file is not written");
    assert!(bench.apply() && bench.save());
    assert_eq!(applied(&bench), [(vec![slot], vec![])]);
    bench.obey_all();
    assert_eq!(bench.claims(), 100);
}

/// An answer that waits until its request stands waits for words that were sent ahead, too.
#[test]
fn an_answer_comes_behind_a_loss_that_was_applied_ahead() {
    let (mut bench, _) = primary(100);
    bench.ask(Request::BumpEpoch);
    bench.ask(Request::DelSlots(range(10, 19)));
    assert!(bench.save());
    assert_eq!(bench.answer(), Some(Answer::Status("BUMPED 1".into())));
    assert_eq!(bench.answer(), None, "commands run on these slots");
    bench.obey_all();
    assert_eq!(bench.answer(), Some(Answer::Ok));
}

/// An epoch or a slot that a crash takes back would undo what others have decided.
#[test]
fn an_update_about_this_node_claims_what_is_on_disk() {
    let (mut bench, mut peer) = primary(100);
    bench.ask(Request::BumpEpoch);
    bench.ask(Request::AddSlots(range(200, 209)));
    bench.ask(Request::DelSlots(range(10, 19)));
    // It claims one of these, by an epoch that is older than the one in memory.
    (peer.config_epoch, peer.current_epoch) = (0, 0);
    claim(&mut bench, &mut peer, [5]);
    let me = bench.machine.my_id();
    let is_fine = |body: &Body<'_>| match body {
        Body::Update { node, config_epoch, slots } => {
            *node == me && *config_epoch == 0 && slots.len() == 90 && !slots.has(Slot::new(200))
        }
        _ => false,
    };
    assert_eq!(bench.sent(is_fine), 1);
    assert_eq!(bench.sent(|body| matches!(body, Body::Update { .. })), 1);
    bench.obey_all();
    bench.said.clear();
    claim(&mut bench, &mut peer, [6]);
    let is_whole = |body: &Body<'_>| match body {
        Body::Update { config_epoch, slots, .. } => *config_epoch == 1 && slots.len() == 100,
        _ => false,
    };
    assert_eq!(bench.sent(is_whole), 1);
}

/// Counts what gains a slot among what is to be applied.
fn gains(bench: &Bench) -> usize {
    let gains = |output: &&Output| matches!(output, Output::Apply { gained, .. } if !gained.is_empty());
    bench.said.iter().filter(gains).count()
}

fn assign(bench: &mut Bench, slot: u16) {
    let action = SlotAction::Node { node: bench.machine.my_id(), holds_keys: false };
    bench.ask(Request::SetSlot { slot: Slot::new(slot), action, is_replicated: false });
}

/// Keys from before would be served as what the slot has now.
#[test]
fn a_slot_that_comes_back_waits_for_the_deletion_of_its_old_keys() {
    let (mut bench, mut peer) = primary(100);
    claim(&mut bench, &mut peer, [5]);
    while bench.save() | bench.apply() {}
    assign(&mut bench, 5);
    while bench.save() | bench.apply() {}
    assert_eq!((gains(&bench), bench.answer()), (0, None), "it has old keys");
    // Others are lost meanwhile, and none of that waits.
    peer.slots.remove(Slot::new(5));
    claim(&mut bench, &mut peer, [6]);
    assert!(bench.apply(), "a loss is applied at once");
    assert!(bench.delete());
    assert_eq!(gains(&bench), 1);
    bench.obey_all();
    assert_eq!((bench.answer(), bench.claims()), (Some(Answer::Ok), 99));
    // Lost and gained while a file is written for ever: one commit has both.
    bench.ask(Request::BumpEpoch);
    peer.config_epoch += 10;
    claim(&mut bench, &mut peer, [7]);
    assign(&mut bench, 7);
    bench.said.retain(|output| !matches!(output, Output::DeleteKeys(_)));
    while bench.save() | bench.apply() {}
    assert_eq!(gains(&bench), 0);
    assert!(bench.delete() && gains(&bench) == 1);
}

/// A node that is cut off stops, even if a slot that it gains waits for a file that is written for ever.
#[test]
fn that_the_cluster_is_down_waits_for_no_file() {
    let (mut bench, _) = primary(100);
    bench.now_ms += 5000;
    bench.step(Input::Tick { offset: 0 });
    assert_eq!(bench.machine.state(), State::Ok);
    bench.ask(Request::AddSlots(range(200, 209)));
    bench.said.clear();
    let settings = Settings { requires_full_coverage: true, ..bench.machine.settings.clone() };
    bench.step(Input::Settings(Box::new(settings)));
    assert_ne!(bench.machine.state(), State::Ok);
    let is_down =
        |output: &Output| matches!(output, Output::Publish(topology) if topology.state != State::Ok);
    assert!(bench.said.iter().any(is_down));
}
