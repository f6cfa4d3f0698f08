//! Any bytes from another node: refused, or a message that is read again as it was when it is written.
//!
//! ```text
//!   [way][bytes]                                               way even: the bytes as they are
//!   [way][type][count][extensions][flags][body]                way odd: behind a header that is sound, with these fields
//! ```
#![no_main]

use isotherm_cluster::wire::{Body, Caps, Message, decode, encode, frame};
use libfuzzer_sys::fuzz_target;

const HEADER_BYTES: usize = 2256;
const GOSSIP_BYTES: usize = 104;
const CAPS: Caps = Caps { payload_bytes: 1 << 20 };

/// A sender that knows no extensions is written as one that does.
fn as_written(mut message: Message<'_>) -> Message<'_> {
    if let Body::Ping { extensions, .. } = &mut message.body {
        extensions.get_or_insert_default();
    }
    message
}

fn behind_a_header([kind, count, extensions, flags]: [u8; 4], body: &[u8]) -> Vec<u8> {
    let is_light = kind & 0x80 != 0;
    let mut bytes = vec![0; if is_light { 16 } else { HEADER_BYTES }];
    bytes[..4].copy_from_slice(b"RCmb");
    bytes[9] = 1;
    bytes[12] = kind & 0x80;
    bytes[13] = kind & 0x7f;
    if !is_light {
        bytes[15] = count;
        bytes[40..80].fill(b'a');
        bytes[2215] = extensions;
        bytes[2253] = flags;
    }
    bytes.extend_from_slice(body);
    let total = bytes.len() as u32;
    bytes[4..8].copy_from_slice(&total.to_be_bytes());
    bytes
}

fn check(bytes: &[u8]) {
    if let Ok(Some(total)) = frame(bytes, CAPS) {
        assert!(bytes.len() >= 14 && total >= 16);
    }
    let Ok(message) = decode(bytes) else { return };
    if let Body::Ping { gossip, .. } = &message.body {
        assert!(gossip.len() * GOSSIP_BYTES + HEADER_BYTES <= bytes.len());
    }
    let mut written = Vec::new();
    encode(&message, &mut written);
    assert_eq!(frame(&written, CAPS), Ok(Some(written.len())));
    assert_eq!(decode(&written), Ok(as_written(message)));
}

fuzz_target!(|input: &[u8]| {
    match input {
        [way, fields @ ..] if way % 2 == 1 => {
            if let Some((fields, body)) = fields.split_first_chunk::<4>() {
                check(&behind_a_header(*fields, body));
            }
        }
        [_, bytes @ ..] => check(bytes),
        [] => {}
    }
});
