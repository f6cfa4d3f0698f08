//! Keys that a handler may resolve, in builds with assertions: those that the key finder of its declaration
//! names for these arguments, each as its flags allow. So rights (ACL), slots (cluster), COMMAND GETKEYS,
//! locks and handlers have one reader of the arguments.
//!
//! ```text
//!   INSERT, DELETE or UPDATE of a key spec       may be changed, which is what rights to write are asked for
//!   other keys                                  may be read
//!   BY and GET of SORT (Begin::Unknown, RO)     any key may be read, if `may_read_all` allows it
//!   no key specs, Reach::All (SCAN, FLUSHALL)   any key
//!   arguments that make no sense                none: the handler refuses them before it looks at a key
//! ```
//! Commands of scripts and transactions are restricted one by one.

use crate::spec::{Begin, KeyFlags, Reach, Spec, key_positions};
use isotherm_keyspace::Held;
use isotherm_resp::Args;

/// Commands whose keys are declared as read, as in Valkey, though they change what belongs to them:
/// consumer groups, and the estimate and the form of a HyperLogLog.
const CHANGE_WHAT_THEY_READ: [&str; 3] = ["xreadgroup", "pfcount", "pfdebug"];

/// Restricts what is resolved until `Held::unrestrict` to what a command of these arguments may.
pub fn restrict(held: &mut Held<'_>, spec: &'static Spec, args: Args<'_>) {
    if !cfg!(debug_assertions) || spec.key_specs.is_empty() && spec.reach != Reach::Keys {
        return held.unrestrict();
    }
    let mut positions = Vec::new();
    // Nothing is appended on an error.
    let _ = key_positions(spec, args, &mut positions);
    let reads_others =
        spec.key_specs.iter().any(|keys| keys.begin == Begin::Unknown && keys.flags.has(KeyFlags::RO));
    let changes_all = CHANGE_WHAT_THEY_READ.contains(&spec.name);
    let may_change = |flags: KeyFlags| {
        changes_all || flags.has(KeyFlags::INSERT.or(KeyFlags::DELETE).or(KeyFlags::UPDATE))
    };
    let named = positions.iter().map(|(at, flags)| (args.get(*at), may_change(*flags)));
    held.restrict(spec.name, named, reads_others);
}
