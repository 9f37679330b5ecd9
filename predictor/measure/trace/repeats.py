"""Equal layers in a row become one layer, with a count: shorter, and what pipelines cut."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain

from ...graphs.operator import Direction
from ...graphs.traced import SymbolicOperator

Group = tuple[SymbolicOperator, ...]


def folded(operators: Sequence[SymbolicOperator]) -> tuple[SymbolicOperator, ...]:
    """The same operators, with runs of equal layers told by ``count``."""
    groups = _groups(operators)
    names: dict[Group, int] = {}
    numbers = [names.setdefault(group, len(names)) for group in groups]
    return tuple(chain.from_iterable(_fold(groups, numbers)))


def _groups(operators: Sequence[SymbolicOperator]) -> list[Group]:
    """Each forward operator with its gradients."""
    groups: list[list[SymbolicOperator]] = []
    for operator in operators:
        if operator.direction == Direction.FORWARD or not groups:
            groups.append([])
        groups[-1].append(operator)
    return [tuple(group) for group in groups]


def _fold(groups: Sequence[Group], numbers: Sequence[int]) -> list[Group]:
    """Fold the run that saves most, then what is before and behind it."""
    saved, start, period, times = _longest_run(numbers)
    if not saved:
        return list(groups)
    end = start + period * times
    layer = [
        tuple(replace(o, count=o.count * times) for o in group)
        for group in groups[start : start + period]
    ]
    before = _fold(groups[:start], numbers[:start])
    return [*before, *layer, *_fold(groups[end:], numbers[end:])]


def _longest_run(numbers: Sequence[int]) -> tuple[int, int, int, int]:
    """Groups saved, start, period and repetitions of the best run; saves 0 where none is."""
    best = (0, 0, 0, 0)
    for period in range(1, len(numbers) // 2 + 1):
        run = 0
        for i in range(len(numbers) - period - 1, -1, -1):
            run = run + 1 if numbers[i] == numbers[i + period] else 0
            times = run // period + 1
            saved = (times - 1) * period
            if saved > best[0]:
                best = (saved, i, period, times)
    return best
