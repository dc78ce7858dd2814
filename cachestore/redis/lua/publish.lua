-- Publish an uploaded value, end the lease and wake the waiting processes. Needs: clock, life, evict.
--
-- KEYS  1 <prefix>:u:<nonce>           uploaded value, expires
--       2 <prefix>:v:<digest>          value
--       3 <prefix>:l:<digest>          lease
--       4 <prefix>:w:<digest>:<fence>  wake stream of the caller's lease
--       5 <prefix>:z                   order, sorted set digest -> tick of last use
--       6 <prefix>:s                   sizes, hash digest -> bytes, `bytes` -> their sum
--       7 <prefix>:m                   meta
--       8 <prefix>:c                   counters
-- ARGV  1 digest  2 nonce  3 generation  4 bytes  5 default capacity  6 default capacity in bytes  7 prefix
--       8 how long wake streams and oversized values live (ms)
-- Returns {word, generation, revision, dropped digests...}:
--   OK         published                  LATE       published without a lease (it was lost, or there was none)
--   DUP        there is a value already   LOST       another creator holds a newer lease
--   CLEARED    cleared or off meanwhile   TRANSIENT  larger than the capacity in bytes: kept only for waiting processes
--   NOVAL      the upload is not there
local upload, value, lease, wake, order, sizes, meta, counters = unpack(KEYS)
local digest, nonce, size, life = ARGV[1], ARGV[2], tonumber(ARGV[4]), ARGV[8]
local repeats = ARGV[7] .. ':r'
local capacity, capacity_bytes, generation, revision = capacities(meta, ARGV[5], ARGV[6])
local held = redis.call('HMGET', lease, 'nonce', 'expires', 'term', 'repeats')
local own = held[1] == nonce
-- A lease that has run out is remembered for a while, and is no lease.
local others = held[1] and not own and lease_left(lease, held[2], held[3], now_ms()) > 0

local function finish(status, word, dropped)
  if own then
    redis.call('DEL', lease)
    redis.call('XADD', wake, '*', 's', status)
    redis.call('PEXPIRE', wake, life)
  end
  return {word, generation, revision, unpack(dropped or {})}
end

-- A signed value ends in its signature: a value that is sent again has the same mark, and no other creation has it.
local function mark(name)
  return redis.call('GETRANGE', name, -8, -1)
end

-- Remember in a hash that there was another creation than the one that is kept, at most 512 of one key.
local function remember(hash, field, marks, another)
  if #marks < 4096 and not string.find(marks, another, 1, true) then redis.call('HSET', hash, field, marks .. another) end
end

local function list(bytes)
  local before = tonumber(redis.call('HGET', sizes, digest) or '0')
  local added = redis.call('ZADD', order, format_number(tick(meta)), digest)
  redis.call('HSET', sizes, digest, bytes)
  redis.call('HINCRBY', sizes, 'bytes', bytes - before)
  redis.call('HINCRBY', meta, 'entries', added)
  keep(order, sizes, meta, repeats)
  return evict(ARGV[7], order, sizes, meta, counters, capacity, capacity_bytes, digest, 64)
end

if redis.call('EXISTS', value) == 1 then
  local another = mark(upload)
  redis.call('UNLINK', upload)
  if redis.call('ZSCORE', order, digest) then
    add(counters, 'duplicates', 1)
    if another ~= mark(value) then
      remember(repeats, digest, redis.call('HGET', repeats, digest) or '', another)
      keep(repeats)
    end
  elseif capacity > 0 and (capacity_bytes == 0 or size <= capacity_bytes) then
    -- Redis has evicted our list and not the value; the publication brings the value back into the list.
    keep(value)
    return finish('ok', 'DUP', list(redis.call('STRLEN', value)))
  end
  return finish('ok', 'DUP')
end
if others then
  -- Under the lease, which ends with an entry or expires: there may never be one.
  remember(lease, 'repeats', held[4] or '', mark(upload))
  redis.call('UNLINK', upload)
  add(counters, 'duplicates', 1)
  return {'LOST', generation, revision}
end
if generation ~= ARGV[3] or capacity == 0 then
  redis.call('UNLINK', upload)
  return finish('retry', 'CLEARED')
end
if redis.call('EXISTS', upload) == 0 then return {'NOVAL', generation, revision} end
redis.call('RENAME', upload, value)
if capacity_bytes > 0 and size > capacity_bytes then
  redis.call('PEXPIRE', value, life)
  return finish('ok', 'TRANSIENT')
end
keep(value)
if not own then add(counters, 'late', 1) end
if held[4] then
  local from, to = string.find(held[4], mark(value), 1, true)
  local marks = from and string.sub(held[4], 1, from - 1) .. string.sub(held[4], to + 1) or held[4]
  if marks ~= '' then
    redis.call('HSET', repeats, digest, marks)
    keep(repeats)
  end
  redis.call('HDEL', lease, 'repeats')
end
return finish('ok', own and 'OK' or 'LATE', list(size))
