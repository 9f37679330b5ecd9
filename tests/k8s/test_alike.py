"""Pods that differ in nothing but who they are, are read once; all others are read."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from k8s_configs import pod_job
from k8s_server_process import MIXED, captured, pod

from k8s_extender import workload
from k8s_extender.config import Config
from k8s_extender.workload import PodJob
from predictor.identify.rules import Rules

CONFIG, RULES = Config(), Rules()


class Reader:
    """Reads as the product does, and counts."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.times = 0
        self.alike = workload.JobReader(CONFIG, RULES)
        patch.setattr(workload, "template_job", self._read)

    def _read(self, _: str, obj: Mapping[str, Any], config: Config, rules: Rules) -> PodJob | None:
        self.times += 1
        return pod_job(obj, config, rules)

    def __call__(self, obj: Mapping[str, Any]) -> PodJob | None:
        return self.alike(obj)


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Reader:
    return Reader(monkeypatch)


def of_a_job(index: int) -> dict[str, Any]:
    """The pod of this index of an indexed Job, as the API server makes it."""
    made: dict[str, Any] = pod(f"train-{index}-x7k2p", MIXED)
    told = {"batch.kubernetes.io/job-completion-index": str(index)}
    made["metadata"] |= {"uid": f"uid-{index}", "resourceVersion": str(100 + index)}
    made["metadata"]["annotations"] |= told
    made["metadata"]["labels"] = told | {"batch.kubernetes.io/job-name": "train"}
    made["spec"] |= {"hostname": f"train-{index}", "volumes": [{"name": f"access-{index}"}]}
    made["spec"]["containers"][0]["volumeMounts"] = [{"name": f"access-{index}"}]
    return made


def test_pods_of_one_job_are_read_once(read: Reader) -> None:
    jobs = [read(of_a_job(index)) for index in range(4)]
    assert read.times == 1
    assert {repr(one) for one in jobs} == {repr(pod_job(of_a_job(0), CONFIG, RULES))}


def ranked(rank: int, *arguments: str) -> dict[str, Any]:
    """The pod of an operator's job that has this rank."""
    made, told = of_a_job(0), {"MASTER_ADDR": "train-0", "WORLD_SIZE": "4", "RANK": str(rank)}
    made["spec"]["containers"][0] |= {
        "env": [{"name": name, "value": value} for name, value in told.items()],
        "args": ["train.py", *arguments],
    }
    return made


def test_ranks_make_no_other_job_unless_what_is_run_may_heed_them(read: Reader) -> None:
    assert read(ranked(0)) is read(ranked(1))
    assert read(of_a_job(0)) is not read(ranked(0))
    heeding = "--seed=$(RANK)"
    assert read(ranked(0, heeding)) is not read(ranked(1, heeding))
    assert read.times == 4


def test_pods_of_one_job_have_one_object_for_their_job(read: Reader) -> None:
    assert read(of_a_job(0)) is read(of_a_job(1))


def _more_gpus(obj: Any) -> None:
    obj["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = "2"


def _other_batch(obj: Any) -> None:
    obj["metadata"]["annotations"]["precision-time.io/batch-size"] = "32"


def _other_words(obj: Any) -> None:
    obj["spec"]["containers"][0]["command"] = ["torchrun", "--nnodes=2", "train.py"]


def _other_group(obj: Any) -> None:
    obj["metadata"]["labels"] = {"leaderworkerset.sigs.k8s.io/size": "4"}


def _deadline(obj: Any) -> None:
    obj["spec"]["activeDeadlineSeconds"] = 60


@pytest.mark.parametrize(
    "change", [_more_gpus, _other_batch, _other_words, _other_group, _deadline]
)
def test_what_tells_another_job_is_read_anew(read: Reader, change: Callable[[Any], None]) -> None:
    first = pod("train", MIXED)
    other = copy.deepcopy(first)
    change(other)
    assert repr(read(first)) == repr(pod_job(first, CONFIG, RULES))
    assert repr(read(other)) == repr(pod_job(other, CONFIG, RULES))
    assert read.times == 2


def test_pods_without_gpus_stay_without_a_job(read: Reader) -> None:
    silent = pod("web", {})
    del silent["spec"]["containers"][0]["resources"]
    assert read(silent) is None
    assert read(silent) is None


@pytest.mark.parametrize("wrong", [None, [], "text", 7, {"labels": 3, "annotations": [1]}])
def test_what_is_of_a_wrong_type_counts_as_absent(read: Reader, wrong: Any) -> None:
    odd = captured("filter-nodeCacheCapable-true")["request_body"]["Pod"] | {"metadata": wrong}
    assert repr(read(odd)) == repr(pod_job(odd, CONFIG, RULES))
