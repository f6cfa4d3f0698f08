//! A pipeline whose next request waits for a value on disk: the values that the requests after it will need
//! are read at once with it.
//!
//! ```text
//!   GET a | GET b | TTL c | APPEND d x | ...      a is cold: its connection is parked
//!           b      (c)      d                     are looked at too, and read if they are cold; c if its key may be frozen
//! ```
//! Reading ahead is a guess: a request may change what those after it mean (SELECT, DEL), and then something
//! was read without effect. Values that were read are lent, so the later requests find them in memory when
//! they run.

use isotherm_commands::call::ColdKey;
use isotherm_commands::spec::Need;
use isotherm_keyspace::{Db, OnCold};

use super::execute::Exec;
use super::nodes::named_nodes;
use super::resolve::{Found, Request};
use isotherm_node::request::entry::Handler;
use isotherm_node::request::next::Ticket;

/// Keys that are read for requests after the one that waits.
const AHEAD_MAX: usize = 32;

/// `ticket` is what the request in front waits for.
#[cold]
pub fn want(exec: &mut Exec, ticket: Ticket, db: Db, requests: &[Request<'_>]) {
    let Exec { node, wanted, locks, held, .. } = exec;
    let may_be_frozen = node.tier().is_some_and(|tier| tier.may_have_frozen());
    let Some((_, wanted)) = wanted.last_mut().filter(|(last, _)| *last == ticket) else { return };
    for request in requests {
        let Found::Command(command) = request.found else { continue };
        if command.on_cold == OnCold::Show
            && !(may_be_frozen && matches!(command.handler, Some(Handler::Data(_))))
        {
            continue;
        }
        let variable = command.spec.variable_key_flags.map(|flags| flags(request.args));
        for (at, flags) in locks.find_keys(command, request.args).unwrap_or_default() {
            if wanted.ahead() >= AHEAD_MAX {
                return;
            }
            let need = command.spec.need_of(variable.unwrap_or(*flags), request.args);
            if need != Need::Nothing || may_be_frozen {
                // Lent, whatever it is for: one that is to be changed comes back to memory when its command
                // runs.
                wanted.add_ahead(ColdKey::of(db, request.args.get(*at), need, false));
            }
            // Of a large collection the part with what it names, if its partition happens to be held: it is
            // where all go to one key.
            if need == Need::Elements && command.element > 0 {
                let key = node.keyspace.key(request.args.get(*at));
                let element = request.args.try_get(usize::from(command.element));
                if held.holds(&key) {
                    named_nodes(held, (db, &key), element, &mut |node| {
                        wanted.add_ahead(ColdKey::of_node(node))
                    });
                }
            }
        }
    }
}
