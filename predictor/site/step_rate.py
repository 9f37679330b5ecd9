"""What a running training job says of its steps, for whoever follows it: a file, or a line.

The file is ``precision-time-steps.json`` in the job's directory, or, where several jobs share
one, ``precision-time-steps.<job id>.json``: a JSON object with ``"v": 1`` and the fields of
StepReport. The line on stdout is ``precision-time: step=1200 total_steps=56302 step_s=0.118``,
with the same field names. Both are somebody else's claim: they are read with bounds on size and
values, never through a symbolic link, and only where they belong to the user of the job.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..errors import StepReportError, reason_of

VERSION = 1
FILE_NAME = "precision-time-steps.json"
LINE_PREFIX = "precision-time:"
MAX_FILE_BYTES = 64 * 1024
TAIL_BYTES = 64 * 1024
FILE_MODE = 0o644  # the scheduler's daemon is another user

_MAX_STEPS = 10**12
_MAX_STEP_S = 86400.0  # no optimizer step takes a day
_MAX_UNIX_S = 1e11
_COUNTS = ("step", "total_steps", "first_step")
_NUMBERS = dict.fromkeys(("step_s", "step_s_spread"), _MAX_STEP_S)
_NUMBERS |= dict.fromkeys(("started_s", "written_s", "paused_s"), _MAX_UNIX_S)
_REQUIRED = ("step", "total_steps", "step_s")
_MAY_BE_NONE = ("step_s_spread", "started_s", "written_s")
_PAIR = re.compile(r"(\w+)=(\S+)")
_JOB_ID = re.compile(r"[!-~]{0,128}")


@dataclass(frozen=True, slots=True, kw_only=True)
class StepReport:
    """How far a job is and how fast it goes.

    ``step`` optimizer steps of ``total_steps`` are done, counted from the start of the training;
    ``first_step`` is where this run of it took over (a checkpoint). ``step_s`` is the median of
    recent steps in seconds, ``step_s_spread`` their spread. ``started_s`` (when this run's first
    step began) and ``written_s`` (when this was said) are Unix seconds, ``paused_s`` the seconds
    between them that will not come again. None where it was not said.

    Raises StepReportError naming field, value and what is expected.
    """

    step: int
    total_steps: int
    step_s: float
    job_id: str = ""
    step_s_spread: float | None = None
    first_step: int = 0
    started_s: float | None = None
    written_s: float | None = None
    paused_s: float = 0.0

    def __post_init__(self) -> None:
        for name in _COUNTS:
            _check(name, getattr(self, name), _MAX_STEPS, whole=True)
        for name, most in _NUMBERS.items():
            if getattr(self, name) is not None or name not in _MAY_BE_NONE:
                _check(name, getattr(self, name), most, whole=False)
        if self.step_s <= 0:
            raise StepReportError(f"invalid step_s={self.step_s!r}; expected a number above 0")
        if not self.first_step <= self.step <= self.total_steps:
            raise StepReportError(
                f"invalid step={self.step}; expected first_step={self.first_step} to "
                f"total_steps={self.total_steps}"
            )
        if not isinstance(self.job_id, str) or not _JOB_ID.fullmatch(self.job_id):
            raise StepReportError(
                f"invalid job_id={ascii(self.job_id)[:80]}; expected up to 128 printable characters"
                " of ASCII without blanks"
            )

    @property
    def steps_of_run(self) -> int:
        """Steps that this run has made."""
        return self.step - self.first_step

    @property
    def remaining_steps(self) -> int:
        """Steps still to be made."""
        return self.total_steps - self.step

    def line(self) -> str:
        """The line for stdout."""
        said = ((k, v) for k, v in asdict(self).items() if v not in (None, ""))
        return " ".join([LINE_PREFIX, *(f"{k}={v}" for k, v in said)])


def read_report(path: Path, *, owner: int | None = None) -> StepReport | None:
    """The report in a file, None where there is no file.

    ``written_s`` is the file's own time where the report does not say it. Raises StepReportError
    where the file cannot be trusted (a link, not a regular file, not of the user ``owner``, above
    64 KiB) or does not hold a possible report, such as a half-written one.
    """
    if (found := _read(path, owner, MAX_FILE_BYTES + 1, end=False)) is None:
        return None
    raw, changed_s = found
    if len(raw) > MAX_FILE_BYTES:
        raise StepReportError(f"{path}: above {MAX_FILE_BYTES} bytes")
    try:
        said = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise StepReportError(f"{path} is not JSON: {error}") from None
    if not isinstance(said, dict) or said.get("v") != VERSION:
        raise StepReportError(f'{path}: expected a JSON object with "v": {VERSION}')
    return _report({"written_s": changed_s, **said})


def last_report(path: Path, *, owner: int | None = None) -> StepReport | None:
    """The last line with a possible report in the last 64 KiB of a text file, None without one.

    ``written_s`` is the file's own time. Raises StepReportError as ``read_report`` does.
    """
    if (found := _read(path, owner, TAIL_BYTES, end=True)) is None:
        return None
    raw, changed_s = found
    lines = re.split(r"[\r\n]+", raw.decode("utf-8", "replace"))
    for line in reversed(lines[:-1]):  # the last one may still be growing
        if (said := _line(line)) is not None:
            with contextlib.suppress(StepReportError):
                return _report({"written_s": changed_s, **said})
    return None


def parse_line(text: str) -> StepReport | None:
    """The report in a line of output, None where there is none or an impossible one.

    What stands before ``precision-time:`` (a rank, a time) is skipped.
    """
    said = _line(text)
    with contextlib.suppress(StepReportError):
        return None if said is None else _report(said)
    return None


def write_report(path: Path, report: StepReport) -> None:
    """Put a report in place of the one before, whole or not at all; raises OSError."""
    stated = {k: v for k, v in asdict(report).items() if v not in (None, "")}
    handle, draft = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump({"v": VERSION, **stated}, file)
        os.chmod(draft, FILE_MODE)
        os.replace(draft, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(draft)
        raise


def report_paths(directory: Path, name: str, job_id: str) -> tuple[Path, Path]:
    """Where a job's report may be: the file of this job alone, then the one named ``name``."""
    stem, dot, suffix = name.rpartition(".")
    alone = f"{stem}.{job_id}.{suffix}" if dot and stem else f"{name}.{job_id}"
    return directory / alone, directory / name


@contextlib.contextmanager
def opened_regular(path: Path, owner: int | None = None) -> Iterator[int]:
    """A descriptor of a user's file, open for reading, that can neither block nor be a link.

    Raises StepReportError where it cannot be opened, is no regular file, or belongs to another
    than the user ``owner``; FileNotFoundError where there is none.
    """
    try:
        # NONBLOCK: a FIFO would hold the reader for ever.
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as error:
        why = "it is a link" if path.is_symlink() else error
        raise StepReportError(f"{path} cannot be opened: {why}") from None
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise StepReportError(f"{path} is not a regular file")
        if owner is not None and status.st_uid != owner:
            raise StepReportError(f"{path} belongs to user {status.st_uid}, not to {owner}")
        yield handle
    except OSError as error:
        raise StepReportError(f"{path} cannot be read: {reason_of(error)}") from None
    finally:
        os.close(handle)


def _read(path: Path, owner: int | None, most: int, *, end: bool) -> tuple[bytes, float] | None:
    """At most ``most`` bytes of a user's file or its ``end``, and its change in Unix seconds."""
    try:
        with opened_regular(path, owner) as handle:
            status = os.fstat(handle)
            start = max(0, status.st_size - most) if end else 0
            return read_at(handle, most, start), status.st_mtime
    except FileNotFoundError:
        return None


def read_at(handle: int, most: int, start: int) -> bytes:
    """``most`` bytes from ``start``, fewer only at the end of the file."""
    raw = b""
    while len(raw) < most and (more := os.pread(handle, most - len(raw), start + len(raw))):
        raw += more
    return raw


def _line(text: str) -> dict[str, Any] | None:
    """The fields of a line as numbers where they are some; None where it is no report."""
    _, found, rest = text.rpartition(LINE_PREFIX)
    said: dict[str, Any] = dict(_PAIR.findall(rest)) if found else {}
    if not all(name in said for name in _REQUIRED):
        return None
    with contextlib.suppress(ValueError):
        for name in said.keys() & {*_COUNTS, *_NUMBERS}:
            said[name] = int(said[name]) if name in _COUNTS else float(said[name])
        return said
    return None


def _report(said: Mapping[str, Any]) -> StepReport:
    known = {k: v for k, v in said.items() if k in StepReport.__dataclass_fields__}
    for name in known.keys() & {*_COUNTS}:
        if isinstance(known[name], float) and known[name].is_integer():
            known[name] = int(known[name])
    if missing := [name for name in _REQUIRED if name not in known]:
        raise StepReportError(f"{', '.join(missing)} missing")
    if isinstance(known.get("job_id"), int):
        known["job_id"] = str(known["job_id"])
    return StepReport(**known)


def _check(name: str, value: object, most: float, *, whole: bool) -> None:
    kinds = int if whole else int | float
    if isinstance(value, bool) or not isinstance(value, kinds) or not 0 <= value <= most:
        kind = "a whole number" if whole else "a number"
        raise StepReportError(
            f"invalid {name}={ascii(value)[:80]}; expected {kind} from 0 to {most:g}"
        )
