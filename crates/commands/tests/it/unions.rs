//! SUNIONSTORE with a large set among its sources, which is taken over as it is, compared with one that has
//! small sets only.

use crate::common::Server;
use isotherm_keyspace::{Effect, EffectMask, EffectSink};
use isotherm_resp::ArgsBuf;
use isotherm_resp::reply::Protocol;
use std::collections::BTreeSet;

/// Events by name and key.
#[derive(Default)]
struct Events(Vec<String>);

impl EffectSink for Events {
    fn mask(&self) -> EffectMask {
        EffectMask::EVENTS
    }

    fn effect(&mut self, effect: Effect<'_>) {
        if let Effect::Event { name, key, .. } = effect {
            self.0.push(format!("{name} {}", String::from_utf8_lossy(key)));
        }
    }
}

fn ask(server: &mut Server, words: &[&str], events: &mut Events) -> String {
    let args: ArgsBuf = words.iter().map(|word| word.as_bytes()).collect();
    String::from_utf8(server.run(args.args(), events).out).expect("characters")
}

fn members(server: &mut Server, key: &str) -> BTreeSet<String> {
    let reply = ask(server, &["SMEMBERS", key], &mut Events::default());
    let texts: Vec<&str> = reply.split("\r\n").skip(2).step_by(2).collect();
    let set: BTreeSet<String> = texts.iter().map(|text| text.to_string()).collect();
    assert_eq!(set.len(), texts.len(), "no member comes twice");
    set
}

/// A server with sets `a` and `b`, which share members, a small `c`, and a string `d` with a time. Some
/// members of `a` and `b` lie outside their pages.
fn server(partitions: usize, size: usize) -> Server {
    let mut server = Server::new(Protocol::Resp2, partitions);
    let [long, larger] = [300, 6000].map(|len| "x".repeat(len));
    for (key, from) in [("a", 0), ("b", size / 2)] {
        let names: Vec<String> = (from..from + size).map(|number| format!("member:{number}")).collect();
        for some in names.chunks(500) {
            let words: Vec<&str> = ["SADD", key].into_iter().chain(some.iter().map(String::as_str)).collect();
            ask(&mut server, &words, &mut Events::default());
        }
        let own = format!("{key}{long}");
        ask(&mut server, &["SADD", key, &long, &own, &larger, "7"], &mut Events::default());
    }
    for words in [&["SADD", "c", "1", "2", "7"][..], &["SET", "d", "x", "EX", "100"], &["EXPIRE", "a", "100"]]
    {
        ask(&mut server, words, &mut Events::default());
    }
    server
}

const UNIONS: [&[&str]; 9] = [
    &["new", "a", "b"],
    &["d", "b", "a"],
    &["a", "a", "b"],
    &["b", "a", "b"],
    &["b", "b", "a", "b"],
    &["new", "a"],
    &["new", "none", "a", "c"],
    &["c", "c", "a", "b"],
    &["a", "a", "a"],
];

#[test]
fn a_large_union_is_what_a_small_one_is() {
    for (partitions, union) in [1, 8].into_iter().flat_map(|count| UNIONS.map(|union| (count, union))) {
        let of_size = |size| {
            let mut server = server(partitions, size);
            let sources: Vec<_> = union[1..].iter().map(|key| (*key, members(&mut server, key))).collect();
            let expected: BTreeSet<String> = sources.iter().flat_map(|(_, set)| set.clone()).collect();
            let mut events = Events::default();
            let reply = ask(&mut server, &[&["SUNIONSTORE"], union].concat(), &mut events);
            assert_eq!(reply, format!(":{}\r\n", expected.len()), "{union:?} of {size}");
            assert_eq!(members(&mut server, union[0]), expected, "{union:?} of {size}");
            for (key, set) in sources.into_iter().filter(|(key, _)| *key != union[0]) {
                assert_eq!(members(&mut server, key), set, "{union:?} changes {key}");
            }
            assert_eq!(ask(&mut server, &["TTL", union[0]], &mut Events::default()), ":-1\r\n");
            let encoding = ask(&mut server, &["OBJECT", "ENCODING", union[0]], &mut Events::default());
            assert_eq!(encoding, "$9\r\nhashtable\r\n");
            // Members that were shared or copied leave alone.
            for key in ["a", "b", "c", "new"] {
                server.check_invariants();
                ask(&mut server, &["DEL", key], &mut Events::default());
            }
            server.check_invariants();
            events.0
        };
        assert_eq!(of_size(1200), of_size(20), "{union:?}");
    }
}
