-- Prolong a lease by its term, never past its hard limit. Needs: clock.
--
-- KEYS  1 <prefix>:l:<digest>  lease
-- ARGV  1 nonce  2 term (ms)  3 how long the hash outlives the lease (ms)
-- Returns 1, or 0 when the lease is over or another creator's.
local lease = redis.call('HMGET', KEYS[1], 'nonce', 'limit')
if lease[1] ~= ARGV[1] then return 0 end
local now, limit = now_ms(), tonumber(lease[2])
if now >= limit then return 0 end
redis.call('HSET', KEYS[1], 'expires', format_number(math.min(now + ARGV[2], limit)))
redis.call('PEXPIRE', KEYS[1], ARGV[2] + ARGV[3])
return 1
