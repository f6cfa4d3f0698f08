//! Parts of large collections that are not in memory: which of them a command needs.
//!
//! A command that only reads meets what it lacks, and runs again (`Exec::missed`). One that changes a
//! collection has the parts in memory before it runs: those of the elements that it names, and those that
//! would be split or merged.

use isotherm_commands::call::ColdKey;
use isotherm_commands::spec::Need;
use isotherm_keyspace::{Db, Held, HeldNode, Key, NodeAt, NodeNeed};
use isotherm_resp::Args;
use isotherm_stdx::Prng;
use std::collections::VecDeque;

/// Clients whose draws are remembered. Of others a command may draw once more.
const DRAWS_MAX: usize = 256;

/// Generators with which random commands drew that have to run again. SRANDMEMBER of a member that is not in
/// memory has to draw the same member again, or it would never end.
#[derive(Default)]
pub(super) struct Draws(VecDeque<(u64, Prng)>);

impl Draws {
    /// A client's command begins: if it runs again it draws as before. Returns the generator that it draws
    /// with.
    pub fn begin(&mut self, prng: &mut Prng, client: u64) -> Prng {
        if let Some(at) = self.0.iter().position(|(other, _)| *other == client) {
            *prng = self.0.remove(at).expect("it was just found").1;
        }
        prng.clone()
    }

    pub fn keep(&mut self, client: u64, prng: Prng) {
        if self.0.len() == DRAWS_MAX {
            self.0.pop_front();
        }
        self.0.push_back((client, prng));
    }
}

/// Adds the parts of a collection that a command needs and that are not in memory. `at` is the argument with
/// its key. Whether all of them can be read, as far as is known.
pub(super) fn find_nodes(
    held: &mut Held<'_>,
    (db, key): (Db, &Key<'_>),
    need: Need,
    (args, at): (Args<'_>, usize),
    reshapes: bool,
    keys: &mut Vec<ColdKey>,
) -> bool {
    let mut has_all = true;
    let need = match need {
        // The arguments after the key name elements, or something else: then a part too many is read.
        Need::Elements => NodeNeed::Of { elements: &args.from(at + 1).iter().collect::<Vec<_>>(), reshapes },
        _ => NodeNeed::All,
    };
    for at in need.away(held, db, key, usize::MAX) {
        let mut node = HeldNode::of(held, at);
        if node.is_unreadable() {
            node.forget_failure();
            has_all = false;
        }
        keys.push(ColdKey::of_node(at));
    }
    has_all
}

/// The part of a collection that has an element, if it is not in memory.
pub(super) fn named_nodes(
    held: &mut Held<'_>,
    (db, key): (Db, &Key<'_>),
    element: Option<&[u8]>,
    visit: &mut dyn FnMut(NodeAt),
) {
    let need = NodeNeed::Of { elements: element.as_slice(), reshapes: false };
    need.away(held, db, key, 1).into_iter().for_each(visit);
}
