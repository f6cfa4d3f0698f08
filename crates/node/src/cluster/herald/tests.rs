use crate::cluster::herald::*;
use crate::cluster::state::alone;
use isotherm_cluster::topology::replies::Endpoint;
use isotherm_cluster::topology::{Address, Node};
use isotherm_cluster::{NodeId, SlotRanges};

/// Three nodes; this one is the first, and has all slots but those that `owners` names.
fn topology(owners: &[(u16, u16)], migrating: &[u16]) -> Arc<Topology> {
    let address = |port: u16| Address { ip: "10.0.0.1".into(), tcp_port: port, ..Address::default() };
    let id = |at: u8| NodeId::new([at; 20]);
    let mut topology = alone(id(0), id(9), address(7000));
    for at in 1..3 {
        let more =
            Node { id: id(at), address: address(7000 + u16::from(at)).into(), ..topology.nodes[0].clone() };
        topology.nodes.push(more);
    }
    let others: BTreeMap<u16, u16> = owners.iter().copied().collect();
    let owner = |slot: usize| NodeIndex(others.get(&(slot as u16)).copied().unwrap_or(0));
    topology.owners = Arc::new(std::array::from_fn(|slot| Some(owner(slot))));
    let of_all = SlotRanges::by_owner(3, |slot| Some(usize::from(owner(slot.index()).0)));
    topology.nodes.iter_mut().zip(of_all).for_each(|(node, slots)| node.slots = slots);
    topology.migrating = migrating.iter().map(|slot| (Slot::new(*slot), id(1))).collect();
    Arc::new(topology)
}

struct World {
    herald: Herald,
    before: Arc<Topology>,
}

impl World {
    fn new() -> World {
        World { herald: Herald::default(), before: topology(&[], &[]) }
    }

    /// The pushes that follow until others have heard of it too.
    fn pushes(&mut self, after: Arc<Topology>, now_ms: i64) -> Vec<News> {
        let mut news = self.herald.look(&self.before, &after, UnixMs(now_ms));
        news.extend(self.herald.look(&after, &after, UnixMs(now_ms + SETTLES_MS)));
        self.before = after;
        news
    }

    /// Returns the pushes that follow from a topology, without their numbers.
    fn becomes(&mut self, after: Arc<Topology>, now_ms: i64) -> Vec<String> {
        let news = self.pushes(after, now_ms);
        news.iter().map(|news| shown(news, Asker::default())).collect()
    }
}

fn shown(news: &News, asker: Asker) -> String {
    let text = String::from_utf8(news.push(asker)).unwrap();
    let words = text.split("\r\n").filter(|word| !word.is_empty() && !word.starts_with(['$', '>', '*', ':']));
    words.collect::<Vec<_>>().join(" ")
}

#[test]
fn the_first_move_is_said_at_once_and_those_of_a_second_together() {
    let mut world = World::new();
    assert_eq!(world.becomes(topology(&[(1, 1)], &[]), 5000), ["SMIGRATED 10.0.0.1:7000 10.0.0.1:7001 1"]);
    assert!(world.becomes(topology(&[(1, 1), (2, 1)], &[]), 5100).is_empty());
    let more = topology(&[(1, 1), (2, 1), (3, 1), (9, 2)], &[]);
    assert!(world.becomes(Arc::clone(&more), 5900).is_empty());
    assert_eq!(
        world.becomes(Arc::clone(&more), 6000),
        ["SMIGRATED 10.0.0.1:7000 10.0.0.1:7001 2-3 10.0.0.1:7000 10.0.0.1:7002 9"]
    );
    assert!(world.becomes(more, 8000).is_empty());
}

#[test]
fn a_node_without_slots_does_not_wait() {
    let mut world = World::new();
    world.becomes(topology(&[(1, 1)], &[]), 5000);
    let all: Vec<(u16, u16)> = (0..16384).map(|slot| (slot, 1)).collect();
    assert_eq!(world.becomes(topology(&all, &[]), 5200), ["SMIGRATED 10.0.0.1:7000 10.0.0.1:7001 0,2-16383"]);
}

#[test]
fn others_hear_of_a_change_before_clients_do() {
    let mut world = World::new();
    let after = topology(&[(1, 1)], &[]);
    assert!(world.herald.look(&world.before, &after, UnixMs(5000)).is_empty());
    assert!(world.herald.look(&after, &after, UnixMs(5050)).is_empty());
    assert_eq!(world.herald.look(&after, &after, UnixMs(5100)).len(), 1);
}

#[test]
fn a_slot_that_came_back_is_not_said() {
    let mut world = World::new();
    world.becomes(topology(&[(1, 1)], &[]), 5000);
    world.becomes(topology(&[(1, 1), (2, 1)], &[]), 5100);
    world.becomes(topology(&[(1, 1)], &[]), 5200);
    assert!(world.becomes(topology(&[(1, 1)], &[]), 6500).is_empty());
}

#[test]
fn what_others_move_between_them_is_not_said() {
    let mut world = World::new();
    world.before = topology(&[(1, 1)], &[]);
    assert!(world.becomes(topology(&[(1, 2)], &[]), 5000).is_empty());
    // Nor what comes to this node.
    assert!(world.becomes(topology(&[], &[]), 7000).is_empty());
}

#[test]
fn a_second_smigrating_comes_behind_an_smigrated() {
    let mut world = World::new();
    assert_eq!(world.becomes(topology(&[], &[1]), 5000), ["SMIGRATING 1"]);
    assert!(world.becomes(topology(&[], &[1, 2]), 6500).is_empty());
    let gone = topology(&[(1, 1)], &[2]);
    assert_eq!(world.becomes(gone, 6600), ["SMIGRATED 10.0.0.1:7000 10.0.0.1:7001 1", "SMIGRATING 2"]);
}

#[test]
fn who_rests_says_nothing_of_before() {
    let mut world = World::new();
    world.becomes(topology(&[(1, 1)], &[]), 5000);
    world.becomes(topology(&[(1, 1), (2, 1)], &[]), 5100);
    world.herald.rest();
    assert!(world.becomes(topology(&[(1, 1), (2, 1)], &[]), 9000).is_empty());
}

#[test]
fn numbers_grow_whatever_the_clock_does_and_fit_a_double() {
    let mut world = World::new();
    let mut last = 0;
    for (at, now_ms) in
        [1_900_000_000_000, 1_900_000_001_000, 1_800_000_000_000, 1_800_000_005_000].iter().enumerate()
    {
        let moved: Vec<(u16, u16)> = (0..=at as u16).map(|slot| (slot, 1)).collect();
        let after = topology(&moved, &[]);
        let news = world.pushes(after, *now_ms);
        assert_eq!(news.len(), 1);
        assert!(news[0].number > last && news[0].number < 1 << 53);
        last = news[0].number;
    }
}

#[test]
fn addresses_are_those_that_the_client_is_shown() {
    let mut after = Arc::unwrap_or_clone(topology(&[(1, 1)], &[]));
    Arc::make_mut(&mut after.nodes[1].address).hostname = "one.example".into();
    Arc::make_mut(&mut after.nodes[0].address).client_ipv6 = "::1".into();
    let news = World::new().pushes(Arc::new(after), 5000);
    let named = Asker { endpoint: Endpoint::Hostname, ..Asker::default() };
    assert_eq!(shown(&news[0], named), "SMIGRATED ?:7000 one.example:7001 1");
    let six = Asker { is_ipv6: true, ..Asker::default() };
    assert_eq!(shown(&news[0], six), "SMIGRATED [::1]:7000 10.0.0.1:7001 1");
}
