//! Memory: what is counted, what is given back, what is refused.

use isotherm_resp::Protocol;

use crate::model::{Model, eval_in, eval_with, interpreter, limited, sha_of};

#[test]
fn a_new_interpreter_is_small() {
    let used = interpreter().used_bytes();
    assert!((10_000..90_000).contains(&used), "{used}");
}

#[test]
fn as_much_is_used_after_forgetting() {
    let mut lua = interpreter();
    let texts: Vec<String> = (0..1000)
        .map(|number| format!("local a{number} = 'text {number}' return {{KEYS[1], a{number}}}"))
        .collect();
    let mut used = Vec::new();
    for _ in 0..3 {
        for text in &texts {
            let reply = eval_with(&mut lua, &mut Model::default(), Protocol::Resp2, text, &["k"], &[]).0;
            assert!(reply.starts_with("*2"), "{reply}");
        }
        assert!(lua.used_bytes() > 500_000, "{}", lua.used_bytes());
        lua.forget_all();
        assert!(!lua.is_compiled(&sha_of(&texts[0])));
        used.push(lua.used_bytes());
    }
    // The first round leaves tables that have grown: of strings, of references.
    assert_eq!(used[1], used[2], "{used:?}");
    assert!(used[2] < 200_000, "{used:?}");
}

#[test]
fn one_script_can_be_forgotten() {
    let mut lua = interpreter();
    assert_eq!(eval_in(&mut lua, "return 1"), ":1\r\n");
    assert!(lua.is_compiled(&sha_of("return 1")));
    lua.forget(&sha_of("return 1"));
    lua.forget(&sha_of("return 1"));
    assert!(!lua.is_compiled(&sha_of("return 1")));
    assert_eq!(eval_in(&mut lua, "return 2"), ":2\r\n");
}

#[test]
fn the_limit_is_an_error_and_nothing_more() {
    let limit = 1 << 20;
    let mut lua = limited(limit);
    for _ in 0..20 {
        let reply = eval_in(&mut lua, "local t = {} while true do t[#t + 1] = ('x'):rep(100) .. #t end");
        assert_eq!(reply, "-ERR Error running script, not enough memory\r\n");
        assert!(lua.used_bytes() <= limit + 10_000, "{}", lua.used_bytes());
        assert_eq!(eval_in(&mut lua, "return 1"), ":1\r\n");
    }
    let caught =
        "local ok, why = pcall(function() local t = {} while true do t[#t + 1] = {} end end) return why";
    assert_eq!(eval_in(&mut lua, caught), "$17\r\nnot enough memory\r\n");
    let reply = eval_in(&mut lua, "local t = {} for i = 1, 30000 do t[i] = 'x' end return t");
    assert_eq!(reply, "-ERR Error running script, not enough memory\r\n", "the result counts too");
    assert_eq!(eval_in(&mut lua, "return 1"), ":1\r\n");
}

/// The stack is memory too: it may grow to 8,000 values, each of 16 bytes, but not past the limit.
#[test]
fn a_stack_that_finds_no_memory_is_an_error_of_memory() {
    let fill = "local t = {} pcall(function() while true do t[#t + 1] = ('x'):rep(500) .. #t end end)";
    for (end, expected) in [
        ("for i = 1, 50 do t[#t] = nil end", "-ERR Error running script, not enough memory\r\n"),
        ("t = nil", ":7000\r\n"),
    ] {
        let script = format!("{fill} {end} collectgarbage() return select('#', unpack({{}}, 1, 7000))");
        assert_eq!(eval_in(&mut limited(1 << 20), &script), expected, "{end}");
    }
}

/// Garbage is collected before the limit is reached.
#[test]
fn garbage_does_not_reach_the_limit() {
    let mut lua = limited(2 << 20);
    let keep_half =
        "local keep = ('x'):rep(300000) for i = 1, 10000 do local s = ('y'):rep(1000) .. i end return #keep";
    assert_eq!(eval_in(&mut lua, keep_half), ":300000\r\n");
}

/// Every allocation of opening, compiling and running fails once, and nothing is lost or left open.
#[test]
fn every_allocation_may_fail() {
    let script =
        "local t = {KEYS[1], redis.call('echo', 'x' .. ARGV[1])} t.self = t return {t, string.rep('ab', 10)}";
    let mut worked = 0;
    let mut limit = 10_000;
    while worked < 3 {
        limit += 97;
        let limits = isotherm_script::Limits { memory_bytes: limit, insecure_api: false };
        let Ok(mut lua) = isotherm_script::Interpreter::new(&limits, &crate::model::IDENTITY) else {
            continue;
        };
        let reply = eval_with(&mut lua, &mut Model::default(), Protocol::Resp2, script, &["k"], &["y"]).0;
        if reply.starts_with('*') {
            worked += 1;
        } else {
            assert!(reply.contains("not enough memory"), "{limit}: {reply}");
        }
        lua.set_memory_limit(0);
        assert_eq!(eval_in(&mut lua, "return rawget(_G, 'x') == nil"), ":1\r\n");
        assert!(eval_in(&mut lua, "x = 1").contains("readonly"), "{limit}");
    }
}

#[test]
fn large_buffers_are_given_back() {
    let mut lua = interpreter();
    let before = lua.used_bytes();
    let reply = eval_in(&mut lua, "return redis.call('echo', ('x'):rep(5000000))");
    assert_eq!(reply.len(), "$5000000\r\n\r\n".len() + 5_000_000);
    // Each collection halves the buffer in which Lua joins strings.
    (0..8).for_each(|_| lua.collect());
    assert!(lua.used_bytes() < before + 300_000, "{} after {before}", lua.used_bytes());
}

/// The collector makes steps between runs, so that what they leave is not more than the interpreter itself
/// has.
#[test]
fn short_runs_do_not_let_the_memory_swing() {
    let mut lua = interpreter();
    let mut run = || {
        eval_with(
            &mut lua,
            &mut Model::default(),
            Protocol::Resp2,
            "return redis.call('echo', KEYS[1])",
            &["x"],
            &[],
        );
        lua.used_bytes()
    };
    let first = run();
    let most = (0..10_000).map(|_| run()).max().expect("some");
    assert!(most < first + 30_000, "{first} at first, {most} at most");
}
