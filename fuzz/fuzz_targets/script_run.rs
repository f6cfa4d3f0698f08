//! Any text as a script, or one of words that make scripts: it ends, the interpreter continues, and the state
//! that others share is as before.
#![no_main]

use isotherm_resp::Protocol;
use libfuzzer_sys::fuzz_target;

mod interpreter;
use interpreter::{interpreter, run};

#[rustfmt::skip]
const WORDS: [&str; 128] = [
    "local ", "a", "b", "c", "=", ",", "(", ")", "{", "}", "[", "]", "[[", "]]", "[==[", "]==]", "function ", "end ",
    "if ", "then ", "else ", "elseif ", "while ", "do ", "for ", "in ", "repeat ", "until ", "break ", "return ", "nil ",
    "true ", "false ", "not ", "and ", "or ", "..", "...", "+", "-", "*", "/", "%", "^", "#", "==", "~=", "<", "<=", ">",
    ">=", ".", ":", ";", "\n", "'", "\"", "\\", "--", "1", "0", "-1", "2^53", "1e308", "0/0", "1e9", "0x7fffffff",
    "-2147483648", "'x'", "'%d'", "'(.-)%1'", "'%b()'", "'%f[a]'", "'.?'", "('x'):rep(1e4)", "string.find(",
    "string.gsub(", "string.format(", "string.rep(", "string.byte(", "string.char(", "string.dump(", "string.gmatch(",
    "string.sub(", "table.concat(", "table.insert(", "table.remove(", "table.sort(", "unpack(", "select(", "pairs(",
    "ipairs(", "next(", "rawset(", "rawget(", "rawequal(", "setmetatable(", "getmetatable(", "tostring(", "tonumber(",
    "pcall(", "xpcall(", "error(", "assert(", "loadstring(", "load(", "coroutine.wrap(", "coroutine.create(",
    "coroutine.resume(", "coroutine.yield(", "collectgarbage(", "math.random(", "redis.call(", "redis.pcall(",
    "redis.error_reply(", "redis.status_reply(", "redis.sha1hex(", "redis.setresp(3)", "cjson.encode(", "cjson.decode(",
    "cmsgpack.pack(", "cmsgpack.unpack(", "struct.pack(", "struct.unpack(", "bit.tohex(", "KEYS", "ARGV[1]", "_G",
];

fn text(input: &[u8]) -> Vec<u8> {
    match input.split_first() {
        Some((first, rest)) if first % 4 != 0 => {
            rest.iter().flat_map(|byte| WORDS[usize::from(byte % 128)].bytes()).collect()
        }
        _ => input.get(1..).unwrap_or_default().to_vec(),
    }
}

fuzz_target!(|input: &[u8]| {
    let mut lua = interpreter();
    let protocol = if input.len() % 2 == 0 { Protocol::Resp2 } else { Protocol::Resp3 };
    let text = text(input);
    run(&mut lua, &text, &[b"key", b"argument"], protocol);
    run(&mut lua, &text, &[], protocol);
    // Whatever it did, the next script finds its globals, its arguments and its memory.
    let check = b"return {ARGV[1], #KEYS, type(redis.call), ('x'):upper(), cjson.encode({1}), tostring(a)}";
    let (_, reply) = run(&mut lua, check, &[b"k", b"v"], Protocol::Resp2).expect("it compiles");
    let reply = String::from_utf8_lossy(&reply);
    assert!(
        reply.starts_with("*6\r\n$1\r\nv\r\n:1\r\n$8\r\nfunction\r\n$1\r\nX\r\n$3\r\n[1]\r\n")
            || reply.starts_with('-'),
        "{reply}"
    );
});
