//! Everything held while the process may end: by the thread that ends it, or by another that its end must not
//! wait for.
//!
//! A thread that waits here for the end of a script looks whether SHUTDOWN NOSAVE has come meanwhile: that
//! leaves scripts in their middle, and nothing is saved, whichever thread was about to.

use isotherm_keyspace::Held;

use crate::Node;
use isotherm_runtime::routines;

/// Locks everything and releases it: commands that had their locks before have ended. So have scripts, unless
/// they are left in their middle (SHUTDOWN NOSAVE).
pub fn await_commands(node: &'static Node) {
    let mut held = Held::new(&node.keyspace);
    lock_all(node, &mut held);
}

/// Waits as `await_commands` does, and holds everything when it returns.
pub fn lock_all(node: &'static Node, held: &mut Held<'static>) {
    loop {
        if node.process.wish.is_insisted() {
            node.runs.abandon();
        }
        match node.runs.are_abandoned() {
            true => {
                held.acquire_beside_leases();
                return;
            }
            false if held.try_gate() => return,
            false => {
                // The process ends: no script begins any more.
                node.keyspace.ask_for_gate(true);
                routines::pause(routines::LOOK);
            }
        }
    }
}
