//! Strings combined bit by bit: BITOP.
//!
//! A key that is absent is an empty string, and a string counts as padded with zeros to the length of the
//! longest. So one result is folded over the sources, growing as it meets longer ones; no two of them are
//! looked at together.

use crate::call::is_word;
use crate::spec::*;
use crate::text;
use crate::{Call, Handler, Outcome};
use isotherm_keyspace::{EventClass, Expiry, Key, Lookup, NewValue};
use isotherm_resp::errors;

pub const BITOP: Command<Handler> = Command::new(
    Spec {
        name: "bitop",
        summary: "Combines strings bit by bit and stores the result. Returns its length in bytes.",
        since: "2.6.0",
        group: Group::Bitmap,
        complexity: "O(N)",
        arity: -4,
        flags: Flags::WRITE.or(Flags::DENYOOM),
        acl: AclCategories::BITMAP,
        key_specs: &[
            KeySpec::one(2, KeyFlags::OW.or(KeyFlags::UPDATE)),
            KeySpec::range(3, -1, 1, KeyFlags::RO.or(KeyFlags::ACCESS)),
        ],
        arguments: &[
            Argument::one_of(
                "operation",
                &[
                    Argument::pure_token("and", "AND"),
                    Argument::pure_token("or", "OR"),
                    Argument::pure_token("xor", "XOR"),
                    Argument::pure_token("not", "NOT"),
                ],
            ),
            Argument::key("destkey", 0),
            Argument::key("key", 1).multiple(),
        ],
        ..Spec::BASE
    },
    bitop,
);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Operation {
    And,
    Or,
    Xor,
    Not,
}

impl Operation {
    fn named(word: &[u8]) -> Option<Operation> {
        const NAMES: [(&str, Operation); 4] = [
            ("AND", Operation::And),
            ("OR", Operation::Or),
            ("XOR", Operation::Xor),
            ("NOT", Operation::Not),
        ];
        NAMES.iter().find(|(name, _)| is_word(word, name)).map(|(_, operation)| *operation)
    }

    /// Folds one more source into the result of those before it. False if there is no memory for it.
    fn fold(self, result: &mut Vec<u8>, source: &[u8], is_first: bool) -> bool {
        let missing = source.len().saturating_sub(result.len());
        if result.try_reserve_exact(missing).is_err() {
            return false;
        }
        result.resize(result.len() + missing, 0);
        let (common, behind) = result.split_at_mut(source.len());
        let pairs = common.iter_mut().zip(source);
        match self {
            Operation::Not => pairs.for_each(|(result, source)| *result = !source),
            _ if is_first => common.copy_from_slice(source),
            Operation::And => {
                pairs.for_each(|(result, source)| *result &= source);
                behind.fill(0);
            }
            Operation::Or => pairs.for_each(|(result, source)| *result |= source),
            Operation::Xor => pairs.for_each(|(result, source)| *result ^= source),
        }
        true
    }
}

fn bitop(call: &mut Call<'_, '_, '_>) -> Outcome {
    let Some(operation) = Operation::named(call.args.get(1)) else {
        return call.fail(errors::SYNTAX);
    };
    if operation == Operation::Not && call.args.len() != 4 {
        return call.fail("ERR BITOP NOT must be called with a single source key.");
    }
    let mut result = Vec::new();
    for at in 3..call.args.len() {
        let key = call.key(at);
        let Some(entry) = call.txn.find(call.db, &key, Lookup::Read) else {
            operation.fold(&mut result, b"", at == 3);
            continue;
        };
        let mut room = text::NO_TEXT;
        let Some(source) = text::text(entry.value, &mut room) else {
            return call.fail(errors::WRONG_TYPE);
        };
        if !operation.fold(&mut result, source, at == 3) {
            return call.out_of_memory();
        }
    }
    let target = call.key(2);
    store(call, &target, &result)
}

/// An empty result is none: the key leaves.
fn store(call: &mut Call<'_, '_, '_>, target: &Key<'_>, result: &[u8]) -> Outcome {
    if result.is_empty() {
        if call.txn.remove(call.db, target) {
            call.wrote(EventClass::Generic, "del", target, 1);
        }
    } else {
        if call.txn.set(call.db, target, NewValue::Raw(result), Expiry::Clear).is_err() {
            return call.out_of_memory();
        }
        call.wrote(EventClass::String, "set", target, 1);
    }
    call.reply.integer(result.len() as i64);
    Outcome::Done
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folded(operation: Operation, sources: &[&[u8]]) -> Vec<u8> {
        let mut result = Vec::new();
        for (at, source) in sources.iter().enumerate() {
            assert!(operation.fold(&mut result, source, at == 0));
        }
        result
    }

    #[test]
    fn strings_go_on_with_zeros() {
        let (long, short) = (&[0xf0u8, 0x0f, 0xff][..], &[0xccu8][..]);
        assert_eq!(folded(Operation::And, &[long, short]), [0xc0, 0, 0]);
        assert_eq!(folded(Operation::And, &[short, long]), [0xc0, 0, 0]);
        assert_eq!(folded(Operation::And, &[b"", long]), [0, 0, 0]);
        assert_eq!(folded(Operation::Or, &[short, long]), [0xfc, 0x0f, 0xff]);
        assert_eq!(folded(Operation::Xor, &[short, long, short]), [0xf0, 0x0f, 0xff]);
        assert_eq!(folded(Operation::Not, &[long]), [0x0f, 0xf0, 0]);
        assert_eq!(folded(Operation::Not, &[b""]), b"");
        assert_eq!(folded(Operation::Or, &[b"", b""]), b"");
    }
}
