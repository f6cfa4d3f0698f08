//! ACL LOG: what was denied, newest first.

use isotherm_acl::Entry;
use isotherm_commands::Outcome;
use isotherm_resp::{Reply, errors};
use isotherm_stdx::parse_i64;

use super::{AdminCall, unknown_form};

const SHOWN_BY_DEFAULT: i64 = 10;

pub fn log(call: &mut AdminCall<'_>) -> Outcome {
    let count = match call.args.len() {
        2 => Some(SHOWN_BY_DEFAULT),
        3 if call.args.get(2).eq_ignore_ascii_case(b"reset") => {
            call.node.users.log().clear();
            call.reply.ok();
            return Outcome::Done;
        }
        3 => parse_i64(call.args.get(2)),
        _ => {
            unknown_form(call);
            return Outcome::Done;
        }
    };
    let Some(count) = count else {
        call.reply.error(errors::NOT_AN_INTEGER);
        return Outcome::Done;
    };
    let (log, now_ms) = (call.node.users.log(), call.now.0);
    let count = usize::try_from(count.max(0)).unwrap_or(usize::MAX).min(log.iter().len());
    call.reply.array(count);
    log.iter().take(count).for_each(|entry| write(call.reply, entry, now_ms));
    Outcome::Done
}

fn write(reply: &mut Reply, entry: &Entry, now_ms: i64) {
    let Entry { noted, context, object, user, client, count, id, created_ms, updated_ms } = entry;
    reply.map(10);
    let number = |reply: &mut Reply, name: &[u8], value: i64| {
        reply.bulk(name);
        reply.integer(value);
    };
    number(reply, b"count", *count as i64);
    for (name, value) in [
        (&b"reason"[..], noted.name().as_bytes()),
        (b"context", context.name().as_bytes()),
        (b"object", object),
        (b"username", user),
    ] {
        reply.bulk(name);
        reply.bulk(value);
    }
    reply.bulk(b"age-seconds");
    reply.double((now_ms - updated_ms) as f64 / 1000.0);
    reply.bulk(b"client-info");
    reply.bulk(client);
    number(reply, b"entry-id", *id as i64);
    number(reply, b"timestamp-created", *created_ms);
    number(reply, b"timestamp-last-updated", *updated_ms);
}
