-- Synchronize generation and capacity between a node and Redis, and drop entries that no longer fit. Needs: life, evict.
--
-- KEYS  1 <prefix>:z  order    2 <prefix>:s  sizes    3 <prefix>:m  meta    4 <prefix>:c  counters
-- ARGV  1 prefix  2 generation  3 revision  4 capacity, -1 unset  5 capacity in bytes, -1 unset
--       6 default capacity  7 default capacity in bytes  8 most entries to drop in this call  9 1: go on clearing
--       10 (optional, may be '') most entries to leave, to make room when Redis has no more memory
--       11, 12 (optional, may be '') capacities, in entries and bytes, that the namespace gets if it has none
-- Returns {more to drop (0, 1, or 2: go on clearing), generation, revision, capacity, capacity in bytes, dropped
-- digests...}; capacities that were never set are -1. The higher generation and the higher revision win.
local order, sizes, meta, counters = unpack(KEYS)
local known = redis.call('HMGET', meta, 'generation', 'revision')
local clearing = ARGV[9] == '1'
if tonumber(ARGV[2]) > (tonumber(known[1] or '') or 0) then
  redis.call('HSET', meta, 'generation', ARGV[2])
  clearing = true
end
if tonumber(ARGV[3]) > (tonumber(known[2] or '') or 0) then
  redis.call('HSET', meta, 'revision', ARGV[3])
  if tonumber(ARGV[4]) >= 0 then redis.call('HSET', meta, 'capacity', ARGV[4]) end
  if tonumber(ARGV[5]) >= 0 then redis.call('HSET', meta, 'capacity_bytes', ARGV[5]) end
end
local initial = false
for index, name in ipairs({'capacity', 'capacity_bytes'}) do
  local value = ARGV[10 + index] or ''
  if value ~= '' and not redis.call('HGET', meta, name) then
    redis.call('HSET', meta, name, value)
    initial = true
  end
end
-- The least revision that nodes notice: a capacity that an operator has set, and a node still knows, comes before it.
if initial then redis.call('HINCRBY', meta, 'revision', 1) end
local capacity, capacity_bytes, generation, revision = capacities(meta, ARGV[6], ARGV[7])
local limit = tonumber(ARGV[8])
local room = math.min(capacity, tonumber(ARGV[10] or '') or capacity)
local dropped
if clearing then
  dropped = evict(ARGV[1], order, sizes, meta, nil, 0, 0, '', limit)
else
  dropped = evict(ARGV[1], order, sizes, meta, counters, room, capacity_bytes, '', limit)
end
keep(meta, counters)
local more = #dropped == limit and (clearing and 2 or 1) or 0
local set = redis.call('HMGET', meta, 'capacity', 'capacity_bytes')
return {more, generation, revision, set[1] or '-1', set[2] or '-1', unpack(dropped)}
