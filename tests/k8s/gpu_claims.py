"""ResourceSlices, classes and requests as a real API server held them, of any of three GPUs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

PAYLOADS = Path(__file__).parent / "payloads" / "placement"
ATTRIBUTES = "device.attributes['gpu.nvidia.com']"
GPUS = {
    "h100": ("NVIDIA H100 80GB HBM3", "Hopper", "81559Mi"),
    "a100": ("NVIDIA A100-SXM4-80GB", "Ampere", "81920Mi"),
    "v100": ("Tesla V100-SXM2-16GB", "Volta", "16384Mi"),
}


def payload(name: str) -> dict[str, Any]:
    return dict(json.loads((PAYLOADS / f"dra-{name}.json").read_text()))


def gpu_slice(name: str) -> dict[str, Any]:
    """The captured slice, of another GPU."""
    found = payload("resourceslice-h100")
    product, architecture, memory = GPUS[name]
    found["metadata"]["name"] = found["spec"]["nodeName"] = found["spec"]["pool"]["name"] = name
    for device in found["spec"]["devices"]:
        device["attributes"] |= {
            "productName": {"string": product},
            "architecture": {"string": architecture},
        }
        device["capacity"]["memory"]["value"] = memory
    return found


def wanted(*expressions: str, count: int = 1) -> dict[str, Any]:
    """A request of the captured class with selectors."""
    selectors = [{"cel": {"expression": text}} for text in expressions]
    return {
        "name": "one",
        "deviceClassName": "gpu.nvidia.com",
        "selectors": selectors,
        "allocationMode": "ExactCount",
        "count": count,
    }


def of(name: str, count: int = 1) -> dict[str, Any]:
    return wanted(f"{ATTRIBUTES}.architecture == '{GPUS[name][1]}'", count=count) | {"name": name}
