-- Add counts once, however often they are sent: a frozen Redis does not answer, and runs the commands later.
-- Needs: life.
--
-- KEYS  1 <prefix>:c           counters
--       2 <prefix>:b:<sender>  number of the last batch of this sender; expires
-- ARGV  1 number of this batch, one more than the sender's last  2 how long that is remembered (ms)
--       3... name, count, name, count, ...
-- Returns 1, or 0 when the batch has been counted already.
if tonumber(ARGV[1]) <= tonumber(redis.call('GET', KEYS[2]) or '0') then return 0 end
redis.call('SET', KEYS[2], ARGV[1], 'PX', ARGV[2])
for index = 3, #ARGV, 2 do add(KEYS[1], ARGV[index], ARGV[index + 1]) end
return 1
