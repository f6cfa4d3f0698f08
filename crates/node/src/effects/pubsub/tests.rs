use super::*;

impl PubSub {
    /// The counts are those of the tables, and no name without a subscriber is kept.
    fn check_invariants(&self) {
        let mut counts = [0; Kind::COUNT];
        for shard in &self.shards {
            let shard = lock(shard);
            counts[Kind::Channel as usize] += shard.channels.all.len();
            counts[Kind::ShardChannel as usize] += shard.shard_channels.all.len();
            let mut all = shard.channels.all.values().chain(shard.shard_channels.all.values());
            assert!(all.all(|subscribers| subscribers.total() > 0));
        }
        counts[Kind::Pattern as usize] = self.patterns.read().unwrap().all.len();
        assert_eq!(Kind::ALL.map(|kind| self.count(kind)), counts);
    }
}

#[test]
fn names_are_counted_by_kind() {
    let pubsub = PubSub::default();
    let (name, first) = pubsub.subscribe(Kind::Channel, b"news", 0);
    let (again, second) = pubsub.subscribe(Kind::Channel, b"news", 1);
    assert!(Arc::ptr_eq(&name, &again) && second > first);
    pubsub.subscribe(Kind::ShardChannel, b"news", 1);
    pubsub.subscribe(Kind::Pattern, b"n*", 1);
    assert_eq!(Kind::ALL.map(|kind| pubsub.count(kind)), [1, 1, 1]);
    pubsub.check_invariants();
    assert_eq!(pubsub.subscribers(Kind::Channel, b"news"), 2);
    assert_eq!(pubsub.channels(Kind::Channel, Some(b"n?ws")), [Name::from(&b"news"[..])]);
    assert!(pubsub.channels(Kind::Channel, Some(b"x*")).is_empty());
    pubsub.unsubscribe(Kind::Channel, b"news", 0);
    assert_eq!(pubsub.subscribers(Kind::Channel, b"news"), 1);
    pubsub.unsubscribe(Kind::Channel, b"news", 1);
    assert_eq!(Kind::ALL.map(|kind| pubsub.count(kind)), [0, 1, 1]);
}

/// A session that subscribes after a message was published does not get it, even if it is delivered later.
#[test]
fn seats_hear_what_is_not_older() {
    let pubsub = PubSub::default();
    let mut audience = Audience::default();
    let mut sit = |token, kind, name: &[u8]| {
        let (name, since) = pubsub.subscribe(kind, name, 0);
        audience.add(kind, name, token, since);
        since
    };
    let channel_moment = sit(1, Kind::Channel, b"c");
    let pattern_moment = sit(2, Kind::Pattern, b"*");
    sit(3, Kind::Channel, b"c");
    sit(4, Kind::Pattern, b"*");
    let message = Message {
        sharded: false,
        channel: b"c"[..].into(),
        payload: b"m"[..].into(),
        channel_moment,
        pattern_moment,
    };
    let subscribers = |kind, name: &[u8]| audience.subscribers(kind, name, &message).collect::<Vec<_>>();
    assert_eq!(subscribers(Kind::Channel, b"c"), [1]);
    assert_eq!(subscribers(Kind::Pattern, b"*"), [2]);
    assert!(subscribers(Kind::Channel, b"d").is_empty());
}

#[test]
fn many_names_leave_nothing() {
    let pubsub = PubSub::default();
    let name = |at: u32| format!("channel:{at}").into_bytes();
    (0..100_000).for_each(|at| drop(pubsub.subscribe(Kind::Channel, &name(at), 0)));
    assert_eq!(pubsub.count(Kind::Channel), 100_000);
    (0..100_000).for_each(|at| pubsub.unsubscribe(Kind::Channel, &name(at), 0));
    assert_eq!(pubsub.count(Kind::Channel), 0);
    pubsub.check_invariants();
    let capacity: usize = pubsub.shards.iter().map(|shard| lock(shard).channels.all.capacity()).sum();
    assert!(capacity <= SHARDS * 128, "{capacity}");
}
