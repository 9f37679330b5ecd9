"""Estimates of pods and Jobs by the site's one estimate: similar runs, and physics where known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from predictor.estimate.core import Predictor
from predictor.identify.grammar import stated_text
from predictor.site.calibration.run_reader import site_source
from predictor.site.similar.estimate import Estimate, PhysicsView, estimate_job
from predictor.site.similar.memory import SiteMemory
from predictor.site.similar.request import OWN, JobRequest, script_signature, stated_fields

from .commands import ran_by
from .plain import mapping, text
from .pod_gpus import containers_with
from .records import PodJob


class SiteEstimates:
    """Estimates by what the site remembers; None for a job of which it knows nothing."""

    def __init__(self, memory: SiteMemory, predictor: Predictor, site: str = "") -> None:
        self._memory = memory
        self._physics = PhysicsView(predictor, site_source(site) or "")

    def of(self, job: JobRequest) -> Estimate | None:
        """The estimate of a job; None where neither its like has run nor physics speaks."""
        found = estimate_job(job, self._memory, self._physics if "model=" in job.asked else None)
        like = any(one.similarity in OWN for one in found.similar)
        return found if like or found.physics else None


def site_request(
    job: PodJob, template: Mapping[str, Any], *, namespace: str, name: str, gpu: str = ""
) -> JobRequest:
    """A job as similar runs are found: by image and command, what made its pods, namespace.

    Kubernetes knows no users: the namespace stands for the user and for the account.
    """
    return JobRequest(
        user=namespace,
        account=namespace,
        name=name,
        gpus=job.gpus,
        gpu_type=gpu,
        script=ran_signature(template, job.resource),
        **stated_fields(stated_text(job.stated)),
    )


def ran_signature(template: Mapping[str, Any], resource: str) -> str:
    """The signature of image and command of a pod template; the image's tag does not count."""
    container = next(iter(containers_with(mapping(template, "spec"), resource)), {})
    ran = ran_by(container)
    image, _, _ = text(container, "image").partition("@")
    head, slash, last = image.rpartition("/")
    words = (f"{head}{slash}{last.partition(':')[0]}", ran.script or " ".join(ran.words))
    return script_signature(" ".join(words))
