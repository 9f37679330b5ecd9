"""The store of fitted predictors: plain arrays and JSON, checked before anything reads them.

    <home>/current                      the version in use
    <home>/history                      the versions in use before it, oldest first
    <home>/pinned                       the versions that are not to be removed
    <home>/models/<version>/manifest.json
                            state.json
                            <array name, with ~ for />.npy

An artifact holds no pickle, so loading one runs no code of whoever wrote it. Its files must belong
to this user or root, be writable by nobody else and have the SHA-256 of the manifest; the version
ends in the hash of the manifest. Writers take turns; a version appears by one rename, so readers
need no lock and a writer killed half-way leaves what was there.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import trusted_files as files
from ..errors import ArtifactError
from . import manifest as manifests
from .manifest import Manifest

MMAP_BYTES = 1 << 20  # larger arrays stay in the page cache, shared between processes
HISTORY_LENGTH = 100
STATE, ARRAY_SUFFIX = "state.json", ".npy"
SLASH = "~"  # what '/' in an array name is in its file name

_ARRAY_NAME = re.compile(r"(?=.{1,200}$)\w[\w.-]*(/\w[\w.-]*)*", re.ASCII)
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Artifact:
    """A fitted predictor as stored; ``arrays`` are read-only, the large ones memory-mapped."""

    arrays: Mapping[str, NDArray[Any]]
    state: Mapping[str, Any]
    manifest: Manifest


def save(
    arrays: Mapping[str, NDArray[Any]],
    state: Mapping[str, Any],
    *,
    tables_hash: str,
    figures: Mapping[str, float] | None = None,
) -> Manifest:
    """Store a fitted predictor as a new version; ``use`` puts it to use.

    ``state`` is what JSON can hold, finite numbers only. Raises ArtifactError where an array
    holds objects, its name is no file name, or the disk does not take it.
    """
    models = _models()
    with files.exclusive(models.parent), files.draft_directory(models) as draft:
        _write(draft / STATE, manifests.encode(state))
        for name, array in arrays.items():
            _write_array(draft, name, array)
        manifest = manifests.describe(draft, tables_hash, figures or {})
        _write(draft / manifests.FILE_NAME, manifest.encode())
        files.publish(draft, models / manifest.version)
    return manifest


def load(version: str | None = None) -> Artifact:
    """The artifact of a version, by default the one in use.

    Raises ArtifactError where there is none, or where it has another format, a wrong hash or an
    owner other than this user and root.
    """
    wanted = current() if version is None else version
    if wanted is None:
        raise ArtifactError("no fitted predictor is in use; run `precision-time fit`")
    try:
        return _read(wanted)
    except ArtifactError:
        if version is None and current() != wanted:  # replaced and removed while it was read
            return load()
        raise


def versions() -> list[Manifest]:
    """The manifests of all versions, oldest first; one that cannot be trusted is logged instead."""
    found = []
    for name in _version_names():
        try:
            found.append(manifests.read(_directory(name)))
        except ArtifactError as error:
            _log.warning("version %s is left out: %s", name, error)
    return found


def current() -> str | None:
    """The version in use; None before the first ``use``."""
    lines = _lines(_models().parent / "current")
    return lines[0] if lines else None


def use(version: str) -> Manifest:
    """Put a version to use, from the next ``load`` on; raises ArtifactError if it is not sound."""
    home = _models().parent
    with files.exclusive(home):
        manifest = manifests.verify(_directory(version))
        previous = current()
        if previous not in (None, version):
            _put_to_use(home, version, [*_lines(home / "history"), str(previous)])
        else:
            _put_to_use(home, version, _lines(home / "history"))
    return manifest


def rollback() -> Manifest:
    """Go back to the version in use before this one; raises ArtifactError if none is left."""
    home = _models().parent
    with files.exclusive(home):
        history, now = _lines(home / "history"), current()
        while history:
            version = history.pop()
            try:
                manifest = manifests.verify(_directory(version))
            except ArtifactError as error:
                _log.warning("version %s is skipped: %s", version, error)
                continue
            if version != now:
                _put_to_use(home, version, history)
                return manifest
    raise ArtifactError(f"no earlier version to go back to; {_known()}")


def pinned() -> tuple[str, ...]:
    """The versions that are not to be removed, those pinned first in front."""
    return tuple(_lines(_models().parent / "pinned"))


def pin(version: str) -> Manifest:
    """Keep a version, such as one that a daemon is set to; raises ArtifactError if not sound."""
    home = _models().parent
    with files.exclusive(home):
        manifest = manifests.verify(_directory(version))
        _write_pinned(home, dict.fromkeys((*pinned(), version)))
    return manifest


def unpin(version: str) -> None:
    """Let a version go; raises ArtifactError where it is not pinned."""
    home = _models().parent
    with files.exclusive(home):
        names = dict.fromkeys(pinned())
        if version not in names:
            known = ", ".join(names) or "none"
            raise ArtifactError(f"version {version} is not pinned; pinned are {known}")
        del names[version]
        _write_pinned(home, names)


def remove(version: str) -> None:
    """Delete a version; raises ArtifactError for one in use or pinned, and for an unknown one."""
    home = _models().parent
    with files.exclusive(home):
        if version == current():
            raise ArtifactError(f"version {version} is in use; use another one first")
        if version in pinned():
            raise ArtifactError(
                f"version {version} is pinned; run `precision-time models unpin {version}` first"
            )
        files.discard(_directory(version))


def _models() -> Path:
    return files.home() / "models"


def _directory(version: str) -> Path:
    """Where a version lies, once its parents are found trustworthy."""
    models = _models()
    if not manifests.VERSION.fullmatch(version):
        raise ArtifactError(f"{version!r} is not a version; {_known()}")
    try:
        for parent in (models.parent, models):
            files.trusted(parent)
        return files.trusted(models / version)
    except FileNotFoundError:
        raise ArtifactError(f"there is no version {version}; {_known()}") from None


def _version_names() -> list[str]:
    try:
        names = [path.name for path in files.trusted(_models()).iterdir()]
    except FileNotFoundError:
        names = []
    return sorted(name for name in names if manifests.VERSION.fullmatch(name))


def _known() -> str:
    try:
        names = _version_names()
    except ArtifactError:
        names = []
    return f"stored are {', '.join(names[-10:])}" if names else "run `precision-time fit`"


def _lines(path: Path) -> list[str]:
    """The versions named in ``current`` or ``history``."""
    try:
        files.trusted(path.parent)
        return files.trusted(path).read_text().split()
    except FileNotFoundError:
        return []


def _put_to_use(home: Path, version: str, history: list[str]) -> None:
    files.replace_text(home / "history", "".join(f"{v}\n" for v in history[-HISTORY_LENGTH:]))
    files.replace_text(home / "current", f"{version}\n")


def _write_pinned(home: Path, names: Iterable[str]) -> None:
    files.replace_text(home / "pinned", "".join(f"{name}\n" for name in names))


def _write(path: Path, content: bytes) -> None:
    with files.create(path) as file:
        file.write(content)


def _file_name(array: str) -> str:
    return array.replace("/", SLASH) + ARRAY_SUFFIX


def _array_name(file: str) -> str:
    return file.removesuffix(ARRAY_SUFFIX).replace(SLASH, "/")


def _write_array(draft: Path, name: str, array: NDArray[Any]) -> None:
    if not _ARRAY_NAME.fullmatch(name):
        raise ArtifactError(
            f"array name {name!r} is not possible: words of letters, digits, '_', '.', '-' with"
            " '/' between them"
        )
    with files.create(draft / _file_name(name)) as file:
        try:
            np.save(file, array, allow_pickle=False)
        except ValueError:
            raise ArtifactError(f"array {name!r} holds objects; store numbers or text") from None


def _read(version: str) -> Artifact:
    directory = _directory(version)
    manifest = manifests.verify(directory)
    try:
        state = json.loads((directory / STATE).read_bytes())
        arrays = {
            _array_name(name): _open_array(directory / name)
            for name in manifest.files
            if name.endswith(ARRAY_SUFFIX)
        }
    except FileNotFoundError:
        raise ArtifactError(f"version {version} was removed while it was read") from None
    return Artifact(arrays, state, manifest)


def _open_array(path: Path) -> NDArray[Any]:
    large = path.stat().st_size > MMAP_BYTES
    array = np.load(path, mmap_mode="r" if large else None, allow_pickle=False)
    array.flags.writeable = False
    return np.asarray(array)
