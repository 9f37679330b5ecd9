"""Operators of torch that move data and compute little: priced by what they read and write."""

from __future__ import annotations

from itertools import chain
from pathlib import Path

import yaml
from yaml import CSafeLoader

_NAMES = yaml.load(Path(__file__).with_name("known.yaml").read_bytes(), CSafeLoader)

LITERAL = frozenset(chain.from_iterable(_NAMES["literal"]))
PART_OF_LOSS = frozenset(_NAMES["part_of_loss"])
