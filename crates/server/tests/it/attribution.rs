//! The users of memory, as MEMORY PREFIXES, TOP and DIFF and the histograms of INFO report them.

use crate::common;
use crate::common::{Client, Server, encode};

const OK: &str = "+OK\r\n";

/// The number after a name in a reply.
#[track_caller]
fn number(reply: &str, name: &str) -> i64 {
    let (_, rest) = reply.split_once(&format!("{name}\r\n:")).unwrap_or_else(|| panic!("{name}: {reply:?}"));
    rest.split("\r\n").next().unwrap().parse().unwrap()
}

/// The text of one row, from its name on.
#[track_caller]
fn row<'a>(reply: &'a str, name: &str) -> &'a str {
    let at = reply.find(&format!("${}\r\n{name}\r\n", name.len()));
    &reply[at.unwrap_or_else(|| panic!("{name} is not in {reply:?}"))..]
}

#[track_caller]
fn lines(client: &mut Client, section: &str, expected: &[&str]) {
    let reply = client.ask(&format!("INFO {section}"));
    let lines: Vec<&str> = reply.split("\r\n").skip(2).filter(|line| !line.is_empty()).collect();
    assert_eq!(lines, expected);
}

/// Sends the same request for many numbers: `{}` stands for one.
fn many(client: &mut Client, count: usize, request: &str) {
    for first in (0..count).step_by(1000) {
        let numbers = first..count.min(first + 1000);
        let requests = numbers.clone().flat_map(|number| {
            let words = request.split(' ').map(|word| word.replace("{}", &number.to_string()));
            encode(&words.collect::<Vec<_>>())
        });
        client.send(requests.collect::<Vec<u8>>());
        numbers.for_each(|_| drop(client.read_reply()));
    }
}

#[test]
fn sizes_are_reported_as_redis_does() {
    let server = Server::with_workers(2, &[]);
    let mut client = server.client();
    lines(&mut client, "keysizes", &[]);
    for request in ["SET b abcde", "APPEND b xyz", "SET c x", "RPUSH l 1 2 3", "SADD s 1 2", "ZADD z 1 1"] {
        client.ask(request);
    }
    client.ask("HSET h a 1 b 2");
    client.ask("XADD x * a 1");
    client.check(&format!("SET k {}", "x".repeat(2049)), OK);
    client.check("SELECT 3", OK);
    client.check("SET k abc EX 100", OK);
    many(&mut client, 300, "RPUSH long {}");
    let of_db3 = ["db3_distrib_strings_sizes:2=1", "db3_distrib_lists_items:256=1"];
    let of_db0 = [
        "db0_distrib_strings_sizes:1=1,8=1,2K=1",
        "db0_distrib_lists_items:2=1",
        "db0_distrib_sets_items:2=1",
        "db0_distrib_zsets_items:1=1",
        "db0_distrib_hashes_items:2=1",
    ];
    lines(&mut client, "keysizes", &[&of_db0[..], &of_db3[..]].concat());
    client.check("DEL long", ":1\r\n");
    client.check("FLUSHDB", OK);
    lines(&mut client, "keysizes", &of_db0);
    client.check("SWAPDB 0 3", OK);
    let moved = of_db0.map(|line| line.replace("db0", "db3"));
    lines(&mut client, "keysizes", &moved.each_ref().map(String::as_str));
    assert!(client.ask("INFO").contains("# Keysizes"));
    lines(&mut client, "idletimes", &["db3_idle_keys_sampled:8", "db3_distrib_idle_seconds:0=8"]);
}

#[test]
fn the_largest_keys_are_listed() {
    let server = Server::with_workers(2, &[]);
    let mut client = server.client();
    client.check("MEMORY TOP", "*4\r\n$19\r\ncomplete-from-bytes\r\n:4096\r\n$4\r\nkeys\r\n*0\r\n");
    many(&mut client, 2000, "SET small:{} value");
    client.check(&format!("SET big {}", "x".repeat(300_000)), OK);
    many(&mut client, 5000, "RPUSH list element-{}");
    client.check("SELECT 2", OK);
    client.check(&format!("SET other {}", "x".repeat(30_000)), OK);
    let reply = client.ask("MEMORY TOP 3");
    let places = ["big", "list", "other"].map(|name| row(&reply, name).len());
    assert!(places[0] > places[1] && places[1] > places[2] && !reply.contains("small"), "{reply}");
    assert!((300_000..310_000).contains(&number(row(&reply, "big"), "$5\r\nbytes")), "{reply}");
    assert_eq!(number(row(&reply, "other"), "db"), 2);
    assert!(row(&reply, "list").contains("quicklist"));
    assert_eq!(number(&reply, "complete-from-bytes"), 4096);
    client.check("FLUSHDB", OK);
    assert!(!client.ask("MEMORY TOP 1000").contains("other"));
    client.check("FLUSHALL", OK);
    client.check("MEMORY TOP", "*4\r\n$19\r\ncomplete-from-bytes\r\n:4096\r\n$4\r\nkeys\r\n*0\r\n");
}

#[test]
fn prefixes_have_shares() {
    let port = common::free_port();
    let server = Server::with_metrics(2, port, &["--memory-pinned-prefixes", "user:1 none"]);
    let mut client = server.client();
    many(&mut client, 8000, "SET user:{}:name value-of-the-user");
    many(&mut client, 4000, "SET cart:{} x EX 1000");
    many(&mut client, 4000, "SET bare{} x");
    let reply = client.ask("MEMORY PREFIXES");
    let (user, cart) = (row(&reply, "user"), row(&reply, "cart"));
    assert!(user.len() > cart.len(), "{reply}");
    for (part, keys) in [(user, 8000), (cart, 4000), (row(&reply, "without"), 4000)] {
        let (reported, error) = (number(part, "keys"), number(part, "keys-error"));
        // Right in 19 of 20 cases; three times as much in all but one of 50,000.
        assert!((reported - keys).abs() <= 3 * error && error < keys, "{reported} +- {error} is {keys}");
        let bytes = number(part, "$5\r\nbytes");
        assert!(bytes > 5 * reported && bytes < 60 * reported, "{bytes} for {reported}");
    }
    assert!(cart.contains("ttl-percent\r\n$3\r\n100\r\n"), "{cart}");
    // user:1, user:1*: 1 + 10 + 100 + 1000.
    assert_eq!(number(row(&reply, "user:1"), "keys"), 1111);
    assert_eq!(number(row(&reply, "user:1"), "keys-error"), 0);
    assert_eq!(number(row(&reply, "none"), "keys"), 0);
    let mut stream = Client::over_any(std::net::TcpStream::connect(("127.0.0.1", port)).unwrap());
    stream.send("GET /metrics HTTP/1.0\r\n\r\n");
    let page = String::from_utf8(stream.read_to_end()).unwrap();
    for line in [
        r#"isotherm_prefix_keys{kind="pinned",prefix="user:1"} 1111"#,
        r#"isotherm_prefix_bytes{kind="largest",prefix="cart"} "#,
    ] {
        assert!(page.contains(line), "{page}");
    }
    let reply = client.ask("MEMORY PREFIXES DEPTH 2 TOP 3");
    assert_eq!(reply.matches("$6\r\nprefix\r\n").count(), 3 + 2, "{reply}");
    assert!(number(row(&reply, "without"), "keys") > 3000);
    for parameter in ["memory-pinned-prefixes cart:", "memory-prefix-separator /"] {
        let reply = client.ask(&format!("CONFIG SET {parameter}"));
        assert!(reply.ends_with(" - can't set immutable config\r\n"), "{reply}");
    }
    client.check("FLUSHALL", OK);
    let reply = client.ask("MEMORY PREFIXES");
    assert!(!reply.contains("cart") && number(row(&reply, "user:1"), "keys") == 0);
    let off = Server::start(&["--memory-prefix-separator", ""]);
    let text = "-ERR prefixes are not counted, as memory-prefix-separator is empty\r\n";
    off.client().check("MEMORY PREFIXES", text);
}

#[test]
fn a_mark_is_compared_with() {
    let server = Server::start(&[]);
    let mut client = server.client();
    let text = "-ERR there is no mark to compare with: use MEMORY DIFF MARK first\r\n";
    client.check("MEMORY DIFF", text);
    client.check("SET a:1 x", OK);
    client.check("MEMORY DIFF MARK", OK);
    many(&mut client, 1000, "HSET h:{} field value");
    client.check("DEL a:1", ":1\r\n");
    let reply = client.ask("MEMORY DIFF");
    assert!(number(&reply, "used-memory-change") > 30_000, "{reply}");
    assert_eq!(number(row(&reply, "hash"), "keys"), 1000);
    assert_eq!(number(row(&reply, "string"), "keys"), -1);
    assert!(number(row(&reply, "by-purpose"), "values") > 10_000);
    let (keys, error) = (number(row(&reply, "h"), "keys"), number(row(&reply, "h"), "keys-error"));
    assert!((keys - 1000).abs() <= 2 * error, "{keys} +- {error}");
}

/// A reader with these rules, while others have keys.
fn reader(server: &Server, name: &str, rules: &str) -> Client {
    server.client().check(&format!("ACL SETUSER {name} on nopass +@all {rules}"), OK);
    let mut client = server.client();
    client.check(&format!("AUTH {name} any"), OK);
    client
}

/// Reports about keys name those that the user's patterns match, and no other.
#[test]
fn a_user_sees_rows_of_its_own_keys() {
    let port = common::free_port();
    let pinned = ["--memory-pinned-prefixes", "tags:a secret:a", "--hotkeys-sample-ratio", "1"];
    let server = Server::with_metrics(2, port, &pinned);
    let mut all = server.client();
    all.check("MEMORY DIFF MARK", OK);
    for name in ["tags:large", "secret:large"] {
        all.check(&format!("SET {name} {}", "x".repeat(10_000)), OK);
    }
    // A name that is cut in the list of the largest.
    let (ours, theirs) = (format!("tags:{}", "y".repeat(400)), format!("t{}", "y".repeat(400)));
    for name in [&ours, &theirs] {
        all.check(&format!("SET {name} {}", "x".repeat(10_000)), OK);
    }
    many(&mut all, 2000, "SET tags:a{} value");
    many(&mut all, 2000, "SET secret:a{} value");
    all.check("SELECT 1", OK);
    all.check(&format!("SET tags:elsewhere {}", "x".repeat(10_000)), OK);
    let reports = [
        "MEMORY TOP 100",
        "MEMORY PREFIXES",
        "MEMORY PREFIXES DEPTH 1 TOP 1",
        "MEMORY DIFF",
        "HOTKEYS GET COUNT 99",
    ];
    let slots = "CLUSTER SLOT-STATS SLOTSRANGE 0 99";
    for report in reports {
        let reply = all.ask(report);
        assert!(reply.contains("secret"), "{report}: {reply}");
    }
    assert_eq!(all.ask(slots).matches("key-count").count(), 100);

    let mut one = reader(&server, "one", "~tags:* -@dangerous +memory +hotkeys");
    for report in reports {
        let reply = one.ask(report);
        assert!(
            reply.contains("tags") && !reply.contains("secret") && !reply.contains("tyyy"),
            "{report}: {reply}"
        );
    }
    let reply = one.ask("MEMORY PREFIXES");
    assert!(number(row(&reply, "tags:a"), "keys") == 2000, "{reply}");
    assert_eq!(number(row(&reply, "other"), "keys") + number(row(&reply, "without"), "keys"), 0, "{reply}");
    assert!(one.ask("MEMORY TOP 100").contains("tags:elsewhere"));
    one.check(slots, "*0\r\n");
    // A question in a transaction, or by a script, is asked by the same user.
    one.check("MULTI", OK);
    one.check("MEMORY TOP 100", "+QUEUED\r\n");
    let reply = one.ask("EXEC");
    assert!(reply.contains("tags:large") && !reply.contains("secret"), "{reply}");

    // Any access to a key shows it, as it does to MEMORY USAGE; a part of a prefix does not show all of it.
    let mut writer = reader(&server, "writer", "%W~secret:* ~tags:a1*");
    let reply = writer.ask("MEMORY PREFIXES");
    assert!(reply.contains("secret") && !reply.contains("\r\ntags\r\n"), "{reply}");
    let mut base = reader(&server, "base", "~* db=0");
    let reply = base.ask("MEMORY TOP 100");
    assert!(reply.contains("secret:large") && !reply.contains("elsewhere"), "{reply}");
    assert!(!base.ask("MEMORY MAP").contains("\r\ndb1\r\n"));
    // The keys of a selector are for the commands of that selector.
    let mut other = reader(&server, "other", "-@all +hotkeys|get ~tags:* (+memory ~secret:*)");
    assert!(!other.ask("MEMORY TOP 100").contains("tags") && !other.ask("HOTKEYS GET").contains("secret"));
    let mut nothing = reader(&server, "nothing", "");
    for report in reports {
        let reply = nothing.ask(report);
        assert!(!reply.contains("secret") && !reply.contains("tags"), "{report}: {reply}");
    }

    // A client that asks for metrics is shown the data that the default user is shown.
    let page = || {
        let mut stream = Client::over_any(std::net::TcpStream::connect(("127.0.0.1", port)).unwrap());
        stream.send("GET /metrics HTTP/1.0\r\n\r\n");
        String::from_utf8(stream.read_to_end()).unwrap()
    };
    let shows = |page: &str, name: &str| page.contains(&format!("kind=\"largest\",prefix=\"{name}\""));
    let whole = page();
    assert!(shows(&whole, "tags") && shows(&whole, "secret"), "{whole}");
    let mut admin = reader(&server, "admin", "~* &*");
    admin.check("ACL SETUSER default resetkeys ~tags:*", OK);
    let whole = page();
    assert!(shows(&whole, "tags") && !shows(&whole, "secret"), "{whole}");
    assert!(whole.contains("kind=\"pinned\",prefix=\"secret:a\""), "{whole}");
    admin.check("ACL SETUSER default off", OK);
    assert!(!page().contains("kind=\"largest\""));
}

#[test]
fn wrong_words() {
    let server = Server::start(&[]);
    let mut client = server.client();
    let (syntax, integer) = ("ERR syntax error", "ERR value is not an integer or out of range");
    let positive = "ERR value is out of range, must be positive";
    for (request, text) in [
        ("TOP x", integer),
        ("TOP 0", positive),
        ("TOP -1", positive),
        ("TOP 99999999999999999999", integer),
        ("TOP 1 2", syntax),
        ("PREFIXES x", syntax),
        ("PREFIXES DEPTH", syntax),
        ("PREFIXES DEPTH 0", positive),
        ("PREFIXES DEPTH 4", "ERR DEPTH has to lie in between 1 and 3."),
        ("PREFIXES DEPTH x", integer),
        ("PREFIXES TOP 0", positive),
        ("PREFIXES DEPTH 1 TOP", syntax),
        ("DIFF x", syntax),
        ("DIFF MARK MARK", syntax),
        ("NONSENSE", "ERR unknown subcommand 'NONSENSE'. Try MEMORY HELP."),
    ] {
        client.check(&format!("MEMORY {request}"), &format!("-{text}\r\n"));
    }
    let help = client.ask("MEMORY HELP");
    for word in ["DIFF [MARK]", "PREFIXES [DEPTH <depth>]", "TOP [<count>]"] {
        assert!(help.contains(word), "{help}");
    }
}
