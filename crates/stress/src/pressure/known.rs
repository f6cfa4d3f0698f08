//! Cells that are known to fail, with the reason. An empty table is the aim: what stands here is a fault of the server.
//!
//! CI leaves them out; `--known yes` runs them too, and says which of them hold by now.

use super::cell::{Cell, Disk, Policy, Workload};

pub struct Known {
    /// `None`: any.
    pub workload: Option<Workload>,
    pub policy: Option<Policy>,
    pub disk: Option<Disk>,
    pub reason: &'static str,
}

const KNOWN: &[Known] = &[];

impl Known {
    fn is(&self, cell: &Cell) -> bool {
        self.workload.is_none_or(|workload| workload == cell.workload)
            && self.policy.is_none_or(|policy| policy == cell.policy)
            && self.disk.is_none_or(|disk| disk == cell.disk)
    }
}

/// Returns why the cell is known to fail, if it is.
pub fn reason(cell: &Cell) -> Option<&'static str> {
    KNOWN.iter().find(|known| known.is(cell)).map(|known| known.reason)
}
