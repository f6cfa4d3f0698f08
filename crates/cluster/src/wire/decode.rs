//! Bytes of another node to a message, or why not.
//!
//! ```text
//!   bytes -- frame: signature, total --> one message -- decode: version, type, lengths, ids, texts --> Message
//!              |                                          |
//!           closes the link                            is ignored, the link stays
//! ```
//! Defects are treated as by a Valkey node: bytes that it cannot cut into messages close the link, and a
//! message that it can cut but not read is ignored. It is stricter where Valkey takes bytes as they are (an
//! id that is none, a text without its end), because nodes.conf and clients would get them; and a label that
//! nodes.conf cannot hold is taken as not sent.

use super::extensions;
use super::layout::{self as at, gossip, module, publish, update};
use super::{Body, Gossip, Header, Malformed, Message, PingKind, Type};
use crate::text::{self, IP_BYTES_MAX};
use crate::{Flags, NodeId, SlotSet};

/// Decodes one message from exactly the bytes that `frame` cut off.
pub fn decode(bytes: &[u8]) -> Result<Message<'_>, Malformed> {
    let (kind, is_light) = check_prefix(bytes)?;
    if is_light {
        let body = decode_body(kind, &bytes[at::LIGHT_HEADER_BYTES..], None)?;
        return Ok(Message { header: None, body });
    }
    let (header, body) = bytes.split_at(at::HEADER_BYTES);
    let body = decode_body(kind, body, Some(header))?;
    Ok(Message { header: Some(Box::new(decode_header(header)?)), body })
}

fn check_prefix(bytes: &[u8]) -> Result<(Type, bool), Malformed> {
    if bytes.len() < at::LIGHT_HEADER_BYTES || at::SIGNATURE.of(bytes) != at::SIGNATURE_TEXT {
        return Err(Malformed::closes("not a message of the cluster bus"));
    }
    if at::TOTAL.u32(bytes) as usize != bytes.len() {
        return Err(Malformed::closes("not of the length that it states"));
    }
    let is_light = at::TYPE.u16(bytes) & at::LIGHT != 0;
    if !is_light && bytes.len() < at::HEADER_BYTES {
        return Err(Malformed::closes("shorter than its header"));
    }
    let kind = Type::of_bytes(bytes).ok_or(Malformed::ignored("of a type that is not known"))?;
    if is_light && !kind.may_be_light() {
        return Err(Malformed::ignored("a light header on a type that has none"));
    }
    if at::VERSION.u16(bytes) != at::PROTOCOL_VERSION {
        return Err(Malformed::ignored("of another version of the protocol"));
    }
    Ok((kind, is_light))
}

fn decode_header(bytes: &[u8]) -> Result<Header, Malformed> {
    let message_flags = at::MESSAGE_FLAGS.of(bytes)[0];
    let ip = ip(at::IP.of(bytes)).ok_or(Malformed::ignored("the sender's address is no text"))?;
    Ok(Header {
        sender: id(at::SENDER.of(bytes))?,
        primary: optional_id(at::PRIMARY.of(bytes))?,
        current_epoch: at::CURRENT_EPOCH.u64(bytes),
        config_epoch: at::CONFIG_EPOCH.u64(bytes),
        offset: at::OFFSET.u64(bytes),
        slots: Box::new(SlotSet::from_bytes(at::SLOTS.array(bytes))),
        ip: ip.to_string(),
        port: at::PORT.u16(bytes),
        other_port: at::OTHER_PORT.u16(bytes),
        bus_port: at::BUS_PORT.u16(bytes),
        flags: Flags(at::FLAGS.u16(bytes)),
        is_ok: at::STATE.of(bytes)[0] == 0,
        is_paused: message_flags & at::IS_PAUSED != 0,
        forces_vote: message_flags & at::FORCES_VOTE != 0,
    })
}

/// `header` is the full one, if there is one.
fn decode_body<'b>(kind: Type, body: &'b [u8], header: Option<&[u8]>) -> Result<Body<'b>, Malformed> {
    match (kind, header) {
        (Type::Ping, Some(header)) => ping(PingKind::Ping, header, body),
        (Type::Pong, Some(header)) => ping(PingKind::Pong, header, body),
        (Type::Meet, Some(header)) => ping(PingKind::Meet, header, body),
        (Type::Fail, _) => Ok(Body::Fail(id(exactly(body, NodeId::LEN)?)?)),
        (Type::Publish, _) => published(body, false),
        (Type::PublishShard, _) => published(body, true),
        (Type::VoteRequest, _) => exactly(body, 0).map(|_| Body::VoteRequest),
        (Type::Vote, _) => exactly(body, 0).map(|_| Body::Vote),
        (Type::Update, _) => updated(exactly(body, update::BYTES)?),
        (Type::ManualFailover, _) => exactly(body, 0).map(|_| Body::ManualFailover),
        (Type::Module, _) => of_module(body),
        (Type::Ping | Type::Pong | Type::Meet, None) => unreachable!("refused by its prefix"),
    }
}

fn ping<'b>(kind: PingKind, header: &[u8], body: &[u8]) -> Result<Body<'b>, Malformed> {
    let count = usize::from(at::COUNT.u16(header));
    let (entries, rest) = body
        .split_at_checked(count * gossip::BYTES)
        .ok_or(Malformed::ignored("more nodes than its length has room for"))?;
    let has_extensions = at::MESSAGE_FLAGS.of(header)[0] & at::HAS_EXTENSIONS != 0;
    let extensions = if has_extensions {
        Some(Box::new(extensions::decode(at::EXTENSIONS.u16(header), rest)?))
    } else {
        exactly(rest, 0)?;
        None
    };
    Ok(Body::Ping { kind, gossip: decode_gossip(entries), extensions })
}

/// Decodes the gossip entries. If the id or address of one of them is invalid, all are dropped: the sender's
/// memory is corrupt. The rest of the message counts, as in Valkey.
fn decode_gossip(entries: &[u8]) -> Vec<Gossip> {
    let (entries, _) = entries.as_chunks::<{ gossip::BYTES }>();
    let all: Option<Vec<Gossip>> = entries.iter().map(|entry| gossip_entry(entry)).collect();
    all.unwrap_or_default()
}

fn gossip_entry(entry: &[u8]) -> Option<Gossip> {
    Some(Gossip {
        id: NodeId::parse(gossip::ID.of(entry))?,
        ping_sent_s: gossip::PING_SENT.u32(entry),
        pong_received_s: gossip::PONG_RECEIVED.u32(entry),
        ip: ip(gossip::IP.of(entry))?.to_string(),
        port: gossip::PORT.u16(entry),
        other_port: gossip::OTHER_PORT.u16(entry),
        bus_port: gossip::BUS_PORT.u16(entry),
        flags: Flags(gossip::FLAGS.u16(entry)),
    })
}

fn published(body: &[u8], is_sharded: bool) -> Result<Body<'_>, Malformed> {
    let too_long = Malformed::ignored("a channel or message that is longer than the rest");
    let (head, rest) = body.split_at_checked(publish::HEAD_BYTES).ok_or(too_long)?;
    let channel_bytes = publish::CHANNEL_LENGTH.u32(head) as usize;
    let (channel, message) = rest.split_at_checked(channel_bytes).ok_or(too_long)?;
    let message = exactly(message, publish::MESSAGE_LENGTH.u32(head) as usize)?;
    Ok(Body::Publish { channel, message, is_sharded })
}

fn updated<'b>(body: &[u8]) -> Result<Body<'b>, Malformed> {
    Ok(Body::Update {
        node: id(update::ID.of(body))?,
        config_epoch: update::CONFIG_EPOCH.u64(body),
        slots: Box::new(SlotSet::from_bytes(update::SLOTS.array(body))),
    })
}

fn of_module<'b>(body: &[u8]) -> Result<Body<'b>, Malformed> {
    let too_long = Malformed::ignored("shorter than what a module sends");
    let (head, rest) = body.split_at_checked(module::HEAD_BYTES).ok_or(too_long)?;
    exactly(rest, module::LENGTH.u32(head) as usize)?;
    Ok(Body::Module)
}

fn exactly(body: &[u8], bytes: usize) -> Result<&[u8], Malformed> {
    if body.len() == bytes { Ok(body) } else { Err(Malformed::ignored("not of the length of its type")) }
}

fn id(field: &[u8]) -> Result<NodeId, Malformed> {
    NodeId::parse(field).ok_or(Malformed::ignored("an id that is none"))
}

/// Zeros stand for none.
fn optional_id(field: &[u8]) -> Result<Option<NodeId>, Malformed> {
    if field.iter().all(|&byte| byte == 0) { Ok(None) } else { id(field).map(Some) }
}

/// An address, or a host's name in its place, which ends with a NUL.
fn ip(field: &[u8]) -> Option<&str> {
    let end = field.iter().position(|&byte| byte == 0)?;
    text::word(&field[..end], IP_BYTES_MAX)
}
