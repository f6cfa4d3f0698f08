//! Tests of texts of scripts: those that show that they look at no key but those that they are called with,
//! and those that do not.

use super::keys::looks_at_no_key;
use isotherm_node::request::registry::Commands;
use isotherm_node::scripting::bound::is_bound;

fn check(texts: &[&str], expected: bool) {
    let commands = Commands::build(crate::admin::COMMANDS);
    for text in texts {
        assert_eq!(is_bound(text.as_bytes(), &commands, looks_at_no_key), expected, "{text}");
    }
}

#[test]
fn what_is_shown() {
    check(
        &[
            "return 1",
            "return redis.call('GET', KEYS[1])",
            "return redis.pcall(\"get\", KEYS[ARGV[1] + 1])",
            "redis.call('SET', KEYS[1], ARGV[1] .. KEYS[2]) return redis.call('MGET', KEYS[1], KEYS[#KEYS])",
            "local key = KEYS[1] if redis.call('EXISTS', key) == 1 then return redis.call('INCR', key) end",
            "local a, b = KEYS[1], KEYS[2]; return redis.call('RENAME', a, b)",
            "local call = redis.call\nlocal key = KEYS[1]\nreturn call('HGETALL', key)",
            "local rcall, k = redis.call, KEYS[1]\nrcall('SET', k, 1) return rcall('GET', k)",
            "return redis.call('DEL', unpack(KEYS))",
            "-- redis.call('GET', 'x')\n--[[ KEYS = {} ]] return redis.call('PING')",
            "for i = 1, #KEYS do redis.call('DEL', KEYS[i]) end return redis.error_reply('no')",
            "return redis.call('MSET', KEYS[1], ARGV[1], KEYS[2], ARGV[2])",
            // Of a call in the middle Lua takes one value.
            "return redis.call('MSET', KEYS[1], f(), KEYS[2], 1)",
            "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end",
            "local v = redis.call('GET', KEYS[1]) return cjson.decode(v).call",
            "redis.log(redis.LOG_NOTICE, 'x') return server.call('TIME')",
        ],
        true,
    );
}

#[test]
fn what_is_not_shown() {
    check(
        &[
            "return redis.call('GET', 'key')",
            "return redis.call('GET', ARGV[1])",
            "return redis.call('GET', KEYS[1] .. ':x')",
            "return redis.call('KEYS', '*')",
            "return redis.call(ARGV[1], KEYS[1])",
            "return redis.call('nosuch', KEYS[1])",
            "return redis.call('SORT', KEYS[1])",
            "return redis.call('SCAN', 0)",
            "return redis.call('FLUSHALL')",
            "return redis.call('MGET', KEYS[1], unpack(ARGV))",
            "return redis.call('MGET', unpack(ARGV))",
            "return redis.call('MSET', KEYS[1], f())",
            "return redis.call('MSET', KEYS[1], unpack{'v', 'x', 'w'})",
            "return redis.call('MSET', KEYS[1], f'x')",
            "return redis.call('MSET', KEYS[1], t[1][[x]])",
            "return redis.call('EVAL', KEYS[1], 0)",
            // They report of all there is.
            "local info = redis.call('INFO') return redis.call('GET', KEYS[1])",
            "return redis.call('LASTSAVE')",
            "return redis.call('WAIT', 0, 0)",
            "return redis.call('ZUNIONSTORE', KEYS[1], 1, KEYS[2])",
            "KEYS[1] = 'x' return redis.call('GET', KEYS[1])",
            "KEYS[1], a = 'x', 1 return redis.call('GET', KEYS[1])",
            "a, KEYS[1] = 1, 'x' return redis.call('GET', KEYS[1])",
            "local t = KEYS t[1] = 'x' return redis.call('GET', KEYS[1])",
            "table.insert(KEYS, 'x') return redis.call('GET', KEYS[2])",
            "local KEYS = {'x'} return redis.call('GET', KEYS[1])",
            "local function f(KEYS) return redis.call('GET', KEYS[1]) end return f({'x'})",
            "local function unpack(t) return 'x' end return redis.call('DEL', unpack(KEYS))",
            "unpack = f return redis.call('DEL', unpack(KEYS))",
            "t.unpack(KEYS) return redis.call('DEL', KEYS[1])",
            "local key = KEYS[1] key = 'x' return redis.call('GET', key)",
            "local key = KEYS[1] a, key = 1, 'x' return redis.call('GET', key)",
            "local key = KEYS[1] key, a = 'x', 1 return redis.call('GET', key)",
            "local key = KEYS[1] key, t.x = 'x', 1 return redis.call('GET', key)",
            "local key = KEYS[1] key, t[1] = 'x', 1 return redis.call('GET', key)",
            "local key = KEYS[1] t.x, key, t.y = 1, 'x', 1 return redis.call('GET', key)",
            "-- a line of Lua ends here\rreturn redis.call('GET', 'x')",
            "local key = KEYS[1] local key = 'x' return redis.call('GET', key)",
            "local key = KEYS[1] for key = 1, 2 do redis.call('GET', key) end",
            "local key = KEYS[1] for _, key in ipairs(ARGV) do redis.call('GET', key) end",
            "local key = KEYS[1] local function f(a, key) redis.call('GET', key) end f(1, 'x')",
            "local key = KEYS[1] local f = function(key) redis.call('GET', key) end f('x')",
            "local key = KEYS[1] function f.g(key) redis.call('GET', key) end",
            "local key = KEYS[1] or 'x' return redis.call('GET', key)",
            "local key = KEYS[1] .. 'x' return redis.call('GET', key)",
            "local r = redis return r.call('GET', 'x')",
            "local call = redis.call call = f return call('GET', KEYS[1])",
            "local call = redis.call return pcall(call, 'GET', 'x')",
            "return pcall(redis.call, 'GET', 'x')",
            "return _G.redis.call('GET', 'x')",
            "return redis['call']('GET', 'x')",
            "return redis.call 'PING'",
            "return redis.call{'GET', 'x'}",
            "local f = redis.call; return f('GET', 'x')",
            "redis.call = f return redis.call('GET', KEYS[1])",
            "return loadstring('return 1')()",
            "return redis.call('G\\69T', KEYS[1])",
            "return redis.call('GET', KEYS[1]",
            "return 'open",
            "return redis.call('OBJECT', 'ENCODING', 'x')",
        ],
        false,
    );
}

/// Each script without one of its characters is looked at too: nothing panics.
#[test]
fn damaged_texts() {
    let commands = Commands::build(crate::admin::COMMANDS);
    let text = b"local a, call = KEYS[1], redis.call --[[x]] return call('MSET', a, [==[]==], KEYS[f(2)], \"x\\\"y\")";
    for at in 0..text.len() {
        let damaged = [&text[..at], &text[at + 1..]].concat();
        let _ = is_bound(&damaged, &commands, looks_at_no_key);
        let _ = is_bound(&text[..at], &commands, looks_at_no_key);
    }
}
