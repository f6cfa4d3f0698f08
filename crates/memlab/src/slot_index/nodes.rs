//! The nodes of a model: blocks of exactly the size that the C structure asks malloc for, known by number.
//!
//! A pointer inside a node takes 8 bytes, as it does in C, and holds the number. A table says where the
//! blocks are, that is touched before measuring begins, so it is in no figure.

pub const POINTER: usize = 8;

pub struct Nodes {
    blocks: Vec<Box<[u8]>>,
    used: usize,
}

impl Nodes {
    /// Creates room for at most `capacity` nodes. An empty block is not an allocation.
    pub fn new(capacity: usize) -> Nodes {
        Nodes { blocks: vec![Box::default(); capacity], used: 0 }
    }

    pub fn len(&self) -> usize {
        self.used
    }

    pub fn add(&mut self, bytes: usize) -> u64 {
        assert!(self.used < self.blocks.len(), "the model has more nodes than were expected");
        self.blocks[self.used] = vec![0; bytes].into_boxed_slice();
        self.used += 1;
        self.used as u64 - 1
    }

    /// Replaces the bytes of a node. The caller has copied or dropped the old ones.
    pub fn replace(&mut self, node: u64, bytes: Box<[u8]>) {
        self.blocks[node as usize] = bytes;
    }

    pub fn bytes(&self, node: u64) -> &[u8] {
        &self.blocks[node as usize]
    }

    pub fn bytes_mut(&mut self, node: u64) -> &mut [u8] {
        &mut self.blocks[node as usize]
    }

    pub fn pointer(&self, node: u64, at: usize) -> u64 {
        let bytes = &self.blocks[node as usize][at..at + POINTER];
        u64::from_le_bytes(bytes.try_into().expect("a pointer has 8 bytes"))
    }

    pub fn set_pointer(&mut self, node: u64, at: usize, to: u64) {
        self.blocks[node as usize][at..at + POINTER].copy_from_slice(&to.to_le_bytes());
    }
}
