"""What an installation changed, recorded so that just that can be taken back."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from hashlib import sha256
from pathlib import Path

from ..errors import InstallError
from . import disk

FILE_NAME = "install.json"
BACKUPS = "before"
VERSION = 1


class FileKind(StrEnum):
    """What a file is for; uninstalling treats them differently."""

    POLICY = "policy"
    UNIT = "unit"
    MODULE = "module"
    SCRIPT = "script"
    SLURM_CONF = "slurm.conf"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRecord:
    """One file: SHA-256 of what it held before and of what we wrote.

    ``before`` and ``backup`` are None where there was no file.
    """

    path: Path
    kind: FileKind
    before: str | None
    after: str
    backup: Path | None

    def original(self) -> bytes | None:
        """What the file held before us; raises InstallError where our copy is gone or damaged."""
        if self.backup is None:
            return None
        content = disk.read(self.backup)
        if content is None or digest(content) != self.before:
            raise InstallError(f"{self.backup}, the former {self.path}, is gone or damaged")
        return content


@dataclass(frozen=True, slots=True)
class Records:
    """The records of one installation in a directory that only the installing user may write."""

    directory: Path
    files: tuple[FileRecord, ...] = ()

    def of(self, path: Path) -> FileRecord | None:
        """The record of a file."""
        return next((record for record in self.files if record.path == path), None)

    def adding(
        self, path: Path, kind: FileKind, before: bytes | None, original: bytes | None, after: bytes
    ) -> Records:
        """With a file that is about to hold ``after``; ``original`` is kept as its backup.

        A file that we wrote, and nobody else since, keeps the backup of what was there first.
        """
        old = self.of(path)
        if old is not None and before is not None and old.after == digest(before):
            record = replace(old, after=digest(after))
        else:
            record = FileRecord(
                path=path,
                kind=kind,
                before=None if original is None else digest(original),
                after=digest(after),
                backup=None if original is None else self._backup(path, original),
            )
        return Records(self.directory, (*self.without(path).files, record))

    def without(self, path: Path) -> Records:
        """Without the record of a file."""
        return Records(self.directory, tuple(f for f in self.files if f.path != path))

    def existing(self) -> Records:
        """Without the records of files that are gone."""
        return Records(self.directory, tuple(f for f in self.files if f.path.exists()))

    def save(self) -> None:
        """Write the records; without any, the directory goes."""
        path = self.directory / FILE_NAME
        if self.files:
            raw = {"version": VERSION, "files": [_plain(record) for record in self.files]}
            disk.make_directory(self.directory, 0o700)
            disk.put(path, (json.dumps(raw, indent=2) + "\n").encode(), mode=0o600)
            return
        backups = self.directory / BACKUPS
        for old in (path, *backups.glob("*")):
            old.unlink(missing_ok=True)
        for directory in (backups, self.directory):
            disk.remove_if_empty(directory)

    def _backup(self, path: Path, content: bytes) -> Path:
        backup = self.directory / BACKUPS / f"{path.name}.{digest(content)[:16]}"
        disk.make_directory(self.directory, 0o700)
        disk.make_directory(backup.parent, 0o700)
        disk.put(backup, content, mode=0o600)
        return backup


def read_records(directory: Path) -> Records:
    """The records in a directory, empty where nothing is installed; raises InstallError."""
    path = directory / FILE_NAME
    content = disk.read(path)
    if content is None:
        return Records(directory)
    try:
        raw = json.loads(content)
        if raw["version"] != VERSION:
            raise InstallError(f"{path}: invalid version {raw['version']}; expected {VERSION}")
        return Records(directory, tuple(_record(entry) for entry in raw["files"]))
    except (ValueError, KeyError, TypeError) as error:
        raise InstallError(f"{path} is damaged ({error!r})") from None


def digest(content: bytes) -> str:
    """SHA-256 in hex."""
    return sha256(content).hexdigest()


def _plain(record: FileRecord) -> dict[str, str | None]:
    return {k: None if v is None else str(v) for k, v in asdict(record).items()}


def _record(raw: dict[str, str | None]) -> FileRecord:
    return FileRecord(
        path=Path(str(raw["path"])),
        kind=FileKind(str(raw["kind"])),
        before=raw["before"],
        after=str(raw["after"]),
        backup=None if raw["backup"] is None else Path(raw["backup"]),
    )
