"""Jobs as real slurmctld gave them to a hook, read from dumps of job_desc.

``lua/job_desc-VERSION.txt`` were written by a hook in Slurm 22.05, 24.11 and 26.05. The first job
is whole, the others say what differs from it; unset fields (nil, NO_VAL) are left out.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from lua_hook import INFINITE, NO_VAL

DUMPS = sorted((Path(__file__).parent / "lua").glob("job_desc-*.txt"))
VERSIONS = [path.stem.removeprefix("job_desc-") for path in DUMPS]
SCRIPT = "#!/bin/bash\n#SBATCH --comment=from-script\npython train.py\n"

_JOB = re.compile(r"^=== submit .* name=(\S+)$")
_SET = re.compile(r"^    (\w+|argv\[\d+\]) = (?:string:)?(.*)$")
_GONE = re.compile(r"^    (\w+|argv\[\d+\]) missing")
_PARTITION = re.compile(r"(\w+)\(def=(\d),DefaultTime=(\w+),Max=(\w+),")
_WORDS = {"NO_VAL": NO_VAL, "INFINITE": INFINITE}


def jobs(version: str) -> dict[str, dict[str, Any]]:
    """job_desc of every captured submit form, by job name."""
    found: dict[str, dict[str, str]] = {}
    for block in _text(version).split("=== ")[1:]:
        head, *lines = ("=== " + block).splitlines()
        named = _JOB.match(head)
        if named:
            fields = dict(found.get("plain", {}))
            for line in lines:
                gone, given = _GONE.match(line), _SET.match(line)
                if gone:
                    fields.pop(gone[1], None)
                elif given:
                    fields[given[1]] = given[2]
            found[named[1]] = fields
    return {name: _job_desc(fields) for name, fields in found.items()}


def partitions(version: str) -> dict[str, dict[str, int]]:
    """The part_list of the same cluster."""
    return {
        name: {
            "flag_default": int(default),
            "default_time": _number(first),
            "max_time": _number(most),
        }
        for name, default, first, most in _PARTITION.findall(_text(version))
    }


def _text(version: str) -> str:
    return next(p for p in DUMPS if p.stem.endswith(version)).read_text()


def _number(text: str) -> int:
    return _WORDS.get(text) or int(text)


def _job_desc(fields: dict[str, str]) -> dict[str, Any]:
    words = {int(k[5:-1]): v for k, v in fields.items() if k.startswith("argv[")}
    job: dict[str, Any] = {
        name: _number(text) if text.isdigit() or text in _WORDS else text
        for name, text in fields.items()
        if re.fullmatch(r"[a-z_]+", name) and not name.startswith(("script", "parts"))
    }
    job["argv"] = words
    if fields.get("script_len", "nil") != "nil":
        job["script"] = SCRIPT
        job["environment"] = {"PRECISION_TIME_MODEL": "vgg16", "PATH": "/usr/bin"}
    return job
