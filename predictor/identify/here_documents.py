"""Here-documents of shell scripts, taken out of the text."""

from __future__ import annotations

import re
from dataclasses import dataclass

# Around the number of a document, in its place in the text.
MARK = "\ue001"
_HERE = re.compile(r"(?<!<)<<-?[ \t]*(?:'(\w+)'|\"(\w+)\"|\\?(\w+))", re.ASCII)


@dataclass(frozen=True, slots=True)
class HereDocument:
    """Its text; ``quoted`` where the shell would leave ``$`` in it alone."""

    text: str
    quoted: bool


def without_documents(text: str) -> tuple[str, list[HereDocument]]:
    """The text with a mark in place of each here-document; one without an end takes the rest."""
    documents: list[HereDocument] = []
    kept: list[str] = []
    lines = iter(text.split("\n"))
    for line in lines:
        match = None if line.lstrip().startswith("#") or "((" in line else _HERE.search(line)
        if match is None:
            kept.append(line)
            continue
        end = match[1] or match[2] or match[3]
        body = []
        for inner in lines:
            if inner.strip() == end:
                break
            body.append(inner)
        mark = f" {MARK}{len(documents)}{MARK} "
        documents.append(HereDocument("\n".join(body), match[3] is None))
        kept.append(line[: match.start()] + mark + line[match.end() :])
    return "\n".join(kept), documents
