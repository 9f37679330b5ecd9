"""Which training job is it: everything that was written of it, the strongest place first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from profiles.storage import shipped_yaml

from .draft import settle
from .files import Files
from .grammar import parse_mapping, parse_text
from .rules import RuleContext, Rules
from .script import parse_script
from .stated import FILE, SCRIPT, Stated

MAX_PROBLEMS = 5


def identify(
    *,
    comment: str | None = None,
    extra: str | None = None,
    environment: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    script: str | None = None,
    argv: Sequence[str] = (),
    rules: Rules | None = None,
    context: RuleContext | None = None,
    files: Files | None = None,
) -> Stated:
    """What comment, extra, environment, annotations, script and site rules say together.

    An earlier one goes before a later one, field by field. A site rule may name the model that
    users call by a name the catalog does not have. ``files`` reads the configurations that
    commands name. Problems are told once, at most five, those
    that keep a time from being told first.
    """
    known = environment or {}
    stated = (
        parse_text(comment or "", "comment")
        .over(parse_text(extra or "", "extra"))
        .over(parse_mapping(known, "environment"))
        .over(parse_mapping(annotations or {}, "annotation"))
        .over(parse_script(script or "", argv, environment=known, files=files))
    )
    if rules is not None and context is not None and (rule := rules.match(context)) is not None:
        stated = _named_by(rule, stated)
    stated = settle(_by_framework(stated))
    grave = (p for p in stated.problems if p.contradiction or p.field == "dataset")
    problems = dict.fromkeys((*stated.doubts, *grave, *stated.problems))
    return replace(stated, problems=tuple(problems)[:MAX_PROBLEMS])


def _by_framework(stated: Stated) -> Stated:
    """With the default precision of a framework that is named apart from the script."""
    name, origin = stated.values.get("framework"), stated.origins.get("framework", SCRIPT)
    settled = "precision" in stated.values or stated.trainer
    unread = any(problem.field in ("file", "precision") for problem in stated.problems)
    if settled or unread or origin in (SCRIPT, FILE) or name not in shipped_yaml("trainers.yaml"):
        return stated
    return replace(stated, trainer=name)


def _named_by(rule: Stated, stated: Stated) -> Stated:
    """A rule that knows the model answers for a name that the catalog does not have."""
    if rule.model is not None and stated.unknown_model is not None:
        others = tuple(p for p in stated.problems if p.field != "model")
        stated = replace(stated, unknown_model=None, problems=others)
    return stated.over(rule)
