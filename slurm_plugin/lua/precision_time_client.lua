-- Asks the decision daemon of precision-time over its Unix socket, for as long as it answers.
--
-- slurmctld stands still while a hook runs, so one deadline holds over the whole exchange. After a
-- dead or hung daemon nothing is asked for `breaker_s` seconds; answers to identical lines are kept
-- a while.
-- Needs luasocket, which is loaded at the first job: where it is missing, slurmctld still starts.

local answers = require("precision_time_answer")

local C = {}

C.settings = {
  socket = "/run/precision-time/slurm.sock",
  timeout = 0.03, -- seconds from the beginning of the hook
  breaker_s = 2,
  cache_s = 60,
  cache_entries = 1024,
  cache_bytes = 8 * 1024 * 1024,
}

local settings = C.settings
local breaker, cache, last_fault
local open_socket, gettime

-- Closes the breaker and forgets all answers.
function C.reset()
  breaker, last_fault = { is_open = false, until_s = nil }, nil
  cache = { young = {}, old = {}, entries = 0, bytes = 0 }
end
C.reset()

-- Seconds since the epoch, whole ones where luasocket is missing.
function C.now()
  if not gettime then
    local ok, core = pcall(require, "socket")
    gettime = ok and core.gettime or os.time
  end
  return gettime()
end

local function load_socket()
  if not open_socket then
    local ok, unix = pcall(require, "socket.unix")
    if not ok then
      error("luasocket with socket.unix is not installed, Debian: lua-socket", 0)
    end
    open_socket = type(unix) == "table" and unix.stream or unix -- a function in luasocket 3.0-rc1
  end
end

-- Bounds what one call may wait by what is left of the deadline: luasocket counts each call anew.
-- Without a fine clock each of the three calls gets a third.
local function bound(sock, deadline)
  local left = settings.timeout / 3
  if gettime ~= os.time then
    left = math.min(deadline - C.now(), settings.timeout)
  end
  if left <= 0 then
    error("timeout", 0)
  end
  sock:settimeout(left, "t")
end

local function must(done, why)
  if not done then
    error(why, 0)
  end
end

local function talk(sock, line, deadline)
  bound(sock, deadline)
  must(sock:connect(settings.socket))
  bound(sock, deadline)
  must(sock:send(line))
  sock:shutdown("send")
  bound(sock, deadline)
  local too_long, why, received = sock:receive(answers.MAX_BYTES + 1)
  must(too_long or why == "closed", why)
  return too_long or received
end

-- The answer of the daemon, or nil and what is wrong with it; raises where nobody answers.
local function exchange(line, since)
  load_socket()
  local sock, why = open_socket()
  must(sock, why)
  local ok, received = pcall(talk, sock, line, since + settings.timeout)
  pcall(sock.close, sock)
  must(ok, received)
  return answers.read(received)
end

-- The second comparison: a clock that was set back must not keep the breaker open.
local function is_paused(seconds)
  local left = (breaker.until_s or 0) - seconds
  return left > 0 and left <= settings.breaker_s
end

-- Two generations: once the young one holds half of what is allowed, the old one is dropped.
local function keep(line, answer, seconds)
  local ttl = math.min(settings.cache_s, answer.ttl_s or 0)
  if ttl <= 0 then
    return
  end
  local is_full = 2 * (cache.entries + 1) > settings.cache_entries
    or 2 * (cache.bytes + #line) > settings.cache_bytes
  if is_full then
    cache = { young = {}, old = cache.young, entries = 0, bytes = 0 }
  end
  cache.young[line] = { answer = answer, until_s = seconds + ttl }
  cache.entries, cache.bytes = cache.entries + 1, cache.bytes + #line
end

local function kept(line, seconds)
  local found = cache.young[line] or cache.old[line]
  local left = found and found.until_s - seconds or 0
  return left > 0 and left <= settings.cache_s and found.answer or nil
end

-- The answer and "daemon" or "cached"; else nil and "paused" or "miss". The hook began at `since`;
-- `notice` gets the line for the log when the breaker opens, and when it closes again.
function C.ask(line, since, notice)
  local seconds = C.now()
  local known = kept(line, seconds)
  if known then
    return known, "cached"
  elseif is_paused(seconds) then
    return nil, "paused"
  elseif seconds - since > settings.timeout then -- a long script: that is no fault of the daemon
    return nil, "miss"
  end
  local ok, answer, fault = pcall(exchange, line, since)
  seconds = C.now()
  local was_open = breaker.is_open
  breaker.is_open, breaker.until_s = not ok, not ok and seconds + settings.breaker_s or nil
  if not ok then
    if not was_open then
      notice(string.format("no answer (%s): jobs pass unchanged, next try in %g s",
        tostring(answer), settings.breaker_s))
    end
    return nil, "miss"
  end
  if was_open then
    notice("the daemon answers again")
  end
  if not answer then
    if fault ~= last_fault then
      notice(string.format("no use of %s: jobs pass unchanged", tostring(fault)))
    end
    last_fault = fault
    return nil, "miss"
  end
  last_fault = nil
  keep(line, answer, seconds)
  return answer, "daemon"
end

return C
