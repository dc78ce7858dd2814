-- Mark entries as used, the last one as the most recent. Needs: clock, life.
--
-- KEYS  1 <prefix>:z  order    2 <prefix>:s  sizes    3 <prefix>:m  meta    4 <prefix>:c  counters
-- ARGV  1 prefix  2... digests, oldest use first
-- Returns the digests that are not here (evicted, or lost by Redis).
local order, sizes, meta, counters = unpack(KEYS)
local time = tick(meta, #ARGV - 1)
local missing = {}
for index = 2, #ARGV do
  local digest = ARGV[index]
  -- Ticks only grow, so an entry that is here always changes.
  if redis.call('ZADD', order, 'XX', 'CH', format_number(time + index - 2), digest) == 0 then
    missing[#missing + 1] = digest
  else
    keep(ARGV[1] .. ':v:' .. digest)
  end
end
keep(order, sizes, meta, counters, ARGV[1] .. ':r')
return missing
