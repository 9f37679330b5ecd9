"""The Python face: one call, one answer that JSON can hold, or an error that helps."""

from __future__ import annotations

import json
import logging
import pickle
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from precision_time import predict_time
from predictor.errors import ArtifactError, JobError, UnknownModelError
from predictor.estimate import api, artifacts, store
from predictor.estimate.core import Predictor, steps_of
from predictor.estimate.fitting import Fitted
from predictor.estimate.measurement import Measurement
from predictor.estimate.prediction import Prediction
from predictor.job.precision import Precision
from predictor.job.training_job import TrainingJob
from predictor.planning.plans import input_bound

LEVELS = st.floats(0.001, 0.999)


@pytest.fixture(autouse=True)
def loaded(fitted: Fitted) -> Iterator[None]:
    """The fitted predictor is the one in use; none that another test loaded is kept."""
    api._loaded.cache_clear()
    yield
    api._loaded.cache_clear()


@pytest.fixture(scope="module")
def jobs(unseen_runs: tuple[Measurement, ...]) -> list[TrainingJob]:
    return [m.job for m in unseen_runs[:: len(unseen_runs) // 30]]


@pytest.fixture(scope="module")
def predictions(fitted: Fitted, jobs: list[TrainingJob]) -> list[Prediction]:
    return fitted.predictor.predict_many(jobs)


def plain(value: object) -> bool:
    """Made of what JSON knows, and of nothing that only looks like it."""
    if type(value) is dict:
        return all(type(k) is str and plain(v) for k, v in value.items())
    if type(value) is list:
        return all(plain(v) for v in value)
    return value is None or type(value) in (str, int, float, bool)


# BLAS adds in another order where an array lies elsewhere in memory, as a mapped one does.
ROUNDING = 1e-12


def leaves(value: Any, path: str = "") -> dict[str, Any]:
    """The values of nested dictionaries by path, numbers to within rounding."""
    if isinstance(value, dict):
        return {k: v for key in value for k, v in leaves(value[key], f"{path}/{key}").items()}
    return {path: pytest.approx(value, rel=ROUNDING) if isinstance(value, float) else value}


class TestOneCall:
    def test_needs_a_model_a_precision_and_a_batch(self) -> None:
        found = predict_time("resnet50", "amp", batch_size=64)
        assert (found.job.gpu, found.job.gpus) == (api.DEFAULT_GPU, 1)
        assert found.job.precision is Precision.MIXED_FP16_FP32
        assert found.step_s > 0
        assert found.total_s is None

    def test_says_what_the_predictor_in_use_says(self, fitted: Fitted) -> None:
        found = predict_time("bert-large", "fp32", 8, gpu="v100-pcie-16gb", batch_size=4, steps=100)
        job = TrainingJob(
            model="bert-large",
            precision=Precision.FP32,
            gpu="v100-pcie-16gb",
            gpus=8,
            batch_size=4,
            steps=100,
        )
        assert leaves(found.as_dict()) == leaves(fitted.predictor.predict(job).as_dict())

    def test_costs_neither_torch_nor_scikit_learn(self) -> None:
        program = (
            "import sys, precision_time; assert 'numpy' not in sys.modules;"
            "precision_time.predict_time('resnet50', 'amp', batch_size=64);"
            "print(sorted({'torch', 'sklearn', 'pandas', 'matplotlib'} & set(sys.modules)))"
        )
        root = Path(__file__).parents[2]
        ran = subprocess.run(
            [sys.executable, "-c", program], cwd=root, capture_output=True, text=True, check=False
        )
        assert (ran.stdout.strip(), ran.stderr) == ("[]", "")


class TestErrors:
    def test_a_number_that_cannot_be_shown_is_refused_like_others(self) -> None:
        with pytest.raises(JobError, match="unclear steps; expected a whole number from 1 to"):
            predict_time(model="resnet50", precision="amp", batch_size=8, steps=10**5000)

    @pytest.mark.parametrize("level", ["a", 2, 0, float("nan"), None])
    def test_no_quantile_is_told_of_what_is_no_share(self, level: Any) -> None:
        found = predict_time(model="resnet50", precision="amp", batch_size=8, steps=9)
        for ask in (found.interval, found.quantile_s, found.total_quantile_s, found.total_interval):
            with pytest.raises(JobError, match=f"invalid level={level!r}|no level"):
                ask(level)

    @pytest.mark.parametrize(
        ("changes", "field", "accepted"),
        [
            ({"precision": "fp99"}, "precision", "mixed_bf16_fp32"),
            ({"precision": "mixed_fp8_bf16"}, "precision", "mixed_bf16_fp32"),
            ({"precision": None}, "precision", "amp"),
            ({"gpu": "h1000"}, "gpu", "h100"),
            ({"gpu": None}, "gpu", "name"),
            ({"gpus": 0}, "gpus", "from 1 to 1048576"),
            ({"gpus": 10**30}, "gpus", "from 1 to 1048576"),
            ({"framework_date": "x"}, "framework_date", "2024.5"),
            ({"epochs": 1e9}, "epochs", "1000000"),
            ({"options": 5}, "options", "mapping"),
            ({"batch_size": 0}, "batch_size", "from 1 to"),
            ({"batch_size": None}, "batch_size", "global_batch_size"),
            ({"batch": 8}, "batch", "batch_size, global_batch_size"),
            ({"epochs": -1}, "epochs", "positive"),
            ({"batch_size": [8, 16]}, "batch_size", "predict_many"),
            ({"precision": ["amp"]}, "precision", "predict_many"),
            ({"image_size": [224, 192]}, "image_size", "predict_many"),
            ({"seq_len": 512}, "seq_len", "takes no tokens"),
            ({"mean_seq_len": 77}, "mean_seq_len", "takes no tokens"),
            ({"model": "resnet-5o"}, "model", "resnet"),
            ({"model": ""}, "model", "catalog"),
            ({"model": 50}, "model", "name"),
            ({"gpus": 16, "gpus_per_node": 8, "fabric": "token-ring"}, "fabric", "ib-hdr"),
            ({"fabric": "infinband"}, "fabric", "ib-hdr"),
        ],
    )
    def test_name_field_value_and_what_is_accepted(
        self, changes: dict[str, Any], field: str, accepted: str
    ) -> None:
        job: dict[str, Any] = {"model": "resnet50", "precision": "amp", "batch_size": 64}
        job |= changes
        with pytest.raises(JobError) as caught:
            predict_time(**job)
        assert caught.value.field == field
        assert str(caught.value.value) == str(changes[field])
        assert accepted in caught.value.expected
        told = f"invalid {field}={caught.value.value!r}; "
        assert str(caught.value).startswith(f"no {field}; " if caught.value.value is None else told)

    def test_an_image_size_has_the_axes_of_its_network_or_is_refused(self) -> None:
        """As on the command line: a channel taken for an axis would make it 27 times as long."""
        step_s = {
            str(size): predict_time("resnet50", "amp", batch_size=64, image_size=size).step_s
            for size in (224, (224,), (224, 224))
        }
        assert len(set(step_s.values())) == 1, step_s
        whole, one = (
            predict_time("unet3d", "amp", batch_size=2, image_size=size).step_s
            for size in ((128, 128, 128), 128)
        )
        assert whole == one
        for model, size in (("resnet50", (3, 224, 224)), ("unet3d", (128, 128))):
            with pytest.raises(JobError, match=r"invalid image_size=.*; expected H or HxW"):
                predict_time(model, "amp", batch_size=2, image_size=size)
        with pytest.raises(JobError, match="bert-base takes no images"):
            predict_time("bert-base", "amp", batch_size=2, image_size=224)

    def test_an_unknown_model_is_told_the_nearest(self) -> None:
        with pytest.raises(UnknownModelError) as caught:
            predict_time("bert-lagre", "amp", batch_size=1)
        assert "bert-large" in caught.value.nearest

    def test_epochs_need_a_data_set(self) -> None:
        unknown = predict_time("bert-large", "amp", batch_size=8, epochs=3)
        assert unknown.steps is None
        assert unknown.total_s is None
        assert "state dataset= or dataset_size=" in str(unknown)
        found = predict_time("bert-large", "amp", batch_size=8, epochs=3, dataset_size=1000)
        assert found.steps == 375


class TestPrediction:
    def test_is_plain_json(self, predictions: list[Prediction], jobs: list[TrainingJob]) -> None:
        for found in predictions:
            said = found.as_dict()
            assert plain(said), found.job
            assert json.loads(json.dumps(said, allow_nan=False)) == said

    def test_public_numbers_are_python_numbers(self, predictions: list[Prediction]) -> None:
        for found in predictions:
            numbers = (
                found.step_s,
                found.throughput,
                found.correction,
                found.deviation,
                found.quantile_s(0.9),
                found.interval().low_s,
                found.interval().high_s,
                found.physical.step_s,
                found.physical.memory_s,
            )
            assert {type(n) for n in numbers} == {float}

    def test_comes_out_of_a_pickle_as_it_was(self, predictions: list[Prediction]) -> None:
        for one in (*predictions, input_bound(predictions[0], 1.0)):
            found = pickle.loads(pickle.dumps(one))
            assert found == one
            assert found.as_dict() == one.as_dict()

    def test_reads_as_three_short_lines(self, predictions: list[Prediction]) -> None:
        for one in predictions:
            assert one.job.model in str(one)
            lines = str(one).splitlines()
            assert len(lines) == 3
            assert max(map(len, lines)) < 200

    def test_is_not_one_number(self, predictions: list[Prediction]) -> None:
        with pytest.raises(TypeError, match=r"\.step_s or \.total_s"):
            float(predictions[0])  # type: ignore[arg-type]

    def test_parts_multiply(self, predictions: list[Prediction]) -> None:
        for found in predictions:
            assert found.step_s == pytest.approx(found.physical.step_s * found.correction)
            assert found.throughput * found.step_s == pytest.approx(found.job.step_samples)

    @given(level=LEVELS, other=LEVELS)
    def test_quantiles_rise_with_their_level(
        self, predictions: list[Prediction], level: float, other: float
    ) -> None:
        low, high = sorted((level, other))
        for found in predictions[:10]:
            assert 0 < found.quantile_s(low) <= found.quantile_s(high)

    @given(level=LEVELS, other=LEVELS)
    def test_intervals_nest_around_the_prediction(
        self, predictions: list[Prediction], level: float, other: float
    ) -> None:
        narrow, wide = sorted((level, other))
        for found in predictions[:10]:
            inner, outer = found.interval(narrow), found.interval(wide)
            assert outer.low_s <= inner.low_s <= found.step_s <= inner.high_s <= outer.high_s

    def test_evidence_counts_the_fitted_runs(
        self, predictions: list[Prediction], fitted: Fitted
    ) -> None:
        fitted_on = [p.measurement.job for p in fitted.priced]
        for found in predictions:
            like = sum(j.model == found.job.model for j in fitted_on)
            assert f"{like} measured runs of the same model" in found.evidence
            same = [j for j in fitted_on if (j.model, j.gpu) == (found.job.model, found.job.gpu)]
            told = f"{len(same)} measured runs of the same model, gpu"
            assert (told in found.evidence) is bool(like)  # after a zero nothing more is counted

    def test_warnings_say_what_hardware_cannot(self) -> None:
        for gpu, precision, words in (
            ("v100", "tf32", "no TF32 tensor cores"),
            ("v100", "bf16-mixed", "no bf16 tensor cores"),
            ("p100", "amp", "no fp16 tensor cores"),
        ):
            said = predict_time("resnet50", precision, gpu=gpu, batch_size=8).warnings
            assert any(words in w for w in said)
        quiet = predict_time("resnet50", "amp", gpu="a100", batch_size=8).warnings
        assert not any("tensor cores" in w for w in quiet)


class TestLength:
    @given(steps=st.integers(1, 10**7), factor=st.integers(2, 50))
    def test_more_steps_take_proportionally_longer(
        self, fitted: Fitted, steps: int, factor: int
    ) -> None:
        job = TrainingJob(model="resnet50", precision=Precision.FP32, gpu="a100", batch_size=32)
        one = fitted.predictor.predict(job.but(steps=steps))
        many = fitted.predictor.predict(job.but(steps=steps * factor))
        assert one.step_s == many.step_s
        assert one.total_s is not None
        assert one.gpu_hours is not None
        assert many.total_s == pytest.approx(factor * one.total_s)
        assert many.gpu_hours == pytest.approx(factor * one.gpu_hours)
        assert many.total_quantile_s(0.9) == pytest.approx(many.quantile_s(0.9) * steps * factor)

    @given(
        epochs=st.floats(0.01, 100),
        size=st.integers(1, 10**6),
        batch=st.integers(1, 512),
        gpus=st.sampled_from((1, 4, 8)),
    )
    def test_epochs_are_as_many_steps_as_see_all_samples(
        self, epochs: float, size: int, batch: int, gpus: int
    ) -> None:
        job = TrainingJob(
            model="resnet50",
            precision=Precision.FP32,
            gpu="a100",
            gpus=gpus,
            batch_size=batch,
            epochs=epochs,
            dataset_size=size,
        )
        steps = steps_of(job)
        assert steps is not None
        assert steps * job.step_samples >= epochs * size
        assert (steps - 1) * job.step_samples < max(epochs * size, 1)

    def test_a_known_data_set_need_not_be_given(self) -> None:
        found = predict_time("resnet50", "amp", 8, batch_size=256, epochs=90)
        assert found.steps == -(-90 * 1_281_167 // 2048)

    def test_no_length_no_total(self, fitted: Fitted) -> None:
        found = predict_time("resnet50", "amp", batch_size=256)
        assert (
            found.steps is found.total_s is found.gpu_hours is found.total_quantile_s(0.9) is None
        )
        assert found.as_dict()["total_s"] is None


class TestPredictor:
    def test_a_seen_job_is_not_computed_again(self, fitted: Fitted) -> None:
        job = TrainingJob(model="resnet50", precision=Precision.FP32, gpu="a100", batch_size=40)
        same = TrainingJob(model="resnet50", precision=Precision.FP32, gpu="A100", batch_size=40)
        first = fitted.predictor.predict(job)
        assert fitted.predictor.predict(job) is first
        assert fitted.predictor.predict(same) is first
        assert fitted.predictor.predict(job.but(batch_size=41)) is not first

    def test_many_are_as_one_by_one(
        self, fitted: Fitted, jobs: list[TrainingJob], predictions: list[Prediction]
    ) -> None:
        assert [p.job for p in predictions] == jobs
        for job, together in zip(jobs, predictions, strict=True):
            assert together.step_s == pytest.approx(fitted.predictor.predict(job).step_s, rel=1e-9)
        assert fitted.predictor.predict_many([]) == []

    def test_threads_share_it(
        self, fitted: Fitted, jobs: list[TrainingJob], predictions: list[Prediction]
    ) -> None:
        fresh = Predictor(
            fitted.predictor.steps, fitted.predictor.residual, fitted.predictor.intervals
        )
        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(fresh.predict, [*jobs, *jobs[::-1]]))
        expected = [*predictions, *predictions[::-1]]
        assert [p.step_s for p in found] == pytest.approx([p.step_s for p in expected])


class TestStore:
    def test_a_stored_predictor_predicts_the_same(
        self, home: Path, fitted: Fitted, jobs: list[TrainingJob]
    ) -> None:
        version = store.store(fitted.predictor, {}).version
        loaded = store.load_predictor(version)
        for job in jobs:
            before, after = fitted.predictor.predict(job), loaded.predict(job)
            assert leaves(before.as_dict()) == leaves(after.as_dict())
            assert before.quantile_s(0.77) == pytest.approx(after.quantile_s(0.77), rel=ROUNDING)

    def test_its_state_is_json_and_its_arrays_are_numbers(self, fitted: Fitted) -> None:
        state = fitted.predictor.to_state()
        assert json.loads(json.dumps(state, allow_nan=False))
        assert {a.dtype.kind for a in fitted.predictor.to_arrays().values()} <= set("fiu")

    def test_storing_is_not_using(self, home: Path, fitted: Fitted) -> None:
        store.store(fitted.predictor, {"rows": 1.0})
        assert artifacts.current() == artifacts.shipped().version

    def test_other_tables_are_logged_and_still_load(
        self,
        home: Path,
        fitted: Fitted,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        version = store.store(fitted.predictor, {}).version
        with caplog.at_level(logging.WARNING):
            store.load_predictor(version)
            assert caplog.text == ""
            monkeypatch.setattr(store, "tables_hash", lambda: "f" * 64)
            store.load_predictor(version)
        assert "was fitted on other tables" in caplog.text
        assert version in caplog.text

    @pytest.mark.parametrize("missing", ["residual", "operators", "collectives"])
    def test_what_does_not_match_this_release_says_so(
        self, home: Path, fitted: Fitted, missing: str
    ) -> None:
        state = fitted.predictor.to_state()
        del state[missing]
        manifest = artifacts.save(
            fitted.predictor.to_arrays(), state, tables_hash=store.tables_hash()
        )
        with pytest.raises(ArtifactError, match=r"does not match this release.*precision-time fit"):
            store.load_predictor(manifest.version)

    def test_an_unknown_version_is_refused(self, home: Path) -> None:
        with pytest.raises(ArtifactError):
            store.load_predictor("20200101T000000Z-000000000000")

    def test_the_first_answer_is_of_the_shipped_one(self, home: Path) -> None:
        loaded, shipped = store.load_predictor(), store.load_predictor(artifacts.SHIPPED)
        job = TrainingJob(model="resnet50", precision=Precision.FP32, gpu="a100", batch_size=8)
        assert loaded.predict(job).step_s == shipped.predict(job).step_s
        assert not home.exists()
