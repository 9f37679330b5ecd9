-- slurmctld's side of the hook for the tests: one call a line on stdin, its result on stdout.
--
-- arg: directory of the modules. A call is a Lua table on one line, a result is JSON with each
-- byte of a string as one character. The `slurm` table and the records behave as on real Slurm:
-- log functions format, numbers are floats, unset numbers are NO_VAL, nil is no number.

local directory = arg[1]
package.path = directory .. "/?.lua;" .. package.path

local NO_VAL, NO_VAL16 = 4294967294, 65534
local NUMBERS = {
  time_limit = NO_VAL, time_min = NO_VAL, min_nodes = NO_VAL, max_nodes = NO_VAL,
  num_tasks = NO_VAL, het_job_offset = NO_VAL, priority = NO_VAL, nice = NO_VAL,
  site_factor = NO_VAL,
  ntasks_per_node = NO_VAL16, sockets_per_node = NO_VAL16,
}

local logs, user_lines, environment_faults

local function logger(level)
  return function(...)
    logs[#logs + 1] = { level, string.format(...) }
  end
end

slurm = { -- luacheck: ignore
  SUCCESS = 0, ERROR = -1, NO_VAL = NO_VAL, NO_VAL16 = NO_VAL16, INFINITE = 4294967295,
  log_info = logger("info"), log_error = logger("error"), log_debug = logger("debug"),
  log_user = function(...)
    user_lines[#user_lines + 1] = string.format(...)
  end,
}

local function floats(value)
  if type(value) == "number" then
    return value + 0.0
  elseif type(value) == "table" then
    local copy = {}
    for key, item in pairs(value) do
      copy[key] = floats(item)
    end
    return copy
  end
  return value
end

local function environment_of(fields)
  return setmetatable({}, {
    __index = function(_, name)
      if fields.script == nil then
        environment_faults = environment_faults + 1
      end
      return (fields.environment or {})[name]
    end,
  })
end

-- A job_desc or job_rec: reads and writes go through functions, as in slurmctld.
local function record_of(fields)
  fields = floats(fields)
  local environment = environment_of(fields)
  local index = function(_, name)
    if name == "environment" then
      return environment
    elseif name == "gres" then
      return fields.tres_per_node
    elseif fields[name] == nil then
      return NUMBERS[name] and NUMBERS[name] + 0.0
    end
    return fields[name]
  end
  local newindex = function(_, name, value)
    if NUMBERS[name] and type(value) ~= "number" then
      error("bad argument: number expected, got " .. type(value))
    elseif not NUMBERS[name] and type(value) ~= "string" then
      error("bad argument: string expected, got " .. type(value))
    end
    fields[name] = value
  end
  return setmetatable({}, { __index = index, __newindex = newindex }), fields
end

local function json(value)
  if type(value) == "string" then
    return '"' .. value:gsub('[%c"\\\127-\255]', function(byte)
      return string.format("\\u%04x", byte:byte())
    end) .. '"'
  elseif type(value) == "number" then
    return string.format("%.17g", value)
  elseif type(value) ~= "table" then
    return tostring(value) == "nil" and "null" or tostring(value)
  end
  local items = {}
  if #value > 0 or next(value) == nil then
    for i, item in ipairs(value) do
      items[i] = json(item)
    end
    return "[" .. table.concat(items, ",") .. "]"
  end
  for key, item in pairs(value) do
    if type(item) ~= "function" then
      items[#items + 1] = json(tostring(key)) .. ":" .. json(item)
    end
  end
  return "{" .. table.concat(items, ",") .. "}"
end

local seconds = (function()
  local ok, socket = pcall(require, "socket")
  return ok and socket.gettime or os.time
end)()

local calls = {}

function calls.load(call) -- the site's script; slurmctld runs it once
  if call.without_luasocket then
    package.cpath, package.loaded["socket"], package.loaded["socket.unix"] = "", nil, nil
    package.path = directory .. "/?.lua"
  end
  dofile(call.script)
  return {}
end

function calls.configure(call)
  require("precision_time").configure(call.settings)
  return {}
end

function calls.submit(call)
  local job, fields = record_of(call.job)
  local since = seconds()
  local returned = slurm_job_submit(job, floats(call.parts), call.uid + 0.0)
  return { returned = returned, seconds = seconds() - since, job = fields }
end

function calls.modify(call)
  local job, fields = record_of(call.job)
  local before = record_of(call.record)
  local returned = slurm_job_modify(job, before, floats(call.parts), call.uid + 0.0)
  return { returned = returned, job = fields }
end

function calls.submit_lines(call)
  local lines = {}
  for i, fields in ipairs(call.jobs) do
    local line, why = require("precision_time_request").submit_line(record_of(fields),
      floats(call.parts), 0.0, { max_script = call.max_script or 65536, timeout = 0.03 })
    lines[i] = line or "refused: " .. why
  end
  return { lines = lines }
end

function calls.read_answers(call)
  local answers = {}
  for i, raw in ipairs(call.lines) do
    answers[i] = require("precision_time_answer").read(raw) or false
  end
  return { answers = answers }
end

for line in io.lines() do
  logs, user_lines, environment_faults = {}, {}, 0
  local call = assert((loadstring or load)("return " .. line))()
  local result = calls[call.call](call)
  result.logs, result.user, result.environment_faults = logs, user_lines, environment_faults
  io.write(json(result), "\n")
  io.flush()
end
