-- The line that asks the decision daemon of precision-time about a job.
--
-- It is form-encoded (see slurm_plugin/protocol.py), its fields in a fixed order: identical jobs
-- give identical lines, by which answers are kept. Lua 5.1 to 5.4; Slurm gives numbers as floats.

local R = {}

local MAX_LINE_BYTES = 255 * 1024 -- the daemon reads 256 KiB

local NO_VAL16, NO_VAL, INFINITE = 65534, 4294967294, 4294967295 -- slurm/slurm.h
local MAX_TEXT = 4096 -- Slurm refuses comments, names and features of more than 1024 bytes later
local MAX_NODE_LIST = 16384
local MAX_WORDS, MAX_WORD_BYTES = 256, 16384

local TEXTS = {
  "name", "comment", "extra", "admin_comment", "partition", "tres_per_job", "tres_per_node",
  "tres_per_socket", "tres_per_task", "features", "prefer", "reservation", "work_dir",
}
local COUNTS = { "min_nodes", "max_nodes", "num_tasks", "min_cpus" }
local COUNTS16 = { "ntasks_per_node", "sockets_per_node", "cpus_per_task" }
local MEMORY = { "min_mem_per_node", "min_mem_per_cpu" } -- MiB
local MAX_MIB = 1e12 -- beyond it is NO_VAL64
local TRES = { "gres", "tres_per_node", "tres_per_job", "tres_per_task", "tres_per_socket" }
local ENVIRONMENT = { "PRECISION_TIME" } -- the whole text in one, then one variable a key
for _, key in ipairs({
  "MODEL", "PRECISION", "BATCH_SIZE", "GLOBAL_BATCH_SIZE", "GRAD_ACCUM", "SEQ_LEN", "IMAGE_SIZE",
  "EPOCHS", "STEPS", "DATASET", "DATASET_SIZE", "FRAMEWORK", "FRAMEWORK_DATE", "OPTIMIZER",
  "SHARDING",
  "TENSOR_PARALLEL", "PIPELINE_PARALLEL", "CONTEXT_PARALLEL", "EXPERT_PARALLEL",
  "VIRTUAL_STAGES", "SEQUENCE_PARALLEL", "MEAN_SEQ_LEN", "FABRIC", "OPTIONS", "VARIANT",
  "PHASES", "TRAINER",
}) do
  ENVIRONMENT[#ENVIRONMENT + 1] = "PRECISION_TIME_" .. key
end
local ESCAPES = {}
for byte = 0, 255 do
  ESCAPES[string.char(byte)] = string.format("%%%02X", byte)
end

-- Escaped: "%", "&", "+" and control characters; "=" ends only a key.
function R.encode(text)
  return (text:gsub("[^,-~ -$'-*\128-\255]", ESCAPES))
end

-- A number Slurm holds, or nil where it is unset (nil, NO_VAL) or without bound.
function R.count(value, unset)
  if type(value) ~= "number" or value ~= value or value < 0 or value >= (unset or NO_VAL) then
    return nil
  end
  return math.floor(value)
end

-- Minutes of a time a person chose, 0 where none is, math.huge for UNLIMITED.
function R.stated_minutes(minutes)
  return minutes == INFINITE and math.huge or R.count(minutes) or 0
end

-- Whether a person or a site script already chose this time.
function R.is_stated(minutes)
  return minutes ~= nil and minutes ~= NO_VAL
end

local function digits(number)
  return string.format("%.0f", number)
end

function R.minutes_text(value)
  if value == INFINITE then
    return "inf"
  end
  local number = R.count(value)
  return number and digits(number)
end

local function add(line, key, value)
  if value then
    line[#line + 1] = key .. "=" .. R.encode(value)
  end
end

-- Half a text would be misread: a job with one beyond its bound is not asked about.
local function add_text(line, key, value, most)
  if type(value) ~= "string" then
    return
  end
  if #value > (most or MAX_TEXT) then
    line.too_long = line.too_long or key
  else
    add(line, key, value)
  end
end

-- Counts of nodes and tasks, of which Slurm also writes 0 where none is set.
local function add_counts(line, record, names, unset)
  for _, name in ipairs(names) do
    local number = R.count(record[name], unset) or 0
    add(line, name, number > 0 and digits(number))
  end
end

local function add_words(line, job_desc)
  local words, room = job_desc.argv, MAX_WORD_BYTES
  if type(words) ~= "table" then
    return
  end
  for i = 0, math.min(R.count(job_desc.argc) or 0, MAX_WORDS) - 1 do
    local word = words[i]
    if type(word) ~= "string" or #word > room then
      return
    end
    room = room - #word
    add(line, "argv", word)
  end
end

-- Only batch jobs: for others slurmctld logs a line at each variable looked up.
local function add_environment(line, environment)
  if environment == nil then
    return
  end
  for _, name in ipairs(ENVIRONMENT) do
    local value = environment[name]
    if type(value) == "string" and #value <= MAX_TEXT then
      add(line, "env." .. name, value)
    end
  end
end

-- The names of the partitions asked for, or of the default one, that the user may use.
function R.asked_partitions(wanted, part_list)
  local names = {}
  if type(wanted) == "string" and wanted ~= "" then
    for name in wanted:gmatch("[^,%s]+") do
      if part_list[name] then
        names[#names + 1] = name
      end
    end
    return names
  end
  for name, part in pairs(part_list) do
    if part.flag_default == 1 then
      names[#names + 1] = name
    end
  end
  return names
end

-- The largest MaxTime in minutes (math.huge for UNLIMITED), nil where no partition is known.
function R.largest_max_time(names, part_list)
  local most
  for _, name in ipairs(names) do
    local bound = R.count(part_list[name].max_time) or math.huge
    most = math.max(most or bound, bound)
  end
  return most
end

local function add_partitions(line, wanted, part_list)
  local asked = {}
  for _, name in ipairs(R.asked_partitions(wanted, part_list)) do
    local part = part_list[name]
    local default, most = R.minutes_text(part.default_time), R.minutes_text(part.max_time)
    asked[#asked + 1] = name .. ":" .. (default or "") .. ":" .. (most or "")
  end
  add(line, "partitions", table.concat(asked, ","))
  local usable = {}
  for name in pairs(part_list) do
    usable[#usable + 1] = name
  end
  table.sort(usable)
  add(line, "usable_partitions", table.concat(usable, ","))
end

-- A sweep sends one script many times, and escaping it is most of the work.
local last = { script = nil, escaped = nil }

local function encoded_script(script, most)
  script = script:sub(1, most)
  if script ~= last.script then
    last = { script = script, escaped = R.encode(script) }
  end
  return last.escaped
end

-- The script comes last: it alone may be cut to fit, never inside an escape.
local function finish(line, script, max_script)
  if line.too_long then
    return nil, line.too_long .. " is too long"
  end
  local text = table.concat(line, "&")
  if type(script) == "string" and max_script > 0 then
    local room = MAX_LINE_BYTES - #text - #"&script=\n"
    local escaped = encoded_script(script, max_script)
    if #escaped > room then
      escaped = escaped:sub(1, math.max(room, 0)):gsub("%%%x?$", "")
    end
    text = text .. "&script=" .. escaped
  end
  if #text >= MAX_LINE_BYTES then
    return nil, "the request is too long"
  end
  return text .. "\n"
end

-- Whether it may not start yet for another reason than the queue.
function R.waits(job_desc)
  return job_desc.dependency ~= nil or job_desc.priority == 0
    or (R.count(job_desc.begin_time) or 0) > os.time()
end

function R.wants_gpu(record)
  for _, name in ipairs(TRES) do
    local value = record[name]
    if type(value) == "string" and value:lower():find("gpu", 1, true) then
      return true
    end
  end
  return false
end

-- The request line for a job being submitted; nil and the reason where it cannot be asked about.
-- `settings` tell how much of a script is sent, and how long the answer is waited for.
function R.submit_line(job_desc, part_list, submit_uid, settings)
  local line, script = { "v=1" }, job_desc.script
  add(line, "within", digits(1000 * settings.timeout))
  add(line, "uid", digits(R.count(job_desc.user_id) or R.count(submit_uid) or 0))
  add_text(line, "user", job_desc.user_name)
  add_text(line, "account", job_desc.account or job_desc.default_account)
  add_text(line, "qos", job_desc.qos or job_desc.default_qos)
  for _, name in ipairs(TEXTS) do
    add_text(line, name, job_desc[name])
  end
  add_text(line, "req_nodes", job_desc.req_nodes, MAX_NODE_LIST)
  add_text(line, "exc_nodes", job_desc.exc_nodes, MAX_NODE_LIST)
  add_partitions(line, job_desc.partition, part_list)
  add(line, "time_limit", R.minutes_text(job_desc.time_limit))
  add(line, "time_min", R.minutes_text(job_desc.time_min))
  add_counts(line, job_desc, COUNTS, NO_VAL)
  add_counts(line, job_desc, COUNTS16, NO_VAL16)
  add_counts(line, job_desc, MEMORY, MAX_MIB)
  add(line, "waits", R.waits(job_desc) and "1")
  add_words(line, job_desc)
  if script then
    add_environment(line, job_desc.environment)
  end
  return finish(line, script, settings.max_script)
end

return R
