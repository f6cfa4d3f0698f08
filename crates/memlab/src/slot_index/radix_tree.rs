//! Redis 4.0: a radix tree of 2 bytes of slot and the key, as it was in 2017.
//!
//! ```text
//!   node  [flags and size 4][characters][pointers 8 each]
//!           branching: a pointer for each character, in order of the characters
//!           compressed: a run of characters and one pointer
//!           leaf: nothing more, 4 B, for which jemalloc gives 8
//! ```
//!
//! All keys of a tree have one length here, so no key ends inside another, and a key ends at a leaf. (The
//! tree of 2020 pads the characters to the alignment of pointers; the classes of both allocators make that
//! the same memory.)

use super::nodes::{Nodes, POINTER};

const HEAD: usize = 4;
const COMPRESSED: u32 = 1;
const KEY: u32 = 2;
const SIZE_SHIFT: u32 = 2;

pub struct RadixTree {
    nodes: Nodes,
    keys: u64,
}

/// End of a walk.
enum End {
    /// The key is there.
    Found,
    /// No way on from this node; `behind` characters of the key have been passed.
    Stuck { node: u64, behind: usize },
    /// The run of this node differs from the key at `split`.
    Inside { node: u64, behind: usize, split: usize },
}

impl RadixTree {
    pub fn new(nodes: usize) -> RadixTree {
        let mut nodes = Nodes::new(nodes);
        nodes.add(HEAD);
        RadixTree { nodes, keys: 0 }
    }

    pub fn nodes(&self) -> usize {
        self.nodes.len()
    }

    pub fn keys(&self) -> u64 {
        self.keys
    }

    pub fn insert(&mut self, key: &[u8]) {
        match self.walk(key) {
            End::Found => return,
            End::Stuck { node, behind } => self.grow(node, &key[behind..]),
            End::Inside { node, behind, split } => {
                let branch = self.split(node, split);
                self.grow(branch, &key[behind..]);
            }
        }
        self.keys += 1;
    }

    fn walk(&self, key: &[u8]) -> End {
        let (mut node, mut behind) = (0, 0);
        while behind < key.len() {
            let characters = self.characters(node);
            if self.is_compressed(node) {
                let same = characters.iter().zip(&key[behind..]).take_while(|(a, b)| a == b).count();
                if same < characters.len() {
                    return End::Inside { node, behind: behind + same, split: same };
                }
                behind += same;
                node = self.child(node, 0);
            } else {
                let Some(at) = characters.iter().position(|&c| c == key[behind]) else {
                    return End::Stuck { node, behind };
                };
                behind += 1;
                node = self.child(node, at);
            }
        }
        End::Found
    }

    /// Adds what is left of a key below a node that does not go on with it.
    fn grow(&mut self, mut node: u64, mut rest: &[u8]) {
        while !rest.is_empty() {
            let run = if self.characters(node).is_empty() && rest.len() > 1 { rest.len() } else { 1 };
            let leaf = self.nodes.add(HEAD);
            if run > 1 {
                self.write(node, COMPRESSED, rest, &[leaf]);
            } else {
                self.add_child(node, rest[0], leaf);
            }
            (node, rest) = (leaf, &rest[run..]);
        }
        let head = self.head(node) | KEY;
        self.nodes.bytes_mut(node)[..HEAD].copy_from_slice(&head.to_le_bytes());
    }

    fn add_child(&mut self, node: u64, character: u8, child: u64) {
        let mut characters = self.characters(node).to_vec();
        let mut children: Vec<u64> = (0..characters.len()).map(|at| self.child(node, at)).collect();
        let at = characters.partition_point(|&c| c < character);
        characters.insert(at, character);
        children.insert(at, child);
        self.write(node, 0, &characters, &children);
    }

    /// Cuts a run at `split`: what is before it stays in the node, then a node that can branch, then what is
    /// after it. Returns the one that can branch.
    fn split(&mut self, node: u64, split: usize) -> u64 {
        let run = self.characters(node).to_vec();
        let mut below = self.child(node, 0);
        if split + 1 < run.len() {
            let after = self.nodes.add(HEAD);
            self.write_run(after, &run[split + 1..], below);
            below = after;
        }
        if split == 0 {
            self.write(node, 0, &run[..1], &[below]);
            return node;
        }
        let branch = self.nodes.add(HEAD);
        self.write(branch, 0, &run[split..=split], &[below]);
        self.write_run(node, &run[..split], branch);
        branch
    }

    /// A run of one character is a branch of one.
    fn write_run(&mut self, node: u64, run: &[u8], child: u64) {
        let kind = if run.len() > 1 { COMPRESSED } else { 0 };
        self.write(node, kind, run, &[child]);
    }

    fn write(&mut self, node: u64, kind: u32, characters: &[u8], children: &[u64]) {
        let head = (characters.len() as u32) << SIZE_SHIFT | kind;
        let mut bytes = Vec::with_capacity(HEAD + characters.len() + children.len() * POINTER);
        bytes.extend_from_slice(&head.to_le_bytes());
        bytes.extend_from_slice(characters);
        children.iter().for_each(|child| bytes.extend_from_slice(&child.to_le_bytes()));
        self.nodes.replace(node, bytes.into_boxed_slice());
    }

    fn head(&self, node: u64) -> u32 {
        u32::from_le_bytes(self.nodes.bytes(node)[..HEAD].try_into().expect("a head has 4 bytes"))
    }

    fn is_compressed(&self, node: u64) -> bool {
        self.head(node) & COMPRESSED != 0
    }

    fn characters(&self, node: u64) -> &[u8] {
        let size = (self.head(node) >> SIZE_SHIFT) as usize;
        &self.nodes.bytes(node)[HEAD..HEAD + size]
    }

    fn child(&self, node: u64, at: usize) -> u64 {
        self.nodes.pointer(node, HEAD + self.characters(node).len() + at * POINTER)
    }
}

/// Returns the expected number of nodes for `slots` slots of `keys` random ids of hexadecimal digits each: a
/// node for each key's own rest and leaf, and one for each place where two keys of a slot part.
pub fn expected_nodes(slots: u64, keys: u64) -> f64 {
    const DIGITS: f64 = 16.0;
    /// Nodes above: the root, and those of the two bytes of the slot.
    const ABOVE: f64 = 23.0;
    let m = keys as f64;
    let mut branches = 0.0;
    for depth in 0..=32 {
        let places = DIGITS.powi(depth);
        let p = 1.0 / places;
        // The chance that a place has two keys at least; near 0 it is m (m - 1) p p / 2.
        let several = if m * p < 1e-4 {
            m * (m - 1.0) / 2.0 * p * p
        } else {
            1.0 - (m * (-p).ln_1p()).exp() - m * p * ((m - 1.0) * (-p).ln_1p()).exp()
        };
        branches += places * several.max(0.0);
    }
    2.0 * (slots * keys) as f64 + slots as f64 * branches + ABOVE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_million_numbers_have_the_published_nodes() {
        let mut tree = RadixTree::new(20_000);
        (0..10_000).for_each(|number| tree.insert(format!("{number:04}").as_bytes()));
        assert_eq!((tree.keys(), tree.nodes()), (10_000, 11_111));
        assert!((0..10_000).all(|number| matches!(tree.walk(format!("{number:04}").as_bytes()), End::Found)));
    }

    #[test]
    fn every_key_is_found_and_no_other() {
        use isotherm_stdx::Prng;
        let mut prng = Prng::new(5);
        let mut tree = RadixTree::new(20_000);
        let mut keys: Vec<Vec<u8>> =
            (0..2000).map(|_| (0..6).map(|_| b'a' + prng.below(3) as u8).collect()).collect();
        keys.iter().for_each(|key| tree.insert(key));
        keys.sort();
        keys.dedup();
        assert_eq!(tree.keys(), keys.len() as u64);
        for _ in 0..2000 {
            let key: Vec<u8> = (0..6).map(|_| b'a' + prng.below(4) as u8).collect();
            assert_eq!(matches!(tree.walk(&key), End::Found), keys.binary_search(&key).is_ok());
        }
    }

    #[test]
    fn the_formula_of_the_document() {
        // Its 15,001,367 keys: 35,066,975 nodes published.
        let expected = expected_nodes(5461, 2747);
        assert!((35.07e6..35.09e6).contains(&expected), "{expected}");
    }
}
