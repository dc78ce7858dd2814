-- A clock that always advances, and never steps back while Redis keeps its memory.
--
-- KEYS used by the caller: <meta> hash, field `clock`.
-- Microseconds since the epoch, or one more than the last tick; below 2^53, so a Lua number holds it exactly,
-- but it must be written with %.0f: the default format keeps 14 digits only.
local function format_number(number)
  return string.format('%.0f', number)
end

local function now_ms()
  local now = redis.call('TIME')
  return now[1] * 1000 + math.floor(now[2] / 1000)
end

local function tick(meta, count)
  local now = redis.call('TIME')
  local time = now[1] * 1000000 + now[2]
  local last = tonumber(redis.call('HGET', meta, 'clock') or '0')
  if time <= last then time = last + 1 end
  redis.call('HSET', meta, 'clock', format_number(time + (count or 1) - 1))
  return time
end

-- Return the milliseconds that a lease has left, at most its term: after a step back of the clock, the lease of a dead
-- creator would otherwise last as long as the step. `expires` and `term` are the hash's fields.
local function lease_left(lease, expires, term, now)
  local left, longest = tonumber(expires) - now, tonumber(term)
  if left <= longest then return left end
  redis.call('HSET', lease, 'expires', format_number(now + longest))
  return longest
end
