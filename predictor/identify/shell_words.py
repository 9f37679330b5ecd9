"""What the words of a shell script come to, as far as its own text tells.

What only running could tell becomes UNKNOWN.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from math import fmod
from operator import add, mul, sub, truediv

from .shell_syntax import BRACED, QUOTED, UNKNOWN, Function, closing

MAX_VALUE = 8 * 1024
MAX_WORDS = 1000
MAX_EXPANDED = 256 * 1024
MAX_SUBSTITUTED = 200

_NAMED = r"\$(?:[A-Za-z_]\w*+|[0-9@*\#?$!-]|[\[{])"
_PART = re.compile(
    rf"{QUOTED}|(?P<open>[$<>]\()|(?P<dollar>{BRACED}|{_NAMED})|(?P<plain>[^'\"\\$`<>]++|.)",
    re.VERBOSE | re.DOTALL | re.ASCII,
)
# Inside double quotes, and in documents.
_INSIDE = re.compile(
    rf"""\\(?P<escaped>["$`\\\n])
    |(?P<dollar>\$\((?>(?:[^()]++|\((?>(?:[^()]++|\([^()]*+\))*)\))*)\)|\$\([^"]*+|{BRACED}|{_NAMED})
    |(?P<plain>[^\\$`]++|.)""",
    re.VERBOSE | re.DOTALL | re.ASCII,
)
# Name, operator and word of ${NAME:-word}, without the braces.
_PARAMETER = re.compile(r"(\w+|[@*#?$!-])(?:\[([@*])\])?(?:(:?)([-=+?])(.*))?", re.ASCII | re.S)
_SUM = re.compile(r"\$\((?:\((?P<sum>[^#]{1,200})\)|\s*expr (?P<expr>.{1,200}))\)", re.ASCII | re.S)
CHANGED = re.compile(  # in (( ))
    r"\b[A-Za-z_]\w*(?=\s*(?:[-+*/%&|^]?=(?!=)|\+\+|--))|(?<=\+\+|--)[A-Za-z_]\w*", re.ASCII
)
_BRACES = re.compile(r"\{[^\s{}]*(?:,|\.\.)[^\s{}]*\}")  # {1..5}, {a,b}
_NAME = re.compile(r"\$?\{?([A-Za-z_]\w*)\}?", re.ASCII)
_NO_SUM = (SyntaxError, ValueError, TypeError, ArithmeticError, LookupError, RecursionError)
_OPERATORS = {ast.Add: add, ast.Sub: sub, ast.Mult: mul, ast.Div: truediv, ast.Mod: fmod}
# conda shell.bash hook, pyenv init -, ssh-agent: what eval reads of these starts nothing.
_HOOK = re.compile(
    r"[\w./~'\"${}-]*(?:conda|mamba|pyenv|poetry|ssh-agent)\b['\"]?(?:[^;|&()\n]*\b(?:hook|init|activate)\b|(?<=agent)"
    r")[^;|&()\n]*(?:>&1|&1)?$",
    re.ASCII,
)
_WHERE = re.compile(r"\s*(?:which|command -v|type -p)\s+([^\s|;&]+)\s*(?:2>\S+\s*)?")  # a program
VISIBLE = "CUDA_VISIBLE_DEVICES"
_SET_BY_SLURM = ("SLURM_", VISIBLE)


# An array and "@" are tuples; the name of a function ends in "()".
Words = str | tuple[str, ...]
Value = Words | Function


@dataclass(slots=True)
class Scope:
    """What a script has set so far."""

    values: dict[str, Value]
    exported: set[str] = field(default_factory=set)
    substituted: dict[str, None] = field(default_factory=dict)
    called: set[Function] = field(default_factory=set)
    _budget: int = MAX_EXPANDED
    _before: list[dict[str, Value | None]] = field(default_factory=list)

    def set(self, name: str, value: Value | None) -> None:
        """Give a name its value; None takes it away."""
        if self._before:
            self._before[-1].setdefault(name, self.values.get(name))
        if isinstance(value, str) and len(value) > MAX_VALUE:
            value = UNKNOWN
        if isinstance(value, tuple) and len(value) > MAX_WORDS:
            value = (UNKNOWN,)
        if value is None:
            self.values.pop(name, None)
        else:
            self.values[name] = value

    @property
    def certain(self) -> bool:
        """Whether what is set now is set for certain."""
        return not self._before

    @contextmanager
    def aside(self) -> Iterator[dict[str, Value | None]]:
        """What is set within holds there alone; behind it the dictionary tells what was set."""
        came_to: dict[str, Value | None] = {}
        self._before.append({})
        yield came_to
        before = self._before.pop()
        came_to.update((name, self.values.get(name)) for name in before)
        for name, value in before.items():
            if value is None:
                self.values.pop(name, None)
            else:
                self.values[name] = value

    def merge(self, ways: Sequence[Mapping[str, Value | None]]) -> None:
        """Go on behind several ways of which one was gone, each told by what it set."""
        for name in dict.fromkeys(name for way in ways for name in way):
            first, *others = (way.get(name, self.values.get(name)) for way in ways)
            for other in others:
                first = _either(first, other)
            self.set(name, first)

    def spent(self, words: tuple[str, ...]) -> tuple[str, ...]:
        """Words, as long as what is left of the budget of expansions holds them."""
        self._budget -= sum(map(len, words))
        return words if self._budget > 0 else (UNKNOWN,)

    def words(self, texts: Iterable[str]) -> list[str]:
        """The words that texts come to, split where the shell splits them."""
        return [word for text in texts for word in self._fields(text) if word is not None]

    def text(self, text: str) -> str:
        """What a text comes to as one word, as on the right of ``=``."""
        return "".join(_joined(value) for value, _ in self._parts(text))

    def inside(self, text: str) -> str:
        """What stands between double quotes, or in a document, filled in."""
        return "".join(map(_joined, self._inside(text)))

    def _fields(self, text: str) -> list[str | None]:
        """The words of a text; None is one that is not there unless it joins another."""
        fields: list[str | None] = [None]
        for value, quoted in self._parts(text):
            if isinstance(value, tuple):
                several = value if quoted else [w for each in value for w in _split(each)]
                words: Sequence[str | None] = several or (None,)
            elif not quoted and "IFS" in self.values and re.search(r"[\s,:;|]", value):
                words = [UNKNOWN]
            else:
                words = [value] if quoted else _split(value)
            first, *rest = words
            if first is not None:
                fields[-1] = (fields[-1] or "") + first
            fields += rest
        return fields

    def _parts(self, text: str) -> Iterator[tuple[Words, bool]]:
        """The values of a text's parts, and whether blanks in them separate no words."""
        at = 0
        while match := _PART.match(text, at):
            kind, at = match.lastgroup, match.end()
            part = match[kind or 0]
            if match["open"]:
                at = closing(text, at)
                yield self._value(text[match.start() : at]), False
            elif kind == "dollar":
                yield self._value(part), False
            elif kind == "double":
                yield from ((value, True) for value in self._inside(part))
                if not part:
                    yield "", True
            elif kind == "escaped":
                yield part.replace("\n", ""), True
            elif kind == "ansi":
                yield UNKNOWN if "\\" in part else part, True
            else:
                yield _BRACES.sub(UNKNOWN, part) if kind == "plain" else part, True

    def _inside(self, text: str) -> Iterator[Words]:
        for match in _INSIDE.finditer(text):
            if match.lastgroup == "escaped":
                yield "" if match[1] == "\n" else match[1]
            elif match.lastgroup == "dollar":
                value = self._value(match[0])
                yield value if "@" in match[0] else _joined(value)
            else:
                yield match[0]

    def _value(self, token: str) -> Words:
        """What ``$NAME``, ``${NAME[@]}``, ``${NAME:-default}`` or ``$(...)`` stands for."""
        if token.startswith(("$(", "<(", ">(", "`")):
            return self._substituted(token)
        if behind := re.fullmatch(r"\$\{[@*]: *([1-9])\}", token):  # what follows $1
            given = self._value("$@")
            return given if UNKNOWN in given else given[int(behind[1]) - 1 :]
        match = _PARAMETER.fullmatch(token[2:-1] if token.startswith("${") else token[1:])
        if match is None:
            return UNKNOWN
        name, index, colon, operator, default = match.groups()
        name = "@" if name == "*" else name
        value = self.values.get(name)
        if isinstance(value, tuple) and not index and name != "@":
            value = value[0] if value else ""
        if operator is None or (operator in "-=?" and (value or (value == "" and not colon))):
            known = value if isinstance(value, str | tuple) else UNKNOWN
            return self.spent(known) if isinstance(known, tuple) else self.spent((known,))[0]
        if name.startswith(_SET_BY_SLURM) or operator not in "-=":
            return UNKNOWN  # what stands in for it is not what it will be
        plain = self.inside(default).strip("'\"")
        if operator == "=":
            self.set(name, plain)
        return plain

    def _summand(self, name: re.Match[str]) -> str:
        value = _joined(self.values.get(name[1], UNKNOWN))
        return value if name[0].startswith("$") else f"({value})"

    def _substituted(self, token: str) -> str:
        """A sum, or UNKNOWN for a text that is kept; what sets up an environment says nothing."""
        if match := _SUM.fullmatch(token):
            told = match["sum"] or match["expr"].replace("\\*", "*")
            text = _NAME.sub(self._summand, told).strip()
            for name in CHANGED.findall(told):
                self.set(name, UNKNOWN)
            with suppress(*_NO_SUM):
                return str(_whole(ast.parse(text, mode="eval").body))
            return UNKNOWN
        text = token[1:].rstrip("`") if token.startswith("`") else token[2:].removesuffix(")")
        if _HOOK.match(text):
            return ":"
        if where := _WHERE.fullmatch(text):
            return self.text(where[1])
        called = self.values.get("".join(text.split()[:1]) + "()")
        if isinstance(called, Function):
            text = called.text
            self.called.add(called)
        self.substituted[text if len(self.substituted) < MAX_SUBSTITUTED else UNKNOWN] = None
        return UNKNOWN


def _joined(value: Value) -> str:
    value = " ".join(value) if isinstance(value, tuple) else value
    return value if isinstance(value, str) else UNKNOWN


def _split(text: str) -> list[str | None]:
    """Words of an expansion without quotes; blanks at its ends keep it from joining others."""
    return [word or None for word in re.split(r"\s+", text)]


def _either(one: Value | None, other: Value | None) -> Value | None:
    """What a name stands for that has one of two values; words that may follow keep their flags."""
    if one == other:
        return one
    if isinstance(one, Function) or isinstance(other, Function):
        return UNKNOWN
    arrays = isinstance(one, tuple) or isinstance(other, tuple)
    shorter, longer = sorted((_words(one), _words(other)), key=len)
    if longer[: len(shorter)] != shorter:
        return (UNKNOWN,) if arrays else UNKNOWN
    words = (*shorter, *map(_perhaps, longer[len(shorter) :]))
    behind = " " * any(isinstance(value, str) and value.endswith(" ") for value in (one, other))
    return words if arrays else " ".join(words) + behind


def _words(value: Words | None) -> tuple[str, ...]:
    return value if isinstance(value, tuple) else tuple((value or "").split())


def _perhaps(word: str) -> str:
    """A word that may not be there: a flag keeps its name."""
    flag = word.startswith("-") or "=" in word
    return f"{word.partition('=')[0]}={UNKNOWN}" if flag else UNKNOWN


def _whole(node: ast.expr) -> int:
    """The value of a sum of whole numbers; raises ValueError or KeyError for any other text."""
    if isinstance(node, ast.BinOp):
        return int(_OPERATORS[type(node.op)](_whole(node.left), _whole(node.right)))
    return int(ast.literal_eval(node))
