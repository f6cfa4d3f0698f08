//! Any sequence of allocate, release, reallocate, compaction and trim, in an arena so small that it is often
//! full: no object loses its contents, no two overlap, and the accounting adds up.
#![no_main]

use isotherm_arena::{Arena, ArenaConfig, Handle, Kind, Victim, class_bytes};
use libfuzzer_sys::fuzz_target;
use std::collections::BTreeMap;

struct Object {
    kind: Kind,
    len: usize,
    owner: u16,
    stamp: u64,
}

struct Model {
    arena: Arena,
    objects: BTreeMap<Handle, Object>,
    stamps: u64,
}

fuzz_target!(|input: &[u8]| {
    let arena = Arena::new(ArenaConfig { reserve_bytes: 1 << 20 }).expect("1 MB of address space");
    let mut model = Model { arena, objects: BTreeMap::new(), stamps: 0 };
    for (step, bytes) in input.chunks_exact(4).enumerate() {
        let [what, x, low, high] = [bytes[0], bytes[1], bytes[2], bytes[3]];
        let number = usize::from(low) | usize::from(high) << 8;
        match what % 16 {
            0..7 => model.allocate(x, number),
            7..10 => model.release(number),
            10..13 => model.reallocate(number, usize::from(x) * 33),
            13 | 14 => model.evacuate(usize::from(x) % 40, number),
            _ if x & 1 == 0 => model.arena.finish_evacuation(),
            _ => drop(model.arena.trim(usize::from(x) / 8)),
        }
        if step % 128 == 127 {
            model.check();
        }
    }
    model.check();
    for handle in model.objects.into_keys() {
        model.arena.release(handle);
    }
    model.arena.check_invariants();
    assert_eq!(model.arena.stats().slab_bytes, 0);
});

impl Model {
    fn allocate(&mut self, x: u8, number: usize) {
        let (kind, bytes_max) = match x % 5 {
            0 | 1 => (Kind::Page, isotherm_arena::OBJECT_BYTES_MAX),
            2 | 3 => (Kind::Blob, isotherm_arena::BLOB_BYTES_MAX),
            _ => (Kind::Index, isotherm_arena::OBJECT_BYTES_MAX),
        };
        // Half of the sizes are few, so that slabs fill up.
        let len = if x & 0x80 == 0 { (number % 6) * 320 } else { number % (bytes_max + 1) };
        let owner = number as u16 ^ u16::from(x);
        if let Ok(block) = self.arena.allocate(kind, len, owner) {
            assert_eq!(block.bytes, class_bytes(kind, len));
            self.put(block.handle, Object { kind, len, owner, stamp: 0 });
        }
    }

    fn release(&mut self, number: usize) {
        if let Some((handle, object)) = self.take(number) {
            self.expect(handle, object.len, object.stamp);
            self.arena.release(handle);
            assert!(!self.arena.is_live(handle, object.owner));
        }
    }

    fn reallocate(&mut self, number: usize, len: usize) {
        let Some((handle, object)) = self.take(number) else { return };
        let len =
            if object.kind == Kind::Blob { len % (isotherm_arena::BLOB_BYTES_MAX + 1) } else { len % 8225 };
        let used = object.len.min(len);
        match self.arena.reallocate(handle, object.owner, used, len) {
            Ok(block) => {
                self.expect(block.handle, used, object.stamp);
                self.put(block.handle, Object { len, ..object });
            }
            Err(_) => {
                assert!(class_bytes(object.kind, len) != class_bytes(object.kind, object.len));
                self.expect(handle, object.len, object.stamp);
                self.objects.insert(handle, object);
            }
        }
    }

    fn evacuate(&mut self, objects_max: usize, skip: usize) {
        let mut victims: Vec<Victim> = Vec::new();
        if !self.arena.victims(&mut victims, objects_max) {
            return;
        }
        for (i, victim) in victims.into_iter().enumerate() {
            let object = self.objects.remove(&victim.handle).expect("a victim is a live object");
            assert_eq!((victim.kind, victim.owner), (object.kind, object.owner));
            assert!(object.kind != Kind::Index && self.arena.is_live(victim.handle, object.owner));
            let mut handle = victim.handle;
            if skip >> (i % 16) & 1 == 0 {
                handle = self
                    .arena
                    .reallocate(handle, object.owner, object.len, victim.bytes)
                    .expect("within its class")
                    .handle;
                self.expect(handle, object.len, object.stamp);
            }
            assert!(self.objects.insert(handle, object).is_none());
        }
    }

    fn take(&mut self, number: usize) -> Option<(Handle, Object)> {
        let from = Handle::from_raw(1024 + number as u32)?;
        let handle = *self.objects.range(from..).next().or_else(|| self.objects.iter().next())?.0;
        self.objects.remove_entry(&handle)
    }

    fn put(&mut self, handle: Handle, mut object: Object) {
        self.stamps += 1;
        object.stamp = self.stamps;
        // SAFETY: the object is live, and this is the only thread.
        let bytes = unsafe { self.arena.bytes_mut(handle, object.len) };
        bytes.iter_mut().enumerate().for_each(|(i, byte)| *byte = expected(object.stamp, i));
        assert!(self.objects.insert(handle, object).is_none(), "a live object was given out again");
    }

    fn expect(&self, handle: Handle, len: usize, stamp: u64) {
        // SAFETY: as above.
        let bytes = unsafe { self.arena.bytes(handle, len) };
        assert!(bytes.iter().enumerate().all(|(i, &byte)| byte == expected(stamp, i)), "contents differ");
    }

    fn check(&self) {
        self.arena.check_invariants();
        let (mut end, mut live_bytes) = (0, 0);
        for (&handle, object) in &self.objects {
            let (start, bytes) = (handle.raw() as usize * 16, class_bytes(object.kind, object.len));
            assert!(start >= end, "two objects overlap");
            end = start + bytes;
            live_bytes += bytes as u64;
            self.expect(handle, object.len, object.stamp);
            assert_eq!(self.arena.owner(handle), object.owner);
        }
        assert_eq!(self.arena.live_bytes(), live_bytes);
        assert_eq!(self.arena.stats().live_objects, self.objects.len() as u64);
    }
}

fn expected(stamp: u64, i: usize) -> u8 {
    (stamp as u8).wrapping_mul(31).wrapping_add((i >> 5) as u8).wrapping_add(i as u8)
}
