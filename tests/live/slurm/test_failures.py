"""Whatever becomes of the daemon, jobs are queued: unchanged, at once, and slurmctld stays up."""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

import fake_daemon
import pytest

from predictor.estimate.fitting import Fitted
from slurm_plugin.protocol import HookAnswer

from .cluster import SlurmCluster
from .daemon import PATIENT, DecisionDaemon, install_hook
from .installation import Installation
from .job_records import Submitted
from .processes import BenchError
from .tables import Bench, NodeSpec, PartitionSpec

JOB = (
    "--hold",
    "--gres=gpu:a100:1",
    "--comment=model=resnet50 precision=amp epochs=3 samples=1281167 batch=256",
)
DEFAULT = "1-00:00:00"
TIMEOUT_S, FIRST_MAX_S = 0.3, 3.0  # of the hook, longer than as shipped: for a busy machine
RECOVERY_S = 60.0
ONE_MB = 1 << 20
SLURM_USER = "daemon"  # an account every Linux has; Slurm takes no "nobody"
GOOD = HookAnswer(log="reason=set", time_limit=77)
GOOD_LINE = GOOD.encode()
_OUTCOME = re.compile(r"precision-time: submit .* outcome=(\w+) us=(\d+)")
SMALL = Bench(
    nodes=(NodeSpec("a1", "a100", 4),),
    partitions=(PartitionSpec("gpu", ("a1",), default=True, default_min=1440),),
    accounting=False,
    lines=("SlurmctldDebug=debug",),
)

Place = Callable[[Path], AbstractContextManager[object]]


@dataclass(frozen=True, slots=True)
class Asked:
    """What the hook reported of one job."""

    outcome: str
    elapsed_s: float


@pytest.fixture
def socket(bench: SlurmCluster) -> Iterator[Path]:
    """The path of a socket that the hook of this test asks; its reports reach slurmctld's log."""
    bench.run("scontrol", "setdebug", "debug")
    directory = bench.root / "socket"
    directory.mkdir(exist_ok=True)
    path = directory / "slurm.sock"
    install_hook(bench, path, breaker_s=60.0, **PATIENT)
    yield path
    bench.run("scontrol", "setdebug", "info")


def _submit(cluster: SlurmCluster, user: str | None, count: int = 1) -> list[Submitted]:
    return [cluster.submit(*JOB, user=user) for _ in range(count)]


def _asked(cluster: SlurmCluster, last: int) -> list[Asked]:
    found = _OUTCOME.findall(cluster.log())[-last:]
    return [Asked(outcome, int(us) / 1e6) for outcome, us in found]


def _limit(cluster: SlurmCluster, queued: Submitted) -> str:
    return cluster.job(queued.job_id)["TimeLimit"]


def _says(answer: bytes) -> Place:
    return lambda path: fake_daemon.daemon(path, answer)


@contextmanager
def _hangs(path: Path) -> Iterator[None]:
    release = threading.Event()
    with fake_daemon.daemon(path, fake_daemon.waits(release)):
        yield
        release.set()


@contextmanager
def _file(path: Path) -> Iterator[None]:
    path.write_text("no socket")
    yield
    path.unlink()


FAULTS: dict[str, Place] = {
    "socket missing": nullcontext,
    "a file in its place": _file,
    "accepts nothing": fake_daemon.stopped,
    "reads and hangs": _hangs,
    "a byte every 10 ms": lambda path: fake_daemon.daemon(path, fake_daemon.trickles(GOOD_LINE)),
}
WRONG: dict[str, Place] = {
    "closes at once": _says(b""),
    "half an answer": _says(GOOD_LINE[: len(GOOD_LINE) // 2]),
    "garbage": _says(bytes(range(256)) * 4),
    "another version": _says(GOOD_LINE.replace(b"v=1", b"v=99")),
    "1 MB without an end": _says(b"x" * ONE_MB),
    "1 MB of good answers": _says(GOOD_LINE * (ONE_MB // len(GOOD_LINE))),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_jobs_pass_unchanged_and_only_the_first_one_waits(
    bench: SlurmCluster, socket: Path, user: str | None, fault: str
) -> None:
    install_hook(bench, socket, timeout=TIMEOUT_S, cache_s=0.0, breaker_s=60.0)
    with FAULTS[fault](socket):
        queued = _submit(bench, user, 4)
    first, *later = _asked(bench, 4)
    assert [_limit(bench, job) for job in queued] == [DEFAULT] * 4
    assert [job.messages for job in queued] == [()] * 4
    assert first.outcome == "miss"
    assert first.elapsed_s < FIRST_MAX_S
    assert [asked.outcome for asked in later] == ["paused"] * 3
    assert bench.log().count("next try in 60 s") >= 1


@pytest.mark.parametrize("fault", WRONG)
def test_a_wrong_answer_of_a_living_daemon_changes_nothing_and_the_next_job_is_asked_about(
    bench: SlurmCluster, socket: Path, user: str | None, fault: str
) -> None:
    with WRONG[fault](socket):
        queued = _submit(bench, user, 3)
    asked = _asked(bench, 3)
    assert [_limit(bench, job) for job in queued] == [DEFAULT] * 3
    assert [one.outcome for one in asked] == ["miss"] * 3
    assert "jobs pass unchanged" in bench.log()
    with fake_daemon.daemon(socket, GOOD):
        (allowed,) = _submit(bench, user)
    assert _limit(bench, allowed) == "01:17:00"


@pytest.mark.parametrize(
    ("own", "answer"),
    [
        ((), {"time_limit": 10**9}),
        ((), {"time_limit": 10**30}),
        ((), {"partition": "nonesuch"}),
        (("--constraint=ampere",), {"features": "volta"}),
        (("--time=1440",), {"time_limit": 77}),
    ],
)
def test_an_answer_that_contradicts_the_job_or_the_partition_changes_nothing(
    bench: SlurmCluster,
    socket: Path,
    user: str | None,
    own: tuple[str, ...],
    answer: dict[str, object],
) -> None:
    with fake_daemon.daemon(socket, HookAnswer(log="reason=wrong", **answer)):  # type: ignore[arg-type]
        queued = bench.submit(*JOB, *own, user=user)
    job = bench.job(queued.job_id)
    assert job["TimeLimit"] == DEFAULT
    assert job["Partition"] == "gpu"
    assert job["Features"] == ("ampere" if own == ("--constraint=ampere",) else "(null)")


def test_a_daemon_that_dies_is_missed_and_taken_up_again_by_itself(
    bench: SlurmCluster, fitted: Fitted, session_home: Path, user: str | None
) -> None:
    with DecisionDaemon(bench, session_home) as daemon:
        install_hook(bench, daemon.socket, breaker_s=1.0, cache_s=0.0)
        _wait_for_limit(bench, user)
        daemon.kill()
        assert [_limit(bench, job) for job in _submit(bench, user, 3)] == [DEFAULT] * 3
        daemon.start()
        _wait_for_limit(bench, user)
    assert "the daemon answers again" in bench.log()


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGABRT, signal.SIGKILL])
def test_a_crash_of_what_decides_is_survived_without_help(
    bench: SlurmCluster,
    fitted: Fitted,
    session_home: Path,
    user: str | None,
    number: signal.Signals,
) -> None:
    with DecisionDaemon(bench, session_home) as daemon:
        install_hook(bench, daemon.socket, breaker_s=1.0, cache_s=0.0)
        _wait_for_limit(bench, user)
        pid = daemon.process.pid
        daemon.signal_decider(number)
        (missed,) = _submit(bench, user)
        said = f"ended by {number.name}: the daemon starts again"
        daemon.process.wait_until(lambda: said in daemon.log())
        _wait_for_limit(bench, user)
        assert daemon.process.pid == pid
        bench.wait_until(lambda: _limit(bench, missed) != DEFAULT, RECOVERY_S)


def test_a_daemon_that_hangs_is_missed_and_taken_up_again_by_itself(
    bench: SlurmCluster, fitted: Fitted, session_home: Path, user: str | None
) -> None:
    with DecisionDaemon(bench, session_home) as daemon:
        install_hook(bench, daemon.socket, breaker_s=1.0, cache_s=0.0)
        _wait_for_limit(bench, user)
        daemon.signal_decider(signal.SIGSTOP)
        assert [_limit(bench, job) for job in _submit(bench, user, 3)] == [DEFAULT] * 3
        daemon.signal_decider(signal.SIGCONT)
        _wait_for_limit(bench, user)


def test_a_socket_of_the_wrong_owner_is_not_waited_for(
    installation: Installation, user: str | None
) -> None:
    if os.geteuid():
        pytest.skip("needs root: slurmctld must run as somebody else than the owner of the socket")
    with SlurmCluster(installation, replace(SMALL, slurm_user=SLURM_USER)) as cluster:
        path = cluster.root / "slurm.sock"
        with fake_daemon.daemon(path, GOOD) as daemon:
            path.chmod(0o600)
            install_hook(cluster, path, breaker_s=30.0)
            queued = _submit(cluster, user, 3)
            assert daemon.connections == 0
            path.chmod(0o666)
            install_hook(cluster, path, **PATIENT)
            (allowed,) = _submit(cluster, user)
        assert [_limit(cluster, job) for job in queued] == [DEFAULT] * 3
        assert _limit(cluster, allowed) == "01:17:00"
        outcomes = [asked.outcome for asked in _asked(cluster, 4)]
    assert outcomes == ["miss", "paused", "paused", "set"]


@pytest.mark.parametrize("gone", ["precision_time.lua", "precision_time_client.lua"])
def test_slurmctld_starts_though_a_file_of_ours_is_gone(
    installation: Installation, user: str | None, gone: str
) -> None:
    with SlurmCluster(installation, SMALL) as cluster:
        install_hook(cluster, cluster.root / "slurm.sock")
        (cluster.places.etc / gone).unlink()
        cluster.restart_controller()
        (queued,) = _submit(cluster, user)
        assert _limit(cluster, queued) == DEFAULT
        assert "jobs pass unchanged" in cluster.log()


def _wait_for_limit(cluster: SlurmCluster, user: str | None) -> None:
    """Submit until a job gets its limit again."""
    until = time.monotonic() + RECOVERY_S
    while _limit(cluster, _submit(cluster, user)[0]) == DEFAULT:
        if time.monotonic() > until:
            raise BenchError(f"no limit within {RECOVERY_S:g} s:\n{cluster.log()[-2000:]}")
        time.sleep(0.2)
