"""Slurm's commands as programs that print what real ones printed: see payloads/README.md."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

PAYLOADS = Path(__file__).parent / "payloads"
COMMANDS = ("sacct", "sacctmgr", "scontrol", "sinfo", "squeue")
MARK = b"@MARK@"
WORK_DIR = b"/srv/slurm/work"
_GIVEN_MARK = re.compile(r"~~[0-9a-f]{16}~~")


def commands(folder: Path, payloads: Path) -> Path:
    """A directory of commands that replay the files of ``payloads``."""
    for name in COMMANDS:
        program = folder / name
        words = shlex.join([sys.executable, "-S", __file__, str(payloads), name])
        program.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
        program.chmod(0o755)
    return folder


def _file(name: str, argv: Sequence[str]) -> str:
    """The payload that answers a command; 22.05 has no scontrol --json and no nodes elsewhere."""
    form = "json" if "--json" in argv else "txt"
    if name == "sacctmgr":
        return f"{'qos' if 'qos' in argv else 'associations'}.txt"
    if name == "scontrol":
        asked = ("nodes", "partitions", "config", "reservation")
        what = next((word for word in asked if word in argv), "version")
        return f"{what}.{form}"
    if name == "squeue" and "PENDING" in argv:
        return "waits.txt"
    return {"sacct": "ended", "sinfo": "nodes", "squeue": "queue"}[name] + f".{form}"


def main(payloads: str, name: str, *argv: str) -> int:
    """Print the payload with the mark of this call; fail as Slurm does where there is none."""
    path = Path(payloads) / _file(name, argv)
    if not path.exists():
        print(f"{name}: unrecognized option '{argv[-1]}'", file=sys.stderr)
        return 1
    given = _GIVEN_MARK.search(" ".join(argv))
    data = path.read_bytes()
    if name == "sacct":  # captured before WorkDir was asked for
        data = data.replace(MARK + b"\n", MARK + WORK_DIR + MARK + b"\n")
    data = data.replace(MARK, given[0].encode() if given else MARK)
    with os.fdopen(sys.stdout.fileno(), "wb", closefd=False) as output:
        output.write(data)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
