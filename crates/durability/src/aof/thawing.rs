//! Frozen keys that commands of a log are about to name come to memory, together.

use isotherm_keyspace::{Db, Key};

use super::applier::Applier;

/// Thaws these keys. Nothing is held afterwards. A thread that holds everything keeps doing so, and its
/// commands read by themselves.
pub fn thaw<'k>(applier: &mut Applier, keys: impl Iterator<Item = (Db, Key<'k>)>) {
    let node = applier.node();
    let tier = node.tier().filter(|tier| !applier.is_within() && tier.may_have_frozen());
    if let Some(tier) = tier {
        applier.release();
        let keys: Vec<_> = keys.collect();
        applier.together.thaw((&node.keyspace, tier), &keys);
    }
}
