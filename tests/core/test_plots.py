"""Several predictions at once, and what notebooks show of them."""

from __future__ import annotations

import sys
from xml.etree import ElementTree

import pytest

from precision_time import PrecisionTimeError, predict_many, predict_time

MIXED = "mixed_fp16_fp32"


def test_every_setting_is_the_prediction_of_its_own() -> None:
    found = predict_many("resnet50", precision=["fp32", "amp"], gpus=[1, 8], batch_size=64)
    alone = predict_time("resnet50", "amp", 8, batch_size=64)
    settings = [(one.job.precision.value, one.job.gpus) for one in found]
    assert settings == [("fp32", 1), ("fp32", 8), (MIXED, 1), (MIXED, 8)]
    assert found[3].step_s == pytest.approx(alone.step_s, rel=1e-12)
    assert str(found).splitlines()[3].startswith("mixed_fp16_fp32, 8 GPUs: ")


def test_a_field_of_no_job_is_refused_with_its_name() -> None:
    with pytest.raises(PrecisionTimeError, match="gpuss"):
        predict_many("resnet50", precision="amp", gpuss=[1, 2])


@pytest.mark.parametrize(
    ("varied", "words"),
    [
        ({"gpus": [1, 2, 4]}, ["perfect scaling from 1", "samples/s"]),
        ({"precision": ["fp32", "amp"]}, ["mixed_fp16_fp32", "median, 50 % and 95 % band"]),
    ],
)
def test_a_notebook_draws_scaling_or_settings(
    varied: dict[str, list[object]], words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import matplotlib

    monkeypatch.setitem(matplotlib.rcParams, "svg.fonttype", "none")  # text stays text
    drawn = predict_many(
        "resnet50", **{"precision": "amp", "batch_size": 64} | varied
    )._repr_html_()
    svg = ElementTree.fromstring(drawn[drawn.index("<svg") :])
    text = " ".join(svg.itertext())
    assert all(word in text for word in words)


def test_one_prediction_shows_its_interval_and_the_parts_of_a_step() -> None:
    found = predict_time("resnet50", "amp", batch_size=64, steps=100)
    assert found._repr_html_().count("<svg") == 2


def test_without_matplotlib_the_text_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    found = predict_time("resnet50", "amp", batch_size=64)
    assert found._repr_html_() == f"<pre>{found}</pre>"
