-- The answer of the decision daemon of precision-time, believed in nothing before it is checked.

local A = {}

A.MAX_BYTES = 8 * 1024

local MAX_WRITTEN = 1000 -- Slurm refuses a job with a text of more than 1024 bytes
local MAX_DIGITS = 9

local BYTES = setmetatable({}, { __index = function(known, hex)
  known[hex] = string.char(tonumber(hex, 16))
  return known[hex]
end })

-- nil where a percent sign is not followed by two hexadecimal digits.
function A.decode(text)
  text = text:gsub("%+", " ")
  if not text:find("%", 1, true) then
    return text
  end
  return not text:gsub("%%%x%x", ""):find("%", 1, true) and text:gsub("%%(%x%x)", BYTES) or nil
end

local function is_number(value)
  return value:match("^%d+$") and #value <= MAX_DIGITS and tonumber(value)
end

local function is_points(value)
  return value:match("^%d+$") and #value <= 10 and tonumber(value)
end

local function is_minutes(value)
  local number = is_number(value)
  return number and number >= 1 and number
end

local function is_expression(value)
  return #value <= MAX_WRITTEN and value:match("^[%w_.&|!()%[%]*,:=+/-]+$")
end

local function is_printable(value)
  return #value <= MAX_WRITTEN and value:match("^[^%c]+$")
end

-- A field that may hold a user's own text is refused for that job alone; any other that is not
-- sane means a daemon that is not.
local NUMBERS = {
  time_limit = is_minutes, time_min = is_minutes, ttl_s = is_number,
  delay = is_points, other_delay = is_points, since = is_points,
}
local ORDERS = { site_factor = true, nice = true }
local WRITTEN = {
  features = is_expression, prefer = is_expression, gres = is_expression,
  partition = is_printable,
}

local function read_field(answer, key, value)
  if NUMBERS[key] then
    answer[key] = NUMBERS[key](value)
    return answer[key]
  elseif WRITTEN[key] then
    answer[key] = WRITTEN[key](value)
    answer.refused = answer.refused or not answer[key] and "impossible " .. key or nil
  elseif key == "order" then
    answer[key] = ORDERS[value] and value
    return answer[key]
  elseif key == "admin_comment" then
    answer[key] = is_printable(value) or nil -- the rest of the answer holds without it
  elseif key == "message" or key == "log" then
    answer[key] = value
  end
  return true
end

-- The answer as a table, numbers as numbers; nil and the reason where it is not one. `refused`
-- says why nothing of it may be written.
function A.read(raw)
  if type(raw) == "string" and #raw > A.MAX_BYTES then
    return nil, "an answer of more than " .. A.MAX_BYTES .. " bytes"
  elseif type(raw) ~= "string" or not raw:match("^[\33-\126]+\n$") then
    return nil, raw == "" and "an empty answer" or "an answer that is no line of text"
  end
  local answer, version = {}, nil
  for pair in raw:sub(1, -2):gmatch("[^&]+") do
    local key, value = pair:match("^([^=]+)=(.*)$")
    value = value and A.decode(value)
    if not value then
      return nil, "an answer that is not form-encoded"
    elseif key == "v" then
      version = value
    elseif not read_field(answer, key, value) then
      return nil, "an answer with an impossible " .. key
    end
  end
  if version ~= "1" then
    return nil, "an answer that is not of version 1"
  elseif answer.time_min and answer.time_min > (answer.time_limit or answer.time_min) then
    return nil, "an answer with time_min above time_limit"
  end
  return answer
end

return A
