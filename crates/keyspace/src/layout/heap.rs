//! The objects of one partition in its arena, as slices.
//!
//! The arena hands out addresses; this file turns them into references and is the reason why that is sound: a
//! `Heap` belongs to one partition, is reached only through that partition's guard, and only objects that
//! were allocated through it - with its number as owner - are asked of it. `&self` reads, `&mut self` writes,
//! so Rust's own rules keep readers and writers of a partition's objects apart. Two different objects never
//! overlap (the arena's invariant).

#![allow(unsafe_code)]

use crate::layout::entry::BLOB_HEAD_BYTES;
use crate::layout::kind::Full;
use crate::layout::page::{self, HEADER_BYTES, Page};
use isotherm_arena::{Arena, Handle, Kind};
use std::sync::Arc;

pub(crate) struct Heap {
    arena: Arc<Arena>,
    owner: u16,
}

impl Heap {
    pub fn new(arena: Arc<Arena>, owner: u16) -> Heap {
        Heap { arena, owner }
    }

    pub fn arena(&self) -> &Arc<Arena> {
        &self.arena
    }

    #[inline]
    pub fn page(&self, handle: Handle) -> Page<'_> {
        let header = self.bytes(handle, HEADER_BYTES);
        Page(self.bytes(handle, page::class_size(header)))
    }

    #[inline]
    pub fn page_mut(&mut self, handle: Handle) -> &mut [u8] {
        let size = page::class_size(self.bytes(handle, HEADER_BYTES));
        self.bytes_mut(handle, size)
    }

    /// A blob's body (after its hash).
    #[inline]
    pub fn blob(&self, handle: Handle, len: usize) -> &[u8] {
        &self.bytes(handle, BLOB_HEAD_BYTES + len)[BLOB_HEAD_BYTES..]
    }

    #[inline]
    pub fn blob_mut(&mut self, handle: Handle, len: usize) -> &mut [u8] {
        &mut self.bytes_mut(handle, BLOB_HEAD_BYTES + len)[BLOB_HEAD_BYTES..]
    }

    /// The hash in front of a blob, with the slot in its top bits.
    pub fn blob_hash(&self, handle: Handle) -> u64 {
        u64::from_le_bytes(self.bytes(handle, BLOB_HEAD_BYTES).try_into().expect("eight bytes"))
    }

    /// The first `len` bytes of an object of this partition.
    #[inline]
    pub fn bytes(&self, handle: Handle, len: usize) -> &[u8] {
        // SAFETY: the object is this partition's (see the head of the file), `&self` keeps writers out, and
        // callers ask for no more than they allocated.
        unsafe { self.arena.bytes(handle, len) }
    }

    #[inline]
    pub fn bytes_mut(&mut self, handle: Handle, len: usize) -> &mut [u8] {
        // SAFETY: as above; `&mut self` keeps all others out.
        unsafe { self.arena.bytes_mut(handle, len) }
    }

    /// Returns the bytes of one object to read, and those of another one to write.
    pub fn bytes_pair(&mut self, from: (Handle, usize), to: (Handle, usize)) -> (&[u8], &mut [u8]) {
        assert_ne!(from.0, to.0, "two objects");
        // SAFETY: as above, and different objects never overlap.
        unsafe { (self.arena.bytes(from.0, from.1), self.arena.bytes_mut(to.0, to.1)) }
    }

    /// A page to read and another to write.
    #[inline]
    pub fn page_pair(&mut self, from: Handle, to: Handle) -> (Page<'_>, &mut [u8]) {
        let size = |handle| page::class_size(self.bytes(handle, HEADER_BYTES));
        let (from_size, to_size) = (size(from), size(to));
        let (from, to) = self.bytes_pair((from, from_size), (to, to_size));
        (Page(from), to)
    }

    /// A new object; the bytes it really has.
    #[inline]
    pub fn allocate(&mut self, kind: Kind, bytes: usize) -> Result<(Handle, usize), Full> {
        let block = self.arena.allocate(kind, bytes, self.owner).map_err(|_| Full)?;
        Ok((block.handle, block.bytes))
    }

    #[inline]
    pub fn reallocate(&mut self, handle: Handle, used: usize, bytes: usize) -> Result<(Handle, usize), Full> {
        let block = self.arena.reallocate(handle, self.owner, used, bytes).map_err(|_| Full)?;
        Ok((block.handle, block.bytes))
    }

    #[inline]
    pub fn release(&mut self, handle: Handle) {
        self.arena.release(handle);
    }

    /// An empty page with room for entries of `bytes` in all.
    pub fn new_page(
        &mut self,
        entries: usize,
        width: usize,
        bytes: usize,
        version: u8,
        stamp: u16,
    ) -> Result<Handle, Full> {
        let (cap, used) = page::size_for(entries, width, bytes);
        let (handle, size) = self.allocate(Kind::Page, used)?;
        page::init(self.bytes_mut(handle, size), cap, width, version, stamp);
        Ok(handle)
    }

    /// An empty page of an object, which has no access column.
    pub fn new_owned_page(
        &mut self,
        owner: u32,
        entries: usize,
        bytes: usize,
        version: u8,
    ) -> Result<Handle, Full> {
        let page = self.new_page(entries, 0, bytes + page::OWNER_BYTES, version, 0)?;
        page::set_owner(self.page_mut(page), owner);
        Ok(page)
    }

    /// Makes a page of an object, with the used bytes of another object's page.
    pub fn new_page_of(&mut self, owner: u32, used: &[u8], version: u8) -> Result<Handle, Full> {
        let (page, size) = self.allocate(Kind::Page, used.len())?;
        let bytes = self.bytes_mut(page, size);
        bytes[..used.len()].copy_from_slice(used);
        page::set_class(bytes);
        page::set_version(bytes, version);
        page::change_owner(bytes, owner);
        Ok(page)
    }

    /// A body of an object's entry: a node that is found again by its entry's hash.
    pub fn new_node_body(&mut self, owner: u32, hash: u32, len: usize) -> Result<Handle, Full> {
        let (handle, _) = self.allocate(Kind::Node, BLOB_HEAD_BYTES + len)?;
        let head = u64::from(hash) << 32 | u64::from(owner);
        self.bytes_mut(handle, BLOB_HEAD_BYTES).copy_from_slice(&head.to_le_bytes());
        Ok(handle)
    }

    /// Moves a page to the class that `used` bytes need.
    #[inline]
    pub fn resize_page(&mut self, handle: Handle, used: usize, need: usize) -> Result<Handle, Full> {
        let (handle, size) = self.reallocate(handle, used, need)?;
        page::set_class(self.bytes_mut(handle, size));
        Ok(handle)
    }

    pub fn new_blob(&mut self, hash_and_slot: u64, len: usize) -> Result<Handle, Full> {
        let (handle, _) = self.allocate(Kind::Blob, BLOB_HEAD_BYTES + len)?;
        self.bytes_mut(handle, BLOB_HEAD_BYTES).copy_from_slice(&hash_and_slot.to_le_bytes());
        Ok(handle)
    }
}
