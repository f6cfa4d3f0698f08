//! Connections between nodes: bytes that take time, and what happens to them on the way.

use isotherm_replication::Ms;
use isotherm_stdx::Prng;
use std::collections::VecDeque;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConnId(pub usize);

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Packet {
    /// To the side that has dialled.
    Connected,
    Bytes(Vec<u8>),
    Closed,
}

/// The side that has dialled, which is the replica, and the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    Replica,
    Primary,
}

struct Conn {
    nodes: [usize; 2],
    /// On their way to each end.
    queues: [VecDeque<(Ms, Packet)>; 2],
    /// True if bytes for this end are lost, and neither side notices.
    is_silent: [bool; 2],
    is_open: bool,
}

#[derive(Default)]
pub struct Net {
    conns: Vec<Conn>,
    /// Pairs of nodes that cannot reach each other.
    cuts: Vec<(usize, usize)>,
}

const DELAY_MS_MAX: u64 = 30;

impl Net {
    pub fn dial(&mut self, replica: usize, primary: usize, is_up: bool, now: Ms, prng: &mut Prng) -> ConnId {
        let is_open = is_up && !self.is_cut(replica, primary);
        let conn =
            Conn { nodes: [replica, primary], queues: Default::default(), is_silent: [false; 2], is_open };
        self.conns.push(conn);
        let id = ConnId(self.conns.len() - 1);
        let packet = if is_open { Packet::Connected } else { Packet::Closed };
        self.queue(id, End::Replica, packet, now, prng);
        id
    }

    pub fn is_open(&self, id: ConnId) -> bool {
        self.conns[id.0].is_open
    }

    pub fn send(&mut self, id: ConnId, to: End, bytes: Vec<u8>, now: Ms, prng: &mut Prng) {
        if self.is_open(id) && !self.conns[id.0].is_silent[to as usize] && !bytes.is_empty() {
            self.queue(id, to, Packet::Bytes(bytes), now, prng);
        }
    }

    fn queue(&mut self, id: ConnId, to: End, packet: Packet, now: Ms, prng: &mut Prng) {
        let queue = &mut self.conns[id.0].queues[to as usize];
        let soonest = queue.back().map_or(now, |(due, _)| *due);
        queue.push_back((Ms(soonest.0.max(now.0 + prng.below(DELAY_MS_MAX))), packet));
    }

    /// Takes a packet that has arrived at an end by now.
    pub fn take(&mut self, id: ConnId, end: End, now: Ms) -> Option<Packet> {
        self.conns[id.0].queues[end as usize].pop_front_if(|(due, _)| *due <= now).map(|(_, packet)| packet)
    }

    /// One side has closed: the other gets what was sent before.
    pub fn close(&mut self, id: ConnId, by: End, now: Ms, prng: &mut Prng) {
        if !std::mem::take(&mut self.conns[id.0].is_open) {
            return;
        }
        let to = if by == End::Replica { End::Primary } else { End::Replica };
        self.conns[id.0].queues[by as usize].clear();
        if !self.conns[id.0].is_silent[to as usize] {
            self.queue(id, to, Packet::Closed, now, prng);
        }
    }

    /// The connection breaks: what was on its way is lost, and both sides notice.
    pub fn cut(&mut self, id: ConnId, now: Ms, prng: &mut Prng) {
        if !std::mem::take(&mut self.conns[id.0].is_open) {
            return;
        }
        for end in [End::Replica, End::Primary] {
            self.conns[id.0].queues[end as usize].clear();
            self.queue(id, end, Packet::Closed, now, prng);
        }
    }

    /// Nothing arrives at this end any more.
    pub fn silence(&mut self, id: ConnId, end: End) {
        self.conns[id.0].is_silent[end as usize] = true;
        self.conns[id.0].queues[end as usize].clear();
    }

    /// Two nodes cannot reach each other until `heal`; what is open between them falls silent.
    pub fn part(&mut self, a: usize, b: usize) {
        self.cuts.push((a, b));
        for id in 0..self.conns.len() {
            let nodes = self.conns[id].nodes;
            if self.conns[id].is_open && (nodes == [a, b] || nodes == [b, a]) {
                self.silence(ConnId(id), End::Replica);
                self.silence(ConnId(id), End::Primary);
            }
        }
    }

    pub fn is_cut(&self, a: usize, b: usize) -> bool {
        self.cuts.iter().any(|cut| *cut == (a, b) || *cut == (b, a))
    }

    pub fn heal(&mut self) {
        self.cuts.clear();
    }

    pub fn open_conns(&self) -> Vec<ConnId> {
        (0..self.conns.len()).map(ConnId).filter(|id| self.is_open(*id)).collect()
    }

    /// All connections of a node that has stopped.
    pub fn drop_node(&mut self, node: usize, now: Ms, prng: &mut Prng) {
        for id in self.open_conns() {
            let nodes = self.conns[id.0].nodes;
            if nodes.contains(&node) {
                let by = if nodes[0] == node { End::Replica } else { End::Primary };
                self.close(id, by, now, prng);
            }
        }
    }
}
