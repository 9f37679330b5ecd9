"""Reading a measured run: whatever unit it came in, the seconds of one optimizer step."""

from __future__ import annotations

from pathlib import Path

import pytest

from predictor.errors import JobError, MeasurementError
from predictor.estimate.measurement import (
    Measurement,
    Unreadable,
    measurement,
    parse,
    read_csv,
    shipped,
)
from predictor.job.precision import Precision
from profiles.tables import measurements

ROW = {
    "id": "r1",
    "source_repo": "example/made-up_v1.2",
    "framework": "pytorch 21.06",
    "model": "resnet50",
    "gpu": "a100-sxm4-80gb",
    "gpus": "8",
    "precision": "mixed_fp16_fp32",
    "batch_per_gpu": "256.0",
    "throughput": "20480",
    "unit": "images/s",
}


def run(**changes: str) -> Measurement:
    return measurement(ROW | changes)


class TestStepTime:
    def test_from_samples_per_second(self) -> None:
        assert run().step_s == pytest.approx(8 * 256 / 20480)

    def test_from_a_throughput_without_unit(self) -> None:
        assert run(unit="").step_s == pytest.approx(8 * 256 / 20480)

    def test_a_unit_that_nobody_knows_is_refused_with_the_nearest(self) -> None:
        with pytest.raises(MeasurementError, match=r"unit='imges/s'.*images/s"):
            run(unit="imges/s")

    def test_from_steps_per_second(self) -> None:
        assert run(unit="steps/s", throughput="4").step_s == pytest.approx(0.25)

    def test_from_tokens_per_second(self) -> None:
        found = run(
            model="gpt2", seq_len="1024", batch_per_gpu="4", throughput="65536", unit="tokens/s"
        )
        assert found.step_s == pytest.approx(8 * 4 * 1024 / 65536)

    def test_from_the_iteration(self) -> None:
        assert run(throughput="", iteration_s="0.125").step_s == 0.125

    def test_from_the_whole_run(self) -> None:
        assert run(throughput="", total_s="500", steps="2000").step_s == 0.25

    @pytest.mark.parametrize("unit", ["img/s", "Images/sec", "examples per second", "images"])
    def test_a_unit_may_be_in_the_words_of_others(self, unit: str) -> None:
        assert run(unit=unit).step_s == run(unit="images/s").step_s

    def test_a_throughput_of_one_gpu_is_refused(self) -> None:
        with pytest.raises(MeasurementError, match="unit='images/s/gpu'"):
            run(unit="images/s/gpu")

    @pytest.mark.parametrize("unit", ["images/s", "samples/s"])
    def test_throughput_is_of_all_gpus(self, unit: str) -> None:
        one, eight = run(gpus="1", unit=unit), run(unit=unit)
        assert eight.step_s == pytest.approx(8 * one.step_s)

    def test_gradient_accumulation_makes_the_step_longer(self) -> None:
        assert run(grad_accum="4").step_s == pytest.approx(4 * run().step_s)


class TestJob:
    @pytest.mark.parametrize("total", ["512", "520"])  # what is left over is dropped
    def test_global_batch_tells_the_micro_steps(self, total: str) -> None:
        job = run(batch_per_gpu="16", global_batch=total).job
        assert (job.micro_batch_size, job.grad_accum, job.step_samples) == (16, 4, 512)

    def test_global_batch_alone_is_shared_out(self) -> None:
        job = run(batch_per_gpu="", global_batch="512").job
        assert (job.micro_batch_size, job.micro_steps, job.step_samples) == (64, 1, 512)

    def test_a_pipeline_takes_a_global_batch_one_sample_at_a_time(self) -> None:
        job = run(
            batch_per_gpu="", global_batch="512", model="gpt2", options="pp=4", seq_len="8"
        ).job
        assert (job.micro_batch_size, job.grad_accum, job.step_samples) == (1, 256, 512)

    def test_options_that_split_the_model_are_fields(self) -> None:
        job = run(
            model="gpt2", gpus="16", options="tp=4;pp=2;zero=1;flash_attention", seq_len="8"
        ).job
        assert (job.tensor_parallel, job.pipeline_parallel, job.data_parallel) == (4, 2, 2)
        assert job.sharding == "zero1"
        options = (("build", "nvidia"), ("flash_attention", "on"), ("zero", "1"))  # of a container
        assert job.options == options

    def test_nodes_tell_the_gpus_of_a_node(self) -> None:
        assert run(gpus="16", nodes="4").job.gpus_per_node == 4
        assert run(gpus="16", nodes="").job.nodes == 2

    def test_words_are_normalised(self) -> None:
        found = run(model="ResNet-50", gpu="NVIDIA A100-SXM4-80GB", precision="amp")
        assert found.job.model == "resnet50"
        assert found.job.precision is Precision.MIXED_FP16_FP32
        assert found.stack == ("made-up", "pytorch 21.06", "a100-sxm4-80gb")

    def test_a_range_of_image_sizes_means_the_default(self) -> None:
        assert run(image_size="800-1333").job.image_size is None
        assert run(image_size="192").job.image_size == (192, 192)
        assert run(image_size="192x256").job.image_size == (192, 256)
        with pytest.raises(JobError, match="expected H or HxW"):
            run(image_size="832x480x81")


class TestRefusal:
    @pytest.mark.parametrize(
        ("changes", "reason"),
        [
            ({"model": ""}, "model is empty"),
            ({"gpu": ""}, "gpu is empty"),
            ({"precision": ""}, "precision is empty"),
            ({"model": "no-such-net"}, "'no-such-net' is not in the catalog"),
            ({"gpu": "tpu-v4"}, "tpu-v4"),
            ({"precision": "int4"}, "precision='int4'"),
            ({"throughput": "fast"}, "throughput='fast' is not a positive number"),
            ({"throughput": "0"}, "throughput='0' is not a positive number"),
            ({"throughput": "-3"}, "not a positive number"),
            ({"throughput": "nan"}, "not a positive number"),
            ({"throughput": "inf"}, "not a positive number"),
            ({"throughput": ""}, "no throughput, iteration_s, or total_s with steps"),
            ({"throughput": "", "total_s": "9"}, "no throughput"),
            ({"batch_per_gpu": ""}, "no batch_per_gpu and no global_batch"),
            ({"gpus": "many"}, "gpus='many' is not a positive number"),
        ],
    )
    def test_each_has_its_reason(self, changes: dict[str, str], reason: str) -> None:
        with pytest.raises((MeasurementError, JobError)) as caught:
            run(**changes)
        assert reason in str(caught.value)

    def test_a_file_loses_no_row_and_no_order(self) -> None:
        rows = [ROW | {"id": str(i), "gpu": "" if i % 3 else ROW["gpu"]} for i in range(9)]
        parsed = parse(rows)
        assert [item.id for item in parsed] == [str(i) for i in range(9)]
        assert [isinstance(item, Unreadable) for item in parsed] == [bool(i % 3) for i in range(9)]

    def test_a_file_without_a_column_names_it(self, tmp_path: Path) -> None:
        path = tmp_path / "runs.csv"
        path.write_text("id,model,gpus,throughput\na,resnet50,1,100\n")
        with pytest.raises(MeasurementError, match=r"runs\.csv: no column gpu, precision"):
            read_csv(path)

    def test_columns_may_be_called_as_the_fields_of_a_job(self, tmp_path: Path) -> None:
        path = tmp_path / "runs.csv"
        path.write_text("model,gpu,gpus,precision,batch_size,step_s\nresnet50,v100,1,amp,64,0.1\n")
        (found,) = parse(read_csv(path))
        assert isinstance(found, Measurement)
        assert (found.id, found.job.batch_size, found.step_s) == ("runs row 1", 64, 0.1)
        path.write_text("model,gpu,gpus,precision,batch_size,batch_per_gpu\n")
        with pytest.raises(MeasurementError, match="batch_size is batch_per_gpu: keep one"):
            read_csv(path)

    def test_short_lines_read_as_empty(self, tmp_path: Path) -> None:
        path = tmp_path / "runs.csv"
        path.write_text("id,model,gpu,gpus,precision,throughput\na,resnet50,v100,1\n")
        assert read_csv(path)[0]["throughput"] == ""


class TestShipped:
    def test_times_are_positive_and_ids_differ(self) -> None:
        found = shipped()
        assert all(m.step_s > 0 for m in found)
        assert len({m.id for m in found}) == len(found)

    def test_a_row_is_refused_only_for_what_it_does_not_say(self) -> None:
        refused = [item.reason for item in parse(measurements()) if isinstance(item, Unreadable)]
        known = ("not in the catalog", "no throughput, iteration_s", "no batch_per_gpu")
        assert [r for r in refused if not any(words in r for words in known)] == []
