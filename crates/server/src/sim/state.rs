//! The data of a keyspace as a map from keys to hashes, with what has expired and was not removed yet.

use isotherm_codec::add_value;
use isotherm_commands::call::{ColdKey, ColdKeys};
use isotherm_keyspace::{
    Conditions, Db, Element, End, Entry, ExpiryMode, Held, NoEffects, NodeHand, TextRoom, Txn, UnixMs, Value,
    Want,
};
use isotherm_stdx::sha1::Digest;
use std::collections::BTreeMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

use isotherm_node::Node;

/// A database and a key in it.
pub type Name = (u16, Vec<u8>);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeyState {
    pub value: u64,
    pub expiry_ms: Option<i64>,
    /// A hash whose fields may leave by themselves.
    pub has_timed_fields: bool,
}

pub type State = BTreeMap<Name, KeyState>;

/// Returns the share of a key in the digest of a state.
pub fn share(name: &Name, state: &KeyState) -> u64 {
    let mut hasher = DefaultHasher::new();
    (name, state.value, state.expiry_ms).hash(&mut hasher);
    hasher.finish()
}

pub fn digest(state: &State) -> u64 {
    state.iter().fold(0, |digest, (name, key)| digest ^ share(name, key))
}

/// Parts of collections come to memory for it, as for DEBUG DIGEST: they are what they were when they left,
/// so they leave again unwritten.
pub fn of(node: &Node) -> State {
    let mut held = Held::new(&node.keyspace);
    held.acquire(Want::All);
    fetch_nodes(node, &mut held);
    // At this time nothing has expired, neither keys nor fields.
    let conditions = Conditions { now: UnixMs(0), expiry_mode: ExpiryMode::Keep, no_touch: true };
    let mut effects = NoEffects;
    let mut txn = Txn::new(&mut held, conditions, &mut effects);
    let mut state = State::new();
    for db in (0..txn.databases()).map(Db) {
        let mut cursor = 0;
        while !txn.is_empty(db) {
            cursor = txn.scan(
                db,
                cursor,
                100_000,
                None,
                |_, _| true,
                |key, entry| _ = state.insert((db.0, key.to_vec()), read_state(node, key, entry)),
            );
            if cursor == 0 {
                break;
            }
        }
    }
    state
}

fn fetch_nodes(node: &Node, held: &mut Held<'_>) {
    let Some(tier) = node.tier() else { return };
    let mut nodes = Vec::new();
    let mut hand = NodeHand::default();
    while hand.rounds == 0 {
        hand.show_away(held, u64::MAX, &mut |node, _| nodes.push(ColdKey::of_node(node)));
    }
    tier.fetch_held(held, &ColdKeys { keys: nodes }, true);
}

/// Reads the state of a key whose value is in memory or on disk.
fn read_state(node: &Node, key: &[u8], entry: &Entry<'_>) -> KeyState {
    let Value::Cold(cold) = entry.value else { return key_state(entry) };
    let tier = node.tier().expect("values leave memory to a disk");
    let bytes = tier.read_again(cold.reference, key).expect("an entry refers to it");
    let read = cold.with_bytes(&bytes);
    let mut entry = *entry;
    entry.value = read.value();
    key_state(&entry)
}

fn key_state(entry: &Entry<'_>) -> KeyState {
    let mut hasher = DefaultHasher::new();
    let mut has_timed_fields = false;
    format!("{:?}", entry.kind()).hash(&mut hasher);
    match &entry.value {
        Value::Cold(cold) => cold.not_fetched(),
        Value::Int(int) => text(Element::Int(*int)).hash(&mut hasher),
        Value::Bytes(bytes) => bytes.to_vec().hash(&mut hasher),
        Value::List(list) => list.iter(0, End::Front).for_each(|element| text(element).hash(&mut hasher)),
        Value::Set(set) => {
            let mut sum = 0u64;
            set.for_each(|member| sum = sum.wrapping_add(hash_of(text(member))));
            sum.hash(&mut hasher);
        }
        Value::Hash(hash) => {
            let mut sum = 0u64;
            hash.for_each_with_expiry(|field, value, expiry| {
                has_timed_fields |= expiry.is_some();
                sum = sum.wrapping_add(hash_of((text(field), text(value), expiry.map(|at| at.0))));
            });
            sum.hash(&mut hasher);
        }
        Value::Zset(zset) => {
            let mut sum = 0u64;
            zset.for_each(0, zset.len(), true, |member, score| {
                // There is one zero.
                let bits = (score + 0.0).to_bits();
                sum = sum.wrapping_add(hash_of((text(member), bits)));
            });
            sum.hash(&mut hasher);
        }
        Value::Stream(_) => {
            let mut own = Digest::default();
            add_value(&mut own, entry);
            own.hash(&mut hasher);
        }
    }
    KeyState { value: hasher.finish(), expiry_ms: entry.expiry.map(|at| at.0), has_timed_fields }
}

fn text(element: Element<'_>) -> Vec<u8> {
    element.text(&mut TextRoom::default()).to_vec()
}

fn hash_of(value: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}
