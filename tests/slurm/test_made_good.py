"""What is done about pending jobs, by the lines that scontrol is fed; live: tests/live/slurm."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from clusters import cluster, policy_of

from predictor.site.similar.request import ALIKE_S
from slurm_plugin.cluster import Cluster
from slurm_plugin.config import SlurmPolicy
from slurm_plugin.daemon import reconcile
from slurm_plugin.daemon.reconcile import FIELDS, PIECE, Reconciler
from slurm_plugin.errors import SourceError
from slurm_plugin.mark import MARK_HEAD, JobMark
from slurm_plugin.order import BASE
from slurm_plugin.protocol import HookAnswer, HookRequest, parse_request
from slurm_plugin.sources.commands import Commands

ROW = dict.fromkeys((*FIELDS.split(","), "excluded"), "") | {
    "UserID": "1000",
    "UserName": "ada",
    "Partition": "gpu",
    "TimeLimit": "1-00:00:00",
    "MinTime": "0:00",
    "Nice": "0",
    "PriorityLong": "1000",
    "SubmitTime": "1800000000",
    "ArrayTaskID": "N/A",
    "tres-per-node": "gres:gpu:1",
}
APPLY = {"order": {"mode": "apply", "weight": 2, "longest_delay": "1d"}}
LATER = f"{MARK_HEAD} later=hook own=none"
DECIDED = HookAnswer(log="", time_limit=60, admin_comment=JobMark(limit=60, own="none").text())


@dataclass
class Decisions:
    """Answers every request alike."""

    answer: HookAnswer | None
    asked: list[HookRequest] = field(default_factory=list)

    def later(self, name: str) -> tuple[bool, HookAnswer | None]:
        return False, None

    async def decide_aside(self, line: bytes) -> HookAnswer | None:
        self.asked.append(parse_request(line))
        return self.answer


@dataclass
class Site:
    """A queue, the places of its jobs by sprio, and every line that scontrol was fed."""

    rows: list[dict[str, str]] = field(default_factory=list)
    places: Mapping[str, int] = field(default_factory=dict)
    fed: list[list[str]] = field(default_factory=list)
    asked: list[HookRequest] = field(default_factory=list)

    def text(self, *argv: str) -> str:
        if argv[0] == "squeue":
            return "".join(f"{row['JobID']} {row['excluded']}\n" for row in self.rows)
        return "".join(f"{job} {place}\n" for job, place in self.places.items())

    def feed(self, text: str, *argv: str) -> int:
        self.fed.append(text.splitlines())
        return 0

    def look(self, answer: HookAnswer | None, view: Cluster, **policy: Any) -> list[str]:
        """The updates of one pass."""

        async def one_pass() -> None:
            decisions: Any = Decisions(answer, self.asked)
            made = Reconciler(policy_of(policy), lambda: view, decisions)
            await asyncio.to_thread(made.look)

        asyncio.run(one_pass())
        return [line for lines in self.fed for line in lines if line.startswith("update ")]


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Site:
    found = Site()
    monkeypatch.setattr(Commands, "of", lambda policy: found)
    monkeypatch.setattr(reconcile, "table", lambda *_: iter(found.rows))
    monkeypatch.setattr(reconcile, "BREATH_S", 0.0)
    return found


def job(number: int, **changes: str) -> dict[str, str]:
    return ROW | {"JobID": str(number), "ArrayJobID": str(number)} | changes


def view(priority: str = "multifactor", **settings: Any) -> Cluster:
    whole = cluster()
    points = {"age_points_per_s": 1.0, "age_max_s": 1e9} | settings
    return replace(whole, settings=replace(whole.settings, priority=priority, **points))


def test_a_thousand_jobs_take_a_few_commands(site: Site) -> None:
    site.rows = [job(n, admin_comment=LATER, BatchFlag="1") for n in range(1000)]
    updates = site.look(DECIDED, cluster())
    assert len(updates) == 1000
    assert all("TimeLimit=60 AdminComment=" in line for line in updates)
    assert len(site.fed) <= 2 * 1000 / PIECE


def test_pieces_of_a_queue_are_decided_beside_each_other(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconcile, "PIECE", 1)
    site.rows = [job(n, admin_comment=LATER) for n in range(2)]
    both = asyncio.Event()

    async def once_both_are_asked(decisions: Decisions, line: bytes) -> HookAnswer | None:
        decisions.asked.append(parse_request(line))
        if len(decisions.asked) == 2:
            both.set()
        await asyncio.wait_for(both.wait(), 10)
        return DECIDED

    monkeypatch.setattr(Decisions, "decide_aside", once_both_are_asked)
    assert len(site.look(DECIDED, cluster())) == 2


def test_of_an_array_only_the_tasks_that_wait_are_changed(site: Site) -> None:
    array = {"ArrayJobID": "7", "admin_comment": LATER}
    site.rows = [job(7, ArrayTaskID="3-9%2", **array), job(12, ArrayTaskID="1", **array)]
    named = [line.split()[1] for line in site.look(DECIDED, cluster())]
    assert named == ["JobId=7_[3-9]", "JobId=7_[1]"]


def test_of_a_het_job_each_component_is_changed_alone(site: Site) -> None:
    """The number of the first means all of them to Slurm, whatever the others train."""
    site.rows = [
        job(7 + n, admin_comment=LATER, HetJobID="7", HetJobOffset=str(n)) for n in range(2)
    ]
    named = [line.split()[1] for line in site.look(DECIDED, cluster())]
    assert named == ["JobId=7+0", "JobId=7+1"]


@pytest.mark.parametrize("answer", [HookAnswer(log="excluded-user"), HookAnswer(log="failed")])
def test_no_job_is_left_behind_all_that_have_a_place(site: Site, answer: HookAnswer) -> None:
    site.rows, site.places = [job(1)], {"1": 0}
    back = 2 * ALIKE_S
    assert site.look(answer, view(), **APPLY) == [f"update JobId=1 SiteFactor={BASE - back:.0f}"]


def test_a_job_decided_late_gets_the_place_of_its_own_estimate(site: Site) -> None:
    site.rows, site.places = [job(1, admin_comment=LATER)], {"1": BASE - 28_800}
    answer = HookAnswer(log="", admin_comment=f"{MARK_HEAD} own=none", delay=600)
    (line,) = site.look(answer, view(), **APPLY)
    assert line.endswith(f" SiteFactor={BASE - 600}")


def test_a_place_that_a_job_has_stays(site: Site) -> None:
    decided = JobMark(expected_s=60.0, upper_s=90.0, own="none").text()
    site.rows = [job(1, admin_comment=decided), job(2, **{"tres-per-node": ""})]
    site.places = {"1": BASE - 600, "2": BASE - 600}
    assert site.look(HookAnswer(log="", delay=9), view(), **APPLY) == []


def test_an_order_that_holds_no_longer_is_taken_back(site: Site) -> None:
    decided = JobMark(expected_s=60.0, upper_s=90.0, own="none").text()
    site.rows = [job(1, admin_comment=decided), job(2, admin_comment=decided)]
    site.places = {"1": BASE - 600, "2": 777}  # of the site's own
    assert site.look(None, view(), order={"mode": "off"}) == ["update JobId=1 SiteFactor=0"]


def test_a_limit_that_may_be_its_users_stays(site: Site) -> None:
    own = LATER.replace("own=none", "own=1440")
    site.rows = [job(1, admin_comment=own), job(2)]
    assert [line for line in site.look(DECIDED, cluster()) if "TimeLimit" in line] == []


def test_the_default_policy_writes_no_order(site: Site) -> None:
    assert SlurmPolicy().order.mode == "off"
    site.rows, site.places = [job(1, admin_comment=LATER)], {"1": 0}
    (line,) = site.look(DECIDED, view())
    assert "SiteFactor" not in line
    assert "Nice" not in line


def test_a_late_job_is_placed_first_and_gets_its_limit_there(site: Site) -> None:
    there = {"Feature": "(own)&tensorcore", "prefer": "bf16", "Partition": "other"}
    answer = replace(DECIDED, features=there["Feature"], prefer="bf16", partition="other")
    whole = view()
    other = replace(whole.partitions[0], name="other", default=False)
    whole = replace(whole, partitions=(replace(whole.partitions[0], default=True), other))
    site.rows = [job(1, admin_comment=LATER, Feature="own")]
    assert site.look(answer, whole) == [
        "update JobId=1 Features=(own)&tensorcore Prefer=bf16 Partition=other"
    ]
    site.fed.clear()
    site.rows = [job(1, admin_comment=LATER, **there)]
    (line,) = site.look(answer, whole)
    assert line.startswith("update JobId=1 TimeLimit=60 AdminComment=")


@pytest.mark.parametrize(
    ("changes", "answer"),
    [
        ({"Feature": "changed"}, {"features": "(own)&tensorcore"}),
        ({"prefer": "changed"}, {"prefer": "tensorcore"}),
        ({"Partition": "chosen"}, {"partition": "gpu"}),
        ({"TimeLimit": "3-00:00:00"}, {"partition": "brief"}),
        ({}, {"gres": "gpu:a100:1"}),
    ],
)
def test_no_limit_is_for_nodes_that_a_job_is_not_brought_to(
    site: Site, changes: dict[str, str], answer: dict[str, Any]
) -> None:
    whole = view()
    brief = replace(whole.partitions[0], name="brief", default=False, max_min=60)
    whole = replace(whole, partitions=(*whole.partitions, brief))
    site.rows = [job(1, admin_comment=LATER, **changes)]
    assert site.look(replace(DECIDED, **answer), whole) == []


def test_a_late_job_is_decided_by_the_nodes_it_names(site: Site) -> None:
    site.rows = [job(1, admin_comment=LATER, ReqNodes="p1", prefer="own", excluded="a[1-2]")]
    site.look(DECIDED, cluster())
    (asked,) = site.asked
    assert (asked.req_nodes, asked.prefer, asked.exc_nodes) == ("p1", "own", "a[1-2]")


def test_of_a_job_that_started_before_it_was_decided_the_estimate_is_written_alone(
    site: Site,
) -> None:
    late = JobMark(later="hook", own="none", soft=25, cap=60.0).text()
    decided = replace(DECIDED, features="tensorcore", delay=600)
    site.rows = [job(1, admin_comment=late, State="RUNNING")]
    site.places = {"1": 0}
    kept = JobMark(own="none", soft=25, cap=60.0).text()  # no limit, and what it started with
    assert site.look(decided, view(), **APPLY) == [f'update JobId=1 AdminComment="{kept}"']
    site.fed.clear()
    site.rows = [job(1, admin_comment=kept, State="RUNNING"), job(2, State="RUNNING")]
    assert site.look(decided, view(), **APPLY) == []


def test_no_job_is_decided_by_a_script_that_a_full_disk_cuts_off(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = shutil.disk_usage("/")._replace(free=0)
    monkeypatch.setattr(reconcile.shutil, "disk_usage", lambda _: full)
    site.rows = [job(1, admin_comment=LATER, BatchFlag="1")]
    with pytest.raises(SourceError, match="scripts cannot be kept"):
        site.look(DECIDED, view())
    assert site.asked == []


def test_a_limit_that_was_set_after_the_submit_is_its_users_and_stays(site: Site) -> None:
    site.rows = [job(1, admin_comment=LATER, TimeLimit="7:00")]
    assert [line for line in site.look(DECIDED, view()) if "TimeLimit" in line] == []
    assert [asked.time_limit for asked in site.asked] == [7.0]


def test_a_job_that_changed_while_it_was_decided_is_left_for_the_next_pass(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = [job(n, admin_comment=LATER, State="PENDING") for n in (1, 2, 3)]
    changed = [read[0], read[1] | {"TimeLimit": "7:00"}, read[2] | {"State": "RUNNING"}]
    looks = iter([read, changed])
    monkeypatch.setattr(reconcile, "table", lambda *_: iter(next(looks)))
    assert [line.split()[1] for line in site.look(DECIDED, view())] == ["JobId=1"]
