//! Members too long for a leaf: shared vectors of the global allocator, known by number.
//!
//! A leaf holds [number u32] in place of such a member. A snapshot that has yet to write one shares it.

use std::sync::Arc;

#[derive(Default, Clone)]
pub(super) struct Longs {
    members: Vec<Option<Arc<[u8]>>>,
    free: Vec<u32>,
    bytes: usize,
}

impl Longs {
    pub fn get(&self, number: u32) -> &[u8] {
        self.slot(number)
    }

    fn slot(&self, number: u32) -> &Arc<[u8]> {
        self.members[number as usize].as_ref().expect("a leaf refers to it")
    }

    pub fn insert(&mut self, member: &[u8]) -> u32 {
        self.bytes += memory_bytes(member);
        let shared = Some(Arc::from(member));
        match self.free.pop() {
            Some(number) => {
                self.members[number as usize] = shared;
                number
            }
            None => {
                self.members.push(shared);
                u32::try_from(self.members.len() - 1).expect("memory ends before 2^32 long members")
            }
        }
    }

    pub fn remove(&mut self, number: u32) {
        let member = self.members[number as usize].take().expect("a leaf referred to it");
        self.bytes -= memory_bytes(&member);
        self.free.push(number);
    }

    /// Drops up to `members_max` of those that are left. Whether none is.
    pub fn free_step(&mut self, members_max: usize) -> bool {
        let keep = self.members.len().saturating_sub(members_max);
        self.members.truncate(keep);
        self.members.is_empty()
    }

    pub fn live(&self) -> usize {
        self.members.len() - self.free.len()
    }

    pub fn memory_bytes(&self) -> usize {
        self.bytes + self.members.capacity() * size_of::<Option<Arc<[u8]>>>()
    }
}

/// The member and its two counts.
fn memory_bytes(member: &[u8]) -> usize {
    16 + member.len()
}
