"""A plan as an admin reads it before it is carried out: commands, and files as unified diffs."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import unified_diff

from .carry_out import title
from .steps import Plan, WriteFile

MAX_NEW_LINES = 12


def preview(plan: Plan) -> Iterator[str]:
    """The lines of a dry run."""
    if plan.empty:
        yield "nothing to change"
    for number, step in enumerate(plan.steps, 1):
        yield f"{number}. {title(step)}"
        if isinstance(step, WriteFile):
            yield from (f"     {line}" for line in _content(step))
            if step.then is not None:
                yield f"   then {step.then}"
    yield from (f"note: {note}" for note in plan.notes)


def _content(change: WriteFile) -> Iterator[str]:
    """A diff; of a new file only its first lines, of a removed one nothing."""
    if change.after is None or change.after == change.before:
        return
    after = change.after.decode(errors="replace").splitlines()
    if change.before is None:
        yield from (f"+{line}" for line in after[:MAX_NEW_LINES])
        if len(after) > MAX_NEW_LINES:
            yield f"... {len(after) - MAX_NEW_LINES} more lines"
        return
    before = change.before.decode(errors="replace").splitlines()
    name = change.path.name
    yield from unified_diff(before, after, f"{name} now", f"{name} then", n=2, lineterm="")
