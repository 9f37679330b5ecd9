"""Limits the daemon changes itself after a user has modified a job."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest
from daemon_process import START_S, running
from daemon_stand_in import Change

from slurm_plugin.config import Slurm
from slurm_plugin.daemon.follow_ups import Followed, FollowUps

MARK = "precision-time v=1 job: model='a b' $(touch hacked); `id`"
# Say what was asked for, in the way of Slurm's programs; a line of the file `jobs` is one record.
SQUEUE = '#!/bin/sh\ncat "$(dirname "$0")/jobs"\n'
SCONTROL = """#!/bin/sh
here="$(dirname "$0")"
for word in "$@"; do printf '%s\\n' "$word" >> "$here/asked"; done
if [ -e "$here/refuse" ]; then rm "$here/refuse"; echo "Socket timed out" >&2; exit 1; fi
"""


@dataclass
class Commands:
    """Programs in the place of Slurm's, run as they would be."""

    directory: Path

    def jobs(self, *lines: str) -> None:
        (self.directory / "jobs").write_text("".join(f"{line}\n" for line in lines))

    def refuse_once(self) -> None:
        (self.directory / "refuse").touch()

    @property
    def asked(self) -> list[str]:
        path = self.directory / "asked"
        return path.read_text().splitlines() if path.exists() else []


@pytest.fixture
def commands(tmp_path: Path) -> Commands:
    directory = tmp_path / "bin"
    directory.mkdir()
    for name, text in (("squeue", SQUEUE), ("scontrol", SCONTROL)):
        (directory / name).write_text(text)
        (directory / name).chmod(0o755)
    return Commands(directory)


@pytest.fixture
def followed(commands: Commands) -> Iterator[Callable[[Change], Followed]]:
    """Carries out one change, and says what became of it."""
    queue: SimpleQueue[Any] = SimpleQueue()
    told: SimpleQueue[Followed] = SimpleQueue()
    workers = FollowUps(queue, Slurm(bin_dir=commands.directory), told.put)

    def follow(change: Change) -> Followed:
        queue.put(change)
        return told.get(timeout=START_S)

    yield follow
    workers.close()


def test_a_pending_job_with_the_old_limit_gets_the_new_one(
    commands: Commands, followed: Callable[[Change], Followed]
) -> None:
    commands.jobs("PENDING 3:55:00")
    assert followed(Change(17, 235, 500, MARK)) is Followed.CHANGED
    assert commands.asked == [
        "update",
        "jobid=17",
        "timelimit=500",
        "update",
        "jobid=17",
        f"admincomment={MARK}",
    ]
    assert not list(Path.cwd().glob("hacked"))


@pytest.mark.parametrize(
    "records",
    [
        ("RUNNING 3:55:00",),
        ("PENDING 4:00:00",),
        ("PENDING UNLIMITED",),
        ("PENDING 3:55:00", "RUNNING 3:55:00"),
        (),
    ],
)
def test_a_job_that_is_no_longer_as_it_was_is_left_alone(
    commands: Commands, followed: Callable[[Change], Followed], records: tuple[str, ...]
) -> None:
    commands.jobs(*records)
    assert followed(Change(17, 235, 500, MARK)) is Followed.LEFT
    assert commands.asked == []


def test_an_array_that_still_waits_is_changed_as_a_whole(
    commands: Commands, followed: Callable[[Change], Followed]
) -> None:
    commands.jobs("PENDING 3:55:00", "PENDING 3:55:00")
    assert followed(Change(17, 235, 500, MARK)) is Followed.CHANGED


def test_what_slurm_refuses_for_a_moment_is_tried_again(
    commands: Commands, followed: Callable[[Change], Followed]
) -> None:
    commands.jobs("PENDING 3:55:00")
    commands.refuse_once()
    assert followed(Change(17, 235, 500, MARK)) is Followed.CHANGED


def test_what_slurm_refuses_for_good_is_given_up(
    tmp_path: Path, commands: Commands, followed: Callable[[Change], Followed]
) -> None:
    (commands.directory / "squeue").unlink()
    assert followed(Change(17, 235, 500, MARK)) is Followed.FAILED


def test_the_daemon_carries_out_what_its_decider_asks_for_also_after_a_reload(
    tmp_path: Path, commands: Commands
) -> None:
    commands.jobs("PENDING 1:00:00")
    slurm = {"bin_dir": str(commands.directory)}
    with running(tmp_path / "run", slurm=slurm) as daemon:
        daemon.ask("follow=17:60:90")
        _until(lambda: "timelimit=90" in commands.asked)
        daemon.process.send_signal(1)
        daemon.wait_for_event(lambda e: e["event"].startswith("reloaded"))
        daemon.ask("follow=18:60:120")
        _until(lambda: "timelimit=120" in commands.asked)


def _until(done: Callable[[], bool]) -> None:
    latest = time.monotonic() + START_S
    while not done():
        assert time.monotonic() < latest
        time.sleep(0.05)
