"""job_submit.lua as shipped, alone and chained into a site's own script."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from fake_daemon import daemon
from lua_hook import MODULES, Hook

from slurm_plugin.protocol import HookAnswer

SHIPPED = MODULES / "job_submit.lua"
GOOD = HookAnswer(log="", time_limit=20)


def test_it_finds_its_modules_beside_itself(interpreter: str, path: Path, tmp_path: Path) -> None:
    for source in MODULES.glob("*.lua"):
        shutil.copy(source, tmp_path)
    with Hook(interpreter, tmp_path / "job_submit.lua") as hook:
        hook.load()
        hook.configure(socket=path)
        with daemon(path, GOOD):
            assert hook.submit().written == {"time_limit": 20}


def test_without_its_modules_slurmctld_starts_and_jobs_pass(
    interpreter: str, tmp_path: Path
) -> None:
    shutil.copy(SHIPPED, tmp_path)
    with Hook(interpreter, tmp_path / "job_submit.lua", modules=tmp_path) as hook:
        ((level, text),) = hook.load()["logs"]
        assert (level, "not loaded, jobs pass unchanged" in text) == ("error", True)
        assert hook.submit().written == {}
        assert hook.submit().returned == 0
        assert hook.modify({"comment": "x"}, {"job_id": 1}).returned == 0


def test_a_site_script_chains_it_with_the_documented_lines(
    interpreter: str, path: Path, tmp_path: Path
) -> None:
    documented = re.findall(r"^--   (.*)$", SHIPPED.read_text(), re.M)
    path_line, load_line, submit_line, _ = documented
    script = tmp_path / "site.lua"
    script.write_text(
        "\n".join(
            [
                path_line.replace("/etc/slurm", str(MODULES)),
                load_line,
                "function slurm_job_submit(job_desc, part_list, submit_uid)",
                "  job_desc.account = 'site'",
                submit_line,
                "  return slurm.SUCCESS",
                "end",
                "function slurm_job_modify(job_desc, job_rec, part_list, modify_uid)",
                "  if ok then pt.modify(job_desc, job_rec, part_list, modify_uid) end",
                "  return slurm.SUCCESS",
                "end",
            ]
        )
    )
    with Hook(interpreter, script, modules=tmp_path) as hook:
        assert hook.load()["logs"] == []
        hook.configure(socket=path)
        with daemon(path, GOOD):
            assert hook.submit().written == {"account": "site", "time_limit": 20}
            assert hook.modify({"comment": "x"}, {"job_id": 1}).returned == 0
