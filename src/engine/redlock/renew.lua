-- Renews many claims. KEYS: member, top; then holder, counter, state, ends, gone for each. ARGV:
-- run, the number of this renewal; then for each its owner, first and last token, `all` or
-- `shared`, lease, and who holds it (seat, pid, host, label). Answers for each the number of the
-- asking or renewal since which the claim has been here, 0 if it is not; nothing at all from a
-- server that may not vote.
MEMBER, TOP, stamp = KEYS[1], KEYS[2], tonumber(ARGV[2])
if call('GET', MEMBER) ~= ARGV[1] then return {} end

-- A name whose key has another type is not held any more; the other names still are.
get = read

-- A renewal takes no more of a memory that is full: see full_memory.lua.
if KEYS[5] then get('HDEL', KEYS[5], '') end

-- Renews the owner's claim on a name. The number since which it has been here.
local function renew(first, last, shared, lease, who)
  local first_token, last_token = tonumber(first), tonumber(last)
  local number, by = counter()
  if not number or first == '0' then
    -- The counter is in use for something else, or nobody knows the token: the claim lasts, and no
    -- more.
    number = math.huge
  end
  local function raise() set_counter(math.max(number, last_token), owner) end
  local function take(since)
    store(claim_text(text(last - first + 1), first, lease, text(since), who), shared, lease)
  end

  local mine = holder_of == owner
  if kind == 'shared' then mine = tonumber(get('ZSCORE', ENDS, owner) or 0) > now end
  if mine then
    local _, token, since = my_claim()
    since = math.max(since, 1)
    -- It has not heard of the token. If its own counter is above, that is its own vote, and does no
    -- harm.
    local missed = (token or '0') ~= first
      and (number < first_token or (number == first_token and by == owner))
    if missed then raise() end
    -- It may have missed a downgrade, too.
    if missed or (shared and kind ~= 'shared') then
      take(since)
    elseif shared then
      call('ZADD', ENDS, text(now + life(lease) * 1000), owner)
      call('EXPIRE', ENDS, DAY)
      show_readers()
    else
      call('PEXPIRE', HOLDER, text(life(lease)))
    end
    return since
  end
  if held and not (shared and kind == 'shared') then return 0 end
  -- Whoever else has had it here has raised the counter.
  local never_since = number < first_token or (number < math.huge and by == owner)
  if not never_since or tonumber(get('GET', GONE) or 0) >= stamp then return 0 end
  raise()
  take(stamp)
  return stamp
end

local answers = {}
for i = 0, (#KEYS - 2) / 5 - 1 do
  HOLDER, TOKEN, STATE, ENDS, GONE = unpack(KEYS, i * 5 + 3, i * 5 + 7)
  local first, last, weight, lease, who
  owner, first, last, weight, lease, who = unpack(ARGV, i * 6 + 3, i * 6 + 8)
  read_holder()
  answers[i + 1] = renew(first, last, weight == 'shared', lease, who)
  if answers[i + 1] ~= 0 then
    call('EXPIRE', STATE, DAY)
    call('EXPIRE', TOKEN, DAY)
  end
end
return answers
