"""A configuration that cannot do what it says is refused when it is read."""

from __future__ import annotations

from typing import Any

import pytest
from k8s_configs import config_of

from k8s_extender.errors import ConfigError


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        ({"assumed_precision": "fp17"}, "assumed_precision.*fp17.*fp16"),
        ({"hardware": {"fabric": "token-ring"}}, "hardware.fabric.*token-ring.*ib-hdr"),
        ({"hardware": {"products": {"GRID": "a101"}}}, "hardware.products.GRID.*a101.*a100"),
        ({"hardware": {"products": {"A100": "banana"}}}, "products.A100='banana': expected one of"),
        ({"hardware": {"node_label_gpus": {"big": "h1000"}}}, "node_label_gpus.big.*h1000"),
        ({"hardware": {"prices_per_gpu_hour": {"a101": 2}}}, "prices_per_gpu_hour.*a101.*a100"),
        ({"hardware": {"prices_per_gpu_hour": {"a100": -2}}}, "prices_per_gpu_hour.*above"),
        ({"hardware": {"prices_per_gpu_hour": {"a100": 0}}}, "prices_per_gpu_hour.*above"),
        ({"hardware": {"prices_per_gpu_hour": {"a100": float("nan")}}}, "prices_per_gpu_hour"),
    ],
)
def test_what_is_meant_must_be_known(raw: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        config_of(raw)


def test_a_gpu_may_be_named_in_any_way_that_it_is_known_by() -> None:
    prices = {"NVIDIA-A100-SXM4-80GB": 2.5, "Tesla T4": 0.4}
    found = config_of({"hardware": {"prices_per_gpu_hour": prices}}).hardware
    assert found.prices_per_gpu_hour == {"a100-sxm4-80gb": 2.5, "t4-16gb": 0.4}


def test_a_precision_may_be_named_by_its_alias() -> None:
    assert config_of({"assumed_precision": "amp"}).assumed_precision == "mixed_fp16_fp32"
