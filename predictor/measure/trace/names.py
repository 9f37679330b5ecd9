"""Sets of torch's operators by what is said of them; ``known.yaml`` holds and explains them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import yaml

NAMES: Mapping[str, frozenset[str]] = {
    what: frozenset(names)
    for what, names in yaml.load(
        Path(__file__).with_name("known.yaml").read_bytes(), yaml.CSafeLoader
    ).items()
}
