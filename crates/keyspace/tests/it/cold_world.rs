//! A keyspace whose large collections leave memory node by node, as a server does it: commands that meet a
//! node that is away run again when it was read; nodes leave, move and come back between them.

use crate::cold::Keeper;
use crate::support::*;
use isotherm_keyspace::*;
use isotherm_stdx::Prng;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

pub struct ColdWorld {
    pub keyspace: &'static Keyspace,
    pub keeper: Arc<Keeper>,
    pub prng: Prng,
    hand: NodeHand,
    /// Nodes that came back, the place of each record, and its content.
    given: Vec<(NodeAt, ColdRef, Vec<u8>)>,
    pub now: i64,
    pub counts: Counts,
}

#[derive(Default, Debug)]
pub struct Counts {
    pub chilled: u64,
    pub clean: u64,
    pub moved: u64,
    pub moved_clean: u64,
    pub runs_again: u64,
    pub changes_again: u64,
    /// Changes that waited for the disk themselves.
    pub waits: u64,
}

impl Counts {
    /// Returns the counts of a world in which no change waits.
    pub fn all(&self) -> [u64; 6] {
        let Counts { chilled, clean, moved, moved_clean, runs_again, changes_again, waits } = *self;
        assert_eq!(waits, 0, "changes want what they need before");
        [chilled, clean, moved, moved_clean, runs_again, changes_again]
    }
}

/// Number of keys that were written.
struct Written(u64);

impl EffectSink for Written {
    fn mask(&self) -> EffectMask {
        EffectMask::NONE
    }
    fn effect(&mut self, effect: Effect<'_>) {
        self.0 += u64::from(matches!(effect, Effect::Written { .. }));
    }
}

/// Nodes that may leave memory: those that are written out first, and those whose records are still there.
pub struct Shown {
    written: Vec<(NodeAt, Vec<u8>)>,
    clean: Vec<NodeAt>,
}

impl ColdWorld {
    pub fn new(seed: u64) -> ColdWorld {
        let keyspace: &'static Keyspace = Box::leak(Box::new(keyspace(2, 1, 1 << 30, seed as u8)));
        let keeper: Arc<Keeper> = Arc::default();
        let shared: Arc<dyn ColdKeeper> = keeper.clone();
        keyspace.keep_cold(&shared);
        ColdWorld {
            keyspace,
            keeper,
            prng: Prng::new(seed),
            hand: NodeHand::default(),
            given: Vec::new(),
            now: START,
            counts: Counts::default(),
        }
    }

    /// Reads the nodes that a command has met. Returns how many.
    fn give_missing(&mut self, held: &mut Held<'_>) -> u64 {
        let missing = held.take_missing();
        for missed in &missing {
            assert!(missed.is_readable);
            self.give(held, missed.node.expect("no value is away as a whole"), true);
        }
        missing.len() as u64
    }

    fn give(&mut self, held: &mut Held<'_>, node: NodeAt, keeps: bool) {
        let Some(from) = HeldNode::of(held, node).reference() else { return };
        let payload = self.keeper.read(from);
        HeldNode::of(held, node).give(Some(&payload), from, keeps, UnixMs(self.now));
        self.given.push((node, from, payload));
    }

    /// Reads what a change needs of a key, before the change. Returns how often there was something to read:
    /// what is read may show what else is needed.
    pub fn give_before(&mut self, name: &[u8], need: NodeNeed<'_>) -> u64 {
        let mut held = Held::new(self.keyspace);
        held.acquire(Want::All);
        let key = self.keyspace.key(name);
        for rounds in 0.. {
            let nodes = need.away(&mut held, Db(0), &key, usize::MAX);
            if nodes.is_empty() {
                return rounds;
            }
            for node in nodes {
                let keeps = !self.prng.one_in(4);
                self.give(&mut held, node, keeps);
            }
        }
        unreachable!("what was given is not away")
    }

    /// A command that only reads: what it meets is read, and it runs again.
    pub fn read<R>(&mut self, work: impl Fn(&mut Txn<'_, '_>) -> R) -> R {
        self.read_counted(work).0
    }

    /// Runs a command that only reads, as `read` does. Also returns how many nodes were read for it.
    pub fn read_counted<R>(&mut self, work: impl Fn(&mut Txn<'_, '_>) -> R) -> (R, u64) {
        let mut nodes = 0;
        loop {
            let mut held = Held::new(self.keyspace);
            held.acquire(Want::All);
            let mut sink = NoEffects;
            let mut txn = Txn::new(&mut held, conditions(self.now), &mut sink);
            txn.on_cold = OnCold::Collect;
            let answer = work(&mut txn);
            txn.finish();
            match self.give_missing(&mut held) {
                0 => return (answer, nodes),
                more => nodes += more,
            }
            self.counts.runs_again += 1;
        }
    }

    /// Runs a command that changes something: it may want something before it has changed anything, or wait
    /// for the disk itself.
    pub fn change<R>(&mut self, work: impl FnMut(&mut Txn<'_, '_>) -> R) -> R {
        let before = self.keeper.waits.load(Relaxed);
        let answer = self.run_change(work);
        self.counts.waits += u64::from(self.keeper.waits.load(Relaxed) > before);
        answer
    }

    fn run_change<R>(&mut self, mut work: impl FnMut(&mut Txn<'_, '_>) -> R) -> R {
        let mut held = Held::new(self.keyspace);
        held.acquire(Want::All);
        held.report_changes(true);
        loop {
            let mut sink = Written(0);
            let mut txn = Txn::new(&mut held, conditions(self.now), &mut sink);
            txn.on_cold = OnCold::Read;
            let answer = work(&mut txn);
            txn.finish();
            if self.give_missing(&mut held) == 0 {
                return answer;
            }
            assert_eq!(sink.0, 0, "what runs again has changed nothing");
            self.counts.changes_again += 1;
        }
    }

    /// Runs a command that changes something and needs all of a key's nodes, which are read before.
    pub fn change_whole<R>(&mut self, name: &[u8], work: impl FnMut(&mut Txn<'_, '_>) -> R) -> R {
        self.give_before(name, NodeNeed::All);
        self.change(work)
    }

    /// The hand shows what may leave memory.
    pub fn show(&mut self) -> Shown {
        self.show_checked(|_| {})
    }

    pub fn show_checked(&mut self, check: impl Fn(&SinkableNode<'_>)) -> Shown {
        let (mut written, mut clean) = (Vec::new(), Vec::new());
        let mut held = Held::new(self.keyspace);
        held.acquire(Want::One(self.hand.partition()));
        let now = UnixMs(self.now + 1000);
        self.hand.show_sinkable(&mut held, ByNodes::Some, 80, now, &mut |node| {
            assert!(!node.is_awaited, "a second has passed");
            check(&node);
            if node.is_clean {
                return clean.push(node.at);
            }
            let mut payload = Vec::new();
            node.write_payload(&mut payload);
            assert_eq!(payload.len(), node.bytes);
            written.push((node.at, payload));
        });
        Shown { written, clean }
    }

    /// Moves the shown nodes out of memory, except those that have changed since.
    pub fn chill(&mut self, shown: Shown) {
        for at in shown.clean {
            let mut held = self.holding(at);
            let has_left = HeldNode::of(&mut held, at).chill_clean(UnixMs(self.now));
            drop(held);
            self.counts.clean += u64::from(has_left);
        }
        for (at, payload) in shown.written {
            let reference = self.keeper.keep(&payload);
            let mut held = self.holding(at);
            let has_left = HeldNode::of(&mut held, at).chill(&payload, reference, UnixMs(self.now));
            drop(held);
            self.counts.chilled += u64::from(has_left);
        }
    }

    pub fn sink(&mut self) {
        let shown = self.show();
        self.chill(shown);
    }

    fn holding(&self, at: NodeAt) -> Held<'static> {
        let mut held = Held::new(self.keyspace);
        held.acquire(Want::One(self.keyspace.partition_of(at.slot)));
        held
    }

    /// The keeper moves records: those of nodes that are away, and of those that came back and were not
    /// changed since.
    pub fn clean(&mut self) {
        let mut hand = NodeHand::default();
        while hand.rounds == 0 {
            let mut held = Held::new(self.keyspace);
            held.acquire(Want::One(hand.partition()));
            let mut found = Vec::new();
            hand.show_away(&mut held, 500, &mut |node, reference| found.push((node, reference)));
            for (node, reference) in found.into_iter().filter(|_| self.prng.one_in(4)) {
                let to = self.keeper.keep(&self.keeper.read(reference));
                assert!(HeldNode::of(&mut held, node).move_to(reference, to));
                self.counts.moved += 1;
            }
        }
        for (node, from, payload) in std::mem::take(&mut self.given) {
            let (is_kept, to) = (self.keeper.has(from), self.keeper.keep(&payload));
            let mut held = self.holding(node);
            let is_referred = HeldNode::of(&mut held, node).refers_to(from);
            assert!(is_kept || !is_referred, "what something refers to has not gone back");
            assert_eq!(HeldNode::of(&mut held, node).move_to(from, to), is_referred);
            self.counts.moved_clean += u64::from(is_referred);
        }
    }

    /// Returns the number of nodes that are not in memory.
    pub fn away(&self) -> u64 {
        Survey::new(&mut Held::new(self.keyspace)).cold().nodes
    }

    /// Returns the number of nodes that were read since the keeper moved some.
    pub fn given(&self) -> usize {
        self.given.len()
    }

    pub fn compact(&self) {
        compact(self.keyspace, 20);
    }

    /// Checks that after a flush no data is left, neither here nor with the keeper.
    pub fn end(&self) {
        flush_and_check(self.keyspace, self.now);
        assert!(self.keeper.values.lock().unwrap().is_empty(), "all references went back");
    }
}
