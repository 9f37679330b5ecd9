-- precision-time in slurmctld: asks the decision daemon about a GPU job, applies its answer.
--
-- Nothing here may stop a job: the public functions always return slurm.SUCCESS, never raise, and
-- wait until `timeout` seconds after the hook began at most; while the daemon is dead nothing is asked for `breaker_s`
-- seconds. Whatever the answer lacks, or holds that is not sane, leaves the job as it was. A job
-- without an answer gets a mark, by which the daemon finds it later.

local client = require("precision_time_client")
local requests = require("precision_time_request")

local M = {}

local settings = client.settings
settings.max_script = 65536 -- bytes of a batch script that are sent

local MARK = "precision-time" -- how an AdminComment that is ours begins
local MAX_LINES, MAX_LINE_BYTES, MAX_LOG_BYTES, MAX_NAME_BYTES = 8, 500, 1000, 64

-- Sets what is given, closes the breaker and forgets answers. Names: socket, timeout, breaker_s,
-- cache_s, cache_entries, cache_bytes, max_script; others and values of a wrong type are ignored.
function M.configure(given)
  for name, value in pairs(type(given) == "table" and given or {}) do
    if type(value) == type(settings[name]) then
      settings[name] = value
    end
  end
  client.reset()
end

-- One line of printable text: no line of a log and no terminal command can be made of it.
local function one_line(text, most)
  text = tostring(text or "")
  if text:find("%c") or text:find("\194", 1, true) then
    text = text:gsub("\194[\128-\159]", "?"):gsub("%c", "?")
  end
  if #text > most then
    text = text:sub(1, most):gsub("[\192-\255][\128-\191]*$", "")
  end
  return text
end

local function log(level, text) -- a text of one line
  pcall(function()
    slurm["log_" .. level]("%s", MARK .. ": " .. text)
  end)
end

local function lines_of(message)
  local lines = {}
  for text in message:gmatch("[^\n]+") do
    lines[#lines + 1] = MARK .. ": " .. one_line(text, MAX_LINE_BYTES)
  end
  return lines
end

-- An answer that is repeated has its lines made once, without a start: others have come before.
local function tell_user(answer)
  local message = answer.message or ""
  local lines = answer.lines or lines_of(message)
  for i = 1, math.min(#lines, MAX_LINES) do
    pcall(slurm.log_user, "%s", lines[i])
  end
  answer.lines = answer.lines or lines_of((message:gsub("; starts in about [^;\n]*", "")))
end

local function is_ours(admin_comment)
  return type(admin_comment) == "string" and admin_comment:gsub('^"', ""):sub(1, #MARK) == MARK
end

-- What to write of a limit; nil and the reason where the answer contradicts the job.
local function planned_limit(writes, answer, job_desc, most)
  if not answer.time_limit or requests.is_stated(job_desc.time_limit) then
    local own = requests.is_stated(job_desc.time_limit)
      and requests.stated_minutes(job_desc.time_limit) or math.huge
    local soft = not answer.time_limit and answer.time_min and most
      and answer.time_min <= math.min(most, own)
    if soft and not requests.is_stated(job_desc.time_min) then
      writes.time_min = answer.time_min
    end
    return writes
  elseif not most or answer.time_limit > most then
    return nil, "time_limit above MaxTime"
  end
  writes.time_limit = answer.time_limit
  if not requests.is_stated(job_desc.time_min) then
    writes.time_min = answer.time_min
  elseif job_desc.time_min > answer.time_limit then
    return nil, "time_limit below the job's time_min"
  end
  return writes
end

-- Whether a new constraint, where there is one, still holds the job's own.
local function keeps(new, own)
  return not new or new:find((own or ""):gsub("%s", ""), 1, true)
end

local function planned(answer, job_desc, part_list)
  if answer.refused then
    return nil, answer.refused
  end
  local asked = requests.asked_partitions(answer.partition or job_desc.partition, part_list)
  local most = requests.largest_max_time(asked, part_list)
  if answer.partition and not (most and requests.stated_minutes(job_desc.time_limit) <= most) then
    return nil, "partition not for this job"
  elseif not keeps(answer.features, job_desc.features)
    or not keeps(answer.prefer, job_desc.prefer) then
    return nil, "features without the job's own"
  end
  local writes = {
    partition = answer.partition, features = answer.features, prefer = answer.prefer,
    gres = answer.gres,
  }
  local comment = job_desc.admin_comment
  if comment == nil or comment == "" or is_ours(comment) then
    writes.admin_comment = answer.admin_comment
  end
  return planned_limit(writes, answer, job_desc, most)
end

local BASE, MOST, NICE_OFFSET = 2000000000, 2000000000, 2147483648
local order -- how the daemon said that jobs stand back, for those without an answer too

-- The queue's order: `delay` points behind jobs submitted now, by what this scheduler heeds.
-- Priorities below 1 are all alike to Slurm, so every job gets BASE, those without GPUs too.
local function stand_back(job_desc, delay)
  if not order or job_desc.priority == 0 then
    return
  end
  local waited = order.since and math.max(0, os.time() - order.since) or 0
  local back = waited + (delay or order.other_delay or 0)
  if order.order == "nice" then
    local own = requests.count(job_desc.nice)
    own = own and own - NICE_OFFSET or 0
    job_desc.nice = NICE_OFFSET + math.min(back + own, MOST)
  elseif not requests.count(job_desc.site_factor) then
    job_desc.site_factor = BASE - math.min(back, 2 * MOST)
  end
end

-- What a job without an answer is found by, and whether its limit is its user's.
local function mark_for_later(job_desc)
  local comment, own = job_desc.admin_comment, "none"
  if requests.is_stated(job_desc.time_limit) then
    own = requests.minutes_text(job_desc.time_limit) or "none"
  end
  if comment == nil or comment == "" then
    job_desc.admin_comment = MARK .. " v=1 later=hook own=" .. own
  end
  stand_back(job_desc)
end

local function report(level, verb, job, text, outcome, since)
  local name = one_line(job.name, MAX_NAME_BYTES):gsub('[\\"]', "'")
  log(level, string.format('%s user=%s name="%s" %s outcome=%s us=%.0f', verb,
    one_line(job.user_name, MAX_NAME_BYTES), name, text, outcome,
    1e6 * math.max(client.now() - since, 0)))
end

local function submit(job_desc, part_list, submit_uid)
  if not requests.wants_gpu(job_desc) then
    return stand_back(job_desc)
  end
  local since = client.now()
  local line, why = requests.submit_line(job_desc, part_list, submit_uid, settings)
  if not line then
    return report("info", "submit", job_desc, why, "skipped", since)
  end
  local answer, outcome = client.ask(line, since, function(text)
    log("info", one_line(text, 2 * MAX_LOG_BYTES))
  end)
  if not answer then
    mark_for_later(job_desc)
    return report("debug", "submit", job_desc, "unchanged", outcome, since)
  end
  if answer.order or (answer.ttl_s or 0) > 0 then -- what comes later says nothing of the order
    order = answer.order and answer or nil
  end
  stand_back(job_desc, answer.delay)
  local writes, contradiction = planned(answer, job_desc, part_list)
  if not writes then
    return report("info", "submit", job_desc, contradiction, "refused", since)
  end
  for name, value in pairs(writes) do
    job_desc[name] = value
  end
  outcome = outcome == "daemon" and "set" or outcome
  tell_user(answer)
  answer.shown = answer.shown or one_line(answer.log, MAX_LOG_BYTES)
  report("info", "submit", job_desc, answer.shown, next(writes) and outcome or "none", since)
end

local faults = {}

local function guarded(hook, ...)
  local ok, why = pcall(hook, ...)
  why = tostring(why)
  if not ok and not faults[why] then
    faults = { [why] = true } -- the same fault is told once in a row, not at each job
    log("error", one_line("job passes unchanged: " .. why, 2 * MAX_LOG_BYTES))
  end
  return 0 -- slurm.SUCCESS
end

-- For slurm_job_submit(job_desc, part_list, submit_uid): sets what the user left open.
function M.submit(job_desc, part_list, submit_uid)
  return guarded(submit, job_desc, part_list or {}, submit_uid)
end

-- For slurm_job_modify: nothing. Where a job with a limit of ours changes, the daemon sees it.
function M.modify()
  return 0
end

return M
