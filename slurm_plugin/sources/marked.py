"""Tables whose fields end with a mark that no user can know in advance.

Job names and comments may hold any separator, quotes and newlines. A mark drawn anew for each
command cannot be in them, so that no text moves a field or adds a row.
"""

from __future__ import annotations

import codecs
import secrets
from collections.abc import Iterable, Iterator

from ..errors import SourceError


def new_mark() -> str:
    """A separator of 20 characters that Slurm's format options take as it is."""
    return f"~~{secrets.token_hex(8)}~~"


def rows(chunks: Iterable[bytes], mark: str, fields: tuple[str, ...]) -> Iterator[dict[str, str]]:
    """The rows, streamed, by field; raises SourceError where the last one is cut off.

    Bytes that are not UTF-8 become U+FFFD.
    """
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    width, rest, values = len(fields), "", list[str]()
    for chunk in chunks:
        *whole, rest = (rest + decoder.decode(chunk)).split(mark)
        values += whole
        for start in range(0, len(values) - width + 1, width):
            row = values[start : start + width]
            row[0] = row[0].removeprefix("\n")  # what ended the row before
            yield dict(zip(fields, row, strict=True))
        del values[: len(values) - len(values) % width]
    rest += decoder.decode(b"", True)
    if values or rest.strip():
        raise SourceError(f"a row ends after {len(values)} of {width} fields")
