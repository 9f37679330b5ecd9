"""Files of users are read with bounds and without their rights over root; the command tells it."""

from __future__ import annotations

import io
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from streams import BEGAN, mmengine, tqdm_epochs

from predictor.cli.main import main
from predictor.errors import StepReportError
from predictor.site.progress import reader
from predictor.site.progress.marks import mark_of
from predictor.site.progress.reader import (
    HEAD_BYTES,
    MAX_CHARS,
    TAIL_BYTES,
    ProgressKind,
    lines_of,
    read_bytes,
    read_file,
    read_lines,
    read_stream,
)
from predictor.site.step_rate import StepReport

NOBODY = 65534


def run(*words: str, code: int = 0, given: bytes = b"") -> Result:
    result = CliRunner().invoke(main, ["progress", *words], input=given)
    assert result.exit_code == code, result.output
    return result


def written(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_the_command_tells_what_scripts_and_people_ask(tmp_path: Path) -> None:
    path = written(tmp_path / "slurm-1.out", mmengine().text)
    told = json.loads(run(str(path), "--format", "json").stdout)
    assert list(told) == [
        "kind",
        "unit",
        "at",
        "total",
        "seconds_per_unit",
        "remaining_s",
        "confidence",
    ]
    assert (told["kind"], told["unit"], told["at"], told["total"]) == (
        "training",
        "step",
        3000,
        40000,
    )
    shown = run(str(path)).stdout
    assert "3,000 of 40,000" in shown
    assert "remaining" in shown
    assert json.loads(run("-", "--format", "json", given=path.read_bytes()).stdout) == told


def test_an_epoch_has_its_article() -> None:
    assert "time an epoch" in run("-", given=b"Epoch 3/10\nEpoch 4/10\n").stdout


def test_without_progress_everything_else_is_null(tmp_path: Path) -> None:
    told = json.loads(run(str(written(tmp_path / "a", "hello\n")), "--format", "json").stdout)
    assert told.pop("kind") == "none"
    assert set(told.values()) == {None}


def test_the_line_of_our_own_callbacks_goes_before_all(tmp_path: Path) -> None:
    report = StepReport(step=1200, total_steps=5000, step_s=0.25)
    found = read_file(written(tmp_path / "a", mmengine().text + report.line() + "\n"))
    assert (found.at, found.total, found.remaining_s) == (1200, 5000, 950.0)


def test_a_file_of_gigabytes_is_read_at_its_two_ends(tmp_path: Path) -> None:
    path = tmp_path / "huge.out"
    with path.open("wb") as file:
        file.write(b"max_epochs=7\n")
        file.seek(3 * 2**30)  # a hole: nothing is written
        file.write(b"\n" + tqdm_epochs().text.encode())
    assert read_file(path).seconds_per_unit == pytest.approx(0.4, rel=0.1)


def test_a_length_that_was_stated_elsewhere_counts_unless_the_output_states_another(
    tmp_path: Path,
) -> None:
    lines = [f"Epoch: [{n // 9}][{n % 9 + 1}/9]\tTime 2.0 (2.0)\tLoss 0.3" for n in range(20)]
    path = written(tmp_path / "out", "\n".join(lines) + "\n")
    assert read_file(path).total is None
    assert read_file(path, stated="total_epochs=90").total == 90 * 9
    assert read_file(path, stated="total_steps=90").total is None
    path = written(path, "epochs: 30\n" + path.read_text())
    assert read_file(path).total == 30 * 9
    assert read_file(path, stated="total_epochs=30").total == 30 * 9
    assert read_file(path, stated="total_epochs=90").total is None


def test_a_stream_is_kept_at_its_two_ends() -> None:
    text = mmengine().text.encode()
    found = read_stream(io.BytesIO(b"x\n" * 2**20 + text))
    assert found == read_bytes(b"", text)


def test_a_link_a_fifo_and_a_directory_are_refused(tmp_path: Path) -> None:
    target = written(tmp_path / "a.out", mmengine().text)
    (tmp_path / "link").symlink_to(target)
    os.mkfifo(tmp_path / "fifo")
    for name in ("link cannot be opened: it is a link", "fifo", ".", "none"):
        with pytest.raises(StepReportError, match=name):
            read_file(tmp_path / name.partition(" ")[0])


def test_a_file_of_another_user_than_the_job_s_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "a.out", mmengine().text)
    with pytest.raises(StepReportError, match="belongs to user"):
        read_file(path, owner=NOBODY)


def test_root_does_not_read_the_file_of_a_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path / "a.out", mmengine().text)
    if os.geteuid() == 0:
        os.chown(path, NOBODY, NOBODY)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 0)
    with pytest.raises(StepReportError, match="root does not read it"):
        read_file(path)


def test_as_root_the_command_goes_on_as_the_owner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path / "a.out", mmengine().text)
    if os.geteuid() == 0:
        os.chown(path, NOBODY, NOBODY)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    calls: list[list[str]] = []

    def replaced(program: str, words: list[str]) -> None:
        calls.append(words)
        raise OSError("stand-in")

    monkeypatch.setattr(os, "execvp", replaced)
    failed = run(str(path), code=2)
    assert "belongs to user" in failed.stderr
    owner = path.stat()
    assert calls[0][:4] == [
        "setpriv",
        f"--reuid={owner.st_uid}",
        f"--regid={owner.st_gid}",
        "--clear-groups",
    ]


def test_lines_are_bounded_and_free_of_controls() -> None:
    raw = b"\x00\x1b[31ma\x1b[0m\r\nb\x08\x08c\n" + b"y" * 10**6 + b"\n\x1b]0;title\x07d"
    found = list(lines_of(raw))
    assert found[:3] == ["a", "b", "c"]
    assert found[-1] == "d"
    assert max(map(len, found)) <= MAX_CHARS


def test_lines_of_binary_noise_are_dropped() -> None:
    raw = random.Random(7).randbytes(2**18) + b"\nstep 3/9 loss 0.5\n"
    found = list(lines_of(raw))
    assert found[-1] == "step 3/9 loss 0.5"
    assert sum(map(len, found)) < 0.1 * len(raw)


@pytest.mark.parametrize(
    "text",
    ["1" * 1200, "[" * 1200, "epoch " * 200, "1/1" * 400, "a=1 " * 300, "12:" * 400, "time " * 240],
)
def test_no_line_takes_long(text: str) -> None:
    """A pattern that backtracks would take hours here, and this test would not end."""
    found = read_bytes(b"", "\n".join([text + " loss"] * 50).encode())
    assert found.seconds_per_unit is None


def test_follow_tells_again_when_the_file_grows(tmp_path: Path) -> None:
    path = written(tmp_path / "a.out", "epoch 1/10 loss 3 time 4s\nepoch 2/10 loss 2 time 4s\n")
    program = "from predictor.cli import main, progress; progress.EVERY_S = 0.05; main.main()"
    with subprocess.Popen(
        [sys.executable, "-c", program, "progress", str(path), "--follow"],
        stdout=subprocess.PIPE,
        text=True,
    ) as following:
        assert following.stdout is not None
        first = [following.stdout.readline() for _ in range(5)]
        with path.open("a") as file:
            file.write("epoch 3/10 loss 1 time 4s\n")
        second = [following.stdout.readline() for _ in range(5)]
        following.terminate()
        assert following.wait() == 0
    assert "2 of 10" in first[1]
    assert "3 of 10" in second[1]


@pytest.fixture
def following(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """``progress --follow --format json`` on ``job.out``, which is in its second epoch of ten."""
    path = written(tmp_path / "job.out", EPOCHS)
    program = "from predictor.cli import main, progress; progress.EVERY_S = 0.05; main.main()"
    with subprocess.Popen(
        [sys.executable, "-c", program, "progress", str(path), "--follow", "--format", "json"],
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert next_of(process)["at"] == 2
        yield process
        process.kill()


EPOCHS = "epoch 1/10 loss 3 time 4s\nepoch 2/10 loss 2 time 4s\n"


def next_of(process: subprocess.Popen[str]) -> dict[str, object]:
    """The next line of output."""
    assert process.stdout is not None
    found = json.loads(process.stdout.readline())
    assert isinstance(found, dict)
    return found


def test_follow_goes_on_with_the_file_that_takes_the_place_of_a_rotated_one(
    following: subprocess.Popen[str], tmp_path: Path
) -> None:
    path = tmp_path / "job.out"
    path.rename(tmp_path / "job.out.1")
    time.sleep(0.3)
    path.symlink_to("job.out.1")
    time.sleep(0.3)  # nobody follows a link
    written(tmp_path / "new", EPOCHS.replace("4s", "8s")).replace(path)
    assert next_of(following)["seconds_per_unit"] == 8
    following.send_signal(signal.SIGINT)
    assert following.wait() == 0


def test_follow_sees_a_file_that_is_cut_and_a_job_that_begins_anew(
    following: subprocess.Popen[str], tmp_path: Path
) -> None:
    path = tmp_path / "job.out"
    written(path, "")
    assert next_of(following)["kind"] == "none"
    steps = [f"\r{n}%|#| {n}/100 [00:{n * 2:02d}<02:00,  2.00s/it, loss=0.3]" for n in range(1, 26)]
    for end in (20, 25, 8):  # the last of them from its begin again
        with path.open("a") as file:
            file.write("".join(steps[:end]))
        found = next_of(following)
        assert (found["at"], found["seconds_per_unit"]) == (end, 2)


def test_what_is_looked_at_is_bounded() -> None:
    assert reader.HEAD_BYTES + reader.FAR_TAIL_BYTES <= 8 * 2**20


def test_a_line_of_ten_megabytes_is_looked_at_in_its_ends_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    marking = reader.mark_of

    def counted(text: str, line: int) -> object:
        seen.append(len(text))
        return marking(text, line)

    monkeypatch.setattr(reader, "mark_of", counted)
    for unit in ("1", "[1/2", "epoch 1 loss ", "((((((1,"):
        seen.clear()
        read_file(written(tmp_path / "long", unit * (10 * 2**20 // len(unit)) + "\n"))
        assert sum(seen) <= 2 * MAX_CHARS  # the file's own tail, and the far one


HOSTILE_UNITS = [
    "1",
    "1,234",
    "[1/2][",
    "epoch 1 ",
    "1:02:03",
    "time 1 ( ",
    "step step step ",
    "a=1 ",
    "1/2 [1:02<",
    "3 days, 1:02:03 ",
    "((([[[",
    "loss ",
]


@pytest.mark.parametrize("unit", HOSTILE_UNITS)
def test_twice_the_line_is_not_many_times_the_work(unit: str) -> None:
    """A pattern that backtracks over itself takes far more than the square."""
    half, whole = (
        _least_s(lambda n=n: [mark_of((unit * MAX_CHARS)[:n] + " loss", 0) for _ in range(8)])
        for n in (MAX_CHARS // 2, MAX_CHARS)
    )
    assert whole < 6 * half


def test_twice_the_lines_are_about_twice_the_work() -> None:
    """Each statement prints two lines, with losses and epochs between: as many as there can be."""

    def text(lines: int) -> list[str]:
        return [
            line
            for n in range(lines)
            for name in [f"{chr(97 + n % 26)}{chr(97 + n // 26 % 26)}{chr(97 + n // 676)}"]
            for line in (f"{name} step {n}/9000 loss 0.1", f"Epoch {n}", f"{name} step {n}: loss 1")
        ]

    half, whole = (_least_s(lambda n=n: read_lines(text(n))) for n in (300, 600))
    assert whole < 3.2 * half


def test_far_noise_costs_hardly_more_than_near_noise(tmp_path: Path) -> None:
    """Where the last quarter of a megabyte says nothing, more is looked at for counters alone."""
    noise = bytes(random.Random(3).choices(b"0123456789/ :[]%\n", k=TAIL_BYTES + HEAD_BYTES))
    near = _least_s(lambda: read_bytes(noise[:HEAD_BYTES], noise[:TAIL_BYTES], whole=False), 1)
    path = tmp_path / "noise"
    path.write_bytes(noise * 16)
    assert _least_s(lambda: read_file(path), 1) < 4 * near


def test_a_counter_long_before_the_end_is_found(tmp_path: Path) -> None:
    other = "".join(f"{n} {chr(97 + n % 26)} was seen\n" for n in range(30_000))
    steps = [f"step {n}/1000 loss 0.3 step_time 0.50s\n" for n in (10, 20, 30)]
    found = read_file(written(tmp_path / "a.out", other + "".join(steps) + other))
    assert (found.kind, found.seconds_per_unit) == (ProgressKind.TRAINING, None)


def _least_s(work: Callable[[], object], runs: int = 3) -> float:
    """The shortest processor time of some runs."""
    taken = []
    for _ in range(runs):
        began_s = time.process_time()
        work()
        taken.append(time.process_time() - began_s)
    return min(taken)


def test_an_epoch_whose_begin_was_not_read_tells_no_rate(tmp_path: Path) -> None:
    lines = []
    for n in range(10_500):  # 4,000 of 10 s an epoch, of which the end is read
        stamp = (BEGAN + timedelta(seconds=10 * n)).isoformat(" ")
        lines.append(f"{stamp} New octant at ({n % 4000}) in epoch {n // 4000}/9, loss 1.{n}\n")
    (tmp_path / "log").write_text("".join(lines))
    assert read_file(tmp_path / "log").seconds_per_unit is None
