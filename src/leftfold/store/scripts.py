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

# Publishes a manifest. A view's first build is followed at once, unless it waits to be promoted.
# KEYS: manifest, active, held, builds. ARGV: build, manifest.
ANNOUNCE = """
redis.call('SADD', KEYS[4], ARGV[1])
redis.call('SET', KEYS[1], ARGV[2])
if redis.call('SISMEMBER', KEYS[3], ARGV[1]) == 0 then redis.call('SETNX', KEYS[2], ARGV[1]) end
return 1
"""

# A build that has caught up takes the readers over, unless a person decides that. The one that they leave is kept.
# KEYS: active, held, previous, left. ARGV: build, kept until.
ACTIVATE = """
if redis.call('SISMEMBER', KEYS[2], ARGV[1]) == 1 then return 0 end
local left = redis.call('GET', KEYS[1])
if left == ARGV[1] then return 1 end
if left then
  redis.call('HSET', KEYS[3], 'build', left, 'until', ARGV[2])
  redis.call('HSET', KEYS[4], left, ARGV[2])
end
redis.call('HDEL', KEYS[4], ARGV[1])
redis.call('SET', KEYS[1], ARGV[1])
return 1
"""

# A new build waits to be promoted. One that was promoted, left or put behind another since stays what it is.
# KEYS: staged, held, builds, active. ARGV: build, 1 to stage it anew whatever it was.
STAGE = """
redis.call('SADD', KEYS[3], ARGV[1])
if redis.call('GET', KEYS[4]) == ARGV[1] then return 0 end
if redis.call('SADD', KEYS[2], ARGV[1]) == 0 and ARGV[2] == '0' then return 0 end
redis.call('SET', KEYS[1], ARGV[1])
return 1
"""

# Readers move to the staged build, and the one that they leave is kept: all of it, or nothing if another build is
# staged or followed by now.
# KEYS: active, staged, previous, held, left. ARGV: the staged build, the followed one ('' if none), kept until.
PROMOTE = """
local active = redis.call('GET', KEYS[1]) or ''
if redis.call('GET', KEYS[2]) ~= ARGV[1] or active ~= ARGV[2] then return 0 end
redis.call('DEL', KEYS[3])
if active ~= '' then
  redis.call('HSET', KEYS[3], 'build', active, 'until', ARGV[3])
  redis.call('HSET', KEYS[5], active, ARGV[3])
  redis.call('SADD', KEYS[4], active)
end
redis.call('HDEL', KEYS[5], ARGV[1])
redis.call('SREM', KEYS[4], ARGV[1])
redis.call('SET', KEYS[1], ARGV[1])
redis.call('DEL', KEYS[2])
return 1
"""

# Readers move back to the build that they left, and the one that they leave is staged again.
# KEYS: active, staged, previous, held, left. ARGV: the build to go back to, the followed one.
ROLL_BACK = """
if redis.call('HGET', KEYS[3], 'build') ~= ARGV[1] or redis.call('GET', KEYS[1]) ~= ARGV[2] then return 0 end
redis.call('SADD', KEYS[4], ARGV[2])
redis.call('SREM', KEYS[4], ARGV[1])
redis.call('SET', KEYS[1], ARGV[1])
redis.call('SET', KEYS[2], ARGV[2])
redis.call('DEL', KEYS[3])
redis.call('HDEL', KEYS[5], ARGV[1])
return 1
"""

# Takes a build's name and position away, so that nobody can follow it any more, unless it is needed: followed, staged,
# kept or run by a process. Its rows can then be removed at leisure.
# KEYS: active, staged, previous, left, running, manifest, mark. ARGV: build, now.
FORGET = """
if redis.call('GET', KEYS[1]) == ARGV[1] then return 'followed' end
if redis.call('GET', KEYS[2]) == ARGV[1] then return 'staged' end
if redis.call('EXISTS', KEYS[5]) == 1 then return 'running' end
if tonumber(redis.call('HGET', KEYS[4], ARGV[1]) or '0') > tonumber(ARGV[2]) then return 'kept' end
if redis.call('HGET', KEYS[3], 'build') == ARGV[1] then redis.call('DEL', KEYS[3]) end
redis.call('DEL', KEYS[6], KEYS[7])
redis.call('HDEL', KEYS[4], ARGV[1])
return ''
"""
