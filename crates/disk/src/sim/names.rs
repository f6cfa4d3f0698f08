//! Folders and names: what a program sees, and the changes that are not durable yet.
//!
//! ```text
//! cached    a/x -> 3   a/y -> 4              what `open` and `list` see
//! changes   [link a/t 4] [rename a/t a/y]    in their order, until a sync of their folder
//! durable   a/x -> 3                         what a crash leaves, with some of the changes
//! ```
//! A crash applies a prefix of the changes, or with reordering any of them whose predecessors *of the same
//! name* are applied: a file is never renamed before it was created. A folder that is not durable takes what
//! is in it along.
//!
//! A sync of a folder does not make the folder's own name durable: that is a change of its parent.

use isotherm_stdx::Prng;
use std::collections::BTreeMap;

/// The number of a file: its bytes, whatever its names.
pub type Inode = u64;

/// A path with `/` between its parts and none at its ends; empty for the root.
pub type Name = String;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Node {
    File(Inode),
    Folder,
}

#[derive(Clone, Debug)]
enum Change {
    Link { name: Name, node: Node },
    Unlink { name: Name },
    Rename { from: Name, to: Name },
}

impl Change {
    fn names(&self) -> [&Name; 2] {
        match self {
            Change::Link { name, .. } | Change::Unlink { name } => [name, name],
            Change::Rename { from, to } => [from, to],
        }
    }

    fn shares_a_name(&self, other: &Change) -> bool {
        self.names().iter().any(|name| other.names().contains(name))
    }

    fn is_in(&self, folder: &str) -> bool {
        self.names().iter().any(|name| parent(name) == folder)
    }

    fn apply(self, nodes: &mut BTreeMap<Name, Node>) {
        match self {
            Change::Link { name, node } => _ = nodes.insert(name, node),
            Change::Unlink { name } => _ = nodes.remove(&name),
            Change::Rename { from, to } => {
                let node = nodes.remove(&from).expect("it was created before");
                nodes.insert(to, node);
            }
        }
    }
}

#[derive(Default)]
pub struct Names {
    cached: BTreeMap<Name, Node>,
    durable: BTreeMap<Name, Node>,
    changes: Vec<Change>,
}

impl Names {
    pub fn get(&self, name: &str) -> Option<Node> {
        if name.is_empty() { Some(Node::Folder) } else { self.cached.get(name).copied() }
    }

    /// The names in a folder, without its own.
    pub fn children<'a>(&'a self, folder: &'a str) -> impl Iterator<Item = &'a str> {
        self.cached.keys().filter(move |name| parent(name) == folder).map(|name| last_part(name))
    }

    pub fn link(&mut self, name: &str, node: Node) {
        self.change(Change::Link { name: name.to_string(), node });
    }

    pub fn unlink(&mut self, name: &str) {
        self.change(Change::Unlink { name: name.to_string() });
    }

    pub fn rename(&mut self, from: &str, to: &str) {
        self.change(Change::Rename { from: from.to_string(), to: to.to_string() });
    }

    fn change(&mut self, change: Change) {
        change.clone().apply(&mut self.cached);
        self.changes.push(change);
    }

    /// The changes in this folder are durable, and those before them of the same names.
    pub fn sync(&mut self, folder: &str) {
        let mut is_wanted: Vec<bool> = self.changes.iter().map(|change| change.is_in(folder)).collect();
        for later in (0..self.changes.len()).rev().filter(|at| is_wanted[*at]).collect::<Vec<usize>>() {
            self.want_before(later, &mut is_wanted);
        }
        self.keep(&is_wanted);
    }

    fn want_before(&self, later: usize, is_wanted: &mut [bool]) {
        for at in (0..later).rev() {
            if !is_wanted[at] && self.changes[at].shares_a_name(&self.changes[later]) {
                is_wanted[at] = true;
                self.want_before(at, is_wanted);
            }
        }
    }

    /// Applies the wanted changes to the durable names; the others stay for later.
    fn keep(&mut self, is_wanted: &[bool]) {
        let changes = std::mem::take(&mut self.changes);
        for (change, is_wanted) in changes.into_iter().zip(is_wanted) {
            if *is_wanted {
                change.apply(&mut self.durable);
            } else {
                self.changes.push(change);
            }
        }
    }

    /// Power fails: some of the changes were written.
    pub fn crash(&mut self, is_reordered: bool, prng: &mut Prng) {
        let prefix = prng.below(self.changes.len() as u64 + 1) as usize;
        let mut is_written: Vec<bool> = (0..self.changes.len()).map(|at| at < prefix).collect();
        if is_reordered {
            for at in 0..self.changes.len() {
                let shares = |before: usize| self.changes[before].shares_a_name(&self.changes[at]);
                let is_possible = (0..at).all(|before| is_written[before] || !shares(before));
                is_written[at] = is_possible && prng.one_in(2);
            }
        }
        self.keep(&is_written);
        self.changes.clear();
        // Parents sort before what is in them.
        let mut kept: BTreeMap<Name, Node> = BTreeMap::new();
        for (name, node) in std::mem::take(&mut self.durable) {
            let folder = parent(&name);
            if folder.is_empty() || kept.contains_key(folder) {
                kept.insert(name, node);
            }
        }
        self.cached.clone_from(&kept);
        self.durable = kept;
    }

    /// Files that a program or a crash may still see.
    pub fn inodes(&self) -> impl Iterator<Item = Inode> {
        let pending = self.changes.iter().filter_map(|change| match change {
            Change::Link { node, .. } => Some(node),
            Change::Unlink { .. } | Change::Rename { .. } => None,
        });
        let nodes = self.cached.values().chain(self.durable.values()).chain(pending);
        nodes.filter_map(|node| match node {
            Node::File(inode) => Some(*inode),
            Node::Folder => None,
        })
    }

    pub fn check_invariants(&self) {
        let mut durable = self.durable.clone();
        for change in self.changes.iter().cloned() {
            change.apply(&mut durable);
        }
        assert_eq!(durable, self.cached, "the changes lead from the durable names to the cached ones");
        for name in self.cached.keys() {
            assert_eq!(self.get(parent(name)), Some(Node::Folder), "{name} lies in no folder");
        }
    }
}

pub fn parent(name: &str) -> &str {
    name.rsplit_once('/').map_or("", |(folder, _)| folder)
}

fn last_part(name: &str) -> &str {
    name.rsplit_once('/').map_or(name, |(_, last)| last)
}
