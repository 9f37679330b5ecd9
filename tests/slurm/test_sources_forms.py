"""Every source gives the same records of the same moment of a real cluster."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import replay

from slurm_plugin.cluster import Association, GpuGres, Partition, SlurmJob, SlurmNode
from slurm_plugin.sources.choose import PyslurmSource
from slurm_plugin.sources.commands import Commands
from slurm_plugin.sources.text import SlurmSource, take

VERSIONS = ("2205", "2511", "2605")
SOURCES = [*((v, "text") for v in VERSIONS), ("2511", "pyslurm")]
AWKWARD = 'we|rd\x1f"na\nme JobState=FAKE é☃'


def opened(folder: Path, version: str, name: str) -> SlurmSource:
    payloads = replay.PAYLOADS / version
    commands = Commands(replay.commands(folder, payloads))
    if name == "pyslurm":
        return PyslurmSource(replayed_pyslurm(payloads / "pyslurm.json"), commands)
    return SlurmSource(commands)


def replayed_pyslurm(path: Path) -> Any:
    """The module pyslurm as far as the captured attributes go; any other is an AttributeError."""
    stored = json.loads(path.read_text())

    def kind(name: str, key: str) -> Any:
        items = {}
        for index, attributes in enumerate(stored[key]):
            gpus = attributes.get("gpus")
            if gpus is not None:
                attributes["gpus"] = {k: SimpleNamespace(**v) for k, v in gpus.items()}
            items[index] = SimpleNamespace(**attributes)
        return type(name, (), {"load": staticmethod(lambda: items)})

    return SimpleNamespace(Nodes=kind("Nodes", "nodes"), Jobs=kind("Jobs", "jobs"))


@pytest.fixture(params=SOURCES, ids="-".join)
def source(request: pytest.FixtureRequest, tmp_path: Path) -> SlurmSource:
    return opened(tmp_path, *request.param)


def by_label(source: SlurmSource) -> dict[str, SlurmJob]:
    return {job.label: job for job in source.queue()}


def test_pyslurm_gives_the_same_view_but_for_two_paths(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    text = take(opened(tmp_path / "a", "2511", "text"))
    other = take(opened(tmp_path / "b", "2511", "pyslurm"))
    assert (other.nodes, other.partitions, other.settings, other.walls) == (
        text.nodes,
        text.partitions,
        text.settings,
        text.walls,
    )
    differing = [(a, b) for a, b in zip(text.queue, other.queue, strict=True) if a != b]
    assert {a.label for a, _ in differing} == {"22", "23"}
    assert all(without_stdout(a) == without_stdout(b) for a, b in differing)


def without_stdout(job: SlurmJob) -> dict[str, object]:
    return {name: getattr(job, name) for name in SlurmJob.__slots__ if name != "stdout"}


def test_nodes_have_their_gpus_features_partitions_and_states(source: SlurmSource) -> None:
    nodes = {node.name: node for node in source.nodes()}
    states = nodes["a1"].states
    assert states - {"PLANNED"} == {"MIXED"}
    assert nodes["a1"] == SlurmNode(
        name="a1",
        partitions=("gpu", "nolimit", "short"),
        features=frozenset({"a100", "ampere", "gpu", "tensorcore", "bf16", "tf32"}),
        gpus=(GpuGres("a100", 4),),
        gpus_used=2,
        states=states,
    )
    assert nodes["a2"].gpus_used == 4
    assert nodes["c1"].gpus == ()
    assert nodes["p2"].states == {"IDLE", "DRAIN"}
    assert not nodes["p2"].usable


def test_partitions_have_their_limits_and_one_is_the_default(source: SlurmSource) -> None:
    assert {part.name: part for part in source.partitions()} == {
        "cpu": Partition(name="cpu", default_min=60, max_min=2880),
        "gpu": Partition(name="gpu", default=True, default_min=1440, max_min=2880),
        "nolimit": Partition(name="nolimit"),
        "short": Partition(name="short", default_min=10, max_min=30, up=False),
    }


def test_settings_are_those_of_slurmctld(source: SlurmSource) -> None:
    settings = source.settings()
    assert settings.version.split(".")[0] in ("22", "25", "26")
    assert (settings.cluster_name, settings.slurm_user) == ("bench", "root")
    assert settings.enforce_part_limits == "NO"


def test_wall_limits_are_those_set_and_no_others(source: SlurmSource) -> None:
    walls = source.wall_limits()
    assert walls.qos == {"long": 3 * 1440}
    assert walls.associations == (
        Association(account="physics", max_wall_min=36 * 60),
        Association(account="physics", user="root", max_wall_min=600),
        Association(account="research", user="nobody", partition="short", max_wall_min=20),
    )


def test_a_running_job_tells_its_nodes_gpus_and_what_was_written_on_it(source: SlurmSource) -> None:
    job = by_label(source)["4"]
    assert (job.state, job.node_names, job.gpus, job.gpu_type) == ("RUNNING", ("a1",), 2, "a100")
    assert (job.features, job.limit_min, job.user) == ("tensorcore", 30, "root")
    assert job.comment == "model=resnet50 precision=amp"
    assert job.admin_comment == "pt:1 a=b|c"
    assert job.start_s is not None
    assert job.start_s >= job.submit_s > 1.7e9


def test_names_and_comments_come_as_they_were_written(source: SlurmSource) -> None:
    jobs = by_label(source)
    assert jobs["5"].name == AWKWARD
    assert jobs["5"].comment == "a|b\x1f\nc,d \"q\" \\ 's' Partition=forged"
    assert jobs["5"].partitions == ("gpu",)
    assert jobs["23"].name == "~~0123456789abcdef~~\x1f|,\"'"
    assert jobs["23"].comment == "~~0123456789abcdef~~\nJobID"


def test_tasks_of_an_array_are_jobs_of_their_own(source: SlurmSource) -> None:
    tasks = {k: job for k, job in by_label(source).items() if k.startswith("7_")}
    running = [job for job in tasks.values() if job.state == "RUNNING"]
    waiting = [job for job in tasks.values() if job.state == "PENDING"]
    assert {job.label for job in running} == {"7_0", "7_1"}
    assert len({job.job_id for job in running}) == 2
    assert len(waiting) >= 6
    assert {job.gpu_type for job in running} == {"v100"}
    assert {(job.gpus, job.gpu_type, job.features) for job in waiting} == {(1, None, "v100")}
    assert tasks["7_3"].stdout == "/srv/slurm/work/arr-7_3.out"


def test_components_of_a_het_job_are_jobs_of_their_own(source: SlurmSource) -> None:
    jobs = by_label(source)
    assert (jobs["13+0"].job_id, jobs["13+0"].gpus, jobs["13+0"].partitions) == (13, 1, ("gpu",))
    assert (jobs["13+1"].job_id, jobs["13+1"].gpus, jobs["13+1"].partitions) == (14, 0, ("cpu",))


def test_held_jobs_are_held_and_suspended_ones_are_not(source: SlurmSource) -> None:
    jobs = by_label(source)
    assert {label for label, job in jobs.items() if job.held} == {"9", "10"}
    assert (jobs["19"].state, jobs["19"].priority) == ("SUSPENDED", 0)


def test_a_pending_job_has_its_partitions_and_no_start_without_an_estimate(
    source: SlurmSource,
) -> None:
    jobs = by_label(source)
    assert jobs["22"].partitions == ("gpu", "short")
    assert (jobs["22"].gpus, jobs["22"].gpu_type, jobs["22"].nodes) == (8, "a100", 2)
    assert jobs["12"].start_s is None
    assert jobs["17"].start_s is not None
    assert jobs["17"].features == "v100&tensorcore"


def test_unlimited_jobs_have_no_limit_and_ended_ones_are_not_there(source: SlurmSource) -> None:
    jobs = by_label(source)
    assert jobs["8"].limit_min is None
    assert jobs["8"].gpus == 3
    assert not {"1", "2", "6", "18"} & set(jobs)


def test_output_paths_are_filled_in_as_slurm_does(source: SlurmSource) -> None:
    jobs = by_label(source)
    assert jobs["24"].stdout == "/srv/slurm/work/slurm-24.out"
    assert jobs["17"].stdout == "/srv/slurm/work/slurm-17.out"
