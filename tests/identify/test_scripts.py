"""What real batch scripts say, style by style; the scripts lie beside this file."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from predictor.identify.grammar import parse_text
from predictor.identify.identify import alike, identify, parse_script, sbatch_options
from predictor.site.similar.request import script_signature

SCRIPTS = Path(__file__).parent / "scripts"
EXPECTED: dict[str, dict[str, Any]] = yaml.safe_load((SCRIPTS / "expected.yaml").read_bytes())


def test_every_script_beside_has_its_expectation() -> None:
    assert {path.name for path in SCRIPTS.glob("*.sh")} == set(EXPECTED)


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_a_script_says_what_its_program_would_do(name: str) -> None:
    expected = EXPECTED[name]
    stated = parse_script((SCRIPTS / name).read_text(), ("/var/spool/job/slurm_script",))
    assert dict(stated.values) == dict(parse_text(expected["stated"], "test").values)
    problems = expected.get("problems", [])
    assert len(stated.problems) == len(problems), stated.problems
    for word, problem in zip(problems, stated.problems, strict=True):
        assert word in problem.text
    assert stated.unknown_model == expected.get("unknown_model")
    assert set(stated.origins.values()) <= {"script", "#PT"}


@pytest.mark.parametrize("text", [path.read_text() for path in SCRIPTS.glob("*.sh")])
def test_scripts_that_are_alike_say_the_same(text: str) -> None:
    """Whatever stands where a script may differ from one alike."""
    free = alike(text.translate(str.maketrans("0123456789", "2" * 10)))
    for digit in "035679":
        other = "".join(digit if f == "1" else c for c, f in zip(text, free, strict=True))
        assert alike(other) == alike(text)
        assert identify(script=other) == identify(script=text)
        assert script_signature(other) == script_signature(text)


def test_scripts_whose_flags_may_change_the_time_are_not_alike() -> None:
    few, more = (f"python main.py --arch resnet50 --num_workers {n}\n" for n in (0, 8))
    assert identify(script=few) != identify(script=more)
    assert alike(few) != alike(more)


def test_of_a_heterogeneous_job_the_options_are_those_of_its_first_component() -> None:
    script = "#!/bin/sh\n#SBATCH -N1 --gres=gpu:2\n#SBATCH hetjob\n#SBATCH -n4 -p cpu\ntrue\n"
    assert sbatch_options(script) == {"nodes": "1", "gres": "gpu:2"}


def test_a_name_that_nobody_knows_costs_little_to_read() -> None:
    """The hook of Slurm reads for 10 ms at most, and most jobs name networks of their own."""

    def least_s(*names: str) -> float:
        taken = []
        for name in names:
            began_s = time.process_time()
            identify(script=f"torchrun train_depth.py --model {name} --batch-size 32\n")
            taken.append(time.process_time() - began_s)
        return min(taken)

    known = least_s("resnet18", "resnet34", "resnet50", "resnet101", "resnet152")
    assert least_s(*(f"my_depth_net_v{n}" for n in range(5))) < 10 * known
