-- Reconcile the bookkeeping with the values, some entries at a time, and detect that Redis has lost data. Needs: clock,
-- life, evict.
--
-- Redis loses keys by itself: a value, the order, the sizes or the meta hash when it evicts for want of memory; all of
-- them with a FLUSHALL, or a restart without its files. Each call looks at some entries in the order of their use,
-- starts where the last call stopped, and begins again after the last entry.
--
-- KEYS  1 <prefix>:z  order    2 <prefix>:s  sizes    3 <prefix>:m  meta    4 <prefix>:c  counters
-- ARGV  1 prefix  2 a new run id  3 most entries to look at  4 least time between two looks (ms)
-- Returns {run id, generation, revision, 1 when the next look should not wait}. The run id changes when Redis may have
-- lost entries without a trace: nodes with entries in files compare then.
local order, sizes, meta, counters = unpack(KEYS)
local known = redis.call('HMGET', meta, 'run_id', 'generation', 'revision', 'entries', 'mending', 'looked', 'looked_to')
local run_id, mending = known[1], known[5]
local function count_sizes()
  return redis.call('HLEN', sizes) - (redis.call('HGET', sizes, 'bytes') and 1 or 0)
end

local listed, sized, counted = redis.call('ZCARD', order), count_sizes(), tonumber(known[4] or '0')

local function answer(more)
  return {run_id, known[2] or '0', known[3] or '0', more}
end

local function begin(new_run_id)
  if new_run_id then
    run_id = ARGV[2]
    redis.call('HSET', meta, 'run_id', run_id)
    -- It may list entries that were lost without being dropped.
    redis.call('UNLINK', ARGV[1] .. ':r')
  end
  -- The sum, which is lost whenever the sizes are, starts again from 0 with them; later looks fill them in again.
  redis.call('UNLINK', sizes)
  redis.call('HSET', meta, 'entries', listed, 'mending', 1)
  redis.call('HDEL', meta, 'looked_to')
  mending = '1'
  known[7] = false
end

-- Each of the three shows the loss of another, also if names have been added since.
if not run_id or listed < sized or listed < counted then
  begin(true)
elseif listed > counted or (not mending and listed > sized) then
  begin(false)
end

local now = now_ms()
local since = now - tonumber(known[6] or '0')
if not mending and since >= 0 and since < tonumber(ARGV[4]) then return answer(0) end
redis.call('HSET', meta, 'looked', format_number(now))
keep(meta)

local from = known[7] and '(' .. known[7] or '-inf'
local found = redis.call('ZRANGE', order, from, '+inf', 'BYSCORE', 'LIMIT', 0, ARGV[3], 'WITHSCORES')
local lost = 0
for index = 1, #found, 2 do
  local digest = found[index]
  local size, before = redis.call('STRLEN', ARGV[1] .. ':v:' .. digest), redis.call('HGET', sizes, digest)
  if size == 0 then
    drop(ARGV[1], order, sizes, meta, digest)
    lost = lost + 1
  elseif tonumber(before or '-1') ~= size then
    redis.call('HSET', sizes, digest, size)
    keep(sizes)
    redis.call('HINCRBY', sizes, 'bytes', size - tonumber(before or '0'))
  end
end
if lost > 0 then add(counters, 'evictions', lost) end
if #found == 2 * ARGV[3] then
  redis.call('HSET', meta, 'looked_to', found[#found])
  return answer((mending or lost > 0) and 1 or 0)
end
redis.call('HDEL', meta, 'looked_to')
if mending then
  -- An entry that was used meanwhile has moved to the end, and a look may have missed it.
  if redis.call('ZCARD', order) ~= count_sizes() then return answer(1) end
  redis.call('HDEL', meta, 'mending')
end
return answer(0)
