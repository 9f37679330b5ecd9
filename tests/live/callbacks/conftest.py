"""Every training here starts outside of schedulers, in a directory of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

OUTSIDE = (
    "SLURM_JOB_ID",
    "SLURM_SUBMIT_DIR",
    "SLURM_PROCID",
    "RANK",
    "WORLD_SIZE",
    "POD_UID",
    "LOCAL_WORLD_SIZE",
    "KUBERNETES_SERVICE_HOST",
    "PRECISION_TIME_HISTORY",
)


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in OUTSIDE:
        monkeypatch.delenv(name, raising=False)
    where = tmp_path / "job"
    where.mkdir()
    monkeypatch.chdir(where)
    return where
