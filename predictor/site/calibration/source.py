"""The name a site's own measurements have among those of all sources."""

from __future__ import annotations

from ...job.training_job import SITE_PREFIX


def site_source(cluster: str) -> str:
    """``TrainingJob.source`` of the jobs of a cluster; empty for a cluster without a name."""
    return cluster if not cluster or cluster.startswith(SITE_PREFIX) else SITE_PREFIX + cluster
