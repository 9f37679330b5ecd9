"""Carrying out a plan: every step noted before it is made, all of them undone when one fails."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from ..errors import InstallError
from . import disk, sample
from .processes import run, run_argv
from .records import Records
from .steps import AwaitController, AwaitDaemon, Command, MakeDirectory, Plan, Step, WriteFile

Say = Callable[[str], None]
Undo = Callable[[], None]


def carry_out(plan: Plan, records: Records, say: Say) -> Records:
    """Do all steps and return the notes on them.

    Raises InstallError where a step fails, after undoing the steps before it; what could not be
    undone is in the message.
    """
    work = _Work(records, say)
    try:
        for step in plan.steps:
            work.do(step)
    except BaseException as error:
        left = work.undo_all()
        if not isinstance(error, InstallError | OSError):
            raise
        rest = f"; by hand: {'; '.join(left)}" if left else "; all is as it was before"
        raise InstallError(f"{error}{rest}") from error
    return work.records


class _Work:
    """The steps done so far and what takes each of them back."""

    def __init__(self, records: Records, say: Say) -> None:
        self.records = records
        self._before = records
        self._say = say
        self._undo: list[tuple[str, Undo]] = []

    def do(self, step: Step) -> None:
        """Make one step."""
        self._say(title(step))
        match step:
            case WriteFile():
                self._write(step)
            case Command():
                self._run(step)
            case MakeDirectory():
                made = disk.make_directory(step.path, step.mode, step.owner)
                for path in made:
                    self._undo.append((f"remove {path}", lambda path=path: _remove(path)))  # type: ignore[misc]
            case AwaitDaemon():
                sample.wait_for_answer(step.socket, step.timeout_s)
            case AwaitController():
                _wait_for_controller(step)

    def undo_all(self) -> list[str]:
        """Take everything back, the latest first; what could not be is returned."""
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

    def _write(self, change: WriteFile) -> None:
        if disk.read(change.path) != change.before:
            raise InstallError(f"{change.path} was changed meanwhile: run this again")
        if change.restores:
            self.records = self.records.forgetting(change.path)
        else:
            self.records = self.records.noting(change)
            self.records.save()
        if change.idle:
            return
        self._undo.append((f"put back {change.path}", lambda: _put_back(change)))
        _put(change.path, change.after, change.mode)
        if change.then is not None:
            self._say(str(change.then))
            self._tolerantly(change.then)

    def _run(self, command: Command) -> None:
        if command.undo:
            undo = Command(argv=command.undo, why="undo", environment=command.environment)
            self._undo.append((str(undo), lambda: _quietly(undo)))
        self._tolerantly(command)

    def _tolerantly(self, command: Command) -> None:
        try:
            run(command)
        except InstallError as error:
            if not command.tolerant:
                raise
            self._say(f"note: {error}")


def title(step: Step) -> str:
    """One line on a step."""
    match step:
        case WriteFile(idle=True):
            return f"{step.path} is already as it was"
        case WriteFile(after=None):
            return f"remove {step.path}"
        case WriteFile() if step.after == step.before:
            return f"touch {step.path} (so that slurmctld loads the new modules)"
        case WriteFile():
            return f"{'write' if step.before is None else 'change'} {step.path}"
        case MakeDirectory():
            return f"make {step.path}" + (f" for {step.owner.name}" if step.owner else "")
        case Command():
            return f"{step}   # {step.why}"
        case AwaitDaemon():
            return f"wait for the daemon on {step.socket}"
        case AwaitController():
            return "wait until slurmctld answers"


def _put(path: Path, content: bytes | None, mode: int) -> None:
    if content is None:
        path.unlink(missing_ok=True)
    else:
        disk.put(path, content, mode=mode)


def _put_back(change: WriteFile) -> None:
    _put(change.path, change.before, change.mode)
    if change.then is not None:
        _quietly(change.then)


def _quietly(command: Command) -> None:
    """Undo as far as it goes: the command may fail because its service never ran."""
    with suppress(InstallError):
        run(command)


def _remove(path: Path) -> None:
    """Remove a directory we made, with what a command of ours put there."""
    import shutil

    shutil.rmtree(path)


def _wait_for_controller(step: AwaitController) -> None:
    until = time.monotonic() + step.timeout_s
    while True:
        try:
            reply = run_argv((step.scontrol, "ping"), environment=step.environment, timeout_s=30)
            if " is UP" in reply:
                return
            problem = reply.strip()
        except InstallError as error:
            problem = str(error)
        if time.monotonic() > until:
            raise InstallError(f"slurmctld does not answer after the change: {problem}")
        time.sleep(0.5)
