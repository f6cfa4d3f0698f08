//! Changing the role of the node, at one moment for all commands.
//!
//! ```text
//!   hold everything --> role, history, Tasks::REPLICA, whether commands write the log --> new generation --> let go
//! ```
//! A command that was admitted before, and gets its locks afterwards, finds that the role is another than it was prepared for
//! (`Exec::knows_role`) and asks the gates again.

use isotherm_keyspace::Held;

use super::state::Role;
use crate::mail::tasks::Tasks;
use crate::node::Node;

/// The node takes this role. `held` has all partitions.
pub fn take(node: &'static Node, held: &Held<'static>, role: Role) {
    debug_assert!(held.holds_all(), "commands see one role at a time");
    let follows = matches!(role, Role::Replica(_));
    node.replication.state().role = role;
    node.mail.set_tasks(Tasks::REPLICA, if follows { Tasks::REPLICA } else { Tasks::NONE });
    node.log.set_follows(&node.mail, follows);
    node.config.touch();
}
