//! DUMP: a value as bytes that RESTORE takes, here and elsewhere.

use crate::spec::*;
use crate::{Call, Handler, Outcome};
use isotherm_keyspace::Lookup;

pub const DUMP: Command<Handler> = Command::new(
    Spec {
        name: "dump",
        summary: "Returns a serialized representation of the value stored at a key.",
        since: "2.6.0",
        complexity: "O(1) to access the key and additional O(N*M) to serialize it, where N is the number of objects \
                     composing the value and M their average size. For small string values the time complexity is thus \
                     O(1)+O(1*M) where M is small, so simply O(1).",
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
