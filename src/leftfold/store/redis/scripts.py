"""The scripts that make a batch take effect exactly once. Each runs atomically inside the store."""

from __future__ import annotations

# A tile is replaced only by a later tile of its slot, or by the same tile from a batch that is not older. All tiles of
# an entity in one batch arrive in one call, so a reader sees none of them or all. Positions are compared as text: Lua's
# numbers are doubles, which are exact only up to 2^53.
# Tiles that were packed are not looked at. Their newest batch stands beside them, so a row of an older batch is a late
# writer's, and is refused. Only a repair may be older: it writes all tiles that a read reaches, so it deletes what was
# packed.
# A row's expiry is changed only together with the row. A deleted row (a value without partials) expires a day later: by
# then no older write can still arrive.
# Each call of a writer is counted. If a call does not find all earlier calls counted, the store went back in time. Then
# this call writes nothing, and neither do the calls after it, so that the script that moves the mark finds too few
# calls.
# KEYS: calls, rows. ARGV: writer, the number of this call, ttl in seconds (0: none), how many fields a row may have
# before its tiles are to be packed, "repair" or "batch", then for each row: how many tiles, and "field",
# "[index,batch,…" for each. Returns how many tiles took effect, and the numbers of the rows that are to be packed.
WRITE_ROWS = """
local calls = tonumber(redis.call('HGET', KEYS[1], ARGV[1]) or '0')
local call = tonumber(ARGV[2])
if calls < call - 1 then return {0} end
local function is_less(one, other)
  if one == other then return false end
  local negative, is_other = string.byte(one) == 45, string.byte(other) == 45
  if negative ~= is_other then return negative end
  if negative then one, other = other, one end
  if #one ~= #other then return #one < #other end
  return one < other
end
local ttl, most, repairs, a, written, full = ARGV[3], tonumber(ARGV[4]), ARGV[5] == 'repair', 6, 0, {}
for k = 2, #KEYS do
  local key = KEYS[k]
  local n = tonumber(ARGV[a])
  a = a + 1
  local changed = false
  local packed = redis.call('HGET', key, 'packed_batch')
  packed = packed and string.match(packed, '^%d+')
  if packed and n > 0 and is_less(string.match(ARGV[a + 1], '^%[%-?%d+,(%d+)'), packed) then
    if repairs then
      redis.call('HDEL', key, 'packed', 'packed_batch')
    else
      n, a = 0, a + 2 * n
    end
  end
  for first = 1, n, 1000 do -- unpack() is limited to about 8,000 values
    local last = math.min(first + 999, n)
    local names = {}
    for j = first, last do names[#names + 1] = ARGV[a + 2 * (j - 1)] end
    local held = redis.call('HMGET', key, unpack(names))
    local fresh, before, pairs_ = {}, {}, {}
    for j, name in ipairs(names) do
      local value = ARGV[a + 2 * (first + j - 2) + 1]
      local old = fresh[name] or held[j]
      local takes = not old or old == value
      if not takes then
        local old_index, old_batch = string.match(old, '^%[(%-?%d+),(%d+)')
        local index, batch = string.match(value, '^%[(%-?%d+),(%d+)')
        takes = index == old_index and not is_less(batch, old_batch) or is_less(old_index, index)
      end
      if takes then
        fresh[name] = value
        if old then before[name] = held[j] end
      end
    end
    for name, value in pairs(fresh) do
      written = written + 1
      if value ~= before[name] then -- else it was written before, and its expiry with it
        pairs_[#pairs_ + 1] = name
        pairs_[#pairs_ + 1] = value
      end
    end
    if #pairs_ > 0 then
      redis.call('HSET', key, unpack(pairs_))
      changed = true
    end
  end
  if changed then
    if n == 1 and string.find(ARGV[a + 1], '^%[%-?%d+,%d+%]$') then
      redis.call('EXPIRE', key, 86400)
    elseif ttl == '0' then
      redis.call('PERSIST', key)
    else
      redis.call('EXPIRE', key, ttl)
    end
    if redis.call('HLEN', key) > most then full[#full + 1] = k - 2 end
  end
  a = a + 2 * n
end
if calls < call then redis.call('HSET', KEYS[1], ARGV[1], ARGV[2]) end -- else it was sent again, its answer was lost
return {written, unpack(full)}
"""

# Moves tiles of a row from fields of their own into the packed field. What a reader sees stays the same, so any process
# may do this at any time. If a tile or the packed field is no longer what the process has read, nothing happens.
# KEYS: row. ARGV: the packed batch that was read ('' if none), the new one, the new packed field, then "field",
# "[index,batch,…" for each tile that is in it now.
PACK = """
if (redis.call('HGET', KEYS[1], 'packed_batch') or '') ~= ARGV[1] then return 0 end
local names = {}
for a = 4, #ARGV, 2 do names[#names + 1] = ARGV[a] end
local held = redis.call('HMGET', KEYS[1], unpack(names))
for j = 1, #names do
  if held[j] ~= ARGV[3 + 2 * j] then return 0 end
end
redis.call('HSET', KEYS[1], 'packed', ARGV[3], 'packed_batch', ARGV[2])
if #names < 50 then
  redis.call('HDEL', KEYS[1], unpack(names))
  return 1
end
-- A hash keeps the table that it had for many fields. So what is left of them becomes a new one.
for first = 1, #names, 1000 do redis.call('HDEL', KEYS[1], unpack(names, first, math.min(first + 999, #names))) end
local left, ttl = redis.call('HGETALL', KEYS[1]), redis.call('PTTL', KEYS[1])
redis.call('DEL', KEYS[1])
redis.call('HSET', KEYS[1], unpack(left))
if ttl > 0 then redis.call('PEXPIRE', KEYS[1], ttl) end
return 1
"""

# Before a batch: reads the store's position, and deletes calls that were counted for an earlier attempt, which are of
# no use. Without N, rows are to be written again outside of a batch.
# KEYS: mark, calls. ARGV: N or ''. Returns the batch of the mark, and up to where records were re-driven.
BEGIN_BATCH = """
local found = redis.call('HMGET', KEYS[1], 'batch', 'redriven')
local batch, next = tonumber(found[1] or '-1'), tonumber(ARGV[1])
if not next or batch == next or batch == next - 1 then redis.call('DEL', KEYS[2]) end
return {batch, tonumber(found[2] or '0')}
"""

# True if every call of these writers is counted. Redis goes back in time as a whole (a dump, a replica, its log up to
# some write), or it is emptied. So if the last call of a writer is counted, all its rows are there.
_ALL_COUNTED = """
local function all_counted(first, writers)
  for a = first, first + 2 * writers - 1, 2 do
    if redis.call('HGET', KEYS[2], ARGV[a]) ~= ARGV[a + 1] then return false end
  end
  return true
end
"""

# Moves a build's mark from batch N-1 to N, together with the ledger of that batch. Any other position means that the
# store is not where the checkpoint expects it. Then the mark is not changed, and the script returns the mark's batch
# and what is missing. A batch that is already marked has all its rows. After a repair, the mark is written again from
# any batch before N.
# A bucket's mark is moved in the same way. It has no ledger, and the manifest is not with it.
# KEYS: mark, calls, manifest (not of a bucket). ARGV: N, "next" or "repaired", how far records were re-driven, history
# ('' if the build has none), newest event time, number of writers, then each writer and its calls, then
# "topic/partition:outcome" and its ledger entry for each.
MOVE_MARK = (
    _ALL_COUNTED
    + """
local batch, repaired, writers = tonumber(ARGV[1]), ARGV[2] == 'repaired', tonumber(ARGV[6])
local found = redis.call('HMGET', KEYS[1], 'batch', 'redriven', 'history', 'newest')
local held, newest = tonumber(found[1] or '-1'), tonumber(found[4] or '0')
if held > batch or (held < batch - 1 and not repaired) then return {held, ''} end
if held < batch and not all_counted(7, writers) then return {held, 'rows'} end
if repaired then
  redis.call('DEL', KEYS[1])
  redis.call('HSET', KEYS[1], 'redriven', ARGV[3])
  newest = 0
else
  if tonumber(found[2] or '0') < tonumber(ARGV[3]) then return {held, 'redriven'} end
  if ARGV[4] ~= '' and not found[3] then return {held, 'history'} end
  if KEYS[3] and redis.call('EXISTS', KEYS[3]) == 0 then return {held, 'manifest'} end
end
redis.call('HSET', KEYS[1], 'batch', ARGV[1])
if ARGV[4] ~= '' then redis.call('HSET', KEYS[1], 'history', ARGV[4]) end
if tonumber(ARGV[5]) > newest then redis.call('HSET', KEYS[1], 'newest', ARGV[5]) end
for a = 7 + 2 * writers, #ARGV, 2 do redis.call('HSET', KEYS[1], ARGV[a], ARGV[a + 1]) end
redis.call('DEL', KEYS[2])
return {batch, ''}
"""
)

# After the rows that re-driven records changed are written: moves the re-driven offset, if everything before it is
# there.
# KEYS: mark, calls. ARGV: N, re-driven before, re-driven now, number of writers, then each writer and its calls.
MOVE_REDRIVEN = (
    _ALL_COUNTED
    + """
local found = redis.call('HMGET', KEYS[1], 'batch', 'redriven')
local batch = tonumber(found[1] or '-1')
if batch > tonumber(ARGV[1]) then return {batch, ''} end
if batch < tonumber(ARGV[1]) or tonumber(found[2] or '0') < tonumber(ARGV[2]) then return {batch, 'redriven'} end
if not all_counted(5, tonumber(ARGV[4])) then return {batch, 'rows'} end
redis.call('HSET', KEYS[1], 'redriven', ARGV[3])
redis.call('DEL', KEYS[2])
return {batch, ''}
"""
)

# After the rows that a scan of history made are written: records this in the mark.
# KEYS: mark, calls. ARGV: history, number of writers, then each writer and its calls.
TELL_HISTORY = (
    _ALL_COUNTED
    + """
if not all_counted(3, tonumber(ARGV[2])) then return {-1, 'scanned'} end
redis.call('HSET', KEYS[1], 'history', ARGV[1])
redis.call('DEL', KEYS[2])
return {0, ''}
"""
)

# The builds of a view, all from one moment.
# KEYS: active, staged, previous, left, held, builds.
BUILDS = """
return {
  redis.call('GET', KEYS[1]), redis.call('GET', KEYS[2]), redis.call('HGETALL', KEYS[3]),
  redis.call('HGETALL', KEYS[4]), redis.call('SMEMBERS', KEYS[5]), redis.call('SMEMBERS', KEYS[6]),
}
"""

# Publishes a manifest. A view's first build is followed at once, unless it waits to be promoted.
# KEYS: manifest, active, held, builds. ARGV: build, manifest.
ANNOUNCE = """
redis.call('SADD', KEYS[4], ARGV[1])
redis.call('SET', KEYS[1], ARGV[2])
if redis.call('SISMEMBER', KEYS[3], ARGV[1]) == 0 then redis.call('SETNX', KEYS[2], ARGV[1]) end
return 1
"""

# A build that has caught up takes over the readers, unless a user decides that. The build that they leave is kept.
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

# A new build waits to be promoted. A build that was held before (promoted and left, or replaced by another staged
# build) keeps its state. A build that readers follow is never staged.
# KEYS: staged, held, builds, active. ARGV: build, 1 to stage it again even if it was held before.
STAGE = """
redis.call('SADD', KEYS[3], ARGV[1])
if redis.call('GET', KEYS[4]) == ARGV[1] then return 0 end
if redis.call('SADD', KEYS[2], ARGV[1]) == 0 and ARGV[2] == '0' then return 0 end
redis.call('SET', KEYS[1], ARGV[1])
return 1
"""

# Readers move to the staged build, and the build that they leave is kept. If another build is staged or followed by
# now, nothing happens.
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

# Readers move back to the build that they left, and the build that they leave now is staged again.
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

# Removes a build's manifest and mark, so that nobody can follow it any more, unless the build is needed: followed,
# staged, kept or run by a process. Its rows can then be removed without haste.
# KEYS: active, staged, previous, left, running, manifest, mark, calls. ARGV: build, now.
FORGET = """
if redis.call('GET', KEYS[1]) == ARGV[1] then return 'followed' end
if redis.call('GET', KEYS[2]) == ARGV[1] then return 'staged' end
if redis.call('EXISTS', KEYS[5]) == 1 then return 'running' end
if tonumber(redis.call('HGET', KEYS[4], ARGV[1]) or '0') > tonumber(ARGV[2]) then return 'kept' end
if redis.call('HGET', KEYS[3], 'build') == ARGV[1] then redis.call('DEL', KEYS[3]) end
redis.call('DEL', KEYS[6], KEYS[7], KEYS[8])
redis.call('HDEL', KEYS[4], ARGV[1])
return ''
"""

# A lease is changed only if this holder still has it: another process may have taken over a lease that had expired.
# KEYS: lease. ARGV: holder, and what the command needs.
_IF_MINE = "if redis.call('get', KEYS[1]) ~= ARGV[1] then return 0 end "
LEASE_RENEW = _IF_MINE + "return redis.call('expire', KEYS[1], ARGV[2])"
LEASE_RELEASE = _IF_MINE + "return redis.call('del', KEYS[1])"
LEASE_REPLACE = _IF_MINE + "redis.call('set', KEYS[1], ARGV[2], 'EX', ARGV[3]) return 1"
