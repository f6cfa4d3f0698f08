//! The world: clients that write, an operator who promotes, the faults, and the properties that must hold all
//! the same.

use super::data::{Meanings, write_frame};
use super::net::{End, Net};
use super::node::{Hands, Node};
use isotherm_log::LogOffset;
use isotherm_replication::{Ms, acks};
use isotherm_stdx::Prng;

const TURNS: u64 = 2_500;
const TURN_MS_MAX: u64 = 25;
/// After the last fault all nodes have to agree within this time.
const HEALED_MS: u64 = 120_000;
const QUORUM: usize = 1;

/// How much of each a run has seen.
#[derive(Default, Clone, Copy, Debug)]
pub struct Counts {
    pub full_syncs: u64,
    pub partial_syncs: u64,
    promotions: u64,
    crashes: u64,
    cuts: u64,
    answered: u64,
}

impl Counts {
    pub fn add(&mut self, other: &Counts) {
        self.full_syncs += other.full_syncs;
        self.partial_syncs += other.partial_syncs;
        self.promotions += other.promotions;
        self.crashes += other.crashes;
        self.cuts += other.cuts;
        self.answered += other.answered;
    }

    /// A simulation in which nothing happens proves nothing.
    pub fn check_breadth(&self) {
        let all =
            [self.full_syncs, self.partial_syncs, self.promotions, self.crashes, self.cuts, self.answered];
        assert!(all.iter().all(|count| *count > 0), "{self:?}");
    }
}

/// A write that its client waits for.
struct Pending {
    number: u64,
    end: LogOffset,
}

struct World {
    nodes: Vec<Node>,
    net: Net,
    now: Ms,
    prng: Prng,
    counts: Counts,
    meanings: Meanings,
    primary: usize,
    writes: u64,
    pending: Vec<Pending>,
    answered: Vec<u64>,
    /// Since a node crashed: what all replicas have to have again before another fault may take a copy.
    fragile: Option<LogOffset>,
    promotes_any: bool,
}

pub fn run(seed: u64) -> Counts {
    World::new(seed, false).run()
}

pub fn run_promoting_any(seed: u64) -> Counts {
    World::new(seed, true).run()
}

impl World {
    fn new(seed: u64, promotes_any: bool) -> World {
        let mut prng = Prng::new(seed);
        let count = 2 + prng.below(4) as usize;
        let nodes = (0..count).map(|number| Node::new(number, &mut prng)).collect();
        World {
            nodes,
            net: Net::default(),
            now: Ms(0),
            prng,
            counts: Counts::default(),
            meanings: Meanings::default(),
            primary: 0,
            writes: 0,
            pending: Vec::new(),
            answered: Vec::new(),
            fragile: None,
            promotes_any,
        }
    }

    fn run(mut self) -> Counts {
        for number in 1..self.nodes.len() {
            let upstream = if number > 2 && self.prng.one_in(2) { 1 } else { 0 };
            self.with(number, |node, hands| node.follow(upstream, hands));
        }
        for _ in 0..TURNS {
            self.turn();
            self.write_some();
            self.break_something();
        }
        self.heal();
        self.counts.answered += self.answered.len() as u64;
        self.counts
    }

    /// A node acts.
    fn with<T>(&mut self, number: usize, act: impl FnOnce(&mut Node, &mut Hands<'_>) -> T) -> T {
        let is_up = self.nodes.iter().map(|node| node.is_up).collect();
        let World { nodes, net, now, prng, counts, .. } = self;
        act(&mut nodes[number], &mut Hands { net, now: *now, prng, counts, is_up })
    }

    fn turn(&mut self) {
        self.now = Ms(self.now.0 + 1 + self.prng.below(TURN_MS_MAX));
        let first = self.prng.below(self.nodes.len() as u64) as usize;
        for at in 0..self.nodes.len() {
            let number = (first + at) % self.nodes.len();
            if !self.nodes[number].is_up {
                continue;
            }
            let dialled = self.with(number, Node::turn);
            if let Some((conn, upstream)) = dialled {
                self.nodes[upstream].accept(conn);
            }
            self.meanings.note(&self.nodes[number].data);
            if self.prng.one_in(20) {
                self.nodes[number].sync_disk();
            }
        }
        self.answer_some();
        self.note_recovery();
    }

    // ---- clients ----

    fn write_some(&mut self) {
        let primary = &mut self.nodes[self.primary];
        if !primary.is_up || !self.prng.one_in(2) {
            return;
        }
        for _ in 0..self.prng.below(4) {
            self.writes += 1;
            primary.data.apply(&write_frame(self.writes));
            self.pending.push(Pending { number: self.writes, end: primary.data.end() });
        }
        self.meanings.note(&primary.data);
    }

    /// Replies leave once enough replicas have what they show.
    fn answer_some(&mut self) {
        let reached = acks::kth_highest(&mut self.nodes[self.primary].acks(), QUORUM);
        let answered = self.pending.iter().take_while(|write| write.end <= reached).count();
        self.answered.extend(self.pending.drain(..answered).map(|write| write.number));
    }

    // ---- faults ----

    fn break_something(&mut self) {
        match self.prng.below(400) {
            0..5 => self.cut_a_connection(),
            5..8 => self.part_two_nodes(),
            8..11 => self.net.heal(),
            11..13 => self.crash_a_replica(),
            13..17 => self.restart_one(),
            17..19 => self.fail_over(),
            19..20 => self.move_a_replica(),
            _ => {}
        }
    }

    fn cut_a_connection(&mut self) {
        let open = self.net.open_conns();
        if !open.is_empty() {
            let conn = *self.prng.pick(&open);
            match self.prng.below(3) {
                0 => self.net.silence(conn, End::Replica),
                1 => self.net.silence(conn, End::Primary),
                _ => self.net.cut(conn, self.now, &mut self.prng),
            }
            self.counts.cuts += 1;
        }
    }

    fn part_two_nodes(&mut self) {
        let count = self.nodes.len() as u64;
        let (a, b) = (self.prng.below(count) as usize, self.prng.below(count) as usize);
        if a != b {
            self.net.part(a, b);
        }
    }

    fn crash_a_replica(&mut self) {
        let number = self.prng.below(self.nodes.len() as u64) as usize;
        if number != self.primary && self.nodes[number].is_up && self.fragile.is_none() {
            self.with(number, |node, hands| node.crash(hands));
            self.counts.crashes += 1;
            self.fragile = Some(self.nodes[self.primary].data.end());
        }
    }

    fn restart_one(&mut self) {
        let down = self.nodes.iter().position(|node| !node.is_up);
        if let Some(number) = down {
            let primary = self.primary;
            self.with(number, |node, hands| node.restart(Some(primary), hands));
        }
    }

    /// After a crash one copy fewer has what was answered, until the replicas have caught up.
    fn note_recovery(&mut self) {
        let Some(goal) = self.fragile else { return };
        let id = self.nodes[self.primary].data.history.id();
        let has_it = |node: &Node| {
            let is_current = node.is_primary() || node.is_linked();
            node.is_up && is_current && node.data.history.id() == id && node.data.end() >= goal
        };
        if self.nodes.iter().all(has_it) {
            self.fragile = None;
        }
    }

    /// The primary is gone, for the operator: of its replicas the one that is furthest takes over.
    fn fail_over(&mut self) {
        let old = self.primary;
        if self.fragile.is_some() || !self.nodes[old].is_up {
            return;
        }
        let id = self.nodes[old].data.history.id();
        let mut candidates: Vec<&Node> = self
            .nodes
            .iter()
            .filter(|node| node.is_up && node.upstream() == Some(old) && node.data.history.id() == id)
            .collect();
        candidates.sort_by_key(|node| node.data.end());
        let chosen = if self.promotes_any { candidates.first() } else { candidates.last() };
        let Some(next) = chosen.map(|node| node.number) else { return };
        if self.prng.one_in(2) {
            self.with(old, |node, hands| node.crash(hands));
            self.counts.crashes += 1;
        }
        self.with(next, |node, hands| node.promote(hands));
        self.counts.promotions += 1;
        self.primary = next;
        // Writes that were not answered may be there or not.
        self.pending.clear();
        self.check_answered();
        for number in 0..self.nodes.len() {
            let follows = number == old || self.nodes[number].upstream() == Some(old);
            if number != next && follows && self.nodes[number].is_up {
                self.with(number, |node, hands| node.follow(next, hands));
            }
        }
        self.fragile = Some(self.nodes[next].data.end());
    }

    fn move_a_replica(&mut self) {
        let number = self.prng.below(self.nodes.len() as u64) as usize;
        let primary = self.primary;
        if number != primary && self.nodes[number].is_up {
            self.with(number, |node, hands| node.follow(primary, hands));
        }
    }

    fn check_answered(&self) {
        let writes = &self.nodes[self.primary].data.writes;
        for number in &self.answered {
            assert!(writes.binary_search(number).is_ok(), "write {number} was answered, and is lost");
        }
    }

    // ---- the end ----

    /// Nothing breaks any more: all nodes come to have the same.
    fn heal(&mut self) {
        self.net.heal();
        for number in 0..self.nodes.len() {
            if !self.nodes[number].is_up {
                let primary = self.primary;
                let upstream = (number != primary).then_some(primary);
                self.with(number, |node, hands| node.restart(upstream, hands));
            }
        }
        let ends = self.now.0 + HEALED_MS;
        while !self.agree() {
            assert!(self.now.0 < ends, "the nodes do not agree: {}", self.describe());
            self.turn();
        }
        self.check_answered();
    }

    fn agree(&self) -> bool {
        let primary = &self.nodes[self.primary].data;
        self.nodes.iter().all(|node| {
            let Node { data, .. } = node;
            data.history.id() == primary.history.id() && data.writes == primary.writes
        })
    }

    fn describe(&self) -> String {
        let each = self.nodes.iter().map(|node| {
            let (id, end) = (node.data.history.id(), node.data.end());
            format!("{}: {id} {end} follows {:?} linked {}", node.number, node.upstream(), node.is_linked())
        });
        each.collect::<Vec<_>>().join("; ")
    }
}
