//! EVAL and its siblings: what a script answers, what it may do, and what others see of it.

use crate::common::{Client, Server, encode, field, wait_until};
use crate::primary::{self, online};

const OK: &str = "+OK\r\n";

/// The reply to EVAL of this text without keys.
fn eval(client: &mut Client, text: &str) -> String {
    run(client, &["EVAL", text, "0"])
}

fn run(client: &mut Client, words: &[&str]) -> String {
    client.send(encode(words));
    String::from_utf8_lossy(&client.read_reply()).into_owned()
}

#[test]
fn values_and_errors_are_those_of_valkey() {
    let server = Server::with_workers(2, &[]);
    let mut client = server.client();
    for (text, reply) in [
        ("return 3.7", ":3\r\n"),
        ("return {1, 'a', {true, false}, nil, 5}", "*3\r\n:1\r\n$1\r\na\r\n*2\r\n:1\r\n$-1\r\n"),
        ("return redis.status_reply('FINE')", "+FINE\r\n"),
        (
            "return redis.call('nosuch')",
            "-ERR Unknown command called from script script: on @user_script:1.\r\n",
        ),
        (
            "return redis.call('GET')",
            "-ERR Wrong number of args calling command from script script: on @user_script:1.\r\n",
        ),
        (
            "return redis.call('SUBSCRIBE', 'a')",
            "-ERR This Valkey command is not allowed from script script: on @user_script:1.\r\n",
        ),
        ("return redis.pcall('GET').err", "$52\r\nERR Wrong number of args calling command from script\r\n"),
        (
            "redis.call('SET', 'k', 'v') return redis.call('INCR', 'k')",
            "-ERR value is not an integer or out of range script: on @user_script:1.\r\n",
        ),
        ("return redis.call('BLPOP', 'list', 0)", "$-1\r\n"),
        ("#!perl\nreturn 1", "-ERR Could not find scripting engine 'perl'\r\n"),
        ("#!lua flags=x\nreturn 1", "-ERR Unexpected flag in script shebang: x\r\n"),
        (
            "#!lua flags=no-writes\nreturn redis.call('SET', 'k', 'w')",
            "-ERR Write commands are not allowed from read-only scripts. script: on @user_script:2.\r\n",
        ),
        ("return cjson.encode({1, 2, {a = 'b'}})", "$15\r\n[1,2,{\"a\":\"b\"}]\r\n"),
    ] {
        assert_eq!(eval(&mut client, text), reply, "{text}");
    }
    assert_eq!(
        run(&mut client, &["EVAL", "return {KEYS[1], KEYS[2], ARGV[1]}", "2", "a", "b", "c"]),
        "*3\r\n$1\r\na\r\n$1\r\nb\r\n$1\r\nc\r\n"
    );
    for (words, reply) in [
        (&["EVAL", "return 1", "x"][..], "-ERR value is not an integer or out of range\r\n"),
        (&["EVAL", "return 1", "2", "a"], "-ERR Number of keys can't be greater than number of args\r\n"),
        (&["EVAL", "return 1", "-1"], "-ERR Number of keys can't be negative\r\n"),
        (
            &["EVAL_RO", "return redis.call('SET', 'k', 'w')", "0"],
            "-ERR Write commands are not allowed from read-only scripts. script: on @user_script:1.\r\n",
        ),
        (
            &["EVAL_RO", "#!lua\nreturn 1", "0"],
            "-ERR Can not execute a script with write flag using *_ro command.\r\n",
        ),
    ] {
        assert_eq!(run(&mut client, words), reply, "{words:?}");
    }
    client.check("GET k", "$1\r\nv\r\n");
    assert!(client.ask("HELLO 3").starts_with('%'));
    assert_eq!(
        eval(
            &mut client,
            "redis.call('HSET', 'h', 'f', 'v') redis.setresp(3) return redis.call('HGETALL', 'h')"
        ),
        "%1\r\n$1\r\nf\r\n$1\r\nv\r\n"
    );
}

#[test]
fn a_script_has_one_time_its_own_database_and_its_session_back() {
    let server = Server::with_workers(2, &[]);
    let mut client = server.client();
    let same = "local a, b = redis.call('TIME'), nil for i = 1, 1e6 do b = i end b = redis.call('TIME') return a[1] == b[1] and a[2] == b[2]";
    assert_eq!(eval(&mut client, same), ":1\r\n");
    assert_eq!(eval(&mut client, "redis.call('SELECT', 5) return redis.call('SET', 'there', '1')"), OK);
    client.check("EXISTS there", ":0\r\n");
    client.check("SELECT 5", OK);
    client.check("EXISTS there", ":1\r\n");
    // A key that expires does not do so in mid-run.
    client.check("SET short v PX 30", OK);
    let lives = "local a = redis.call('EXISTS', 'short') for i = 1, 3e7 do end return {a, redis.call('EXISTS', 'short')}";
    let reply = eval(&mut client, lives);
    assert!(["*2\r\n:1\r\n:1\r\n", "*2\r\n:0\r\n:0\r\n"].contains(&&*reply), "{reply}");
}

#[test]
fn the_cache_of_scripts() {
    let server = Server::with_workers(2, &[]);
    let (mut client, mut other) = (server.client(), server.client());
    const SHA: &str = "e0e1f9fabfc9d4800c877a703b823ac0578ff8db";
    client.check(&format!("EVALSHA {SHA} 0"), "-NOSCRIPT No matching script.\r\n");
    assert_eq!(eval(&mut client, "return 1"), ":1\r\n");
    // By any worker, in any case.
    for _ in 0..8 {
        server.client().check(&format!("EVALSHA {} 0", SHA.to_uppercase()), ":1\r\n");
    }
    other.check(&format!("SCRIPT EXISTS {SHA} none"), "*2\r\n:1\r\n:0\r\n");
    other.check(&format!("SCRIPT SHOW {SHA}"), "$8\r\nreturn 1\r\n");
    assert_eq!(
        run(&mut client, &["SCRIPT", "LOAD", "return 2"]),
        format!("${}\r\n7f923f79fe76194c868d7e1d0820de36700eb649\r\n", 40)
    );
    for number in 0..600 {
        assert_eq!(
            eval(&mut client, &format!("return {}", 1000 + number)),
            format!(":{}\r\n", 1000 + number)
        );
    }
    let info = client.ask("INFO everything");
    assert_eq!(field(&info, "number_of_cached_scripts"), 501, "500 texts of EVAL, and one that was loaded");
    assert_eq!(field(&info, "evicted_scripts"), 101);
    assert!(
        field(&info, "used_memory_scripts_eval") > 500 * 40 && field(&info, "used_memory_vm_eval") > 10_000
    );
    client.check(
        &format!("SCRIPT EXISTS {SHA} 7f923f79fe76194c868d7e1d0820de36700eb649"),
        "*2\r\n:0\r\n:1\r\n",
    );
    client.check("SCRIPT FLUSH", OK);
    client.check("SCRIPT EXISTS 7f923f79fe76194c868d7e1d0820de36700eb649", "*1\r\n:0\r\n");
    assert_eq!(field(&client.ask("INFO memory"), "number_of_cached_scripts"), 0);
}

#[test]
fn the_log_has_the_effects_as_one_unit() {
    let server = primary::start(&[]);
    let mut client = server.client();
    let (mut replica, _) = online(&server);
    let log = |words: &[&[&str]]| {
        words.iter().map(|words| String::from_utf8(encode(words)).unwrap()).collect::<String>()
    };
    eval(
        &mut client,
        "redis.call('SET', 'a', '1') redis.call('INCRBYFLOAT', 'a', '0.5') return redis.call('GET', 'a')",
    );
    let both =
        log(&[&["MULTI"], &["SELECT", "0"], &["SET", "a", "1"], &["SET", "a", "1.5", "KEEPTTL"], &["EXEC"]]);
    assert!(replica.log_to(&log(&[&["EXEC"]])).ends_with(&both));
    // One effect needs no transaction; what is not to be logged is not; reads leave nothing.
    eval(
        &mut client,
        "redis.call('GET', 'a') redis.set_repl(redis.REPL_NONE) redis.call('SET', 'hidden', '1') redis.set_repl(redis.REPL_ALL) return redis.call('DEL', 'a')",
    );
    assert_eq!(replica.log_to(&log(&[&["DEL", "a"]])), log(&[&["DEL", "a"]]));
    // In a transaction they are part of it.
    client.check("MULTI", OK);
    client.check("SET b 1", "+QUEUED\r\n");
    assert_eq!(eval(&mut client, "return redis.call('SET', 'c', '2')"), "+QUEUED\r\n");
    client.check("EXEC", "*2\r\n+OK\r\n+OK\r\n");
    let all = log(&[&["MULTI"], &["SET", "b", "1"], &["SET", "c", "2"], &["EXEC"]]);
    assert_eq!(replica.log_to(&log(&[&["EXEC"]])), all);
    client.check("EXISTS hidden", ":1\r\n");
}

#[test]
fn others_see_what_a_script_does() {
    let server = Server::with_workers(2, &[]);
    let (mut client, mut monitor, mut waiting) = (server.client(), server.client(), server.client());
    waiting.send(encode(&["BLPOP", "list", "0"]));
    wait_until("it waits", || client.blocked_count() == 1);
    monitor.check("MONITOR", OK);
    // Served after the whole script: the element that was pushed last is there too.
    let text = "redis.call('RPUSH', 'list', 'a') return redis.call('LPUSH', 'list', 'b')";
    assert_eq!(eval(&mut client, text), ":2\r\n");
    waiting.expect("*2\r\n$4\r\nlist\r\n$1\r\nb\r\n");
    for expected in
        [r#""EVAL" "redis.call("#, r#"[0 lua] "RPUSH" "list" "a""#, r#"[0 lua] "LPUSH" "list" "b""#]
    {
        let line = String::from_utf8(monitor.read_reply()).unwrap();
        assert!(line.contains(expected), "{line}");
    }
    // Keys that it has read are tracked, for its caller.
    let mut reader = server.client();
    assert!(reader.ask("HELLO 3").starts_with('%'));
    reader.check("CLIENT TRACKING ON", OK);
    assert_eq!(eval(&mut reader, "return redis.call('GET', 'tracked')"), "_\r\n");
    client.check("SET tracked v", OK);
    reader.expect(">2\r\n$10\r\ninvalidate\r\n*1\r\n$7\r\ntracked\r\n");
    let stats = client.ask("INFO commandstats");
    assert!(stats.contains("cmdstat_rpush:calls=1,") && stats.contains("cmdstat_eval:calls=2,"), "{stats}");
}

#[test]
fn limits_and_roles() {
    let server = Server::with_workers(2, &[]);
    let mut client = server.client();
    client.check("CONFIG SET maxmemory 1", OK);
    assert_eq!(
        eval(&mut client, "return redis.call('SET', 'a', '1')"),
        "-OOM command not allowed when used memory > 'maxmemory'. script: on @user_script:1.\r\n"
    );
    assert_eq!(eval(&mut client, "return redis.call('GET', 'a')"), "$-1\r\n");
    assert_eq!(
        eval(&mut client, "#!lua\nreturn 1"),
        "-OOM command not allowed when used memory > 'maxmemory'.\r\n"
    );
    assert_eq!(eval(&mut client, "#!lua flags=allow-oom\nreturn redis.call('SET', 'a', '1')"), OK);
    client.check("CONFIG SET maxmemory 0 min-replicas-to-write 1", OK);
    assert_eq!(
        eval(&mut client, "return redis.call('SET', 'a', '2')"),
        "-NOREPLICAS Not enough good replicas to write. script: on @user_script:1.\r\n"
    );
    assert_eq!(eval(&mut client, "#!lua\nreturn 1"), "-NOREPLICAS Not enough good replicas to write.\r\n");
    client.check("CONFIG SET min-replicas-to-write 0", OK);
    client.check("REPLICAOF 127.0.0.1 1", OK);
    assert_eq!(
        eval(&mut client, "return redis.call('SET', 'a', '2')"),
        "-READONLY You can't write against a read only replica. script: on @user_script:1.\r\n"
    );
    assert_eq!(
        eval(&mut client, "#!lua\nreturn 1"),
        "-READONLY You can't write against a read only replica.\r\n"
    );
    let loaded = run(&mut client, &["SCRIPT", "LOAD", "#!lua\nreturn 2"]);
    let sha = loaded.split("\r\n").nth(1).expect("it is a bulk string");
    assert_eq!(
        run(&mut client, &["EVALSHA", sha, "0"]),
        "-READONLY You can't write against a read only replica.\r\n"
    );
    client.check("GET a", "$1\r\n1\r\n");
    // A transaction is judged by what its scripts have declared.
    client.check("REPLICAOF NO ONE", OK);
    let mut queues = server.client();
    queues.check("MULTI", OK);
    assert_eq!(eval(&mut queues, "#!lua\nreturn 1"), "+QUEUED\r\n");
    client.check("REPLICAOF 127.0.0.1 1", OK);
    let reply = queues.ask("EXEC");
    assert!(reply.starts_with("-EXECABORT Transaction discarded because of: READONLY "), "{reply}");
    client.check("CONFIG SET replica-serve-stale-data no", OK);
    const DOWN: &str =
        "-MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.\r\n";
    assert_eq!(eval(&mut client, "return 1"), DOWN);
    assert_eq!(eval(&mut client, "#!lua flags=no-writes\nreturn 1"), DOWN);
    assert_eq!(eval(&mut client, "#!lua flags=no-writes,allow-stale\nreturn 1"), ":1\r\n");
    assert_eq!(
        eval(&mut client, "#!lua flags=no-writes,allow-stale\nreturn redis.call('GET', 'a')"),
        "-ERR Can not execute the command on a stale replica script: on @user_script:2.\r\n"
    );
}

#[test]
fn a_signal_ends_a_script_that_has_not_written() {
    let mut server = Server::start(&[]);
    let mut client = server.client();
    client.send(encode(&["EVAL", "while true do end", "0"]));
    let mut other = server.client();
    wait_until("it runs", || field(&other.ask("INFO stats"), "long_scripts") == 1);
    server.signal("TERM");
    server.wait();
}

#[test]
fn an_interpreter_has_a_limit_and_others_go_on() {
    let server = Server::with_workers(2, &["--script-memory-limit", "4mb"]);
    let mut client = server.client();
    for text in [
        "local t = {} for i = 1, 1e9 do t[i] = i end",
        "return #string.rep('x', 1e10)",
        "local s = 'x' while true do s = s .. s end",
    ] {
        let reply = eval(&mut client, text);
        assert!(reply.contains("not enough memory"), "{text}: {reply}");
        assert_eq!(eval(&mut client, "return 1"), ":1\r\n");
    }
    let library = "#!lua name=l\nredis.register_function('f', function() local t = {} for i = 1, 1e9 do t[i] = i end end)";
    assert_eq!(run(&mut client, &["FUNCTION", "LOAD", library]), "$1\r\nl\r\n");
    let reply = run(&mut client, &["FCALL", "f", "0"]);
    assert!(reply.contains("not enough memory"), "{reply}");
    client.check("CONFIG SET script-memory-limit 0", OK);
    assert_eq!(eval(&mut client, "return #string.rep('x', 1e7)"), ":10000000\r\n");
}

#[test]
fn the_insecure_api_is_a_parameter() {
    let server = Server::with_workers(1, &["--enable-protected-configs", "yes"]);
    let mut client = server.client();
    let text = "return type(newproxy) .. type(getfenv)";
    let without = eval(&mut client, text);
    assert!(without.contains("nonexistent global variable"), "{without}");
    client.check("CONFIG SET lua-enable-insecure-api yes", OK);
    assert_eq!(eval(&mut client, text), "$16\r\nfunctionfunction\r\n");
    client.check("CONFIG SET lua-enable-insecure-api no", OK);
    assert_eq!(eval(&mut client, text), without);
}

#[test]
fn a_pause_of_writes_holds_up_no_script_that_declares_to_write_nothing() {
    let server = Server::with_workers(2, &[]);
    let (mut client, mut other) = (server.client(), server.client());
    client.check("SET k v", OK);
    client.check("CLIENT PAUSE 600000 WRITE", OK);
    let reads = "#!lua flags=no-writes\nreturn redis.call('GET', 'k')";
    assert_eq!(eval(&mut other, reads), "$1\r\nv\r\n");
    assert_eq!(eval(&mut other, reads), "$1\r\nv\r\n", "it is in the cache now");
    let loaded = run(&mut other, &["SCRIPT", "LOAD", reads]);
    let sha = loaded.split("\r\n").nth(1).expect("it is a bulk string");
    assert_eq!(run(&mut other, &["EVALSHA", sha, "0"]), "$1\r\nv\r\n");
    other.check("MULTI", OK);
    assert_eq!(eval(&mut other, reads), "+QUEUED\r\n");
    other.check("EXEC", "*1\r\n$1\r\nv\r\n");
    other.send(encode(&["EVAL", "#!lua\nreturn 1", "0"]));
    wait_until("it waits", || field(&client.ask("INFO clients"), "blocked_clients") == 1);
    client.check("CLIENT UNPAUSE", OK);
    assert_eq!(String::from_utf8_lossy(&other.read_reply()), ":1\r\n");
}

#[test]
fn its_commands_are_logged_counted_and_ordered() {
    let server = Server::with_workers(2, &[]);
    let mut client = server.client();
    client.check("SADD s b aa z a", ":4\r\n");
    let sorts = "return table.concat(redis.call('SORT', KEYS[1], 'BY', '_'), ' ')";
    assert_eq!(run(&mut client, &["EVAL", sorts, "1", "s"]), "$8\r\na aa b z\r\n");
    client.check("CONFIG SET slowlog-log-slower-than 0", OK);
    client.check("SLOWLOG RESET", OK);
    let commands = |client: &mut Client| -> u64 {
        let info = client.ask("CLIENT INFO");
        let count = info.split_once("tot-cmds=").expect("it is listed").1;
        count.trim_end().parse().expect("it is the last field")
    };
    let before = commands(&mut client);
    assert_eq!(eval(&mut client, "return redis.call('ECHO', 'hello')"), "$5\r\nhello\r\n");
    assert_eq!(commands(&mut client), before + 3, "CLIENT INFO, EVAL and ECHO");
    let log = client.ask("SLOWLOG GET 3");
    assert!(log.contains("$4\r\nECHO\r\n$5\r\nhello\r\n"), "{log}");
}
