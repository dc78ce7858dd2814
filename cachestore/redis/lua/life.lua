-- Let every name of a signing key expire some time after its last use: a key that was changed, or that existed in the
-- memory of one process only, leaves a part of the namespace that no other key can see or clear.
--
-- Longer than a namespace that is in use is left alone. An entry expires that was not used for that long; tidy.lua then
-- drops it.
local UNUSED_LIFE_MS = 30 * 24 * 3600 * 1000

local function keep(...)
  for _, name in ipairs({...}) do redis.call('PEXPIRE', name, UNUSED_LIFE_MS) end
end

local function add(counters, name, count)
  redis.call('HINCRBY', counters, name, count)
  keep(counters)
end
