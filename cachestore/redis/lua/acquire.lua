-- Ask for the lease to create one entry. Needs: clock, life.
--
-- KEYS  1 <prefix>:v:<digest>          value
--       2 <prefix>:l:<digest>          lease, hash: nonce, fence, owner, term (ms), expires (ms), limit (ms),
--                                      repeats: marks of results that came too late (see publish)
--       3 <prefix>:m                   meta, hash: clock, capacity, generation, revision
--       4 <prefix>:c                   counters
--       5 <prefix>:w:<digest>:<fence>  (optional) wake stream of the lease that the caller waited for
-- ARGV  1 nonce  2 term (ms)  3 hard limit (ms)  4 default capacity  5 owner
--       6 how long the hash outlives the lease (ms), so that taking one over is noticed, and counted
-- Returns {word, generation, revision, ...}:
--   OFF                                 the capacity is 0
--   DONE, status, failure               the lease that the caller waited for has ended meanwhile; without this answer a
--                                       waiter whose wait ran out at that moment would become a second creator
--   HIT                                 there is a value
--   OWN, fence                          the lease is the caller's (also when it asks twice with one nonce)
--   WAIT, fence, ms left, owner, nonce  another creator holds it
local set = redis.call('HMGET', KEYS[3], 'capacity', 'generation', 'revision')
local generation, revision = set[2] or '0', set[3] or '0'
if KEYS[5] then
  local ended = redis.call('XRANGE', KEYS[5], '-', '+', 'COUNT', 1)
  if ended[1] then
    local event = ended[1][2]
    if event[2] ~= 'retry' then return {'DONE', generation, revision, event[2], event[4] or ''} end
  end
end
if (tonumber(set[1] or '') or tonumber(ARGV[4])) == 0 then return {'OFF', generation, revision} end
if redis.call('EXISTS', KEYS[1]) == 1 then return {'HIT', generation, revision} end
local now = now_ms()
local lease = redis.call('HMGET', KEYS[2], 'nonce', 'fence', 'owner', 'expires', 'term')
if lease[1] == ARGV[1] then return {'OWN', generation, revision, lease[2]} end
if lease[1] then
  local left = lease_left(KEYS[2], lease[4], lease[5], now)
  if left > 0 then return {'WAIT', generation, revision, lease[2], left, lease[3], lease[1]} end
  add(KEYS[4], 'takeovers', 1)
end
local fence = format_number(tick(KEYS[3]))
local term, limit = tonumber(ARGV[2]), tonumber(ARGV[3])
redis.call('HSET', KEYS[2], 'nonce', ARGV[1], 'fence', fence, 'owner', ARGV[5], 'term', term,
  'expires', format_number(now + math.min(term, limit)), 'limit', format_number(now + limit))
redis.call('PEXPIRE', KEYS[2], term + ARGV[6])
keep(KEYS[3])
return {'OWN', generation, revision, fence}
