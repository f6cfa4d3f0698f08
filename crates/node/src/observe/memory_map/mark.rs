//! Figures that MEMORY DIFF MARK keeps.

use isotherm_keyspace::{ClassBreakdown, PrefixShare};

/// Everything at one moment. Some 40 KB at most: 16 databases x 13 classes, and the prefixes that have lines.
#[derive(Debug)]
pub struct Mark {
    pub unix_ms: i64,
    pub used_bytes: i64,
    /// The lines of the memory map.
    pub purposes: Vec<(&'static str, i64)>,
    pub classes: Vec<ClassBreakdown>,
    /// The byte that follows a prefix in its keys.
    pub separator: u8,
    /// Shares of the prefixes of depth 1.
    pub prefixes: Vec<PrefixShare>,
}
