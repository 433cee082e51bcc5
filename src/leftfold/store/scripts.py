"""The scripts that make a batch's effect exactly one: each runs atomically inside the store."""

from __future__ import annotations

# A tile is replaced only by a later tile of its slot, or by itself under a batch that is not older. All tiles of an
# entity in one batch arrive in one call, so a reader sees none of them or all.
# A row that is a deletion (a value without partials) goes a day later: by then no older write is on its way.
# KEYS: rows. ARGV: ttl in seconds (0: none), then for each row: how many tiles, and "field", "[index,batch,…" for each.
WRITE_ROWS = """
local function head(value)
  local index, batch = string.match(value, '^%[(%-?%d+),(%d+)')
  return tonumber(index), tonumber(batch)
end
local ttl, a, written = ARGV[1], 2, 0
for _, key in ipairs(KEYS) do
  local n = tonumber(ARGV[a])
  a = a + 1
  for first = 1, n, 1000 do -- unpack() is limited to about 8,000 values
    local last = math.min(first + 999, n)
    local names = {}
    for j = first, last do names[#names + 1] = ARGV[a + 2 * (j - 1)] end
    local held = redis.call('HMGET', key, unpack(names))
    local fresh, pairs_ = {}, {}
    for j, name in ipairs(names) do
      local value = ARGV[a + 2 * (first + j - 2) + 1]
      local old = fresh[name] or held[j]
      local replace = not old
      if old then
        local old_index, old_batch = head(old)
        local index, batch = head(value)
        replace = index > old_index or (index == old_index and batch >= old_batch)
      end
      if replace then fresh[name] = value end
    end
    for name, value in pairs(fresh) do
      pairs_[#pairs_ + 1] = name
      pairs_[#pairs_ + 1] = value
    end
    if #pairs_ > 0 then
      redis.call('HSET', key, unpack(pairs_))
      written = written + #pairs_ / 2
    end
  end
  if n == 1 and string.find(ARGV[a + 1], '^%[%-?%d+,%d+%]$') then
    redis.call('EXPIRE', key, 86400)
  elseif ttl == '0' then
    redis.call('PERSIST', key)
  else
    redis.call('EXPIRE', key, ttl)
  end
  a = a + 2 * n
end
return written
"""

# Moves a build's mark from batch N-1 to N, together with the ledger of that batch. Anything else found there means
# that the store is not where the checkpoint thinks it is; the mark is then left alone and its batch returned.
# KEYS: mark. ARGV: N, newest event time, then "partition:outcome" and its ledger entry for each.
MOVE_MARK = """
local batch = tonumber(ARGV[1])
local found = tonumber(redis.call('HGET', KEYS[1], 'batch') or '-1')
if found ~= batch and found ~= batch - 1 then return found end
local newest = tonumber(redis.call('HGET', KEYS[1], 'newest') or '0')
redis.call('HSET', KEYS[1], 'batch', ARGV[1])
if tonumber(ARGV[2]) > newest then redis.call('HSET', KEYS[1], 'newest', ARGV[2]) end
for a = 3, #ARGV, 2 do redis.call('HSET', KEYS[1], ARGV[a], ARGV[a + 1]) end
return batch
"""

# Prepares a mark that is behind for MOVE_MARK: a repaired store stands just before the batch that it was repaired to.
# KEYS: mark. ARGV: N.
SET_BACK_MARK = """
local found = tonumber(redis.call('HGET', KEYS[1], 'batch') or '-1')
if found < tonumber(ARGV[1]) then
  redis.call('DEL', KEYS[1])
  redis.call('HSET', KEYS[1], 'batch', tonumber(ARGV[1]) - 1)
end
return found
"""
