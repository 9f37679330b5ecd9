"""Tables whose fields end with a mark that no user can know in advance.

Job names and comments may hold any separator, quotes and newlines. A mark drawn anew for each
command cannot be in them, so that no text moves a field or adds a row.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator

from ..errors import SourceError


def new_mark() -> str:
    """A separator of 20 characters that Slurm's format options take as it is."""
    return f"~~{secrets.token_hex(8)}~~"


def rows(chunks: Iterable[bytes], mark: str, fields: tuple[str, ...]) -> Iterator[dict[str, str]]:
    """The rows, streamed, by field; raises SourceError where the last one is cut off."""
    end, rest, values = mark.encode(), b"", list[str]()
    for chunk in chunks:
        *whole, rest = (rest + chunk).split(end)
        for value in whole:
            # what ended the row before
            value = value.removeprefix(b"\n") if not values else value
            values.append(value.decode("utf-8", "replace"))
            if len(values) == len(fields):
                yield dict(zip(fields, values, strict=True))
                values = []
    if values or rest.strip():
        raise SourceError(f"a row ends after {len(values)} of {len(fields)} fields")
