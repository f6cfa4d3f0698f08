//! The nodes of a cluster as the load generator sees them: which slots each has, and a tag for each slot.
//!
//! The map is asked for once at the start. When slots move, every connection that notices says so, but one
//! question is asked for all of them, and of a node drawn at random.

use std::collections::HashMap;
use std::sync::{Mutex, OnceLock};

use isotherm_resp::reply_parse::Value;
use isotherm_stdx::{Prng, Slot};

use super::options::ReadFrom;
use crate::Fallible;
use crate::address::{Address, Login};
use crate::cluster::topology::{SlotRange, slot_ranges};
use crate::connection::{Connection, Dial};

pub struct Node {
    pub address: Address,
    pub id: String,
    pub replica: bool,
    pub slots: Vec<u16>,
}

/// The slots of the nodes now; nodes keep their places.
struct Map {
    generation: u64,
    slots: Vec<Vec<u16>>,
}

pub struct Nodes {
    pub list: Vec<Node>,
    login: Login,
    dial: Dial,
    read_from: ReadFrom,
    map: Mutex<Map>,
}

impl Nodes {
    pub fn fetch(address: &Address, login: &Login, dial: Dial, read_from: ReadFrom) -> Fallible<Nodes> {
        let ranges = ask(address, login, dial)?;
        let list = nodes_of(&ranges, read_from);
        if list.is_empty() {
            return Err("Invalid cluster: 0 node(s).".to_string());
        }
        let slots = list.iter().map(|node| node.slots.clone()).collect();
        let map = Mutex::new(Map { generation: 0, slots });
        Ok(Nodes { list, login: login.clone(), dial, read_from, map })
    }

    /// A slot of a node, and how old the knowledge is. A node that has none left is replaced by another.
    pub fn draw_slot(&self, node: usize, prng: &mut Prng) -> Drawn {
        let map = self.map.lock().expect("no thread panics with the map in hand");
        let owner = if map.slots[node].is_empty() {
            (0..map.slots.len()).find(|&other| !map.slots[other].is_empty()).unwrap_or(node)
        } else {
            node
        };
        let slot = if map.slots[owner].is_empty() { 0 } else { *prng.pick(&map.slots[owner]) };
        Drawn { node: owner, slot, generation: map.generation }
    }

    /// Asks for the map anew, unless another worker has since `generation`.
    pub fn refresh(&self, generation: u64, prng: &mut Prng) -> Fallible {
        let mut map = self.map.lock().expect("no thread panics with the map in hand");
        if map.generation > generation {
            return Ok(());
        }
        eprintln!("WARNING: Cluster slots configuration changed, fetching new one...");
        let asked = &self.list[prng.below(self.list.len() as u64) as usize];
        let news = nodes_of(&ask(&asked.address, &self.login, self.dial)?, self.read_from);
        for (node, slots) in self.list.iter().zip(&mut map.slots) {
            *slots = news.iter().find(|new| new.id == node.id).map_or(Vec::new(), |new| new.slots.clone());
        }
        map.generation += 1;
        Ok(())
    }
}

pub struct Drawn {
    pub node: usize,
    pub slot: u16,
    pub generation: u64,
}

fn ask(address: &Address, login: &Login, dial: Dial) -> Fallible<Vec<SlotRange>> {
    let mut connection = open(address, login, dial)?;
    let reply = connection.call(&["CLUSTER", "SLOTS"]).map_err(|why| format!("Error: {why}"))?;
    if let Some(error) = reply.as_error() {
        let error = String::from_utf8_lossy(error);
        return Err(format!("Failed to fetch cluster configuration\nCLUSTER SLOTS ERROR: {error}"));
    }
    slot_ranges(&reply, address).ok_or_else(|| "Failed to fetch cluster configuration".to_string())
}

/// A connection that has logged in.
pub fn open(address: &Address, login: &Login, dial: Dial) -> Fallible<Connection> {
    let mut connection = Connection::open(address, dial)
        .map_err(|why| format!("Could not connect to server at {address}: {}", crate::text::reason(&why)))?;
    if let Some(command) = login.command() {
        match connection.call(&command) {
            Ok(Value::Error(error)) => {
                let error = String::from_utf8_lossy(&error);
                return Err(format!("Node {address} replied with error:\n{error}"));
            }
            Ok(_) => {}
            Err(_) => return Err(format!("ERROR: failed to fetch reply from {address}")),
        }
    }
    Ok(connection)
}

fn nodes_of(ranges: &[SlotRange], read_from: ReadFrom) -> Vec<Node> {
    let mut places: HashMap<&str, usize> = HashMap::new();
    let mut list: Vec<Node> = Vec::new();
    for range in ranges {
        let primary = [(&range.primary, &range.primary_id, false)];
        let replicas = range.replicas.iter().map(|(address, id)| (address, id, true));
        for (address, id, replica) in primary.into_iter().chain(replicas) {
            let wanted = match read_from {
                ReadFrom::Primaries => !replica,
                ReadFrom::Replicas => replica,
                ReadFrom::All => true,
            };
            if !wanted {
                continue;
            }
            let at = *places.entry(id).or_insert_with(|| {
                list.push(Node { address: address.clone(), id: id.clone(), replica, slots: Vec::new() });
                list.len() - 1
            });
            list[at].slots.extend(range.first..=range.last);
        }
    }
    list
}

/// At most three characters that lead to a slot.
pub fn tag_of(slot: u16) -> &'static [u8] {
    static TAGS: OnceLock<Vec<Vec<u8>>> = OnceLock::new();
    &TAGS.get_or_init(tags)[usize::from(slot)]
}

/// Tries short words in turn: 62 + 62^2 + 62^3 = 242,234 of them for 16,384 slots.
fn tags() -> Vec<Vec<u8>> {
    let characters: Vec<u8> = (b'0'..=b'9').chain(b'A'..=b'Z').chain(b'a'..=b'z').collect();
    let longer = |words: &[Vec<u8>]| -> Vec<Vec<u8>> {
        words
            .iter()
            .flat_map(|word| characters.iter().map(move |&character| [&word[..], &[character]].concat()))
            .collect()
    };
    let one = longer(&[Vec::new()]);
    let two = longer(&one);
    let three = longer(&two);
    let mut tags = vec![Vec::new(); Slot::COUNT];
    for word in one.into_iter().chain(two).chain(three) {
        let tag = &mut tags[Slot::of_key(&word).index()];
        if tag.is_empty() {
            *tag = word;
        }
    }
    tags
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_slot_has_a_tag() {
        for slot in Slot::all() {
            let tag = tag_of(slot.get());
            assert!((1..=3).contains(&tag.len()), "{slot:?}");
            assert_eq!(Slot::of_key(&[b"key:{", tag, b"}}}"].concat()), slot);
        }
    }

    #[test]
    fn nodes_by_their_part() {
        let range = |first, last, primary: &str, replica: &str| SlotRange {
            first,
            last,
            primary: Address::tcp(primary, 1),
            primary_id: primary.to_string(),
            replicas: vec![(Address::tcp(replica, 1), replica.to_string())],
        };
        let ranges = [range(0, 1, "a", "x"), range(2, 2, "b", "y"), range(3, 3, "a", "x")];
        let shown = |read_from| {
            let nodes = nodes_of(&ranges, read_from);
            nodes.iter().map(|node| format!("{}{:?}", node.id, node.slots)).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(shown(ReadFrom::Primaries), "a[0, 1, 3] b[2]");
        assert_eq!(shown(ReadFrom::Replicas), "x[0, 1, 3] y[2]");
        assert_eq!(shown(ReadFrom::All), "a[0, 1, 3] x[0, 1, 3] b[2] y[2]");
    }
}
