"""The output of a job read from a file or a stream: its begin and its end, in bounded memory."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from ...errors import StepReportError
from ..step_rate import opened_regular, read_at
from .marks import mark_of
from .reader import NOTHING, ProgressReading, read_lines

HEAD_BYTES = 128 * 1024  # what a program says of its length before it begins
TAIL_BYTES = 256 * 1024  # two thousand refreshes of a bar: half a second of work
FAR_TAIL_BYTES = 4 * 1024 * 1024  # where the first tail holds nothing
_BLOCK_BYTES = 64 * 1024
_ROOT = 0


def read_file(path: Path, *, owner: int | None = None) -> ProgressReading:
    """The progress in a user's file, with the rights of this process.

    Raises StepReportError where the file cannot be trusted: a link, not a regular file, not of the
    user ``owner``, or another user's while this process is root.
    """
    try:
        with opened_regular(path, owner) as handle:
            status = os.fstat(handle)
            if os.geteuid() == _ROOT != status.st_uid:
                raise StepReportError(
                    f"{path} belongs to user {status.st_uid}: root does not read it, run as that"
                    " user"
                )
            head = read_at(handle, HEAD_BYTES, 0)
            found = NOTHING
            for most in (TAIL_BYTES, FAR_TAIL_BYTES):
                start = max(0, status.st_size - most)
                found = read_bytes(head, read_at(handle, most, start), whole=start == 0)
                if found != NOTHING or start == 0:
                    break
            return found
    except FileNotFoundError:
        raise StepReportError(f"{path}: there is no such file") from None


def read_stream(stream: IO[bytes]) -> ProgressReading:
    """The progress in a stream, read to its end."""
    head, tail, size = b"", bytearray(), 0
    while block := stream.read(_BLOCK_BYTES):
        head += block[: max(0, HEAD_BYTES - len(head))]
        tail += block
        size += len(block)
        del tail[: max(0, len(tail) - TAIL_BYTES)]
    return read_bytes(head, bytes(tail), whole=size == len(tail))


def read_bytes(head: bytes, tail: bytes, *, whole: bool = True) -> ProgressReading:
    """The progress in the end of an output, of which ``head`` is the begin.

    ``head`` says nothing more where ``tail`` is the ``whole`` output.
    """
    if whole:
        return read_lines(_complete(tail))
    _, _, tail = tail.partition(b"\n") if b"\n" in tail else tail.partition(b"\r")
    return read_lines(_complete(tail), before=lines_of(head))


def _complete(raw: bytes) -> Iterator[str]:
    """The lines less a last one that is still being written, unless it is a bar."""
    end = max(raw.rfind(b"\n"), raw.rfind(b"\r")) + 1
    yield from lines_of(raw[:end])
    for line in lines_of(raw[end:]):
        mark = mark_of(line, 0)
        if mark is None or mark.bar:
            yield line


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
