//! DUMP: a value as bytes that RESTORE takes, here and elsewhere.

use crate::spec::*;
use crate::{Call, Handler, Outcome};
use isotherm_keyspace::Lookup;

pub const DUMP: Command<Handler> = Command::new(
    Spec {
        name: "dump",
        summary: "Returns a value in the form that RESTORE takes; null for an absent key.",
        since: "2.6.0",
        complexity: "O(N*M), N the elements of the value and M their mean size",
        arity: 2,
        flags: Flags::READONLY,
        acl: AclCategories::KEYSPACE,
        key_specs: &[KeySpec::one(1, KeyFlags::RO.or(KeyFlags::ACCESS))],
        tips: &["nondeterministic_output"],
        arguments: &[Argument::key("key", 0)],
        ..Spec::BASE
    },
    dump,
);

fn dump(call: &mut Call<'_, '_, '_>) -> Outcome {
    let key = call.key(1);
    let settings = call.settings;
    let payload = call
        .txn
        .find(call.db, &key, Lookup::Read)
        .and_then(|entry| isotherm_codec::dump(&entry, &settings.limits, settings.transfer.compress));
    match payload {
        Some(payload) => call.reply.bulk(&payload),
        None => {
            call.reply.null();
        }
    }
    Outcome::Done
}
