"""Runs the commands of README.md's console blocks and writes what they print below them.

`python tools/refresh_readme.py` rewrites the file; a block is one `$ command` line and its output.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).parent.parent / "README.md"
BLOCK = re.compile(r"```console\n\$ (?P<command>[^\n]+)\n.*?```", re.DOTALL)


def output_of(command: str) -> str:
    """What a command prints to stdout; raises CalledProcessError where it fails."""
    env_bin = Path(sys.executable).parent
    done = subprocess.run(
        f"PATH={env_bin}:$PATH COLUMNS=100 {command}",
        shell=True,
        check=True,
        capture_output=True,
        text=True,
        cwd=README.parent,
    )
    return done.stdout.rstrip() + "\n"


def refresh(text: str) -> str:
    """The text with the output of every console block made anew."""

    def block(match: re.Match[str]) -> str:
        command = match["command"]
        return f"```console\n$ {command}\n{output_of(command)}```"

    return BLOCK.sub(block, text)


if __name__ == "__main__":
    README.write_text(refresh(README.read_text(encoding="utf-8")), encoding="utf-8")
