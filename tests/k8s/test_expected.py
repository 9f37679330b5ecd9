"""Every pod gets an estimate by what its like took here; `k8s eta` tells when jobs end."""

from __future__ import annotations

import base64
import copy
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from admission_reviews import BOTH, admitted, applied, captured, knowledge
from api_server_stand_in import PODS, StandIn, eventually, served
from click.testing import CliRunner
from ended_objects import pod, running
from gfd_nodes import a100
from k8s_configs import config_of
from k8s_server_process import serving

from k8s_extender import pods, rank
from k8s_extender.admission import Admission
from k8s_extender.decide import Decider
from k8s_extender.history.runs import records
from k8s_extender.plain import seconds_of
from k8s_extender.pods import signature
from k8s_extender.rank import SiteEstimates
from k8s_extender.workload import template_job
from predictor.cli.main import main
from predictor.estimate.fitting import Fitted
from predictor.site.calibration.site_state import SiteState, write_state
from predictor.site.history.run import Run
from predictor.site.similar.memory import SiteMemory
from predictor.site.similar.past_runs import PastRun, RunEnd

EXPECTED = "precision-time.io/expected-run-time"
COMMAND, MINUTES, MANY = ["python", "tools/fold.py", "--seed", "7"], 30, 12


def with_command(obj: dict[str, Any], seed: int) -> dict[str, Any]:
    for container in obj["spec"]["containers"]:
        container["command"] = [*COMMAND[:-1], str(seed)]
        container["image"] = f"registry.example.com/fold:v{seed}"
    return obj


def ended() -> list[Run]:
    """Runs of one image and command, as an API server tells them."""
    with served() as cluster:
        cluster.fill([a100("a100-0")])
        for i in range(MANY):
            ran = (100.0 * i, 100.0 * i + MINUTES)
            cluster.put(with_command(pod(f"fold-{i}-xyz", gpus=1, ran=ran), i), PODS)
        found = list(records(cluster.client(), config_of({})))
    assert all(isinstance(one, Run) for one in found)
    return sorted((one for one in found if isinstance(one, Run)), key=lambda r: r.ended.end_s)


@pytest.fixture(scope="module")
def state() -> SiteState:
    return SiteState.learn(ended())


@pytest.fixture(scope="module")
def known(fitted: Fitted, state: SiteState) -> Decider:
    decider = knowledge(fitted, BOTH)
    decider.site = SiteEstimates(state.memory, fitted.predictor)
    return decider


def new_pod(command: list[str] | None = None) -> dict[str, Any]:
    raw = copy.deepcopy(captured("pod"))
    obj = with_command(raw["request"]["object"], 99)
    obj["metadata"].pop("annotations", None)
    obj["metadata"]["namespace"] = ended_namespace()
    raw["request"]["namespace"] = ended_namespace()
    for container in obj["spec"]["containers"]:
        container["command"] = command or container["command"]
        container["resources"] = {"limits": {"nvidia.com/gpu": "1"}}
    return raw


def ended_namespace() -> str:
    return str(pod("x")["metadata"]["namespace"])


def test_a_pod_that_names_no_network_is_estimated_by_its_image_and_command(
    known: Decider, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[Any] = []
    of = known.site.of  # type: ignore[union-attr]
    monkeypatch.setattr(known.site, "of", lambda asked: heard.append(of(asked)) or heard[-1])
    found = applied(Admission(lambda: known), new_pod(), verb="place")
    (estimate,) = heard
    seconds = seconds_of(found.annotations[EXPECTED])
    assert seconds == round(estimate.quantile_s(0.5))  # as `precision-time estimate` leads with
    assert seconds == pytest.approx(60 * MINUTES, rel=0.25)


def test_the_next_pod_of_a_template_is_neither_read_nor_estimated_anew(
    known: Decider, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = applied(Admission(lambda: known), new_pod(), verb="place")
    for owner, name in ((pods, "ran_by"), (rank, "estimate_job")):
        monkeypatch.setattr(owner, name, lambda *_: pytest.fail("asked again"))
    second = applied(Admission(lambda: known), new_pod(), verb="place")
    assert second.annotations[EXPECTED] == first.annotations[EXPECTED]


def test_of_what_never_ran_here_nothing_is_said(known: Decider, fitted: Fitted) -> None:
    raw = new_pod(["python", "another.py"])
    raw["request"]["namespace"] = raw["request"]["object"]["metadata"]["namespace"] = "others"
    assert EXPECTED not in applied(Admission(lambda: known), raw, verb="place").annotations
    nowhere = knowledge(fitted, BOTH)
    assert applied(Admission(lambda: nowhere), new_pod(), verb="place").operations == []


def test_nothing_is_expected_beyond_the_deadline_of_a_pod(known: Decider) -> None:
    raw = new_pod()
    raw["request"]["object"]["spec"]["activeDeadlineSeconds"] = 600
    found = applied(Admission(lambda: known), raw, verb="place")
    assert (seconds_of(found.annotations[EXPECTED]) or 0.0) < 60 * MINUTES / 2


def test_tags_and_numbers_make_no_other_job() -> None:
    one, two = (with_command(pod("a", gpus=1), n)["spec"]["containers"][0] for n in (1, 2))
    assert signature(one) == signature(two)
    two["image"] = "registry.example.com/dock:v1"
    assert signature(one) != signature(two)


def test_physics_tells_of_a_named_network_that_never_ran(fitted: Fitted) -> None:
    from admission_reviews import job

    decider = knowledge(fitted, BOTH)
    decider.site = SiteEstimates(SiteState().memory, fitted.predictor)
    short = {"job": "model=bert-large precision=bf16 batch=64 steps=2000 seq_len=128"}
    found = admitted(
        decider, job({f"precision-time.io/{k}": v for k, v in short.items()})
    ).annotations
    best_s = seconds_of(found[EXPECTED])
    slowest_s = seconds_of(found["precision-time.io/predicted-duration"])
    assert best_s is not None
    assert slowest_s is not None
    assert (
        best_s <= 1.1 * slowest_s
    )  # the mean, with what is not known of a site, is many times that


@pytest.mark.parametrize(("took", "filled"), [(1.4, True), (15.0, False)])
def test_no_deadline_is_shorter_than_what_such_jobs_took_here(
    fitted: Fitted, took: float, filled: bool
) -> None:
    from admission_reviews import STATED, job

    decider = knowledge(fitted, BOTH, evidence={"max_interval_ratio": 8})
    obj = job(STATED | {"precision-time.io/epochs": "9"})
    alone_s = admitted(decider, obj).object["spec"]["activeDeadlineSeconds"]
    asked = template_job("Job", obj, decider.config)
    assert asked is not None
    memory, like = SiteMemory(), decider.request(asked, obj, obj["metadata"]["name"])
    for n in range(60):
        run_s, end_s = alone_s * (took if n % 2 else 0.6), 1.8e9 + 1e6 * n
        memory.add(
            PastRun(
                request=like.without_names(),
                submit_s=end_s - run_s,
                end_s=end_s,
                run_s=run_s,
                ended=RunEnd.COMPLETED,
                batch=str(n),
            )
        )
    decider.site = SiteEstimates(memory, fitted.predictor)
    found = admitted(decider, obj)
    if filled:
        assert found.object["spec"]["activeDeadlineSeconds"] >= 1.4 * alone_s
    else:
        assert "activeDeadlineSeconds" not in found.object["spec"]
        assert "times the median, over 8" in found.said


@pytest.fixture
def site(
    state: SiteState, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[StandIn, list[str]]]:
    """A cluster whose past is learned, and the words that ask `k8s eta` about it."""
    monkeypatch.setenv("PRECISION_TIME_HOME", str(tmp_path))
    write_state(state)
    with served() as cluster:
        cluster.fill([a100("a100-0")])
        yield cluster, ["k8s", "eta", "--kubeconfig", str(cluster.kubeconfig(tmp_path))]


def test_eta_tells_what_is_left(site: tuple[StandIn, list[str]]) -> None:
    cluster, words = site
    cluster.put(with_command(running("fold-new", gpus=1), 3), PODS)
    plain = CliRunner().invoke(main, words)
    done = CliRunner().invoke(main, [*words, "--format", "json"])
    none = CliRunner().invoke(main, [*words, "-n", "nobody", "--format", "json"])
    assert done.exit_code == 0, done.output
    (found,) = json.loads(done.output)
    assert (found["name"], found["gpus"]) == ("fold-new", 1)
    assert found["running_s"] > 0
    assert found["left_s"] is not None
    assert "of the same user and script" in found["source"]
    assert f"{ended_namespace()}/fold-new  1 GPU, runs " in plain.output
    assert json.loads(none.output) == []


def test_eta_tells_of_a_job_that_waits_how_long_it_takes(site: tuple[StandIn, list[str]]) -> None:
    cluster, words = site
    waiting = pod("fold-new", gpus=1, node="", phase="Pending", ran=(1, None))
    del waiting["status"]["startTime"]
    cluster.put(with_command(waiting, 3), PODS)
    told = CliRunner().invoke(main, words).output
    assert re.search(r"/fold-new  1 GPU, waits, takes .+ once it runs \(", told)
    assert "left" not in told
    waiting["spec"]["activeDeadlineSeconds"] = 600
    cluster.put(with_command(waiting, 3), PODS)
    (found,) = json.loads(CliRunner().invoke(main, [*words, "--format", "json"]).output)
    assert found["left_s"] < 60 * MINUTES / 2  # the deadline counts


def test_eta_reads_logs_only_where_it_is_told_to(
    site: tuple[StandIn, list[str]],
) -> None:
    """Where a log may not be read, similar runs tell."""
    cluster, words = site
    words.append("--format=json")
    for name in ("fold-told", "fold-closed"):
        cluster.put(with_command(running(name, gpus=1), 3), PODS)
    lines = (f"step {i}/1000 loss 1.0 step time 2.0 s" for i in range(1, 601))
    cluster.logs[ended_namespace(), "fold-told"] = "\n".join(lines)
    plain = json.loads(CliRunner().invoke(main, words).output)
    read = [request.path for request in cluster.requests if request.path.endswith("/log")]
    done = CliRunner().invoke(main, [*words, "--logs"])
    assert read == []
    told = {one["name"]: one for one in json.loads(done.output)}
    assert {one["source"] for one in plain} == {told["fold-closed"]["source"]}
    assert told["fold-told"]["source"] == "by its own progress"
    assert told["fold-told"]["left_s"] == pytest.approx(400 * 2.0, rel=0.05)


def test_what_calibrate_learns_is_used_without_a_restart(
    fitted: Fitted, state: SiteState, tmp_path: Path
) -> None:
    body = json.dumps(new_pod()).encode()
    with serving(tmp_path / "s") as server:

        def patch() -> bytes:
            answer = server.post("/v1/place", body)[1]["response"]
            return base64.b64decode(answer.get("patch", ""))

        assert patch() == b""
        written = write_state(state)
        try:
            assert eventually(lambda: EXPECTED.split("/")[1].encode() in patch())
        finally:
            written.unlink()
