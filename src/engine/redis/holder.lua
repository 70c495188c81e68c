-- The text at a lock's own key. src/redis/holder.rs reads and writes the same format.
--
-- `leasehold/1` and a letter, then OWNER TOKENS TOKEN LEASE DELAY SINCE SEAT PID HOST LABEL. The
-- letter says where the rest is known: a space if all of it stands here; `+` if there is a queue of
-- waiters that want the whole lock too; `?` if moreover the holder has not confirmed its grant;
-- `:` if there is more in the state. `leasehold/1 shared` and `leasehold/1 closed` are marks.
-- Everything else is a stranger's.
local SHARED_MARK, CLOSED_MARK = 'leasehold/1 shared', 'leasehold/1 closed'

-- The letter, and the first word: an owner, `shared` or `closed`. Nothing for a stranger's text.
local function holder_word(held)
  return string.match(held or '', '^leasehold/1([ +?:])(%S+)')
end

-- The version of a text of ours that is not of this version.
local function other_version(held)
  return not holder_word(held) and string.match(held or '', '^leasehold/(%S*)')
end

local function holder_text(kind, owner, tokens, token, lease, delay, since, who)
  return 'leasehold/1' .. kind .. owner .. ' ' .. tokens .. ' ' .. token .. ' ' .. lease .. ' ' ..
    delay .. ' ' .. since .. ' ' .. who
end

-- The owner and the claim of one that holds all of a lock; nothing if the text is damaged.
local function read_holder(held)
  local owner, tokens, token, lease, delay, since, seat, pid, host, label =
    string.match(held, '^............(%x+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%S+) (.*)$')
  return owner, {
    weight = 4294967295, tokens = tonumber(tokens), token = tonumber(token),
    lease = tonumber(lease), delay = tonumber(delay), since = tonumber(since), seat = seat,
    pid = pid, host = host, label = label, value = '',
  }
end

-- The holder of a lock with a simple queue: the letter, the owner, how many tokens it has, and its
-- end if the grant is not confirmed, which is good for `confirm` at most. The state knows the end
-- of others. A lease of eight digits is longer than any `confirm`.
local function read_queued(held, confirm)
  local kind, owner, tokens, lease, since =
    string.match(held or '', '^leasehold/1([+?])(%x+) (%d+) %d+ (%d+) %d+ (%d+) ')
  local ends = kind == '?' and since + (#lease > 7 and confirm or math.min(lease, confirm))
  return kind, owner, tokens, ends
end

-- The text with another letter and lease; nothing if both are what they were.
local function with_lease(held, kind, lease)
  local said, before, lease_said, after =
    string.match(held, '^leasehold/1(.)(%x+ %d+ %d+ )(%d+)( .*)$')
  if not said or said == kind and lease_said == lease then return nil end
  return 'leasehold/1' .. kind .. before .. lease .. after
end
