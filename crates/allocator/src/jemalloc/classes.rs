//! Contents of each small class in all arenas, and how often its threads' caches and its lock were busy.

use std::fmt::Write as _;

use tikv_jemalloc_ctl::epoch;

use super::control::{ALL_ARENAS, read};
use crate::{Class, ClassUse};

/// The small classes: what is larger is a multiple of pages by itself.
pub fn classes() -> Vec<Class> {
    let class = |number: u32| {
        Some(Class {
            size_bytes: read(&format!("arenas.bin.{number}.size"))?,
            slab_bytes: read(&format!("arenas.bin.{number}.slab_size"))?,
        })
    };
    (0..read("arenas.nbins").unwrap_or(0)).filter_map(class).collect()
}

/// The small classes that hold something.
pub fn class_uses() -> Vec<ClassUse> {
    let _ = epoch::advance();
    // A control that this jemalloc does not have ends the list rather than reporting zeros.
    let all = (0..read("arenas.nbins").unwrap_or(0)).map_while(class_use);
    all.filter(|class| class.slabs > 0).collect()
}

fn class_use(class: u32) -> Option<ClassUse> {
    let of = |field: &str| format!("stats.arenas.{ALL_ARENAS}.bins.{class}.{field}");
    Some(ClassUse {
        size_bytes: read::<usize>(&format!("arenas.bin.{class}.size"))? as u64,
        blocks_per_slab: read::<u32>(&format!("arenas.bin.{class}.nregs"))?.into(),
        blocks: read::<usize>(&of("curregs"))? as u64,
        slabs: read::<usize>(&of("curslabs"))? as u64,
        nonfull_slabs: read::<usize>(&of("nonfull_slabs"))? as u64,
        fills: read(&of("nfills"))?,
        flushes: read(&of("nflushes"))?,
        lock_waits: read(&of("mutex.num_wait"))?,
    })
}

/// Returns how often a thread has waited for a lock of the allocator.
pub fn lock_waits() -> Option<u64> {
    let _ = epoch::advance();
    let of = |name: String| read::<u64>(&format!("stats.arenas.{ALL_ARENAS}.{name}.num_wait")).unwrap_or(0);
    let locks = ["large", "extent_avail", "extents_dirty", "extents_muzzy", "extents_retained"];
    let more = ["decay_dirty", "decay_muzzy", "base", "tcache_list"];
    let arenas: u64 = locks.iter().chain(&more).map(|lock| of(format!("mutexes.{lock}"))).sum();
    let bins: u32 = read("arenas.nbins").unwrap_or(0);
    Some(arenas + (0..bins).map(|bin| of(format!("bins.{bin}.mutex"))).sum::<u64>())
}

/// A line a class in use, below jemalloc's own report.
pub fn class_table() -> String {
    let mut text = String::from(
        "--- Size classes in use ---\n    size  regions  allocated_bytes      live    slabs  nonfull  used%      fills    flushes  lock_waits\n",
    );
    for class in class_uses() {
        let ClassUse {
            size_bytes,
            blocks_per_slab,
            blocks,
            slabs,
            nonfull_slabs,
            fills,
            flushes,
            lock_waits,
        } = class;
        let (allocated, used) = (class.allocated_bytes(), class.used_percent());
        let _ = writeln!(
            text,
            "{size_bytes:8} {blocks_per_slab:8} {allocated:16} {blocks:9} {slabs:8} {nonfull_slabs:8} {used:6.1} {fills:10} \
             {flushes:10} {lock_waits:11}"
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::ALONE;

    #[test]
    fn a_class_in_use_is_reported() {
        let _alone = ALONE.lock();
        let blocks: Vec<Vec<u8>> = (0..1000).map(|_| vec![1; 640]).collect();
        let class = class_uses().into_iter().find(|class| class.size_bytes == 640).unwrap();
        assert!(class.blocks >= 1000 && class.fills > 0, "{class:?}");
        assert!(
            class.slabs * class.blocks_per_slab >= class.blocks && class.used_percent() > 50.0,
            "{class:?}"
        );
        let table = class_table();
        let line = table.lines().find(|line| line.trim_start().starts_with("640 ")).unwrap();
        assert_eq!(line.split_whitespace().count(), 10, "{line}");
        drop(blocks);
    }
}
