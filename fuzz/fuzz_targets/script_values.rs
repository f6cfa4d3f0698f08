//! Values through the libraries inside an interpreter: what is walked and played there is what was read and
//! written.
#![no_main]

use isotherm_resp::Protocol;
use libfuzzer_sys::fuzz_target;

mod interpreter;
use interpreter::{interpreter, run};

/// Reads the argument in each way, changes what came of it, and writes it. Says what is not the same the
/// second time.
const SCRIPT: &[u8] = b"
local out = {}
local function order(t)
    local names = {}
    for k, v in pairs(t) do names[#names + 1] = tostring(k) end
    return table.concat(names, ' ')
end
local function change(t)
    local copy = {}
    for k, v in pairs(t) do
        if type(k) ~= 'table' then copy[k] = v end
    end
    for i = 1, 5 do t['added' .. i] = i end
    t[#t + 1] = copy
    for k in pairs(t) do
        if type(k) == 'string' and #k < 3 then t[k] = nil end
    end
    return t
end
local function write(value)
    local a = {pcall(cjson.encode, value)}
    local b = {pcall(cmsgpack.pack, value)}
    out[#out + 1] = #tostring(a[2]) + #tostring(b[2])
    if a[1] then
        local again = cjson.encode(cjson.decode(a[2]))
        local third = cjson.encode(cjson.decode(again))
        if #again ~= #third then return 'json' end
    end
    if b[1] then cmsgpack.unpack(b[2]) end
end
for _, read in ipairs{cjson.decode, cmsgpack.unpack} do
    local results = {pcall(read, ARGV[1])}
    if results[1] then
        for i = 2, math.min(#results, 50) do
            local value = results[i]
            local wrong = write(value)
            if wrong then return wrong end
            if type(value) == 'table' then write(change(value)) end
        end
    end
end
local json = '{'
for name in ARGV[1]:sub(1, 60):gmatch('%w%w?') do json = json .. '\"' .. name .. '\":1,' end
local decoded, assigned = cjson.decode(json .. '\"\":0}'), {}
for name in ARGV[1]:sub(1, 60):gmatch('%w%w?') do assigned[name] = 1 end
assigned[''] = 0
if order(decoded) ~= order(assigned) then return 'order' end
pcall(struct.unpack, ARGV[2], ARGV[1])
pcall(struct.pack, ARGV[2], ARGV[1], 1, 2)
pcall(bit.tohex, #ARGV[1], tonumber(ARGV[2]))
return #out
";

fuzz_target!(|input: &[u8]| {
    let mut lua = interpreter();
    let (format, bytes) = input.split_at(input.len().min(8));
    let (_, reply) = run(&mut lua, SCRIPT, &[b"key", bytes, format], Protocol::Resp2).expect("it compiles");
    assert!(reply.starts_with(b":") || reply.starts_with(b"-"), "{}", String::from_utf8_lossy(&reply));
});
