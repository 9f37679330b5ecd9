"""The output of a program as lines: carriage returns, colours and noise taken out."""

from __future__ import annotations

import re
from collections.abc import Iterator

MAX_CHARS = 1_200  # of a line; what is longer keeps its two ends
_HEAD_CHARS = 900
_BREAKS = re.compile(rb"[\r\n\x08]+|(?<=/s\]|it\])")  # what is glued to a bar is a line of its own
_ESCAPES = re.compile(
    r"\x1b(?:\[[0-?]{0,32}[ -/]{0,4}[@-~]|\][^\x07\x1b]{0,200}(?:\x07|\x1b\\)|[@-_])"
)
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]+")
# srun -l, torchrun, mpirun, Ray: "3: ", "[rank3]:", "[1,3]<stdout>:", "(Worker pid=12)"
_RANK = re.compile(
    r"^(?:\d{1,5}: |\[(?:rank|default)\d{1,5}\]: ?|\[\d{1,4},\d{1,5}\]<std\w{3}>: ?"
    r"|\(\w{1,40} pid=\d{1,9}[^)]{0,60}\) ?)"
)


def lines_of(raw: bytes) -> Iterator[str]:
    """Lines with text, each of at most MAX_CHARS characters."""
    for part in _BREAKS.split(raw):
        if len(part) > 4 * MAX_CHARS:
            part = part[: 4 * _HEAD_CHARS] + part[-4 * (MAX_CHARS - _HEAD_CHARS) :]
        text = part.decode("utf-8", "replace").replace("\t", " ")
        if "\x1b" in text:
            text = _ESCAPES.sub("", text)
        text = _RANK.sub("", _CONTROLS.sub("", text)).rstrip()
        if len(text) > MAX_CHARS:
            text = text[:_HEAD_CHARS] + text[_HEAD_CHARS - MAX_CHARS :]
        if text:
            yield text
