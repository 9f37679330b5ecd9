"""The cluster that the decision tests decide on, three GPU types, four partitions; its policy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from predictor.settings import settings_of
from slurm_plugin.cluster import Cluster, GpuGres, Partition, Settings, SlurmNode
from slurm_plugin.config import SlurmPolicy
from slurm_plugin.errors import PolicyError
from slurm_plugin.protocol import HookRequest, PartitionRequest

FEATURES = {
    "a": frozenset({"a100", "ampere", "gpu", "tensorcore", "bf16", "tf32"}),
    "v": frozenset({"v100", "volta", "gpu", "tensorcore"}),
    "p": frozenset({"p100", "pascal", "gpu"}),
}
TYPES = {"a": "a100", "v": "v100", "p": "p100"}
GPU_PARTITION = PartitionRequest("gpu", 1440, 2880)
JOB = "model=resnet50 precision=amp epochs=90 batch=256 dataset_size=1281167"


def policy_of(raw: Any) -> SlurmPolicy:
    """The policy of plain values, as a file would hold them; raises PolicyError."""
    return settings_of(raw, SlurmPolicy, PolicyError, "policy")


def gpu_node(name: str, **changes: object) -> SlurmNode:
    kind = name[0]
    node = SlurmNode(
        name=name,
        partitions=("gpu", "nolimit") if kind == "p" else ("gpu", "nolimit", "short"),
        features=FEATURES[kind],
        gpus=(GpuGres(TYPES[kind], 4),),
        states=frozenset({"IDLE"}),
    )
    return replace(node, **changes)  # type: ignore[arg-type]


def cluster(**changes: object) -> Cluster:
    whole = Cluster(
        taken_s=1.8e9,
        settings=Settings(version="22.05.8", enforce_part_limits="NO"),
        nodes=tuple(gpu_node(n) for n in ("a1", "a2", "p1", "p2", "v1", "v2")),
        partitions=(
            Partition(name="gpu", default=True, default_min=1440, max_min=2880),
            Partition(name="short", default_min=10, max_min=30),
            Partition(name="nolimit"),
        ),
    )
    return replace(whole, **changes)  # type: ignore[arg-type]


def submit(**fields: object) -> HookRequest:
    given: dict[str, object] = {
        "uid": 21001,
        "user": "u1",
        "account": "lab1",
        "name": "train",
        "comment": JOB,
        "partitions": (GPU_PARTITION,),
        "usable_partitions": ("cpu", "gpu", "nolimit", "short"),
        "tres_per_node": "gres:gpu:4",
    }
    return HookRequest(**(given | fields))  # type: ignore[arg-type]
