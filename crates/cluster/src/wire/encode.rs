//! A message to the bytes that Valkey 9.1 would send.
//!
//! ```text
//!   [header, zeros] -> [header, zeros][body] -> fields put over the zeros, the total length last
//! ```

use super::extensions;
use super::layout::{self as at, gossip, module, publish, update};
use super::{Body, Extensions, Gossip, Header, Message, Type};
use crate::text::IP_BYTES_MAX;

/// Appends a message to `out`. A message without a header is a light one, which only PUBLISH, PUBLISHSHARD
/// and MODULE can be.
pub fn encode(message: &Message<'_>, out: &mut Vec<u8>) {
    let start = out.len();
    let kind = Type::of(&message.body);
    match &message.header {
        Some(header) => put_header(header, out),
        None => {
            assert!(kind.may_be_light(), "{kind:?} has a full header");
            out.resize(start + at::LIGHT_HEADER_BYTES, 0);
        }
    }
    put_body(&message.body, start, out);
    let light = if message.header.is_none() { at::LIGHT } else { 0 };
    let total = u32::try_from(out.len() - start).expect("requests are capped below 4 GB");
    let this = &mut out[start..];
    at::SIGNATURE.put(this, &at::SIGNATURE_TEXT);
    at::TOTAL.put(this, &total.to_be_bytes());
    at::VERSION.put(this, &at::PROTOCOL_VERSION.to_be_bytes());
    at::TYPE.put(this, &(kind.number() | light).to_be_bytes());
}

/// All but what `encode` and the body put.
fn put_header(header: &Header, out: &mut Vec<u8>) {
    let start = out.len();
    out.resize(start + at::HEADER_BYTES, 0);
    let this = &mut out[start..];
    at::PORT.put(this, &header.port.to_be_bytes());
    at::CURRENT_EPOCH.put(this, &header.current_epoch.to_be_bytes());
    at::CONFIG_EPOCH.put(this, &header.config_epoch.to_be_bytes());
    at::OFFSET.put(this, &header.offset.to_be_bytes());
    at::SENDER.put(this, header.sender.as_bytes());
    at::SLOTS.put(this, &header.slots.to_bytes());
    if let Some(primary) = &header.primary {
        at::PRIMARY.put(this, primary.as_bytes());
    }
    at::IP.put(this, ip(&header.ip));
    at::OTHER_PORT.put(this, &header.other_port.to_be_bytes());
    at::BUS_PORT.put(this, &header.bus_port.to_be_bytes());
    at::FLAGS.put(this, &header.flags.0.to_be_bytes());
    at::STATE.put(this, &[u8::from(!header.is_ok)]);
    let paused = if header.is_paused { at::IS_PAUSED } else { 0 };
    let forces = if header.forces_vote { at::FORCES_VOTE } else { 0 };
    at::MESSAGE_FLAGS.put(this, &[paused | forces]);
}

fn put_body(body: &Body<'_>, start: usize, out: &mut Vec<u8>) {
    match body {
        Body::Ping { gossip, extensions, .. } => put_ping(gossip, extensions.as_deref(), start, out),
        Body::Fail(id) => out.extend_from_slice(id.as_bytes()),
        Body::Publish { channel, message, .. } => put_publish(channel, message, out),
        Body::Update { node, config_epoch, slots } => {
            let mut bytes = [0; update::BYTES];
            update::CONFIG_EPOCH.put(&mut bytes, &config_epoch.to_be_bytes());
            update::ID.put(&mut bytes, node.as_bytes());
            update::SLOTS.put(&mut bytes, &slots.to_bytes());
            out.extend_from_slice(&bytes);
        }
        Body::Module => out.extend_from_slice(&[0; module::HEAD_BYTES]),
        Body::VoteRequest | Body::Vote | Body::ManualFailover => {}
    }
}

/// The flag says that this node knows extensions, also to a node that does not and is sent none.
fn put_ping(nodes: &[Gossip], extensions: Option<&Extensions>, start: usize, out: &mut Vec<u8>) {
    nodes.iter().for_each(|node| put_gossip(node, out));
    let extension_count = extensions.map_or(0, |extensions| extensions::encode(extensions, out));
    let node_count = u16::try_from(nodes.len()).expect("a cluster has fewer nodes");
    let this = &mut out[start..];
    at::COUNT.put(this, &node_count.to_be_bytes());
    at::EXTENSIONS.put(this, &extension_count.to_be_bytes());
    let flags = at::MESSAGE_FLAGS.of(this)[0] | at::HAS_EXTENSIONS;
    at::MESSAGE_FLAGS.put(this, &[flags]);
}

fn put_gossip(node: &Gossip, out: &mut Vec<u8>) {
    let mut bytes = [0; gossip::BYTES];
    gossip::ID.put(&mut bytes, node.id.as_bytes());
    gossip::PING_SENT.put(&mut bytes, &node.ping_sent_s.to_be_bytes());
    gossip::PONG_RECEIVED.put(&mut bytes, &node.pong_received_s.to_be_bytes());
    gossip::IP.put(&mut bytes, ip(&node.ip));
    gossip::PORT.put(&mut bytes, &node.port.to_be_bytes());
    gossip::BUS_PORT.put(&mut bytes, &node.bus_port.to_be_bytes());
    gossip::FLAGS.put(&mut bytes, &node.flags.0.to_be_bytes());
    gossip::OTHER_PORT.put(&mut bytes, &node.other_port.to_be_bytes());
    out.extend_from_slice(&bytes);
}

fn put_publish(channel: &[u8], message: &[u8], out: &mut Vec<u8>) {
    let length = |part: &[u8]| u32::try_from(part.len()).expect("requests are capped below 4 GB");
    let mut head = [0; publish::HEAD_BYTES];
    publish::CHANNEL_LENGTH.put(&mut head, &length(channel).to_be_bytes());
    publish::MESSAGE_LENGTH.put(&mut head, &length(message).to_be_bytes());
    out.extend_from_slice(&head);
    out.extend_from_slice(channel);
    out.extend_from_slice(message);
}

fn ip(text: &str) -> &[u8] {
    assert!(text.len() <= IP_BYTES_MAX && !text.contains('\0'), "an address of {} bytes", text.len());
    text.as_bytes()
}
