//! Requests that are lent to their commands, which store the large argument without a copy.
//!
//! ```text
//!   Lent::lend_to     the request under way, and which part of it is large
//!   Txn::set          a value that is this part: its body is the request; no other value is looked at
//!   Lent::take_back   where it was not stored, the request goes back to who has lent it
//! ```

use crate::access::lock::Held;
use crate::access::txn::Txn;
use crate::layout::key::Key;
use crate::layout::kind::{Db, Expiry, Full, NewValue};
use crate::layout::large::{Lent, Shared};
use crate::layout::page::Spot;

impl Lent {
    /// Lends it to the commands that `work` runs.
    pub fn lend_to<'k, C, R>(
        &self,
        context: &mut C,
        held: impl Fn(&mut C) -> &mut Held<'k>,
        work: impl FnOnce(&mut C) -> R,
    ) -> R {
        held(context).lent = Some(Shared::clone(&self.0));
        let result = work(context);
        held(context).lent = None;
        result
    }
}

/// Stores a value which may be the argument that was lent.
#[cold]
pub(super) fn set_lent(
    txn: &mut Txn<'_, '_>,
    db: Db,
    key: &Key<'_>,
    value: NewValue<'_>,
    expiry: Expiry,
    spot: Option<Spot>,
) -> Result<(), Full> {
    let lent = txn.held.lent.clone();
    txn.held.partition(key.slot).store.lent = lent;
    let done = txn.set_anew(db, key, value, expiry, spot);
    txn.held.partition(key.slot).store.lent = None;
    done
}
