//! Places of the fields of a message. All integers have their highest byte first.
//!
//! ```text
//!   full header, 2256 B
//!   0          8      10    12    14     16       24      32      40          80            2128         2168    2214
//!   |RCmb|total|version|port |type |count |current |config |offset |sender 40  |slots 2048   |primary 40   |ip 46  |extensions
//!   2216             2246        2248      2250   2252   2253      2256
//!   |unused 30        |other port |bus port |flags |state |flags 3  |body
//!
//!   light header, 16 B: only of PUBLISH, PUBLISHSHARD and MODULE, with the highest bit of the type set
//!   |RCmb|total|version|unused|type |unused|body
//!
//!   body of PING, PONG, MEET    [gossip 104] x count, [extension] x extensions
//!   gossip                      [id 40][ping s 4][pong s 4][ip 46][port 2][bus port 2][flags 2][other port 2][unused 2]
//!   extension                   [length 4, with these 8 and a multiple of 8][type 2][unused 2][value][zeros]
//!   FAIL                        [id 40]
//!   PUBLISH, PUBLISHSHARD       [channel length 4][message length 4][channel][message]
//!   UPDATE                      [config epoch 8][id 40][slots 2048]
//!   MODULE                      [module 8][length 4][type 1][bytes]
//! ```

use crate::{NodeId, SlotSet};
use isotherm_stdx::format::{FormatPart, number, text};

/// A field: where it begins in its message, entry or body, and its length.
#[derive(Clone, Copy)]
pub struct Field {
    pub at: usize,
    pub bytes: usize,
}

impl Field {
    const fn first(bytes: usize) -> Field {
        Field { at: 0, bytes }
    }

    const fn then(self, bytes: usize) -> Field {
        Field { at: self.end(), bytes }
    }

    pub const fn end(self) -> usize {
        self.at + self.bytes
    }

    /// The caller has checked that the message, entry or body is as long as its fields.
    pub fn of(self, from: &[u8]) -> &[u8] {
        &from[self.at..self.end()]
    }

    pub fn array<const N: usize>(self, from: &[u8]) -> &[u8; N] {
        self.of(from).try_into().expect("a field of so many bytes")
    }

    pub fn u16(self, from: &[u8]) -> u16 {
        u16::from_be_bytes(*self.array(from))
    }

    pub fn u32(self, from: &[u8]) -> u32 {
        u32::from_be_bytes(*self.array(from))
    }

    pub fn u64(self, from: &[u8]) -> u64 {
        u64::from_be_bytes(*self.array(from))
    }

    /// A value may be shorter than its field, whose rest stays as it is.
    pub fn put(self, into: &mut [u8], value: &[u8]) {
        assert!(value.len() <= self.bytes);
        into[self.at..self.at + value.len()].copy_from_slice(value);
    }
}

pub const SIGNATURE: Field = Field::first(4);
pub const TOTAL: Field = SIGNATURE.then(4);
pub const VERSION: Field = TOTAL.then(2);
pub const PORT: Field = VERSION.then(2);
pub const TYPE: Field = PORT.then(2);
pub const COUNT: Field = TYPE.then(2);
pub const CURRENT_EPOCH: Field = COUNT.then(8);
pub const CONFIG_EPOCH: Field = CURRENT_EPOCH.then(8);
pub const OFFSET: Field = CONFIG_EPOCH.then(8);
pub const SENDER: Field = OFFSET.then(NodeId::LEN);
pub const SLOTS: Field = SENDER.then(SlotSet::BYTES);
pub const PRIMARY: Field = SLOTS.then(NodeId::LEN);
pub const IP: Field = PRIMARY.then(IP_BYTES);
pub const EXTENSIONS: Field = IP.then(2);
pub const UNUSED: Field = EXTENSIONS.then(30);
pub const OTHER_PORT: Field = UNUSED.then(2);
pub const BUS_PORT: Field = OTHER_PORT.then(2);
pub const FLAGS: Field = BUS_PORT.then(2);
pub const STATE: Field = FLAGS.then(1);
pub const MESSAGE_FLAGS: Field = STATE.then(3);

pub const HEADER_BYTES: usize = MESSAGE_FLAGS.end();
pub const LIGHT_HEADER_BYTES: usize = COUNT.end();
/// Length of the prefix that shows the type and the length of a message, in bytes.
pub const PREFIX_BYTES: usize = TYPE.end();

pub const SIGNATURE_TEXT: [u8; 4] = *b"RCmb";
pub const PROTOCOL_VERSION: u16 = 1;
/// A bit of the type.
pub const LIGHT: u16 = 0x8000;

/// Bits of the first byte of `MESSAGE_FLAGS`.
pub const IS_PAUSED: u8 = 1;
pub const FORCES_VOTE: u8 = 1 << 1;
pub const HAS_EXTENSIONS: u8 = 1 << 2;

/// Rows of `--layout`.
pub const FORMAT: FormatPart = (
    "bus message",
    &[
        ("signature", text(&SIGNATURE_TEXT)),
        ("protocol version", number(PROTOCOL_VERSION as usize)),
        ("at: signature", number(SIGNATURE.at)),
        ("at: total", number(TOTAL.at)),
        ("at: version", number(VERSION.at)),
        ("at: port", number(PORT.at)),
        ("at: type", number(TYPE.at)),
        ("at: count", number(COUNT.at)),
        ("at: current epoch", number(CURRENT_EPOCH.at)),
        ("at: config epoch", number(CONFIG_EPOCH.at)),
        ("at: offset", number(OFFSET.at)),
        ("at: sender", number(SENDER.at)),
        ("at: slots", number(SLOTS.at)),
        ("at: primary", number(PRIMARY.at)),
        ("at: ip", number(IP.at)),
        ("at: extensions", number(EXTENSIONS.at)),
        ("at: unused", number(UNUSED.at)),
        ("at: other port", number(OTHER_PORT.at)),
        ("at: bus port", number(BUS_PORT.at)),
        ("at: flags", number(FLAGS.at)),
        ("at: state", number(STATE.at)),
        ("at: message flags", number(MESSAGE_FLAGS.at)),
        ("header", number(HEADER_BYTES)),
        ("light header", number(LIGHT_HEADER_BYTES)),
        ("type: light", number(LIGHT as usize)),
    ],
);

/// With a NUL.
const IP_BYTES: usize = 46;

pub mod gossip {
    use super::{Field, IP_BYTES, NodeId};

    pub const ID: Field = Field::first(NodeId::LEN);
    pub const PING_SENT: Field = ID.then(4);
    pub const PONG_RECEIVED: Field = PING_SENT.then(4);
    pub const IP: Field = PONG_RECEIVED.then(IP_BYTES);
    pub const PORT: Field = IP.then(2);
    pub const BUS_PORT: Field = PORT.then(2);
    pub const FLAGS: Field = BUS_PORT.then(2);
    pub const OTHER_PORT: Field = FLAGS.then(2);
    const UNUSED: Field = OTHER_PORT.then(2);
    pub const BYTES: usize = UNUSED.end();
}

pub mod extension {
    use super::Field;

    pub const LENGTH: Field = Field::first(4);
    pub const TYPE: Field = LENGTH.then(2);
    const UNUSED: Field = TYPE.then(2);
    pub const HEAD_BYTES: usize = UNUSED.end();
}

pub mod forgotten {
    use super::{Field, NodeId};

    pub const ID: Field = Field::first(NodeId::LEN);
    pub const TTL_S: Field = ID.then(8);
    pub const BYTES: usize = TTL_S.end();
}

pub mod publish {
    use super::Field;

    pub const CHANNEL_LENGTH: Field = Field::first(4);
    pub const MESSAGE_LENGTH: Field = CHANNEL_LENGTH.then(4);
    pub const HEAD_BYTES: usize = MESSAGE_LENGTH.end();
}

pub mod update {
    use super::{Field, NodeId, SlotSet};

    pub const CONFIG_EPOCH: Field = Field::first(8);
    pub const ID: Field = CONFIG_EPOCH.then(NodeId::LEN);
    pub const SLOTS: Field = ID.then(SlotSet::BYTES);
    pub const BYTES: usize = SLOTS.end();
}

pub mod module {
    use super::Field;

    const MODULE: Field = Field::first(8);
    pub const LENGTH: Field = MODULE.then(4);
    const TYPE: Field = LENGTH.then(1);
    pub const HEAD_BYTES: usize = TYPE.end();
}

/// The offsets that all versions have had.
const _: () = {
    assert!(TOTAL.at == 4 && VERSION.at == 8 && PORT.at == 10 && TYPE.at == 12 && COUNT.at == 14);
    assert!(CURRENT_EPOCH.at == 16 && CONFIG_EPOCH.at == 24 && OFFSET.at == 32 && SENDER.at == 40);
    assert!(SLOTS.at == 80 && PRIMARY.at == 2128 && IP.at == 2168 && EXTENSIONS.at == 2214);
    assert!(OTHER_PORT.at == 2246 && BUS_PORT.at == 2248 && FLAGS.at == 2250 && STATE.at == 2252);
    assert!(
        MESSAGE_FLAGS.at == 2253 && HEADER_BYTES == 2256 && LIGHT_HEADER_BYTES == 16 && PREFIX_BYTES == 14
    );
    assert!(gossip::BYTES == 104 && extension::HEAD_BYTES == 8 && forgotten::BYTES == 48);
    assert!(publish::HEAD_BYTES == 8 && update::BYTES == 2096 && module::HEAD_BYTES == 13);
    assert!(IP_BYTES == crate::text::IP_BYTES_MAX + 1);
};
