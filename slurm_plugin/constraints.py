"""Node constraints of Slurm: what they select, and how to add to them.

Slurm reads ``a|b&c`` from left to right, without precedence: it means ``(a|b)&c``. A comma is an
``&``. Parentheses must not be nested. ``[a|b]`` means that all nodes of a job share one of the
features. Seen on 22.05.8 and 25.11.7, and the same code is in 26.05.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, Protocol

# Longest constraint Slurm takes; a longer one gets the job refused.
MAX_LENGTH = 1024
# Features joined by | in a constraint of ours: more would say nothing to a reader.
MAX_ALTERNATIVES = 4

Operator = Literal["&", "|"]
_NAME = re.compile(r"[^\s&|*()\[\],!]+")
_TOKEN = re.compile(rf"{_NAME.pattern}|[&|,()\[\]]")
_OPERATORS: dict[str, Operator] = {"&": "&", ",": "&", "|": "|"}
_CLOSING = {"(": ")", "[": "]"}


class Featured(Protocol):
    """A node, or nodes that are alike."""

    @property
    def features(self) -> frozenset[str]:
        """The names a constraint may use."""


@dataclass(frozen=True, slots=True)
class ConstraintTerm:
    """One operand and the operator before it; the first has ``&``.

    ``features`` of more than one element come from parentheses or, ``matching``, from brackets.
    """

    operator: Operator
    features: tuple[tuple[Operator, str], ...]
    matching: bool = False

    def holds(self, features: frozenset[str]) -> bool:
        """True where a node with these features satisfies the operand."""
        result = True
        for operator, name in self.features:
            result = _joined(result, operator, name in features)
        return result


@dataclass(frozen=True, slots=True)
class Constraint:
    """A constraint in a form we reason about."""

    terms: tuple[ConstraintTerm, ...]

    def matches(self, features: frozenset[str]) -> bool:
        """True where a job with this constraint may run on a node with these active features."""
        result = True
        for term in self.terms:
            result = _joined(result, term.operator, term.holds(features))
        return result

    @property
    def conjunctive(self) -> bool:
        """True where the operands are joined by ``&`` alone."""
        return all(term.operator == "&" for term in self.terms)


@lru_cache
def parse(text: str) -> Constraint | None:
    """The constraint a text means, None for forms we do not reason about.

    Those are node counts (``a*2``), parentheses in brackets (22.05 and newer differ), brackets
    next to an ``|`` outside of them, ``&`` in brackets, and what Slurm would refuse.
    """
    tokens = _TOKEN.findall(text)
    if not tokens or "".join(tokens) != text or len(text) > MAX_LENGTH:
        return None
    terms: list[ConstraintTerm] = []
    operator: Operator | None = "&"
    while tokens:
        token = tokens.pop(0)
        if operator is None:
            operator = _OPERATORS.get(token)
            if operator is None:
                return None
            continue
        inner = [token]
        if token in _CLOSING:
            if _CLOSING[token] not in tokens:
                return None
            end = tokens.index(_CLOSING[token])
            inner, tokens = tokens[:end], tokens[end + 1 :]
        features = _features(inner)
        if features is None:
            return None
        terms.append(ConstraintTerm(operator, features, matching=token == "["))
        operator = None
    brackets = [place for place, term in enumerate(terms) if term.matching]
    for place in brackets:
        alternatives = all(joined == "|" for joined, _ in terms[place].features[1:])
        after = all(term.operator == "&" for term in terms[place:])
        if len(brackets) > 1 or not alternatives or not after:
            return None
    return Constraint(tuple(terms)) if operator is None else None


def and_also(user: str | None, ours: str) -> str | None:
    """The constraint of nodes that satisfy both, None where Slurm has no way to say it.

    The user's text stays as it is, in parentheses where it needs them.
    """
    added = parse(ours)
    if added is None:
        return None
    if not user:
        return ours
    given = parse(user)
    if given is None:
        return None
    if given.conjunctive and set(added.terms) <= set(given.terms):
        return user
    left = user if given.conjunctive or not _plain(user) else f"({user})"
    if added.conjunctive:
        joined = f"{left}&{ours}"
    elif _plain(ours):
        joined = f"{left}&({ours})"
    elif given.conjunctive or _plain(user):
        joined = f"{ours}&{left}"
    else:
        return None
    return joined if parse(joined) is not None else None


def cover(
    target: Sequence[Featured], others: Sequence[Featured], preferred: Sequence[str]
) -> str | None:
    """The simplest constraint that selects of ``target`` and none of ``others``.

    As many targets as possible are covered, by a single feature if one does as well as several
    joined by ``|``; ``preferred`` features come first, then short names. None where no feature
    distinguishes the nodes.
    """
    foreign = frozenset().union(*(node.features for node in others))
    holders: dict[str, set[int]] = {}
    for index, node in enumerate(target):
        for name in node.features - foreign:
            if _NAME.fullmatch(name):
                holders.setdefault(name, set()).add(index)
    rank = {name: place for place, name in reversed(list(enumerate(preferred)))}
    order = sorted(holders, key=lambda name: (rank.get(name, len(rank)), len(name), name))
    if not order:
        return None

    def covered(names: Iterable[str]) -> set[int]:
        return set().union(*(holders[name] for name in names))

    chosen: list[str] = []  # each adds most to those before
    while len(chosen) < MAX_ALTERNATIVES:
        best = max(order, key=lambda name: len(holders[name] - covered(chosen)))
        if holders[best] <= covered(chosen):
            break
        chosen.append(best)
    for name in list(chosen):
        rest = [other for other in chosen if other != name]
        if rest and covered(rest) == covered(chosen):
            chosen = rest
    single = max(order, key=lambda name: len(holders[name]))
    more = len(covered(chosen)) > len(holders[single])
    return "|".join(sorted(chosen)) if more else single


def _features(tokens: Sequence[str]) -> tuple[tuple[Operator, str], ...] | None:
    """Names and the operators before them, None where they do not alternate."""
    names, operators = tokens[::2], tokens[1::2]
    if len(tokens) % 2 == 0 or not all(_NAME.fullmatch(name) for name in names):
        return None
    if not all(operator in _OPERATORS for operator in operators):
        return None
    return tuple(zip(["&", *(_OPERATORS[o] for o in operators)], names, strict=True))


def _plain(text: str) -> bool:
    """True where parentheses may be put around a constraint."""
    return not any(character in text for character in "([")


def _joined(left: bool, operator: Operator, right: bool) -> bool:
    return left and right if operator == "&" else left or right
