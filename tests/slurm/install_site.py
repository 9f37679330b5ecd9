"""A machine to install into: slurm.conf and the directories below a temporary root."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from slurm_plugin.cli.install import check, install, uninstall

SLURM_CONF = """\
# slurm.conf of a small cluster
ClusterName=bench
SlurmctldHost=ctl
SlurmUser=root
GresTypes=gpu
NodeName=a[1-2] Gres=gpu:a100:4 Feature=a100,tensorcore CPUs=16 State=UNKNOWN
PartitionName=gpu Nodes=a[1-2] Default=YES MaxTime=INFINITE State=UP
"""
SITE_SCRIPT = """\
-- the site's own
calls = {}
function slurm_job_submit(job_desc, part_list, submit_uid)
  calls[#calls + 1] = "site"
  return slurm.SUCCESS
end
function slurm_job_modify(job_desc, job_rec, part_list, modify_uid)
  return slurm.SUCCESS
end
slurm.log_info("initialized")
return slurm.SUCCESS
"""
LIBRARIES = {"5.1": "liblua5.1.so.0", "5.3": "liblua5.3.so.0", "5.4": "liblua5.4.so.0"}
LIBRARY_DIRS = (
    "/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu",
    "/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/usr/local/lib",
)


def lua_library(version: str) -> Path:
    """The shared library of a Lua; the test is skipped, or fails where it is required, without."""
    name = LIBRARIES[version]
    found = (Path(directory) / name for directory in LIBRARY_DIRS)
    library = next((path for path in found if path.exists()), None)
    if library is not None:
        return library
    if version == "5.1" and "slurm" in os.environ.get("PRECISION_TIME_REQUIRE", "").split():
        pytest.fail(f"PRECISION_TIME_REQUIRE wants Slurm's Lua: {name} is not installed")
    pytest.skip(f"{name} is not installed")


@dataclass(frozen=True)
class FakeRoot:
    """The tree, and the commands run on it."""

    root: Path

    @property
    def etc(self) -> Path:
        return self.root / "etc/slurm"

    @property
    def conf(self) -> Path:
        return self.etc / "slurm.conf"

    @property
    def script(self) -> Path:
        return self.etc / "job_submit.lua"

    @property
    def policy(self) -> Path:
        return self.root / "etc/precision-time/slurm.yaml"

    @property
    def unit(self) -> Path:
        return self.root / "etc/systemd/system/precision-time-slurm.service"

    def install(self, *more: str) -> Result:
        return CliRunner().invoke(install, ("--root", str(self.root), *more))

    def check(self) -> Result:
        return CliRunner().invoke(check, ("--root", str(self.root)))

    def uninstall(self, *more: str) -> Result:
        return CliRunner().invoke(uninstall, ("--root", str(self.root), *more))

    def files(self) -> Mapping[Path, bytes]:
        return {p: p.read_bytes() for p in sorted(self.root.rglob("*")) if p.is_file()}


def fake_root(root: Path, conf: str = SLURM_CONF) -> FakeRoot:
    """A root with this slurm.conf."""
    (root / "etc/slurm").mkdir(parents=True)
    (root / "etc/slurm/slurm.conf").write_text(conf)
    return FakeRoot(root)
