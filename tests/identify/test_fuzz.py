"""Whatever is written, nothing is raised, run or believed that cannot be."""

from __future__ import annotations

import random
import re
import time
from math import isfinite
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from predictor.errors import JobError
from predictor.graphs.catalog import entries
from predictor.identify.grammar import parse_mapping, parse_text, stated_text
from predictor.identify.identify import MAX_PROBLEMS, identify, parse_script
from predictor.identify.keys import FIELD_OF
from predictor.identify.shell import read_script
from predictor.identify.stated import Stated
from predictor.job.precision import Precision
from predictor.job.training_job import JOB_FIELDS, MOST

SCRIPTS = [path.read_text() for path in sorted((Path(__file__).parent / "scripts").glob("*.sh"))]
MODELS = frozenset(entry.name for entry in entries())
MAX_MESSAGE = 600
SHELL = set("\"'\\$`;&|<>(){} \n\t\0")
PIECES = [
    "model=resnet50",
    "batch=",
    "epochs=1e9999",
    "precision='",
    'options="',
    "\x00",
    "\ud800",
    "٣",
    "$(touch /tmp/x)",
    "`id`",
    "'; os.execute('id') --",
    "]] .. ",
    "\\",
    "\n",
    "$",
    "${",
    "}",
    "<<EOF",
    "EOF",
    "((",
    "))",
    "done",
    "for x in",
    "if",
    "fi",
    "esac",
    "--model",
    "--batch-size=",
    "-b",
    "-1",
    "nan",
    "inf",
    "9" * 400,
    "1e308",
    "k",
    "=",
    "==",
    ",",
    ";",
    "#PT ",
    "#",
    "python",
    "srun",
    "-m",
    "train.py",
    "-c",
    "bash",
    "{",
    "\ue000",
    "\ue001" + "7\ue001",
    "%s%n",
    "../../etc/passwd",
    "\r\n",
    "--fp16",
    "--amp=O9",
    "image=9x9x9x9",
    "seq=0",
    "zero=-1",
    "A=(",
    ")",
    "A+=$A",
    "${A[@]}",
    "\u202e",
]


def assert_possible(stated: Stated) -> None:
    """Every value is of its type and in its range, and makes a job or a JobError."""
    values = stated.values
    assert set(values) <= set(JOB_FIELDS)
    assert set(values) == set(stated.origins)
    for name, most in MOST.items():
        if name in values:
            assert type(values[name]) is int
            assert 1 <= values[name] <= most
    assert values.get("model") in MODELS | {None}
    assert isinstance(values.get("precision", Precision.FP32), Precision)
    assert 0 < values.get("epochs", 1.0) <= 1e6
    assert isfinite(values.get("framework_date", 2020.0))
    for name in ("options", "variant"):
        assert not any(set(key + value) & SHELL for key, value in values.get(name, ()))
    for problem in stated.problems:
        assert len(problem.text) < MAX_MESSAGE
        assert problem.text.isprintable()
    assert (stated.unknown_model or "").isprintable()
    assert len(stated.unknown_model or "") < MAX_MESSAGE
    one = {"gpus": 1} if stated.alone else {}
    assert {**one, **values} == parse_text(stated_text(stated), "mark").values
    fields = {"model": "resnet50", "gpu": "a100", "gpus": 8, "precision": "fp32", "batch_size": 4}
    try:
        stated.job(**fields)
    except JobError as error:
        assert error.field in (*JOB_FIELDS, "file")  # noqa: PT017


@given(st.text(max_size=300))
def test_any_text_is_read(text: str) -> None:
    assert_possible(parse_text(text, "comment"))
    assert_possible(parse_script(text))
    assert_possible(parse_script("#PT " + text))


@given(st.binary(max_size=300))
def test_any_bytes_are_read(raw: bytes) -> None:
    text = raw.decode("utf-8", "replace")
    assert_possible(identify(comment=text, script=text, argv=(text, text), extra=text))
    assert_possible(parse_script(raw.decode("utf-8", "surrogateescape")))


@given(st.lists(st.tuples(st.sampled_from(sorted(FIELD_OF)), st.text(max_size=40))))
def test_any_value_of_our_keys_is_a_possible_one_or_a_problem(pairs: list[tuple[str, str]]) -> None:
    text = " ".join(f'{key}="{value}"' for key, value in pairs)
    assert_possible(parse_text(text, "comment"))
    assert_possible(parse_mapping({f"PRECISION_TIME_{k.upper()}": v for k, v in pairs}, "e"))


@given(st.lists(st.sampled_from(PIECES), max_size=25), st.sampled_from(["", " "]))
def test_any_heap_of_nasty_pieces_is_read(pieces: list[str], blank: str) -> None:
    text = blank.join(pieces)
    assert_possible(identify(comment=text, script=text, environment={"PRECISION_TIME": text}))
    assert_possible(parse_script(f"python train.py --model resnet50 {text}"))


@given(st.text(alphabet="abc $'\"\\;&|<>`(){}#\n", max_size=60))
def test_a_single_quoted_word_is_that_word_and_nothing_else(word: str) -> None:
    if "'" in word:
        return
    (command, *_) = read_script(f"echo '{word}'").commands
    assert command.words == ("echo", word)


def mutated(text: str, chance: random.Random) -> str:
    """The text with pieces deleted, doubled, moved, and nasty ones put in."""
    for _ in range(chance.randint(1, 6)):
        a, b = sorted(chance.randrange(len(text) + 1) for _ in range(2))
        piece = chance.choice((chance.choice(PIECES), text[a:b], ""))
        where = chance.randrange(len(text) + 1)
        cut = chance.choice((where, min(len(text), where + chance.randint(0, 30))))
        text = text[:where] + piece[:500] + text[cut:]
    return text[:4000]


@pytest.mark.slow
def test_thousands_of_mutated_scripts_comments_and_environments_are_read() -> None:
    chance = random.Random(20240607)
    comment = 'model=resnet50 precision=amp epochs=90 batch=256 options="xla=on" image=224'
    known = 0
    for _ in range(1500):
        stated = parse_script(mutated(chance.choice(SCRIPTS), chance), ("/x/job.sh", "7"))
        assert_possible(stated)
        known += stated.model is not None
    for _ in range(1000):
        assert_possible(parse_text(mutated(comment, chance), "comment"))
        text = mutated(comment, chance)
        environment = {"PRECISION_TIME": text, "PRECISION_TIME_EPOCHS": mutated("90", chance)}
        assert_possible(identify(environment=environment, comment=mutated(comment, chance)))
    assert known > 400


def test_a_mutation_never_makes_a_length_that_no_one_wrote() -> None:
    chance = random.Random(7)
    base = "python train.py --model resnet50 --batch-size 32 --epochs 12 --amp # done"
    for _ in range(400):
        text = mutated(base, chance)
        epochs = parse_script(text).values.get("epochs")
        assert epochs is None or format(epochs, "g") in numbers_in(text)


def numbers_in(text: str) -> set[str]:
    """Every number in a text, with parts of joined ones, as ``%g`` prints it."""
    joined = re.sub("['\"\\\\\n\0]", "", text)
    found = re.findall(r"(?=(\d+(?:\.\d+)?(?:e[+-]?\d+)?))", text + " " + joined)
    return {format(float(n[:i]), "g") for n in found for i in range(1, len(n) + 1) if plain(n[:i])}


def plain(text: str) -> bool:
    try:
        return isfinite(float(text))
    except ValueError:
        return False


@pytest.mark.parametrize(
    "text",
    [
        "${" * 30_000,
        "$(" * 30_000,
        "`" * 65_000,
        "'" * 65_001,
        '"' * 65_001,
        "\\" * 65_001,
        "<<a\n" * 16_000,
        "A=b\n" + "A=$A$A\n" * 9_000,
        "A=(a b)\n" + "A+=(${A[@]})\n" * 4_500,
        "(" * 65_000,
        "for i in 1\n" * 6_000,
        "if " * 20_000,
        "#PT batch=1\n" * 5_000,
        "python train.py --model x --batch-size 1\n" * 1_500,
        "--a=" * 16_000,
        "a=" * 32_000,
        "python train.py " + "--batch-size 1 " * 4_000,
        "\ue0010\ue001" * 16_000,
        "#" * 65_000,
        "bash -c '" * 7_000,
        'A="' + "$A" * 30_000 + '"',
        "python " * 9_000,
        "x=y;" * 16_000,
        "srun " * 13_000 + "-m",
        "cat <<E\n" + "[" * 60_000 + "\nE",
        "k='" * 20_000,
    ],
    ids=range(26),
)
def test_work_grows_with_length_and_no_faster(text: str) -> None:
    def read_s(text: str) -> float:
        started = time.process_time()
        stated = identify(comment=text, script=text, environment={"PRECISION_TIME": text})
        assert len(stated.problems) <= MAX_PROBLEMS
        return time.process_time() - started

    quarter_s = read_s(text[: len(text) // 4])
    assert min(read_s(text), read_s(text[:-1])) < 10 * max(quarter_s, 0.01)
