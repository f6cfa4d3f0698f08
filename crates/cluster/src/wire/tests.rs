use super::layout::{self as at, extension, gossip};
use super::*;
use isotherm_stdx::Prng;

const CAPS: Caps = Caps { payload_bytes: 1000 };

fn id(seed: u64) -> NodeId {
    let mut prng = Prng::new(seed);
    NodeId::new(std::array::from_fn(|_| prng.next_u64() as u8))
}

fn header(prng: &mut Prng) -> Header {
    let mut slots = SlotSet::new();
    for _ in 0..prng.below(50) {
        slots.insert(crate::Slot::new(prng.below(16384) as u16));
    }
    Header {
        sender: id(prng.next_u64()),
        primary: (prng.below(2) == 0).then(|| id(prng.next_u64())),
        current_epoch: prng.next_u64(),
        config_epoch: prng.below(100),
        offset: prng.next_u64(),
        slots: Box::new(slots),
        ip: text(prng, 45),
        port: prng.next_u64() as u16,
        other_port: prng.next_u64() as u16,
        bus_port: prng.next_u64() as u16,
        flags: Flags(prng.next_u64() as u16),
        is_ok: prng.below(2) == 0,
        is_paused: prng.below(2) == 0,
        forces_vote: prng.below(2) == 0,
    }
}

fn text(prng: &mut Prng, bytes_max: u64) -> String {
    (0..prng.below(bytes_max + 1)).map(|_| *prng.pick(b"abcxyz019.-:/_") as char).collect()
}

fn gossip_of(prng: &mut Prng) -> Gossip {
    Gossip {
        id: id(prng.next_u64()),
        ping_sent_s: prng.next_u64() as u32,
        pong_received_s: prng.next_u64() as u32,
        ip: text(prng, 45),
        port: prng.next_u64() as u16,
        other_port: prng.next_u64() as u16,
        bus_port: prng.next_u64() as u16,
        flags: Flags(prng.next_u64() as u16),
    }
}

fn extensions_of(prng: &mut Prng) -> Extensions {
    let addresses = ["", "10.0.0.1", "255.255.255.255"];
    let longer = ["", "::1", "2001:db8::3"];
    Extensions {
        hostname: text(prng, 20),
        human_name: text(prng, 20),
        availability_zone: text(prng, 20),
        client_ipv4: prng.pick(&addresses).to_string(),
        client_ipv6: prng.pick(&longer).to_string(),
        client_port: prng.below(3) as u16,
        client_tls_port: prng.below(3) as u16,
        shard: (prng.below(4) > 0).then(|| id(prng.next_u64())),
        forgotten: (0..prng.below(3)).map(|_| (id(prng.next_u64()), prng.below(60))).collect(),
    }
}

fn body(prng: &mut Prng) -> Body<'static> {
    match prng.below(9) {
        0 => Body::Fail(id(prng.next_u64())),
        1 => Body::Publish { channel: b"news", message: b"\0\xff text", is_sharded: prng.below(2) == 0 },
        2 => Body::VoteRequest,
        3 => Body::Vote,
        4 => Body::Update { node: id(7), config_epoch: prng.next_u64(), slots: header(prng).slots },
        5 => Body::ManualFailover,
        6 => Body::Module,
        _ => Body::Ping {
            kind: *prng.pick(&[PingKind::Ping, PingKind::Pong, PingKind::Meet]),
            gossip: (0..prng.below(6)).map(|_| gossip_of(prng)).collect(),
            extensions: Some(Box::new(extensions_of(prng))),
        },
    }
}

fn message(prng: &mut Prng) -> Message<'static> {
    let body = body(prng);
    let is_light = Type::of(&body).may_be_light() && prng.below(2) == 0;
    Message { header: (!is_light).then(|| Box::new(header(prng))), body }
}

fn encoded(message: &Message<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    encode(message, &mut out);
    out
}

/// A PING without flaw, of two nodes and a hostname.
fn a_ping() -> Vec<u8> {
    let mut prng = Prng::new(1);
    let gossip = vec![gossip_of(&mut prng), gossip_of(&mut prng)];
    let extensions = Extensions { hostname: "host".into(), shard: Some(id(3)), ..Extensions::default() };
    let body = Body::Ping { kind: PingKind::Ping, gossip, extensions: Some(Box::new(extensions)) };
    encoded(&Message { header: Some(Box::new(header(&mut prng))), body })
}

const GOSSIP_AT: usize = at::HEADER_BYTES;
const HOSTNAME_AT: usize = GOSSIP_AT + 2 * gossip::BYTES;
const SHARD_AT: usize = HOSTNAME_AT + 16;

#[test]
fn what_is_written_is_read() {
    for seed in 0..2000 {
        let message = message(&mut Prng::new(seed));
        let mut bytes = b"before".to_vec();
        encode(&message, &mut bytes);
        let bytes = &bytes[6..];
        assert_eq!(decode(bytes).as_ref(), Ok(&message), "seed {seed}");
        for kept in [0, 13, 14, bytes.len()] {
            let whole = (kept >= 14).then_some(bytes.len());
            assert_eq!(frame(&bytes[..kept], CAPS), Ok(whole), "seed {seed}");
        }
    }
}

#[test]
fn bytes_that_are_changed_or_cut_do_no_harm() {
    for seed in 0..3000 {
        let mut prng = Prng::new(seed);
        let mut bytes = encoded(&message(&mut prng));
        for _ in 0..=prng.below(4) {
            let at = prng.below(bytes.len() as u64) as usize;
            bytes[at] = prng.next_u64() as u8;
        }
        bytes.truncate(bytes.len() - prng.below(3) as usize * prng.below(200) as usize % bytes.len());
        let Ok(message) = decode(&bytes) else { continue };
        assert_eq!(decode(&encoded(&message)).map(plain), Ok(plain(message)), "seed {seed}");
    }
}

/// A sender that knows no extensions is written as one that does.
fn plain(mut message: Message<'_>) -> Message<'_> {
    if let Body::Ping { extensions, .. } = &mut message.body {
        extensions.get_or_insert_default();
    }
    message
}

#[test]
fn frames() {
    let mut prefix = a_ping()[..14].to_vec();
    let with = |prefix: &mut [u8], kind: u16, total: u32| {
        at::TYPE.put(prefix, &kind.to_be_bytes());
        at::TOTAL.put(prefix, &total.to_be_bytes());
    };
    let closes = |what| Err(Malformed::closes(what));
    let (short, long) = ("shorter than its header", "longer than its type allows");
    for (kind, total, wants) in [
        (0, 2256, Ok(Some(2256))),
        (0, 2255, closes(short)),
        (0, 16 << 20, Ok(Some(16 << 20))),
        (0, (16 << 20) + 1, closes(long)),
        (0, u32::MAX, closes(long)),
        (3, 2296, Ok(Some(2296))),
        (3, 2297, Ok(Some(2297))),
        (3, (64 << 10) + 1, closes(long)),
        (4, 3256, Ok(Some(3256))),
        (4, 4000, closes(long)),
        (0x8004, 16, Ok(Some(16))),
        (0x8004, 15, closes(short)),
        (0x8000, 16, Ok(Some(16))),
        (99, 2256, Ok(Some(2256))),
        (99, 99999, closes(long)),
    ] {
        with(&mut prefix, kind, total);
        assert_eq!(frame(&prefix, CAPS), wants, "type {kind}, {total} B");
    }
    prefix[3] = b'B';
    assert_eq!(frame(&prefix, CAPS), closes("not a message of the cluster bus"));
}

/// Returns the body decoded from a message after a change, or the reason why it is ignored. The total length
/// in the message is corrected first.
fn after(mut bytes: Vec<u8>, change: impl FnOnce(&mut Vec<u8>)) -> Result<String, &'static str> {
    change(&mut bytes);
    let total = bytes.len() as u32;
    at::TOTAL.put(&mut bytes, &total.to_be_bytes());
    let result = decode(&bytes).map(|message| format!("{:?}", message.body));
    result.map_err(|malformed| {
        assert_eq!(malformed.kind, Defect::Ignored);
        malformed.what
    })
}

#[test]
fn lengths_that_do_not_agree() {
    let too_long = "an extension that is longer than the rest";
    let of_type = "not of the length of its type";
    let refuses = |what, change: &dyn Fn(&mut Vec<u8>)| assert_eq!(after(a_ping(), change), Err(what));
    refuses("more nodes than its length has room for", &|b| at::COUNT.put(b, &[0xff, 0xff]));
    refuses(too_long, &|b| at::EXTENSIONS.put(b, &[0, 3]));
    refuses(of_type, &|b| at::EXTENSIONS.put(b, &[0, 1]));
    refuses(of_type, &|b| b.push(0));
    refuses(of_type, &|b| at::MESSAGE_FLAGS.put(b, &[0]));
    refuses(too_long, &|b| b.truncate(b.len() - 1));
    refuses("an extension whose length is no multiple of 8", &|b| b[HOSTNAME_AT + 3] = 17);
    refuses("an extension whose length is no multiple of 8", &|b| b[HOSTNAME_AT + 3] = 0);
    refuses(too_long, &|b| extension::LENGTH.put(&mut b[HOSTNAME_AT..], &[0xff, 0xff, 0xff, 0xf8]));
    refuses("an extension that is shorter than its value", &|b| {
        extension::TYPE.put(&mut b[HOSTNAME_AT..], &[0, 3]);
    });
    refuses("of another version of the protocol", &|b| at::VERSION.put(b, &[0, 2]));
    refuses("of a type that is not known", &|b| at::TYPE.put(b, &[0, 11]));
    refuses("a light header on a type that has none", &|b| at::TYPE.put(b, &[0x80, 0]));
    for (kind, wants) in [(3, of_type), (5, of_type), (6, of_type), (7, of_type), (8, of_type)] {
        refuses(wants, &|b| at::TYPE.put(b, &[0, kind]));
    }
    let published = || {
        let body = Body::Publish { channel: b"ab", message: b"cd", is_sharded: false };
        encoded(&Message { header: None, body })
    };
    let too_long = "a channel or message that is longer than the rest";
    assert_eq!(after(published(), |b| b[16] = 0xff), Err(too_long));
    assert_eq!(after(published(), |b| b[20] = 0xff), Err(of_type));
    assert_eq!(after(published(), |b| b.truncate(20)), Err(too_long));
    let modules = encoded(&Message { header: None, body: Body::Module });
    assert_eq!(after(modules.clone(), |b| b.push(1)), Err(of_type));
    assert_eq!(after(modules, |b| b.truncate(20)), Err("shorter than what a module sends"));
}

#[test]
fn ids_and_texts() {
    let refuses = |what, change: &dyn Fn(&mut Vec<u8>)| assert_eq!(after(a_ping(), change), Err(what));
    refuses("an id that is none", &|b| b[at::SENDER.at] = b'A');
    refuses("an id that is none", &|b| at::PRIMARY.put(b, b"X"));
    refuses("the sender's address is no text", &|b| at::IP.put(b, b"a b\0"));
    refuses("the sender's address is no text", &|b| at::IP.put(b, &[b'1'; 46]));
    refuses("an extension whose text has no end", &|b| b[HOSTNAME_AT + 8..SHARD_AT].fill(b'a'));
    let no_nodes = |change: &dyn Fn(&mut Vec<u8>)| {
        assert!(after(a_ping(), change).expect("a message").contains("gossip: []"));
    };
    no_nodes(&|b| b[GOSSIP_AT + gossip::BYTES] = 0);
    no_nodes(&|b| gossip::IP.put(&mut b[GOSSIP_AT..], b"1,2\0"));
    let hostname = |text: &'static [u8]| {
        after(a_ping(), move |b| b[HOSTNAME_AT + 8..][..text.len()].copy_from_slice(text)).expect("a message")
    };
    assert!(hostname(b"ab\0").contains("hostname: \"ab\""));
    for odd in [b"a b\0".as_slice(), b"a,b\0", b"\n\0", b"\xff\0", b"=\0"] {
        assert!(hostname(odd).contains("hostname: \"\""));
    }
    let shard = after(a_ping(), |b| b[SHARD_AT + 8] = b'-').expect("a message");
    assert!(shard.contains("shard: None"));
}

#[test]
fn a_secret_is_no_address() {
    let retyped = |value: &'static [u8]| {
        let changed = after(a_ping(), move |b| {
            extension::TYPE.put(&mut b[SHARD_AT..], &[0, 4]);
            b[SHARD_AT + 8..][..value.len()].copy_from_slice(value);
        });
        changed.expect("a message")
    };
    assert!(retyped(b"10.0.0.1\0").contains("client_ipv4: \"10.0.0.1\""));
    assert!(retyped(b"").contains("client_ipv4: \"\""));
    assert!(retyped(b"secret\0").contains("client_ipv4: \"\""));
    let unknown = after(a_ping(), |b| extension::TYPE.put(&mut b[SHARD_AT..], &[1, 0]));
    assert!(unknown.expect("a message").contains("shard: None"));
}

#[test]
#[should_panic(expected = "has a full header")]
fn a_vote_is_never_light() {
    encode(&Message { header: None, body: Body::Vote }, &mut Vec::new());
}
