//! Copies of whole collections: of streams, to keys of the same partition and of others; of lists, that SORT
//! stores.

use crate::common::Server;
use isotherm_keyspace::NoEffects;
use isotherm_resp::ArgsBuf;
use isotherm_resp::reply::Protocol;

fn ask(server: &mut Server, words: &[&str]) -> String {
    let args: ArgsBuf = words.iter().map(|word| word.as_bytes()).collect();
    String::from_utf8(server.run(args.args(), &mut NoEffects).out).expect("characters")
}

/// Keys of many slots, so that some lie in each partition.
const TARGETS: usize = 12;

#[test]
fn a_stream_is_the_same_wherever_it_is_copied() {
    let mut server = Server::new(Protocol::Resp2, 8);
    // Blocks in the arena, and two that one entry has made too large for it.
    let long = "x".repeat(20_000);
    for number in 1..=1500 {
        let value = if number % 700 == 0 { long.as_str() } else { "value" };
        ask(&mut server, &["XADD", "s", &format!("{number}-1"), "field", value, "other", "1"]);
    }
    ask(&mut server, &["XDEL", "s", "3-1", "1500-1"]);
    ask(&mut server, &["XGROUP", "CREATE", "s", "g", "0"]);
    ask(&mut server, &["XREADGROUP", "GROUP", "g", "ann", "COUNT", "5", "STREAMS", "s", ">"]);
    let shown = |server: &mut Server, key: &str| {
        ["XRANGE - +", "XINFO STREAM FULL COUNT 0", "XPENDING g"].map(|request| {
            let (name, rest) = request.split_once(' ').expect("a name");
            let mut words: Vec<&str> = vec![name];
            let rest: Vec<&str> = rest.split(' ').collect();
            let at = usize::from(name == "XINFO");
            words.extend(&rest[..at]);
            words.push(key);
            words.extend(&rest[at..]);
            ask(server, &words)
        })
    };
    let expected = shown(&mut server, "s");
    assert!(expected[0].len() > 2 * long.len() && expected[2].starts_with("*4\r\n:5\r\n"), "{}", expected[2]);
    let of_one = server.large_bytes();
    for number in 0..TARGETS {
        assert_eq!(ask(&mut server, &["COPY", "s", &format!("copy:{number}")]), ":1\r\n");
    }
    assert_eq!(server.large_bytes(), of_one, "long entries are shared");
    // A change of one copy leaves the others alone.
    ask(&mut server, &["XDEL", "s", "700-1", "701-1"]);
    ask(&mut server, &["XADD", "s", "2000-1", "a", "b"]);
    for number in 0..TARGETS {
        let key = format!("copy:{number}");
        assert!(shown(&mut server, &key) == expected, "{key}");
        assert_eq!(ask(&mut server, &["XADD", &key, "1600-1", "c", &long]), "$6\r\n1600-1\r\n");
        server.check_invariants();
        assert_eq!(ask(&mut server, &["DEL", &key]), ":1\r\n");
    }
    ask(&mut server, &["DEL", "s"]);
    server.check_invariants();
}

#[test]
fn sort_stores_what_it_answers() {
    const ELEMENTS: usize = 3000;
    let mut server = Server::new(Protocol::Resp2, 4);
    let long = "9".repeat(300);
    let numbers: Vec<String> = (0..ELEMENTS).map(|at| (at * 7919 % ELEMENTS).to_string()).collect();
    for some in numbers.chunks(500) {
        let words: Vec<&str> = ["RPUSH", "l"].into_iter().chain(some.iter().map(String::as_str)).collect();
        ask(&mut server, &words);
    }
    ask(&mut server, &["RPUSH", "l", "1.0", "-3", "1e2", &long, "01", "-0", "-inf", "-3.5", "+inf"]);
    ask(&mut server, &["MSET", "w_1", "5", "w_2", "4", "w_01", "3"]);
    let orders: [&[&str]; 8] = [
        &[],
        &["DESC"],
        &["ALPHA"],
        &["ALPHA", "DESC", "LIMIT", "10", "2000"],
        &["LIMIT", "1", "3"],
        &["BY", "w_*", "DESC", "LIMIT", "0", "2"],
        &["BY", "nosort", "DESC"],
        &["LIMIT", "0", "5", "GET", "#", "GET", "w_*"],
    ];
    for order in orders {
        let reply = ask(&mut server, &[&["SORT", "l"], order].concat());
        let stored = ask(&mut server, &[&["SORT", "l"], order, &["STORE", "to"]].concat());
        let count = reply[1..].split("\r\n").next().unwrap().to_string();
        assert_eq!(stored, format!(":{count}\r\n"), "{order:?}");
        // A value that is not there is stored as an empty one.
        let expected = reply.replace("$-1\r\n", "$0\r\n\r\n");
        assert!(ask(&mut server, &["LRANGE", "to", "0", "-1"]) == expected, "{order:?}");
        server.check_invariants();
    }
    let text = ask(&mut server, &["SORT", "l", "LIMIT", "0", "4"]);
    assert_eq!(text, "*4\r\n$4\r\n-inf\r\n$4\r\n-3.5\r\n$2\r\n-3\r\n$2\r\n-0\r\n");
    let text = ask(&mut server, &["SORT", "l", "LIMIT", "4", "3"]);
    assert_eq!(text, "*3\r\n$1\r\n0\r\n$2\r\n01\r\n$1\r\n1\r\n");
    let text = ask(&mut server, &["SORT", "l", "DESC", "LIMIT", "0", "2"]);
    assert_eq!(text, format!("*2\r\n$4\r\n+inf\r\n$300\r\n{long}\r\n"));
    // The list itself may be the target.
    assert_eq!(ask(&mut server, &["SORT", "l", "STORE", "l"]), format!(":{}\r\n", ELEMENTS + 9));
    assert_eq!(ask(&mut server, &["LRANGE", "l", "2", "2"]), "*1\r\n$2\r\n-3\r\n");
    assert_eq!(ask(&mut server, &["RPUSH", "l", "x"]), format!(":{}\r\n", ELEMENTS + 10));
    let refused = ask(&mut server, &["SORT", "l", "STORE", "to"]);
    assert_eq!(refused, "-ERR One or more scores can't be converted into double\r\n");
}
