//! Environment that scripts find. No part of it can be changed.

use isotherm_script::{Interpreter, Limits};

use crate::model::{IDENTITY, eval, eval_in, interpreter};

fn names(lua: &mut Interpreter, of: &str) -> Vec<String> {
    let reply = eval_in(
        lua,
        &format!("local t = {{}} for k in pairs({of}) do t[#t+1] = tostring(k) end table.sort(t) return t"),
    );
    reply
        .split("\r\n")
        .filter(|line| !line.is_empty() && !line.starts_with(['*', '$']))
        .map(str::to_owned)
        .collect()
}

#[test]
fn globals() {
    let libraries = ["bit", "cjson", "cmsgpack", "struct"];
    let expected: Vec<&str> = "ARGV KEYS _G _VERSION __redis__err__handler __server__err__handler assert collectgarbage \
        coroutine error gcinfo getmetatable ipairs load loadstring math next os pairs pcall rawequal rawget rawset redis \
        select server setmetatable string table tonumber tostring type unpack xpcall"
        .split_whitespace()
        .collect();
    let mut found = names(&mut interpreter(), "_G");
    found.retain(|name| !libraries.contains(&name.as_str()));
    assert_eq!(found, expected);
    assert_eq!(names(&mut interpreter(), "os"), ["clock"]);
    assert_eq!(
        names(&mut interpreter(), "redis").join(" "),
        "LOG_DEBUG LOG_NOTICE LOG_VERBOSE LOG_WARNING REDIS_VERSION REDIS_VERSION_NUM REPL_ALL REPL_AOF REPL_NONE \
         REPL_REPLICA REPL_SLAVE SERVER_NAME VALKEY_VERSION VALKEY_VERSION_NUM acl_check_cmd breakpoint call debug \
         error_reply log pcall replicate_commands set_repl setresp sha1hex status_reply"
    );
}

#[test]
fn the_insecure_api_is_a_setting() {
    let mut lua =
        Interpreter::new(&Limits { memory_bytes: 0, insecure_api: true }, &IDENTITY).expect("memory");
    assert_eq!(
        eval_in(&mut lua, "return type(newproxy) .. type(getfenv) .. type(setfenv)"),
        "$24\r\nfunctionfunctionfunction\r\n"
    );
    for name in [
        "newproxy", "getfenv", "setfenv", "print", "dofile", "loadfile", "require", "debug", "io", "package",
        "module",
    ] {
        let reply = eval(&format!("return {name}"));
        assert_eq!(
            reply,
            format!(
                "-ERR user_script:1: Script attempted to access nonexistent global variable '{name}' script: on @user_script:1.\r\n"
            )
        );
    }
}

#[test]
fn nothing_shared_can_be_changed() {
    let attempts = [
        "x = 1",
        "_G.x = 1",
        "string = nil",
        "string.len = nil",
        "redis.call = nil",
        "server.x = 1",
        "math.pi = 3",
        "rawset(_G, 'x', 1)",
        "rawset(string, 'x', 1)",
        "table.insert(table, 1)",
        "table.insert(_G, 1)",
        "setmetatable(_G, {})",
        "setmetatable(string, {})",
        "getmetatable(_G).__index = nil",
        "rawset(getmetatable(_G), '__index', nil)",
        "getmetatable('').__index = function() end",
        "rawset(getmetatable(''), '__add', 1)",
        "table.sort(_G, function() end) _G[1] = 2",
        "coroutine.wrap(function() x = 1 end)()",
        "loadstring('x = 1')()",
        "for k in pairs(_G) do _G[k] = nil end",
    ];
    let mut lua = interpreter();
    for attempt in attempts {
        let reply = eval_in(&mut lua, attempt);
        assert!(reply.contains("Attempt to modify a readonly table"), "{attempt}: {reply}");
    }
    assert_eq!(
        eval_in(&mut lua, "return {rawget(_G, 'x') == nil, ('x'):len(), redis.call('ping')}"),
        "*3\r\n:1\r\n:1\r\n+PONG\r\n"
    );
}

/// The metatables of all basic types but strings do not exist, and cannot be made.
#[test]
fn basic_types_have_no_metatables() {
    for value in ["1", "nil", "true", "function() end", "coroutine.create(function() end)"] {
        assert_eq!(eval(&format!("return getmetatable({value})")), "$-1\r\n");
        assert!(eval(&format!("setmetatable({value}, {{}})")).contains("table expected"));
    }
}

/// The sequence of Valkey's process from its start.
#[test]
fn random_numbers_are_those_of_valkey() {
    let mut lua = interpreter();
    let two = "return {math.random(1000000), math.random(1000000)}";
    assert_eq!(eval_in(&mut lua, two), "*2\r\n:396465\r\n:840486\r\n");
    assert_eq!(eval_in(&mut lua, two), "*2\r\n:353337\r\n:446584\r\n");
    let seeded = "math.randomseed(7) return tostring(math.random())";
    assert_eq!(eval_in(&mut lua, seeded), eval_in(&mut lua, seeded));
}

#[test]
fn a_script_that_stops_the_collector_stops_it_for_itself() {
    let mut lua = interpreter();
    assert_eq!(eval_in(&mut lua, "collectgarbage('stop') return 1"), ":1\r\n");
    let before = lua.used_bytes();
    for _ in 0..200 {
        assert_eq!(eval_in(&mut lua, "return #string.rep('x', 100000)"), ":100000\r\n");
    }
    assert!(lua.used_bytes() < before + 4_000_000, "{} after {before}", lua.used_bytes());
}
