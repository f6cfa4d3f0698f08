-- Values to tapes and back (crates/script/src/tape.rs), for a server that has struct.
local put, number, string_head = table.insert, struct.pack, struct.pack

-- `limit`: how deep tables are followed; deeper ones are tag 9. Unless `cut`, no table is followed after the first such one.
local given_up
local function walk(out, value, limit, cut)
    local kind = type(value)
    if kind == 'nil' then put(out, '\0')
    elseif kind == 'boolean' then put(out, value and '\2' or '\1')
    elseif kind == 'number' then put(out, '\3' .. number('<d', value))
    elseif kind == 'string' then put(out, '\4' .. string_head('<I4', #value) .. value)
    elseif kind == 'function' then put(out, '\7\6')
    elseif kind == 'thread' then put(out, '\7\8')
    elseif kind == 'userdata' then put(out, '\8')
    elseif limit == 0 or given_up then
        put(out, '\9')
        given_up = not cut
    else
        put(out, '\5\0\0\0\0\0\0\0\0')
        local key, item = next(value)
        while key ~= nil do
            walk(out, key, limit - 1, cut)
            walk(out, item, limit - 1, cut)
            key, item = next(value, key)
        end
        put(out, '\6')
    end
end

local function tape(limit, cut, count, items)
    local out = {}
    given_up = false
    for i = 1, count do walk(out, items[i], limit, cut) end
    return table.concat(out)
end

local function value(text, at)
    local tag = text:byte(at)
    if tag == 0 then return nil, at + 1
    elseif tag == 1 then return false, at + 1
    elseif tag == 2 then return true, at + 1
    elseif tag == 3 then return (struct.unpack('<d', text, at + 1)), at + 9
    elseif tag == 4 then
        local len = struct.unpack('<I4', text, at + 1)
        return text:sub(at + 5, at + 4 + len), at + 5 + len
    elseif tag == 7 then return tostring, at + 2
    elseif tag == 8 then return cjson.null, at + 1
    end
    local made, key, item = {}, nil, nil
    at = at + 9
    while text:byte(at) ~= 6 do
        key, at = value(text, at)
        item, at = value(text, at)
        if key ~= nil and key == key then made[key] = item end
    end
    return made, at + 1
end

local function values(text)
    local items, count, at = {}, 0, 1
    while at <= #text do
        count = count + 1
        items[count], at = value(text, at)
    end
    return count, items
end

-- Calls a function as scripts do; its arguments as a tape, whether it went well, its results as a tape or its error.
local function call(module, library, name, ...)
    local limit, cut = 0, true
    if name == 'encode' then limit, cut = math.min(module.encode_max_depth(), 8000), false end
    if library == 'cmsgpack' and name == 'pack' then limit = 16 end
    local args = tape(limit, cut, select('#', ...), {...})
    local function results(ok, ...)
        if not ok then return args, 0, tostring((...)) end
        return args, 1, tape(8000, true, select('#', ...), {...})
    end
    return results(pcall(module[name], ...))
end
