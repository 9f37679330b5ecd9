"""What Slurm says a pending job waits for, and GPUs that reservations keep, for the replay."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import replay
from clusters import gpu_node

from predictor.site.capacity.live import AfterJob, Waits
from predictor.site.replay import Away
from slurm_plugin.cluster import SlurmJob
from slurm_plugin.config import Slurm, SlurmHardware, SlurmPolicy
from slurm_plugin.live_queue import Places, SlurmReservation, kept, read, reservations_of
from slurm_plugin.live_waits import Dependency, Waiters, Waiting, parse, waiting_of
from slurm_plugin.sources.commands import Commands

NOW_S = 1_000_000.0
JOB = SlurmJob(
    job_id=1, user="u1", name="train", state="PENDING", partitions=("gpu",), gpus=2, label="1"
)
A100 = "a100-sxm4-80gb"


def queued(label: str, **fields: object) -> SlurmJob:
    number = int(label.partition("_")[0].partition("+")[0])
    return replace(JOB, job_id=number, label=label, **fields)  # type: ignore[arg-type]


def running(label: str, **fields: object) -> SlurmJob:
    return queued(label, state="RUNNING", start_s=NOW_S - 60, limit_min=10, **fields)


def waits(*others: SlurmJob, job: str = "9", **told: object) -> Waits:
    mine = queued(job)
    waiting = Waiting(**told)  # type: ignore[arg-type]
    return Waiters([*others, mine], {job: waiting}, NOW_S)(mine)


def after(*labels: str) -> tuple[AfterJob, ...]:
    return tuple(AfterJob(job_id=label) for label in labels)


def test_the_words_of_slurm_are_understood() -> None:
    assert parse("") == parse("(null)")
    both = parse("afterok:1(unfulfilled),after:2_*+5(unfulfilled)")
    assert both == (
        Dependency(kind="afterok", job="1"),
        Dependency(kind="after", job="2", task="*", delay_s=300.0),
    )
    either = parse("afterany:3_7(unfulfilled)?afterok:4(failed)")
    assert either == (Dependency(kind="afterany", job="3", task="7"),)


@pytest.mark.parametrize(
    ("dependency", "expected"),
    [
        ("afterok:1(unfulfilled)", after("1")),
        ("afterany:1(unfulfilled),afterany:2(unfulfilled)", after("1", "2_0", "2_1")),
        ("afterok:2_*(unfulfilled)", after("2_0", "2_1")),
        ("afterok:2_1(unfulfilled)", after("2_1")),
        ("afterany:77(unfulfilled)", ()),
    ],
)
def test_a_job_waits_for_jobs_of_the_queue(dependency: str, expected: object) -> None:
    found = waits(running("1"), queued("2_0"), queued("2_1"), dependency=dependency)
    assert found.after == expected


def test_each_task_may_wait_for_its_like() -> None:
    others = queued("2_0"), queued("2_1")
    found = waits(*others, job="9_1", dependency="aftercorr:2_*(unfulfilled)")
    assert (found.after, found.text) == (after("2_1"), "end of 2_1")


def test_a_singleton_waits_for_its_like_that_were_sent_before() -> None:
    others = running("1"), queued("2"), queued("3", name="other"), queued("4", user="u2")
    found = waits(*others, queued("10"), dependency="singleton(unfulfilled)")
    assert found.after == after("1", "2")


def test_a_start_that_is_known_is_a_time() -> None:
    found = waits(running("1"), dependency="after:1+3(unfulfilled)")
    assert (found.after, found.not_before_s) == ((), NOW_S - 60 + 180)


def test_a_job_without_gpus_ends_by_its_limit() -> None:
    found = waits(running("1", gpus=0), dependency="afterany:1(unfulfilled)")
    assert (found.after, found.not_before_s) == ((), NOW_S + 540)
    assert found.text == "end of 1 (no GPUs: by its limit)"


def test_of_several_one_is_enough() -> None:
    told = "afterany:1(unfulfilled)?afternotok:1(unfulfilled)"
    found = waits(running("1"), dependency=told)
    assert (found.after, found.any_of, found.never) == (after("1"), True, "")
    assert found.text == "end of 1 or failure of 1"


def test_what_is_not_foreseen_is_said() -> None:
    assert "fail" in waits(running("1"), dependency="afternotok:1(unfulfilled)").never
    assert waits(reason="DependencyNeverSatisfied").never
    assert (
        waits(reason="PartitionTimeLimit").never == "its limit is longer than its partition allows"
    )
    assert waits(reason="QOSMaxGRESPerUser").text == "QOSMaxGRESPerUser (not simulated)"
    for reason in ("Priority", "Resources", "ReqNodeNotAvail, Reserved for maintenance", "None"):
        assert waits(reason=reason) == Waits()


def test_a_begin_and_turns_are_said() -> None:
    found = waits(reason="BeginTime", eligible_s=NOW_S + 60, at_most=2)
    assert (found.not_before_s, found.at_most) == (NOW_S + 60, 2)
    assert found.text == "not before 1970-01-12 13:47 UTC; its array: 2 at once"


def printing(folder: Path, **texts: str) -> Commands:
    """Commands that print these texts, with the mark that they are given between fields."""
    for name, text in texts.items():
        (folder / f"{name}.txt").write_text(text)
        program = folder / name
        mark = "$(printf %s \"$*\" | grep -o '~~[0-9a-f]*~~' | head -n 1)"
        program.write_text(f'#!/bin/sh\nmark={mark}\nsed "s/|/$mark/g" {folder}/{name}.txt\n')
        program.chmod(0o755)
    return Commands(folder)


def test_the_record_of_an_array_tells_of_each_task(tmp_path: Path) -> None:
    commands = printing(
        tmp_path,
        squeue="9|9|2-3,5%2|N/A|N/A|JobArrayTaskLimit|(null)|N/A|(null)|\n"
        "12|9|4|N/A|N/A|Resources|(null)|5|maint|\n"
        "7|7|N/A|6|1|Dependency|afterok:1(unfulfilled)|N/A|(null)|\n",
    )
    turns = Waiting(reason="JobArrayTaskLimit", at_most=2)
    assert waiting_of(commands) == {
        "9_2": turns,
        "9_3": turns,
        "9_5": turns,
        "9_4": Waiting(reason="Resources", eligible_s=5.0, reservation="maint", at_most=2),
        "6+1": Waiting(reason="Dependency", dependency="afterok:1(unfulfilled)"),
    }


RESERVED = (
    "ReservationName={name} StartTime=100 EndTime=200 Duration=00:01:40 Nodes={nodes} NodeCnt=2"
    " CoreCnt=8 Features=(null) PartitionName=(null) Flags={flags} TRES=cpu={cpus} Users=root\n"
)


def test_reservations_are_read(tmp_path: Path) -> None:
    lines = [
        RESERVED.format(name="whole", nodes="a[1-2]", flags="MAINT,SPEC_NODES", cpus=32),
        RESERVED.format(name="part", nodes="a[1-2]", flags="SPEC_NODES", cpus=8),
        RESERVED.format(name="later", nodes="a2", flags="TIME_FLOAT", cpus=16),
        RESERVED.format(name="licences", nodes="(null)", flags="", cpus=0),
    ]
    commands = printing(tmp_path, scontrol="".join(lines), sinfo="a1 16\na2 16\na2 16\n")
    both = frozenset({"a1", "a2"})
    kept = SlurmReservation(name="whole", nodes=both, begin_s=100.0, end_s=200.0)
    assert reservations_of(commands) == (
        replace(kept, name="later", nodes=frozenset({"a2"}), floating=True),
        replace(kept, name="part", whole=False),
        kept,
    )
    none = printing(tmp_path, scontrol="No reservations in the system\n")
    assert reservations_of(none) == ()


def test_only_whole_nodes_with_gpus_are_away() -> None:
    places = Places([gpu_node("a1"), gpu_node("a2"), gpu_node("v1")], SlurmHardware()).usable
    each = sum(place.count for place in places if place.name == A100) // 2
    base = SlurmReservation(
        name="r", nodes=frozenset({"a1", "c9"}), begin_s=NOW_S - 1, end_s=NOW_S + 60
    )
    found = kept(
        [
            base,
            replace(base, name="part", whole=False),
            replace(base, name="float", floating=True),
            replace(base, nodes=frozenset({"c9"})),
            replace(base, end_s=NOW_S),
        ],
        places,
        NOW_S,
    )
    assert found.away == (Away(pool=A100, gpus=each, from_s=NOW_S - 1, until_s=NOW_S + 60),)
    assert found.nodes == base.nodes
    first, part, floating = found.notes
    assert first.startswith(f"Reservation r keeps {each} x {A100} until 1970-01-12")
    assert part.endswith("not simulated.")
    assert floating.endswith("not simulated.")
    later = kept([replace(base, begin_s=NOW_S + 1)], places, NOW_S)
    assert not later.nodes


def test_where_slurm_does_not_tell_a_note_says_so(tmp_path: Path) -> None:
    commands = replay.commands(tmp_path, replay.PAYLOADS / "2511")
    found = read(SlurmPolicy(slurm=Slurm(bin_dir=commands, source="text")))
    assert all(job.waits.after == () for job in found.jobs)
    assert {note.split(":")[0] for note in found.notes} == {
        "What jobs wait for besides GPUs is not known",
        "Reservations are not known",
    }
