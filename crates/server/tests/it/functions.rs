//! FUNCTION and FCALL: what they answer, what a library may do while it loads, and what others see of it.
//! Most of it is sent to Valkey too, where that is installed.

use crate::common::{Client, Server, encode, field, wait_until};
use crate::peers;
use crate::primary::{self, online};

const OK: &str = "+OK\r\n";

fn run(client: &mut Client, words: &[&str]) -> String {
    client.send(encode(words));
    String::from_utf8_lossy(&client.read_reply()).into_owned()
}

fn library(name: &str, code: &str) -> String {
    format!("#!lua name={name}\n{code}")
}

fn load(client: &mut Client, name: &str, code: &str) -> String {
    run(client, &["FUNCTION", "LOAD", &library(name, code)])
}

/// `f`, which returns what `body` does.
fn function(body: &str) -> String {
    format!("server.register_function('f', function(KEYS, ARGV) {body} end)")
}

/// Texts of libraries, good and bad.
fn texts() -> Vec<String> {
    let sound = function("return 1");
    let heads = [
        "",
        "x",
        "#!lua",
        "#!lua\n",
        "#!lua name=a",
        "#!lua name=a\n",
        "#! name=a\n",
        "#!\n",
        "#!lua name=a name=b\n",
        "#!lua foo=b\n",
        "#!lua name=a-b\n",
        "#!lua name=\n",
        "#!js name=a\n",
        "#!lua \"name=q\n",
    ];
    let sound_heads = ["#!LUA name=A\n", "#!lua 'name=q'\n", "#!lua NAME=zz\n", "#!lua name=lib \r\n"];
    let codes = [
        "return 1",
        "x y",
        "math.random()",
        "redis.call('ping')",
        "server.setresp(3)",
        "foo=1",
        "local a=_G",
        "error('boom')",
        "server.register_function('g', 1)",
        "server.register_function(1, function() end)\nserver.register_function('b-c', function() end)",
        "server.register_function({}, function() end)",
        "server.register_function('g')",
        "server.register_function()",
        "server.register_function(1,2,3)",
        "server.register_function{function_name='g'}",
        "server.register_function{callback=function() end}",
        "server.register_function{function_name={}, callback=function() end}",
        "server.register_function{function_name='g', callback=1}",
        "server.register_function{function_name='g', callback=function() end, flags=1}",
        "server.register_function{function_name='g', callback=function() end, flags={'x'}}",
        "server.register_function{function_name='g', callback=function() end, flags={{}}}",
        "server.register_function{function_name='g', callback=function() end, description={}}",
        "server.register_function{function_name='g', callback=function() end, foo=1}",
        "server.register_function{function_name='g', callback=function() end, [1]=1}",
        "server.register_function{function_name='g', callback=function() end, [{}]=1}",
        "server.register_function('g', function() end) server.register_function('g', function() end)",
        "server.register_function('', function() end)",
        "server.register_function('a\\0b', function() end)",
        "server.register_function('g', function() end)\0garbage",
        "return server.foo",
        "server.x=1",
        "local x = string.rep('a', 10)",
        "('x'):rep(3)()",
        "return setmetatable({}, {})",
        "return server.REDIS_VERSION.x()",
        "local t = redis == server\n if t then nosuch() end",
        "server.pcall('x')",
        "getfenv()",
        "local function r() r() end r()",
        "local t = server.foo.bar",
        "server.register_function{function_name='g', callback=function() end, description='de\\0sc', flags={'ALLOW-OOM'}}",
        "server.REGISTER_FUNCTION('g', function() end)",
    ];
    let heads = heads.map(str::to_owned);
    let sound_heads = sound_heads.map(|head| format!("{head}{sound}"));
    let codes = codes.map(|code| library("lib", code));
    heads.into_iter().chain(sound_heads).chain(codes).collect()
}

/// Bodies of functions that are called.
const BODIES: &[&str] = &[
    "return 1",
    "return {KEYS, ARGV, #KEYS}",
    "return server.call('get','x')",
    "return server.call('nosuch')",
    "foo=1",
    "return foo",
    "return _G",
    "return _G.foo",
    "_G.x=1",
    "return server.register_function",
    "server.register_function('a', function() end)",
    "return server.foo",
    "error('x')",
    "error({err='My Err'})",
    "error({})",
    "return {err='x y'}",
    "return {ok='fine'}",
    "return redis.error_reply('A B')",
    "return type(__redis__err__handler)",
    "return rawget(_G,'server') == server",
    "setmetatable(_G,{})",
    "getmetatable(_G).__index={}",
    "local n=0 for k,v in pairs(_G) do n=n+1 end return n",
    "return pcall(error)",
    "return {pcall(function() return server.call('nosuch') end)}",
    "rawset(_G,'x',1)",
    "return redis.sha1hex('x')",
    "redis.setresp(3) return redis.call('hgetall','h')",
    "return server.call('fcall','f',0)",
    "return server.call('function','list')",
    "return loadstring('return 1')()",
    "return loadstring('return KEYS')()",
    "return setfenv",
    "return debug",
    "return server.replicate_commands",
    "return nil",
    "x.y=1",
    "KEYS=1 return KEYS",
    "string.x=1",
    "print(1)",
    "return cjson.encode({1})",
    "local keys={} for k,v in pairs(_G) do keys[#keys+1]=k end table.sort(keys) return keys",
    "local keys={} for k,v in pairs(server) do keys[#keys+1]=k end table.sort(keys) return keys",
    "local keys={} for k,v in pairs(getmetatable(_G)) do keys[#keys+1]=k end return keys",
];

/// One after the other, with a library `lib` that has the function `f`.
const COMMANDS: &[&str] = &[
    "FCALL x",
    "FCALL f x",
    "FCALL f -1",
    "FCALL f 1",
    "FCALL f 99999999999999999999",
    "FCALL nof x",
    "FCALL nof 0",
    "FCALL_RO f 0",
    "FCALL_RO nof 0",
    "FUNCTION",
    "FUNCTION nosuch",
    "FUNCTION LOAD",
    "FUNCTION LOAD REPLACE",
    "FUNCTION LOAD X y",
    "FUNCTION DELETE nolib",
    "FUNCTION DELETE lib x",
    "FUNCTION LIST",
    "FUNCTION LIST x",
    "FUNCTION LIST LIBRARYNAME",
    "FUNCTION LIST libraryname L* withcode",
    "FUNCTION LIST LIBRARYNAME x",
    "FUNCTION LIST WITHCODE WITHCODE",
    "FUNCTION LIST LIBRARYNAME x libraryname y",
    "FUNCTION FLUSH x",
    "FUNCTION FLUSH sync x",
    "FUNCTION STATS",
    "FUNCTION STATS x",
    "FUNCTION KILL",
    "FUNCTION RESTORE",
    "FUNCTION RESTORE x",
    "FUNCTION RESTORE x y",
    "FUNCTION RESTORE x y z",
    "COMMAND INFO function|load function|list function|stats function|restore",
    "COMMAND GETKEYS FCALL f 2 a b c",
    "HELLO 3",
    "FUNCTION LIST WITHCODE",
    "FUNCTION STATS",
    "HELLO 2",
    "FUNCTION DELETE lib",
    "FUNCTION LIST",
    "FUNCTION FLUSH async",
    "FUNCTION FLUSH",
];

/// The conditions under which a function may not run, and those with each flag.
const CONDITIONS: &[&str] = &[
    "CONFIG SET maxmemory 1",
    "CONFIG SET maxmemory 0 min-replicas-to-write 1",
    "CONFIG SET min-replicas-to-write 0",
    "REPLICAOF 127.0.0.1 1",
    "CONFIG SET replica-serve-stale-data no",
];

const FLAGGED: &str = "#!lua name=flagged\n\
    local function set() return server.call('set','x','y') end\n\
    local function get() return server.call('get','x') end\n\
    server.register_function('w', set)\n\
    server.register_function{function_name='r', callback=get, flags={'no-writes'}}\n\
    server.register_function{function_name='bad', callback=set, flags={'no-writes'}}\n\
    server.register_function{function_name='oom', callback=set, flags={'allow-oom'}}\n\
    server.register_function{function_name='st', callback=get, flags={'allow-stale','no-writes'}}\n\
    server.register_function{function_name='st2', callback=function() return server.call('echo','x') end, flags={'allow-stale','no-writes'}}\n\
    server.register_function{function_name='nc', callback=get, flags={'no-cluster', 'no-writes'}}\n";

/// Every request of the tables above, in order.
fn requests() -> Vec<Vec<String>> {
    let mut all: Vec<Vec<String>> = Vec::new();
    let mut add = |words: &[&str]| all.push(words.iter().map(|word| (*word).to_owned()).collect());
    for text in texts() {
        add(&["FUNCTION", "FLUSH"]);
        add(&["FUNCTION", "LOAD", &text]);
        add(&["FUNCTION", "LIST", "WITHCODE"]);
    }
    for body in BODIES {
        add(&["FUNCTION", "LOAD", "REPLACE", &library("lib", &function(body))]);
        add(&["FCALL", "f", "2", "a", "b", "c"]);
    }
    add(&["FUNCTION", "FLUSH"]);
    add(&["FUNCTION", "LOAD", &library("lib", &function("return 1"))]);
    add(&["FUNCTION", "LOAD", &library("lib", &function("return 1"))]);
    add(&["FUNCTION", "LOAD", &library("lib2", &function("return 1"))]);
    add(&["FUNCTION", "LOAD", "REPLACE", &library("lib2", &function("return 1"))]);
    for command in COMMANDS {
        add(&command.split(' ').collect::<Vec<_>>());
    }
    add(&["FUNCTION", "LOAD", FLAGGED]);
    add(&["SET", "x", "1"]);
    for condition in CONDITIONS {
        add(&condition.split(' ').collect::<Vec<_>>());
        for name in ["w", "r", "bad", "oom", "st", "st2", "nc", "none"] {
            add(&["FCALL", name, "0"]);
            add(&["FCALL_RO", name, "0"]);
        }
        add(&["FUNCTION", "LOAD", "REPLACE", FLAGGED]);
        add(&["FUNCTION", "DELETE", "none"]);
        add(&["FUNCTION", "RESTORE", "x"]);
        add(&["FUNCTION", "DUMP", "x"]);
    }
    all
}

/// COMMAND INFO and HELLO show versions and orders of their own.
fn is_comparable(words: &[String]) -> bool {
    words[0] != "HELLO"
}

/// As the other server names itself, and with lists of functions in one order.
fn normalized(reply: &str) -> String {
    let mut lines: Vec<&str> = reply.split("\r\n").collect();
    if reply.contains("library_name") {
        lines.sort_unstable();
    }
    lines.join("\r\n").replace("Valkey", "Isotherm")
}

#[test]
fn replies_are_those_of_valkey() {
    let Some(program) = peers::peer("valkey-server") else { return };
    let folder = std::env::temp_dir();
    let theirs = peers::start_with(program, &folder, &["--enable-protected-configs", "yes"]);
    let ours = Server::with_workers(2, &[]);
    let (mut theirs, mut ours) = (theirs.client(), ours.client());
    let mut differences = Vec::new();
    for words in requests() {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let (expected, actual) = (run(&mut theirs, &words), run(&mut ours, &words));
        let owned: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        if is_comparable(&owned) && normalized(&expected) != normalized(&actual) {
            differences.push(format!("{words:?}\n  theirs {expected:?}\n  ours   {actual:?}"));
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

#[test]
fn values_errors_and_globals() {
    let server = Server::with_workers(2, &["--enable-debug-command", "yes"]);
    let mut client = server.client();
    for (body, reply) in [
        ("return 1", ":1\r\n"),
        ("return {KEYS, ARGV}", "*2\r\n*2\r\n$1\r\na\r\n$1\r\nb\r\n*1\r\n$1\r\nc\r\n"),
        (
            "foo=1",
            "-ERR user_function:2: Attempt to modify a readonly table script: on @user_function:2.\r\n",
        ),
        (
            "return KEYZ",
            "-ERR user_function:2: Script attempted to access nonexistent global variable 'KEYZ' script: on @user_function:2.\r\n",
        ),
        ("return server.register_function", "$-1\r\n"),
        ("error({err='My Err'})", "-My Err script: on @user_function:2.\r\n"),
        ("return server.call('set', KEYS[1], ARGV[1])", OK),
    ] {
        assert_eq!(
            run(&mut client, &["FUNCTION", "LOAD", "REPLACE", &library("lib", &function(body))]),
            "$3\r\nlib\r\n"
        );
        assert_eq!(run(&mut client, &["FCALL", "f", "2", "a", "b", "c"]), reply, "{body}");
    }
    client.check("GET a", "$1\r\nc\r\n");
    for text in texts() {
        client.check("FUNCTION FLUSH", OK);
        let reply = run(&mut client, &["FUNCTION", "LOAD", &text]);
        // A load that fails leaves nothing.
        let count = field(&client.ask("INFO memory"), "number_of_libraries");
        assert_eq!(count, u64::from(!reply.starts_with('-')), "{text:?}: {reply}");
        client.check("DEBUG CHECK-INVARIANTS", OK);
    }
}

#[test]
fn a_library_has_half_a_second_and_may_log() {
    let server = Server::with_workers(2, &["--loglevel", "debug"]);
    let mut client = server.client();
    let begun = std::time::Instant::now();
    assert_eq!(
        load(&mut client, "lib", "server.register_function('f', function() end) while true do end"),
        "-ERR Error registering functions: ERR FUNCTION LOAD timeout\r\n"
    );
    assert!(begun.elapsed() >= std::time::Duration::from_millis(500));
    assert_eq!(client.info("memory", "number_of_functions"), 0);
    client.check("FCALL f 0", "-ERR Function not found\r\n");
    assert_eq!(
        load(
            &mut client,
            "lib",
            "server.log(server.LOG_WARNING, 'it', 'loads')\nserver.register_function('f', function() return 1 end)"
        ),
        "$3\r\nlib\r\n"
    );
    server.wait_for_log("it loads");
    client.check("FCALL f 0", ":1\r\n");
}

#[test]
fn every_worker_runs_what_one_has_loaded_and_forgets_what_is_gone() {
    let server = Server::with_workers(3, &["--enable-debug-command", "yes"]);
    let mut client = server.client();
    let mut others: Vec<Client> = (0..6).map(|_| server.client()).collect();
    for round in 0..3 {
        let code = format!(
            "local n = 0\n{}server.register_function('count', function() n = n + 1 return n end)",
            function(&format!("return {round}"))
        );
        run(&mut client, &["FUNCTION", "LOAD", "REPLACE", &library("lib", &code)]);
        others.iter_mut().for_each(|other| other.check("FCALL f 0", &format!(":{round}\r\n")));
        // One connection has one worker, and its own upvalues.
        let first = run(&mut others[0], &["FCALL", "count", "0"]);
        let second = run(&mut others[0], &["FCALL", "count", "0"]);
        assert_ne!(first, second);
    }
    assert!(client.info("memory", "used_memory_vm_functions") > 10_000);
    assert!(client.info("memory", "used_memory_functions") > 100);
    let info = client.ask("INFO scriptingengines");
    assert!(info.contains("engine_0:name=LUA,module=lua,abi_version=4,used_memory="), "{info}");
    client.check("FUNCTION DELETE lib", OK);
    others.iter_mut().for_each(|other| other.check("FCALL f 0", "-ERR Function not found\r\n"));
    assert_eq!(client.info("memory", "used_memory_functions"), 0);
    // Replaced and never called: nothing of it piles up.
    let text = library("lib", &function(&format!("return '{}'", "x".repeat(10_000))));
    let mut load_many = |count: usize| {
        (0..count).for_each(|_| {
            run(&mut client, &["FUNCTION", "LOAD", "REPLACE", &text]);
        });
        client.info("memory", "used_memory_vm_functions")
    };
    let few = load_many(3);
    assert!(load_many(100) < few + 50_000);
    client.check("FUNCTION FLUSH", OK);
    assert!(client.info("memory", "used_memory_vm_functions") < few);
    client.check("DEBUG CHECK-INVARIANTS", OK);
}

#[test]
fn the_log_has_the_command_itself() {
    let server = primary::start(&["--repl-ping-replica-period", "3600"]);
    let mut client = server.client();
    let (mut replica, _) = online(&server);
    let log = |words: &[&[&str]]| {
        words.iter().map(|words| String::from_utf8(encode(words)).unwrap()).collect::<String>()
    };
    let text = library("lib", &function("return server.call('incr', KEYS[1])"));
    let request: &[&str] = &["FUNCTION", "LOAD", &text];
    assert_eq!(run(&mut client, request), "$3\r\nlib\r\n");
    let expected = log(&[&["SELECT", "0"], request]);
    assert!(replica.log_to(&log(&[request])).ends_with(&expected));
    // A request that fails, or only reads, leaves nothing; a function leaves its changes.
    assert!(run(&mut client, request).starts_with("-ERR Library"));
    client.ask("FUNCTION LIST");
    client.check("FUNCTION DELETE none", "-ERR Library not found\r\n");
    assert_eq!(run(&mut client, &["FCALL", "f", "1", "k"]), ":1\r\n");
    let increment: &[&str] = &["incr", "k"];
    assert_eq!(replica.log_to(&log(&[increment])), log(&[increment]));
    client.check("MULTI", OK);
    client.check("SET a 1", "+QUEUED\r\n");
    client.check("FUNCTION FLUSH", "+QUEUED\r\n");
    client.check("EXEC", "*2\r\n+OK\r\n+OK\r\n");
    let all = log(&[&["MULTI"], &["SET", "a", "1"], &["FUNCTION", "FLUSH"], &["EXEC"]]);
    assert_eq!(replica.log_to(&log(&[&["EXEC"]])), all);
}

#[test]
fn kill_and_stats_find_the_function_under_way() {
    let server = Server::with_workers(4, &[]);
    let mut killer = server.client();
    killer.check("FUNCTION KILL", "-NOTBUSY No scripts in execution right now.\r\n");
    let mut others: Vec<Client> = (0..8).map(|_| server.client()).collect();
    let mut client = server.client();
    load(&mut client, "lib", &function("while true do end"));
    client.send(encode(&["FCALL", "f", "1", "key", "arg"]));
    client.stream.set_read_timeout(Some(std::time::Duration::from_millis(50))).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(100));
    // Clients of other workers reach it; those of its own wait as all do.
    others.iter_mut().for_each(|other| {
        other.send(encode(&["FUNCTION", "STATS"]));
        other.send(encode(&["SCRIPT", "KILL"]));
    });
    let mut kills = 0;
    wait_until("it is killed", || {
        others.iter_mut().for_each(|other| other.send(encode(&["FUNCTION", "KILL"])));
        kills += 1;
        client.stream.peek(&mut [0]).is_ok()
    });
    client.stream.set_read_timeout(Some(crate::common::PATIENCE)).unwrap();
    let reply = String::from_utf8(client.read_reply()).unwrap();
    assert!(reply.contains("Script killed by user with FUNCTION KILL."), "{reply}");
    let (mut saw, mut refused, mut killed) = (0, 0, 0);
    for other in &mut others {
        let stats = String::from_utf8(other.read_reply()).unwrap();
        saw += usize::from(stats.contains(
            "$4\r\nname\r\n$1\r\nf\r\n$7\r\ncommand\r\n*5\r\n$5\r\nFCALL\r\n$1\r\nf\r\n$1\r\n1\r\n$3\r\nkey\r\n$3\r\narg\r\n$11\r\nduration_ms\r\n:",
        ));
        let reply = String::from_utf8(other.read_reply()).unwrap();
        refused += usize::from(
            reply
                == "-BUSY Isotherm is busy running a script. You can only call FUNCTION KILL or SHUTDOWN NOSAVE.\r\n",
        );
        killed += (0..kills).filter(|_| other.read_reply() == OK.as_bytes()).count();
    }
    assert!(saw > 0 && refused > 0 && killed > 0, "{saw} {refused} {killed}");
    assert!(killer.ask("FUNCTION STATS").contains("running_script\r\n$-1\r\n"));
}

#[test]
fn counts_are_those_of_its_commands() {
    let server = Server::with_workers(2, &[]);
    let mut client = server.client();
    run(&mut client, &["FUNCTION", "LOAD", FLAGGED]);
    client.check("FCALL w 0", OK);
    client.check("CONFIG SET maxmemory 1", OK);
    client.check("FCALL w 0", "-OOM command not allowed when used memory > 'maxmemory'.\r\n");
    client.check("FCALL none 0", "-ERR Function not found\r\n");
    let stats = client.ask("INFO commandstats");
    let of = |name: &str| {
        stats.lines().find(|line| line.starts_with(&format!("cmdstat_{name}:"))).unwrap().to_owned()
    };
    let (fcall, set) = (of("fcall"), of("set"));
    assert!(fcall.contains(":calls=2,") && fcall.ends_with("rejected_calls=1,failed_calls=1"), "{fcall}");
    assert!(set.contains(":calls=1,") && set.ends_with("rejected_calls=0,failed_calls=0"), "{set}");
    let errors = client.ask("INFO errorstats");
    assert!(errors.contains("errorstat_ERR:count=1") && errors.contains("errorstat_OOM:count=1"), "{errors}");
    client.check("CONFIG SET maxmemory 0", OK);
    // The error of a command is counted once, though its function fails with it.
    load(&mut client, "counted", &function("return server.call('incr', 'x')"));
    client.check("CONFIG RESETSTAT", OK);
    let reply = client.ask("FCALL f 0");
    assert!(reply.starts_with("-ERR value is not an integer"), "{reply}");
    let errors = client.ask("INFO errorstats");
    assert!(errors.contains("errorstat_ERR:count=1\r\n"), "{errors}");
    client.check("CONFIG SET slowlog-log-slower-than 0", OK);
    client.check("FCALL r 0", "$1\r\ny\r\n");
    let slow = client.ask("SLOWLOG GET 3");
    assert!(slow.contains("$5\r\nFCALL\r\n$1\r\nr\r\n"), "{slow}");
}

// ---- payloads ----

fn payload(client: &mut Client) -> Vec<u8> {
    client.ask_bytes("FUNCTION DUMP")
}

fn restore(client: &mut Client, payload: &[u8], policy: &str) -> String {
    client.send(encode(&[&b"FUNCTION"[..], b"RESTORE", payload, policy.as_bytes()]));
    String::from_utf8_lossy(&client.read_reply()).into_owned()
}

#[test]
fn a_payload_is_restored_as_a_whole_or_not_at_all() {
    let server = Server::with_workers(2, &["--enable-debug-command", "yes"]);
    let mut client = server.client();
    load(&mut client, "a", &function("return 'a'"));
    load(&mut client, "b", &function("return 'b'").replace("'f'", "'g'"));
    let both = payload(&mut client);
    client.check("FUNCTION FLUSH", OK);
    let none = payload(&mut client);
    assert_eq!(restore(&mut client, &both, "FLUSH"), OK);
    assert_eq!(restore(&mut client, &both, "APPEND"), "-ERR Library a already exists\r\n");
    assert_eq!(restore(&mut client, &both, "REPLACE"), OK);
    client.check("FCALL g 0", "$1\r\nb\r\n");
    // The function of `b` is in another library: nothing of the payload is there then.
    client.check("FUNCTION FLUSH", OK);
    load(&mut client, "c", &function("return 'c'").replace("'f'", "'g'"));
    for policy in ["APPEND", "REPLACE"] {
        assert_eq!(restore(&mut client, &both, policy), "-ERR Function g already exists\r\n");
        client.check("FCALL f 0", "-ERR Function not found\r\n");
        client.check("FCALL g 0", "$1\r\nc\r\n");
    }
    assert_eq!(restore(&mut client, &none, "APPEND"), OK);
    assert_eq!(client.info("memory", "number_of_libraries"), 1);
    assert_eq!(restore(&mut client, &none, "FLUSH"), OK);
    assert_eq!(client.info("memory", "number_of_libraries"), 0);
    client.check("DEBUG CHECK-INVARIANTS", OK);
}

/// With a right checksum, so that what is damaged is read.
fn sealed(mut body: Vec<u8>) -> Vec<u8> {
    body.extend_from_slice(&11u16.to_le_bytes());
    let sum = isotherm_stdx::crc64::crc64(0, &body);
    body.extend_from_slice(&sum.to_le_bytes());
    body
}

#[test]
fn damaged_payloads_leave_what_was_there() {
    const MUTATIONS: u64 = 100_000;
    let server = Server::with_workers(2, &["--enable-debug-command", "yes"]);
    let mut client = server.client();
    load(&mut client, "a", &function("return 'a'"));
    load(
        &mut client,
        "b",
        "server.register_function{function_name='g', description='of b', callback=function() return 'b' end}",
    );
    let sound = payload(&mut client);
    let body = &sound[..sound.len() - 10];
    client.check("FUNCTION FLUSH", OK);
    load(&mut client, "kept", &function("return 'kept'").replace("'f'", "'k'"));
    let seed = 0x5eed_f00d;
    let mut random = isotherm_stdx::Prng::new(seed);
    let mut below = |count: usize| (random.next_u64() % count as u64) as usize;
    const BATCH: u64 = 500;
    for batch in 0..MUTATIONS / BATCH {
        let mut requests = Vec::new();
        for _ in 0..BATCH {
            let mut damaged = body.to_vec();
            for _ in 0..=below(3) {
                match below(4) {
                    0 => damaged.truncate(below(damaged.len() + 1)),
                    1 => damaged.insert(below(damaged.len() + 1), below(256) as u8),
                    _ if damaged.is_empty() => {}
                    2 => {
                        damaged.remove(below(damaged.len()));
                    }
                    _ => {
                        let at = below(damaged.len());
                        damaged[at] = below(256) as u8;
                    }
                }
            }
            // One in ten has a wrong footer.
            let damaged = if below(10) == 0 { damaged } else { sealed(damaged) };
            requests.extend(encode(&[&b"FUNCTION"[..], b"RESTORE", &damaged, b"APPEND"]));
            // Libraries that were sound in spite of it are deleted again.
            requests.extend(encode(&["FUNCTION", "DELETE", "a"]));
            requests.extend(encode(&["FUNCTION", "DELETE", "b"]));
        }
        requests.extend(encode(&["FUNCTION", "STATS"]));
        client.send(requests);
        let mut restored = 0;
        for _ in 0..BATCH {
            restored += usize::from(client.read_reply() == OK.as_bytes());
            client.read_reply();
            client.read_reply();
        }
        let stats = String::from_utf8(client.read_reply()).unwrap();
        if !stats.contains("libraries_count\r\n:1\r\n") {
            // A changed byte has made another name: all but `kept` goes.
            client.check("FUNCTION FLUSH", OK);
            load(&mut client, "kept", &function("return 'kept'").replace("'f'", "'k'"));
        }
        assert!(restored < BATCH as usize, "batch {batch} of seed {seed}");
        client.check("FCALL k 0", "$4\r\nkept\r\n");
    }
    client.check("DEBUG CHECK-INVARIANTS", OK);
}

#[test]
fn payloads_go_both_ways_with_valkey() {
    let Some(program) = peers::peer("valkey-server") else { return };
    let theirs = peers::start(program, &std::env::temp_dir());
    let ours = Server::with_workers(2, &[]);
    let (mut theirs, mut ours) = (theirs.client(), ours.client());
    let long = format!("{}\n-- {}", function("return 'a'"), "a long comment. ".repeat(100));
    load(&mut theirs, "a", &long);
    load(&mut theirs, "b", &function("return 'b'").replace("'f'", "'g'"));
    let from_valkey = payload(&mut theirs);
    assert_eq!(restore(&mut ours, &from_valkey, "FLUSH"), OK);
    ours.check("FCALL f 0", "$1\r\na\r\n");
    let from_us = payload(&mut ours);
    theirs.check("FUNCTION FLUSH", OK);
    assert_eq!(restore(&mut theirs, &from_us, "FLUSH"), OK);
    theirs.check("FCALL g 0", "$1\r\nb\r\n");
    assert_eq!(
        normalized(&run(&mut theirs, &["FUNCTION", "LIST", "WITHCODE"])),
        normalized(&run(&mut ours, &["FUNCTION", "LIST", "WITHCODE"]))
    );
}

#[test]
fn replicas_have_them_from_the_snapshot_and_from_the_log() {
    let server = Server::with_workers(2, &[]);
    let mut client = server.client();
    load(&mut client, "early", &function("return 'early'"));
    let replica = Server::with_workers(2, &[]);
    let mut follower = replica.client();
    load(&mut follower, "own", &function("return 'own'").replace("'f'", "'o'"));
    follower.check(&format!("REPLICAOF 127.0.0.1 {}", server.port), OK);
    wait_until("it is online", || follower.ask("INFO replication").contains("master_link_status:up"));
    let reads = "server.register_function{function_name='g', callback=function() return 'late' end, flags={'no-writes'}}";
    load(&mut client, "late", reads);
    client.check("WAIT 1 5000", ":1\r\n");
    follower.check("FCALL_RO g 0", "$4\r\nlate\r\n");
    follower.check("FCALL o 0", "-ERR Function not found\r\n");
    follower.check("FCALL f 0", "-READONLY You can't write against a read only replica.\r\n");
    assert_eq!(follower.info("memory", "number_of_libraries"), 2);
    // A second snapshot replaces what the first has brought.
    follower.check("REPLICAOF NO ONE", OK);
    load(&mut follower, "own", &function("return 'own'").replace("'f'", "'o'"));
    follower.check(&format!("REPLICAOF 127.0.0.1 {}", server.port), OK);
    wait_until("it is online again", || follower.ask("INFO replication").contains("master_link_status:up"));
    wait_until("it has those of its primary", || follower.info("memory", "number_of_libraries") == 2);
    client.check("FUNCTION FLUSH", OK);
    client.check("WAIT 1 5000", ":1\r\n");
    assert_eq!(follower.info("memory", "number_of_libraries"), 0);
}
