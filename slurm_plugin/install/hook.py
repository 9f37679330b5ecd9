"""The Lua files of the hook, as they go to one site, and the lines that chain to its own script."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib import resources
from pathlib import Path

from ..errors import InstallError

SCRIPT = "job_submit.lua"
MODULE = "precision_time"
DEFAULT_SOCKET = Path("/run/precision-time/slurm.sock")
BEGIN = "-- precision-time begin: added by `precision-time slurm install --chain`"
END = "-- precision-time end"

_REQUIRE = 'local ok, pt = pcall(require, "precision_time")'
_BLOCK = re.compile(rf"^{re.escape(BEGIN)}\n.*?^{re.escape(END)}\n", re.M | re.S)
_LAST_RETURN = re.compile(r"^return\b[^\n]*\n?(?:\s|--[^\n]*(?:\n|\Z))*\Z", re.M)
_CHAIN = """\
{begin}
do
  package.path = {path} .. package.path
  {require}
  {configure}local site_submit, site_modify = slurm_job_submit, slurm_job_modify
  if ok then
    function slurm_job_submit(job_desc, part_list, submit_uid)
      local code = site_submit(job_desc, part_list, submit_uid)
      if code == nil or code == slurm.SUCCESS then pt.submit(job_desc, part_list, submit_uid) end
      return code
    end
    function slurm_job_modify(job_desc, job_rec, part_list, modify_uid)
      local code = site_modify(job_desc, job_rec, part_list, modify_uid)
      if code == nil or code == slurm.SUCCESS then
        pt.modify(job_desc, job_rec, part_list, modify_uid)
      end
      return code
    end
  end
end
{end}
"""


def shipped() -> Mapping[str, str]:
    """The Lua files of this release by file name."""
    folder = resources.files("slurm_plugin") / "lua"
    return {
        entry.name: entry.read_text(encoding="utf-8")
        for entry in sorted(folder.iterdir(), key=lambda entry: entry.name)
        if entry.name.endswith(".lua")
    }


def modules() -> Mapping[str, str]:
    """The shipped files but ``job_submit.lua``."""
    return {name: text for name, text in shipped().items() if name != SCRIPT}


def script(socket: Path) -> str:
    """``job_submit.lua`` for a site that has none of its own."""
    text, line = shipped()[SCRIPT], f"\n{_REQUIRE}\n"
    if text.count(line) != 1:
        raise InstallError(f"{SCRIPT} of this release has no single line {_REQUIRE!r}")
    configure = _configure(socket)
    return text.replace(line, f"{line}{configure}\n") if configure else text


def mentions_us(text: str) -> bool:
    """True where a script already calls our module."""
    return re.search(rf"""["']{MODULE}["']""", text) is not None


def two_lines(directory: Path, socket: Path) -> str:
    """What an admin adds to a script by hand; ``directory`` holds the modules."""
    search = f"package.path = {quoted(f'{directory}/?.lua;')} .. package.path"
    configure = _configure(socket)
    return (
        "  at its top:\n"
        f"    {search}; {_REQUIRE}{'; ' + configure if configure else ''}\n"
        "  before the last return of slurm_job_submit:\n"
        "    if ok then pt.submit(job_desc, part_list, submit_uid) end"
    )


def chained(text: str, directory: Path, socket: Path) -> str:
    """A site's script with our block at its end, before a last ``return`` of the file.

    A block that is there already is renewed.
    """
    configure = _configure(socket)
    block = _CHAIN.format(
        begin=BEGIN,
        end=END,
        path=quoted(f"{directory}/?.lua;"),
        require=_REQUIRE,
        configure=f"{configure}\n  " if configure else "",
    )
    text = without_block(text)
    last = _LAST_RETURN.search(text)
    at = last.start() if last else len(text)
    head = text[:at] if not text[:at] or text[:at].endswith("\n") else text[:at] + "\n"
    return head + block + text[at:]


def has_block(text: str) -> bool:
    """True where ``install --chain`` added our block."""
    return _BLOCK.search(text) is not None


def without_block(text: str) -> str:
    """A script without the block ``chained`` adds."""
    return _BLOCK.sub("", text)


def quoted(text: str) -> str:
    """A Lua string literal."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def _configure(socket: Path) -> str:
    """The line that names the socket, empty where it is where the module looks anyway."""
    if socket == DEFAULT_SOCKET:
        return ""
    return f"if ok then pt.configure({{ socket = {quoted(str(socket))} }}) end"
