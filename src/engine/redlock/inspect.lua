-- What a server knows of its membership. KEYS: member, top, floor, missed, longest. ARGV: our
-- longest lease in µs. Answers mark, top, the time, how long ago the mark was first missed, and the
-- longest lease that anybody may take.
local mark = call('GET', KEYS[1])
if not mark then call('SET', KEYS[4], text(now), 'NX') end
local missed = mark and now or tonumber(call('GET', KEYS[4]) or now)
local longest = tonumber(call('GET', KEYS[5]) or 0)
if tonumber(ARGV[1]) > longest then
  longest = tonumber(ARGV[1])
  call('SET', KEYS[5], ARGV[1])
end
local missing = math.max(now - missed, 0)
return { mark or '', call('GET', KEYS[2]) or '0', text(now), text(missing), text(longest) }
