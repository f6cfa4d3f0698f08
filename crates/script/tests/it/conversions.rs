//! Values between RESP and Lua, both ways and in both protocols.

use isotherm_resp::Protocol;

use crate::model::{Model, eval, eval_resp3, eval_with, interpreter};

#[test]
fn results_in_resp2() {
    let cases = [
        ("return 1", ":1\r\n"),
        ("return 3.99", ":3\r\n"),
        ("return -3.99", ":-3\r\n"),
        ("return 1e300", ":-9223372036854775808\r\n"),
        ("return 0/0", ":-9223372036854775808\r\n"),
        ("return 'a\\0b'", "$3\r\na\0b\r\n"),
        ("return true", ":1\r\n"),
        ("return false", "$-1\r\n"),
        ("return nil", "$-1\r\n"),
        ("return", "$-1\r\n"),
        (
            "return print",
            "-ERR user_script:1: Script attempted to access nonexistent global variable 'print' script: on @user_script:1.\r\n",
        ),
        ("return function() end", "$-1\r\n"),
        ("return {1,2,nil,4}", "*2\r\n:1\r\n:2\r\n"),
        ("return {1,{2,{}},'x'}", "*3\r\n:1\r\n*2\r\n:2\r\n*0\r\n$1\r\nx\r\n"),
        ("return {ok='fi\\r\\nne'}", "+fi  ne\r\n"),
        ("return {err='MY err'}", "-MY err\r\n"),
        ("return {double=1.5}", "$3\r\n1.5\r\n"),
        ("return {big_number='123'}", "$3\r\n123\r\n"),
        ("return {map={a=1}}", "*2\r\n$1\r\na\r\n:1\r\n"),
        ("return {set={a=true}}", "*1\r\n$1\r\na\r\n"),
        ("return {verbatim_string={format='txt',string='abc'}}", "$3\r\nabc\r\n"),
        ("return {verbatim_string={format='txt'}}", "*0\r\n"),
        ("return {err=1}", "*0\r\n"),
        ("redis.setresp(3) return {true, false}", "*2\r\n:1\r\n:0\r\n"),
    ];
    for (script, reply) in cases {
        assert_eq!(eval(script), reply, "{script}");
    }
}

#[test]
fn results_in_resp3() {
    let cases = [
        ("return nil", "_\r\n"),
        ("return true", ":1\r\n"),
        ("redis.setresp(3) return true", "#t\r\n"),
        ("return {double=1.5}", ",1.5\r\n"),
        ("return {big_number='12\\r3'}", "(12 3\r\n"),
        ("return {map={a={1}}}", "%1\r\n$1\r\na\r\n*1\r\n:1\r\n"),
        ("return {map={a={map={b={set={c=1}}}}}}", "%1\r\n$1\r\na\r\n%1\r\n$1\r\nb\r\n~1\r\n$1\r\nc\r\n"),
        ("return {set={a=true}}", "~1\r\n$1\r\na\r\n"),
        ("return {verbatim_string={format='txt',string='abc'}}", "=7\r\ntxt:abc\r\n"),
        ("return {verbatim_string={format='t',string='abc'}}", "=7\r\nt  :abc\r\n"),
    ];
    for (script, reply) in cases {
        assert_eq!(eval_resp3(script), reply, "{script}");
    }
}

/// A reply of each type becomes the expected Lua value, as the script itself shows it.
#[test]
fn replies_to_commands() {
    let show = "local function show(v)
        if type(v) ~= 'table' then return type(v) .. ' ' .. tostring(v) end
        local parts = {}
        for k, x in pairs(v) do parts[#parts + 1] = tostring(k) .. '=' .. show(x) end
        table.sort(parts)
        return '{' .. table.concat(parts, ',') .. '}'
    end ";
    let cases = [
        ("redis.call('debug','protocol','string')", "string Hello World", "string Hello World"),
        ("redis.call('debug','protocol','integer')", "number 12345", "number 12345"),
        ("redis.call('debug','protocol','double')", "string 2.5", "{double=number 2.5}"),
        ("redis.call('debug','protocol','null')", "boolean false", "nil nil"),
        (
            "redis.call('debug','protocol','array')",
            "{1=number 0,2=number 1,3=number 2}",
            "{1=number 0,2=number 1,3=number 2}",
        ),
        (
            "redis.call('debug','protocol','set')",
            "{1=number 0,2=number 1,3=number 2}",
            "{set={0=boolean true,1=boolean true,2=boolean true}}",
        ),
        (
            "redis.call('debug','protocol','map')",
            "{1=number 0,2=number 0,3=number 1,4=number 1,5=number 2,6=number 0}",
            "{map={0=boolean false,1=boolean true,2=boolean false}}",
        ),
        (
            "redis.call('debug','protocol','bignum')",
            "string 1234567999999999999999999999999999999",
            "{big_number=string 1234567999999999999999999999999999999}",
        ),
        ("redis.call('debug','protocol','true')", "number 1", "boolean true"),
        ("redis.call('debug','protocol','false')", "number 0", "boolean false"),
        (
            "redis.call('debug','protocol','verbatim')",
            "string This is a verbatim\nstring",
            "{verbatim_string={format=string txt,string=string This is a verbatim\nstring}}",
        ),
        ("redis.call('ping')", "{ok=string PONG}", "{ok=string PONG}"),
        (
            "redis.pcall('nosuch')",
            "{err=string ERR Unknown command called from script,ignore_error_stats_update=boolean true}",
            "{err=string ERR Unknown command called from script,ignore_error_stats_update=boolean true}",
        ),
    ];
    for (call, resp2, resp3) in cases {
        for (prefix, expected) in [("", resp2), ("redis.setresp(3) ", resp3)] {
            let reply = eval(&format!("{show}{prefix}return show({call})"));
            assert_eq!(reply, format!("${}\r\n{expected}\r\n", expected.len()), "{prefix}{call}");
        }
    }
}

#[test]
fn arguments_of_commands() {
    let cases = [
        ("1", "1"),
        ("1.5", "1.5"),
        ("1e15", "1000000000000000"),
        ("2^62", "4611686018427387904"),
        ("2^63", "9223372036854776000"),
        ("1e300", "1e+300"),
        ("-0.0", "0"),
        ("0.1", "0.1"),
        ("1/0", "inf"),
        ("-1/0", "-inf"),
        ("'a\\0\\r\\nb'", "a\0\r\nb"),
        ("''", ""),
    ];
    for (value, text) in cases {
        let reply = eval(&format!("return redis.call('echo', {value})"));
        assert_eq!(reply, format!("${}\r\n{text}\r\n", text.len()), "{value}");
    }
    let refused = "-ERR Command arguments must be strings or integers script: on @user_script:1.\r\n";
    for value in ["nil", "true", "{}", "function() end"] {
        assert_eq!(eval(&format!("return redis.call('echo', {value})")), refused, "{value}");
    }
    assert_eq!(
        eval("return redis.call()"),
        "-ERR Please specify at least one argument for this call script: on @user_script:1.\r\n"
    );
}

#[test]
fn keys_and_arguments() {
    let mut lua = interpreter();
    let mut model = Model::default();
    let script = "KEYS[3] = 'c' return {KEYS[1], KEYS[2], KEYS[3], ARGV[1], #KEYS, #ARGV}";
    for _ in 0..3 {
        let reply = eval_with(&mut lua, &mut model, Protocol::Resp2, script, &["a", "b"], &["x", "y", "z"]).0;
        assert_eq!(reply, "*6\r\n$1\r\na\r\n$1\r\nb\r\n$1\r\nc\r\n$1\r\nx\r\n:3\r\n:3\r\n");
    }
    let reply = eval_with(&mut lua, &mut model, Protocol::Resp2, "return #KEYS + #ARGV", &[], &[]).0;
    assert_eq!(reply, ":0\r\n");
}

#[test]
fn a_circle_of_tables_ends_at_the_limit_of_the_stack() {
    let reply = eval("local t = {} t[1] = t return t");
    assert!(reply.starts_with("*1\r\n*1\r\n"), "{}", &reply[..40]);
    assert!(reply.ends_with("-ERR reached lua stack limit\r\n"), "{}", &reply[reply.len() - 60..]);
    let depth = reply.matches("*1\r\n").count();
    assert!((7000..8000).contains(&depth), "{depth}");
}

#[test]
fn a_thousand_arguments() {
    let reply =
        eval("local t = {} for i = 1, 1000 do t[i] = i end return redis.call('rpush', 'l', unpack(t))");
    assert_eq!(reply, ":1000\r\n");
}

/// Circles are followed as deep as in Valkey: the stack has 8000 slots. The run has some of them, an array
/// takes one, and a map three.
#[test]
fn depths_of_circles() {
    let depth = |script: &str| eval(script).matches('*').count();
    assert_eq!(
        [
            depth("local t = {} t[1] = t return t"),
            depth("local t = {} t.map = {a = t} return t"),
            depth("local t = {} t.set = {[t] = 1} return t"),
        ],
        [7995, 2665, 2665]
    );
}
