"""A pod that contradicts itself, or leaves open what decides, is refused nowhere."""

from __future__ import annotations

from typing import Any

import pytest
from disputed_jobs import DISPUTED, NAMES, DisputedJob
from gpu_jobs import NODES
from k8s_configs import config_of, pod_job

from k8s_extender.decide import Decider
from predictor.estimate.fitting import Fitted


def pod(job: DisputedJob) -> dict[str, Any]:
    annotations = {"precision-time.io/deadline": "1h", "precision-time.io/deadline-hard": "true"}
    if job.comment:
        annotations["precision-time.io/job"] = job.comment
    container = {
        "name": "main",
        "image": "trainer",
        "command": ["bash", "-c", job.command],
        "resources": {"limits": {"nvidia.com/gpu": "4"}},
    }
    return {
        "metadata": {"name": "p", "annotations": annotations},
        "spec": {"containers": [container]},
    }


@pytest.mark.parametrize("job", DISPUTED, ids=NAMES)
def test_no_node_is_refused(fitted: Fitted, job: DisputedJob) -> None:
    config = config_of({})
    decider = Decider(fitted.predictor, config, lambda: NODES)
    asked = pod_job(pod(job), config)
    assert asked is not None
    assert decider.filter(asked, list(NODES)).passed == list(NODES)
