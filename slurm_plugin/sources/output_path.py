"""Where a batch job's output goes: Slurm's file name patterns."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping

_PATTERN = re.compile(r"%(?P<width>\d{0,2})(?P<letter>[%AaJjNntux])")
_PLAIN, _ARRAY = "slurm-%j.out", "slurm-%A_%a.out"


def default(in_array: bool) -> str:
    """The name sbatch gives the file where the user gave none."""
    return _ARRAY if in_array else _PLAIN


def expand(pattern: str, work_dir: str, values: Mapping[str, str]) -> str:
    """The path of a pattern, below ``work_dir`` unless absolute; empty for an empty one.

    ``values`` are the texts of the letters A, a, j, N, u and x; a batch script is task 0 on node
    0. A backslash anywhere turns patterns off and is dropped; one without a value stays as it is.
    """
    if not pattern:
        return ""
    known = {"%": "%", "n": "0", "t": "0", "J": values.get("j", "")} | dict(values)

    def replacement(match: re.Match[str]) -> str:
        value = known.get(match["letter"], "")
        return value.zfill(int(match["width"] or 0)) if value else match[0]

    off = "\\" in pattern
    path = pattern.replace("\\", "") if off else _PATTERN.sub(replacement, pattern)
    return posixpath.join(work_dir, path)
