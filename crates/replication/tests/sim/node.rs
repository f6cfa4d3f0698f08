//! A node: its data, its link to a primary, and the replicas that it feeds.

use super::data::{Data, PING, parse};
use super::net::{ConnId, End, Net, Packet};
use super::world::Counts;
use isotherm_log::LogOffset;
use isotherm_replication::feed::{
    Act, Announced, Capabilities, Feed, FeedState, Said, SyncRequest, Transfer,
};
use isotherm_replication::link::{Input, Link, Output, Phase, Position, Settings, ack};
use isotherm_replication::{Ms, ReplId};
use isotherm_resp::ArgsBuf;
use isotherm_stdx::Prng;

const TIMEOUT_MS: u64 = 3_000;
const PING_MS: u64 = 1_000;
const LOAD_MS_MAX: u64 = 200;
/// A few hundred writes, so that a replica that was away needs a snapshot now and then.
const BACKLOG_BYTES: usize = 6_000;
const SENT_BYTES_MAX: u64 = 400;

pub enum Role {
    Primary,
    Replica(Box<Follow>),
}

pub struct Follow {
    pub upstream: usize,
    link: Link,
    conn: Option<ConnId>,
    /// The snapshot under way: where it was cut, and what has come of it.
    cut: Option<Position>,
    snapshot: Vec<u8>,
    loaded_at: Option<Ms>,
    /// Bytes of the stream that came and are not applied.
    stream: Vec<u8>,
}

/// A replica of this node.
struct Peer {
    conn: ConnId,
    input: Vec<u8>,
    announced: Announced,
    feed: Option<Feed>,
    /// The next byte of the log that it gets.
    place: LogOffset,
    spool: Vec<u8>,
    gets_log: bool,
}

pub struct Node {
    pub number: usize,
    pub is_up: bool,
    pub data: Data,
    /// The data that a crash leaves.
    disk: Data,
    pub role: Role,
    peers: Vec<Peer>,
    second: Ms,
    pinged: Ms,
}

/// The means with which a node acts.
pub struct Hands<'w> {
    pub net: &'w mut Net,
    pub now: Ms,
    pub prng: &'w mut Prng,
    pub counts: &'w mut Counts,
    pub is_up: Vec<bool>,
}

pub fn new_id(prng: &mut Prng) -> ReplId {
    ReplId::new(std::array::from_fn(|_| prng.next_u64() as u8))
}

impl Node {
    pub fn new(number: usize, prng: &mut Prng) -> Node {
        let data = Data::new(new_id(prng));
        let disk = data.clone();
        let (second, pinged) = (Ms(0), Ms(0));
        Node { number, is_up: true, data, disk, role: Role::Primary, peers: Vec::new(), second, pinged }
    }

    // ---- what the operator does ----

    pub fn follow(&mut self, upstream: usize, hands: &mut Hands<'_>) {
        self.drop_link(hands);
        self.drop_peers(hands);
        let link = Link::new(Settings::default());
        let follow = Follow {
            upstream,
            link,
            conn: None,
            cut: None,
            snapshot: Vec::new(),
            loaded_at: None,
            stream: Vec::new(),
        };
        self.role = Role::Replica(Box::new(follow));
    }

    pub fn promote(&mut self, hands: &mut Hands<'_>) {
        self.drop_link(hands);
        self.drop_peers(hands);
        self.role = Role::Primary;
        let end = self.data.end();
        self.data.history.promote(new_id(hands.prng), end);
        self.data.history.check_invariants();
    }

    /// The process ends, whatever it was about; what it had not synced is lost.
    pub fn crash(&mut self, hands: &mut Hands<'_>) {
        hands.net.drop_node(self.number, hands.now, hands.prng);
        (self.is_up, self.data) = (false, self.disk.clone());
        self.peers.clear();
        if let Role::Replica(follow) = &mut self.role {
            follow.conn = None;
        }
    }

    /// It starts again: as what it was, or under another primary.
    pub fn restart(&mut self, upstream: Option<usize>, hands: &mut Hands<'_>) {
        self.is_up = true;
        match upstream {
            Some(upstream) => self.follow(upstream, hands),
            None => self.promote(hands),
        }
    }

    pub fn sync_disk(&mut self) {
        self.disk = self.data.clone();
    }

    fn drop_link(&mut self, hands: &mut Hands<'_>) {
        if let Role::Replica(follow) = &mut self.role
            && let Some(conn) = follow.conn.take()
        {
            hands.net.close(conn, End::Replica, hands.now, hands.prng);
        }
    }

    fn drop_peers(&mut self, hands: &mut Hands<'_>) {
        for peer in self.peers.drain(..) {
            hands.net.close(peer.conn, End::Primary, hands.now, hands.prng);
        }
    }

    // ---- what others see ----

    pub fn is_primary(&self) -> bool {
        matches!(self.role, Role::Primary)
    }

    pub fn upstream(&self) -> Option<usize> {
        match &self.role {
            Role::Primary => None,
            Role::Replica(follow) => Some(follow.upstream),
        }
    }

    pub fn is_linked(&self) -> bool {
        matches!(&self.role, Role::Replica(follow) if follow.link.phase() == Phase::Connected)
    }

    /// The places that its replicas have acknowledged.
    pub fn acks(&self) -> Vec<LogOffset> {
        let online = self.peers.iter().filter_map(|peer| peer.feed.as_ref());
        online.filter(|feed| feed.state() == FeedState::Online).map(Feed::acked).collect()
    }

    // ---- a turn ----

    pub fn accept(&mut self, conn: ConnId) {
        self.peers.push(Peer {
            conn,
            input: Vec::new(),
            announced: Announced::default(),
            feed: None,
            place: LogOffset(0),
            spool: Vec::new(),
            gets_log: false,
        });
    }

    /// Everything that is due. Returns a connection that it has dialled.
    pub fn turn(&mut self, hands: &mut Hands<'_>) -> Option<(ConnId, usize)> {
        let dialled = self.turn_link(hands);
        if self.is_primary() && hands.now.0 >= self.pinged.0 + PING_MS {
            self.data.apply(PING);
            self.pinged = hands.now;
        }
        let is_second = hands.now.0 >= self.second.0 + 1000;
        if is_second {
            self.second = hands.now;
        }
        let mut peers = std::mem::take(&mut self.peers);
        peers.retain_mut(|peer| {
            let stays = self.turn_peer(peer, is_second, hands);
            if !stays {
                hands.net.close(peer.conn, End::Primary, hands.now, hands.prng);
            }
            stays
        });
        self.peers.append(&mut peers);
        self.data.trim(BACKLOG_BYTES);
        for feed in self.peers.iter().filter_map(|peer| peer.feed.as_ref()) {
            feed.check_invariants(self.data.end());
        }
        dialled
    }

    // ---- as a replica ----

    fn turn_link(&mut self, hands: &mut Hands<'_>) -> Option<(ConnId, usize)> {
        let Role::Replica(follow) = &mut self.role else { return None };
        let mut out = Vec::new();
        if follow.link.is_due(hands.now) {
            let settings =
                Settings { port: 1, version: "9.1.2", timeout_ms: TIMEOUT_MS, ..Settings::default() };
            let position = Position { id: self.data.history.id(), end: self.data.end() };
            follow.link.begin(settings, Some(position), hands.now, &mut out);
        }
        let mut dialled = self.perform(&[], out, hands);
        loop {
            let Role::Replica(follow) = &mut self.role else { unreachable!("it stays one") };
            let mut out = Vec::new();
            if follow.loaded_at.is_some_and(|at| at <= hands.now) {
                self.load(hands);
                continue;
            }
            let Some(packet) = follow.conn.and_then(|conn| hands.net.take(conn, End::Replica, hands.now))
            else {
                follow.link.step(Input::Tick, hands.now, &mut out);
                dialled = dialled.or(self.perform(&[], out, hands));
                return dialled;
            };
            let bytes = if let Packet::Bytes(bytes) = &packet { bytes.clone() } else { Vec::new() };
            let input = match &packet {
                Packet::Connected => Input::Connected,
                Packet::Bytes(bytes) => Input::Bytes(bytes),
                Packet::Closed => Input::Ended,
            };
            follow.link.step(input, hands.now, &mut out);
            follow.link.check_invariants();
            dialled = dialled.or(self.perform(&bytes, out, hands));
        }
    }

    fn perform(&mut self, bytes: &[u8], out: Vec<Output>, hands: &mut Hands<'_>) -> Option<(ConnId, usize)> {
        let mut dialled = None;
        for output in out {
            let Role::Replica(follow) = &mut self.role else { unreachable!("it stays one") };
            match output {
                Output::Connect => {
                    let upstream = follow.upstream;
                    let is_up = hands.is_up[upstream];
                    let conn = hands.net.dial(self.number, upstream, is_up, hands.now, hands.prng);
                    follow.conn = Some(conn);
                    dialled = hands.net.is_open(conn).then_some((conn, upstream));
                }
                Output::Send(sent) => self.send_up(sent, hands),
                Output::Say(_) | Output::Snapshot { .. } => {}
                Output::Full(position) => {
                    follow.cut = Some(position);
                    follow.snapshot.clear();
                    hands.counts.full_syncs += 1;
                }
                Output::SnapshotBytes(range) => follow.snapshot.extend_from_slice(&bytes[range]),
                Output::SnapshotEnds { mark_bytes } => {
                    follow.snapshot.truncate(follow.snapshot.len() - mark_bytes);
                    follow.loaded_at = Some(Ms(hands.now.0 + hands.prng.below(LOAD_MS_MAX)));
                }
                Output::Continue { id } => {
                    hands.counts.partial_syncs += 1;
                    let end = self.data.end();
                    if let Some(id) = id.filter(|id| *id != self.data.history.id()) {
                        self.data.history.rename(id, end);
                        // They hear of the new name when they come again.
                        self.drop_peers(hands);
                    }
                }
                Output::Stream(range) => {
                    follow.stream.extend_from_slice(&bytes[range]);
                    if follow.loaded_at.is_none() {
                        self.apply_stream();
                    }
                }
                Output::AckDue => {
                    let ack = ack(self.data.end(), Some(self.disk.end()));
                    self.send_up(ack, hands);
                }
                Output::Close(_) => {
                    follow.stream.clear();
                    follow.loaded_at = None;
                    self.drop_link(hands);
                }
            }
        }
        dialled
    }

    fn send_up(&mut self, bytes: Vec<u8>, hands: &mut Hands<'_>) {
        if let Role::Replica(follow) = &self.role
            && let Some(conn) = follow.conn
        {
            hands.net.send(conn, End::Primary, bytes, hands.now, hands.prng);
        }
    }

    fn load(&mut self, hands: &mut Hands<'_>) {
        let Role::Replica(follow) = &mut self.role else { unreachable!("it stays one") };
        follow.loaded_at = None;
        let cut = follow.cut.take().expect("it was announced");
        self.data.replace(cut.id, cut.end, &std::mem::take(&mut follow.snapshot));
        // The data on disk is of another history.
        self.disk = self.data.clone();
        let mut out = Vec::new();
        follow.link.step(Input::Loaded, hands.now, &mut out);
        self.drop_peers(hands);
        self.apply_stream();
        let dialled = self.perform(&[], out, hands);
        assert!(dialled.is_none());
    }

    fn apply_stream(&mut self) {
        let Role::Replica(follow) = &mut self.role else { unreachable!("it stays one") };
        let mut done = 0;
        while let Some((_, len)) = parse(&follow.stream[done..]) {
            self.data.apply(&follow.stream[done..done + len]);
            done += len;
        }
        follow.stream.drain(..done);
    }

    // ---- as a primary ----

    /// Whether the replica stays.
    fn turn_peer(&mut self, peer: &mut Peer, is_second: bool, hands: &mut Hands<'_>) -> bool {
        while let Some(packet) = hands.net.take(peer.conn, End::Primary, hands.now) {
            match packet {
                Packet::Closed | Packet::Connected => return false,
                Packet::Bytes(bytes) => peer.input.extend_from_slice(&bytes),
            }
        }
        // While it loads, a replica sends empty lines.
        loop {
            let lines = peer.input.iter().take_while(|byte| **byte == b'\n').count();
            peer.input.drain(..lines);
            let Some((words, len)) = parse_if_any(&peer.input) else { break };
            peer.input.drain(..len);
            if !self.answer(peer, &words, hands) {
                return false;
            }
        }
        if peer.feed.is_none() {
            return true;
        }
        if is_second {
            let act = peer.feed.as_mut().expect("it has one").tick(hands.now, TIMEOUT_MS);
            if !self.act(peer, act, hands) {
                return false;
            }
        }
        self.send_some(peer, hands)
    }

    fn answer(&mut self, peer: &mut Peer, words: &[Vec<u8>], hands: &mut Hands<'_>) -> bool {
        let slices: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        let args = ArgsBuf::from_slices(&slices);
        let reply: Vec<u8> = match words[0].to_ascii_uppercase().as_slice() {
            b"PING" => b"+PONG\r\n".to_vec(),
            b"REPLCONF" => match peer.announced.replconf(args.args(), None) {
                Ok(Said::Options) => b"+OK\r\n".to_vec(),
                Ok(Said::Ack(acked)) => {
                    let (Some(feed), Some((acked, synced))) = (&mut peer.feed, acked) else { return true };
                    let act = feed.ack(acked, synced, self.data.end(), hands.now);
                    return self.act(peer, act, hands);
                }
                Ok(Said::GetAck) => return true,
                Err(_) => panic!("the link says nothing else: {words:?}"),
            },
            b"PSYNC" => return self.psync(peer, &SyncRequest::parse(args.args()).expect("ours"), hands),
            other => panic!("the link does not send {}", other.escape_ascii()),
        };
        hands.net.send(peer.conn, End::Replica, reply, hands.now, hands.prng);
        true
    }

    fn psync(&mut self, peer: &mut Peer, request: &SyncRequest, hands: &mut Hands<'_>) -> bool {
        if !self.is_primary() && !self.is_linked() {
            let refused = b"-NOMASTERLINK Can't SYNC while not connected with my master\r\n".to_vec();
            hands.net.send(peer.conn, End::Replica, refused, hands.now, hands.prng);
            return true;
        }
        let Data { history, .. } = &self.data;
        let resumed = request
            .place()
            .and_then(|(id, from)| history.resume(id, from, self.data.first(), self.data.end()).ok());
        match resumed {
            Some(continuation) => {
                let line = format!("+CONTINUE {}\r\n", continuation.id).into_bytes();
                hands.net.send(peer.conn, End::Replica, line, hands.now, hands.prng);
                peer.feed = Some(Feed::resumed(&peer.announced, request, hands.now));
                (peer.place, peer.gets_log) = (continuation.from, true);
            }
            None => peer.feed = Some(Feed::full(&peer.announced, request, hands.now)),
        }
        true
    }

    fn act(&mut self, peer: &mut Peer, act: Act, hands: &mut Hands<'_>) -> bool {
        match act {
            Act::Nothing => {}
            Act::SendNewline => {
                hands.net.send(peer.conn, End::Replica, b"\n".to_vec(), hands.now, hands.prng);
            }
            Act::SendLog => peer.gets_log = true,
            Act::Close(_) => return false,
        }
        true
    }

    /// A piece of what it is to get.
    fn send_some(&mut self, peer: &mut Peer, hands: &mut Hands<'_>) -> bool {
        let bytes_max = 1 + hands.prng.below(SENT_BYTES_MAX) as usize;
        let feed = peer.feed.as_mut().expect("it is asked for those");
        match feed.state() {
            FeedState::AwaitsCut => {
                if hands.prng.one_in(4) {
                    self.cut_for(peer, hands);
                }
            }
            FeedState::AwaitsFile => {
                if hands.prng.one_in(3) {
                    feed.file_is_there();
                }
            }
            FeedState::SendsFile | FeedState::Streams => {
                let rest = peer.spool.split_off(bytes_max.min(peer.spool.len()));
                let sent = std::mem::replace(&mut peer.spool, rest);
                hands.net.send(peer.conn, End::Replica, sent, hands.now, hands.prng);
                feed.note_taken(false, hands.now);
                if peer.spool.is_empty() {
                    let act = feed.snapshot_sent(hands.now);
                    return self.act(peer, act, hands);
                }
            }
            FeedState::AwaitsAck | FeedState::Sent => {}
            FeedState::Online => {
                assert!(peer.gets_log);
                // Its bytes are gone: it has to come again.
                let Some(bytes) = self.data.read(peer.place, bytes_max) else { return false };
                peer.place = peer.place + bytes.len() as u64;
                let bytes = bytes.to_vec();
                hands.net.send(peer.conn, End::Replica, bytes, hands.now, hands.prng);
            }
        }
        true
    }

    fn cut_for(&mut self, peer: &mut Peer, hands: &mut Hands<'_>) {
        let feed = peer.feed.as_mut().expect("it waits for one");
        let (id, end) = (self.data.history.id(), self.data.end());
        let line = format!("+FULLRESYNC {id} {end}\r\n").into_bytes();
        hands.net.send(peer.conn, End::Replica, line, hands.now, hands.prng);
        let snapshot = self.data.encode();
        peer.place = end;
        peer.spool = if peer.announced.capabilities.has(Capabilities::EOF) && hands.prng.one_in(2) {
            feed.cut(Transfer::Stream);
            let mark = *new_id(hands.prng).as_bytes();
            [&b"$EOF:"[..], &mark, b"\r\n", &snapshot, &mark].concat()
        } else {
            feed.cut(Transfer::File);
            [format!("${}\r\n", snapshot.len()).as_bytes(), &snapshot].concat()
        };
    }
}

fn parse_if_any(bytes: &[u8]) -> Option<(Vec<Vec<u8>>, usize)> {
    if bytes.is_empty() { None } else { parse(bytes) }
}
