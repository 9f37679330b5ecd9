"""Opportunities and what-if: measured hours times predicted ratios, replayed alike."""

from __future__ import annotations

import shlex
from typing import Any

import click
import pytest
from capacity_jobs import START_S, frame, job
from click.testing import CliRunner

from predictor.cli.main import main
from predictor.cli.options import job_of, job_options, model_argument
from predictor.errors import TraceError
from predictor.estimate.fitting import Fitted
from predictor.job.training_job import TrainingJob
from predictor.planning.cost import Tariff, Terms
from predictor.site.capacity.configurations import Outlook, configurations, step_ratio, training_job
from predictor.site.capacity.jobs import PeriodJobs, jobs_of
from predictor.site.capacity.opportunities import (
    Better,
    better,
    change_of,
    check_of,
    in_mixed_precision,
    with_fewer_gpus,
)
from predictor.site.capacity.report_data import OpportunityKind, Range, WhatIf
from predictor.site.capacity.whatif import ORDER, ClusterChange, alternatives, what_if
from predictor.site.history.ingest import Period
from predictor.site.replay import Pool

PERIOD = Period(since_s=START_S, until_s=START_S + 86_400)
FP32 = "model=resnet50 precision=fp32 batch_size=64 steps=1000"
V100, A100 = "v100-sxm2-16gb", "a100-sxm4-80gb"
POOLS = (Pool(name=V100, gpus=4), Pool(name=A100, gpus=4))


def ran(*jobs: dict[str, Any]) -> PeriodJobs:
    return jobs_of(frame(jobs), PERIOD)


def replayed(
    fitted: Fitted, plan: ClusterChange, *jobs: dict[str, Any], terms: Terms | None = None
) -> WhatIf:
    return what_if(ran(*jobs), plan, Outlook(fitted.predictor), terms or Terms(), POOLS)


def test_like_jobs_are_one_configuration_whatever_their_steps(fitted: Fitted) -> None:
    jobs = ran(job(asked=FP32), job(job_id="2", asked=FP32.replace("1000", "77"), user="bob"))
    outlook = Outlook(fitted.predictor)
    [one] = configurations(jobs.table, outlook, most=10)
    assert (one.jobs, one.hours, one.users) == (2, pytest.approx(2), ("ada", "bob"))
    assert len(outlook) == 1


def test_a_job_that_cannot_be_predicted_is_no_configuration(fitted: Fitted) -> None:
    jobs = ran(
        job(asked="model=no-such-model precision=fp32 batch_size=1"),
        job(job_id="2", asked=FP32, gpu_type="homemade-9000"),
        job(job_id="3", asked=FP32),
    )
    found = configurations(jobs.table, Outlook(fitted.predictor), most=10)
    assert [one.gpu_type for one in found] == [V100]


def test_mixed_precision_saves_measured_hours_times_the_predicted_ratio(fitted: Fitted) -> None:
    outlook = Outlook(fitted.predictor)
    found = configurations(ran(job(asked=FP32)).table, outlook, most=10)
    terms = Terms(Tariff(currency="EUR", per_gpu_hour={V100: 2.0}, grid_g_per_kwh=400.0))
    old, new = found[0].found, outlook(in_mixed_precision(found[0].job))
    assert new is not None
    ratio = step_ratio(old, new)
    rows = [
        row
        for row in better(found, outlook, [V100], terms)
        if row.kind is OpportunityKind.MIXED_PRECISION
    ]
    assert bool(rows) == (ratio.high < 1)  # listed only where even the cautious end saves
    for row in rows:
        assert row.saved_gpu_hours.median == pytest.approx(1 - ratio.median)
        assert row.saved_cost is not None
        assert row.saved_cost.median == pytest.approx(2 * (1 - ratio.median))
        assert "--fp16" in row.change  # a flag: no comment switches anything on
        assert "comment" not in row.change + row.command
        assert "measured runs" in row.evidence


@pytest.mark.parametrize(
    ("trainer", "flag"),
    [
        ("hf-trainer", "--bf16 True"),
        ("timm", "--amp --amp-dtype bfloat16"),
        ("torchvision", "--amp (no flag for bf16 is known: this is fp16"),
        ("", "--bf16, --amp"),
    ],
)
def test_the_change_is_a_flag_of_the_trainer(fitted: Fitted, trainer: str, flag: str) -> None:
    asked = FP32 + (f" trainer={trainer}" if trainer else "")
    found = configurations(ran(job(asked=asked, gpu_type=A100)).table, Outlook(fitted.predictor), 9)
    mixed = in_mixed_precision(found[0].job)
    to = Outlook(fitted.predictor)(mixed)
    assert to is not None
    ratio = step_ratio(found[0].found, to)
    each = Better(kind=OpportunityKind.MIXED_PRECISION, of=found[0], to=to, ratio=ratio)
    assert flag in change_of(each)


@pytest.mark.parametrize("median", [0.9, 1.2])
def test_who_may_run_longer_on_fewer_gpus_is_told_to_ask_for_the_time(
    fitted: Fitted, median: float
) -> None:
    found = configurations(ran(job(asked=FP32, gpus=4)).table, Outlook(fitted.predictor), 9)
    longer = Range(low=0.5, median=median, high=3.1)
    fewer = Better(kind=OpportunityKind.FEWER_GPUS, of=found[0], to=found[0].found, ratio=longer)
    assert change_of(fewer).endswith(", and a time limit for a run up to 3.1 times as long")


def test_every_advice_has_a_command_that_runs_and_checks_it(fitted: Fitted) -> None:
    outlook = Outlook(fitted.predictor)
    wide = "model=densenet121 precision=fp32 batch_size=1 steps=1000 options=channels_last=on"
    jobs = ran(job(asked=FP32), job(job_id="2", asked=wide, gpus=16))
    found = configurations(jobs.table, outlook, most=10)
    rows = better(found, outlook, [V100, A100], Terms())
    assert rows
    for command in (command for row in rows for command in row.command.split(" && ")):
        program, *words = shlex.split(command)
        done = CliRunner().invoke(main, [*words, "--format", "json"])
        assert (program, done.exit_code) == ("precision-time", 0), (command, done.output)


def test_that_command_says_all_that_the_job_was(fitted: Fitted) -> None:
    read: list[TrainingJob] = []

    @click.command()
    @model_argument
    @job_options()
    def said(model: str, **fields: Any) -> None:
        read.append(job_of(model, fields))

    outlook = Outlook(fitted.predictor)
    for asked in (
        "model=gpt-style precision=fp32 batch_size=4 grad_accum=2 tensor_parallel=2 optimizer=adam"
        ' framework=megatron framework_date=2023.25 options="amp=off;tf32=off;sequence_parallel=on"'
        ' variant="heads=8;hidden=512;layers=12"',
        "model=resnet18 precision=fp32 batch_size=16 image_size=32x32 gpus_per_node=1"
        " fabric=ethernet-10 options=placement=unconsolidated",
        'model=bert-large precision=fp32 phases="share=0.5,seq_len=128,batch_size=8;share=0.5"',
    ):
        [one] = configurations(ran(job(asked=asked, gpus=4)).table, outlook, most=1)
        for kind, to in (
            (OpportunityKind.MIXED_PRECISION, in_mixed_precision(one.job)),
            (OpportunityKind.FEWER_GPUS, next(with_fewer_gpus(one.job), None)),
        ):
            new = outlook(to)
            assert new is not None
            found = Better(kind=kind, of=one, to=new, ratio=step_ratio(one.found, new))
            for command in check_of(found).split(" && "):
                said.main(shlex.split(command)[2:], standalone_mode=False)
            # One command compares jobs that differ in precision alone.
            was = read[0] if read[1:] else read[0].but(precision=one.job.precision)
            assert [was, read[-1]] == [by_micro_batch(one.job), by_micro_batch(new.job)]
            read.clear()


def by_micro_batch(one: TrainingJob) -> TrainingJob:
    batch = {"batch_size": one.micro_batch_size, "grad_accum": one.micro_steps}
    return one.but(global_batch_size=None, **batch)


def test_fewer_gpus_keep_the_global_batch() -> None:
    whole = training_job(FP32, V100, 8, 1)
    assert whole is not None
    fewer = list(with_fewer_gpus(whole))
    assert [one.gpus for one in fewer] == [4, 2, 1]
    assert {one.step_samples for one in fewer} == {512}


def test_the_baseline_of_an_idle_cluster_is_its_history(fitted: Fitted) -> None:
    found = replayed(fitted, ClusterChange(add=(Pool(name=V100, gpus=4),)), job(gpus=2))
    assert found.baseline.gpu_hours == found.changed.gpu_hours == pytest.approx(2)
    assert found.baseline.mean_wait_s == found.history_mean_wait_s == 0
    assert found.changed.utilisation == pytest.approx(found.baseline.utilisation * 8 / 12)


def test_more_gpus_of_their_type_shorten_the_wait_of_jobs_in_a_row(fitted: Fitted) -> None:
    rows = [
        job(job_id=str(n), gpus=4, start_s=START_S + n * 3600, end_s=START_S + (n + 1) * 3600)
        for n in range(3)
    ]
    found = replayed(fitted, ClusterChange(add=(Pool(name=V100, gpus=8),)), *rows)
    assert found.baseline.mean_wait_s == found.history_mean_wait_s == 3600
    assert found.changed.mean_wait_s == 0


def test_jobs_of_a_type_that_goes_move_where_they_are_predicted_and_fit(fitted: Fitted) -> None:
    gone = ClusterChange(remove=(Pool(name=V100, gpus=4),))
    found = replayed(fitted, gone, job(asked=FP32), job(job_id="2"))
    assert (found.changed.jobs, found.changed.never_started, found.unmoved_jobs) == (1, 1, 1)
    assert found.changed.gpu_hours < 1  # an A100 is faster


def test_cost_is_told_only_where_every_job_has_a_price(fitted: Fitted) -> None:
    more = ClusterChange(add=(Pool(name=V100, gpus=1),))
    priced = Terms(Tariff(currency="EUR", per_gpu_hour={V100: 3.0}))
    assert replayed(fitted, more, job(), terms=priced).baseline.cost == pytest.approx(3)
    assert replayed(fitted, more, job()).baseline.cost is None


def test_gpus_that_are_not_there_cannot_be_removed() -> None:
    with pytest.raises(TraceError, match=r"there are 4"):
        ClusterChange(remove=(Pool(name=V100, gpus=5),)).of(POOLS)
    with pytest.raises(TraceError, match="no GPU is left"):
        ClusterChange(remove=POOLS[:1]).of(POOLS[:1])


def test_nothing_to_replay_is_refused(fitted: Fitted) -> None:
    with pytest.raises(TraceError, match="no job ran"):
        replayed(fitted, ClusterChange(mixed=True))


def test_every_alternative_is_compared_with_the_same_replay(fitted: Fitted) -> None:
    rows = [
        job(
            job_id=f"{hour}-{number}",
            user=("ada", "bob")[number],
            submit_s=START_S + hour * 3600,
            start_s=START_S + hour * 3600,
            end_s=START_S + hour * 3600 + (9000.0, 600.0)[number],
            limit_s=12_000.0,
            gpus=3,
            asked=FP32,
        )
        for hour in range(0, 24, 2)
        for number in range(2)
    ]
    found = alternatives(ran(*rows), Outlook(fitted.predictor), Terms(), POOLS)
    by = {one.change: one for one in found}
    was = by["as it was"]
    assert was.change_s == Range(low=0, median=0, high=0)
    assert was.mean_wait_s > 0
    for one in found:
        assert one.change_s.low <= one.change_s.median <= one.change_s.high
        assert one.change_s.median == pytest.approx(one.mean_wait_s - was.mean_wait_s)
        assert one.jobs == len(rows)
    assert by[f"+8 {V100}"].mean_wait_s == 0
    # Short jobs of bob go first once it was seen that they are short.
    assert by[ORDER].mean_wait_s < was.mean_wait_s
    assert by["mixed precision"].gpu_hours < was.gpu_hours


def test_nothing_submitted_in_the_period_has_no_alternatives(fitted: Fitted) -> None:
    assert alternatives(ran(), Outlook(fitted.predictor), Terms(), POOLS) == ()
