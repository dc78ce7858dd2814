-- Prolong a lease by its term, never past its hard limit. Needs: clock.
--
-- KEYS  1 <prefix>:l:<digest>  lease
-- ARGV  1 nonce  2 term (ms)
-- Returns 1, or 0 when the lease is over or someone else's.
local lease = redis.call('HMGET', KEYS[1], 'nonce', 'until')
if lease[1] ~= ARGV[1] then return 0 end
local left = tonumber(lease[2]) - now_ms()
if left <= 0 then return 0 end
redis.call('PEXPIRE', KEYS[1], math.min(left, tonumber(ARGV[2])))
return 1
