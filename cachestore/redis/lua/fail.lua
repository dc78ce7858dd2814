-- End the caller's lease without a value and wake the waiting processes.
--
-- KEYS  1 <prefix>:l:<digest>          lease
--       2 <prefix>:w:<digest>:<fence>  its wake stream
-- ARGV  1 nonce  2 `err` (send the failure to the waiting processes) or `retry` (let one of them try)  3 signed failure
--       4 how long the wake stream lives (ms)
-- Returns 1, or 0 when the lease is over or another creator's. A waiter that has proved the holder dead calls this
-- with the holder's nonce and `retry`.
if redis.call('HGET', KEYS[1], 'nonce') ~= ARGV[1] then return 0 end
redis.call('DEL', KEYS[1])
redis.call('XADD', KEYS[2], '*', 's', ARGV[2], 'e', ARGV[3])
redis.call('PEXPIRE', KEYS[2], ARGV[4])
return 1
