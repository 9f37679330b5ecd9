"""Runs the commands of console blocks in README.md and docs; writes what they print below them.

A block is one ``$ precision-time ...`` line and its output. ``python tools/refresh_outputs.py``
rewrites the files; with ``--check`` it names those that are out of date instead, and exits with 1.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
BLOCK = re.compile(r"```console\n\$ (?P<command>precision-time [^\n]+)\n.*?```", re.DOTALL)


def output_of(command: str) -> str:
    """What a command prints to stdout; raises CalledProcessError where it fails."""
    env_bin = Path(sys.executable).parent
    done = subprocess.run(
        f"PATH={env_bin}:$PATH COLUMNS=100 {command}",
        shell=True,
        check=True,
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    return done.stdout.rstrip() + "\n"


def refresh(text: str) -> str:
    """The text with the output of every console block made anew."""

    def block(match: re.Match[str]) -> str:
        command = match["command"]
        return f"```console\n$ {command}\n{output_of(command)}```"

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
