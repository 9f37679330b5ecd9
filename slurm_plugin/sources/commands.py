"""Slurm's commands, run without a shell, in a known locale, time zone and time format."""

from __future__ import annotations

import codecs
import os
import re
import secrets
import select
import shlex
import shutil
import subprocess
import time
from collections.abc import Generator, Iterable, Iterator, Sequence
from pathlib import Path

from ..config import Slurm
from ..errors import SourceError


def new_mark() -> str:
    """A separator of 20 characters that Slurm's format options take as it is."""
    return f"~~{secrets.token_hex(8)}~~"


def rows(chunks: Iterable[bytes], mark: str, fields: Sequence[str]) -> Iterator[dict[str, str]]:
    """The rows, streamed, by field; raises SourceError where the last one is cut off.

    Bytes that are not UTF-8 become U+FFFD.
    """
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    width, rest, values = len(fields), "", list[str]()
    for chunk in chunks:
        *whole, rest = (rest + decoder.decode(chunk)).split(mark)
        values += whole
        for start in range(0, len(values) - width + 1, width):
            row = values[start : start + width]
            row[0] = row[0].removeprefix("\n")  # what ended the row before
            yield dict(zip(fields, row, strict=True))
        del values[: len(values) - len(values) % width]
    rest += decoder.decode(b"", True)
    if values or rest.strip():
        raise SourceError(f"a row ends after {len(values)} of {width} fields")


MAX_BYTES = 1 << 30  # 20,000 jobs of 25.11 are about 200 MB of JSON
_CHUNK_BYTES = 1 << 16
_SHOWN = 80
# Settings of the caller that change what the commands print, and those that say which Slurm it is
_PERSONAL = re.compile(r"(SLURM|SQUEUE|SINFO|SACCT|SCONTROL|SACCTMGR)_")
_NEEDED = frozenset({"SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_JWT"})
# Times in Unix seconds, times given in UTC, and task lists of arrays in full length
_FIXED = {"LC_ALL": "C", "TZ": "UTC", "SLURM_TIME_FORMAT": "%s", "SLURM_BITSTR_LEN": "0"}


class Commands:
    """Runs Slurm's commands from ``bin_dir``, or from PATH.

    ``timeout_s`` is how long one may be waited for, until its last byte and its end; ``conf`` the
    slurm.conf they go by, None for that of the process.
    """

    def __init__(
        self, bin_dir: Path | None = None, timeout_s: float = 20.0, conf: Path | None = None
    ) -> None:
        self.bin_dir = bin_dir
        self.timeout_s = timeout_s
        self._conf = {} if conf is None else {"SLURM_CONF": str(conf)}

    @classmethod
    def of(cls, policy: Slurm, conf: Path | None = None) -> Commands:
        """Those the policy names."""
        return cls(policy.bin_dir, policy.command_timeout_s, conf)

    def text(self, *argv: str) -> str:
        """All a command prints; raises SourceError naming it, its exit status and its error.

        Bytes that are not UTF-8 become U+FFFD.
        """
        output = bytearray()
        for chunk in self.stream(*argv):
            output += chunk
            if len(output) > MAX_BYTES:
                raise SourceError(f"{_shown(argv)} printed more than {MAX_BYTES} bytes")
        return output.decode("utf-8", "replace")

    def feed(self, text: str, *argv: str) -> int:
        """Run a command with a text as its input; its exit status. Raises SourceError."""
        try:
            done = subprocess.run(
                [self._program(argv[0]), *argv[1:]],
                input=text.encode(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=_environment(self._conf),
                timeout=self.timeout_s,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise SourceError(f"{_shown(argv)} failed: {error}") from None
        return done.returncode

    def stream(self, *argv: str, timeout_s: float | None = None) -> Generator[bytes, None, None]:
        """What a command prints, piece by piece; raises SourceError as ``text`` does.

        A reader that stops early ends the command. What the reader does between two pieces does
        not count as time of the command.
        """
        limit_s = self.timeout_s if timeout_s is None else timeout_s
        program = self._program(argv[0])
        with open(os.memfd_create("errors"), "w+b") as errors:  # no disk that may be full
            try:
                process = subprocess.Popen(
                    [program, *argv[1:]],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    env=_environment(self._conf),
                )
            except OSError as error:
                raise SourceError(f"{program} cannot be run: {error.strerror}") from None
            with process:
                try:
                    left_s = yield from _pieces(process, limit_s)
                    status = process.wait(left_s)
                except subprocess.TimeoutExpired:
                    raise SourceError(f"{_shown(argv)} did not end within {limit_s:g} s") from None
                finally:
                    process.kill()
            if status:
                errors.seek(0)
                printed = errors.read(_CHUNK_BYTES).decode("utf-8", "replace").splitlines()
                told = next((line.strip() for line in printed if line.strip()), "no message")
                raise SourceError(f"{_shown(argv)} failed with exit status {status}: {told}")

    def _program(self, name: str) -> str:
        place = os.environ.get("PATH", os.defpath) if self.bin_dir is None else str(self.bin_dir)
        found = shutil.which(name, path=place)
        if found is None:
            where = "PATH" if self.bin_dir is None else f"slurm.bin_dir={place}"
            raise SourceError(
                f"{name} is not in {where}: slurm.bin_dir of the policy names the directory of "
                f"Slurm's commands"
            )
        return found


def _pieces(process: subprocess.Popen[bytes], limit_s: float) -> Generator[bytes, None, float]:
    """All pieces; the seconds that are left then. Raises TimeoutExpired where none are."""
    assert process.stdout is not None
    handle, ready = process.stdout.fileno(), select.poll()
    ready.register(handle, select.POLLIN)
    left_s = limit_s
    while True:
        began_s = time.monotonic()
        if left_s <= 0 or not ready.poll(left_s * 1000):
            raise subprocess.TimeoutExpired(process.args, limit_s)
        piece = os.read(handle, _CHUNK_BYTES)
        left_s -= time.monotonic() - began_s
        if not piece:
            return max(0.0, left_s)
        yield piece


def _environment(own: dict[str, str]) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if k in _NEEDED or not _PERSONAL.match(k)}
    return kept | _FIXED | own


def _shown(argv: tuple[str, ...]) -> str:
    text = shlex.join(argv)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
