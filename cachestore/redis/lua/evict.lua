-- Drop entries, and keep to the capacities. Needs: life.
--
-- KEYS used by the caller: <order> sorted set digest -> tick of last use, <sizes> hash digest -> bytes and `bytes` ->
-- their sum, <meta> hash with `entries`, `capacity`, `capacity_bytes`, <counters> hash with `evictions`. The values
-- `<prefix>:v:<digest>` and the hash `<prefix>:r`, repeats, are not declared as keys; they carry the same hash tag and
-- so live in the same slot.
local function drop(prefix, order, sizes, meta, digest)
  local size = tonumber(redis.call('HGET', sizes, digest) or '0')
  local listed = redis.call('ZREM', order, digest)
  redis.call('HDEL', sizes, digest)
  redis.call('HDEL', prefix .. ':r', digest)
  redis.call('UNLINK', prefix .. ':v:' .. digest)
  -- Not -size: Lua writes the negative zero of an unlisted entry as -0, which is no number for Redis.
  redis.call('HINCRBY', sizes, 'bytes', 0 - size)
  redis.call('HINCRBY', meta, 'entries', 0 - listed)
  keep(sizes, meta)
end

local function capacities(meta, default_capacity, default_bytes)
  local set = redis.call('HMGET', meta, 'capacity', 'capacity_bytes', 'generation', 'revision')
  return tonumber(set[1] or '') or tonumber(default_capacity), tonumber(set[2] or '') or tonumber(default_bytes),
    set[3] or '0', set[4] or '0'
end

-- Drop the least recently used until the capacities hold, at most `limit` entries, not `keep`. Return the dropped
-- digests.
local function evict(prefix, order, sizes, meta, counters, capacity, capacity_bytes, keep, limit)
  local dropped = {}
  while #dropped < limit do
    local bytes = tonumber(redis.call('HGET', sizes, 'bytes') or '0')
    if redis.call('ZCARD', order) <= capacity and (capacity_bytes == 0 or bytes <= capacity_bytes) then break end
    local oldest = redis.call('ZRANGE', order, 0, 1)
    local digest = oldest[1]
    if digest == keep then digest = oldest[2] end
    if not digest then break end
    drop(prefix, order, sizes, meta, digest)
    dropped[#dropped + 1] = digest
  end
  if #dropped > 0 and counters then add(counters, 'evictions', #dropped) end
  return dropped
end
