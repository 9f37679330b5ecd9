"""What a job does not say is told, widens the answer, and carries no limit and no refusal."""

from __future__ import annotations

import json
import pickle
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from predictor.errors import JobError
from predictor.estimate.assumptions import Assumption, decisive, widened
from predictor.estimate.fits import fits
from predictor.estimate.fitting import Fitted
from predictor.estimate.limits import too_thin
from predictor.estimate.prediction import narrowing
from predictor.job.training_job import TrainingJob
from predictor.settings import Evidence

LAX = 0.95, Evidence(max_interval_ratio=1e9, refused_tiers=())
STATED: dict[str, Any] = {"precision": "bf16-mixed", "gpu": "a100-sxm4-80gb", "gpus": 8}
DECODERS = ("gpt2", "gpt2-xl", "llama2-7b", "llama3-8b", "gpt-neo-2.7b")
# Networks, what is said of them, and the field that is missing and moves the total most.
UNDER_STATED = [
    *(
        (model, {"batch_size": batch, "steps": 1000, **more}, "seq_len")
        for model, batch, more in product(
            (*DECODERS, "bert-large", "t5-large"),
            (1, 8),
            ({}, {"sharding": "fsdp"}, {"options": "act_ckpt=full"}),
        )
    ),
    *(
        (model, {"batch_size": batch, "epochs": epochs}, "dataset_size")
        for model, batch, epochs in product(
            ("resnet50", "vgg16", "efficientnet-b0", "vit-base-16", "densenet121"),
            (32, 256),
            (10, 90),
        )
    ),
]


def job(model: str, **fields: Any) -> TrainingJob:
    return TrainingJob(model=model, **(STATED | fields))


def test_sixty_jobs_are_under_stated() -> None:
    assert len(UNDER_STATED) >= 60


@pytest.mark.parametrize(("model", "said", "missing"), UNDER_STATED)
def test_what_is_missing_is_told_and_no_limit_rests_on_it(
    fitted: Fitted, model: str, said: dict[str, Any], missing: str
) -> None:
    found = fitted.predictor.predict(job(model, **said))
    assert found.assumptions[0].field == missing
    assert missing in str(found.assumptions[0])
    assert found.as_dict()["assumptions"][0]["decisive"]
    assert missing in (too_thin([found], *LAX) or "")


@pytest.mark.parametrize("model", DECODERS)
def test_a_stated_length_carries_a_limit(fitted: Fitted, model: str) -> None:
    full = job(model, batch_size=1, seq_len=1024, steps=100)
    assert too_thin([fitted.predictor.predict(full)], *LAX) is None


def test_a_data_set_moves_the_total_and_not_the_step(fitted: Fitted) -> None:
    unnamed = job("resnet50", batch_size=256, epochs=90, image_size=224)
    named = unnamed.but(dataset_size=1281167)
    one, other = fitted.predictor.predict(unnamed), fitted.predictor.predict(named)
    assert one.total_s == pytest.approx(other.total_s)
    assert one.interval() == other.interval()
    assert (one.total_quantile_s(0.95) or 0) > 1.5 * (other.total_quantile_s(0.95) or 0)


def test_a_pipeline_takes_a_global_batch_one_sample_at_a_time(fitted: Fitted) -> None:
    pipeline = job("gpt2-xl", gpus=16, global_batch_size=256, pipeline_parallel=8, seq_len=1024)
    assert (pipeline.micro_batch_size, pipeline.micro_steps) == (1, 128)
    assert pipeline.but(pipeline_parallel=1).micro_steps == 1
    assert pipeline.but(grad_accum=4).micro_batch_size == 32
    told = [one.field for one in fitted.predictor.predict(pipeline).assumptions]
    assert "batch_size" in told


def test_what_else_it_could_be_accumulates_as_it_is_assumed_to(fitted: Fitted) -> None:
    told = job("phi-1.5", gpu="a100-sxm4-40gb", gpus=32, global_batch_size=2048, seq_len=2048)
    found = {one.field: one for one in fitted.predictor.predict(told).assumptions}
    assert "grad_accum" in found
    assert found["flash_attention"].high < 3  # without accumulation 26


def test_a_network_that_is_not_stated_may_be_one_adapter(fitted: Fitted) -> None:
    spread = job("llama2-7b", gpus=32, batch_size=1, seq_len=2048, sharding="fsdp")
    found = told_of(fitted, spread)["fabric"]
    assert (found.value, found.low) == ("8x ib-hdr", 1.0)
    assert found.high > 1.5
    for said in (spread.but(fabric="efa"), spread.but(gpus=8)):
        assert "fabric" not in told_of(fitted, said)


def test_counted_examples_may_be_shorter_than_the_sequence(fitted: Fitted) -> None:
    tuned = job("llama2-7b", batch_size=4, seq_len=512, sharding="fsdp", epochs=3)
    counted = tuned.but(dataset_size=52_002)
    found = told_of(fitted, counted)["mean_seq_len"]
    assert found.value == "312 tokens an example"  # between 190 and 512
    assert found.low < 0.8
    assert found.high > 1.25
    short, assumed, whole = (
        fitted.predictor.predict(counted.but(mean_seq_len=n)).step_s for n in (190, None, 512)
    )
    assert short == pytest.approx(found.low * assumed, rel=0.1)
    assert whole == pytest.approx(found.high * assumed, rel=0.1)
    assert fits(counted).memory == fits(counted.but(mean_seq_len=512)).memory  # one may fill it
    # Where trainers cut them, if nobody says so; not where the network ends.
    for framework in ("pytorch", "nemo", "jax"):
        unsaid = counted.but(model="llama3.2-3b", seq_len=None, framework=framework)
        found = told_of(fitted, unsaid)
        assert found["mean_seq_len"].value == "624 tokens an example"  # between 190 and 2048
        assert "seq_len" not in found
    whole = told_of(fitted, counted.but(framework="nemo"))["mean_seq_len"]  # cuts text evenly
    assert (whole.value, whole.high) == ("the whole sequence", 1.0)
    assert "mean_seq_len" not in told_of(fitted, counted.but(mean_seq_len=187))


def test_a_vision_tower_that_the_catalog_lacks_is_told(fitted: Fitted) -> None:
    sees, reads = (job(f"gemma-3-4b{end}", batch_size=1, seq_len=1024) for end in ("-it", "-text"))
    found = told_of(fitted, sees)["vision_tower"]
    assert (found.value, found.low) == ("no time", 1.0)
    assert found.decisive  # no limit may rest on what is not priced
    assert (
        narrowing(fitted.predictor.predict(sees)) == "a run of 100 steps of this network on any GPU"
    )
    assert "vision_tower" not in told_of(fitted, reads)


def test_counted_examples_that_are_packed_are_fewer_samples(fitted: Fitted) -> None:
    packs = job("llama2-7b", batch_size=4, seq_len=512, epochs=3, options="packing=on")
    assumed, short, whole, other = (
        fitted.predictor.predict(packs.but(dataset_size=52_002, **said))
        for said in ({}, {"mean_seq_len": 190}, {"mean_seq_len": 512}, {"framework": "nemo"})
    )
    [found] = [one for one in assumed.assumptions if one.field == "mean_seq_len"]
    assert (found.value, found.length) == ("312 tokens an example", True)  # between 190 and 512
    fewest, some, most = (one.steps or 0 for one in (short, assumed, whole))
    assert found.low * some == pytest.approx(fewest, rel=0.02)
    assert found.high * some == pytest.approx(most, rel=0.02)
    assert other.steps == whole.steps  # of NeMo's packed files they are the samples


def test_a_quantised_base_computes_activations_again(fitted: Fitted) -> None:
    tuned = job("llama2-7b", batch_size=4, seq_len=512, gpus=1)
    found = told_of(fitted, tuned.but(options="lora=on;load_in_8bit=on"))["act_ckpt"]
    assert found.value == "on"
    said = tuned.but(options="lora=on;load_in_8bit=on;act_ckpt=off")
    assert "act_ckpt" not in told_of(fitted, said)


def test_adapters_that_do_not_fit_have_a_base_of_four_bits(fitted: Fitted) -> None:
    tuned = job("llama2-13b", batch_size=1, seq_len=512, gpu="rtx4090-24gb", options="lora=on")
    found = told_of(fitted, tuned)
    assert found["quantized_base"].value == "4bit"
    assert found["quantized_base"].high > 1.5  # gathered over PCIe instead


def test_packed_samples_of_unknown_length_may_take_less(fitted: Fitted) -> None:
    long = job("gpt2-xl", gpus=8, batch_size=1, seq_len=16384, options="packing=on")
    told = {one.field: one for one in fitted.predictor.predict(long).assumptions}
    assert told["mean_seq_len"].low < 0.9
    known = fitted.predictor.predict(long.but(mean_seq_len=512))
    assert "mean_seq_len" not in {one.field for one in known.assumptions}


def test_layers_that_do_not_divide_evenly_are_told(fitted: Fitted) -> None:
    """GPT-2 XL has 48 layers: eight stages hold 6 each, seven cannot be even."""
    for stages, told in ((8, False), (7, True)):
        found = job("gpt2-xl", gpus=stages, batch_size=1, pipeline_parallel=stages, seq_len=1024)
        (uneven,) = [
            one
            for one in fitted.predictor.predict(found).assumptions
            if one.field == "pipeline_parallel"
        ] or [None]
        assert (uneven is not None) is told
        assert uneven is None or uneven.value == "6.86 of 48 layers on each stage"


def told_of(fitted: Fitted, asked: TrainingJob) -> dict[str, Assumption]:
    return {one.field: one for one in fitted.predictor.predict(asked).assumptions}


def test_text_beside_sound_of_thirty_seconds_is_no_longer_than_its_model_takes(
    fitted: Fitted,
) -> None:
    for model in ("whisper-tiny", "whisper-medium", "whisper-large-v3"):
        unsaid = told_of(fitted, job(model, batch_size=16)).get("seq_len")
        assert unsaid is None or 0.4 < unsaid.low <= 1 == unsaid.high


def test_workers_that_decode_images_are_told_where_as_many_as_usual_may_not_suffice(
    fitted: Fitted,
) -> None:
    small = job("resnet18", gpu="h100-sxm5-80gb", batch_size=256)
    assert told_of(fitted, small)["workers"].high > 1.5
    more = ({"options": "workers=16"}, {"options": "data_backend=dali_gpu"}, {"gpus": 1})
    for one in (*(small.but(**fields) for fields in more), job("vgg16", batch_size=128)):
        assert "workers" not in told_of(fitted, one)


def test_a_detector_that_states_no_workers_is_slower_and_may_be_as_slow_as_few(
    fitted: Fitted,
) -> None:
    small = job("yolov8n", gpu="rtx3090-24gb", gpus=8, batch_size=32, image_size=640)
    asked, known = map(fitted.predictor.predict, (small, small.but(options="dali=on")))
    workers = next(one for one in asked.assumptions if one.field == "workers")
    assert known.step_s < asked.step_s < known.step_s * workers.high
    few = fitted.predictor.predict(small.but(options="workers=4"))
    assert few.step_s == pytest.approx(known.step_s * workers.high) == 32 / (4 * 12)


def test_a_large_decoder_may_compute_activations_again(fitted: Fitted) -> None:
    unsaid = job("llama2-7b", batch_size=1, seq_len=2048, framework="pytorch", sharding="fsdp")
    assert told_of(fitted, unsaid)["act_ckpt"].high == pytest.approx(4 / 3)
    said = (unsaid.but(options=f"act_ckpt={how}") for how in ("none", "full"))
    small = job("gpt2", batch_size=8, seq_len=1024, framework="pytorch")
    for one in (*said, small, unsaid.but(framework="nemo")):
        assert "act_ckpt" not in told_of(fitted, one)


ASSUMED = st.builds(
    Assumption,
    st.just("seq_len"),
    st.just("512"),
    st.just("usual"),
    st.floats(0.1, 1.0),
    st.floats(1.0, 10.0),
)


@given(st.lists(ASSUMED, max_size=4), st.floats(0.01, 0.99), st.floats(1.0, 5.0))
def test_assumptions_only_widen(found: list[Assumption], level: float, wide: float) -> None:
    factor = wide if level >= 0.5 else 1 / wide
    more = widened(factor, level, found)
    assert more >= factor * (1 - 1e-9) if level >= 0.5 else more <= factor * (1 + 1e-9)
    assert widened(factor, level, []) == factor
    assert widened(1 / wide, 0.5, found) == pytest.approx(1 / wide)
    assert (decisive(found) is None) == all(max(a.high, 1 / a.low) <= 2 for a in found)


def test_a_name_of_several_cards_is_their_mean_and_the_ends_stay(fitted: Fitted) -> None:
    named = job("gpt2", gpu="a100", batch_size=8, seq_len=1024)
    asked, known = map(fitted.predictor.predict, (named, named.but(gpu=named.gpu)))
    card = next(one for one in asked.assumptions if one.field == "gpu")
    assert 1 < asked.unstated < card.high
    assert asked.step_s == pytest.approx(known.step_s * asked.unstated)
    assert asked.throughput * asked.step_s == pytest.approx(known.throughput * known.step_s)
    assert not known.job.other_gpus
    wide = widened(known.factors(0.975), 0.975, [card])
    assert asked.quantile_s(0.975) == pytest.approx(known.step_s * wide)
    quantiles = [asked.quantile_s(level / 100) for level in range(1, 100)]
    assert quantiles == sorted(quantiles)


def test_a_name_of_several_cards_means_one_that_holds_the_job(fitted: Fitted) -> None:
    for batch, card in ((64, "v100-sxm2-16gb"), (320, "v100-sxm2-32gb"), (4096, "v100-sxm2-16gb")):
        for length in ({}, {"steps": 100}):
            found = fitted.predictor.predict(
                job("resnet50", gpu="v100", batch_size=batch, **length)
            )
            assert found.job.gpu == card
            assert {found.job.gpu, *found.job.other_gpus} >= {"v100-sxm2-16gb", "v100-pcie-16gb"}


def test_a_range_of_nothing_is_not_told_in_numbers() -> None:
    told = [str(Assumption("sharding", "fsdp", "why", 0.999, high)) for high in (1.001, 1.5)]
    assert told[0] == "sharding: fsdp is assumed (why); otherwise about as long"
    assert told[1] == "sharding: fsdp is assumed (why); otherwise x 1 to x 1.5 as long"


def test_an_answer_is_three_lines_that_survive_json_and_pickle(fitted: Fitted) -> None:
    found = fitted.predictor.predict(job("gpt2", batch_size=8, seq_len=1024, steps=100))
    said = str(found).splitlines()
    assert len(said) == 3
    assert "50 %" in said[1]
    assert "tokens/s per GPU" in said[1]
    assert len(repr(found)) < 100
    assert "<pre>" in found._repr_html_()
    assert str(pickle.loads(pickle.dumps(found))) == str(found)
    assert json.loads(json.dumps(found.as_dict())) == found.as_dict()
    assert found.mfu <= found.hfu <= 1


def test_without_a_length_it_says_what_to_add(fitted: Fitted) -> None:
    found = fitted.predictor.predict(job("gpt2", batch_size=8, seq_len=1024))
    assert "steps=" in str(found)


@pytest.mark.parametrize("level", [0, 1, 95, -0.5, 1.5])
def test_a_level_is_a_share(fitted: Fitted, level: float) -> None:
    found = fitted.predictor.predict(job("gpt2", batch_size=8, seq_len=1024))
    with pytest.raises(JobError, match="between 0 and 1"):
        found.interval(level)


@pytest.mark.parametrize("options", ["", "evaluation=on", "resumed=on"])
@pytest.mark.parametrize(("model", "said"), [("resnet50", {}), ("gpt2", {"dataset": "c4"})])
def test_a_job_is_predicted_alike_whatever_others_of_its_kind_were(
    fitted: Fitted, model: str, said: dict[str, Any], options: str
) -> None:
    """Of jobs that differ in their length alone one is priced."""
    for length in ({"steps": 7}, {"epochs": 3}, {"epochs": 90, "dataset_size": 1000}, {}):
        given = STATED | said | length | {"options": options}
        job = TrainingJob(model=model, batch_size=9, **given)
        found, (alone,) = fitted.predictor.predict(job), fitted.predictor.predict_many([job])
        assert found == alone
        assert [found.factors(at) for at in (0.05, 0.95)] == [
            alone.factors(0.05),
            alone.factors(0.95),
        ]
