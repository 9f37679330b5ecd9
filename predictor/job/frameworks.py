"""Framework and software era from the ways people write them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache, lru_cache
from math import inf

from profiles.storage import shipped_yaml

from ..errors import JobError
from .words import accepted

# Releases of NVIDIA's images, and versions in them: 22.06, 1.12.0a0+8a1a93a.
_CONTAINER = re.compile(r"(?<![\d.])(?<!ubuntu)(1[7-9]|2[0-9])\.(0[1-9]|1[0-2])(?![\d.])")
_OF_OTHERS = re.compile(r"container=(?!.*(?:nvcr\.io|nvidia|-py3))[^;]*[/:]")
_NVIDIA = re.compile(r"nvcr\.io|\bngc|\da0\+[0-9a-f]{7,}\b")
_ROUND = re.compile(r"training_results_v(\d+\.\d+)")
FIRST_CAPTURED, CAPTURED_SINCE = 1.0, 2021.25  # round 1.0, of NVIDIA's images 21.04 and 21.05
_WORD = re.compile(r"(?<![\w.+])[a-z][a-z0-9_.-]*")  # none of a version: 1.12.0a0+8a1a93a
_VERSION = r"({})[ =/v-]{{0,2}}(\d+)\.(\d+)"
_FILE = "frameworks.yaml"
PYTORCH = "pytorch"  # what is taken where none is named


@cache
def frameworks() -> tuple[str, ...]:
    """Every name that ``parse_framework`` knows."""
    return tuple(shipped_yaml(_FILE)["patterns"])


@cache
def _releases() -> dict[str, tuple[tuple[float, float], ...]]:
    return {
        name: tuple((_version(str(v)), float(date)) for v, date in versions.items())
        for name, versions in shipped_yaml(_FILE)["releases"].items()
    }


def _version(text: str) -> float:
    major, _, minor = text.partition(".")
    return int(major) + int(minor or 0) / 100


@dataclass(frozen=True, slots=True)
class Framework:
    """A normalised framework and, where told, the date of its software in years.

    ``options`` are those that its text says: who built it, and who casts.
    """

    name: str
    date: float | None
    options: tuple[tuple[str, str], ...] = ()


@lru_cache(maxsize=4096)
def framework_of(text: str, container: str = "") -> Framework:
    """The framework a person names, with the date of its version or of a container (``24.05``).

    Raises JobError with the nearest names for a word that names none.
    """
    lower = text.strip().lower()
    words = [word.strip("-._") for word in _WORD.findall(lower)]
    others = shipped_yaml(_FILE)["words"]
    for word in filter(None, words):
        if word not in frameworks() and word.rstrip("0123456789.") not in others:
            raise JobError("framework", text, accepted(word, (*frameworks(), *others)))
    if not _named(lower):
        raise JobError("framework", text, accepted(lower, frameworks()))
    return parse_framework(text, f"container={container}" if container else "")


def parse_framework(text: str, options: str = "", model: str = "") -> Framework:
    """Normalise a framework string; ``options`` may hold ``container=YY.MM``.

    Submissions that list several frameworks (MLPerf) are told apart by the network: NVIDIA and
    partners ran image classification and 3-D segmentation in MXNet and recommendation in HugeCTR.
    """
    lower, options = text.lower(), options.lower()
    released = "container" in options and not _OF_OTHERS.search(options)
    image = _CONTAINER.search(options) if released else None
    image = image or _CONTAINER.search(lower)
    date = 2000 + int(image[1]) + int(image[2]) / 12 if image else _released(lower)
    built = (("build", "nvidia"),) if image or _NVIDIA.search(lower) else ()
    casts = (("amp", "deepspeed"),) if "deepspeed" in lower else ()
    return Framework(_name(lower, model), date, built + casts)


def submission_options(text: str, repository: str, date: float | None) -> dict[str, str]:
    """What every MLPerf submission does and no row of its results says.

    Image networks keep channels last with fused norms and activations; from round 1.0 on steps
    are captured as CUDA graphs (NVIDIA's account of round 1.0). Where ``repository`` names no round
    the ``date`` of the software tells, and none is today's.
    """
    if not text.lower().startswith("mlperf"):
        return {}
    match = _ROUND.search(repository)
    captured = float(match[1]) >= FIRST_CAPTURED if match else (date or inf) >= CAPTURED_SINCE
    return {"channels_last": "on", "fused": "on"} | ({"cuda_graph": "on"} if captured else {})


def names_framework(text: str) -> bool:
    """Whether a text of a table names a framework, or a submission of one."""
    return text.lower().startswith("mlperf") or bool(_named(text.lower()))


def _named(text: str) -> list[str]:
    patterns = shipped_yaml(_FILE)["patterns"].items()
    return [name for name, pattern in patterns if re.search(pattern, text)]


def _name(text: str, model: str) -> str:
    named = _named(text)
    if text.startswith("mlperf"):
        if model.startswith("dlrm"):
            return "hugectr"
        if "mxnet" in named and (len(named) == 1 or re.match(r"resnet|unet3d", model)):
            return "mxnet"
        if model.startswith("gpt3") or named == ["nemo"]:
            return "nemo"
        return "tensorflow2" if named and named[0].startswith("tensorflow") else PYTORCH
    if "mxnet" in named and "simpledet" in text:
        return "mxnet"
    return named[0] if named else PYTORCH


def _released(text: str) -> float | None:
    """When the latest of the versions that a text names came out."""
    named = re.findall(_VERSION.format("|".join(_releases())), text)
    found = ((_releases()[name], _version(f"{major}.{minor}")) for name, major, minor in named)
    nearest = (min(of, key=lambda one: abs(one[0] - version)) for of, version in found)
    return max((date for _, date in nearest), default=None)
