//! The libraries as scripts meet them: in an interpreter, with places and names in their errors, tables in
//! Lua's own order.

use isotherm_resp::{Args, ArgsBuf, Protocol, Reply};
use isotherm_script::{Called, Checkpoint, Host, Identity, Interpreter, Limits, LogLevel, Replication};

struct NoHost;

impl Host for NoHost {
    fn call(&mut self, words: Args<'_>, _: &mut Reply) -> Called {
        panic!("these scripts call nothing: {words:?}");
    }
    fn set_replication(&mut self, _: Replication) {}
    fn log(&mut self, _: LogLevel, _: &[u8]) {}
    fn may_run(&mut self, _: Args<'_>) -> Option<bool> {
        None
    }
    fn checkpoint(&mut self) -> Checkpoint {
        Checkpoint::GoOn
    }
}

/// The reply of EVAL in RESP2, in a new interpreter.
pub fn eval(body: &str, args: &[&[u8]]) -> Vec<u8> {
    let identity = Identity { server_name: "valkey", redis_version: "7.2.4", valkey_version: "9.1.2" };
    let limits = Limits { memory_bytes: 0, insecure_api: false };
    let mut lua = Interpreter::new(&limits, &identity).expect("there is memory");
    let digits = isotherm_stdx::sha1::hex(&isotherm_stdx::sha1::sha1(body.as_bytes()));
    let sha = digits.as_bytes().try_into().expect("40 digits");
    lua.compile(&sha, body.as_bytes()).expect("a script");
    let mut reply = Reply::new(Protocol::Resp2);
    let words: ArgsBuf = args.iter().copied().collect();
    lua.run(&sha, words.args(), 0, &mut NoHost, &mut reply);
    reply.out
}

/// Scripts whose replies are compared with Valkey's.
pub const SCRIPTS: [&str; 24] = [
    "return cjson.encode()",
    "return cjson.decode('[1,')",
    "local f = cjson.encode return f()",
    "return {pcall(cjson.encode)}",
    "return {pcall(cjson.decode, '[')}",
    "return cmsgpack.pack()",
    "return cmsgpack.unpack('\\129\\192\\1')",
    "return {pcall(cmsgpack.unpack, '\\193')}",
    "return struct.pack('c5', 'abc')",
    "return struct.unpack('b')",
    "return bit.tohex('x')",
    "return {cjson._NAME, cjson._VERSION, cmsgpack._NAME, cmsgpack._VERSION, cmsgpack._COPYRIGHT, cmsgpack._DESCRIPTION}",
    "cjson.encode = 1",
    "local names = {} for _, l in ipairs{cjson, cmsgpack, struct, bit} do for k, v in pairs(l) do names[#names + 1] = k .. type(v) end end table.sort(names) return names",
    "local names = {} for k, v in pairs(cjson.new()) do names[#names + 1] = k .. type(v) end table.sort(names) return names",
    "local a, b = cjson.new(), cjson.new() a.encode_number_precision(3) return {a.encode(1/3), b.encode(1/3), cjson.encode(1/3), a.new().encode(1/3)}",
    "local c = cjson.new() c.x = 1 return c.x",
    "return {cjson.null == cjson.decode('null'), type(cjson.null), cjson.encode{cjson.null}}",
    "local t = {} for i = 1, 200 do t['key:' .. i] = i end return cjson.encode(cjson.decode(cjson.encode(t)))",
    "local t = {} for i = 1, 200 do t[i * 7 % 199] = i end return cmsgpack.pack(cmsgpack.unpack(cmsgpack.pack(t)))",
    "local out = {} for n = 0, 70 do local t = cjson.decode('[' .. string.rep('1,', n) .. '1]') t[n + 3] = 1 out[#out + 1] = #t t[n * 2] = 1 out[#out + 1] = #t end return out",
    "local out = {} for n = 1, 15 do for m = 1, n do local t = cmsgpack.unpack(string.char(144 + n) .. string.rep('\\1', m - 1) .. '\\192' .. string.rep('\\1', n - m)) out[#out + 1] = #t t[n + 1] = 1 out[#out + 1] = #t end end return out",
    "local t = {} t.t = t return cjson.encode(t)",
    "local t = {} for i = 1, 100 do t[i] = t end return {pcall(cjson.encode, t)}",
];

#[test]
fn recorded_in_an_interpreter_the_golden_file_is_the_same() {
    let script = format!("{}{}", include_str!("tape.lua"), include_str!("record.lua"));
    let reply = eval(&script, &[include_str!("cases.txt").trim_end().as_bytes()]);
    let reply = String::from_utf8_lossy(&reply);
    let ours = reply.trim_end().lines().skip(1);
    let golden = include_str!("valkey-9.1.2.txt").trim_end().lines().skip(1);
    let mut case = "";
    for (ours, golden) in ours.clone().zip(golden.clone()) {
        case = if golden.starts_with('>') { golden } else { case };
        assert_eq!(ours, golden, "{case}");
    }
    assert_eq!(ours.count(), golden.count());
}

/// A table that a library returns has the order of one whose keys were assigned one by one, and keeps it
/// while keys are added: up to 32 fields are placed at once, and more are not.
#[test]
fn fields_have_the_order_of_keys_that_are_assigned() {
    let script = "
        local function order(t)
            local names = {}
            for k in pairs(t) do names[#names + 1] = k end
            return table.concat(names, ' ')
        end
        local compared = 0
        for round = 1, 3000 do
            local assigned, count = {}, round % 41
            local json, packed = {}, string.char(0xde, 0, count)
            for i = 1, count do
                local key = 'k' .. math.random(round % 3 == 0 and 20 or 1e6)
                assigned[key] = i
                json[i] = '\"' .. key .. '\":' .. i
                packed = packed .. cmsgpack.pack(key) .. string.char(i)
            end
            local decoded = cjson.decode('{' .. table.concat(json, ',') .. '}')
            local unpacked = cmsgpack.unpack(packed)
            for more = 0, 40 do
                if more > 0 then
                    local key = 'm' .. math.random(1e6)
                    for _, t in ipairs{assigned, decoded, unpacked} do t[key] = more end
                end
                local expected = order(assigned)
                for name, t in pairs{decoded = decoded, unpacked = unpacked} do
                    compared = compared + 1
                    if order(t) ~= expected then
                        return name .. ' ' .. table.concat(json, ',') .. ' and ' .. more .. ': ' .. order(t) .. ' not ' .. expected
                    end
                    for k, v in pairs(assigned) do
                        if t[k] ~= v then return 'another value of ' .. k end
                    end
                end
            end
        end
        return compared";
    assert_eq!(String::from_utf8_lossy(&eval(script, &[])), ":246000\r\n");
}
