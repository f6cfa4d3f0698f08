//! Large sorted sets with leaves on disk: they answer as a server does that has all of it in memory, whatever
//! asks.

use crate::common::{field, wait_until};
use crate::swap::{Folder, swap};
use crate::swap_pair::Pair;

const MEMBERS: usize = 20_000;

fn member(number: usize) -> String {
    format!("member:{number:06}:{}", "x".repeat(number % 40))
}

/// Not in the order of the members.
fn score(number: usize) -> f64 {
    (number * 7919 % MEMBERS) as f64 / 4.0
}

fn filled(folder: &Folder) -> Pair {
    let mut pair = Pair::new(folder);
    for from in (0..MEMBERS).step_by(100) {
        let scored = (from..from + 100).map(|n| format!(" {} {}", score(n), member(n)));
        pair.same(&format!("ZADD zset{}", scored.collect::<String>()));
        let even = (from..from + 100).map(|n| format!(" 0 {}", member(n)));
        pair.same(&format!("ZADD lex{}", even.collect::<String>()));
    }
    pair
}

const ALL: [&str; 2] = ["ZRANGE zset 0 -1 WITHSCORES", "ZRANGE lex 0 -1 WITHSCORES"];
const NODES_MIN: u64 = 300;

#[test]
fn readers_read_what_they_meet() {
    let folder = Folder::new("zsets-readers");
    let mut pair = filled(&folder);
    let hot = field(&pair.client.ask("INFO memory"), "used_memory");
    pair.sink(NODES_MIN);
    let cold = field(&pair.client.ask("INFO memory"), "used_memory");
    assert!(cold < hot * 2 / 3, "{hot} to {cold}");
    for request in ["ZCARD zset", "TYPE lex", "OBJECT ENCODING zset"] {
        pair.same(request);
    }
    assert_eq!(swap(&mut pair.client, "swap_nodes_came_home"), 0, "these need no part");
    let reads = swap(&mut pair.client, "swap_reads");
    pair.same(&format!("ZSCORE zset {}", member(7)));
    assert_eq!(swap(&mut pair.client, "swap_reads"), reads + 1, "one leaf is read");
    for n in (0..MEMBERS).step_by(1499) {
        let (low, high) = (score(n), score(n) + 30.0);
        for request in [
            format!("ZSCORE zset {}", member(n)),
            format!("ZSCORE zset no:{}", member(n)),
            format!("ZMSCORE lex {} no {}", member(n), member(n / 2)),
            format!("ZRANK zset {} WITHSCORE", member(n)),
            format!("ZREVRANK lex {}", member(n)),
            format!("ZRANGE zset {n} {}", n + 100),
            format!("ZREVRANGE zset {n} {} WITHSCORES", n + 60),
            format!("ZCOUNT zset {low} ({high}"),
            format!("ZRANGEBYSCORE zset ({low} {high} WITHSCORES"),
            format!("ZREVRANGEBYSCORE zset {high} {low} LIMIT 3 50"),
            format!("ZRANGE lex [{} ({} BYLEX LIMIT 5 100", member(n), member(n + 500)),
            format!("ZLEXCOUNT lex ({} [{}", member(n / 3), member(n)),
        ] {
            pair.same(&request);
        }
    }
    assert!(swap(&mut pair.client, "swap_nodes") > 100, "not all was needed");
    assert_eq!(swap(&mut pair.client, "swap_reads_in_commands"), 0);
    pair.sink(NODES_MIN);
    for request in ["ZRANDMEMBER zset", "ZRANDMEMBER lex 50", "ZRANDMEMBER zset -20 WITHSCORES"] {
        assert!(pair.client.ask(request).contains("member:"), "{request}");
    }
    let (mut cursor, mut seen) = ("0".to_string(), Vec::new());
    loop {
        let reply = pair.client.ask(&format!("ZSCAN zset {cursor} COUNT 300 NOSCORES"));
        let mut words = reply.split("\r\n").filter(|word| !word.starts_with(['*', '$']) && !word.is_empty());
        cursor = words.next().expect("a cursor").to_string();
        seen.extend(words.map(String::from));
        if cursor == "0" {
            break;
        }
    }
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), MEMBERS);
    pair.sink(NODES_MIN);
    for request in
        ["DEBUG DIGEST-VALUE zset", "ZDIFF 2 zset lex", "ZINTERCARD 2 zset lex LIMIT 500", "DUMP lex"]
    {
        pair.same(request);
        pair.sink(NODES_MIN);
    }
    pair.check(&ALL);
    pair.empty();
}

#[test]
fn changes_have_what_they_need_read_before() {
    let folder = Folder::new("zsets-changes");
    let mut pair = filled(&folder);
    pair.sink(NODES_MIN);
    for n in (0..MEMBERS).step_by(911) {
        for request in [
            format!("ZADD zset {} {}", score(n) + 800.5, member(n)),
            format!("ZADD zset CH XX GT 17 {} 1e9 {} 3 none", member(n), member(n + 1)),
            format!("ZADD zset {} new:{n} {} new:{}", score(n / 2), -(n as f64), n + 1),
            format!("ZINCRBY zset -211.25 {}", member(n + 2)),
            format!("ZREM zset {} none {} new:{n}", member(n + 3), member(n + 5)),
            format!("ZADD lex 0 {}new", member(n)),
            format!("ZREM lex {} {}", member(n), member(n + 40)),
        ] {
            pair.same(&request);
        }
    }
    for n in 0..10 {
        for request in [
            "ZPOPMIN zset".to_string(),
            format!("ZPOPMAX zset {}", 5 * n),
            "ZMPOP 2 none zset MIN COUNT 70".to_string(),
            "BZPOPMAX zset 1".to_string(),
            format!("ZREMRANGEBYRANK zset {} {}", 1000 * n, 1000 * n + 70),
            format!("ZREMRANGEBYSCORE zset {} ({}", 400 * n, 400 * n + 25),
            format!("ZREMRANGEBYLEX lex [{} ({}", member(1500 * n), member(1500 * n + 90)),
        ] {
            pair.same(&request);
        }
    }
    assert_eq!(swap(&mut pair.client, "swap_reads_in_commands"), 0, "what they need was read before");
    pair.sink(NODES_MIN);
    for request in [
        "ZRANGESTORE target zset 100 400",
        "ZRANGESTORE target zset 100 (900 BYSCORE",
        "ZUNIONSTORE target 2 zset lex WEIGHTS 1 2",
        "ZINTERSTORE lex 2 zset target",
        "COPY zset copy",
        "RENAME copy {copy}2",
        "SORT lex BY nosort LIMIT 0 40 STORE list",
        "ZCARD {copy}2",
    ] {
        pair.same(request);
        pair.sink(NODES_MIN);
    }
    // Half of it goes, here and there: leaves are merged.
    for from in (0..MEMBERS).step_by(50) {
        let some = (from..from + 50).filter(|n| n % 3 > 0).map(|n| format!(" {}", member(n)));
        pair.same(&format!("ZREM zset{}", some.collect::<String>()));
    }
    pair.check(&ALL);
}

#[test]
fn transactions_scripts_and_files_have_them() {
    let folder = Folder::new("zsets-scripts");
    let mut pair = filled(&folder);
    pair.sink(NODES_MIN);
    for request in [
        "MULTI".to_string(),
        format!("ZRANK zset {}", member(4)),
        format!("ZADD zset 3 {} 4 {}", member(5), member(6)),
        "ZPOPMAX zset 60".to_string(),
        "ZREMRANGEBYSCORE zset 70 90".to_string(),
        "ZRANGESTORE part zset 0 60".to_string(),
        "EXEC".to_string(),
        "ZRANGE part 0 -1".to_string(),
    ] {
        pair.same(&request);
    }
    for body in [
        format!(
            "redis.call('ZINCRBY',KEYS[1],5,'{}');return(redis.call('ZRANK',KEYS[1],'{}'))",
            member(9),
            member(9)
        ),
        "redis.call('ZREMRANGEBYRANK',KEYS[1],200,420);return(redis.call('ZPOPMIN',KEYS[1],80))".to_string(),
        "return(redis.call('ZRANGE',KEYS[1],'100','300','BYSCORE'))".to_string(),
    ] {
        pair.same(&format!("EVAL {body} 1 zset"));
    }
    pair.sink(NODES_MIN);
    pair.client.check("SAVE", "+OK\r\n");
    assert!(swap(&mut pair.client, "swap_nodes") > 300, "to write a file brings nothing home");
    let digest = pair.same("DEBUG DIGEST");
    pair.client.check("DEBUG RELOAD NOSAVE", "+OK\r\n");
    assert_eq!(pair.client.ask("DEBUG DIGEST"), digest);
    pair.sink(NODES_MIN);
    pair.client.check("CONFIG SET swap-mode no", "+OK\r\n");
    wait_until("all is home", || swap(&mut pair.client, "swap_nodes") == 0);
    pair.check(&ALL);
}

#[test]
fn what_cannot_be_read_is_an_error_and_nothing_changes() {
    let folder = Folder::new("zsets-faults");
    let mut pair = filled(&folder);
    pair.same("SET target kept");
    pair.sink(NODES_MIN);
    let requests = [
        format!("ZSCORE zset {}", member(1)),
        format!("ZRANK lex {}", member(1)),
        "ZRANGE zset 100 200".to_string(),
        "ZCOUNT zset 10 20".to_string(),
        format!("ZADD zset 5 {}", member(1)),
        format!("ZADD lex 0 {}new", member(1)),
        format!("ZINCRBY zset 5 {}", member(1)),
        format!("ZREM zset {}", member(1)),
        "ZPOPMIN zset".to_string(),
        "ZPOPMAX zset 100".to_string(),
        "ZREMRANGEBYRANK zset 0 100".to_string(),
        "ZREMRANGEBYSCORE zset 10 90".to_string(),
        "ZRANGESTORE target zset 0 100".to_string(),
        "ZUNIONSTORE target 1 zset".to_string(),
        "COPY zset copy".to_string(),
        "ZRANDMEMBER lex".to_string(),
    ];
    pair.fails(&requests, "ZRANGE zset 0 10");
    for request in ["GET target", "EXISTS copy", "ZCARD zset", "ZCARD lex"] {
        pair.same(request);
    }
    pair.check(&ALL);
}
