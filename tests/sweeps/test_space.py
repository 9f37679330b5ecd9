"""A file of a search says what is wrong with it, and what early stopping saves."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from predictor.errors import JobError, PrecisionTimeError
from predictor.planning.sweeps.search import Halving, job_of, read_space

GOOD = """
job: {model: resnet50, gpu: a100-sxm4-80gb, batch_size: 64, epochs: 1}
vary: {precision: [fp32, amp], gpus: {first: 2, last: 8, step: 2}}
"""


def write(directory: Path, text: str) -> Path:
    path = directory / "space.yaml"
    path.write_text(text)
    return path


def test_every_combination_is_a_configuration(tmp_path: Path) -> None:
    jobs = read_space(write(tmp_path, GOOD)).jobs()
    assert [(job.precision.value, job.gpus) for job in jobs] == [
        (precision, gpus) for precision in ("fp32", "mixed_fp16_fp32") for gpus in (2, 4, 6, 8)
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("job: {modle: resnet50}", "modle"),
        ("job: {}\nvary: {lr: [0.1, 0.2]}", "vary: lr is no field .* not change .* one of model,"),
        ("job: {}\nvary: {gpus: []}", "gpus has no values"),
        ("job: {}\ntrials: 0", "trials=0"),
        ("job: {}\nparalel: 2", "paralel is no field; expected parallel"),
        ("job: {}\nvary: {gpus: {first: 4, last: 2}}", "vary.gpus: expected a list or last=2"),
        ("job: {}\nstopping: {min_share: 2}", "min_share=2"),
        ("job: {}\nvary: {gpus: {first: 1, last: 20000}}", "10000"),
        ("job: {}\nvary: {gpus: {first: 1, last: 1000000000000000}}", "10000"),
        ("job: {model: resnet50, precision: amp}", "no gpu; a name is needed"),
        (GOOD.replace("amp", "fp1"), "fp1"),
        ("[", "cannot be read"),
    ],
)
def test_an_error_names_field_and_value(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(PrecisionTimeError, match=said):
        read_space(write(tmp_path, text)).jobs()


def test_halving_by_hand() -> None:
    # 9 trials to 1/9, 3 of them to 1/3, 1 to the end: 9/9 + 3 * 2/9 + 2/3 lengths
    assert Halving(min_share=1 / 9, factor=3).mean_share(9) * 9 == pytest.approx(7 / 3)


@given(st.floats(0.01, 1), st.floats(1.5, 10), st.integers(1, 500))
def test_halving_never_takes_more_than_all(least: float, factor: float, trials: int) -> None:
    share = Halving(min_share=least, factor=factor).mean_share(trials)
    assert min(1.0, least) - 1e-9 <= share <= 1 + 1e-9


def test_one_number_is_every_axis_of_an_image_and_channels_are_none() -> None:
    plain = {"gpu": "a100", "precision": "amp", "batch_size": 2}
    assert job_of({**plain, "model": "unet3d", "image_size": 128}).image_size == (128, 128, 128)
    with pytest.raises(JobError, match="3x224x224"):
        job_of({**plain, "model": "resnet50", "image_size": [3, 224, 224]})
