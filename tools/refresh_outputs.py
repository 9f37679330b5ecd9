"""Runs the commands of console blocks in README.md and docs; writes what they print below them.

A block is ``$ precision-time ...`` lines and the output of the last; where there are several, they
run in a home of their own. ``python tools/refresh_outputs.py`` rewrites the files; with
``--check`` it names those that are out of date instead, and exits with 1.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
BLOCK = re.compile(r"```console\n(?P<commands>(?:\$ precision-time [^\n]+\n)+).*?```", re.DOTALL)


def output_of(commands: list[str]) -> str:
    """What the last command prints to stdout; raises CalledProcessError where one fails."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    with tempfile.TemporaryDirectory() as home:
        own = {"PRECISION_TIME_HOME": home} if len(commands) > 1 else {}
        for command in commands:
            done = subprocess.run(
                command,
                shell=True,
                check=True,
                capture_output=True,
                text=True,
                cwd=ROOT,
                env=os.environ | own | {"PATH": path, "COLUMNS": "100"},
            )
    return done.stdout.rstrip() + "\n"


def refresh(text: str) -> str:
    """The text with the output of every console block made anew."""

    def block(match: re.Match[str]) -> str:
        commands = [line.removeprefix("$ ") for line in match["commands"].splitlines()]
        return f"```console\n{match['commands']}{output_of(commands)}```"

    return BLOCK.sub(block, text)


def main(check: bool) -> int:
    """Refresh, or check, every document; 1 where one is out of date."""
    stale = False
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        text = path.read_text(encoding="utf-8")
        fresh = refresh(text)
        if fresh != text:
            stale = True
            print(f"{path.relative_to(ROOT)}: {'out of date' if check else 'refreshed'}")
            if not check:
                path.write_text(fresh, encoding="utf-8")
    return int(stale and check)


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv[1:]))
