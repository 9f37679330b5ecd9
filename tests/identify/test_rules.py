"""Site rules: validated when they are read, the first that fits counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from predictor.errors import RulesError
from predictor.identify.identify import identify
from predictor.identify.rules import RuleContext, Rules, read_rules

TEXT = r"""
rules:
  - name: nightly
    match: {name: '^rn(?P<depth>\d+)-nightly', account: '^vision$'}
    job: {model: 'resnet{depth}', precision: amp, epochs: 90, batch: 256, options: {xla: true}}
  - name: anything of ci
    match: {user: '^ci$', command: 'train\.py'}
    job: {model: vgg16, steps: 1000}
  - name: a house name
    match: {script: '--model house-net'}
    job: {model: bert-base, seq_len: 128}
"""


@pytest.fixture
def rules(tmp_path: Path) -> Rules:
    path = tmp_path / "rules.yaml"
    path.write_text(TEXT)
    return read_rules(path)


def test_all_expressions_of_a_rule_must_be_found(rules: Rules) -> None:
    stated = rules.match(RuleContext(name="rn50-nightly-3", account="vision"))
    assert stated is not None
    assert stated.model == "resnet50"
    assert stated.values["options"] == (("xla", "on"),)
    assert stated.origins["model"] == "rule nightly"
    assert rules.match(RuleContext(name="rn50-nightly-3", account="physics")) is None


def test_the_first_rule_that_fits_counts(rules: Rules) -> None:
    context = RuleContext(
        name="rn50-nightly", account="vision", user="ci", command="python train.py"
    )
    stated = rules.match(context)
    assert stated is not None
    assert stated.values["epochs"] == 90.0


def test_what_a_group_matched_is_only_ever_a_value(rules: Rules) -> None:
    stated = rules.match(RuleContext(name="rn99999-nightly", account="vision"))
    assert stated is not None
    assert stated.unknown_model == "resnet99999"
    assert stated.values["batch_size"] == 256


def test_users_words_go_before_rules(rules: Rules) -> None:
    context = RuleContext(user="ci", command="train.py")
    stated = identify(comment="model=resnet18 batch=4", rules=rules, context=context)
    assert dict(stated.values) == {"model": "resnet18", "batch_size": 4, "steps": 1000}


def test_a_rule_answers_for_a_model_that_the_catalog_does_not_have(rules: Rules) -> None:
    script = "python train.py --model house-net --batch-size 4"
    assert identify(script=script).unknown_model == "house-net"
    stated = identify(script=script, rules=rules, context=RuleContext(script=script))
    assert stated.model == "bert-base"
    assert stated.unknown_model is None
    assert not stated.problems


def test_an_empty_file_has_no_rules(tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text("# none yet\n")
    assert read_rules(tmp_path / "rules.yaml") == Rules()


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ("{name: a, match: {name: '('}, job: {model: vgg16}}", ["rule 1 (a)", "match.name='('"]),
        ("{name: a, match: {host: x}, job: {model: vgg16}}", ["match.host", "work_dir"]),
        ("{name: a, match: {name: 5}, job: {model: vgg16}}", ["match.name=5", "quote"]),
        ("{name: a, match: {name: x}, job: {model: vgg99}}", ["vgg99", "vgg19"]),
        ("{name: a, match: {name: x}, job: {modle: vgg16}}", ["job.modle"]),
        ("{name: a, match: {name: x}, job: {epochs: -1}}", ["epochs='-1'"]),
        ("{name: a, match: {name: x}, job: {model: '{x}'}}", ["no group x"]),
        ("{name: a, match: {}, job: {model: vgg16}}", ["match={}"]),
        ("{name: a, match: {name: x}}", ["name, match and job"]),
        ("{match: {name: x}, job: {model: vgg16}}", ["name, match and job"]),
        ("{name: '', match: {name: x}, job: {model: vgg16}}", ["name=''"]),
        ("7", ["rule 1"]),
        ("{", ["rules.yaml"]),
        ("{name: a, match: {name: x}, job: {steps: 1, epochs: 2}}", ["give one of them"]),
    ],
)
def test_a_wrong_rule_is_named_with_its_field(tmp_path: Path, rule: str, words: list[str]) -> None:
    path = tmp_path / "rules.yaml"
    path.write_text(f"rules:\n  - {rule}\n")
    with pytest.raises(RulesError) as error:
        read_rules(path)
    for word in ("rules.yaml", *words):
        assert word in str(error.value)


def test_two_rules_of_one_name_and_a_missing_file_are_told(tmp_path: Path) -> None:
    path = tmp_path / "rules.yaml"
    rule = "  - {name: a, match: {name: x}, job: {model: vgg16}}\n"
    path.write_text(f"rules:\n{rule}{rule}")
    with pytest.raises(RulesError, match="rule 2"):
        read_rules(path)
    with pytest.raises(RulesError, match="No such file"):
        read_rules(tmp_path / "none.yaml")
    path.write_text("rule: []\n")
    with pytest.raises(RulesError, match="one key"):
        read_rules(path)
