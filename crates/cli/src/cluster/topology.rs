//! The knowledge that a client has of a cluster, and the moments at which it asks again.
//!
//! A hundred thousand clients that each answer a MOVED by asking for the whole map, each of the same first
//! node, overrun that node with the most expensive question there is. The client's half of the cure is here:
//!
//! * one MOVED is followed and remembered for its slot, without asking for anything;
//! * the map is asked for once when MOVED comes again, and then again only after many more and some time;
//! * that time is drawn at random, so that clients that were disturbed together do not come back together;
//! * the node that is asked is drawn at random from all that are known.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use isotherm_resp::reply_parse::Value;
use isotherm_stdx::{Prng, Slot};

use crate::address::Address;

// COMPAT(tools): isotherm-cli -c asks for the map of the cluster once MOVED comes a second time, from a
// random node, and again only after many more redirections and some seconds; commands then go to the right
// node at once. valkey-cli follows every MOVED and remembers nothing. Why: many clients that ask for the map
// at once overload its nodes.
/// The first MOVED may be the only one: a command from a shell. The second shows that there will be more.
const MOVED_BEFORE_FIRST_MAP: u32 = 2;
/// Later, this many since the last map, and ...
const MOVED_BEFORE_NEXT_MAP: u32 = 16;
/// ... this time, and up to as much again.
const MAP_AGE: Duration = Duration::from_secs(5);

/// Target of a redirection in an error reply.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Redirect {
    pub slot: u16,
    pub to: Address,
    /// ASK: this one time only, and after ASKING.
    pub ask: bool,
}

impl Redirect {
    /// Reads `MOVED 3999 127.0.0.1:6381`. An empty host is the one that we are talking to.
    pub fn parse(error: &[u8], here: &Address) -> Option<Redirect> {
        let text = std::str::from_utf8(error).ok()?;
        let mut words = text.split(' ');
        let ask = match words.next()? {
            "MOVED" => false,
            "ASK" => true,
            _ => return None,
        };
        let slot = words.next()?.parse().ok().filter(|&slot: &u16| usize::from(slot) < Slot::COUNT)?;
        let (host, port) = words.next()?.rsplit_once(':')?;
        let port = port.parse().ok()?;
        let to = match here {
            Address::Tcp { host: here, .. } if host.is_empty() => Address::tcp(here.clone(), port),
            _ => Address::tcp(host, port),
        };
        Some(Redirect { slot, to, ask })
    }
}

pub struct Topology {
    owners: BTreeMap<u16, Address>,
    /// Primaries first seen, each once.
    nodes: Vec<Address>,
    moved: u32,
    asked: Option<Instant>,
    pause: Duration,
    prng: Prng,
}

impl Topology {
    pub fn new(seed: u64) -> Topology {
        Topology {
            owners: BTreeMap::new(),
            nodes: Vec::new(),
            moved: 0,
            asked: None,
            pause: Duration::ZERO,
            prng: Prng::new(seed),
        }
    }

    pub fn owner(&self, slot: Slot) -> Option<&Address> {
        self.owners.get(&slot.get())
    }

    /// Any node; for questions that each can answer.
    pub fn any_node(&mut self) -> Option<Address> {
        (!self.nodes.is_empty()).then(|| self.prng.pick(&self.nodes).clone())
    }

    /// Notes a redirect. True if now is the time to ask for the map.
    pub fn note(&mut self, redirect: &Redirect, now: Instant) -> bool {
        self.note_node(&redirect.to);
        if redirect.ask {
            return false;
        }
        self.owners.insert(redirect.slot, redirect.to.clone());
        self.moved += 1;
        match self.asked {
            None => self.moved >= MOVED_BEFORE_FIRST_MAP,
            Some(asked) => self.moved >= MOVED_BEFORE_NEXT_MAP && now - asked >= self.pause,
        }
    }

    pub fn note_node(&mut self, node: &Address) {
        if !self.nodes.contains(node) {
            self.nodes.push(node.clone());
        }
    }

    /// The map has been asked for; whatever came of it, not again for a while.
    pub fn asked(&mut self, now: Instant) {
        self.asked = Some(now);
        self.moved = 0;
        self.pause = MAP_AGE + Duration::from_millis(self.prng.below(MAP_AGE.as_millis() as u64));
    }

    /// Takes the reply to CLUSTER SLOTS. Anything that is not one changes nothing.
    pub fn learn(&mut self, reply: &Value, here: &Address) {
        let Some(ranges) = slot_ranges(reply, here) else { return };
        self.owners.clear();
        self.nodes.clear();
        for SlotRange { first, last, primary, .. } in ranges {
            self.note_node(&primary);
            self.owners.extend((first..=last).map(|slot| (slot, primary.clone())));
        }
    }
}

/// Row of CLUSTER SLOTS.
pub struct SlotRange {
    pub first: u16,
    pub last: u16,
    pub primary: Address,
    pub primary_id: String,
    pub replicas: Vec<(Address, String)>,
}

pub fn slot_ranges(reply: &Value, here: &Address) -> Option<Vec<SlotRange>> {
    let Value::Array(rows) = reply else { return None };
    rows.iter().map(|row| slot_range(row, here)).collect()
}

fn slot_range(row: &Value, here: &Address) -> Option<SlotRange> {
    let Value::Array(parts) = row else { return None };
    let [Value::Integer(first), Value::Integer(last), nodes @ ..] = parts.as_slice() else { return None };
    let in_range = |slot: i64| u16::try_from(slot).ok().filter(|&slot| usize::from(slot) < Slot::COUNT);
    let mut nodes = nodes.iter().map(|node| slot_node(node, here));
    let (primary, primary_id) = nodes.next()??;
    let replicas = nodes.collect::<Option<_>>()?;
    Some(SlotRange { first: in_range(*first)?, last: in_range(*last)?, primary, primary_id, replicas })
}

/// `[host, port, id, ...]`; a host that is unknown or empty is the one that we are talking to.
fn slot_node(node: &Value, here: &Address) -> Option<(Address, String)> {
    let Value::Array(parts) = node else { return None };
    let port = match parts.get(1) {
        Some(Value::Integer(port)) => u16::try_from(*port).ok()?,
        _ => return None,
    };
    let host = match (parts.first(), here) {
        (Some(Value::Bulk(host)), _) if !host.is_empty() => String::from_utf8_lossy(host).into_owned(),
        (_, Address::Tcp { host, .. }) => host.clone(),
        _ => return None,
    };
    let id = match parts.get(2) {
        Some(Value::Bulk(id)) => String::from_utf8_lossy(id).into_owned(),
        _ => format!("{host}:{port}"),
    };
    Some((Address::Tcp { host, port }, id))
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_resp::reply_parse::parse_value;

    fn moved(slot: u16) -> Redirect {
        Redirect { slot, to: Address::tcp("n", 1), ask: false }
    }

    #[test]
    fn redirects() {
        let here = Address::tcp("here", 1);
        let to = |text: &str| Redirect::parse(text.as_bytes(), &here);
        let expected = Redirect { slot: 3999, to: Address::tcp("a", 6381), ask: false };
        assert_eq!(to("MOVED 3999 a:6381"), Some(expected.clone()));
        assert_eq!(to("ASK 3999 a:6381"), Some(Redirect { ask: true, ..expected.clone() }));
        assert_eq!(
            to("MOVED 3999 :6381"),
            Some(Redirect { to: Address::tcp("here", 6381), ..expected.clone() })
        );
        assert_eq!(to("MOVED 3999 ::1:6381"), Some(Redirect { to: Address::tcp("::1", 6381), ..expected }));
        for text in ["ERR MOVED", "MOVED", "MOVED 99999 a:1", "MOVED x a:1", "MOVED 1 a", "MOVED 1 a:x"] {
            assert_eq!(to(text), None, "{text}");
        }
    }

    #[test]
    fn the_map_is_asked_for_once_for_many_moved() {
        let start = Instant::now();
        let mut topology = Topology::new(1);
        assert!(!topology.note(&moved(1), start), "one may be the only one");
        assert!(topology.note(&moved(2), start), "the second is a sign");
        topology.asked(start);
        // A thousand redirects within the pause ask for nothing more.
        let within = start + MAP_AGE - Duration::from_millis(1);
        assert_eq!((0..1000).filter(|&slot| topology.note(&moved(slot), within)).count(), 0);
        assert_eq!(topology.owner(Slot::of_key(b"")), Some(&Address::tcp("n", 1)));
        // After it, once.
        assert!(topology.note(&moved(5), start + 2 * MAP_AGE));
        topology.asked(start + 2 * MAP_AGE);
        assert!(!topology.note(&moved(5), start + 9 * MAP_AGE), "one is not many");
    }

    #[test]
    fn an_ask_is_followed_and_forgotten() {
        let mut topology = Topology::new(1);
        for _ in 0..100 {
            assert!(!topology.note(&Redirect { ask: true, ..moved(0) }, Instant::now()));
        }
        assert_eq!(topology.owner(Slot::of_key(b"")), None);
    }

    #[test]
    fn pauses_differ_between_clients() {
        let pause = |seed| {
            let mut topology = Topology::new(seed);
            topology.asked(Instant::now());
            topology.pause
        };
        let pauses: std::collections::BTreeSet<Duration> = (0..100).map(pause).collect();
        assert!(pauses.len() > 90 && pauses.iter().all(|&pause| pause >= MAP_AGE && pause < 2 * MAP_AGE));
    }

    #[test]
    fn a_map_is_learned_and_any_node_means_any() {
        let reply = b"*2\r\n*3\r\n:0\r\n:100\r\n*3\r\n$1\r\na\r\n:1\r\n$2\r\nid\r\n\
            *4\r\n:101\r\n:16383\r\n*3\r\n$0\r\n\r\n:2\r\n$2\r\nio\r\n*3\r\n$1\r\nr\r\n:3\r\n$1\r\nx\r\n";
        let (value, _) = parse_value(reply).unwrap().unwrap();
        let mut topology = Topology::new(1);
        topology.learn(&value, &Address::tcp("here", 9));
        assert_eq!(topology.owner(Slot::of_key(b"")), Some(&Address::tcp("a", 1)));
        assert_eq!(topology.owner(Slot::of_key(b"foo")), Some(&Address::tcp("here", 2)));
        let drawn: std::collections::HashSet<String> =
            (0..50).map(|_| topology.any_node().unwrap().to_string()).collect();
        assert_eq!(drawn.len(), 2);
        topology.learn(&Value::Integer(1), &Address::tcp("here", 9));
        assert!(topology.owner(Slot::of_key(b"foo")).is_some(), "nonsense changes nothing");
    }
}
