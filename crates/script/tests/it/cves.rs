//! Former vulnerabilities of Lua 5.1 and of the servers that embed it.
//!
//! A crash ends the test process. CVE-2026-23631 and GHSA-fq2f-crmw-q97r are of the server, and tested there.
//! The answers of the libraries to each of the calls here are compared with Valkey's in `tests/libraries`.

use crate::model::{eval, eval_in, interpreter, limited};

/// The parser's name of the chunk was collected while it was parsed.
#[test]
fn cve_2025_49844_name_of_a_chunk() {
    let script = "local names = {}
        for i = 1, 200 do
            collectgarbage('setpause', 0) collectgarbage('setstepmul', 1000000)
            local body = {}
            for j = 1, 50 do body[j] = 'local a' .. j .. ' = \"' .. ('x'):rep(i) .. j .. '\" .. tostring(' .. j .. ')' end
            local done, count = 0, #body
            local f = load(function()
                collectgarbage()
                done = done + 1
                return body[done] and body[done] .. '\\n'
            end, ('name of a chunk that nothing else holds'):rep(3) .. i)
            assert(f)()
        end
        return 'alive'";
    assert_eq!(eval(script), "$5\r\nalive\r\n");
}

#[test]
fn cve_2025_46817_range_of_unpack() {
    for range in ["0, 2147483647", "-2147483648, 2147483647", "-2147483648, -1", "-2, 2147483647", "1, 1e8"] {
        let reply = eval(&format!("return {{unpack({{}}, {range})}}"));
        assert!(reply.contains("too many results to unpack"), "{range}: {reply}");
    }
    assert_eq!(eval("return select('#', unpack({}, 2147483647, 2147483647))"), ":1\r\n");
    assert_eq!(eval("return select('#', unpack({}, -2147483648, -2147483648))"), ":1\r\n");
    assert_eq!(eval("return select('#', unpack({}, 2, 1))"), ":0\r\n");
}

#[test]
fn cve_2025_46819_long_brackets() {
    let levels = "=".repeat(100_000);
    assert_eq!(eval(&format!("return #[{levels}[abc]{levels}]")), ":3\r\n");
    assert!(eval(&format!("return [{levels}x")).contains("invalid long string delimiter"));
    assert_eq!(eval("--[==[ a ]=] b ]==]\nreturn [[\nx]]"), "$1\r\nx\r\n");
    assert_eq!(eval("local t = {1} return t[ [[x]] ] or t[1]"), ":1\r\n");
    assert!(eval("return [==[ x").contains("unfinished long string"));
    assert_eq!(eval("--[=x\nreturn 2"), ":2\r\n");
}

#[test]
fn cve_2025_46818_metatables_of_basic_types() {
    assert!(
        eval("getmetatable('').__index = function() return 1 end")
            .contains("Attempt to modify a readonly table")
    );
    assert!(eval("rawset(getmetatable(''), '__gc', 1)").contains("Attempt to modify a readonly table"));
}

/// Scripts of one user change what another's see.
#[test]
fn cve_2022_24735_shared_globals() {
    let mut lua = interpreter();
    assert!(eval_in(&mut lua, "redis.call = function() return 'evil' end").contains("readonly"));
    assert!(
        eval_in(&mut lua, "local g = getmetatable(_G) g.__index = function() return 'evil' end")
            .contains("readonly")
    );
    assert_eq!(eval_in(&mut lua, "return redis.call('ping')"), "+PONG\r\n");
}

/// A name of a local variable that is longer than its buffer, in an error of the parser or the virtual
/// machine.
#[test]
fn cve_2022_24736_errors_with_long_names() {
    let name = "n".repeat(10_000);
    assert!(eval(&format!("local {name} = nil return {name}.x")).contains("attempt to index local"));
    assert!(eval(&format!("return {name}()")).contains("nonexistent global"));
    assert!(eval(&format!("goto {name} {name}")).contains("Error compiling"));
    assert!(eval("redis.call(nil)").contains("must be strings or integers"));
}

/// Coroutines and finalizers while the state is closed.
#[test]
fn cve_2024_46981_closing() {
    for _ in 0..50 {
        let mut lua = interpreter();
        let script = "local keep = {}
            for i = 1, 20 do
                local co
                co = coroutine.wrap(function() keep[i] = setmetatable({co}, {__mode = 'k', __gc = function() end}) coroutine.yield(keep) end)
                co()
            end
            return #keep";
        assert_eq!(eval_in(&mut lua, script), ":20\r\n");
    }
}

/// MessagePack that is nested deeper than Lua's stack, or promises more than it holds.
#[test]
fn cve_2018_11218_stack_of_unpack() {
    for script in [
        "return {pcall(cmsgpack.unpack, ('\\145'):rep(1000000))}",
        "return {pcall(cmsgpack.unpack, ('\\129\\1'):rep(1000000))}",
        "return {pcall(cmsgpack.unpack, ('\\129'):rep(1000000))}",
        "return {pcall(cmsgpack.unpack, '\\221\\255\\255\\255\\255')}",
        "return {pcall(cmsgpack.unpack, '\\223\\127\\255\\255\\255\\1')}",
        "return {pcall(cmsgpack.unpack, '\\219\\255\\255\\255\\255x')}",
        "return {pcall(cmsgpack.unpack, ('\\1'):rep(1000000))}",
        "return {pcall(cmsgpack.unpack_one, 'x', 2^31)}",
        "return {pcall(cmsgpack.unpack_limit, 'x', 2^31, -1)}",
    ] {
        let reply = eval(script);
        assert!(
            reply.starts_with("*1\r\n$-1\r\n") || reply.starts_with("*2\r\n$-1\r\n"),
            "{script}: {reply}"
        );
    }
    let script = "local t = {} for i = 1, 100000 do t = {t} end return #cmsgpack.pack(t)";
    assert_eq!(eval(script), ":17\r\n");
    let script = "local t = {} t[1] = t t.x = t return type(cmsgpack.pack(t))";
    assert_eq!(eval(script), "$6\r\nstring\r\n");
}

/// Sizes and places that wrap around.
#[test]
fn cve_2018_11219_sizes_of_struct() {
    for script in [
        "return struct.pack('>I2147483648', '10')",
        "return struct.pack('c4294967297', 'x')",
        "return struct.size('i18446744073709551617')",
        "return struct.unpack('I4', 'abcd', 2147483647)",
        "return struct.unpack('I4', 'abcd', 2^63)",
        "return struct.unpack('bc0', '\\255abc')",
        "return struct.unpack('c2147483647', 'abc', 4)",
        "return struct.pack('!2147483648i', 1)",
    ] {
        let reply = eval(script);
        assert!(reply.starts_with('-'), "{script}: {reply}");
    }
}

/// The smallest number has no positive twin.
#[test]
fn cve_2024_31449_digits_of_tohex() {
    assert_eq!(eval("return bit.tohex(65535, -2147483648)"), "$8\r\n0000FFFF\r\n");
    assert_eq!(eval("return bit.tohex(65535, -2^63)"), eval("return bit.tohex(65535, 0)"));
    assert_eq!(eval("return bit.tohex(65535, 2147483647)"), "$8\r\n0000ffff\r\n");
}

/// A vararg function with many fixed parameters, called with fewer.
#[test]
fn cve_2014_5461_fixed_parameters_of_a_vararg_function() {
    let names: Vec<String> = (0..150).map(|number| format!("a{number}")).collect();
    let script = format!(
        "local function f({}, ...) return select('#', ...) end
         local function deep(n) if n == 0 then return f(1, 2) end return (deep(n - 1)) end
         for n = 1, 300 do deep(n) end
         return f(unpack({{}}, 1, 160))",
        names.join(",")
    );
    assert_eq!(eval(&script), ":10\r\n");
}

#[test]
fn bytecode_is_no_script() {
    assert!(eval("\u{1b}Lua").contains("Error compiling"));
    assert_eq!(
        eval(
            "local code = string.dump(function() return 1 end) return {code:sub(2, 4), tostring((loadstring(code)))}"
        ),
        "*2\r\n$3\r\nLua\r\n$3\r\nnil\r\n"
    );
    assert_eq!(
        eval(
            "local code = string.dump(function() end) return tostring((load(function() local c = code code = nil return c end)))"
        ),
        "$3\r\nnil\r\n"
    );
}

/// Optional items recurse in C: Valkey 9.1.2 dies of this one.
#[test]
fn a_pattern_of_many_optional_items() {
    let reply = eval("return string.find(('a'):rep(300000), ('.?'):rep(300000))");
    assert!(reply.contains("pattern too complex"), "{reply}");
    assert_eq!(eval("return string.find(('a'):rep(300), ('.?'):rep(300))"), ":1\r\n");
}

/// Each runs in a thread with the stack that the standard library gives, 2 MB.
#[test]
fn recursion_ends_with_an_error() {
    let scripts = [
        ("local function f() return 1 + f() end return f()", "stack overflow"),
        ("local function f() return (string.gsub('x', 'x', f)) end return f()", "stack overflow"),
        ("local function f() return select(2, pcall(f)) end return tostring(f())", "$"),
        ("local function f() return coroutine.wrap(f)() end return f()", "stack overflow"),
        (
            "local t = setmetatable({}, {}) getmetatable(t).__index = function(x, k) return x[k] end return t.x",
            "stack overflow",
        ),
        ("local t = setmetatable({}, {}) getmetatable(t).__index = t return t.x", "loop in gettable"),
        ("local t = {3,1,2} local function f() table.sort(t, f) end f()", "stack overflow"),
        ("return loadstring(('('):rep(100000))", "$-1"),
        ("return loadstring('return ' .. ('{'):rep(100000))", "$-1"),
        ("return loadstring(('if x then '):rep(1000))", "$-1"),
        ("local s = 'return ' .. ('not '):rep(100000) .. '1' return loadstring(s)", "$-1"),
        ("return loadstring('return ' .. ('1 .. '):rep(100000) .. '1')", "$-1"),
    ];
    for (script, words) in scripts {
        let reply = std::thread::spawn(move || eval(script)).join().expect("no panic");
        assert!(reply.contains(words), "{script}: {reply}");
    }
}

#[test]
fn huge_strings_are_an_error_of_memory() {
    let mut lua = limited(16 << 20);
    for script in [
        "return #string.rep('x', 1e10)",
        "local s = 'x' while true do s = s .. s end",
        "local t = {} for i = 1, 1e9 do t[i] = i end",
        "local t = {} for i = 1, 1e9 do t[i] = {} end",
        "return string.rep('x', 2^31 - 1)",
        "return table.concat({}, 'x', 1, 2^31 - 1)",
        "local t = {} table.insert(t, 2^31 - 1, 1) return 1",
    ] {
        let reply = eval_in(&mut lua, script);
        assert!(reply.starts_with('-') || reply == ":1\r\n", "{script}: {reply}");
        assert_eq!(eval_in(&mut lua, "return 1"), ":1\r\n", "after {script}");
    }
}
