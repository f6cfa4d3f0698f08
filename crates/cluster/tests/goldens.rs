//! Messages that real Valkey nodes sent: each is read, and written again to the same bytes.

use isotherm_cluster::wire::{self, Body, Caps, Extensions, Header, Message, PingKind, Type};
use isotherm_cluster::{Flags, conf};

const BUS: &str = include_str!("goldens/bus-valkey-9.1.2.txt");

/// By name, in the form that `goldens/regenerate` describes.
fn messages() -> Vec<(&'static str, Vec<u8>)> {
    let entries = BUS.split("\n# ").skip(1);
    entries
        .map(|entry| entry.split_once('\n').expect("a name"))
        .map(|(name, text)| (name, bytes(text)))
        .collect()
}

fn bytes(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for word in text.split_ascii_whitespace() {
        match word.strip_prefix("0*") {
            Some(zeros) => bytes.resize(bytes.len() + zeros.parse::<usize>().expect("a number"), 0),
            None => bytes.extend(
                (0..word.len()).step_by(2).map(|at| u8::from_str_radix(&word[at..at + 2], 16).expect("hex")),
            ),
        }
    }
    bytes
}

fn find(name: &str) -> Vec<u8> {
    let found = messages().into_iter().find(|(this, _)| this.starts_with(name));
    found.unwrap_or_else(|| panic!("no golden {name}")).1
}

fn read(bytes: &[u8]) -> Message<'_> {
    assert_eq!(wire::frame(bytes, Caps { payload_bytes: 1000 }), Ok(Some(bytes.len())));
    wire::decode(bytes).expect("a message of Valkey")
}

#[test]
fn what_is_read_is_written_to_the_same_bytes() {
    let messages = messages();
    for (name, bytes) in &messages {
        let mut written = Vec::new();
        wire::encode(&read(bytes), &mut written);
        assert_eq!(first_difference(bytes, &written), None, "{name}");
    }
    for kind in Type::ALL.into_iter().filter(|kind| *kind != Type::Module) {
        assert!(messages.iter().any(|(_, bytes)| Type::of_bytes(bytes) == Some(kind)), "no golden {kind:?}");
    }
}

fn first_difference(left: &[u8], right: &[u8]) -> Option<usize> {
    (0..left.len().max(right.len())).find(|&at| left.get(at) != right.get(at))
}

fn header(message: Message<'_>) -> Box<Header> {
    message.header.expect("a full header")
}

fn extensions(name: &str) -> Extensions {
    match read(&find(name)).body {
        Body::Ping { extensions: Some(extensions), .. } => *extensions,
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_they_say() {
    let bytes = find("meet flags 4 state fail");
    let Message { header: Some(header), body } = read(&bytes) else { panic!("a full header") };
    let Body::Ping { kind: PingKind::Meet, gossip, extensions: Some(none) } = body else {
        panic!("{body:?}")
    };
    assert_eq!((gossip.len(), *none), (0, Extensions::default()));
    assert_eq!((header.port, header.other_port, header.bus_port), (17101, 0, 37101));
    assert!(header.primary.is_none() && !header.is_ok && header.ip.is_empty() && header.offset == 0);
    assert!(header.flags.has(Flags::MYSELF) && header.flags.has(Flags::PRIMARY));
    assert!(header.flags.has(Flags::LIGHT_PUBLISH));

    let named = extensions("ping gossip extensions [0, 1, 8, 2, 3]");
    assert_eq!((named.hostname.as_str(), named.human_name.as_str()), ("two.example", "the-second"));
    assert_eq!((named.availability_zone.as_str(), named.forgotten.len()), ("zone-b", 1));
    assert!((50..=60).contains(&named.forgotten[0].1) && named.shard.is_some());
    let of_clients = extensions("ping extensions [4, 5, 6, 7, 3]");
    assert_eq!(
        (of_clients.client_ipv4.as_str(), of_clients.client_ipv6.as_str()),
        ("192.0.2.3", "2001:db8::3")
    );
    assert_eq!((of_clients.client_port, of_clients.client_tls_port), (7003, 7403));
}

#[test]
fn a_failover() {
    let by_hand = header(read(&find("manual-failover of a replica")));
    let paused = header(read(&find("ping gossip extensions [3] flags 5")));
    assert_eq!(by_hand.primary, Some(paused.sender));
    assert!(paused.is_paused && !by_hand.is_paused);
    let request = header(read(&find("vote-request of a replica flags 2")));
    assert!(request.forces_vote && request.primary.is_some());
    assert_eq!((request.ip.as_str(), request.slots.len()), ("127.0.0.1", 5461));
    assert_eq!(read(&find("vote flags 0")).body, Body::Vote);
    assert!(matches!(read(&find("fail flags 0")).body, Body::Fail(_)));
    let bytes = find("update flags 0");
    let Body::Update { config_epoch, slots, .. } = read(&bytes).body else { panic!("an UPDATE") };
    assert!(config_epoch > 5 && slots.len() == 5461);
}

#[test]
fn what_is_published() {
    for (name, is_light, is_sharded) in [
        ("publish flags 0", false, false),
        ("publish light", true, false),
        ("publish-shard flags 0", false, true),
        ("publish-shard light", true, true),
    ] {
        let bytes = find(name);
        let message = read(&bytes);
        assert_eq!(message.header.is_none(), is_light, "{name}");
        let text: &[u8] = if is_sharded { b"sharded" } else { b"a message" };
        assert_eq!(message.body, Body::Publish { channel: b"b", message: text, is_sharded }, "{name}");
    }
}

const CONF: &str = include_str!("goldens/conf-valkey-9.1.2.txt");

fn texts(kind: &str) -> impl Iterator<Item = (&'static str, &'static str)> {
    let entries = CONF.split("\n# ").skip(1).map(|entry| entry.split_once('\n').expect("a name"));
    entries.filter(move |(name, _)| name.contains(kind))
}

#[test]
fn nodes_conf_is_read_and_written_to_the_same_bytes() {
    let mut count = 0;
    for (name, text) in texts(": nodes.conf of ") {
        let conf = conf::read(text.as_bytes(), false).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(conf::write(&conf), format!("{text}\n"), "{name}");
        count += 1;
    }
    assert!(count >= 9);
}
