"""A job as sbatch and scontrol tell of it."""

from __future__ import annotations

import re
from dataclasses import dataclass

ENDED = frozenset(
    {
        "BOOT_FAIL",
        "CANCELLED",
        "COMPLETED",
        "DEADLINE",
        "FAILED",
        "NODE_FAIL",
        "OUT_OF_MEMORY",
        "PREEMPTED",
        "TIMEOUT",
    }
)
# scontrol gives these a line each, so that what users wrote in them may hold "A=b"
_OWN_LINE = re.compile(
    r"\s*(Comment|AdminComment|SystemComment|Extra|Command|WorkDir|Std(?:Err|In|Out)"
    r"|SubmitLine)=(.*)"
)
_PAIR = re.compile(r"(\S+?)=(.*?)(?=\s+[^\s=]+=|$)")


@dataclass(frozen=True, slots=True)
class Submitted:
    """A queued job and what sbatch told its user."""

    job_id: int
    messages: tuple[str, ...]


def job_record(block: str) -> dict[str, str]:
    """The fields of one job as ``scontrol show job`` prints them."""
    fields: dict[str, str] = {}
    for line in block.splitlines():
        if own := _OWN_LINE.fullmatch(line):
            fields[own[1]] = own[2].rstrip()  # 22.05 adds a blank
        else:
            fields.update((pair[1], pair[2].strip()) for pair in _PAIR.finditer(line.strip()))
    return fields
