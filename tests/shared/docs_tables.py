"""What the tests of documents read of them: sections, and the fields of settings they must name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from predictor.settings import Section


def section(document: str, title: str) -> str:
    """The text below a heading, to the next of the same depth or less."""
    depth = title.partition(" ")[0]
    _, _, rest = document.partition(f"{title}\n")
    assert rest, f"no heading {title}"
    return re.split(rf"^#{{1,{len(depth)}}} ", rest, maxsplit=1, flags=re.MULTILINE)[0]


def fields(part: Section, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every field below a section by its path, with its value as JSON has it."""
    for name in type(part).model_fields:
        value = getattr(part, name)
        if isinstance(value, Section):
            yield from fields(value, f"{path}{name}.")
        else:
            yield f"{path}{name}", part.model_dump(mode="json", include={name})[name]
