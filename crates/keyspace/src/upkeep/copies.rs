//! Copies give way: what is in memory though the keeper has it too, and nothing but time is lost with it.
//!
//! ```text
//!   lent    bytes beside a cold entry: the next command that needs them reads them again
//!   clean   a node that came back and was not changed since: its record is there, it need not be written
//! ```
//! What a command has just been given stays until that has run (`Cold::take_oldest`, `Cold::was_given`).

use crate::access::lock::Held;
use isotherm_stdx::UnixMs;

/// Copies that have left memory.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct DroppedCopies {
    pub lent: usize,
    pub clean: usize,
}

impl Held<'_> {
    /// Drops some copies of a partition that is held: values that are lent beyond `lent_bytes_max`, and nodes
    /// if that is 0.
    pub fn drop_copies(
        &mut self,
        number: u16,
        lent_bytes_max: usize,
        count_max: usize,
        now: UnixMs,
    ) -> DroppedCopies {
        let partition = self.numbered(number);
        let cold = &mut partition.store.cold;
        let lent = (0..count_max).take_while(|_| cold.take_oldest(lent_bytes_max, now).is_some()).count();
        if lent_bytes_max > 0 || !cold.has_clean() {
            return DroppedCopies { lent, clean: 0 };
        }
        let names = cold.some_clean(count_max, now);
        let clean = names.into_iter().filter(|name| partition.chill_clean_node(*name, now)).count();
        DroppedCopies { lent, clean }
    }
}
