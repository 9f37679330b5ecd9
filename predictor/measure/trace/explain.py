"""What torch says when it cannot trace a network -> what the user can do about it."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from traceback import walk_tb
from types import TracebackType

import torch

from ...errors import GraphError, PrecisionTimeError

_VALUES = (
    "its result depends on values, and a trace has only shapes: take the decision outside of"
    " forward, set the chance of dropped layers to 0, or give the network without this part"
)
_NO_FAKE = (
    "it has no fake implementation: register one with torch.library.register_fake, or build the"
    " network with its plain torch equivalent"
)
# What an error is called and says -> advice; the first that matches.
_ADVICE = tuple(
    (re.compile(pattern, re.IGNORECASE), advice)
    for pattern, advice in (
        (r"flex_?attention", "trace it with scaled_dot_product_attention"),
        (
            r"HigherOrderOperator",
            "torch.cond and its like are not traced: call the branch that training takes",
        ),
        (r"_OpNamespace", "import the library that brings this operator beside the network"),
        (
            r"process group|torch\.distributed",
            "trace the network of one GPU: collectives are added by the layout of the job",
        ),
        (
            r"\.numpy\(\)|numpy\.ndarray",
            "numpy computes outside of torch: write it with torch operators",
        ),
        (
            r"sparse|nested",
            "sparse and nested tensors hold sizes that depend on values: use dense"
            " ones, or Embedding(sparse=True)",
        ),
        (r"DataDependent|DynamicOutputShape|nonzero|item\(\)", _VALUES),
        (r"UnsupportedOperator|fake impl|meta kernel|0 active drivers|triton", _NO_FAKE),
        (
            r"cuda|nvidia driver|device type|same device",
            "a trace has one device: leave out .cuda(), .cpu() and .to(device) in forward",
        ),
        (r"^TypeError", "check the names and number of the inputs against what forward takes"),
        (
            r"size|shape|\bdim|mat1|channels|index",
            "the shapes do not fit: check --input against what forward takes",
        ),
    )
)
_OTHER = "forward must run on tensors without data: try it on real inputs first"
_TORCH = str(Path(torch.__file__).parent)
_OURS = str(Path(__file__).parent)


@contextmanager
def explained(module: torch.nn.Module) -> Iterator[None]:
    """Turn torch's error into one that names the module, the operator, and what to do."""
    log = logging.getLogger("torch._subclasses.fake_tensor")
    level = log.level
    log.setLevel(logging.CRITICAL)  # the error itself says what it would say
    try:
        yield
    except (PrecisionTimeError, KeyboardInterrupt):
        raise
    except Exception as error:
        raise GraphError(_message(module, error)) from error
    finally:
        log.setLevel(level)


def _message(module: torch.nn.Module, error: Exception) -> str:
    said = str(error).strip().split("\n")[0] or type(error).__name__
    said = said.replace("aten._local_scalar_dense.default", "a value is asked for, as by .item()")
    place = _module_path(module, error.__traceback__) + _line(error.__traceback__)
    return f"cannot trace {place}: {said[:300]}; {_advice(error)}"


def _advice(error: Exception) -> str:
    text = f"{type(error).__name__} {error}"
    return next((advice for pattern, advice in _ADVICE if pattern.search(text)), _OTHER)


def _module_path(module: torch.nn.Module, traceback: TracebackType | None) -> str:
    """The innermost module of the network that the error came through."""
    names = {id(part): name for name, part in module.named_modules()}
    found = type(module).__name__
    for frame, _ in walk_tb(traceback):
        for owner in list(frame.f_locals.values())[:1]:  # the first argument, self by custom
            if isinstance(owner, torch.nn.Module) and names.get(id(owner)):
                found = f"{names[id(owner)]} ({type(owner).__name__})"
    return found


def _line(traceback: TracebackType | None) -> str:
    """The innermost line of code that is neither torch's nor ours."""
    found = ""
    for frame, line in walk_tb(traceback):
        file = frame.f_code.co_filename
        if not file.startswith((_TORCH, _OURS)):
            found = f" at {Path(file).name}:{line}"
    return found
