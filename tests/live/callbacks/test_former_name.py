"""Training scripts written for ``predictor.callbacks`` still run."""

from __future__ import annotations

from importlib import import_module

import pytest


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("", "TrainingLoop"),
        (".deepspeed", "follow"),
        (".huggingface", "PrecisionTimeCallback"),
        (".lightning", "PrecisionTimeCallback"),
    ],
)
def test_the_former_import_paths_are_the_same_objects(module: str, name: str) -> None:
    former, present = (
        import_module(f"predictor.{package}{module}") for package in ("callbacks", "integrations")
    )
    assert getattr(former, name) is getattr(present, name)
