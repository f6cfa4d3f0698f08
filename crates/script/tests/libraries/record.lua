-- KEYS: none; ARGV[1]: cases. The golden file: each case with what the server makes of it.
local function digits(text)
    return (text:gsub('.', function(byte) return string.format('%02x', byte:byte()) end))
end

-- In hexadecimal digits; what is repeated as (digits)times.
local function hex(text)
    local out, at = {}, 1
    while at <= #text do
        local best, times = 1, 1
        for period = 1, #text - at > 64 and 30 or 0 do
            local count, unit = 1, text:sub(at, at + period - 1)
            while text:sub(at + count * period, at + count * period + period - 1) == unit do count = count + 1 end
            if count > 2 and count * period > best * times then best, times = period, count end
        end
        local unit = digits(text:sub(at, at + best - 1))
        put(out, times * best > 32 and '(' .. unit .. ')' .. times .. ';' or unit:rep(times))
        at = at + best * times
    end
    return table.concat(out)
end
local libraries = {cjson = cjson.new(), cmsgpack = cmsgpack, struct = struct, bit = bit}
local lines = {}
for line in (ARGV[1] .. '\n'):gmatch('(.-)\n') do
    if line == '' then
        libraries.cjson = cjson.new()
        put(lines, '')
    elseif line:sub(1, 1) == '#' then
        put(lines, line)
    else
        local library, name, text = line:match('^(%w+)%.([%w_]+)%s*(.*)$')
        local source = 'local rep, N = string.rep, ... return function() return ' .. text .. '\nend'
        local make = assert(loadstring(source))(libraries)
        local args, ok, result = call(libraries[library], library, name, make())
        put(lines, '> ' .. line)
        put(lines, '< ' .. hex(args))
        put(lines, ok == 1 and '= ' .. hex(result) or '! ' .. hex(result))
    end
end
return table.concat(lines, '\n')
