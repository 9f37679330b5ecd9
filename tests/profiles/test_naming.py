"""The rules of names are sound, and malformed ones are refused by name of the file."""

from __future__ import annotations

from pathlib import Path

import pytest

from predictor.graphs.names import naming
from profiles.errors import ProfileDataError

SOUND = """\
libraries: {'lib:': 'lib[:/]'}
tags: ['-hf']
patterns: [{match: 'net-(\\d+)', entry: 'net\\1', architecture: {layers: '\\1'}}]
refusals: [{match: 'game', reason: plays}]
"""


def test_rules_are_read(tmp_path: Path) -> None:
    (tmp_path / "names.yaml").write_text(SOUND, encoding="utf-8")
    rules = naming(tmp_path)
    assert rules.libraries["lib:"].match("lib/net")
    assert rules.tags.sub("", "net-hf") == "net"
    assert rules.patterns[0].architecture == {"layers": "\\1"}
    assert rules.refusals[0].reason == "plays"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("net-(", "net-(("),
        ("entry", "entrance"),
        ("reason", "why"),
        ("tags", "ends"),
        ("{'lib:': 'lib[:/]'}", "[]"),
    ],
)
def test_a_malformed_rule_is_refused(old: str, new: str, tmp_path: Path) -> None:
    (tmp_path / "names.yaml").write_text(SOUND.replace(old, new), encoding="utf-8")
    with pytest.raises(ProfileDataError, match=r"names\.yaml"):
        naming(tmp_path)


def test_every_refusal_says_why_in_one_sentence() -> None:
    for refusal in naming().refusals:
        assert 10 < len(refusal.reason) < 200
        assert not refusal.reason.endswith(".")
