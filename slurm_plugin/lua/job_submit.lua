-- job_submit.lua of a site that has no other: precision-time alone.
--
-- A site with a script of its own keeps it and adds, at its top (the path, where the modules are
-- not in Lua's own) and in its slurm_job_submit before the last return:
--
--   package.path = "/etc/slurm/?.lua;" .. package.path
--   local ok, pt = pcall(require, "precision_time")
--
--   if ok then pt.submit(job_desc, part_list, submit_uid) end
--
-- The precision_time*.lua lie in the directory named there, by default
-- beside this file. Settings, where the defaults do not fit, follow the pcall:
--
--   if ok then pt.configure({ socket = "/run/precision-time/slurm.sock", timeout = 0.03 }) end

local directory = debug.getinfo(1, "S").source:match("^@(.*/)")
if directory then
  package.path = directory .. "?.lua;" .. package.path
end

local ok, pt = pcall(require, "precision_time")
if not ok then
  pcall(function()
    slurm.log_error("%s", "precision-time: not loaded, jobs pass unchanged: " .. tostring(pt))
  end)
end

function slurm_job_submit(job_desc, part_list, submit_uid)
  return ok and pt.submit(job_desc, part_list, submit_uid) or slurm.SUCCESS
end

function slurm_job_modify(job_desc, job_rec, part_list, modify_uid)
  return ok and pt.modify(job_desc, job_rec, part_list, modify_uid) or slurm.SUCCESS
end
