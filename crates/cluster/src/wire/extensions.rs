//! The part after the gossip of a PING, PONG or MEET: the names that the sender gives itself.
//!
//! ```text
//!   [length 4][type 2][unused 2][value][zeros to a multiple of 8]
//!   0 hostname   1 human name   4 client IPv4   5 client IPv6   6 client port   7 client TLS port   8 availability zone
//!   2 forgotten node [id 40][seconds 8]         3 shard [id 40]
//! ```
//! Texts end with a NUL. They are written in the order above, as Valkey writes them. Types that are not known
//! are skipped, and so is a type 4 without an IPv4 address: Redis 8 sends a secret under that number.

use super::layout::{extension, forgotten};
use super::{Extensions, Malformed};
use crate::NodeId;
use crate::text::{self, HOSTNAME_BYTES_MAX, LABEL_BYTES_MAX};

const HOSTNAME: u16 = 0;
const HUMAN_NAME: u16 = 1;
const FORGOTTEN: u16 = 2;
const SHARD: u16 = 3;
const CLIENT_IPV4: u16 = 4;
const CLIENT_IPV6: u16 = 5;
const CLIENT_PORT: u16 = 6;
const CLIENT_TLS_PORT: u16 = 7;
const AVAILABILITY_ZONE: u16 = 8;

/// `rest` is all that follows the gossip.
pub(super) fn decode(count: u16, mut rest: &[u8]) -> Result<Extensions, Malformed> {
    let too_long = Malformed::ignored("an extension that is longer than the rest");
    let mut extensions = Extensions::default();
    for _ in 0..count {
        let head = rest.get(..extension::HEAD_BYTES).ok_or(too_long)?;
        let bytes = extension::LENGTH.u32(head) as usize;
        if !bytes.is_multiple_of(8) || bytes < extension::HEAD_BYTES {
            return Err(Malformed::ignored("an extension whose length is no multiple of 8"));
        }
        let (this, others) = rest.split_at_checked(bytes).ok_or(too_long)?;
        take(&mut extensions, extension::TYPE.u16(head), &this[extension::HEAD_BYTES..])?;
        rest = others;
    }
    if rest.is_empty() { Ok(extensions) } else { Err(Malformed::ignored("not of the length of its type")) }
}

fn take(extensions: &mut Extensions, kind: u16, value: &[u8]) -> Result<(), Malformed> {
    match kind {
        HOSTNAME => extensions.hostname = label(value, HOSTNAME_BYTES_MAX)?,
        HUMAN_NAME => extensions.human_name = label(value, LABEL_BYTES_MAX)?,
        AVAILABILITY_ZONE => extensions.availability_zone = label(value, LABEL_BYTES_MAX)?,
        CLIENT_IPV4 => extensions.client_ipv4 = address(value, text::is_ipv4),
        CLIENT_IPV6 => extensions.client_ipv6 = address(value, text::is_ipv6),
        CLIENT_PORT => extensions.client_port = port(value)?,
        CLIENT_TLS_PORT => extensions.client_tls_port = port(value)?,
        SHARD => extensions.shard = NodeId::parse(head(value, NodeId::LEN)?),
        FORGOTTEN => {
            let value = head(value, forgotten::BYTES)?;
            let id = NodeId::parse(forgotten::ID.of(value));
            extensions.forgotten.extend(id.map(|id| (id, forgotten::TTL_S.u64(value))));
        }
        _ => {}
    }
    Ok(())
}

/// Empty where nodes.conf could not hold it: one node's odd name must not part it from the others.
fn label(value: &[u8], bytes_max: usize) -> Result<String, Malformed> {
    let text = ended(value).ok_or(Malformed::ignored("an extension whose text has no end"))?;
    Ok(text::word(text, bytes_max).unwrap_or_default().to_string())
}

fn address(value: &[u8], is_address: impl Fn(&str) -> bool) -> String {
    let text = ended(value).and_then(|text| text::word(text, text::IP_BYTES_MAX));
    text.filter(|text| is_address(text)).unwrap_or_default().to_string()
}

/// Up to a NUL.
fn ended(value: &[u8]) -> Option<&[u8]> {
    value.iter().position(|&byte| byte == 0).map(|end| &value[..end])
}

fn port(value: &[u8]) -> Result<u16, Malformed> {
    head(value, 2).map(|port| u16::from_be_bytes(port.try_into().expect("two bytes")))
}

fn head(value: &[u8], bytes: usize) -> Result<&[u8], Malformed> {
    value.get(..bytes).ok_or(Malformed::ignored("an extension that is shorter than its value"))
}

/// Appends the extensions to `out`. Returns how many there are.
pub(super) fn encode(extensions: &Extensions, out: &mut Vec<u8>) -> u16 {
    let mut count = 0;
    let mut put = |kind: u16, value: &[u8], ends: bool| {
        put_extension(kind, value, ends, out);
        count += 1;
    };
    let texts = [
        (HOSTNAME, &extensions.hostname),
        (HUMAN_NAME, &extensions.human_name),
        (CLIENT_IPV4, &extensions.client_ipv4),
        (CLIENT_IPV6, &extensions.client_ipv6),
    ];
    let texts_that_are = texts.into_iter().filter(|(_, text)| !text.is_empty());
    texts_that_are.for_each(|(kind, text)| put(kind, text.as_bytes(), true));
    let ports = [(CLIENT_PORT, extensions.client_port), (CLIENT_TLS_PORT, extensions.client_tls_port)];
    let ports_that_are = ports.into_iter().filter(|(_, port)| *port != 0);
    ports_that_are.for_each(|(kind, port)| put(kind, &port.to_be_bytes(), false));
    if !extensions.availability_zone.is_empty() {
        put(AVAILABILITY_ZONE, extensions.availability_zone.as_bytes(), true);
    }
    for (id, ttl_s) in &extensions.forgotten {
        let mut value = [0; forgotten::BYTES];
        forgotten::ID.put(&mut value, id.as_bytes());
        forgotten::TTL_S.put(&mut value, &ttl_s.to_be_bytes());
        put(FORGOTTEN, &value, false);
    }
    if let Some(shard) = &extensions.shard {
        put(SHARD, shard.as_bytes(), false);
    }
    count
}

fn put_extension(kind: u16, value: &[u8], ends: bool, out: &mut Vec<u8>) {
    assert!(!ends || !value.contains(&0), "a text ends at its first NUL");
    let bytes = extension::HEAD_BYTES + (value.len() + usize::from(ends)).next_multiple_of(8);
    let start = out.len();
    out.resize(start + bytes, 0);
    let this = &mut out[start..];
    extension::LENGTH.put(this, &u32::try_from(bytes).expect("a short text").to_be_bytes());
    extension::TYPE.put(this, &kind.to_be_bytes());
    this[extension::HEAD_BYTES..][..value.len()].copy_from_slice(value);
}
