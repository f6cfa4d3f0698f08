//! Keys by pattern or by chance: KEYS RANDOMKEY.

use crate::spec::*;
use crate::{Call, Handler, Outcome};
use isotherm_resp::Reply;
use isotherm_stdx::{Slot, glob_match};

pub const KEYS: Command<Handler> = Command::new(
    Spec {
        name: "keys",
        summary: "Returns every key that matches a pattern. Prefer SCAN on large databases.",
        complexity: "O(N), N the keys of the database, when keys and pattern are short",
        arity: 2,
        flags: Flags::READONLY,
        acl: AclCategories::DANGEROUS.or(AclCategories::KEYSPACE),
        reach: Reach::All,
        tips: &["request_policy:all_shards", "nondeterministic_output_order"],
        arguments: &[Argument::pattern("pattern")],
        ..Spec::BASE
    },
    keys,
);

fn keys(call: &mut Call<'_, '_, '_>) -> Outcome {
    let pattern = call.args.get(1);
    if call.txn.walks_in_steps() {
        return keys_in_steps(call, pattern);
    }
    let open = call.reply.defer();
    let mut count = 0;
    let reply = &mut *call.reply;
    call.txn.for_each_key(call.db, slot_of_pattern(pattern), |key| {
        if !reply.is_discarded() && (pattern == b"*" || glob_match(pattern, key, false)) {
            reply.bulk(key);
            count += 1;
        }
    });
    call.reply.close_array(open, count);
    Outcome::Done
}

// COMPAT(keys): While keys lie on disk (`swap-freeze`), KEYS goes on in steps between which others run: it
// has each key that is there throughout, once, as SCAN does. SCAN, KEYS and RANDOMKEY answer an error inside
// of scripts where they would have to read, and inside of transactions that would need more than 8 MB of
// records. Why: no client is to wait for the disk of another.
fn keys_in_steps(call: &mut Call<'_, '_, '_>, pattern: &[u8]) -> Outcome {
    let bytes_max = call.reply.bytes_max;
    let mut one = Reply::new(call.reply.proto);
    let found = call.txn.walk(call.db, slot_of_pattern(pattern), usize::MAX, |found, key| {
        // Too much for its client is not kept.
        let is_discarded = bytes_max > 0 && found.len() >= bytes_max;
        let is_wanted = !is_discarded && (pattern == b"*" || glob_match(pattern, key, false));
        if is_wanted {
            std::mem::swap(&mut one.out, found);
            one.bulk(key);
            std::mem::swap(&mut one.out, found);
        }
        is_wanted
    });
    // Without an end it runs again.
    if let Some(found) = found {
        call.reply.array(found.count);
        call.reply.raw(&found.found);
    }
    Outcome::Done
}

/// The only slot in which keys that match may lie: that of a hash tag without anything to match before its
/// end, or that of a pattern which is a whole key.
pub(super) fn slot_of_pattern(pattern: &[u8]) -> Option<Slot> {
    let matches_itself = |byte: &u8| !matches!(byte, b'*' | b'?' | b'[' | b'\\');
    let plain = pattern.iter().take_while(|byte| matches_itself(byte)).count();
    let (plain, rest) = pattern.split_at(plain);
    // COMPAT(keys): KEYS and SCAN MATCH with a pattern that has a complete hash tag before its first special
    // character (`{user}*`) look into one slot only, without a cluster too, so SCAN may end after one call.
    // Why: keys are stored by slot, so all matches lie there.
    let tagged = isotherm_stdx::hash_tag(plain).len() < plain.len();
    (tagged || rest.is_empty()).then(|| Slot::of_key(plain))
}

pub const RANDOMKEY: Command<Handler> = Command::new(
    Spec {
        name: "randomkey",
        summary: "Returns a random key; null for an empty database.",
        complexity: "O(1)",
        flags: Flags::READONLY.or(Flags::TOUCHES_ARBITRARY_KEYS),
        acl: AclCategories::KEYSPACE,
        reach: Reach::All,
        tips: &["request_policy:all_shards", "response_policy:special", "nondeterministic_output"],
        ..Spec::BASE
    },
    randomkey,
);

fn randomkey(call: &mut Call<'_, '_, '_>) -> Outcome {
    let prng = &mut *call.prng;
    match call.txn.random_key(call.db, &mut |n| prng.below(n)) {
        Some(key) => call.reply.bulk(&key),
        None => call.reply.null(),
    }
    Outcome::Done
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_that_lie_in_one_slot() {
        let tag = |name: &[u8]| Some(Slot::of_key(name));
        for (pattern, expected) in [
            (&b"*"[..], None),
            (b"a*", None),
            (b"{tag}*", tag(b"tag")),
            (b"x{tag}?[a-z]", tag(b"tag")),
            (b"*{tag}", None),
            (b"{t*g}", None),
            (b"{t\\ag}*", None),
            (b"{}*", None),
            (b"{*}", None),
            (b"{tag*", None),
            (b"key", tag(b"key")),
            (b"{tag}key", tag(b"tag")),
            (b"{}key", tag(b"{}key")),
            (b"{}{tag}*", None),
            (b"", tag(b"")),
        ] {
            assert_eq!(slot_of_pattern(pattern), expected, "{}", pattern.escape_ascii());
        }
    }
}
