-- Mark entries as used, the last one as the most recent. Needs: clock.
--
-- KEYS  1 <prefix>:z  order    2 <prefix>:m  meta
-- ARGV  digests, oldest use first
-- Returns the digests that are not here (evicted, or lost by Redis).
local time = tick(KEYS[2], #ARGV)
local missing = {}
for index, digest in ipairs(ARGV) do
  -- Ticks only grow, so an entry that is here always changes.
  if redis.call('ZADD', KEYS[1], 'XX', 'CH', format_number(time + index - 1), digest) == 0 then
    missing[#missing + 1] = digest
  end
end
return missing
