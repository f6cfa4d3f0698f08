//! Warnings about data that exceeds `maxmemory` or the machine: the log says what it needs and what there is.
//!
//! ```text
//!   need = used_memory * bytes of the files / bytes loaded       from a twentieth of them on, once a second
//!   need = used_memory                                           at the end
//! ```
//! A load continues beyond `maxmemory`, as Valkey's does: eviction, or the refusal of writes, begins when the
//! load is over. If the data exceeds the memory of the machine, the kernel ends the process; the files stay
//! as they are.
//!
//! **What this module does not know:** what is loaded, and when it is called.

use isotherm_stdx::units::human_bytes;

use isotherm_node::persistence::Store;
use isotherm_node::process::system;
use isotherm_runtime::log;

/// Below one part in `PART_MIN` of the files the estimate is worth nothing.
const PART_MIN: u64 = 20;

/// Limits of the memory that may be taken.
#[derive(Clone, Copy)]
struct Limits {
    /// `maxmemory`; 0: there is none.
    maxmemory_bytes: u64,
    evicts: bool,
    /// The machine's, or its group's.
    memory_bytes: u64,
}

impl Limits {
    fn of(store: Store<'_>) -> Limits {
        let config = store.config;
        Limits {
            maxmemory_bytes: config.maxmemory_bytes(),
            evicts: config.eviction_policy().is_some(),
            memory_bytes: system::memory_bytes(),
        }
    }
}

/// Warnings of one load that were given already.
#[derive(Default)]
pub struct Room {
    is_maxmemory_noted: bool,
    is_memory_noted: bool,
}

impl Room {
    /// Warns if the data will need too much memory. `used_bytes` are used after `loaded_bytes` of the files.
    pub fn note(&mut self, store: Store<'_>, used_bytes: u64, loaded_bytes: u64, total_bytes: u64) {
        let Some(need) = estimate(used_bytes, loaded_bytes, total_bytes) else { return };
        self.lines(need, "needs about", Limits::of(store)).into_iter().for_each(log::warning);
    }

    fn lines(&mut self, need_bytes: u64, needs: &str, limits: Limits) -> Vec<String> {
        let mut lines = Vec::new();
        let need = human_bytes(need_bytes);
        if need_bytes > limits.memory_bytes && !self.is_memory_noted {
            self.is_memory_noted = true;
            lines.push(format!(
                "WARNING: The data {needs} {need} of memory, and this machine (or control group) has {}: the kernel may end \
                 the process. The files stay as they are.",
                human_bytes(limits.memory_bytes)
            ));
        }
        if limits.maxmemory_bytes > 0 && need_bytes > limits.maxmemory_bytes && !self.is_maxmemory_noted {
            self.is_maxmemory_noted = true;
            let what = if limits.evicts { "keys will be evicted" } else { "writes will be refused" };
            lines.push(format!(
                "WARNING: The data {needs} {need} of memory, and maxmemory is {}: {what} when it is loaded.",
                human_bytes(limits.maxmemory_bytes)
            ));
        }
        lines
    }
}

/// All of the files is loaded.
pub fn warn_of_result(store: Store<'_>, used_bytes: u64) {
    Room::default().lines(used_bytes, "takes", Limits::of(store)).into_iter().for_each(log::warning);
}

/// Estimates the memory that the whole will take; `None` while too little is loaded.
fn estimate(used_bytes: u64, loaded_bytes: u64, total_bytes: u64) -> Option<u64> {
    if loaded_bytes == 0 || loaded_bytes < total_bytes / PART_MIN {
        return None;
    }
    let need = u128::from(used_bytes) * u128::from(total_bytes.max(loaded_bytes)) / u128::from(loaded_bytes);
    u64::try_from(need).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_stands_for_the_whole() {
        assert_eq!(estimate(1000, 10, 1000), None);
        assert_eq!(estimate(1000, 0, 0), None);
        assert_eq!(estimate(1000, 50, 1000), Some(20_000));
        assert_eq!(estimate(1000, 1000, 1000), Some(1000));
        // From a primary that does not say how much comes.
        assert_eq!(estimate(1000, 10, 0), Some(1000));
    }

    #[test]
    fn each_limit_is_named_once_with_need_and_have() {
        let limits = Limits { maxmemory_bytes: 1 << 20, evicts: false, memory_bytes: 1 << 30 };
        let mut room = Room::default();
        assert!(room.lines(1 << 20, "needs about", limits).is_empty());
        let lines = room.lines(3 << 19, "needs about", limits);
        let expected = "WARNING: The data needs about 1.50M of memory, and maxmemory is 1.00M: writes will be refused when it is \
                        loaded.";
        assert_eq!(lines, [expected]);
        assert!(room.lines(2 << 20, "needs about", limits).is_empty());
        assert_eq!(room.lines(2 << 30, "needs about", limits).len(), 1);
        assert!(room.lines(2 << 30, "needs about", limits).is_empty());
        let none = Limits { maxmemory_bytes: 0, evicts: true, memory_bytes: 1 << 30 };
        assert!(Room::default().lines(1 << 29, "takes", none).is_empty());
    }
}
