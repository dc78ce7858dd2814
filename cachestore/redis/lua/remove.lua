-- Remove one entry. Needs: life, evict.
--
-- KEYS  1 <prefix>:v:<digest>  value    2 <prefix>:z  order    3 <prefix>:s  sizes    4 <prefix>:m  meta
-- ARGV  1 digest  2 prefix  3 last bytes of the value that is to go, '' for any
-- Returns 1 when something was removed. An entry ends in its signature, so a value that was found bad
-- and has been replaced by a good one meanwhile stays.
local value = redis.call('GET', KEYS[1])
if ARGV[3] ~= '' and value and string.sub(value, -string.len(ARGV[3])) ~= ARGV[3] then return 0 end
local listed = redis.call('HGET', KEYS[3], ARGV[1])
drop(ARGV[2], KEYS[2], KEYS[3], KEYS[4], ARGV[1])
return (value or listed) and 1 or 0
