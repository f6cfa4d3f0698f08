//! A script that is to end does, whatever it is in the midst of and whatever it catches.

use isotherm_resp::Protocol;
use isotherm_script::Ended;

use crate::model::{Model, eval_in, eval_with, interpreter};

const STOPPED: &str = "-ERR Script killed by user with SCRIPT KILL.";

#[test]
fn every_loop_ends() {
    let scripts = [
        "while true do end",
        "repeat until false",
        "for i = 1, 1e18 do end",
        "local function f() return f() end f()",
        "while true do pcall(function() while true do end end) end",
        "while true do pcall(error, 'x') end",
        "while true do xpcall(function() while true do end end, function() while true do end end) end",
        "while true do coroutine.wrap(function() while true do end end)() end",
        "while true do local c = coroutine.create(function() while true do end end) coroutine.resume(c) end",
        "local c = coroutine.wrap(function() while true do coroutine.yield() end end) while true do c() end",
        "local c = coroutine.wrap(function() pcall(function() while true do end end) while true do end end) while true do pcall(c) end",
        "local t = {} for i = 1, 1000 do t[i] = i end table.sort(t, function() while true do end end)",
        "while true do pcall(string.gsub, 'x', 'x', function() while true do end end) end",
        "local t = setmetatable({}, {__index = function() while true do end end}) while true do pcall(function() return t.x end) end",
        "while true do redis.pcall('nosuch') end",
        "while true do pcall(redis.call, 'nosuch') end",
        "error(setmetatable({}, {__index = function() while true do end end}))",
        "error(setmetatable({}, {__newindex = function() while true do end end}))",
        "return setmetatable({err = 'E'}, {__index = function() while true do end end})",
        "xpcall(error, function() while true do end end)",
        // within one instruction
        "return string.find(('a'):rep(40), ('a?'):rep(40) .. ('a'):rep(40))",
        "return string.find(('a'):rep(100000), ('.-'):rep(20) .. 'b')",
        "return string.match(('a'):rep(100000), ('a*'):rep(10) .. 'b')",
        "return string.gsub(('a'):rep(1000000), '.-b', 'x')",
        "return string.find(('('):rep(300000), '%b()')",
        "for x in string.gmatch(('a'):rep(100000), '.-.-b') do end",
        "return string.find(('a'):rep(10000000), ('a'):rep(5000000) .. 'b', 1, true)",
        "while true do string.find(('a'):rep(90), '.-.-b') end",
        "local t = {} for i = 1, 300000 do t[i] = i % 2 end table.sort(t, nil) while true do table.sort(t) end",
        "table.insert({}, -2147483648, 1)",
        "while true do string.rep('x', 1000000) end",
    ];
    let mut lua = interpreter();
    for script in scripts {
        let mut model = Model { stop_at: 3, ..Model::default() };
        let (reply, ended) = eval_with(&mut lua, &mut model, Protocol::Resp2, script, &[], &[]);
        assert_eq!(ended, Some(Ended::Stopped), "{script}: {reply}");
        assert!(reply.starts_with(STOPPED), "{script}: {reply}");
        assert_eq!(eval_in(&mut lua, "return redis.call('ping')"), "+PONG\r\n", "after {script}");
    }
}

#[test]
fn the_error_names_the_line() {
    let mut model = Model { stop_at: 1, ..Model::default() };
    let script = "\n\nwhile true do end";
    let (reply, _) = eval_with(&mut interpreter(), &mut model, Protocol::Resp2, script, &[], &[]);
    assert_eq!(reply, format!("{STOPPED} script: on @user_script:3.\r\n"));
}

/// A tree of 2^7000 leaves, made of few tables.
#[test]
fn a_result_without_end_can_be_stopped() {
    let mut model = Model { stop_at: 5, ..Model::default() };
    let script = "local t = {} t[1] = t t[2] = t return t";
    let (reply, ended) = eval_with(&mut interpreter(), &mut model, Protocol::Resp2, script, &[], &[]);
    assert_eq!(ended, Some(Ended::Stopped), "{reply}");
    assert!(reply.starts_with(STOPPED), "{reply}");
}

#[test]
fn the_host_is_asked_every_100_000_instructions_and_more_often_of_one_that_was_suspended() {
    let mut model = Model::default();
    let script = "for i = 1, 1000000 do end return 1";
    eval_with(&mut interpreter(), &mut model, Protocol::Resp2, script, &[], &[]);
    // One instruction a turn; this host suspends the run each time before it answers.
    assert_eq!((model.asked, model.suspensions), (1 + 900_000 / 10_000, 91));
}
