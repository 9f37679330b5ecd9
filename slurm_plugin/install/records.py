"""What an installation changed, noted so that it can be taken back."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from ..errors import InstallError
from . import disk, hook
from .steps import Kind, WriteFile, digest

FILE_NAME = "install.json"
BACKUPS = "before"
VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRecord:
    """One file: SHA-256 of what it held before and of what we wrote.

    ``before`` and ``backup`` are None where there was no file.
    """

    path: Path
    kind: Kind
    before: str | None
    after: str
    backup: Path | None


@dataclass(frozen=True, slots=True)
class Records:
    """The notes of one installation in a directory that only the installing user may write."""

    directory: Path
    files: tuple[FileRecord, ...] = ()

    def of(self, path: Path) -> FileRecord | None:
        """The note on a file."""
        return next((record for record in self.files if record.path == path), None)

    def noting(self, change: WriteFile) -> Records:
        """With a change that is about to be made, its former content kept on disk.

        A file we wrote before, and nobody else since, keeps the note of what was there first.
        """
        if change.after is None or change.after == change.before:  # removed, or only touched
            return self
        old = self.of(change.path)
        if old is not None and change.before is not None and old.after == digest(change.before):
            note = replace(old, after=digest(change.after))
        else:
            note = self._new(change, change.after)
        return Records(self.directory, (*(f for f in self.files if f.path != note.path), note))

    def forgetting(self, path: Path) -> Records:
        """Without the note on a file."""
        return Records(self.directory, tuple(f for f in self.files if f.path != path))

    def existing(self) -> Records:
        """Without the notes on files that are gone."""
        return Records(self.directory, tuple(f for f in self.files if f.path.exists()))

    def save(self) -> None:
        """Write the notes; without any, the directory goes."""
        path = self.directory / FILE_NAME
        if not self.files:
            self._discard(path)
            return
        raw = {"version": VERSION, "files": [_plain(record) for record in self.files]}
        disk.make_directory(self.directory, 0o700, None)
        disk.put(path, (json.dumps(raw, indent=2) + "\n").encode(), mode=0o600)

    def _new(self, change: WriteFile, after: bytes) -> FileRecord:
        before = change.before
        if before is not None and change.kind is Kind.SCRIPT:
            before = hook.without_block(before.decode(errors="surrogateescape")).encode(
                errors="surrogateescape"
            )
        backup = None
        if before is not None:
            backup = self.directory / BACKUPS / f"{change.path.name}.{digest(before)[:16]}"
            disk.make_directory(self.directory, 0o700, None)
            disk.make_directory(backup.parent, 0o700, None)
            disk.put(backup, before, mode=0o600)
        return FileRecord(
            path=change.path,
            kind=change.kind,
            before=None if before is None else digest(before),
            after=digest(after),
            backup=backup,
        )

    def _discard(self, path: Path) -> None:
        path.unlink(missing_ok=True)
        backups = self.directory / BACKUPS
        for backup in backups.glob("*") if backups.is_dir() else ():
            backup.unlink()
        disk.remove_if_empty(backups)
        disk.remove_if_empty(self.directory)


def read_records(directory: Path) -> Records:
    """The notes in a directory, empty where nothing is installed; raises InstallError."""
    path = directory / FILE_NAME
    content = disk.read(path)
    if content is None:
        return Records(directory)
    try:
        raw = json.loads(content)
        if raw["version"] != VERSION:
            raise InstallError(f"{path}: version={raw['version']} is not possible: {VERSION} is")
        return Records(directory, tuple(_record(entry) for entry in raw["files"]))
    except (ValueError, KeyError, TypeError) as error:
        raise InstallError(f"{path} is damaged ({error!r})") from None


def _plain(record: FileRecord) -> dict[str, str | None]:
    return {k: None if v is None else str(v) for k, v in asdict(record).items()}


def _record(raw: dict[str, str | None]) -> FileRecord:
    backup = raw["backup"]
    return FileRecord(
        path=Path(str(raw["path"])),
        kind=Kind(str(raw["kind"])),
        before=raw["before"],
        after=str(raw["after"]),
        backup=None if backup is None else Path(backup),
    )
