"""SOURCES.md: who measured what, at which commit, under which licence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from .storage import Source

TABLES = ("measurements", "operators", "collectives")

_HEAD = """# Sources of the data

Facts and figures only, re-typed into our own columns; no code and no file of a source is copied,
and no row is estimated. Every row keeps its id, its source (below) and the path of the file it was
read from. Written by `python -m profiles.importer`; do not edit.

Operator tables are thinned where one source swept one operator densely. Rows that contradict
physics, themselves or each other wait in `quarantine/` with a reason and are not used.

Recorded networks (`graphs/`) are the sizes of the operators that a library's own module runs: timm,
transformers and diffusers (Apache-2.0), torchvision (BSD-3-Clause), ultralytics (AGPL-3.0). No code
and no weights of theirs are here.
"""


@dataclass(frozen=True, slots=True)
class SourceTally:
    """Rows by source key: of every table, and of the quarantine."""

    tables: Mapping[str, Counter[str]]
    quarantined: Counter[str]


def sources_markdown(sources: Iterable[Source], tally: SourceTally) -> str:
    """The text of SOURCES.md: one line a repository and licence, its commits below."""
    grouped: dict[tuple[str, str], list[Source]] = {}
    for source in sources:
        name = source.repository.removeprefix("github:")
        grouped.setdefault((name, source.license), []).append(source)
    lines = [_HEAD, *_table(grouped, tally), "", "## Commits", ""]
    for (name, license_), members in sorted(grouped.items()):
        commits = ", ".join(f"`{source.commit}`" for source in members)
        lines.append(f"- {name} ({license_}): {commits}")
    return "\n".join(lines) + "\n"


def _table(grouped: Mapping[tuple[str, str], list[Source]], tally: SourceTally) -> list[str]:
    columns = [*(tally.tables[name] for name in TABLES), tally.quarantined]
    lines = [
        "| repository | licence | commits | measurements | operators | collectives | quarantined |",
        "|---|---|---|---|---|---|---|",
    ]
    for (name, license_), members in sorted(grouped.items()):
        counts = [sum(column[source.key] for source in members) for column in columns]
        cells = [name, license_, len(members), *counts]
        lines.append("| " + " | ".join(str(cell) for cell in cells) + " |")
    totals = " | ".join(str(column.total()) for column in columns)
    return [*lines, f"| all | | | {totals} |"]
