"""Nodes as the API server holds them where GPU feature discovery runs."""

from __future__ import annotations

from typing import Any

GPU = "nvidia.com/gpu."


def node(
    name: str,
    product: str = "Tesla-T4",
    *,
    memory: int = 15360,
    gpus: int = 4,
    capability: tuple[int, int] = (7, 5),
    labels: dict[str, str] | None = None,
    resources: dict[str, str] | None = None,
) -> dict[str, Any]:
    discovered = {
        f"{GPU}product": product,
        f"{GPU}memory": str(memory),
        f"{GPU}count": str(gpus),
        f"{GPU}replicas": "1",
        f"{GPU}sharing-strategy": "none",
        f"{GPU}present": "true",
        f"{GPU}compute.major": str(capability[0]),
        f"{GPU}compute.minor": str(capability[1]),
        "nvidia.com/mig.strategy": "single",
    }
    offered = {"cpu": "64", "nvidia.com/gpu": str(gpus)} | (resources or {})
    return {
        "metadata": {
            "name": name,
            "uid": f"uid-{name}",
            "labels": {"kubernetes.io/hostname": name, **discovered, **(labels or {})},
            "managedFields": [{"manager": "kubelet"}],
        },
        "status": {"capacity": offered, "allocatable": offered},
    }


def a100(name: str, **more: Any) -> dict[str, Any]:
    product = more.pop("product", "NVIDIA-A100-SXM4-80GB")
    more = {"memory": 81920, "gpus": 8, "capability": (8, 0)} | more
    return node(name, product, **more)


def without_labels(name: str, labels: dict[str, str], gpus: int = 8) -> dict[str, Any]:
    """A node where GPU feature discovery does not run."""
    offered = {"nvidia.com/gpu": str(gpus)} if gpus else {"cpu": "64"}
    return {
        "metadata": {"name": name, "labels": labels},
        "status": {"capacity": offered, "allocatable": offered},
    }
