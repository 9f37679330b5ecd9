"""The store of fitted predictors: plain arrays and JSON, checked before anything reads them.

    <package>/shipped/                  the artifact that comes with this release
    <home>/current                      the version in use; without it the shipped one is
    <home>/history                      the versions in use before it, oldest first
    <home>/models/<version>/manifest.json
                            state.json
                            arrays.npz

An artifact holds no pickle, so loading one runs no code of whoever wrote it. Its files have the
SHA-256 of the manifest; the version ends in the hash of the manifest. Those in a home must belong
to this user or root and be writable by nobody else; the shipped one is trusted as the code beside
it is. Writers take turns; a version appears by one rename, so readers need no lock and a writer
killed half-way leaves what was there.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from hashlib import file_digest, sha256
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import trusted_files as files
from ..errors import ArtifactError

SHIPPED = "shipped"  # what the files of a home call the artifact of whatever release is installed
HISTORY_LENGTH = 100
STATE, ARRAYS, MANIFEST = "state.json", "arrays.npz", "manifest.json"
FORMAT = 3  # raise it when what was stored before can no longer be read
SHIPPED_DIRECTORY = Path(__file__).with_name("shipped")
LIBRARIES = ("numpy", "scipy")
VERSION = re.compile(r"\d{8}-\d{6}-\d{6}-[0-9a-f]{12}")

_log = logging.getLogger(__name__)


class OtherFormatError(ArtifactError):
    """An artifact of a release that stored them otherwise."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """What an artifact is made of.

    ``created`` is ISO 8601 in UTC; ``files`` maps a file name to its SHA-256; ``tables_hash``
    names the state of ``profiles/`` it was fitted on, ``libraries`` the versions that fitted it,
    ``figures`` what its own evaluation came to.
    """

    version: str
    created: str
    format: int
    files: Mapping[str, str]
    tables_hash: str
    libraries: Mapping[str, str]
    figures: Mapping[str, float]

    def digest(self) -> str:
        """Hash of everything but the version, which ends in it."""
        return sha256(_json(asdict(replace(self, version="")))).hexdigest()[:12]


@dataclass(frozen=True, slots=True)
class Artifact:
    """A fitted predictor as stored; ``arrays`` are read-only."""

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
    holds objects or the disk does not take it.
    """
    models = _models()
    with files.exclusive(models.parent), files.draft_directory(models) as draft:
        _write(draft / STATE, _json(state))
        for name, array in arrays.items():
            if array.dtype.hasobject:
                raise ArtifactError(f"array {name!r} holds objects; store numbers or text")
        with files.create(draft / ARRAYS) as file:
            np.savez_compressed(file, **arrays)  # type: ignore[arg-type]
        now = datetime.now(UTC)
        unnamed = Manifest(
            version="",
            created=now.isoformat(),
            format=FORMAT,
            files={path.name: _sha256(path) for path in sorted(draft.iterdir())},
            tables_hash=tables_hash,
            libraries={name: installed_version(name) for name in LIBRARIES},
            figures=dict(figures or {}),
        )
        # Versions sort by their time.
        name = f"{now:%Y%m%d-%H%M%S-%f}-{unnamed.digest()}"
        manifest = replace(unnamed, version=name)
        _write(draft / MANIFEST, _json(asdict(manifest)))
        files.publish(draft, models / manifest.version)
    return manifest


def load(version: str | None = None) -> Artifact:
    """The artifact of a version, by default the one in use.

    Raises ArtifactError where there is none, or where it has another format, a wrong hash or an
    owner other than this user and root.
    """
    wanted = current() if version is None else version
    try:
        return _read(wanted)
    except ArtifactError:
        if version is None and current() != wanted:  # replaced and removed while it was read
            return load()
        raise


def versions() -> list[Manifest]:
    """The manifests of all stored versions, oldest first; one not to be trusted is logged."""
    found = []
    for name in _version_names():
        try:
            found.append(_manifest_in(_directory(name)))
        except ArtifactError as error:
            _log.warning("version %s is left out: %s", name, error)
    return found


def shipped() -> Manifest:
    """The manifest of the artifact that comes with this release."""
    return _manifest_in(SHIPPED_DIRECTORY)


def current() -> str:
    """The version in use: the shipped one before the first ``use``.

    A version in the format of another release gives way to the shipped one, and the log says so.
    """
    named = _named()
    if named == SHIPPED:
        return shipped().version
    try:
        _manifest_in(_directory(named))
    except OtherFormatError as error:
        _log.warning("the shipped predictor is used instead: %s", error)
        return shipped().version
    except ArtifactError:
        pass  # whoever loads it is told what is wrong
    return named


def use(version: str) -> Manifest:
    """Put a version to use, from the next ``load`` on; raises ArtifactError if it is not sound."""
    with files.exclusive(files.home()):
        manifest, previous, history = _verified(version), _named(), _lines("history")
        name = SHIPPED if manifest == shipped() else manifest.version
        _put_to_use(name, history if previous == name else [*history, previous])
    return manifest


def rollback() -> Manifest:
    """Go back to the version in use before this one; raises ArtifactError if none is left."""
    with files.exclusive(files.home()):
        history, now = _lines("history"), _named()
        while history:
            version = history.pop()
            try:
                manifest = _verified(version)
            except ArtifactError as error:
                _log.warning("version %s is skipped: %s", version, error)
                continue
            if version != now:
                _put_to_use(version, history)
                return manifest
    raise ArtifactError(f"no earlier version to go back to; {_known()}")


def remove(version: str) -> None:
    """Delete a version; raises ArtifactError for one in use and an unknown one."""
    with files.exclusive(files.home()):
        if _directory(version) == SHIPPED_DIRECTORY:
            raise ArtifactError(f"version {version} comes with this release and stays")
        if version == current():
            raise ArtifactError(f"version {version} is in use; use another one first")
        files.discard(_directory(version))


def _models() -> Path:
    return files.home() / "models"


def _verified(version: str) -> Manifest:
    """The manifest of a version whose every file is what was stored; else raises ArtifactError."""
    directory = _directory(version)
    manifest = _manifest_in(directory)
    for name, expected in manifest.files.items():
        try:
            found = _sha256(_checked(directory / name))
        except FileNotFoundError:
            found = "missing"
        if found != expected:
            raise ArtifactError(
                f"{directory / name} is not what was stored (SHA-256 {found[:12]}, manifest"
                f" {expected[:12]}); {_mend(directory)}"
            )
    return manifest


def _named() -> str:
    """What ``current`` names."""
    return next(iter(_lines("current")), SHIPPED)


def _directory(version: str) -> Path:
    """Where a version lies, once its parents are found trustworthy."""
    if version in (SHIPPED, shipped().version):
        return SHIPPED_DIRECTORY
    models = _models()
    if not VERSION.fullmatch(version):
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
    return sorted(name for name in names if VERSION.fullmatch(name))


def _known() -> str:
    try:
        names = _version_names()
    except ArtifactError:
        names = []
    return f"stored are {', '.join(names[-10:])}" if names else "run `precision-time fit`"


def _lines(name: str) -> list[str]:
    """The versions named in ``current`` or ``history``."""
    try:
        return files.trusted(files.trusted(files.home()) / name).read_text().split()
    except FileNotFoundError:
        return []


def _write_lines(name: str, versions: Iterable[str]) -> None:
    files.replace_text(files.home() / name, "".join(f"{version}\n" for version in versions))


def _put_to_use(version: str, history: list[str]) -> None:
    _write_lines("history", history[-HISTORY_LENGTH:])
    _write_lines("current", [version])


def _write(path: Path, content: bytes) -> None:
    with files.create(path) as file:
        file.write(content)


def _read(version: str) -> Artifact:
    directory, manifest = _directory(version), _verified(version)
    try:
        state = json.loads((directory / STATE).read_bytes())
        with np.load(directory / ARRAYS, allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
    except FileNotFoundError:
        raise ArtifactError(f"version {version} was removed while it was read") from None
    for array in arrays.values():
        array.flags.writeable = False
    return Artifact(arrays, state, manifest)


def _json(value: object) -> bytes:
    """JSON of a state or manifest; raises ArtifactError for what JSON cannot hold."""
    try:
        return json.dumps(value, allow_nan=False, indent=1).encode()
    except (TypeError, ValueError) as error:
        raise ArtifactError(f"only finite numbers, text, lists and maps: {error}") from error


def _manifest_in(directory: Path) -> Manifest:
    """The manifest of a version; raises ArtifactError if it is not the one that was written."""
    path = directory / MANIFEST
    try:
        raw = json.loads(_checked(path).read_bytes())
        if raw["format"] != FORMAT:
            raise OtherFormatError(
                f"version {directory.name} has format {raw['format']}, this release reads"
                f" {FORMAT}; run `precision-time fit`, or `precision-time calibrate` where the"
                " runs of the site taught it"
            )
        manifest = Manifest(**raw)
        sound = (
            directory in (SHIPPED_DIRECTORY, directory.with_name(manifest.version))
            and manifest.version.endswith(manifest.digest())
            and all(name == Path(name).name for name in manifest.files)
        )
    except (FileNotFoundError, ValueError, TypeError, KeyError):
        sound = False
    if not sound:
        raise ArtifactError(f"{path} is damaged; {_mend(directory)}")
    return manifest


def _checked(path: Path) -> Path:
    """The same path, if it is to be trusted; the shipped files are as the code beside them."""
    return path if path.parent == SHIPPED_DIRECTORY else files.trusted(path)


def _mend(directory: Path) -> str:
    if directory == SHIPPED_DIRECTORY:
        return "install precision-time anew"
    return f"run `precision-time fit`, then remove {directory.name}"


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()
