"""Checks that the documents of this repository tell the truth, as far as a program can.

Of README.md, CHANGELOG.md, CONTRIBUTING.md and every ``*.md`` under ``docs``, ``benchmarks`` and
``profiles``: links lead to files and headings that exist; ``make`` targets and ``precision-time``
commands in shell blocks exist, options included; Python blocks parse and import names that
``precision_time`` has; no path is absolute to somebody's machine. Prints one line a finding, and
exits with 1 if there is one. Run it from the root of the repository.
"""

from __future__ import annotations

import ast
import re
import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click

import precision_time
from predictor.errors import PrecisionTimeError

TOP = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")
FOLDERS = ("docs", "benchmarks", "profiles")
SHELL = {"sh", "bash", "shell", "console"}
COMMAND = "precision-time"
_FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+\s+(.+?)\s*$", re.MULTILINE)
_TARGET = re.compile(r"^([a-z][a-z-]*):", re.MULTILINE)
_ABSOLUTE = re.compile(r"(?<![\w.])/(?:home|root|work|Users|tmp/[a-z])\b\S*")
_PLACEHOLDER = re.compile(r"^(<.*>|\[.*\]?|\.\.\.|…)$")


@dataclass(frozen=True, slots=True)
class Document:
    """One Markdown file: its prose without fenced blocks, and the blocks by language."""

    path: Path
    text: str

    @property
    def prose(self) -> str:
        """Everything outside fenced blocks."""
        return _FENCE.sub("", self.text)

    @property
    def anchors(self) -> set[str]:
        """What ``#...`` may point to, spelled as GitHub does."""
        return {
            re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
            for heading in _HEADING.findall(self.prose)
        }

    def blocks(self, languages: set[str]) -> Iterator[str]:
        """The fenced blocks in one of these languages."""
        for language, body in _FENCE.findall(self.text):
            if language in languages:
                yield body


def read(path: Path) -> Document:
    """A Markdown file as a document."""
    return Document(path, path.read_text(encoding="utf-8"))


def documents(root: Path) -> list[Document]:
    """The documents to check; raises FileNotFoundError where a top-level one is missing."""
    paths = [root / name for name in TOP]
    for folder in FOLDERS:
        paths.extend(sorted((root / folder).rglob("*.md")))
    return [read(path) for path in paths]


def broken_links(document: Document) -> Iterator[str]:
    """Links to files or headings that do not exist; addresses on the web are not followed."""
    for link in _LINK.findall(document.prose):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = document.path.parent / name if name else document.path
        if not target.exists():
            yield f"link to {link}: no such file"
        elif anchor and target.suffix == ".md" and anchor not in read(target).anchors:
            yield f"link to {link}: no such heading"


def machine_paths(document: Document) -> Iterator[str]:
    """Absolute paths of somebody's machine."""
    for path in _ABSOLUTE.findall(document.text):
        yield f"path {path} exists on one machine only"


def command_lines(block: str) -> Iterator[list[str]]:
    """The commands of a shell block: prompts, variables and what is piped on are left off."""
    for line in block.replace("\\\n", " ").splitlines():
        try:
            words = shlex.split(line.removeprefix("$ "), comments=True)
        except ValueError:  # output that looks like no command
            continue
        while words and re.match(r"[A-Z_]+=", words[0]):
            words.pop(0)
        stop = next(
            (i for i, word in enumerate(words) if word in {"|", "&&", ";", ">", ">>"}), None
        )
        if words:
            yield words[:stop]


def wrong_commands(document: Document, targets: set[str], program: click.Command) -> Iterator[str]:
    """Make targets and ``precision-time`` commands that do not exist."""
    for block in document.blocks(SHELL):
        for first, *arguments in command_lines(block):
            if first == "make":
                wanted = {word for word in arguments if "=" not in word and word[0] != "-"}
                yield from (f"make {target}: no such target" for target in wanted - targets)
            elif first.endswith(COMMAND):
                error = usage_error(program, arguments)
                if error:
                    yield f"{COMMAND} {shlex.join(arguments)}: {error}"


def usage_error(program: click.Command, arguments: list[str]) -> str | None:
    """What click finds wrong with a command line, without running it; placeholders are let be."""
    command, parent = program, None
    while isinstance(command, click.Group) and arguments:
        name, *arguments = arguments
        if name.startswith("-") or _PLACEHOLDER.match(name):
            return None
        parent = click.Context(command, parent=parent, info_name=name)
        found = command.get_command(parent, name)
        if found is None:
            return f"no such command {name!r}"
        command = found
    if any(_PLACEHOLDER.match(word) for word in arguments):
        return None
    try:
        command.make_context(command.name, arguments, parent=parent)
    except click.exceptions.Exit:  # --help, --version
        return None
    except click.UsageError as error:
        return None if _names_a_missing_file(error) else error.format_message()
    except PrecisionTimeError as error:
        return str(error)
    return None


def _names_a_missing_file(error: click.UsageError) -> bool:
    return isinstance(error, click.BadParameter) and isinstance(
        getattr(error.param, "type", None), click.Path | click.File
    )


def wrong_python(document: Document) -> Iterator[str]:
    """Python blocks that do not parse, and names ``precision_time`` does not have."""
    for block in document.blocks({"python", "py"}):
        try:
            tree = ast.parse(block)
        except SyntaxError as error:
            yield f"Python block does not parse: {error}"
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module == "precision_time":
                for name in node.names:
                    if not hasattr(precision_time, name.name):
                        yield f"precision_time has no {name.name}"


def findings(root: Path, program: click.Command) -> Iterator[str]:
    """Everything wrong with the documents under ``root``, a line each."""
    targets = set(_TARGET.findall((root / "Makefile").read_text(encoding="utf-8")))
    for document in documents(root):
        for found in (
            *broken_links(document),
            *machine_paths(document),
            *wrong_commands(document, targets, program),
            *wrong_python(document),
        ):
            yield f"{document.path.relative_to(root)}: {found}"


def main() -> int:
    """Print the findings; 1 if there are any."""
    from predictor.cli.main import main as program

    found = list(findings(Path.cwd(), program))
    print("\n".join(found) if found else "documents: nothing wrong found")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
