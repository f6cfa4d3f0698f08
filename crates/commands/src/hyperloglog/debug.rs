//! Looking into a sketch: PFDEBUG.

use super::commands::{Wrong, sketch_of};
use super::sketch::{self, Form};
use super::{REGISTERS, sparse};
use crate::call::is_word;
use crate::spec::*;
use crate::text;
use crate::{Call, Handler, Outcome};
use isotherm_keyspace::{Encoding, Expiry, Key, Lookup, NewValue};
use isotherm_resp::errors;

pub const PFDEBUG: Command<Handler> = Command::new(
    Spec {
        name: "pfdebug",
        summary: "Shows the inside of a HyperLogLog (internal).",
        since: "2.8.9",
        group: Group::HyperLogLog,
        complexity: "N/A",
        arity: 3,
        flags: Flags::WRITE.or(Flags::DENYOOM).or(Flags::ADMIN),
        acl: AclCategories::HYPERLOGLOG,
        key_specs: &[KeySpec::one(2, KeyFlags::RW.or(KeyFlags::ACCESS))],
        doc_flags: &["syscmd"],
        arguments: &[Argument::string("subcommand"), Argument::key("key", 0)],
        ..Spec::BASE
    },
    pfdebug,
);

fn pfdebug(call: &mut Call<'_, '_, '_>) -> Outcome {
    if is_word(call.args.get(1), "SIMD") {
        return simd(call);
    }
    let key = call.key(2);
    match look(call, &key) {
        Ok(()) => Outcome::Done,
        Err(wrong) => call.fail(wrong.text()),
    }
}

/// Replies the requested state and changes nothing: there is one code path, and the compiler decides about
/// its vectors.
fn simd(call: &mut Call<'_, '_, '_>) -> Outcome {
    // COMPAT(hyperloglog): PFDEBUG SIMD reports the requested state and changes nothing. A wrong argument
    // gets one error; Valkey sends the error and a second reply. Why: there is one code path, and a command
    // has one reply.
    let word = call.args.get(2);
    if is_word(word, "ON") {
        call.reply.simple("enabled");
    } else if is_word(word, "OFF") {
        call.reply.simple("disabled");
    } else {
        call.reply.error("ERR Argument must be ON or OFF");
    }
    Outcome::Done
}

fn look(call: &mut Call<'_, '_, '_>, key: &Key<'_>) -> Result<(), Wrong> {
    let Some(entry) = call.txn.find(call.db, key, Lookup::Write) else {
        call.reply.error("ERR The specified key does not exist");
        return Ok(());
    };
    let is_raw = entry.encoding() == Encoding::Raw;
    let mut room = text::NO_TEXT;
    let (bytes, form) = sketch_of(&entry, &mut room)?;
    let mut bytes = bytes.to_vec();
    if !is_raw {
        call.txn.room(call.db, key, bytes.len())?;
    }
    let word = call.args.get(1);
    match () {
        _ if is_word(word, "GETREG") => {
            make_dense(call, key, &mut bytes, form)?;
            call.reply.array(REGISTERS);
            (0..REGISTERS).for_each(|index| call.reply.integer(sketch::register(&bytes, index).into()));
        }
        _ if is_word(word, "DECODE") && form == Form::Sparse => call.reply.bulk(decoded(&bytes).as_bytes()),
        _ if is_word(word, "DECODE") => call.reply.error("ERR HLL encoding is not sparse"),
        _ if is_word(word, "ENCODING") => call.reply.simple(match form {
            Form::Dense => "dense",
            Form::Sparse => "sparse",
        }),
        _ if is_word(word, "TODENSE") => {
            make_dense(call, key, &mut bytes, form)?;
            call.reply.integer(i64::from(form == Form::Sparse));
        }
        _ => call.reply.error(errors::with_bytes("ERR Unknown PFDEBUG subcommand '", c_text(word), "'")),
    }
    Ok(())
}

/// Up to the first NUL.
fn c_text(word: &[u8]) -> &[u8] {
    word.split(|byte| *byte == 0).next().unwrap_or_default()
}

fn make_dense(
    call: &mut Call<'_, '_, '_>,
    key: &Key<'_>,
    bytes: &mut Vec<u8>,
    form: Form,
) -> Result<(), Wrong> {
    if form == Form::Sparse {
        sketch::make_dense(bytes)?;
        call.txn.set(call.db, key, NewValue::Raw(bytes), Expiry::Keep)?;
        call.count(1);
    }
    Ok(())
}

/// `z:3` zeros, `Z:200` many zeros, `v:2,1` a value and how often.
fn decoded(bytes: &[u8]) -> String {
    let shown = |run: sparse::Run| match (run.value, run.bytes) {
        (0, 1) => format!("z:{}", run.len),
        (0, _) => format!("Z:{}", run.len),
        (value, _) => format!("v:{value},{}", run.len),
    };
    sketch::runs(bytes).map(shown).collect::<Vec<_>>().join(" ")
}
