"""How the files that a command names may be read, and the settings in their text; none is run."""

from __future__ import annotations

import ast
import json
import math
import os
import posixpath
import re
import stat
import tomllib
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any

import yaml
from yaml import CSafeLoader

from .shell_syntax import UNKNOWN

MAX_TEXT, MAX_VALUE = 64 * 1024, 256
MAX_SETTINGS, MAX_DEPTH, MAX_NUMBER = 2000, 16, 2**63
DEFAULTS = "defaults"  # of Hydra: the files that a configuration is put together from
_SAYS = re.compile(r"^\s*[^#\s]", re.MULTILINE)  # more than remarks
_PACKAGE = re.compile(r"^# *(@package) +(\S+)", re.MULTILINE)


class _Loader(CSafeLoader):
    """What a program would construct from a text (``!new:``, ``!!python/...``) is unknown."""


for _tag in ("!", "tag:yaml.org,2002:python/"):
    _Loader.add_multi_constructor(_tag, lambda *_: UNKNOWN)
_OPENING = (yaml.MappingStartEvent, yaml.SequenceStartEvent)
_CLOSING = (yaml.MappingEndEvent, yaml.SequenceEndEvent)
_FAILURES = (ValueError, TypeError, SyntaxError, RecursionError, MemoryError, yaml.YAMLError)
_nodes_in = lru_cache(2)(lambda text: list(ast.walk(ast.parse(text))))  # asked for several calls
_PARTS = (ast.FunctionDef, ast.If, ast.For, ast.While, ast.ExceptHandler, ast.Lambda, ast.Match)


# The text of a small file by the path that a command has, relative to where it starts; None where
# there is none to be read. Never raises.
Files = Callable[[str], str | None]


def user_files(directory: Path) -> Files:
    """Regular files of at most 64 KiB with the rights of this process, from ``directory`` on."""

    def read(path: str) -> str | None:
        try:
            descriptor = os.open(directory / path, os.O_RDONLY | os.O_NONBLOCK)
            with os.fdopen(descriptor, "rb") as file:
                if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                    return None
                text = file.read(MAX_TEXT + 1)
        except (OSError, ValueError):
            return None
        return text.decode(errors="replace") if len(text) <= MAX_TEXT else None

    return read


def files_at(files: Files | None, directory: str | None) -> Files | None:
    """The same files for a command that runs in ``directory``; None where either is not known."""
    if files is None or directory is None:
        return None
    return lambda path: files(posixpath.join(directory, path))


def settings_of(name: str, text: str) -> dict[str, str] | None:
    """Every plain setting of a JSON, TOML, YAML or Python configuration; None where it is none.

    Numbers of a list stand between ``x``, as sizes do, texts between ``;``, and so do the groups
    of Hydra's ``defaults``, as ``name=choice``. What only running could tell (an expression) holds
    UNKNOWN. At most 2,000 settings of 16 levels are read.
    """
    read, found = _READERS.get(name.rpartition(".")[2].lower(), _read_yaml), None
    if len(text) <= MAX_TEXT:
        with suppress(*_FAILURES):
            found = read(text)
    if not isinstance(found, dict):
        return None
    if isinstance(chosen := found.get(DEFAULTS), list):
        pairs = (one if isinstance(one, dict) else {"": one} for one in chosen)
        line = ";".join(f"{k}={v}" for one in pairs for k, v in one.items())
        found[DEFAULTS] = line if len(line) <= MAX_VALUE else f"={UNKNOWN}"
    found |= _PACKAGE.findall(text)[:1]
    nodes = filter(None, islice(_nodes(found, "", 0), MAX_SETTINGS))
    return {name: word for name, value in nodes if (word := _text(value)) is not None}


def resolved(told: Mapping[str, str], over: Collection[str]) -> dict[str, str]:
    """Settings, where a text that is another (``${name}``) is that one's, unless it is ``over``."""
    plain = {f"${{{n}}}": word for n, word in told.items() if "${" not in word and n not in over}
    return {n: plain.get(word, UNKNOWN) if "${" in word else word for n, word in told.items()}


def _nodes(
    values: Mapping[Any, Any], prefix: str, depth: int
) -> Iterator[tuple[str, object] | None]:
    """Each setting with its name, and None for each mapping on the way: anchors may multiply."""
    for key, value in values.items():
        if not isinstance(value, dict):
            yield f"{prefix}{key}", value
            continue
        yield None
        if depth < MAX_DEPTH:
            yield from _nodes(value, f"{prefix}{key}.", depth + 1)


def _text(value: object) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        return value[:MAX_VALUE]
    if not isinstance(value, list | tuple) or not 1 <= len(value) <= MAX_DEPTH:
        return None
    if all(isinstance(one, int | float) for one in value):
        return "x".join(map(repr, value))
    return ";".join(value) if all(isinstance(one, str) for one in value) else UNKNOWN


def _read_yaml(text: str) -> Any:
    depth = 0
    for event in yaml.parse(text, CSafeLoader):  # loading recurses, parsing does not
        depth += isinstance(event, _OPENING) - isinstance(event, _CLOSING)
        if depth > MAX_DEPTH:
            raise ValueError("nested too deep")
    return yaml.load(text, _Loader) if not text or _SAYS.search(text) else {}


def _read_python(text: str) -> dict[str, Any]:
    """Names that a module sets to literals and ``dict(...)`` of them."""
    found: dict[str, Any] = {}
    for node in ast.parse(text).body:
        match node:
            case ast.Assign([ast.Name(name), *_], value):
                found[name] = _literal(value, found)
            case ast.AnnAssign(ast.Name(name), _, ast.expr() as value):
                found[name] = _literal(value, found)
    return found


def called(made: Mapping[str, str], text: str, whole: str) -> Iterator[dict[str, str]]:
    """What each call that is ``made`` in a Python program is told: plain values by their keywords.

    The one without is ``first``; ``a.x`` stands as ``.x``, a name that is set once as its value,
    what only running could tell as UNKNOWN, as all that a branch or an idle function tells does.
    """
    with suppress(*_FAILURES):
        nodes = _nodes_in(text)
        bound = (n for n in nodes if isinstance(getattr(n, "ctx", n), ast.Store | ast.arg))
        stored = Counter(map(_name, bound))
        values = ((_name(n.targets[0]), n.value) for n in nodes if isinstance(n, ast.Assign))
        known = {key: _literal(value, {}) for key, value in values if stored[key] == 1}
        for call in (node for node in nodes if isinstance(node, ast.Call)):
            owner = _name(getattr(call.func, "value", call))
            if re.search(rf"(?:^|\.){made['made']}$", f"{owner}.{_name(call.func)}"):
                told = [(made["first"], one) for one in call.args[:1]]
                told += [(one.arg, one.value) for one in call.keywords if one.arg]
                plain = {key: _text(_literal(one, known)) or UNKNOWN for key, one in told}
                named = {key: f".{n.attr}" for key, n in told if isinstance(n, ast.Attribute)}
                idle = any(_may_not_run(node, call, whole) for node in nodes)
                yield dict.fromkeys(plain, UNKNOWN) if idle else plain | named


def _may_not_run(node: ast.AST, call: ast.Call, whole: str) -> bool:
    """Whether a call is in a branch, a loop, or a function that the ``whole`` names once."""
    if not isinstance(node, _PARTS) or not node.lineno <= call.lineno <= (node.end_lineno or 0):
        return False
    if isinstance(node, ast.FunctionDef):
        return node.name[:2] != "__" and len(re.findall(rf"\b{node.name}\b", whole)) < 2
    return not (isinstance(node, ast.If) and "'__name__'" in ast.dump(node.test))


def _name(node: ast.AST) -> str:
    return next((getattr(node, key) for key in ("attr", "id", "arg") if hasattr(node, key)), "")


def _literal(node: ast.expr, known: Mapping[str, Any]) -> Any:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "dict":
        return {k.arg: _literal(k.value, known) for k in node.keywords if k.arg is not None}
    if isinstance(node, ast.Dict):
        pairs = zip(node.keys, node.values, strict=True)
        return {_literal(k, known): _literal(v, known) for k, v in pairs if k is not None}
    if isinstance(node, ast.List | ast.Tuple):
        return [_literal(one, known) for one in node.elts]
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        return known.get(node.id, UNKNOWN)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        sides = [_literal(node.left, known), _literal(node.right, known)]
        if all(type(side) is int for side in sides) and abs(math.prod(sides)) < MAX_NUMBER:
            return math.prod(sides)
    return UNKNOWN


_READERS: Mapping[str, Callable[[str], Any]] = {
    "json": json.loads,
    "toml": tomllib.loads,
    "py": _read_python,
}
