//! Against a model: a map of ids to fields.

use super::*;
use crate::layout::heap::Heap;
use crate::layout::large::Large;
use crate::values::cold::Cold;
use crate::values::nodes::Room;
use isotherm_arena::{Arena, ArenaConfig};
use isotherm_stdx::{Prng, UnixMs};
use std::collections::BTreeMap;

type Fields = Vec<Vec<u8>>;

struct World {
    heap: Heap,
    large: Large,
    cold: Cold,
    stream: Stream,
}

impl World {
    fn new() -> World {
        let arena = Arena::new(ArenaConfig { reserve_bytes: 256 << 20 }).expect("address space");
        World {
            heap: Heap::new(Arc::new(arena), 0),
            large: Large::new(&Arc::new(crate::layout::large::LargeAccount::new(|bytes| bytes))),
            cold: Cold::default(),
            stream: Stream::new(7),
        }
    }

    fn with<R>(&mut self, work: impl FnOnce(&mut Stream, &mut Room<'_>) -> R) -> R {
        let World { heap, large, cold, stream } = self;
        work(stream, &mut Room { heap, large, cold, now: UnixMs(0), epoch: 1 })
    }

    fn reading(&self) -> Reading<'_> {
        Reading { heap: &self.heap, large: &self.large, cold: &self.cold, wants: false }
    }

    fn add(&mut self, id: StreamId, fields: &[Vec<u8>], bytes_max: usize, entries_max: usize) {
        let fields: Vec<&[u8]> = fields.iter().map(Vec::as_slice).collect();
        self.with(|stream, room| stream.add(room, id, &fields, bytes_max, entries_max))
            .expect("there is room");
    }
}

fn owned(entry: StreamEntry<'_>) -> (StreamId, Fields) {
    (entry.id, entry.fields().flat_map(|(name, value)| [name.to_vec(), value.to_vec()]).collect())
}

fn random_fields(prng: &mut Prng) -> Fields {
    const NAMES: [&[&[u8]]; 4] =
        [&[b"sensor", b"value!"], &[b"sensor", b"value!"], &[b"a"], &[b"1", b"2", b"3"]];
    let names = prng.pick(&NAMES);
    let value = |prng: &mut Prng| match prng.below(30) {
        0 => vec![b'x'; prng.below(12_000) as usize],
        1..5 => vec![b'y'; 180 + prng.below(30) as usize],
        5..15 => prng.below(1000).to_string().into_bytes(),
        _ => format!("{:016x}", prng.next_u64()).into_bytes(),
    };
    names.iter().flat_map(|name| [name.to_vec(), value(prng)]).collect()
}

fn check(world: &World, model: &BTreeMap<StreamId, Fields>, prng: &mut Prng) {
    world.stream.check_invariants(world.reading());
    assert_eq!(world.stream.len(), model.len() as u64);
    let ids: Vec<StreamId> = model.keys().copied().chain([StreamId::MIN, StreamId::MAX]).collect();
    for _ in 0..4 {
        let (from, to) = (*prng.pick(&ids), *prng.pick(&ids));
        let wanted: Vec<(StreamId, Fields)> = match from <= to {
            true => model.range(from..=to).map(|(id, fields)| (*id, fields.clone())).collect(),
            false => Vec::new(),
        };
        assert!(world.stream.range(world.reading(), from, to).map(owned).eq(wanted.iter().cloned()));
        assert!(world.stream.range_back(world.reading(), from, to).map(owned).eq(wanted.into_iter().rev()));
    }
}

#[test]
fn a_stream_is_a_map_that_grows_at_its_end() {
    for seed in 0..if cfg!(miri) { 1 } else { 16 } {
        let mut prng = Prng::new(seed);
        let (mut world, mut model) = (World::new(), BTreeMap::<StreamId, Fields>::new());
        let (bytes_max, entries_max) = *prng.pick(&[(4096, 100), (0, 0), (512, 100), (4096, 7)]);
        let mut id = StreamId::MIN;
        for step in 0..if cfg!(miri) { 150 } else { 2500 } {
            match prng.below(if step % 1000 < 700 { 12 } else { 20 }) {
                0..8 => {
                    id = match prng.below(4) {
                        0 => StreamId { ms: id.ms + prng.below(3000), seq: id.seq + 1 + prng.below(3) },
                        1 => StreamId { ms: id.ms + 1 + prng.below(20), seq: 0 },
                        _ => StreamId { seq: id.seq + 1, ..id },
                    };
                    let fields = random_fields(&mut prng);
                    world.add(id, &fields, bytes_max, entries_max);
                    model.insert(id, fields);
                }
                8..15 if !model.is_empty() => {
                    let at = prng.below(model.len() as u64) as usize;
                    let gone = *model.keys().nth(at).expect("it is there");
                    assert_eq!(world.with(|stream, room| stream.delete(room, gone)), Ok(true));
                    assert_eq!(world.with(|stream, room| stream.delete(room, gone)), Ok(false));
                    model.remove(&gone);
                }
                15 if prng.one_in(4) => {
                    let keep = prng.below(model.len() as u64 + 5);
                    let gone = world.with(|stream, room| stream.trim(room, Trim::Len(keep), false, 0));
                    assert_eq!(gone, Ok((model.len() as u64).saturating_sub(keep)));
                    while model.len() as u64 > keep {
                        model.pop_first();
                    }
                }
                16 if prng.one_in(4) && !model.is_empty() => {
                    let at = prng.below(model.len() as u64) as usize;
                    let from = *model.keys().nth(at).expect("it is there");
                    let gone = world.with(|stream, room| stream.trim(room, Trim::From(from), false, 0));
                    assert_eq!(gone, Ok(at as u64));
                    model = model.split_off(&from);
                }
                17 if prng.one_in(4) => {
                    let keep = prng.below(model.len() as u64 + 1);
                    let gone = world.with(|stream, room| stream.trim(room, Trim::Len(keep), true, 0));
                    let gone = gone.expect("whole blocks need no room");
                    assert!(model.len() as u64 - gone >= keep);
                    (0..gone).for_each(|_| _ = model.pop_first());
                }
                _ => {}
            }
            if step % 50 == 0 {
                check(&world, &model, &mut prng);
            }
        }
        while !world.with(|stream, room| stream.free_pieces(room, 3)) {}
        assert_eq!((world.heap.arena().live_bytes(), world.large.live()), (0, 0), "seed {seed}");
    }
}

/// The figure of the design: two fields of 6 B with values of 16 B, some to the millisecond.
#[test]
fn entries_take_little_more_than_their_values() {
    const ENTRIES: u64 = if cfg!(miri) { 500 } else { 100_000 };
    for (per_ms, bytes_max) in [(100, 34.9), (1, 36.3)] {
        let (mut world, mut prng) = (World::new(), Prng::new(1));
        for n in 0..ENTRIES {
            let value = |prng: &mut Prng| format!("{:016x}", prng.next_u64() | 0xa << 60).into_bytes();
            let fields = [b"field1".to_vec(), value(&mut prng), b"field2".to_vec(), value(&mut prng)];
            world.add(
                StreamId { ms: 1_700_000_000_000 + n / per_ms * 7, seq: n % per_ms },
                &fields,
                4096,
                100,
            );
        }
        let per_entry = world.stream.memory_bytes() as f64 / ENTRIES as f64;
        assert!(cfg!(miri) || per_entry < bytes_max, "{per_entry} B for 32 B of values");
    }
}

#[test]
fn pending_entries_have_one_owner() {
    let mut prng = Prng::new(5);
    let names: Vec<Arc<[u8]>> = (0..5u8).map(|n| Arc::from([b'c', n])).collect();
    let mut group = ConsumerGroup::new(StreamId::MIN, None);
    let mut model = BTreeMap::<StreamId, Pending>::new();
    for step in 0..if cfg!(miri) { 300 } else { 8000 } {
        let id = StreamId { ms: prng.below(400), seq: prng.below(2) };
        let consumer = Arc::clone(prng.pick(&names));
        match prng.below(8) {
            0..5 => {
                let pending =
                    Pending { id, delivered_ms: step, deliveries: 1, consumer: Arc::clone(&consumer) };
                if !group.consumers().contains_key(&consumer) {
                    group.add_consumer(&consumer, Consumer::new(0));
                }
                group.deliver(pending.clone());
                model.insert(id, pending);
            }
            5 if prng.one_in(20) => {
                let owned = |_: &StreamId, pending: &mut Pending| pending.consumer != consumer;
                let (before, there) = (model.len(), group.consumers().contains_key(&consumer));
                model.retain(owned);
                let gone = there.then_some((before - model.len()) as u64);
                assert_eq!(group.remove_consumer_with(&consumer, prng.below(20) as usize), gone);
            }
            6 if prng.one_in(3) => group.sweep(2),
            _ => assert_eq!(group.acknowledge(id), model.remove(&id).is_some()),
        }
        if step % 100 == 0 {
            group.check_invariants();
            assert!(group.pending_from(StreamId::MIN).eq(model.values()));
            assert!(group.pending_from(id).eq(model.range(id..).map(|(_, pending)| pending)));
            assert_eq!(group.pending(id), model.get(&id));
            assert_eq!(group.last_pending(), model.values().next_back());
            assert_eq!(group.pending_len(), model.len() as u64);
        }
    }
    for name in names {
        group.remove_consumer_with(&name, 0);
    }
    assert_eq!((group.pending_len(), group.pending_from(StreamId::MIN).next()), (0, None));
    group.sweep(usize::MAX);
    assert_eq!(group.parts(), 0);
    group.check_invariants();
}

#[test]
fn a_consumer_with_much_pending_leaves_in_steps() {
    const PENDING: u64 = if cfg!(miri) { 600 } else { 20_000 };
    let mut group = ConsumerGroup::new(StreamId::MIN, None);
    group.add_consumer(b"ann", Consumer::new(0));
    for ms in 1..=PENDING {
        let pending = Pending {
            id: StreamId { ms, seq: 0 },
            delivered_ms: 0,
            deliveries: 1,
            consumer: Arc::from(*b"ann"),
        };
        group.deliver(pending);
    }
    let mut groups = ConsumerGroups::default();
    groups.insert(b"group", group);
    assert_eq!(groups.edit(b"group").and_then(|mut group| group.remove_consumer(b"ann")), Some(PENDING));
    let group = groups.get(b"group").expect("it is there");
    assert_eq!(group.pending_len(), 0);
    assert!(group.parts() > PENDING / 4, "they leave later");
    groups.check_invariants();
    while groups.sweep(100) {}
    assert_eq!(groups.get(b"group").map(ConsumerGroup::parts), Some(0));
    groups.check_invariants();
}
