"""The changes of an installation: each is shown, made whole, and taken back where a later fails."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import suppress
from difflib import unified_diff
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

from ..errors import InstallError
from . import disk
from .processes import CommandLine, SystemUser
from .records import FileKind, FileRecord, Records

Say = Callable[[str], None]


class Changes:
    """Makes one change after the other; with ``dry_run`` only says what each would be.

    Leaving it with an error takes back all changes, the latest first, and raises InstallError
    with what could not be taken back. ``made`` counts the changes.
    """

    def __init__(self, records: Records, say: Say, *, dry_run: bool) -> None:
        self.records, self.dry_run, self.made = records, dry_run, 0
        self._before, self._say = records, say
        self._undo: list[tuple[str, Callable[[], object]]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None or not self._undo:
            return
        left = self._undone()
        if isinstance(error, InstallError | OSError):
            rest = f"by hand: {'; '.join(left)}" if left else "all is as it was before"
            raise InstallError(f"{error}; {rest}") from error

    def write(
        self,
        path: Path,
        kind: FileKind,
        before: bytes | None,
        after: bytes,
        *,
        original: bytes | None = None,
        then: CommandLine | None = None,
    ) -> None:
        """Make a file that holds ``before`` hold ``after``; None stands for no file.

        ``original`` is what uninstalling gives back where that is not ``before``. ``then`` makes
        the change known to a service, also when it is taken back.
        """
        if before == after:
            return
        self._show(f"{'write' if before is None else 'change'} {path}")
        for line in _difference(path.name, before, after) if self.dry_run else ():
            self._say(f"     {line}")
        if self.dry_run:
            self._show_command(then)
            return
        _require(path, before)
        first = before if original is None else original
        self.records = self.records.adding(path, kind, before, first, after)
        self.records.save()
        self._replace(path, before, after, then)

    def restore(
        self, record: FileRecord, now: bytes, after: bytes | None, then: CommandLine | None = None
    ) -> None:
        """Give a recorded file its former content, or remove it, and forget it."""
        self._show(f"remove {record.path}" if after is None else f"restore {record.path}")
        if self.dry_run:
            self._show_command(then)
            return
        if now != after:
            _require(record.path, now)
            self._replace(record.path, now, after, then)
        self.records = self.records.without(record.path)

    def touch(self, path: Path) -> None:
        """Give a file a new time stamp, by which slurmctld loads its modules again."""
        self._show(f"touch {path} (so that slurmctld loads the new modules)")
        if not self.dry_run:
            disk.put(path, disk.read(path) or b"")

    def make_directory(
        self, path: Path, mode: int = 0o755, owner: SystemUser | None = None
    ) -> None:
        """Make a directory; one that is there keeps its owner and mode."""
        if path.exists():
            return
        self._show(f"make {path}" + (f" for {owner.name}" if owner else ""))
        if not self.dry_run:
            for made in disk.make_directory(path, mode, owner):
                self._undo.append((f"remove {made}", partial(shutil.rmtree, made)))

    def run(self, command: CommandLine, why: str, undo: CommandLine | None = None) -> None:
        """Run a command; ``undo`` takes its effect back."""
        self._show(f"{command}   # {why}")
        if self.dry_run:
            return
        if undo is not None:
            self._undo.append((str(undo), partial(_quietly, undo)))
        command.run()

    def _show(self, line: str) -> None:
        self.made += 1
        self._say(line)

    def _show_command(self, command: CommandLine | None) -> None:
        if command is not None:
            self._say(str(command))

    def _replace(
        self, path: Path, before: bytes | None, after: bytes | None, then: CommandLine | None
    ) -> None:
        self._undo.append((f"put back {path}", partial(_put_back, path, before, then)))
        _put(path, after)
        if then is not None:
            self._show_command(then)
            then.run()

    def _undone(self) -> list[str]:
        """Take everything back; what could not be is returned."""
        left = []
        for what, undo in reversed(self._undo):
            self._say(f"undoing: {what}")
            try:
                undo()
            except (InstallError, OSError) as error:
                left.append(f"{what} ({error})")
        with suppress(InstallError, OSError):
            self._before.save()
        return left


def _require(path: Path, content: bytes | None) -> None:
    if disk.read(path) != content:
        raise InstallError(f"{path} was changed meanwhile: run this again")


def _put(path: Path, content: bytes | None) -> None:
    if content is None:
        path.unlink(missing_ok=True)
    else:
        disk.put(path, content)


def _put_back(path: Path, content: bytes | None, then: CommandLine | None) -> None:
    _put(path, content)
    if then is not None:
        _quietly(then)


def _quietly(command: CommandLine) -> None:
    """Undo as far as it goes: the command may fail because its service never ran."""
    with suppress(InstallError):
        command.run()


def _difference(name: str, before: bytes | None, after: bytes) -> list[str]:
    """A unified diff; of a new file only how long it is."""
    new = after.decode(errors="replace").splitlines()
    if before is None:
        return [f"{len(new)} lines"]
    old = before.decode(errors="replace").splitlines()
    return list(unified_diff(old, new, f"{name} now", f"{name} then", n=2, lineterm=""))
