"""Write the table of values into the README of the Helm chart: `python tools/chart_readme.py`.

A value is explained by the comment that begins with ``# --`` above it, as helm-docs has it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

CHART = Path(__file__).parents[1] / "charts" / "precision-time"
README = CHART / "README.md"
HEAD = "## Values\n\nWritten by `python tools/chart_readme.py` from `values.yaml`.\n\n"
_KEY = re.compile(r"^( *)([\w-]+):")


def rows(text: str) -> Iterator[tuple[str, Any, str]]:
    """Path, default and meaning of each value that is explained, in the order of the file."""
    tree, path, said = yaml.safe_load(text), list[str](), list[str]()
    for line in text.splitlines():
        words = line.strip()
        if words.startswith("# -- ") or (said and words.startswith("# ")):
            said.append(words.removeprefix("# ").removeprefix("-- "))
            continue
        if key := _KEY.match(line):
            path = [*path[: len(key[1]) // 2], key[2]]
            default = tree
            for step in path:
                default = default.get(step) if isinstance(default, dict) else None
            nested = isinstance(default, dict) and line.rstrip().endswith(":")
            if said and (path[-1] == "resources" or not (nested and default)):
                yield ".".join(path), default, " ".join(said)
        said = []


def readme(text: str, values: str) -> str:
    """The README with the values of today."""
    table = "".join(
        f"| `{path}` | `{json.dumps(default)}` | {meaning.replace('|', chr(92) + '|')} |\n"
        for path, default, meaning in rows(values)
    )
    head = text.partition("## Values")[0]
    return f"{head}{HEAD}| value | default | |\n|---|---|---|\n{table}"


def main() -> None:
    """Write it."""
    README.write_text(readme(README.read_text("utf-8"), _values()), "utf-8")


def _values() -> str:
    return (CHART / "values.yaml").read_text("utf-8")


if __name__ == "__main__":
    main()
