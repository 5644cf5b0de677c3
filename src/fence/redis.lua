-- Ringfence: the check of fencing tokens in Redis and Valkey, version 1 of the marks.
--
-- One run of this script is the check, the raising of the marks and the caller's write:
-- nothing comes between. The write is the function `write` that is put before this text.
--
-- KEYS[1]      the version of the marks, "1"
-- KEYS[2..]    for each fence the hash of its resource's marks, in the order of the names:
--              c (cluster), r (the resource's mark), s<slot> (a slot's mark)
-- KEYS beyond  the caller's own
-- ARGV[1]      how many fences, each of another resource; then for each: cluster, slot or
--              "", token, floor
-- ARGV beyond  the caller's own
--
-- Refusals are error replies: RFSTALE, RFFOREIGN, RFFLOOR, RFBAD, RFSCHEMA, RFDURABLE.
local MAX = "9007199254740991"

-- Whole numbers as text: exact at any size.
local function below(a, b)
    return #a < #b or (#a == #b and a < b)
end

local function number(text, max)
    return text ~= nil and string.match(text, "^[1-9]%d*$") and not below(max, text)
end

local function refuse(code, ...)
    return redis.error_reply(code .. " " .. string.format(...))
end

local version = redis.call("GET", KEYS[1])
if version ~= "1" then
    return refuse("RFSCHEMA", "found=%s", version or "none")
end
-- Keys that may be evicted or expire are no place for a mark.
local policy = string.match(redis.call("INFO", "memory"), "maxmemory_policy:(%S+)")
if policy ~= "noeviction" then
    return refuse("RFDURABLE", "maxmemory-policy is %s; it must be noeviction", policy or "unknown")
end
if redis.call("PTTL", KEYS[1]) >= 0 then
    return refuse("RFDURABLE", "the version of the marks has an expiry")
end

-- None at all asks for the version and the settings only: a write without a fence is
-- unguarded.
local count = tonumber(ARGV[1])
if not number(ARGV[1], MAX) and not (ARGV[1] == "0" and #KEYS == 1 and #ARGV == 1) then
    return refuse("RFBAD", "a write comes with one fence or more")
end
local raised, named_before = {}, {}
for i = 1, count do
    local at, key = 4 * i - 2, KEYS[1 + i]
    -- Each is judged by the marks as they were before.
    if key == nil or named_before[key] then
        return refuse("RFBAD", "each fence has a key, of another resource")
    end
    named_before[key] = true
    local cluster, slot, token, floor = ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3]
    local named = slot == "0" or slot == "" or number(slot, "4294967295")
    if not (#cluster == 32 and string.match(cluster, "^[0-9a-f]+$") and named
        and number(token, MAX) and number(floor, MAX)) then
        return refuse("RFBAD", "cluster is 32 hexadecimal digits, slot 0 to 2^32 - 1 or empty, "
            .. "token and floor 1 to 2^53 - 1")
    end
    if below(token, floor) then
        return refuse("RFFLOOR", "fence=%d", i)
    end
    local marks = redis.call("HMGET", key, "c", "r", "s" .. slot)
    local known, mark, mark_of_slot = marks[1], marks[2], slot ~= "" and marks[3]
    if known then
        if known ~= cluster then
            return refuse("RFFOREIGN", "fence=%d known=%s", i, known)
        end
        if below(token, mark) then
            return refuse("RFSTALE", "fence=%d mark=%s slot=none", i, mark)
        end
        if mark_of_slot and below(token, mark_of_slot) then
            return refuse("RFSTALE", "fence=%d mark=%s slot=%s", i, mark_of_slot, slot)
        end
        if redis.call("PTTL", key) >= 0 then
            return refuse("RFDURABLE", "the key of a mark has an expiry")
        end
    end
    raised[i] = { key, "c", cluster, "r", (known and below(floor, mark)) and mark or floor }
    if slot ~= "" then
        raised[i][6], raised[i][7] = "s" .. slot, token
    end
end

-- The marks first: a mark without its write is safe, a write without its mark is not.
for i = 1, count do
    redis.call("HSET", unpack(raised[i]))
end

local keys, args = {}, {}
for i = count + 2, #KEYS do
    keys[#keys + 1] = KEYS[i]
end
for i = 4 * count + 2, #ARGV do
    args[#args + 1] = ARGV[i]
end
return write(keys, args)
