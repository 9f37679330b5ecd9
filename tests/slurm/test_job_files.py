"""Files of a job's work directory: read as the user could, and never waited for."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from clusters import submit

from slurm_plugin import job_files
from slurm_plugin.job_files import JobFiles, TimedReads, owned_text

Decide = Any
UID = os.geteuid()
YAML = "model: resnet50\nbatch_size: 256\nmax_steps: 90000\namp: true\n"
STATED = "model=resnet50 batch_size=256 steps=90000 precision=amp"
SCRIPT = "#!/bin/bash\n#SBATCH --gpus=4\nsrun python train.py --config conf.yaml\n"


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "work" / "sub").mkdir(parents=True)
    (tmp_path / "work" / "conf.yaml").write_text(YAML)
    (tmp_path / "work" / "sub" / "a.yaml").write_text("a: 1\n")
    (tmp_path / "outside.yaml").write_text("secret: 1\n")
    return tmp_path / "work"


def read(work: Path, path: str, uid: int = UID, within_s: float = 5.0) -> str | None:
    return JobFiles(TimedReads(), str(work), uid, within_s).read(path)


@pytest.mark.parametrize("path", ["conf.yaml", "./conf.yaml", "sub/../conf.yaml"])
def test_a_file_of_the_user_below_the_work_directory_is_read(work: Path, path: str) -> None:
    assert read(work, path) == YAML
    assert read(work, str(work / path)) == YAML
    assert read(work, "sub/a.yaml") == "a: 1\n"


@pytest.mark.parametrize(
    "path",
    [
        "../outside.yaml",
        "sub/../../outside.yaml",
        "/etc/hostname",
        "",
        ".",
        "sub",
        "a\0b",
        "no.yaml",
        "conf.yaml/x",
        "x" * 5000,
    ],
)
def test_nothing_else_is(work: Path, path: str) -> None:
    assert read(work, path) is None


def test_no_link_is_followed(work: Path) -> None:
    (work / "link.yaml").symlink_to("conf.yaml")
    (work / "up").symlink_to("..")
    (work / "way").symlink_to("sub")
    for path in ("link.yaml", "up/outside.yaml", "way/a.yaml"):
        assert read(work, path) is None


def test_no_pipe_and_no_device_is_opened_for_long(work: Path) -> None:
    os.mkfifo(work / "pipe.yaml")
    began = time.monotonic()
    assert read(work, "pipe.yaml") is None
    assert JobFiles(TimedReads(), "/dev", UID, 5.0).read("zero") is None
    assert time.monotonic() - began < 4


def test_a_large_file_is_not_read(work: Path) -> None:
    (work / "large.yaml").write_text("a: 1\n" * 20_000)
    assert read(work, "large.yaml") is None


@pytest.mark.skipif(UID != 0, reason="only root can give files away")
def test_the_owner_is_the_user_or_root_for_everyone(work: Path) -> None:
    file = work / "conf.yaml"
    for owner, mode, uid, may in (
        (4711, 0o600, 4711, True),
        (4711, 0o644, 4712, False),
        (0, 0o644, 4711, True),
        (0, 0o640, 4711, False),
        (4712, 0o777, 4711, False),
    ):
        os.chown(file, owner, -1)
        file.chmod(mode)
        assert (owned_text(str(work), "conf.yaml", uid) is not None) == may, (owner, mode, uid)


@pytest.fixture
def hanging(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """A file system that answers no sooner than the event is set."""
    back = threading.Event()

    def hang(*_: object) -> str:
        back.wait(30)
        return YAML

    monkeypatch.setattr(job_files, "owned_text", hang)
    yield back
    back.set()


def test_a_file_system_that_hangs_holds_up_one_thread(work: Path, hanging: threading.Event) -> None:
    reads, before = TimedReads(), threading.active_count()
    began = time.monotonic()
    for _ in range(100):
        assert JobFiles(reads, str(work), UID, 0.05).read("conf.yaml") is None
    assert time.monotonic() - began < 2
    assert threading.active_count() == before + 1
    hanging.set()
    text, until = None, time.monotonic() + 10
    while text is None and time.monotonic() < until:
        text = JobFiles(reads, str(work), UID, 5.0).read("conf.yaml")
    assert text == YAML


def test_the_switch_is_off_and_then_reads(decider: Decide, work: Path) -> None:
    asked = submit(script=SCRIPT, work_dir=str(work), uid=UID, comment=None, argv=("job.sh",))
    off, on = decider(), decider(identify={"config_files": True, "config_files_ms": 5000.0})
    assert "conf.yaml is not read" in (off.decide(asked).message or "")
    stated = submit(comment=STATED)
    answer = on.decide(asked)
    assert answer.time_limit == off.decide(stated).time_limit
    (work / "conf.yaml").write_text(YAML.replace("90", "45"))
    assert (on.decide(asked).time_limit or 0) < (answer.time_limit or 0)


def test_a_hanging_file_is_a_file_that_is_not_read(
    decider: Decide, work: Path, hanging: threading.Event
) -> None:
    asked = submit(script=SCRIPT, work_dir=str(work), uid=UID, comment=None, argv=("job.sh",))
    answer = decider(identify={"config_files": True}).decide(asked)
    assert "conf.yaml is not read" in (answer.message or "")
    assert answer.time_limit is None


def test_phases_make_the_limit_of_their_sum(decider: Decide) -> None:
    deciding = decider()
    text = "model=bert-large precision=amp batch=16 "
    phased = submit(comment=text + 'phases="steps=7000,seq=128;steps=1500,seq=512,batch=8"')
    first = submit(comment=text + "steps=7000 seq=128")
    answer = deciding.decide(phased)
    assert (answer.time_limit or 0) > (deciding.decide(first).time_limit or 0)
    assert "phases=" in (answer.admin_comment or "")
    broken = submit(comment=text + 'phases="share=0.5;share=0.4" steps=100')
    assert "add up to 1" in (deciding.decide(broken).message or "")
