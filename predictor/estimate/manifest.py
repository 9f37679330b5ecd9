"""The manifest of an artifact: what it is made of, and whether that is still so."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from hashlib import file_digest, sha256
from importlib.metadata import version as installed_version
from pathlib import Path

from ..errors import ArtifactError
from ..trusted_files import trusted

FORMAT = 2  # raise it when what was stored before can no longer be read
FILE_NAME = "manifest.json"
SHIPPED_DIRECTORY = Path(__file__).with_name("shipped")
LIBRARIES = ("numpy", "scipy")
VERSION = re.compile(r"\d{8}-\d{6}-\d{6}-[0-9a-f]{12}")


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
        return sha256(replace(self, version="").encode()).hexdigest()[:12]

    def encode(self) -> bytes:
        """The manifest as it is stored."""
        return encode(asdict(self))


def encode(value: object) -> bytes:
    """JSON of a state or manifest; raises ArtifactError for what JSON cannot hold."""
    try:
        return json.dumps(value, allow_nan=False, indent=1).encode()
    except (TypeError, ValueError) as error:
        raise ArtifactError(f"only finite numbers, text, lists and maps: {error}") from error


def describe(directory: Path, tables_hash: str, figures: Mapping[str, float]) -> Manifest:
    """The manifest of the files in a directory, as a new version; versions sort by their time."""
    now = datetime.now(UTC)
    manifest = Manifest(
        version="",
        created=now.isoformat(),
        format=FORMAT,
        files={path.name: _sha256(path) for path in sorted(directory.iterdir())},
        tables_hash=tables_hash,
        libraries={name: installed_version(name) for name in LIBRARIES},
        figures=dict(figures),
    )
    return replace(manifest, version=f"{now:%Y%m%d-%H%M%S-%f}-{manifest.digest()}")


def read(directory: Path) -> Manifest:
    """The manifest of a version; raises ArtifactError if it is not the one that was written."""
    path = directory / FILE_NAME
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


def verify(directory: Path) -> Manifest:
    """The manifest of a version whose every file is what was stored; else raises ArtifactError."""
    manifest = read(directory)
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


def _checked(path: Path) -> Path:
    """The same path, if it is to be trusted; the shipped files are as the code beside them."""
    return path if path.parent == SHIPPED_DIRECTORY else trusted(path)


def _mend(directory: Path) -> str:
    if directory == SHIPPED_DIRECTORY:
        return "install precision-time anew"
    return f"run `precision-time fit`, then remove {directory.name}"


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()
