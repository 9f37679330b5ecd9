"""What torch says when it cannot trace a network -> what the user can do about it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType

import torch

from ..errors import GraphError, PrecisionTimeError

_VALUES = (
    "its result depends on values, and a trace has only shapes: take the decision outside of"
    " forward, or give the network without this part"
)
_NO_FAKE = (
    "it has no fake implementation: register one with torch.library.register_fake, or build the"
    " network with its plain torch equivalent"
)
_DEVICE = "a trace has one device: leave out .cuda(), .cpu() and .to(device) in forward"
_SHAPES = "the shapes do not fit: check --input against what forward takes"


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
    place = _module_path(module, error.__traceback__)
    return f"cannot trace {place}: {said[:300]}; {_advice(error)}"


def _advice(error: Exception) -> str:
    kind, text = type(error).__name__, str(error)
    if kind in ("DataDependentOutputException", "DynamicOutputShapeException"):
        return _VALUES
    if "GuardOnDataDependent" in kind or "nonzero" in text or "item()" in text:
        return _VALUES
    if kind == "UnsupportedOperatorException" or "fake impl" in text or "meta kernel" in text:
        return _NO_FAKE
    if "0 active drivers" in text or "triton" in text.lower():
        return _NO_FAKE
    if any(
        word in text.lower() for word in ("cuda", "nvidia driver", "device type", "same device")
    ):
        return _DEVICE
    if isinstance(error, TypeError):
        return "check the names and number of the inputs against what forward takes"
    return _SHAPES


def _module_path(module: torch.nn.Module, traceback: TracebackType | None) -> str:
    """Where in the network the error came from, and the line of code."""
    names = {id(part): name for name, part in module.named_modules()}
    found, line = type(module).__name__, ""
    while traceback is not None:
        owner = traceback.tb_frame.f_locals.get("self")
        if isinstance(owner, torch.nn.Module) and id(owner) in names:
            code = traceback.tb_frame.f_code
            if "torch/nn/modules/module.py" not in code.co_filename:
                path = names[id(owner)]
                found = f"{path} ({type(owner).__name__})" if path else type(owner).__name__
                line = f" at {code.co_filename.rpartition('/')[2]}:{traceback.tb_lineno}"
        traceback = traceback.tb_next
    return found + line
