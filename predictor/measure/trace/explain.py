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
import yaml
from yaml import CSafeLoader

from ...errors import GraphError, PrecisionTimeError

# What an error is called and says -> advice; the first that matches.
_ADVICE = tuple(
    (re.compile(one["says"], re.IGNORECASE), one["advice"])
    for one in yaml.load(Path(__file__).with_name("advice.yaml").read_bytes(), CSafeLoader)
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
