//! A signature of values. Equal data have equal ones in Valkey and here, whatever the order in which they lie
//! in memory.
//!
//! ```text
//! xor(d, x)  d = d ^ sha1(x)                 order does not matter
//! mix(d, x)  d = sha1(d ^ sha1(x))           order matters
//!
//! value      mix(number of the type), then
//!   string   mix(bytes)
//!   list     mix(element) each
//!   set      xor(member) each
//!   zset     xor(own) each, where own = mix(member), mix(score)
//!   hash     xor(own) each, where own = mix(field), mix(value)
//!   stream   mix("ms.seq"), then mix(field), mix(value) each
//! at last    xor("!!expire!!") if the key expires
//! ```

use crate::stream;
use isotherm_keyspace::{Element, Encoding, End, Entry, TextRoom, Type, Value};
use isotherm_stdx::sha1::{Digest, sha1};

pub fn xor(digest: &mut Digest, bytes: &[u8]) {
    for (byte, other) in digest.iter_mut().zip(sha1(bytes)) {
        *byte ^= other;
    }
}

pub fn mix(digest: &mut Digest, bytes: &[u8]) {
    xor(digest, bytes);
    *digest = sha1(digest);
}

fn mix_element(digest: &mut Digest, element: Element<'_>) {
    mix(digest, element.text(&mut TextRoom::default()));
}

/// The number of a type in Valkey's memory.
fn number_of(kind: Type) -> u32 {
    match kind {
        Type::String => 0,
        Type::List => 1,
        Type::Set => 2,
        Type::Zset => 3,
        Type::Hash => 4,
        Type::Stream => 6,
    }
}

pub fn add_value(digest: &mut Digest, entry: &Entry<'_>) {
    mix(digest, &number_of(entry.kind()).to_be_bytes());
    match entry.value {
        Value::Int(int) => mix_element(digest, Element::Int(int)),
        Value::Bytes(bytes) => mix(digest, bytes),
        Value::Cold(cold) => cold.not_fetched(),
        Value::Set(set) => {
            let mut room = TextRoom::default();
            set.for_each(|member| xor(digest, member.text(&mut room)));
        }
        Value::Hash(hash) => hash.for_each(|field, value| {
            let mut own = Digest::default();
            mix_element(&mut own, field);
            mix_element(&mut own, value);
            xor(digest, &own);
        }),
        Value::Zset(zset) => {
            // A small one has its whole scores as integers, which have no negative zero.
            let compact = entry.encoding() == Encoding::Listpack;
            let mut text = Vec::new();
            zset.for_each(0, zset.len(), true, |member, score| {
                let mut own = Digest::default();
                mix_element(&mut own, member);
                text.clear();
                let score = if compact && score == 0.0 { 0.0 } else { score };
                isotherm_stdx::float::push_f64_digits(&mut text, score);
                mix(&mut own, &text);
                xor(digest, &own);
            });
        }
        Value::List(list) => list.iter(0, End::Front).for_each(|element| mix_element(digest, element)),
        Value::Stream(view) => stream::add_to_digest(digest, view),
    }
    if entry.expiry.is_some() {
        xor(digest, b"!!expire!!");
    }
}
