//! Beginning of a machine: alone under a name of its own, or as nodes.conf has it (clusterInit,
//! clusterLoadConfig).

use super::commit::{Commits, Standing, Todo};
use super::forgotten::Forgotten;
use super::health::Health;
use super::links::Links;
use super::node::{Handle, Node, Nodes};
use super::{Machine, Ms, Now, Settings};
use crate::conf::Conf;
use crate::topology::State;
use crate::{Flags, NodeId, Slot, SlotSet};
use isotherm_stdx::prng::Prng;
use std::collections::BTreeMap;
use std::sync::Arc;

impl Machine {
    /// A node that knows no other. The seed has to be random, or two nodes get one name.
    pub fn new(settings: Settings, seed: u64, now: Now) -> Machine {
        let mut random = Prng::new(seed);
        let mut id = || {
            let words: [u64; 3] = std::array::from_fn(|_| random.next_u64());
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            NodeId::new(bytes[..NodeId::LEN / 2].try_into().expect("24 bytes are enough"))
        };
        let me = Node::new(id(), id(), Flags::MYSELF | Flags::PRIMARY, now.ms);
        let mut nodes = Nodes::default();
        let handle = nodes.add(me).expect("the table is empty");
        let mut machine = Machine::of(settings, random, nodes, handle);
        machine.todo.save_first();
        machine.announce_settings();
        machine
    }

    /// Starts from a file that `conf::read` has found to be consistent.
    pub fn from_conf(settings: Settings, seed: u64, conf: &Conf, now: Now) -> Machine {
        let mut nodes = Nodes::default();
        let mut random = Prng::new(seed);
        for node in &conf.nodes {
            let words: [u64; 3] = std::array::from_fn(|_| random.next_u64());
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            let own = NodeId::new(bytes[..NodeId::LEN / 2].try_into().expect("24 bytes are enough"));
            let mut known = Node::new(node.id, node.shard.unwrap_or(own), node.flags, now.ms);
            known.address = Arc::new(node.address.clone());
            // A replica has its primary's.
            known.config_epoch = if node.primary.is_some() { 0 } else { node.config_epoch };
            // A ping that was sent before the stop is not waited for; but a node that was silent stays
            // suspect.
            known.failed = Ms(now.ms.0);
            nodes.add(known);
        }
        let me =
            conf.nodes.iter().find(|node| node.flags.has(Flags::MYSELF)).expect("a file names this node");
        let handle = nodes.find(&me.id).expect("it was added");
        let mut machine = Machine::of(settings, random, nodes, handle);
        machine.current_epoch =
            conf.nodes.iter().map(|node| node.config_epoch).fold(conf.current_epoch, u64::max);
        machine.last_vote_epoch = conf.last_vote_epoch;
        machine.forgotten = Forgotten::of(&conf.forgotten);
        for node in &conf.nodes {
            let known = machine.nodes.find(&node.id).expect("it was added");
            machine.nodes[known].primary = node.primary.and_then(|id| machine.nodes.find(&id));
            node.slots.iter().for_each(|slot| machine.give(slot, known));
        }
        let find = |machine: &Machine, open: &[(Slot, NodeId)]| -> BTreeMap<Slot, Handle> {
            open.iter().filter_map(|(slot, id)| Some((*slot, machine.nodes.find(id)?))).collect()
        };
        machine.migrating = find(&machine, &me.migrating);
        machine.importing = find(&machine, &me.importing);
        machine.commits.standing = machine.present();
        machine.take_words_of_file();
        machine.announce_settings();
        machine.todo.slots();
        machine
    }

    fn of(settings: Settings, random: Prng, nodes: Nodes, me: Handle) -> Machine {
        Machine {
            settings,
            random,
            nodes,
            me,
            links: Links::default(),
            owners: Box::new([None; Slot::COUNT]),
            owners_version: 0,
            shape: None,
            unclaimed: SlotSet::new(),
            migrating: BTreeMap::new(),
            importing: BTreeMap::new(),
            current_epoch: 0,
            last_vote_epoch: 0,
            forgotten: Forgotten::default(),
            questions: 0,
            followed: None,
            health: Health::new(),
            offset: 0,
            ticks: 0,
            todo: Todo::at_start(),
            commits: Commits::new(Standing::default()),
            generation: 0,
            outputs: Vec::new(),
        }
    }

    pub fn is_ok(&self) -> bool {
        self.health.state == State::Ok
    }
}
