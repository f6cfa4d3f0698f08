use super::*;
use isotherm_stdx::Prng;

const A: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
const B: &str = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb";
const S: &str = "5555555555555555555555555555555555555555";

fn id(text: &str) -> NodeId {
    NodeId::parse(text.as_bytes()).expect("an id")
}

/// `A`, `B` and `S` stand for ids, between characters that are none of a word.
fn file(text: &str) -> String {
    text.replace("$A", A).replace("$B", B).replace("$S", S)
}

fn read_plain(text: &str) -> Result<Conf, Defect> {
    read(file(text).as_bytes(), false).map_err(|error| error.defect)
}

fn only(text: &str) -> ConfNode {
    let conf = read_plain(text).unwrap_or_else(|defect| panic!("{text}: {defect:?}"));
    conf.nodes.into_iter().next().expect("a node")
}

#[test]
fn what_is_written_is_read() {
    for text in [
        "$A :0@0,,tls-port=0 myself,master - 0 0 0 connected\nvars currentEpoch 0 lastVoteEpoch 0 forgotten $B,$S\n",
        "$A 10.0.0.1:6379@16379,a.example,availability-zone=z-1,client-tls-port=1,client-tcp-port=2,client-ipv6=::1,\
         client-ipv4=1.2.3.4,tls-port=6380,nodename=n,shard-id=$S myself,master,nofailover - 0 1690000000000 3 connected \
         0-99 200 300-16383 [5->-$B] [150-<-$B] [200->-$B]\n\
         $B 2001:db8::1:6379@16379,,tls-port=0,shard-id=$S slave,fail? $A 12 13 3 disconnected\n\
         vars currentEpoch 18446744073709551615 lastVoteEpoch 9\n",
        "$A h:1@2,,tls-port=3 myself,slave,fail,noaddr $B 0 0 7 connected\nvars currentEpoch 7 lastVoteEpoch 0\n",
    ] {
        let conf = read_plain(text).unwrap_or_else(|defect| panic!("{text}: {defect:?}"));
        assert_eq!(write(&conf), file(text));
    }
}

#[test]
fn values() {
    let node = only(
        "$A 10.0.0.1:6379@16379,a.example,nodename=n,tls-port=6380,client-tcp-port=2,shard-id=$S \
         myself,slave,fail? $B 1 2 3 connected 7 [150-<-$B] [5->-$B] [5->-$A]",
    );
    let address = Address {
        ip: "10.0.0.1".into(),
        tcp_port: 6379,
        tls_port: 6380,
        bus_port: 16379,
        hostname: "a.example".into(),
        human_name: "n".into(),
        client_tcp_port: 2,
        ..Address::default()
    };
    assert_eq!((node.address, node.shard, node.primary), (address, Some(id(S)), Some(id(B))));
    assert_eq!(node.flags, Flags::MYSELF | Flags::REPLICA | Flags::PFAIL);
    assert_eq!((node.ping_sent_ms, node.pong_received_ms, node.config_epoch), (1, 2, 3));
    assert_eq!((node.slots.len(), node.slots.has(Slot::new(7))), (1, true));
    assert_eq!(node.migrating, [(Slot::new(5), id(A))]);
    assert_eq!(node.importing, [(Slot::new(150), id(B))]);
}

#[test]
fn files_of_old_versions() {
    let old = |text: &str, is_tls| {
        let conf = read(file(text).as_bytes(), is_tls).expect("an old file");
        let address = &conf.nodes[0].address;
        (address.tcp_port, address.tls_port, address.bus_port, address.hostname.clone())
    };
    let rest = "myself,master - 0 0 1 connected 0-5460";
    assert_eq!(old(&format!("$A 127.0.0.1:6379 {rest}"), false), (6379, 0, 16379, String::new()));
    assert_eq!(old(&format!("$A 127.0.0.1:6379@7 {rest}"), false), (6379, 0, 7, String::new()));
    assert_eq!(old(&format!("$A 127.0.0.1:6379@7 {rest}"), true), (0, 6379, 7, String::new()));
    assert_eq!(old(&format!("$A ::1:6379@7,host {rest}"), true), (0, 6379, 7, "host".to_string()));
    assert_eq!(old(&format!("$A :0@7,,tcp-port=1 {rest}"), false), (1, 0, 7, String::new()));
    assert_eq!(old(&format!("$A :5@7,,tcp-port=1 {rest}"), true), (1, 5, 7, String::new()));
    assert_eq!(old(&format!("$A :5@7,,tcp-port=1,tls-port=2 {rest}"), true), (1, 2, 7, String::new()));
    let flags = only("$A :1@2 MYSELF,Slave,noaddr,noflags - 0 0 0 disconnected").flags;
    assert_eq!(flags, Flags::MYSELF | Flags::REPLICA | Flags::NOADDR | Flags::FAIL);
    assert_eq!(only("$A :1@2 myself,primary - 0 0 0 connected").flags, Flags::MYSELF | Flags::PRIMARY);
    assert_eq!(only("\n\n$A :1@2 \"myself\" - 0 0 0 connected\n\n\n").flags, Flags::MYSELF);
}

#[test]
fn epochs_and_shards() {
    let conf = read_plain(
        "vars lastVoteEpoch 4 CURRENTEPOCH 5 later 1\n$A :1@2,,shard-id=$S myself,master - 0 0 9 connected\n\
         $B :1@2,,shard-id=$B slave $A 0 0 9 connected 1\n",
    )
    .expect("a file");
    assert_eq!((conf.current_epoch, conf.last_vote_epoch), (9, 4));
    assert_eq!(conf.nodes[1].shard, Some(id(S)));
    assert_eq!(only("$A :1@2 myself,slave $B 0 0 0 connected").shard, None);
}

#[test]
fn of_two_that_claim_a_slot_the_first_has_it() {
    let conf = read_plain(
        "$A :1@2 myself,master - 0 0 1 connected 0-10 5-6 20-19\n$B :1@2 master - 0 0 2 connected 8-12\n",
    )
    .expect("a file");
    let slots = |at: usize| conf.nodes[at].slots.ranges().iter().map(|(a, b)| (a.get(), b.get())).collect();
    let (first, second): (Vec<_>, Vec<_>) = (slots(0), slots(1));
    assert_eq!((first, second), (vec![(0, 10)], vec![(11, 12)]));
}

#[test]
fn defects() {
    let me = "$A :1@2 myself,master - 0 0 1 connected";
    for (text, defect) in [
        ("", Defect::NoMyself),
        ("vars currentEpoch 1 lastVoteEpoch 0\n", Defect::NoMyself),
        ("$A :1@2 master - 0 0 1 connected", Defect::NoMyself),
        ("$A :1@2 myself - 0 0 1", Defect::TooFewWords),
        (" \n", Defect::TooFewWords),
        ("$A :1@2 \"myself - 0 0 1 connected", Defect::UnbalancedQuotes),
        ("vars currentEpoch", Defect::BadVariables),
        ("vars currentEpoch 1x", Defect::BadNumber),
        ("vars currentEpoch -1", Defect::BadNumber),
        ("vars currentEpoch 18446744073709551616", Defect::BadNumber),
        ("$A1 :1@2 myself - 0 0 1 connected", Defect::BadId),
        ("$A 1@2 myself - 0 0 1 connected", Defect::BadAddress),
        ("$A \"\" myself - 0 0 1 connected", Defect::BadAddress),
        ("$A :65536@2 myself - 0 0 1 connected", Defect::BadAddress),
        ("$A :60000 myself - 0 0 1 connected", Defect::BadAddress),
        ("$A :1@ myself - 0 0 1 connected", Defect::BadAddress),
        ("$A 1;2:1@2 myself - 0 0 1 connected", Defect::BadAddress),
        (
            "$A 0123456789012345678901234567890123456789012345:1@2 myself - 0 0 1 connected",
            Defect::BadAddress,
        ),
        ("$A :1@2,a=b myself - 0 0 1 connected", Defect::BadHostname),
        ("$A :1@2,, myself - 0 0 1 connected", Defect::BadAuxiliary),
        ("$A :1@2,,nodename myself - 0 0 1 connected", Defect::BadAuxiliary),
        ("$A :1@2,,nodename=a=b myself - 0 0 1 connected", Defect::BadAuxiliary),
        ("$A :1@2,,shard-id=a myself - 0 0 1 connected", Defect::BadAuxiliary),
        ("$A :1@2,,tls-port= myself - 0 0 1 connected", Defect::BadAuxiliary),
        ("$A :1@2,,tls-port=65536 myself - 0 0 1 connected", Defect::BadAuxiliary),
        ("$A :1@2,,client-ipv4=1.2.3 myself - 0 0 1 connected", Defect::BadAuxiliary),
        ("$A :1@2,,client-ipv6=1.2.3.4 myself - 0 0 1 connected", Defect::BadAuxiliary),
        ("$A :1@2,,zone=1 myself - 0 0 1 connected", Defect::UnknownAuxiliary),
        ("$A :1@2 myself,mistress - 0 0 1 connected", Defect::UnknownFlag),
        ("$A :1@2 myself, - 0 0 1 connected", Defect::UnknownFlag),
        ("$A :1@2 myself x 0 0 1 connected", Defect::BadId),
        ("$A :1@2 myself - 0 x 1 connected", Defect::BadNumber),
        ("$A :1@2 myself - 0 0 1 connected 16384", Defect::BadSlot),
        ("$A :1@2 myself - 0 0 1 connected 1-", Defect::BadSlot),
        ("$A :1@2 myself - 0 0 1 connected 1-2-3", Defect::BadSlot),
        ("$A :1@2 myself - 0 0 1 connected -1", Defect::BadSlot),
        ("$A :1@2 myself - 0 0 1 connected [1]", Defect::BadSlot),
        ("$A :1@2 myself - 0 0 1 connected [1->-$B", Defect::BadSlot),
        ("$A :1@2 myself - 0 0 1 connected [1-=-$B]", Defect::BadSlot),
        ("$A :1@2 myself - 0 0 1 connected [16384->-$B]", Defect::BadSlot),
        ("$A :1@2 myself - 0 0 1 connected [1->-b]", Defect::BadId),
    ] {
        assert_eq!(read_plain(text), Err(defect), "{text}");
    }
    assert_eq!(read_plain(&format!("{me}\n{me}")), Err(Defect::DuplicateId));
    assert_eq!(read_plain(&format!("{me}\n{}", me.replace("$A", "$B"))), Err(Defect::TwoMyself));
    assert_eq!(read_plain(&format!("{me}{}", " 1".repeat(1 << 21))), Err(Defect::TooLong));
    assert_eq!(read(&vec![b'\n'; FILE_BYTES_MAX + 1], false).expect_err("too long").defect, Defect::TooLong);
}

#[test]
fn defects_in_valkeys_words() {
    let words = |text: &str| read(file(text).as_bytes(), false).expect_err("a defect").to_string();
    assert_eq!(
        words("\nvars x"),
        "Unrecoverable error: corrupted cluster config file \"vars x\". (line 2: a variable without its value)"
    );
    let two = "$A :1@2 myself - 0 0 1 connected\n$A :1@2 noflags - 0 0 1 connected";
    let id_twice = format!("Duplicate nodeid detected: {A} (line 2: a second line of the same node)");
    assert_eq!(words(two), id_twice);
    let flag = words("$A :1@2 y - 0 0 1 connected");
    assert_eq!(flag, "Unknown flag in Valkey cluster config file (line 1: a flag that is not known)");
}

#[test]
fn more_nodes_than_are_read() {
    let mut text = String::from("vars currentEpoch 1 lastVoteEpoch 0\n");
    for number in 0..=NODES_MAX {
        text.push_str(&format!("{number:040} :1@2 noflags - 0 0 1 connected\n"));
    }
    assert_eq!(read_plain(&text), Err(Defect::TooManyNodes));
}

/// A damaged file that can still be read is written out and read again as the same file.
#[test]
fn damaged_files_do_no_harm() {
    let whole = file(
        "$A 10.0.0.1:6379@16379,h,client-ipv4=1.2.3.4,tls-port=6380,shard-id=$S myself,master - 0 0 3 connected \
         0-99 200 [5->-$B] [150-<-$B]\n$B ::1:6379@16379,,tls-port=0 slave,fail? $A 12 13 3 disconnected\n\
         vars currentEpoch 5 lastVoteEpoch 9\n",
    );
    let mut read_again = 0;
    for seed in 0..20_000 {
        let mut prng = Prng::new(seed);
        let mut bytes = whole.clone().into_bytes();
        for _ in 0..=prng.below(3) {
            let at = prng.below(bytes.len() as u64) as usize;
            match prng.below(3) {
                0 => bytes[at] = *prng.pick(b"0123456789a,-=[]<> \n\"@:"),
                1 => drop(bytes.remove(at)),
                _ => bytes.insert(at, *prng.pick(b"05a,-= \n@:")),
            }
        }
        let Ok(mut conf) = read(&bytes, false) else { continue };
        conf.nodes.retain(|node| !node.flags.has(Flags::HANDSHAKE));
        let again = read(write(&conf).as_bytes(), false);
        assert_eq!(again.map(|conf| write(&conf)), Ok(write(&conf)), "seed {seed}");
        read_again += 1;
    }
    assert!(read_again > 1000);
}

#[test]
fn a_line_for_clients() {
    let node = only(
        "$A 10.0.0.1:6379@16379,,client-ipv4=1.2.3.4,client-tls-port=7,tls-port=6380,shard-id=$S myself - 0 0 3 connected",
    );
    let line = |is_tls, is_ipv6| {
        let mut out = String::new();
        write_line(&(&node).into(), Reader::Client { is_tls, is_ipv6 }, &mut out);
        out.split(' ').nth(1).expect("an address").to_string()
    };
    assert_eq!(line(false, false), "1.2.3.4:6379@16379");
    assert_eq!(line(true, true), "10.0.0.1:7@16379");
}
