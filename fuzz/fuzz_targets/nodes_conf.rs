//! Any bytes as nodes.conf: refused, or nodes that are written to a file that is read as the same.
//!
//! ```text
//!   [way][bytes]      bit 0 of way: the bus has TLS; bit 1: bytes that are no ASCII stand for pieces of lines
//! ```
#![no_main]

use isotherm_cluster::Flags;
use isotherm_cluster::conf::{read, write};
use libfuzzer_sys::fuzz_target;

const PIECES: [&str; 28] = [
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb",
    "0123456789abcdefghijklmnopqrstuvwxyz0123",
    " 10.0.0.1:6379@16379",
    " ::1:6379",
    ",host",
    ",shard-id=",
    ",nodename=",
    ",tcp-port=",
    ",tls-port=1",
    "\n",
    ",client-ipv4=1.2.3.4",
    ",client-ipv6=::1",
    ",client-tcp-port=",
    ",client-tls-port=",
    ",availability-zone=z",
    " myself,master",
    " slave,fail?",
    " fail,handshake,noaddr,nofailover",
    " - 0 0 1 connected",
    " 0 1690000000000 3 disconnected",
    " 0-5460 16383",
    " [5->-",
    "vars currentEpoch 6 lastVoteEpoch 0\n",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa :0@0 myself,master - 0 0 1 connected 7 9-12",
    "\nbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb 10.0.0.1:6379@16379,,tls-port=0",
    " slave aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa 0 0 2 disconnected",
    "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb]",
];

fn expanded(bytes: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(bytes.len() * 4);
    for &byte in bytes {
        match byte.checked_sub(0x80) {
            Some(piece) => text.extend_from_slice(PIECES[usize::from(piece) % PIECES.len()].as_bytes()),
            None => text.push(byte),
        }
    }
    text
}

fuzz_target!(|input: &[u8]| {
    let [way, bytes @ ..] = input else { return };
    let bytes = if way & 2 == 0 { bytes.to_vec() } else { expanded(bytes) };
    let mut conf = match read(&bytes, way & 1 == 1) {
        Ok(conf) => conf,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return;
        }
    };
    let mut slots = 0;
    for node in &conf.nodes {
        slots += node.slots.len();
        assert!(node.config_epoch <= conf.current_epoch);
    }
    assert!(slots <= 16384);
    assert_eq!(conf.nodes.iter().filter(|node| node.flags.has(Flags::MYSELF)).count(), 1);
    // Nodes that are met only are not written.
    let highest = conf.current_epoch;
    conf.nodes.retain(|node| !node.flags.has(Flags::HANDSHAKE));
    if !conf.nodes.iter().any(|node| node.flags.has(Flags::MYSELF)) {
        return;
    }
    let text = write(&conf);
    let again = read(text.as_bytes(), false).expect("what was written");
    assert_eq!(write(&again), text);
    assert_eq!((again.nodes.len(), again.current_epoch), (conf.nodes.len(), highest));
});
